//! What a policy believes about a device: a few numbers, fitted or guessed, and open to doubt.

use crate::model::{Op, Profile};

/// Times in µs, rates in bytes/µs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// A lone small read, its transfer left out.
    pub base_us: f64,
    pub command_us: f64,
    pub command_bytes: u64,
    pub rate: f64,
    pub bandwidth_delay_bytes: f64,
}

impl Outlook {
    pub fn of(profile: &Profile) -> Outlook {
        Outlook {
            base_us: profile.fixed_us + profile.read_us,
            command_us: profile.command_us,
            command_bytes: u64::from(profile.command_bytes),
            rate: profile.read_link,
            bandwidth_delay_bytes: profile.bandwidth_delay_bytes(Op::Read),
        }
    }

    /// How long a read would take in µs behind `in_flight` bytes.
    pub fn loaded_us(&self, len: u64, in_flight: u64) -> f64 {
        let commands = len.div_ceil(self.command_bytes).max(1) as f64;
        self.base_us + commands * self.command_us + (in_flight + len) as f64 / self.rate
    }
}
