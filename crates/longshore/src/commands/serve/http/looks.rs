//! What the status page asks for: each database at each of its targets, what `check` says of it, and the history.
//!
//! Invariants
//! - The answers are those of `info`, `check` and `history`, by their code.
//! - Nothing is changed by asking: the checks are those that only look, and no catalog is created.
//! - An answer's size does not grow with the number of backups: its lists are cut, and say by how much.
//! - No answer has a connection string.
//!
//! Leaves to others: when to ask (`answers.rs`), and how the answers are shown (`status.rs`).

use std::ops::ControlFlow;

use longshore_catalog::{Catalog, HistoryQuery, HistoryRow, RestoreRow, RunRow};
use serde::Serialize;

use crate::commands::check::{self, CheckDepth, CheckedDatabase, Grade};
use crate::commands::info::{self, DescribedDatabase};
use crate::commands::metrics::DatabaseMetrics;
use crate::commands::shelves::Placed;
use crate::context::Context;
use longshore_terminal::failure::Failure;

/// The number of backups of all databases together that the page shows.
const ROWS_ALL: usize = 2000;
/// The number of them of one database.
const ROWS_MAX: usize = 200;
/// The number of elements of any other list.
const LIST_MAX: usize = 200;
/// The number of the last runs in the history.
const RUNS: u32 = 50;
/// The number of runs among which those are looked for that are shown.
const RUNS_READ: u32 = 2000;

/// A question.
pub enum Subject {
    Shelf(Placed),
    Check(String),
    History,
}

/// An answer.
pub enum Found {
    Shelf(Box<ShelfFound>),
    Check(Box<CheckFound>),
    History(Runs),
}

/// A database at a target.
pub struct ShelfFound {
    pub info: DescribedDatabase,
    pub left_out: LeftOut,
    pub metrics: DatabaseMetrics,
}

/// The answer of `check` about a database.
pub struct CheckFound {
    pub checked: CheckedDatabase,
    /// Findings that are not shown.
    pub left_out_count: usize,
    /// The numbers of findings by their grade: to look at, and bad.
    pub counts: (usize, usize),
}

/// The numbers of elements that are not shown: the older ones, or those at the end.
#[derive(Debug, Default, Serialize)]
pub struct LeftOut {
    pub backup_count: usize,
    pub window_count: usize,
    /// Of gaps, runs of segments, branches and unknown names.
    pub other_count: usize,
}

/// The last runs of the history.
#[derive(Default, Serialize)]
pub struct Runs {
    pub backups: Vec<HistoryRow>,
    pub restores: Vec<RestoreRow>,
    /// Verifications, drills and repairs, and of the other tasks what did not end well: good backups and restores are above.
    pub runs: Vec<RunRow>,
}

/// All questions.
pub fn subjects(context: &Context) -> Vec<Subject> {
    let shelves = Placed::all(context).into_iter().map(Subject::Shelf);
    let checks = context.config.database.keys().cloned().map(Subject::Check);
    let history = context.catalog.iter().map(|_| Subject::History);
    shelves.chain(checks).chain(history).collect()
}

/// The number of backups of each database that are shown if there are so many databases at targets.
pub fn rows_each(shelves: usize) -> usize {
    (ROWS_ALL / shelves.max(1)).clamp(1, ROWS_MAX)
}

/// Finds the answer. `rows`: the number of backups that are kept.
pub fn ask(
    subject: &Subject,
    rows: usize,
    depth: &CheckDepth,
    context: &Context,
) -> Result<Found, Failure> {
    match subject {
        Subject::Shelf(placed) => shelf(placed, rows, context),
        Subject::Check(database) => Ok(checked(check::database(database.clone(), depth, context))),
        Subject::History => Ok(Found::History(history(context)?)),
    }
}

fn shelf(placed: &Placed, rows: usize, context: &Context) -> Result<Found, Failure> {
    let shelf = placed.shelf(context)?;
    let listing = shelf.list()?;
    let mut info = info::database(&shelf, &listing, context)?;
    let metrics = DatabaseMetrics::of(&info, context.clock.wall_ns() / 1000);
    // A reader of the page need not learn how the server is reached.
    info.url = None;
    let mut left_out = LeftOut {
        backup_count: newest(&mut info.backups, rows),
        other_count: first(&mut info.branches) + first(&mut info.strays),
        window_count: 0,
    };
    for row in &mut info.backups {
        left_out.other_count += first(&mut row.needed) + first(&mut row.used_by);
    }
    left_out.other_count +=
        newest(&mut info.results.all, LIST_MAX) + first(&mut info.results.unreadable);
    if let Some(wal) = &mut info.wal {
        left_out.window_count = newest(&mut wal.windows, LIST_MAX);
        left_out.other_count += newest(&mut wal.runs, LIST_MAX)
            + newest(&mut wal.gaps, LIST_MAX)
            + newest(&mut wal.inconsistent, LIST_MAX)
            + newest(&mut wal.unsound, LIST_MAX);
    }
    Ok(Found::Shelf(Box::new(ShelfFound {
        info,
        left_out,
        metrics,
    })))
}

/// Keeps the last elements; returns how many were left out.
fn newest<T>(list: &mut Vec<T>, max: usize) -> usize {
    let surplus = list.len().saturating_sub(max);
    list.drain(..surplus);
    list.shrink_to_fit();
    surplus
}

/// Keeps the first elements; returns how many were left out.
fn first<T>(list: &mut Vec<T>) -> usize {
    let surplus = list.len().saturating_sub(LIST_MAX);
    list.truncate(LIST_MAX);
    list.shrink_to_fit();
    surplus
}

/// Keeps the worst findings, in their order.
fn checked(mut checked: CheckedDatabase) -> Found {
    let of = |grade: Grade| checked.findings.iter().filter(|f| f.grade == grade).count();
    let counts = (of(Grade::Look), of(Grade::Bad));
    let mut left_out_count = 0;
    for grade in [Grade::Good, Grade::Look, Grade::Bad] {
        let mut surplus = checked.findings.len().saturating_sub(LIST_MAX);
        checked.findings.retain(|finding| {
            let goes = surplus > 0 && finding.grade == grade;
            surplus -= usize::from(goes);
            left_out_count += usize::from(goes);
            !goes
        });
    }
    Found::Check(Box::new(CheckFound {
        checked,
        left_out_count,
        counts,
    }))
}

fn history(context: &Context) -> Result<Runs, Failure> {
    let Some(path) = &context.catalog else {
        return Ok(Runs::default());
    };
    let is_missing = |e: std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
    if context.storage.stat(path).is_err_and(is_missing) {
        return Ok(Runs::default());
    }
    let catalog = Catalog::open(path)?;
    let query = HistoryQuery {
        database: None,
        limit: Some(RUNS),
    };
    let mut runs = Runs {
        backups: catalog.history(&query)?,
        restores: catalog.restores(&query)?,
        runs: noted(&catalog)?,
    };
    runs.restores.iter_mut().for_each(|row| row.paths.clear());
    Ok(runs)
}

/// The last runs that tell more than that a backup, a restore, a copy or an expire did its work.
fn noted(catalog: &Catalog) -> Result<Vec<RunRow>, Failure> {
    let query = HistoryQuery {
        database: None,
        limit: Some(RUNS_READ),
    };
    let is_shown = |row: &RunRow| match row.task.as_str() {
        "verify" | "scrub" | "drill" | "repair" => true,
        "copy" | "expire" => row.outcome != "ok",
        _ => row.outcome != "ok" && row.outcome != "warnings",
    };
    let max = RUNS as usize;
    let mut shown = Vec::new();
    catalog.run_portions(&query, |rows| {
        shown.extend(rows.into_iter().filter(is_shown));
        match shown.len() < max {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    shown.truncate(max);
    Ok(shown)
}
