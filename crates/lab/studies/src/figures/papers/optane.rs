//! S4: Optane against flash under SQL Server's analytical queries. Everything of ours is modelled.
//!
//! Invariants
//! - No device is touched: the model of both drives answers, in virtual time and from a seed.
//! - The model and its queries were made to have the published signs: no row is judged.
//!
//! Leaves to others: the simulations (`cache_figures`).

use anyhow::{Context, Result};
use longshore_policy::model::Profile;

use super::super::measured::OurValues;
use super::super::measured::Ours::{Nothing, Value};
use super::super::published::Stance::{Implied, Open};
use super::super::published::Stated::{Number, UpTo, Words};
use super::super::published::Sureness::{Approximate, Prose};
use super::super::published::{Figure, Paper, Published};
use super::super::workbench::Workbench;
use crate::cache_figures::{self, FiguresSpec};
use crate::report::{Column, Section, Table};

pub const PAPER: Paper = Paper {
    name: "Exploiting Intel Optane SSD for Microsoft SQL Server (DaMoN 2019)",
    machine: "Xeon E5 at 2.1 GHz (16 cores), 64 GB, Optane 905P 960 GB and Samsung 970 Pro 1 TB; TPC-H at scale 300, cold, \
              all data on one device",
    figures: &[F1, F2],
};

const F1: Figure = Figure {
    id: "S4.F1",
    title: "TPC-H response time and number of requests, normalised",
    shows: "queries 1 to 22; response time and block requests of Optane by those of flash",
    rows: &[
        Published::number(
            "Queries faster on flash",
            ("", 0),
            (Number(20.0), Prose),
            Value("flash wins"),
            Implied,
        ),
        Published::number(
            "Queries faster on Optane",
            ("", 0),
            (Words("13 and 16"), Prose),
            Value("optane wins"),
            Implied,
        ),
        Published::number(
            "Largest advantage of the Optane",
            ("%", 1),
            (UpTo(3.0), Approximate),
            Value("optane by"),
            Implied,
        ),
        Published::number(
            "Largest advantage of the flash",
            ("%", 1),
            (UpTo(23.0), Approximate),
            Value("flash by"),
            Implied,
        ),
        Published::number(
            "Block requests, Optane by flash",
            ("×", 2),
            (UpTo(2.5), Approximate),
            Value("requests"),
            Implied,
        ),
        Published::number(
            "Largest block request, Optane",
            ("KiB", 0),
            (Number(128.0), Prose),
            Value("optane kib"),
            Open,
        ),
        Published::number(
            "Largest block request, flash",
            ("KiB", 0),
            (Number(2048.0), Prose),
            Value("flash kib"),
            Open,
        ),
        Published::picture("Response time of each query", ("s", 1), Nothing),
    ],
    claim: "as the only device the Optane loses on large, highly parallel reads: requests over 128 KB are split, and its \
            throughput is lower.",
    doubts: &[
        "the abstract has Optane up to 23 % higher, the text flash up to 23 % lower: ratios of 1.23 and 1.30.",
        "it argues for a cache and measures the placement of all data on one device.",
    ],
    made_by: "longshore lab cache-figures: 22 kinds of queries whose bytes and CPU times are ours, over the calibrated models \
              of both drives; requests of a mix of 25 % 8 KiB, 25 % 64 KiB and 50 % 512 KiB, which is ours, too.",
    not_shown: "TPC-H itself on real drives. The queries were shaped so that their signs are the published ones, so the signs \
                prove nothing.",
    make: queries,
};

const F2: Figure = Figure {
    id: "S4.F2",
    title: "Difference of mean random-read latency, normalised",
    shows: "size of a request and depth of the queue; each cell a difference of latencies",
    rows: &[
        Published::number(
            "Optane better at one small read",
            ("×", 2),
            (UpTo(7.4), Approximate),
            Value("small"),
            Implied,
        ),
        Published::order(
            "Optane at large reads and a deep queue",
            ("×", 2),
            "no improvement",
            Value("large"),
            Implied,
        ),
    ],
    claim: "a cache must limit the size and the number of requests at its fast device.",
    doubts: &["the grid is a picture; the text gives one number and one direction."],
    made_by: "longshore lab cache-figures: mean latencies of the calibrated models of both drives, 40 cells.",
    not_shown: "your own pair of drives: longshore cache calibrate measures one.",
    make: grid,
};

fn spec(bench: &Workbench) -> FiguresSpec {
    FiguresSpec {
        seed: 1,
        quick: bench.spec.quick,
    }
}

fn modelled() -> OurValues {
    let mut measured = OurValues::of_rounds(0);
    measured.is_modelled = true;
    measured.conditions = vec![
        ("Devices".into(), "modelled, in virtual time".into()),
        ("Seed".into(), "1".into()),
    ];
    measured
}

/// Sizes of requests in KiB, with the percentage of each.
const MIX: [(u64, f64); 3] = [(8, 25.0), (64, 25.0), (512, 50.0)];

fn queries(bench: &Workbench) -> Result<OurValues> {
    let (mut section, slower) = cache_figures::queries(&spec(bench))?;
    section.heading = format!("{} (modelled)", section.heading);
    let mut measured = modelled();
    let flash = slower.iter().filter(|s| **s > 0.0).count();
    measured.add("flash wins", flash as f64);
    measured.add("optane wins", (slower.len() - flash) as f64);
    measured.add(
        "optane by",
        -slower.iter().copied().fold(f64::INFINITY, f64::min),
    );
    measured.add(
        "flash by",
        slower.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    );
    let limit = |name: &str| -> Result<u64> {
        let profile = Profile::named(name).with_context(|| format!("no profile {name}"))?;
        Ok(u64::from(profile.command_bytes) >> 10)
    };
    let (optane, flash) = (limit("optane-905p")?, limit("samsung-970pro")?);
    let commands = |most: u64| -> f64 {
        MIX.iter()
            .map(|(kib, share)| share / 100.0 * kib.div_ceil(most.max(1)) as f64)
            .sum()
    };
    measured.add("optane kib", optane as f64);
    measured.add("flash kib", flash as f64);
    measured.add("requests", commands(optane) / commands(flash));
    let rows = MIX.iter().map(|(kib, share)| {
        let of = |most: u64| kib.div_ceil(most.max(1)) as f64;
        vec![
            (*kib as f64).into(),
            (*share).into(),
            of(optane).into(),
            of(flash).into(),
        ]
    });
    let requests = Section {
        heading: "Requests after the split (modelled)".into(),
        prose: vec![format!(
            "A drive splits what is larger than its largest command: {optane} KiB on the Optane, {flash} KiB on the flash."
        )],
        table: Some(Table {
            columns: vec![
                Column::number("Request", "KiB", 0),
                Column::number("Share", "%", 0),
                Column::number("Commands on Optane", "", 0),
                Column::number("Commands on flash", "", 0),
            ],
            row_values: rows.collect(),
        }),
        charts: Vec::new(),
    };
    let shaped = "Agreement proves nothing here: the queries and the mix are ours, chosen so that signs and bounds are the \
                  published ones.";
    measured.findings.push(shaped.into());
    measured.sections = vec![section, requests];
    Ok(measured)
}

fn grid(bench: &Workbench) -> Result<OurValues> {
    let (mut section, lines) = cache_figures::latency(&spec(bench))?;
    section.heading = format!("{} (modelled)", section.heading);
    let mut measured = modelled();
    if let (Some(shallow), Some(deep)) = (lines.first(), lines.last()) {
        measured.add("small", shallow.1.first().copied().unwrap_or(f64::NAN));
        measured.add("large", deep.1.last().copied().unwrap_or(f64::NAN));
    }
    let held = "Agreement proves nothing here: the models were calibrated on these published values, and tests hold them to \
                these.";
    measured.findings.push(held.into());
    measured.sections = vec![section];
    Ok(measured)
}
