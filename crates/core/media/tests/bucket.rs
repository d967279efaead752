//! Goal: whatever becomes of a process, a network or a store while a set is written to three objects, what is there
//! afterwards is a whole set or says that it is none. Method: the shipped client over a simulated store; a process that
//! is killed makes no request more.

mod support;

use std::sync::Arc;

use longshore_bucket::Address;
use longshore_bucket::sim::{Act, Store};
use longshore_codec::Algorithm;
use longshore_io::SimDisk;
use longshore_media::device::BucketDevice;
use longshore_media::{BackupDevice, Disposition, Error, MediaSet};
use support::*;

const STRIPES: usize = 3;

/// Parts are so short that each stripe has several.
const PART: u64 = 4096;

fn devices(store: &Store) -> Vec<Arc<dyn BackupDevice>> {
    let device = |i: usize| -> Arc<dyn BackupDevice> {
        let address = Address::of(&format!("s3://sim/set/{i}.bak")).unwrap();
        let storage = Arc::new(SimDisk::new(1));
        Arc::new(BucketDevice::of(store.bucket().unwrap(), storage, address, PART).unwrap())
    };
    (0..STRIPES).map(device).collect()
}

fn inputs(seed: u64) -> Vec<Input> {
    vec![
        file("a", &text_like(30_000, seed)),
        file("b", &text_like(5_000, seed + 1)),
    ]
}

fn write(store: &Store, disposition: Disposition, seed: u64) -> Result<(), Error> {
    let shape = Shape::new(disposition, Algorithm::None, 4096);
    write_set(&devices(store), &shape, &inputs(seed)).map(|_| ())
}

/// The seed of the set that stands there whole.
fn stands(store: &Store) -> Option<u64> {
    let sets = read_all(&devices(store)).ok()?;
    let found = [1, 2]
        .into_iter()
        .find(|seed| sets == [expected(&inputs(*seed))]);
    assert!(found.is_some(), "a set that nobody wrote");
    found
}

fn bytes(store: &Store) -> Vec<Option<Vec<u8>>> {
    let object = |i: usize| store.object(&format!("set/{i}.bak"));
    (0..STRIPES).map(object).collect()
}

#[test]
fn a_set_is_written_and_read_back() {
    let store = Store::default();
    write(&store, Disposition::New, 1).unwrap();
    assert_eq!(stands(&store), Some(1));
    assert_eq!(store.uploads(), []);
    assert!(store.object("set/0.bak").unwrap().len() > 2 * PART as usize);
}

#[test]
fn what_stands_is_replaced_only_by_those_who_say_so() {
    let store = Store::default();
    write(&store, Disposition::New, 1).unwrap();
    let before = (bytes(&store), store.asked().len());
    let refused = write(&store, Disposition::New, 2);
    assert!(
        matches!(refused, Err(Error::Exists { is_media: true, .. })),
        "{refused:?}"
    );
    let refused = write(&store, Disposition::Append, 2);
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
    let sent = store.asked().split_off(before.1);
    assert!(
        sent.iter()
            .all(|asked| ["GET", "HEAD"].contains(&asked.method.as_str()))
    );
    assert_eq!(bytes(&store), before.0);
    write(&store, Disposition::Init { skip: false }, 2).unwrap();
    assert_eq!(stands(&store), Some(2));
    write(&store, Disposition::Format, 1).unwrap();
    assert_eq!(stands(&store), Some(1));
    store.put("set/1.bak", b"anything");
    let refused = write(&store, Disposition::Init { skip: false }, 2);
    assert!(refused.is_err());
    let mut other = devices(&store);
    other.remove(1);
    assert!(MediaSet::open(&other).is_err());
}

/// The number of requests of a run without faults.
fn requests(disposition: Disposition) -> usize {
    let store = Store::default();
    if disposition == Disposition::Format {
        write(&store, Disposition::New, 1).unwrap();
    }
    let before = store.asked().len();
    write(&store, disposition, 2).unwrap();
    store.asked().len() - before
}

#[test]
fn a_death_at_any_request_leaves_a_whole_set_or_none() {
    let mut torn = 0;
    for disposition in [Disposition::New, Disposition::Format] {
        let count = requests(disposition);
        assert!(count > 25, "{count}");
        for (dies_at, last) in
            (0..count).flat_map(|k| [(k, Act::LoseRequest), (k, Act::LoseAnswer)])
        {
            let store = Store::default();
            if disposition == Disposition::Format {
                write(&store, Disposition::New, 1).unwrap();
            }
            let before = store.asked().len();
            let act = last.clone();
            store.script(move |asked| match asked.number.cmp(&(before + dies_at)) {
                std::cmp::Ordering::Less => Act::Pass,
                std::cmp::Ordering::Equal => act.clone(),
                std::cmp::Ordering::Greater => Act::LoseRequest,
            });
            let told = write(&store, disposition, 2);
            store.heal();
            let what = format!("{disposition:?} {dies_at} {last:?}: {told:?}");
            let found = stands(&store);
            match (&told, disposition) {
                (Ok(()), _) => assert_eq!(found, Some(2), "{what}"),
                (Err(_), Disposition::New) => assert!([None, Some(2)].contains(&found), "{what}"),
                (Err(_), _) => torn += usize::from(found.is_none()),
            }
            // Whatever is there, the next backup with FORMAT gets through.
            write(&store, Disposition::Format, 1).unwrap();
            assert_eq!(stands(&store), Some(1), "{what}");
        }
    }
    // Between the first completion and the last, old and new stripes stand next to each other.
    assert!((1..40).contains(&torn), "{torn}");
}

#[test]
fn a_fault_that_passes_at_any_request_is_survived() {
    let acts = [
        Act::LoseAnswer,
        Act::LoseRequest,
        Act::Twice,
        Act::Refuse(503, "SlowDown"),
        Act::Refuse(500, "InternalError"),
    ];
    let count = requests(Disposition::New);
    let mut begins = 0;
    for (at, act) in (0..count).flat_map(|k| acts.iter().map(move |act| (k, act))) {
        let store = Store::default();
        let once = act.clone();
        store.script(move |asked| match asked.number == at {
            true => once.clone(),
            false => Act::Pass,
        });
        match write(&store, Disposition::New, 2) {
            Ok(()) => assert_eq!(stands(&store), Some(2), "{at} {act:?}"),
            // The start of an upload is not repeated when it may have been done.
            Err(error) => {
                let asked = &store.asked()[at];
                let is_begin = asked.method == "POST" && asked.query.contains("uploads");
                assert!(is_begin, "{at} {act:?}: {error}");
                begins += 1;
            }
        }
    }
    assert!(begins <= 2 * STRIPES, "{begins}");
}

#[test]
fn bytes_that_change_on_their_way_are_found() {
    let store = Store::default();
    write(&store, Disposition::New, 1).unwrap();
    let before = store.asked().len();
    assert_eq!(stands(&store), Some(1));
    let count = store.asked().len() - before;
    let mut found = 0;
    for at in 0..count {
        let begin = store.asked().len();
        store.script(
            move |asked| match asked.number == begin + at && asked.method == "GET" {
                true => Act::WrongByte,
                false => Act::Pass,
            },
        );
        let read = read_all(&devices(&store));
        match read {
            Ok(sets) => assert!(sets == [expected(&inputs(1))], "{at}"),
            Err(_) => found += 1,
        }
        store.heal();
    }
    assert!(found >= STRIPES, "{found} of {count}");
}

#[test]
fn expired_credentials_end_the_backup_and_leave_nothing() {
    let store = Store::default();
    store.script(|asked| match asked.is_part() && asked.number > 20 {
        true => Act::Refuse(400, "ExpiredToken"),
        false => Act::Pass,
    });
    let error = write(&store, Disposition::New, 1).unwrap_err();
    assert!(error.to_string().contains("ExpiredToken"), "{error}");
    assert!(error.hint().contains("no longer valid"), "{}", error.hint());
    assert_eq!(bytes(&store), [None, None, None]);
    assert_eq!(store.uploads(), []);
}

#[test]
fn a_stripe_knows_its_room_and_ends_at_the_last_part() {
    let store = Store::default();
    let mut write = devices(&store)[0]
        .create(longshore_io::Via::Direct)
        .unwrap();
    let all = longshore_bucket::PARTS_MAX * PART;
    assert_eq!(write.room(), all);
    write.write(&vec![1; all as usize - 10]).unwrap();
    assert_eq!(write.room(), 10);
    let full = write.write(&[1; 11]).and_then(|()| write.sync());
    assert!(matches!(full, Err(Error::Full { .. })), "{full:?}");
    drop(write);
    assert_eq!(store.uploads(), []);
}
