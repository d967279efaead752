//! Goal: an archive in a bucket keeps what one in a directory keeps: a reported success holds, nothing is replaced, and a
//! store that does not answer is not taken for one that has nothing.
//! Method: a simulated store of each kind behind the shipped client, with a fault at each request in turn.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use longshore_bucket::Scheme;
use longshore_bucket::sim::{Act, Habits, Store};
use longshore_codec::Algorithm;
use longshore_io::{SimDisk, Storage};
use longshore_pg::wal::WalName;
use longshore_wal::{Error, PushResult, WalArchive, copy_wal};

use super::support::*;

longshore_bucket::over_each_store! {
    what_was_pushed_comes_back_and_is_listed_and_verified
    a_bucket_that_was_copied_to_a_directory_is_an_archive
    other_bytes_under_a_name_are_refused_and_noted
    a_fault_at_any_request_loses_nothing_and_a_passing_one_is_not_seen
    a_copy_that_is_killed_anywhere_leaves_no_gap_and_the_next_one_ends_it
    a_store_that_does_not_answer_is_not_one_that_has_nothing
    a_file_that_a_list_shows_and_a_request_does_not_give_is_not_missing
    of_two_pushers_of_one_name_only_one_is_acknowledged_with_its_bytes
    of_two_first_writers_of_an_archive_one_gets_it
    a_store_that_replaces_what_is_there_gets_no_archive
    removal_leaves_what_is_needed_and_lists_of_many_pages_are_read_to_their_end
}

/// An address in a new bucket of the store.
fn address(store: &Store) -> PathBuf {
    format!("{}{}/main/wal", store.scheme(), store.install().unwrap()).into()
}

fn create(at: &Path) -> Result<WalArchive, Error> {
    WalArchive::create(&SimDisk::new(1), at, Path::new(""), &*clock())
}

fn push_to(at: &Path, disk: &SimDisk, name: WalName, bytes: &[u8]) -> Result<PushResult, Error> {
    let archive = WalArchive::open(disk, at)?;
    archive.push(
        &outgoing(disk, name, bytes),
        &form(Algorithm::Zstd),
        &*clock(),
    )
}

fn fetch_from(at: &Path, name: WalName) -> Result<Vec<u8>, Error> {
    let disk = SimDisk::new(1);
    let to = Path::new("/restored");
    disk.write_file(to.join("lost+found/.keep"), b"").unwrap();
    let dir = disk.dir(to).unwrap();
    let archive = WalArchive::open(&disk, at)?;
    archive.fetch(name, &dir, to, "RECOVERYXLOG", &*clock())?;
    Ok(disk.read_file(to.join("RECOVERYXLOG")).unwrap())
}

/// Made once: thousands of runs have the same ones.
fn files() -> &'static [(WalName, Vec<u8>)] {
    static MADE: OnceLock<Vec<(WalName, Vec<u8>)>> = OnceLock::new();
    MADE.get_or_init(|| {
        vec![
            (name(1, 3), segment(1, 3, 3)),
            (name(1, 4), segment_of(SYSTEM, 1, 4, 128, 4)),
            (name(1, 4096), segment(1, 4096, 4)),
            ("00000002.history".parse().unwrap(), b"1\t1/0\tx\n".to_vec()),
        ]
    })
}

/// Archives all files, one after another; returns how many were reported as stored.
fn run(at: &Path) -> Result<usize, (usize, Error)> {
    let disk = SimDisk::new(1);
    create(at).map_err(|e| (0, e))?;
    for (done, (name, bytes)) in files().iter().enumerate() {
        push_to(at, &disk, *name, bytes).map_err(|e| (done, e))?;
    }
    Ok(files().len())
}

fn what_was_pushed_comes_back_and_is_listed_and_verified(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let at = address(&store);
    assert_eq!(run(&at).unwrap(), files().len());
    for &(name, ref bytes) in files() {
        assert!(fetch_from(&at, name).unwrap() == *bytes, "{name}");
        let again = push_to(&at, &SimDisk::new(1), name, bytes).unwrap();
        assert_eq!(again, PushResult::Already, "{name}");
    }
    let archive = WalArchive::existing(&SimDisk::new(1), &at).unwrap();
    let runs = archive.runs().unwrap();
    let spans: Vec<_> = runs
        .iter()
        .map(|run| (run.span.segments, run.stored_bytes > 0))
        .collect();
    assert_eq!(spans, [(2, true), (1, true)]);
    assert_eq!(archive.histories().unwrap().len(), 1);
    for &(name, ref bytes) in files() {
        assert_eq!(archive.verify(name).unwrap(), bytes.len() as u64);
    }
    assert!(archive.knows_all().unwrap());
    assert!(matches!(
        archive.verify(name(1, 5)),
        Err(Error::Missing { .. })
    ));
    let key = |name: WalName| format!("main/wal/0000000100000000/{name}.wal");
    let imprints = || archive.imprints(&runs[0].span).unwrap();
    let before = imprints();
    assert_eq!((before.len(), &imprints()), (2, &before));
    store.pass(60);
    store.put(&key(name(1, 3)), &store.object(&key(name(1, 3))).unwrap());
    let after = imprints();
    assert_ne!(after[0], before[0], "it was written again");
    assert_eq!(after[1], before[1]);
    let mut damaged = store.object(&key(name(1, 3))).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    store.put(&key(name(1, 3)), &damaged);
    let damage = archive.verify(name(1, 3)).unwrap_err();
    assert!(matches!(damage, Error::Damaged { .. }), "{damage}");
}

fn a_bucket_that_was_copied_to_a_directory_is_an_archive(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let at = address(&store);
    run(&at).unwrap();
    let disk = SimDisk::new(1);
    for key in store.keys() {
        let below = key.strip_prefix("main/wal/").unwrap();
        disk.write_file(Path::new(ARCHIVE).join(below), &store.object(&key).unwrap())
            .unwrap();
    }
    for &(name, ref bytes) in files() {
        assert!(fetch(&disk, name).unwrap() == *bytes, "{name}");
        assert_eq!(push(&disk, name, bytes).unwrap(), PushResult::Already);
    }
}

fn other_bytes_under_a_name_are_refused_and_noted(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let at = address(&store);
    run(&at).unwrap();
    let disk = SimDisk::new(1);
    let (name, bytes) = files()[0].clone();
    let other = push_to(&at, &disk, name, &segment(1, 3, 99)).unwrap_err();
    assert!(matches!(other, Error::OtherContent { .. }), "{other}");
    assert!(fetch_from(&at, name).unwrap() == bytes);
    let archive = WalArchive::existing(&disk, &at).unwrap();
    assert_eq!(archive.refused().unwrap().name, name);
    let strange = segment_of(SYSTEM + 1, 1, 5, 20, 1);
    let strange = push_to(&at, &disk, super::support::name(1, 5), &strange).unwrap_err();
    assert!(matches!(strange, Error::OtherCluster { .. }), "{strange}");
}

/// Each file is complete or missing; reported ones exist; and all are archived at the next try.
fn check(at: &Path, reported: usize, what: &str) {
    for (number, (name, bytes)) in files().iter().enumerate() {
        match fetch_from(at, *name) {
            Ok(found) => assert!(&found == bytes, "{what}: {name} has other bytes"),
            Err(Error::Missing { .. } | Error::NotAnArchive { .. }) => {
                assert!(number >= reported, "{what}: {name} is lost");
            }
            Err(e) => panic!("{what}: {name}: {e}"),
        }
    }
    let done = run(at).unwrap_or_else(|(_, e)| panic!("{what}: {e}"));
    assert_eq!(done, files().len(), "{what}");
    for &(name, ref bytes) in files() {
        assert!(fetch_from(at, name).unwrap() == *bytes, "{what}: {name}");
    }
}

fn a_fault_at_any_request_loses_nothing_and_a_passing_one_is_not_seen(scheme: Scheme) {
    let whole = Store::speaking(scheme);
    run(&address(&whole)).unwrap();
    let requests = whole.asked().len();
    assert!(requests > 15, "{requests}");
    let passing = [
        Act::LoseRequest,
        Act::LoseAnswer,
        Act::Twice,
        Act::Refuse(500, "InternalError"),
        Act::Refuse(503, "SlowDown"),
    ];
    for number in 0..requests {
        for act in &passing {
            let store = Store::speaking(scheme);
            let at = address(&store);
            let what = format!("{act:?} at request {number}");
            let this = act.clone();
            store.script(move |asked| match asked.number == number {
                true => this.clone(),
                false => Act::Pass,
            });
            let done = run(&at).unwrap_or_else(|(_, e)| panic!("{what}: {e}"));
            store.heal();
            check(&at, done, &what);
        }
        // The process, or the store, is gone from here on; its last request was done, or was not.
        for last in [Act::LoseAnswer, Act::LoseRequest] {
            let store = Store::speaking(scheme);
            let at = address(&store);
            let what = format!("gone after {last:?} at request {number}");
            store.script(move |asked| match asked.number {
                n if n < number => Act::Pass,
                n if n == number => last.clone(),
                _ => Act::LoseRequest,
            });
            let (done, error) = run(&at).unwrap_err();
            assert!(!matches!(error, Error::Missing { .. }), "{what}: {error}");
            store.heal();
            check(&at, done, &what);
        }
    }
}

/// The archive of a directory that is copied, and the names of its files in the order of a copy.
fn to_copy() -> (SimDisk, Vec<(WalName, Vec<u8>)>) {
    let disk = disk(1);
    let fork = format!("1\t{}\tleft\n", longshore_pg::Lsn(4 * SEGMENT as u64));
    let mut files = vec![("00000002.history".parse().unwrap(), fork.into_bytes())];
    for (timeline, number) in [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5)] {
        let bytes = segment(timeline, number, number);
        files.push((name(timeline, number), bytes));
    }
    for (name, bytes) in &files {
        push(&disk, *name, bytes).unwrap();
    }
    (disk, files)
}

/// Goal: whatever request the process is killed before, the copy has the beginning of the WAL, each file whole, and the
/// next run brings the rest.
fn a_copy_that_is_killed_anywhere_leaves_no_gap_and_the_next_one_ends_it(scheme: Scheme) {
    let (disk, files) = to_copy();
    let copy = |at: &Path| {
        let (from, to) = (archive(&disk)?, create(at)?);
        let todo = from.lacking(Some(&to), &|_, _, _| true)?;
        let form = form(Algorithm::Lz4);
        copy_wal(&from, &to, &todo, &form, &*clock(), &|| true).map(|done| done.files)
    };
    let whole = Store::speaking(scheme);
    assert_eq!(copy(&address(&whole)).unwrap(), files.len() as u64);
    let requests = whole.asked().len();
    assert!(requests > 15, "{requests}");
    let mut unfinished = 0;
    for kill in 0..requests {
        let what = format!("killed before request {kill} of {requests}");
        let store = Store::speaking(scheme);
        let at = address(&store);
        let mut left = kill;
        store.script(move |_| match left.checked_sub(1) {
            None => Act::LoseRequest,
            Some(rest) => {
                left = rest;
                Act::Pass
            }
        });
        let done = copy(&at);
        store.heal();
        let there: Vec<bool> = files
            .iter()
            .map(|(name, bytes)| match fetch_from(&at, *name) {
                Ok(found) => {
                    assert!(&found == bytes, "{what}: {name}");
                    true
                }
                Err(Error::Missing { .. } | Error::NotAnArchive { .. }) => false,
                Err(e) => panic!("{what}: {name}: {e}"),
            })
            .collect();
        assert!(there.is_sorted_by_key(|is| !is), "{what}: {there:?}");
        assert!(done.is_err() || there.iter().all(|is| *is), "{what}");
        unfinished += usize::from(there.contains(&false));
        copy(&at).unwrap_or_else(|e| panic!("{what}: {e}"));
        for (name, bytes) in &files {
            assert!(fetch_from(&at, *name).unwrap() == *bytes, "{what}: {name}");
        }
        assert_eq!(store.uploads(), [], "{what}");
    }
    assert!(unfinished > 5, "{unfinished}");
}

fn a_store_that_does_not_answer_is_not_one_that_has_nothing(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let at = address(&store);
    run(&at).unwrap();
    for act in [
        Act::LoseRequest,
        Act::Refuse(503, "SlowDown"),
        Act::Refuse(403, "AccessDenied"),
    ] {
        store.script(move |_| act.clone());
        for &(name, _) in files() {
            let error = fetch_from(&at, name).unwrap_err();
            assert!(matches!(error, Error::Store(_)), "{error}");
        }
        store.heal();
    }
}

/// A cache before the store has kept the answer of a time before the file was pushed.
fn a_file_that_a_list_shows_and_a_request_does_not_give_is_not_missing(scheme: Scheme) {
    let store = Store::speaking(scheme);
    let at = address(&store);
    run(&at).unwrap();
    let archive = WalArchive::existing(&SimDisk::new(1), &at).unwrap();
    for &(asked, _) in files() {
        let file = format!("/{asked}.wal");
        store.script(move |request| match request.key.ends_with(&file) {
            true => Act::Refuse(404, "NoSuchKey"),
            false => Act::Pass,
        });
        let got = fetch_from(&at, asked).unwrap_err();
        assert!(matches!(got, Error::Missing { .. }), "{got}");
        let error = archive.absent(asked).unwrap_err();
        assert!(matches!(error, Error::Hidden { name, .. } if name == asked));
        store.heal();
    }
    let later = archive.absent(name(1, 5)).unwrap().map(WalName::Segment);
    assert_eq!(later, Some(name(1, 4096)));
    let none = "00000003.history".parse().unwrap();
    assert_eq!(archive.absent(none).unwrap(), None);
}

fn of_two_pushers_of_one_name_only_one_is_acknowledged_with_its_bytes(scheme: Scheme) {
    // Two branches of a cluster, before each request of the first one.
    for number in 0.. {
        let store = Store::speaking(scheme);
        let at = address(&store);
        create(&at).unwrap();
        let begun = store.asked().len();
        let (ours, theirs) = (segment(1, 3, 1), segment(1, 3, 2));
        let (place, bytes) = (at.clone(), theirs.clone());
        let other = Arc::new(std::sync::Mutex::new(None));
        let result = other.clone();
        store.meanwhile(begun + number, move || {
            let pushed = push_to(&place, &SimDisk::new(2), name(1, 3), &bytes);
            *result.lock().unwrap() = Some(pushed);
        });
        let first = push_to(&at, &SimDisk::new(1), name(1, 3), &ours);
        let Some(second) = other.lock().unwrap().take() else {
            assert!(number > 2, "{number}");
            return;
        };
        let kept = fetch_from(&at, name(1, 3)).unwrap();
        assert_ne!(
            first.is_ok(),
            second.is_ok(),
            "{number}: {first:?} {second:?}"
        );
        assert!(
            kept == if first.is_ok() { ours } else { theirs },
            "{number}"
        );
        let refused = first.err().or(second.err()).unwrap();
        assert!(
            matches!(refused, Error::OtherContent { .. }),
            "{number}: {refused}"
        );
    }
}

fn of_two_first_writers_of_an_archive_one_gets_it(scheme: Scheme) {
    for number in 0.. {
        let store = Store::speaking(scheme);
        let at = address(&store);
        create(&at).unwrap();
        let begun = store.asked().len();
        let place = at.clone();
        let other = Arc::new(std::sync::Mutex::new(None));
        let result = other.clone();
        store.meanwhile(begun + number, move || {
            let bytes = segment_of(SYSTEM + 1, 1, 9, 20, 1);
            *result.lock().unwrap() = Some(push_to(&place, &SimDisk::new(2), name(1, 9), &bytes));
        });
        let first = push_to(&at, &SimDisk::new(1), name(1, 3), &segment(1, 3, 1));
        let Some(second) = other.lock().unwrap().take() else {
            assert!(number > 2, "{number}");
            return;
        };
        assert_ne!(
            first.is_ok(),
            second.is_ok(),
            "{number}: {first:?} {second:?}"
        );
        let system = WalArchive::existing(&SimDisk::new(1), &at)
            .unwrap()
            .identity()
            .unwrap()
            .system;
        assert_eq!(system == SYSTEM, first.is_ok(), "{number}");
    }
}

fn a_store_that_replaces_what_is_there_gets_no_archive(scheme: Scheme) {
    let store = Store::speaking(scheme);
    store.habits(Habits {
        overwrites: true,
        ..Habits::default()
    });
    let at = address(&store);
    let refused = create(&at).unwrap_err();
    assert!(matches!(refused, Error::Replaces { .. }), "{refused}");
    assert!(refused.to_string().contains("If-None-Match"), "{refused}");
    assert_eq!(store.keys(), [] as [&str; 0]);
    let none = push_to(&at, &SimDisk::new(1), name(1, 3), &segment(1, 3, 1)).unwrap_err();
    assert!(matches!(none, Error::NotAnArchive { .. }), "{none}");
}

fn removal_leaves_what_is_needed_and_lists_of_many_pages_are_read_to_their_end(scheme: Scheme) {
    let store = Store::speaking(scheme);
    store.habits(Habits {
        portion: 2,
        ..Habits::default()
    });
    let at = address(&store);
    create(&at).unwrap();
    let disk = SimDisk::new(1);
    for number in 3..9 {
        push_to(&at, &disk, name(1, number), &segment(1, number, number)).unwrap();
    }
    let archive = WalArchive::existing(&disk, &at).unwrap();
    assert_eq!(archive.runs().unwrap()[0].span.segments, 6);
    let keep = longshore_pg::Lsn(6 * SEGMENT as u64);
    assert_eq!(
        archive
            .remove_unneeded(keep, true, |_, _, _| false)
            .unwrap()
            .files,
        3
    );
    let removed = archive
        .remove_unneeded(keep, false, |_, _, _| false)
        .unwrap();
    assert_eq!(removed.files, 3);
    let runs = archive.runs().unwrap();
    let first = name(1, 6);
    assert_eq!(
        (runs.len(), WalName::Segment(runs[0].span.first)),
        (1, first)
    );
}
