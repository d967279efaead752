//! BUFFERCOUNT × MAXTRANSFERSIZE, to NUL and to a file: the throughput of each pair, as a table and curves.
//!
//! Invariants
//! - Each round makes one backup of every pair, so a disturbance affects all of them.
//! - BUFFERCOUNT is on the horizontal axis, with the default as a point at the number that the plan chose.
//! - Each file is removed before the next backup.
//!
//! Leaves to others: the other sweeps (`stripes.rs`, `layouts.rs`), and timing one backup (`timing.rs`).

use std::path::PathBuf;

use anyhow::Result;
use longshore_codec::Algorithm;
use longshore_pipeline::{BackupRequest, DeviceSpec, Request, RunContext, SourceSpec};

use crate::curves::{CurvePlace, over_buffers, size_told};
use crate::limits;
use crate::platform;
use crate::report::{Axis, Chart, Column, Report, Section, Table, counted};
use crate::scratch::Scratch;
use crate::spread::{RoundResults, caution, median};
use crate::timing::{Timing, take};

/// The settings of the sweep.
#[derive(Debug, Clone)]
pub struct BuffersSpec {
    pub source: SourceSpec,
    pub algorithm: Algorithm,
    /// BUFFERCOUNT; `None` is the default.
    pub counts: Vec<Option<usize>>,
    /// MAXTRANSFERSIZE, ascending.
    pub bytes: Vec<usize>,
    /// Backups of each kind, alternating; at least 1.
    pub rounds: usize,
    /// Takes the file of the backups that do not go to NUL; `None`: all go to NUL.
    pub dir: Option<PathBuf>,
}

impl BuffersSpec {
    /// The grid: powers of two around the defaults.
    pub fn new(source: SourceSpec) -> BuffersSpec {
        let counts = [1, 2, 4, 8, 16, 32, 64].map(Some);
        BuffersSpec {
            source,
            algorithm: Algorithm::QatDeflate,
            counts: std::iter::once(None).chain(counts).collect(),
            bytes: vec![64 << 10, 256 << 10, 1 << 20, 4 << 20],
            rounds: 3,
            dir: None,
        }
    }
}

const NUL: &str = "NUL";
const FILE: &str = "one file";

struct Cellful {
    target: &'static str,
    /// `None`: the default.
    asked: Option<usize>,
    bytes: usize,
    taken: Vec<Timing>,
}

impl Cellful {
    fn rate(&self) -> Option<RoundResults> {
        RoundResults::of(self.taken.iter().map(Timing::mb_per_s))
    }

    fn buffers(&self) -> usize {
        self.taken.first().map_or(0, |t| t.buffers.0)
    }

    fn limit(&self) -> Option<String> {
        limits::of_rounds(self.taken.iter().map(|t| t.limit))
    }
}

/// Makes all backups. Calls `on_step` with one line for each round.
pub fn buffers(context: &RunContext, spec: &BuffersSpec, on_step: &dyn Fn(&str)) -> Result<Report> {
    let dirs: Vec<PathBuf> = spec.dir.iter().cloned().collect();
    let scratch = match dirs.as_slice() {
        [] => None,
        dirs => Some(Scratch::new(&*context.storage, dirs)?),
    };
    // The directory exists from here on: before, its file system would not be known.
    let platform = platform::record(context, &platform::places(&dirs, [&spec.source]));
    let targets = [Some(NUL), scratch.as_ref().map(|_| FILE)];
    let mut cells = Vec::new();
    for target in targets.into_iter().flatten() {
        for &bytes in &spec.bytes {
            cells.extend(spec.counts.iter().map(|&asked| Cellful {
                target,
                asked,
                bytes,
                taken: Vec::new(),
            }));
        }
    }
    let mut plain_bytes = 0;
    for round in 1..=spec.rounds.max(1) {
        for cell in &mut cells {
            let file = scratch.as_ref().filter(|_| cell.target == FILE);
            let devices = match file {
                Some(scratch) => {
                    scratch.settle()?;
                    scratch.stripes(1)
                }
                None => vec![DeviceSpec::Nul],
            };
            let mut request = BackupRequest::new(spec.source.clone(), devices);
            request.algorithm = spec.algorithm;
            request.tuning.buffer_count = cell.asked;
            request.tuning.buffer_bytes = Some(cell.bytes);
            let taken = take(context, &Request::Backup(request))?;
            plain_bytes = taken.plain_bytes;
            cell.taken.push(taken);
            if let Some(scratch) = file {
                scratch.clear()?;
            }
        }
        on_step(&format!("round {round} of {}", spec.rounds));
    }
    Ok(report(spec, platform, plain_bytes, &cells))
}

/// The fastest backup to each target.
fn summary(spec: &BuffersSpec, cells: &[Cellful]) -> String {
    let best = |target: &str| {
        let own = cells.iter().filter(|c| c.target == target);
        let rated = own.filter_map(|c| Some((c, c.rate()?.median)));
        let (c, rate) = rated.max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(format!(
            "The fastest backup to {target} with {}: {rate:.0} MB/s with BUFFERCOUNT {}{} and MAXTRANSFERSIZE {}; the limit \
             there: {}.",
            spec.algorithm,
            c.buffers(),
            if c.asked.is_none() { " (default)" } else { "" },
            size_told(c.bytes),
            c.limit()?
        ))
    };
    let mut told: Vec<String> = [NUL, FILE].into_iter().filter_map(best).collect();
    if !told.is_empty() {
        told.splice(0..0, caution(spec.rounds.max(1)));
    }
    told.join(" ")
}

/// The limits that held along each curve.
fn verdict(spec: &BuffersSpec, cells: &[Cellful]) -> Option<String> {
    let mut told = Vec::new();
    for target in [NUL, FILE] {
        for &bytes in &spec.bytes {
            let own = cells
                .iter()
                .filter(|c| c.target == target && c.bytes == bytes);
            let held = own.filter_map(|c| Some((c.buffers(), c.limit()?)));
            let held: Vec<(usize, String)> = held.collect();
            if !held.is_empty() {
                told.push((format!("to {target} with {}", size_told(bytes)), held));
            }
        }
    }
    limits::over_curves(&told)
}

fn curves(
    cells: &[Cellful],
    title: &str,
    y: &Axis,
    value: &dyn Fn(&Cellful) -> Option<f64>,
) -> Vec<Chart> {
    let chart = |target: &str| {
        let own = cells.iter().filter(|c| c.target == target);
        let places: Vec<CurvePlace> = own
            .map(|c| CurvePlace {
                curve: size_told(c.bytes),
                buffers: c.buffers(),
                is_default: c.asked.is_none(),
                value: value(c),
            })
            .collect();
        let title = format!("{title} to {target}");
        (!places.is_empty()).then(|| over_buffers(&title, y.clone(), &places))
    };
    [NUL, FILE].into_iter().filter_map(chart).collect()
}

fn report(
    spec: &BuffersSpec,
    mut platform: Vec<(String, String)>,
    plain_bytes: u64,
    cells: &[Cellful],
) -> Report {
    platform.push(("Source".into(), platform::name_of(&spec.source)));
    platform.push((
        "Size".into(),
        format!("{:.1} MB (10^6)", plain_bytes as f64 / 1e6),
    ));
    let cpu_time = |c: &Cellful| median(c.taken.iter().map(Timing::cpu_s_per_gb));
    let rate = |c: &Cellful| c.rate().map(|r| r.median);
    let row = |c: &Cellful| {
        vec![
            c.target.into(),
            size_told(c.bytes).into(),
            (c.buffers() as f64).into(),
            if c.asked.is_none() {
                "default"
            } else {
                "asked"
            }
            .into(),
            rate(c).into(),
            c.rate().map(|r| r.range(0)).into(),
            cpu_time(c).into(),
            median(c.taken.iter().filter_map(|t| t.system_cpu_percent)).into(),
            c.limit().into(),
        ]
    };
    let table = Table {
        columns: vec![
            Column::text("Target"),
            Column::text("MAXTRANSFERSIZE"),
            Column::number("BUFFERCOUNT", "", 0),
            Column::text("Count"),
            Column::number("Throughput", "MB/s", 0),
            Column::text("min–max"),
            Column::number("CPU time", "s/GB", 3),
            Column::number("CPU", "% of system", 1),
            Column::text("Limited by"),
        ],
        row_values: cells.iter().map(row).collect(),
    };
    let mut charts = curves(cells, "Throughput", &Axis::new("Throughput", "MB/s"), &rate);
    charts.extend(curves(
        cells,
        "CPU time",
        &Axis::new("CPU time", "s/GB"),
        &cpu_time,
    ));
    let section = Section {
        heading: "Buffers".into(),
        prose: std::iter::once(
            format!(
                "Backups with {}; medians of {}. BUFFERCOUNT bounds memory: each buffer is MAXTRANSFERSIZE for input and as much \
                 again for output. With fewer buffers than workers, fewer workers run. The larger points are the defaults, at \
                 the number that the plan chose. MB/s is SQL Server's figure: 2^20 bytes of the database per second.",
                spec.algorithm,
                counted(spec.rounds, "round")
            ),
        )
        .chain(verdict(spec, cells))
        .collect(),
        table: Some(table),
        charts,
    };
    Report {
        title: "Buffers".into(),
        summary: summary(spec, cells),
        platform,
        sections: vec![section],
    }
}

#[cfg(test)]
mod tests {
    use longshore_pipeline::Limit::{self, Cpu, Source, Target};

    use super::*;
    use crate::timing::tests::made_up;

    fn spec() -> BuffersSpec {
        BuffersSpec::new(SourceSpec::Files(vec!["x".into()]))
    }

    /// Backups with 1 MiB, a round for each limit.
    fn cell(target: &'static str, asked: Option<usize>, limits: &[Limit]) -> Cellful {
        let round = |limit: &Limit| Timing {
            limit: *limit,
            buffers: (asked.unwrap_or(20), 1 << 20),
            ..made_up(1.0, 100)
        };
        Cellful {
            target,
            asked,
            bytes: 1 << 20,
            taken: limits.iter().map(round).collect(),
        }
    }

    #[test]
    fn the_verdict_names_the_limit_of_each_curve_and_rounds_that_differ() {
        let cells = [
            cell(NUL, None, &[Cpu, Cpu, Cpu]),
            cell(NUL, Some(1), &[Source, Source, Source]),
            cell(NUL, Some(8), &[Cpu, Source, Cpu]),
            cell(FILE, Some(1), &[Target, Target, Target]),
        ];
        assert_eq!(
            verdict(&spec(), &cells).unwrap(),
            "Which limit held at which BUFFERCOUNT: to NUL with 1 MiB: the source (reading) at 1, mixed: the CPUs in 2, the \
             source in 1 at 8, the CPUs (compression and checksums) at 20; to one file with 1 MiB: the target (writing) at 1."
        );
        let alike = [cell(NUL, None, &[Cpu]), cell(FILE, Some(4), &[Cpu])];
        assert_eq!(
            verdict(&spec(), &alike).unwrap(),
            "Which limit held at which BUFFERCOUNT: everywhere the CPUs (compression and checksums)."
        );
    }

    #[test]
    fn where_nothing_was_measured_the_report_shows_no_verdict() {
        let report = report(&spec(), Vec::new(), 0, &[cell(NUL, None, &[])]);
        assert_eq!(report.sections[0].prose.len(), 1, "{report:?}");
        assert!(!report.to_markdown().contains("Which limit held"));
        assert_eq!(report.summary, "");
    }

    #[test]
    fn the_headline_of_few_rounds_begins_with_them() {
        let cells = [cell(NUL, Some(8), &[Cpu])];
        let told = |rounds| summary(&BuffersSpec { rounds, ..spec() }, &cells);
        assert!(told(3).starts_with("The fastest backup to NUL with QAT_DEFLATE"));
        assert!(told(2).starts_with("Only 2 rounds, so chance may decide. The fastest"));
    }
}
