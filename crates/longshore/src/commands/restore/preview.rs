//! `restore --dry-run`: which sets would be read, what would be changed, and how long it would take.
//!
//! Invariants
//! - Nothing is written, not even a catalog.
//! - The time is that of the last restore of this database in the history; without one, and for chosen files, none is
//!   named.
//!
//! Leaves to others: what a restore would do (`pipeline`), and the choice of the backup (`beginning.rs`).

use longshore_catalog::{Catalog, HistoryQuery, RestoreRow};
use longshore_pipeline::{RestorePreview, RestoreRequest, RunContext, preview};
use serde::Serialize;

use super::beginning::{ChosenBackup, RestorePoint};
use crate::context::Context;
use crate::progress::ProgressView;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::{bytes, moment};
use longshore_terminal::text::plain;

#[derive(Serialize)]
struct Answer<'a> {
    action: &'static str,
    message: &'static str,
    chosen: Option<&'a ChosenBackup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'a str>,
    /// Seconds, as fast as the last restore of this database was; `None` if none is in the history.
    expected_s: Option<f64>,
    #[serde(flatten)]
    preview: &'a RestorePreview,
}

pub fn run(
    request: &RestoreRequest,
    beginning: &RestorePoint,
    run_context: &RunContext,
    context: &Context,
) -> Result<Exit, Failure> {
    let watch = ProgressView::new(context.output, context.clock.clone());
    let found = preview(run_context, request, &watch);
    watch.end();
    let found = found?;
    let last = last_restore(&found.database, context);
    let rate = last.as_ref().map(|row| row.mb_per_s).filter(|r| *r > 0.0);
    // Some files take less than the whole set does; how much less is not known.
    let rate = rate.filter(|_| request.only.is_empty());
    let expected_s = rate.map(|rate| found.plain_bytes as f64 / 1e6 / rate);
    let wal = beginning.told.as_ref().and_then(ChosenBackup::wal_text);
    let wal = wal.unwrap_or_default();
    context
        .output
        .say(&text(&found, &wal, last.as_ref(), expected_s));
    let exit = match beginning.refused {
        Some(_) => Exit::Warnings,
        None => context.output.done(),
    };
    context.output.json(
        exit,
        Answer {
            action: "restore_dry_run",
            message: "Nothing was written.",
            chosen: beginning.told.as_ref(),
            refused: beginning.refused.as_deref(),
            expected_s,
            preview: &found,
        },
    );
    Ok(exit)
}

/// A dry run must not fail because of the history.
fn last_restore(database: &str, context: &Context) -> Option<RestoreRow> {
    let path = context.catalog.as_deref()?;
    // A query does not create a catalog.
    context.storage.stat(path).ok()?;
    let query = HistoryQuery {
        database: Some(database.to_owned()),
        limit: Some(1),
    };
    Catalog::open(path).ok()?.restores(&query).ok()?.pop()
}

fn text(
    found: &RestorePreview,
    wal: &str,
    last: Option<&RestoreRow>,
    expected_s: Option<f64>,
) -> String {
    let mut text = format!(
        "Would restore {} to {}:\n",
        plain(&found.database),
        plain(&found.target)
    );
    for (i, set) in found.sets.iter().enumerate() {
        // Newest first: each is compared with the next.
        let of_full = found
            .sets
            .get(i + 1)
            .is_none_or(|base| !base.is_differential);
        let kind = match (set.is_differential, of_full) {
            (false, _) => "full",
            (true, true) => "differential",
            (true, false) => "incremental",
        };
        let devices: Vec<_> = set.devices.iter().map(|device| plain(device)).collect();
        text.push_str(&format!(
            "  {kind} set, position {}, {}, from {}\n",
            set.position,
            bytes(set.plain_bytes),
            devices.join(" ")
        ));
    }
    if found.sets.len() > 1 {
        text.push_str(&format!("Together: {}\n", bytes(found.plain_bytes)));
    }
    text.push_str(wal);
    for (oid, path) in &found.tablespaces {
        text.push_str(&format!("  tablespace {oid} to {}\n", plain(path)));
    }
    for database in &found.emptied {
        let name = database.name.as_deref().map(plain).unwrap_or_default();
        text.push_str(&format!("  database {} {name} empty\n", database.oid));
    }
    let list = |text: &mut String, what: &str, count: u64, first: &[String]| {
        text.push_str(&format!("{what}: {count}\n"));
        for path in first {
            text.push_str(&format!("  {}\n", plain(path)));
        }
        let more = count.saturating_sub(first.len() as u64);
        if more > 0 {
            text.push_str(&format!("  and {more} more\n"));
        }
    };
    list(
        &mut text,
        "Existing names that would be replaced or changed",
        found.replaced_names,
        &found.replaced,
    );
    if found.swept_file_count > 0 {
        text.push_str(&format!(
            "Existing files that would go with them: {}, {}\n",
            found.swept_file_count,
            bytes(found.swept_bytes)
        ));
    }
    list(
        &mut text,
        "Existing names that would be removed",
        found.removed_names,
        &found.removed,
    );
    text.push_str(&match (last, expected_s) {
        (Some(row), Some(seconds)) => format!(
            "Time: about {seconds:.0} s at {:.0} MB/s, as in the last restore of it, {} UTC\n",
            row.mb_per_s,
            moment(row.finish_us)
        ),
        _ => "Time: unknown; no restore of it is in the history\n".to_owned(),
    });
    text.push_str("Nothing was written.\n");
    text
}
