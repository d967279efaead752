//! A load that changes, and how fast throughput settles after the change.
//!
//! Invariants
//! - Clients of the first mix begin no request after the change, and those of the second none before it.
//! - Only virtual time passes: the same seed gives the same run.
//!
//! Leaves to others: the two loads (`ClosedLoop`), and running them (`mod.rs`).

use super::load::{Arrival, ClosedLoop, Source};
use super::mix::Mix;
use longshore_policy::model::Nanos;

/// One mix, and from a given time another, each in a closed loop; counts the bytes done in each window of time.
pub struct Phases {
    first: ClosedLoop,
    then: ClosedLoop,
    first_clients: usize,
    change: Nanos,
    changed: bool,
    window: Nanos,
    /// Bytes of the request that each client has in flight.
    under_way: Vec<u64>,
    done_bytes: Vec<u64>,
}

impl Phases {
    pub fn new(
        first: &Mix,
        then: &Mix,
        change: Nanos,
        window: Nanos,
        region_bytes: u64,
        seed: u64,
    ) -> Phases {
        let clients = |mix: &Mix| mix.groups.iter().map(|g| g.clients as usize).sum();
        let first_clients: usize = clients(first);
        let all = first_clients + clients(then);
        Phases {
            first: ClosedLoop::new(first, region_bytes, seed),
            then: ClosedLoop::new(then, region_bytes, seed ^ 0x0071_e4e4),
            first_clients,
            change,
            changed: false,
            window: window.max(1),
            under_way: vec![0; all],
            done_bytes: Vec::new(),
        }
    }

    /// Bytes/µs in each window since the change.
    pub fn rates(&self) -> Vec<f64> {
        let skipped = self.change.div_ceil(self.window) as usize;
        let done = self.done_bytes.iter().skip(skipped);
        let us = self.window as f64 / 1000.0;
        done.map(|bytes| *bytes as f64 / us).collect()
    }
}

impl Source for Phases {
    fn due(&self) -> Option<Nanos> {
        match self.first.due().filter(|_| !self.changed) {
            Some(due) if due < self.change => Some(due),
            _ => self.then.due().map(|due| due.max(self.change)),
        }
    }

    fn take(&mut self, now: Nanos) -> Option<Arrival> {
        self.changed = now >= self.change;
        let mut arrival = match self.changed {
            false => self.first.take(now)?,
            true => self.then.take(now)?,
        };
        if self.changed {
            arrival.client += self.first_clients;
        }
        self.under_way[arrival.client] = arrival.ask.bytes();
        Some(arrival)
    }

    fn ended(&mut self, client: usize, now: Nanos) {
        let window = (now / self.window) as usize;
        if self.done_bytes.len() <= window {
            self.done_bytes.resize(window + 1, 0);
        }
        self.done_bytes[window] += self.under_way[client];
        match client.checked_sub(self.first_clients) {
            Some(client) => self.then.ended(client, now),
            None => self.first.ended(client, now),
        }
    }
}

/// The first window from which the mean of `smooth` windows reaches `share` of the steady state, which is the mean of
/// the last third.
pub fn settled(rates: &[f64], smooth: usize, share: f64) -> Option<usize> {
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let steady = mean(&rates[rates.len() - rates.len() / 3..]);
    let smooth = smooth.max(1);
    rates
        .windows(smooth)
        .position(|part| mean(part) >= share * steady)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_state_is_detected_from_its_first_window() {
        let rising: Vec<f64> = (0..30).map(|n| f64::from(n.min(10))).collect();
        assert_eq!(settled(&rising, 1, 0.95), Some(10));
        assert_eq!(settled(&[5.0; 9], 3, 0.95), Some(0));
        assert_eq!(settled(&[], 3, 0.95), None);
    }

    #[test]
    fn clients_of_the_first_load_stop_at_the_change_and_those_of_the_second_begin() {
        let mix = |text: &str| text.parse::<Mix>().unwrap();
        let mut phases = Phases::new(&mix("2x4k"), &mix("3x8k"), 100, 10, 1 << 20, 1);
        let taken = |phases: &mut Phases, now| -> Vec<(usize, u64)> {
            let taken = std::iter::from_fn(|| phases.take(now));
            taken.map(|a| (a.client, a.ask.bytes())).collect()
        };
        assert_eq!(taken(&mut phases, 0), [(0, 4096), (1, 4096)]);
        assert_eq!(phases.due(), Some(100), "at the change, and not before");
        phases.ended(0, 50);
        assert_eq!(taken(&mut phases, 50), [(0, 4096)]);
        phases.ended(1, 99);
        let begun = taken(&mut phases, 100);
        assert_eq!(begun, [(2, 8192), (3, 8192), (4, 8192)]);
        phases.ended(0, 120);
        phases.ended(2, 125);
        assert_eq!(taken(&mut phases, 125), [(2, 8192)]);
        assert_eq!(phases.rates(), [0.0, 0.0, (4096 + 8192) as f64 / 0.01]);
    }
}
