//! The section of one database in a comparison: what to take, the table and the charts.
//!
//! Invariant: speed-up is over MS_XPRESS at its default level, as in the published results.
//!
//! Leaves to others: the contenders (`contenders.rs`), and what to take (`advice.rs`).

use longshore_codec::Algorithm;

use super::contenders::{Contender, baseline, speed_up};
use super::spec::CompareSpec;
use crate::advice::{self, Advice, Conditions, Measured};
use crate::over_time::{Recorded, over_time};
use crate::report::{
    At, Axis, Best, Chart, Column, Positions, ReportFormat, Section, Series, Table, counted,
};
use crate::spread::median;
use crate::timing::{IN_HARDWARE, Timing};

/// One sentence for a database: what to take, and what is better than SQL Server's default.
pub fn finding(name: &str, all: &[Contender], conditions: Conditions) -> Option<String> {
    let base = baseline(all)?.stored_bytes()?;
    let better = all.iter().filter(|one| {
        one.algorithm == Algorithm::QatDeflate
            && one.counts()
            && one.stored_bytes().is_some_and(|bytes| bytes < base)
            && speed_up(one, all).is_some_and(|up| up > 1.0)
    });
    let better: Vec<String> = better
        .filter_map(|one| Some(format!("{} ({:.2} ×)", one.name(), speed_up(one, all)?)))
        .collect();
    let advice = Advice::of(&measured(all))?.headline(conditions);
    Some(match better.as_slice() {
        [] => format!(
            "{name}: {advice}; no level of QAT_DEFLATE is both faster and smaller than MS_XPRESS."
        ),
        some => format!(
            "{name}: {advice}; faster and smaller than MS_XPRESS: {}.",
            some.join(", ")
        ),
    })
}

/// The contenders that were measured with the engine that was asked for, as the advice needs them.
fn measured(all: &[Contender]) -> Vec<Measured> {
    all.iter()
        .filter(|one| one.counts())
        .filter_map(|one| {
            Some(Measured {
                name: one.name(),
                compresses: one.algorithm != Algorithm::None,
                time: one.elapsed()?,
                stored_bytes: one.stored_bytes()?,
            })
        })
        .collect()
}

/// Quick and small backups: near the lower left corner a backup is both.
fn time_and_size(all: &[Contender]) -> Chart {
    let mut points: Vec<(f64, String, f64)> = all
        .iter()
        .filter_map(|one| {
            let stored = one.stored_bytes()? as f64 / 1e6;
            Some((one.time()?, one.name(), stored))
        })
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let series = points.iter().enumerate().map(|(n, (_, name, stored))| {
        let mut values = vec![None; points.len()];
        values[n] = Some(*stored);
        Series::new(name, values)
    });
    Chart {
        title: "Time and size".into(),
        form: ReportFormat::Scatter,
        x: Positions {
            label: "Elapsed".into(),
            unit: "s".into(),
            at: At::Numbers(points.iter().map(|point| point.0).collect()),
        },
        y: Axis::new("Stored", "10^6 bytes"),
        y_right: None,
        series: series.collect(),
    }
}

/// A bar for each contender that has the value, the best first.
fn bars(
    title: &str,
    (y, best): (Axis, Best),
    all: &[Contender],
    value: &dyn Fn(&Contender) -> Option<f64>,
) -> Chart {
    let known = all.iter().filter_map(|one| Some((one.name(), value(one)?)));
    let (names, heights) = known.map(|(name, height)| (name, Some(height))).unzip();
    let series = vec![Series::new(title, heights)];
    Chart::bars(title, "Algorithm", names, y, series).sorted(best)
}

fn table(all: &[Contender]) -> Table {
    let has_hardware = all
        .iter()
        .any(|one| one.median(Timing::accelerator_share) > Some(0.0));
    let has_rounds = all.iter().any(|one| one.taken.len() > 1);
    let row = |one: &Contender| {
        let mut cells = vec![
            one.name().into(),
            one.time().into(),
            one.median(Timing::mb_per_s).into(),
            one.median(|t| t.cpu_s).into(),
            median(one.taken.iter().filter_map(|t| t.system_cpu_percent)).into(),
            one.median(|t| t.stored_bytes as f64 / 1e6).into(),
            one.median(Timing::ratio).into(),
            speed_up(one, all).into(),
        ];
        if has_rounds {
            cells.insert(2, one.elapsed().map(|s| s.range(2)).into());
        }
        if has_hardware {
            cells.push(one.taken.last().and_then(Timing::compressed_by).into());
        }
        cells
    };
    let mut columns = vec![
        Column::text("Algorithm"),
        Column::number("Elapsed", "s", 2),
        Column::number("Throughput", "MB/s", 0),
        Column::number("CPU time", "s", 2),
        Column::number("CPU", "% of system", 1),
        Column::number("Stored", "10^6 bytes", 1),
        Column::number("Ratio", "", 3),
        Column::number("Speed-up", "MS_XPRESS = 1", 2),
    ];
    if has_rounds {
        columns.insert(2, Column::text("min–max"));
    }
    if has_hardware {
        columns.push(Column::text("Compressed by"));
    }
    Table {
        columns,
        row_values: all.iter().map(row).collect(),
    }
}

/// Points of time and size, and bars of each quantity.
fn bars_of(all: &[Contender]) -> Vec<Chart> {
    let low = |label: &str, unit: &str| (Axis::new(label, unit), Best::Least);
    let high = |label: &str, unit: &str| (Axis::new(label, unit), Best::Most);
    vec![
        time_and_size(all),
        bars("Backup time", low("Elapsed", "s"), all, &Contender::time),
        bars("CPU time", low("CPU time", "s"), all, &|one| {
            one.median(|t| t.cpu_s)
        }),
        bars("Stored", low("Stored", "10^6 bytes"), all, &|one| {
            one.median(|t| t.stored_bytes as f64 / 1e6)
        }),
        bars("Compression ratio", high("Ratio", ""), all, &|one| {
            one.median(Timing::ratio)
        }),
        // That of NONE would flatten the others.
        bars(
            "Speed-up over MS_XPRESS of those that compress",
            high("Speed-up", "MS_XPRESS = 1"),
            all,
            &|one| speed_up(one, all).filter(|_| one.algorithm != Algorithm::None),
        ),
    ]
}

/// The section of a database, and that of its CPU over time if its backups were long enough.
pub fn sections(
    name: &str,
    spec: &CompareSpec,
    all: &[Contender],
    conditions: Conditions,
) -> Vec<Section> {
    let measured = measured(all);
    let target = match spec.dirs.len() {
        0 => "to NUL".to_owned(),
        1 => "in one directory".to_owned(),
        dirs => format!("in {dirs} directories"),
    };
    let cold = median(all.iter().flat_map(|c| &c.taken).map(Timing::cold_percent));
    let cold = cold.map_or_else(String::new, |percent| {
        format!(" The page cache was left as it was: {percent:.0} % of the source came from the disk (median).")
    });
    let method = format!(
        "{} {target}; {}. MB/s is SQL Server's figure: 2^20 bytes of \
         the database per second. CPU is the whole machine's, CPU time this program's.{cold}",
        counted(spec.stripes, "stripe"),
        match spec.rounds.max(1) {
            1 => "one round".to_owned(),
            n => format!("medians of {n} rounds, alternating"),
        }
    );
    let hardware = all.iter().any(Contender::is_accelerated).then(|| {
        format!(
            "A row is named after the engine that compressed, with its share where it had help; below {:.0} % of an accelerator \
             that was asked for alone, it is no hardware, and is not advised; \"Compressed by\" is of the last round. One backup to NUL with each accelerator before, \
             in which it was tested, is not counted.",
            100.0 * IN_HARDWARE
        )
    });
    let first = Section {
        heading: name.to_owned(),
        prose: [
            Advice::of(&measured).map(|advice| advice.paragraph(conditions)),
            advice::unbeaten(&measured),
            Some(method),
            hardware,
        ]
        .into_iter()
        .flatten()
        .collect(),
        table: Some(table(all)),
        charts: bars_of(all),
    };
    let names: Vec<String> = all.iter().map(Contender::name).collect();
    let runs = all.iter().zip(&names);
    let runs: Vec<Recorded> = runs
        .filter_map(|(one, label)| {
            Some(Recorded {
                label,
                taken: one.taken.last()?,
            })
        })
        .collect();
    let cpu = over_time(
        &format!("{name}: CPU over time"),
        "The machine's CPU in each second of the last round, one backup after another without the pauses between them. A \
         backup of less than two seconds has points alone.",
        &runs,
        &[("CPU", "% of system", |s| s.cpu_percent)],
    );
    [first].into_iter().chain(cpu).collect()
}
