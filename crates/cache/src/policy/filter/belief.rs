//! What is believed of a device: what it was told to be, corrected by what its reads took.
//!
//! Every read that ends says what it was expected to take, from the outlook and what was in flight before it, and what
//! it took. The ratio is averaged apart for short and long reads and for a device with and without a queue, and
//! scales all that is expected from then on. So an outlook that is wrong in size but right in kind costs a few
//! hundred reads.
//!
//! Corrections stay within [`BELIEVED`]. A device further away than that is another device: it misses what is
//! expected of it even so, and after [`ALARM_NS`] of that the alarm says so.

use crate::model::{Nanos, Op};
use crate::policy::{Ended, Load, Outlook, Purpose};

use super::SMALL_BYTES;

/// Weight of a new read in an average.
const ALPHA: f64 = 1.0 / 32.0;
/// How far from its outlook a device may be.
const BELIEVED: std::ops::RangeInclusive<f64> = 0.4..=2.5;
/// Expectations that are wrong by this factor…
const DRIFTED: f64 = 1.25;
/// …for so long, raise the alarm; half as wrong for as long, end it.
const ALARM_NS: Nanos = 5_000_000_000;

#[derive(Debug, Clone)]
pub struct Belief {
    told: Outlook,
    /// Mean logarithm of measured over expected time, by length and by queue.
    corrections: [[f64; 2]; 2],
    /// The same of what is left after the correction.
    residue: f64,
    /// Since when the residue has been on the side of its limit that would change the alarm.
    since: Option<Nanos>,
    alarmed: bool,
}

impl Belief {
    pub fn new(told: Outlook) -> Belief {
        Belief {
            told,
            corrections: [[0.0; 2]; 2],
            residue: 0.0,
            since: None,
            alarmed: false,
        }
    }

    fn place(&self, len: u64, load: Load) -> [usize; 2] {
        let queued = self.told.read_bytes(load) > self.told.bandwidth_delay_bytes;
        [usize::from(len > SMALL_BYTES), usize::from(queued)]
    }

    /// The device as it is believed to be for reads like this one.
    pub fn outlook(&self, len: u64, load: Load) -> Outlook {
        let [long, queued] = self.place(len, load);
        let factor = self.corrections[long][queued].exp();
        let told = self.told;
        Outlook {
            base_us: told.base_us * factor,
            command_us: told.command_us * factor,
            rate: told.rate / factor,
            ..told
        }
    }

    /// How long such a read would take in µs.
    pub fn loaded_us(&self, len: u64, load: Load) -> f64 {
        self.outlook(len, load).loaded_us(len, load)
    }

    pub fn lone_us(&self, len: u64) -> f64 {
        self.loaded_us(len, Load::default())
    }

    pub fn cost_us(&self, len: u64, load: Load) -> f64 {
        self.outlook(len, load).cost_us(len, load)
    }

    pub fn told(&self) -> &Outlook {
        &self.told
    }

    /// Measured over expected time, lately.
    pub fn drift(&self) -> f64 {
        self.residue.exp()
    }

    /// The device is not the one that it was told to be.
    pub fn alarmed(&self) -> bool {
        self.alarmed
    }

    /// A part has ended on this device.
    pub fn learn(&mut self, ended: &Ended) {
        if ended.op != Op::Read || ended.purpose != Purpose::Client || ended.took_us <= 0.0 {
            return;
        }
        let expected = self.told.loaded_us(ended.len, ended.before);
        let ratio = (ended.took_us / expected.max(1e-3)).ln();
        if !ratio.is_finite() {
            return;
        }
        let [long, queued] = self.place(ended.len, ended.before);
        let correction = &mut self.corrections[long][queued];
        self.residue += (ratio - *correction - self.residue) * ALPHA;
        // One read that took very long says that it was unlucky.
        let step = (ratio - *correction).clamp(-1.0, 1.0) * ALPHA;
        let (least, most) = (BELIEVED.start().ln(), BELIEVED.end().ln());
        *correction = (*correction + step).clamp(least, most);
        self.watch(ended.now);
    }

    fn watch(&mut self, now: Nanos) {
        let limit = DRIFTED.ln();
        let changes = match self.alarmed {
            false => self.residue.abs() > limit,
            true => self.residue.abs() < limit / 2.0,
        };
        if !changes {
            self.since = None;
            return;
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_sub(since) >= ALARM_NS {
            self.alarmed = !self.alarmed;
            self.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Profile;
    use crate::policy::Side;

    fn told() -> Outlook {
        Outlook::of(Profile::named("samsung-970pro").unwrap())
    }

    /// Reads that take `factor` times what was told, for so many virtual seconds.
    fn teach(belief: &mut Belief, factor: f64, from_s: u64, to_s: u64) {
        for ms in from_s * 1000..to_s * 1000 {
            let (len, before) = (4096 << (ms % 8), Load::default());
            belief.learn(&Ended {
                now: ms * 1_000_000,
                side: Side::Slow,
                op: Op::Read,
                purpose: Purpose::Client,
                len,
                took_us: factor * told().loaded_us(len, before),
                before,
            });
        }
    }

    #[test]
    fn a_wrong_outlook_is_corrected_and_raises_no_alarm() {
        for factor in [0.7, 1.0, 1.3, 2.0] {
            let mut belief = Belief::new(told());
            teach(&mut belief, factor, 0, 20);
            for len in [4096, 512 << 10] {
                let ratio = belief.lone_us(len) / told().lone_us(len);
                assert!((ratio / factor - 1.0).abs() < 0.05, "{ratio}, not {factor}");
            }
            assert!(!belief.alarmed() && (belief.drift() - 1.0).abs() < 0.05);
        }
    }

    #[test]
    fn another_device_raises_the_alarm_after_five_seconds_and_it_ends_when_the_old_one_is_back() {
        let mut belief = Belief::new(told());
        teach(&mut belief, 1.0, 0, 10);
        teach(&mut belief, 6.0, 10, 14);
        assert!(!belief.alarmed(), "not yet");
        teach(&mut belief, 6.0, 14, 17);
        assert!(belief.alarmed() && belief.drift() > 1.25);
        teach(&mut belief, 1.0, 17, 30);
        assert!(!belief.alarmed());
    }
}
