//! `metrics`: the facts of `info`, for Prometheus.
//!
//! Invariants
//! - Every metric of a database at a target is a row of [`METRICS`], or has a function of its own here; the status
//!   page has the very same lines.
//! - A target that could not be read is in the text, too, as one that is not up: a file that ages tells nobody which.
//! - A file is written whole or not at all.
//! - A value that nobody knows has no line: no number stands for it.
//!
//! Leaves to others: the facts (`info.rs`), and what `check` says (`serve/http/status.rs`).

use std::collections::BTreeMap;

use longshore_repository::status::Task;
use longshore_terminal::files;
use serde::Serialize;

use super::info::{self, DescribedDatabase};
use super::results::Results;
use super::shelves::{Failures, Row};
use super::wal::{OwedReport, of_server};
use crate::context::Context;
use crate::options::{Info, Metrics};
use longshore_terminal::failure::{Exit, Failure};

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    /// The metrics; `None`: they are in the file.
    text: Option<String>,
    output: Option<String>,
    failures: Failures,
}

pub fn run(options: &Metrics, context: &Context) -> Result<Exit, Failure> {
    let (databases, failures) = info::read(&options.databases, options.target.as_deref(), context)?;
    let text = text(&databases, &failures, context);
    let exit = failures.exit().unwrap_or_else(|| context.output.done());
    let output = options.output.as_ref();
    if let Some(path) = output {
        files::write(path, &text, &*context.storage)?;
    } else if !context.output.json {
        context.output.raw(text.as_bytes());
    }
    context.output.json(
        exit,
        Answer {
            action: "metrics",
            text: output.is_none().then_some(text),
            output: output.map(|path| path.display().to_string()),
            failures,
        },
    );
    Ok(exit)
}

/// `info --prometheus`, the older name: backups for whose stripes parity stands are a warning there, as they are for `info`.
pub fn of_info(options: &Info, context: &Context) -> Result<Exit, Failure> {
    let (databases, failures) = info::read(&options.databases, options.target.as_deref(), context)?;
    info::warn_degraded(&databases, context);
    context
        .output
        .raw(text(&databases, &failures, context).as_bytes());
    Ok(failures.exit().unwrap_or_else(|| context.output.done()))
}

/// The metrics of these databases, and which could not be read.
fn text(databases: &[DescribedDatabase], failures: &Failures, context: &Context) -> String {
    let now_us = context.clock.wall_ns() / 1000;
    let of = |database: &DescribedDatabase| DatabaseMetrics::of(database, now_us);
    let all: Vec<DatabaseMetrics> = databases.iter().map(of).collect();
    let mut text = prometheus(&all.iter().collect::<Vec<_>>(), now_us);
    let known = databases.iter().map(|d| (&*d.database, &*d.target));
    let ups = known.map(|place| (place, true));
    let downs = failures.places().map(|place| (place, false));
    text += &up(ups.chain(downs));
    // A target that is away is when its archive is owed something.
    let away = failures.places().filter_map(|(name, target)| {
        let is_own = context.config.target_of(name) == Some(target);
        Some((name, is_own.then(|| of_server(name, context))??))
    });
    let away: Vec<(&str, OwedReport)> = away.collect();
    let away = away.iter().map(|(name, report)| (*name, report));
    let seen = databases.iter();
    let seen = seen.filter_map(|d| Some((&*d.database, d.owed.as_ref()?)));
    text += &owed(seen.chain(away));
    text + &build_info()
}

/// A metric's name, its meaning, and its value for a database.
type Metric = (
    &'static str,
    &'static str,
    fn(&DescribedDatabase) -> Option<f64>,
);

const METRICS: &[Metric] = &[
    (
        "last_good_backup_timestamp_seconds",
        "Unix time when the newest good backup finished.",
        |d| Some(d.last_good_finish_us? as f64 / 1e6),
    ),
    (
        "last_good_backup_age_seconds",
        "Age of the newest good backup when these metrics were written.",
        |d| Some(d.last_good_age_s? as f64),
    ),
    (
        "last_good_backup_duration_seconds",
        "Duration of the newest good backup.",
        |d| d.last_good_seconds,
    ),
    (
        "last_good_backup_stored_bytes",
        "Bytes in the stripes of the newest good backup.",
        |d| Some(d.last_good_stored_bytes? as f64),
    ),
    ("backups", "Backups in any state.", |d| {
        Some(d.backups.len() as f64)
    }),
    ("backups_restorable", "Backups that can be restored.", |d| {
        Some(d.backups.iter().filter(|b| b.restorable).count() as f64)
    }),
    (
        "branches",
        "Branches that may be alive; if more than one, other databases use the same name.",
        |d| {
            let living = d.branches.iter().filter(|b| b.given_up_for.is_none());
            Some(living.count() as f64)
        },
    ),
    ("stored_bytes", "Bytes of all backups.", |d| {
        Some(d.bytes as f64)
    }),
    (
        "families_lost",
        "Stripes of backups that are missing or damaged, also where parity stands for them.",
        |d| Some(d.families_lost as f64),
    ),
    (
        "uploads_unfinished",
        "Uploads that killed backups left in a store, which charges for their parts.",
        |d| Some(d.uploads_unfinished? as f64),
    ),
    (
        "recipients",
        "Recipients on the media of the newest good backup; 0: it is not encrypted, or its keys are detached.",
        |d| Some(d.last_good_recipients? as f64),
    ),
    (
        "newest_emptied",
        "Whether the newest backup is of a source that had lost its content.",
        |d| Some(f64::from(u8::from(d.newest_emptied))),
    ),
    (
        "stopped",
        "Whether longshore stop keeps backups, copies and expires from beginning.",
        |d| Some(f64::from(u8::from(d.stopped.is_some()))),
    ),
    ("wal_segments", "WAL segments in the archive.", |d| {
        Some(d.wal.as_ref()?.segments as f64)
    }),
    ("wal_stored_bytes", "Bytes of archived WAL.", |d| {
        Some(d.wal.as_ref()?.stored_bytes as f64)
    }),
    (
        "wal_gaps",
        "Gaps in the WAL between the oldest backup and the end.",
        |d| Some(d.wal.as_ref()?.gaps.len() as f64),
    ),
    (
        "wal_segments_damaged",
        "WAL segments in the archive that no recovery crosses: empty, cut off, not readable, or found damaged.",
        |d| Some(d.wal.as_ref()?.unsound_count as f64),
    ),
    (
        "recoverable_from_timestamp_seconds",
        "Unix time since which every moment up to the end of the archived WAL can be recovered.",
        |d| Some(d.wal.as_ref()?.recoverable_from_us? as f64 / 1e6),
    ),
    (
        "last_recoverable_timestamp_seconds",
        "Unix time of the last transaction that a restore leads to, as far as the WAL can be read; what was written since would be lost now.",
        |d| Some(d.recoverable_until_us? as f64 / 1e6),
    ),
    (
        "last_verified_timestamp_seconds",
        "Unix time when a backup that is still there was last verified and found good.",
        |d| Some(d.results.last_verified.as_ref()?.at_us as f64 / 1e6),
    ),
    (
        "backups_unverified",
        "Whole backups that no verification has found good as they are.",
        |d| d.results.counted_unverified(),
    ),
    (
        "backups_found_damaged",
        "Backups whose last verification or drill found something wrong.",
        |d| d.results.counted(|results| results.damaged().len() as u64),
    ),
    (
        "last_drill_timestamp_seconds",
        "Unix time of the last good drill of a backup that is still there.",
        |d| Some(d.results.last_drilled.as_ref()?.at_us as f64 / 1e6),
    ),
    (
        "drill_seconds",
        "Duration of that drill: how long a restore takes.",
        |d| d.results.last_drilled.as_ref()?.elapsed_s,
    ),
    (
        "last_failed_backup_timestamp_seconds",
        "Unix time when a backup last failed.",
        |d| Some(d.results.failed_us(Task::Backup)? as f64 / 1e6),
    ),
    (
        "last_failed_verify_timestamp_seconds",
        "Unix time when a verification last failed or found damage.",
        |d| Some(d.results.failed_us(Task::Verify)? as f64 / 1e6),
    ),
    (
        "last_failed_drill_timestamp_seconds",
        "Unix time when a drill last failed or found a backup that is not good.",
        |d| Some(d.results.failed_us(Task::Drill)? as f64 / 1e6),
    ),
    (
        "failed_runs",
        "Kinds of runs of which the last failed.",
        |d| {
            let failed = |results: &Results| {
                let failed = results.last_failed.iter().filter(|run| !run.mended);
                failed.count() as u64
            };
            d.results.counted(failed)
        },
    ),
    (
        "records_unreadable",
        "Records of earlier runs that cannot be read; meanwhile numbers that are counted in them are missing or too small.",
        |d| Some(d.results.unreadable.len() as f64),
    ),
    (
        "wal_last_refused_push_timestamp_seconds",
        "Unix time when the archive last refused WAL of another branch of the cluster.",
        |d| Some(d.wal.as_ref()?.refused_push.as_ref()?.at_us as f64 / 1e6),
    ),
];

/// The age grows while an answer is kept.
const AGE: &str = "last_good_backup_age_seconds";

/// A database's metrics: few bytes, however many backups it has.
pub struct DatabaseMetrics {
    /// `database="NAME",target="NAME"`
    labels: String,
    at_us: i64,
    /// One for each of [`METRICS`].
    values: Vec<Option<f64>>,
    states: String,
    branches: String,
}

impl DatabaseMetrics {
    /// `at_us`: when the facts were read.
    pub fn of(database: &DescribedDatabase, at_us: i64) -> DatabaseMetrics {
        let (name, target) = (escaped(&database.database), escaped(&database.target));
        DatabaseMetrics {
            labels: format!("database=\"{name}\",target=\"{target}\""),
            at_us,
            values: METRICS.iter().map(|metric| (metric.2)(database)).collect(),
            states: state_metrics(database),
            branches: branch_metrics(database),
        }
    }
}

/// The metrics of databases, in Prometheus' text format.
pub fn prometheus(databases: &[&DatabaseMetrics], now_us: i64) -> String {
    let mut text = String::new();
    for (i, (name, help, _)) in METRICS.iter().enumerate() {
        let value = |d: &&DatabaseMetrics| {
            let kept_s = match *name == AGE {
                true => (now_us - d.at_us) / 1_000_000,
                false => 0,
            };
            let value = d.values[i]? + kept_s as f64;
            Some((format!("{{{}}}", d.labels), value))
        };
        text += &gauge(name, help, databases.iter().filter_map(value));
    }
    let states = databases.iter().map(|d| d.states.as_str());
    let branches = databases.iter().map(|d| d.branches.as_str());
    text + &family(STATE, STATE_HELP, &states.collect::<String>())
        + &family(BRANCH, BRANCH_HELP, &branches.collect::<String>())
}

/// Whether each database at a target could be read.
pub fn up<'a>(places: impl Iterator<Item = ((&'a str, &'a str), bool)>) -> String {
    let value = |((database, target), is_up): ((&str, &str), bool)| {
        let (database, target) = (escaped(database), escaped(target));
        let labels = format!("{{database=\"{database}\",target=\"{target}\"}}");
        (labels, f64::from(u8::from(is_up)))
    };
    gauge(
        "up",
        "Whether the target gave an answer when it was last asked.",
        places.map(value),
    )
}

/// What databases' own archives are owed, as far as that can be seen from here: no number stands for a list that cannot be read.
pub fn owed<'a>(reports: impl Iterator<Item = (&'a str, &'a OwedReport)>) -> String {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut unreadable: BTreeMap<&str, bool> = BTreeMap::new();
    for (name, report) in reports {
        unreadable.insert(name, report.unknown.is_some());
        if report.unknown.is_none() {
            counts.entry(name).or_default();
            // A database that the configuration no longer has is owed, too.
            let rows = report.debts.iter();
            counts.extend(rows.map(|row| (&*row.database, (row.file_count, row.lost_count))));
        }
    }
    let labels = |database: &str| format!("{{database=\"{}\"}}", escaped(database));
    let count = |of: fn(&(usize, usize)) -> usize| {
        let counts = counts.iter();
        counts.map(move |(name, both)| (labels(name), of(both) as f64))
    };
    let is_unreadable = unreadable.iter();
    let is_unreadable = is_unreadable.map(|(name, is)| (labels(name), f64::from(u8::from(*is))));
    let owed = gauge(
        "wal_owed_files",
        "Files that the database's own WAL archive is owed, because it was away.",
        count(|both| both.0),
    );
    let lost = gauge(
        "wal_lost_files",
        "Of these, files that no copy in reach has, nor pg_wal.",
        count(|both| both.1),
    );
    let unreadable = gauge(
        "wal_owed_unreadable",
        "Whether the list of what is owed cannot be read; then the other numbers are missing.",
        is_unreadable,
    );
    owed + &lost + &unreadable
}

/// The version of this program.
pub fn build_info() -> String {
    let version = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    gauge(
        "build_info",
        "The version of the program; always 1.",
        std::iter::once((version, 1.0)),
    )
}

/// Lines of one metric; nothing without a value.
pub fn gauge(name: &str, help: &str, values: impl Iterator<Item = (String, f64)>) -> String {
    let line = |(labels, value): (String, f64)| format!("longshore_{name}{labels} {value}\n");
    family(name, help, &values.map(line).collect::<String>())
}

/// The lines of one metric with its head; nothing without a line.
fn family(name: &str, help: &str, lines: &str) -> String {
    match lines {
        "" => String::new(),
        _ => format!("# HELP longshore_{name} {help}\n# TYPE longshore_{name} gauge\n{lines}"),
    }
}

const STATE: &str = "backup_state";
const STATE_HELP: &str =
    "The state of the newest backup: 1 for the one that it is in, 0 for the others.";
/// As `info` writes them.
const STATES: [&str; 11] = [
    "complete",
    "marked",
    "DEGRADED",
    "writing",
    "removing",
    "INCOMPLETE",
    "MISSING",
    "DAMAGED",
    "BROKEN",
    "foreign",
    "unknown",
];

/// The state of the newest backup, in the form of a set of states: each has a line, so that none is missing when it ends.
fn state_metrics(d: &DescribedDatabase) -> String {
    // A stranger chooses the time in a label.
    let order = |row: &&Row| (!row.is_strangers, row.begun_us);
    let Some(newest) = d.backups.iter().max_by_key(order) else {
        return String::new();
    };
    let (name, target) = (escaped(&d.database), escaped(&d.target));
    let line = |state: &&str| {
        let is_it = u8::from(newest.state == *state);
        format!(
            "longshore_{STATE}{{database=\"{name}\",target=\"{target}\",state=\"{state}\"}} {is_it}\n"
        )
    };
    STATES.iter().map(line).collect()
}

const BRANCH: &str = "branch_last_good_backup_timestamp_seconds";
const BRANCH_HELP: &str =
    "Unix time when the newest good backup of one of several branches finished.";

/// The newest good backup of each branch, if there are several: the newest under the name may be another database's.
fn branch_metrics(d: &DescribedDatabase) -> String {
    let mut lines = String::new();
    for branch in d.branches.iter().filter(|_| d.branches.len() > 1) {
        let Some(finish_us) = branch.last_good_finish_us else {
            continue;
        };
        let cluster = || {
            let system = branch.system.as_ref();
            system.map(|system| format!("cluster {system}"))
        };
        let identity = branch.identity.clone().or_else(cluster).unwrap_or_default();
        lines += &format!(
            "longshore_{BRANCH}{{database=\"{}\",target=\"{}\",branch=\"{}\",identity=\"{}\"}} {}\n",
            escaped(&d.database),
            escaped(&d.target),
            branch.number,
            escaped(&identity),
            finish_us as f64 / 1e6
        );
    }
    lines
}

/// A label's value in Prometheus' text format.
pub fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
