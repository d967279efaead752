//! Synthetic loads: groups of clients that each keep one request under way.

use std::str::FromStr;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use crate::model::{Nanos, Op, Request};

/// Clients that do the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    pub clients: u32,
    /// A power of two of 4096 or more.
    pub request_bytes: u64,
    /// Percent of the requests that write.
    pub write_percent: f64,
    /// Above the fast device's largest command, clients read on where they were; below, anywhere.
    pub scans: bool,
}

/// A load: `8x4k+6x512k`, `32x4k:w20` with 20 % writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    pub groups: Vec<Group>,
}

/// From this size on, a client reads on where it was.
const SCAN_BYTES: u64 = 128 << 10;

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let group = |part: &str| -> Option<Group> {
            let (head, writes) = part.split_once(":w").unwrap_or((part, "0"));
            let (clients, size) = head.split_once('x')?;
            let clients: u32 = clients.parse().ok().filter(|n| (1..=4096).contains(n))?;
            let (number, unit) = match size.strip_suffix(['k', 'K']) {
                Some(number) => (number, 1u64 << 10),
                None => (size.strip_suffix(['m', 'M'])?, 1 << 20),
            };
            let request_bytes = number.parse::<u64>().ok()?.checked_mul(unit)?;
            let fits =
                (4096..=64 << 20).contains(&request_bytes) && request_bytes.is_power_of_two();
            let write_percent: f64 = writes.parse().ok()?;
            let writes_fit = (0.0..=100.0).contains(&write_percent);
            (fits && writes_fit).then_some(Group {
                clients,
                request_bytes,
                write_percent,
                scans: request_bytes >= SCAN_BYTES,
            })
        };
        let groups: Option<Vec<_>> = text.split('+').map(group).collect();
        groups.map(|groups| Mix { groups }).ok_or_else(|| {
            format!("{text:?} is no mix; one looks like 8x4k+6x512k or 32x8k:w20, sizes 4k to 64m")
        })
    }
}

/// One client at work.
#[derive(Debug)]
pub(super) struct Client {
    pub group: Group,
    region_bytes: u64,
    position: u64,
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
            self.random.next_u64() % places * len
        };
        let op = if self.draw() * 100.0 < self.group.write_percent {
            Op::Write
        } else {
            Op::Read
        };
        Request { op, offset, len }
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
