//! Goal: a copy of a set is the same set byte for byte, or there is none.
//! Method: every byte of a source is changed once; a source changes after each of its reads; power and requests end at
//! every step. The shipped reader reads what stands afterwards.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_bucket::Address;
use longshore_bucket::sim::{Act, Store};
use longshore_codec::Algorithm;
use longshore_io::{Fault, Op, SimDisk, Storage};
use longshore_media::device::BucketDevice;
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
    let prepared = |seed| {
        let disk = SimDisk::new(seed);
        disk.mount("/to").unwrap();
        disk
    };
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

fn objects(store: &Store) -> Vec<Arc<dyn BackupDevice>> {
    const PART: u64 = 4096;
    let device = |i: usize| -> Arc<dyn BackupDevice> {
        let address = Address::of(&format!("s3://sim/set/{i}.bak")).unwrap();
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
