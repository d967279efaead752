//! The samples that runs recorded each second, one backup after another on one axis of time.

use longshore_pipeline::Sample;

use super::super::trials::Tried;
use crate::report::{At, Axis, Chart, Column, Positions, ReportFormat, Section, Series, Table};

/// The name, the unit and the value of a line.
pub type Line = (&'static str, &'static str, fn(&Sample) -> Option<f64>);

/// The samples of each trial's last round, each line in a chart of its own; `None`: every run was too short for one.
pub fn over_time(heading: &str, prose: &str, tried: &[Tried], lines: &[Line]) -> Option<Section> {
    let mut begun = 0.0;
    // When, whose, and its place among the trials.
    let mut moments: Vec<(f64, usize, &Sample)> = Vec::new();
    for (n, one) in tried.iter().enumerate() {
        let Some(last) = one.taken.last() else {
            continue;
        };
        let at = |s: &Sample| begun + s.at_ms as f64 / 1e3;
        moments.extend(last.samples.iter().map(|s| (at(s), n, s)));
        begun += last.wall_s;
    }
    if moments.is_empty() {
        return None;
    }
    let times: Vec<f64> = moments.iter().map(|m| m.0).collect();
    let chart = |(name, unit, value): &Line| {
        let series = tried.iter().enumerate().map(|(n, one)| {
            let own = moments
                .iter()
                .map(|(_, of, s)| value(s).filter(|_| *of == n));
            Series::new(&one.trial.label, own.collect())
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
        let mut cells = vec![tried[*n].trial.label.as_str().into(), (*at).into()];
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
