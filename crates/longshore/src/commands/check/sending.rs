//! Checks that a server gives its WAL to somebody: a command that is there, and slots that somebody reads.
//!
//! Invariants
//! - Nothing is asked that a role without rights may not read.
//! - A command is said to succeed only if its last success is newer than the oldest file that waits.
//!
//! Leaves to others: files that wait and calls that fail, and whether WAL arrives (`postgres.rs`).

use longshore_pg::client::{Connection, Error};

use super::notes::{Grade, Notes};
use crate::commands::results::age_text;
use crate::commands::wal::DEFAULT_SLOT;

/// The finding on a server with archive_mode on that has neither a command nor a library to archive with. `None`: it has one.
///
/// Errors: the server does not answer.
pub fn no_command(connection: &mut Connection) -> Result<Option<(Grade, String)>, Error> {
    // Servers before 15 know no library.
    let sql = "SELECT current_setting('archive_command') = '' AND coalesce(current_setting('archive_library', true), '') = '', \
               EXISTS (SELECT FROM pg_stat_replication)";
    let rows = connection.query(sql)?;
    if !rows.is_true(0, 0)? {
        return Ok(None);
    }
    let keeps = "archive_mode is on and archive_command is empty: the server keeps all its WAL until its disk is full";
    Ok(Some(match rows.is_true(0, 1)? {
        true => (
            Grade::Look,
            format!(
                "{keeps}, whatever a receiver gets: set archive_command, or archive_mode = off, which needs a restart"
            ),
        ),
        false => (
            Grade::Bad,
            format!(
                "{keeps}, and none is archived: set archive_command and run `select pg_reload_conf()`"
            ),
        ),
    }))
}

/// One sentence on the last success of the command, where none failed since. `ready`: how many files wait, if the role may know;
/// `oldest_s`: the age of the oldest of them in seconds.
///
/// Errors: the server does not answer.
pub fn success(
    connection: &mut Connection,
    ready: Option<u64>,
    oldest_s: Option<u64>,
) -> Result<String, Error> {
    let is_newer = match (ready, oldest_s) {
        (Some(0), _) => "last_archived_time IS NOT NULL".to_owned(),
        (Some(_), Some(age)) => {
            format!("coalesce(last_archived_time >= now() - interval '{age} seconds', false)")
        }
        _ => "false".to_owned(),
    };
    let sql = format!(
        "SELECT {is_newer}, last_archived_wal, greatest(0, floor(extract(epoch from now() - last_archived_time)))::bigint \
         FROM pg_stat_archiver"
    );
    let rows = connection.query(&sql)?;
    if rows.is_true(0, 0)? {
        return Ok("archive_command succeeds".to_owned());
    }
    match rows.bytes(0, 1) {
        None => Ok("archive_command has archived nothing yet".to_owned()),
        Some(_) => Ok(format!(
            "archive_command succeeded last {} ago, with {}",
            age_text(rows.value(0, 2)?),
            rows.text(0, 1)?
        )),
    }
}

/// The slot of the shipped unit, where the configuration names another one or none.
pub fn default_slot(connection: &mut Connection, configured: Option<&str>, notes: &mut Notes) {
    if configured == Some(DEFAULT_SLOT) {
        return;
    }
    let sql = format!(
        "SELECT active FROM pg_replication_slots WHERE slot_name = '{DEFAULT_SLOT}' AND slot_type = 'physical' \
         AND restart_lsn IS NOT NULL"
    );
    let what = "slot";
    let found = connection
        .query(&sql)
        .and_then(|rows| match rows.is_empty() {
            true => Ok(None),
            false => rows.is_true(0, 0).map(Some),
        });
    match found {
        Ok(None) => {}
        Ok(Some(true)) => notes.good(what, format!("{DEFAULT_SLOT} is being received from")),
        Ok(Some(false)) => notes.bad(
            what,
            format!(
                "{DEFAULT_SLOT}: no receiver is connected; the server keeps its WAL until its disk is full: start the receiver, \
                 or run `select pg_drop_replication_slot('{DEFAULT_SLOT}')` if there is none any longer"
            ),
        ),
        Err(e) => notes.bad(what, e.to_string()),
    }
}
