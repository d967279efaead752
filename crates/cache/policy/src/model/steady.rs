//! A run of a device under a steady load, which the closed forms of [`Profile`] only estimate.

use super::{Device, Nanos, Op, Profile, Request};

/// The figures of a device with a constant number of equal requests in flight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steady {
    /// Mean time of one request, in µs.
    pub mean_us: f64,
    pub bytes_per_us: f64,
}

impl Profile {
    /// Requests of `len_bytes` bytes at random places, `depth` (1 or more) at a time, until `count` have finished, not
    /// counting those that found an idle device. It begins after a long burst of
    /// such requests.
    pub fn steady(&self, op: Op, (len_bytes, depth): (u64, u32), count: u64, seed: u64) -> Steady {
        let mut device = Device::new(self, seed).after_a_burst(op);
        let mut begun: Vec<Nanos> = vec![0; depth as usize];
        let mut place = seed;
        let mut submit = |device: &mut Device, now, id| {
            // Knuth's sequence: no pattern that units could see in its upper bits.
            place = place
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let request = Request {
                op,
                offset: (place >> 33) * len_bytes.max(4096),
                len_bytes,
            };
            device.submit(now, id, request);
        };
        (0..u64::from(depth)).for_each(|id| submit(&mut device, 0, id));
        let (mut ended, mut sum_us, mut from, mut until) = (0, 0.0, 0, 0);
        let idle = u64::from(depth);
        while let Some(now) = device.next_step().filter(|_| ended < idle + count) {
            for completion in device.advance(now) {
                let id = completion.id as usize;
                ended += 1;
                if ended == idle {
                    from = now;
                } else if ended > idle {
                    sum_us += (completion.at - begun[id]) as f64 / 1000.0;
                    until = now;
                }
                begun[id] = now;
                submit(&mut device, now, completion.id);
            }
        }
        let counted = ended.saturating_sub(idle);
        Steady {
            mean_us: sum_us / counted.max(1) as f64,
            bytes_per_us: (counted * len_bytes) as f64 / ((until - from).max(1) as f64 / 1000.0),
        }
    }
}
