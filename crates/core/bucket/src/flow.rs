//! How many requests of a stripe are worth having in flight, found by trial.
//!
//! A store at a distance needs several requests at a time, and a near one gains nothing from many. So the number begins
//! at [`LEAST`] for each stripe, and one more is tried after each round: it stays if the bucket then moved more bytes in
//! the same time ([`Depth`]). All stripes of a bucket share what was learnt, sending and reading each by itself.
//!
//! Invariants
//! - The number is between [`LEAST`] and [`MOST`], whatever is measured: readers and writers count on that for memory.
//! - Time in which nothing was in flight is no part of a round: a source that pauses says nothing about the store.
//! - Requests that fail are not counted.
//!
//! Leaves to others: the rule of a trial (`balance`, `depth.rs`), and who waits before a request is made
//! (`longshore_media`, `device/bucket.rs`).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_balance::Depth;
use longshore_balance::constants::store::{LEAST, MOST, TURNS};
use longshore_io::{Clock, HostClock};

/// The requests of a bucket in one direction.
#[derive(Debug)]
pub(crate) struct Flow {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    depth: Depth,
    in_flight: u32,
    /// `None` until a request ends after a time without any.
    round: Option<Round>,
}

#[derive(Debug)]
struct Round {
    since: Duration,
    /// Requests that end before it is measured.
    waits: u32,
    /// It ends with this many.
    ends: u32,
    done: u32,
    bytes: u64,
    service: Duration,
}

impl Default for Flow {
    fn default() -> Flow {
        Flow::new(Arc::new(HostClock))
    }
}

impl Flow {
    fn new(clock: Arc<dyn Clock>) -> Flow {
        Flow {
            clock,
            state: Mutex::new(State {
                depth: Depth::new(LEAST, MOST),
                in_flight: 0,
                round: None,
            }),
        }
    }

    /// How many requests each stripe may have in flight now.
    pub(crate) fn steps(&self) -> u32 {
        self.state().depth.steps()
    }

    /// A request begins; what is returned ends it.
    pub(crate) fn begin(self: &Arc<Self>) -> Running {
        self.state().in_flight += 1;
        Running {
            flow: self.clone(),
            since: self.clock.now(),
            bytes: 0,
        }
    }

    fn end(&self, since: Duration, bytes: u64) {
        let now = self.clock.now();
        let mut state = self.state();
        state.in_flight = state.in_flight.saturating_sub(1);
        if bytes > 0
            && let Some(round) = &mut state.round
        {
            if round.waits > 0 {
                round.waits -= 1;
                round.since = now;
            } else {
                round.done += 1;
                round.bytes += bytes;
                round.service += now.saturating_sub(since);
            }
            if round.done >= round.ends {
                let taken = now.saturating_sub(round.since).as_secs_f64();
                let rate = round.bytes as f64 / taken;
                let service_us = round.service.as_secs_f64() * 1e6 / f64::from(round.done);
                state.depth.round(rate, service_us);
                state.round = None;
            }
        }
        if state.in_flight == 0 {
            state.round = None;
        } else if state.round.is_none() {
            state.round = Some(Round {
                since: now,
                waits: state.in_flight,
                ends: state.in_flight * TURNS,
                done: 0,
                bytes: 0,
                service: Duration::ZERO,
            });
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in flight. One that is dropped without [`Running::done`] failed, or nobody waits for it.
#[derive(Debug)]
pub(crate) struct Running {
    flow: Arc<Flow>,
    since: Duration,
    bytes: u64,
}

impl Running {
    /// The request succeeded and moved `bytes`.
    pub(crate) fn done(mut self, bytes: u64) {
        self.bytes = bytes;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.flow.end(self.since, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use longshore_io::SimClock;

    use super::*;

    const PART: u64 = 16 << 20;

    /// Sends `parts` from one stripe to a store that answers after `latency` and moves `rate` bytes per second in all,
    /// each of its connections at most `lane`. Returns the number of requests in flight that was learnt.
    fn sent(parts: u32, latency: Duration, rate: f64, lane: f64) -> u32 {
        let clock = Arc::new(SimClock::new(0));
        let flow = Arc::new(Flow::new(clock.clone()));
        let mut running: VecDeque<(f64, Running)> = VecDeque::new();
        let (mut free_at, mut now) = (0.0f64, 0.0f64);
        for _ in 0..parts {
            while running.len() >= flow.steps() as usize {
                let (end, request) = running.pop_front().unwrap();
                now = end.max(now);
                let passed = Duration::from_secs_f64(now).saturating_sub(clock.now());
                clock.advance(passed);
                request.done(PART);
            }
            let way = PART as f64 / rate;
            free_at = free_at.max(now) + way;
            let alone = now + PART as f64 / lane + latency.as_secs_f64();
            running.push_back((alone.max(free_at + latency.as_secs_f64()), flow.begin()));
        }
        flow.steps()
    }

    /// Goal: a store whose connections are slow gets more of them, and one that four keep busy does not.
    #[test]
    fn a_slow_connection_gets_company_and_a_full_way_does_not() {
        let ms = Duration::from_millis;
        // Each connection has 60 MB/s, the way 4 GB/s.
        let (soon, later) = (sent(100, ms(50), 4e9, 60e6), sent(800, ms(50), 4e9, 60e6));
        assert!(soon >= 2 * LEAST && later >= 10, "{soon} {later}");
        let few = sent(400, ms(0), 200e6, 4e9);
        assert!(few <= LEAST + 1, "{few}: the way is full with four");
        // In between: eight connections fill the way.
        let some = sent(400, ms(20), 480e6, 60e6);
        assert!((7..=10).contains(&some), "{some}");
    }

    /// Goal: a pause of the source, and requests that fail, are no measurement.
    #[test]
    fn pauses_and_failures_are_not_counted() {
        let clock = Arc::new(SimClock::new(0));
        let flow = Arc::new(Flow::new(clock.clone()));
        for _ in 0..200 {
            let all: Vec<Running> = (0..LEAST).map(|_| flow.begin()).collect();
            clock.advance(Duration::from_millis(10));
            all.into_iter().for_each(|request| request.done(PART));
            clock.advance(Duration::from_secs(1));
        }
        assert_eq!(flow.steps(), LEAST, "rounds that no request outlived");
        for _ in 0..200 {
            let all: Vec<Running> = (0..2 * LEAST).map(|_| flow.begin()).collect();
            clock.advance(Duration::from_millis(10));
            drop(all);
        }
        assert_eq!(flow.steps(), LEAST);
        assert_eq!(flow.state().in_flight, 0);
    }
}
