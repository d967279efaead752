//! How long a push that may add a debt waits for others: for a process that changes records of what is owed, and for expires.
//!
//! Leaves to others: the order in which a copy keeps the file, gets it, and the debt is noted (`longshore-wal`, `owing.rs`), and
//! finding expires (`longshore-repository`).

use std::time::Duration;

use longshore_repository::await_expires;
use longshore_wal::{Debtor, Error, Owing, PgWal, WalArchive};

use crate::context::Context;

/// How long a push waits for an expire, or for another process that changes records; the server asks again.
const PATIENCE: Duration = Duration::from_secs(5);
/// The interval between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// `None`: another process changes records for longer than a push waits.
///
/// Errors: `Io`.
pub fn begin_owing<'a>(
    pg_wal: &'a PgWal,
    database: &'a str,
    context: &'a Context,
) -> Result<Option<Owing<'a>>, Error> {
    let clock = &*context.clock;
    let until = clock.now() + PATIENCE;
    loop {
        match pg_wal.begin_owing(debtor(pg_wal, database, context))? {
            Some(owing) => return Ok(Some(owing)),
            None if clock.now() >= until => return Ok(None),
            None => clock.sleep(LOOK_EVERY),
        }
    }
}

/// Waits for an expire in the archive of a copy that may not have seen the records there.
///
/// Errors: `BeingExpired`, `Io`, `Store`.
pub fn await_expires_in(archive: &WalArchive, context: &Context) -> Result<(), Error> {
    await_expires(archive, &*context.clock, PATIENCE)
}

/// The words about this pg_wal for who reads the records.
pub fn debtor<'a>(pg_wal: &'a PgWal, database: &'a str, context: &'a Context) -> Debtor<'a> {
    Debtor {
        database,
        target: context.config.target_of(database).unwrap_or(database),
        pg_wal: pg_wal.path(),
    }
}
