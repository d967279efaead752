//! A database's own check of itself, as the check's caller asks for it.
//!
//! Invariants
//! - Nothing is written, and no history is kept.
//!
//! Leaves to others: the check (`longshore-source`), and the words of its result.

use std::path::Path;
use std::time::Duration;

use longshore_pg::client::Options;
use longshore_source::{CheckDepth, ClusterCheck, Error as SourceError, SourceOptions};

use crate::{Error, RunContext};

/// How long programs may keep the database locked.
const LOCK_WAIT: Duration = Duration::from_secs(30);
/// A cancel is seen after so much of it.
const TURN: Duration = Duration::from_millis(100);

/// The findings of SQLite's own check of a database, up to a number of them. `trust_locks`: on any file system.
///
/// Errors: [`Error::Cancelled`]; and what keeps a backup from reading the database.
pub fn check_sqlite(
    context: &RunContext,
    path: &Path,
    trust_locks: bool,
    extent: (CheckDepth, u32),
) -> Result<Vec<String>, Error> {
    let options = SourceOptions {
        trust_locks,
        lock_wait: TURN,
        ..SourceOptions::default()
    };
    let begun = context.clock.now();
    loop {
        context.check_cancel()?;
        let (storage, cancel) = (&*context.storage, &context.cancel);
        let found = longshore_source::check_sqlite(storage, path, &options, extent, cancel);
        let waited = context.clock.now().saturating_sub(begun);
        match found {
            Err(SourceError::Busy { .. }) if waited < LOCK_WAIT => {}
            Err(SourceError::Busy { path, .. }) => {
                let waited_s = LOCK_WAIT.as_secs();
                return Err(SourceError::Busy { path, waited_s }.into());
            }
            other => return other?.ok_or(Error::Cancelled),
        }
    }
}

/// The findings of a server's own check of all its databases, up to a number of them.
///
/// Errors: [`Error::Cancelled`]; and what keeps the server from checking.
pub fn check_postgres(
    context: &RunContext,
    server: &Options,
    extent: (CheckDepth, u32),
) -> Result<ClusterCheck, Error> {
    context.check_cancel()?;
    let (storage, cancel) = (&*context.storage, &context.cancel);
    let found = longshore_source::check_postgres(storage, server, extent, cancel)?;
    found.ok_or(Error::Cancelled)
}
