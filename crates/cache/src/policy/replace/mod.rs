//! What to keep: base lists, and device-valued replacement over any of them.
//!
//! A base orders slots by how they were used and knows nothing of devices. [`Valued`] asks it for those that would go
//! next and lets go the one whose copy saves least time.

mod arc;
mod clock;
mod contest;
mod frequency;
mod larc;
mod lru;
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
pub use queue::SlotMap;
pub use valued::Valued;

/// A replacement policy over slots.
///
/// Its owner asks `wants` for a slot that is not resident; if it may come in and there is no room, takes one of
/// `victims`, `evict`s it and `insert`s the other. No call may be made with a slot in the wrong state; such calls
/// change nothing.
pub trait Base: Send {
    /// Slots that are resident.
    fn len(&self) -> usize;

    fn contains(&self, slot: Slot) -> bool;

    /// A resident slot was used.
    fn touch(&mut self, slot: Slot);

    /// A slot that is not resident was asked for and would be filled: may it come in?
    fn wants(&mut self, slot: Slot) -> bool;

    /// Up to `count` resident slots to `out`, the one that this policy would let go for `incoming` first. May move
    /// what the policy would move to find it; asked twice in a row, it answers the same.
    fn victims(&mut self, incoming: Option<Slot>, count: usize, out: &mut Vec<Slot>);

    /// A resident slot goes, to make room for `incoming`; it may leave a trace.
    fn evict(&mut self, slot: Slot, incoming: Option<Slot>);

    /// A slot comes in. There is room.
    fn insert(&mut self, slot: Slot);

    /// A resident slot is void: it goes without a trace.
    fn forget(&mut self, slot: Slot);

    /// How many there may be, 1 or more; the owner evicts what is too many.
    fn resize(&mut self, slots: usize);

    /// All resident slots, roughly those first that would go first.
    fn order(&self) -> Vec<Slot>;
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

/// All there are.
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
