//! What a policy believes about a device: a few numbers, fitted or guessed, and open to doubt.

use super::Load;
use crate::model::{Op, Profile};

/// Times in µs, rates in bytes/µs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// A lone small read, its transfer left out.
    pub base_us: f64,
    pub command_us: f64,
    pub command_bytes: u64,
    /// Of reads.
    pub rate: f64,
    pub write_rate: f64,
    /// What must be in flight to keep the device busy.
    pub bandwidth_delay_bytes: f64,
}

impl Outlook {
    pub fn of(profile: &Profile) -> Outlook {
        Outlook {
            base_us: profile.fixed_us + profile.read_us,
            command_us: profile.command_us,
            command_bytes: u64::from(profile.command_bytes),
            rate: profile.read_link,
            write_rate: profile.write_link,
            bandwidth_delay_bytes: profile.bandwidth_delay_bytes(Op::Read),
        }
    }

    pub fn commands(&self, len: u64) -> f64 {
        len.div_ceil(self.command_bytes.max(1)).max(1) as f64
    }

    /// How long a read would take in µs with so much before it: by its bytes, or by the commands.
    pub fn loaded_us(&self, len: u64, before: Load) -> f64 {
        let moved = (before.in_flight_bytes + len) as f64 / self.rate;
        let commanded = before.in_flight_requests as f64 * self.command_us;
        self.base_us + self.commands(len) * self.command_us + moved.max(commanded)
    }
}
