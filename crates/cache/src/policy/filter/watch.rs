//! The no-regret guard of the cache: is serving hits by both sides better than by one alone?
//!
//! [`longshore_balance::Guard`] compares progress under the three choices and tries only what could come near the
//! best. What one side alone could do is the lesser of two estimates. One is Little's law: the bytes that are under way
//! now, through the time that a mean request would take if all of them were there. The other takes into account that
//! clients write, too, which no choice makes quicker: the present progress, or its average if that is less, times what
//! a mean request takes now over what it would take.

use longshore_balance::{Guard, Serve};

use super::Asked;
use super::belief::Belief;
use crate::model::Op;
use crate::policy::{Ended, Load, Purpose, Side, View};

/// An epoch, in lone reads of the slow side, and at least, in µs.
const EPOCH_READS: f64 = 64.0;
const EPOCH_LEAST_US: f64 = 5_000.0;
/// Weight of new progress in its average. What an estimate is compared with is an average, too: with a few requests in an
/// epoch, a lucky moment alone would look like a better side, and a trial costs.
const ALPHA: f64 = 0.25;

#[derive(Debug)]
pub struct Watch {
    guard: Guard,
    done_bytes: u64,
    /// Of reads lately: length, and how much of it is held.
    mean_bytes: f64,
    held: f64,
    present: Option<Side>,
    /// Of clients' parts lately: the share that writes, and what reads and writes take.
    writes: f64,
    read_us: f64,
    write_us: f64,
    /// Bytes/s lately, and averaged; when it was last taken, and what was done until then.
    rate: f64,
    average: f64,
    counted: (u64, u64),
    epoch_us: u64,
}

impl Watch {
    /// `slow_us`: a lone small read of the slow side.
    pub fn new(slow_us: f64) -> Watch {
        let epoch_us = (EPOCH_READS * slow_us).max(EPOCH_LEAST_US);
        Watch {
            guard: Guard::new(epoch_us as u64),
            done_bytes: 0,
            mean_bytes: 0.0,
            held: 0.0,
            present: None,
            writes: 0.0,
            read_us: 0.0,
            write_us: 0.0,
            rate: 0.0,
            average: 0.0,
            counted: (0, 0),
            epoch_us: epoch_us as u64,
        }
    }

    pub fn read(&mut self, asked: &Asked) {
        let (len, held) = (asked.len as f64, asked.held_bytes as f64 / asked.len as f64);
        self.mean_bytes += (len - self.mean_bytes) / 64.0;
        self.held += (held - self.held) / 64.0;
    }

    pub fn ended(&mut self, ended: &Ended) {
        // Nothing ran for it, and it says nothing about times; but it is progress.
        if ended.purpose == Purpose::Joined {
            self.done_bytes = self.done_bytes.saturating_add(ended.len);
        }
        if ended.purpose == Purpose::Client {
            let read = ended.op == Op::Read;
            let mean = if read {
                &mut self.read_us
            } else {
                &mut self.write_us
            };
            *mean += (ended.took_us - *mean) / 64.0;
            self.writes += (f64::from(u8::from(!read)) - self.writes) / 64.0;
            self.done_bytes = self
                .done_bytes
                .saturating_add(if read { ended.len } else { 0 });
        }
    }

    /// The side that should serve all hits now, if one alone is better.
    pub fn only(&mut self, view: &View, fast: &Belief, slow: &Belief) -> Option<Side> {
        let len = (self.mean_bytes as u64).max(1);
        let all = Load {
            in_flight_bytes: view.fast.in_flight_bytes + view.slow.in_flight_bytes,
            in_flight_requests: view.fast.in_flight_requests + view.slow.in_flight_requests,
            written_bytes: view.fast.written_bytes + view.slow.written_bytes,
        };
        let under_way = (all.in_flight_bytes - all.written_bytes.min(all.in_flight_bytes)) as f64;
        let (fast_us, slow_us) = (fast.loaded_us(len, all), slow.loaded_us(len, all));
        let mixed_us = self.held * fast_us + (1.0 - self.held) * slow_us;
        let could = |us: f64| (under_way + len as f64) * 1e6 / us.max(1e-3);
        let now_us = view.now / 1000;
        self.count(now_us);
        let instead = |us: f64| {
            let both = |read: f64| (1.0 - self.writes) * read + self.writes * self.write_us;
            self.rate.min(self.average) * both(self.read_us) / both(us).max(1e-3)
        };
        // Either may be far off; what is tried for nothing costs, so both must say so.
        let could = |us| could(us).min(instead(us));
        let could = [could(mixed_us), could(slow_us)];
        self.present = match self.guard.judge(now_us, self.done_bytes, could) {
            Serve::Both => None,
            Serve::First => Some(Side::Fast),
            Serve::Second => Some(Side::Slow),
        };
        self.present
    }

    fn count(&mut self, now_us: u64) {
        let (since, before) = self.counted;
        let passed = now_us.saturating_sub(since);
        if passed >= self.epoch_us / 2 {
            let done = self.done_bytes.saturating_sub(before);
            self.rate = done as f64 * 1e6 / passed as f64;
            self.average = match self.average {
                0.0 => self.rate,
                old => old + (self.rate - old) * ALPHA,
            };
            self.counted = (now_us, self.done_bytes);
        }
    }

    pub fn present(&self) -> Option<Side> {
        self.present
    }
}
