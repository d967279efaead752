//! The answers of all studies: reports with their cautions, in the forms asked for, and failures.
//!
//! Invariants
//! - Every report names the command, its end, and what speaks against quoting it.
//! - Studies keep no history.
//!
//! Leaves to others: the studies (`lab.rs`, `figures.rs`).

use longshore_accel::dispatch::InService;
use longshore_pipeline::{Error, RunContext};
use longshore_studies::report::Report;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::files::write;
use longshore_terminal::interrupt;
use longshore_terminal::numbers;
use longshore_terminal::output::moment;
use longshore_terminal::text::command_line;
use longshore_terminal::version;
use serde::Serialize;

use crate::context::Context;
use crate::options::OutputOptions;

pub const SAMPLE_BYTES: u64 = 1 << 30;
pub const SAMPLE_BYTES_QUICK: u64 = 24 << 20;

/// Studies keep no history: their backups are gone when they end. From here on Ctrl-C ends a run gently.
pub fn run_context(context: &Context) -> RunContext {
    RunContext {
        keyring: Default::default(),
        storage: context.storage.clone(),
        clock: context.clock.clone(),
        catalog: None,
        accelerators: Vec::new(),
        cancel: interrupt::cancel_flag(),
    }
}

pub fn context_with_accelerators(context: &Context) -> RunContext {
    RunContext {
        keyring: Default::default(),
        accelerators: InService::all(),
        ..run_context(context)
    }
}

#[derive(Serialize)]
struct Reported<'a> {
    action: &'static str,
    #[serde(flatten)]
    report: &'a Report,
}

/// Completes a report: its cautions, the release, the command, the table of the machine.
pub fn finish(mut report: Report, quick: bool, context: &Context) -> Report {
    let now_us = context.clock.wall_ns() / 1000;
    report.caution(quick);
    report.name_release(version::release());
    let facts = [
        ("Command", command_line(std::env::args_os().skip(1))),
        ("Ended", moment(now_us) + " UTC"),
    ];
    let facts = facts.map(|(name, value)| (name.to_owned(), value));
    report.platform.extend(facts);
    report.tell_parts_last();
    report
}

/// Shows a report and writes it to the requested files.
pub fn answer(
    exit: Exit,
    report: Report,
    quick: bool,
    written: &OutputOptions,
    context: &Context,
) -> Result<Exit, Failure> {
    let report = finish(report, quick, context);
    if let Some(path) = &written.html {
        write(path, &report.to_html().map_err(failure)?, &*context.storage)?;
    }
    if let Some(path) = &written.markdown {
        write(path, &report.to_markdown(), &*context.storage)?;
    }
    shown(exit, &report, context);
    Ok(exit)
}

/// Shows a report.
pub fn shown(exit: Exit, report: &Report, context: &Context) {
    context.output.say(&report.to_text());
    let action = "lab_report";
    context.output.json(exit, Reported { action, report });
}

/// The pipeline's errors keep their numbers. Of the lab's own errors, an I/O error exits with the target's code; every
/// other one is a usage error.
pub fn failure(error: anyhow::Error) -> Failure {
    let error = match error.downcast::<Error>() {
        Ok(error) => return error.into(),
        Err(error) => error,
    };
    let (exit, number) = match error.chain().any(|e| e.is::<std::io::Error>()) {
        true => (Exit::Target, numbers::UNWRITTEN),
        false => (Exit::Usage, numbers::REQUEST),
    };
    let hint = "`longshore lab --help` explains the options";
    Failure {
        causes: error.chain().skip(1).map(ToString::to_string).collect(),
        ..Failure::new(exit, number, error.to_string(), hint)
    }
}
