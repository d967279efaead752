//! Compares algorithms: time, CPU, ratio and speed-up for each database.
//!
//! Invariants
//! - Backups of all kinds alternate, and the median counts, so that a disturbance spreads over all of them.
//! - Speed-up is over MS_XPRESS at its default level, as in the published results.
//! - Each backup is removed before the next.
//!
//! Leaves to others: timing one backup (`timing.rs`), what to take (`advice.rs`), and the forms of a report.

use std::path::PathBuf;

use anyhow::Result;
use longshore_codec::{Algorithm, Level};
use longshore_pipeline::{BackupRequest, DeviceSpec, Request, RunContext, SourceSpec};

use crate::advice::{self, Advice, Conditions, Measured};
use crate::platform;
use crate::report::{
    At, Axis, Chart, Column, Positions, Report, ReportFormat, Section, Series, Table, counted,
};
use crate::scratch::Scratch;
use crate::spread::{RoundResults, median};
use crate::timing::{Timing, take};

/// The compared algorithms and levels; MS_XPRESS is the baseline.
const CANDIDATES: [(Algorithm, Level); 10] = [
    (Algorithm::None, Level::Low),
    (Algorithm::MsXpress, Level::Low),
    (Algorithm::QatDeflate, Level::Low),
    (Algorithm::QatDeflate, Level::Medium),
    // The level designed to be both faster and smaller than the baseline.
    (Algorithm::QatDeflate, Level::Number(4)),
    (Algorithm::QatDeflate, Level::High),
    (Algorithm::Zstd, Level::Low),
    (Algorithm::Zstd, Level::Medium),
    (Algorithm::Lz4, Level::Low),
    (Algorithm::Pages, Level::Low),
];

const BASELINE: (Algorithm, Level) = CANDIDATES[1];

/// The settings of the comparison.
#[derive(Debug, Clone)]
pub struct CompareSpec {
    /// Name and source of each database.
    pub databases: Vec<(String, SourceSpec)>,
    /// Directories for stripes, used in turn; without any, backups go to NUL.
    pub dirs: Vec<PathBuf>,
    pub stripes: usize,
    /// Backups of each kind, alternating; at least 1.
    pub rounds: usize,
}

/// One database's backups: for each candidate, its rounds.
type Rounds = Vec<Vec<Timing>>;

/// Makes all backups, and removes each before the next. Calls `on_step` with one line for each kind.
pub fn compare(context: &RunContext, spec: &CompareSpec, on_step: &dyn Fn(&str)) -> Result<Report> {
    let scratch = match spec.dirs.as_slice() {
        [] => None,
        dirs => Some(Scratch::new(&*context.storage, dirs)?),
    };
    let mut platform = platform::record(context, &spec.dirs);
    let conditions = Conditions {
        rounds: spec.rounds.max(1),
        is_busy: platform::busy_percent(&platform).is_some(),
        is_nul: spec.dirs.is_empty(),
    };
    let mut sections = Vec::new();
    let mut summary = Vec::new();
    for (name, source) in &spec.databases {
        let mut rounds: Rounds = vec![Vec::new(); CANDIDATES.len()];
        for round in 1..=spec.rounds.max(1) {
            for (&(algorithm, level), taken) in CANDIDATES.iter().zip(&mut rounds) {
                let devices = match &scratch {
                    Some(scratch) => scratch.stripes(spec.stripes),
                    None => vec![DeviceSpec::Nul; spec.stripes],
                };
                let mut request = BackupRequest::new(source.clone(), devices);
                (request.algorithm, request.level) = (algorithm, level);
                let one = take(context, &Request::Backup(request))?;
                on_step(&format!(
                    "{name}, round {round}: {} {:.2} s, ratio {:.2}",
                    label(algorithm, level),
                    one.wall_s,
                    one.ratio()
                ));
                taken.push(one);
                if let Some(scratch) = &scratch {
                    scratch.clear()?;
                }
            }
        }
        let bytes = rounds[0].first().map_or(0, |t| t.plain_bytes);
        platform.push((
            format!("Database {name}"),
            format!(
                "{}, {:.1} MB (10^6)",
                platform::name_of(source),
                bytes as f64 / 1e6
            ),
        ));
        summary.extend(finding(name, &rounds, conditions));
        sections.push(section(name, spec, &rounds, conditions));
    }
    Ok(Report {
        title: "Algorithms compared".into(),
        summary: summary.join(" "),
        platform,
        sections,
    })
}

fn label(algorithm: Algorithm, level: Level) -> String {
    match algorithm {
        Algorithm::None => algorithm.to_string(),
        _ => format!("{algorithm} {level}"),
    }
}

fn time(taken: &[Timing]) -> Option<f64> {
    median(taken.iter().map(|t| t.wall_s))
}

fn baseline(rounds: &Rounds) -> &[Timing] {
    let at = CANDIDATES.iter().position(|c| *c == BASELINE);
    at.map_or(&[], |at| rounds[at].as_slice())
}

/// How many times faster than the baseline.
fn speed_up(taken: &[Timing], rounds: &Rounds) -> Option<f64> {
    Some(time(baseline(rounds))? / time(taken)?.max(1e-9))
}

/// One sentence for a database: what to take, and what is better than SQL Server's default.
fn finding(name: &str, rounds: &Rounds, conditions: Conditions) -> Option<String> {
    let base = baseline(rounds).first()?.stored_bytes;
    let better = CANDIDATES
        .iter()
        .zip(rounds)
        .filter(|((algorithm, _), taken)| {
            *algorithm == Algorithm::QatDeflate
                && taken.first().is_some_and(|t| t.stored_bytes < base)
                && speed_up(taken, rounds).is_some_and(|up| up > 1.0)
        });
    let better: Vec<String> = better
        .filter_map(|((algorithm, level), taken)| {
            let up = speed_up(taken, rounds)?;
            Some(format!("{} ({up:.2} ×)", label(*algorithm, *level)))
        })
        .collect();
    let advice = Advice::of(&measured(rounds))?.headline(conditions);
    Some(match better.as_slice() {
        [] => format!(
            "{name}: {advice}; no level of QAT_DEFLATE is both faster and smaller than MS_XPRESS."
        ),
        some => format!(
            "{name}: {advice}; faster and smaller than MS_XPRESS: {}.",
            some.join(", ")
        ),
    })
}

/// What is quick, and what is small: near the lower left corner a backup is both.
fn time_and_size(rounds: &Rounds) -> Chart {
    let mut points: Vec<(f64, String, f64)> = CANDIDATES
        .iter()
        .zip(rounds)
        .filter_map(|(&(algorithm, level), taken)| {
            let stored = taken.first()?.stored_bytes as f64 / 1e6;
            Some((time(taken)?, label(algorithm, level), stored))
        })
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let series = points.iter().enumerate().map(|(n, (_, name, stored))| {
        let mut values = vec![None; points.len()];
        values[n] = Some(*stored);
        Series::new(name, values)
    });
    Chart {
        title: "Time and size".into(),
        form: ReportFormat::Scatter,
        x: Positions {
            label: "Elapsed".into(),
            unit: "s".into(),
            at: At::Numbers(points.iter().map(|point| point.0).collect()),
        },
        y: Axis::new("Stored", "MB"),
        y_right: None,
        series: series.collect(),
    }
}

/// The candidates that were measured, as the advice needs them.
fn measured(rounds: &Rounds) -> Vec<Measured> {
    let all = CANDIDATES.iter().zip(rounds);
    all.filter_map(|(&(algorithm, level), taken)| {
        Some(Measured {
            name: label(algorithm, level),
            compresses: algorithm != Algorithm::None,
            time: RoundResults::of(taken.iter().map(|t| t.wall_s))?,
            stored_bytes: taken.first()?.stored_bytes,
        })
    })
    .collect()
}

fn section(name: &str, spec: &CompareSpec, rounds: &Rounds, conditions: Conditions) -> Section {
    let measured = measured(rounds);
    let row = |(&(algorithm, level), taken): (&(Algorithm, Level), &Vec<Timing>)| {
        vec![
            label(algorithm, level).into(),
            time(taken).into(),
            RoundResults::of(taken.iter().map(|t| t.wall_s))
                .map(|s| s.range(2))
                .into(),
            median(taken.iter().map(Timing::mb_per_s)).into(),
            median(taken.iter().map(|t| t.cpu_s)).into(),
            median(taken.iter().filter_map(|t| t.system_cpu_percent)).into(),
            median(taken.iter().map(Timing::ratio)).into(),
            speed_up(taken, rounds).into(),
        ]
    };
    let table = Table {
        columns: vec![
            Column::text("Algorithm"),
            Column::number("Elapsed", "s", 2),
            Column::text("min–max"),
            Column::number("Throughput", "MB/s", 0),
            Column::number("CPU time", "s", 2),
            Column::number("CPU", "% of system", 1),
            Column::number("Ratio", "", 3),
            Column::number("Speed-up", "MS_XPRESS = 1", 2),
        ],
        row_values: CANDIDATES.iter().zip(rounds).map(row).collect(),
    };
    let bars = |title: &str, axis: Axis, value: &dyn Fn(&Vec<Timing>) -> Option<f64>| Chart {
        title: title.into(),
        form: ReportFormat::Bar,
        x: Positions {
            label: "Algorithm".into(),
            unit: String::new(),
            at: At::Names(CANDIDATES.iter().map(|&(a, l)| label(a, l)).collect()),
        },
        y: axis,
        y_right: None,
        series: vec![Series::new(title, rounds.iter().map(value).collect())],
    };
    let target = match spec.dirs.len() {
        0 => "to NUL".to_owned(),
        1 => "in one directory".to_owned(),
        dirs => format!("in {dirs} directories"),
    };
    let method = format!(
        "{} {target}; medians of {}, alternating. MB/s is SQL Server's figure: 2^20 bytes of \
         the database per second. CPU is the whole machine's, CPU time this program's.",
        counted(spec.stripes, "stripe"),
        counted(spec.rounds, "round")
    );
    Section {
        heading: name.to_owned(),
        prose: [
            Advice::of(&measured).map(|advice| advice.paragraph(conditions)),
            advice::unbeaten(&measured),
            Some(method),
        ]
        .into_iter()
        .flatten()
        .collect(),
        table: Some(table),
        charts: vec![
            time_and_size(rounds),
            bars("Backup time", Axis::new("Elapsed", "s"), &|t| time(t)),
            bars("CPU time", Axis::new("CPU time", "s"), &|t| {
                median(t.iter().map(|t| t.cpu_s))
            }),
            bars("Compression ratio", Axis::new("Ratio", ""), &|t| {
                median(t.iter().map(Timing::ratio))
            }),
            bars("Speed-up over MS_XPRESS", Axis::new("Speed-up", ""), &|t| {
                speed_up(t, rounds)
            }),
        ],
    }
}
