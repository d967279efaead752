//! `lab`: the lab does the work; this shows it.

use longshore_lab::sample::{Progress, SampleReport, SampleSpec, sample as build};
use serde::Serialize;

use super::Context;
use crate::failure::{Exit, Failure};
use crate::options::{Lab, LabAction, Sample};
use crate::output::{Table, bytes};
use crate::progress::Steps;

pub fn run(options: &Lab, context: &Context) -> Result<Exit, Failure> {
    match &options.action {
        LabAction::Sample(options) => sample(options, context),
    }
}

/// The lab's errors carry no number: the outermost text, then its causes.
fn failure(error: &anyhow::Error) -> Failure {
    Failure {
        exit: Exit::Usage,
        number: None,
        text: error.to_string(),
        causes: error.chain().skip(1).map(ToString::to_string).collect(),
        hint: None,
    }
}

#[derive(Serialize)]
struct SampleAnswer<'a> {
    action: &'static str,
    bytes: u64,
    rows: u64,
    #[serde(flatten)]
    report: &'a SampleReport,
}

fn sample(options: &Sample, context: &Context) -> Result<Exit, Failure> {
    let spec = SampleSpec {
        kind: options.kind.into(),
        size_bytes: options.size,
        seed: options.seed,
        files: options.files.map_or(options.dir.len().max(1), usize::from),
        dirs: options.dir.clone(),
        path: options.file.clone(),
        wal: options.wal,
        replace: options.replace,
    };
    let steps = Steps::new(context.output);
    let report = build(&spec, &|progress: Progress| {
        let name = progress.path.display();
        steps.show(
            &format!("{name}: {}", progress.step),
            progress.bytes_done,
            progress.bytes_total,
        );
    });
    steps.end();
    let report = report.map_err(|e| failure(&e))?;
    let mut table = Table::new(&["file", "size", "rows"]);
    for file in &report.files {
        table.row(vec![
            file.path.display().to_string(),
            bytes(file.bytes),
            file.rows.to_string(),
        ]);
    }
    context.output.say(&table.to_string());
    context.output.json(
        Exit::Done,
        SampleAnswer {
            action: "lab_sample",
            bytes: report.bytes(),
            rows: report.rows(),
            report: &report,
        },
    );
    Ok(Exit::Done)
}
