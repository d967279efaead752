//! The words for what databases' own WAL archives are owed, and where the list of it is.
//!
//! Invariants
//! - A list is one cluster's. On this machine it is that of the server that listens at the database's socket, as both of the
//!   server's lock files say: a path that agrees may be another machine's, and a name another cluster's.
//! - A list that cannot be seen is no finding; one that is there and cannot be read is.
//!
//! Leaves to others: the list (`longshore-wal`), bringing what it names (`follow.rs`), and the command (`owed.rs`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use longshore_io::{OpenHow, Via};
use longshore_pg::PID_FILE;
use longshore_pg::client::{Host, Options};
use longshore_pipeline::SourceSpec;
use longshore_wal::{Creditor, Error, Owed, OwedList, PgWal};
use serde::Serialize;

use crate::commands::archive::ArchiveLocation;
use crate::commands::results::age_text;
use crate::context::Context;

/// The longest lock file of a server that is read.
const LOCK_MAX: usize = 4096;
/// Process, data directory, start and port: the lines that both of a server's lock files have.
const SAME_LINES: usize = 4;

/// The seconds in which what goes by itself, as a store that did not answer, has to be gone: somebody has to act then. A day.
const PASSES_WITHIN_S: i64 = 86_400;

/// The list in a cluster's pg_wal, for people and scripts.
#[derive(Debug, Serialize)]
pub struct OwedReport {
    pub debts: Vec<DebtRow>,
    /// Why it is not known what is owed; `None`: it is.
    pub unknown: Option<String>,
}

/// The debt to the own archive of one database.
#[derive(Debug, Serialize)]
pub struct DebtRow {
    pub database: String,
    /// Where its archive was.
    pub archives: Vec<String>,
    pub file_count: usize,
    /// The first segment of them.
    pub since: Option<String>,
    /// Of these files, those that no copy in reach has, nor pg_wal.
    pub lost_count: usize,
    pub why: Option<String>,
    pub is_refused: bool,
    /// Whether a push brings them: the configuration has the database, and its copies get WAL at once.
    pub is_brought: bool,
    #[serde(skip)]
    pub weight: Weight,
    #[serde(skip)]
    pub text: String,
    /// The next step.
    #[serde(skip)]
    pub next: String,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// It comes once the archive is back.
    Waits,
    /// Somebody has to act.
    Stands,
}

impl OwedReport {
    pub fn of(list: &OwedList, context: &Context) -> OwedReport {
        let debts = list
            .debts()
            .map(|(name, owed)| DebtRow::of(name, owed, context));
        let unread = list.unread;
        OwedReport {
            debts: debts.collect(),
            unknown: (unread > 0).then(|| format!("{unread} lines are not understood")),
        }
    }

    /// The debts that concern a database: its own, and those that no database of the configuration has.
    pub fn about(mut self, database: &str, context: &Context) -> OwedReport {
        let configured = &context.config.database;
        self.debts
            .retain(|row| row.database == database || !configured.contains_key(&row.database));
        self
    }
}

impl DebtRow {
    fn of(name: &str, owed: &Owed, context: &Context) -> DebtRow {
        let config = &context.config;
        let is_configured = config.database.contains_key(name);
        let has_copies = !config.copies_of(name).is_empty();
        let is_brought = has_copies && config.wal_of(name).is_some_and(|wal| wal.copy_at_once);
        let since = owed.since().map(|name| name.to_string());
        let mut row = DebtRow {
            database: name.to_owned(),
            archives: owed.locations().into_iter().map(str::to_owned).collect(),
            file_count: owed.names.len(),
            since,
            lost_count: owed.lost.len(),
            why: owed.why.clone(),
            is_refused: owed.is_refused,
            is_brought: is_configured && is_brought,
            weight: Weight::Stands,
            text: owed_text(name, owed, context),
            next: String::new(),
        };
        let since_us = owed.passes_since_us.filter(|_| owed.is_there);
        let now_us = context.clock.wall_ns() / 1000;
        let passing = since_us.map(|since_us| passing(name, now_us.saturating_sub(since_us)));
        row.next = match passing {
            _ if !is_configured => format!(
                "the configuration has no database {name}: `longshore wal owed --database NAME --take {name}` makes it a debt \
                 to the archive of NAME"
            ),
            _ if row.is_refused => {
                "the archive has other WAL of these names, and pushes fail: run `longshore wal create --archive NEW` for this \
                 server, name NEW in its configuration, and make a full backup there"
                    .to_owned()
            }
            // A copy that is gone from the configuration may have them.
            _ if !has_copies => format!(
                "no push brings them, because `copies` is gone from the configuration: name a copy's target there again; \
                 `longshore wal owed --database {name} --settle` brings what pg_wal still has"
            ),
            _ if !row.is_brought && row.lost_count < row.file_count => format!(
                "no push brings them, because `copy_at_once` is gone from the configuration: run \
                 `longshore wal owed --database {name} --settle`"
            ),
            _ if owed.is_uncompared => format!(
                "no push brings them, because nothing here can compare an encrypted file: name the identity of a recipient in \
                 [encryption], then run `longshore wal owed --database {name} --settle`"
            ),
            _ if owed.is_in_the_way => format!(
                "that file is not written over: move it out of the archive, then run \
                 `longshore wal owed --database {name} --settle`; all other files come without that"
            ),
            _ if row.lost_count > 0 => format!(
                "{} of them are in no copy's archive in reach, nor in pg_wal, the first {}: bring back the copy that had them; or \
                 make a full backup (`longshore backup {name}`), then run `longshore wal owed --database {name} --give-up`",
                row.lost_count,
                owed.lost.first().map(ToString::to_string).unwrap_or_default()
            ),
            Some((weight, next)) => {
                row.weight = weight;
                next
            }
            None if owed.is_there && owed.why.is_some() => format!(
                "the archive answers, so it is something else that keeps them: put that right, then run \
                 `longshore wal owed --database {name} --settle`"
            ),
            None => {
                row.weight = Weight::Waits;
                format!(
                    "pushes bring them once it is back: `longshore wal owed --database {name}` names them"
                )
            }
        };
        row
    }

    pub fn told(&self) -> String {
        format!("{}; {}", self.text, self.next)
    }
}

/// How bad it is that files are kept by what goes by itself, for so long by now, and the next step.
fn passing(database: &str, for_us: i64) -> (Weight, String) {
    let for_s = for_us / 1_000_000;
    if for_s <= PASSES_WITHIN_S {
        let text = "the archive answers, and what kept them goes by itself: pushes bring them then";
        return (Weight::Waits, text.to_owned());
    }
    let text = format!(
        "the archive answers, and what keeps them should have gone by itself, but is there for {} now: put that right, then run \
         `longshore wal owed --database {database} --settle`",
        age_text(for_s)
    );
    (Weight::Stands, text)
}

/// `3 files, from 0…7 on, are owed to target near (/near/main/wal): it does not answer`
fn owed_text(name: &str, owed: &Owed, context: &Context) -> String {
    let target = match context.config.target_of(name) {
        Some(target) => format!("the archive of target {target}"),
        None => format!("the archive of database {name}"),
    };
    let at: Vec<&str> = owed.locations().into_iter().collect();
    let why = owed.why.as_ref().map(|why| format!(": {why}"));
    format!(
        "{}{} owed to {target} ({}){}",
        counted(owed.names.len(), since(owed)),
        if owed.names.len() == 1 { " is" } else { " are" },
        at.join(", "),
        why.unwrap_or_default()
    )
}

fn since(owed: &Owed) -> Option<String> {
    let first = owed.since().map(|name| name.to_string());
    first.or_else(|| owed.names.first().map(ToString::to_string))
}

fn counted(files: usize, since: Option<String>) -> String {
    let files = match files {
        1 => "1 file".to_owned(),
        files => format!("{files} files"),
    };
    match since {
        Some(since) => format!("{files} of WAL, from {since} on,"),
        None => files,
    }
}

/// A list that cannot be read, and the next step.
pub fn unknown(why: &str) -> (String, &'static str) {
    let text = format!(
        "it is not known what the database's own archive is owed, since its list cannot be read: {why}"
    );
    (
        text,
        "put pg_wal/longshore/owed right; or remove it, and make a full backup",
    )
}

pub fn unknown_text(why: &str) -> String {
    let (text, next) = unknown(why);
    format!("{text}; {next}")
}

/// The warnings of a push: of debts that none brings, and of lines that are not understood.
pub fn unbrought(list: &OwedList, context: &Context) -> Vec<String> {
    let report = OwedReport::of(list, context);
    let stands = report
        .debts
        .into_iter()
        .filter(|row| row.weight == Weight::Stands);
    let told = stands.map(|row| row.told());
    told.chain(report.unknown.map(|why| unknown_text(&why)))
        .collect()
}

/// Makes what the list owes to the database `of` a debt to the archive at this location, and says so. Returns the number of
/// files.
///
/// Errors: those of [`PgWal::move_debts`].
pub fn move_here(
    pg_wal: &PgWal,
    of: &str,
    (database, location): (&str, &ArchiveLocation),
    context: &Context,
) -> Result<usize, Error> {
    let location = location.path();
    let creditor = Creditor {
        database,
        location: &location,
    };
    let (names, places) = pg_wal.move_debts(of, creditor, &*context.clock)?;
    if let Some(first) = names.first() {
        let text = moved_text(names.len(), first, &places, creditor, context);
        context.output.warn(&text);
    }
    Ok(names.len())
}

fn moved_text(
    files: usize,
    first: &impl ToString,
    places: &BTreeSet<String>,
    creditor: Creditor<'_>,
    context: &Context,
) -> String {
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    let target = context
        .config
        .target_of(creditor.database)
        .unwrap_or(creditor.database);
    let wait = if files == 1 { "waits" } else { "wait" };
    format!(
        "{} owed to the archive at {}, {wait} for that of target {target} ({}) in its place",
        counted(files, Some(first.to_string())),
        places.join(" and "),
        creditor.location.display()
    )
}

/// The debts in the list of a database's server, if that runs on this machine and its data directory can be read.
pub fn of_server(database: &str, context: &Context) -> Option<OwedReport> {
    let list = pg_wal_of(database, context)?.owed_list();
    Some(report_of(list, context).about(database, context))
}

/// The report on a list that was read, or not.
pub fn report_of(list: Result<OwedList, impl std::fmt::Display>, context: &Context) -> OwedReport {
    match list {
        Ok(list) => OwedReport::of(&list, context),
        Err(error) => OwedReport {
            debts: Vec::new(),
            unknown: Some(error.to_string()),
        },
    }
}

/// The pg_wal of the server that a database's `url` names, if that listens at a socket of this machine.
pub fn pg_wal_of(database: &str, context: &Context) -> Option<PgWal> {
    let url = context.config.database.get(database)?.url.clone();
    let spec = SourceSpec::parse(&*context.storage, &[url.into()]).ok()?;
    let SourceSpec::Postgres(options) = spec else {
        return None;
    };
    let data = data_directory(&options, context)?;
    PgWal::open(&*context.storage, &data.join("pg_wal")).ok()
}

fn data_directory(options: &Options, context: &Context) -> Option<PathBuf> {
    // With several hosts it is not known which one has the list.
    let [Host::Socket { dir, port }] = &options.hosts[..] else {
        return None;
    };
    let socket = lock_lines(dir, &format!(".s.PGSQL.{port}.lock"), context)?;
    let data = PathBuf::from(socket.get(1)?);
    let own = lock_lines(&data, PID_FILE, context)?;
    let is_same = socket.len() >= SAME_LINES
        && own.len() >= SAME_LINES
        && socket[..SAME_LINES] == own[..SAME_LINES];
    is_same.then_some(data)
}

fn lock_lines(dir: &Path, name: &str, context: &Context) -> Option<Vec<String>> {
    let dir = context.storage.dir(dir).ok()?;
    let file = dir.open(Path::new(name), OpenHow::Read).ok()?;
    let mut bytes = vec![0; LOCK_MAX];
    let len = file.read_full_at(&mut bytes, 0, Via::Cache).ok()?;
    let text = std::str::from_utf8(&bytes[..len]).ok()?;
    Some(text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a cause that is said to go by itself, and does not, becomes somebody's work.
    #[test]
    fn what_does_not_go_by_itself_within_a_day_is_somebodys_to_mend() {
        let after = |seconds: i64| passing("main", seconds * 1_000_000);
        assert_eq!(after(0).0, Weight::Waits);
        assert_eq!(after(86_400).0, Weight::Waits);
        let (weight, text) = after(90_061);
        assert_eq!(weight, Weight::Stands);
        for told in ["for 1 d 1 h now", "wal owed --database main --settle"] {
            assert!(text.contains(told), "{text}");
        }
        assert_eq!(after(86_401).0, Weight::Stands);
        assert_eq!(after(-5).0, Weight::Waits, "a clock that was set back");
    }
}
