//! `expire`: one database after the other; one that cannot be judged does not keep the others from it.

use std::sync::atomic::Ordering;

use longshore_repository::retention::Policy;
use longshore_repository::{Expired, Fate, LogFate, Shelf};
use serde::Serialize;

use super::shelves::{self, Failures, Row, shelves};
use super::wal::Need;
use super::{Context, interrupt};
use crate::failure::{Exit, Failure};
use crate::options::{Expire, Rules};
use crate::output::bytes;
use crate::text::plain;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    dry_run: bool,
    databases: Vec<Database>,
    failures: Failures,
}

#[derive(Serialize)]
struct Database {
    database: String,
    target: String,
    removed: u64,
    removed_bytes: u64,
    kept: u64,
    wal_files_removed: u64,
    wal_bytes_removed: u64,
    wal_kept_because: Option<String>,
    /// Other targets that rely on log in the archive which no backup here needs.
    wal_kept_for: Vec<Need>,
    backups: Vec<Judged>,
}

#[derive(Serialize)]
struct Judged {
    #[serde(flatten)]
    row: Row,
    fate: &'static str,
    used_by: Option<String>,
}

pub fn run(options: &Expire, context: &Context) -> Result<Exit, Failure> {
    let named = !options.databases.is_empty() || options.target.is_some();
    let all = shelves(context, &options.databases, options.target.as_deref())?;
    let mut databases = Vec::new();
    let mut failures = Failures::default();
    let mut warned = false;
    let cancel = interrupt::cancel_flag();
    for shelf in all {
        let Some(policy) = policy(&options.rules, context, &shelf.database) else {
            if named {
                let failure = Failure::usage(
                    format!("no retention is configured for {}", shelf.database),
                    "configure [retention.NAME] and name it in [database.NAME], or give --keep-full or --keep-days",
                );
                failures.note(&shelf, failure, context);
            }
            continue;
        };
        let now_us = context.clock.wall_ns() / 1000;
        match shelf.expire(&policy, now_us, options.dry_run, &cancel) {
            Ok(expired) => {
                let (database, look) = tell(&shelf, expired, options.dry_run, context);
                warned |= look;
                databases.push(database);
            }
            Err(error) => failures.note(&shelf, error.into(), context),
        }
    }
    if databases.is_empty() && failures.is_empty() {
        return Err(Failure::usage(
            "no configured database has a retention",
            "configure [retention.NAME] and name it in [database.NAME] or [defaults]",
        ));
    }
    let exit = match (cancel.load(Ordering::Relaxed), failures.exit()) {
        (true, _) => Exit::Interrupted,
        (false, Some(exit)) => exit,
        (false, None) if warned => Exit::Warnings,
        (false, None) => Exit::Done,
    };
    context.output.json(
        exit,
        Answer {
            action: "expire",
            dry_run: options.dry_run,
            databases,
            failures,
        },
    );
    Ok(exit)
}

/// The options' rules, if there are any, else the configured ones.
fn policy(rules: &Rules, context: &Context, database: &str) -> Option<Policy> {
    let given = Policy {
        keep_full: rules.keep_full,
        keep_days: rules.keep_days,
        keep_wal: rules.keep_wal,
    };
    let configured = context.config.retention_of(database);
    let configured = configured.map(|(_, retention)| retention.policy());
    match (given.is_empty(), configured) {
        (false, _) => Some(given),
        (true, Some(policy)) => Some(Policy {
            keep_wal: given.keep_wal.or(policy.keep_wal),
            ..policy
        }),
        (true, None) => None,
    }
}

fn tell(shelf: &Shelf, expired: Expired, dry: bool, context: &Context) -> (Database, bool) {
    let rows = shelves::rows(&expired.listing, Some(&expired.decision));
    let nothing_whole = !expired.listing.sets.is_empty() && rows.iter().all(|r| !r.restorable);
    let output = context.output;
    let (wal_files_removed, wal_bytes_removed, wal_kept_because) = match &expired.log {
        LogFate::None => (0, 0, None),
        LogFate::Removed {
            files,
            stored_bytes,
            ..
        } => (*files, *stored_bytes, None),
        LogFate::Undecided(why) => (0, 0, Some(why.clone())),
        LogFate::Unsure => {
            let why = "what a kept backup needs is not known: one is being written, damaged or out of reach";
            (0, 0, Some(why.to_owned()))
        }
        LogFate::OtherCluster { system } => {
            let why = format!("it is of the cluster {system}, of which no backup is kept here");
            (0, 0, Some(why))
        }
        LogFate::Left => (0, 0, Some("the run was ended".to_owned())),
    };
    let gone = |i: usize| expired.fates[i] == Fate::Removed;
    let removed = (0..rows.len()).filter(|i| gone(*i));
    let removed_bytes = removed.clone().map(|i| rows[i].bytes).sum();
    let removed = removed.count() as u64;
    let kept = rows.len() as u64 - removed;
    let verb = if dry { "would be removed" } else { "removed" };
    let mut text = format!(
        "{} at target {}\n",
        plain(&shelf.database),
        shelf.target.name
    );
    if rows.is_empty() {
        text += "no backup\n";
    } else {
        text += &shelves::table(&rows).to_string();
    }
    text += &shelves::remarks(&expired.listing, &rows);
    for (row, fate) in rows.iter().zip(&expired.fates) {
        if let Fate::Spared { holder } = fate {
            text += &format!("  {} was spared: {}\n", row.label, plain(holder));
        }
    }
    text += &format!(
        "{removed} backups ({}) {verb}, {kept} kept",
        bytes(removed_bytes)
    );
    if wal_files_removed > 0 {
        let size = bytes(wal_bytes_removed);
        text += &format!("; {wal_files_removed} files of log ({size}) {verb}");
    }
    if let Some(why) = &wal_kept_because {
        text += &format!("; all log kept: {why}");
    }
    let wal_kept_for: Vec<Need> = match &expired.log {
        LogFate::Removed { kept_for, .. } => kept_for.iter().map(Need::of).collect(),
        _ => Vec::new(),
    };
    let archive = shelf.wal_path().display().to_string();
    for need in &wal_kept_for {
        text += &format!(
            "\n  older log stays for {}; if nothing is there any more: longshore wal needs --archive {} --forget {}",
            need.text(),
            plain(&archive),
            need.id
        );
    }
    output.say(&(text + "\n"));
    let undecided = matches!(expired.log, LogFate::Undecided(_));
    if nothing_whole {
        output.warn(&format!(
            "{} has no backup that could be restored; nothing goes",
            shelf.database
        ));
    }
    let judged = |(row, fate): (Row, Fate)| Judged {
        row,
        fate: match fate {
            Fate::Kept => "kept",
            Fate::Removed if dry => "would_be_removed",
            Fate::Removed => "removed",
            Fate::Spared { .. } => "spared",
            Fate::Left => "left",
        },
        used_by: match fate {
            Fate::Spared { holder } => Some(holder),
            _ => None,
        },
    };
    let database = Database {
        database: shelf.database.clone(),
        target: shelf.target.name.clone(),
        removed,
        removed_bytes,
        kept,
        wal_files_removed,
        wal_bytes_removed,
        wal_kept_because,
        wal_kept_for,
        backups: rows.into_iter().zip(expired.fates).map(judged).collect(),
    };
    (database, nothing_whole || undecided)
}
