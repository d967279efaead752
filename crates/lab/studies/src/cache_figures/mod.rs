//! The published study of device-aware caching: its two figures drawn from the model, and the questions that it left
//! open: which throughput a policy reaches with both devices together, and how soon.
//!
//! Invariants
//! - Everything is simulated, in virtual time and from seeds: the report is the same on any machine.
//!
//! Leaves to others: the simulation (`longshore-simulator`), and the forms of a report (`report`).

mod queries;

use anyhow::{Context, Result};
use longshore_policy::model::{Nanos, Profile, ProfileTrust};
use longshore_simulator::Choice;
use longshore_simulator::sim::{
    self, ClosedLoop, Mix, Outcome, Phases, Scenario, Source, WarmUp, settled,
};

use crate::report::{
    At, Axis, Cell, Chart, Column, Positions, Report, ReportFormat, Section, Series, Side, Table,
};
pub use queries::{QUERIES, Query, Rates};

/// The settings of the figures.
#[derive(Debug, Clone)]
pub struct FiguresSpec {
    pub seed: u64,
    /// Shorter runs: for tests.
    pub quick: bool,
}

const SECOND: Nanos = 1_000_000_000;
const MS: Nanos = 1_000_000;
const SLOT_BYTES: u64 = 64 << 10;
const REGION_BYTES: u64 = 1 << 30;
/// The published pair, and the one of the last figure, whose devices take fewer steps to simulate.
const PAPER: (&str, &str) = ("optane-905p", "samsung-970pro");
const REVERSED: (&str, &str) = ("ec2-local-nvme", "ebs-gp3-max");
const LENS: [u64; 8] = [4, 16, 64, 128, 256, 512, 1024, 2048];
const DEPTHS: [u32; 5] = [1, 4, 16, 32, 64];
const POLICIES: [&str; 7] = [
    "none",
    "none-waits",
    "slow",
    "bcache",
    "orthus",
    "orthus-kernel",
    "aware",
];
const WINDOW: Nanos = 10 * MS;
/// The number of windows averaged when a settling time is read.
const SMOOTH: usize = 5;

/// Runs all simulations. Calls `on_step` with one line for each part.
pub fn cache_figures(spec: &FiguresSpec, on_step: &dyn Fn(&str)) -> Result<Report> {
    let (latency, _) = latency(spec)?;
    on_step("latencies");
    let (queries, slower) = queries(spec)?;
    on_step("queries");
    let policies = policies(spec)?;
    on_step("policies");
    let change = change(spec)?;
    on_step("change of the load");
    let worst = slower.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let flash = slower.iter().filter(|s| **s > 0.0).count();
    Ok(Report {
        title: "Device-aware caching: figures".into(),
        summary: format!(
            "Simulated. Of 22 queries, {flash} are faster with all data on the flash, by up to {worst:.0} %; a \
             policy that sees sizes and queues uses both devices."
        ),
        platform: platform(spec)?,
        sections: vec![latency, queries, policies, change],
    })
}

fn profiles((fast, slow): (&str, &str)) -> Result<(&'static Profile, &'static Profile)> {
    let named = |name: &str| Profile::named(name).with_context(|| format!("no profile {name}"));
    Ok((named(fast)?, named(slow)?))
}

fn platform(spec: &FiguresSpec) -> Result<Vec<(String, String)>> {
    let mut facts = vec![
        ("Devices".to_owned(), "models in virtual time".to_owned()),
        ("Seed".to_owned(), spec.seed.to_string()),
    ];
    for pair in [PAPER, REVERSED] {
        let (fast, slow) = profiles(pair)?;
        let standing = match (fast.standing, slow.standing) {
            (ProfileTrust::Calibrated, ProfileTrust::Calibrated) => {
                "calibrated on published figures"
            }
            _ => "provisional: from data sheets",
        };
        facts.push((
            format!("{} / {}", fast.name, slow.name),
            standing.to_owned(),
        ));
    }
    Ok(facts)
}

fn kib(len_kib: u64) -> String {
    match len_kib {
        1024.. => format!("{}M", len_kib >> 10),
        _ => format!("{len_kib}K"),
    }
}

/// A depth, and for each size how many times as long the flash takes.
pub(crate) type LatencyLine = (u32, Vec<f64>);

/// How much sooner the Optane answers, by size and depth.
pub(crate) fn latency(spec: &FiguresSpec) -> Result<(Section, Vec<LatencyLine>)> {
    let (optane, flash) = profiles(PAPER)?;
    let ratio = |kib: u64, depth: u32| {
        let count = (200_000 / kib).clamp(300, 8000).max(20 * u64::from(depth));
        let count = if spec.quick { count.min(400) } else { count };
        let mean = |p: &Profile| p.steady(kib << 10, depth, count, spec.seed).mean_us;
        mean(flash) / mean(optane)
    };
    let lines: Vec<LatencyLine> = DEPTHS
        .iter()
        .map(|depth| (*depth, LENS.iter().map(|kib| ratio(*kib, *depth)).collect()))
        .collect();
    let mut columns = vec![Column::number("Depth", "", 0)];
    columns.extend(LENS.iter().map(|len| Column::number(&kib(*len), "", 2)));
    let rows = lines.iter().map(|(depth, ratios)| {
        let ratios = ratios.iter().map(|ratio| Cell::from(*ratio));
        std::iter::once(Cell::from(f64::from(*depth)))
            .chain(ratios)
            .collect()
    });
    let mut series: Vec<Series> = lines
        .iter()
        .map(|(depth, ratios)| {
            let values = ratios.iter().copied().map(Some).collect();
            Series::new(&format!("depth {depth}"), values)
        })
        .collect();
    let mut even = Series::new("equally fast", vec![Some(1.0); LENS.len()]);
    even.dashed = true;
    series.push(even);
    let section = Section {
        heading: "Latency: flash over Optane".into(),
        prose: vec![
            "Mean latency of random reads on a Samsung 970 Pro over that on an Optane 905P, by the size of a read \
             and the number in flight. Above 1 the Optane is faster. The study's picture has no figures but \"7.4 times\" \
             at the left; the others follow from the model."
                .into(),
        ],
        table: Some(Table {
            columns,
            row_values: rows.collect(),
        }),
        charts: vec![Chart {
            title: "How many times as long the flash takes".into(),
            form: ReportFormat::Line,
            x: Positions {
                label: "Size of a read".into(),
                unit: String::new(),
                at: At::Names(LENS.iter().map(|len| kib(*len)).collect()),
            },
            y: Axis::new("Flash / Optane", ""),
            y_right: None,
            series,
        }],
    };
    Ok((section, lines))
}

/// One policy under one mix, with everything resident.
fn simulate(
    spec: &FiguresSpec,
    pair: (&str, &str),
    policy: &str,
    (warm_up, measured): (WarmUp, Nanos),
    source: &mut dyn Source,
) -> Result<Outcome> {
    let (fast, slow) = profiles(pair)?;
    let scenario = Scenario {
        fast,
        slow,
        slot_bytes: SLOT_BYTES,
        warm_bytes: REGION_BYTES,
        warm_up,
        measured,
        seed: spec.seed,
    };
    let (fast, slow) = (fast.outlook(), slow.outlook());
    let slots = (REGION_BYTES / SLOT_BYTES) as usize;
    let choice: Choice = policy.parse()?;
    let mut policy = choice.build(fast, slow, slots, SLOT_BYTES);
    Ok(sim::run(&scenario, source, &mut policy))
}

fn mix(text: &str) -> Result<Mix> {
    text.parse().map_err(anyhow::Error::msg)
}

fn closed(spec: &FiguresSpec, text: &str, policy: &str) -> Result<Outcome> {
    let measured = if spec.quick { 100 * MS } else { SECOND };
    let mut source = ClosedLoop::new(&mix(text)?, REGION_BYTES, spec.seed);
    let warm_up = WarmUp::UntilSteady {
        window: measured / 4,
        most: 60 * SECOND,
    };
    simulate(spec, PAPER, policy, (warm_up, measured), &mut source)
}

/// Response times with all data on one device, and by how many percent each query is slower on the Optane.
pub(crate) fn queries(spec: &FiguresSpec) -> Result<(Section, Vec<f64>)> {
    let rates = |policy: &str| -> Result<Rates> {
        Ok(Rates {
            scan: closed(spec, "8x512k", policy)?.throughput_mb_s,
            lookup: closed(spec, "2x8k", policy)?.throughput_mb_s,
        })
    };
    let (optane, flash) = (rates("none")?, rates("slow")?);
    let times = QUERIES.map(|query| (query.response_s(optane), query.response_s(flash)));
    let slower: Vec<f64> = times.iter().map(|(o, f)| 100.0 * (o / f - 1.0)).collect();
    let rows = QUERIES.iter().zip(&times).zip(&slower);
    let rows = rows.map(|((query, (on_optane, on_flash)), slower)| {
        vec![
            query.name.into(),
            query.scan_gb.into(),
            query.lookup_gb.into(),
            query.cpu_s.into(),
            (*on_optane).into(),
            (*on_flash).into(),
            (100.0 * query.io_s(flash) / on_flash).into(),
            (*slower).into(),
        ]
    });
    let table = Table {
        columns: vec![
            Column::text("Query"),
            Column::number("Scans", "GB", 1),
            Column::number("Lookups", "GB", 2),
            Column::number("CPU", "s", 1),
            Column::number("Optane", "s", 1),
            Column::number("Flash", "s", 1),
            Column::number("I/O on flash", "%", 0),
            Column::number("Slower on Optane", "%", 1),
        ],
        row_values: rows.collect(),
    };
    let names = || At::Names(QUERIES.iter().map(|q| q.name.to_owned()).collect());
    let chart = |title: &str, y: Axis, series: Vec<Series>| Chart {
        title: title.into(),
        form: ReportFormat::Bar,
        x: Positions {
            label: "Query".into(),
            unit: String::new(),
            at: names(),
        },
        y,
        y_right: None,
        series,
    };
    let section = Section {
        heading: "Queries with all data on one device".into(),
        prose: vec![format!(
            "Twenty-two queries of TPC-H's kinds: bytes and CPU times are ours, shaped so that they are within the \
             published bounds; the time of their I/O is simulated, {:.0} and {:.0} MB/s for scans on Optane and \
             flash. Published: 20 of 22 are faster on the flash, by up to 23 %; 13 and 16 are at most 3 % slower.",
            optane.scan, flash.scan
        )],
        table: Some(table),
        charts: vec![
            chart(
                "Response time",
                Axis::new("Response time", "s"),
                vec![
                    Series::new("Optane", times.iter().map(|t| Some(t.0)).collect()),
                    Series::new("Flash", times.iter().map(|t| Some(t.1)).collect()),
                ],
            ),
            chart(
                "By how much a query is slower on the Optane",
                Axis::new("Slower", "%"),
                vec![Series::new(
                    "Slower on the Optane",
                    slower.iter().copied().map(Some).collect(),
                )],
            ),
        ],
    };
    Ok((section, slower))
}

/// Small reads and scans together, over both devices.
fn policies(spec: &FiguresSpec) -> Result<Section> {
    let outcomes = POLICIES.map(|policy| closed(spec, "8x4k+6x512k", policy));
    let outcomes = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
    let row = |(policy, outcome): (&&str, &Outcome)| {
        vec![
            (*policy).into(),
            outcome.throughput_mb_s.into(),
            outcome.small_reads.mean.into(),
            outcome.small_reads.p99.into(),
            (100.0 * outcome.fast_share).into(),
            (outcome.warmed_up as f64 / SECOND as f64).into(),
            if outcome.steady { "yes" } else { "no" }.into(),
        ]
    };
    let table = Table {
        columns: vec![
            Column::text("Policy"),
            Column::number("Throughput", "MB/s", 0),
            Column::number("Small reads", "us", 1),
            Column::number("p99", "us", 1),
            Column::number("By the Optane", "%", 1),
            Column::number("Warm-up", "s", 2),
            Column::text("Steady"),
        ],
        row_values: POLICIES.iter().zip(&outcomes).map(row).collect(),
    };
    let values = |of: fn(&Outcome) -> f64| outcomes.iter().map(|o| Some(of(o))).collect();
    let mut small = Series::new("small reads", values(|o| o.small_reads.mean));
    small.axis = Side::Right;
    Ok(Section {
        heading: "Both devices, one policy".into(),
        prose: vec![
            "Eight clients read 4 KiB anywhere, six scan with 512 KiB, everything is resident. none: a classic cache; \
             none-waits: a classic cache whose misses wait for another client's read of the same bytes; slow: no \
             cache; orthus: 1 % in 75 ms, as in its paper; orthus-kernel: 1 % in 15 ms, the interval of its kernel \
             version. Each policy runs until three windows in a row do the same, and is measured from then on."
                .into(),
        ],
        table: Some(table),
        charts: vec![Chart {
            title: "Throughput, and how long small reads take".into(),
            form: ReportFormat::Bar,
            x: Positions {
                label: "Policy".into(),
                unit: String::new(),
                at: At::Names(POLICIES.map(str::to_owned).to_vec()),
            },
            y: Axis::new("Throughput", "MB/s"),
            y_right: Some(Axis::new("Mean latency", "us")),
            series: vec![Series::new("throughput", values(|o| o.throughput_mb_s)), small],
        }],
    })
}

/// Throughput in each window after scans join small reads.
fn change(spec: &FiguresSpec) -> Result<Section> {
    let seconds = if spec.quick { 2 } else { 12 };
    let rates = |policy: &str| -> Result<Vec<f64>> {
        let (first, then) = (mix("8x4k")?, mix("8x4k+6x512k")?);
        let mut load = Phases::new(&first, &then, SECOND, WINDOW, REGION_BYTES, spec.seed);
        // No warm-up: only the windows count.
        let time = (WarmUp::For(0), (1 + seconds) * SECOND);
        simulate(spec, REVERSED, policy, time, &mut load)?;
        Ok(load.rates())
    };
    let lines = ["aware", "orthus"].map(|policy| rates(policy).map(|rates| (policy, rates)));
    let lines = lines.into_iter().collect::<Result<Vec<_>>>()?;
    let rows = lines.iter().map(|(policy, rates)| {
        let steady = &rates[rates.len() * 2 / 3..];
        let settled = settled(rates, SMOOTH, 0.95).map(|n| n as f64 * WINDOW as f64 / MS as f64);
        vec![
            (*policy).into(),
            settled.into(),
            (steady.iter().sum::<f64>() / steady.len().max(1) as f64).into(),
        ]
    });
    let table = Table {
        columns: vec![
            Column::text("Policy"),
            Column::number("95 % after", "ms", 0),
            Column::number("Steady state", "MB/s", 0),
        ],
        row_values: rows.collect(),
    };
    // Points of 100 ms each: shorter ones would hide the lines in noise.
    let joined = 10;
    let points = lines.iter().map(|(_, r)| r.len()).min().unwrap_or(0) / joined;
    let series = lines.iter().map(|(policy, rates)| {
        let mean = rates
            .chunks_exact(joined)
            .map(|c| Some(c.iter().sum::<f64>() / joined as f64));
        Series::new(policy, mean.take(points).collect())
    });
    let at = |n: usize| (n as f64 + 0.5) * joined as f64 * WINDOW as f64 / SECOND as f64;
    Ok(Section {
        heading: "After a change of the load".into(),
        prose: vec![
            "Six scans join eight clients that read 4 KiB, on EC2's local NVMe over gp3. 95 % of the steady state, in \
             means of 50 ms; the steady state is the mean of the last third."
                .into(),
        ],
        table: Some(table),
        charts: vec![Chart {
            title: "Throughput since the change".into(),
            form: ReportFormat::Line,
            x: Positions {
                label: "Virtual time".into(),
                unit: "s".into(),
                at: At::Numbers((0..points).map(at).collect()),
            },
            y: Axis::new("Throughput", "MB/s"),
            y_right: None,
            series: series.collect(),
        }],
    })
}
