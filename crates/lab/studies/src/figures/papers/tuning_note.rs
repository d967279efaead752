//! S3: the technical note about tuning the compression of SQL Server 2008's backups.
//!
//! Invariants
//! - Compression is MS_XPRESS, as it was then.
//! - Figures 4 to 7 show one study of six configurations, which runs once for all of them.
//! - Four devices are on four volumes only on four drives, or on emulated ones. Four directories of one drive are called
//!   so, and no statement about volumes is judged by them; with fewer directories that configuration is left out.
//! - BUFFERCOUNT is on the horizontal axis, with the default as a point at the number that the plan chose.
//!
//! Leaves to others: making the backups (`trials.rs`), and lines over time (`samples.rs`).

use anyhow::Result;
use longshore_codec::Algorithm;
use longshore_pipeline::SourceSpec;

use super::super::measured::OurValues;
use super::super::measured::Ours::{Ratio, Saving, Value};
use super::super::published::Stance::{Above, Between, Implied, NearOne, Open};
use super::super::published::Stated::{About, Number};
use super::super::published::Sureness::{Approximate, Exact, Prose};
use super::super::published::{Figure, Paper, Published, SLIGHTLY};
use super::super::trials::{
    Layout, Trial, Tried, alternate, bars, measured, section, which_limits,
};
use super::super::workbench::Workbench;
use super::samples::over_time;
use crate::curves::{CurvePlace, over_buffers, size_told};
use crate::limits;
use crate::report::{Axis, Chart, Column, Section, Series, Table, counted};
use crate::sample::SampleKind;
use crate::spread::median;
use crate::timing::Timing;

pub const PAPER: Paper = Paper {
    name: "Tuning the Performance of Backup Compression in SQL Server 2008 (SQLCAT)",
    machine: "PowerEdge 6950 (8 cores at 2.8 GHz), 32 GB, CX700 with 10K SCSI disks, 2008: 286 GiB of stock trading in \
              volumes of 8 disks",
    figures: &[T1, F1, F2, F3, F4, F5, F6, F7],
};

const MIB: (&str, u8) = ("MiB", 0);
const SECONDS: (&str, u8) = ("s", 2);
const RATE: (&str, u8) = ("MB/s", 0);
const TIMES: (&str, u8) = ("×", 2);
const PERCENT: (&str, u8) = ("% of system", 1);

const BENEFIT: [Published; 8] = [
    Published::number(
        "Size, uncompressed",
        MIB,
        (Number(292_705.0), Exact),
        Value("none/mib"),
        Open,
    ),
    Published::number(
        "Size, compressed",
        MIB,
        (Number(95_907.0), Exact),
        Value("xpress/mib"),
        Open,
    ),
    Published::number(
        "Ratio",
        ("", 2),
        (Number(3.05), Exact),
        Value("xpress/ratio"),
        Implied,
    ),
    Published::number(
        "Elapsed, uncompressed",
        SECONDS,
        (Number(3348.0), Exact),
        Value("none/s"),
        Open,
    ),
    Published::number(
        "Elapsed, compressed",
        SECONDS,
        (Number(1705.0), Exact),
        Value("xpress/s"),
        Open,
    ),
    Published::number(
        "Space saved",
        ("%", 1),
        (About(67.0), Approximate),
        Saving("xpress/bytes", "none/bytes"),
        Implied,
    ),
    Published::order(
        "Time uncompressed by compressed",
        TIMES,
        "compressed is shorter",
        Ratio("none/s", "xpress/s"),
        Above(1.0),
    ),
    Published::picture(
        "Rate of writing, compressed",
        RATE,
        Value("xpress/write_mb_s"),
    ),
];

const TWO: &str =
    "the sample stae to one file, uncompressed first and with MS_XPRESS second, in turns.";

const T1: Figure = Figure {
    id: "S3.T1",
    title: "Uncompressed and compressed backup",
    shows: "a table of the database's history: sizes, ratio and time of two backups",
    rows: &BENEFIT,
    claim: "compression saves about 67 % of the space.",
    doubts: &[
        "devices and options of both are not stated; at 172 MB/s it was probably not tuned, since the note has 400 MB/s elsewhere.",
        "\"about 300 GB\" is 285.8 GiB.",
    ],
    made_by: TWO,
    not_shown: "a target so slow that writing less decides: on a fast drive the uncompressed backup may be shorter.",
    make: benefit,
};

const F1: Figure = Figure {
    id: "S3.F1",
    title: "Benefit in space and time",
    shows: "bars of space and time, compressed and not; its values are those of Table 1",
    rows: &BENEFIT,
    claim: "fewer writes shorten the backup.",
    doubts: &["the text gives no values but those of Table 1."],
    made_by: TWO,
    not_shown: "a target so slow that writing less decides: on a fast drive the uncompressed backup may be shorter.",
    make: benefit,
};

const F2: Figure = Figure {
    id: "S3.F2",
    title: "Throughput to NUL against BUFFERCOUNT",
    shows: "BUFFERCOUNT on the horizontal, MB/s on the vertical axis; a curve without values",
    rows: &[
        Published::order(
            "To NUL: most buffers by one buffer",
            TIMES,
            "grows up to the read limit",
            Ratio("most/mb_s", "least/mb_s"),
            Above(1.0),
        ),
        Published::picture("To NUL, default", RATE, Value("default/mb_s")),
        Published::picture("To NUL, most buffers", RATE, Value("most/mb_s")),
    ],
    claim: "throughput grows with BUFFERCOUNT up to the read limit.",
    doubts: &[
        "the points are not known but the default and, as an example, 50; MAXTRANSFERSIZE is 1 MB, observed were 512 KB.",
    ],
    made_by: "the sample stae with MS_XPRESS to NUL and to one file: BUFFERCOUNT by default and from 1 to 64, each with \
              MAXTRANSFERSIZE 512 KiB, 1 MiB and 4 MiB.",
    not_shown: "the input disks of 2008: where reading is fast, the CPUs are the limit that the curve approaches.",
    make: buffers,
};

const F3: Figure = Figure {
    id: "S3.F3",
    title: "Read throughput and latency over time",
    shows: "Disk Read Bytes/sec and Avg. Disk sec/Read over time, one log over all runs to NUL",
    rows: &[
        Published::number(
            "Plateau of reading",
            RATE,
            (About(400.0), Approximate),
            Value("most/mb_s"),
            Open,
        ),
        Published::order(
            "Latency with most buffers by that with the fewest",
            TIMES,
            "continues to rise after the plateau",
            Ratio("most/read_us", "least/read_us"),
            Above(1.0),
        ),
    ],
    claim: "the input disks are the bottleneck, and were with a real device, too.",
    doubts: &["Table 1 of the same note has 172 MB/s with real devices."],
    made_by: "the sample stae with MS_XPRESS to NUL at rising BUFFERCOUNT, one run after another, read from the disk; \
              the samples that every run records each second.",
    not_shown: "a run shorter than a second has one point: use a larger --size. Latency is that of Longshore's own reads.",
    make: reading,
};

const F4: Figure = Figure {
    id: "S3.F4",
    title: "Number of devices and volumes",
    shows: "backup performance for each layout, options by default; the unit is not stated",
    rows: &[
        Published::number(
            "BUFFERCOUNT with 1 device",
            ("", 0),
            (Number(13.0), Prose),
            Value("1x1/buffers"),
            Open,
        ),
        Published::number(
            "BUFFERCOUNT with 4 devices",
            ("", 0),
            (Number(28.0), Prose),
            Value("1x4/buffers"),
            Open,
        ),
        Published::order(
            "1 device by 4 devices on one volume: time",
            TIMES,
            "4 devices are better",
            Ratio("1x1/s", "1x4/s"),
            Above(1.0),
        ),
        Published::order(
            "4 devices on one volume by 4 on four: time",
            TIMES,
            "four volumes are very slightly better",
            Ratio("1x4/s", "4x4/s"),
            Between(1.0, SLIGHTLY),
        ),
        Published::picture("1 device", SECONDS, Value("1x1/s")),
        Published::picture("4 devices on one volume", SECONDS, Value("1x4/s")),
        Published::picture("4 devices on four volumes", SECONDS, Value("4x4/s")),
    ],
    claim: "several devices help, separate volumes hardly, because the test was bound by reading.",
    doubts: &["the volume of one had as many disks as the four together."],
    made_by: SIX,
    not_shown: VOLUMES,
    make: |bench| configurations(bench, 0),
};

const SIX: &str = "the sample stae with MS_XPRESS in six configurations in turns: 1 device, 4 on one volume, 4 on four (if --dir names four drives, or --emulate makes devices of four directories), and \
                   1 device with MAXTRANSFERSIZE 4 MiB, with BUFFERCOUNT 50, and with both.";
const VOLUMES: &str = "four volumes, unless --dir names directories of four drives, or they are emulated. Four directories of one drive are \
                       shown and not judged; with fewer directories nothing stands for them.";

/// Of the configuration with the most.
const FOUR: usize = 4;

const F5: Figure = Figure {
    id: "S3.F5",
    title: "CPU per core against parallelism",
    shows: "utilisation of each of 8 cores; values are in no text",
    rows: &[
        Published::order(
            "CPU: BUFFERCOUNT 50 by default, 1 device",
            TIMES,
            "rises on all cores",
            Ratio("1x1/50/cpu", "1x1/cpu"),
            Above(1.0),
        ),
        Published::order(
            "CPU: 4 devices by 1 device",
            TIMES,
            "rises on all cores",
            Ratio("1x4/cpu", "1x1/cpu"),
            Above(1.0),
        ),
    ],
    claim: "a larger BUFFERCOUNT or several devices add compression threads; lower both to spare a workload.",
    doubts: &[],
    made_by: SIX,
    not_shown: "the note's threads: Longshore compresses with all CPUs at one device already, so neither adds any.",
    make: |bench| configurations(bench, 1),
};

const F6: Figure = Figure {
    id: "S3.F6",
    title: "Time and average CPU for six configurations",
    shows: "backup time and mean CPU against layout, MAXTRANSFERSIZE and BUFFERCOUNT; values are in no text",
    rows: &[
        Published::order(
            "Time: 1 device tuned by 4 devices on four volumes",
            TIMES,
            "comes near",
            Ratio("1x1/50/4m/s", "4x4/s"),
            NearOne(0.15),
        ),
        Published::order(
            "Time: 1 device by 1 device with BUFFERCOUNT 50",
            TIMES,
            "BUFFERCOUNT helps first",
            Ratio("1x1/s", "1x1/50/s"),
            Above(1.0),
        ),
        Published::order(
            "Time: MAXTRANSFERSIZE 1 MiB by 4 MiB, 1 device",
            TIMES,
            "gives little",
            Ratio("1x1/s", "1x1/4m/s"),
            NearOne(0.1),
        ),
        Published::picture("1 device", SECONDS, Value("1x1/s")),
        Published::picture(
            "1 device, BUFFERCOUNT 50, MAXTRANSFERSIZE 4 MiB",
            SECONDS,
            Value("1x1/50/4m/s"),
        ),
        Published::picture("CPU of 1 device", PERCENT, Value("1x1/cpu")),
        Published::picture(
            "CPU of 4 devices on four volumes",
            PERCENT,
            Value("4x4/cpu"),
        ),
    ],
    claim: "one device with tuned options comes near several devices; BUFFERCOUNT first, MAXTRANSFERSIZE gives little.",
    doubts: &["which six configurations is not in the text; not every combination was tested."],
    made_by: SIX,
    not_shown: VOLUMES,
    make: |bench| configurations(bench, 0),
};

const F7: Figure = Figure {
    id: "S3.F7",
    title: "Read and write throughput of those runs",
    shows: "MB/s read and written for each configuration; values are in no text",
    rows: &[
        Published::order(
            "Read by written, 1 device",
            TIMES,
            "writes are below reads",
            Ratio("1x1/mb_s", "1x1/write_mb_s"),
            Implied,
        ),
        Published::order(
            "Read by written, 4 devices on four volumes",
            TIMES,
            "writes are below reads",
            Ratio("4x4/mb_s", "4x4/write_mb_s"),
            Implied,
        ),
        Published::picture("Read, 1 device", RATE, Value("1x1/mb_s")),
        Published::picture("Written, 1 device", RATE, Value("1x1/write_mb_s")),
    ],
    claim: "compression makes writes fewer than reads.",
    doubts: &[],
    made_by: SIX,
    not_shown: VOLUMES,
    make: |bench| configurations(bench, 2),
};

fn trial(source: &SourceSpec, key: &str, label: &str, layout: Layout) -> Trial {
    Trial::new(key, label, source, layout, Algorithm::MsXpress)
}

fn benefit(bench: &Workbench) -> Result<OurValues> {
    bench.once("benefit", || {
        let source = bench.sample(SampleKind::Stae)?;
        let none = Trial::new("none", "uncompressed (NONE)", &source, Layout::One(1), Algorithm::None);
        let compressed = trial(&source, "xpress", "compressed (MS_XPRESS)", Layout::One(1));
        let tried = alternate(bench, vec![none, compressed])?;
        let mut measured = measured(bench, &tried, Vec::new())?;
        let prose = "Two backups to one file. MB/s is SQL Server's figure: 2^20 bytes of the database per second.";
        let mut both = section("Space and time", prose.into(), &tried);
        let size = bars("Size", Axis::new("Size", "10^6 bytes"), &tried, &|t| {
            Some(t.stored_bytes as f64 / 1e6)
        });
        both.charts.insert(1, size);
        measured.sections = vec![both];
        Ok(measured)
    })
}

/// BUFFERCOUNT, ascending after the default.
fn counts(bench: &Workbench) -> Vec<Option<usize>> {
    let counts: &[usize] = match bench.spec.quick {
        true => &[1, 8],
        false => &[1, 2, 4, 8, 16, 32, 64],
    };
    std::iter::once(None)
        .chain(counts.iter().copied().map(Some))
        .collect()
}

/// MAXTRANSFERSIZE without an option.
const DEFAULT_BYTES: usize = 1 << 20;
/// The targets of the figure about BUFFERCOUNT.
const TARGETS: [(&str, Layout); 2] = [("NUL", Layout::Nul), ("one file", Layout::One(1))];

fn buffers(bench: &Workbench) -> Result<OurValues> {
    let source = bench.sample(SampleKind::Stae)?;
    let sizes: &[usize] = match bench.spec.quick {
        true => &[DEFAULT_BYTES, 4 << 20],
        false => &[512 << 10, DEFAULT_BYTES, 4 << 20],
    };
    let mut trials = Vec::new();
    for (name, layout) in TARGETS {
        for &bytes in sizes {
            for count in counts(bench) {
                let asked = count.map_or("default".to_owned(), |n| n.to_string());
                let key = format!("{name}/{bytes}/{asked}");
                let label = format!("{name}, {}, {asked}", size_told(bytes));
                trials.push(trial(&source, &key, &label, layout).tuned(count, Some(bytes)));
            }
        }
    }
    let tried = alternate(bench, trials)?;
    let mut measured = measured(bench, &tried, Vec::new())?;
    let most = counts(bench).last().copied().flatten().unwrap_or(1);
    for (ours, asked) in [
        ("default", "default".to_owned()),
        ("least", "1".into()),
        ("most", most.to_string()),
    ] {
        measured.alias(&format!("NUL/{DEFAULT_BYTES}/{asked}"), ours);
    }
    let mut charts = Vec::new();
    let mut told = Vec::new();
    for (name, layout) in TARGETS {
        let mut places = Vec::new();
        for &bytes in sizes {
            let own: Vec<&Tried> = tried
                .iter()
                .filter(|t| t.trial.layout == layout && t.trial.tuning.buffer_bytes == Some(bytes))
                .collect();
            places.extend(own.iter().map(|t| CurvePlace {
                curve: size_told(bytes),
                buffers: buffers_of(t),
                is_default: t.trial.tuning.buffer_count.is_none(),
                value: t.median(Timing::mb_per_s),
            }));
            let held = own.iter().filter_map(|t| Some((buffers_of(t), t.limit()?)));
            let curve = format!("to {name} with {}", size_told(bytes));
            told.push((curve, held.collect()));
            if bytes == DEFAULT_BYTES {
                measured.findings.extend(which_limit(name, &own));
            }
        }
        let title = format!("Throughput to {name}");
        charts.push(over_buffers(
            &title,
            Axis::new("Throughput", "MB/s"),
            &places,
        ));
    }
    let prose = "Target, MAXTRANSFERSIZE and BUFFERCOUNT of each backup. MB/s is SQL Server's figure: 2^20 bytes of the \
                 database per second.";
    let mut all = section("Buffers", prose.into(), &tried);
    all.prose.extend(limits::over_curves(&told));
    all.charts = charts;
    measured.sections = vec![all];
    Ok(measured)
}

/// The number of buffers that a trial had: asked for, or chosen by the plan.
fn buffers_of(tried: &Tried) -> usize {
    tried.taken.first().map_or(0, |t| t.buffers.0)
}

/// The BUFFERCOUNT from which on more gives nothing, and the limits on the way.
fn which_limit(target: &str, curve: &[&Tried]) -> Option<String> {
    const ALMOST: f64 = 0.95;
    let mut points: Vec<(usize, f64, String)> = curve
        .iter()
        .filter_map(|t| Some((buffers_of(t), t.median(Timing::mb_per_s)?, t.limit()?)))
        .collect();
    points.sort_by_key(|p| p.0);
    let best = points.iter().map(|p| p.1).fold(0.0, f64::max);
    let reached = points.iter().find(|p| p.1 >= ALMOST * best)?.0;
    let held = points
        .into_iter()
        .map(|(buffers, _, limit)| (buffers, limit));
    Some(format!(
        "To {target} with 1 MiB, BUFFERCOUNT {reached} reaches 95 % of the best {best:.0} MB/s; which limit held at which \
         BUFFERCOUNT: {}.",
        limits::along(held.collect())
    ))
}

fn reading(bench: &Workbench) -> Result<OurValues> {
    let source = bench.sample(SampleKind::Stae)?;
    let trials = counts(bench).into_iter().map(|count| {
        let asked = count.map_or("default".to_owned(), |n| n.to_string());
        let label = format!("BUFFERCOUNT {asked}");
        trial(&source, &asked, &label, Layout::Nul).tuned(count, None)
    });
    let tried = alternate(bench, trials.collect())?;
    let mut measured = measured(bench, &tried, Vec::new())?;
    let most = counts(bench).last().copied().flatten().unwrap_or(1);
    measured.alias("1", "least");
    measured.alias(&most.to_string(), "most");
    let prose = "Backups to NUL, the default first, then with rising BUFFERCOUNT. MB/s is SQL Server's figure: 2^20 bytes of \
                 the database per second.";
    let lines = over_time(
        "Reading over time",
        "The last round on one axis of time. Read rate is what was taken from the source; latency is the mean of the reads \
         that went to the disk.",
        &tried,
        &[
            ("Read rate", "MB/s", |s| {
                Some(s.read_bytes_per_s as f64 / f64::from(1 << 20))
            }),
            ("Read latency", "ms", |s| {
                s.read_latency_us.map(|us| us as f64 / 1e3)
            }),
        ],
    );
    if lines.is_none() {
        measured
            .missing
            .push("a run long enough for a sample (--size)".into());
    }
    if measured.median("most/read_us").is_none() {
        measured
            .missing
            .push("reads from a disk: the source stayed in the page cache".into());
    }
    measured.sections.extend(lines);
    measured
        .sections
        .push(section("Runs", prose.into(), &tried));
    Ok(measured)
}

/// The study of six configurations; `shown` is the section that belongs to the figure.
fn configurations(bench: &Workbench, shown: usize) -> Result<OurValues> {
    let mut measured = bench.once("configurations", || {
        let source = bench.sample(SampleKind::Stae)?;
        let big = Some(4 << 20);
        let mut trials = vec![
            trial(&source, "1x1", "1 device", Layout::One(1)),
            trial(&source, "1x4", "4 devices, 1 volume", Layout::One(FOUR)),
            trial(&source, "4x4", "4 devices, 4 volumes", Layout::All(FOUR)),
            trial(&source, "1x1/4m", "1 device, 4 MiB", Layout::One(1)).tuned(None, big),
            trial(&source, "1x1/50", "1 device, 50 buffers", Layout::One(1)).tuned(Some(50), None),
            trial(&source, "1x1/50/4m", "1 device, 50 buffers, 4 MiB", Layout::One(1)).tuned(Some(50), big),
        ];
        let mut missing = Vec::new();
        let volumes = bench.volumes()?;
        if volumes.count() < FOUR {
            let told = volumes.directories_told();
            missing.push(format!("4 devices on four volumes ({told} for stripes; name four with --dir, or --emulate them)"));
            // Several directories of one drive are no volumes, and no statement about these is judged by them.
            let is_played = volumes.directories >= FOUR;
            trials.retain(|t| is_played || t.layout != Layout::All(FOUR));
            for played in trials.iter_mut().filter(|t| t.layout == Layout::All(FOUR)) {
                (played.key, played.label) = ("4x4/played".into(), format!("4 devices, {told}"));
            }
        }
        let tried = alternate(bench, trials)?;
        let mut measured = measured(bench, &tried, missing)?;
        measured.findings.extend(which_limits(&tried));
        let prose = "The configurations in turns. MB/s is SQL Server's figure: 2^20 bytes of the database per second.";
        measured.sections = vec![
            section("Configurations", prose.into(), &tried),
            by_core(&tried),
            read_and_written(&tried),
        ];
        Ok(measured)
    })?;
    measured.sections = measured.sections.drain(..).skip(shown).take(1).collect();
    Ok(measured)
}

fn by_core(tried: &[Tried]) -> Section {
    let cores = tried
        .iter()
        .flat_map(|t| &t.taken)
        .map(|t| t.core_percents.len())
        .max()
        .unwrap_or(0);
    let of = |one: &Tried, core: usize| {
        median(
            one.taken
                .iter()
                .filter_map(|t| t.core_percents.get(core).copied()),
        )
    };
    let mut whole = Axis::new("CPU", "%");
    whole.max = Some(100.0);
    let mut columns = vec![Column::text("Configuration")];
    columns.extend((0..cores).map(|core| Column::number(&format!("CPU {core}"), "%", 1)));
    let row = |one: &Tried| {
        let mut cells = vec![one.trial.label.as_str().into()];
        cells.extend((0..cores).map(|core| of(one, core).into()));
        cells
    };
    let line = |one: &Tried| {
        Series::new(
            &one.trial.label,
            (0..cores).map(|core| of(one, core)).collect(),
        )
    };
    Section {
        heading: "Each processor".into(),
        prose: vec![format!(
            "How busy each of {} was during the backup, all programs included.",
            counted(cores, "processor")
        )],
        table: Some(Table {
            columns,
            row_values: tried.iter().map(row).collect(),
        }),
        charts: vec![Chart::bars(
            "CPU of each processor",
            "Processor",
            (0..cores).map(|core| core.to_string()).collect(),
            whole,
            tried.iter().map(line).collect(),
        )],
    }
}

fn read_and_written(tried: &[Tried]) -> Section {
    let written = |t: &Timing| t.stored_bytes as f64 / f64::from(1 << 20) / t.wall_s.max(1e-9);
    let values =
        |value: &dyn Fn(&Timing) -> f64| tried.iter().map(|t| t.median(value)).collect::<Vec<_>>();
    let (read, write) = (values(&Timing::mb_per_s), values(&written));
    let rows = tried.iter().zip(&read).zip(&write);
    Section {
        heading: "Read and written".into(),
        prose: vec!["2^20 bytes per second of the whole backup, read from the database and written to the devices.".into()],
        table: Some(Table {
            columns: vec![
                Column::text("Configuration"),
                Column::number("Read", "MB/s", 1),
                Column::number("Written", "MB/s", 1),
            ],
            row_values: rows
                .map(|((t, read), write)| vec![t.trial.label.as_str().into(), (*read).into(), (*write).into()])
                .collect(),
        }),
        charts: vec![Chart::bars(
            "Read and written",
            "",
            tried.iter().map(|t| t.trial.label.clone()).collect(),
            Axis::new("Rate", "MB/s"),
            vec![Series::new("read", read.clone()), Series::new("written", write.clone())],
        )],
    }
}
