//! What moves a share: latencies as they come.

use longshore_balance::constants::cache;

use super::door::Sides;
use super::mixer::Mixer;
use super::shared::{SharedFilter, Steer};
use crate::model::Op;
use crate::policy::{EndedRequest, Purpose, Side};

/// Moves the share towards the side whose reads took less time. Uses no model, so a wrong one cannot mislead it.
#[derive(Default)]
pub struct Balance {
    /// Mean latency of reads on each side, fast first; 0: none yet.
    mean_us: [f64; 2],
    seen: u32,
}

pub fn balance(sides: Sides) -> SharedFilter<Balance> {
    SharedFilter::new(cache::SHARE_FIRST, sides, Balance::default())
}

impl Steer for Balance {
    fn steer(&mut self, ended: &EndedRequest, _sides: &Sides, mixer: &mut Mixer) {
        if ended.op != Op::Read || ended.purpose != Purpose::Client {
            return;
        }
        let mean = &mut self.mean_us[usize::from(ended.side == Side::Slow)];
        *mean = match *mean {
            0.0 => ended.took_us,
            mean => mean + (ended.took_us - mean) * cache::SHARE_WEIGHT,
        };
        self.seen += 1;
        let [fast, slow] = self.mean_us;
        if self.seen < cache::SHARE_ROUND || fast == 0.0 || slow == 0.0 {
            return;
        }
        self.seen = 0;
        let step = match fast < slow {
            true => cache::SHARE_STEP,
            false => -cache::SHARE_STEP,
        };
        let share = (mixer.share() + step).clamp(cache::SHARE_STEP, 1.0 - cache::SHARE_STEP);
        mixer.set_share(share);
    }
}
