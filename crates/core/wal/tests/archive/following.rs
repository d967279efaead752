//! Goal: a second archive that follows the first one lacks nothing in the end, whatever order segments were archived in,
//! and what it may lack is counted.
//! Method: simulated disks with hand-made segments and marks of a server's archiver.
//! Not covered: processes that run at the same time, and real servers (`wal/copies.rs` of the program).

use std::path::Path;

use longshore_codec::Algorithm;
use longshore_io::{SimDisk, Storage};
use longshore_pg::{SegmentName, SegmentSize};
use longshore_wal::{Error, Lag, PgWal};

use crate::support::*;

const TARGET: &str = "far";

/// The first archive with its server's pg_wal, and the second.
struct Pair {
    first: SimDisk,
    second: SimDisk,
}

impl Pair {
    fn new() -> Pair {
        let (first, second) = (disk(1), disk(2));
        first
            .write_file(Path::new(WAL).join("archive_status/.keep"), b"")
            .unwrap();
        Pair { first, second }
    }

    fn mark(timeline: u32, number: u64) -> String {
        format!("{}.ready", name(timeline, number))
    }

    /// The server wants this segment archived.
    fn waits(&self, timeline: u32, number: u64) {
        let mark = Path::new(WAL)
            .join("archive_status")
            .join(Self::mark(timeline, number));
        self.first.write_file(mark, b"").unwrap();
    }

    /// The server was told that it is archived.
    fn told(&self, timeline: u32, number: u64) {
        let dir = self
            .first
            .dir(&Path::new(WAL).join("archive_status"))
            .unwrap();
        dir.remove_file(Path::new(&Self::mark(timeline, number)))
            .unwrap();
    }

    fn archive(&self, timeline: u32, number: u64) {
        push(
            &self.first,
            name(timeline, number),
            &segment(timeline, number, number),
        )
        .unwrap();
    }

    fn pg_wal(&self) -> PgWal {
        PgWal::open(&self.first, Path::new(WAL)).unwrap()
    }

    fn follow(&self) -> Result<u64, Error> {
        let pg_wal = self.pg_wal();
        let turn = pg_wal.turn_to_follow("main").unwrap().unwrap();
        let (from, to) = (archive(&self.first)?, archive(&self.second)?);
        let form = form(Algorithm::Lz4);
        pg_wal.follow(&turn, ("main", &from), (TARGET, &to), &form, &*clock())
    }

    fn lag(&self, timeline: u32, number: u64) -> (Lag, u64) {
        let own: SegmentName = name(timeline, number).segment().unwrap();
        let size = SegmentSize::new(SEGMENT as u64).unwrap();
        let lag = self.pg_wal().lag(TARGET, own, size, &*clock()).unwrap();
        let bytes = lag.bytes(own, size);
        (lag, bytes)
    }

    fn held(&self, timeline: u32) -> Vec<u64> {
        (1..20)
            .filter(|n| fetch(&self.second, name(timeline, *n)).is_ok())
            .collect()
    }
}

#[test]
fn segments_that_were_archived_out_of_order_leave_no_hole() {
    let pair = Pair::new();
    for number in 1..=6 {
        pair.waits(1, number);
    }
    pair.archive(1, 1);
    pair.lag(1, 1);
    pair.told(1, 1);
    assert_eq!(pair.follow().unwrap(), 1);
    // A process that pushes ahead has the later ones first.
    for (archived, held) in [
        (4, vec![1, 4]),
        (3, vec![1, 3, 4]),
        (6, vec![1, 3, 4, 6]),
        (2, vec![1, 2, 3, 4, 6]),
        (5, vec![1, 2, 3, 4, 5, 6]),
    ] {
        pair.archive(1, archived);
        pair.follow().unwrap();
        assert_eq!(pair.held(1), held);
    }
    for number in 2..=6 {
        pair.told(1, number);
    }
    assert_eq!(pair.follow().unwrap(), 0);
    assert_eq!(
        pair.lag(1, 7).1,
        SEGMENT as u64,
        "only the one that comes now"
    );
}

/// Goal: a segment that cannot be read stays the end of what is surely there, until it can be read again.
#[test]
fn a_segment_that_could_not_be_read_is_not_forgotten() {
    let pair = Pair::new();
    for number in 1..=3 {
        pair.archive(1, number);
    }
    pair.lag(1, 1);
    let path = stored(&pair.first, name(1, 2));
    let whole = pair.first.read_file(&path).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    pair.first.write_file(&path, &damaged).unwrap();
    for _ in 0..3 {
        pair.follow().unwrap_err();
        let (lag, bytes) = pair.lag(1, 3);
        assert!(lag.why.is_some() && bytes >= 2 * SEGMENT as u64, "{lag:?}");
    }
    assert_eq!(pair.held(1), [1, 3]);
    pair.first.write_file(&path, &whole).unwrap();
    pair.follow().unwrap();
    assert_eq!((pair.held(1), pair.lag(1, 3).0.why), (vec![1, 2, 3], None));
}

#[test]
fn a_timeline_that_goes_on_from_an_earlier_moment_is_counted_and_copied() {
    let pair = Pair::new();
    for number in 1..=9 {
        pair.archive(1, number);
    }
    pair.lag(1, 1);
    pair.follow().unwrap();
    assert_eq!(pair.held(1).len(), 9);
    let fork = longshore_pg::Lsn(4 * SEGMENT as u64);
    let history = format!("1\t{fork}\tback\n");
    push(
        &pair.first,
        "00000002.history".parse().unwrap(),
        history.as_bytes(),
    )
    .unwrap();
    for number in 4..=6 {
        pair.archive(2, number);
        let (_, bytes) = pair.lag(2, number);
        assert_eq!(bytes, (number - 3) * SEGMENT as u64, "segment {number}");
    }
    pair.follow().unwrap();
    assert_eq!(pair.held(2), [4, 5, 6]);
    assert_eq!(pair.lag(2, 7).1, SEGMENT as u64);
}

/// Goal: the process of one database keeps no other's WAL from its copies.
#[test]
fn each_database_has_a_turn_of_its_own() {
    let pg_wal = Pair::new().pg_wal();
    let turn = pg_wal.turn_to_follow("main").unwrap();
    assert!(turn.is_some());
    assert!(pg_wal.turn_to_follow("main").unwrap().is_none());
    assert!(pg_wal.turn_to_follow("second").unwrap().is_some());
}
