//! The constants that were chosen, not derived: one place for this room and for the two that decide with it.
//!
//! Invariants
//! - docs/decisions/balance.md has a row for each constant, with the measurement that set it or the words that there is
//!   none; a test compares the two.
//! - No caller has a number of its own that decides between devices. The dispatcher's numbers of buffers and patience
//!   are in docs/decisions/codec.md, also by a test.
//!
//! Leaves to others: constants of published algorithms, which stay with their algorithm, and measured numbers of
//! devices (profiles, calibrations).

/// Times that are divided by.
pub mod time {
    /// Shorter times, in µs, count as this long.
    pub const LEAST_US: f64 = 1e-3;
}

/// The estimate for a device without a profile ([`crate::Estimate::fitted`]).
pub mod fit {
    /// Requests in a window.
    pub const WINDOW: u32 = 32;
    /// The weight of the requests seen, each as old as it is, from which a line is fitted.
    pub const REQUESTS_LEAST: f64 = 2.5;
    /// The spread of the sizes from which a line is fitted: standard deviation over mean.
    pub const SPREAD_LEAST: f64 = 0.1;
}

/// The correction of a profile by measured times ([`crate::Estimate::told`]).
pub mod correction {
    /// The largest error that one request can report, as a logarithm: it may have been unlucky.
    pub const ERROR_MOST: f64 = 1.0;
}

/// Whether a device is still what it is thought to be ([`crate::Drift`]).
pub mod drift {
    /// The alarm ends within this share of the band (of its logarithm).
    pub const BACK: f64 = 0.5;
}

/// How deep a queue pays ([`crate::Depth`]).
pub mod depth {
    /// The factor by which one more step must raise throughput.
    pub const GAIN: f64 = 1.02;
    /// Growth of the service time that costs a step, if throughput did not rise.
    pub const STRETCH: f64 = 1.25;
    /// Rounds to wait after a failed trial; doubled after each failure, up to `REST_MAX`.
    pub const REST: u32 = 4;
    pub const REST_MAX: u32 = 64;
}

/// The requests that a stripe in an object store has in flight (`longshore-bucket`, `flow.rs`).
pub mod store {
    /// At least and at most, for each stripe.
    pub const LEAST: u32 = 4;
    pub const MOST: u32 = 16;
    /// A round is this many times the requests that were in flight when it began. As many as were in flight end before
    /// it: they were made when another number was.
    pub const TURNS: u32 = 3;
}

/// How long requests take ([`crate::Spread`]).
pub mod spread {
    /// Requests at which all counts are halved.
    pub const FADE_AT: u64 = 1 << 12;
}

/// Whether both devices together are better than one ([`crate::Guard`]).
pub mod guard {
    /// The share of the time that may be spent on trials.
    pub const SHARE: f64 = 1.0 / 32.0;
    /// Epochs that may be spent on early trials, when a wrong choice would still affect the whole run.
    pub const CREDIT: u64 = 6;
    /// Epochs before the first trial.
    pub const QUIET: u64 = 5;
    /// Epochs before a choice is tried again after its first loss; doubled after each loss.
    pub const REST: u64 = 16;
    /// The share of the best progress that a choice must be expected to reach to be tried.
    pub const NEAR: f64 = 0.9;
    /// The factor by which another choice must be better. Within it, both stay: they can only win when conditions
    /// change.
    pub const MARGIN: f64 = 1.03;
    /// Trials that a choice must win in a row.
    pub const WINS: u32 = 2;
    /// Weight of a new epoch in a choice's average.
    pub const WEIGHT: f64 = 0.25;
}

/// The dispatcher of accelerators.
pub mod accelerator {
    /// At this multiple of the expected service time, a device is treated as another device.
    pub const DRIFT: f64 = 2.0;
    /// Weight of a new call in that average.
    pub const DRIFT_WEIGHT: f64 = 1.0 / 16.0;
    /// An epoch of the guard: some hundred blocks on a machine that justifies an accelerator.
    pub const EPOCH_US: u64 = 100_000;
    /// Calls measured before the slowest of a hundred is believed.
    pub const MEASURED: u64 = 8;
    /// Calls after which the depth is adapted.
    pub const ROUND: u64 = 16;
    /// Steps of the depth: half a bandwidth-delay product each, above a first product. So from 2 products to 6.
    pub const STEPS_LEAST: u32 = 2;
    pub const STEPS_MOST: u32 = 10;
    /// A device that serves alone may hold this many times the bytes that keep it busy while CPUs compress: no blocks
    /// of CPUs wait behind its own, and its calls can fall into step, each with all waiting blocks. A larger multiple
    /// would only touch more memory.
    pub const ALONE: u64 = 2;
    /// Halves of the bytes that the device does while all cores that could feed it compress.
    pub const UNFED_HALVES: u64 = 3;
    /// Quarters of the free buffers that the CPUs may fill before a device's block is done; the rest is a margin for
    /// wrong estimates.
    pub const SLACK_QUARTERS: u64 = 3;
}

/// Policy `aware` of the block cache: which device serves a read, and what a copy is worth.
pub mod cache {
    /// Reads longer than this are bulk on any device.
    pub const SMALL_BYTES: u64 = 64 << 10;
    /// More than there are clients: that many streams are tracked, and as many missed reads whose fills may follow.
    pub const CLIENTS: usize = 64;
    /// A part of a cut request below this size is not worth a command.
    pub const PART_BYTES: u64 = 16 << 10;
    /// The fast side is crowded if it is busy for more than this share of the time.
    pub const CROWDED_FROM: f64 = 0.5;
    /// A typical long read of a database: the allowance starts from it, and a stream that became longer is bulk.
    pub const TYPICAL_BYTES: u64 = 512 << 10;
    /// Weight of a read in the averages over reads.
    pub const READ_WEIGHT: f64 = 1.0 / 64.0;

    /// A long read finds the fast side busy if this many bandwidth-delay products are in flight there.
    pub const BUSY: f64 = 1.4;
    /// The share of long reads that may find it idle, times the square of the slow side's share of the bandwidth: if
    /// the slow side does most of the work, a moment's idleness of the fast one costs little.
    pub const IDLE_SHARE: f64 = 0.7;
    /// The growth of the allowance with each long read that finds it idle, in bandwidth-delay products.
    pub const STEP: f64 = 0.25;
    /// The maximum of the allowance, in the fast side's share of a typical long read over the square of the slow
    /// side's share of the bandwidth: a higher maximum makes small reads wait for little gain; a lower one costs most
    /// if the slow side does little.
    pub const MOST: f64 = 0.42;

    /// Requests of a kind are frequent if the last one is no older than this many of their usual gaps…
    pub const GAPS: f64 = 16.0;
    /// …with this lower and upper bound, in ns.
    pub const QUIET_LEAST_NS: f64 = 1e6;
    pub const QUIET_MOST_NS: f64 = 20e6;
    /// Weight of a gap in their average.
    pub const GAP_WEIGHT: f64 = 1.0 / 16.0;

    /// Weight of a read in a correction of a device's profile, and in the error that remains.
    pub const CORRECTION_WEIGHT: f64 = 1.0 / 32.0;
    /// How far a device may differ from its profile.
    pub const FACTOR_LEAST: f64 = 0.4;
    pub const FACTOR_MOST: f64 = 2.5;
    /// Expectations that are wrong by this factor…
    pub const DRIFT: f64 = 1.25;
    /// …for this long raise the alarm.
    pub const ALARM_US: u64 = 5_000_000;

    /// The length of an epoch of the guard in lone reads of the slow side, and its minimum in µs.
    pub const EPOCH_READS: f64 = 64.0;
    pub const EPOCH_LEAST_US: f64 = 5_000.0;

    /// `balance`: the first share, reads between two steps, and the size of a step, which is also the least share of
    /// either side, so that both are measured.
    pub const SHARE_FIRST: f64 = 0.9;
    pub const SHARE_ROUND: u32 = 64;
    pub const SHARE_STEP: f64 = 0.02;
    /// Weight of a read in the latency of its side.
    pub const SHARE_WEIGHT: f64 = 1.0 / 16.0;
}

/// Which slots the block cache keeps.
pub mod keep {
    /// The number of victims compared.
    pub const VICTIMS: usize = 16;
    /// Weight of a new access in a slot's worth, and in the average over all slots.
    pub const WORTH_WEIGHT: f32 = 0.25;
    pub const TYPICAL_WEIGHT: f32 = 1.0 / 256.0;
    /// A newcomer may be worth this fraction of the slot that it replaces.
    pub const TOLERANCE: f32 = 0.5;
    /// With frequencies, a newcomer must be worth this many times as much, after the victim's uses were raised by
    /// `DOUBT`: counts are small numbers, and the lowest of many victims was unlucky.
    pub const CLEARLY: f32 = 2.0;
    pub const DOUBT: u8 = 3;
    /// Accesses whose worth differs by less than this factor are worth the same: a momentary queue says little.
    pub const ALIKE: f32 = 3.0;
    /// The share of its worth that a slot keeps after it kept another out.
    pub const WORTH_KEPT: f32 = 0.9;
    /// Mean count of a slot's uses when counts are halved.
    pub const USES: usize = 16;
    /// Counts for each slot of the cache, and the fewest slots that a sketch is made for.
    pub const COUNTS: usize = 4;
    pub const COUNTED_LEAST: usize = 16;

    /// Slots that each of the two shadow caches has at most.
    pub const SHADOW_SLOTS: usize = 512;
    /// Neighbours that are sampled together.
    pub const SHADOW_GROUP: u64 = 8;
    /// Sampled requests between two decisions.
    pub const SHADOW_ROUND: u32 = 128;
    /// The weight that earlier rounds keep after a round.
    pub const SHADOW_KEPT: f64 = 0.75;
    /// The factor by which admitting everything must save more.
    pub const SHADOW_CLEARLY: f64 = 1.05;
}
