//! Fits a profile to measured latencies.
//!
//! Each candidate is judged by running the model itself at every measured size and depth. The search descends along one
//! parameter after another, in shrinking steps, from several chunk sizes: the chunk size decides which of the other
//! parameters can explain which effect.
//!
//! Invariants
//! - A profile is accepted only if it is near the measurement in most of the cells, and there are more cells than
//!   parameters. Otherwise the refusal has the differences.
//! - The result depends on the measurements alone: predictions use one seed.
//! - The search ends: steps are fixed, and each change must improve by a share.
//!
//! Leaves to others: measuring (`measure.rs`), the model (`model`), and files (`file.rs`).

use super::Point;
use crate::model::{Profile, ProfileTrust};
use crate::policy::LINE_BYTES;

/// A prediction must be within this share of the measurement…
const NEAR: f64 = 0.15;
/// …in this share of the cells.
const SHARE: f64 = 0.9;
/// Fewer cells than parameters fit any profile.
const CELLS_LEAST: usize = 10;
/// Chunks simulated for a prediction, the requests that this gives at most, and the fewest for each that is in flight.
const CHUNKS: u64 = 6_000;
const REQUESTS_MOST: u64 = 400;
const ROUNDS: u64 = 4;
/// The bytes of a chunk with which a search begins; it does not change them.
const CHUNK_BYTES: [u32; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Where a search begins: the parts of a lone read's time that occupy a unit, that do not, and that go to the command.
const FIRST_READ: f64 = 0.8;
const FIRST_FIXED: f64 = 0.15;
const FIRST_COMMAND: f64 = 0.05;
/// The part of the time between two requests that a command takes at most, and the units above those that are busy.
const FIRST_TURN: f64 = 0.8;
const FIRST_SPARE: f64 = 1.5;
/// The largest request of a device that does not tell.
const COMMAND_BYTES: u32 = 1 << 20;
/// The most units of a model.
const UNITS_MAX: u32 = 1024;
/// The factors by which a parameter is multiplied or divided.
const STEPS: [f64; 5] = [2.0, 1.4, 1.15, 1.05, 1.02];
/// How often all parameters are tried with one step.
const SWEEPS: usize = 6;
/// A change, and a sweep, must leave less than this share of the distance.
const CHANGE_KEEPS: f64 = 0.999;
const SWEEP_KEEPS: f64 = 0.99;

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

/// An accepted profile.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptedProfile {
    pub profile: Profile,
    pub residuals: Vec<Residual>,
    /// The share of the cells that the profile predicts closely enough.
    pub near: f64,
}

/// Why no profile was accepted.
#[derive(Debug, thiserror::Error)]
pub enum FitRefusal {
    #[error("{have} measured cells are too few for a model; {CELLS_LEAST} are needed")]
    TooFew { have: usize },
    #[error("the cell of {len} bytes at depth {depth} has an impossible latency")]
    NoTime { len: u64, depth: u32 },
    #[error(
        "the best model is within {:.0} % of the measurement in only {:.0} % of the cells; it is not used",
        NEAR * 100.0,
        near * 100.0
    )]
    Far { near: f64, residuals: Vec<Residual> },
}

impl FitRefusal {
    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            FitRefusal::TooFew { .. } | FitRefusal::NoTime { .. } => {
                "measure more sizes and depths"
            }
            FitRefusal::Far { .. } => {
                "stop other users of the device; some devices, such as virtual disks with burst credits, fit no single model"
            }
        }
    }
}

/// The nearest profile. `command_bytes`: the largest request that the device takes, if known.
pub fn fit(points: &[Point], command_bytes: Option<u32>) -> Result<AcceptedProfile, FitRefusal> {
    if points.len() < CELLS_LEAST {
        return Err(FitRefusal::TooFew { have: points.len() });
    }
    let bad = |p: &&Point| !(p.mean_us.is_finite() && p.mean_us > 0.0 && p.count > 0);
    if let Some(Point {
        len_bytes: len,
        depth,
        ..
    }) = points.iter().find(bad)
    {
        let (len, depth) = (*len, *depth);
        return Err(FitRefusal::NoTime { len, depth });
    }
    let found = CHUNK_BYTES.map(|chunk| search(first_guess(points, chunk, command_bytes), points));
    let best = found.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let profile = best.map_or_else(
        || first_guess(points, CHUNK_BYTES[0], command_bytes),
        |(p, _)| p,
    );
    let residuals = residuals(&profile, points);
    let near = residuals.iter().filter(|r| r.error().abs() <= NEAR).count();
    let near = near as f64 / residuals.len() as f64;
    match near >= SHARE {
        true => Ok(AcceptedProfile {
            profile,
            residuals,
            near,
        }),
        false => Err(FitRefusal::Far { near, residuals }),
    }
}

/// An estimate from the extreme cells by the closed forms.
fn first_guess(points: &[Point], chunk_bytes: u32, command_bytes: Option<u32>) -> Profile {
    let rate = |p: &Point| p.len_bytes as f64 * f64::from(p.depth) / p.mean_us;
    let link = points.iter().map(rate).fold(f64::MIN_POSITIVE, f64::max);
    let shortest = points
        .iter()
        .map(|p| p.len_bytes)
        .min()
        .unwrap_or(LINE_BYTES);
    let short = || points.iter().filter(|p| p.len_bytes == shortest);
    let lone_us = short().map(|p| p.mean_us).fold(f64::INFINITY, f64::min);
    let requests = short().map(|p| f64::from(p.depth) / p.mean_us);
    let requests = requests.fold(f64::MIN_POSITIVE, f64::max);
    let read_us = FIRST_READ * lone_us;
    // Enough units for the link, and for the rate of short reads.
    let for_link = link * read_us / f64::from(chunk_bytes);
    let units = (FIRST_SPARE * for_link.max(requests * read_us)).clamp(1.0, UNITS_MAX.into());
    Profile {
        name: "calibrated",
        standing: ProfileTrust::Calibrated,
        units: units.ceil() as u32,
        chunk_bytes,
        read_us,
        write_us: read_us,
        fixed_us: FIRST_FIXED * lone_us,
        read_link: link,
        write_link: link,
        shared_link: true,
        command_bytes: command_bytes.unwrap_or(COMMAND_BYTES),
        command_us: (FIRST_TURN / requests).min(FIRST_COMMAND * lone_us),
        jitter: 0.0,
        tail: None,
        write_buffer: None,
    }
}

/// One parameter, larger by `factor`; `None` at the end of its range.
type Move = fn(&Profile, f64) -> Option<Profile>;

const MOVES: [Move; 6] = [
    |p, factor| {
        let units = (f64::from(p.units) * factor).round() as u32;
        let next = if factor > 1.0 {
            p.units + 1
        } else {
            p.units - 1
        };
        let units = if units == p.units { next } else { units };
        let fits = (1..=UNITS_MAX).contains(&units);
        fits.then(|| Profile { units, ..p.clone() })
    },
    |p, factor| {
        let read_us = p.read_us * factor;
        Some(Profile {
            read_us,
            write_us: read_us,
            ..p.clone()
        })
    },
    |p, factor| {
        let read_link = p.read_link * factor;
        Some(Profile {
            read_link,
            write_link: read_link,
            ..p.clone()
        })
    },
    |p, factor| {
        let fixed_us = p.fixed_us * factor;
        Some(Profile {
            fixed_us,
            ..p.clone()
        })
    },
    |p, factor| {
        let command_us = p.command_us * factor;
        Some(Profile {
            command_us,
            ..p.clone()
        })
    },
    // Moves time between the part that occupies a unit and the part that does not: the lone latency stays.
    |p, factor| {
        let read_us = p.read_us * factor;
        let fixed_us = p.fixed_us - (read_us - p.read_us);
        (fixed_us > 0.0).then(|| Profile {
            read_us,
            write_us: read_us,
            fixed_us,
            ..p.clone()
        })
    },
];

/// Descends until no step helps; returns the profile and its distance from the measurements.
fn search(start: Profile, points: &[Point]) -> (Profile, f64) {
    let mut best = (start.clone(), distance(&start, points));
    for step in STEPS {
        for _ in 0..SWEEPS {
            let before = best.1;
            for (change, factor) in MOVES.iter().flat_map(|m| [(m, step), (m, 1.0 / step)]) {
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

fn residuals(profile: &Profile, points: &[Point]) -> Vec<Residual> {
    let predicted = points.iter().map(|point| Residual {
        point: *point,
        predicted_us: predict(profile, point.len_bytes, point.depth),
    });
    predicted.collect()
}

/// Mean latency in µs of reads at random places, `depth` at a time, by running the model.
fn predict(profile: &Profile, len: u64, depth: u32) -> f64 {
    let chunks = len.div_ceil(u64::from(profile.chunk_bytes)).max(1);
    let least = ROUNDS * u64::from(depth);
    let count = (CHUNKS / chunks).clamp(least, least.max(REQUESTS_MOST));
    profile.steady(len, depth, count, 1).mean_us
}
