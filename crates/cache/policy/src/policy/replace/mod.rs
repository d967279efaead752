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
mod base;
mod clock;
mod contest;
#[cfg(test)]
mod contract;
mod frequency;
mod kind;
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

#[cfg(test)]
use base::{Base, Residents};
pub use contest::Fill;
pub use kind::{BASES, BaseKind};
pub use order::ValueOrder;
pub use queue::SlotMap;
