//! Compares every cached line with the backend at a start, for as long as that may take: what was not compared may be
//! stale.
//!
//! Invariants
//! - A line that stays in the table was read from the backend and has the table's checksum.
//! - The comparison takes little longer than [`LIMIT`]. Slots that it does not reach leave the table.
//! - Neighbours are read together, and some of these runs at a time: a backend on a network is fast only so.
//!
//! Leaves to others: when a comparison is needed (`open.rs`).

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use longshore_io::{File, Via, crc32c, side_by_side};

use crate::format::JournalRecord;
use crate::geometry::{Geometry, LINE};
use crate::journal::Table;

/// How long clients wait at most for a start that compares.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The most bytes that are read in one piece, and the most pieces at a time.
const RUN_BYTES: u64 = 1 << 20;
const AT_A_TIME: usize = 16;

/// A slot with its place on the backend, in slots.
type PlacedSlot = (u64, u32);

/// Whether all lines that were compared are on the backend as in the table. In the order of the backend.
pub(crate) fn all(
    backend: &dyn File,
    via: Via,
    table: &mut Table,
    geometry: Geometry,
    now: impl Fn() -> Duration + Sync,
) -> io::Result<bool> {
    let filled = (0..geometry.slots).filter(|slot| table.held(*slot).lines != 0);
    let mut slots: Vec<PlacedSlot> = filled
        .map(|slot| (table.held(slot).cache_block, slot))
        .collect();
    slots.sort_unstable();
    let runs = neighbours(&slots, u64::from(geometry.slot_bytes));
    tracing::info!(
        slots = slots.len(),
        "comparing the cached slots with the backend, for a minute at most; clients wait"
    );
    let until = now() + LIMIT;
    let (next, differs) = (AtomicUsize::new(0), AtomicBool::new(false));
    let known = &*table;
    let compare = |_| -> io::Result<Vec<PlacedSlot>> {
        let (mut bytes, mut left) = (Vec::new(), Vec::new());
        while let Some(run) = runs.get(next.fetch_add(1, SeqCst)) {
            let run = &slots[run.clone()];
            if differs.load(SeqCst) {
                break;
            }
            match now() >= until {
                true => left.extend_from_slice(run),
                false if is_same(backend, via, known, geometry, run, &mut bytes)? => {}
                false => differs.store(true, SeqCst),
            }
        }
        Ok(left)
    };
    let count = AT_A_TIME.min(runs.len());
    let found = match count {
        0 | 1 => vec![compare(0)],
        _ => side_by_side(count, compare)?,
    };
    let mut left = 0;
    for (_, slot) in found.into_iter().collect::<io::Result<Vec<_>>>()?.concat() {
        table.apply(&JournalRecord::Clear { slot });
        left += 1;
    }
    if differs.load(SeqCst) {
        return Ok(false);
    }
    let slots = slots.len();
    tracing::info!(
        slots,
        left,
        "compared the cached slots with the backend, since nothing else proves them; those left are dropped"
    );
    Ok(true)
}

/// The runs of slots that are neighbours on the backend, as places in `slots`.
fn neighbours(slots: &[PlacedSlot], slot_bytes: u64) -> Vec<Range<usize>> {
    let most = usize::try_from(RUN_BYTES / slot_bytes).map_or(1, |most| most.max(1));
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (i, (block, _)) in slots.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if run.len() < most && slots[i - 1].0 + 1 == *block => run.end = i + 1,
            _ => runs.push(i..i + 1),
        }
    }
    runs
}

/// Whether the lines of neighbouring slots are on the backend as in the table.
fn is_same(
    backend: &dyn File,
    via: Via,
    table: &Table,
    geometry: Geometry,
    run: &[PlacedSlot],
    bytes: &mut Vec<u8>,
) -> io::Result<bool> {
    let [(first_block, first), ..] = *run else {
        return Ok(true);
    };
    let (last_block, last) = run[run.len() - 1];
    let slot_bytes = u64::from(geometry.slot_bytes);
    let start =
        first_block * slot_bytes + u64::from(table.held(first).lines.trailing_zeros()) * LINE;
    let end = last_block * slot_bytes + u64::from(table.held(last).lines.ilog2() + 1) * LINE;
    bytes.resize((end - start) as usize, 0);
    backend.read_exact_at(bytes, start, via)?;
    for (block, slot) in run.iter().copied() {
        let (lines, sums) = (table.held(slot).lines, table.sums(slot));
        for line in (0..lines.ilog2() + 1).filter(|line| lines >> line & 1 == 1) {
            let at = block * slot_bytes + u64::from(line) * LINE - start;
            let found = &bytes[at as usize..][..LINE as usize];
            if crc32c(found) != sums[line as usize] {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicU64;

    use longshore_io::{SimDisk, Storage};

    use super::*;

    /// A backend of zeros, and a table of 100 slots on it, of which each is so many blocks after the one before.
    fn stage(step: u64) -> (SimDisk, Geometry, Table) {
        let disk = SimDisk::new(1);
        disk.write_file("/backend", &vec![0; (100 * step as usize) << 16])
            .unwrap();
        let geometry = Geometry::fit(16 << 20, 64 << 10).unwrap();
        let mut table = Table::empty(geometry).unwrap();
        for slot in 0..100 {
            let set = JournalRecord::Set {
                slot,
                cache_block: (99 - u64::from(slot)) * step,
                lines: u16::MAX,
                sums: vec![crc32c(&[0; LINE as usize]); 16],
            };
            assert!(table.apply(&set));
        }
        (disk, geometry, table)
    }

    fn held(table: &Table) -> usize {
        (0..100).filter(|slot| table.held(*slot).lines != 0).count()
    }

    /// Goal: a large cache does not keep its disk from being served for long: slots that are not compared in time are
    /// dropped, the others stay.
    #[test]
    fn a_comparison_ends_in_time_and_keeps_what_it_compared() {
        let (disk, geometry, mut table) = stage(2);
        let file = disk.disk(Path::new("/backend")).unwrap();
        // Each look takes a second.
        let looks = AtomicU64::new(0);
        let now = || Duration::from_secs(looks.fetch_add(1, SeqCst));
        assert!(all(&*file, Via::Cache, &mut table, geometry, now).unwrap());
        assert_eq!(held(&table), 59);
    }

    #[test]
    fn one_other_line_among_neighbours_is_found() {
        for wrong in [0_u64, 37, 99] {
            let (disk, geometry, mut table) = stage(1);
            let file = disk.disk(Path::new("/backend")).unwrap();
            let clock = || Duration::ZERO;
            assert!(all(&*file, Via::Cache, &mut table, geometry, clock).unwrap());
            assert_eq!(held(&table), 100);
            file.write_all_at(&[1], (wrong << 16) + 5000, Via::Cache)
                .unwrap();
            assert!(!all(&*file, Via::Cache, &mut table, geometry, clock).unwrap());
        }
    }

    #[test]
    fn only_neighbours_are_read_together_and_no_more_than_a_piece() {
        let slots = [(1, 0), (2, 1), (3, 2), (9, 3), (10, 4), (12, 5)];
        assert_eq!(neighbours(&slots, 1 << 19), [0..2, 2..3, 3..5, 5..6]);
        assert_eq!(neighbours(&[], 1 << 19), []);
    }
}
