//! `lab figure` and `figures`: published figures made again.
//!
//! Invariants
//! - Each figure is written in three forms with the same facts, and only when it is complete.
//! - A figure that cannot be made keeps no other from being made; the index says why, and the exit code is 1.
//!
//! Leaves to others: the figures themselves (`longshore-studies`), and the other studies (`lab.rs`, `loads.rs`).

use std::path::Path;

use longshore_studies::figures::{self, FiguresMade, Made, Workbench};
use longshore_studies::report::{Report, Section};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::files::write;

use super::answers::{
    SAMPLE_BYTES, SAMPLE_BYTES_QUICK, context_with_accelerators, failure, finish, shown,
};
use super::loads::{own_program, phase};
use super::refusals;
use crate::context::Context;
use crate::options::{FigureOfPaper, FigureOptions, FiguresOfPapers};

const ROUNDS: usize = 3;
/// Where all figures go by default.
const OUT: &str = "figures";

fn made(options: &FigureOptions) -> Result<FiguresMade, Failure> {
    let rounds = options.rounds.map(usize::from);
    Ok(FiguresMade {
        work: options.place(),
        dirs: match options.dir.as_slice() {
            [] => vec![options.place()],
            dirs => dirs.to_vec(),
        },
        sample_bytes: options.size.unwrap_or(match options.quick {
            true => SAMPLE_BYTES_QUICK,
            false => SAMPLE_BYTES,
        }),
        rounds: rounds.unwrap_or(if options.quick { 1 } else { ROUNDS }),
        quick: options.quick,
        program: own_program()?,
        phase: phase(options.phase, options.quick),
        emulated: options.devices.rates(),
    })
}

pub fn one(options: &FigureOfPaper, context: &Context) -> Result<Exit, Failure> {
    let Some(found) = figures::find(&options.id) else {
        return Err(Failure::usage(
            format!("no figure is called {}", options.id),
            "`longshore lab figures --list` has all names",
        ));
    };
    refusals::figure(found.1.id, &options.made)?;
    let spec = made(&options.made)?;
    let run_context = context_with_accelerators(context);
    let step = |line: &str| context.output.remark(&format!("{line}\n"));
    let bench = Workbench::new(&run_context, &spec, &step);
    let report = figures::make(&bench, found).map_err(failure)?;
    let report = finish(report, spec.quick, context);
    if let Some(dir) = &options.made.out {
        write_forms(dir, found.1.id, &report, context)?;
    }
    shown(Exit::Done, &report, context);
    Ok(Exit::Done)
}

/// Writes a report as page, Markdown and JSON.
fn write_forms(dir: &Path, name: &str, report: &Report, context: &Context) -> Result<(), Failure> {
    let storage = &*context.storage;
    let page = report.to_html().map_err(failure)?;
    let json = report.to_json().map_err(failure)?;
    write(&dir.join(format!("{name}.html")), &page, storage)?;
    write(
        &dir.join(format!("{name}.md")),
        &report.to_markdown(),
        storage,
    )?;
    write(&dir.join(format!("{name}.json")), &json, storage)
}

pub fn all(options: &FiguresOfPapers, context: &Context) -> Result<Exit, Failure> {
    if options.list {
        shown(Exit::Done, &figures::list(), context);
        return Ok(Exit::Done);
    }
    let spec = made(&options.made)?;
    let dir = options.made.out.clone().unwrap_or(OUT.into());
    let run_context = context_with_accelerators(context);
    let step = |line: &str| context.output.remark(&format!("{line}\n"));
    let bench = Workbench::new(&run_context, &spec, &step);
    let mut all = Vec::new();
    for (paper, figure) in figures::all() {
        step(figure.id);
        let report = figures::make(&bench, (paper, figure));
        if run_context
            .cancel
            .load(std::sync::atomic::Ordering::Relaxed)
        {
            // A figure that was cancelled is no finding.
            report.map_err(failure)?;
            return Err(Failure::usage(
                "the figures were cancelled",
                "start the command again",
            ));
        }
        let report = report.map(|report| finish(report, spec.quick, context));
        if let Ok(report) = &report {
            write_forms(&dir, figure.id, report, context)?;
        }
        all.push(Made {
            id: figure.id,
            paper: paper.name,
            report: report.map_err(|e| format!("{e:#}")),
        });
    }
    let overview = finish(overview(&all), spec.quick, context);
    write(
        &dir.join("index.html"),
        &figures::index(&all),
        &*context.storage,
    )?;
    write(
        &dir.join("index.md"),
        &overview.to_markdown(),
        &*context.storage,
    )?;
    let json = overview.to_json().map_err(failure)?;
    write(&dir.join("index.json"), &json, &*context.storage)?;
    let exit = match all.iter().all(|one| one.report.is_ok()) {
        true => Exit::Done,
        false => Exit::No,
    };
    shown(exit, &overview, context);
    context
        .output
        .remark(&format!("{}\n", dir.join("index.html").display()));
    Ok(exit)
}

/// The headline of each figure.
fn overview(all: &[Made]) -> Report {
    let section = |one: &Made| {
        let (heading, text) = match &one.report {
            Ok(report) => (report.title.clone(), report.summary.clone()),
            Err(why) => (one.id.to_owned(), format!("Not made: {why}")),
        };
        Section {
            heading,
            prose: vec![text],
            table: None,
            charts: Vec::new(),
        }
    };
    let done = all.iter().filter(|one| one.report.is_ok()).count();
    Report {
        title: "Published figures and ours".into(),
        summary: format!("{done} of {} were made.", all.len()),
        platform: Vec::new(),
        sections: all.iter().map(section).collect(),
    }
}
