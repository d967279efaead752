//! The search for a profile: it descends along one parameter after another, in shrinking steps.
//!
//! Invariants
//! - The result depends on the measurements alone: predictions use one seed.
//! - The search ends: steps are fixed, and each change must improve by a share.
//!
//! Leaves to others: where a search begins, and which parameters it may change (`fit.rs`, `writes.rs`).

use super::Point;
use crate::model::{Op, Profile};

/// Chunks simulated for a prediction, the requests that this gives at most, and the fewest for each that is in flight.
const CHUNKS: u64 = 6_000;
const REQUESTS_MOST: u64 = 400;
const ROUNDS: u64 = 4;
/// The factors by which a parameter is multiplied or divided.
const STEPS: [f64; 5] = [2.0, 1.4, 1.15, 1.05, 1.02];
/// How often all parameters are tried with one step.
const SWEEPS: usize = 6;
/// A change, and a sweep, must leave less than this share of the distance.
const CHANGE_KEEPS: f64 = 0.999;
const SWEEP_KEEPS: f64 = 0.99;
/// A prediction must be within this share of the measurement…
pub(super) const NEAR: f64 = 0.15;
/// …in this share of the cells.
pub(super) const SHARE: f64 = 0.9;

/// One cell, measured and predicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Residual {
    pub point: Point,
    pub predicted_us: f64,
}

impl Residual {
    /// Predicted over measured time, minus 1.
    pub fn error(&self) -> f64 {
        self.predicted_us / self.point.mean_us - 1.0
    }
}

/// The share of the cells that are predicted closely enough.
pub(super) fn near(residuals: &[Residual]) -> f64 {
    let near = residuals.iter().filter(|r| r.error().abs() <= NEAR).count();
    near as f64 / residuals.len().max(1) as f64
}

/// One parameter, larger by `factor`; `None` at the end of its range.
pub(super) type Move = fn(&Profile, f64) -> Option<Profile>;

/// Descends until no step helps; returns the profile and its distance from the measurements.
pub(super) fn search(start: Profile, moves: &[Move], points: &[Point]) -> (Profile, f64) {
    let far = distance(&start, points);
    let mut best = (start, far);
    for step in STEPS {
        for _ in 0..SWEEPS {
            let before = best.1;
            for (change, factor) in moves.iter().flat_map(|m| [(m, step), (m, 1.0 / step)]) {
                while let Some(tried) = change(&best.0, factor) {
                    let far = distance(&tried, points);
                    if far >= best.1 * CHANGE_KEEPS {
                        break;
                    }
                    best = (tried, far);
                }
            }
            if best.1 >= before * SWEEP_KEEPS {
                break;
            }
        }
    }
    best
}

/// Mean square of the logarithms' differences.
fn distance(profile: &Profile, points: &[Point]) -> f64 {
    let residuals = residuals(profile, points);
    let squares = residuals.iter().map(|r| {
        let far = (r.predicted_us / r.point.mean_us).ln();
        far * far
    });
    squares.sum::<f64>() / residuals.len().max(1) as f64
}

pub(super) fn residuals(profile: &Profile, points: &[Point]) -> Vec<Residual> {
    let predicted = points.iter().map(|point| Residual {
        point: *point,
        predicted_us: predict(profile, point.op, (point.len_bytes, point.depth)),
    });
    predicted.collect()
}

/// Mean latency in µs of requests to random places, by running the model.
fn predict(profile: &Profile, op: Op, (len, depth): (u64, u32)) -> f64 {
    let chunks = len.div_ceil(u64::from(profile.chunk_bytes)).max(1);
    let least = ROUNDS * u64::from(depth);
    let count = (CHUNKS / chunks).clamp(least, least.max(REQUESTS_MOST));
    profile.steady(op, (len, depth), count, 1).mean_us
}
