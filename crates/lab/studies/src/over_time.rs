//! The samples that runs recorded each second, one backup after another on one axis of time.
//!
//! Invariants
//! - A line has values in its own backup's seconds only. A run that was too short for a sample has none.
//!
//! Leaves to others: recording (`longshore-pipeline`), and which runs and values (the studies).

use longshore_pipeline::Sample;

use crate::report::{At, Axis, Chart, Column, Positions, ReportFormat, Section, Series, Table};
use crate::timing::Timing;

/// The name, the unit and the value of a line.
pub type Line = (&'static str, &'static str, fn(&Sample) -> Option<f64>);

/// A run with its name.
#[derive(Debug)]
pub struct Recorded<'a> {
    pub label: &'a str,
    pub taken: &'a Timing,
}

/// The samples of all runs, each line in a chart of its own; `None`: every run was too short for one.
pub fn over_time(heading: &str, prose: &str, runs: &[Recorded], lines: &[Line]) -> Option<Section> {
    let mut begun = 0.0;
    // When, whose, and its place among the runs.
    let mut moments: Vec<(f64, usize, &Sample)> = Vec::new();
    for (n, one) in runs.iter().enumerate() {
        let at = |s: &Sample| begun + s.at_ms as f64 / 1e3;
        moments.extend(one.taken.samples.iter().map(|s| (at(s), n, s)));
        begun += one.taken.wall_s;
    }
    if moments.is_empty() {
        return None;
    }
    let times: Vec<f64> = moments.iter().map(|m| m.0).collect();
    let chart = |(name, unit, value): &Line| {
        let series = runs.iter().enumerate().map(|(n, one)| {
            let own = moments
                .iter()
                .map(|(_, of, s)| value(s).filter(|_| *of == n));
            Series::new(one.label, own.collect())
        });
        Chart {
            title: format!("{name} over time"),
            form: ReportFormat::Line,
            x: Positions {
                label: "Time".into(),
                unit: "s".into(),
                at: At::Numbers(times.clone()),
            },
            y: Axis::new(name, unit),
            y_right: None,
            series: series.collect(),
        }
    };
    let mut columns = vec![Column::text("Backup"), Column::number("Time", "s", 2)];
    columns.extend(
        lines
            .iter()
            .map(|(name, unit, _)| Column::number(name, unit, 1)),
    );
    let row = |(at, n, s): &(f64, usize, &Sample)| {
        let mut cells = vec![runs[*n].label.into(), (*at).into()];
        cells.extend(lines.iter().map(|(_, _, value)| value(s).into()));
        cells
    };
    Some(Section {
        heading: heading.into(),
        prose: vec![prose.into()],
        table: Some(Table {
            columns,
            row_values: moments.iter().map(row).collect(),
        }),
        charts: lines.iter().map(chart).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::tests::made_up;

    fn run(seconds: u64) -> Timing {
        let sample = |n| Sample {
            at_ms: 1000 * n,
            cpu_percent: Some(10.0 * n as f64),
            read_bytes_per_s: 0,
            write_bytes_per_s: 0,
            read_latency_us: None,
            write_latency_us: None,
        };
        Timing {
            samples: (1..=seconds).map(sample).collect(),
            ..made_up(seconds as f64 + 0.5, 1)
        }
    }

    #[test]
    fn runs_follow_one_another_and_each_has_its_own_seconds() {
        let (first, short, last) = (run(2), run(0), run(1));
        let runs = [("first", &first), ("short", &short), ("last", &last)];
        let runs = runs.map(|(label, taken)| Recorded { label, taken });
        let lines: [Line; 1] = [("CPU", "%", |s| s.cpu_percent)];
        let found = over_time("Over time", "", &runs, &lines).unwrap();
        let chart = &found.charts[0];
        assert_eq!(chart.x.at, At::Numbers(vec![1.0, 2.0, 4.0]));
        let values: Vec<_> = chart.series.iter().map(|s| s.values.clone()).collect();
        let expected = [
            vec![Some(10.0), Some(20.0), None],
            vec![None; 3],
            vec![None, None, Some(10.0)],
        ];
        assert_eq!(values, expected);
        assert_eq!(found.table.unwrap().row_values.len(), 3);
        assert!(over_time("", "", &runs[1..2], &lines).is_none());
    }
}
