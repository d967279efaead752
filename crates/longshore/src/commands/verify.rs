//! `verify`: the answer is yes or no, and damage is an answer, not a failure.
//!
//! Invariants
//! - Exit code 1 means that damage was found; a failure means that there is no answer, because the media could not be
//!   read at all.
//! - Findings with one remedy are followed by one hint.
//! - What was not checked is said: a differential set whose chain was not looked at is valid alone.
//!
//! Leaves to others: everything at a target (`verify/all.rs`), reading and checking (`pipeline`), choosing devices (`devices.rs`), and records at targets
//! (`recording.rs`).

mod all;
mod judged;
mod ledger;
mod log;

use std::collections::BTreeSet;

use longshore_catalog::RunTask;
use longshore_pipeline::{
    Report, Request, VerifiedSet, VerifyDepth, VerifyReport, VerifyRequest, run as run_pipeline,
};
use longshore_repository::SetIdentity;
use longshore_repository::status::{FailedRun, News, SetResult, Task};
use serde::Serialize;

pub use self::all::is_answer;
use super::backup::wrong_report;
use super::elsewhere;
use super::ends::{self, RunLines, closing_line, figures, stripes};
use super::moving::{limits, reading_tuning};
use super::reading::{self, ReadDevices};
use super::recording::{self, Recorder, shelf_of};
use super::repair::{Stripe, mend};
use super::runs::PendingRun;
use crate::context::Context;
use crate::keys::{lenient_keyring, set_keyring};
use crate::options::{Repair, Verify};
use crate::progress::ProgressView;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::{Output, Table, bytes};
use longshore_terminal::text::plain;

#[derive(Serialize)]
struct Answer<'a> {
    action: &'static str,
    message: &'a str,
    valid: bool,
    /// With --repair, if there was something to repair.
    repaired: Option<Vec<Stripe>>,
    #[serde(flatten)]
    report: &'a VerifyReport,
}

#[derive(Serialize)]
struct NoSet<'a> {
    action: &'static str,
    message: &'static str,
    valid: bool,
    sets: [(); 0],
    findings: [&'a Failure; 1],
}

pub fn run(options: &Verify, context: &Context) -> Result<Exit, Failure> {
    if options.all {
        return all::run(options, context);
    }
    let media = &options.media;
    let named = (media.database.as_deref(), media.target.as_deref());
    // A look that reads less than a verification is none, wherever it is told.
    let (task, word) = match options.stored {
        true => (RunTask::Scrub, "scrub"),
        false => (RunTask::Verify, "verify"),
    };
    let lines = RunLines::of(context, word, named, &stripes(&media.devices));
    let shelf = shelf_of(context, media.database.as_deref(), media.target.as_deref());
    let recorder = shelf
        .as_ref()
        .and_then(|shelf| Recorder::new(context, shelf, Task::Verify));
    let mut run = PendingRun::begin(context, task);
    run.record.database.clone_from(&media.database);
    match &shelf {
        Some(shelf) => run = run.at(&shelf.database, &shelf.target.name),
        None => run.on(&media.devices),
    }
    run.record.label = media.label.clone().filter(|label| label != "latest");
    let verified = run_once(options, context, (recorder.as_ref(), &mut run), lines);
    if let Err(failure) = &verified {
        run.failed(failure);
        // Nothing but damage: no later scrub would mend another failure of a verification.
        if let Some(recorder) = recorder.as_ref().filter(|_| !options.stored) {
            recorder.failed(failure, run.record.label.as_deref());
        }
    }
    verified
}

/// `run` learns which backup is chosen as soon as that is known.
fn run_once(
    options: &Verify,
    context: &Context,
    (recorder, run): (Option<&Recorder>, &mut PendingRun),
    lines: RunLines,
) -> Result<Exit, Failure> {
    let chosen = reading::of(context, &options.media)?;
    // A result belongs to where the backup was read, which is a copy while the target is away.
    let of_copy = chosen
        .shelf()
        .filter(|shelf| run.record.target.as_ref() != Some(&shelf.target.name))
        .and_then(|shelf| Recorder::new(context, shelf, Task::Verify));
    let recorder = of_copy.as_ref().or(recorder);
    if let Some(shelf) = chosen.shelf() {
        run.record.target = Some(shelf.target.name.clone());
    }
    if let Some(identity) = chosen.identities().first() {
        run.record.label = Some(identity.label.to_string());
        run.record.set = Some(identity.set);
        ends::chose(run.record.label.as_deref());
    }
    let request = VerifyRequest {
        devices: chosen.devices.clone(),
        // Of those nothing would be looked at.
        bases: match options.stored {
            true => Vec::new(),
            false => chosen.bases(&options.bases),
        },
        position: options.position,
        known: Vec::new(),
        depth: match options.stored {
            true => VerifyDepth::Stored,
            false => VerifyDepth::Chains,
        },
        tuning: reading_tuning(&options.moving, &context.config.defaults),
        limits: limits(&options.moving, &context.config.defaults),
    };
    let mut run_context = context.run_context();
    run_context.keyring = match options.stored {
        true => lenient_keyring(context, &options.keys)?,
        false => set_keyring(context, &options.keys)?,
    };
    let watch = ProgressView::new(context.output, context.clock.clone());
    let result = run_pipeline(&run_context, &Request::Verify(request), &watch);
    watch.end();
    let report = match result {
        Ok(Report::Verify(report)) => report,
        Ok(_) => return Err(wrong_report()),
        Err(error) if is_answer(&error) => {
            let failure = Failure::from(error);
            if let Some(recorder) = recorder {
                record_no_set(recorder, &chosen, &failure);
            }
            run.record.number = Some(failure.number);
            run.ended(Exit::No, Some(&failure.text));
            return Ok(no_set(context, failure));
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(recorder) = recorder {
        record(recorder, &chosen, &report);
    }
    let (repaired, table_of_stripes) = match repair(options, context, &chosen, &report)? {
        Some((stripes, text)) => (Some(stripes), text),
        None => (None, String::new()),
    };
    let exit = match report.is_valid() {
        true => context.output.done(),
        false => Exit::No,
    };
    remember(run, &report, exit);
    let output = context.output;
    warn_of(&report, output);
    if let (false, Some(shelf), Some(label)) = (
        report.is_valid(),
        chosen.shelf(),
        run.record.label.as_deref(),
    ) && let Some(target) = elsewhere::copy_of(shelf, label, context)
    {
        output.note(&elsewhere::told(shelf, label, &target));
    }
    let message = message(exit, &report);
    let closing = message.lines().last().unwrap_or_default();
    let above = message.strip_suffix(closing).unwrap_or_default();
    let table = table(&report);
    output.say(&format!("{above}{table}{table_of_stripes}{closing}\n"));
    lines.end(exit, &done(&report, run.record.label.as_deref()));
    output.json(
        exit,
        Answer {
            action: "verify",
            message: &message,
            valid: report.is_valid(),
            repaired,
            report: &report,
        },
    );
    Ok(exit)
}

/// Warns of each finding. Findings with one remedy follow each other; the last of them names it.
fn warn_of(report: &VerifyReport, output: Output) {
    for (i, finding) in report.findings.iter().enumerate() {
        let number = finding.number.map_or(String::new(), |n| format!("{n}: "));
        let next = report.findings.get(i + 1);
        let hint = match next.is_some_and(|next| next.hint == finding.hint) {
            true => String::new(),
            false => format!("\nhint: {}", finding.hint),
        };
        output.warn(&format!("{number}{}{hint}", finding.text));
    }
}

/// A line for each good set, and how it ended.
fn message(exit: Exit, report: &VerifyReport) -> String {
    match exit {
        Exit::Done | Exit::Warnings => {
            // Message 3262 first: scripts look for it.
            let sets = report.sets.iter().map(|set| match report.stored_only {
                true => stored(set),
                false => valid(set),
            });
            let what = match report.stored_only {
                true => format!("Check of the stored bytes of {}", databases(report)),
                false => format!("Verification of {}", databases(report)),
            };
            let closing = closing_line(&what, exit, sizes(report), report.run.elapsed_s);
            sets.collect::<String>() + &closing
        }
        _ => format!("The media are damaged: {} findings.", report.findings.len()),
    }
}

/// The journal's words for what was done.
fn done(report: &VerifyReport, label: Option<&str>) -> String {
    if let [set, rest @ ..] = &report.sets[..]
        && rest.iter().all(|other| other.database == set.database)
    {
        // Several sets have no WAL in common.
        let wal = rest.is_empty().then(|| set.wal.clone());
        ends::is_of(&set.database, &wal.unwrap_or_default());
    }
    let backup = label.map_or(String::new(), |label| format!("backup {label}, "));
    let findings = match report.findings.len() {
        0 => String::new(),
        count => format!(", {count} findings"),
    };
    let figures = figures(sizes(report), report.run.elapsed_s);
    let depth = match report.stored_only {
        true => ", nothing decoded",
        false => "",
    };
    format!("{backup}{figures}{findings}{depth}")
}

/// The plain and the stored bytes of all sets.
fn sizes(report: &VerifyReport) -> (u64, u64) {
    let sets = report.sets.iter();
    let plain_bytes = sets.clone().map(|set| set.plain_bytes).sum();
    (plain_bytes, sets.map(|set| set.stored_bytes).sum())
}

/// The databases of the sets.
fn databases(report: &VerifyReport) -> String {
    let names: BTreeSet<&str> = report
        .sets
        .iter()
        .map(|set| set.database.as_str())
        .collect();
    match names.len() {
        1..=3 => {
            let names: Vec<String> = names.into_iter().map(plain).collect();
            names.join(", ")
        }
        count => format!("{count} databases"),
    }
}

/// With --repair: writes the stripes that parity stood for once more. Nothing is repaired of media with other damage.
fn repair(
    options: &Verify,
    context: &Context,
    chosen: &ReadDevices,
    report: &VerifyReport,
) -> Result<Option<(Vec<Stripe>, String)>, Failure> {
    let degraded: Vec<_> = report.sets.iter().filter(|set| set.degraded).collect();
    if !options.repair || degraded.is_empty() || !report.is_valid() {
        return Ok(None);
    }
    let media = &options.media;
    // The backup that was verified, although a newer one may have ended since.
    let leased = chosen.identities();
    let label = leased.first().map(|own| own.label.to_string());
    let needed = leased.iter().skip(1);
    for base in needed.filter(|base| degraded.iter().any(|set| set.set == base.set)) {
        context.output.warn(&format!(
            "{} is degraded, too, and was not repaired: `longshore repair` with its --label does it",
            base.label
        ));
    }
    let repair = Repair {
        devices: media.devices.clone(),
        database: media.database.clone(),
        target: media.target.clone(),
        label: label.or_else(|| media.label.clone()),
        dry_run: false,
    };
    mend(&repair, context).map(Some)
}

/// Records the run in the history.
fn remember(run: &mut PendingRun, report: &VerifyReport, exit: Exit) {
    let mut names = report.sets.iter().map(|set| &set.database);
    if let Some(name) = names
        .next()
        .filter(|name| names.all(|other| other == *name))
    {
        run.record.database.get_or_insert(name.clone());
    }
    if let [only] = report.sets.as_slice() {
        run.record.set.get_or_insert(only.set);
    }
    run.record.bytes = Some(report.sets.iter().map(|set| set.plain_bytes).sum());
    let finding = report.findings.first();
    run.record.number = finding.and_then(|finding| finding.number);
    let closed = report.stored_only.then_some("nothing was decoded");
    run.ended(
        exit,
        finding.map(|finding| finding.text.as_str()).or(closed),
    );
}

fn record(recorder: &Recorder, chosen: &ReadDevices, report: &VerifyReport) {
    let leased = chosen.identities();
    let label = leased.first().map(|identity| identity.label.as_str());
    let failed = recording::damage(report, recorder.now(), label);
    let mut sets = recording::verified(report, leased, &recorder.now());
    if report.stored_only {
        sets.retain(|found| !found.good);
        if sets.is_empty() && failed.is_none() {
            return;
        }
    }
    // Other backups, and the WAL, were not read.
    let is_good = |own: &&SetIdentity| sets.iter().any(|found| found.good && found.set == own.set);
    let read: Vec<SetIdentity> = leased.iter().filter(is_good).cloned().collect();
    recorder.record(&News {
        good: (failed.is_none() && !report.stored_only).then(|| recorder.good_run(Some(&read))),
        sets,
        failed,
        ..News::default()
    });
}

/// The damage prevents the check of any set.
fn record_no_set(recorder: &Recorder, chosen: &ReadDevices, failure: &Failure) {
    let leased = chosen.identities().first();
    let wrong = |identity| SetResult::new(identity, &recorder.now(), Some(&failure.text));
    let label = leased.map(|identity| identity.label.as_str());
    let run = FailedRun {
        // It was read, and has a result.
        unread: leased.is_none(),
        ..recorder.failed_run(failure, label)
    };
    recorder.record(&News {
        sets: leased.into_iter().map(wrong).collect(),
        failed: Some(run),
        ..News::default()
    });
}

/// The answer if the damage prevents the check of any set.
fn no_set(context: &Context, mut failure: Failure) -> Exit {
    failure.exit = Exit::No;
    if context.output.json {
        let answer = NoSet {
            action: "verify",
            message: "The media are damaged: no set can be read.",
            valid: false,
            sets: [],
            findings: [&failure],
        };
        context.output.json(Exit::No, answer);
    } else {
        context.output.fail(&failure);
    }
    Exit::No
}

/// The same where nothing was decoded: not the words by which scripts know a verified set.
fn stored(set: &VerifiedSet) -> String {
    let more = match set.parent {
        None => "",
        Some(_) => " It is differential; the sets that it needs were not looked at.",
    };
    format!(
        "The stored bytes of the backup set on file {} have their checksums; nothing was decoded.{more}{}\n",
        set.position,
        signed(set)
    )
}

/// By whom a set is signed, and whether that counts here.
fn signed(set: &VerifiedSet) -> String {
    match (&set.signer, set.signature) {
        (Some(signer), Some(word)) => format!(" It is signed by {signer} ({word})."),
        _ => String::new(),
    }
}

/// The certain and the uncertain facts about a set.
fn valid(set: &VerifiedSet) -> String {
    let more = match (set.parent, set.chain_sets) {
        (None, _) => String::new(),
        (Some(_), Some(sets)) => {
            format!(
                " It is differential; so are the {} sets that it needs.",
                sets - 1
            )
        }
        (Some(parent), None) => format!(
            " It is differential; its chain, backup set {parent} and the sets that it needs, was not checked."
        ),
    };
    format!(
        "The backup set on file {} is valid.{more}{}\n",
        set.position,
        signed(set)
    )
}

fn table(report: &VerifyReport) -> Table {
    let mut table = Table::new(&[
        "position", "database", "type", "in", "out", "verified", "remark",
    ]);
    for set in &report.sets {
        table.row(vec![
            set.position.to_string(),
            plain(&set.database),
            match (set.parent, set.chain_sets) {
                (None, _) if set.is_log => "log",
                (None, _) => "full",
                (Some(_), Some(_)) => "diff, with its chain",
                (Some(_), None) => "diff, alone",
            }
            .to_owned(),
            bytes(set.stored_bytes),
            bytes(set.plain_bytes),
            match (set.valid, report.stored_only) {
                (true, false) => "yes",
                (true, true) => "stored bytes",
                (false, _) => "DAMAGED",
            }
            .to_owned(),
            if set.made_damaged {
                "files changed while it was made"
            } else {
                "-"
            }
            .to_owned(),
        ]);
    }
    table
}
