//! Doubles of a destination that break one promise each: whoever reads this sees that every promise of `contract.rs` can
//! turn red.
//!
//! Invariants
//! - The double that only hands calls on keeps every promise, so a lie is all that a promise can refuse.
//! - Every promise is broken by at least one lie.
//!
//! Goal: the suite of destinations can fail, in each of its promises.
//! Method: each lie is told to the promise that it is about, which must panic; a double that lies in nothing must keep
//! all of them.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{OpenHow, Storage, Via};
use longshore_landing::{
    DeltaResult, Destination, Error, FilePiece, LostAttributes, ReplacePolicy,
};
use longshore_media::{Entry, EntryKind, Extent};

use super::{CONTROL, PROMISES, Place, control, entry};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lie {
    /// No double at all.
    None,
    /// Only hands calls on.
    Harmless,
    ShowsANameEarly,
    LosesABlock,
    FlipsABit,
    CompletesNothing,
    TellsOfAChange,
    WatchesNoAttributes,
    CompletesWhatIsDropped,
    ReplacesUnasked,
    HidesErrors,
    LeavesAHalf,
    MakesAControlFile,
    TellsOfNoChange,
    CanStartTooEarly,
}

/// Every lie, and a promise that it breaks.
const LIES: &[(Lie, &str)] = &[
    (
        Lie::ShowsANameEarly,
        "everything_that_was_put_is_there_at_the_end_and_nothing_before",
    ),
    (
        Lie::LosesABlock,
        "everything_that_was_put_is_there_at_the_end_and_nothing_before",
    ),
    (
        Lie::FlipsABit,
        "everything_that_was_put_is_there_at_the_end_and_nothing_before",
    ),
    (
        Lie::CompletesNothing,
        "everything_that_was_put_is_there_at_the_end_and_nothing_before",
    ),
    (
        Lie::TellsOfAChange,
        "everything_that_was_put_is_there_at_the_end_and_nothing_before",
    ),
    (
        Lie::WatchesNoAttributes,
        "everything_that_was_put_is_there_at_the_end_and_nothing_before",
    ),
    (
        Lie::CompletesWhatIsDropped,
        "an_unfinished_stripe_leaves_the_old_file",
    ),
    (
        Lie::ReplacesUnasked,
        "an_existing_file_is_replaced_only_on_request",
    ),
    (
        Lie::HidesErrors,
        "an_error_of_the_disk_leaves_all_or_nothing",
    ),
    (
        Lie::LeavesAHalf,
        "an_error_of_the_disk_leaves_all_or_nothing",
    ),
    (
        Lie::MakesAControlFile,
        "a_cluster_without_its_control_file_is_refused_at_the_end",
    ),
    (
        Lie::TellsOfNoChange,
        "a_delta_is_complete_at_its_end_and_cannot_start_before",
    ),
    (
        Lie::CanStartTooEarly,
        "a_delta_is_complete_at_its_end_and_cannot_start_before",
    ),
    (
        Lie::CanStartTooEarly,
        "an_error_of_the_disk_leaves_a_delta_that_cannot_start",
    ),
];

impl Lie {
    /// The policy under which it opens where this one was asked for.
    pub fn policy(self, asked: ReplacePolicy) -> ReplacePolicy {
        match self {
            Lie::ReplacesUnasked => ReplacePolicy::Anything,
            _ => asked,
        }
    }

    pub fn told_by(self, place: &Place, inner: Box<dyn Destination>) -> Box<dyn Destination> {
        if self == Lie::None {
            return inner;
        }
        Box::new(Lying {
            lie: self,
            inner: Some(inner),
            storage: place.storage.clone(),
            path: place.path.clone(),
        })
    }
}

/// A destination that does as another one, but for one thing.
struct Lying {
    lie: Lie,
    /// Until it is finished.
    inner: Option<Box<dyn Destination>>,
    storage: Arc<dyn Storage>,
    path: PathBuf,
}

impl Lying {
    fn inner(&self) -> &dyn Destination {
        &**self.inner.as_ref().unwrap()
    }

    /// The other's answer, if it is told.
    fn told(&self, answer: Result<(), Error>) -> Result<(), Error> {
        match self.lie {
            Lie::HidesErrors => Ok(()),
            _ => answer,
        }
    }

    /// Puts a file where others see it.
    fn show(&self, name: &str, bytes: &[u8]) {
        let path = self.path.join(name);
        let dir = self.storage.create_dir_all(path.parent().unwrap()).unwrap();
        let name = Path::new(path.file_name().unwrap());
        if let Ok(file) = dir.open(name, OpenHow::CreateNew) {
            file.write_all_at(bytes, 0, Via::Cache).unwrap();
        }
    }
}

impl Destination for Lying {
    fn put_name(&self, entry: &Entry) -> Result<(), Error> {
        match self.lie {
            Lie::ShowsANameEarly => self.show("early", b""),
            Lie::CanStartTooEarly => self.show(CONTROL, &control(7)),
            _ => {}
        }
        self.told(self.inner().put_name(entry))
    }

    fn put_data(&self, entry: &Entry, parts: &[(Extent, &[u8])]) -> Result<(), Error> {
        if self.lie == Lie::LosesABlock && !entry.first {
            return Ok(());
        }
        let flipped = |(extent, bytes): &(Extent, &[u8])| {
            let mut bytes = bytes.to_vec();
            bytes[0] ^= u8::from(self.lie == Lie::FlipsABit);
            (*extent, bytes)
        };
        let parts: Vec<(Extent, Vec<u8>)> = parts.iter().map(flipped).collect();
        let parts: Vec<(Extent, &[u8])> = parts.iter().map(|(e, bytes)| (*e, &**bytes)).collect();
        self.told(self.inner().put_data(entry, &parts))
    }

    fn put_piece(&self, piece: &FilePiece) -> Result<(), Error> {
        self.told(self.inner().put_piece(piece))
    }

    fn complete(&self, entry: &Entry, crc32c: u32) -> Result<(), Error> {
        self.told(self.inner().complete(entry, crc32c))
    }

    fn lost(&self) -> Vec<Arc<LostAttributes>> {
        match self.lie {
            Lie::WatchesNoAttributes => Vec::new(),
            _ => self.inner().lost(),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<Option<DeltaResult>, Error> {
        if self.lie == Lie::MakesAControlFile {
            for (name, bytes) in [(CONTROL, control(7)), ("PG_VERSION", b"15\n".into())] {
                let len = bytes.len();
                let extent = Extent {
                    offset: 0,
                    len: len as u32,
                };
                let file = entry(name, EntryKind::File, len as u64);
                self.inner().put_data(&file, &[(extent, &bytes)])?;
            }
        }
        let inner = self.inner.take().unwrap();
        if self.lie == Lie::CompletesNothing {
            return Ok(None);
        }
        let finished = inner.finish();
        match self.lie {
            Lie::TellsOfAChange => finished.map(|_| Some(DeltaResult::default())),
            Lie::TellsOfNoChange => finished.map(|_| None),
            Lie::HidesErrors => Ok(finished.unwrap_or(None)),
            Lie::LeavesAHalf => {
                if finished.is_err() {
                    self.show("half", b"");
                }
                finished
            }
            _ => finished,
        }
    }
}

impl Drop for Lying {
    fn drop(&mut self) {
        let inner = self.inner.take();
        if let Some(inner) = inner.filter(|_| self.lie == Lie::CompletesWhatIsDropped) {
            let _refused = inner.finish();
        }
    }
}

/// Goal: the suite sees every destination that breaks the contract, and sees it in the promise that is broken.
#[test]
fn every_lie_of_a_destination_breaks_the_promise_that_it_is_about() {
    let mut broken = BTreeSet::new();
    for (name, promise) in PROMISES {
        promise(Lie::Harmless);
        for (lie, _) in LIES.iter().filter(|(_, of)| of == name) {
            let is_kept = catch_unwind(|| promise(*lie)).is_ok();
            assert!(!is_kept, "{lie:?} does not break {name}");
            broken.insert((name, format!("{lie:?}")));
        }
        assert!(broken.iter().any(|(of, _)| of == &name), "{name}");
    }
    assert_eq!(broken.len(), LIES.len(), "a lie of no promise");
}
