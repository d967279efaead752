//! The course of a device's rate over time: whether it falls, and whether that is a limit that a burst may exceed.
//!
//! Volumes of clouds count what is asked of them. Credit comes back at a steady rate and is kept while nobody asks, so a burst
//! is faster. Such a device has two rates. A measurement that does not know this mixes them.
//!
//! Invariants
//! - A fall alone is no limit: another user of the device may have come. It is one only if the device, after a rest, is as
//!   fast again for about as long as the rest has earned, and then falls to the same rate again.
//! - The credit that is found is at least what was used up: nobody knows whether it was whole before.
//!
//! Leaves to others: each measured cell (`measure.rs`), and what a limit does to a model (`fit.rs`).

use std::time::Duration;

use longshore_io::Clock;

use super::cell::{MeasureError, Probe, cell};
use crate::model::Credit;

/// The time for one value of the rate.
const SLICE: Duration = Duration::from_millis(250);
/// A rate has fallen if it was this many times as high.
const FALL_LEAST: f64 = 1.25;
/// The share of the values that must be left after a fall, and the fewest of them.
const AFTER_SHARE: f64 = 0.2;
const AFTER_LEAST: usize = 4;
/// A rate lasts if this share of its values…
const EVEN_SHARE: f64 = 0.8;
/// …is within this share of their median.
const EVEN_WITHIN: f64 = 0.15;
/// The longest time in which a device may earn credit again.
const REST_MAX: Duration = Duration::from_secs(10);
/// Two limits that are this near, counted in one unit, are one.
const FOLLOWS_WITHIN: f64 = 0.2;
/// The longest time in which credit is used up before a cell.
const USE_UP_MAX: Duration = Duration::from_secs(60);
/// Each thread makes this many requests in a slice, however long they take.
const REQUESTS_LEAST: u64 = 1;
/// The units of a burst after a rest, over those that the rest has earned: at least and at most.
const EARNED_LEAST: f64 = 0.5;
const EARNED_MOST: f64 = 2.0;
/// Requests that ask for most bytes: their bytes, and how many are in flight.
const LARGE_LEN: u64 = 512 << 10;
const LARGE_DEPTH: u32 = 32;
/// The same of most commands.
const SMALL_LEN: u64 = 4 << 10;
const SMALL_DEPTH: u32 = 64;

/// What is counted, and the requests that ask for most of it: bytes of a request, and requests in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Bytes,
    Commands,
}

impl Kind {
    fn shape(self) -> (u64, u32) {
        match self {
            Kind::Bytes => (LARGE_LEN, LARGE_DEPTH),
            Kind::Commands => (SMALL_LEN, SMALL_DEPTH),
        }
    }
}

/// A rate that fell, in units per µs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fall {
    pub before: f64,
    pub after: f64,
    /// Units above the later rate, until it fell.
    pub excess: f64,
}

impl Fall {
    /// The limit of which this is the effect.
    pub fn credit(&self) -> Credit {
        Credit {
            per_us: self.after,
            most: self.excess,
        }
    }

    /// The rate that lasts.
    pub fn lasting(&self, kind: Kind) -> Lasting {
        Lasting {
            kind,
            rate: self.after,
        }
    }
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Course {
    /// The rate did not fall.
    Even,
    /// It fell, came back after a rest for as long as that earned, and fell again: the device itself does that.
    Limited(Fall),
    /// It fell, and a rest did not bring it back so.
    Fell(Fall),
}

/// A rate that lasts, in units per µs, of a device where a burst is faster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lasting {
    pub kind: Kind,
    pub rate: f64,
}

/// The limits of a device, without those that only follow from the other one: small commands that are slow because their
/// bytes are counted, and bytes that are slow because their commands are.
pub fn own_limits(
    bytes: Option<Fall>,
    commands: Option<Fall>,
    command_bytes: u64,
) -> (Option<Fall>, Option<Fall>) {
    let (Some(of_bytes), Some(of_commands)) = (bytes, commands) else {
        return (bytes, commands);
    };
    let (bytes_us, commands_us) = (of_bytes.after, of_commands.after);
    let follows = |rate: f64, limit: f64| (rate / limit - 1.0).abs() <= FOLLOWS_WITHIN;
    if follows(commands_us * SMALL_LEN as f64, bytes_us) {
        return (bytes, None);
    }
    if follows(bytes_us, commands_us * LARGE_LEN.min(command_bytes) as f64) {
        return (None, commands);
    }
    (bytes, commands)
}

/// Asks for as much of a kind as the device gives, for `time`; if the rate falls, again after a rest.
pub fn course(
    probe: Probe<'_>,
    kind: Kind,
    time: Duration,
    clock: &dyn Clock,
) -> Result<Course, MeasureError> {
    let Some(fall) = fall(&slices(probe, kind, time, clock)?) else {
        return Ok(Course::Even);
    };
    let rest = REST_MAX.min(time / 2);
    clock.sleep(rest);
    let again = slices(probe, kind, time / 2, clock)?;
    Ok(judged(fall, rest, &again))
}

/// The units of a slice, and its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Slice {
    pub units: f64,
    pub us: f64,
}

impl Slice {
    fn rate(&self) -> f64 {
        self.units / self.us
    }
}

/// Asks for as much as the device gives, for one slice. A slow device takes longer for the fewest requests.
fn slice(probe: Probe<'_>, kind: Kind, clock: &dyn Clock) -> Result<Slice, MeasureError> {
    let begun = clock.now();
    let point = cell(probe, kind.shape(), (SLICE, REQUESTS_LEAST), clock)?;
    let units = match kind {
        Kind::Bytes => point.count * point.len_bytes,
        Kind::Commands => point.count,
    };
    Ok(Slice {
        units: units as f64,
        // By the time, not by the latencies: threads may begin late.
        us: (clock.now() - begun).as_nanos().max(1) as f64 / 1000.0,
    })
}

fn slices(
    probe: Probe<'_>,
    kind: Kind,
    time: Duration,
    clock: &dyn Clock,
) -> Result<Vec<Slice>, MeasureError> {
    let end = clock.now() + time;
    let mut slices = Vec::new();
    while clock.now() < end {
        slices.push(slice(probe, kind, clock)?);
    }
    Ok(slices)
}

/// Asks for as much as the device gives until no more comes than what lasts.
pub(super) fn use_up(
    probe: Probe<'_>,
    lasting: Lasting,
    clock: &dyn Clock,
) -> Result<(), MeasureError> {
    let end = clock.now() + USE_UP_MAX;
    let most = lasting.rate * (1.0 + EVEN_WITHIN);
    while clock.now() < end && slice(probe, lasting.kind, clock)?.rate() > most {}
    Ok(())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn rates(slices: &[Slice]) -> Vec<f64> {
    slices.iter().map(Slice::rate).collect()
}

/// Units above a rate.
fn excess(slices: &[Slice], rate: f64) -> f64 {
    let over = slices.iter().map(|slice| slice.units - rate * slice.us);
    over.sum()
}

/// Whether most values are near this one.
fn lasts(rates: &[f64], level: f64) -> bool {
    let near = |rate: &&f64| (**rate / level - 1.0).abs() <= EVEN_WITHIN;
    rates.iter().filter(near).count() as f64 >= EVEN_SHARE * rates.len() as f64
}

/// The fall that divides the values best into two levels, if the second one lasts.
pub(super) fn fall(slices: &[Slice]) -> Option<Fall> {
    let rates = rates(slices);
    let after_least = AFTER_LEAST.max((rates.len() as f64 * AFTER_SHARE).ceil() as usize);
    let unlike = |part: &[f64]| {
        let level = mean(part);
        part.iter().map(|rate| (rate - level).powi(2)).sum::<f64>()
    };
    let places = 1..rates.len().checked_sub(after_least)? + 1;
    let at = places.min_by(|a, b| {
        let apart = |at: &usize| unlike(&rates[..*at]) + unlike(&rates[*at..]);
        apart(a).total_cmp(&apart(b))
    })?;
    let (before, later) = (mean(&rates[..at]), &rates[at..]);
    let mut sorted = later.to_vec();
    sorted.sort_by(f64::total_cmp);
    let after = sorted[sorted.len() / 2];
    (lasts(later, after) && before >= FALL_LEAST * after).then(|| Fall {
        before,
        after,
        excess: excess(&slices[..at], after),
    })
}

/// Whether a fall is a limit, by what came after a rest: as much more as the rest has earned, and then the lower rate again.
pub(super) fn judged(fall: Fall, rest: Duration, again: &[Slice]) -> Course {
    let all = rates(again);
    let is_fast = |rate: &&f64| **rate > fall.after * (1.0 + EVEN_WITHIN);
    let burst = all.iter().take_while(is_fast).count();
    let fell_again = all.len() >= burst + AFTER_LEAST && lasts(&all[burst..], fall.after);
    let earned = excess(&again[..burst], fall.after);
    let expected = (fall.after * rest.as_micros() as f64).min(fall.excess);
    match fell_again && (EARNED_LEAST..=EARNED_MOST).contains(&(earned / expected)) {
        true => Course::Limited(fall),
        false => Course::Fell(fall),
    }
}
