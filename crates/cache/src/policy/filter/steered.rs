//! What moves a share: latencies as they come, or a profile made beforehand.

use super::shared::{Shared, Steer};
use super::{Mixer, Sides};
use crate::model::Op;
use crate::policy::{Ended, Purpose, Side};

/// Moves the share towards the side whose reads took less time. Knows no model, so a wrong one cannot mislead it.
#[derive(Default)]
pub struct Balance {
    /// Mean latency of reads on each side, fast first; 0: none yet.
    mean_us: [f64; 2],
    seen: u32,
}

pub fn balance(sides: Sides) -> Shared<Balance> {
    Shared::new(0.9, sides, Balance::default())
}

impl Balance {
    /// Reads between two steps, and how far a step goes. Some of both sides is always measured.
    const ROUND: u32 = 64;
    const STEP: f64 = 0.02;
    const LEAST: f64 = 0.02;
}

impl Steer for Balance {
    fn steer(&mut self, ended: &Ended, _sides: &Sides, mixer: &mut Mixer) {
        if ended.op != Op::Read || ended.purpose != Purpose::Client {
            return;
        }
        let mean = &mut self.mean_us[usize::from(ended.side == Side::Slow)];
        *mean = match *mean {
            0.0 => ended.took_us,
            mean => mean + (ended.took_us - mean) / 16.0,
        };
        self.seen += 1;
        let [fast, slow] = self.mean_us;
        if self.seen < Balance::ROUND || fast == 0.0 || slow == 0.0 {
            return;
        }
        self.seen = 0;
        let step = match fast < slow {
            true => Balance::STEP,
            false => -Balance::STEP,
        };
        let share = (mixer.share() + step).clamp(Balance::LEAST, 1.0 - Balance::LEAST);
        mixer.set_share(share);
    }
}

/// NetCAS's way: the share is that of the bandwidths which a profile of both devices promises, and moves with the
/// slow side's measured bandwidth.
///
/// Source: the published scheme's rule, the share of the fast side's bandwidth in the sum; without its network counters.
pub struct Profiled {
    /// The slow side's measured over its expected time, lately.
    slower: f64,
}

pub fn profiled(sides: Sides) -> Shared<Profiled> {
    let slower = 1.0;
    Shared::new(promised(&sides, slower), sides, Profiled { slower })
}

fn promised(sides: &Sides, slower: f64) -> f64 {
    let (fast, slow) = (sides.fast.rate, sides.slow.rate / slower);
    fast / (fast + slow)
}

impl Steer for Profiled {
    fn steer(&mut self, ended: &Ended, sides: &Sides, mixer: &mut Mixer) {
        if ended.side == Side::Slow && ended.op == Op::Read {
            let expected = sides.slow.loaded_us(ended.len, ended.before);
            let ratio = (ended.took_us / expected.max(1e-3)).clamp(0.1, 10.0);
            self.slower += (ratio - self.slower) / 64.0;
            mixer.set_share(promised(sides, self.slower));
        }
    }
}
