//! BUFFERCOUNT × MAXTRANSFERSIZE to NUL: the throughput of each pair, as a table and a chart.
//!
//! Invariants
//! - Each round makes one backup of every pair, so a disturbance affects all of them.
//! - Backups go to NUL: nothing is written to a disk.
//!
//! Leaves to others: the other sweep (`stripes.rs`), and timing one backup (`timing.rs`).

use anyhow::Result;
use longshore_codec::Algorithm;
use longshore_pipeline::{BackupRequest, DeviceSpec, Request, RunContext, SourceSpec};

use crate::platform;
use crate::report::{
    At, Axis, Chart, Column, Positions, Report, ReportFormat, Section, Series, Table, counted,
};
use crate::spread::{RoundResults, median};
use crate::timing::{Timing, take};

/// The settings of the sweep.
#[derive(Debug, Clone)]
pub struct BuffersSpec {
    pub source: SourceSpec,
    pub algorithm: Algorithm,
    /// BUFFERCOUNT, ascending.
    pub counts: Vec<usize>,
    /// MAXTRANSFERSIZE, ascending.
    pub bytes: Vec<usize>,
    /// Backups of each kind, alternating; at least 1.
    pub rounds: usize,
}

impl BuffersSpec {
    /// The grid: powers of two around the defaults.
    pub fn new(source: SourceSpec) -> BuffersSpec {
        BuffersSpec {
            source,
            algorithm: Algorithm::QatDeflate,
            counts: vec![1, 2, 4, 8, 16, 32, 64],
            bytes: (16..=22).map(|power| 1 << power).collect(),
            rounds: 3,
        }
    }
}

struct Cellful {
    count: usize,
    bytes: usize,
    taken: Vec<Timing>,
}

impl Cellful {
    fn rate(&self) -> Option<RoundResults> {
        RoundResults::of(self.taken.iter().map(Timing::mb_per_s))
    }
}

/// Makes all backups. Calls `on_step` with one line for each round.
pub fn buffers(context: &RunContext, spec: &BuffersSpec, on_step: &dyn Fn(&str)) -> Result<Report> {
    let platform = platform::record(context, &[]);
    let grid = spec.counts.iter();
    let grid = grid.flat_map(|&count| spec.bytes.iter().map(move |&bytes| (count, bytes)));
    let mut cells: Vec<Cellful> = grid
        .map(|(count, bytes)| Cellful {
            count,
            bytes,
            taken: Vec::new(),
        })
        .collect();
    let mut plain_bytes = 0;
    for round in 1..=spec.rounds.max(1) {
        for cell in &mut cells {
            let mut request = BackupRequest::new(spec.source.clone(), vec![DeviceSpec::Nul]);
            request.algorithm = spec.algorithm;
            request.tuning.buffer_count = Some(cell.count);
            request.tuning.buffer_bytes = Some(cell.bytes);
            let taken = take(context, &Request::Backup(request))?;
            plain_bytes = taken.plain_bytes;
            cell.taken.push(taken);
        }
        on_step(&format!("round {round} of {}", spec.rounds));
    }
    Ok(report(spec, platform, plain_bytes, &cells))
}

fn kib(bytes: usize) -> String {
    match bytes >> 10 {
        kib if kib >= 1024 && kib.is_multiple_of(1024) => format!("{} MiB", kib >> 10),
        kib => format!("{kib} KiB"),
    }
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
    let best = cells
        .iter()
        .filter_map(|c| Some((c, c.rate()?.median)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let summary = best.map_or_else(String::new, |(c, rate)| {
        format!(
            "The fastest backup to NUL with {}: {rate:.0} MB/s with BUFFERCOUNT {} and MAXTRANSFERSIZE {}.",
            spec.algorithm,
            c.count,
            kib(c.bytes)
        )
    });
    let row = |c: &Cellful| {
        vec![
            (c.count as f64).into(),
            kib(c.bytes).into(),
            c.rate().map(|r| r.median).into(),
            c.rate().map(|r| r.range(0)).into(),
            median(c.taken.iter().map(Timing::cpu_s_per_gb)).into(),
            median(c.taken.iter().filter_map(|t| t.system_cpu_percent)).into(),
        ]
    };
    let table = Table {
        columns: vec![
            Column::number("BUFFERCOUNT", "", 0),
            Column::text("MAXTRANSFERSIZE"),
            Column::number("Throughput", "MB/s", 0),
            Column::text("min–max"),
            Column::number("CPU time", "s/GB", 3),
            Column::number("CPU", "% of system", 1),
        ],
        row_values: cells.iter().map(row).collect(),
    };
    let chart = |title: &str, y: Axis, value: &dyn Fn(&Cellful) -> Option<f64>| {
        let line = |&count: &usize| {
            let of_count = cells.iter().filter(|c| c.count == count);
            Series::new(&format!("{count} buffers"), of_count.map(value).collect())
        };
        Chart {
            title: title.into(),
            form: ReportFormat::Line,
            x: Positions {
                label: "MAXTRANSFERSIZE".into(),
                unit: String::new(),
                at: At::Names(spec.bytes.iter().map(|&b| kib(b)).collect()),
            },
            y,
            y_right: None,
            series: spec.counts.iter().map(line).collect(),
        }
    };
    let section = Section {
        heading: "Buffers".into(),
        prose: vec![format!(
            "Backups to NUL with {}; medians of {}. BUFFERCOUNT bounds memory: each buffer is \
             MAXTRANSFERSIZE for input and as much again for output. With fewer buffers than workers, fewer \
             workers run. MB/s is SQL Server's figure: 2^20 bytes of the database per second.",
            spec.algorithm,
            counted(spec.rounds, "round")
        )],
        table: Some(table),
        charts: vec![
            chart("Throughput to NUL", Axis::new("Throughput", "MB/s"), &|c| {
                c.rate().map(|r| r.median)
            }),
            chart("CPU time", Axis::new("CPU time", "s/GB"), &|c| {
                median(c.taken.iter().map(Timing::cpu_s_per_gb))
            }),
        ],
    };
    Report {
        title: "Buffers".into(),
        summary,
        platform,
        sections: vec![section],
    }
}
