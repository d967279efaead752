//! Whether the WAL after a border between two segments continues the WAL before it, wherever the bytes are.
//!
//! Invariants
//! - Only the pages at the border are read.
//! - Where the earlier segment is incomplete, nothing is known, and nothing is refuted.
//!
//! Leaves to others: where the bytes are (`links.rs` for an archive, `archive.rs` and `ahead.rs` for a server's files).

use std::io;

use longshore_pg::wal::{NotRecords, Records};
use longshore_pg::{Lsn, SegmentSize};

/// Why the segment at `border` does not continue the one at `before`, whose records lead to its end. `None` if it
/// does, or if the earlier one is incomplete, so that nothing is known.
pub(super) fn broken(
    mut read: impl FnMut(Lsn, &mut [u8]) -> io::Result<()>,
    before: Lsn,
    border: Lsn,
    size: SegmentSize,
) -> Option<NotRecords> {
    let is_whole = {
        let within = |at: Lsn, buf: &mut [u8]| match at < border {
            true => read(at, buf),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        match Records::last_page_before(within, before, border) {
            Ok(Some(records)) => {
                let mut records = records.verifying();
                loop {
                    match records.next(border, |_, _| false) {
                        Ok(Some(_)) => {}
                        Ok(None) => break true,
                        // Its last record continues after the border.
                        Err(NotRecords::Read { at, .. }) => break at >= border,
                        Err(NotRecords::Segment { .. } | NotRecords::Broken { .. }) => break false,
                    }
                }
            }
            Ok(None) | Err(_) => false,
        }
    };
    match link(read, before, border, size) {
        Err(error @ (NotRecords::Segment { .. } | NotRecords::Broken { .. })) if is_whole => {
            Some(error)
        }
        _ => None,
    }
}

/// Reads the records from the last page before `border`, in the segment at `before`, to the first that begins after
/// it. Returns whether there is one. If one record fills the segment `before`, nothing is known about the border.
pub(super) fn link(
    read: impl FnMut(Lsn, &mut [u8]) -> io::Result<()>,
    before: Lsn,
    border: Lsn,
    size: SegmentSize,
) -> Result<bool, NotRecords> {
    let Some(records) = Records::last_page_before(read, before, border)? else {
        return Ok(false);
    };
    let mut records = records.verifying();
    let end = Lsn(border.0.saturating_add(size.bytes()));
    while let Some(record) = records.next(end, |_, _| false)? {
        if record.at >= border {
            return Ok(true);
        }
    }
    Ok(false)
}
