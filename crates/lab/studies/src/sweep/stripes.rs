//! The study of 37 backups: algorithms and stripe counts of the published study, on this machine.
//!
//! Invariants
//! - A row is named after the engine that really compressed, and a backup counts as hardware only if an accelerator
//!   compressed nine tenths of it.
//! - Published factors are shown next to measured ones, never in their place.
//!
//! Leaves to others: the grid of buffers (`--buffers`), the sample, and the forms of a report.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use longshore_codec::Algorithm;
use longshore_pipeline::{BackupRequest, DeviceSpec, OffloadMode, Request, RunContext, SourceSpec};

use crate::platform;
use crate::report::{
    At, Axis, Cell, Chart, Column, Positions, Report, ReportFormat, Section, Series, Table, counted,
};
use crate::scratch::Scratch;
use crate::timing::{IN_HARDWARE, Timing, pause, take};

/// The published study's stripe counts.
pub const STRIPES: [usize; 9] = [1, 2, 4, 6, 8, 10, 12, 14, 16];

/// A kind of backup tried at each stripe count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    name: &'static str,
    algorithm: Algorithm,
    mode: OffloadMode,
}

impl Kind {
    const fn software(name: &'static str, algorithm: Algorithm) -> Kind {
        Kind {
            name,
            algorithm,
            mode: OffloadMode::Software,
        }
    }
}

const NONE: Kind = Kind::software("NONE", Algorithm::None);
const MS_XPRESS: Kind = Kind::software("MS_XPRESS", Algorithm::MsXpress);
const SOFTWARE: Kind = Kind::software("QAT_DEFLATE software", Algorithm::QatDeflate);
/// If an accelerator serves.
const HARDWARE: Kind = Kind {
    name: "QAT_DEFLATE hardware",
    algorithm: Algorithm::QatDeflate,
    mode: OffloadMode::Hardware,
};

/// From this share on, it is not shown in a row's name.
const ALL_OF_IT: f64 = 0.9995;

/// How much faster and smaller than MS_XPRESS QAT_DEFLATE is in published results.
const PUBLISHED_TIME: f64 = 3.27;
const PUBLISHED_OTHER: f64 = 2.0;

/// The settings of the sweep.
#[derive(Debug, Clone)]
pub struct StripesSpec {
    pub source: SourceSpec,
    /// Stripes are spread over them in turn.
    pub dirs: Vec<PathBuf>,
    /// Ascending; usually [`STRIPES`].
    pub stripes: Vec<usize>,
    /// MAXTRANSFERSIZE.
    pub buffer_bytes: usize,
    /// Between two backups, so that the next does not pay for the heat and the writes of the last.
    pub pause: Duration,
}

struct Backup {
    kind: Kind,
    stripes: usize,
    taken: Timing,
}

impl Backup {
    /// Named after the engine that compressed it, which is not always the requested one.
    fn name(&self) -> String {
        let share = self.taken.accelerator_share();
        match self.kind.mode {
            OffloadMode::Software => self.kind.name.to_owned(),
            _ if share >= ALL_OF_IT => self.kind.name.to_owned(),
            _ if share == 0.0 => {
                format!("{} software, hardware requested", self.kind.algorithm)
            }
            _ => format!(
                "{}, {:.1} % in hardware",
                self.kind.algorithm,
                100.0 * share
            ),
        }
    }

    /// Whether the engine of its kind's name compressed it.
    fn is_as_named(&self) -> bool {
        let share = self.taken.accelerator_share();
        match self.kind.mode {
            OffloadMode::Software => share == 0.0,
            _ => share >= IN_HARDWARE,
        }
    }
}

/// Makes all backups, and removes each before the next. The kinds in hardware are only measured if `context` has
/// accelerators ([`RunContext::equipped`]). Calls `on_step` with one line for each backup.
pub fn stripes(context: &RunContext, spec: &StripesSpec, on_step: &dyn Fn(&str)) -> Result<Report> {
    let scratch = Scratch::new(&*context.storage, &spec.dirs)?;
    let platform = platform::record(context, &spec.dirs);
    let mut kinds = vec![NONE, MS_XPRESS, SOFTWARE];
    let served = || {
        let mut accelerators = context.accelerators.iter();
        accelerators.any(|a| a.serves(HARDWARE.algorithm))
    };
    let request = |kind: Kind, devices: Vec<DeviceSpec>| {
        let mut request = BackupRequest::new(spec.source.clone(), devices);
        request.algorithm = kind.algorithm;
        request.offload.mode = kind.mode;
        request.tuning.buffer_bytes = Some(spec.buffer_bytes);
        Request::Backup(request)
    };
    if served() {
        // Not counted: the accelerator is tested meanwhile, and may turn out not to serve.
        take(context, &request(HARDWARE, vec![DeviceSpec::Nul]))?;
        kinds.extend(served().then_some(HARDWARE));
    }
    let count = 1 + kinds.len() * spec.stripes.len();
    let mut number = 0;
    let mut backup = |kind: Kind, devices: Vec<DeviceSpec>| -> Result<Timing> {
        if number > 0 {
            pause(context, spec.pause);
        }
        number += 1;
        let target = match devices[0] {
            DeviceSpec::Nul => "to NUL".to_owned(),
            _ => format!("to {}", counted(devices.len(), "stripe")),
        };
        let taken = take(context, &request(kind, devices))?;
        on_step(&format!(
            "{number} of {count}: {} {target}: {:.2} s, {:.0} MB/s, ratio {:.2}",
            kind.name,
            taken.wall_s,
            taken.mb_per_s(),
            taken.ratio()
        ));
        scratch.clear()?;
        Ok(taken)
    };
    let nul = backup(NONE, vec![DeviceSpec::Nul])?;
    let mut backups = Vec::new();
    for &kind in &kinds {
        for &stripes in &spec.stripes {
            let taken = backup(kind, scratch.stripes(stripes))?;
            backups.push(Backup {
                kind,
                stripes,
                taken,
            });
        }
    }
    Ok(report(spec, platform, &kinds, &nul, &backups))
}

fn report(
    spec: &StripesSpec,
    mut platform: Vec<(String, String)>,
    kinds: &[Kind],
    nul: &Timing,
    backups: &[Backup],
) -> Report {
    platform.push(("Source".into(), platform::name_of(&spec.source)));
    platform.push((
        "Size".into(),
        format!("{:.1} MB (10^6)", nul.plain_bytes as f64 / 1e6),
    ));
    let ratios = kinds
        .iter()
        .filter(|kind| kind.algorithm == Algorithm::QatDeflate)
        .map(|kind| Ratios::of(&spec.stripes, backups, *kind));
    let ratios: Vec<Ratios> = ratios.collect();
    let mut found: Vec<String> = ratios.iter().filter_map(Ratios::summary).collect();
    found.extend(fallen_back(backups));
    let mut sections = vec![all(spec, kinds, nul, backups)];
    sections.extend(ratios.iter().map(Ratios::section));
    Report {
        title: "Stripes and algorithms".into(),
        summary: found.join(" "),
        platform,
        sections,
    }
}

/// The headline's part about backups that were requested of an accelerator and compressed by other engines.
fn fallen_back(backups: &[Backup]) -> Option<String> {
    let asked: Vec<&Backup> = backups.iter().filter(|b| b.kind == HARDWARE).collect();
    let others: Vec<f64> = asked
        .iter()
        .filter(|b| !b.is_as_named())
        .map(|b| 100.0 * b.taken.accelerator_share())
        .collect();
    let range = crate::spread::RoundResults::of(others.iter().copied())?.range(1);
    Some(format!(
        "{} of {} backups with hardware do not count as hardware: the accelerator compressed {range} % of them, \
         software the rest.",
        others.len(),
        asked.len()
    ))
}

/// The backup of one kind at one stripe count, if the engine of the kind's name compressed it.
fn at(backups: &[Backup], kind: Kind, stripes: usize) -> Option<&Timing> {
    let found = backups
        .iter()
        .find(|b| b.kind == kind && b.stripes == stripes && b.is_as_named());
    found.map(|b| &b.taken)
}

fn all(spec: &StripesSpec, kinds: &[Kind], nul: &Timing, backups: &[Backup]) -> Section {
    let row = |name: &str, stripes: Cell, taken: &Timing| {
        vec![
            name.into(),
            stripes,
            taken.wall_s.into(),
            taken.mb_per_s().into(),
            (100.0 * taken.mb_per_s() / nul.mb_per_s()).into(),
            taken.system_cpu_percent.into(),
            taken.cpu_s.into(),
            (taken.stored_bytes as f64 / 1e6).into(),
            taken.ratio().into(),
            taken.cpu_c.into(),
            taken.drive_c.into(),
            taken.limit.text().into(),
            taken.compressed_by().into(),
        ]
    };
    let mut rows = vec![row("NONE to NUL", Cell::Absent, nul)];
    rows.extend(
        backups
            .iter()
            .map(|b| row(&b.name(), (b.stripes as f64).into(), &b.taken)),
    );
    let columns = vec![
        Column::text("Backup"),
        Column::number("Stripes", "", 0),
        Column::number("Elapsed", "s", 2),
        Column::number("Throughput", "MB/s", 1),
        Column::number("Share of NUL", "%", 1),
        Column::number("CPU", "% of system", 1),
        Column::number("CPU time", "s", 2),
        Column::number("Size", "10^6 bytes", 1),
        Column::number("Ratio", "", 3),
        Column::number("CPU temp.", "°C", 1),
        Column::number("Drive temp.", "°C", 1),
        Column::text("Limited by"),
        Column::text("Compressed by"),
    ];
    let hardware = if kinds.contains(&HARDWARE) {
        format!(
            "{}: software compresses the blocks that the accelerator leaves; the last column shows who compressed which share. Only \
             backups of which an accelerator compressed {:.0} % or more count as hardware in the headline, the charts and \
             the ratios. One backup to NUL before, in which it was tested, is not counted.",
            HARDWARE.name,
            100.0 * IN_HARDWARE
        )
    } else {
        let mut skipped = vec![Cell::Absent; columns.len()];
        skipped[0] = format!("{}: skipped", HARDWARE.name).into();
        rows.push(skipped);
        format!(
            "{} was skipped ({} backups): no QAT accelerator can be used here.",
            HARDWARE.name,
            spec.stripes.len()
        )
    };
    Section {
        heading: format!("{} backups", 1 + backups.len()),
        prose: vec![
            format!(
                "One backup to NUL shows how fast the source can be read; {} stripe counts for each \
                 algorithm follow, spread over {} directories. MAXTRANSFERSIZE is {} bytes; {} s pass \
                 between backups. Elapsed time includes making the stripes durable. MB/s is SQL Server's \
                 figure: 2^20 bytes of the database per second. CPU is the whole machine's, other \
                 programs included; CPU time is this program's.",
                spec.stripes.len(),
                spec.dirs.len(),
                spec.buffer_bytes,
                spec.pause.as_secs_f64()
            ),
            hardware,
        ],
        table: Some(Table {
            columns,
            row_values: rows,
        }),
        charts: charts(spec, kinds, nul, backups),
    }
}

fn charts(spec: &StripesSpec, kinds: &[Kind], nul: &Timing, backups: &[Backup]) -> Vec<Chart> {
    let of = |value: &dyn Fn(&Timing) -> Option<f64>| -> Vec<Series> {
        let values = |kind| {
            let counts = spec.stripes.iter();
            counts
                .map(|&n| at(backups, kind, n).and_then(value))
                .collect()
        };
        kinds
            .iter()
            .map(|&kind| Series::new(kind.name, values(kind)))
            .collect()
    };
    let mut charts = Vec::new();
    let mut put = |title: &str, axis: Axis, series: Vec<Series>| {
        if series.iter().any(|s| s.values.iter().any(Option::is_some)) {
            charts.push(by_stripes(&spec.stripes, title, axis, series));
        }
    };
    let mut throughput = of(&|t| Some(t.mb_per_s()));
    throughput.push(level("NONE to NUL", nul.mb_per_s(), spec.stripes.len()));
    put("Throughput", Axis::new("Throughput", "MB/s"), throughput);
    let mut whole = Axis::new("CPU", "% of system");
    whole.max = Some(100.0);
    put(
        "CPU of the whole system",
        whole,
        of(&|t| t.system_cpu_percent),
    );
    let size = of(&|t| Some(t.stored_bytes as f64 / 1e6));
    put("Size of the backup", Axis::new("Size", "10^6 bytes"), size);
    put(
        "CPU temperature",
        Axis::new("Temperature", "°C"),
        of(&|t| t.cpu_c),
    );
    put(
        "Drive temperature",
        Axis::new("Temperature", "°C"),
        of(&|t| t.drive_c),
    );
    charts
}

fn by_stripes(stripes: &[usize], title: &str, y: Axis, series: Vec<Series>) -> Chart {
    Chart {
        title: title.into(),
        form: ReportFormat::Line,
        x: Positions {
            label: "Stripes".into(),
            unit: String::new(),
            at: At::Numbers(stripes.iter().map(|&n| n as f64).collect()),
        },
        y,
        y_right: None,
        series,
    }
}

/// A line at one height, for comparison.
fn level(name: &str, height: f64, count: usize) -> Series {
    Series {
        dashed: true,
        ..Series::new(name, vec![Some(height); count])
    }
}

/// QAT_DEFLATE compared with MS_XPRESS, by stripe count.
pub struct Ratios {
    /// The engine that did QAT_DEFLATE.
    by: &'static str,
    rows: Vec<Ratio>,
}

struct Ratio {
    stripes: usize,
    /// Elapsed time of MS_XPRESS divided by that of QAT_DEFLATE: above 1, QAT_DEFLATE is faster.
    time: f64,
    /// Bytes of MS_XPRESS divided by those of QAT_DEFLATE.
    size: f64,
    cpu: f64,
}

impl Ratios {
    fn of(stripes: &[usize], backups: &[Backup], qat: Kind) -> Ratios {
        let pairs = stripes
            .iter()
            .map(|&n| (n, at(backups, MS_XPRESS, n), at(backups, qat, n)));
        let ratios = Ratios::new(pairs.filter_map(|(n, xpress, qat)| Some((n, xpress?, qat?))));
        let by = match qat.mode {
            OffloadMode::Software => "software",
            _ => "hardware",
        };
        Ratios { by, ..ratios }
    }

    /// From pairs of backups: stripes, MS_XPRESS, QAT_DEFLATE in software.
    pub fn new<'a>(pairs: impl Iterator<Item = (usize, &'a Timing, &'a Timing)>) -> Ratios {
        let ratio = |(stripes, xpress, qat): (usize, &Timing, &Timing)| Ratio {
            stripes,
            time: xpress.wall_s / qat.wall_s.max(1e-9),
            size: xpress.stored_bytes as f64 / qat.stored_bytes.max(1) as f64,
            cpu: xpress.cpu_s / qat.cpu_s.max(1e-9),
        };
        Ratios {
            by: "software",
            rows: pairs.map(ratio).collect(),
        }
    }

    /// `None`: there is nothing to compare.
    fn summary(&self) -> Option<String> {
        if self.rows.is_empty() {
            return None;
        }
        let extremes = |value: fn(&Ratio) -> f64| {
            let spread = crate::spread::RoundResults::of(self.rows.iter().map(value));
            spread.map_or("–".into(), |s| s.range(2))
        };
        Some(format!(
            "Over {}, MS_XPRESS takes {} times as long as QAT_DEFLATE in {} and {} times the space.",
            counted(self.rows.len(), "stripe count"),
            extremes(|r| r.time),
            self.by,
            extremes(|r| r.size)
        ))
    }

    pub fn section(&self) -> Section {
        let rows = self.rows.iter().map(|r| {
            let number = |n: f64| Cell::from(n);
            vec![
                number(r.stripes as f64),
                number(r.time),
                number(r.cpu),
                number(r.size),
            ]
        });
        let table = Table {
            columns: vec![
                Column::number("Stripes", "", 0),
                Column::number("Time", "MS_XPRESS : QAT_DEFLATE", 2),
                Column::number("CPU time", "MS_XPRESS : QAT_DEFLATE", 2),
                Column::number("Size", "MS_XPRESS : QAT_DEFLATE", 3),
            ],
            row_values: rows.collect(),
        };
        let counts: Vec<usize> = self.rows.iter().map(|r| r.stripes).collect();
        let values = |value: fn(&Ratio) -> f64| self.rows.iter().map(|r| Some(value(r))).collect();
        let series = vec![
            Series::new("time", values(|r| r.time)),
            Series::new("size", values(|r| r.size)),
            level("published 3.27 ×", PUBLISHED_TIME, counts.len()),
            level("published 2 ×", PUBLISHED_OTHER, counts.len()),
        ];
        Section {
            heading: match self.by {
                "software" => "QAT_DEFLATE against MS_XPRESS".into(),
                by => format!("QAT_DEFLATE in {by} against MS_XPRESS"),
            },
            prose: vec![format!(
                "How many times the time, CPU time and space of QAT_DEFLATE, in {}, MS_XPRESS needs; above 1, QAT_DEFLATE \
                 is better. Published for SQL Server on other machines and data: up to 3.27 × in time with QAT hardware, \
                 and 2 ×. The MS_XPRESS here is a current implementation of the same format, not a slow one: a smaller \
                 ratio than published may mean no more than that.",
                self.by
            )],
            table: Some(table),
            charts: vec![by_stripes(
                &counts,
                "MS_XPRESS : QAT_DEFLATE",
                Axis::new("Ratio", ""),
                series,
            )],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_pipeline::{EngineShare, Limit};

    fn taken(wall_s: f64, stored_bytes: u64) -> Timing {
        Timing {
            wall_s,
            cpu_s: 2.0 * wall_s,
            system_cpu_percent: None,
            plain_bytes: 1000 << 20,
            stored_bytes,
            cpu_c: None,
            drive_c: None,
            cold_bytes: 0,
            limit: Limit::Cpu,
            engines: Vec::new(),
            samples: Vec::new(),
            buffers: (0, 0),
            core_percents: Vec::new(),
        }
    }

    /// An accelerator that failed midway, and one that did nothing: their rows are not named after it, and the
    /// headline does not count them.
    #[test]
    fn blocks_that_software_compressed_do_not_count_as_hardware() {
        let backup = |kind: Kind, stripes, hardware: u64| {
            let share = |name: &str, is_accelerator, plain_bytes| EngineShare {
                name: name.into(),
                is_accelerator,
                plain_bytes,
                ..EngineShare::default()
            };
            Backup {
                kind,
                stripes,
                taken: Timing {
                    engines: vec![
                        share("qatzip", true, hardware),
                        share("isa-l", false, 1000 - hardware),
                    ],
                    ..taken(1.0, 100)
                },
            }
        };
        let mut backups: Vec<Backup> = [(1, 1000), (2, 962), (4, 381), (8, 0)]
            .map(|(stripes, hardware)| backup(HARDWARE, stripes, hardware))
            .into();
        let names: Vec<String> = backups.iter().map(Backup::name).collect();
        assert_eq!(
            names,
            [
                "QAT_DEFLATE hardware",
                "QAT_DEFLATE, 96.2 % in hardware",
                "QAT_DEFLATE, 38.1 % in hardware",
                "QAT_DEFLATE software, hardware requested",
            ]
        );
        let by = backups[2].taken.compressed_by();
        assert_eq!(by.as_deref(), Some("qatzip 38.1 %, isa-l 61.9 %"));
        for stripes in [1, 2, 4, 8] {
            backups.push(backup(MS_XPRESS, stripes, 0));
            backups.push(backup(SOFTWARE, stripes, 0));
        }
        let ratios = Ratios::of(&[1, 2, 4, 8], &backups, HARDWARE);
        let counted: Vec<usize> = ratios.rows.iter().map(|row| row.stripes).collect();
        assert_eq!(counted, [1, 2]);
        assert!(
            ratios
                .summary()
                .unwrap()
                .starts_with("Over 2 stripe counts")
        );
        let told = fallen_back(&backups).unwrap();
        assert!(told.starts_with("2 of 4 backups with hardware do not count"));
        assert!(told.contains("0.0–38.1 %"), "{told}");
        let none: Vec<Backup> = [backup(HARDWARE, 1, 0), backup(MS_XPRESS, 1, 0)].into();
        assert_eq!(Ratios::of(&[1], &none, HARDWARE).summary(), None);
    }

    #[test]
    fn a_ratio_above_one_says_that_qat_deflate_is_better() {
        let (xpress, qat) = (taken(6.0, 300), taken(2.0, 200));
        let ratios = Ratios::new([(8, &xpress, &qat)].into_iter());
        let row = &ratios.rows[0];
        assert_eq!(
            (row.stripes, row.time, row.size, row.cpu),
            (8, 3.0, 1.5, 3.0)
        );
        assert!(
            ratios
                .summary()
                .unwrap()
                .contains("3.00–3.00 times as long as QAT_DEFLATE")
        );
    }
}
