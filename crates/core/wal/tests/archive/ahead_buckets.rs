//! Goal: look-aheads into a bucket give names side by side, and keep what those into a directory keep: a server that was
//! set back stores nothing, a reported success holds, and the next calls believe only fresh notes of the same file.
//! Method: simulated disks and a simulated store behind the shipped client; branches differ from segment to segment.
//! Not covered: processes and real stores, which the tests of the program start.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longshore_bucket::sim::{Act, Store};
use longshore_codec::Algorithm;
use longshore_io::{Clock, Fault, Op, SimClock, SimDisk, Storage};
use longshore_pg::wal::{History, WalName};
use longshore_pg::{Lsn, Timeline};
use longshore_wal::{AheadLimits, Error, PgWal, PrefetchResult, WalArchive};

use super::support::*;

/// An address in a new bucket of the store, with an archive of the cluster's segments 1 to `last`.
fn filled(store: &Store, last: u64) -> PathBuf {
    let at: PathBuf = format!("s3://{}/main/wal", store.install().unwrap()).into();
    let disk = SimDisk::new(1);
    WalArchive::create(&disk, &at, Path::new(""), &*clock()).unwrap();
    for number in 1..=last {
        let out = outgoing(&disk, name(1, number), &segment(1, number, number));
        let archive = WalArchive::open(&disk, &at).unwrap();
        archive
            .push(&out, &form(Algorithm::Lz4), &*clock())
            .unwrap();
    }
    at
}

/// A server in whose pg_wal these segments wait.
fn server(seed: u64, waiting: impl IntoIterator<Item = (u64, Vec<u8>)>) -> SimDisk {
    let disk = SimDisk::new(seed);
    for (number, bytes) in waiting {
        let name = name(1, number);
        outgoing(&disk, name, &bytes);
        let mark = Path::new(WAL).join(format!("archive_status/{name}.ready"));
        disk.write_file(&mark, b"").unwrap();
    }
    disk
}

fn push_ahead(disk: &SimDisk, at: &Path, workers: usize, clock: &dyn Clock) -> PrefetchResult {
    let archive = WalArchive::open(disk, at).unwrap();
    let pg_wal = PgWal::open(disk, Path::new(WAL)).unwrap();
    let turn = pg_wal.turn_to_push().unwrap().unwrap();
    let bytes_max = 50 * SEGMENT as u64;
    let reach = AheadLimits { bytes_max, workers };
    let done = pg_wal.push_ahead(&turn, &archive, &form(Algorithm::Lz4), reach, clock);
    done.unwrap()
}

fn segments(store: &Store) -> Vec<String> {
    let keys = store.keys().into_iter();
    keys.filter(|key| key.contains("/0000")).collect()
}

/// Goal: while one segment's creation is not answered, the next ones are created. Had they to wait for it, each of their
/// requests would come after its answer.
#[test]
fn behind_a_new_segment_names_are_given_side_by_side() {
    const LATE: Duration = Duration::from_secs(3);
    let store = Store::default();
    let at = filled(&store, 2);
    let disk = server(2, (3..=9).map(|n| (n, segment(1, n, n))));
    let created: Arc<Mutex<Vec<(String, Instant)>>> = Arc::default();
    let seen = created.clone();
    let slow = name(1, 4).to_string();
    store.script(move |asked| {
        if asked.method != "PUT" {
            return Act::Pass;
        }
        let mut seen = seen.lock().unwrap();
        seen.push((asked.key.clone(), Instant::now()));
        match asked.key.contains(&slow) {
            true => Act::Delay(LATE),
            false => Act::Pass,
        }
    });
    let done = push_ahead(&disk, &at, 4, &*clock());
    assert!(done.error.is_none(), "{done:?}");
    assert_eq!(done.files, 7);
    store.heal();
    let created = created.lock().unwrap();
    let time = |number| {
        let name = name(1, number).to_string();
        let one = created.iter().find(|(key, _)| key.contains(&name));
        one.unwrap().1
    };
    assert!(time(3) < time(4), "the first is stored alone");
    for number in 5..=9 {
        let after = time(number).saturating_duration_since(time(4));
        assert!(after < LATE, "{number}: {after:?}");
    }
    let archive = WalArchive::existing(&disk, &at).unwrap();
    assert_eq!(archive.runs().unwrap()[0].span.segments, 9);
}

/// Goal: of a server that was set back, nothing gets into the archive of its abandoned future: neither where the archive
/// has a segment of that name nor after its end.
#[test]
fn a_server_that_was_set_back_pushes_nothing_ahead() {
    for (round, from) in (0..12).map(|round| (round, 2 + round % 3)) {
        let store = Store::default();
        let at = filled(&store, 5);
        let of = |n: u64| segment(1, n, if n <= from { n } else { 100 + n });
        let disk = server(round, (2..=9).map(|n| (n, of(n))));
        let before = segments(&store);
        let done = push_ahead(&disk, &at, 6, &*clock());
        let Some(error) = done.error else {
            panic!("round {round}: nothing was refused");
        };
        let is_refused = matches!(
            error,
            Error::OtherContent { .. } | Error::OtherBranch { .. }
        );
        assert!(is_refused, "round {round}: {error}");
        assert_eq!(segments(&store), before, "round {round}");
    }
}

/// Goal: two branches that push at the same moment behind the same archive's end: whoever was told of a segment's success
/// finds its own bytes, at least one is refused, and if both got in, the archive says so.
#[test]
fn of_two_branches_at_one_moment_no_success_is_lost_and_a_mixture_is_noticed() {
    let mut mixtures = 0;
    for round in 0..20 {
        let store = Store::default();
        let at = filled(&store, 2);
        let branch = |pages, seed| {
            let of = move |n: u64| segment_of(SYSTEM, 1, n, pages, seed + n);
            (server(seed, (3..=12).map(|n| (n, of(n)))), of)
        };
        let (one, of_one) = branch(20, 1_000 + round);
        let (other, of_other) = branch(24, 2_000 + round);
        let (first, second) = std::thread::scope(|scope| {
            let first = scope.spawn(|| push_ahead(&one, &at, 4, &*clock()));
            let second = scope.spawn(|| push_ahead(&other, &at, 4, &*clock()));
            (first.join().unwrap(), second.join().unwrap())
        });
        assert!(
            first.error.is_some() || second.error.is_some(),
            "round {round}: both were let in"
        );
        let archive = WalArchive::existing(&one, &at).unwrap();
        let mut owners = Vec::new();
        for number in 3..=12 {
            let name = name(1, number);
            let told = |disk: &SimDisk| {
                let pg_wal = PgWal::open(disk, Path::new(WAL)).unwrap();
                let said = pg_wal.was_acknowledged(name, &at, disk, &*clock());
                said.unwrap()
            };
            let (told_one, told_other) = (told(&one), told(&other));
            assert!(!(told_one && told_other), "round {round}: {name}");
            let Some(bytes) = fetched(&archive, name) else {
                assert!(!told_one && !told_other, "round {round}: {name} is lost");
                continue;
            };
            let is_ones = bytes == of_one(number);
            assert!(is_ones || bytes == of_other(number));
            assert!(!(if is_ones { told_other } else { told_one }), "{name}");
            owners.push((number, is_ones));
        }
        let mixed = owners
            .windows(2)
            .any(|w| w[0].0 + 1 == w[1].0 && w[0].1 != w[1].1);
        let last = owners.last().unwrap().0;
        let end = Lsn((last + 1) * SEGMENT as u64);
        let history = History::first(Timeline::new(1).unwrap());
        let links = archive.check_links(&history, Lsn(3 * SEGMENT as u64), end);
        let is_broken = matches!(links, Err(Error::BrokenLink { .. }));
        assert!(
            !mixed || is_broken || links.is_err(),
            "round {round}: {links:?}"
        );
        mixtures += usize::from(mixed);
    }
    eprintln!("{mixtures} of 20 rounds mixed both branches");
}

fn fetched(archive: &WalArchive, name: WalName) -> Option<Vec<u8>> {
    let disk = SimDisk::new(1);
    let to = Path::new("/restored");
    disk.write_file(to.join("lost+found/.keep"), b"").unwrap();
    let dir = disk.dir(to).unwrap();
    match archive.fetch(name, &dir, to, "RECOVERYXLOG", &*clock()) {
        Ok(_) => Some(disk.read_file(to.join("RECOVERYXLOG")).unwrap()),
        Err(Error::Missing { .. }) => None,
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Goal: the call for a segment that was pushed ahead makes no request; it believes only the note of the same file for the
/// same archive, once, and for five minutes.
#[test]
fn an_acknowledged_segment_needs_no_request() {
    let store = Store::default();
    let at = filled(&store, 2);
    let disk = server(2, (3..=8).map(|n| (n, segment(1, n, n))));
    let clock = SimClock::new(0);
    assert_eq!(push_ahead(&disk, &at, 2, &clock).files, 6);
    let pg_wal = PgWal::open(&disk, Path::new(WAL)).unwrap();
    let requests = store.asked().len();
    let is_believed = |number: u64, at: &Path| {
        let said = pg_wal.was_acknowledged(name(1, number), at, &disk, &clock);
        said.unwrap()
    };
    assert!(is_believed(3, &at));
    assert!(!is_believed(3, &at), "a note is used once");
    let other = format!("{}-2", at.display());
    assert!(!is_believed(4, Path::new(&other)), "another archive");
    outgoing(&disk, name(1, 5), &segment(1, 5, 5));
    assert!(!is_believed(5, &at), "another file");
    assert!(!is_believed(6, Path::new("/archive")), "a directory");
    clock.advance(Duration::from_secs(299));
    assert!(is_believed(7, &at));
    clock.advance(Duration::from_secs(2));
    assert!(!is_believed(8, &at), "it is too old");
    assert_eq!(store.asked().len(), requests);
    // The archive compares the others.
    let archive = WalArchive::existing(&disk, &at).unwrap();
    for number in [5, 8] {
        let out = opened(&disk, name(1, number)).unwrap();
        let pushed = pg_wal.push(&out, &archive, &form(Algorithm::Lz4), &clock);
        assert_eq!(pushed.unwrap(), longshore_wal::PushResult::Already);
    }
}

/// Goal: a hole that a killed look-ahead left is filled by the server that has what follows, and by no other: a branch that
/// was set back and ends within the hole would else join the other one's WAL.
#[test]
fn a_hole_is_filled_by_the_server_that_has_what_follows() {
    let pushed = |disk: &SimDisk, at: &Path, number: u64| {
        let archive = WalArchive::open(disk, at).unwrap();
        let pg_wal = PgWal::open(disk, Path::new(WAL)).unwrap();
        let name = name(1, number);
        let out = pg_wal.outgoing(name, Path::new(&name.to_string())).unwrap();
        pg_wal.push(&out, &archive, &form(Algorithm::Lz4), &*clock())
    };
    let with_hole = || {
        let store = Store::default();
        let at = filled(&store, 7);
        let key = format!("{}", name(1, 5));
        let lost = store.keys().into_iter().find(|k| k.contains(&key));
        store.lose(&lost.unwrap());
        (store, at)
    };
    let (store, at) = with_hole();
    let before = segments(&store);
    // Its last segment ends where that of the archive does.
    let set_back = server(
        1,
        (3..=5).map(|n| (n, segment(1, n, if n < 5 { n } else { 105 }))),
    );
    let refused = pushed(&set_back, &at, 5).unwrap_err();
    assert!(matches!(refused, Error::HoleBefore { .. }), "{refused}");
    let goes_on = server(
        2,
        (3..=6).map(|n| (n, segment(1, n, if n < 5 { n } else { 100 + n }))),
    );
    let refused = pushed(&goes_on, &at, 5).unwrap_err();
    assert!(matches!(refused, Error::OtherBranch { .. }), "{refused}");
    assert_eq!(segments(&store), before);
    let own = server(3, (5..=7).map(|n| (n, segment(1, n, n))));
    pushed(&own, &at, 5).unwrap();
    assert_eq!(segments(&store).len(), 7);
    let (store, at) = with_hole();
    let done = push_ahead(&own, &at, 4, &*clock());
    assert!(done.error.is_none(), "{done:?}");
    assert_eq!(segments(&store).len(), 7);
}

/// Goal: a file that changes while it is pushed gets no note: what the store has acknowledged may be other bytes.
#[test]
fn a_file_that_changes_while_it_is_pushed_is_not_acknowledged() {
    let store = Store::default();
    let at = filled(&store, 2);
    let disk = server(2, [(3, segment(1, 3, 3))]);
    let (changed, key) = (disk.clone(), name(1, 3).to_string());
    store.script(move |asked| {
        if asked.method == "PUT" && asked.key.contains(&key) {
            let path = Path::new(WAL).join(&key);
            let dir = changed.dir(Path::new(WAL)).unwrap();
            let file = dir
                .open(
                    path.file_name().unwrap().as_ref(),
                    longshore_io::OpenHow::ReadWrite,
                )
                .unwrap();
            let bytes = segment(1, 3, 999);
            file.write_all_at(&bytes, 0, longshore_io::Via::Cache)
                .unwrap();
        }
        Act::Pass
    });
    push_ahead(&disk, &at, 1, &*clock());
    store.heal();
    let pg_wal = PgWal::open(&disk, Path::new(WAL)).unwrap();
    let said = pg_wal.was_acknowledged(name(1, 3), &at, &disk, &*clock());
    assert!(!said.unwrap());
    let archive = WalArchive::existing(&disk, &at).unwrap();
    let out = opened(&disk, name(1, 3)).unwrap();
    let refused = pg_wal.push(&out, &archive, &form(Algorithm::Lz4), &*clock());
    assert!(
        matches!(refused, Err(Error::OtherContent { .. })),
        "{refused:?}"
    );
}

/// Goal: a look-ahead that makes no progress is waited for five seconds, and not as long as its request may take.
#[test]
fn a_look_ahead_without_progress_is_not_waited_for() {
    let store = Store::default();
    let at = filled(&store, 2);
    let disk = server(2, [(3, segment(1, 3, 3))]);
    let pg_wal = PgWal::open(&disk, Path::new(WAL)).unwrap();
    let clock = SimClock::new(0);
    let turn = pg_wal.turn_to_push().unwrap().unwrap();
    let other = PgWal::open(&disk, Path::new(WAL)).unwrap();
    let said = other.was_acknowledged(name(1, 3), &at, &disk, &clock);
    assert!(!said.unwrap());
    let waited = clock.now();
    assert!(
        (Duration::from_secs(5)..Duration::from_secs(6)).contains(&waited),
        "{waited:?}"
    );
    drop(turn);
}

/// Goal: the first look-ahead into a new archive, which does not know the size of segments yet, keeps to its limit.
#[test]
fn the_first_look_ahead_is_bounded_too() {
    let store = Store::default();
    let at = filled(&store, 0);
    let disk = server(2, (3..=9).map(|n| (n, segment(1, n, n))));
    let archive = WalArchive::open(&disk, &at).unwrap();
    assert_eq!(archive.identity(), None);
    let pg_wal = PgWal::open(&disk, Path::new(WAL)).unwrap();
    let turn = pg_wal.turn_to_push().unwrap().unwrap();
    let reach = AheadLimits {
        bytes_max: 3 * SEGMENT as u64,
        workers: 2,
    };
    let done = pg_wal.push_ahead(&turn, &archive, &form(Algorithm::Lz4), reach, &*clock());
    assert_eq!(done.unwrap().files, 3);
}

/// Goal: where no lock can be made, as in a read-only pg_wal, nothing was acknowledged, and that is no failure.
#[test]
fn without_a_place_for_notes_nothing_is_acknowledged() {
    let store = Store::default();
    let at = filled(&store, 2);
    let disk = server(2, [(3, segment(1, 3, 3))]);
    let pg_wal = PgWal::open(&disk, Path::new(WAL)).unwrap();
    let disk = disk.inject(Fault::errno(30).on(Op::CreateDir));
    let said = pg_wal.was_acknowledged(name(1, 3), &at, &disk, &*clock());
    assert!(!said.unwrap());
}

/// Goal: what a restore fetches ahead from a bucket is what was archived, whichever requests pass trouble, and the server's
/// call for a segment makes one request, which shows that it is the archive's.
#[test]
fn segments_are_fetched_ahead_from_a_bucket_and_taken_with_one_request() {
    let busy = [
        Act::Pass,
        Act::Refuse(503, "SlowDown"),
        Act::LoseAnswer,
        Act::Cut(100),
    ];
    for act in busy {
        let store = Store::default();
        let at = filled(&store, 6);
        let disk = server(3, []);
        disk.write_file(Path::new(WAL).join("archive_status/.keep"), b"")
            .unwrap();
        let pg_wal = PgWal::open(&disk, Path::new(WAL)).unwrap();
        let archive = WalArchive::open(&disk, &at).unwrap();
        let turn = pg_wal.turn_to_fetch().unwrap().unwrap();
        let reach = AheadLimits {
            bytes_max: 4 * SEGMENT as u64,
            workers: 3,
        };
        let (this, begun) = (act.clone(), store.asked().len());
        store.script(move |asked| match (asked.number - begun) % 3 {
            1 => this.clone(),
            _ => Act::Pass,
        });
        let first = name(1, 1).segment().unwrap();
        let done = pg_wal.fetch_ahead(&turn, &archive, first, reach, &*clock());
        assert_eq!(done.unwrap().files, 4, "{act:?}");
        store.heal();
        let before = store.asked().len();
        for number in 2..=5 {
            pg_wal
                .take(&archive, name(1, number), "TAKEN", None, &*clock())
                .unwrap();
            let taken = disk.read_file(Path::new(WAL).join("TAKEN")).unwrap();
            assert!(taken == segment(1, number, number), "{act:?}: {number}");
        }
        let asked = store.asked();
        let of_segments = |asked: &&longshore_bucket::sim::Asked| {
            asked.method == "GET" && asked.key.contains("/0000")
        };
        assert_eq!(
            asked[before..].iter().filter(of_segments).count(),
            4,
            "{act:?}"
        );
    }
}

/// Goal: a segment costs no more requests than docs/buckets.md says.
#[test]
fn a_segment_costs_no_more_requests_than_the_page_says() {
    let page = include_str!("../../../../../docs/buckets.md");
    let row = page
        .lines()
        .find(|line| line.starts_with("| each WAL segment |"));
    assert!(
        row.unwrap().starts_with(
            "| each WAL segment | a PUT and six GET, with `--async` a PUT and one or two GET; fetched, three GET; removed, one DELETE |"
        ),
        "{row:?}"
    );
    let store = Store::default();
    let at = filled(&store, 9);
    // PUT, other reads, and DELETE; a process opens the archive each time.
    let counted = |work: &dyn Fn()| {
        let before = store.asked().len();
        work();
        let asked = store.asked();
        let of = |method: &str| {
            asked[before..]
                .iter()
                .filter(|a| a.method == method)
                .count()
        };
        (of("PUT"), of("GET") + of("HEAD"), of("DELETE"))
    };
    let push = |number: u64| {
        let disk = SimDisk::new(number);
        let out = outgoing(&disk, name(1, number), &segment(1, number, number));
        let archive = WalArchive::open(&disk, &at).unwrap();
        archive
            .push(&out, &form(Algorithm::Lz4), &*clock())
            .unwrap();
    };
    let (put, get, delete) = counted(&|| push(10));
    assert!(put == 1 && get <= 6 && delete == 0, "{put} {get} {delete}");
    let disk = server(2, (11..=18).map(|n| (n, segment(1, n, n))));
    let (put, get, delete) = counted(&|| {
        push_ahead(&disk, &at, 4, &*clock());
    });
    assert!(
        put == 8 && get <= 2 * 8 + 6 && delete == 0,
        "{put} {get} {delete}"
    );
    let (put, get, delete) = counted(&|| {
        let disk = SimDisk::new(1);
        let to = Path::new("/restored");
        disk.write_file(to.join("lost+found/.keep"), b"").unwrap();
        let dir = disk.dir(to).unwrap();
        let archive = WalArchive::open(&disk, &at).unwrap();
        let fetched = archive.fetch(name(1, 5), &dir, to, "RECOVERYXLOG", &*clock());
        fetched.unwrap();
    });
    assert!(put == 0 && get <= 3 && delete == 0, "{put} {get} {delete}");
    let (put, _, delete) = counted(&|| {
        let archive = WalArchive::existing(&SimDisk::new(1), &at).unwrap();
        let keep = Lsn(6 * SEGMENT as u64);
        let removed = archive.remove_unneeded(keep, false, |_, _, _| false);
        assert_eq!(removed.unwrap().files, 5);
    });
    assert_eq!((put, delete), (0, 5));
}
