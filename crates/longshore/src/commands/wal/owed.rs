//! `wal owed`: shows what a database's own archive is owed, brings it, and takes what is lost from the list.
//!
//! Invariants
//! - A file leaves the list only where the archive has its content, or where the user gives up what is lost.
//! - Debts of another database of the configuration are never taken.
//! - The list stays the server's: nobody else changes it, since a new file would be theirs. A change by root is given back.
//!
//! Leaves to others: the list and bringing (`longshore-wal`, `follow.rs`), and the words (`debt.rs`).

use std::io::ErrorKind;
use std::path::Path;

use longshore_facts::{name_of, own_ids};
use longshore_wal::{Owed, PgWal};
use serde::Serialize;

use super::debt::{self, OwedReport};
use super::follow::{self, Way, archive_of};
use crate::commands::archive::ArchiveLocation;
use crate::commands::devices;
use crate::context::Context;
use crate::options::WalOwed;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::Table;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    pg_wal: String,
    owed: OwedReport,
    /// The files that this database's own archive is owed.
    owed_files: Vec<OwedName>,
    /// Files that were taken over from another database.
    taken: usize,
    given_up: Vec<String>,
}

#[derive(Serialize)]
struct OwedName {
    name: String,
    is_lost: bool,
}

pub fn run(options: &WalOwed, context: &Context) -> Result<Exit, Failure> {
    let database = &options.database;
    if !context.config.database.contains_key(database) {
        let (table, known) = (
            format!("database.{database}"),
            context.config.database.keys(),
        );
        return Err(devices::not_configured(context, &table, "url", known));
    }
    let pg_wal = pg_wal(options, context)?;
    if options.settle || options.give_up || options.take.is_some() {
        refuse_others(pg_wal.path(), context)?;
    }
    let mut taken = 0;
    if let Some(other) = &options.take {
        taken = take(other, &pg_wal, options, context)?;
    }
    let way = Way {
        pg_wal: pg_wal.path(),
        database,
        asked: (None, None),
        encrypt_to: &options.encrypt_to,
        sign: options.sign.as_deref(),
        keys: &options.keys,
    };
    let mut is_passed = true;
    if let Some(other) = &options.take {
        is_passed = pass(other, way, context);
    }
    let mut kept = Ok(());
    if options.settle {
        let settled = follow::settle_now(way, context);
        kept = settled.map_err(|failure| match taken {
            0 => failure,
            taken => Failure {
                text: format!("{taken} files were taken over; then: {}", failure.text),
                ..failure
            },
        })?;
    }
    let mut given_up = Vec::new();
    if options.give_up {
        (given_up, kept) = follow::give_up_now(way, context)?;
    }
    let list = pg_wal.owed_list()?;
    let owed = list.of(database);
    context.output.say(&shown(&owed, database));
    if !given_up.is_empty() {
        let count = given_up.len();
        context
            .output
            .say(&format!("{count} files are given up.\n"));
    }
    let report = OwedReport::of(&list, context).about(database, context);
    for row in &report.debts {
        context.output.warn(&row.told());
    }
    if let Some(why) = &report.unknown {
        context.output.warn(&debt::unknown_text(why));
    }
    if let Err(error) = &kept {
        context.output.warn(&format!(
            "a copy may keep more WAL than is owed, or less: {error}; the next push tries again"
        ));
    }
    let exit =
        match report.debts.is_empty() && report.unknown.is_none() && kept.is_ok() && is_passed {
            true => Exit::Done,
            false => Exit::Warnings,
        };
    let name = |name: &longshore_pg::wal::WalName| OwedName {
        name: name.to_string(),
        is_lost: owed.lost.contains(name),
    };
    context.output.json(
        exit,
        Answer {
            action: "wal_owed",
            pg_wal: pg_wal.path().display().to_string(),
            owed: report,
            owed_files: owed.names.iter().map(name).collect(),
            taken,
            given_up: given_up.iter().map(ToString::to_string).collect(),
        },
    );
    Ok(exit)
}

fn shown(owed: &Owed, database: &str) -> String {
    if owed.names.is_empty() {
        return format!("Nothing is owed to the archive of {database}.\n");
    }
    let mut table = Table::new(&["file", "state"]);
    for name in &owed.names {
        let state = match owed.lost.contains(name) {
            true => "lost",
            false => "waits",
        };
        table.row(vec![name.to_string(), state.to_owned()]);
    }
    table.to_string()
}

fn pg_wal(options: &WalOwed, context: &Context) -> Result<PgWal, Failure> {
    if let Some(path) = &options.pg_wal {
        let opened = PgWal::open(&*context.storage, path)?;
        // Without the server's marks it is another directory, of which nothing would be owed.
        return match context.storage.dir(&path.join("archive_status")) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Failure::usage(
                format!("{} is no pg_wal: it has no archive_status", path.display()),
                "name the directory: longshore wal owed --database NAME DATA_DIRECTORY/pg_wal",
            )),
            _ => Ok(opened),
        };
    }
    debt::pg_wal_of(&options.database, context).ok_or_else(|| {
        Failure::usage(
            format!(
                "the pg_wal of database {} is not known: no server listens at a socket that its `url` names, or this user cannot read its \
                 data directory",
                options.database
            ),
            "name the directory: longshore wal owed --database NAME DATA_DIRECTORY/pg_wal, as the server's user",
        )
    })
}

/// Refuses a change by another user than the server's, who could not read the list afterwards.
fn refuse_others(pg_wal: &Path, context: &Context) -> Result<(), Failure> {
    let stat = context.storage.stat(pg_wal);
    let Some(owner) = stat
        .ok()
        .map(|stat| stat.uid)
        .filter(|uid| ![*uid, 0].contains(&own_ids().0))
    else {
        return Ok(());
    };
    let owner = name_of(owner).unwrap_or_else(|_| format!("#{owner}"));
    Err(Failure::usage(
        format!(
            "{} belongs to {owner}, who could not read the list if another user changed it",
            pg_wal.display()
        ),
        format!("run the same command as {owner}: runuser -u {owner} -- longshore wal owed …"),
    ))
}

/// Has the copies keep what was taken over by records of this database alone; returns whether they do. Tells of what is left.
fn pass(other: &str, way: Way<'_>, context: &Context) -> bool {
    let why = match follow::pass_records(way, other, context) {
        Ok(true) => return true,
        Ok(false) => "not all of them could be asked".to_owned(),
        Err(failure) => failure.text,
    };
    context.output.warn(&format!(
        "copies may keep WAL for database {other} still: {why}; run the same command again once they can be reached"
    ));
    false
}

/// Takes over what is owed to a database that the configuration does not have. Nothing is taken where all was taken before, and
/// copies may keep WAL for that database still.
fn take(
    other: &str,
    pg_wal: &PgWal,
    options: &WalOwed,
    context: &Context,
) -> Result<usize, Failure> {
    if context.config.database.contains_key(other) {
        return Err(Failure::usage(
            format!(
                "[database.{other}] is in the configuration, so what its archive is owed stays its own"
            ),
            format!("run `longshore wal owed --database {other}`"),
        ));
    }
    let location = ArchiveLocation::of(&archive_of(&options.database, None), context)?;
    let taken = debt::move_here(pg_wal, other, (&options.database, &location), context)?;
    match taken {
        0 if pg_wal.debt_mark(other)?.is_some() => Ok(0),
        0 => Err(Failure::usage(
            format!("nothing is owed to a database {other}"),
            format!(
                "`longshore wal owed --database {}` shows what is owed",
                options.database
            ),
        )),
        taken => Ok(taken),
    }
}
