//! `history` and `catalog`: reports what was done, from the catalog.
//!
//! Invariants
//! - A query never creates a catalog; a rebuild first moves a damaged one away, so that nothing is lost by it.
//! - Rows are streamed, since a history may be long.
//!
//! Leaves to others: storing and finding rows (`longshore-catalog`), and reading media (`pipeline`).

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use longshore_catalog::{
    Catalog, Effect, Error, HistoryQuery, HistoryRow, Rebuilt, RestoreRow, RunRow, Setting,
    SettingRow, type_word,
};
use longshore_media::{BackupDevice, DeviceSpec};
use serde::Serialize;

use super::results::{age_text, broken};
use super::{reading, shelves};
use crate::context::Context;
use crate::options::{Catalog as Options, CatalogAction, History, Rebuild, Settings};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::{Columns, Table, bytes};
use longshore_terminal::text::plain;

#[derive(Serialize)]
struct Rows<T> {
    action: &'static str,
    catalog: String,
    rows: Vec<T>,
}

#[derive(Serialize)]
struct RebuildAnswer<'a> {
    action: &'static str,
    catalog: String,
    /// Where a damaged catalog was moved.
    moved_aside: Option<String>,
    #[serde(flatten)]
    rebuilt: &'a Rebuilt,
}

fn path(context: &Context) -> Result<&Path, Failure> {
    context.catalog.as_deref().ok_or_else(|| {
        Failure::usage(
            "no history is kept",
            "--catalog, LONGSHORE_CATALOG or [catalog] in the configuration says `none`",
        )
    })
}

pub fn history(options: &History, context: &Context) -> Result<Exit, Failure> {
    let path = path(context)?;
    let query = HistoryQuery {
        database: options.database.clone(),
        limit: (options.limit > 0).then_some(options.limit),
    };
    // A query does not create a catalog.
    let missing = context
        .storage
        .stat(path)
        .is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
    let catalog = if missing {
        None
    } else {
        Some(Catalog::open(path)?)
    };
    if options.runs {
        let portions = |take: &mut Take<RunRow>| match &catalog {
            Some(catalog) => catalog.run_portions(&query, take),
            None => Ok(()),
        };
        runs(context, path, portions)
    } else if options.restores {
        let portions = |take: &mut Take<RestoreRow>| match &catalog {
            Some(catalog) => catalog.restore_portions(&query, take),
            None => Ok(()),
        };
        rows_of(
            context,
            path,
            "restores",
            &RESTORE_HEADS,
            restore_cells,
            portions,
        )
    } else {
        let portions = |take: &mut Take<HistoryRow>| match &catalog {
            Some(catalog) => catalog.history_portions(&query, take),
            None => Ok(()),
        };
        rows_of(
            context,
            path,
            "history",
            &BACKUP_HEADS,
            backup_cells,
            portions,
        )
    }
}

/// Takes a portion of rows and says whether more are wanted.
type Take<'a, T> = dyn FnMut(Vec<T>) -> ControlFlow<()> + 'a;

#[derive(Serialize)]
struct RowsHead {
    action: &'static str,
    catalog: String,
}

fn goes_on(taken: io::Result<()>) -> ControlFlow<()> {
    match taken {
        Ok(()) => ControlFlow::Continue(()),
        // The reader is gone or the disk is full: the end of the command reports it.
        Err(_) => ControlFlow::Break(()),
    }
}

/// Prints rows as JSON, portion by portion.
fn json_rows<T: Serialize>(
    context: &Context,
    path: &Path,
    action: &'static str,
    portions: impl Fn(&mut Take<T>) -> Result<(), Error>,
) -> Exit {
    let catalog = path.display().to_string();
    let head = RowsHead { action, catalog };
    let mut stream = context.output.json_stream(&head, "rows");
    let read = portions(&mut |rows| rows.iter().try_for_each(|row| goes_on(stream.element(row))));
    match read {
        Ok(()) => {
            stream.end();
            Exit::Done
        }
        Err(error) => stream.fail(&error.into()),
    }
}

/// Prints rows, of which there may be millions: at most one portion is held in memory.
fn rows_of<T: Serialize>(
    context: &Context,
    path: &Path,
    action: &'static str,
    heads: &[&'static str],
    cells: fn(&T) -> Vec<String>,
    portions: impl Fn(&mut Take<T>) -> Result<(), Error>,
) -> Result<Exit, Failure> {
    if context.output.json {
        return Ok(json_rows(context, path, action, portions));
    }
    // Columns are as wide as their widest cell, so all rows are read first; rows that fit into one portion are kept.
    let mut columns = Columns::new(heads);
    let mut kept = Vec::new();
    let mut portion_count = 0;
    portions(&mut |rows| {
        let lines: Vec<_> = rows.iter().map(cells).collect();
        lines.iter().for_each(|cells| columns.see(cells));
        portion_count += 1;
        kept = lines;
        ControlFlow::Continue(())
    })?;
    let text = |lines: &[Vec<String>]| lines.iter().map(|cells| columns.line(cells)).collect();
    if portion_count <= 1 {
        let lines: String = text(&kept);
        context.output.say(&(columns.heads() + &lines));
        return Ok(Exit::Done);
    }
    context.output.say(&columns.heads());
    portions(&mut |rows| {
        let lines: Vec<_> = rows.iter().map(cells).collect();
        let lines: String = text(&lines);
        goes_on(context.output.say_on(&lines))
    })?;
    Ok(Exit::Done)
}

fn answer<T: Serialize>(
    context: &Context,
    path: &Path,
    action: &'static str,
    rows: Vec<T>,
    table: fn(&[T]) -> Table,
) -> Result<Exit, Failure> {
    context.output.say(&table(&rows).to_string());
    let catalog = path.display().to_string();
    context.output.json(
        Exit::Done,
        Rows {
            action,
            catalog,
            rows,
        },
    );
    Ok(Exit::Done)
}

/// `2026-03-01T22:15:04.120+01:00` without its fraction and its offset.
fn second(text: Option<&String>) -> String {
    let text = text.map_or("-", |t| t.split('.').next().unwrap_or(t));
    text.replace('T', " ")
}

/// The widest name of a database in the line of a run: what is left of 80 columns.
const RUN_NAME: usize = 24;
/// Before the lines that say more about a run: they begin below its task.
const RUN_INDENT: &str = "                     ";

/// Prints runs: a line each, and below it which backup it was about and what it said. No line depends on another one, so
/// they are read once.
fn runs(
    context: &Context,
    path: &Path,
    portions: impl Fn(&mut Take<RunRow>) -> Result<(), Error>,
) -> Result<Exit, Failure> {
    if context.output.json {
        let action = "runs";
        return Ok(json_rows(context, path, action, portions));
    }
    let heads = run_line(["finished (local)", "task", "result", "took", "database"]);
    context.output.say(&heads);
    portions(&mut |rows| {
        let text: String = rows.iter().map(run_text).collect();
        goes_on(context.output.say_on(&text))
    })?;
    Ok(Exit::Done)
}

fn run_line([finished, task, result, took, database]: [&str; 5]) -> String {
    let line = format!("{finished:<19}  {task:<7}  {result:<11}  {took:>11}  {database}");
    line.trim_end().to_owned() + "\n"
}

fn run_text(row: &RunRow) -> String {
    let result = match row.outcome.as_str() {
        "damaged" => "DAMAGED",
        "failed" => "FAILED",
        other => other,
    };
    let took = match row.seconds {
        seconds if seconds < 60.0 => format!("{seconds:.1} s"),
        seconds => age_text(seconds as i64),
    };
    let name = row.database.as_deref().map_or("-".to_owned(), plain);
    let (short, long) = match name.chars().count() > RUN_NAME {
        true => ("", Some(name.clone())),
        false => (name.as_str(), None),
    };
    let finished = second(row.finish.as_ref());
    let mut text = run_line([&finished, &plain(&row.task), &plain(result), &took, short]);
    let place = match (&row.target, &row.label) {
        (Some(target), Some(label)) => format!("{label} at target {target}"),
        (Some(target), None) => format!("at target {target}"),
        (None, _) => row.devices.join(" "),
    };
    let message = row.message.as_deref().map(|message| match row.number {
        Some(number) => format!("{number}: {message}"),
        None => message.to_owned(),
    });
    let more = [long, Some(place), message].into_iter().flatten();
    for more in more.filter(|more| !more.is_empty()) {
        text += &broken(RUN_INDENT, &plain(&more.replace('\n', " ")));
    }
    text
}

const BACKUP_HEADS: [&str; 13] = [
    "finished (local)",
    "database",
    "type",
    "position",
    "algorithm",
    "in",
    "out",
    "ratio",
    "seconds",
    "MB/s",
    "files",
    "state",
    "devices",
];

fn backup_cells(row: &HistoryRow) -> Vec<String> {
    vec![
        second(row.finish.as_ref()),
        plain(&row.database),
        type_word(&row.kind).to_owned(),
        row.position.to_string(),
        row.algorithm.clone().unwrap_or_else(|| "NONE".to_owned()),
        bytes(row.size_bytes),
        bytes(row.compressed_bytes),
        format!("{:.2}", row.ratio),
        format!("{:.3}", row.seconds),
        format!("{:.1}", row.mb_per_s),
        row.file_count.to_string(),
        if row.damaged { "marked" } else { "complete" }.to_owned(),
        plain(&row.devices.join(" ")),
    ]
}

const RESTORE_HEADS: [&str; 8] = [
    "date (local)",
    "database",
    "from",
    "position",
    "out",
    "seconds",
    "MB/s",
    "to",
];

fn restore_cells(row: &RestoreRow) -> Vec<String> {
    vec![
        second(row.date.as_ref()),
        plain(&row.database),
        plain(&row.source_database),
        row.position.to_string(),
        bytes(row.size_bytes),
        format!("{:.3}", row.seconds),
        format!("{:.1}", row.mb_per_s),
        plain(&row.target),
    ]
}

pub fn run(options: &Options, context: &Context) -> Result<Exit, Failure> {
    match &options.action {
        CatalogAction::Rebuild(options) => rebuild(options, context),
        CatalogAction::Settings(options) => settings(options, context),
    }
}

fn rebuild(options: &Rebuild, context: &Context) -> Result<Exit, Failure> {
    let path = path(context)?;
    let media = &options.media;
    let learn = match (&media.database, &media.target) {
        (None, Some(target)) => all_at(target, context)?,
        _ => Learn {
            sets: vec![reading::of(context, media)?.devices],
            unreadable: Vec::new(),
        },
    };
    let (catalog, aside) = Catalog::open_or_replace(path)?;
    if let Some(aside) = &aside {
        context.output.warn(&format!(
            "the catalog was damaged; it was renamed to {}",
            aside.display()
        ));
    }
    let mut rebuilt = Rebuilt {
        unreadable: learn.unreadable,
        ..Rebuilt::default()
    };
    for set in &learn.sets {
        let devices: Vec<Arc<dyn BackupDevice>> =
            set.iter().map(|d| d.open(&context.storage)).collect();
        match catalog.rebuild(&devices) {
            Ok(more) => rebuilt.merge(more),
            // If one of several media sets is unreadable, the others are still recorded.
            Err(Error::Media(e)) if learn.sets.len() > 1 => rebuilt.unreadable.push(e.to_string()),
            Err(e) => return Err(e.into()),
        }
    }
    context.output.say(&format!(
        "{} backup sets added, {} already known, {} incomplete\n",
        rebuilt.added, rebuilt.known, rebuilt.incomplete
    ));
    for what in &rebuilt.unreadable {
        context.output.warn(&format!("not added: {what}"));
    }
    if rebuilt.without_files > 0 {
        let text = "backup sets were added without their files: their index cannot be read";
        context
            .output
            .warn(&format!("{} {text}", rebuilt.without_files));
    }
    let exit = context.output.done();
    context.output.json(
        exit,
        RebuildAnswer {
            action: "catalog_rebuild",
            catalog: path.display().to_string(),
            moved_aside: aside.map(|p| p.display().to_string()),
            rebuilt: &rebuilt,
        },
    );
    Ok(exit)
}

/// The sets to record, and those that cannot be read.
struct Learn {
    /// The stripes of each media set.
    sets: Vec<Vec<DeviceSpec>>,
    unreadable: Vec<String>,
}

/// Every backup of every database at a target.
fn all_at(target: &str, context: &Context) -> Result<Learn, Failure> {
    let mut learn = Learn {
        sets: Vec::new(),
        unreadable: Vec::new(),
    };
    for shelf in shelves::shelves(context, &[], Some(target))? {
        for set in shelf.list()?.sets {
            match set.complete() {
                Some(_) => learn.sets.push(set.devices),
                None => learn.unreadable.push(format!(
                    "{}: {}: {}",
                    shelf.database,
                    set.label,
                    set.state.text()
                )),
            }
        }
    }
    Ok(learn)
}

fn settings(options: &Settings, context: &Context) -> Result<Exit, Failure> {
    let path = path(context)?;
    let catalog = Catalog::open(path)?;
    if let (Some(name), Some(value)) = (&options.name, options.value) {
        let setting: Setting = name.parse()?;
        // No server runs that a change would have to wait for.
        catalog.set_setting(setting, value, Effect::Now)?;
    }
    answer(
        context,
        path,
        "settings",
        catalog.settings()?,
        settings_table,
    )
}

fn settings_table(rows: &[SettingRow]) -> Table {
    let mut table = Table::new(&["name", "minimum", "maximum", "value", "value in use"]);
    for row in rows {
        table.row(vec![
            row.name.to_owned(),
            row.minimum.to_string(),
            row.maximum.to_string(),
            row.value.to_string(),
            row.value_in_use.to_string(),
        ]);
    }
    table
}
