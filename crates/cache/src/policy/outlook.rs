//! What a policy believes about a device: a few numbers, fitted or guessed, and open to doubt.

use super::Load;
use crate::model::{Op, Profile};

/// From here on, several parts of a read may fall into one chunk.
const CHUNK_LARGE: u64 = 64 << 10;

/// Times in µs, rates in bytes/µs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// A lone small read, its transfer left out.
    pub base_us: f64,
    pub command_us: f64,
    pub command_bytes: u64,
    /// Of reads.
    pub rate: f64,
    /// By how much a byte that is written delays reads, in µs.
    pub write_harm_us: f64,
    /// How long writes delay a read at most, in µs, however many wait.
    pub write_stall_us: f64,
    /// By how much a byte that is written delays the next read, in µs, up to that.
    pub write_wait_us: f64,
    /// What must be in flight to keep the device busy.
    pub bandwidth_delay_bytes: f64,
    /// Reads of one chunk wait for each other, this long each.
    pub chunk_bytes: u64,
    pub chunk_us: f64,
}

/// On a shared link, a write's own time. Else a write holds units, and delays reads as far as they need these.
fn write_harm_us(profile: &Profile) -> f64 {
    if profile.shared_link {
        return 1.0 / profile.write_link;
    }
    let in_units = f64::from(profile.units) * f64::from(profile.chunk_bytes);
    let needed = profile.read_link * profile.read_us / in_units;
    needed.min(1.0) * profile.write_us / in_units
}

impl Outlook {
    pub fn of(profile: &Profile) -> Outlook {
        Outlook {
            base_us: profile.fixed_us + profile.read_us,
            command_us: profile.command_us,
            command_bytes: u64::from(profile.command_bytes),
            rate: profile.read_link,
            write_harm_us: write_harm_us(profile),
            write_wait_us: match profile.shared_link {
                true => write_harm_us(profile),
                false => {
                    profile.write_us / (f64::from(profile.units) * f64::from(profile.chunk_bytes))
                }
            },
            write_stall_us: match profile.shared_link {
                true => f64::INFINITY,
                false => profile.write_us,
            },
            bandwidth_delay_bytes: profile.bandwidth_delay_bytes(Op::Read),
            chunk_bytes: u64::from(profile.chunk_bytes),
            chunk_us: profile.read_us,
        }
    }

    pub fn commands(&self, len: u64) -> f64 {
        len.div_ceil(self.command_bytes.max(1)).max(1) as f64
    }

    /// What serving a read with so much before it costs everybody, in µs: its own time, and what those behind it wait
    /// longer.
    pub fn cost_us(&self, len: u64, before: Load) -> f64 {
        self.loaded_us(len, before) + self.waiting(before) * len as f64 / self.rate
    }

    /// What is in flight, as so many bytes of reads.
    pub fn read_bytes(&self, load: Load) -> f64 {
        let written = load.written_bytes as f64;
        let delays = (written * self.write_wait_us).min(self.write_stall_us) * self.rate;
        load.in_flight_bytes as f64 - written + delays.min(written)
    }

    /// The same of what waits for the link that reads take: writes only where they share it.
    pub fn link_bytes(&self, load: Load) -> f64 {
        match self.write_stall_us.is_finite() {
            true => load.in_flight_bytes.saturating_sub(load.written_bytes) as f64,
            false => self.read_bytes(load),
        }
    }

    /// Requests that wait for others.
    pub fn waiting(&self, load: Load) -> f64 {
        let in_flight = self.read_bytes(load);
        let queued = (1.0 - self.bandwidth_delay_bytes / in_flight.max(1.0)).max(0.0);
        queued * load.in_flight_requests as f64
    }

    /// Two reads no further apart than this take longer than one that reads what is between them too: by another
    /// command, and by another turn if they fall into one chunk.
    pub fn join_bytes(&self) -> u64 {
        let command = self.rate * self.command_us;
        let turn = (self.rate * (self.command_us + self.chunk_us)).min(self.chunk_bytes as f64);
        let joined = if self.chunk_bytes > CHUNK_LARGE {
            command.max(turn)
        } else {
            command
        };
        joined as u64
    }

    /// How long a lone read takes in µs.
    pub fn lone_us(&self, len: u64) -> f64 {
        self.loaded_us(len, Load::default())
    }

    /// How long a read would take in µs with so much before it: its own time, and the longer of what every read needs
    /// besides and what is queued, by bytes or by commands. Where the two are alike, part of the queue passes while the
    /// read's own chunks are fetched and part does not: the root of the sum of squares is near what the model does.
    pub fn loaded_us(&self, len: u64, before: Load) -> f64 {
        let own = self.commands(len) * self.command_us + len as f64 / self.rate;
        let moved = self.read_bytes(before) / self.rate;
        let commanded = before.in_flight_requests as f64 * self.command_us;
        own + self.base_us.hypot(moved.max(commanded))
    }
}
