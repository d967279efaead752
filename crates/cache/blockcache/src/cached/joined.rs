//! Syncs of the backend that stand for several callers.
//!
//! Invariants
//! - Syncs run one after another, each with all its consequences.
//! - A caller returns without a sync of its own only if one has begun after its call and has succeeded: that one had all of the
//!   caller's earlier writes.
//!
//! Leaves to others: the sync itself, and telling callers of a failure (`flush.rs`).

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(super) struct JoinedSyncs {
    /// Held during a sync and until all consequences of its failure are done.
    one: Mutex<()>,
    /// How many have begun.
    begun: AtomicU64,
    /// The number of the last one that has succeeded.
    done: AtomicU64,
}

impl JoinedSyncs {
    /// Returns after a sync that has begun after this call: another caller's, or `sync`.
    pub fn join(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let called = self.call();
        self.join_since(called, sync)
    }

    /// The moment of a call, as the number of syncs that have begun.
    fn call(&self) -> u64 {
        self.begun.load(SeqCst)
    }

    fn join_since(&self, called: u64, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _one = self.one.lock();
        match self.done.load(SeqCst) > called {
            true => Ok(()),
            false => self.run(sync),
        }
    }

    /// Runs `sync`, which does more than those of others.
    pub fn alone(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _one = self.one.lock();
        self.run(sync)
    }

    fn run(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let number = self.begun.fetch_add(1, SeqCst) + 1;
        sync()?;
        self.done.store(number, SeqCst);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a caller of this moment makes a sync of its own.
    fn syncs(joined: &JoinedSyncs, called: u64) -> bool {
        let mut ran = false;
        let sync = || {
            ran = true;
            Ok(())
        };
        joined.join_since(called, sync).unwrap();
        ran
    }

    #[test]
    fn one_sync_stands_for_all_callers_that_waited_for_it() {
        let joined = JoinedSyncs::default();
        let (one, other, third) = (joined.call(), joined.call(), joined.call());
        assert!(syncs(&joined, one));
        assert!(!syncs(&joined, other) && !syncs(&joined, third));
        assert!(syncs(&joined, joined.call()), "nobody's has begun since");
    }

    #[test]
    fn a_sync_that_had_begun_or_that_failed_stands_for_nobody() {
        let joined = JoinedSyncs::default();
        let mut during = 0;
        let sync = || {
            during = joined.call();
            Ok(())
        };
        joined.join(sync).unwrap();
        assert!(syncs(&joined, during));
        let waiting = joined.call();
        let failed = joined.alone(|| Err(io::ErrorKind::Other.into()));
        assert!(failed.is_err() && syncs(&joined, waiting));
    }
}
