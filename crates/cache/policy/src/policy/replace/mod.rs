//! What to keep: base lists, and device-valued replacement over any of them.
//!
//! A base orders slots by their use and knows nothing of devices. A valued list asks it for the next victims and evicts
//! the one whose copy saves least time. A contest between two small valued lists chooses how newcomers are admitted,
//! and [`ValueOrder`] holds both:
//!
//! ```text
//!  order.rs ──▶ contest.rs ──▶ valued.rs ──▶ bases
//! ```
//!
//! Invariants, of every base
//! - Its residents are exactly the slots that were inserted, and not evicted or forgotten since.
//! - A call with a slot in the wrong state changes nothing, and no call fails.
//! - Victims are residents, and there is one unless the base is empty.
//!
//! Leaves to others: how much a copy saves (`filter`), and content (the driver).

mod arc;
mod clock;
mod contest;
#[cfg(test)]
mod contract;
mod frequency;
mod larc;
mod lru;
mod order;
mod queue;
mod s3_fifo;
mod sieve;
mod single;
mod two_q;
mod valued;

#[cfg(test)]
mod tests;

use super::Slot;
pub use contest::Fill;
pub use order::ValueOrder;
pub use queue::SlotMap;

/// The slots that a base knows to be resident. All methods only look.
pub trait Residents {
    /// Slots that are resident.
    fn len(&self) -> usize;

    /// Whether the slot was inserted, and not evicted or forgotten since.
    fn contains(&self, slot: Slot) -> bool;

    /// All resident slots, roughly in the order of eviction.
    fn order(&self) -> Vec<Slot>;
}

/// A replacement policy over slots.
///
/// Its owner asks `wants` for a slot that is not resident. If the slot may come in and there is no room, the owner
/// takes one of `victims`, `evict`s it and `insert`s the new slot. A call with a slot in the wrong state is an error
/// of the owner and changes nothing. No call fails. The tests in `contract.rs` check this text for every base.
pub trait Base: Residents + Send {
    /// A resident slot was used.
    fn touch(&mut self, slot: Slot);

    /// May this slot come in? It is not resident, was requested, and would be filled.
    fn wants(&mut self, slot: Slot) -> bool;

    /// Adds up to `count` resident slots to `out`, the preferred victim for `incoming` first. May move entries as the
    /// policy does to find it; a second call in a row returns the same.
    fn victims(&mut self, incoming: Option<Slot>, count: usize, out: &mut Vec<Slot>);

    /// Evicts a resident slot to make room for `incoming`; it may leave a ghost.
    fn evict(&mut self, slot: Slot, incoming: Option<Slot>);

    /// Admits a slot. There is room.
    fn insert(&mut self, slot: Slot);

    /// Drops a resident slot whose content is void, without a ghost.
    fn forget(&mut self, slot: Slot);

    /// Sets the number of slots, 1 or more; the owner evicts the excess.
    fn resize(&mut self, slots: usize);
}

/// Which base list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseKind {
    Lru,
    Clock,
    TwoQ,
    Arc,
    Larc,
    S3Fifo,
    Sieve,
}

/// All of them.
pub static BASES: &[BaseKind] = &[
    BaseKind::Lru,
    BaseKind::Clock,
    BaseKind::TwoQ,
    BaseKind::Arc,
    BaseKind::Larc,
    BaseKind::S3Fifo,
    BaseKind::Sieve,
];

impl BaseKind {
    pub fn name(self) -> &'static str {
        match self {
            BaseKind::Lru => "lru",
            BaseKind::Clock => "clock",
            BaseKind::TwoQ => "2q",
            BaseKind::Arc => "arc",
            BaseKind::Larc => "larc",
            BaseKind::S3Fifo => "s3-fifo",
            BaseKind::Sieve => "sieve",
        }
    }

    pub fn named(name: &str) -> Option<BaseKind> {
        BASES.iter().copied().find(|kind| kind.name() == name)
    }

    /// An empty list with room for `slots`, 1 or more.
    pub fn build(self, slots: usize) -> Box<dyn Base> {
        let slots = slots.max(1);
        match self {
            BaseKind::Lru => Box::new(lru::Lru::default()),
            BaseKind::Clock => Box::new(clock::Clock::default()),
            BaseKind::TwoQ => Box::new(two_q::TwoQ::new(slots)),
            BaseKind::Arc => Box::new(arc::Arc::new(slots)),
            BaseKind::Larc => Box::new(larc::Larc::new(slots)),
            BaseKind::S3Fifo => Box::new(s3_fifo::S3Fifo::new(slots)),
            BaseKind::Sieve => Box::new(sieve::Sieve::default()),
        }
    }
}
