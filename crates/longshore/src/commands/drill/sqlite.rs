//! The check of a restored SQLite database by SQLite itself.
//!
//! Invariants
//! - A collation, function, module or tokenizer that only the database's application has is never called damage. The check
//!   then goes on table by table, so that real damage is still found.
//! - A table that could not be checked is named, and the drill is then no full proof.
//!
//! Leaves to others: what a drill makes of the proof (`drill.rs`).

use std::fmt::Write as _;
use std::path::Path;

use longshore_io::ConnectionClaims;
use longshore_terminal::text::plain;
use rusqlite::{Connection, Error, ffi};

use super::proof::Proof;
use crate::context::Context;

const WHAT: &str = "integrity_check";

/// How SQLite begins to say that it lacks what an application adds to it.
const LACKS: [&str; 6] = [
    "no such collation sequence",
    "unknown function",
    "no such function",
    "no such module",
    "no such tokenizer",
    "unknown tokenizer",
];

/// How many tables a message names.
const NAMED_MAX: usize = 5;

/// The result of the check of a database.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Sound,
    /// A finding, in SQLite's words.
    Damaged(String),
    /// No finding in what could be checked. Tables that were not checked wholly, and why.
    Partly(Vec<(String, String)>),
}

/// Has SQLite check all of the one database in `data`. False: its application is needed to check all of it, and the rest
/// is sound. That is then warned of.
pub(super) fn prove(context: &Context, data: &Path) -> (Proof, bool) {
    let first = context
        .storage
        .dir(data)
        .and_then(|dir| dir.list()?.next().transpose());
    let Ok(Some(name)) = first else {
        return (Proof::of(WHAT, false, "nothing was restored"), true);
    };
    let path = data.join(name);
    #[expect(clippy::disallowed_methods, reason = "its files are in use")]
    let open = || Connection::open(&path);
    let (claims, opened) = ConnectionClaims::around(&path, open);
    let verdict = opened.map_or_else(|e| Verdict::Damaged(e.to_string()), |db| check(&db));
    drop(claims);
    match verdict {
        Verdict::Sound => (Proof::of(WHAT, true, "ok"), true),
        Verdict::Damaged(finding) => (Proof::of(WHAT, false, finding), true),
        Verdict::Partly(unchecked) => {
            let told = told_of(&unchecked);
            context.output.warn(&format!(
                "{told}: no verdict on these; have their application check a restored copy: PRAGMA integrity_check"
            ));
            (Proof::of(WHAT, true, told), false)
        }
    }
}

fn told_of(unchecked: &[(String, String)]) -> String {
    let mut text = "not checked, because it needs what its application adds to SQLite: ".to_owned();
    for (i, (table, why)) in unchecked.iter().take(NAMED_MAX).enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        let _ = write!(text, "{comma}{} ({})", plain(table), plain(why));
    }
    if let Some(more @ 1..) = unchecked.len().checked_sub(NAMED_MAX) {
        let _ = write!(text, ", and {more} more");
    }
    text
}

fn check(db: &Connection) -> Verdict {
    match integrity(db, "10") {
        Ok(None) => Verdict::Sound,
        Ok(Some(finding)) => Verdict::Damaged(finding),
        Err(e) if lacked(&e).is_some() => check_tables(db).unwrap_or_else(|e| damage(&e)),
        Err(e) => damage(&e),
    }
}

fn damage(e: &Error) -> Verdict {
    Verdict::Damaged(e.to_string())
}

/// The check of each table by itself, and of the schema's own.
fn check_tables(db: &Connection) -> Result<Verdict, Error> {
    let mut names =
        db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")?;
    let names: Result<Vec<String>, _> = names.query_map([], |row| row.get(0))?.collect();
    let mut unchecked = Vec::new();
    for table in ["sqlite_schema".to_owned()].into_iter().chain(names?) {
        let why = match integrity(db, &quoted(&table, '\'')) {
            Ok(None) => continue,
            Ok(Some(finding)) => return Ok(Verdict::Damaged(finding)),
            Err(e) => lacked(&e).ok_or(e)?,
        };
        if let Err(e) = read_rows(db, &table)
            && lacked(&e).is_none()
        {
            return Err(e);
        }
        unchecked.push((table, why));
    }
    Ok(Verdict::Partly(unchecked))
}

/// SQLite's first finding, in all (a number: how many at most) or in one table.
fn integrity(db: &Connection, of: &str) -> Result<Option<String>, Error> {
    let sql = format!("PRAGMA integrity_check({of})");
    let said: String = db.query_row(&sql, [], |row| row.get(0))?;
    Ok((said != "ok").then_some(said))
}

/// Reads all rows of a table, without its indexes.
fn read_rows(db: &Connection, table: &str) -> Result<(), Error> {
    let sql = format!("SELECT * FROM {} NOT INDEXED", quoted(table, '"'));
    let mut statement = db.prepare(&sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        for column in 0..columns {
            row.get_ref(column)?;
        }
    }
    Ok(())
}

fn quoted(name: &str, quote: char) -> String {
    let inner = name.replace(quote, &format!("{quote}{quote}"));
    format!("{quote}{inner}{quote}")
}

/// The message of an error that says what this SQLite lacks of the application's; `None` of all others.
fn lacked(e: &Error) -> Option<String> {
    let (code, message) = match e {
        Error::SqliteFailure(error, Some(message)) => (error.extended_code, message),
        Error::SqlInputError { error, msg, .. } => (error.extended_code, msg),
        _ => return None,
    };
    let is_error = code & 0xff == ffi::SQLITE_ERROR;
    (is_error && LACKS.iter().any(|lack| message.starts_with(lack))).then(|| message.clone())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const PAGE: usize = 4096;

    #[expect(clippy::disallowed_methods, reason = "a database of the test alone")]
    fn open(path: &Path) -> Connection {
        Connection::open(path).unwrap()
    }

    /// The verdict on a database of two tables, `app` made by `sql`, in which `from` then became the name of something that
    /// only an application has. The page of `damaged`, a table or an index, is overwritten.
    fn verdict(sql: &str, (from, to): (&str, &str), damaged: Option<&str>) -> Verdict {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app.db");
        let db = open(&path);
        db.execute_batch(&format!(
            "PRAGMA page_size = {PAGE};
             CREATE TABLE plain(a INTEGER PRIMARY KEY, b TEXT);
             CREATE INDEX plain_b ON plain(b);
             INSERT INTO plain VALUES (1, 'x'), (2, 'y');
             {sql};
             PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET sql = replace(sql, '{from}', '{to}');"
        ))
        .unwrap();
        if let Some(damaged) = damaged {
            let root = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
            let page: u32 = db.query_row(root, [damaged], |row| row.get(0)).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(&[0x55; PAGE], u64::from(page - 1) * PAGE as u64)
                .unwrap();
        }
        drop(db);
        check(&open(&path))
    }

    const COLLATION: &str = "CREATE TABLE app(a TEXT COLLATE nocase); CREATE INDEX app_a ON app(a);
        INSERT INTO app VALUES ('x'), ('y')";
    const INDEX: &str =
        "CREATE TABLE app(a); CREATE INDEX app_a ON app(abs(a)); INSERT INTO app VALUES (1), (2)";
    const CHECK: &str = "CREATE TABLE app(a CHECK (abs(a))); INSERT INTO app VALUES (1), (2)";

    #[test]
    fn what_only_an_application_has_is_no_damage() {
        for (sql, from, to, why) in [
            (
                COLLATION,
                "nocase",
                "german",
                "no such collation sequence: german",
            ),
            (INDEX, "abs", "myhash", "unknown function: myhash()"),
            (CHECK, "abs", "myok", "unknown function: myok()"),
        ] {
            let found = verdict(sql, (from, to), None);
            let unchecked = vec![("app".to_owned(), why.to_owned())];
            assert_eq!(found, Verdict::Partly(unchecked), "{sql}");
            assert_eq!(verdict(sql, (from, from), None), Verdict::Sound);
        }
    }

    #[test]
    fn damage_is_found_in_the_other_tables_and_in_the_rows_of_such_a_table() {
        for (sql, names) in [
            (COLLATION, ("nocase", "german")),
            (INDEX, ("abs", "myhash")),
            (CHECK, ("abs", "myok")),
        ] {
            for damaged in ["plain", "plain_b", "app"] {
                let found = verdict(sql, names, Some(damaged));
                assert!(matches!(found, Verdict::Damaged(_)), "{damaged}: {found:?}");
            }
        }
    }

    #[test]
    fn a_message_names_a_few_tables_and_counts_the_others() {
        let unchecked = |count: usize| {
            let table = |i| (format!("t{i}"), "why".to_owned());
            told_of(&(0..count).map(table).collect::<Vec<_>>())
        };
        assert!(unchecked(1).ends_with(": t0 (why)"));
        assert!(unchecked(NAMED_MAX).ends_with(", t4 (why)"));
        assert!(unchecked(NAMED_MAX + 2).ends_with(", t4 (why), and 2 more"));
    }
}
