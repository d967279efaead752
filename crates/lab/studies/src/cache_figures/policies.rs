//! One policy after another over two devices, with everything resident.
//!
//! Invariants
//! - Devices are simulated, in virtual time and from a seed.
//!
//! Leaves to others: the simulation (`longshore-simulator`).

use anyhow::Result;
use longshore_policy::model::Nanos;
use longshore_simulator::Choice;
use longshore_simulator::sim::{self, ClosedLoop, Mix, Outcome, Scenario, Source, WarmUp};

use super::devices::{Devices, FiguresSpec};
use crate::report::{Axis, Chart, Column, Section, Series, Side, Table};

pub(super) const SECOND: Nanos = 1_000_000_000;
pub(super) const MS: Nanos = 1_000_000;
const SLOT_BYTES: u64 = 64 << 10;
pub(super) const REGION_BYTES: u64 = 1 << 30;
const POLICIES: [&str; 7] = [
    "none",
    "none-waits",
    "slow",
    "bcache",
    "orthus",
    "orthus-kernel",
    "aware",
];

/// One policy under one mix, with everything resident.
pub(super) fn simulate(
    spec: &FiguresSpec,
    devices: &Devices<'_>,
    policy: &str,
    (warm_up, measured): (WarmUp, Nanos),
    source: &mut dyn Source,
) -> Result<Outcome> {
    let Devices { fast, slow, .. } = *devices;
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

pub(super) fn mix(text: &str) -> Result<Mix> {
    text.parse().map_err(anyhow::Error::msg)
}

fn closed(spec: &FiguresSpec, devices: &Devices<'_>, text: &str, policy: &str) -> Result<Outcome> {
    let measured = if spec.quick { 100 * MS } else { SECOND };
    let mut source = ClosedLoop::new(&mix(text)?, REGION_BYTES, spec.seed);
    let warm_up = WarmUp::UntilSteady {
        window: measured / 4,
        most: 60 * SECOND,
    };
    simulate(spec, devices, policy, (warm_up, measured), &mut source)
}

/// Small reads and scans together, over both devices.
pub(super) fn policies(spec: &FiguresSpec, devices: &Devices<'_>) -> Result<Section> {
    let outcomes = POLICIES.map(|policy| closed(spec, devices, "8x4k+6x512k", policy));
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
            Column::number(&format!("By the {}", devices.fast_name), "%", 1),
            Column::number("Warm-up", "s", 2),
            Column::text("Steady"),
        ],
        row_values: POLICIES.iter().zip(&outcomes).map(row).collect(),
    };
    let values = |of: fn(&Outcome) -> f64| outcomes.iter().map(|o| Some(of(o))).collect();
    let mut small = Series::new("small reads", values(|o| o.small_reads.mean));
    small.axis = Side::Right;
    let throughput = Series::new("throughput", values(|o| o.throughput_mb_s));
    let mut chart = Chart::bars(
        "Throughput, and how long small reads take (modelled)",
        "Policy",
        POLICIES.map(str::to_owned).to_vec(),
        Axis::new("Throughput", "MB/s"),
        vec![throughput, small],
    );
    chart.y_right = Some(Axis::new("Mean latency", "us"));
    Ok(Section {
        heading: "Both devices, one policy (modelled)".into(),
        prose: vec![
            "Eight clients read 4 KiB anywhere, six scan with 512 KiB, everything is resident. none: a classic cache; \
             none-waits: a classic cache whose misses wait for another client's read of the same bytes; slow: no \
             cache; orthus: 1 % in 75 ms, as in its paper; orthus-kernel: 1 % in 15 ms, the interval of its kernel \
             version. Each policy runs until three windows in a row do the same, and is measured from then on."
                .into(),
        ],
        table: Some(table),
        charts: vec![chart],
    })
}
