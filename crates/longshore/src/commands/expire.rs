//! `expire`: removes what no retention rule covers, one database after another.
//!
//! Invariants
//! - A database that cannot be judged does not stop the others, and nothing of it is removed.
//! - The same decision is shown by --dry-run and carried out without it.
//! - A database of a target that the configuration does not have may be another host's: without its name, only rules that were
//!   written for the target remove anything of it.
//! - WAL that another target relies on, or a debt of a server, is kept and named.
//!
//! Leaves to others: rules and removing (`longshore-repository`), and records of reliance (`longshore-wal`).

use std::sync::atomic::Ordering;

use longshore_catalog::RunTask;
use longshore_repository::retention::Policy;
use longshore_repository::status::Task;
use longshore_repository::{ExpireReport, Fate, LeftUploads, LogFate, Shelf};
use serde::Serialize;

use super::ends::RunLines;
use super::recording::Recorder;
use super::runs::PendingRun;
use super::shelves::{self, Failures, Row, shelves};
use super::wal::Need;
use super::{detached, elsewhere};
use crate::context::Context;
use crate::options::{Expire, Rules};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::interrupt;
use longshore_terminal::numbers;
use longshore_terminal::output::bytes;
use longshore_terminal::text::{counted, plain};

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    dry_run: bool,
    databases: Vec<ExpiredDatabase>,
    /// Databases at the named target that no configuration and no name on the command line means.
    left_alone: Vec<String>,
    failures: Failures,
}

#[derive(Serialize)]
struct ExpiredDatabase {
    database: String,
    target: String,
    removed_count: u64,
    removed_bytes: u64,
    kept_count: u64,
    #[serde(flatten)]
    log: Log,
    /// Those that killed backups left in a store.
    uploads_aborted: u64,
    uploads_kept_because: Option<String>,
    backups: Vec<ExpireVerdict>,
    /// The numbers, on one line.
    #[serde(skip)]
    summary: String,
}

/// The WAL that was removed or kept.
#[derive(Default, Serialize)]
struct Log {
    wal_files_removed: u64,
    wal_bytes_removed: u64,
    wal_kept_because: Option<String>,
    /// Why the store keeps WAL that nobody needs.
    wal_retained_because: Option<String>,
    /// Other targets that rely on WAL in the archive which no backup here needs.
    wal_kept_for: Vec<Need>,
}

#[derive(Serialize)]
struct ExpireVerdict {
    #[serde(flatten)]
    row: Row,
    fate: &'static str,
    /// The reader that came after the decision; `used_by` of the row has those before it.
    spared_for: Option<String>,
    /// The store's answer to its removal.
    retained_because: Option<String>,
}

pub fn run(options: &Expire, context: &Context) -> Result<Exit, Failure> {
    let named = !options.databases.is_empty() || options.target.is_some();
    let all = shelves(context, &options.databases, options.target.as_deref())?;
    let mut databases = Vec::new();
    let mut failures = Failures::default();
    let mut warned = false;
    let cancel = interrupt::cancel_flag();
    let given = !given(&options.rules, false).is_empty() || options.rules.keep_wal.is_some();
    let (strange, all): (Vec<Shelf>, Vec<Shelf>) = all
        .into_iter()
        .partition(|shelf| options.databases.is_empty() && is_strange(shelf, context));
    let left_alone: Vec<String> = strange.into_iter().map(|shelf| shelf.database).collect();
    for shelf in all {
        // A rule for once is about one target: copies have rules of their own.
        let own = context.config.target_of(&shelf.database);
        if given && options.target.is_none() && own != Some(&shelf.target.name) {
            continue;
        }
        let Some(policy) = policy(&options.rules, context, &shelf) else {
            if named {
                let failure = Failure::usage(
                    format!("no retention is configured for {}", shelf.database),
                    "configure [retention.NAME] and name it in [database.NAME], or give --keep-full or --keep-days",
                )
                .numbered(numbers::NOT_CONFIGURED);
                failures.note(&shelf, failure, context);
            }
            continue;
        };
        if let Err(failure) = shelves::refuse_alias(&shelf, context) {
            failures.note(&shelf, failure, context);
            continue;
        }
        let shelf = elsewhere::heeding_own(shelf, context);
        let now_us = || context.clock.wall_ns() / 1000;
        let named = (Some(&*shelf.database), Some(&*shelf.target.name));
        let lines = RunLines::of(context, "expire", named, "");
        let recorder = Recorder::new(context, &shelf, Task::Expire);
        let recorder = recorder.filter(|_| !options.dry_run);
        let run = PendingRun::begin(context, RunTask::Expire);
        let mut run = run.at(&shelf.database, &shelf.target.name);
        match shelf.expire(&policy, &now_us, options.dry_run, &cancel) {
            Ok(expired) => {
                if let Some(recorder) = &recorder {
                    recorder.mended();
                }
                let forgets = !options.dry_run;
                let of_keys = forgets && detached::forget(&shelf, &expired, context);
                let (database, look) = tell(&shelf, expired, options.dry_run, context);
                let look = look || of_keys;
                warned |= look;
                let is_interrupted = cancel.load(Ordering::Relaxed);
                if !options.dry_run {
                    remember(&mut run, &database, (look, is_interrupted));
                }
                let exit = match is_interrupted {
                    true => Exit::Interrupted,
                    false if look => Exit::Warnings,
                    false => lines.done(),
                };
                lines.end(exit, &database.summary);
                databases.push(database);
            }
            Err(error) => {
                let failure = Failure::from(error);
                if let Some(recorder) = &recorder {
                    recorder.failed(&failure, None);
                }
                if !options.dry_run {
                    run.failed(&failure);
                }
                failures.note(&shelf, failure, context);
            }
        }
    }
    tell_left_alone(&left_alone, options.target.as_deref(), context);
    if databases.is_empty() && failures.is_empty() && left_alone.is_empty() {
        return Err(Failure::usage(
            "no configured database has a retention",
            "configure [retention.NAME] and name it in [database.NAME] or [defaults]; `longshore config check` shows the configuration",
        )
        .numbered(numbers::NOT_CONFIGURED));
    }
    let exit = match (cancel.load(Ordering::Relaxed), failures.exit()) {
        (true, _) => Exit::Interrupted,
        (false, Some(exit)) => exit,
        (false, None) if warned => Exit::Warnings,
        (false, None) => context.output.done(),
    };
    context.output.json(
        exit,
        Answer {
            action: "expire",
            dry_run: options.dry_run,
            databases,
            left_alone,
            failures,
        },
    );
    Ok(exit)
}

/// Whether only the rules that any database gets would apply to one that the configuration does not have.
fn is_strange(shelf: &Shelf, context: &Context) -> bool {
    let config = &context.config;
    let of_target = config.target.get(&shelf.target.name);
    let has_rules = of_target.is_some_and(|target| target.retention.is_some());
    !config.database.contains_key(&shelf.database) && !has_rules
}

fn tell_left_alone(names: &[String], target: Option<&str>, context: &Context) {
    for name in names {
        let (name, target) = (plain(name), target.unwrap_or_default());
        context.output.say(&format!(
            "{name} at target {target} is left alone: it is not in the configuration and may be another host's; if it is yours, run \
             `longshore expire {name} --target {target}`\n"
        ));
    }
}

/// Records the run of one database in the history.
fn remember(run: &mut PendingRun, expired: &ExpiredDatabase, (look, is_interrupted): (bool, bool)) {
    let exit = match (is_interrupted, look) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Warnings,
        (false, false) => Exit::Done,
    };
    run.record.bytes = Some(expired.removed_bytes);
    let (removed, kept, wal) = (
        expired.removed_count,
        expired.kept_count,
        expired.log.wal_files_removed,
    );
    let text = format!("{removed} backups removed, {kept} kept; {wal} WAL files removed");
    run.ended(exit, Some(&text));
}

/// The rules of the options.
fn given(rules: &Rules, counts_emptied: bool) -> Policy {
    Policy {
        keep_full: rules.keep_full,
        keep_days: rules.keep_days,
        keep_wal: rules.keep_wal,
        counts_emptied,
    }
}

/// The rules of the options, if any are given, else the configured ones.
fn policy(rules: &Rules, context: &Context, shelf: &Shelf) -> Option<Policy> {
    let given = given(rules, context.config.may_be_empty(&shelf.database));
    let target = Some(shelf.target.name.as_str());
    let configured = context.config.policy_of(&shelf.database, target);
    match (given.is_empty(), configured) {
        (false, _) => Some(given),
        (true, Some(policy)) => Some(Policy {
            keep_wal: given.keep_wal.or(policy.keep_wal),
            ..policy
        }),
        (true, None) => None,
    }
}

impl Log {
    fn of(fate: &LogFate) -> Log {
        match fate {
            LogFate::Removed {
                files,
                stored_bytes,
                kept_for,
                retained,
            } => Log {
                wal_files_removed: *files,
                wal_bytes_removed: *stored_bytes,
                wal_kept_because: None,
                wal_retained_because: retained.clone(),
                wal_kept_for: kept_for.iter().map(Need::of).collect(),
            },
            LogFate::None => Log::default(),
            LogFate::Undecided(why) => Log::kept(why.clone()),
            LogFate::Unsure => Log::kept(
                "the needs of a kept backup are unknown: one is being written, damaged, foreign or out of reach",
            ),
            LogFate::OtherCluster { system } => Log::kept(format!(
                "it is of the cluster {system}, of which no backup is kept here"
            )),
            LogFate::Left => Log::kept("the run was interrupted"),
        }
    }

    fn kept(why: impl Into<String>) -> Log {
        Log {
            wal_kept_because: Some(why.into()),
            ..Log::default()
        }
    }

    /// After the count of backups; `verb` is what is done with files.
    fn text(&self, shelf: &Shelf, verb: &str) -> String {
        let mut text = String::new();
        if self.wal_files_removed > 0 {
            let files = counted(self.wal_files_removed, "WAL file");
            let size = bytes(self.wal_bytes_removed);
            text += &format!("; {files} ({size}) {verb}");
        }
        if let Some(why) = &self.wal_kept_because {
            text += &format!("; all WAL kept: {why}");
        }
        if let Some(why) = &self.wal_retained_because {
            text += &format!("; WAL that nobody needs is retained: {}", plain(why));
        }
        let archive = shelf.wal_path().unwrap_or_default();
        let archive = archive.display().to_string();
        for need in &self.wal_kept_for {
            text += &format!(
                "\n  older WAL is kept for {}; {}: longshore wal needs --archive {} --forget {}",
                need.text(),
                need.end(),
                plain(&archive),
                need.id
            );
        }
        text
    }
}

/// Says what became of one database's backups. The flag: that deserves a look.
fn tell(
    shelf: &Shelf,
    expired: ExpireReport,
    dry: bool,
    context: &Context,
) -> (ExpiredDatabase, bool) {
    let rows = shelves::rows(&expired.listing, Some(&expired.decision));
    let log = Log::of(&expired.log);
    let gone = |i: usize| expired.fates[i] == Fate::Removed;
    let removed = (0..rows.len()).filter(|i| gone(*i));
    let removed_bytes = removed.clone().map(|i| rows[i].bytes).sum();
    let removed = removed.count() as u64;
    let kept = rows.len() as u64 - removed;
    let verb = if dry { "would be removed" } else { "removed" };
    let size = bytes(removed_bytes);
    let backups = counted(removed, "backup");
    let count = format!("{backups} ({size}) {verb}, {kept} kept");
    let log_text = log.text(shelf, verb);
    let listed = listed(shelf, &expired, &rows);
    let LeftUploads {
        aborted: uploads_aborted,
        kept_because: uploads_kept_because,
    } = expired.uploads.clone();
    let uploads_text = match uploads_aborted {
        0 => String::new(),
        n => format!("; {} aborted", counted(n, "unfinished upload")),
    };
    context
        .output
        .say(&format!("{listed}{count}{log_text}{uploads_text}\n"));
    // Lines below the first are about single archives.
    let log_line = log_text.lines().next().unwrap_or_default();
    let summary = format!("{count}{log_line}{uploads_text}");
    if let Some(why) = &uploads_kept_because {
        context.output.remark(&format!(
            "unfinished uploads below {} stay in the store, which charges for them, until a lifecycle rule removes them: {why}",
            shelf.target.name
        ));
    }
    let nothing_whole = !expired.listing.sets.is_empty() && rows.iter().all(|r| !r.restorable);
    if nothing_whole {
        context.output.warn(&format!(
            "{} has no restorable backup; nothing is removed",
            shelf.database
        ));
    }
    let bare = (0..rows.len()).filter(|i| gone(*i) && expired.listing.sets[*i].is_bare_name());
    let bare: Vec<&str> = bare.map(|i| &*rows[i].label).collect();
    for label in &bare {
        context.output.warn(&format!(
            "{label} {verb}: nothing was below this name. A run ended there with its machine, or the stripes of a backup were \
             removed by other means than an expire"
        ));
    }
    let doubtful = nothing_whole || !bare.is_empty() || is_doubtful(&expired.fates, &expired.log);
    let judged = |(row, fate)| ExpireVerdict::of(row, fate, dry);
    let database = ExpiredDatabase {
        database: shelf.database.clone(),
        target: shelf.target.name.clone(),
        removed_count: removed,
        removed_bytes,
        kept_count: kept,
        log,
        uploads_aborted,
        uploads_kept_because,
        backups: rows.into_iter().zip(expired.fates).map(judged).collect(),
        summary,
    };
    (database, doubtful)
}

/// Whether an expire ended with what a person should look at: a backup that is no backup any longer, or WAL of which
/// nobody knows whether it is needed.
fn is_doubtful(fates: &[Fate], log: &LogFate) -> bool {
    let is_partly = |fate: &Fate| matches!(fate, Fate::Partly { .. });
    matches!(log, LogFate::Undecided(_)) || fates.iter().any(is_partly)
}

/// The database's backups, and what there is to say of them.
fn listed(shelf: &Shelf, expired: &ExpireReport, rows: &[Row]) -> String {
    let mut text = format!(
        "{} at target {}\n",
        plain(&shelf.database),
        shelf.target.name
    );
    if rows.is_empty() {
        text += "no backup\n";
    } else {
        text += &shelves::table(rows).to_string();
    }
    text += &shelves::reasons(rows, true);
    text += &shelves::remarks(&expired.listing, rows);
    for (row, fate) in rows.iter().zip(&expired.fates) {
        if let Some(told) = told(fate) {
            text += &format!("  {} {told}\n", row.label);
        }
    }
    text
}

/// The reason why a backup that was to be removed is still there, or some of it.
fn told(fate: &Fate) -> Option<String> {
    match fate {
        Fate::Spared { holder } => Some(format!("was spared: {}", plain(holder))),
        Fate::Retained { why } => Some(format!("is retained: {}", plain(why))),
        Fate::Partly { why } => Some(format!(
            "was removed in part, and is no backup any longer: {}",
            plain(why)
        )),
        Fate::Kept | Fate::Removed | Fate::Left => None,
    }
}

impl ExpireVerdict {
    fn of(row: Row, fate: Fate, dry: bool) -> ExpireVerdict {
        ExpireVerdict {
            row,
            fate: match fate {
                Fate::Kept => "kept",
                Fate::Removed if dry => "would_be_removed",
                Fate::Removed => "removed",
                Fate::Spared { .. } => "spared",
                Fate::Retained { .. } => "retained",
                Fate::Partly { .. } => "partly_removed",
                Fate::Left => "left",
            },
            retained_because: match &fate {
                Fate::Retained { why } | Fate::Partly { why } => Some(why.clone()),
                _ => None,
            },
            spared_for: match fate {
                Fate::Spared { holder } => Some(holder),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a backup of which only a part could be removed is a warning that says so, and no silent success.
    #[test]
    fn a_backup_removed_in_part_is_told_and_is_a_warning() {
        let partly = Fate::Partly {
            why: "403\u{1b}".into(),
        };
        let retained = Fate::Retained { why: "held".into() };
        let spared = Fate::Spared {
            holder: "pid 7".into(),
        };
        let doubtful = |fates: &[Fate]| is_doubtful(fates, &LogFate::None);
        assert!(doubtful(&[Fate::Removed, partly.clone(), Fate::Kept]));
        assert!(!doubtful(&[
            Fate::Removed,
            Fate::Kept,
            retained.clone(),
            spared.clone()
        ]));
        assert!(is_doubtful(&[], &LogFate::Undecided("why".into())));
        let said = told(&partly).unwrap();
        assert!(
            said.contains("in part") && said.ends_with("403\u{fffd}"),
            "{said}"
        );
        assert_eq!(told(&retained).unwrap(), "is retained: held");
        assert_eq!(told(&spared).unwrap(), "was spared: pid 7");
        assert_eq!(told(&Fate::Removed), None);
    }
}
