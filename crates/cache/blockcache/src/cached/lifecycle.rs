//! A cached backend's life: its threads, and the cache that is attached, resized and detached while it serves.
//!
//! Invariants
//! - A cache is attached or removed while no request is in flight; a request that hangs in the cache device is waited
//!   for no longer than [`LEAVE_WITHIN`].
//! - A detached cache is not believed again: writes may follow that it does not see.
//! - After [`CachedBackend::stop`] all cached data is durable, and the cache is marked as cleanly stopped. A cached
//!   backend that is only dropped leaves the state of a crash, but no thread.
//!
//! Leaves to others: what a cache is found to hold when it is attached (`open.rs`), and the order of syncs in a
//! checkpoint (`store`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crossbeam_channel::bounded;
use longshore_io::{Clock, File, FileKind};
use parking_lot::{Mutex, MutexGuard, RwLock};

use super::buffers::{RequestBuffers, fill_queue};
use super::joined::JoinedSyncs;
use super::shared::{CachedBackend, Settings, Shared};
use super::together::Together;
use crate::decisions::Diary;
use crate::format::BackendContent;
use crate::guard::Guard;
use crate::meter::{Gauge, Meter};
use crate::store::Store;
use crate::tape::Tape;
use crate::{Error, content};

/// How long to wait for requests in a detached cache device before it is closed; all other requests wait meanwhile.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// How often an attach waits for requests in flight, and for how long at first. Each wait is twice as long as the one before, and no
/// longer than [`LEAVE_WITHIN`]; others are served in pauses of the same length.
const PUT_TRIES: u32 = 10;
const PUT_WITHIN: Duration = Duration::from_millis(50);

impl CachedBackend {
    /// A cached backend for `backend`, of `len_bytes`, without a cache. It has taken the guard as long as it lives.
    pub(crate) fn new(
        backend: Arc<dyn File>,
        len_bytes: u64,
        settings: Settings,
        clock: Arc<dyn Clock>,
        guard: Guard,
    ) -> Result<CachedBackend, Error> {
        let buffers = RequestBuffers::new(settings.clients, settings.fillers)
            .map_err(|source| Error::Memory { source })?;
        let fillers = settings.fillers;
        let shared = Arc::new(Shared {
            backend,
            guard,
            len_bytes,
            slow_via: settings.slow_via,
            settings: Mutex::new(settings),
            buffers,
            clock,
            gauge: Gauge::default(),
            meter: Arc::new(Meter::default()),
            diary: Diary::default(),
            tape: Tape::default(),
            together: Together::default(),
            syncs: JoinedSyncs::default(),
            syncs_failed: AtomicU64::new(0),
            untold: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            attaching: Mutex::new(()),
            store: RwLock::new(None),
        });
        let cached = CachedBackend {
            shared,
            jobs: RwLock::new(None),
            fillers: Mutex::new(Vec::new()),
        };
        if fillers > 0 {
            let (jobs, queue) = bounded(fill_queue(fillers));
            *cached.jobs.write() = Some(jobs);
            for _ in 0..fillers {
                let (shared, queue) = (Arc::clone(&cached.shared), queue.clone());
                let fill = move || shared.fill_all(&queue);
                match std::thread::Builder::new().spawn(fill) {
                    Ok(filler) => cached.fillers.lock().push(filler),
                    // Without any such thread every fill is dropped, and counted.
                    Err(error) => {
                        tracing::warn!(%error, "cannot start a thread for fills; raise the limit on threads");
                        break;
                    }
                }
            }
        }
        Ok(cached)
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.shared.guard
    }

    pub(crate) fn is_attached(&self) -> bool {
        let store = self.shared.store();
        store.as_ref().is_some_and(|store| !store.has_failed())
    }

    pub(crate) fn attaching(&self) -> MutexGuard<'_, ()> {
        self.shared.attaching.lock()
    }

    /// Errors: `Ending` once serving was stopped. The caller holds [`CachedBackend::attaching`].
    pub(crate) fn still_serves(&self) -> Result<(), Error> {
        match self.shared.closed.load(SeqCst) {
            true => Err(Error::Ending),
            false => Ok(()),
        }
    }

    /// Attaches a cache while no request is in flight: one that lasts, as in a device that hangs, must not hold up all others.
    ///
    /// Errors: `Attached`: there is one already. `Hangs`.
    pub(crate) fn put(&self, store: Store) -> Result<(), Error> {
        let mut within = PUT_WITHIN;
        for _ in 0..PUT_TRIES {
            if let Some(mut place) = self.shared.store.try_write_for(within) {
                if place.as_ref().is_some_and(|old| !old.has_failed()) {
                    return Err(Error::Attached);
                }
                *place = Some(Arc::new(store));
                return Ok(());
            }
            // Those that waited behind this try pass.
            std::thread::sleep(within);
            within = (2 * within).min(LEAVE_WITHIN);
        }
        Err(Error::Hangs)
    }

    /// Gives the cache that many bytes of its cache device (a file is resized) while it serves. Cached data stays, except
    /// in slots that are cut off. Returns how many bytes it can hold.
    pub fn resize(&self, bytes: u64) -> Result<u64, Error> {
        let _one = self.attaching();
        let store = {
            let store = self.shared.store();
            let store = store.as_ref().filter(|store| !store.has_failed());
            Arc::clone(store.ok_or(Error::Detached)?)
        };
        let geometry = store.resize(bytes)?;
        // Requests that found data there first finish reading it; if they take too long, the file keeps its length.
        if let Some(_nobody) = self.shared.store.try_write_for(LEAVE_WITHIN)
            && let Ok(found) = store.file.stat()
            && found.kind == FileKind::File
            && found.len > geometry.end()
            && let Err(error) = store.file.set_len(geometry.end())
        {
            tracing::warn!(%error, "the cache's file could not be truncated");
        }
        Ok(geometry.capacity_bytes())
    }

    /// Serves from the backend alone from now on. The detached cache is not believed again: writes may follow that it
    /// does not see.
    pub fn detach(&self) -> Result<(), Error> {
        {
            let store = self.shared.store();
            let store = store.as_ref().filter(|store| !store.was_detached());
            let store = store.ok_or(Error::Detached)?;
            // Done like a request: one that hangs in the cache device must not hold up this call, nor the others.
            store.detach().map_err(|source| Error::Io {
                action: "write the guard of",
                path: "the backend".into(),
                source,
            })?;
        }
        if let Some(mut place) = self.shared.store.try_write_for(LEAVE_WITHIN)
            && place.as_ref().is_some_and(|store| store.was_detached())
        {
            *place = None;
        }
        Ok(())
    }

    /// [`CachedBackend::stop`] comes soon: long work other than clients' requests ends now.
    pub fn end_soon(&self) {
        self.shared.ending.store(true, SeqCst);
    }

    /// Stops serving: all cached data becomes durable, and the cache is marked as cleanly stopped. Later writes are
    /// refused: the cache would not see them.
    pub fn stop(&self) -> io::Result<()> {
        // A client of the control socket may change the cache meanwhile, and must not do so after its clean mark.
        let _one = self.attaching();
        self.end_fillers();
        let store = {
            let mut place = self.shared.store.write();
            self.shared.closed.store(true, SeqCst);
            place.take()
        };
        // Includes its times: the next start compares them with the mark taken here.
        let synced = self.shared.sync_backend_and_times(store.as_ref());
        if let Some(store) = store.filter(|store| !store.has_failed()) {
            store.checkpoint(|| self.shared.sync_backend_and_times(Some(&store)))?;
            if !store.has_failed() {
                let mark = crate::mark::mark(&*self.shared.backend)?;
                let look =
                    content::look(&*self.shared.backend, mark.len_bytes, self.shared.slow_via);
                // Content that cannot be read now is unknown at the next start, which then begins empty.
                let content = look.map_or_else(
                    |error| {
                        tracing::warn!(%error, "the backend cannot be read; the cache will start empty");
                        BackendContent::default()
                    },
                    |look| look.content,
                );
                store.journal.close(mark.changed_ns, content)?;
            }
        }
        synced
    }

    fn end_fillers(&self) {
        *self.jobs.write() = None;
        for filler in self.fillers.lock().drain(..) {
            // A filler that panicked has reported it, and its claims were released.
            let _ended = filler.join();
        }
    }
}

impl Drop for CachedBackend {
    /// Leaves the state of a crash, but no thread.
    fn drop(&mut self) {
        self.end_fillers();
    }
}
