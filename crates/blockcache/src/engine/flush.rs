//! What is written becomes durable: flushes, and the checkpoints of what is held.
//!
//! Invariants
//! - A failed sync is told to every flush that was under way when it failed, and to the next one when there was none,
//!   though a checkpoint met it first.
//! - Syncs of the backend come one after another, each with its consequences: the system tells an error to one only.

use super::*;

/// How long a checkpoint waits at most while something is held that is not durable.
pub const CHECKPOINT_EVERY: Duration = Duration::from_secs(10);
/// A checkpoint comes sooner when more than this share of the slots is not durable: what a crash may cost.
const VOLATILE_SHARE: u32 = 20;

impl Engine {
    /// Returns when all that was written before is on the backend's medium.
    pub fn flush(&self) -> io::Result<()> {
        let begun = self.shared.clock.now();
        self.flush_since(self.shared.syncs_failed.load(SeqCst))?;
        let ended = self.shared.clock.now();
        self.shared.tape.note(tape::Op::Flush, 0, 0, begun, ended);
        Ok(())
    }

    /// Fails when a sync failed since there were so many `failures`, whoever met it.
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

    /// Makes what is held durable, if there is much or `force`. Called by whoever keeps the time.
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
        store.checkpoint(|| self.shared.sync_backend_and_times(store))
    }
}

impl Shared {
    pub(super) fn sync_backend(&self, store: Option<&Arc<Store>>) -> io::Result<()> {
        self.sync_backend_by(|backend| backend.sync(), store)
    }

    /// The times of a file, too, which a start after a crash is compared with.
    pub(super) fn sync_backend_and_times(&self, store: &Arc<Store>) -> io::Result<()> {
        self.sync_backend_by(|backend| backend.sync_with_times(), Some(store))
    }

    /// One at a time, with all that follows from a failure.
    pub(super) fn sync_backend_by(
        &self,
        sync: impl FnOnce(&dyn File) -> io::Result<()>,
        store: Option<&Arc<Store>>,
    ) -> io::Result<()> {
        let _one = self.syncing.lock();
        let synced = sync(&*self.backend);
        if let Err(error) = &synced {
            add(&self.meter.backend_errors, 1);
            self.syncs_failed.fetch_add(1, SeqCst);
            self.untold.store(true, SeqCst);
            // What was written since the last sync may be lost, though the system still reads it and syncs without it
            // from now on: nothing that is held can be proved any more.
            if let Some(store) = store
                && store.backend_failed(error).is_err()
            {
                store.core().drop_volatile();
            }
        }
        synced
    }
}
