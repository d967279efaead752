//! The text of [`Sink`] as a test of any sink, from several threads and in an order that no backup has; `verify.rs` and
//! `restore/writer.rs` run it over theirs.
//!
//! Invariants
//! - Asking changes nothing: the answers are the same before, between and after the blocks.
//! - Damage either always ends the run, with an error that tells of it, or never does.
//!
//! Leaves to others: what becomes of the bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use longshore_media::{Entry, EntryKind, Error as MediaError, Extent, Item};

use super::Sink;
use crate::Error;

const FILES: [&str; 4] = ["a/0", "a/1", "b/0", "b/1"];
const PARTS: usize = 3;
const PART_BYTES: usize = 1000;

/// The content of the files, each of which is in several blocks.
pub fn content(path: &str) -> Vec<u8> {
    let byte = |at: usize| (at / 7) as u8 ^ path.as_bytes()[0] ^ path.as_bytes()[2];
    (0..PARTS * PART_BYTES).map(byte).collect()
}

fn blocks() -> Vec<(Vec<Item>, Vec<u8>)> {
    let block = |number: usize| {
        let (path, part) = (FILES[number / PARTS], number % PARTS);
        let offset = part * PART_BYTES;
        let entry = Entry {
            path: path.into(),
            kind: EntryKind::File,
            first: part == 0,
            based: false,
            xattrs: Vec::new(),
            mode: 0o600,
            uid: 0,
            gid: 0,
            mtime_ns: 1,
            len: (PARTS * PART_BYTES) as u64,
        };
        let extent = Extent {
            offset: offset as u64,
            len: PART_BYTES as u32,
        };
        let items = vec![Item::Entry(entry), Item::Extent(extent)];
        (items, content(path)[offset..][..PART_BYTES].to_vec())
    };
    (0..FILES.len() * PARTS).map(block).collect()
}

/// Gives a sink all blocks that it wants. Returns the files that it wanted.
///
/// # Panics
/// If the sink breaks a promise.
pub fn keeps_its_contract(sink: &dyn Sink, set: usize) -> Vec<&'static str> {
    let blocks = blocks();
    let writes = sink.writes();
    let asked = || -> Vec<bool> {
        let wants = |(items, _): &(Vec<Item>, _)| sink.wants(set, items);
        blocks.iter().map(wants).collect()
    };
    let wanted = asked();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (blocks, wanted) = (&blocks, &wanted);
            scope.spawn(move || {
                let mine = (0..blocks.len()).rev().filter(|n| n % 4 == thread);
                for number in mine {
                    let (items, plain) = &blocks[number];
                    assert_eq!(sink.wants(set, items), wanted[number], "block {number}");
                    if wanted[number] {
                        sink.block(set, items.clone(), plain).unwrap();
                    }
                    assert_eq!(sink.writes(), writes);
                }
            });
        }
    });
    assert_eq!(asked(), wanted, "after the blocks");
    let goes_on = ["one", "two", "three"].map(|device| {
        let damage = MediaError::Missing {
            device: device.to_owned(),
        };
        let told = sink.damage(damage).map_err(|e| e.to_string());
        let is_told = told.as_ref().err().is_none_or(|e| e.contains(device));
        assert!(is_told, "{told:?} does not tell of {device}");
        told.is_ok()
    });
    assert!(goes_on == [goes_on[0]; 3], "some damage ends the run");
    let of_file = |number: usize| &wanted[number * PARTS..][..PARTS];
    let files = FILES.into_iter().enumerate();
    let files = files.filter(|(number, _)| of_file(*number).contains(&true));
    files.map(|(_, path)| path).collect()
}

/// A sink that keeps nothing, and breaks the contract in one thing.
struct Lying {
    lie: Lie,
    calls: AtomicU64,
    thread: ThreadId,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    None,
    WantsEachBlockOnce,
    WritesNowAndThen,
    NeedsItsOwnThread,
    TellsOfOtherDamage,
    GoesOnAtFirst,
}

impl Lying {
    fn calls(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }
}

impl Sink for Lying {
    fn wants(&self, _set: usize, _items: &[Item]) -> bool {
        self.lie != Lie::WantsEachBlockOnce || self.calls() < (FILES.len() * PARTS) as u64
    }

    fn writes(&self) -> bool {
        self.lie == Lie::WritesNowAndThen && self.calls().is_multiple_of(2)
    }

    fn block(&self, _set: usize, _items: Vec<Item>, _plain: &[u8]) -> Result<(), Error> {
        match self.lie == Lie::NeedsItsOwnThread && thread::current().id() != self.thread {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    fn damage(&self, error: MediaError) -> Result<(), Error> {
        match self.lie {
            Lie::TellsOfOtherDamage => Err(Error::Cancelled),
            Lie::GoesOnAtFirst if self.calls() > 0 => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Goal: the suite sees whoever breaks the contract.
#[test]
fn every_lie_of_a_sink_breaks_the_contract() {
    for lie in [
        Lie::None,
        Lie::WantsEachBlockOnce,
        Lie::WritesNowAndThen,
        Lie::NeedsItsOwnThread,
        Lie::TellsOfOtherDamage,
        Lie::GoesOnAtFirst,
    ] {
        let sink = Lying {
            lie,
            calls: AtomicU64::new(0),
            thread: thread::current().id(),
        };
        let checked = catch_unwind(AssertUnwindSafe(|| keeps_its_contract(&sink, 0)));
        assert_eq!(checked.is_ok(), lie == Lie::None, "{lie:?}");
    }
}
