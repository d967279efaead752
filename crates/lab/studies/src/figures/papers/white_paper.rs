//! S0: the white paper about QAT in 4th-generation Xeons and backup compression of SQL Server 2022.
//!
//! Invariants
//! - Its numbers are for QAT hardware. Rows of software say so, because no number was published for software; such a
//!   number is not judged.
//! - A maximum over both databases is one row, compared with ours over both.
//! - Figures 3 to 5 show one study, and 6 and 7 another: each runs once for all of its figures.
//!
//! Leaves to others: making the backups (`trials.rs`), and the load (`crate::oltp`).

use std::time::Duration;

use anyhow::Result;
use longshore_codec::{Algorithm, Level};
use longshore_pipeline::SourceSpec;

use super::super::measured::Ours::{
    Difference, Fact, Gain, Larger, Quotient, Ratio, Saving, Value,
};
use super::super::measured::{OurValues, Ours};
use super::super::published::Stance::{Above, Open};
use super::super::published::Stated::{About, UpTo};
use super::super::published::Sureness::Approximate;
use super::super::published::{Figure, Paper, Published};
use super::super::trials::{Layout, Trial, alternate, bars, in_hardware, measured, section};
use super::super::workbench::Workbench;
use crate::oltp::{LoadMix, OltpSpec, oltp};
use crate::platform;
use crate::report::{Axis, Section};
use crate::sample::SampleKind;

pub const PAPER: Paper = Paper {
    name: "New Intel QuickAssist Technology Performance on 4th Gen Intel Xeon Processors: SQL Server 2022 \
           Backup Compression (Intel)",
    machine: "2 Xeon 8490H (240 logical CPUs), 4 QAT devices per socket, 1024 GB, 3 NVMe drives, 2023",
    figures: &[T2, T3, F3, F4, F5, F6, F7],
};

const STRIPES: usize = 8;
const CLIENTS: usize = 4;
const PERCENT: (&str, u8) = ("%", 1);
const TIMES: (&str, u8) = ("×", 2);

const T2: Figure = Figure {
    id: "S0.T2",
    title: "Hardware of the two configurations",
    shows: "a table of the machine for XPRESS and for QAT; the accelerator is the only difference",
    rows: &[
        Published::fact("CPU", "Xeon 8490H", "cpu"),
        Published::fact("Sockets", "2", "sockets"),
        Published::fact("Cores per socket", "60", "cores"),
        Published::fact("Hyperthreading", "on", "hyperthreading"),
        Published::fact("Logical CPUs", "240", "logical"),
        Published::fact("NUMA nodes", "4", "numa"),
        Published::fact(
            "Clock",
            "base 1.9, all-core maximum and during the run 2.9 GHz",
            "clock",
        ),
        Published::fact("Turbo", "on", "turbo"),
        Published::fact("Prefetchers", "DCU HW", "prefetchers"),
        Published::fact(
            "Accelerator",
            "none with XPRESS; QAT Gen4, 4 per socket, with QAT",
            "accelerator",
        ),
        Published::fact("Memory", "1024 GB, 16 × 64 GB DDR5-4800", "memory"),
        Published::fact("Disk", "3 × P4608 NVMe", "disk"),
        Published::fact(
            "BIOS",
            "EGSDCRB.SYS.OR.64.2023.09.2.02.0429.1 (the cell for QAT is empty)",
            "bios",
        ),
        Published::fact("Microcode", "0x2b0001b000000000", "microcode"),
        Published::fact("Kernel", "Windows Server 2022, 10.0.20348.587", "kernel"),
        Published::fact("Governor", "Performance", "governor"),
        Published::fact("Power policy", "Performance", "policy"),
        Published::fact("TDP and C-states", "350 W, at most C0/C1", "power"),
    ],
    claim: "the accelerator is the only difference between both configurations.",
    doubts: &[
        "its power policy is Balanced Perf in Table 1 and Performance here.",
        "it names 3 drives here and 4 source and 2 destination mount points in Table 3.",
        "a footnote has more than 40 cores per socket, this table 60.",
    ],
    made_by: "the record of this machine, as every report has it; nothing is run.",
    not_shown: "turbo, which is not read here; prefetchers, BIOS and power limits, which Linux does not tell without root's \
                tools.",
    make: hardware,
};

const T3: Figure = Figure {
    id: "S0.T3",
    title: "Databases",
    shows: "a table of the two databases: scale, size, files",
    rows: &[
        Published::fact("TPROC-C like: scale", "5000 warehouses", "tprocc/scale"),
        Published::fact(
            "TPROC-C like: size on disk / used",
            "472 / 393 GB",
            "tprocc/size",
        ),
        Published::fact("STAE: scale", "20,000 SF", "stae/scale"),
        Published::fact("STAE: size on disk / used", "516 / 516 GB", "stae/size"),
        Published::fact("Stripes", "8 files", "stripes"),
        Published::fact("Mount points", "4 source + 2 destination", "mounts"),
        Published::fact(
            "Files of a database",
            "4 data files + 1 log (in prose)",
            "files",
        ),
    ],
    claim: "STAE has a low interaction with the backup, the TPROC-C like database a high one.",
    doubts: &[
        "the prose has 12000 warehouses and about 470 GB; 5000 warehouses of 393 GB would be 79 MB each.",
        "STAE has about 500 GB in the prose and 516 GB in the table.",
    ],
    made_by: "the samples tprocc and stae (longshore lab sample) of --size bytes each, which Figures 3 to 5 back up.",
    not_shown: "databases of the published size, unless --size and the disk allow it; SQLite keeps each in one file.",
    make: databases,
};

const STAE_SPEED_UP: Ours = Ratio("stae/xpress/s", "stae/hard/s");
const TPROCC_SPEED_UP: Ours = Ratio("tprocc/xpress/s", "tprocc/hard/s");

const F3: Figure = Figure {
    id: "S0.F3",
    title: "Backup-time speed-up, idle server",
    shows: "bars for each database: time with XPRESS divided by time with QAT",
    rows: &[
        Published::number(
            "Best speed-up with hardware of both databases",
            TIMES,
            (UpTo(3.27), Approximate),
            Larger(&STAE_SPEED_UP, &TPROCC_SPEED_UP),
            Above(1.0),
        ),
        Published::order(
            "Speed-up with hardware, STAE",
            TIMES,
            "above 1",
            STAE_SPEED_UP,
            Above(1.0),
        ),
        Published::order(
            "Speed-up with hardware, TPROC-C like",
            TIMES,
            "above 1",
            TPROCC_SPEED_UP,
            Above(1.0),
        ),
        Published::order(
            "Speed-up with hardware, STAE by TPROC-C like",
            TIMES,
            "STAE gains more",
            Quotient(&STAE_SPEED_UP, &TPROCC_SPEED_UP),
            Above(1.0),
        ),
        Published::order(
            "Speed-up with software, STAE",
            TIMES,
            "above 1 (published for hardware)",
            Ratio("stae/xpress/s", "stae/qat/s"),
            Above(1.0),
        ),
        Published::order(
            "Speed-up with software, TPROC-C like",
            TIMES,
            "above 1 (published for hardware)",
            Ratio("tprocc/xpress/s", "tprocc/qat/s"),
            Above(1.0),
        ),
    ],
    claim: "offload shortens the backup up to 3.27 times; the more compressible database gains most.",
    doubts: &[
        "BUFFERCOUNT, MAXTRANSFERSIZE, the number of runs and their spread are not stated, nor any absolute time.",
    ],
    made_by: IDLE,
    not_shown: "the hardware's part without a QAT device. MS_XPRESS here is a current implementation of the format, not SQL Server's own.",
    make: |bench| Ok(idle(bench)?.led_by("Elapsed")),
};

const IDLE: &str = "both samples to 8 stripes, MS_XPRESS and QAT_DEFLATE LOW in turns (and MEDIUM and HIGH for the ratio), \
                    MAXTRANSFERSIZE and BUFFERCOUNT by default.";

const STAE_LESS_CPU: Ours = Saving("stae/hard/cpu", "stae/xpress/cpu");
const TPROCC_LESS_CPU: Ours = Saving("tprocc/hard/cpu", "tprocc/xpress/cpu");

const F4: Figure = Figure {
    id: "S0.F4",
    title: "CPU utilisation, idle server",
    shows: "CPU utilisation for each database and mode",
    rows: &[
        Published::number(
            "Less CPU with hardware, best of both databases",
            PERCENT,
            (UpTo(69.0), Approximate),
            Larger(&STAE_LESS_CPU, &TPROCC_LESS_CPU),
            Above(0.0),
        ),
        Published::order(
            "Less CPU with hardware, STAE",
            PERCENT,
            "less",
            STAE_LESS_CPU,
            Above(0.0),
        ),
        Published::order(
            "Less CPU with hardware, TPROC-C like",
            PERCENT,
            "less",
            TPROCC_LESS_CPU,
            Above(0.0),
        ),
        Published::picture("CPU with XPRESS, STAE", PERCENT, Value("stae/xpress/cpu")),
        Published::picture(
            "CPU with XPRESS, TPROC-C like",
            PERCENT,
            Value("tprocc/xpress/cpu"),
        ),
        Published::picture(
            "CPU with QAT_DEFLATE in software, STAE",
            PERCENT,
            Value("stae/qat/cpu"),
        ),
        Published::picture(
            "CPU with QAT_DEFLATE in software, TPROC-C like",
            PERCENT,
            Value("tprocc/qat/cpu"),
        ),
        Published::picture(
            "CPU time with XPRESS, STAE",
            ("s/GB", 3),
            Value("stae/xpress/cpu_s_gb"),
        ),
        Published::picture(
            "CPU time with QAT_DEFLATE in software, STAE",
            ("s/GB", 3),
            Value("stae/qat/cpu_s_gb"),
        ),
        Published::picture(
            "CPU time with XPRESS, TPROC-C like",
            ("s/GB", 3),
            Value("tprocc/xpress/cpu_s_gb"),
        ),
        Published::picture(
            "CPU time with QAT_DEFLATE in software, TPROC-C like",
            ("s/GB", 3),
            Value("tprocc/qat/cpu_s_gb"),
        ),
    ],
    claim: "offload frees CPU: up to 69 % less.",
    doubts: &[
        "the reduction is 69 % in the text of the scenario and 68 % in both lists.",
        "it does not say which database has the maximum, nor what the percentage refers to: 12 threads of 240 logical CPUs are 5 %.",
    ],
    made_by: IDLE,
    not_shown: "the hardware's part without a QAT device. The utilisation is the whole machine's, other programs included.",
    make: |bench| Ok(idle(bench)?.led_by("CPU")),
};

const F5: Figure = Figure {
    id: "S0.F5",
    title: "Compression ratio by algorithm and database",
    shows: "uncompressed size divided by compressed size, two databases and two algorithms",
    rows: &[
        Published::number(
            "QAT_DEFLATE hardware smaller than MS_XPRESS, STAE",
            PERCENT,
            (About(13.0), Approximate),
            Saving("stae/hard/bytes", "stae/xpress/bytes"),
            Above(0.0),
        ),
        Published::number(
            "QAT_DEFLATE hardware smaller than MS_XPRESS, TPROC-C like",
            PERCENT,
            (About(2.0), Approximate),
            Saving("tprocc/hard/bytes", "tprocc/xpress/bytes"),
            Above(0.0),
        ),
        Published::number(
            "QAT_DEFLATE LOW in software smaller than MS_XPRESS, STAE (published for hardware)",
            PERCENT,
            (About(13.0), Approximate),
            Saving("stae/qat/bytes", "stae/xpress/bytes"),
            Open,
        ),
        Published::number(
            "QAT_DEFLATE LOW in software smaller than MS_XPRESS, TPROC-C like (published for hardware)",
            PERCENT,
            (About(2.0), Approximate),
            Saving("tprocc/qat/bytes", "tprocc/xpress/bytes"),
            Open,
        ),
        Published::number(
            "QAT_DEFLATE HIGH in software smaller than MS_XPRESS, STAE (published for hardware)",
            PERCENT,
            (About(13.0), Approximate),
            Saving("stae/high/bytes", "stae/xpress/bytes"),
            Open,
        ),
        Published::number(
            "QAT_DEFLATE HIGH in software smaller than MS_XPRESS, TPROC-C like (published for hardware)",
            PERCENT,
            (About(2.0), Approximate),
            Saving("tprocc/high/bytes", "tprocc/xpress/bytes"),
            Open,
        ),
        Published::order(
            "STAE more compressible than TPROC-C like",
            TIMES,
            "yes",
            Ratio("stae/xpress/ratio", "tprocc/xpress/ratio"),
            Above(1.0),
        ),
        Published::picture(
            "Ratio with MS_XPRESS, STAE",
            ("", 3),
            Value("stae/xpress/ratio"),
        ),
        Published::picture(
            "Ratio with QAT_DEFLATE hardware, STAE",
            ("", 3),
            Value("stae/hard/ratio"),
        ),
        Published::picture(
            "Ratio with QAT_DEFLATE LOW in software, STAE",
            ("", 3),
            Value("stae/qat/ratio"),
        ),
        Published::picture(
            "Ratio with MS_XPRESS, TPROC-C like",
            ("", 3),
            Value("tprocc/xpress/ratio"),
        ),
        Published::picture(
            "Ratio with QAT_DEFLATE hardware, TPROC-C like",
            ("", 3),
            Value("tprocc/hard/ratio"),
        ),
        Published::picture(
            "Ratio with QAT_DEFLATE LOW in software, TPROC-C like",
            ("", 3),
            Value("tprocc/qat/ratio"),
        ),
    ],
    claim: "DEFLATE compresses up to 13 % better than XPRESS, about 2 % with the TPROC-C like database; backups are almost \
            3 times smaller than the data.",
    doubts: &[
        "13 % are savings on disk in one place and a better compression in another. Here they are bytes: by how much the \
         backup is smaller.",
        "the level that the hardware used is not stated. Our default, LOW, trades size for time.",
    ],
    made_by: IDLE,
    not_shown: "the published databases' own content. The samples are similar, and other data compress otherwise.",
    make: |bench| Ok(idle(bench)?.led_by("Ratio")),
};

const LOADED: &str = "longshore lab oltp, with a TPC-C-like load and again with an STAE-like one (--load stae), each on a database of \
                      its own, in PostgreSQL where it is installed and else in SQLite, while backups with each algorithm run one \
                      after another. Both loads are ours: no tpmC, no tpsE.";

const TPROCC_GAIN: Ours = Gain("loaded/hard/tps", "loaded/xpress/tps");
const STAE_GAIN: Ours = Gain("stae_loaded/hard/tps", "stae_loaded/xpress/tps");

const F6: Figure = Figure {
    id: "S0.F6",
    title: "Backup-time speed-up under OLTP load",
    shows: "as Figure 3, with a load on the database that is backed up; its values are in no text",
    rows: &[
        Published::order(
            "Speed-up with hardware, TPROC-C like",
            TIMES,
            "much faster than XPRESS",
            Ratio("loaded/xpress/s", "loaded/hard/s"),
            Above(1.0),
        ),
        Published::order(
            "Speed-up with hardware, STAE like",
            TIMES,
            "much faster than XPRESS",
            Ratio("stae_loaded/xpress/s", "stae_loaded/hard/s"),
            Above(1.0),
        ),
        Published::order(
            "Speed-up with software, STAE like",
            TIMES,
            "much faster (published for hardware)",
            Ratio("stae_loaded/xpress/s", "stae_loaded/qat/s"),
            Above(1.0),
        ),
        Published::order(
            "Speed-up with software, TPROC-C like",
            TIMES,
            "much faster (published for hardware)",
            Ratio("loaded/xpress/s", "loaded/qat/s"),
            Above(1.0),
        ),
        Published::picture(
            "Backup with MS_XPRESS, TPROC-C like",
            ("s", 2),
            Value("loaded/xpress/s"),
        ),
        Published::picture(
            "Backup with QAT_DEFLATE in software, TPROC-C like",
            ("s", 2),
            Value("loaded/qat/s"),
        ),
        Published::picture(
            "Backup with MS_XPRESS, STAE like",
            ("s", 2),
            Value("stae_loaded/xpress/s"),
        ),
        Published::picture(
            "Backup with QAT_DEFLATE in software, STAE like",
            ("s", 2),
            Value("stae_loaded/qat/s"),
        ),
    ],
    claim: "QAT finishes much faster than XPRESS under load, too.",
    doubts: &["the 3.27 times of the idle server are not said of this figure."],
    made_by: LOADED,
    not_shown: "the published loads: STAE is Microsoft's own program, and ours is only like it; hardware without a QAT device.",
    make: |bench| Ok(loaded(bench)?.led_by("Length of a backup")),
};

const F7: Figure = Figure {
    id: "S0.F7",
    title: "OLTP throughput during the backup",
    shows: "transactions during a backup with XPRESS and with QAT (curve or bars: not stated)",
    rows: &[
        Published::number(
            "More transactions with hardware than with XPRESS, best of both loads",
            PERCENT,
            (About(3.0), Approximate),
            Larger(&TPROCC_GAIN, &STAE_GAIN),
            Above(0.0),
        ),
        Published::order(
            "More transactions with software than with XPRESS, TPROC-C like",
            PERCENT,
            "above 0 (published for hardware)",
            Gain("loaded/qat/tps", "loaded/xpress/tps"),
            Above(0.0),
        ),
        Published::order(
            "More transactions with software than with XPRESS, STAE like",
            PERCENT,
            "above 0 (published for hardware)",
            Gain("stae_loaded/qat/tps", "stae_loaded/xpress/tps"),
            Above(0.0),
        ),
        Published::picture(
            "Transactions without a backup, TPROC-C like",
            ("/s", 0),
            Value("loaded/quiet/tps"),
        ),
        Published::picture(
            "Transactions during MS_XPRESS, TPROC-C like",
            ("/s", 0),
            Value("loaded/xpress/tps"),
        ),
        Published::picture(
            "Transactions during QAT_DEFLATE in software, TPROC-C like",
            ("/s", 0),
            Value("loaded/qat/tps"),
        ),
        Published::picture(
            "Transactions without a backup, STAE like",
            ("/s", 0),
            Value("stae_loaded/quiet/tps"),
        ),
        Published::picture(
            "Transactions during MS_XPRESS, STAE like",
            ("/s", 0),
            Value("stae_loaded/xpress/tps"),
        ),
        Published::picture(
            "Transactions during QAT_DEFLATE in software, STAE like",
            ("/s", 0),
            Value("stae_loaded/qat/tps"),
        ),
        Published::order(
            "Fewer transactions lost by a backup with QAT_DEFLATE in software, TPROC-C like",
            ("", 0),
            "fewer: the lowered phase is shorter (published for hardware)",
            Difference("loaded/xpress/lost", "loaded/qat/lost"),
            Above(0.0),
        ),
        Published::order(
            "Fewer transactions lost by a backup with QAT_DEFLATE in software, STAE like",
            ("", 0),
            "fewer: the lowered phase is shorter (published for hardware)",
            Difference("stae_loaded/xpress/lost", "stae_loaded/qat/lost"),
            Above(0.0),
        ),
    ],
    claim: "about 3 % more transactions during the backup, and a shorter phase of lowered throughput.",
    doubts: &[
        "the workload is not named.",
        "it is about 3 % in the text and up to 3 % in the lists.",
    ],
    made_by: LOADED,
    not_shown: "the published loads, which ours are only like; hardware without a QAT device; a server larger than this machine, \
                whose CPUs the load and the backup share.",
    make: |bench| Ok(loaded(bench)?.led_by("Transactions per second")),
};

fn hardware(bench: &Workbench) -> Result<OurValues> {
    let mut measured = OurValues::default();
    for (name, value) in platform::hardware(&bench.spec.dirs) {
        measured.tell(name, value);
    }
    let accelerator = match bench.has_hardware() {
        true => "one that compresses QAT_DEFLATE",
        false => "none that can be used",
    };
    measured.tell("accelerator", accelerator);
    measured.tell("policy", "none: Linux has the governor");
    // A virtual machine's kernel tells less, and no kernel tells all.
    for row in T2.rows {
        if let Fact(name) = row.ours
            && measured.fact(name).is_none()
        {
            measured.tell(name, "not known to this kernel");
        }
    }
    let cpu = measured.fact("cpu").unwrap_or_default().to_owned();
    let logical = measured.fact("logical").unwrap_or("?").to_owned();
    let found = format!("Here: {cpu}; logical CPUs: {logical}; accelerator: {accelerator}.");
    measured.findings.push(found);
    Ok(measured)
}

fn databases(bench: &Workbench) -> Result<OurValues> {
    let mut measured = OurValues::default();
    for (kind, name) in [(SampleKind::Tprocc, "tprocc"), (SampleKind::Stae, "stae")] {
        let SourceSpec::Sqlite(path) = bench.sample(kind)? else {
            continue;
        };
        let len = bench.context.storage.stat(&path)?.len as f64;
        let size = format!("{0:.1} / {0:.1} MB (10^6)", len / 1e6);
        measured
            .findings
            .push(format!("{name}: {:.1} MB.", len / 1e6));
        measured.tell(format!("{name}/size"), size);
        let unit = match kind {
            SampleKind::Tprocc => "warehouses",
            SampleKind::Stae => "customers",
        };
        let scale = format!("{:.2} {unit}", kind.units(len));
        measured.tell(format!("{name}/scale"), scale);
    }
    measured.tell("stripes", format!("{STRIPES} files"));
    let dirs = bench.spec.dirs.len();
    measured.tell("mounts", format!("1 source + {dirs} destination"));
    measured.tell(
        "files",
        "1 file of SQLite, which holds its log between transactions",
    );
    Ok(measured)
}

fn idle(bench: &Workbench) -> Result<OurValues> {
    bench.once("idle", || {
        let mut missing = Vec::new();
        let mut trials = Vec::new();
        for (kind, name) in [(SampleKind::Stae, "stae"), (SampleKind::Tprocc, "tprocc")] {
            let source = bench.sample(kind)?;
            let trial = |key: &str, label: &str, algorithm| {
                let (key, label) = (format!("{name}/{key}"), format!("{name}: {label}"));
                Trial::new(&key, &label, &source, Layout::All(STRIPES), algorithm)
            };
            trials.push(trial("xpress", "MS_XPRESS", Algorithm::MsXpress));
            trials.push(trial("qat", "QAT_DEFLATE LOW", Algorithm::QatDeflate));
            let medium = trial("medium", "QAT_DEFLATE MEDIUM", Algorithm::QatDeflate);
            trials.push(medium.at(Level::Medium));
            let high = trial("high", "QAT_DEFLATE HIGH", Algorithm::QatDeflate);
            trials.push(high.at(Level::High));
            let hard = trial("hard", "QAT_DEFLATE hardware", Algorithm::QatDeflate);
            trials.extend(in_hardware(bench, hard, &mut missing));
        }
        let tried = alternate(bench, trials)?;
        let mut measured = measured(bench, &tried, missing)?;
        let prose = "Every backup of the study. MB/s is SQL Server's figure: 2^20 bytes of the database per second; CPU is the \
                     whole machine's, CPU time this program's.";
        let mut all = section("Backups of an idle database", prose.into(), &tried);
        all.charts.push(bars("Ratio", Axis::new("Ratio", ""), &tried, &|t| Some(t.ratio())));
        measured.sections = vec![all];
        Ok(measured)
    })
}

/// The loads of Figures 6 and 7: their names, and the beginnings of their values' keys.
const LOADS: [(LoadMix, &str, &str); 2] = [
    (LoadMix::Orders, "TPROC-C like", "loaded"),
    (LoadMix::Trades, "STAE like", "stae_loaded"),
];

fn under_load(bench: &Workbench, mix: LoadMix) -> OltpSpec {
    let spec = bench.spec;
    OltpSpec {
        kind: None,
        mix,
        bytes: spec.sample_bytes,
        clients: CLIENTS,
        think: Duration::ZERO,
        phase: spec.phase,
        work: spec.work.clone(),
        dirs: spec.dirs.clone(),
        stripes: STRIPES,
        max_cpu: None,
        rounds: spec.rounds,
        peers: Vec::new(),
        quick: spec.quick,
        program: spec.program.clone(),
    }
}

fn loaded(bench: &Workbench) -> Result<OurValues> {
    bench.once("loaded", || {
        let mut measured = OurValues::of_rounds(bench.spec.rounds);
        for (mix, name, key) in LOADS {
            let found = oltp(bench.context, &under_load(bench, mix), bench.on_step)?;
            let conditions = found.conditions().into_iter();
            let conditions = conditions.map(|(what, value)| (format!("{what}, {name}"), value));
            measured.conditions.extend(conditions);
            for missing in &found.missing {
                if !measured.missing.contains(missing) {
                    measured.missing.push(missing.clone());
                }
            }
            measured.findings.push(format!("{name}: {}", found.insight));
            for (round, value_name, value) in found.values() {
                measured.add_in(round, format!("{key}/{value_name}"), value);
            }
            measured
                .sections
                .extend(found.report.sections.into_iter().map(|section| Section {
                    heading: format!("{name}: {}", section.heading),
                    ..section
                }));
        }
        Ok(measured)
    })
}
