//! Goal: stripes of mirrors stand for those that they mirror, and a set that is not whole on each mirror is on none.
//! Method: stripes in memory, with a device that fails after some bytes.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_codec::Algorithm;
use longshore_io::Via;
use longshore_media::device::DeviceClass;
use longshore_media::{
    BackupDevice, Disposition, Error, FamilyRead, FamilyWrite, LastLook, MediaSet, ParityPlan,
    PendingStripe, SetWriter, Surroundings,
};
use support::*;

type Devices = Vec<Arc<dyn BackupDevice>>;

fn slots(count: usize) -> (Vec<Slot>, Devices) {
    let slots: Vec<Slot> = (0..count).map(|_| Slot::default()).collect();
    let devices = slots.iter().map(|slot| Arc::new(slot.clone()) as _);
    let devices = devices.collect();
    (slots, devices)
}

fn shape(disposition: Disposition) -> Shape {
    Shape::new(disposition, Algorithm::Zstd, 50)
}

fn begun(devices: &Devices, mirrors: &[Devices], shape: &Shape) -> Result<SetWriter, Error> {
    SetWriter::begin_mirrored(devices, mirrors, shape.plan(), 1_700_000_000_000_000)
}

fn written(devices: &Devices, mirrors: &[Devices]) -> Result<(), Error> {
    let shape = shape(Disposition::Format);
    let writer = begun(devices, mirrors, &shape)?;
    let (writer, totals) = write_blocks(writer, &shape, &small_tree())?;
    writer.seal(&totals).map(|_| ())
}

#[test]
fn stripes_of_mirrors_have_the_same_bytes_and_stand_for_one_another() {
    let (first, of_first) = slots(3);
    let (second, of_second) = slots(3);
    let (third, of_third) = slots(3);
    written(&of_first, &[of_second, of_third]).unwrap();
    let bytes = |slots: &[Slot]| slots.iter().map(Slot::bytes).collect::<Vec<_>>();
    assert_eq!(bytes(&first), bytes(&second));
    assert_eq!(bytes(&first), bytes(&third));
    let mixed = [first[0].bytes(), second[1].bytes(), third[2].bytes()];
    assert_eq!(
        read_all(&devices(&mixed)).unwrap(),
        [expected(&small_tree())]
    );
    // Two stripes of one family are no more than one.
    let twice = [first[0].bytes(), second[0].bytes(), third[2].bytes()];
    let error = MediaSet::open(&devices(&twice)).unwrap_err();
    assert_eq!(error.number(), Some(3227), "{error}");
}

#[test]
fn a_mirror_that_is_unlike_what_it_mirrors_is_refused_before_anything_is_written() {
    let (first, of_first) = slots(2);
    let (_, of_second) = slots(2);
    let one = vec![of_second[0].clone()];
    let format = shape(Disposition::Format);
    let number = |mirror: &Devices, shape: &Shape| {
        let refused = begun(&of_first, std::slice::from_ref(mirror), shape);
        refused.err().unwrap().number()
    };
    assert_eq!(number(&one, &format), Some(3231));
    for disposition in [
        Disposition::New,
        Disposition::Append,
        Disposition::Init { skip: true },
    ] {
        assert_eq!(number(&of_second, &shape(disposition)), Some(3032));
    }
    let parity = Shape {
        parity: ParityPlan::of(1),
        ..shape(Disposition::Format)
    };
    assert_eq!(number(&of_second, &parity), Some(3032));
    assert!(first.iter().all(|slot| slot.bytes().is_empty()));
}

/// A device whose stripe fails once it has so many bytes.
#[derive(Debug)]
struct Dying {
    slot: Slot,
    after: u64,
    has_failed: Arc<AtomicBool>,
}

impl PendingStripe for Dying {
    fn open_pending(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        self.slot.open_pending()
    }
    fn complete_pending(&self) -> Result<(), Error> {
        self.slot.complete_pending()
    }
}

impl Surroundings for Dying {}

impl BackupDevice for Dying {
    fn name(&self) -> String {
        "dying".into()
    }
    fn class(&self) -> DeviceClass {
        DeviceClass::File
    }
    fn open(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        self.slot.open()
    }
    fn create(&self, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        Ok(Box::new(DyingWrite {
            write: self.slot.create(via)?,
            after: self.after,
            has_failed: self.has_failed.clone(),
        }))
    }
    fn append(&self, offset: u64, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        self.slot.append(offset, via)
    }
}

struct DyingWrite {
    write: Box<dyn FamilyWrite>,
    after: u64,
    has_failed: Arc<AtomicBool>,
}

impl DyingWrite {
    fn check(&self) -> Result<(), Error> {
        if self.write.offset() < self.after {
            return Ok(());
        }
        self.has_failed.store(true, Ordering::Relaxed);
        Err(Error::Io {
            action: "write",
            device: "dying".into(),
            offset: self.write.offset(),
            source: std::io::Error::other("gone"),
        })
    }
}

impl FamilyWrite for DyingWrite {
    fn offset(&self) -> u64 {
        self.write.offset()
    }
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.check()?;
        self.write.write(bytes)
    }
    fn sync(&mut self) -> Result<(), Error> {
        self.check()?;
        self.write.sync()
    }
    fn keep(&mut self) {
        self.write.keep();
    }
    fn complete(self: Box<Self>) -> Result<Option<LastLook>, Error> {
        self.write.complete()
    }
}

#[test]
fn a_mirror_that_fails_anywhere_leaves_no_stripe_on_any_device() {
    let (whole, of_whole) = slots(2);
    written(&of_whole, &[]).unwrap();
    let len = whole[1].bytes().len() as u64;
    for after in [0, 1, len / 2, len - 1, len] {
        let (first, of_first) = slots(2);
        let (second, of_second) = slots(2);
        let has_failed = Arc::new(AtomicBool::new(false));
        let dying = Arc::new(Dying {
            slot: second[1].clone(),
            after,
            has_failed: has_failed.clone(),
        });
        let mirror: Devices = vec![of_second[0].clone(), dying];
        let error = written(&of_first, &[mirror]).unwrap_err();
        assert!(error.to_string().contains("dying"), "{after}: {error}");
        assert!(has_failed.load(Ordering::Relaxed));
        for slot in first.iter().chain(&second) {
            assert!(slot.bytes().is_empty(), "{after}");
            assert!(slot.open_pending().unwrap().is_none(), "{after}");
        }
    }
}
