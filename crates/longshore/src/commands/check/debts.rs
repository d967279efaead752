//! Whether a database's own WAL archive is owed anything, as the list in the cluster's pg_wal says.
//!
//! Invariants
//! - The server is asked for its own list. Where the role may not read files, the list is read only if it is certainly that
//!   server's.
//! - A debt that pushes will pay is something to look at; one that nobody pays is a failure, and so is one that pushes should
//!   have paid a day ago, since what kept it was said to go by itself. So is a list that cannot be read, where it ends with pushes
//!   that fail: meanwhile no WAL counts as copied (`copy_behind`).
//!
//! Leaves to others: the list (`longshore-wal`), and its words (`commands/wal/debt.rs`).

use longshore_pg::client::{Connection, Error};
use longshore_wal::{OWED_LIST, OwedList};

use super::notes::{Grade, Notes};
use crate::commands::wal::{OwedReport, Weight, of_server, report_of, unknown_text};
use crate::context::Context;

/// insufficient_privilege
pub const FORBIDDEN: &str = "42501";

pub(super) fn look(
    database: &str,
    connection: Option<&mut Connection>,
    context: &Context,
    notes: &mut Notes,
) -> Option<OwedReport> {
    let what = "owed";
    let report = match connection.map(ask) {
        None => of_server(database, context),
        Some(Err(error)) if error.sqlstate() == Some(FORBIDDEN) => {
            let seen = of_server(database, context);
            let wal = context.config.wal_of(database);
            if seen.is_none() && wal.is_some_and(|wal| wal.home_behind.is_some()) {
                notes.good(
                    what,
                    "only a role with pg_read_server_files, or the server's user, can see what the archive is owed",
                );
            }
            seen
        }
        Some(asked) => Some(report_of(asked, context).about(database, context)),
    };
    for row in report.iter().flat_map(|report| &report.debts) {
        let grade = match row.weight {
            Weight::Waits => Grade::Look,
            Weight::Stands => Grade::Bad,
        };
        notes.note(what, grade, row.told());
    }
    if let Some(why) = report.as_ref().and_then(|report| report.unknown.as_deref()) {
        let wal = context.config.wal_of(database);
        let grade = match wal.is_some_and(|wal| wal.copy_behind.is_some()) {
            true => Grade::Bad,
            false => Grade::Look,
        };
        notes.note(what, grade, unknown_text(why));
    }
    report
}

/// The list, from the server.
fn ask(connection: &mut Connection) -> Result<OwedList, Error> {
    let (file, len_max) = OWED_LIST;
    let sql = format!("SELECT encode(pg_read_binary_file('{file}', 0, {len_max}, true), 'hex')");
    let rows = connection.query(&sql)?;
    Ok(OwedList::parse_hex(rows.bytes(0, 0).unwrap_or_default()))
}
