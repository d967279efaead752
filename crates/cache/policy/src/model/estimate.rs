//! Closed-form estimates, without running the model.
//!
//! Invariants
//! - A device with limits is judged by the rates that last: a policy that counts on credit runs out of it.
//!
//! Leaves to others: exact times, which depend on what is in flight (`device.rs`).

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
            command_us: self.lasting_command_us(),
            command_bytes: u64::from(self.command_bytes),
            rate_bytes_per_us: self.lasting_rate(Op::Read),
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
            return 1.0 / self.lasting_rate(Op::Write);
        }
        let in_units = f64::from(self.units) * f64::from(self.chunk_bytes);
        let needed = self.lasting_rate(Op::Read) * self.read_us / in_units;
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

    /// The link, or the limit of bytes if that is lower.
    fn lasting_rate(&self, op: Op) -> f64 {
        let limit = self.byte_credit.map(|credit| credit.per_us);
        limit.map_or(self.link(op), |limit| limit.min(self.link(op)))
    }

    /// The command server's time, or the time between commands that the limit lets pass if that is longer.
    fn lasting_command_us(&self) -> f64 {
        let limit = self.command_credit.map(|credit| 1.0 / credit.per_us);
        limit.map_or(self.command_us, |limit| limit.max(self.command_us))
    }

    fn unit_us(&self, op: Op) -> f64 {
        match op {
            Op::Read => self.read_us,
            Op::Write => self.write_us,
        }
    }

    /// Latency of a lone request in µs, with credit where there are limits.
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

    /// The highest rate that lasts in bytes per µs, for requests of `len_bytes` bytes.
    pub fn capacity(&self, op: Op, len_bytes: u64) -> f64 {
        let units = f64::from(self.units) * f64::from(self.chunk_bytes) / self.unit_us(op);
        let per_command = len_bytes.min(u64::from(self.command_bytes)) as f64;
        units
            .min(self.lasting_rate(op))
            .min(per_command / self.lasting_command_us())
    }

    /// Bytes in flight that keep the link busy: further ones only wait.
    pub fn bandwidth_delay_bytes(&self, op: Op) -> f64 {
        self.lasting_rate(op) * self.unloaded_us(op, u64::from(self.chunk_bytes))
    }

    /// The time of a request in µs with `in_flight` bytes before it: as much as a policy can know.
    pub fn loaded_us(&self, op: Op, len_bytes: u64, in_flight: u64) -> f64 {
        let moved = (in_flight + len_bytes) as f64 / self.lasting_rate(op);
        let commands = self.commands(len_bytes) as f64 * self.lasting_command_us();
        self.fixed_us + self.unit_us(op) + commands + moved
    }
}
