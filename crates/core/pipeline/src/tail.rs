//! Refuses a restore that would remove transactions which no archive has.
//!
//! Invariants
//! - Only a directory that the restore replaces or changes is looked at.
//! - A recovery with a target leaves such transactions out anyway: they are told, since they cannot be recovered later.
//!
//! Leaves to others: finding them (`longshore-wal`).

use std::path::Path;

use longshore_io::Storage;
use longshore_landing::ClusterOptions;
use longshore_pg::{Lsn, Recovery, Timeline};
use longshore_wal::WalArchive;

use crate::Error;

/// Looks for transactions after the archive's end `at` that the directory `to` has. The result is a warning.
///
/// Errors: `Unarchived`: the recovery goes to the archive's end.
pub fn check_tail(
    storage: &dyn Storage,
    archive: &WalArchive,
    (to, replace, options): (&Path, bool, &ClusterOptions),
    at: (Timeline, Lsn),
    recovery: &Recovery,
) -> Result<Option<String>, Error> {
    let goes = (replace || options.delta) && !options.discard_wal;
    if !goes || recovery.standby {
        return Ok(None);
    }
    let tail = archive.tail_of(storage, to, at.0, at.1);
    match (tail, &recovery.target) {
        (None, _) => Ok(None),
        (Some(tail), None) => Err(Error::Unarchived { tail }),
        (Some(tail), Some(_)) => Ok(Some(format!("{tail}: the restore removes them"))),
    }
}
