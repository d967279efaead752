//! When transactions ended, by their records: what a recovery to a moment goes by.
//!
//! Replay stops before the first commit or abort behind the moment. Where the log has none, no server can tell that it
//! has got there, and one that was told to get there ends with an error.
//!
//! Source: PostgreSQL 14 to 18, `access/xact.h` and `recoveryStopsBefore` in `access/transam/xlogrecovery.c`
//! (`xlog.c` of 14).

use std::io;

use super::{Record, Records};
use crate::Lsn;

/// Microseconds from 1970 to 2000, where the server's clock begins.
pub const EPOCH_US: i64 = 946_684_800_000_000;

/// The resource manager of transactions, what of a record's kind says what happened, and the ends among that.
const RM_XACT: u8 = 1;
const OPERATION: u8 = 0x70;
const COMMIT: u8 = 0x00;
const ABORT: u8 = 0x20;
const COMMIT_PREPARED: u8 = 0x30;
const ABORT_PREPARED: u8 = 0x40;

/// The latest moment at which a transaction of this log ended, as far as it can be read; microseconds since 1970. `None`:
/// none ended.
pub fn latest_end<R: FnMut(Lsn, &mut [u8]) -> io::Result<()>>(
    mut records: Records<R>,
) -> Option<i64> {
    let mut latest = None;
    while let Ok(Some(record)) = records.next(Lsn(u64::MAX), is_end) {
        latest = latest.max(ended(&record));
    }
    latest
}

/// When this transaction ended, by the first of these records that ends one of its number; microseconds since 1970.
pub fn end_of_transaction<R: FnMut(Lsn, &mut [u8]) -> io::Result<()>>(
    mut records: Records<R>,
    transaction: u32,
) -> Option<i64> {
    while let Ok(Some(record)) = records.next(Lsn(u64::MAX), is_end) {
        if record.transaction == transaction
            && let Some(moment) = ended(&record)
        {
            return Some(moment);
        }
    }
    None
}

fn is_end(manager: u8, kind: u8) -> bool {
    let ends = [COMMIT, ABORT, COMMIT_PREPARED, ABORT_PREPARED];
    manager == RM_XACT && ends.contains(&(kind & OPERATION))
}

/// Commits and aborts begin with their moment. Of other records no data was kept.
fn ended(record: &Record) -> Option<i64> {
    let (moment, _) = record.data_head()?.split_first_chunk()?;
    i64::from_le_bytes(*moment).checked_add(EPOCH_US)
}
