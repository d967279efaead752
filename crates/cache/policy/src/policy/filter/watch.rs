//! The no-regret guard of the cache: is serving hits from both sides better than from one alone?
//!
//! [`longshore_balance::Guard`] compares progress under the three choices and tries only choices that could come near
//! the best. The progress of one side alone is the lower of two estimates. The first is Little's law: the bytes now in
//! flight, divided by the time that a mean request would take if all of them were on that side. The second takes into
//! account that clients also write, which no choice makes faster: the present progress, or its average if that is
//! lower, times the ratio of a mean request's present time to its time on that side.
//!
//! Invariants
//! - Progress is the bytes that clients have read, joined reads included; fills and writes do not count.
//! - A choice is tried only if both estimates are high: either may be far off, and a useless trial costs time.
//!
//! Leaves to others: the trials and their bounds (`longshore_balance::Guard`), and routing each read (`aware.rs`).

use longshore_balance::constants::{cache, guard, time};
use longshore_balance::{Estimate, Guard, Serve};

use super::door::ReadRequest;
use crate::model::Op;
use crate::policy::{EndedRequest, Purpose, Side, View};

#[derive(Debug)]
pub struct SideGuard {
    guard: Guard,
    done_bytes: u64,
    /// Averages over recent reads: length, and cached share.
    mean_bytes: f64,
    held: f64,
    present: Option<Side>,
    /// Averages over recent parts of clients: the share of writes, and the times of reads and writes.
    writes: f64,
    read_us: f64,
    write_us: f64,
    /// The throughput of the recent past, and its average; when they were last computed, and the bytes done until then.
    bytes_per_s: f64,
    mean_bytes_per_s: f64,
    counted: (u64, u64),
    epoch_us: u64,
}

impl SideGuard {
    /// `slow_us`: the time of a lone small read on the slow side.
    pub fn new(slow_us: f64) -> SideGuard {
        let epoch_us = (cache::EPOCH_READS * slow_us).max(cache::EPOCH_LEAST_US);
        SideGuard {
            guard: Guard::new(epoch_us as u64),
            done_bytes: 0,
            mean_bytes: 0.0,
            held: 0.0,
            present: None,
            writes: 0.0,
            read_us: 0.0,
            write_us: 0.0,
            bytes_per_s: 0.0,
            mean_bytes_per_s: 0.0,
            counted: (0, 0),
            epoch_us: epoch_us as u64,
        }
    }

    pub fn read(&mut self, asked: &ReadRequest) {
        let (len, held) = (
            asked.len_bytes as f64,
            asked.held_bytes as f64 / asked.len_bytes as f64,
        );
        self.mean_bytes += (len - self.mean_bytes) * cache::READ_WEIGHT;
        self.held += (held - self.held) * cache::READ_WEIGHT;
    }

    pub fn ended(&mut self, ended: &EndedRequest) {
        // No device ran for it, and it says nothing about times; but it is progress.
        if ended.purpose == Purpose::Joined {
            self.done_bytes = self.done_bytes.saturating_add(ended.len_bytes);
        }
        if ended.purpose == Purpose::Client {
            let read = ended.op == Op::Read;
            let mean = if read {
                &mut self.read_us
            } else {
                &mut self.write_us
            };
            *mean += (ended.took_us - *mean) * cache::READ_WEIGHT;
            self.writes += (f64::from(u8::from(!read)) - self.writes) * cache::READ_WEIGHT;
            self.done_bytes =
                self.done_bytes
                    .saturating_add(if read { ended.len_bytes } else { 0 });
        }
    }

    /// The side that should serve all hits now, if one alone is better.
    pub fn only(&mut self, view: &View, fast: &Estimate, slow: &Estimate) -> Option<Side> {
        let len_bytes = (self.mean_bytes as u64).max(1);
        let all = view.fast + view.slow;
        let under_way = (all.in_flight_bytes - all.written_bytes.min(all.in_flight_bytes)) as f64;
        let (fast_us, slow_us) = (
            fast.loaded_us(len_bytes, all),
            slow.loaded_us(len_bytes, all),
        );
        let mixed_us = self.held * fast_us + (1.0 - self.held) * slow_us;
        let could = |us: f64| (under_way + len_bytes as f64) * 1e6 / us.max(time::LEAST_US);
        let now_us = view.now / 1000;
        self.count(now_us);
        let instead = |us: f64| {
            let both = |read: f64| (1.0 - self.writes) * read + self.writes * self.write_us;
            self.bytes_per_s.min(self.mean_bytes_per_s) * both(self.read_us)
                / both(us).max(time::LEAST_US)
        };
        // Either estimate may be far off, and a useless trial costs time, so both must be high.
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
        // Counted twice in an epoch of the guard, so that a count is never older than half of one.
        if passed >= self.epoch_us / 2 {
            let done = self.done_bytes.saturating_sub(before);
            self.bytes_per_s = done as f64 * 1e6 / passed as f64;
            self.mean_bytes_per_s = match self.mean_bytes_per_s {
                0.0 => self.bytes_per_s,
                old => old + (self.bytes_per_s - old) * guard::WEIGHT,
            };
            self.counted = (now_us, self.done_bytes);
        }
    }

    pub fn present(&self) -> Option<Side> {
        self.present
    }
}
