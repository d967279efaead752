//! Requests in, I/O on two devices out.
//!
//! A read that the cache holds is served where the policy says: by the cache device, by the backend, or cut between
//! both at the same time. What is missing comes from the backend and, if the policy wants it, goes to a fill. A write
//! goes to the backend and, if the policy wants it, what it wrote goes to a fill.
//!
//! Its rooms, each with its invariants in its head: `read`, `write`, `flush` (what clients ask for, and checkpoints),
//! `fill` (copies into the cache), `lifecycle` (threads; attach, resize, detach, stop), `insight` (what people ask for).
//! `together` lets who misses what is being read wait for that. Here is what all of them share.
//!
//! Invariants
//! - Bytes that a client reads were the backend's, or were written to the backend, when the read was under way.
//! - A client's request fails only when the backend fails it (or as [`Store::secure`] says), and then it does fail.
//! - Memory: [`Settings::buffers`] buffers of [`BUFFER_BYTES`], allocated once, and the table of slots.

mod fill;
mod flush;
mod insight;
mod lifecycle;
mod read;
mod together;
mod write;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Sender;
use longshore_cache::model::{Nanos, Op};
use longshore_cache::policy::{Choice, Ended, Load, Outlook, Policy, Purpose, Side, View};
use longshore_io::{Buffer, Clock, File, Pool, Via};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::directory::{Found, reserve};
use crate::geometry::{Geometry, LINE};
use crate::meter::{Gauge, Meter, add};
use crate::store::Store;
use crate::tape::{self, Tape};
use crate::why::Diary;
pub use flush::CHECKPOINT_EVERY;

/// The longest run of bytes that is handled at once; longer requests are cut.
pub const BUFFER_BYTES: u64 = 1 << 20;

/// How an engine works. Nothing of it is kept on a device.
#[derive(Debug, Clone)]
pub struct Settings {
    pub choice: Choice,
    /// What the policy believes of the cache device and of the backend, to begin with.
    pub fast: Outlook,
    pub slow: Outlook,
    pub fast_via: Via,
    pub slow_via: Via,
    /// Threads that fill the cache; 0: whoever asked does it, before the answer.
    pub fillers: usize,
    /// Requests that are served at once.
    pub clients: usize,
}

impl Settings {
    /// Buffers of [`BUFFER_BYTES`]: one for each client, one more where a read is cut, and the queue of fills.
    pub fn buffers(&self) -> usize {
        2 * self.clients.max(1) + fill::buffers(self.fillers)
    }
}

/// What all threads of an engine share.
struct Shared {
    backend: Arc<dyn File>,
    len: u64,
    /// Locked after `store` or alone: whoever waits for `store` with it in hand waits for a writer that waits for
    /// readers that wait for it.
    settings: Mutex<Settings>,
    slow_via: Via,
    pool: Pool,
    clock: Arc<dyn Clock>,
    gauge: Gauge,
    meter: Arc<Meter>,
    diary: Diary,
    tape: Tape,
    together: together::Together,
    /// Held during a sync of the backend and until its failure had all consequences.
    syncing: Mutex<()>,
    syncs_failed: AtomicU64,
    /// A sync of the backend failed that no client has heard of.
    untold: AtomicBool,
    /// Stopped: set with `store` in hand.
    closed: AtomicBool,
    /// About to be stopped.
    ending: AtomicBool,
    /// One at a time.
    attaching: Mutex<()>,
    /// Held for reading by every request: whoever attaches or detaches waits until none is under way.
    store: RwLock<Option<Arc<Store>>>,
}

/// A backend with, or for the moment without, a cache. See the module.
pub struct Engine {
    shared: Arc<Shared>,
    jobs: RwLock<Option<Sender<fill::Job>>>,
    fillers: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Bytes of the backend, hence of what is served.
    pub fn len(&self) -> u64 {
        self.shared.len
    }

    pub fn is_empty(&self) -> bool {
        self.shared.len == 0
    }

    /// The first range at or after `offset` that may hold data; all else reads as zeros.
    pub fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.shared.backend.next_data(offset)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("len", &self.shared.len)
            .finish_non_exhaustive()
    }
}

/// A policy for a cache of this shape. Some slots are kept back, so that evictions can share a commit.
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
fn inside_of(geometry: Geometry, found: &[Found], offset: u64, len: u64) -> u64 {
    let held = found.iter().map(|found| {
        let start = found.piece.at(geometry);
        let end = (start + found.piece.bytes()).min(offset + len);
        end.saturating_sub(start.max(offset))
    });
    held.sum()
}

/// Cuts a request where a multiple of the buffers' length lies, so that each run fits with its lines: where each run
/// begins, and its part of the request's bytes.
fn cut(offset: u64, len: u64) -> impl Iterator<Item = (u64, Range<usize>)> {
    let (mut at, end) = (offset, offset + len);
    std::iter::from_fn(move || {
        let start = at;
        at = end.min((start / BUFFER_BYTES + 1) * BUFFER_BYTES);
        let part = (start - offset) as usize..(at - offset) as usize;
        (start < end).then_some((start, part))
    })
}

impl Shared {
    fn store(&self) -> RwLockReadGuard<'_, Option<Arc<Store>>> {
        self.store.read()
    }

    /// Asked with `store` in hand, before the backend is written.
    fn writable(&self) -> io::Result<()> {
        match self.closed.load(SeqCst) {
            true => Err(io::ErrorKind::NotConnected.into()),
            false => Ok(()),
        }
    }

    fn inside(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// The lines around a range, as far as the backend goes.
    fn span(&self, offset: u64, len: u64) -> Range<u64> {
        offset / LINE * LINE..(offset + len).next_multiple_of(LINE).min(self.len)
    }

    fn take(&self) -> io::Result<Buffer> {
        self.pool
            .take()
            .ok_or_else(|| io::Error::other("the buffers are closed"))
    }

    fn now(&self) -> Nanos {
        self.clock.now().as_nanos() as Nanos
    }

    fn view(&self, store: &Store) -> View {
        View {
            now: self.now(),
            fast: store.gauge.load(),
            slow: self.gauge.load(),
        }
    }

    /// Counts what a client will see.
    fn seen(&self, result: io::Result<()>) -> io::Result<()> {
        result.inspect_err(|_| add(&self.meter.backend_errors, 1))
    }

    #[allow(clippy::too_many_arguments)]
    fn ended(
        &self,
        store: &Store,
        side: Side,
        op: Op,
        purpose: Purpose,
        before: Load,
        len: u64,
        took: Duration,
    ) {
        store.ended(&Ended {
            now: self.now(),
            side,
            op,
            purpose,
            len,
            took_us: took.as_secs_f64() * 1e6,
            before,
        });
    }
}

#[cfg(test)]
mod tests;
