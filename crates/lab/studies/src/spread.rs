//! Median and spread of repeated measurements.
//!
//! Invariant: a spread of few rounds is never shown without the caution that chance may decide.

use crate::report::counted;

/// Fewer rounds say little about a spread.
pub const ENOUGH_ROUNDS: usize = 3;

/// The beginning of a headline if there were few rounds.
pub fn caution(rounds: usize) -> Option<String> {
    let few = (1..ENOUGH_ROUNDS).contains(&rounds);
    few.then(|| format!("Only {}, so chance may decide.", counted(rounds, "round")))
}

/// The results of several rounds of one measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundResults {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl RoundResults {
    /// `None` for no values. With an even number of values, the median is the mean of the middle two.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<RoundResults> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        Some(RoundResults { median, min, max })
    }

    /// Smallest and largest value, such as `1.31–1.42`.
    pub fn range(&self, decimals: usize) -> String {
        format!("{:.decimals$}–{:.decimals$}", self.min, self.max)
    }
}

/// The median alone.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    RoundResults::of(values).map(|spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value_or_the_mean_of_both() {
        let odd = RoundResults::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(RoundResults::of([]), None);
        assert_eq!(odd.range(1), "1.0–3.0");
    }

    #[test]
    fn few_rounds_are_cautioned_about() {
        assert_eq!(
            caution(1).as_deref(),
            Some("Only 1 round, so chance may decide.")
        );
        assert_eq!(
            caution(2).as_deref(),
            Some("Only 2 rounds, so chance may decide.")
        );
        assert_eq!(caution(3), None);
    }
}
