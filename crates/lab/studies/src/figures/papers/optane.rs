//! S4: Optane against flash under SQL Server's analytical queries. All times of devices are modelled.
//!
//! Invariants
//! - No device is touched: the model of both drives answers, in virtual time and from a seed.
//! - Nothing is judged. Requests and CPU times of the queries are of a single recording on a busy machine; the models were
//!   calibrated on published latencies.
//!
//! Leaves to others: the simulations (`cache_figures`).

use anyhow::{Context, Result};
use longshore_policy::model::Profile;

use super::super::measured::OurValues;
use super::super::measured::Ours::{Fact, Value};
use super::super::published::Stance::{Implied, Open};
use super::super::published::Stated::{Number, UpTo, Words};
use super::super::published::Sureness::{Approximate, Prose};
use super::super::published::{Figure, Paper, Published};
use super::super::workbench::Workbench;
use crate::cache_figures::{self, Asked, FiguresSpec};

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
            Open,
        ),
        Published::number(
            "Queries faster on Optane",
            ("", 0),
            (Words("13 and 16"), Prose),
            Fact("optane queries"),
            Open,
        ),
        Published::number(
            "Largest advantage of the Optane",
            ("%", 1),
            (UpTo(3.0), Approximate),
            Value("optane by"),
            Open,
        ),
        Published::number(
            "Largest advantage of the flash",
            ("%", 1),
            (UpTo(23.0), Approximate),
            Value("flash by"),
            Open,
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
        Published::picture("Response time of each query", ("", 0), Fact("responses")),
    ],
    claim: "as the only device the Optane loses on large, highly parallel reads: requests over 128 KB are split, and its \
            throughput is lower.",
    doubts: &[
        "the abstract has Optane up to 23 % higher, the text flash up to 23 % lower: ratios of 1.23 and 1.30.",
        "it argues for a cache and measures the placement of all data on one device.",
    ],
    made_by: "longshore lab cache-figures: the requests and CPU times of TPC-H's 22 queries, recorded below PostgreSQL 15 at scale 1 \
              (scripts/trace-tpch.py) on a busy machine with AMD EPYC (Zen 4), over the calibrated models of both drives.",
    not_shown: "real drives: their times are modelled; SQL Server, which reads with many processes and more read-ahead; scale 300.",
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
    not_shown: "real drives: all is modelled. The map of your own two: longshore lab cache-figures --fast-model FILE --slow-model FILE.",
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

fn queries(bench: &Workbench) -> Result<OurValues> {
    let (section, asked) = cache_figures::queries(&spec(bench))?;
    let mut measured = modelled();
    let slower = |one: &Asked| one.slower_percent();
    let (flash, optane): (Vec<_>, Vec<_>) = asked.iter().partition(|one| slower(one) > 0.0);
    measured.add("flash wins", flash.len() as f64);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    measured.add(
        "optane by",
        most(&mut optane.iter().map(|one| -slower(one))),
    );
    measured.add("flash by", most(&mut flash.iter().map(|one| slower(one))));
    measured.add(
        "requests",
        most(&mut asked.iter().map(Asked::commands_ratio)),
    );
    let names: Vec<&str> = optane.iter().map(|one| one.name.as_str()).collect();
    let names = match names[..] {
        [] => "none".to_owned(),
        _ => names.join(", "),
    };
    measured.tell("optane queries", names);
    measured.tell(
        "responses",
        "see the plots: the published ones have no numbers",
    );
    for (key, name) in [
        ("optane kib", "optane-905p"),
        ("flash kib", "samsung-970pro"),
    ] {
        let profile = Profile::named(name).with_context(|| format!("no profile {name}"))?;
        measured.add(key, f64::from(profile.command_bytes >> 10));
    }
    let recorded =
        "The requests are a real server's, recorded; the times of both drives are modelled.";
    measured.findings.push(recorded.into());
    measured.findings.push(cache_figures::signs(&asked));
    measured.sections = vec![section];
    Ok(measured)
}

fn grid(bench: &Workbench) -> Result<OurValues> {
    let (section, lines) = cache_figures::latency(&spec(bench))?;
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
