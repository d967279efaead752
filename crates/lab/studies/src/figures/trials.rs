//! Backups that are compared: made in turns, with the source read from its disk.
//!
//! Invariants
//! - All trials of a figure alternate, in the published order, so that a disturbance affects all of them.
//! - The source leaves the page cache before each backup: SQL Server reads past the cache, too. How much was really read
//!   from the disk is told.
//! - A backup counts as hardware only if an accelerator compressed nine tenths of it.
//!
//! Leaves to others: timing (`timing.rs`), and what a figure makes of it (`papers`).

use anyhow::Result;
use longshore_codec::{Algorithm, Level};
use longshore_pipeline::{BackupRequest, DeviceSpec, OffloadMode, Request, SourceSpec, Tuning};

use super::measured::OurValues;
use super::workbench::Workbench;
use crate::cold::ColdSource;
use crate::limits;
use crate::report::{Axis, Chart, Column, Section, Series, Table, counted};
use crate::scratch::Scratch;
use crate::spread::{RoundResults, median};
use crate::timing::{IN_HARDWARE, Timing, take};

/// Where a trial's stripes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Nul,
    /// So many stripes in the first directory.
    One(usize),
    /// So many stripes over all directories in turn.
    All(usize),
}

impl Layout {
    pub fn stripes(self) -> usize {
        match self {
            Layout::Nul => 1,
            Layout::One(count) | Layout::All(count) => count,
        }
    }
}

/// A backup to be made.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Its name in [`OurValues`].
    pub key: String,
    /// For people.
    pub label: String,
    pub source: SourceSpec,
    pub layout: Layout,
    pub algorithm: Algorithm,
    pub level: Level,
    pub mode: OffloadMode,
    pub tuning: Tuning,
}

impl Trial {
    pub fn new(
        key: &str,
        label: &str,
        source: &SourceSpec,
        layout: Layout,
        algorithm: Algorithm,
    ) -> Trial {
        Trial {
            key: key.into(),
            label: label.into(),
            source: source.clone(),
            layout,
            algorithm,
            level: Level::Low,
            mode: OffloadMode::Software,
            tuning: Tuning::default(),
        }
    }

    /// The same with BUFFERCOUNT and MAXTRANSFERSIZE; `None` is the default.
    pub fn tuned(mut self, count: Option<usize>, bytes: Option<usize>) -> Trial {
        self.tuning = Tuning {
            buffer_count: count,
            buffer_bytes: bytes,
        };
        self
    }

    pub fn at(mut self, level: Level) -> Trial {
        self.level = level;
        self
    }

    fn take(&self, bench: &Workbench) -> Result<Timing> {
        let dirs = &bench.spec.dirs;
        let storage = &*bench.context.storage;
        let scratch = match self.layout {
            Layout::Nul => None,
            Layout::One(_) => Some(Scratch::new(storage, dirs.get(..1).unwrap_or_default())?),
            Layout::All(_) => Some(Scratch::new(storage, dirs)?),
        };
        let devices = match &scratch {
            Some(scratch) => scratch.stripes(self.layout.stripes()),
            None => vec![DeviceSpec::Nul],
        };
        let mut request = BackupRequest::new(self.source.clone(), devices);
        (request.algorithm, request.level) = (self.algorithm, self.level);
        request.offload.mode = self.mode;
        request.tuning = self.tuning;
        ColdSource::find(storage, &self.source)?.drop_cached()?;
        if let Some(scratch) = &scratch {
            scratch.settle()?;
        }
        take(bench.context, &Request::Backup(request))
    }
}

/// A trial with its backups, one for each round.
#[derive(Debug)]
pub struct Tried {
    pub trial: Trial,
    pub taken: Vec<Timing>,
}

impl Tried {
    pub fn median(&self, value: impl Fn(&Timing) -> f64) -> Option<f64> {
        median(self.taken.iter().map(value))
    }

    /// The limit that held in its rounds.
    pub fn limit(&self) -> Option<String> {
        limits::of_rounds(self.taken.iter().map(|t| t.limit))
    }
}

/// A sentence about the limit that held in each backup.
pub fn which_limits(tried: &[Tried]) -> Option<String> {
    let held = tried.iter().filter_map(|one| {
        let limit = one.limit()?;
        Some((one.trial.label.clone(), limit))
    });
    limits::sentence(&held.collect::<Vec<_>>())
}

/// The trial of QAT_DEFLATE in hardware, if there is any; its absence is told in `missing`.
pub fn in_hardware(bench: &Workbench, trial: Trial, missing: &mut Vec<String>) -> Option<Trial> {
    if bench.has_hardware() {
        return Some(Trial {
            mode: OffloadMode::Hardware,
            ..trial
        });
    }
    let told = "QAT_DEFLATE in hardware (no QAT accelerator can be used on this machine)";
    if !missing.iter().any(|m| m == told) {
        missing.push(told.into());
    }
    None
}

/// Makes all backups, in turns.
pub fn alternate(bench: &Workbench, trials: Vec<Trial>) -> Result<Vec<Tried>> {
    let mut tried: Vec<Tried> = trials
        .into_iter()
        .map(|trial| Tried {
            trial,
            taken: Vec::new(),
        })
        .collect();
    for round in 1..=bench.spec.rounds.max(1) {
        for one in &mut tried {
            let taken = one.trial.take(bench)?;
            (bench.on_step)(&format!(
                "round {round}: {}: {:.2} s, {:.0} MB/s",
                one.trial.label,
                taken.wall_s,
                taken.mb_per_s()
            ));
            one.taken.push(taken);
        }
    }
    Ok(tried)
}

/// The figures of all backups, and where they were made.
pub fn measured(bench: &Workbench, tried: &[Tried], missing: Vec<String>) -> Result<OurValues> {
    let mut measured = OurValues::of_rounds(bench.spec.rounds.max(1));
    measured.missing = missing;
    measured.cautions.extend(bench.doubt());
    let mut short = Vec::new();
    for one in tried {
        let wanted = one.trial.mode != OffloadMode::Software;
        for (round, taken) in one.taken.iter().enumerate() {
            match wanted && taken.accelerator_share() < IN_HARDWARE {
                true => short.push(one.trial.label.clone()),
                false => measured.add_backup(round, &one.trial.key, taken),
            }
        }
    }
    if let Some(label) = short.first() {
        measured.missing.push(format!(
            "{label} in {} (the accelerator compressed less than {:.0} %)",
            counted(short.len(), "backup"),
            100.0 * IN_HARDWARE
        ));
    }
    let mut put = |name: &str, value: String| measured.conditions.push((name.into(), value));
    if let Some(taken) = tried.first().and_then(|t| t.taken.first()) {
        put(
            "Database",
            format!("{:.1} MB (10^6), SQLite", taken.plain_bytes as f64 / 1e6),
        );
    }
    let all = || tried.iter().flat_map(|t| &t.taken);
    if let Some(share) = median(all().map(Timing::cold_percent)) {
        let told = format!("{share:.0} % of the source, dropped from the page cache before each");
        put("Read from disk", told);
    }
    let is_spread = |t: &Tried| matches!(t.trial.layout, Layout::All(n) if n > 1);
    let is_spread = tried.iter().any(is_spread);
    let volumes = bench.volumes()?;
    if is_spread {
        let told = match volumes.directories {
            1 => "1 directory plays all volumes: give more with --dir".to_owned(),
            _ => format!("{} in turn", volumes.directories_told()),
        };
        put("Volumes", told);
    }
    if is_spread || volumes.emulated.is_some() {
        measured.volumes = Some(volumes);
    }
    Ok(measured)
}

/// The reason for the order of rows and bars.
const IN_ORDER: &str = "Rows and bars are in the published order, in which the backups were made.";

/// Table and bars of trials, in the order in which they were made.
pub fn section(heading: &str, prose: String, tried: &[Tried]) -> Section {
    let row = |one: &Tried| {
        let results = RoundResults::of(one.taken.iter().map(|t| t.wall_s));
        let last = one.taken.last();
        vec![
            one.trial.label.as_str().into(),
            (one.trial.layout.stripes() as f64).into(),
            results.map(|r| r.median).into(),
            results.map(|r| r.range(2)).into(),
            one.median(Timing::mb_per_s).into(),
            median(one.taken.iter().filter_map(|t| t.system_cpu_percent)).into(),
            one.median(Timing::cpu_s_per_gb).into(),
            one.median(|t| t.stored_bytes as f64 / 1e6).into(),
            one.median(Timing::ratio).into(),
            one.limit().into(),
            last.and_then(Timing::compressed_by).into(),
        ]
    };
    let table = Table {
        columns: vec![
            Column::text("Backup"),
            Column::number("Stripes", "", 0),
            Column::number("Elapsed", "s", 2),
            Column::text("min–max"),
            Column::number("Throughput", "MB/s", 0),
            Column::number("CPU", "% of system", 1),
            Column::number("CPU time", "s/GB", 3),
            Column::number("Size", "10^6 bytes", 1),
            Column::number("Ratio", "", 3),
            Column::text("Limited by"),
            Column::text("Compressed by"),
        ],
        row_values: tried.iter().map(row).collect(),
    };
    let mut whole = Axis::new("CPU", "% of system");
    whole.max = Some(100.0);
    Section {
        heading: heading.into(),
        prose: vec![prose, IN_ORDER.into()],
        table: Some(table),
        charts: vec![
            bars("Elapsed", Axis::new("Elapsed", "s"), tried, &|t| {
                Some(t.wall_s)
            }),
            bars("CPU", whole, tried, &|t| t.system_cpu_percent),
        ],
    }
}

/// One bar for each trial: the median.
pub fn bars(
    title: &str,
    y: Axis,
    tried: &[Tried],
    value: &dyn Fn(&Timing) -> Option<f64>,
) -> Chart {
    let height = |one: &Tried| median(one.taken.iter().filter_map(value));
    let names = tried.iter().map(|t| t.trial.label.clone()).collect();
    let series = vec![Series::new(title, tried.iter().map(height).collect())];
    Chart::bars(title, "", names, y, series)
}
