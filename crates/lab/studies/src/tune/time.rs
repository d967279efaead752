//! The time of a search: how long each measurement may take, so that all of them keep to it.
//!
//! Invariants
//! - No measurement takes so long that too little is left to measure the best and the start once more.
//! - The first measurement, which decides how much all others measure, has a sixth of the time at most.
//!
//! Leaves to others: the clock (`measured.rs`), and the order of the measurements (`search.rs`).

use std::time::Duration;

/// The first measurements are about this part of the whole time; the search has room for some twenty-five.
const PARTS: u32 = 25;
const EACH_LEAST: Duration = Duration::from_secs(1);
const EACH_MOST: Duration = Duration::from_secs(8);
/// The part that the first measurement has until memory is stored several times: longer would leave no time to compare.
const FIRST_PART: u32 = 6;
/// Equal measurements may take so many times as long.
const SPARE: f64 = 1.15;

/// The time of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimePlan {
    /// All of them.
    pub whole: Duration,
    /// The first, where memory is no matter.
    pub each: Duration,
    /// The first at most.
    pub first_most: Duration,
}

impl TimePlan {
    pub fn of(whole: Duration) -> TimePlan {
        let each = (whole / PARTS).clamp(EACH_LEAST, EACH_MOST);
        TimePlan {
            whole,
            each,
            first_most: (whole / FIRST_PART).max(each),
        }
    }
}

/// The seconds that the next setting may take while `left_s` are left; `None`: too few to find one that is better. Start and best
/// took so many, and are measured again at the end.
pub fn limit_s(left_s: f64, (start_s, best_s): (f64, f64)) -> Option<f64> {
    let without_start_s = left_s - SPARE * start_s;
    // It may become the best, and then it is the one that is measured again.
    let as_best_s = without_start_s / (1.0 + SPARE);
    let limit_s = as_best_s.min(without_start_s - SPARE * best_s);
    (limit_s >= best_s).then_some(limit_s)
}

/// The seconds that the best may take when it is measured again.
pub fn again_limit_s(left_s: f64, start_s: f64) -> f64 {
    (left_s - SPARE * start_s).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_measurement_leaves_time_for_the_others() {
        let plan = TimePlan::of(Duration::from_secs(150));
        assert_eq!((plan.each.as_secs(), plan.first_most.as_secs()), (6, 25));
        let short = TimePlan::of(Duration::from_secs(2));
        assert_eq!((short.each, short.first_most), (EACH_LEAST, EACH_LEAST));
    }

    #[test]
    fn after_any_setting_start_and_best_can_be_measured_again() {
        for left in [5.0, 20.0, 50.0, 100.0] {
            for best in [1.0, 4.0, 10.0] {
                let Some(limit) = limit_s(left, (6.0, best)) else {
                    continue;
                };
                // Whether it becomes the best or not.
                for next_best in [best, limit] {
                    let rest = left - limit - 6.0 - next_best;
                    assert!(rest >= 0.0, "{left} {best} {limit}");
                }
                assert!(again_limit_s(left - limit, 6.0) >= best.max(limit) - 1e-9);
            }
        }
        assert_eq!(limit_s(12.0, (6.0, 4.0)), None);
    }
}
