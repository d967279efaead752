//! The published study of device-aware caching: its two figures drawn from the model, and the questions that it left
//! open: which throughput a policy reaches with both devices together, and how soon.
//!
//! Invariants
//! - Devices are simulated, in virtual time and from seeds: the report is the same on any machine. The requests of the queries
//!   and their CPU times were recorded.
//! - Each heading and each caption says `modelled`, or `recorded` of what was.
//!
//! Leaves to others: the simulation (`longshore-simulator`), and the forms of a report (`report`).

mod devices;
mod map;
mod pair;
mod policies;
mod queries;
mod tpch;

pub use devices::FiguresSpec;
pub(crate) use map::RatioLine;
pub use pair::{PairSpec, pair_figures};
pub(crate) use queries::{Asked, queries, signs};

use anyhow::Result;
use longshore_policy::model::{Nanos, Op, ProfileTrust};
use longshore_simulator::sim::{Phases, WarmUp, settled};

use devices::{Devices, PAPER, REVERSED, devices, published};
use policies::{MS, REGION_BYTES, SECOND, mix, policies, simulate};

use crate::report::{
    At, Axis, Chart, Column, Positions, Report, ReportFormat, Section, Series, Table,
};

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
    let told = queries::told(&asked, &published()?);
    let signs = signs(&asked);
    Ok(Report {
        title: "Device-aware caching: figures".into(),
        summary: format!(
            "Modelled, from recorded requests. {told} {signs} A policy that sees sizes and queues uses both devices."
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
    section.heading = "Latency, flash over Optane (modelled)".into();
    section.prose = vec![
        "Mean latency of random reads on a Samsung 970 Pro over that on an Optane 905P, by the size of a read \
         and the number in flight. Above 1 the Optane is faster. The study's picture has no figures but \"7.4 times\" \
         at the left; the others follow from the model."
            .into(),
    ];
    Ok((section, lines))
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
        heading: "After a change of the load (modelled)".into(),
        prose: vec![
            "Six scans join eight clients that read 4 KiB, on EC2's local NVMe over gp3. 95 % of the steady state, in \
             means of 50 ms; the steady state is the mean of the last third."
                .into(),
        ],
        table: Some(table),
        charts: vec![Chart {
            title: "Throughput since the change (modelled)".into(),
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
