//! Whether a database's own WAL archive is owed anything, as the list in the cluster's pg_wal says.
//!
//! Invariants
//! - The server is asked for its own list. Where the role may not read files, the list is read only if it is certainly that
//!   server's.
//! - A debt that pushes will pay is something to look at; one that nobody pays is a failure. So is a list that cannot be read,
//!   where it ends with pushes that fail: meanwhile no WAL counts as copied (`copy_behind`).
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
    let hex = rows.bytes(0, 0).unwrap_or_default();
    Ok(OwedList::parse(&of_hex(hex)))
}

/// The bytes of a hexadecimal text. A text that is none becomes a line that nobody understands, so that it is not known what is owed.
fn of_hex(hex: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = hex.chunks(2).map(byte).collect();
    bytes.unwrap_or_else(|| b"no list".to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_no_list_leaves_it_unknown_and_not_empty() {
        let line = b"a line of a later version";
        let hex: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(of_hex(hex.as_bytes()), line);
        assert_eq!(OwedList::parse(&of_hex(b"")).unread, 0);
        for other in ["0", "zz", "00g0", "\\x61"] {
            assert_eq!(
                OwedList::parse(&of_hex(other.as_bytes())).unread,
                1,
                "{other}"
            );
        }
    }
}
