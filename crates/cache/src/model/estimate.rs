//! What the model says without being run.

use super::{Op, Profile};

impl Profile {
    /// Commands that a request of `len` bytes becomes.
    pub fn commands(&self, len: u64) -> u64 {
        len.div_ceil(u64::from(self.command_bytes)).max(1)
    }

    fn link(&self, op: Op) -> f64 {
        match op {
            Op::Read => self.read_link,
            Op::Write => self.write_link,
        }
    }

    fn unit_us(&self, op: Op) -> f64 {
        match op {
            Op::Read => self.read_us,
            Op::Write => self.write_us,
        }
    }

    /// Latency of a lone request in µs.
    pub fn unloaded_us(&self, op: Op, len: u64) -> f64 {
        let chunk = f64::from(self.chunk_bytes);
        let chunks = len.div_ceil(u64::from(self.chunk_bytes)).max(1);
        let rounds = chunks.div_ceil(u64::from(self.units)) as f64;
        let (unit, link) = (self.unit_us(op), self.link(op));
        // Either the units finish last, or the link, which cannot begin before the first chunk is there.
        let units_last = unit * rounds + chunk.min(len as f64) / link;
        let link_last = unit + len as f64 / link;
        self.fixed_us + self.commands(len) as f64 * self.command_us + units_last.max(link_last)
    }

    /// The most bytes in a µs for requests of `len` bytes.
    pub fn capacity(&self, op: Op, len: u64) -> f64 {
        let units = f64::from(self.units) * f64::from(self.chunk_bytes) / self.unit_us(op);
        let per_command = len.min(u64::from(self.command_bytes)) as f64;
        units.min(self.link(op)).min(per_command / self.command_us)
    }

    /// Bytes in flight that keep the link busy: more only wait.
    pub fn bandwidth_delay_bytes(&self, op: Op) -> f64 {
        self.link(op) * self.unloaded_us(op, u64::from(self.chunk_bytes))
    }

    /// How long a request would take in µs with `in_flight` bytes before it: what a policy can know.
    pub fn loaded_us(&self, op: Op, len: u64, in_flight: u64) -> f64 {
        let moved = (in_flight + len) as f64 / self.link(op);
        self.fixed_us + self.unit_us(op) + self.commands(len) as f64 * self.command_us + moved
    }
}
