//! Makes writes durable: flushes, and checkpoints of the cached data.
//!
//! Invariants
//! - Every flush that was in flight when a sync failed reports the failure. If none was, because a checkpoint saw the
//!   failure, the next flush reports it.
//! - Syncs of the backend run one after another, each with all its consequences: the system reports an error to one
//!   caller only. One sync stands for all flushes that came before it began (`joined.rs`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::shared::{CachedBackend, Shared};
use crate::meter::add;
use crate::store::Store;
use crate::tape;

/// The longest time between checkpoints while cached data is not durable.
pub const CHECKPOINT_EVERY: Duration = Duration::from_secs(10);
/// A checkpoint comes sooner once one slot in this many is not durable: a crash may lose that share.
const VOLATILE_SHARE: u32 = 20;

impl CachedBackend {
    /// Returns after all earlier writes have reached the backend's medium.
    pub fn flush(&self) -> io::Result<()> {
        let begun = self.shared.clock.now();
        self.flush_since(self.shared.syncs_failed.load(SeqCst))?;
        let ended = self.shared.clock.now();
        self.shared.tape.note(tape::Op::Flush, 0, 0, begun, ended);
        Ok(())
    }

    /// Fails if a sync has failed since the count was `failures`, whichever call saw it.
    pub(super) fn flush_since(&self, failures: u64) -> io::Result<()> {
        let shared = &*self.shared;
        add(&shared.meter.flushes, 1);
        let synced = shared.sync_backend(shared.store().as_ref());
        let untold = shared.untold.swap(false, SeqCst);
        if synced.is_ok() && (untold || shared.syncs_failed.load(SeqCst) != failures) {
            return Err(io::Error::other("another sync of the backend failed"));
        }
        synced
    }

    /// Makes cached data durable, if there is much of it or `force` is set. Called by the thread that keeps the time.
    pub fn checkpoint(&self, force: bool) -> io::Result<()> {
        let store = self.shared.store();
        let Some(store) = store.as_ref() else {
            return Ok(());
        };
        let few = {
            let core = store.core();
            core.volatile_slots() < (core.geometry().slots / VOLATILE_SHARE).max(1)
        };
        if !force && few {
            return Ok(());
        }
        store.checkpoint(|| self.shared.sync_backend_and_times(Some(store)))
    }
}

impl Shared {
    /// One sync for all callers that wait for it.
    pub(super) fn sync_backend(&self, store: Option<&Arc<Store>>) -> io::Result<()> {
        self.syncs
            .join(|| self.with_consequences(self.backend.sync(), store))
    }

    /// Also syncs a file's times, with which a start after a crash compares.
    pub(super) fn sync_backend_and_times(&self, store: Option<&Arc<Store>>) -> io::Result<()> {
        self.syncs
            .alone(|| self.with_consequences(self.backend.sync_with_times(), store))
    }

    /// The same result, with all consequences of a failure.
    fn with_consequences(
        &self,
        synced: io::Result<()>,
        store: Option<&Arc<Store>>,
    ) -> io::Result<()> {
        if let Err(error) = &synced {
            add(&self.meter.backend_errors, 1);
            self.syncs_failed.fetch_add(1, SeqCst);
            self.untold.store(true, SeqCst);
            // Writes since the last sync may be lost, although the system still returns them and its later syncs
            // succeed without them: nothing cached can be proved from now on.
            if let Some(store) = store
                && store.backend_failed(error).is_err()
            {
                store.core().drop_volatile();
            }
        }
        synced
    }
}
