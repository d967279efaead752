//! The policy's interface: what to cache, and where to serve cached data.
//!
//! The driver, a daemon or the simulator, moves the bytes. It calls one [`Policy`] and follows its answers:
//!
//! ```text
//! a read comes      read()    -> ReadPlan: how many of the held bytes the fast side serves, and whether to fill
//! a write comes     write()   -> WritePlan: whether the cache keeps a copy
//! a fill begins     place()   -> Place: the slot is resident, or came in for a victim, or is refused
//! a part has ended  ended()      client's part or fill, on which side, how long it took
//! content is void   dropped()    overwritten without a copy, failed, quarantined
//! ```
//!
//! The driver knows which lines of a slot are valid, and which are being written; the policy knows which slots are
//! resident and in which order they are evicted. The policy sees only what a daemon can see: requests, bytes in flight
//! on each side, times that requests took. It knows a device by an [`Outlook`], which may be wrong.
//!
//! Invariants
//! - A slot is resident from the [`FillDecision`] that names it until a `FillDecision` evicts it, [`Policy::evict`]
//!   returns it or [`Policy::dropped`] is told. There are never more than [`Policy::slots`].
//! - [`ReadPlan::fast_bytes`] is at most [`Read::held_bytes`] and, if something is left to the slow side, whole lines.
//! - Data that the driver does not fill (a plan said no) is not placed: a read that was only bypassed fills nothing.
//! - Time is an argument. No clock, no I/O, no randomness except from the seed; one schedule gives one run.
//! - In the steady state a decision allocates nothing and takes no more than a few microseconds.
//!
//! Leaves to others: the driver has locks (a policy is `Send`, not `Sync`), order on media, checksums, and the rule
//! that a side may serve only bytes that it holds in their present version.

mod choice;
mod decide;
pub mod filter;
mod replace;
mod streams;

use crate::model::{Nanos, Op};
pub use choice::{Choice, FilterChoice, Retention, UnknownPolicy};
pub use decide::Policy;
pub use longshore_balance::{Load, Outlook};
pub use replace::{BASES, BaseKind, SlotMap};

/// The unit of validity, for which a driver keeps a bit.
pub const LINE_BYTES: u64 = 4096;

/// One of the two devices. Users read: cache device, backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Fast,
    Slow,
}

/// A run of the backend that is cached as a unit: its number is the backend's byte offset divided by the slot size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u64);

/// The facts for a decision besides the request.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// Since some fixed moment; never goes back.
    pub now: Nanos,
    /// The requests in flight on each device, including fills.
    pub fast: Load,
    pub slow: Load,
}

/// A client's read.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    pub offset: u64,
    /// 1 or more.
    pub len_bytes: u64,
    /// Bytes of these that the cache holds in their present version; 0 is a miss, `len_bytes` a full hit.
    pub held_bytes: u64,
}

/// How to serve a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPlan {
    /// Uncached bytes come from the slow side; parts no further apart than this are read as one, with the cached bytes
    /// between them.
    pub join_bytes: u64,
    /// Of all other bytes, which are cached, this many from the start come from the fast side, the rest also from the
    /// slow one. All parts run at the same time.
    pub fast_bytes: u64,
    /// If another client's read from the slow side brings a part anyway (it began earlier, with no write to it since),
    /// this read waits for it and does not read again.
    pub join: bool,
    /// Fill the cache with the uncached bytes of this read: [`Policy::place`] each slot, then write.
    pub admit: bool,
    pub reason: Reason,
}

/// A client's write. It always goes to the slow side, which acknowledges it.
#[derive(Debug, Clone, Copy)]
pub struct Write {
    pub offset: u64,
    /// 1 or more.
    pub len_bytes: u64,
    /// How many of these bytes the cache held before this write invalidated them.
    pub held_bytes: u64,
}

/// The consequence of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritePlan {
    /// Write a copy into the cache: [`Policy::place`] each slot first.
    pub admit: bool,
    pub reason: Reason,
}

/// Why a request took its route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The policy always does so.
    Always,
    /// A hit that the fast side answers sooner.
    Hit,
    /// A small hit that found the fast side full.
    Budget,
    /// A long or streaming read: from the slow side, or cut between both.
    Bulk,
    /// A serving share decided.
    Share,
    /// Over a cap on requests or bytes of the fast side.
    Throttled,
    /// The guard measured that one side alone is better.
    Guard,
    /// The device differs from its model; decided without the model.
    Drift,
    /// Not in the cache; it is filled.
    Missed,
    /// Not in the cache, and not worth a fill.
    NotAdmitted,
}

impl Reason {
    /// The reason of a plan for a missing read or a write, which fills or does not.
    fn filled(admit: bool) -> Reason {
        match admit {
            true => Reason::Missed,
            false => Reason::NotAdmitted,
        }
    }
}

impl Reason {
    /// For counters and `why`.
    pub const ALL: [Reason; 10] = [
        Reason::Always,
        Reason::Hit,
        Reason::Budget,
        Reason::Bulk,
        Reason::Share,
        Reason::Throttled,
        Reason::Guard,
        Reason::Drift,
        Reason::Missed,
        Reason::NotAdmitted,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Reason::Always => "always",
            Reason::Hit => "hit",
            Reason::Budget => "budget",
            Reason::Bulk => "bulk",
            Reason::Share => "share",
            Reason::Throttled => "throttled",
            Reason::Guard => "guard",
            Reason::Drift => "model-drift",
            Reason::Missed => "missed",
            Reason::NotAdmitted => "not-admitted",
        }
    }
}

/// The result for a slot that must be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillDecision {
    /// It is resident; there was room, or it already was.
    Here,
    /// It is resident, and this other slot no longer is.
    Evicting(Slot),
    /// It is not worth its victim, or every victim is in use: do not fill.
    Refused,
}

/// For whom a part ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Client,
    /// A client's, which waited for another client's read: nothing ran.
    Joined,
    /// A copy into the cache.
    Fill,
}

/// One request to one device that succeeded. Failed requests are not reported.
#[derive(Debug, Clone, Copy)]
pub struct EndedRequest {
    pub now: Nanos,
    /// The side that served it; each part of a cut read is reported.
    pub side: Side,
    pub op: Op,
    pub purpose: Purpose,
    pub len_bytes: u64,
    pub took_us: f64,
    /// The load on that side when it was submitted, without itself.
    pub before: Load,
}

/// A policy's learnt values, for statistics. `None`: this filter has no such value.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Gauges {
    /// Bytes in flight on the fast side up to which small hits always go there.
    pub budget_bytes: Option<f64>,
    /// The share of hits that goes to the fast side, 0 to 1.
    pub share: Option<f64>,
    /// Recent ratio of measured to expected time, of the fast and of the slow side; 1 is as the model says.
    pub drift: Option<[f64; 2]>,
    /// The model is not used at present.
    pub alarmed: bool,
    /// The guard lets this side alone serve hits.
    pub only: Option<Side>,
    /// It has not begun to steer yet: Orthus fills first.
    pub settling: bool,
    /// Sum over all hits of the time that the cache saved, in µs, by the policy's own estimate.
    pub saved_us: f64,
}
