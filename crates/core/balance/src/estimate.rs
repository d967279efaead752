//! Estimates: when would that device finish a request, given what is in flight on it?
//!
//! An [`Estimate`] is an [`Outlook`] that learns from finished requests, and watches whether the device is still the
//! one that it describes. There are two ways to learn:
//!
//! - A device whose outlook was *told*, by a profile or a calibration, is corrected. The ratio of measured to expected
//!   time is averaged separately for short and long requests and for a device with and without a queue, and scales all
//!   later expectations. So an outlook with wrong sizes but of the right kind costs a few hundred requests.
//! - A device of which nothing was told is *fitted*: rate and fixed time come from its requests alone. If it drifts,
//!   all that was learnt is forgotten.
//!
//! Invariants
//! - Load and time are arguments of every question; nothing is measured here.
//! - Corrections stay within the [`Trust`] in what was told. A device outside of it is another device: it keeps missing
//!   its expectations, and the alarm is raised.
//! - One request moves a correction by a bounded step, and a time that is no number moves nothing.
//! - A device of which nothing is known is expected to be done at once, so that it gets work and is measured.
//!
//! Leaves to others: the model of a device (`outlook.rs`), fitting (`fit.rs`), and what an alarm changes (the callers).

use crate::constants::{correction, time};
use crate::drift::{Band, Drift, DriftAlarm};
use crate::fit::Fit;
use crate::{Load, Outlook};

/// The measurements of one device.
#[derive(Debug, Clone)]
pub struct Estimate {
    way: Way,
    drift: Drift,
}

#[derive(Debug, Clone)]
enum Way {
    Told(Corrected),
    Fitted { fit: Fit, parallel: u32 },
}

/// How far a told outlook is believed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trust {
    /// Longer requests are corrected apart from shorter ones.
    pub small_bytes: u64,
    /// Weight of a new request in a correction, 0 to 1.
    pub weight: f64,
    /// The least and the greatest ratio of measured to told time that is a correction.
    pub factors: [f64; 2],
}

/// A told outlook and its corrections.
#[derive(Debug, Clone)]
struct Corrected {
    told: Outlook,
    trust: Trust,
    /// Mean logarithm of measured over told time, by length and by queue.
    corrections: [[f64; 2]; 2],
}

/// A request that has ended well. A failed request teaches nothing.
#[derive(Debug, Clone, Copy)]
pub struct Completion {
    /// Since some fixed moment.
    pub now_us: u64,
    pub len_bytes: u64,
    /// From submission to completion.
    pub took_us: f64,
    /// The load that it met, without itself.
    pub before: Load,
    /// The bytes that the device finished from its submission to its completion, its own included.
    pub delivered_bytes: u64,
}

impl Estimate {
    /// Of a device with a told outlook.
    pub fn told(told: Outlook, trust: Trust, band: Band) -> Estimate {
        let corrected = Corrected {
            told,
            trust,
            corrections: [[0.0; 2]; 2],
        };
        Estimate {
            way: Way::Told(corrected),
            drift: Drift::new(band),
        }
    }

    /// Of a device of which nothing is known, and which is given `parallel` requests at a time: they share it, so each
    /// may take as many times as long before it counts as drift.
    pub fn fitted(parallel: u32, band: Band) -> Estimate {
        Estimate {
            way: Way::Fitted {
                fit: Fit::default(),
                parallel: parallel.max(1),
            },
            drift: Drift::new(band),
        }
    }

    /// Learns from a request that succeeded, and returns how far the device drifted if this request showed it.
    pub fn learn(&mut self, finished: &Completion) -> Option<DriftAlarm> {
        match &mut self.way {
            Way::Told(corrected) => {
                let error = corrected.learn(finished)?;
                self.drift.observe(finished.now_us, error)
            }
            Way::Fitted { fit, parallel } => {
                let expected_us = fit.rate().map(|_| {
                    let outlook = fit.outlook();
                    outlook.loaded_us(finished.len_bytes, finished.before) * f64::from(*parallel)
                });
                let took_us = at_least_one(finished.took_us).min(LONGEST_US);
                fit.learn(finished.len_bytes, finished.delivered_bytes, took_us);
                let error = (took_us / at_least_one(expected_us?)).ln();
                let drifted = self.drift.observe(finished.now_us, error)?;
                *fit = Fit::default();
                Some(drifted)
            }
        }
    }

    /// The outlook on the device for requests of that length under that load.
    pub fn outlook(&self, len_bytes: u64, load: Load) -> Outlook {
        match &self.way {
            Way::Told(corrected) => corrected.outlook(len_bytes, load),
            Way::Fitted { fit, .. } => fit.outlook(),
        }
    }

    /// When a request submitted now would be done, in µs from now. 0 if nothing was told and none has finished, so that
    /// the device gets work.
    pub fn loaded_us(&self, len_bytes: u64, load: Load) -> f64 {
        self.outlook(len_bytes, load).loaded_us(len_bytes, load)
    }

    /// The same on an idle device.
    pub fn lone_us(&self, len_bytes: u64) -> f64 {
        self.loaded_us(len_bytes, Load::default())
    }

    /// See [`Outlook::cost_us`].
    pub fn cost_us(&self, len_bytes: u64, load: Load) -> f64 {
        self.outlook(len_bytes, load).cost_us(len_bytes, load)
    }

    /// The rate while the device had enough work; `None` if nothing was told and no request has finished.
    pub fn rate_bytes_per_s(&self) -> Option<f64> {
        let rate = match &self.way {
            Way::Told(corrected) => Some(corrected.told.rate_bytes_per_us),
            Way::Fitted { fit, .. } => fit.rate(),
        };
        rate.map(|rate| rate * 1e6)
    }

    /// The rate with that many bytes always in flight, or the rate seen lately if that is higher: a device that is fed
    /// too little shows less than it can do. 0 if nothing is known.
    pub fn rate_with(&self, in_flight_bytes: u64) -> f64 {
        let Some(seen) = self.rate_bytes_per_s() else {
            return 0.0;
        };
        let us = self.loaded_us(in_flight_bytes, Load::default());
        seen.max(in_flight_bytes as f64 * 1e6 / at_least_one(us))
    }

    /// The bandwidth-delay product: the bytes that must be in flight to keep the device busy; 0 if nothing is known.
    pub fn bdp_bytes(&self) -> f64 {
        self.outlook(0, Load::default()).bandwidth_delay_bytes
    }

    /// Recent ratio of measured to expected time, after corrections.
    pub fn drift(&self) -> f64 {
        self.drift.factor()
    }

    /// The device differs from its outlook.
    pub fn alarmed(&self) -> bool {
        self.drift.alarmed()
    }
}

/// No request takes longer: sums of squares stay numbers.
const LONGEST_US: f64 = u64::MAX as f64;

/// Microseconds that can be divided by.
fn at_least_one(us: f64) -> f64 {
    if us >= 1.0 { us } else { 1.0 }
}

impl Corrected {
    fn place(&self, len_bytes: u64, load: Load) -> [usize; 2] {
        let queued = self.told.read_bytes(load) > self.told.bandwidth_delay_bytes;
        [
            usize::from(len_bytes > self.trust.small_bytes),
            usize::from(queued),
        ]
    }

    fn outlook(&self, len_bytes: u64, load: Load) -> Outlook {
        let [long, queued] = self.place(len_bytes, load);
        self.told.slower(self.corrections[long][queued].exp())
    }

    /// Learns, and returns the logarithm of the error that the earlier correction left.
    fn learn(&mut self, finished: &Completion) -> Option<f64> {
        let Completion {
            len_bytes, before, ..
        } = *finished;
        let expected_us = self.told.loaded_us(len_bytes, before);
        let expected_us = expected_us.max(time::LEAST_US);
        let ratio = (finished.took_us / expected_us).ln();
        // A time of 0 or less, or an expectation without end.
        if !ratio.is_finite() {
            return None;
        }
        let [long, queued] = self.place(len_bytes, before);
        let factor = &mut self.corrections[long][queued];
        let error = ratio - *factor;
        let step = error.clamp(-correction::ERROR_MOST, correction::ERROR_MOST) * self.trust.weight;
        let [least, most] = self.trust.factors.map(f64::ln);
        *factor = (*factor + step).max(least).min(most);
        Some(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive of 64 µs and 3 GB/s.
    const DRIVE: Outlook = Outlook {
        base_us: 64.0,
        overlaps: true,
        command_us: 1.0,
        command_bytes: 128 << 10,
        rate_bytes_per_us: 3000.0,
        bandwidth_delay_bytes: 200_000.0,
        ..Outlook::UNKNOWN
    };
    const TRUST: Trust = Trust {
        small_bytes: 64 << 10,
        weight: 1.0 / 32.0,
        factors: [0.4, 2.5],
    };
    const BAND: Band = Band {
        factor: 1.25,
        weight: 1.0 / 32.0,
        settled: 0,
        lasting_us: 5_000_000,
    };

    /// Reads that take `factor` times the told time, from `from_s` to `to_s` virtual seconds.
    fn teach(estimate: &mut Estimate, factor: f64, from_s: u64, to_s: u64) {
        for ms in from_s * 1000..to_s * 1000 {
            let (len_bytes, before) = (4096 << (ms % 8), Load::default());
            estimate.learn(&Completion {
                now_us: ms * 1000,
                len_bytes,
                took_us: factor * DRIVE.loaded_us(len_bytes, before),
                before,
                delivered_bytes: len_bytes,
            });
        }
    }

    #[test]
    fn a_wrong_outlook_is_corrected_and_raises_no_alarm() {
        for factor in [0.7, 1.0, 1.3, 2.0] {
            let mut estimate = Estimate::told(DRIVE, TRUST, BAND);
            teach(&mut estimate, factor, 0, 20);
            for len in [4096, 512 << 10] {
                let ratio = estimate.lone_us(len) / DRIVE.lone_us(len);
                assert!((ratio / factor - 1.0).abs() < 0.05, "{ratio}, not {factor}");
            }
            assert!(!estimate.alarmed() && (estimate.drift() - 1.0).abs() < 0.05);
        }
    }

    #[test]
    fn another_device_raises_the_alarm_after_five_seconds_and_it_ends_when_the_old_one_is_back() {
        let mut estimate = Estimate::told(DRIVE, TRUST, BAND);
        teach(&mut estimate, 1.0, 0, 10);
        teach(&mut estimate, 6.0, 10, 14);
        assert!(!estimate.alarmed(), "not yet");
        teach(&mut estimate, 6.0, 14, 17);
        assert!(estimate.alarmed() && estimate.drift() > 1.25);
        teach(&mut estimate, 1.0, 17, 30);
        assert!(!estimate.alarmed());
    }

    #[test]
    fn a_fixed_part_passes_in_the_queue_only_where_units_overlap() {
        let after = |queue_us: f64| Load::of((queue_us * DRIVE.rate_bytes_per_us) as u64);
        let serial = Outlook {
            overlaps: false,
            ..DRIVE
        };
        for queue_us in [1.0, 64.0, 6_400.0] {
            let added = |device: Outlook| device.loaded_us(0, after(queue_us)) - device.lone_us(0);
            assert!((added(serial) - queue_us).abs() < 1.0);
            assert!(added(DRIVE) < queue_us, "{queue_us} us");
        }
    }
}
