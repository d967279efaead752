//! Layouts × BUFFERCOUNT × MAXTRANSFERSIZE: how many devices on how many volumes, with how many buffers of which size.
//!
//! Invariants
//! - Each round makes one backup of every combination, so a disturbance affects all of them. A source leaves the page
//!   cache before each, but for a server's, and the report says so. The stripes are removed after each.
//! - Volumes are drives, or emulated devices; directories of one drive are called that, and every caption says which of
//!   these it is about.
//! - The numbers of each chart are in a table, too.
//!
//! Leaves to others: the other sweeps (`stripes.rs`, `buffers.rs`), and emulating devices (`paced`).

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, ensure};
use longshore_codec::Algorithm;
use longshore_pipeline::{BackupRequest, Request, RunContext, SourceSpec};

use crate::cold::ColdSource;
use crate::curves::{CurvePlace, over_buffers, size_told};
use crate::limits;
use crate::paced::{EmulatedVolumes, PacedStorage};
use crate::platform;
use crate::report::{
    At, Axis, Chart, Column, Positions, Report, ReportFormat, Section, Series, Table, counted,
};
use crate::scratch::Scratch;
use crate::spread::{RoundResults, caution, median};
use crate::timing::{Timing, take};
use crate::volumes::{TargetVolumes, mark};

/// Of devices and volumes, if `dirs` names no more.
const MOST: usize = 4;

/// The settings of the sweep.
#[derive(Debug, Clone)]
pub struct LayoutsSpec {
    pub source: SourceSpec,
    pub algorithm: Algorithm,
    /// One for each volume; at least one.
    pub dirs: Vec<PathBuf>,
    /// BUFFERCOUNT; `None` is the default, which is measured in any case.
    pub counts: Vec<Option<usize>>,
    /// MAXTRANSFERSIZE, ascending.
    pub bytes: Vec<usize>,
    /// Backups of each kind, alternating; at least 1.
    pub rounds: usize,
    /// `None`: the directories are what they are.
    pub emulated: Option<EmulatedVolumes>,
    /// Fewer layouts.
    pub quick: bool,
}

impl LayoutsSpec {
    /// The defaults, and the counts that the note about tuning names.
    pub fn new(source: SourceSpec, dirs: Vec<PathBuf>) -> LayoutsSpec {
        LayoutsSpec {
            source,
            algorithm: Algorithm::QatDeflate,
            dirs,
            counts: vec![None, Some(4), Some(13), Some(28), Some(50)],
            bytes: vec![512 << 10, 1 << 20, 4 << 20],
            rounds: 3,
            emulated: None,
            quick: false,
        }
    }
}

/// So many stripes over the first so many directories.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DevicesOn {
    devices: usize,
    directories: usize,
    label: String,
}

/// Numbers of devices and directories: 1 × 1, 2 × 1, 2 × 2, and so on by factors of two, up to as many as there are.
fn pairs(directories: usize, quick: bool) -> Vec<(usize, usize)> {
    let most = directories.max(MOST);
    let mut steps: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2))
        .take_while(|n| *n <= most)
        .collect();
    if !steps.contains(&directories) {
        steps.push(directories);
        steps.sort_unstable();
    }
    let mut pairs = Vec::new();
    for &devices in &steps {
        let fitting = steps.iter().filter(|n| **n <= devices.min(directories));
        pairs.extend(fitting.map(|&on| (devices, on)));
    }
    if quick {
        pairs.retain(|&(devices, on)| {
            (devices == 1 || devices == most) && (on == 1 || on == directories)
        });
    }
    pairs
}

struct LayoutCell {
    layout: DevicesOn,
    /// `None`: the default.
    asked: Option<usize>,
    bytes: usize,
    taken: Vec<Timing>,
}

impl LayoutCell {
    fn of(&self, value: impl Fn(&Timing) -> f64) -> Option<f64> {
        median(self.taken.iter().map(value))
    }

    fn elapsed(&self) -> Option<f64> {
        self.of(|t| t.wall_s)
    }

    fn written(&self) -> Option<f64> {
        self.of(|t| t.stored_bytes as f64 / f64::from(1 << 20) / t.wall_s.max(1e-9))
    }

    fn cpu(&self) -> Option<f64> {
        median(self.taken.iter().filter_map(|t| t.system_cpu_percent))
    }

    fn buffers(&self) -> usize {
        self.taken.first().map_or(0, |t| t.buffers.0)
    }

    fn limit(&self) -> Option<String> {
        limits::of_rounds(self.taken.iter().map(|t| t.limit))
    }

    fn count_told(&self) -> String {
        match self.asked {
            None => format!("{} (default)", self.buffers()),
            Some(count) => count.to_string(),
        }
    }

    fn told(&self) -> String {
        let (count, size) = (self.count_told(), size_told(self.bytes));
        format!(
            "{} with BUFFERCOUNT {count} and MAXTRANSFERSIZE {size}",
            self.layout.label
        )
    }
}

/// Makes all backups. Calls `on_step` with one line for each round.
pub fn layouts(context: &RunContext, spec: &LayoutsSpec, on_step: &dyn Fn(&str)) -> Result<Report> {
    let sources = paths_of(&spec.source);
    ensure!(
        !sources.is_empty() || spec.emulated.is_none_or(|rates| rates.source.is_none()),
        "a server's files are read by the server, too: --emulate-source needs a source of files"
    );
    let paced = |rates: EmulatedVolumes| {
        let storage = context.storage.clone();
        PacedStorage::new(storage, &context.clock, &rates, &spec.dirs, &sources)
    };
    let paced = spec.emulated.map(paced).transpose()?;
    let emulated = paced.as_ref().map(|paced| RunContext {
        storage: Arc::new(paced.clone()),
        ..context.clone()
    });
    let context = emulated.as_ref().unwrap_or(context);
    let volumes = TargetVolumes::of(&*context.storage, &spec.dirs, spec.emulated)?;
    // The directories exist from here on: before, their file systems would not be known.
    let platform = platform::record(context, &platform::places(&spec.dirs, [&spec.source]));
    let mut cells = Vec::new();
    for (devices, directories) in pairs(spec.dirs.len(), spec.quick) {
        let on = TargetVolumes::of(&*context.storage, &spec.dirs[..directories], spec.emulated)?;
        let on = match on.count() == directories {
            true => counted(directories, "volume"),
            false => on.directories_told(),
        };
        let layout = DevicesOn {
            devices,
            directories,
            label: format!("{}, {on}", counted(devices, "device")),
        };
        for &bytes in &spec.bytes {
            cells.extend(spec.counts.iter().map(|&asked| LayoutCell {
                layout: layout.clone(),
                asked,
                bytes,
                taken: Vec::new(),
            }));
        }
    }
    let source = ColdSource::find(&*context.storage, &spec.source)?;
    for round in 1..=spec.rounds.max(1) {
        for cell in &mut cells {
            let taken = one(context, spec, &source, cell)?;
            cell.taken.push(taken);
        }
        on_step(&format!("round {round} of {}", spec.rounds.max(1)));
    }
    let cold = source.told(cells.iter().flat_map(|cell| &cell.taken));
    let mut report = report(spec, platform, (&volumes, &cold), &cells);
    if let Some(doubt) = paced.as_ref().and_then(PacedStorage::take_doubt) {
        report.summary = format!("{doubt} {}", report.summary);
    }
    Ok(report)
}

/// The files and directories of a source that has them.
fn paths_of(source: &SourceSpec) -> Vec<PathBuf> {
    match source {
        SourceSpec::Sqlite(path) => vec![path.clone()],
        SourceSpec::Files(paths) => paths.iter().map(PathBuf::from).collect(),
        SourceSpec::Postgres(_) => Vec::new(),
    }
}

fn one(
    context: &RunContext,
    spec: &LayoutsSpec,
    source: &ColdSource,
    cell: &LayoutCell,
) -> Result<Timing> {
    let dirs = &spec.dirs[..cell.layout.directories];
    let scratch = Scratch::new(&*context.storage, dirs)?;
    let stripes = scratch.stripes(cell.layout.devices);
    let mut request = BackupRequest::new(spec.source.clone(), stripes);
    request.algorithm = spec.algorithm;
    request.tuning.buffer_count = cell.asked;
    request.tuning.buffer_bytes = Some(cell.bytes);
    source.drop_cached()?;
    scratch.settle()?;
    take(context, &Request::Backup(request))
}

/// The cell with the shortest time.
fn best<'a>(cells: impl IntoIterator<Item = &'a LayoutCell>) -> Option<&'a LayoutCell> {
    let timed = cells.into_iter().filter_map(|c| Some((c, c.elapsed()?)));
    Some(timed.min_by(|a, b| a.1.total_cmp(&b.1))?.0)
}

/// One device with the default number of buffers of the default size, or of the size next to it.
fn plain(cells: &[LayoutCell]) -> Option<&LayoutCell> {
    let own = cells
        .iter()
        .filter(|c| c.layout.devices == 1 && c.asked.is_none());
    own.min_by_key(|c| c.bytes.abs_diff(1 << 20))
}

fn summary(spec: &LayoutsSpec, volumes: &TargetVolumes, cells: &[LayoutCell]) -> String {
    let mut told: Vec<String> = volumes.sentence().into_iter().collect();
    told.extend(caution(spec.rounds.max(1)));
    let found = || {
        let (best, plain) = (best(cells)?, plain(cells)?);
        Some(format!(
            "Best with {}: {}: {:.2} s, {:.0} MB/s read, {:.0} MB/s written; the limit there: {}. {} takes {:.2} times as \
             long; the limit there: {}.",
            spec.algorithm,
            best.told(),
            best.elapsed()?,
            best.of(Timing::mb_per_s)?,
            best.written()?,
            best.limit()?,
            plain.told(),
            plain.elapsed()? / best.elapsed()?.max(1e-9),
            plain.limit()?,
        ))
    };
    told.extend(found());
    told.join(" ")
}

/// The limits that held along the counts of each layout and size.
fn verdict(spec: &LayoutsSpec, cells: &[LayoutCell]) -> Option<String> {
    let mut told = Vec::new();
    for label in labels(cells) {
        for &bytes in &spec.bytes {
            let own = cells
                .iter()
                .filter(|c| c.layout.label == label && c.bytes == bytes);
            let held = own.filter_map(|c| Some((c.buffers(), c.limit()?)));
            let name = format!("{label} with {}", size_told(bytes));
            told.push((name, held.collect()));
        }
    }
    limits::over_curves(&told)
}

/// Each layout's label once, in their order.
fn labels(cells: &[LayoutCell]) -> Vec<&str> {
    let mut labels: Vec<&str> = cells.iter().map(|c| c.layout.label.as_str()).collect();
    labels.dedup();
    labels
}

fn report(
    spec: &LayoutsSpec,
    mut platform: Vec<(String, String)>,
    (volumes, cold): (&TargetVolumes, &str),
    cells: &[LayoutCell],
) -> Report {
    platform.push(("Source".into(), platform::name_of(&spec.source)));
    let taken = cells.iter().flat_map(|c| &c.taken).next();
    let plain_bytes = taken.map_or(0, |t| t.plain_bytes);
    platform.push((
        "Size".into(),
        format!("{:.1} MB (10^6)", plain_bytes as f64 / 1e6),
    ));
    platform.push((
        "Volumes".into(),
        match &volumes.emulated {
            Some(rates) => format!("{}, each a device {rates}", volumes.directories_told()),
            None => volumes.directories_told(),
        },
    ));
    let mut report = Report {
        title: "Layouts and buffers".into(),
        summary: summary(spec, volumes, cells),
        platform,
        sections: vec![
            best_of_each(cells),
            all(spec, cold, cells),
            speeds(spec, cells),
        ],
    };
    if let Some(caption) = volumes.caption() {
        mark(&mut report, &caption);
    }
    report
}

/// The shortest backup of each layout.
fn best_of_each(cells: &[LayoutCell]) -> Section {
    let labels = labels(cells);
    let chosen: Vec<&LayoutCell> = labels
        .iter()
        .filter_map(|label| best(cells.iter().filter(|c| c.layout.label == *label)))
        .collect();
    let row = |c: &&LayoutCell| {
        vec![
            c.layout.label.as_str().into(),
            c.count_told().into(),
            size_told(c.bytes).into(),
            c.elapsed().into(),
            c.of(Timing::mb_per_s).into(),
            c.written().into(),
            c.cpu().into(),
            c.limit().into(),
        ]
    };
    let bars = |title: &str, y: Axis, series: Vec<Series>| {
        let names = chosen.iter().map(|c| c.layout.label.clone()).collect();
        Chart::bars(title, "", names, y, series)
    };
    let values = |value: &dyn Fn(&LayoutCell) -> Option<f64>| -> Vec<Option<f64>> {
        chosen.iter().map(|c| value(c)).collect()
    };
    let elapsed = Series::new("Elapsed", values(&|c| c.elapsed()));
    let read = Series::new("read", values(&|c| c.of(Timing::mb_per_s)));
    let written = Series::new("written", values(&|c| c.written()));
    let held: Vec<(String, String)> = chosen
        .iter()
        .filter_map(|c| Some((c.layout.label.clone(), c.limit()?)))
        .collect();
    let mut prose = vec![
        "The shortest backup of each layout, over all numbers and sizes of buffers; layouts are in the order of their devices."
            .to_owned(),
    ];
    prose.extend(limits::sentence(&held));
    Section {
        heading: "Best of each layout".into(),
        prose,
        table: Some(Table {
            columns: vec![
                Column::text("Layout"),
                Column::text("BUFFERCOUNT"),
                Column::text("MAXTRANSFERSIZE"),
                Column::number("Elapsed", "s", 2),
                Column::number("Read", "MB/s", 1),
                Column::number("Written", "MB/s", 1),
                Column::number("CPU", "% of system", 1),
                Column::text("Limited by"),
            ],
            row_values: chosen.iter().map(row).collect(),
        }),
        charts: vec![
            bars("Shortest backup", Axis::new("Elapsed", "s"), vec![elapsed]),
            bars(
                "Read and written",
                Axis::new("Rate", "MB/s"),
                vec![read, written],
            ),
        ],
    }
}

/// Every combination, with curves for each size.
fn all(spec: &LayoutsSpec, cold: &str, cells: &[LayoutCell]) -> Section {
    let row = |c: &LayoutCell| {
        let range = RoundResults::of(c.taken.iter().map(|t| t.wall_s));
        vec![
            c.layout.label.as_str().into(),
            size_told(c.bytes).into(),
            (c.buffers() as f64).into(),
            if c.asked.is_none() {
                "default"
            } else {
                "asked"
            }
            .into(),
            c.elapsed().into(),
            range.map(|r| r.range(2)).into(),
            c.of(Timing::mb_per_s).into(),
            c.written().into(),
            c.cpu().into(),
            c.of(Timing::cpu_s_per_gb).into(),
            c.limit().into(),
        ]
    };
    let curves = |bytes: usize| {
        let own = cells.iter().filter(|c| c.bytes == bytes);
        let places: Vec<CurvePlace> = own
            .map(|c| CurvePlace {
                curve: c.layout.label.clone(),
                buffers: c.buffers(),
                is_default: c.asked.is_none(),
                value: c.of(Timing::mb_per_s),
            })
            .collect();
        let title = format!("Read with MAXTRANSFERSIZE {}", size_told(bytes));
        over_buffers(&title, Axis::new("Read", "MB/s"), &places)
    };
    Section {
        heading: "Layouts and buffers".into(),
        prose: std::iter::once(
            format!(
                "Backups with {}; medians of {}, alternating. {} The larger points \
                 are the defaults, at the number that the plan chose. MB/s is 2^20 bytes per second of the whole backup, read \
                 from the database and written to the devices. The limit is that for which the workers waited or worked \
                 longest: a backup that fits into its buffers waits for no target.",
                spec.algorithm,
                counted(spec.rounds.max(1), "round"),
                cold,
            ),
        )
        .chain(verdict(spec, cells))
        .collect(),
        table: Some(Table {
            columns: vec![
                Column::text("Layout"),
                Column::text("MAXTRANSFERSIZE"),
                Column::number("BUFFERCOUNT", "", 0),
                Column::text("Count"),
                Column::number("Elapsed", "s", 2),
                Column::text("min–max"),
                Column::number("Read", "MB/s", 1),
                Column::number("Written", "MB/s", 1),
                Column::number("CPU", "% of system", 1),
                Column::number("CPU time", "s/GB", 3),
                Column::text("Limited by"),
            ],
            row_values: cells.iter().map(row).collect(),
        }),
        charts: spec.bytes.iter().map(|&bytes| curves(bytes)).collect(),
    }
}

/// A map: how many times as fast as one device with the defaults each combination is.
fn speeds(spec: &LayoutsSpec, cells: &[LayoutCell]) -> Section {
    let base = plain(cells).and_then(LayoutCell::elapsed);
    let speed = |c: &LayoutCell| Some(base? / c.elapsed()?.max(1e-9));
    let count = |asked: &Option<usize>| asked.map_or("default".to_owned(), |n| n.to_string());
    let mut columns = vec![Column::text("Layout and MAXTRANSFERSIZE")];
    columns.extend(
        spec.counts
            .iter()
            .map(|asked| Column::number(&count(asked), "×", 2)),
    );
    let mut series = Vec::new();
    for label in labels(cells) {
        for &bytes in &spec.bytes {
            let own = |asked: &Option<usize>| {
                let fits = |c: &&LayoutCell| {
                    c.layout.label == label && c.bytes == bytes && c.asked == *asked
                };
                cells.iter().find(fits).and_then(speed)
            };
            let name = format!("{label}, {}", size_told(bytes));
            series.push(Series::new(&name, spec.counts.iter().map(own).collect()));
        }
    }
    let row = |s: &Series| {
        let mut cells = vec![s.name.as_str().into()];
        cells.extend(s.values.iter().map(|value| (*value).into()));
        cells
    };
    Section {
        heading: "Map of speeds".into(),
        prose: vec![
            "How many times as fast as one device with the default number of buffers of 1 MiB: blue is faster, orange slower."
                .into(),
        ],
        table: Some(Table {
            columns,
            row_values: series.iter().map(row).collect(),
        }),
        charts: vec![Chart {
            title: "Speed, one device with the defaults = 1".into(),
            form: ReportFormat::Map,
            x: Positions {
                label: "BUFFERCOUNT".into(),
                unit: String::new(),
                at: At::Names(spec.counts.iter().map(count).collect()),
            },
            y: Axis::new("Speed", "×"),
            y_right: None,
            series,
        }],
    }
}

#[cfg(test)]
mod tests {
    use longshore_pipeline::Limit::{self, Cpu, Target};

    use super::*;
    use crate::timing::tests::made_up;

    /// Backups of so many devices on one volume with 1 MiB, a round for each limit and time.
    fn cell(devices: usize, asked: Option<usize>, rounds: &[(Limit, f64)]) -> LayoutCell {
        let round = |(limit, wall_s): &(Limit, f64)| Timing {
            limit: *limit,
            buffers: (asked.unwrap_or(20), 1 << 20),
            ..made_up(*wall_s, 100)
        };
        LayoutCell {
            layout: DevicesOn {
                devices,
                directories: 1,
                label: format!("{}, 1 volume", counted(devices, "device")),
            },
            asked,
            bytes: 1 << 20,
            taken: rounds.iter().map(round).collect(),
        }
    }

    fn spec(rounds: usize) -> LayoutsSpec {
        let source = SourceSpec::Files(vec!["x".into()]);
        LayoutsSpec {
            rounds,
            bytes: vec![1 << 20],
            ..LayoutsSpec::new(source, vec!["d".into()])
        }
    }

    #[test]
    fn the_verdict_and_the_headline_name_the_limits_and_the_best() {
        let cells = [
            cell(1, None, &[(Target, 4.0), (Target, 4.0), (Cpu, 4.0)]),
            cell(1, Some(4), &[(Target, 5.0); 3]),
            cell(4, None, &[(Cpu, 2.0); 3]),
            // Nothing was measured here, so there is no limit to name.
            cell(4, Some(4), &[]),
        ];
        assert_eq!(
            verdict(&spec(3), &cells).unwrap(),
            "Which limit held at which BUFFERCOUNT: 1 device, 1 volume with 1 MiB: the target (writing) at 4, mixed: the target \
             in 2, the CPUs in 1 at 20; 4 devices, 1 volume with 1 MiB: the CPUs (compression and checksums) at 20."
        );
        let volumes = TargetVolumes {
            directories: 1,
            drives: 1,
            emulated: None,
        };
        let told = |rounds| summary(&spec(rounds), &volumes, &cells);
        assert!(
            told(3).starts_with(
                "Best with QAT_DEFLATE: 4 devices, 1 volume with BUFFERCOUNT 20 (default)"
            ),
            "{}",
            told(3)
        );
        assert!(told(3).contains("takes 2.00 times as long"), "{}", told(3));
        assert!(told(1).starts_with("Only 1 round, so chance may decide. Best with"));
    }

    #[test]
    fn where_nothing_was_measured_no_verdict_is_shown() {
        let cells = [cell(1, None, &[]), cell(4, Some(4), &[])];
        assert_eq!(verdict(&spec(3), &cells), None);
        assert_eq!(all(&spec(3), "", &cells).prose.len(), 1);
        assert!(
            best_of_each(&cells)
                .prose
                .iter()
                .all(|told| !told.contains("limit"))
        );
    }

    #[test]
    fn layouts_grow_by_factors_of_two_up_to_the_directories() {
        assert_eq!(pairs(1, false), [(1, 1), (2, 1), (4, 1)]);
        assert_eq!(
            pairs(4, false),
            [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)]
        );
        assert_eq!(pairs(4, true), [(1, 1), (4, 1), (4, 4)]);
        assert_eq!(pairs(1, true), [(1, 1), (4, 1)]);
        assert!(pairs(3, false).contains(&(3, 3)));
        assert!(pairs(6, false).contains(&(6, 6)) && pairs(6, false).contains(&(4, 4)));
        // No directory is left without a device.
        assert!(pairs(6, false).iter().all(|(devices, on)| on <= devices));
    }
}
