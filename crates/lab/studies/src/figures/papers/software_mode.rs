//! S2: QAT_DEFLATE in software on one small database, with the output of the console.
//!
//! Invariants
//! - Only what the console printed is exact; ratios and differences of it were derived, and are not shown as published.
//!
//! Leaves to others: making the backups (`trials.rs`), and lines over time (`samples.rs`).

use anyhow::Result;
use longshore_codec::Algorithm;

use super::super::measured::OurValues;
use super::super::measured::Ours::{Difference, Ratio, Saving, Value};
use super::super::published::Stance::{Above, Below, Open};
use super::super::published::Stated::{About, Number, Words};
use super::super::published::Sureness::{Approximate, Exact};
use super::super::published::{Figure, Paper, Published};
use super::super::trials::{Layout, Trial, alternate, measured, section};
use super::super::workbench::Workbench;
use super::samples::over_time;
use crate::sample::SampleKind;

pub const PAPER: Paper = Paper {
    name: "SQL Server 2022 New Features: QAT backups (Masayuki Ozawa, in Japanese)",
    machine: "not stated; SQL Server 2022 RC1, QAT driver without hardware, 17.5 GB in one data file",
    figures: &[C],
};

const SECONDS: (&str, u8) = ("s", 3);
const RATE: (&str, u8) = ("MB/s", 3);
const BYTES: (&str, u8) = ("bytes", 0);

const C: Figure = Figure {
    id: "S2.C",
    title: "MS_XPRESS against QAT_DEFLATE in software",
    shows: "the messages of two backups to one file, and a graph of CPU time over both",
    rows: &[
        Published::number(
            "Pages of 8 KiB, data and log",
            ("", 0),
            (Number(2_136_466.0), Exact),
            Value("xpress/pages"),
            Open,
        ),
        Published::number(
            "Elapsed, MS_XPRESS",
            SECONDS,
            (Number(39.266), Exact),
            Value("xpress/s"),
            Open,
        ),
        Published::number(
            "Elapsed, QAT_DEFLATE",
            SECONDS,
            (Number(31.547), Exact),
            Value("qat/s"),
            Open,
        ),
        Published::number(
            "Rate, MS_XPRESS",
            RATE,
            (Number(425.078), Exact),
            Value("xpress/mb_s"),
            Open,
        ),
        Published::number(
            "Rate, QAT_DEFLATE",
            RATE,
            (Number(529.087), Exact),
            Value("qat/mb_s"),
            Open,
        ),
        Published::number(
            "Size, MS_XPRESS",
            BYTES,
            (Number(4_035_936_256.0), Exact),
            Value("xpress/bytes"),
            Open,
        ),
        Published::number(
            "Size, QAT_DEFLATE",
            BYTES,
            (Number(3_583_221_760.0), Exact),
            Value("qat/bytes"),
            Open,
        ),
        Published::number(
            "QAT_DEFLATE faster by",
            ("MB/s", 0),
            (About(100.0), Approximate),
            Difference("qat/mb_s", "xpress/mb_s"),
            Open,
        ),
        Published::number(
            "QAT_DEFLATE shorter by",
            ("s", 0),
            (About(10.0), Approximate),
            Difference("xpress/s", "qat/s"),
            Open,
        ),
        Published::number(
            "Rate of QAT_DEFLATE by that of MS_XPRESS",
            ("×", 2),
            (Words("higher, by both rates above"), Exact),
            Ratio("qat/mb_s", "xpress/mb_s"),
            Above(1.0),
        ),
        Published::number(
            "QAT_DEFLATE LOW smaller than MS_XPRESS",
            ("%", 1),
            (Words("smaller, by both sizes above"), Exact),
            Saving("qat/bytes", "xpress/bytes"),
            Above(0.0),
        ),
        Published::order(
            "CPU time of QAT_DEFLATE by that of MS_XPRESS",
            ("×", 2),
            "lower (the graph's numbers are in no text)",
            Ratio("qat/cpu_s_gb", "xpress/cpu_s_gb"),
            Below(1.0),
        ),
    ],
    claim: "QAT_DEFLATE is about 100 MB/s faster and nearly 10 s shorter than MS_XPRESS, without hardware.",
    doubts: &[
        "\"nearly 10 s\" is 7.719 s by its own numbers; the sizes printed as 3.75 and 3.33 GB are cut, not rounded.",
        "QAT_DEFLATE ran second: a warm cache is not excluded. Here the source leaves the cache before each backup.",
        "CPU, disk and the number of runs are not stated.",
    ],
    made_by: "the sample stae to one file, MS_XPRESS first and QAT_DEFLATE LOW second, in turns.",
    not_shown: "the database wordpress, whose content is not public. SQL Server's own implementations of both algorithms.",
    make: both,
};

fn both(bench: &Workbench) -> Result<OurValues> {
    let source = bench.sample(SampleKind::Stae)?;
    let trial = |key, label, algorithm| Trial::new(key, label, &source, Layout::One(1), algorithm);
    let trials = vec![
        trial("xpress", "MS_XPRESS", Algorithm::MsXpress),
        trial("qat", "QAT_DEFLATE LOW", Algorithm::QatDeflate),
    ];
    let tried = alternate(bench, trials)?;
    let mut measured = measured(bench, &tried, Vec::new())?;
    let prose = "One file for each backup; MB/s is SQL Server's figure: 2^20 bytes of the database per second.";
    measured.sections = vec![section("Both backups", prose.into(), &tried)];
    let told = "The machine's CPU in each second of the last round: MS_XPRESS, then QAT_DEFLATE.";
    let cpu = over_time(
        "CPU over time",
        told,
        &tried,
        &[("CPU", "% of system", |s| s.cpu_percent)],
    );
    measured.sections.extend(cpu);
    Ok(measured)
}
