//! The contract of a filter, and the plans that several of them make.
//!
//! Invariants
//! - A filter that does not define a method behaves as a classic cache does.
//! - A hit that is whole is never filled, and no plan gives the fast side bytes that it does not hold.
//!
//! Leaves to others: the filters (`fixed.rs`, `balance.rs`, `aware.rs`), and the choice among them (`mod.rs`).

use super::super::{EndedRequest, Gauges, Outlook, ReadPlan, Reason, View, Write, WritePlan};
use crate::model::Nanos;

/// A client's read, with the policy's findings about it.
#[derive(Debug, Clone, Copy)]
pub struct ReadRequest {
    /// 1 or more.
    pub len_bytes: u64,
    /// At most `len_bytes`.
    pub held_bytes: u64,
    /// Sequential bytes that end with this read, including it.
    pub run_bytes: u64,
}

/// Decides where hits are served and what is admitted. Methods that a filter does not define behave as in a classic
/// cache. No method fails or waits, and one schedule gives one run. The tests in `tests/filters` check this for every filter.
pub trait Filter: Send {
    /// Decides one read before it is sent to a device. Called once for each read, in the order of their arrival. It cannot
    /// fail and must not wait; it may count what it has seen.
    fn read(&mut self, view: &View, asked: &ReadRequest) -> ReadPlan;

    /// Decides which parts of a write the cache keeps; the slow device gets all of it in any case. Called once for each
    /// write, before it is sent. The default keeps the blocks that were held.
    fn write(&mut self, _view: &View, write: &Write) -> WritePlan {
        keep_what_was_held(write)
    }

    /// A device has finished a request. Called once for each part of a request that a device did, in the order in which
    /// they end, which is not the order of the decisions.
    fn ended(&mut self, _ended: &EndedRequest) {}

    /// The outlooks on both devices.
    fn sides(&self) -> &Sides;

    /// By how many µs the fast side would answer this read sooner now; 0 or more, and finite.
    fn saved_us(&self, view: &View, asked: &ReadRequest) -> f64 {
        self.sides().saved_us(view, asked)
    }

    /// See [`crate::policy::Policy::pace`].
    fn pace(&self) -> Nanos {
        0
    }

    /// The present values for a status. Changes nothing, and may be called at any time and any number of times.
    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

/// The outlooks on both devices.
#[derive(Debug, Clone, Copy)]
pub struct Sides {
    pub fast: Outlook,
    pub slow: Outlook,
}

impl Sides {
    pub fn saved_us(&self, view: &View, asked: &ReadRequest) -> f64 {
        let fast = self.fast.loaded_us(asked.len_bytes, view.fast);
        let slow = self.slow.loaded_us(asked.len_bytes, view.slow);
        let saved = slow - fast;
        if saved.is_finite() {
            saved.max(0.0)
        } else {
            0.0
        }
    }
}

/// A plan for a read: the fast side serves all cached bytes, or none.
pub fn plan(asked: &ReadRequest, fast: bool, admit: bool, reason: Reason) -> ReadPlan {
    let whole = asked.held_bytes == asked.len_bytes;
    ReadPlan {
        join_bytes: 0,
        fast_bytes: if fast { asked.held_bytes } else { 0 },
        join: false,
        admit: admit && !whole,
        reason: match asked.held_bytes {
            0 => Reason::filled(admit),
            _ => reason,
        },
    }
}

/// A classic cache's answer to a write: it updates data that it held and does not take in other data.
pub(super) fn keep_what_was_held(write: &Write) -> WritePlan {
    let admit = write.held_bytes > 0;
    WritePlan {
        admit,
        reason: Reason::filled(admit),
    }
}
