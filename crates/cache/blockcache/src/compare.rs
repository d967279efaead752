//! Compares every cached line with the backend at a start, for as long as that may take: what was not compared may be
//! stale.
//!
//! Invariants
//! - A line that stays in the table was read from the backend and has the table's checksum.
//! - The comparison takes little longer than [`LIMIT`]. Slots that it does not reach leave the table.
//!
//! Leaves to others: when a comparison is needed (`open.rs`).

use std::io;
use std::time::Duration;

use longshore_io::{File, Via, crc32c};

use crate::format::JournalRecord;
use crate::geometry::{Geometry, LINE};
use crate::journal::Table;

/// How long clients wait at most for a start that compares.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Whether all lines that were compared are on the backend as in the table. In the order of the backend.
pub(crate) fn all(
    backend: &dyn File,
    via: Via,
    table: &mut Table,
    geometry: Geometry,
    now: impl Fn() -> Duration,
) -> io::Result<bool> {
    let filled = (0..geometry.slots).filter(|slot| table.held(*slot).lines != 0);
    let mut slots: Vec<(u64, u32)> = filled
        .map(|slot| (table.held(slot).cache_block, slot))
        .collect();
    slots.sort_unstable();
    let until = now() + LIMIT;
    let mut bytes = vec![0; geometry.slot_bytes as usize];
    let mut left = 0;
    for (block, slot) in slots.iter().copied() {
        if now() >= until {
            table.apply(&JournalRecord::Clear { slot });
            left += 1;
            continue;
        }
        let lines = table.held(slot).lines;
        let (first, end) = (lines.trailing_zeros(), lines.ilog2() + 1);
        let run = &mut bytes[..((end - first) as usize) * LINE as usize];
        let at = block * u64::from(geometry.slot_bytes) + u64::from(first) * LINE;
        backend.read_exact_at(run, at, via)?;
        let found = (first..end).zip(run.chunks(LINE as usize));
        let mut held = found.filter(|(line, _)| lines >> line & 1 == 1);
        if held.any(|(line, bytes)| crc32c(bytes) != table.sums(slot)[line as usize]) {
            return Ok(false);
        }
    }
    let slots = slots.len();
    tracing::info!(
        slots,
        left,
        "compared the cached slots with the backend, since nothing else proves them; those left are dropped"
    );
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;

    use longshore_io::{SimDisk, Storage};

    use super::*;

    /// Goal: a large cache does not keep its disk from being served for long: slots that are not compared in time are
    /// dropped, the others stay.
    #[test]
    fn a_comparison_ends_in_time_and_keeps_what_it_compared() {
        let disk = SimDisk::new(1);
        disk.write_file("/backend", &vec![0; 100 << 16]).unwrap();
        let file = disk.disk(Path::new("/backend")).unwrap();
        let geometry = Geometry::fit(16 << 20, 64 << 10).unwrap();
        let mut table = Table::empty(geometry).unwrap();
        for slot in 0..100 {
            let set = JournalRecord::Set {
                slot,
                cache_block: 99 - u64::from(slot),
                lines: u16::MAX,
                sums: vec![crc32c(&[0; LINE as usize]); 16],
            };
            assert!(table.apply(&set));
        }
        // Each look takes a second.
        let looks = Cell::new(0);
        let now = || Duration::from_secs(looks.replace(looks.get() + 1));
        assert!(all(&*file, Via::Cache, &mut table, geometry, now).unwrap());
        let held: Vec<u32> = (0..100)
            .filter(|slot| table.held(*slot).lines != 0)
            .collect();
        assert_eq!(held, (41..100).collect::<Vec<_>>());
    }
}
