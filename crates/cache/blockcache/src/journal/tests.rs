//! Goal: the cache's journal returns exactly the table that was committed, after rewrites that are cut off, failing
//! calls, and with pages of earlier sessions in place.
//! Method: a simulated disk with injected faults. The oracle is the table as the test wrote it.

use std::path::Path;

use longshore_io::{Fault, Op, SimDisk, Storage};

use super::*;
use crate::format::BackendMark;

const PATH: &str = "/fast/cache";

fn superblock(session: u64) -> Superblock {
    Superblock {
        geometry: Geometry::fit(16 << 20, 64 << 10).unwrap(),
        clean: false,
        sequence: 0,
        generation: 0,
        session,
        backend: BackendMark::default(),
        tie: [7; 16],
        log_pages: 0,
        content: crate::format::BackendContent::default(),
        boot: 0,
    }
}

fn set(slot: u32, cache_block: u64) -> JournalRecord {
    JournalRecord::Set {
        slot,
        cache_block,
        lines: u16::MAX,
        sums: vec![slot; 16],
    }
}

fn cache_device() -> (SimDisk, Arc<dyn File>) {
    let disk = SimDisk::new(1);
    disk.mount("/fast").unwrap();
    disk.write_file(PATH, &vec![0; 16 << 20]).unwrap();
    let file = disk.disk(Path::new(PATH)).unwrap();
    (disk, file)
}

/// The view of a start: the superblock that counts, and the table.
fn found(file: &dyn File) -> (Superblock, Option<Table>) {
    let superblock = read_superblock(file).unwrap().unwrap().newest;
    (superblock, replay(file, &superblock).unwrap())
}

/// A rewrite of several pages is interrupted before its superblock; the next session writes a shorter table in its
/// place.
#[test]
fn pages_of_a_rewrite_that_was_cut_off_are_not_of_the_next_sessions_log() {
    let (disk, file) = cache_device();
    let first = superblock(1);
    let table = Table::empty(first.geometry).unwrap();
    let journal = Journal::begin(Arc::clone(&file), first, table).unwrap();
    let slots = first.geometry.slots;
    assert!(slots > 150, "a table of several pages");
    // More at once than the log has space for.
    let rounds = first.geometry.log_pages * 60 / slots + 1;
    for round in 0..rounds {
        for slot in 0..slots {
            journal.append(set(slot, round.into()));
        }
    }
    let superblocks = Fault::errno(libc::EIO).on(Op::Write).at_bytes(0..2 * LINE);
    disk.inject(superblocks);
    journal.commit_all().unwrap_err();
    disk.heal();
    drop(journal);

    let (known, table) = found(&*file);
    let mut expected = Table::empty(known.geometry).unwrap();
    assert_eq!(table.as_ref(), Some(&expected), "nothing was committed");
    let next = Superblock {
        session: known.session + 1,
        ..known
    };
    let journal = Journal::begin(Arc::clone(&file), next, table.unwrap()).unwrap();
    assert_eq!(found(&*file).1.as_ref(), Some(&expected));
    let change = set(3, 9);
    expected.apply(&change);
    journal.append(change);
    journal.commit_all().unwrap();
    assert_eq!(found(&*file).1, Some(expected));
}

/// While the log is rewritten, slots change that are already written, and some that are not: the new log has all
/// changes.
#[test]
fn changes_made_while_the_log_is_rewritten_are_in_it() {
    let (disk, file) = cache_device();
    let first = superblock(1);
    let table = Table::empty(first.geometry).unwrap();
    let journal = Arc::new(Journal::begin(Arc::clone(&file), first, table).unwrap());
    let mut expected = Table::empty(first.geometry).unwrap();
    let slots = first.geometry.slots;
    for round in 0..first.geometry.log_pages * 60 / slots + 1 {
        for slot in 0..slots {
            let record = set(slot, (round * slots + slot).into());
            expected.apply(&record);
            journal.append(record);
        }
    }
    let changes = [
        JournalRecord::Clear { slot: 0 },
        set(1, 1 << 30),
        JournalRecord::Clear { slot: slots - 1 },
        set(0, u64::from(slots) - 1),
    ];
    changes.iter().for_each(|change| {
        expected.apply(change);
    });
    let noting = Arc::clone(&journal);
    let deed = move || {
        for change in &changes {
            noting.append(change.clone());
        }
    };
    disk.inject(Fault::meanwhile(deed).on(Op::Write).times(1));
    journal.commit_all().unwrap();
    let (superblock, found) = found(&*file);
    assert_eq!(superblock.generation, first.generation + 2);
    assert_eq!(found.as_ref(), Some(&expected));
    journal.append(set(5, 1 << 31));
    expected.apply(&set(5, 1 << 31));
    journal.commit_all().unwrap();
    assert_eq!(self::found(&*file).1, Some(expected));
}

/// A half in which an attempt failed holds pages of a longer table; the next attempt in it has another generation.
#[test]
fn a_second_attempt_never_continues_in_the_first_ones_pages() {
    let (disk, file) = cache_device();
    let first = superblock(1);
    let table = Table::empty(first.geometry).unwrap();
    let journal = Journal::begin(Arc::clone(&file), first, table).unwrap();
    let slots = first.geometry.slots;
    let mut expected = Table::empty(first.geometry).unwrap();
    for slot in 0..slots {
        journal.append(set(slot, u64::from(slot)));
    }
    journal.commit_all().unwrap();
    // Twice in place, then a rewrite; making the new log durable fails, and meanwhile most slots are emptied.
    let journal = Arc::new(journal);
    let noting = Arc::clone(&journal);
    let emptied = move || {
        for slot in 3..slots {
            noting.append(JournalRecord::Clear { slot });
        }
    };
    disk.inject(Fault::meanwhile(emptied).on(Op::Sync).nth(3).times(1));
    disk.inject(Fault::errno(libc::EIO).on(Op::Sync).times(3));
    journal.append(set(0, 1 << 30));
    journal.commit_all().unwrap();
    disk.heal();
    assert_eq!((journal.stumbles(), journal.lost_syncs()), (3, 3));
    expected.apply(&set(0, 1 << 30));
    (1..3).for_each(|slot| assert!(expected.apply(&set(slot, u64::from(slot)))));
    journal.commit_all().unwrap();
    let (known, table) = found(&*file);
    assert_eq!(table.as_ref(), Some(&expected));
    assert!(known.generation >= first.generation + 4, "{known:?}");
}

/// A permanent failure breaks the journal, after that many attempts and no more.
#[test]
fn a_cache_device_that_always_fails_breaks_the_journal() {
    let (disk, file) = cache_device();
    let first = superblock(1);
    let table = Table::empty(first.geometry).unwrap();
    let journal = Journal::begin(file, first, table).unwrap();
    disk.inject(Fault::errno(libc::EIO).on(Op::Sync));
    journal.append(set(1, 1));
    journal.commit_all().unwrap_err();
    assert_eq!(journal.lost_syncs(), 4);
    disk.heal();
    journal.append(set(2, 2));
    journal.commit_all().unwrap_err();
}
