//! An outlook on a device: a few numbers, told or measured, which may be wrong, and what they say of a request under a
//! given load.
//!
//! Invariants
//! - Times are in µs and rates in bytes/µs; every answer is a time or a number of bytes, never a decision.
//! - The load is an argument: an outlook has no state, and the same question has the same answer.
//! - More load never makes a request faster.
//!
//! Leaves to others: learning the numbers (`estimate.rs`, `fit.rs`), and where profiles come from (the callers).
//!
//! Source: Little's law.

/// The requests in flight on one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    pub in_flight_bytes: u64,
    pub in_flight_requests: u64,
    /// The bytes of these that are written.
    pub written_bytes: u64,
}

impl Load {
    /// That many bytes of reads, in requests whose number does not matter.
    pub fn of(in_flight_bytes: u64) -> Load {
        Load {
            in_flight_bytes,
            ..Load::default()
        }
    }
}

impl std::ops::Add for Load {
    type Output = Load;

    /// The load if one device had the requests of both.
    fn add(self, other: Load) -> Load {
        let sum = u64::saturating_add;
        Load {
            in_flight_bytes: sum(self.in_flight_bytes, other.in_flight_bytes),
            in_flight_requests: sum(self.in_flight_requests, other.in_flight_requests),
            written_bytes: sum(self.written_bytes, other.written_bytes),
        }
    }
}

/// Times in µs, rates in bytes/µs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// A lone small read, without its transfer.
    pub base_us: f64,
    /// The device has units that work on a read while others are transferred, so that its fixed part passes in the
    /// queue. If not, the fixed part follows the queue.
    pub overlaps: bool,
    pub command_us: f64,
    pub command_bytes: u64,
    /// For reads.
    pub rate_bytes_per_us: f64,
    /// By how much a written byte delays reads, in µs.
    pub write_harm_us: f64,
    /// The longest delay of a read by writes, in µs, however many writes wait.
    pub write_stall_us: f64,
    /// By how much a written byte delays the next read, in µs, up to that limit.
    pub write_wait_us: f64,
    /// The bytes in flight that keep the device busy.
    pub bandwidth_delay_bytes: f64,
    /// Reads of one chunk wait for each other, for this time each.
    pub chunk_bytes: u64,
    pub chunk_us: f64,
}

impl Outlook {
    /// A device of which nothing is known: every request is thought to be done at once, so that the device gets work and
    /// is measured.
    pub const UNKNOWN: Outlook = Outlook {
        base_us: 0.0,
        overlaps: false,
        command_us: 0.0,
        command_bytes: u64::MAX,
        rate_bytes_per_us: f64::INFINITY,
        write_harm_us: 0.0,
        write_stall_us: 0.0,
        write_wait_us: 0.0,
        bandwidth_delay_bytes: 0.0,
        chunk_bytes: 0,
        chunk_us: 0.0,
    };

    /// The same device, taking `factor` times as long for every read.
    pub fn slower(self, factor: f64) -> Outlook {
        Outlook {
            base_us: self.base_us * factor,
            command_us: self.command_us * factor,
            rate_bytes_per_us: self.rate_bytes_per_us / factor,
            ..self
        }
    }

    /// Commands that a read of `len_bytes` bytes becomes.
    pub fn commands(&self, len_bytes: u64) -> f64 {
        len_bytes.div_ceil(self.command_bytes.max(1)).max(1) as f64
    }

    /// The total cost in µs of serving a read after this load: its own time, and the added wait of the requests after
    /// it.
    pub fn cost_us(&self, len_bytes: u64, before: Load) -> f64 {
        self.loaded_us(len_bytes, before)
            + self.waiting(before) * len_bytes as f64 / self.rate_bytes_per_us
    }

    /// The load, expressed in bytes of reads.
    pub fn read_bytes(&self, load: Load) -> f64 {
        let written = load.written_bytes as f64;
        let delays =
            (written * self.write_wait_us).min(self.write_stall_us) * self.rate_bytes_per_us;
        load.in_flight_bytes as f64 - written + delays.min(written)
    }

    /// The same for the bytes that wait for the reads' link: writes only if they share it.
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

    /// Two reads no further apart than this take longer than one read that includes the bytes between them: by another
    /// command, and by another turn if they fall into one chunk.
    pub fn join_bytes(&self) -> u64 {
        let command = self.rate_bytes_per_us * self.command_us;
        let turn = (self.rate_bytes_per_us * (self.command_us + self.chunk_us))
            .min(self.chunk_bytes as f64);
        command.max(turn) as u64
    }

    /// How long a lone read takes in µs.
    pub fn lone_us(&self, len_bytes: u64) -> f64 {
        self.loaded_us(len_bytes, Load::default())
    }

    /// The time of a read in µs after this load: its own time, the fixed part of every read, and the queue, by bytes or
    /// by commands. Where the fixed part passes in the queue, the longer of the two counts. If the two are similar,
    /// part of the queue passes while the read's own chunks are fetched and part does not: the root of the sum of
    /// squares is near the model's result.
    pub fn loaded_us(&self, len_bytes: u64, before: Load) -> f64 {
        let own =
            self.commands(len_bytes) * self.command_us + len_bytes as f64 / self.rate_bytes_per_us;
        let moved = self.read_bytes(before) / self.rate_bytes_per_us;
        let commanded = before.in_flight_requests as f64 * self.command_us;
        let queue = moved.max(commanded);
        own + match self.overlaps {
            true => self.base_us.hypot(queue),
            false => self.base_us + queue,
        }
    }
}
