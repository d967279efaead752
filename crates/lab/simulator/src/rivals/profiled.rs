//! What moves a share: a profile made beforehand.

use longshore_policy::model::Op;
use longshore_policy::policy::filter::{Mixer, SharedFilter, Sides, Steer};
use longshore_policy::policy::{EndedRequest, Side};

/// NetCAS's way: the share is that of the bandwidths which a profile of both devices promises, and moves with the
/// slow side's measured bandwidth.
///
/// Source: the published scheme's rule, the share of the fast side's bandwidth in the sum; without its network counters.
pub struct ProfiledShare {
    /// The slow side's measured over its expected time, lately.
    slower: f64,
}

pub fn profiled(sides: Sides) -> SharedFilter<ProfiledShare> {
    let slower = 1.0;
    SharedFilter::new(promised(&sides, slower), sides, ProfiledShare { slower })
}

fn promised(sides: &Sides, slower: f64) -> f64 {
    let (fast, slow) = (
        sides.fast.rate_bytes_per_us,
        sides.slow.rate_bytes_per_us / slower,
    );
    fast / (fast + slow)
}

impl Steer for ProfiledShare {
    fn steer(&mut self, ended: &EndedRequest, sides: &Sides, mixer: &mut Mixer) {
        if ended.side == Side::Slow && ended.op == Op::Read {
            let expected = sides.slow.loaded_us(ended.len_bytes, ended.before);
            let ratio = (ended.took_us / expected.max(1e-3)).clamp(0.1, 10.0);
            self.slower += (ratio - self.slower) / 64.0;
            mixer.set_share(promised(sides, self.slower));
        }
    }
}
