//! Goal: the text of [`BackupDevice`], [`PendingStripe`], [`FamilyWrite`] and [`FamilyRead`] holds for every device and
//! every double alike. A device that keeps nothing promises less.
//! Method: each promise runs on files on a real disk, on simulated ones with and without locks that reach everybody, on
//! one that writes in pieces, in a simulated bucket, and on the doubles in memory. `contract/lies.rs` breaks each promise.

#[path = "contract/lies.rs"]
mod lies;
#[path = "contract/reading.rs"]
mod reading;
mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_bucket::sim::Store;
use longshore_bucket::{Address, Scheme};
use longshore_io::{Fault, Host, Op, SimDisk, Storage, Via};
use longshore_media::device::BucketDevice;
use longshore_media::{BackupDevice, DeviceSpec, Error, FamilyRead, FamilyWrite};
use support::{Slot, Stripe};

/// Where one stripe may stand, and as many handles to it as are asked for.
struct Place {
    handle: Box<dyn Fn() -> Arc<dyn BackupDevice>>,
    _directory: Option<tempfile::TempDir>,
}

impl Place {
    fn device(&self) -> Arc<dyn BackupDevice> {
        (self.handle)()
    }

    fn on(storage: Arc<dyn Storage>, path: PathBuf) -> Place {
        Place {
            handle: Box::new(move || DeviceSpec::File(path.clone()).open(&storage)),
            _directory: None,
        }
    }

    fn real() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stripe");
        Place {
            _directory: Some(directory),
            ..Place::on(Arc::new(Host::new()), path)
        }
    }

    fn simulated() -> Place {
        Place::simulated_on(&disk())
    }

    fn simulated_on(disk: &SimDisk) -> Place {
        Place::on(Arc::new(disk.clone()), "/d/stripe".into())
    }

    fn without_locks() -> Place {
        Place::simulated_on(&disk().set_keeps_locks(false))
    }

    fn that_writes_in_pieces() -> Place {
        Place::simulated_on(&disk().inject(Fault::short_write().sometimes()))
    }

    /// An object in a simulated store, in parts of 128 KiB.
    fn bucket() -> Place {
        Place::in_store(Scheme::S3)
    }

    fn azure() -> Place {
        Place::in_store(Scheme::Azure)
    }

    fn google() -> Place {
        Place::in_store(Scheme::Google)
    }

    fn in_store(scheme: Scheme) -> Place {
        let store = Store::speaking(scheme);
        Place {
            handle: Box::new(move || object(&store)),
            _directory: None,
        }
    }

    fn in_memory() -> Place {
        let slot = Slot::default();
        Place {
            handle: Box::new(move || Arc::new(slot.clone())),
            _directory: None,
        }
    }
}

fn object(store: &Store) -> Arc<dyn BackupDevice> {
    let address = Address::of(&format!("{}sim/dir/stripe", store.scheme())).unwrap();
    let bucket = store.bucket().unwrap();
    Arc::new(BucketDevice::of(bucket, Arc::new(disk()), address, 128 << 10).unwrap())
}

fn disk() -> SimDisk {
    let disk = SimDisk::new(5);
    disk.write_file("/d/other", b"").unwrap();
    disk
}

/// Every promise, kept by everything that keeps stripes.
macro_rules! contract {
    ($($promise:ident)*) => {
        /// Every promise by its name.
        const PROMISES: &[(&str, fn(&Place))] = &[$((stringify!($promise), $promise)),*];
        contract! { @of real simulated without_locks that_writes_in_pieces in_memory; $($promise)* }
    };
    (@of $($place:ident)*; $($rest:tt)*) => { contract! { @each [$($place)*] [$($rest)*] } };
    (@each [$place:ident $($more:ident)*] [$($promise:ident)*]) => {
        mod $place { $(#[test] fn $promise() { super::$promise(&super::Place::$place()); })* }
        contract! { @each [$($more)*] [$($promise)*] }
    };
    (@each [] [$($promise:ident)*]) => {};
}

contract! {
    nothing_stands_before_a_stripe_is_complete
    a_stripe_is_read_as_it_was_written
    what_stands_is_read_until_its_successor_is_complete
    a_stripe_that_is_dropped_leaves_the_device_as_it_was_found
    a_kept_stripe_waits_and_is_completed_by_anybody
    an_append_keeps_what_is_before_it_and_cuts_what_is_behind
    an_append_that_is_dropped_leaves_what_is_before_it
    a_device_has_one_writer_at_a_time
}

contract! { @of bucket azure google;
    nothing_stands_before_a_stripe_is_complete
    a_stripe_is_read_as_it_was_written
    a_stripe_that_is_dropped_leaves_the_device_as_it_was_found
}

/// Longer than what a device gathers before it writes, and no multiple of anything.
fn long(seed: u8) -> Vec<u8> {
    let byte = |i: usize| (i.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed;
    (0..longshore_io::HUGE_BYTES + 12_345).map(byte).collect()
}

fn written(place: &Place, bytes: &[u8]) -> Box<dyn FamilyWrite> {
    let mut write = place.device().create(Via::Direct).unwrap();
    write.write(bytes).unwrap();
    write.sync().unwrap();
    write
}

fn put(place: &Place, bytes: &[u8]) {
    let mut write = written(place, bytes);
    write.keep();
    write.complete().unwrap();
}

fn all(read: &dyn FamilyRead) -> Vec<u8> {
    let mut bytes = vec![0; read.len_bytes().unwrap().unwrap() as usize];
    assert_eq!(read.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

fn stands(place: &Place) -> Option<Vec<u8>> {
    let read = place.device().open().unwrap();
    read.map(|read| all(&*read))
}

fn waits(place: &Place) -> Option<Vec<u8>> {
    let read = place.device().open_pending().unwrap();
    read.map(|read| all(&*read))
}

fn nothing_stands_before_a_stripe_is_complete(place: &Place) {
    assert_eq!((stands(place), waits(place)), (None, None));
    let mut write = place.device().create(Via::Cache).unwrap();
    assert_eq!(write.offset(), 0);
    write.write(b"abc").unwrap();
    assert_eq!(write.offset(), 3);
    write.sync().unwrap();
    assert_eq!(stands(place), None);
    write.keep();
    assert_eq!(stands(place), None);
    write.complete().unwrap();
    assert_eq!(stands(place).unwrap(), b"abc");
    assert_eq!(waits(place), None);
}

fn a_stripe_is_read_as_it_was_written(place: &Place) {
    let bytes = long(1);
    let mut write = place.device().create(Via::Direct).unwrap();
    for (i, piece) in bytes.chunks(70_001).enumerate() {
        write.write(piece).unwrap();
        // A stripe goes on after it was synced, wherever that was.
        if i % 7 == 3 {
            write.sync().unwrap();
        }
    }
    assert_eq!(write.offset(), bytes.len() as u64);
    write.sync().unwrap();
    write.keep();
    write.complete().unwrap();
    let read = place.device().open().unwrap().unwrap();
    reading::keeps_its_contract(&*read, &bytes);
}

fn what_stands_is_read_until_its_successor_is_complete(place: &Place) {
    put(place, b"old");
    let before = place.device().open().unwrap().unwrap();
    let mut write = written(place, b"another");
    assert_eq!(stands(place).unwrap(), b"old");
    write.keep();
    write.complete().unwrap();
    assert_eq!(stands(place).unwrap(), b"another");
    assert_eq!(all(&*before), b"old", "opened before");
}

fn a_stripe_that_is_dropped_leaves_the_device_as_it_was_found(place: &Place) {
    drop(written(place, b"begun"));
    assert_eq!((stands(place), waits(place)), (None, None));
    put(place, b"old");
    drop(place.device().create(Via::Direct).unwrap());
    drop(written(place, &long(2)));
    assert_eq!(stands(place).unwrap(), b"old");
    assert_eq!(waits(place), None);
    put(place, b"new");
    assert_eq!(stands(place).unwrap(), b"new");
}

fn a_kept_stripe_waits_and_is_completed_by_anybody(place: &Place) {
    let none = place.device().complete_pending();
    assert!(matches!(none, Err(Error::Busy { .. })), "{none:?}");
    put(place, b"old");
    let mut write = written(place, b"new");
    let busy = place.device().complete_pending();
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    write.keep();
    drop(write);
    assert_eq!(stands(place).unwrap(), b"old");
    assert_eq!(waits(place).unwrap(), b"new");
    place.device().complete_pending().unwrap();
    assert_eq!(stands(place).unwrap(), b"new");
    assert_eq!(waits(place), None);
    // One that waits is nobody's to keep: the next stripe takes its place.
    let mut write = written(place, b"kept");
    write.keep();
    drop(write);
    put(place, b"newest");
    assert_eq!(stands(place).unwrap(), b"newest");
    assert_eq!(waits(place), None);
}

fn an_append_keeps_what_is_before_it_and_cuts_what_is_behind(place: &Place) {
    let missing = place.device().append(0, Via::Direct).err().unwrap();
    assert!(matches!(missing, Error::Missing { .. }), "{missing}");
    let old = long(3);
    put(place, &old);
    for (offset, more) in [(old.len(), long(4)), (old.len() - 777, b"short".to_vec())] {
        let mut write = place.device().append(offset as u64, Via::Direct).unwrap();
        assert_eq!(write.offset(), offset as u64);
        write.write(&more).unwrap();
        write.sync().unwrap();
        write.keep();
        write.complete().unwrap();
        let found = stands(place).unwrap();
        assert!(found == [&old[..offset], &more[..]].concat(), "{offset}");
    }
}

fn an_append_that_is_dropped_leaves_what_is_before_it(place: &Place) {
    put(place, b"before, behind");
    drop(place.device().append(6, Via::Direct).unwrap());
    assert_eq!(
        stands(place).unwrap(),
        b"before, behind",
        "nothing was written"
    );
    let mut write = place.device().append(14, Via::Direct).unwrap();
    write.write(&long(5)).unwrap();
    write.sync().unwrap();
    drop(write);
    assert_eq!(stands(place).unwrap(), b"before, behind");
    let mut write = place.device().append(6, Via::Direct).unwrap();
    write.write(b"!").unwrap();
    drop(write);
    assert!(stands(place).unwrap().starts_with(b"before"));
}

fn a_device_has_one_writer_at_a_time(place: &Place) {
    put(place, b"old");
    let refused = |is_held: bool| {
        for again in [
            place.device().create(Via::Direct).map(drop),
            place.device().append(3, Via::Direct).map(drop),
        ] {
            let is_busy = matches!(again, Err(Error::Busy { .. }));
            assert!(is_busy == is_held && again.is_ok() != is_held, "{again:?}");
        }
    };
    let write = place.device().create(Via::Direct).unwrap();
    refused(true);
    drop(write);
    refused(false);
    let write = place.device().append(3, Via::Direct).unwrap();
    refused(true);
    drop(write);
    refused(false);
    // A reader is never in the way.
    let _read = place.device().open().unwrap();
    refused(false);
}

/// Goal: whatever call fails, the device has the old stripe or the new one, under its name or waiting, and goes on.
#[test]
fn an_error_of_the_disk_leaves_the_old_stripe_or_the_new_one() {
    let replace = |place: &Place| -> Result<(), Error> {
        let mut write = place.device().create(Via::Direct)?;
        write.write(&long(6))?;
        write.sync()?;
        write.keep();
        write.complete().map(drop)
    };
    for op in [
        Op::Open,
        Op::Stat,
        Op::Create,
        Op::Write,
        Op::SetLen,
        Op::Sync,
        Op::SyncDir,
        Op::Rename,
    ] {
        for nth in 1..9 {
            let disk = disk();
            let place = Place::simulated_on(&disk);
            put(&place, b"old");
            disk.inject(Fault::errno(EIO).on(op).nth(nth).times(1));
            let told = replace(&place).is_ok();
            disk.heal();
            let found = [stands(&place), waits(&place)];
            let new = long(6);
            let is_new = found[0].as_ref() == Some(&new);
            assert!(
                is_new || found[0].as_deref() == Some(b"old"),
                "{op:?} {nth}"
            );
            assert!(is_new || !told, "{op:?} {nth}");
            // The next writer gets through.
            put(&place, b"next");
            assert_eq!(stands(&place).unwrap(), b"next", "{op:?} {nth}");
        }
    }
}

/// Goal: an error of a write names the offset of the first byte that is not there, wherever in a buffer that is.
#[test]
fn an_error_names_the_offset_at_which_the_disk_refused() {
    for (whole, broken) in [(0, 1), (0, 2), (1, 2), (2, 1)] {
        let disk = disk();
        let place = Place::simulated_on(&disk);
        let mut write = place.device().create(Via::Direct).unwrap();
        for byte in 0..whole {
            write.write(&long(byte)).unwrap();
        }
        let before = waits(&place).map_or(0, |bytes| bytes.len() as u64);
        disk.inject(Fault::short_write().times(broken - 1));
        disk.inject(Fault::errno(EIO).on(Op::Write).nth(broken));
        let result = (0..9).try_for_each(|byte| write.write(&long(byte)));
        let Err(Error::Io { offset, action, .. }) = result else {
            panic!("{result:?}");
        };
        assert_eq!(action, "write");
        disk.heal();
        let stored = waits(&place).unwrap();
        assert_eq!(offset, stored.len() as u64, "{whole} {broken}");
        assert!(offset >= before);
        let is_inside = offset % longshore_io::HUGE_BYTES as u64 != 0;
        assert_eq!(is_inside, broken > 1, "{offset}");
    }
}

const EIO: i32 = 5;

#[test]
fn a_finished_stripe_in_memory_is_read_and_not_written() {
    let bytes = long(7);
    let device = Stripe::device("s", bytes.clone());
    reading::keeps_its_contract(&*device.open().unwrap().unwrap(), &bytes);
    check_unsupported(&*device);
    assert!(matches!(
        device.create(Via::Cache),
        Err(Error::Unsupported { .. })
    ));
}

#[test]
fn an_object_is_not_appended_to_and_does_not_wait() {
    let store = Store::default();
    let place = Place {
        handle: Box::new(move || object(&store)),
        _directory: None,
    };
    check_unsupported(&*place.device());
    put(&place, b"old");
    check_unsupported(&*place.device());
    let mut write = written(&place, b"kept");
    write.keep();
    drop(write);
    assert_eq!(
        (stands(&place), waits(&place)),
        (Some(b"old".to_vec()), None)
    );
}

/// A reader that began with one content is never given another's bytes.
#[test]
fn an_object_that_is_replaced_is_not_read_on_and_not_written_over() {
    let store = Store::default();
    let device = || object(&store);
    let place = Place {
        handle: Box::new({
            let store = store.clone();
            move || object(&store)
        }),
        _directory: None,
    };
    put(&place, &long(3));
    let read = device().open().unwrap().unwrap();
    let mut begin = vec![0; 1 << 20];
    assert_eq!(read.read_at(&mut begin, 0).unwrap(), 1 << 20);
    let mut other = written(&place, &long(4));
    put(&place, &long(5));
    let changed = read.read_at(&mut begin, 1 << 20);
    assert!(matches!(changed, Err(Error::Bucket(_))), "{changed:?}");
    let overtaken = other.sync();
    assert!(matches!(overtaken, Err(Error::Bucket(_))), "{overtaken:?}");
    drop(other);
    assert!(stands(&place).unwrap() == long(5));
    assert_eq!(store.uploads(), []);
}

/// Goal: a stripe that is read in order takes few requests, and none twice; other ranges are requested as they are, and its
/// ends not again.
#[test]
fn a_reader_asks_for_what_it_needs_and_little_more() {
    let store = Store::default();
    let bytes: Vec<u8> = (0..40 << 20)
        .map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 17) as u8)
        .collect();
    store.put("dir/stripe", &bytes);
    let read = object(&store).open().unwrap().unwrap();
    let before = store.asked().len();
    let mut at = 0;
    for step in [300_000, 4096, 900_000, 1 << 20].iter().cycle() {
        let mut buf = vec![0; *step];
        let n = read.read_at(&mut buf, at as u64).unwrap();
        assert!(buf[..n] == bytes[at..at + n], "{at}");
        if n == 0 {
            break;
        }
        // As the reader of blocks does, which begins again at a multiple of the alignment.
        at += n - (n % 4096).min(100);
        if n < *step {
            break;
        }
    }
    let asked = store.asked().len() - before;
    assert!(asked < 40, "{asked} requests for 40 MiB");
    let before = store.asked().len();
    let read_at = |at: usize, len: usize| {
        let mut buf = vec![0; len];
        assert_eq!(read.read_at(&mut buf, at as u64).unwrap(), len);
        assert!(buf[..] == bytes[at..at + len], "{at}");
    };
    for at in [30_000_000, 500_000, 20_000_000] {
        read_at(at, 5000);
    }
    assert_eq!(store.asked().len() - before, 3);
    // The two ends came with the first look.
    read_at(5, 16_000);
    read_at(bytes.len() - 4096, 4096);
    assert_eq!(store.asked().len() - before, 3);
}

#[test]
fn nul_takes_everything_and_keeps_nothing() {
    let device = DeviceSpec::Nul.open(&(Arc::new(Host::new()) as _));
    for _ in 0..2 {
        let mut write = device.create(Via::Direct).unwrap();
        write.write(&long(8)).unwrap();
        assert_eq!(write.offset(), long(8).len() as u64);
        write.sync().unwrap();
        write.keep();
        write.complete().unwrap();
        assert!(device.open().unwrap().is_none());
    }
    check_unsupported(&*device);
}

/// Checks that a device refuses what only files can do.
fn check_unsupported(device: &dyn BackupDevice) {
    assert!(device.open_pending().unwrap().is_none());
    let refused = device.complete_pending();
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
    let refused = device.append(0, Via::Direct).map(drop);
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
}

const CHILD: &str = "LONGSHORE_TEST_PIPE";
const BETWEEN: &[u8] = b"\n--- what the device wrote ---\n";

/// Goal: a pipe is read and written in order and once. Method: this test again, as the one between two pipes.
#[test]
fn a_pipe_is_read_and_written_in_order() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    if std::env::var_os(CHILD).is_some() {
        return between_two_pipes();
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_pipe_is_read_and_written_in_order",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(&long(9)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    let at = output
        .stdout
        .windows(BETWEEN.len())
        .position(|w| w == BETWEEN);
    let written = &output.stdout[at.unwrap() + BETWEEN.len()..];
    assert!(written.starts_with(&long(9)));
}

fn between_two_pipes() {
    let device = DeviceSpec::Pipe.open(&(Arc::new(Host::new()) as _));
    check_unsupported(&*device);
    let read = device.open().unwrap().unwrap();
    assert_eq!(read.len_bytes().unwrap(), None);
    let bytes = long(9);
    reading::keeps_its_contract(&*read, &bytes);
    let mut write = device.create(Via::Direct).unwrap();
    write.write(BETWEEN).unwrap();
    write.write(&bytes).unwrap();
    assert_eq!(write.offset(), (BETWEEN.len() + bytes.len()) as u64);
    write.sync().unwrap();
    write.keep();
    write.complete().unwrap();
}

/// A path that no directory leads to has nothing, and cannot be written.
#[test]
fn a_file_below_a_directory_that_is_missing_is_none() {
    let place = Place::on(Arc::new(disk()), Path::new("/none/stripe").into());
    assert_eq!((stands(&place), waits(&place)), (None, None));
    let refused = place.device().create(Via::Direct).map(drop);
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
}
