//! Goal: every promise of `contract.rs` can turn red.
//! Method: each double breaks one promise of a device, and must turn exactly that one red. A stripe that is read in order
//! only has doubles of its own.
//!
//! Invariants
//! - The double without a lie keeps every promise, so a lie is all that a promise can refuse.
//! - Every promise is broken by at least one lie.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use longshore_io::Via;
use longshore_media::device::DeviceClass;
use longshore_media::{
    BackupDevice, Error, FamilyRead, FamilyWrite, LastLook, PendingStripe, Surroundings,
};

use super::support::Slot;
use super::{PROMISES, Place, all, long, reading};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    None,
    ShowsWhatIsBegun,
    WaitsWhenComplete,
    FlipsABit,
    ReadsShort,
    IsOneByteLonger,
    CountsNothing,
    ReadsTheSuccessor,
    CompletesWhatIsDropped,
    KeepsWhatIsDropped,
    ForgetsWhatIsKept,
    CompletesNothing,
    CreatesWhatIsMissing,
    AppendsAtTheEnd,
    CutsAtOnce,
    LetsEverybodyWrite,
}

/// Every lie, and a promise that it breaks.
const LIES: &[(Lie, &str)] = &[
    (
        Lie::ShowsWhatIsBegun,
        "nothing_stands_before_a_stripe_is_complete",
    ),
    (
        Lie::CountsNothing,
        "nothing_stands_before_a_stripe_is_complete",
    ),
    (
        Lie::WaitsWhenComplete,
        "nothing_stands_before_a_stripe_is_complete",
    ),
    (Lie::FlipsABit, "a_stripe_is_read_as_it_was_written"),
    (Lie::ReadsShort, "a_stripe_is_read_as_it_was_written"),
    (Lie::IsOneByteLonger, "a_stripe_is_read_as_it_was_written"),
    (
        Lie::ReadsTheSuccessor,
        "what_stands_is_read_until_its_successor_is_complete",
    ),
    (
        Lie::CompletesWhatIsDropped,
        "a_stripe_that_is_dropped_leaves_the_device_as_it_was_found",
    ),
    (
        Lie::KeepsWhatIsDropped,
        "a_stripe_that_is_dropped_leaves_the_device_as_it_was_found",
    ),
    (
        Lie::ForgetsWhatIsKept,
        "a_kept_stripe_waits_and_is_completed_by_anybody",
    ),
    (
        Lie::CompletesNothing,
        "a_kept_stripe_waits_and_is_completed_by_anybody",
    ),
    (
        Lie::CreatesWhatIsMissing,
        "an_append_keeps_what_is_before_it_and_cuts_what_is_behind",
    ),
    (
        Lie::AppendsAtTheEnd,
        "an_append_keeps_what_is_before_it_and_cuts_what_is_behind",
    ),
    (
        Lie::CutsAtOnce,
        "an_append_that_is_dropped_leaves_what_is_before_it",
    ),
    (Lie::LetsEverybodyWrite, "a_device_has_one_writer_at_a_time"),
];

/// A device that does as another one, but for one thing.
#[derive(Debug)]
struct Lying {
    lie: Lie,
    inner: Arc<dyn BackupDevice>,
}

impl Lying {
    fn writer(&self, inner: Box<dyn FamilyWrite>) -> Box<dyn FamilyWrite> {
        Box::new(LyingWrite {
            lie: self.lie,
            inner: Some(inner),
            is_kept: false,
        })
    }

    /// The other device's writer; of the one that lets everybody write, one to a place of its own.
    fn unless_busy(
        &self,
        asked: Result<Box<dyn FamilyWrite>, Error>,
    ) -> Result<Box<dyn FamilyWrite>, Error> {
        match asked {
            Err(Error::Busy { .. }) if self.lie == Lie::LetsEverybodyWrite => {
                Slot::default().create(Via::Cache)
            }
            asked => asked,
        }
    }

    fn cut(&self, offset: u64) -> Result<(), Error> {
        let stripe = self.inner.open()?;
        let bytes = stripe.map_or(Vec::new(), |read| all(&*read));
        let mut write = self.inner.create(Via::Cache)?;
        write.write(&bytes[..offset as usize])?;
        write.sync()?;
        write.keep();
        write.complete().map(drop)
    }
}

impl PendingStripe for Lying {
    fn open_pending(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        match self.lie {
            Lie::WaitsWhenComplete => match self.inner.open()? {
                Some(read) => Ok(Some(read)),
                None => self.inner.open_pending(),
            },
            _ => self.inner.open_pending(),
        }
    }

    fn complete_pending(&self) -> Result<(), Error> {
        match self.lie {
            Lie::CompletesNothing if self.inner.open_pending()?.is_some() => Ok(()),
            _ => self.inner.complete_pending(),
        }
    }
}

impl Surroundings for Lying {}

impl BackupDevice for Lying {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn class(&self) -> DeviceClass {
        self.inner.class()
    }

    fn open(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        if self.lie == Lie::ShowsWhatIsBegun
            && let Some(begun) = self.inner.open_pending()?
        {
            return Ok(Some(begun));
        }
        let read = |inner| LyingRead {
            lie: self.lie,
            inner,
            device: self.inner.clone(),
        };
        Ok(self.inner.open()?.map(|inner| Arc::new(read(inner)) as _))
    }

    fn create(&self, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        let inner = self.unless_busy(self.inner.create(via))?;
        Ok(self.writer(inner))
    }

    fn append(&self, offset: u64, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        let stripe = self.inner.open()?;
        let at = match (self.lie, stripe) {
            (Lie::CreatesWhatIsMissing, None) => return self.create(via),
            (Lie::AppendsAtTheEnd, Some(read)) => read.len_bytes()?.unwrap(),
            (Lie::CutsAtOnce, Some(_)) => {
                self.cut(offset)?;
                offset
            }
            _ => offset,
        };
        let inner = self.unless_busy(self.inner.append(at, via))?;
        Ok(self.writer(inner))
    }
}

#[derive(Debug)]
struct LyingRead {
    lie: Lie,
    inner: Arc<dyn FamilyRead>,
    device: Arc<dyn BackupDevice>,
}

impl LyingRead {
    fn read(&self) -> Result<Arc<dyn FamilyRead>, Error> {
        match self.lie {
            Lie::ReadsTheSuccessor => Ok(self.device.open()?.unwrap_or(self.inner.clone())),
            _ => Ok(self.inner.clone()),
        }
    }
}

impl FamilyRead for LyingRead {
    fn len_bytes(&self) -> Result<Option<u64>, Error> {
        let more = u64::from(self.lie == Lie::IsOneByteLonger);
        Ok(self.read()?.len_bytes()?.map(|len| len + more))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let wanted = match self.lie {
            Lie::ReadsShort => buf.len().min(4096),
            _ => buf.len(),
        };
        let n = self.read()?.read_at(&mut buf[..wanted], offset)?;
        if self.lie == Lie::FlipsABit && offset > 0 && n > 0 {
            buf[n - 1] ^= 1;
        }
        Ok(n)
    }
}

struct LyingWrite {
    lie: Lie,
    /// Until it is complete.
    inner: Option<Box<dyn FamilyWrite>>,
    is_kept: bool,
}

impl LyingWrite {
    fn inner(&mut self) -> &mut dyn FamilyWrite {
        &mut **self.inner.as_mut().unwrap()
    }
}

impl FamilyWrite for LyingWrite {
    fn offset(&self) -> u64 {
        match self.lie {
            Lie::CountsNothing => 0,
            _ => self.inner.as_ref().unwrap().offset(),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.inner().write(bytes)
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.inner().sync()
    }

    fn keep(&mut self) {
        self.is_kept = true;
        if self.lie != Lie::ForgetsWhatIsKept {
            self.inner().keep();
        }
    }

    fn complete(mut self: Box<Self>) -> Result<Option<LastLook>, Error> {
        self.inner.take().unwrap().complete()
    }
}

impl Drop for LyingWrite {
    fn drop(&mut self) {
        let Some(mut inner) = self.inner.take().filter(|_| !self.is_kept) else {
            return;
        };
        if matches!(
            self.lie,
            Lie::CompletesWhatIsDropped | Lie::KeepsWhatIsDropped
        ) {
            inner.sync().unwrap();
            inner.keep();
        }
        if self.lie == Lie::CompletesWhatIsDropped {
            inner.complete().unwrap();
        }
    }
}

fn place(lie: Lie) -> Place {
    let honest = Place::simulated();
    Place {
        handle: Box::new(move || {
            let inner = honest.device();
            Arc::new(Lying { lie, inner })
        }),
        _directory: None,
    }
}

/// Goal: the suite sees every device that breaks the contract, and sees it in the promise that is broken.
#[test]
fn every_lie_of_a_device_breaks_the_promise_that_it_is_about() {
    let is_kept =
        |lie, promise: fn(&Place)| catch_unwind(AssertUnwindSafe(|| promise(&place(lie)))).is_ok();
    let mut broken = BTreeSet::new();
    for (name, promise) in PROMISES {
        assert!(is_kept(Lie::None, *promise), "{name}");
        for (lie, _) in LIES.iter().filter(|(_, of)| of == name) {
            assert!(!is_kept(*lie, *promise), "{lie:?} does not break {name}");
            broken.insert((name, format!("{lie:?}")));
        }
        assert!(broken.iter().any(|(of, _)| of == &name), "{name}");
    }
    assert_eq!(broken.len(), LIES.len(), "a lie of no promise");
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum OrderLie {
    None,
    TellsALength,
    ReadsBack,
    ReadsAhead,
    LosesWhatItRefuses,
    FlipsABit,
    ReadsShort,
}

/// A stripe that is read as a pipe is, but for one thing.
#[derive(Debug)]
struct Ordered {
    lie: OrderLie,
    bytes: Vec<u8>,
    at: Mutex<usize>,
}

impl FamilyRead for Ordered {
    fn len_bytes(&self) -> Result<Option<u64>, Error> {
        let tells = self.lie == OrderLie::TellsALength;
        Ok(tells.then_some(self.bytes.len() as u64))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let mut at = self.at.lock().unwrap();
        let offset = offset as usize;
        let is_taken = match self.lie {
            OrderLie::ReadsBack => offset <= *at,
            OrderLie::ReadsAhead => offset >= *at,
            _ => offset == *at,
        };
        if !is_taken {
            *at += usize::from(self.lie == OrderLie::LosesWhatItRefuses);
            return Err(Error::Unsupported {
                device: "ordered".to_owned(),
                action: "be read out of order",
            });
        }
        let from = &self.bytes[offset.min(self.bytes.len())..];
        let wanted = match self.lie {
            OrderLie::ReadsShort => buf.len().min(4095),
            _ => buf.len(),
        };
        let n = wanted.min(from.len());
        buf[..n].copy_from_slice(&from[..n]);
        if self.lie == OrderLie::FlipsABit && offset > 0 && n > 0 {
            buf[n - 1] ^= 1;
        }
        *at = offset + n;
        Ok(n)
    }
}

/// Goal: the suite sees every stripe that claims to be read in order only and is not.
#[test]
fn every_lie_of_a_stripe_that_is_read_in_order_is_seen() {
    let is_kept = |lie| {
        let bytes = long(10);
        let read = Ordered {
            lie,
            bytes: bytes.clone(),
            at: Mutex::new(0),
        };
        let check = || reading::keeps_its_contract(&read, &bytes);
        catch_unwind(AssertUnwindSafe(check)).is_ok()
    };
    assert!(is_kept(OrderLie::None));
    for lie in [
        OrderLie::TellsALength,
        OrderLie::ReadsBack,
        OrderLie::ReadsAhead,
        OrderLie::LosesWhatItRefuses,
        OrderLie::FlipsABit,
        OrderLie::ReadsShort,
    ] {
        assert!(!is_kept(lie), "{lie:?} is not seen");
    }
}
