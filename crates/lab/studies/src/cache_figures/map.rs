//! The map of two devices: how many times as long the slow one takes, by the size of a request and the number in flight.
//!
//! Invariants
//! - Every cell is simulated, from a seed, and heading and captions say so; a device with limits has used up what a burst may exceed.
//!
//! Leaves to others: which devices (`mod.rs`, `pair.rs`), and how a map is drawn (`report`).

use longshore_policy::model::{Op, Profile};

use super::devices::{Devices, FiguresSpec};
use crate::report::{
    At, Axis, Cell, Chart, Column, Positions, ReportFormat, Section, Series, Table,
};

/// KiB of a request, and requests in flight.
const LENS: [u64; 8] = [4, 16, 64, 128, 256, 512, 1024, 2048];
const DEPTHS: [u32; 5] = [1, 4, 16, 32, 64];
/// KiB that a cell simulates, its fewest and its most requests, and those of a trial run.
const CELL_KIB: u64 = 200_000;
const REQUESTS: [u64; 2] = [300, 8000];
const ROUNDS: u64 = 20;
const QUICK_REQUESTS: u64 = 400;

/// A depth, and for each size how many times as long the slow device takes.
pub(crate) type RatioLine = (u32, Vec<f64>);

fn kib(len_kib: u64) -> String {
    match len_kib {
        1024.. => format!("{}M", len_kib >> 10),
        _ => format!("{len_kib}K"),
    }
}

/// The ratios as a table, as a map and as lines.
pub(crate) fn latencies(
    spec: &FiguresSpec,
    devices: &Devices<'_>,
    op: Op,
) -> (Section, Vec<RatioLine>) {
    let ratio = |kib: u64, depth: u32| {
        let least = ROUNDS * u64::from(depth);
        let count = (CELL_KIB / kib).clamp(REQUESTS[0], REQUESTS[1]).max(least);
        let count = if spec.quick {
            count.min(QUICK_REQUESTS)
        } else {
            count
        };
        let mean = |p: &Profile| p.steady(op, (kib << 10, depth), count, spec.seed).mean_us;
        mean(devices.slow) / mean(devices.fast)
    };
    let line = |depth: &u32| (*depth, LENS.map(|kib| ratio(kib, *depth)).to_vec());
    let lines: Vec<RatioLine> = DEPTHS.iter().map(line).collect();
    let depth = |depth: u32| format!("depth {depth}");
    let mut columns = vec![Column::text("Depth")];
    columns.extend(LENS.iter().map(|len| Column::number(&kib(*len), "", 2)));
    let rows = lines.iter().map(|(of, ratios)| {
        let ratios = ratios.iter().map(|ratio| Cell::from(*ratio));
        std::iter::once(depth(*of).into()).chain(ratios).collect()
    });
    let mut series: Vec<Series> = lines
        .iter()
        .map(|(of, ratios)| {
            let values = ratios.iter().copied().map(Some).collect();
            Series::new(&depth(*of), values)
        })
        .collect();
    let (fast, slow) = (devices.fast_name, devices.slow_name);
    let (noun, verb) = match op {
        Op::Read => ("read", "reads"),
        Op::Write => ("write", "writes"),
    };
    let chart = |title: String, form, series| Chart {
        title,
        form,
        x: Positions {
            label: format!("Size of a {noun}"),
            unit: String::new(),
            at: At::Names(LENS.iter().map(|len| kib(*len)).collect()),
        },
        y: Axis::new(&format!("{slow} / {fast}"), ""),
        y_right: None,
        series,
    };
    let map = chart(
        format!("Blue: the {fast} answers {verb} sooner; orange: the {slow} does (modelled)"),
        ReportFormat::Map,
        series.clone(),
    );
    let mut even = Series::new("equally fast", vec![Some(1.0); LENS.len()]);
    even.dashed = true;
    series.push(even);
    let curves = chart(
        format!("How many times as long the {slow} takes (modelled)"),
        ReportFormat::Line,
        series,
    );
    let after = match op {
        Op::Read => "",
        Op::Write => " Writes come after a long burst: a buffer that takes them is full.",
    };
    let section = Section {
        heading: format!("Latency of {verb}: {slow} over {fast} (modelled)"),
        prose: vec![format!(
            "Mean latency of random {verb} on the {slow} over that on the {fast}, by the size of a {noun} and the number in \
             flight. Above 1 the {fast} is faster.{after}"
        )],
        table: Some(Table {
            columns,
            row_values: rows.collect(),
        }),
        charts: vec![map, curves],
    };
    (section, lines)
}
