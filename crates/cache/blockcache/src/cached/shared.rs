//! The state that all threads of a cached backend share, its settings, and the arithmetic that several requests need.
//!
//! Invariants
//! - `settings` is locked after `store`, or alone.
//! - A request holds `store` for reading from its look at the cache to its end.
//!
//! Leaves to others: what the threads do with it (`read.rs`, `write.rs`, `flush.rs`, `fill.rs`, `lifecycle.rs`,
//! `insight.rs`).

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Sender;
use longshore_io::{Buffer, Clock, File, Via};
use longshore_policy::model::{Nanos, Op};
use longshore_policy::policy::{Choice, EndedRequest, Outlook, Policy, Purpose, Side, View};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::buffers::RequestBuffers;
use super::joined::JoinedSyncs;
use super::together::Together;
use crate::decisions::Diary;
use crate::directory::{ServableLines, reserve};
use crate::geometry::{BUFFER_BYTES, Geometry, LINE};
use crate::guard::Guard;
use crate::meter::{Gauge, Meter, RequestGuard, add};
use crate::store::{Claims, Store};
use crate::tape::Tape;

/// A fill in the queue.
pub(super) struct Job {
    pub claims: Claims,
    pub bytes: Buffer,
    pub start: u64,
}

/// The settings of a cached backend. None of them is stored on either device.
#[derive(Debug, Clone)]
pub struct Settings {
    pub choice: Choice,
    /// The policy's initial model of the cache device and of the backend.
    pub fast: Outlook,
    pub slow: Outlook,
    pub fast_via: Via,
    pub slow_via: Via,
    /// Threads that fill the cache; 0: the client's thread fills before it answers.
    pub fillers: usize,
    /// Requests of one connection that are served at once.
    pub clients: usize,
}

/// The state that all threads of a cached backend share.
pub(super) struct Shared {
    pub(super) backend: Arc<dyn File>,
    pub(super) guard: Guard,
    pub(super) len_bytes: u64,
    /// Locked after `store`, or alone: a thread that waits for `store` while it holds this lock would wait for a
    /// writer, which waits for readers, which wait for this lock.
    pub(super) settings: Mutex<Settings>,
    pub(super) slow_via: Via,
    pub(super) buffers: RequestBuffers,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) gauge: Gauge,
    pub(super) meter: Arc<Meter>,
    pub(super) diary: Diary,
    pub(super) tape: Tape,
    pub(super) together: Together,
    pub(super) syncs: JoinedSyncs,
    pub(super) syncs_failed: AtomicU64,
    /// A sync of the backend failed, and no client was told yet.
    pub(super) untold: AtomicBool,
    /// Stopped: set while `store` is held.
    pub(super) closed: AtomicBool,
    /// Will be stopped soon.
    pub(super) ending: AtomicBool,
    /// One at a time.
    pub(super) attaching: Mutex<()>,
    /// Every request holds it for reading: attach and detach wait until no request is in flight.
    pub(super) store: RwLock<Option<Arc<Store>>>,
}

/// A backend, with a cache or for the moment without. See the module [`cached`](super).
pub struct CachedBackend {
    pub(super) shared: Arc<Shared>,
    pub(super) jobs: RwLock<Option<Sender<Job>>>,
    pub(super) fillers: Mutex<Vec<JoinHandle<()>>>,
}

impl CachedBackend {
    /// Bytes of the backend, and so of the disk that clients see.
    pub fn len(&self) -> u64 {
        self.shared.len_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.shared.len_bytes == 0
    }

    /// The first range at or after `offset` that may hold data; everything else reads as zeros.
    pub fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.shared.backend.next_data(offset)
    }
}

impl fmt::Debug for CachedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedBackend")
            .field("len", &self.shared.len_bytes)
            .finish_non_exhaustive()
    }
}

/// A policy for a cache of this shape. Some slots are kept in reserve, so that evictions can share a commit.
pub(crate) fn policy(settings: &Settings, geometry: Geometry) -> Policy {
    Policy::new(
        settings.choice,
        settings.fast,
        settings.slow,
        (geometry.slots - reserve(geometry)) as usize,
        geometry.slot_bytes.into(),
    )
}

/// How many bytes of a request lie in these lines.
pub(super) fn inside_of(
    geometry: Geometry,
    found: &[ServableLines],
    offset: u64,
    len_bytes: u64,
) -> u64 {
    let held = found.iter().map(|found| {
        let start = found.piece.at(geometry);
        let end = (start + found.piece.bytes()).min(offset + len_bytes);
        end.saturating_sub(start.max(offset))
    });
    held.sum()
}

/// Splits a request at multiples of the buffers' length, so that each run fits together with its lines: the start of
/// each run, and its part of the request's bytes.
pub(super) fn cut(offset: u64, len_bytes: u64) -> impl Iterator<Item = (u64, Range<usize>)> {
    let (mut at, end) = (offset, offset + len_bytes);
    std::iter::from_fn(move || {
        let start = at;
        at = end.min((start / BUFFER_BYTES + 1) * BUFFER_BYTES);
        let part = (start - offset) as usize..(at - offset) as usize;
        (start < end).then_some((start, part))
    })
}

impl Shared {
    pub(super) fn store(&self) -> RwLockReadGuard<'_, Option<Arc<Store>>> {
        self.store.read()
    }

    /// Called while `store` is held, before the backend is written.
    pub(super) fn writable(&self) -> io::Result<()> {
        match self.closed.load(SeqCst) {
            true => Err(io::ErrorKind::NotConnected.into()),
            false => Ok(()),
        }
    }

    pub(super) fn inside(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        match offset.checked_add(len_bytes) {
            Some(end) if end <= self.len_bytes => Ok(()),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// The lines around a range, as far as the backend goes.
    pub(super) fn span(&self, offset: u64, len_bytes: u64) -> Range<u64> {
        offset / LINE * LINE
            ..(offset + len_bytes)
                .next_multiple_of(LINE)
                .min(self.len_bytes)
    }

    pub(super) fn now(&self) -> Nanos {
        self.clock.now().as_nanos() as Nanos
    }

    pub(super) fn view(&self, store: &Store) -> View {
        View {
            now: self.now(),
            fast: store.state.gauge.load(),
            slow: self.gauge.load(),
        }
    }

    /// Counts an error that a client will see.
    pub(super) fn seen(&self, result: io::Result<()>) -> io::Result<()> {
        result.inspect_err(|_| add(&self.meter.backend_errors, 1))
    }

    /// Tells the policies of a client's request to one device that has ended well.
    pub(super) fn answered(
        &self,
        store: &Store,
        (side, op): (Side, Op),
        entered: &RequestGuard<'_>,
        took: Duration,
    ) {
        store.ended(&EndedRequest {
            now: self.now(),
            side,
            op,
            purpose: Purpose::Client,
            len_bytes: entered.len_bytes,
            took_us: took.as_secs_f64() * 1e6,
            before: entered.before,
        });
    }
}
