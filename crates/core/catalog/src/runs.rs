//! Runs of commands: what ran on this machine, and how it ended.
//!
//! Backups and restores that succeed are also in msdb's tables. These rows have the others, too: verifications, drills,
//! copies, and runs that failed.
//!
//! Invariants
//! - A row is written when its run has ended, in one transaction.
//! - Of each task the newest [`RUNS_MAX`] runs stay, so that a copy every hour pushes out no drill and the catalog does not
//!   grow for ever.
//! - Nothing refers to a run, and a run to no row: sets are named by their UUID, and may be unknown here.
//!
//! Leaves to others: which runs are recorded and the words of their messages (the commands), and removing rows by age or by
//! database (`forget.rs`).

use std::ops::ControlFlow;

use rusqlite::{Connection, Row, Transaction, params};
use serde::Serialize;
use uuid::Uuid;

use crate::moment::{local_text, zoned_text};
use crate::query::{PortionStart, Portions, bytes, seconds, uuid};
use crate::record::HistoryQuery;
use crate::write::{count, insert, text};
use crate::{Catalog, Error};

/// The runs of one task that are kept.
pub const RUNS_MAX: u32 = 20_000;
/// The longest message that is kept, in characters.
const MESSAGE_MAX: usize = 1000;

/// The kind of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunTask {
    Backup,
    Restore,
    Verify,
    /// A look at the checksums of what is stored.
    Scrub,
    Drill,
    Copy,
    Expire,
    Repair,
    /// DBCC CHECKDB: the database's own engine checks it.
    CheckDb,
}

impl RunTask {
    pub fn word(self) -> &'static str {
        match self {
            RunTask::Backup => "backup",
            RunTask::Restore => "restore",
            RunTask::Verify => "verify",
            RunTask::Scrub => "scrub",
            RunTask::Drill => "drill",
            RunTask::Copy => "copy",
            RunTask::Expire => "expire",
            RunTask::Repair => "repair",
            RunTask::CheckDb => "checkdb",
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOutcome {
    Good,
    Warnings,
    /// It did its work and found damage.
    Damaged,
    Failed,
    Interrupted,
}

impl RunOutcome {
    pub fn word(self) -> &'static str {
        match self {
            RunOutcome::Good => "ok",
            RunOutcome::Warnings => "warnings",
            RunOutcome::Damaged => "damaged",
            RunOutcome::Failed => "failed",
            RunOutcome::Interrupted => "interrupted",
        }
    }
}

/// A run that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    pub task: RunTask,
    /// `None`: the run did not get so far, or was about media without a name.
    pub database: Option<String>,
    /// The target's name; `None` where devices were named.
    pub target: Option<String>,
    /// The backup at the target, if it was about one.
    pub label: Option<String>,
    /// The set, if it was about one.
    pub set: Option<Uuid>,
    /// The devices that were named in place of a target; of a check, where the database is.
    pub devices: Vec<String>,
    /// Microseconds since the Unix epoch.
    pub start_us: i64,
    pub finish_us: i64,
    /// Offset of local time from UTC in quarter hours; 127: unknown.
    pub time_zone: i16,
    pub outcome: RunOutcome,
    pub exit_code: u8,
    /// The number of the error.
    pub number: Option<u32>,
    /// Plain bytes that were read or written; of a copy, an expire and a repair, bytes of stripes. `None`: not counted.
    pub bytes: Option<u64>,
    /// A text for people: the result, or the reason of a failure.
    pub message: Option<String>,
}

/// A run as the history shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRow {
    pub run_id: i64,
    pub task: String,
    pub database: Option<String>,
    pub target: Option<String>,
    pub label: Option<String>,
    pub set: Option<Uuid>,
    pub devices: Vec<String>,
    /// Local time with its offset from UTC.
    pub start: Option<String>,
    pub finish: Option<String>,
    /// Microseconds since the Unix epoch.
    pub start_us: i64,
    pub finish_us: i64,
    pub seconds: f64,
    pub outcome: String,
    pub exit_code: u8,
    pub number: Option<u32>,
    pub bytes: Option<u64>,
    pub message: Option<String>,
}

/// A query for runs with this condition.
macro_rules! runs {
    ($which:literal) => {
        concat!(
            "
SELECT longshore_run_id, task, database_name, target_name, label, backup_set_uuid, devices, start_us, finish_us,
    time_zone, outcome, exit_code, error_number, size, message
FROM longshore_run
WHERE (finish_us, longshore_run_id) < (?1, ?2) ",
            $which,
            " ORDER BY finish_us DESC, longshore_run_id DESC LIMIT ?3"
        )
    };
}

const RUNS: Portions = Portions {
    all: runs!(""),
    named: runs!("AND database_name = ?4"),
    without_time: "SELECT finish_us FROM longshore_run
        WHERE finish_us IS NULL OR finish_us > 9223372036854775807",
};

/// Removes the oldest runs of a task, as far as they are too many.
const SURPLUS: &str = "DELETE FROM longshore_run WHERE task = ?1 AND longshore_run_id <= (
    SELECT longshore_run_id FROM longshore_run WHERE task = ?1 ORDER BY longshore_run_id DESC LIMIT 1 OFFSET ?2)";

impl Catalog {
    /// Records a run that has ended, and removes the oldest of its task if they are too many. Returns its number.
    pub fn record_run(&self, run: &RunRecord) -> Result<i64, Error> {
        self.write(|tx| put_run(tx, run))
    }

    /// Runs, newest first.
    pub fn runs(&self, query: &HistoryQuery) -> Result<Vec<RunRow>, Error> {
        self.gathered(&RUNS, query, run, place_of_run)
    }

    /// When the newest check without findings of the database at this place ended, in microseconds since the Unix epoch.
    pub fn last_good_check(&self, database: &str, place: &str) -> Result<Option<i64>, Error> {
        const NEWEST: &str = "SELECT MAX(finish_us) FROM longshore_run
            WHERE task = ?1 AND outcome = ?2 AND database_name = ?3 AND devices = ?4";
        let (task, good) = (RunTask::CheckDb.word(), RunOutcome::Good.word());
        self.read(|db| {
            db.query_row(NEWEST, params![task, good, database, place], |row| {
                row.get(0)
            })
        })
    }

    /// See [`Catalog::history_portions`].
    pub fn run_portions(
        &self,
        query: &HistoryQuery,
        each: impl FnMut(Vec<RunRow>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.portions(&RUNS, query, run, place_of_run, each)
    }
}

fn put_run(tx: &Transaction, run: &RunRecord) -> rusqlite::Result<i64> {
    let message = run.message.as_deref().unwrap_or_default();
    let message: String = message.chars().take(MESSAGE_MAX).collect();
    let id = insert(
        tx,
        "longshore_run",
        &[
            ("task", &run.task.word()),
            ("database_name", &run.database),
            ("target_name", &run.target),
            ("label", &run.label),
            ("backup_set_uuid", &run.set.map(|set| set.to_string())),
            ("devices", &text(&run.devices.join("\n"))),
            ("start_us", &run.start_us),
            ("finish_us", &run.finish_us),
            (
                "finish_date",
                &local_text(tx, run.finish_us, run.time_zone)?,
            ),
            ("time_zone", &run.time_zone),
            ("outcome", &run.outcome.word()),
            ("exit_code", &run.exit_code),
            ("error_number", &run.number),
            ("size", &run.bytes.map(count)),
            ("message", &text(&message)),
        ],
    )?;
    tx.prepare_cached(SURPLUS)?
        .execute(params![run.task.word(), RUNS_MAX])?;
    Ok(id)
}

fn place_of_run(row: &RunRow) -> PortionStart {
    (row.finish_us, row.run_id)
}

fn run(db: &Connection, row: &Row) -> rusqlite::Result<RunRow> {
    let set: Option<String> = row.get(5)?;
    let devices: Option<String> = row.get(6)?;
    let devices = devices.unwrap_or_default();
    let (start_us, finish_us) = (row.get(7)?, row.get(8)?);
    let zone: Option<i16> = row.get(9)?;
    let size: Option<i64> = row.get(13)?;
    Ok(RunRow {
        run_id: row.get(0)?,
        task: row.get(1)?,
        database: row.get(2)?,
        target: row.get(3)?,
        label: row.get(4)?,
        set: set.map(|_| uuid(row, 5)).transpose()?,
        devices: devices.lines().map(str::to_owned).collect(),
        start: zoned_text(db, start_us, zone)?,
        finish: zoned_text(db, finish_us, zone)?,
        start_us,
        finish_us,
        seconds: seconds(start_us, finish_us),
        outcome: row.get(10)?,
        exit_code: row.get(11)?,
        number: row.get(12)?,
        bytes: size.map(|_| bytes(row, 13)).transpose()?,
        message: row.get(14)?,
    })
}
