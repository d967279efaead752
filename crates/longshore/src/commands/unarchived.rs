//! Refuses a backup that would wait in vain for its WAL to be archived.
//!
//! Invariants
//! - Only what certainly ends in vain is refused: a server that says that nobody archives its WAL.
//! - A server that cannot be asked is left to the backup itself, which says why.
//!
//! Leaves to others: waiting for the WAL (`pipeline`), and the way to the archive (`check/postgres.rs`).

use std::path::Path;

use longshore_io::Storage;
use longshore_pg::client::{Connection, Error, Mode, Options};

use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;

const SQL: &str = "SELECT current_setting('archive_mode'), \
    coalesce(current_setting('archive_command', true), '') || coalesce(current_setting('archive_library', true), ''), \
    pg_is_in_recovery() \
    OR EXISTS (SELECT FROM pg_stat_replication) \
    OR EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical')";

/// Errors: nobody archives the server's WAL, so that it never comes to `archive`.
pub fn refuse(storage: &dyn Storage, server: &Options, archive: &Path) -> Result<(), Failure> {
    let Some(why) = ask(storage, server).ok().flatten() else {
        return Ok(());
    };
    Err(Failure::new(
        Exit::Source,
        numbers::WAL_MISSING,
        format!(
            "{why}, and no receiver is connected, so the WAL that the backup needs never comes to {}",
            archive.display()
        ),
        "set archive_mode = on, which needs a restart, and archive_command (`longshore wal push %p --database NAME`); or run \
         `longshore wal receive`; or store the WAL in the backup: --with-wal",
    ))
}

/// Why nobody archives, if that is so.
fn ask(storage: &dyn Storage, server: &Options) -> Result<Option<String>, Error> {
    let mut connection = Connection::open(storage, server, Mode::Sql)?;
    let rows = connection.query(SQL)?;
    let (mode, action) = (rows.text(0, 0)?, rows.text(0, 1)?);
    let may_come = rows.is_true(0, 2)?;
    Ok(match (mode, action.trim()) {
        _ if may_come => None,
        ("off", _) => Some("archive_mode is off".to_owned()),
        (_, "") => Some("archive_command is empty".to_owned()),
        _ => None,
    })
}
