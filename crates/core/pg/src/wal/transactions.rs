//! The times at which transactions ended, from their records; recovery to a target time depends on them.
//!
//! Replay stops before the first commit or abort after the target time. If the WAL has none, no server can tell that
//! it has reached the target, and recovery to that target fails.
//!
//! Invariants
//! - WAL that cannot be read ends a search; what was found before it counts.
//! - Times are the servers' own, and may go back.
//!
//! Leaves to others: reading records (`records.rs`), and what a time means for a recovery (`longshore-wal`).
//!
//! Source: PostgreSQL 14 to 18, `access/xact.h` and `recoveryStopsBefore` in `access/transam/xlogrecovery.c`
//! (`xlog.c` of 14); for opening, `catalog/pg_control.h` and `xl_end_of_recovery`.

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

/// The resource manager of the WAL itself, and its records with which a server opens after recovery: a checkpoint like the one
/// of a shutdown, or, after a promotion by command, a record of its own.
const RM_XLOG: u8 = 0;
const CHECKPOINT: u8 = 0x00;
const END_OF_RECOVERY: u8 = 0x90;
/// Where a checkpoint has its time, in seconds since 1970.
const CHECKPOINT_TIME_AT: usize = 64;

/// The latest time at which a transaction of this WAL ended, as far as the WAL can be read; microseconds since 1970.
/// `None` if none ended.
pub fn latest_end<R: FnMut(Lsn, &mut [u8]) -> io::Result<()>>(records: Records<R>) -> Option<i64> {
    latest_end_within(records, Lsn(0), Lsn(u64::MAX))
}

/// Like [`latest_end`], of the records that begin at `from` or later, and before `to`.
pub fn latest_end_within<R: FnMut(Lsn, &mut [u8]) -> io::Result<()>>(
    mut records: Records<R>,
    from: Lsn,
    to: Lsn,
) -> Option<i64> {
    let mut latest = None;
    while let Ok(Some(record)) = records.next(to, is_end) {
        if record.at >= from {
            latest = latest.max(ended(&record));
        }
    }
    latest
}

/// The time at which the first transaction ended whose end begins at `from` or later, and before `to`; `None` if none ended, as
/// far as the WAL can be read.
pub fn first_end_within<R: FnMut(Lsn, &mut [u8]) -> io::Result<()>>(
    mut records: Records<R>,
    from: Lsn,
    to: Lsn,
) -> Option<i64> {
    while let Ok(Some(record)) = records.next(to, is_end) {
        if let Some(us) = ended(&record).filter(|_| record.at >= from) {
            return Some(us);
        }
    }
    None
}

/// The transactions that ended in some WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// When the first one ended; microseconds since 1970.
    pub first_us: i64,
    /// Where the record begins that ended the last one.
    pub last: Lsn,
}

/// The transactions whose ends begin at `from` or later; `None` if none ended, as far as the WAL can be read.
pub fn ends_from<R: FnMut(Lsn, &mut [u8]) -> io::Result<()>>(
    mut records: Records<R>,
    from: Lsn,
) -> Option<Ends> {
    let mut found: Option<Ends> = None;
    while let Ok(Some(record)) = records.next(Lsn(u64::MAX), is_end) {
        if let Some(us) = ended(&record).filter(|_| record.at >= from) {
            let first_us = found.map_or(us, |found| found.first_us);
            found = Some(Ends {
                first_us,
                last: record.at,
            });
        }
    }
    found
}

/// When a server opened on a new timeline, of the first record at `from` or later that says so; microseconds since 1970, and the
/// begin of its second if that record is a checkpoint. `None` if the WAL has no such record, as far as it can be read.
pub fn opened<R: FnMut(Lsn, &mut [u8]) -> io::Result<()>>(
    mut records: Records<R>,
    from: Lsn,
) -> Option<i64> {
    let tells = |manager, kind| manager == RM_XLOG && [CHECKPOINT, END_OF_RECOVERY].contains(&kind);
    while let Ok(Some(record)) = records.next(Lsn(u64::MAX), tells) {
        if record.at < from || !tells(record.manager, record.kind) {
            continue;
        }
        let data = record.data_head()?;
        return match record.kind {
            END_OF_RECOVERY => {
                let (moment, _) = data.split_first_chunk()?;
                i64::from_le_bytes(*moment).checked_add(EPOCH_US)
            }
            _ => {
                let (moment, _) = data.get(CHECKPOINT_TIME_AT..)?.split_first_chunk()?;
                i64::from_le_bytes(*moment).checked_mul(1_000_000)
            }
        };
    }
    None
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
