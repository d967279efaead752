//! Whether a backup would wait in vain for its server's WAL to be archived.
//!
//! Invariants
//! - Only what certainly ends in vain is told: a server that says that nobody archives its WAL.
//! - A server that cannot be asked is left to the backup itself, which says why.
//!
//! Leaves to others: waiting for the WAL (`log.rs`, `archived.rs`), and the next step, which callers name.

use std::path::Path;

use longshore_io::Storage;
use longshore_pg::client::{Connection, Error, Mode, Options};

const SQL: &str = "SELECT current_setting('archive_mode'), \
    coalesce(current_setting('archive_command', true), '') || coalesce(current_setting('archive_library', true), ''), \
    pg_is_in_recovery() \
    OR EXISTS (SELECT FROM pg_stat_replication) \
    OR EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical')";

/// Why WAL never comes to `archive`, if nobody archives the server's.
pub fn unarchived(storage: &dyn Storage, server: &Options, archive: &Path) -> Option<String> {
    let why = ask(storage, server).ok().flatten()?;
    Some(format!(
        "{why}, and no receiver is connected, so the WAL that the backup needs never comes to {}",
        archive.display()
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
