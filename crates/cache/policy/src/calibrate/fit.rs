//! Fits a profile to measured latencies of reads.
//!
//! Each candidate is judged by running the model itself at every measured size and depth. The search begins at several chunk
//! sizes: the chunk size decides which of the other parameters can explain which effect. A limit is known from the course
//! over time; where there is one, so is the rate of a burst, and the cells are those of a device without credit.
//!
//! Invariants
//! - A profile is accepted only if it is near the measurement in most of the cells, and there are more cells than
//!   parameters. Otherwise the refusal has the differences.
//!
//! Leaves to others: measuring (`measure.rs`), the model (`model`), the descent (`search.rs`), and files (`file.rs`).

use super::Point;
use super::course::Fall;
use super::search::{Move, NEAR, Residual, SHARE, near, residuals, search};
use crate::model::{Op, Profile, ProfileTrust};
use crate::policy::LINE_BYTES;

/// Fewer cells than parameters fit any profile.
const CELLS_LEAST: usize = 10;
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
        "of {}s the best model is within {:.0} % of the measurement in only {:.0} % of the cells; it is not used",
        op.noun(),
        NEAR * 100.0,
        near * 100.0
    )]
    Far {
        op: Op,
        near: f64,
        residuals: Vec<Residual>,
    },
}

impl FitRefusal {
    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            FitRefusal::TooFew { .. } | FitRefusal::NoTime { .. } => {
                "measure more sizes and depths"
            }
            FitRefusal::Far { op: Op::Read, .. } => {
                "stop other users of the device, or give --seconds and --course more time; some devices fit no model"
            }
            FitRefusal::Far { op: Op::Write, .. } => {
                "give --seconds and --course more time; of a file on the device, instead of a directory, only reads are measured"
            }
        }
    }
}

/// Facts about a device besides the cells.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Known {
    /// The largest request that the device takes.
    pub command_bytes: Option<u32>,
    /// Limits that a burst may exceed.
    pub bytes: Option<Fall>,
    pub commands: Option<Fall>,
}

/// Whether cells are enough, and possible.
pub(super) fn checked(points: &[Point]) -> Result<(), FitRefusal> {
    if points.len() < CELLS_LEAST {
        return Err(FitRefusal::TooFew { have: points.len() });
    }
    let bad = |p: &&Point| !(p.mean_us.is_finite() && p.mean_us > 0.0 && p.count > 0);
    match points.iter().find(bad) {
        Some(point) => Err(FitRefusal::NoTime {
            len: point.len_bytes,
            depth: point.depth,
        }),
        None => Ok(()),
    }
}

/// The nearest profile.
pub fn fit(points: &[Point], known: Known) -> Result<AcceptedProfile, FitRefusal> {
    checked(points)?;
    let mut moves = MOVES.to_vec();
    // A burst's rate was measured; the cells of a device without credit say nothing of it.
    moves.extend(known.bytes.is_none().then_some(LINK));
    moves.extend(known.commands.is_none().then_some(COMMAND));
    let found = CHUNK_BYTES.map(|chunk| search(first_guess(points, chunk, known), &moves, points));
    let best = found.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let profile = best.map_or_else(|| first_guess(points, CHUNK_BYTES[0], known), |(p, _)| p);
    let residuals = residuals(&profile, points);
    let near = near(&residuals);
    match near >= SHARE {
        true => Ok(AcceptedProfile {
            profile,
            residuals,
            near,
        }),
        false => Err(FitRefusal::Far {
            op: Op::Read,
            near,
            residuals,
        }),
    }
}

/// An estimate from the extreme cells by the closed forms.
fn first_guess(points: &[Point], chunk_bytes: u32, known: Known) -> Profile {
    let link = points.iter().map(Point::bytes_per_us);
    let link = link.fold(f64::MIN_POSITIVE, f64::max);
    let link = known.bytes.map_or(link, |fall| fall.before);
    let shortest = points
        .iter()
        .map(|p| p.len_bytes)
        .min()
        .unwrap_or(LINE_BYTES);
    let short = || points.iter().filter(|p| p.len_bytes == shortest);
    let lone_us = short().map(|p| p.mean_us).fold(f64::INFINITY, f64::min);
    let requests = short().map(Point::requests_per_us);
    let requests = requests.fold(f64::MIN_POSITIVE, f64::max);
    let requests = known.commands.map_or(requests, |fall| fall.before);
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
        command_bytes: known.command_bytes.unwrap_or(COMMAND_BYTES),
        command_us: (FIRST_TURN / requests).min(FIRST_COMMAND * lone_us),
        jitter: 0.0,
        tail: None,
        write_buffer: None,
        byte_credit: known.bytes.map(|fall| fall.credit()),
        command_credit: known.commands.map(|fall| fall.credit()),
    }
}

const MOVES: [Move; 4] = [
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
        let fixed_us = p.fixed_us * factor;
        Some(Profile {
            fixed_us,
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

const LINK: Move = |p, factor| {
    let read_link = p.read_link * factor;
    Some(Profile {
        read_link,
        write_link: read_link,
        ..p.clone()
    })
};
const COMMAND: Move = |p, factor| {
    let command_us = p.command_us * factor;
    Some(Profile {
        command_us,
        ..p.clone()
    })
};
