//! S1: 37 backups on a desktop with a QAT card, published as pictures of tables with prose.
//!
//! Invariants
//! - Each figure makes its rows' backups in the published order; `longshore lab sweep` makes all 37 in one run.
//!
//! Leaves to others: making the backups (`trials.rs`).

use anyhow::Result;
use longshore_codec::Algorithm;

use super::super::measured::OurValues;
use super::super::measured::Ours::{Ratio, Value};
use super::super::published::Stance::{Above, Below, Between, Implied, NearOne, Open};
use super::super::published::Stated::{MoreThan, Number};
use super::super::published::Sureness::Prose;
use super::super::published::{Figure, Paper, Published, SLIGHTLY};
use super::super::trials::{Layout, Trial, alternate, in_hardware, measured, section};
use super::super::workbench::Workbench;
use crate::sample::SampleKind;

pub const PAPER: Paper = Paper {
    name: "Some Intel QAT Backup Compression Results (Glenn Berry)",
    machine: "i7-12700K (8 cores, 16 threads), QAT 8970 card, 128 GB, three 980 PRO: 434 GB read at 6.9 GB/s, written \
              to two drives at 4.9 GB/s each",
    figures: &[R1, R2, R4, R8],
};

/// MAXTRANSFERSIZE of all 37.
const BUFFER_BYTES: usize = 4 << 20;

const TIMES: (&str, u8) = ("×", 2);
const PERCENT: (&str, u8) = ("% of system", 1);
const SECONDS: (&str, u8) = ("s", 2);

const SHOWS: &str = "a table of elapsed time, CPU and temperatures for each kind of backup; the numbers were pictures";
const MADE: &str = "the sample stae to NUL (one stripe only) and then, in the published order, with NONE, MS_XPRESS, \
                    QAT_DEFLATE in software and in hardware; MAXTRANSFERSIZE 4194304, stripes over the directories in turn.";
const NOT: &str = "drives of the published rate, several drives unless --dir names them, and the QAT card. Nothing pauses \
                   for drives to cool; longshore lab sweep does.";
const DOUBTS: &[&str] = &[
    "PCIe lanes are named as the main limit, and then the drives are shown not to be limited by them.",
    "one run for each cell is implied; BUFFERCOUNT, BLOCKSIZE and CHECKSUM are not stated.",
    "a fast CPU and fast storage make the card look worse, as the post says itself.",
];

/// Times of all kinds, which the tables had.
const fn time(what: &'static str, key: &'static str) -> Published {
    Published::picture(what, SECONDS, Value(key))
}

const R1: Figure = Figure {
    id: "S1.R1",
    title: "One file, one drive",
    shows: SHOWS,
    rows: &[
        Published::number(
            "Software as many times as fast as MS_XPRESS",
            TIMES,
            (MoreThan(2.0), Prose),
            Ratio("xpress/s", "qat/s"),
            Above(1.0),
        ),
        Published::order(
            "CPU of software by that of MS_XPRESS",
            TIMES,
            "equal",
            Ratio("qat/cpu", "xpress/cpu"),
            NearOne(0.15),
        ),
        Published::order(
            "Time of hardware by that of MS_XPRESS",
            TIMES,
            "longer",
            Ratio("hard/s", "xpress/s"),
            Above(1.0),
        ),
        Published::number(
            "CPU of hardware",
            PERCENT,
            (Number(3.0), Prose),
            Value("hard/cpu"),
            Open,
        ),
        Published::order(
            "Time of software by that of NONE",
            TIMES,
            "longer",
            Ratio("qat/s", "none/s"),
            Above(1.0),
        ),
        Published::order(
            "Time of NONE by that of NUL",
            TIMES,
            "longer: NUL is the read limit",
            Ratio("none/s", "nul/s"),
            Above(1.0),
        ),
        Published::order(
            "Size of NONE by that of MS_XPRESS",
            TIMES,
            "NONE is the largest",
            Ratio("none/bytes", "xpress/bytes"),
            Implied,
        ),
        time("NUL, no compression", "nul/s"),
        time("NONE", "none/s"),
        time("MS_XPRESS", "xpress/s"),
        time("QAT_DEFLATE software", "qat/s"),
        time("QAT_DEFLATE hardware", "hard/s"),
    ],
    claim: "with few files hardware saves CPU and no time: none < software < XPRESS < hardware.",
    doubts: DOUBTS,
    made_by: MADE,
    not_shown: NOT,
    make: |bench| kinds(bench, 1),
};

const R2: Figure = Figure {
    id: "S1.R2",
    title: "Two files, two drives",
    shows: SHOWS,
    rows: &[
        Published::order(
            "NONE: time with 1 file by that with 2",
            TIMES,
            "clearly faster with 2",
            Ratio("few/none/s", "none/s"),
            Above(1.0),
        ),
        Published::order(
            "MS_XPRESS: time with 1 file by that with 2",
            TIMES,
            "clearly faster with 2",
            Ratio("few/xpress/s", "xpress/s"),
            Above(1.0),
        ),
        Published::order(
            "Software: time with 1 file by that with 2",
            TIMES,
            "clearly faster with 2",
            Ratio("few/qat/s", "qat/s"),
            Above(1.0),
        ),
        Published::order(
            "Software: CPU with 2 files by that with 1",
            TIMES,
            "higher",
            Ratio("qat/cpu", "few/qat/cpu"),
            Above(1.0),
        ),
        Published::order(
            "Time of hardware by that of MS_XPRESS",
            TIMES,
            "almost equal, still slower",
            Ratio("hard/s", "xpress/s"),
            Between(1.0, SLIGHTLY),
        ),
        Published::order(
            "CPU of hardware by that of MS_XPRESS",
            TIMES,
            "far lower",
            Ratio("hard/cpu", "xpress/cpu"),
            Below(1.0),
        ),
        time("NONE", "none/s"),
        time("MS_XPRESS", "xpress/s"),
        time("QAT_DEFLATE software", "qat/s"),
        time("QAT_DEFLATE hardware", "hard/s"),
    ],
    claim: "striping helps, also on one drive until its write limit.",
    doubts: DOUBTS,
    made_by: "as S1.R1 with 2 stripes, and the same kinds with 1 stripe in turns with them.",
    not_shown: NOT,
    make: |bench| kinds(bench, 2),
};

const R4: Figure = Figure {
    id: "S1.R4",
    title: "Four files, two drives",
    shows: SHOWS,
    rows: &[
        Published::order(
            "Time of software by that of NONE",
            TIMES,
            "equal",
            Ratio("qat/s", "none/s"),
            NearOne(0.1),
        ),
        Published::order(
            "CPU of software by that of NONE",
            TIMES,
            "far above",
            Ratio("qat/cpu", "none/cpu"),
            Above(1.0),
        ),
        Published::order(
            "CPU of software by that of MS_XPRESS",
            TIMES,
            "below",
            Ratio("qat/cpu", "xpress/cpu"),
            Below(1.0),
        ),
        Published::order(
            "MS_XPRESS: time with 2 files by that with 4",
            TIMES,
            "much faster with 4",
            Ratio("few/xpress/s", "xpress/s"),
            Above(1.0),
        ),
        Published::order(
            "Software: time with 2 files by that with 4",
            TIMES,
            "much faster with 4",
            Ratio("few/qat/s", "qat/s"),
            Above(1.0),
        ),
        time("NONE", "none/s"),
        time("MS_XPRESS", "xpress/s"),
        time("QAT_DEFLATE software", "qat/s"),
        time("QAT_DEFLATE hardware", "hard/s"),
    ],
    claim: "software reaches the time of no compression; all compressed kinds are much faster than with 2 files.",
    doubts: DOUBTS,
    made_by: "as S1.R1 with 4 stripes, and the same kinds with 2 stripes in turns with them.",
    not_shown: NOT,
    make: |bench| kinds(bench, 4),
};

const R8: Figure = Figure {
    id: "S1.R8",
    title: "Eight files, two drives",
    shows: SHOWS,
    rows: &[
        Published::number(
            "Software as many times as fast as MS_XPRESS",
            TIMES,
            (MoreThan(2.0), Prose),
            Ratio("xpress/s", "qat/s"),
            Above(1.0),
        ),
        Published::number(
            "CPU of MS_XPRESS",
            PERCENT,
            (Number(100.0), Prose),
            Value("xpress/cpu"),
            Open,
        ),
        Published::number(
            "CPU of software",
            PERCENT,
            (Number(100.0), Prose),
            Value("qat/cpu"),
            Open,
        ),
        Published::order(
            "Time of hardware by that of MS_XPRESS",
            TIMES,
            "much shorter",
            Ratio("hard/s", "xpress/s"),
            Below(1.0),
        ),
        Published::order(
            "CPU of hardware",
            PERCENT,
            "low",
            Value("hard/cpu"),
            Below(50.0),
        ),
        time("NONE", "none/s"),
        time("MS_XPRESS", "xpress/s"),
        time("QAT_DEFLATE software", "qat/s"),
        time("QAT_DEFLATE hardware", "hard/s"),
    ],
    claim: "one file for each physical core is the best point; hardware protects the CPU.",
    doubts: DOUBTS,
    made_by: "as S1.R1 with 8 stripes, and the same kinds with 4 stripes in turns with them.",
    not_shown: NOT,
    make: |bench| kinds(bench, 8),
};

/// All kinds with this number of stripes, and with half of it where the figure compares the two; NUL first.
fn kinds(bench: &Workbench, stripes: usize) -> Result<OurValues> {
    let source = bench.sample(SampleKind::Stae)?;
    let mut missing = Vec::new();
    let mut trials = Vec::new();
    if stripes == 1 {
        let nul = Trial::new("nul", "NONE to NUL", &source, Layout::Nul, Algorithm::None);
        trials.push(nul);
    }
    let compared = if stripes == 1 {
        vec![1]
    } else {
        vec![stripes / 2, stripes]
    };
    for (key, name, algorithm, is_hard) in [
        ("none", "NONE", Algorithm::None, false),
        ("xpress", "MS_XPRESS", Algorithm::MsXpress, false),
        ("qat", "QAT_DEFLATE software", Algorithm::QatDeflate, false),
        ("hard", "QAT_DEFLATE hardware", Algorithm::QatDeflate, true),
    ] {
        for &count in &compared {
            let few = if count < stripes { "few/" } else { "" };
            let label = format!("{name}, {count}");
            let trial = Trial::new(
                &format!("{few}{key}"),
                &label,
                &source,
                Layout::All(count),
                algorithm,
            );
            match is_hard {
                true => trials.extend(in_hardware(bench, trial, &mut missing)),
                false => trials.push(trial),
            }
        }
    }
    let trials = trials
        .into_iter()
        .map(|t| t.tuned(None, Some(BUFFER_BYTES)));
    let tried = alternate(bench, trials.collect())?;
    let mut measured = measured(bench, &tried, missing)?;
    let mut put = |name: &str, key: &str| {
        let hottest = tried
            .iter()
            .filter_map(|t| measured.median(&format!("{}/{key}", t.trial.key)));
        let hottest = hottest.fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))));
        let mut taken = tried.iter().flat_map(|t| &t.taken);
        let is_silent = taken.any(|t| t.silent_sensors > 0);
        let told = match (hottest, is_silent) {
            (Some(c), false) => format!("{c:.1} °C"),
            (Some(c), true) => format!("{c:.1} °C; a sensor did not answer every reading"),
            (None, false) => "no sensor here".to_owned(),
            (None, true) => "not known: a sensor did not answer".to_owned(),
        };
        measured.conditions.push((name.into(), told));
    };
    put("Hottest CPU", "cpu_c");
    put("Hottest drive", "drive_c");
    let prose = "Kind and number of stripes, in the published order. MB/s is SQL Server's figure: 2^20 bytes of the database \
                 per second.";
    measured.sections = vec![section("Backups of the table", prose.into(), &tried)];
    Ok(measured)
}
