//! `restore`: lowers options to one request, and prints the report as one table.
//!
//! Invariants
//! - The backup and its WAL are chosen first, and the choice is printed before anything is written.
//! - If the chosen backup cannot be read, the command that restores the previous good one is printed.
//! - A restore that leaves a doubt (damage at its source, lost attributes, another branch's WAL, no history) has the
//!   exit code of warnings.
//!
//! Leaves to others: the choice (`restore/beginning.rs`, `restore/older.rs`), a dry run (`restore/preview.rs`), and
//! moving bytes (`pipeline`).

mod beginning;
pub mod older;
mod preview;

use longshore_catalog::RunTask;
use longshore_media::DeviceSpec;
use longshore_pipeline::{
    Error, Report, Request, RestoreNote, RestoreReport, RestoreRequest, mb_per_s, ratio,
    run as run_pipeline,
};
use serde::Serialize;

use super::backup::{settings, wrong_report};
use super::ends::{self, RunLines, closing_line, figures, stripes, wal_of};
use super::moving::{reading_tuning, restore_limits};
use super::offload;
use super::runs::PendingRun;
use crate::context::Context;
use crate::keys::set_keyring;
use crate::options::Restore;
use crate::progress::ProgressView;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::{Table, bytes, cpu_s_per_gb};
use longshore_terminal::text::plain;

#[derive(Serialize)]
struct Answer<'a> {
    action: &'static str,
    message: &'a str,
    mb_per_s: f64,
    ratio: f64,
    cpu_s_per_gb: f64,
    /// The choice among a database's backups.
    chosen: Option<&'a beginning::ChosenBackup>,
    /// Why the WAL may be that of another branch of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'a str>,
    #[serde(flatten)]
    report: &'a RestoreReport,
}

pub fn run(options: &Restore, context: &Context) -> Result<Exit, Failure> {
    if let Some(text) = options.to.to_str()
        && matches!(DeviceSpec::parse(text), DeviceSpec::Bucket(_))
    {
        return Err(Failure::usage(
            format!("a restore writes to a directory, and {text} is an object store's address"),
            format!("give a directory with --to; one of that name is ./{text}"),
        ));
    }
    let media = &options.media;
    let named = (media.database.as_deref(), media.target.as_deref());
    let lines = RunLines::of(context, "restore", named, &stripes(&media.devices));
    let mut run = PendingRun::begin(context, RunTask::Restore);
    if let Some(database) = &media.database {
        run.record.database = Some(database.clone());
        let usual = || context.config.target_of(database);
        let target = media.target.as_deref().or_else(usual);
        run.record.target = target.map(str::to_owned);
    }
    run.on(&media.devices);
    run.record.label = media.label.clone().filter(|label| label != "latest");
    let restored = run_once(options, &mut run, lines);
    if let (Err(failure), false) = (&restored, options.dry_run) {
        run.failed(failure);
    }
    restored
}

fn run_once(options: &Restore, run: &mut PendingRun, lines: RunLines) -> Result<Exit, Failure> {
    let context = run.context;
    let keyring = set_keyring(context, &options.keys)?;
    let beginning = beginning::of(options, &keyring, context)?;
    if let Some(label) = beginning.label() {
        run.record.label = Some(label.to_owned());
    }
    if let Some(target) = beginning.target() {
        run.record.target = Some(target.to_owned());
    }
    ends::chose(beginning.label());
    let request = request(options, &beginning, context);
    let mut run_context = context.run_context().equipped(&request.offload);
    run_context.keyring = keyring;
    if options.dry_run {
        let exit = preview::run(&request, &beginning, &run_context, context)?;
        lines.end(exit, "nothing was written (--dry-run)");
        return Ok(exit);
    }
    let watch = ProgressView::new(context.output, context.clock.clone());
    let result = run_pipeline(&run_context, &Request::Restore(request), &watch);
    watch.end();
    let result = result.map_err(|e| match e {
        // The next backup is as closed as this one.
        e if e.is_closed() => e.into(),
        // The chosen backup cannot be read.
        Error::Archive(_) | Error::Media(_) | Error::Chain(_) => {
            older::advised_of(e.into(), beginning.label(), options, context)
        }
        e => e.into(),
    });
    let Report::Restore(report) = result? else {
        return Err(wrong_report());
    };
    let doubtful = report.damaged
        || beginning.refused.is_some()
        || report.tablespaces_taken > 0
        || report.attributes_lost > 0
        || report.run.history_failed;
    let exit = match doubtful {
        true => Exit::Warnings,
        false => context.output.done(),
    };
    run.record.database.get_or_insert(report.database.clone());
    run.record.set = Some(report.set);
    run.record.bytes = Some(report.plain_bytes);
    // Trouble with the history was told already.
    if !report.run.history_failed {
        run.ended(exit, None);
    }
    let what = format!("Restore of {}", plain(&report.database));
    let sizes = (report.plain_bytes, report.stored_bytes);
    let message = closing_line(&what, exit, sizes, report.run.elapsed_s);
    context.output.say(&table(&report).to_string());
    if beginning.label().is_some() || report.wal.timeline.is_some() {
        let did = what_and_where(&report, beginning.label());
        context.output.say(&format!("{did}\n"));
    }
    if let Some(line) = delta_line(&report) {
        context.output.say(&line);
    }
    if let Some(engines) = offload::table(&report.run.engines) {
        context.output.say(&engines.to_string());
    }
    context.output.say(&format!("{message}\n"));
    if let Some(line) = archives_line(options, &beginning) {
        context.output.say(&line);
    }
    lines.end(exit, &done(&report, beginning.label()));
    context.output.json(
        exit,
        Answer {
            action: "restore",
            message: &message,
            mb_per_s: mb_per_s(report.plain_bytes, report.run.elapsed_s),
            ratio: ratio(report.plain_bytes, report.stored_bytes),
            cpu_s_per_gb: cpu_s_per_gb(report.run.cpu_s, report.plain_bytes),
            chosen: beginning.told.as_ref(),
            refused: beginning.refused.as_deref(),
            report: &report,
        },
    );
    Ok(exit)
}

/// The request for the backup that was chosen.
fn request(
    options: &Restore,
    beginning: &beginning::RestorePoint,
    context: &Context,
) -> RestoreRequest {
    RestoreRequest {
        devices: beginning.devices.clone(),
        bases: beginning.bases.clone(),
        position: options.position.unwrap_or(0),
        target: options.to.clone(),
        replace: options.replace,
        in_use: options.replace_in_use,
        own: context.config.path.iter().cloned().collect(),
        only: options.only.clone(),
        moves: options
            .moves
            .iter()
            .map(|m| (m.0.clone(), (&m.1).into()))
            .collect(),
        cluster: beginning.cluster.clone(),
        note: RestoreNote::default(),
        offload: offload::of(
            &options.offloading,
            settings(context).offload,
            context.output,
        ),
        tuning: reading_tuning(&options.moving, &context.config.defaults),
        limits: restore_limits(&options.moving),
    }
}

/// The journal's words for what was done.
fn done(report: &RestoreReport, label: Option<&str>) -> String {
    ends::is_of(&report.database, &report.wal);
    let sizes = (report.plain_bytes, report.stored_bytes);
    let figures = figures(sizes, report.run.elapsed_s);
    format!("{figures}, {}", what_and_where(report, label))
}

/// "backup 20261121T093410Z-full-77751e07, WAL 0/2000028 to 0/20001B8 on timeline 1, to restored".
fn what_and_where(report: &RestoreReport, label: Option<&str>) -> String {
    let backup = label.map(|label| format!("backup {label}"));
    let to = format!("to {}", plain(&report.target));
    let parts = [backup, wal_of(&report.wal), Some(to)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The line about what was changed and kept of existing files, and names that were removed.
fn delta_line(report: &RestoreReport) -> Option<String> {
    let Some(rewritten) = report.rewritten_bytes else {
        let names = report.removed_names.filter(|names| *names > 0)?;
        let mut line = format!("With what was replaced, removed {names},");
        line.push_str(&which(report, names));
        return Some(line);
    };
    // Of a chain, blocks are read whole and used in part.
    let kept = match report.chain.is_empty() {
        true => bytes(report.plain_bytes.saturating_sub(rewritten)),
        false => "the rest".to_owned(),
    };
    let mut line = format!(
        "Changed {}, kept {kept} as in the backup,",
        bytes(rewritten)
    );
    match report.removed_names.unwrap_or(0) {
        0 => line.push_str(" removed nothing.\n"),
        names => {
            line.push_str(&format!(" removed {names},"));
            line.push_str(&which(report, names));
        }
    }
    Some(line)
}

/// The line about an archive into which the restored server will archive, too.
fn archives_line(options: &Restore, beginning: &beginning::RestorePoint) -> Option<String> {
    let args = &options.cluster;
    if args.no_archiving || args.standby {
        return None;
    }
    let archive = plain(beginning.told.as_ref()?.archive()?);
    Some(format!(
        "When this server opens, it archives a new timeline where its settings say, into {archive} if it did before, and later \
         restores follow that one. If its original still runs, set archive_mode = off before the start, or restore with \
         --no-archiving.\n"
    ))
}

/// The first of the names that were removed.
fn which(report: &RestoreReport, names: u64) -> String {
    let mut text = " which the backup does not have:\n".to_owned();
    for path in &report.removed {
        text.push_str(&format!("  {}\n", plain(path)));
    }
    let more = names.saturating_sub(report.removed.len() as u64);
    if more > 0 {
        text.push_str(&format!("  and {more} more\n"));
    }
    text
}

fn table(report: &RestoreReport) -> Table {
    let plan = &report.run.plan;
    let mut table = Table::new(&[
        "database",
        "stripes",
        "algorithm",
        "files",
        "in",
        "out",
        "wall",
        "CPU-s/GB",
        "limit",
        "to",
    ]);
    table.row(vec![
        plain(&report.database),
        plan.devices.len().to_string(),
        plan.algorithm.clone(),
        report.totals.file_count.to_string(),
        bytes(report.stored_bytes),
        bytes(report.plain_bytes),
        format!("{:.2} s", report.run.elapsed_s),
        format!("{:.2}", cpu_s_per_gb(report.run.cpu_s, report.plain_bytes)),
        report.run.limit.text().to_owned(),
        report.target.clone(),
    ]);
    table
}
