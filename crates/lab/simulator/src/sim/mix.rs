//! Synthetic loads: groups of clients that each have one request in flight.
//!
//! Invariants
//! - The text form is that of `--mix`, and what it cannot say is refused with the form that it can.
//! - Offsets come from the run's seed, so equal seeds give equal loads.
//! - Requests are aligned to their own length, a power of two, and stay inside the region.
//!
//! Leaves to others: the loop that sends requests (`load.rs`), and recorded traces (`trace`).

use std::str::FromStr;

use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use longshore_policy::model::{Nanos, Op, Request};

/// Clients with the same behaviour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    pub clients: u32,
    /// A power of two of 4096 or more.
    pub request_bytes: u64,
    /// Percent of the requests that write.
    pub write_percent: f64,
    /// Above the fast device's largest command, clients read sequentially; below, anywhere.
    pub scans: bool,
    /// Exponent of a Zipf distribution over slot-sized places in scattered order; 0: uniform.
    pub skew: f64,
}

/// A load: `8x4k+6x512k`, `32x4k:w20` with 20 % writes, `8x4k:z0.9` with some places used far more often.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    pub groups: Vec<Group>,
}

/// Places of this size are used equally often inside.
const SKEW_BYTES: u64 = 64 << 10;
/// From this size on, a client reads sequentially.
const SCAN_BYTES: u64 = 128 << 10;

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let group = |part: &str| -> Option<Group> {
            let mut fields = part.split(':');
            let head = fields.next()?;
            let (mut write_percent, mut skew) = (0.0, 0.0);
            for field in fields {
                match (field.strip_prefix('w'), field.strip_prefix('z')) {
                    (Some(percent), _) => write_percent = percent.parse().ok()?,
                    (_, Some(exponent)) => skew = exponent.parse().ok()?,
                    _ => return None,
                }
            }
            let (clients, size) = head.split_once('x')?;
            let clients: u32 = clients.parse().ok().filter(|n| (1..=4096).contains(n))?;
            let (number, unit) = match size.strip_suffix(['k', 'K']) {
                Some(number) => (number, 1u64 << 10),
                None => (size.strip_suffix(['m', 'M'])?, 1 << 20),
            };
            let request_bytes = number.parse::<u64>().ok()?.checked_mul(unit)?;
            let fits =
                (4096..=64 << 20).contains(&request_bytes) && request_bytes.is_power_of_two();
            let writes_fit = (0.0..=100.0).contains(&write_percent);
            let skew_fits = (0.0..=2.0).contains(&skew);
            (fits && writes_fit && skew_fits).then_some(Group {
                clients,
                request_bytes,
                write_percent,
                scans: request_bytes >= SCAN_BYTES,
                skew,
            })
        };
        let groups: Option<Vec<_>> = text.split('+').map(group).collect();
        groups.map(|groups| Mix { groups }).ok_or_else(|| {
            format!(
                "{text:?} is no mix; one looks like 8x4k+6x512k, 32x8k:w20 or 8x4k:z0.9, sizes 4k to 64m"
            )
        })
    }
}

/// One client at work.
#[derive(Debug)]
pub(super) struct Client {
    pub group: Group,
    region_bytes: u64,
    position: u64,
    ranks: Option<Zipf<f64>>,
    random: Xoshiro256PlusPlus,
}

impl Client {
    pub fn new(group: Group, region_bytes: u64, seed: u64) -> Client {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let position = random.next_u64() % region_bytes;
        Client {
            group,
            region_bytes,
            position: position - position % group.request_bytes,
            ranks: Zipf::new((region_bytes / SKEW_BYTES).max(1) as f64, group.skew)
                .ok()
                .filter(|_| group.skew > 0.0),
            random,
        }
    }

    pub fn next(&mut self) -> Request {
        let len = self.group.request_bytes;
        let places = (self.region_bytes / len).max(1);
        let offset = if self.group.scans {
            self.position = (self.position + len) % (places * len);
            self.position
        } else {
            self.place(places) * len
        };
        let op = if self.draw() * 100.0 < self.group.write_percent {
            Op::Write
        } else {
            Op::Read
        };
        Request {
            op,
            offset,
            len_bytes: len,
        }
    }

    /// Where to read, among `places` places.
    fn place(&mut self, places: u64) -> u64 {
        let Some(ranks) = self.ranks else {
            return self.random.next_u64() % places;
        };
        // The slot by its rank, then anywhere in it; ranks are scattered over the region.
        let slots = (self.region_bytes / SKEW_BYTES).max(1);
        let rank = ranks.sample(&mut self.random) as u64 - 1;
        let slot = rank.wrapping_mul(0x9e37_79b1) % slots;
        let at = slot * SKEW_BYTES + self.random.next_u64() % SKEW_BYTES;
        (at / self.group.request_bytes).min(places - 1)
    }

    /// Evenly from 0 up to 1.
    fn draw(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An exponentially distributed time with this mean, in ns.
    pub fn wait(&mut self, mean: f64) -> Nanos {
        (-(1.0 - self.draw()).ln() * mean) as Nanos
    }
}
