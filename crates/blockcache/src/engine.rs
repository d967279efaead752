//! Requests in, I/O on two devices out.
//!
//! A read that the cache holds is served where the policy says: by the cache device, by the backend, or cut between
//! both at the same time. What is missing comes from the backend and, if the policy wants it, goes to a fill. A write
//! goes to the backend and, if the policy wants it, what it wrote goes to a fill. Fills wait in a short queue for
//! threads of their own; when the queue is full they are dropped, so that no client waits for the cache device.
//!
//! Invariants
//! - Bytes that a client reads were the backend's, or were written to the backend, when the read was under way.
//! - A client's request fails only when the backend fails it (or as [`Store::secure`] says), and then it does fail.
//! - A failed sync is told to every flush that was under way when it failed, and to the next one when there was none,
//!   though a checkpoint met it first.
//! - Syncs of the backend come one after another, each with its consequences: the system tells an error to one only.
//! - Memory: [`Settings::buffers`] buffers of [`BUFFER_BYTES`], allocated once, and the table of slots.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use longshore_cache::model::{Nanos, Op};
use longshore_cache::policy::{Choice, Ended, Outlook, Policy, Purpose, Read, Side, View, Write};
use longshore_io::{Buffer, Clock, File, FileKind, Pool, Via};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};

use crate::directory::{Found, reserve};
use crate::geometry::{Geometry, LINE};
use crate::meter::{Counters, Entered, Gauge, Meter, Way, add};
use crate::shadow::{Comparison, Done, Shadow};
use crate::store::{Claims, Store};
use crate::why::{Asked, Diary, Line};
use crate::{Error, Status, Worth};

/// The longest run of bytes that is handled at once; longer requests are cut.
pub const BUFFER_BYTES: u64 = 1 << 20;
/// How long a checkpoint waits at most while something is held that is not durable.
pub const CHECKPOINT_EVERY: Duration = Duration::from_secs(10);
/// A checkpoint comes sooner when more than this share of the slots is not durable: what a crash may cost.
const VOLATILE_SHARE: u32 = 20;

/// How long a detached cache device is waited for, to close it; all requests wait meanwhile.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// Fills that wait for each thread that fills; what is more is dropped.
const JOBS_PER_FILLER: usize = 8;

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
        2 * self.clients.max(1) + (JOBS_PER_FILLER + 1) * self.fillers
    }
}

/// A fill that waits for its turn.
struct Job {
    claims: Claims,
    bytes: Buffer,
    start: u64,
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
    jobs: RwLock<Option<Sender<Job>>>,
    fillers: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// In front of `backend`, of `len` bytes; nothing is attached yet.
    pub(crate) fn new(
        backend: Arc<dyn File>,
        len: u64,
        settings: Settings,
        clock: Arc<dyn Clock>,
    ) -> Result<Engine, Error> {
        let pool = Pool::new(settings.buffers(), BUFFER_BYTES as usize)
            .map_err(|source| Error::Memory { source })?;
        let fillers = settings.fillers;
        let shared = Arc::new(Shared {
            backend,
            len,
            slow_via: settings.slow_via,
            settings: Mutex::new(settings),
            pool,
            clock,
            gauge: Gauge::default(),
            meter: Arc::new(Meter::default()),
            diary: Diary::default(),
            syncing: Mutex::new(()),
            syncs_failed: AtomicU64::new(0),
            untold: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            attaching: Mutex::new(()),
            store: RwLock::new(None),
        });
        let engine = Engine {
            shared,
            jobs: RwLock::new(None),
            fillers: Mutex::new(Vec::new()),
        };
        if fillers > 0 {
            let (jobs, queue) = bounded(JOBS_PER_FILLER * fillers);
            *engine.jobs.write() = Some(jobs);
            for _ in 0..fillers {
                let (shared, queue) = (Arc::clone(&engine.shared), queue.clone());
                engine
                    .fillers
                    .lock()
                    .push(std::thread::spawn(move || shared.fill_all(&queue)));
            }
        }
        Ok(engine)
    }

    /// Bytes of the backend, hence of what is served.
    pub fn len(&self) -> u64 {
        self.shared.len
    }

    pub fn is_empty(&self) -> bool {
        self.shared.len == 0
    }

    /// Fills `out` from `offset`. `InvalidInput` beyond the end; else as the backend fails.
    pub fn read(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        self.shared.inside(offset, out.len() as u64)?;
        let begun = self.shared.clock.now();
        let meter = &self.shared.meter;
        add(&meter.reads, 1);
        add(&meter.read_bytes, out.len() as u64);
        for range in cut(offset, out.len() as u64) {
            let (start, end) = (
                (range.start - offset) as usize,
                (range.end - offset) as usize,
            );
            self.read_run(&mut out[start..end], range.start)?;
        }
        meter.read_latency.add(self.shared.clock.now() - begun);
        Ok(())
    }

    /// Writes `bytes` at `offset`; with `durable` they are on the backend's medium when it returns.
    pub fn write(&self, bytes: &[u8], offset: u64, durable: bool) -> io::Result<()> {
        self.shared.inside(offset, bytes.len() as u64)?;
        let begun = self.shared.clock.now();
        let failures = self.shared.syncs_failed.load(SeqCst);
        let meter = &self.shared.meter;
        add(&meter.writes, 1);
        add(&meter.write_bytes, bytes.len() as u64);
        for range in cut(offset, bytes.len() as u64) {
            let (start, end) = (
                (range.start - offset) as usize,
                (range.end - offset) as usize,
            );
            self.write_run(&bytes[start..end], range.start)?;
        }
        if durable {
            self.flush_since(failures)?;
        }
        meter.write_latency.add(self.shared.clock.now() - begun);
        Ok(())
    }

    /// Makes a range read as zeros. `may_trim`: its space may be given back.
    pub fn zero(&self, offset: u64, len: u64, may_trim: bool, durable: bool) -> io::Result<()> {
        self.shared.inside(offset, len)?;
        add(&self.shared.meter.zeroed, 1);
        let failures = self.shared.syncs_failed.load(SeqCst);
        let store = self.shared.store();
        self.shared.writable()?;
        let _writing = match store.as_ref() {
            Some(store) => Some(store.begin_write(offset, len)?),
            None => None,
        };
        let punched = may_trim && self.shared.backend.punch(offset..offset + len)?;
        if !punched {
            let zeros = vec![0; len.min(BUFFER_BYTES) as usize];
            for range in cut(offset, len) {
                let part = &zeros[..(range.end - range.start) as usize];
                let backend = &self.shared.backend;
                let written = backend.write_all_at(part, range.start, self.shared.slow_via);
                self.shared.seen(written)?;
            }
        }
        drop(_writing);
        drop(store);
        match durable {
            true => self.flush_since(failures),
            false => Ok(()),
        }
    }

    /// Returns when all that was written before is on the backend's medium.
    pub fn flush(&self) -> io::Result<()> {
        self.flush_since(self.shared.syncs_failed.load(SeqCst))
    }

    /// Fails when a sync failed since there were so many `failures`, whoever met it.
    fn flush_since(&self, failures: u64) -> io::Result<()> {
        let shared = &*self.shared;
        add(&shared.meter.flushes, 1);
        let synced = shared.sync_backend(shared.store().as_ref());
        let untold = shared.untold.swap(false, SeqCst);
        if synced.is_ok() && (untold || shared.syncs_failed.load(SeqCst) != failures) {
            return Err(io::Error::other("another sync of the backend failed"));
        }
        synced
    }

    /// The first range at or after `offset` that may hold data; all else reads as zeros.
    pub fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.shared.backend.next_data(offset)
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
        store.checkpoint(|| self.shared.sync_backend(Some(store)))
    }

    fn read_run(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        let shared = &*self.shared;
        let span = shared.span(offset, out.len() as u64);
        let mut buffer = shared.take()?;
        let store = shared.store();
        let Some(store) = store.as_ref().filter(|store| !store.has_failed()) else {
            shared.read_backend(None, &mut buffer, span.clone())?;
            give(&buffer, &span, out, offset);
            return Ok(());
        };
        let begun = shared.clock.now();
        let plan = shared.plan(store, &span, offset, out.len() as u64);
        let meter = &shared.meter;
        let whole = plan.held_bytes == out.len() as u64;
        add(
            if whole { &meter.hits } else { &meter.part_hits },
            u64::from(plan.held_bytes > 0),
        );

        let mut served = plan.fast_bytes;
        let fast = (!plan.fast.is_empty()).then_some(plan.fast.as_slice());
        let good = match (fast, plan.slow.clone()) {
            (None, _) => false,
            (Some(fast), None) => shared.read_fast(store, fast, &mut buffer, &span),
            (Some(fast), Some(slow)) => {
                // Never waited for with another one in hand: then all might wait.
                let Some(mut aside) = shared.pool.try_take() else {
                    shared.read_backend(Some(store), &mut buffer, span.clone())?;
                    give(&buffer, &span, out, offset);
                    return Ok(());
                };
                let (good, read) = beside(
                    || shared.read_backend(Some(store), &mut aside, slow.clone()),
                    || shared.read_fast(store, fast, &mut buffer, &span),
                );
                read?;
                let len = (slow.end - slow.start) as usize;
                buffer[(slow.start - span.start) as usize..][..len].copy_from_slice(&aside[..len]);
                good
            }
        };
        if !good {
            served = 0;
            shared.read_backend(Some(store), &mut buffer, span.clone())?;
        }
        give(&buffer, &span, out, offset);
        add(&meter.fast_bytes, served);
        add(
            &meter.bypassed_bytes,
            plan.held_bytes.saturating_sub(served),
        );
        shared.diary.add(Line {
            at_ns: begun.as_nanos() as u64,
            asked: Asked::Read,
            offset,
            len: out.len() as u64,
            held_bytes: plan.held_bytes,
            fast_bytes: served,
            reason: plan.reason,
            took_us: (shared.clock.now() - begun).as_micros() as u64,
        });
        if let Some(claims) = plan.claims {
            self.offer(Job {
                claims,
                bytes: buffer,
                start: span.start,
            });
        }
        Ok(())
    }

    fn write_run(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let shared = &*self.shared;
        let mut buffer = shared.take()?;
        // At the same place within a line as on the backend, so that lines can be filled from here.
        let start = offset / LINE * LINE;
        let head = (offset - start) as usize;
        let part = head..head + bytes.len();
        buffer[part.clone()].copy_from_slice(bytes);
        let store = shared.store();
        shared.writable()?;
        let Some(store) = store.as_ref().filter(|store| !store.has_failed()) else {
            return shared.write_backend(None, &buffer[part], offset);
        };
        let begun = shared.clock.now();
        let len = bytes.len() as u64;
        let view = shared.view(store);
        let (held_bytes, plan) = {
            let mut core = store.core();
            let found = core.look_up(store.touched(offset, bytes.len() as u64));
            let held_bytes = inside_of(store.geometry, &found, offset, bytes.len() as u64);
            let write = Write {
                offset,
                len: bytes.len() as u64,
                held_bytes,
            };
            (held_bytes, core.policy().write(&view, write))
        };
        store.tell(|shadow| {
            let (touched, whole) = (store.touched(offset, len), store.whole(offset, len));
            shadow.write(&view, (offset, len), touched, whole);
        });
        let writing = store.begin_write(offset, len)?;
        shared.write_backend(Some(store), &buffer[part], offset)?;
        let claims = writing.done(store, plan.admit);
        shared.diary.add(Line {
            at_ns: begun.as_nanos() as u64,
            asked: Asked::Write,
            offset,
            len: bytes.len() as u64,
            held_bytes,
            fast_bytes: 0,
            reason: plan.reason,
            took_us: (shared.clock.now() - begun).as_micros() as u64,
        });
        if !claims.is_empty() {
            self.offer(Job {
                claims,
                bytes: buffer,
                start,
            });
        }
        Ok(())
    }

    /// Queues a fill, or lets it go.
    fn offer(&self, job: Job) {
        match &*self.jobs.read() {
            None if self.shared.closed.load(SeqCst) => {}
            None => self.shared.fill(job),
            Some(jobs) => {
                if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
                    jobs.try_send(job)
                {
                    add(&self.shared.meter.fills_dropped, 1);
                }
            }
        }
    }

    /// Compares everything that is held with the backend; with `repair`, drops what differs. Requests go on meanwhile.
    /// Returns how many lines were compared, and how many differ.
    pub fn verify(&self, repair: bool) -> Result<(u64, u64), Error> {
        let store = self.shared.store();
        let store = store.as_ref().ok_or(Error::Detached)?;
        let failed = |source| Error::Io {
            action: "read",
            path: "the backend".into(),
            source,
        };
        let pool =
            Pool::new(2, BUFFER_BYTES as usize).map_err(|source| Error::Memory { source })?;
        let (Some(mut held), Some(mut truth)) = (pool.take(), pool.take()) else {
            return Ok((0, 0));
        };
        let (mut compared, mut differing) = (0, 0);
        let all = store.core().all();
        for found in all {
            if self.shared.ending.load(SeqCst) {
                return Err(Error::Ending);
            }
            let piece = found.piece;
            let start = piece.at(store.geometry);
            let len = piece.bytes() as usize;
            if store.read(&[found], &mut held[..len]) != Worth::Good {
                continue;
            }
            let range = start..start + piece.bytes();
            let read = self.shared.read_backend(Some(store), &mut truth, range);
            read.map_err(failed)?;
            // A write since then makes the comparison worthless.
            if !store.core().is_current(&found) {
                continue;
            }
            compared += u64::from(piece.count);
            let pairs = held[..len]
                .chunks(LINE as usize)
                .zip(truth[..len].chunks(LINE as usize));
            let differ = pairs.filter(|(a, b)| a != b).count() as u64;
            differing += differ;
            if differ > 0 && repair {
                store.core().drop_lines(&found, &store.journal);
            }
        }
        add(&self.shared.meter.verify_differences, differing);
        Ok((compared, differing))
    }

    /// The ranges of the backend that are held, in no order.
    pub fn held(&self) -> Vec<Range<u64>> {
        let store = self.shared.store();
        let Some(store) = store.as_ref() else {
            return Vec::new();
        };
        let all = store.core().all();
        let range = |found: &Found| {
            let start = found.piece.at(store.geometry);
            start..start + found.piece.bytes()
        };
        all.iter().map(range).collect()
    }

    /// Another policy from now on; what is held stays.
    pub fn set_policy(&self, choice: Choice) {
        // Not while one is attached, which would keep the policy that it was made with.
        let _one = self.attaching();
        let store = self.shared.store();
        let mut settings = self.shared.settings.lock();
        settings.choice = choice;
        if let Some(store) = store.as_ref() {
            let mut core = store.core();
            let policy = policy(&settings, core.geometry());
            core.set_policy(policy);
        }
    }

    /// Lets another policy watch the requests from now on, beginning with what is held; `None`: no more.
    pub fn set_shadow(&self, choice: Option<Choice>) -> Result<(), Error> {
        let settings = self.settings();
        let store = self.shared.store();
        let store = store.as_ref().filter(|store| !store.has_failed());
        let store = store.ok_or(Error::Detached)?;
        let shadow = choice.map(|choice| {
            let (geometry, held) = {
                let core = store.core();
                (core.geometry(), core.in_order())
            };
            let settings = Settings { choice, ..settings };
            let policy = policy(&settings, geometry);
            Shadow::new(choice, policy, held.into_iter(), Done::of(&self.counters()))
        });
        store.set_shadow(shadow);
        Ok(())
    }

    /// What the policy that watches would have done, beside what was done.
    pub fn shadow(&self) -> Option<Comparison> {
        let store = self.shared.store();
        let shadow = store.as_ref()?.shadow.lock();
        let now = Done::of(&self.counters());
        shadow.as_ref().map(|shadow| shadow.comparison(now))
    }

    pub fn status(&self) -> Status {
        let store = self.shared.store();
        let store = store.as_ref().filter(|store| !store.was_detached());
        let (census, gauges) = store.map_or_else(Default::default, |store| store.census());
        Status::new(
            &self.shared.settings.lock().choice,
            self.shared.len,
            store,
            self.shared.gauge.load(),
            census,
            &gauges,
        )
    }

    pub fn counters(&self) -> Counters {
        self.shared.meter.read()
    }

    /// The last requests, the newest first, and why they went where they went.
    pub fn why(&self, count: usize) -> Vec<Line> {
        self.shared.diary.last(count)
    }

    /// How many requests each reason decided.
    pub fn reasons(&self) -> Vec<(&'static str, u64)> {
        self.shared.diary.counts()
    }

    pub(crate) fn settings(&self) -> Settings {
        self.shared.settings.lock().clone()
    }

    pub(crate) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.shared.meter)
    }

    pub(crate) fn backend(&self) -> &Arc<dyn File> {
        &self.shared.backend
    }

    pub(crate) fn is_attached(&self) -> bool {
        let store = self.shared.store();
        store.as_ref().is_some_and(|store| !store.has_failed())
    }

    pub(crate) fn attaching(&self) -> MutexGuard<'_, ()> {
        self.shared.attaching.lock()
    }

    /// Puts a cache in front, when no request is under way. `Err`: there is one already.
    pub(crate) fn put(&self, store: Store) -> Result<(), Error> {
        let mut place = self.shared.store.write();
        if place.as_ref().is_some_and(|old| !old.has_failed()) {
            return Err(Error::Attached);
        }
        *place = Some(Arc::new(store));
        Ok(())
    }

    /// Gives the cache so many bytes of its device, a file's length with it, while it serves. What it holds stays, but for
    /// what lay in the slots of the last bytes. Returns how many it can hold.
    pub fn resize(&self, bytes: u64) -> Result<u64, Error> {
        let _one = self.attaching();
        let store = {
            let store = self.shared.store();
            let store = store.as_ref().filter(|store| !store.has_failed());
            Arc::clone(store.ok_or(Error::Detached)?)
        };
        let geometry = store.resize(bytes)?;
        // Whoever found something there before reads it to its end first; otherwise the file stays as long as it is.
        if let Some(_nobody) = self.shared.store.try_write_for(LEAVE_WITHIN)
            && let Ok(found) = store.file.stat()
            && found.kind == FileKind::File
            && found.len > geometry.end()
            && let Err(error) = store.file.set_len(geometry.end())
        {
            tracing::warn!(%error, "the cache's file could not be cut");
        }
        Ok(geometry.capacity_bytes())
    }

    /// Serves from the backend alone from now on. What the cache held is not believed again: writes may follow that
    /// it does not see.
    pub fn detach(&self) -> Result<(), Error> {
        {
            let store = self.shared.store();
            let store = store.as_ref().filter(|store| !store.was_detached());
            let store = store.ok_or(Error::Detached)?;
            // Among the requests: one that hangs in the cache device must not keep this, or the others, waiting.
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

    /// Soon comes [`Engine::stop`]: what takes long and is no client's request ends now.
    pub fn end_soon(&self) {
        self.shared.ending.store(true, SeqCst);
    }

    /// Ends serving: everything held becomes durable, and the cache is marked as cleanly stopped.
    /// Whoever still asks to write is refused: nobody would see it.
    pub fn stop(&self) -> io::Result<()> {
        self.end_fillers();
        let store = {
            let mut place = self.shared.store.write();
            self.shared.closed.store(true, SeqCst);
            place.take()
        };
        // With its times: the next start compares them with the mark that is taken here.
        let sync = |backend: &dyn File| backend.sync_with_times();
        let synced = self.shared.sync_backend_by(sync, store.as_ref());
        if let Some(store) = store.filter(|store| !store.has_failed()) {
            store.checkpoint(|| self.shared.sync_backend(Some(&store)))?;
            if !store.has_failed() {
                let mark = crate::open::mark(&*self.shared.backend)?;
                store.journal.close(mark.changed_ns)?;
            }
        }
        synced
    }

    fn end_fillers(&self) {
        *self.jobs.write() = None;
        for filler in self.fillers.lock().drain(..) {
            // A filler that panicked has said so; its claims were given up.
            let _ended = filler.join();
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("len", &self.shared.len)
            .finish_non_exhaustive()
    }
}

impl Drop for Engine {
    /// As a crash leaves it, but with no thread left.
    fn drop(&mut self) {
        self.end_fillers();
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

/// How a read is served.
struct Plan {
    held_bytes: u64,
    /// Of these, how many the cache device serves.
    fast_bytes: u64,
    fast: Vec<Found>,
    /// What the backend serves at the same time.
    slow: Option<Range<u64>>,
    claims: Option<Claims>,
    reason: longshore_cache::policy::Reason,
}

/// Divides a span between the devices: of what is held, about `fast_bytes` stay in `found`, and the rest is one run of
/// the backend's. What is held inside that run goes with it: one transfer is worth more than its length.
fn divide(
    geometry: Geometry,
    found: &mut Vec<Found>,
    span: &Range<u64>,
    fast_bytes: u64,
) -> Option<Range<u64>> {
    let mut left = fast_bytes.next_multiple_of(LINE);
    found.retain_mut(|found| {
        let lines = (left / LINE).min(u64::from(found.piece.count)) as u32;
        found.piece.count = lines;
        left -= u64::from(lines) * LINE;
        lines > 0
    });
    let ends = |found: &Found| {
        let start = found.piece.at(geometry);
        start..start + found.piece.bytes()
    };
    let mut slow: Option<Range<u64>> = None;
    let mut at = span.start;
    let held = found
        .iter()
        .map(ends)
        .chain(std::iter::once(span.end..span.end));
    for held in held {
        if at < held.start {
            let start = slow.as_ref().map_or(at, |slow| slow.start);
            slow = Some(start..held.start);
        }
        at = held.end.max(at);
    }
    if let Some(slow) = &slow {
        found.retain(|found| ends(found).end <= slow.start || ends(found).start >= slow.end);
    }
    slow
}

/// Does both at the same time; one after the other where the system has no thread to give.
fn beside<T>(
    aside: impl FnOnce() -> io::Result<()> + Send,
    here: impl FnOnce() -> T,
) -> (T, io::Result<()>) {
    beside_by(std::thread::Builder::new(), aside, here)
}

fn beside_by<T>(
    thread: std::thread::Builder,
    aside: impl FnOnce() -> io::Result<()> + Send,
    here: impl FnOnce() -> T,
) -> (T, io::Result<()>) {
    // Whoever takes it does it: the thread, or, when there is none, this one.
    let aside = Mutex::new(Some(aside));
    let take = || aside.lock().take().map_or(Ok(()), |aside| aside());
    std::thread::scope(|scope| match thread.spawn_scoped(scope, take) {
        Ok(thread) => {
            let done = here();
            let panicked = |_| Err(io::Error::other("a read panicked"));
            (done, thread.join().unwrap_or_else(panicked))
        }
        Err(_no_thread) => {
            let taken = take();
            (here(), taken)
        }
    })
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

/// Copies what was asked for from a buffer that holds `span`.
fn give(buffer: &Buffer, span: &Range<u64>, out: &mut [u8], offset: u64) {
    let from = (offset - span.start) as usize;
    out.copy_from_slice(&buffer[from..from + out.len()]);
}

/// Cuts a request where a multiple of the buffers' length lies, so that each run fits with its lines.
fn cut(offset: u64, len: u64) -> impl Iterator<Item = Range<u64>> {
    let (mut at, end) = (offset, offset + len);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let stop = end.min((at / BUFFER_BYTES + 1) * BUFFER_BYTES);
        let range = at..stop;
        at = stop;
        Some(range)
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

    fn plan(&self, store: &Arc<Store>, span: &Range<u64>, offset: u64, len: u64) -> Plan {
        let geometry = store.geometry;
        let mut core = store.core();
        let mut fast = core.look_up(store.touched(offset, len));
        let held_bytes = inside_of(geometry, &fast, offset, len);
        let read = Read {
            offset,
            len,
            held_bytes,
        };
        let view = self.view(store);
        let plan = core.policy().read(&view, read);
        drop(core);
        add(&self.meter.read_runs, 1);
        store.tell(|shadow| {
            let whole = store.whole(span.start, span.end - span.start);
            let inside = |found: &[Found]| inside_of(geometry, found, offset, len);
            let by_fast = |mut found: Vec<Found>, fast_bytes| {
                divide(geometry, &mut found, span, fast_bytes);
                inside(&found)
            };
            let touched = store.touched(offset, len);
            shadow.read(&view, (offset, len), touched, whole, inside, by_fast);
        });
        let claims = (plan.admit && held_bytes < len)
            .then(|| store.claim(span.start, span.end - span.start));
        let slow = divide(geometry, &mut fast, span, plan.fast_bytes);
        Plan {
            held_bytes,
            fast_bytes: inside_of(geometry, &fast, offset, len),
            fast,
            slow,
            claims: claims.filter(|claims| !claims.is_empty()),
            reason: plan.reason,
        }
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

    /// Whether `found` could be read into its places in `buffer`, which holds `span`.
    fn read_fast(
        &self,
        store: &Store,
        found: &[Found],
        buffer: &mut Buffer,
        span: &Range<u64>,
    ) -> bool {
        let len: u64 = found.iter().map(|found| found.piece.bytes()).sum();
        let entered = store.gauge.enter(Way::Read, len);
        let begun = self.clock.now();
        // Runs that touch are read together; of runs that do not there are two at most.
        let mut rest = found;
        while let Some(first) = rest.first() {
            let start = first.piece.at(store.geometry);
            let mut end = start;
            let touching = rest.iter().take_while(|next| {
                let touches = next.piece.at(store.geometry) == end;
                end += if touches { next.piece.bytes() } else { 0 };
                touches
            });
            let count = touching.count();
            let part = (start - span.start) as usize..(end - span.start) as usize;
            if store.read(&rest[..count], &mut buffer[part]) != Worth::Good {
                return false;
            }
            rest = &rest[count..];
        }
        let took = self.clock.now() - begun;
        self.meter.fast_latency.add(took);
        self.ended(
            store,
            Side::Fast,
            Op::Read,
            Purpose::Client,
            &entered,
            len,
            took,
        );
        true
    }

    /// Reads `range` into the beginning of `buffer`.
    fn read_backend(
        &self,
        store: Option<&Arc<Store>>,
        buffer: &mut Buffer,
        range: Range<u64>,
    ) -> io::Result<()> {
        let len = range.end - range.start;
        let entered = self.gauge.enter(Way::Read, len);
        let begun = self.clock.now();
        let part = &mut buffer[..len as usize];
        self.seen(self.backend.read_exact_at(part, range.start, self.slow_via))?;
        let took = self.clock.now() - begun;
        self.meter.slow_latency.add(took);
        if let Some(store) = store {
            self.ended(
                store,
                Side::Slow,
                Op::Read,
                Purpose::Client,
                &entered,
                len,
                took,
            );
        }
        Ok(())
    }

    fn write_backend(
        &self,
        store: Option<&Arc<Store>>,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        let len = bytes.len() as u64;
        let entered = self.gauge.enter(Way::Write, len);
        let begun = self.clock.now();
        self.seen(self.backend.write_all_at(bytes, offset, self.slow_via))?;
        if let Some(store) = store {
            let took = self.clock.now() - begun;
            self.ended(
                store,
                Side::Slow,
                Op::Write,
                Purpose::Client,
                &entered,
                len,
                took,
            );
        }
        Ok(())
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
        entered: &Entered<'_>,
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
            before: entered.before,
        });
    }

    fn sync_backend(&self, store: Option<&Arc<Store>>) -> io::Result<()> {
        self.sync_backend_by(|backend| backend.sync(), store)
    }

    /// One at a time, with all that follows from a failure.
    fn sync_backend_by(
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

    fn fill_all(&self, queue: &Receiver<Job>) {
        while let Ok(job) = queue.recv() {
            self.fill(job);
        }
    }

    fn fill(&self, job: Job) {
        let store = job.claims.store();
        let begun = self.clock.now();
        let entered = store.gauge.load();
        let len = job.claims.bytes();
        store.fill(|| self.view(&store), job.claims, &job.bytes, job.start);
        store.ended(&Ended {
            now: self.now(),
            side: Side::Fast,
            op: Op::Write,
            purpose: Purpose::Fill,
            len,
            took_us: (self.clock.now() - begun).as_secs_f64() * 1e6,
            before: entered,
        });
    }
}

#[cfg(test)]
mod tests;
