//! Compares software, an accelerator and both together: does hybrid mode pay on this machine?
//!
//! Backups of one source in all three modes, alternating, in one process: the accelerator's estimates from one run
//! serve the next, as they do when backups follow one another.
//!
//! Invariants
//! - The first backup of each mode is not counted.
//! - Ratios are taken within a round, so that a drift in the machine's speed affects them little.
//! - With a double in place of the accelerator's library this measures how work is divided, never a device.
//!
//! Leaves to others: dividing the work (`longshore-accel`), timing one backup (`timing.rs`), and the forms of a report.

use std::path::PathBuf;

use anyhow::{Result, bail};
use longshore_codec::Algorithm;
use longshore_pipeline::{
    BackupRequest, DeviceSpec, Offload, OffloadMode, Request, RunContext, SourceSpec,
};

use crate::platform;
use crate::report::{Column, Report, Section, Table, counted};
use crate::scratch::Scratch;
use crate::spread::{RoundResults, median};
use crate::timing::{Timing, take};

const MODES: [(OffloadMode, &str); 3] = [
    (OffloadMode::Software, "software"),
    (OffloadMode::Hardware, "hardware"),
    (OffloadMode::Hybrid, "hybrid"),
];

/// The settings of the measurement.
#[derive(Debug, Clone)]
pub struct OffloadSpec {
    pub name: String,
    pub source: SourceSpec,
    /// Directories for the stripes, used in turn; without any, backups go to NUL.
    pub dirs: Vec<PathBuf>,
    pub stripes: usize,
    /// Counted backups of each mode; at least 1.
    pub rounds: usize,
}

/// One round: a backup in each of [`MODES`].
type Round = [Timing; 3];

/// Makes all backups. `context` must have the accelerators. Calls `on_step` with one line for each round.
pub fn offload(context: &RunContext, spec: &OffloadSpec, on_step: &dyn Fn(&str)) -> Result<Report> {
    let mut accelerators = context.accelerators.iter();
    if !accelerators.any(|a| a.serves(Algorithm::QatDeflate)) {
        bail!("no accelerator here supports QAT_DEFLATE; `longshore doctor` shows why");
    }
    let scratch = match spec.dirs.as_slice() {
        [] => None,
        dirs => Some(Scratch::new(&*context.storage, dirs)?),
    };
    let one = |mode| -> Result<Timing> {
        let devices = match &scratch {
            Some(scratch) => scratch.stripes(spec.stripes),
            None => vec![DeviceSpec::Nul; spec.stripes],
        };
        let mut request = BackupRequest::new(spec.source.clone(), devices);
        request.algorithm = Algorithm::QatDeflate;
        request.offload = Offload {
            mode,
            ..Offload::default()
        };
        let taken = take(context, &Request::Backup(request))?;
        scratch.as_ref().map_or(Ok(()), Scratch::clear)?;
        Ok(taken)
    };
    let all = |round: usize| -> Result<Round> {
        let taken = [one(MODES[0].0)?, one(MODES[1].0)?, one(MODES[2].0)?];
        let speeds = taken.each_ref().map(|t| format!("{:.2}", t.gb_per_s()));
        on_step(&format!("round {round}: {} GB/s", speeds.join(", ")));
        Ok(taken)
    };
    all(0)?;
    // Before the rounds that count, and after the accelerator was tested, because only then its library tells its version.
    let mut platform = platform::record(context, &platform::places(&spec.dirs, [&spec.source]));
    let rounds = (1..=spec.rounds.max(1)).map(all);
    let rounds = rounds.collect::<Result<Vec<Round>>>()?;
    let bytes = rounds[0][0].plain_bytes as f64 / 1e6;
    platform.push((
        "Source".into(),
        format!("{}, {bytes:.1} MB (10^6)", spec.name),
    ));
    Ok(Report {
        title: "Software, accelerator, both".into(),
        summary: finding(&rounds),
        platform,
        sections: vec![section(spec, &rounds)],
    })
}

fn gb_per_s(rounds: &[Round], mode: usize) -> Option<RoundResults> {
    RoundResults::of(rounds.iter().map(|round| round[mode].gb_per_s()))
}

/// Which of software and hardware has the better median.
fn better(rounds: &[Round]) -> usize {
    let speed = |mode| gb_per_s(rounds, mode).map_or(0.0, |s| s.median);
    usize::from(speed(1) > speed(0))
}

/// Hybrid's speed divided by another mode's in the same round.
fn gain(rounds: &[Round], mode: usize) -> Option<RoundResults> {
    RoundResults::of(
        rounds
            .iter()
            .map(|r| r[mode].wall_s / r[2].wall_s.max(1e-9)),
    )
}

fn finding(rounds: &[Round]) -> String {
    let better = better(rounds);
    match gain(rounds, better) {
        Some(gain) => format!(
            "Hybrid is {:.2} times as fast as {}, the better of both alone ({}).",
            gain.median,
            MODES[better].1,
            gain.range(2)
        ),
        None => String::new(),
    }
}

fn section(spec: &OffloadSpec, rounds: &[Round]) -> Section {
    let row = |(mode, (_, name)): (usize, &(OffloadMode, &str))| {
        let of = |value: &dyn Fn(&Timing) -> f64| median(rounds.iter().map(|r| value(&r[mode])));
        let speed = gb_per_s(rounds, mode);
        let gained = gain(rounds, mode).filter(|_| mode != 2);
        vec![
            (*name).into(),
            speed.map(|s| s.median).into(),
            speed.map(|s| s.range(2)).into(),
            of(&Timing::cpu_s_per_gb).into(),
            of(&|t| 100.0 * t.accelerator_share()).into(),
            gained.map(|g| g.median).into(),
            gained.map(|g| g.range(2)).into(),
        ]
    };
    Section {
        heading: match spec.dirs.len() {
            0 => "Backups to NUL".into(),
            dirs => format!("Backups to files in {}", counted(dirs, "directory")),
        },
        prose: vec![format!(
            "QAT_DEFLATE at level LOW, {}, source warm; medians of {}, the modes alternating, after one that is not \
             counted. CPU is this process's user and system time, with that of the accelerator's library; the last \
             two columns are hybrid's speed by that of the row, round by round. GB is 10^9 bytes.",
            counted(spec.stripes, "stripe"),
            counted(rounds.len(), "round")
        )],
        table: Some(Table {
            columns: vec![
                Column::text("Mode"),
                Column::number("Speed", "GB/s", 2),
                Column::text("min–max"),
                Column::number("CPU", "s/GB", 3),
                Column::number("By the accelerator", "%", 0),
                Column::number("Hybrid gains", "×", 2),
                Column::text("min–max"),
            ],
            row_values: MODES.iter().enumerate().map(row).collect(),
        }),
        charts: Vec::new(),
    }
}
