//! Closed-form estimates, without running the model.

use longshore_balance::Outlook;

use super::{Op, Profile};

impl Profile {
    /// The facts about this device that a policy is given.
    pub fn outlook(&self) -> Outlook {
        let in_units = f64::from(self.units) * f64::from(self.chunk_bytes);
        let harm_us = self.write_harm_us();
        Outlook {
            base_us: self.fixed_us + self.read_us,
            overlaps: true,
            command_us: self.command_us,
            command_bytes: u64::from(self.command_bytes),
            rate_bytes_per_us: self.read_link,
            write_harm_us: harm_us,
            write_wait_us: match self.shared_link {
                true => harm_us,
                false => self.write_us / in_units,
            },
            write_stall_us: match self.shared_link {
                true => f64::INFINITY,
                false => self.write_us,
            },
            bandwidth_delay_bytes: self.bandwidth_delay_bytes(Op::Read),
            chunk_bytes: u64::from(self.chunk_bytes),
            chunk_us: self.read_us,
        }
    }

    /// On a shared link, a write's own time. Otherwise a write occupies units, and delays reads that need them.
    fn write_harm_us(&self) -> f64 {
        if self.shared_link {
            return 1.0 / self.write_link;
        }
        let in_units = f64::from(self.units) * f64::from(self.chunk_bytes);
        let needed = self.read_link * self.read_us / in_units;
        needed.min(1.0) * self.write_us / in_units
    }

    /// Commands that a request of `len_bytes` bytes becomes.
    pub fn commands(&self, len_bytes: u64) -> u64 {
        len_bytes.div_ceil(u64::from(self.command_bytes)).max(1)
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
    pub fn unloaded_us(&self, op: Op, len_bytes: u64) -> f64 {
        let chunk = f64::from(self.chunk_bytes);
        let chunks = len_bytes.div_ceil(u64::from(self.chunk_bytes)).max(1);
        let rounds = chunks.div_ceil(u64::from(self.units)) as f64;
        let (unit, link) = (self.unit_us(op), self.link(op));
        // Either the units finish last, or the link, which cannot begin before the first chunk is ready.
        let units_last = unit * rounds + chunk.min(len_bytes as f64) / link;
        let link_last = unit + len_bytes as f64 / link;
        self.fixed_us
            + self.commands(len_bytes) as f64 * self.command_us
            + units_last.max(link_last)
    }

    /// The highest rate in bytes per µs for requests of `len_bytes` bytes.
    pub fn capacity(&self, op: Op, len_bytes: u64) -> f64 {
        let units = f64::from(self.units) * f64::from(self.chunk_bytes) / self.unit_us(op);
        let per_command = len_bytes.min(u64::from(self.command_bytes)) as f64;
        units.min(self.link(op)).min(per_command / self.command_us)
    }

    /// Bytes in flight that keep the link busy: further ones only wait.
    pub fn bandwidth_delay_bytes(&self, op: Op) -> f64 {
        self.link(op) * self.unloaded_us(op, u64::from(self.chunk_bytes))
    }

    /// The time of a request in µs with `in_flight` bytes before it: as much as a policy can know.
    pub fn loaded_us(&self, op: Op, len_bytes: u64, in_flight: u64) -> f64 {
        let moved = (in_flight + len_bytes) as f64 / self.link(op);
        self.fixed_us + self.unit_us(op) + self.commands(len_bytes) as f64 * self.command_us + moved
    }
}
