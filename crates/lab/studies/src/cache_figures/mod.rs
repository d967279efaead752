//! The published study of device-aware caching: its two figures drawn from the model, and the questions that it left
//! open: which throughput a policy reaches with both devices together, and how soon.
//!
//! Invariants
//! - Devices are simulated, in virtual time and from seeds: the report is the same on any machine. The requests of the queries
//!   and their CPU times were recorded.
//!
//! Leaves to others: the simulation (`longshore-simulator`), and the forms of a report (`report`).

mod devices;
mod map;
mod pair;
mod policies;
mod tpch;

pub use devices::FiguresSpec;
pub(crate) use map::RatioLine;
pub use pair::{PairSpec, pair_figures};

use anyhow::Result;
use longshore_policy::model::{Nanos, Op, Profile, ProfileTrust};
use longshore_simulator::sim::{Phases, WarmUp, settled};

use devices::{Devices, PAPER, REVERSED, devices, published};
use policies::{MS, REGION_BYTES, SECOND, mix, policies, simulate};

use crate::report::{
    At, Axis, Chart, Column, Positions, Report, ReportFormat, Section, Series, Table,
};

/// Of each query, in a trial run.
const QUICK_REQUESTS: u64 = 2000;
const WINDOW: Nanos = 10 * MS;
/// The number of windows averaged when a settling time is read.
const SMOOTH: usize = 5;

/// Runs all simulations. Calls `on_step` with one line for each part.
pub fn cache_figures(spec: &FiguresSpec, on_step: &dyn Fn(&str)) -> Result<Report> {
    let (latency, _) = latency(spec)?;
    on_step("latencies");
    let (queries, asked) = queries(spec)?;
    on_step("queries");
    let policies = policies(spec, &published()?)?;
    on_step("policies");
    let change = change(spec)?;
    on_step("change of the load");
    let slower = asked.iter().map(Asked::slower_percent);
    let worst = slower.fold(f64::NEG_INFINITY, f64::max);
    let flash = asked
        .iter()
        .filter(|one| one.slower_percent() > 0.0)
        .count();
    Ok(Report {
        title: "Device-aware caching: figures".into(),
        summary: format!(
            "Simulated. Of TPC-H's 22 queries, as PostgreSQL reads for them, {flash} are faster with all data on the flash: the Optane \
             takes up to {:.0} % longer; a policy that sees sizes and queues uses both devices.",
            worst.max(0.0)
        ),
        platform: platform(spec)?,
        sections: vec![latency, queries, policies, change],
    })
}

fn platform(spec: &FiguresSpec) -> Result<Vec<(String, String)>> {
    let mut facts = vec![
        ("Devices".to_owned(), "models in virtual time".to_owned()),
        ("Seed".to_owned(), spec.seed.to_string()),
    ];
    for pair in [PAPER, REVERSED] {
        let Devices { fast, slow, .. } = devices(pair)?;
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

/// How much sooner the Optane answers, by size and depth.
pub(crate) fn latency(spec: &FiguresSpec) -> Result<(Section, Vec<RatioLine>)> {
    let devices = published()?;
    let (mut section, lines) = map::latencies(spec, &devices, Op::Read);
    section.heading = "Latency: flash over Optane".into();
    section.prose = vec![
        "Mean latency of random reads on a Samsung 970 Pro over that on an Optane 905P, by the size of a read \
         and the number in flight. Above 1 the Optane is faster. The study's picture has no figures but \"7.4 times\" \
         at the left; the others follow from the model."
            .into(),
    ];
    Ok((section, lines))
}

/// A query of TPC-H with all data on one device.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub name: String,
    request_count: u64,
    bytes: u64,
    cpu_s: f64,
    /// Seconds of reading, on the Optane and on the flash.
    io_s: [f64; 2],
    /// Commands after the split at each device's largest.
    commands: [u64; 2],
}

impl Asked {
    /// Reading, then computing: seconds on the Optane and on the flash.
    fn response_s(&self) -> [f64; 2] {
        self.io_s.map(|io_s| io_s + self.cpu_s)
    }

    /// By how many percent it takes longer on the Optane; below 0: it is faster there.
    pub fn slower_percent(&self) -> f64 {
        let [optane, flash] = self.response_s();
        100.0 * (optane / flash - 1.0)
    }

    /// Commands of the Optane for each of the flash.
    pub fn commands_ratio(&self) -> f64 {
        self.commands[0] as f64 / self.commands[1].max(1) as f64
    }
}

/// The recorded queries, simulated on both devices of the study.
fn asked(spec: &FiguresSpec) -> Result<Vec<Asked>> {
    let Devices {
        fast: optane,
        slow: flash,
        ..
    } = devices(PAPER)?;
    let one = |question: tpch::Question| {
        let question = match spec.quick {
            true => question.shortened(QUICK_REQUESTS),
            false => question,
        };
        let on = |device: &Profile| question.io_s(device, spec.seed);
        let most = |device: &Profile| question.commands(u64::from(device.command_bytes));
        Ok(Asked {
            request_count: question.request_count(),
            bytes: question.bytes(),
            cpu_s: question.cpu_s,
            io_s: [on(optane)?, on(flash)?],
            commands: [most(optane), most(flash)],
            name: question.name,
        })
    };
    tpch::recorded()?.into_iter().map(one).collect()
}

/// Each query of TPC-H, in order, with all data on one device.
pub(crate) fn queries(spec: &FiguresSpec) -> Result<(Section, Vec<Asked>)> {
    let asked = asked(spec)?;
    let row = |one: &Asked| {
        let [optane, flash] = one.response_s();
        vec![
            one.name.as_str().into(),
            (one.request_count as f64).into(),
            (one.bytes as f64 / 1e6).into(),
            one.commands_ratio().into(),
            one.cpu_s.into(),
            one.io_s[0].into(),
            one.io_s[1].into(),
            optane.into(),
            flash.into(),
            one.slower_percent().into(),
        ]
    };
    let table = Table {
        columns: vec![
            Column::text("Query"),
            Column::number("Requests", "", 0),
            Column::number("Read and written", "MB", 0),
            Column::number("Commands, Optane by flash", "×", 2),
            Column::number("CPU", "s", 2),
            Column::number("I/O on Optane", "s", 2),
            Column::number("I/O on flash", "s", 2),
            Column::number("Optane", "s", 2),
            Column::number("Flash", "s", 2),
            Column::number("Slower on Optane", "%", 1),
        ],
        row_values: asked.iter().map(row).collect(),
    };
    let chart = |title: &str, y: Axis, series: Vec<Series>| Chart {
        title: title.into(),
        form: ReportFormat::Bar,
        x: Positions {
            label: "Query".into(),
            unit: String::new(),
            at: At::Names(asked.iter().map(|one| one.name.clone()).collect()),
        },
        y,
        y_right: None,
        series,
    };
    let values = |of: &dyn Fn(&Asked) -> f64| asked.iter().map(|one| Some(of(one))).collect();
    let section = Section {
        heading: "Queries with all data on one device".into(),
        prose: vec![
            "The requests were recorded below PostgreSQL 15.20 (TPC-H at scale 1, cold, one process, read-ahead of 1 MiB), and so were the \
             CPU times: once, on 29 November 2026, on a virtual machine with two CPUs (AMD EPYC, Zen 4), while other programs ran. How \
             long a device takes for these requests, in their order and with as many in flight as there were, is simulated. Response \
             time is reading, then computing: a server that computes while it reads is faster on both. The recording's disk answered \
             as the flash does, eight times slower, and its page cache was not limited: what is read twice came from the disk once. \
             Published: 20 of 22 are faster on the flash, by up to 23 %; 13 and 16 are at most 3 % slower there."
                .into(),
        ],
        table: Some(table),
        charts: vec![
            chart(
                "Response time",
                Axis::new("Response time", "s"),
                vec![
                    Series::new("Optane", values(&|one| one.response_s()[0])),
                    Series::new("Flash", values(&|one| one.response_s()[1])),
                ],
            ),
            chart(
                "By how much a query is slower on the Optane",
                Axis::new("Slower", "%"),
                vec![Series::new(
                    "Slower on the Optane",
                    values(&Asked::slower_percent),
                )],
            ),
            chart(
                "Commands after the split, Optane by flash",
                Axis::new("Commands", "×"),
                vec![Series::new(
                    "Commands, Optane by flash",
                    values(&Asked::commands_ratio),
                )],
            ),
        ],
    };
    Ok((section, asked))
}

/// Throughput in each window after scans join small reads.
fn change(spec: &FiguresSpec) -> Result<Section> {
    let seconds = if spec.quick { 2 } else { 12 };
    let reversed = devices(REVERSED)?;
    let rates = |policy: &str| -> Result<Vec<f64>> {
        let (first, then) = (mix("8x4k")?, mix("8x4k+6x512k")?);
        let mut load = Phases::new(&first, &then, SECOND, WINDOW, REGION_BYTES, spec.seed);
        // No warm-up: only the windows count.
        let time = (WarmUp::For(0), (1 + seconds) * SECOND);
        simulate(spec, &reversed, policy, time, &mut load)?;
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
