//! Goal: a copy of a set is the same set byte for byte, or there is none.
//! Method: every byte of a source is changed once; a source changes after each of its reads; power and requests end at
//! every step. The shipped reader reads what stands afterwards.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_bucket::sim::{Act, Store};
use longshore_bucket::{Address, Scheme};
use longshore_codec::Algorithm;
use longshore_io::{Fault, Op, OpenHow, SimDisk, Storage, Via};
use longshore_media::device::{
    BucketDevice, DeviceClass, FamilyRead, FamilyWrite, PendingStripe, Surroundings,
};
use longshore_media::{BackupDevice, CopiedSet, DeviceSpec, Disposition, Error, MediaSet};
use support::*;

const STRIPES: usize = 3;

fn copy_set(
    from: &[Arc<dyn BackupDevice>],
    to: &[Arc<dyn BackupDevice>],
    moved: &(dyn Fn(u64) -> Result<(), Error> + Sync),
) -> Result<CopiedSet, Error> {
    longshore_media::copy_set(from, to, moved)?.complete()
}

fn inputs(seed: u64) -> Vec<Input> {
    vec![
        file("a", &text_like(9_000, seed)),
        file("b", &text_like(700, seed + 1)),
    ]
}

/// The stripes of a small set.
fn set(algorithm: Algorithm, seed: u64) -> Vec<Vec<u8>> {
    let shape = Shape::new(Disposition::New, algorithm, 4096);
    media(STRIPES, &[(shape, inputs(seed))])
}

fn slots() -> (Vec<Slot>, Vec<Arc<dyn BackupDevice>>) {
    let slots: Vec<Slot> = (0..STRIPES).map(|_| Slot::default()).collect();
    let device = |slot: &Slot| -> Arc<dyn BackupDevice> { Arc::new(slot.clone()) };
    let devices = slots.iter().map(device).collect();
    (slots, devices)
}

fn copied(from: &[Arc<dyn BackupDevice>]) -> (Result<u64, Error>, Vec<Vec<u8>>) {
    let (slots, to) = slots();
    let result = copy_set(from, &to, &|_| Ok(())).map(|set| set.bytes);
    (result, slots.iter().map(Slot::bytes).collect())
}

#[test]
fn a_copy_has_the_bytes_of_its_source_in_the_order_of_families() {
    for algorithm in [
        Algorithm::None,
        Algorithm::Zstd,
        Algorithm::QatDeflate,
        Algorithm::Lz4,
    ] {
        let stripes = set(algorithm, 1);
        let mut from = devices(&stripes);
        from.rotate_left(1);
        let moved = AtomicUsize::new(0);
        let (slots, to) = slots();
        let set = copy_set(&from, &to, &|n| {
            moved.fetch_add(n as usize, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
        let found: Vec<_> = slots.iter().map(Slot::bytes).collect();
        assert_eq!(found, stripes, "{algorithm}");
        let bytes: usize = stripes.iter().map(Vec::len).sum();
        assert_eq!(set.bytes, bytes as u64);
        let headers: usize = bytes - moved.into_inner();
        assert!(headers < bytes / 2, "nearly all bytes are counted");
        assert_eq!(read_all(&to).unwrap(), [expected(&inputs(1))]);
    }
}

#[test]
fn no_changed_byte_is_copied() {
    for algorithm in [Algorithm::None, Algorithm::QatDeflate] {
        let stripes = set(algorithm, 1);
        for stripe in 0..STRIPES {
            for at in 0..stripes[stripe].len() {
                let mut changed = stripes.clone();
                changed[stripe][at] ^= 1 << (at % 8);
                let (result, found) = copied(&devices(&changed));
                assert!(result.is_err(), "{algorithm}: stripe {stripe}, byte {at}");
                assert!(found.iter().all(Vec::is_empty), "something was left");
            }
        }
    }
}

#[test]
fn what_is_not_one_whole_set_is_refused() {
    let stripes = set(Algorithm::Zstd, 1);
    let refused = |stripes: &[Vec<u8>]| {
        let (result, found) = copied(&devices(stripes));
        assert!(found.iter().all(Vec::is_empty));
        result.unwrap_err()
    };
    let mut longer = stripes.clone();
    longer[1].extend_from_slice(&[0; 100]);
    refused(&longer);
    let mut shorter = stripes.clone();
    shorter[2].pop();
    refused(&shorter);
    assert!(matches!(
        refused(&stripes[..2]),
        Error::FamilyMissing { .. }
    ));
    let mut mixed = stripes.clone();
    mixed[0] = set(Algorithm::Zstd, 2)[0].clone();
    assert!(matches!(refused(&mixed), Error::Foreign { .. }));
    let shape = |disposition| Shape::new(disposition, Algorithm::Zstd, 4096);
    let two = media(
        STRIPES,
        &[
            (shape(Disposition::New), inputs(1)),
            (shape(Disposition::Append), inputs(2)),
        ],
    );
    assert!(matches!(refused(&two), Error::NoSuchSet { count: 2, .. }));
    let (_, to) = slots();
    let fewer = copy_set(&devices(&stripes), &to[..2], &|_| Ok(()));
    assert!(matches!(fewer, Err(Error::DeviceCount { given: 2 })));
}

#[test]
fn a_copy_that_is_not_completed_leaves_nothing() {
    let stripes = set(Algorithm::None, 1);
    let (slots, to) = slots();
    let ready = longshore_media::copy_set(&devices(&stripes), &to, &|_| Ok(())).unwrap();
    assert!(slots.iter().all(|slot| slot.bytes().is_empty()));
    drop(ready);
    assert!(MediaSet::open(&to).is_err());
}

#[test]
fn a_caller_who_ends_it_leaves_nothing() {
    let stripes = set(Algorithm::None, 1);
    let count = AtomicUsize::new(0);
    let (_, to) = slots();
    copy_set(&devices(&stripes), &to, &|_| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
    .unwrap();
    for ends_at in 0..count.into_inner() {
        let calls = AtomicUsize::new(0);
        let (slots, to) = slots();
        let result = copy_set(&devices(&stripes), &to, &|_| match calls
            .fetch_add(1, Ordering::Relaxed)
            == ends_at
        {
            true => Err(Error::Cancelled {
                device: "x".to_owned(),
            }),
            false => Ok(()),
        });
        assert!(matches!(result, Err(Error::Cancelled { .. })));
        assert!(slots.iter().all(|slot| slot.bytes().is_empty()));
    }
}

#[test]
fn a_source_that_changes_meanwhile_is_copied_as_one_set_or_not_at_all() {
    // Two sets of the same length, so that only the bytes tell.
    let (first, later) = (set(Algorithm::None, 1), set(Algorithm::None, 7));
    assert!(first.iter().zip(&later).all(|(a, b)| a.len() == b.len()));
    let put = |disk: &SimDisk, stripes: &[Vec<u8>]| {
        for (i, stripe) in stripes.iter().enumerate() {
            disk.write_file(format!("/to/{i}.bak"), stripe).unwrap();
        }
    };
    let mut outcomes = [0, 0];
    for read in 1..40 {
        let disk = SimDisk::new(read);
        disk.mount("/to").unwrap();
        put(&disk, &first);
        let (same, changed) = (disk.clone(), later.clone());
        let change = Fault::meanwhile(move || put(&same, &changed));
        disk.inject(change.on(Op::Read).nth(read).times(1));
        let (result, found) = copied(&files(&disk));
        match result {
            Ok(_) => {
                assert!(found == first || found == later, "a mixture was copied");
                outcomes[0] += 1;
            }
            Err(_) => {
                assert!(found.iter().all(Vec::is_empty));
                outcomes[1] += 1;
            }
        }
    }
    assert!(outcomes.iter().all(|n| *n > 0), "{outcomes:?}");
}

fn files(disk: &SimDisk) -> Vec<Arc<dyn BackupDevice>> {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let device = |i: usize| DeviceSpec::File(format!("/to/{i}.bak").into()).open(&storage);
    (0..STRIPES).map(device).collect()
}

#[test]
fn a_power_cut_at_any_step_leaves_the_whole_copy_or_none() {
    let stripes = set(Algorithm::None, 1);
    let from = devices(&stripes);
    let whole = prepared(1);
    copy_set(&from, &files(&whole), &|_| Ok(())).unwrap();
    let (mut none, mut all) = (0, 0);
    for step in 0..=whole.steps() {
        let disk = prepared(step).cut_power_at(step);
        let reported = copy_set(&from, &files(&disk), &|_| Ok(())).is_ok();
        for image in disk.images(8) {
            match read_all(&files(&image)) {
                Ok(sets) => {
                    assert_eq!(sets, [expected(&inputs(1))], "step {step}");
                    all += 1;
                }
                Err(_) => {
                    assert!(!reported, "step {step}: a reported copy is not there");
                    none += 1;
                }
            }
        }
    }
    assert!(none > 20 && all > 3, "{none} without, {all} with a copy");
}

/// Counts the bytes that are read of a stripe.
#[derive(Debug)]
struct Counting {
    inner: Arc<dyn BackupDevice>,
    read: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct CountingRead {
    inner: Arc<dyn FamilyRead>,
    read: Arc<AtomicUsize>,
}

impl FamilyRead for CountingRead {
    fn len_bytes(&self) -> Result<Option<u64>, Error> {
        self.inner.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let n = self.inner.read_at(buf, offset)?;
        self.read.fetch_add(n, Ordering::Relaxed);
        Ok(n)
    }
}

impl PendingStripe for Counting {
    fn open_pending(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        self.inner.open_pending()
    }

    fn complete_pending(&self) -> Result<(), Error> {
        self.inner.complete_pending()
    }
}

impl Surroundings for Counting {}

impl BackupDevice for Counting {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn class(&self) -> DeviceClass {
        self.inner.class()
    }

    fn open(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        let read = self.read.clone();
        let inner = self.inner.open()?;
        Ok(inner.map(|inner| Arc::new(CountingRead { inner, read }) as Arc<dyn FamilyRead>))
    }

    fn create(&self, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        self.inner.create(via)
    }

    fn append(&self, offset: u64, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        self.inner.append(offset, via)
    }
}

fn watched(stripes: &[Vec<u8>]) -> (Vec<Arc<dyn BackupDevice>>, Arc<AtomicUsize>) {
    let read = Arc::new(AtomicUsize::new(0));
    let watch = |inner| -> Arc<dyn BackupDevice> {
        let read = read.clone();
        Arc::new(Counting { inner, read })
    };
    (devices(stripes).into_iter().map(watch).collect(), read)
}

/// A copy that its caller ends at the `ends_at`-th call.
fn ended(from: &[Arc<dyn BackupDevice>], to: &[Arc<dyn BackupDevice>], ends_at: usize) {
    let calls = AtomicUsize::new(0);
    let result = copy_set(
        from,
        to,
        &|_| match calls.fetch_add(1, Ordering::Relaxed) >= ends_at {
            true => Err(Error::Cancelled {
                device: "x".to_owned(),
            }),
            false => Ok(()),
        },
    );
    assert!(matches!(result, Err(Error::Cancelled { .. })), "{result:?}");
}

fn bytes_of(disk: &SimDisk) -> Vec<Vec<u8>> {
    let read = |i: usize| disk.read_file(format!("/to/{i}.bak")).unwrap();
    (0..STRIPES).map(read).collect()
}

fn prepared(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.mount("/to").unwrap();
    disk
}

/// Blocks of many kilobytes, so that a file's writer writes before its end.
fn long_set() -> Vec<Vec<u8>> {
    let shape = Shape::new(Disposition::New, Algorithm::None, 65_536);
    let inputs = vec![file("a", &text_like(9_000_000, 3))];
    media(STRIPES, &[(shape, inputs)])
}

/// Goal: what an interrupted copy left is not read from the source again, and the copy has the source's bytes whatever is
/// wrong with what was left.
#[test]
fn a_copy_goes_on_with_the_files_that_an_interrupted_one_left() {
    let stripes = long_set();
    let (from, read) = watched(&stripes);
    let whole = prepared(1);
    copy_set(&from, &files(&whole), &|_| Ok(())).unwrap();
    let all = read.swap(0, Ordering::Relaxed);
    let disk = prepared(2);
    ended(&from, &files(&disk), 120);
    assert!(MediaSet::open(&files(&disk)).is_err(), "it is no set yet");
    read.store(0, Ordering::Relaxed);
    let set = copy_set(&from, &files(&disk), &|_| Ok(())).unwrap();
    let again = read.swap(0, Ordering::Relaxed);
    assert_eq!(bytes_of(&disk), stripes);
    assert!(set.kept_bytes > 4_000_000, "{}", set.kept_bytes);
    assert!(
        again + set.kept_bytes as usize <= all + 100_000,
        "{again} of {all}"
    );

    // Remains of which a byte has changed, that are cut, too long, another set's, or nothing that anybody wrote.
    let left = prepared(3);
    ended(&from, &files(&left), 120);
    let pending = |i: usize| format!("/to/{i}.bak.longshore-new");
    let remains: Vec<Vec<u8>> = (0..STRIPES)
        .map(|i| left.read_file(pending(i)).unwrap())
        .collect();
    let other = set_of_others();
    type Spoil<'a> = &'a dyn Fn(&mut Vec<u8>, usize);
    let spoil: [Spoil<'_>; 6] = [
        &|bytes, _| bytes[0] ^= 1,
        &|bytes, _| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        },
        &|bytes, _| bytes.truncate(70_001),
        &|bytes, _| bytes.extend_from_slice(&[7; 200_000]),
        &|bytes, i| *bytes = other[i].clone(),
        &|bytes, _| *bytes = vec![0; 300_000],
    ];
    for (n, spoil) in spoil.iter().enumerate() {
        let disk = prepared(4 + n as u64);
        for (i, bytes) in remains.iter().enumerate() {
            let mut bytes = bytes.clone();
            spoil(&mut bytes, i);
            disk.write_file(pending(i), &bytes).unwrap();
        }
        copy_set(&from, &files(&disk), &|_| Ok(())).unwrap();
        assert_eq!(bytes_of(&disk), stripes, "{n}");
        assert!(disk.read_file(pending(0)).is_err(), "{n}");
    }
}

/// Goal: what is left of a copy counts only if the medium has it, whoever saw that a sync failed: the copy that wrote it, the
/// next one, or somebody else who did not tell.
#[test]
fn remains_that_a_failed_sync_lost_are_written_again() {
    let stripes = long_set();
    let from = devices(&stripes);
    let broken = || Fault::errno(libc::EIO).on(Op::Sync);
    let mut kept = 0;
    for seed in 0..4 {
        for seen_by in ["the first copy", "the next copy", "somebody else"] {
            let mut disk = prepared(seed);
            if seen_by == "the first copy" {
                disk = disk.inject(broken());
                copy_set(&from, &files(&disk), &|_| Ok(())).unwrap_err();
                disk = disk.heal();
                // The others had no sync yet.
                let lost = disk.read_file("/to/0.bak.longshore-new");
                assert!(lost.is_err(), "what a failed sync lost is not left");
            } else {
                let (watched, _) = watched(&stripes);
                ended(&watched, &files(&disk), 120);
                disk = disk.inject(broken().times(STRIPES as u64));
            }
            if seen_by == "somebody else" {
                let dir = disk.dir("/to".as_ref()).unwrap();
                for i in 0..STRIPES {
                    let name = format!("{i}.bak.longshore-new");
                    let file = dir.open(name.as_ref(), OpenHow::ReadWrite).unwrap();
                    file.sync().unwrap_err();
                }
            }
            let set = copy_set(&from, &files(&disk), &|_| Ok(())).unwrap();
            for image in disk.images(4) {
                assert_eq!(bytes_of(&image), stripes, "{seen_by}, seed {seed}");
            }
            match seen_by {
                "the next copy" => assert_eq!(set.kept_bytes, 0),
                _ => kept += set.kept_bytes,
            }
        }
    }
    assert!(kept > 0, "what the medium has is kept");
}

fn set_of_others() -> Vec<Vec<u8>> {
    let shape = Shape::new(Disposition::New, Algorithm::None, 65_536);
    media(STRIPES, &[(shape, vec![file("a", &text_like(900_000, 8))])])
}

/// Goal: a copy that is cut off at any step, then cut off again, is whole in the end.
#[test]
fn a_copy_that_is_cut_off_at_any_step_is_ended_by_the_next_one() {
    let stripes = set(Algorithm::None, 1);
    let from = devices(&stripes);
    let whole = prepared(1);
    copy_set(&from, &files(&whole), &|_| Ok(())).unwrap();
    for step in 0..=whole.steps() {
        let disk = prepared(step).cut_power_at(step);
        let _cut = copy_set(&from, &files(&disk), &|_| Ok(()));
        for image in disk.images(4) {
            copy_set(&from, &files(&image), &|_| Ok(())).unwrap();
            assert_eq!(bytes_of(&image), stripes, "step {step}");
        }
    }
}

/// The parts that were sent, by key and number.
fn parts_sent(store: &Store, since: usize) -> Vec<(String, String)> {
    let asked = store.asked();
    let parts = asked[since..].iter().filter(|asked| asked.is_part());
    let number = |query: &str| {
        let pair = query.split('&').find(|pair| pair.starts_with("partNumber"));
        pair.unwrap_or_default().to_owned()
    };
    parts.map(|a| (a.key.clone(), number(&a.query))).collect()
}

/// Goal: parts that the store has are not sent again after a death at any request, and the objects have the source's bytes.
#[test]
fn a_copy_to_a_store_sends_again_only_what_did_not_arrive() {
    for scheme in [Scheme::S3, Scheme::Google] {
        let stripes = set(Algorithm::None, 1);
        let from = devices(&stripes);
        let whole = Store::speaking(scheme);
        copy_set(&from, &objects(&whole), &|_| Ok(())).unwrap();
        let (count, all) = (whole.asked().len(), parts_sent(&whole, 0).len());
        let mut saved = 0;
        for dies_at in 0..count {
            let store = Store::speaking(scheme);
            store.script(move |asked| match asked.number >= dies_at {
                true => Act::LoseRequest,
                false => Act::Pass,
            });
            let _died = copy_set(&from, &objects(&store), &|_| Ok(()));
            store.heal();
            let arrived: usize = store.uploads().iter().map(|(_, parts)| parts.len()).sum();
            let since = store.asked().len();
            copy_set(&from, &objects(&store), &|_| Ok(())).unwrap();
            for (i, stripe) in stripes.iter().enumerate() {
                let found = store.object(&format!("set/{i}.bak"));
                assert_eq!(found.as_ref(), Some(stripe), "request {dies_at}");
            }
            assert_eq!(store.uploads(), [], "request {dies_at}");
            let sent = parts_sent(&store, since).len();
            assert!(
                sent + arrived >= all && sent <= all + STRIPES,
                "{dies_at}: {sent}"
            );
            saved += all.saturating_sub(sent);
        }
        assert!(saved > count, "{saved} parts in {count} deaths");
    }
}

/// Goal: an upload of other bytes and another label under the name is gone on with, and nothing of it is in the object; one of
/// other parts is left alone.
#[test]
fn an_upload_of_other_bytes_gives_the_copy_nothing() {
    let stripes = set(Algorithm::None, 1);
    let from = devices(&stripes);
    let bucket = |store: &Store| store.bucket().unwrap();
    for part in [4096, 1000, 9000] {
        let store = Store::default();
        let no = std::sync::atomic::AtomicBool::new(false);
        let key = longshore_bucket::Key::from("set/0.bak");
        let mut upload = bucket(&store).begin(&key, "x/1/y".to_owned(), &no).unwrap();
        for index in 0..2 {
            let bytes = longshore_bucket::Bytes::from(vec![b'z'; part]);
            upload.part(index, bytes).unwrap().wait(&no).unwrap();
        }
        upload.leave();
        drop(upload);
        assert_eq!(store.uploads().len(), 1);
        copy_set(&from, &objects(&store), &|_| Ok(())).unwrap();
        assert_eq!(store.object("set/0.bak").as_ref(), Some(&stripes[0]));
        let left = usize::from(part != 4096);
        assert_eq!(store.uploads().len(), left, "{part}");
    }
}

fn objects(store: &Store) -> Vec<Arc<dyn BackupDevice>> {
    const PART: u64 = 4096;
    let device = |i: usize| -> Arc<dyn BackupDevice> {
        let address = Address::of(&format!("{}sim/set/{i}.bak", store.scheme())).unwrap();
        let storage = Arc::new(SimDisk::new(1));
        Arc::new(BucketDevice::of(store.bucket().unwrap(), storage, address, PART).unwrap())
    };
    (0..STRIPES).map(device).collect()
}

#[test]
fn a_death_at_any_request_leaves_the_whole_copy_or_none() {
    let stripes = set(Algorithm::None, 1);
    let from = devices(&stripes);
    let store = Store::default();
    copy_set(&from, &objects(&store), &|_| Ok(())).unwrap();
    let count = store.asked().len();
    let (mut none, mut all) = (0, 0);
    for (dies_at, last) in (0..count).flat_map(|k| [(k, Act::LoseRequest), (k, Act::LoseAnswer)]) {
        let store = Store::default();
        let act = last.clone();
        store.script(move |asked| match asked.number.cmp(&dies_at) {
            std::cmp::Ordering::Less => Act::Pass,
            std::cmp::Ordering::Equal => act.clone(),
            std::cmp::Ordering::Greater => Act::LoseRequest,
        });
        let reported = copy_set(&from, &objects(&store), &|_| Ok(())).is_ok();
        store.script(|_| Act::Pass);
        let there = MediaSet::open(&objects(&store)).is_ok();
        match read_all(&objects(&store)) {
            Ok(sets) => {
                assert_eq!(sets, [expected(&inputs(1))]);
                all += 1;
            }
            Err(_) => {
                assert!(!reported && !there, "request {dies_at}");
                none += 1;
            }
        }
    }
    assert!(none > 10 && all > 0, "{none} without, {all} with a copy");
}
