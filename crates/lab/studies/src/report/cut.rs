//! Bars that would flatten all others: they are drawn cut, with their values written next to them.
//!
//! Invariants
//! - A bar is cut only if it is more than eight times the median of the others; what is cut is told in words, too.
//! - The others keep one scale, and no bar is cut below the highest of them.
//!
//! Leaves to others: drawing (`report.js`, `gallery.rs`), and the numbers (tables).

use super::data::{At, Chart, ReportFormat, Side};
use crate::spread::median;

/// A bar this many times as high as the median of the others flattens them.
const FLATTENS: f64 = 8.0;
/// The room above the highest bar that is not cut, as a factor.
const ROOM: f64 = 1.25;

/// Where the bars of a chart are cut, and which.
#[derive(Debug, PartialEq)]
pub struct Cut {
    /// The upper end of the left axis.
    pub at: f64,
    /// Name and value of each bar that goes on above it.
    pub bars: Vec<(String, f64)>,
}

impl Cut {
    /// `None`: no bar flattens the others, or the chart has no bars.
    pub fn of(chart: &Chart) -> Option<Cut> {
        if chart.form != ReportFormat::Bar {
            return None;
        }
        let left = chart.series.iter().filter(|s| s.axis == Side::Left);
        let values: Vec<f64> = left
            .clone()
            .flat_map(|s| &s.values)
            .filter_map(|value| value.filter(|v| v.is_finite()))
            .collect();
        let most = values.len() / 2;
        let flattens = |value: f64| {
            let mut others = values.clone();
            let own = others.iter().position(|other| *other == value)?;
            others.swap_remove(own);
            let middle = median(others.into_iter().map(f64::abs))?;
            Some(middle > 0.0 && value > FLATTENS * middle)
        };
        let is_cut = |value: f64| flattens(value) == Some(true);
        let highest = values.iter().copied().filter(|v| !is_cut(*v));
        let at = ROOM * highest.fold(0.0, f64::max);
        let name = |series: &str, place: usize| {
            let place = match &chart.x.at {
                At::Names(names) => names.get(place).cloned(),
                At::Numbers(numbers) => numbers.get(place).map(f64::to_string),
            };
            match chart.series.len() {
                1 => place.unwrap_or_default(),
                _ => format!("{}, {series}", place.unwrap_or_default()),
            }
        };
        let bars: Vec<(String, f64)> = left
            .flat_map(|s| s.values.iter().enumerate().map(move |(n, v)| (s, n, v)))
            .filter_map(|(s, n, value)| {
                let value = value.filter(|v| v.is_finite() && *v > at && is_cut(*v))?;
                Some((name(&s.name, n), value))
            })
            .collect();
        (!bars.is_empty() && bars.len() <= most && at > 0.0).then_some(Cut { at, bars })
    }

    /// The sentence below the chart.
    pub fn told(&self, unit: &str) -> String {
        let each = self.bars.iter().map(|(name, value)| {
            let digits = if *value < 100.0 { 2 } else { 0 };
            format!("{name}: {value:.digits$} {unit}")
                .trim_end()
                .to_owned()
        });
        let bars = each.collect::<Vec<_>>().join("; ");
        format!("Cut, because they would flatten the others: {bars}.")
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::{Axis, Series};
    use super::*;

    fn chart(values: &[f64]) -> Chart {
        let names = (0..values.len()).map(|n| format!("bar {n}"));
        let values = values.iter().copied().map(Some).collect();
        let series = vec![Series::new("Elapsed", values)];
        Chart::bars("", "", names.collect(), Axis::new("Elapsed", "s"), series)
    }

    #[test]
    fn only_a_bar_above_eight_times_the_median_of_the_others_is_cut() {
        let cut = Cut::of(&chart(&[1.0, 2.0, 17.0, 2.0])).unwrap();
        assert_eq!((cut.at, cut.bars.len()), (2.5, 1));
        assert_eq!(
            cut.told("s"),
            "Cut, because they would flatten the others: bar 2: 17.00 s."
        );
        for whole in [
            vec![1.0, 2.0, 16.0, 2.0],
            vec![1.0, 100.0, 100.0],
            vec![0.0, 0.0, 5.0],
            vec![3.0],
            vec![],
        ] {
            assert_eq!(Cut::of(&chart(&whole)), None, "{whole:?}");
        }
        let several = Cut::of(&chart(&[1.0, 1.0, 1.0, 50.0, 900.0, 1.0])).unwrap();
        assert_eq!(several.bars.len(), 2);
    }

    #[test]
    fn lines_are_never_cut() {
        let mut line = chart(&[1.0, 1.0, 99.0]);
        line.form = ReportFormat::Line;
        assert_eq!(Cut::of(&line), None);
    }
}
