//! Curves over BUFFERCOUNT, with the defaults as points.
//!
//! Invariants
//! - A default stands at the number of buffers that the plan chose, as a point of its own: the plan may give a run more
//!   room with it than with the same number asked for.
//! - A curve passes the places at which only others have points.
//!
//! Leaves to others: the backups, and which value is shown.

use std::collections::BTreeSet;

use crate::report::{At, Axis, Chart, Positions, ReportFormat, Series};

/// One measured place of a curve.
#[derive(Debug, Clone)]
pub struct CurvePlace {
    /// The name of its curve.
    pub curve: String,
    /// BUFFERCOUNT of the run.
    pub buffers: usize,
    /// The plan chose it.
    pub is_default: bool,
    /// `None`: not measured.
    pub value: Option<f64>,
}

/// MAXTRANSFERSIZE as people name it.
pub fn size_told(bytes: usize) -> String {
    match bytes >> 10 {
        kib if kib >= 1024 && kib.is_multiple_of(1024) => format!("{} MiB", kib >> 10),
        kib => format!("{kib} KiB"),
    }
}

/// A line for each curve in the order of their first places, then each curve's default as a point.
pub fn over_buffers(title: &str, y: Axis, places: &[CurvePlace]) -> Chart {
    let at: BTreeSet<usize> = places.iter().map(|place| place.buffers).collect();
    let mut names: Vec<&str> = Vec::new();
    for place in places {
        if !names.contains(&place.curve.as_str()) {
            names.push(&place.curve);
        }
    }
    let values = |name: &str, is_default: bool| -> Vec<Option<f64>> {
        let own = |place: &&CurvePlace| place.curve == name && place.is_default == is_default;
        let own: Vec<&CurvePlace> = places.iter().filter(own).collect();
        let value = |n: &usize| own.iter().find(|place| place.buffers == *n)?.value;
        at.iter().map(value).collect()
    };
    let lines = names
        .iter()
        .map(|name| Series::new(name, values(name, false)).joined());
    let defaults = names.iter().map(|name| {
        let own = format!("{name}, default");
        Series::new(&own, values(name, true)).like(name)
    });
    let has_value = |series: &Series| series.values.iter().any(Option::is_some);
    Chart {
        title: title.into(),
        form: ReportFormat::Line,
        x: Positions {
            label: "BUFFERCOUNT".into(),
            unit: String::new(),
            at: At::Numbers(at.iter().map(|&n| n as f64).collect()),
        },
        y,
        y_right: None,
        series: lines.chain(defaults).filter(has_value).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_on_past_the_places_of_defaults_which_are_points_of_its_colour() {
        let place = |curve: &str, buffers, is_default, value| CurvePlace {
            curve: curve.into(),
            buffers,
            is_default,
            value: Some(value),
        };
        let places = [
            place("1 MiB", 10, true, 300.0),
            place("1 MiB", 8, false, 200.0),
            place("1 MiB", 16, false, 400.0),
            place("4 MiB", 12, true, 350.0),
            place("4 MiB", 10, false, 330.0),
        ];
        let chart = over_buffers("Throughput", Axis::new("Rate", "MB/s"), &places);
        assert_eq!(chart.x.at, At::Numbers(vec![8.0, 10.0, 12.0, 16.0]));
        let shown: Vec<_> = chart.series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(
            shown,
            ["1 MiB", "4 MiB", "1 MiB, default", "4 MiB, default"]
        );
        let curve = &chart.series[0];
        assert_eq!(curve.values, [Some(200.0), None, None, Some(400.0)]);
        assert!(curve.is_joined && curve.like.is_none());
        let default = &chart.series[2];
        assert_eq!(default.values, [None, Some(300.0), None, None]);
        assert_eq!(default.like.as_deref(), Some("1 MiB"));
    }
}
