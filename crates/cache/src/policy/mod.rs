//! The policy's door: what to keep in the cache, and where to serve what is kept.
//!
//! Whoever moves the bytes, a daemon or the simulator, drives one [`Policy`] and does as it says:
//!
//! ```text
//! a read comes      read()    -> ReadPlan: how many of the held bytes the fast side serves, and whether to fill
//! a write comes     write()   -> WritePlan: whether the cache keeps a copy
//! a fill begins     place()   -> Place: the slot is resident, or came in for a victim, or is refused
//! a part has ended  ended()      client's part or fill, on which side, how long it took
//! content is void   dropped()    overwritten without a copy, failed, quarantined
//! ```
//!
//! The driver knows which lines of a slot are valid, and what is being written; the policy knows which slots are
//! resident and in which order they go. It sees nothing that a daemon could not: requests, bytes in flight on each
//! side, times that requests took. It knows a device by an [`Outlook`], which may be wrong.
//!
//! Invariants
//! - A slot is resident from the [`Place`] that names it until a `Place` evicts it, [`Policy::evict`] returns it
//!   or [`Policy::dropped`] is told. There are never more than [`Policy::slots`].
//! - [`ReadPlan::fast_bytes`] is at most [`Read::held_bytes`] and, if something is left to the slow side, whole lines.
//! - What is not filled by the driver (a plan said no) is not placed: a read that was only bypassed fills nothing.
//! - Time is an argument. No clock, no I/O, no randomness but from the seed; one schedule gives one run.
//! - A decision costs no allocation in the steady state and less than a few microseconds.
//!
//! Left to the driver: locks (a policy is `Send`, not `Sync`), order on media, checksums, and that a side may serve
//! only bytes that it holds in their present version.

mod choice;
mod decide;
mod filter;
mod outlook;
mod replace;
mod streams;

use crate::model::{Nanos, Op};
pub use choice::{Choice, FilterChoice, OrthusPace, Sharing, UnknownPolicy};
pub use decide::Policy;
pub use outlook::Outlook;
pub use replace::{BASES, BaseKind, SlotMap};

/// The unit of validity: what a driver keeps a bit for.
pub const LINE_BYTES: u64 = 4096;

/// One of the two devices. Users read: cache device, backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Fast,
    Slow,
}

/// A run of the backend that is cached as one: its number is the backend's byte offset through the slot size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u64);

/// What is under way on one device, fills and all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    pub in_flight_bytes: u64,
    pub in_flight_requests: u64,
    /// Of the bytes, those that are written.
    pub written_bytes: u64,
}

/// What a decision may look at besides the request.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// Since some fixed moment; never goes back.
    pub now: Nanos,
    pub fast: Load,
    pub slow: Load,
}

/// A client's read.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    pub offset: u64,
    /// 1 or more.
    pub len: u64,
    /// Of these, how many the cache holds in their present version; 0 is a miss, `len` a full hit.
    pub held_bytes: u64,
}

/// How to serve a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPlan {
    /// What is not held comes from the slow side; parts no further apart than this are read as one, with the held
    /// bytes between them.
    pub join_bytes: u64,
    /// Of all other bytes, which are held, the first so many come from the fast side, the rest from the slow one
    /// too. All parts at the same time.
    pub fast_bytes: u64,
    /// A part that another client's read of the slow side brings anyway, begun before and with no write to it since, is
    /// waited for, not read again.
    pub join: bool,
    /// Fill the cache with what it does not hold of this read: [`Policy::place`] each slot, then write.
    pub admit: bool,
    pub reason: Reason,
}

/// A client's write. It goes to the slow side always, and is acknowledged by it.
#[derive(Debug, Clone, Copy)]
pub struct Write {
    pub offset: u64,
    /// 1 or more.
    pub len: u64,
    /// How many of these bytes the cache held, before this write made them void.
    pub held_bytes: u64,
}

/// What follows a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritePlan {
    /// Write a copy into the cache: [`Policy::place`] each slot first.
    pub admit: bool,
    pub reason: Reason,
}

/// Why a request went where it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The policy always does so.
    Always,
    /// A hit, sooner from the fast side.
    Hit,
    /// A small hit that found the fast side full.
    Budget,
    /// A long or streaming read: by the slow side, or cut between both.
    Bulk,
    /// A serving share decided.
    Share,
    /// Over a cap on requests or bytes of the fast side.
    Throttled,
    /// The guard measured one side alone to be better.
    Guard,
    /// The device is not what the model says; decided without it.
    Drift,
    /// Not in the cache; it is filled.
    Missed,
    /// Not in the cache, and not worth a fill.
    NotAdmitted,
}

impl Reason {
    /// Why, for a read that misses or a write: the reason that goes with a plan that fills or does not.
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

/// What became of a slot that shall be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It is resident; there was room, or it was resident already.
    Here,
    /// It is resident, and this slot no longer is.
    Evicting(Slot),
    /// It is not worth its victim, or every victim is in use: do not fill.
    Refused,
}

/// On whose behalf a part ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Client,
    /// A client's, who waited for another one's read: nothing ran.
    Joined,
    /// A copy into the cache.
    Fill,
}

/// One request to one device that has ended well. One that failed is not reported.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub now: Nanos,
    /// Who served it; of a read that was cut, each part is reported.
    pub side: Side,
    pub op: Op,
    pub purpose: Purpose,
    pub len: u64,
    pub took_us: f64,
    /// In flight on that side when it was submitted, without itself.
    pub before: Load,
}

/// What a policy has learnt, for statistics. `None`: this filter has no such thing.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Gauges {
    /// Bytes in flight on the fast side up to which small hits go there unasked.
    pub budget_bytes: Option<f64>,
    /// The share of hits that goes to the fast side, 0 to 1.
    pub share: Option<f64>,
    /// Measured over expected time of the fast and of the slow side, lately; 1 is as the model says.
    pub drift: Option<[f64; 2]>,
    /// The model is not believed at present.
    pub alarmed: bool,
    /// The guard has hits served by this side alone.
    pub only: Option<Side>,
    /// It has not begun to steer yet: Orthus fills first.
    pub settling: bool,
    /// Sum over all hits of the time that the cache saved, in µs, by the policy's own estimate.
    pub saved_us: f64,
}
