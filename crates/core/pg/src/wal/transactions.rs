//! The times at which transactions ended, from their records; recovery to a target time depends on them.
//!
//! Replay stops before the first commit or abort after the target time. If the WAL has none, no server can tell that
//! it has reached the target, and recovery to that target fails.
//!
//! Source: PostgreSQL 14 to 18, `access/xact.h` and `recoveryStopsBefore` in `access/transam/xlogrecovery.c`
//! (`xlog.c` of 14).

use std::io;

use super::{Records, WalRecord};
use crate::Lsn;

/// Microseconds from 1970 to 2000, the server's epoch.
pub const EPOCH_US: i64 = 946_684_800_000_000;

/// The resource manager of transactions, the mask for the kind of its records, and the kinds that end a transaction.
const RM_XACT: u8 = 1;
const OPERATION: u8 = 0x70;
const COMMIT: u8 = 0x00;
const ABORT: u8 = 0x20;
const COMMIT_PREPARED: u8 = 0x30;
const ABORT_PREPARED: u8 = 0x40;

/// The latest time at which a transaction of this WAL ended, as far as the WAL can be read; microseconds since 1970.
/// `None` if none ended.
pub fn latest_end<R: FnMut(Lsn, &mut [u8]) -> io::Result<()>>(
    mut records: Records<R>,
) -> Option<i64> {
    let mut latest = None;
    while let Ok(Some(record)) = records.next(Lsn(u64::MAX), is_end) {
        latest = latest.max(ended(&record));
    }
    latest
}

/// The time in the first of these records that ends this transaction; microseconds since 1970.
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

/// Commits and aborts begin with their time. No data was kept for other records.
fn ended(record: &WalRecord) -> Option<i64> {
    let (moment, _) = record.data_head()?.split_first_chunk()?;
    i64::from_le_bytes(*moment).checked_add(EPOCH_US)
}
