//! One attached cache: its cache device, its content, and how it fails.
//!
//! Invariants
//! - No error of the cache device reaches a caller, with one exception: [`Store::secure`] and [`Store::settle_repair`],
//!   if neither the cache device nor the guard next to the backend can be written. Continuing would let a later start believe stale bytes.
//! - Once the store has [failed](Store::has_failed), nothing is cached, and no cache written before is believed again.
//! - The lock of the core is never held during I/O.
//!
//! Leaves to others: requests (`cached`), which lines are cached (`directory.rs`), and the durable table
//! (`journal.rs`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use longshore_io::{Buffer, Clock, File, FileKind, Via, crc32c};
use longshore_policy::policy::{EndedRequest, Gauges, View};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use crate::Error;
use crate::content;
use crate::directory::{
    ByteTrust, Census, Claim, Directory, ServableLines, WrittenLines, reserve, runs,
};
use crate::geometry::{BUFFER_BYTES, Geometry, LINE, LineRun};
use crate::guard::Guard;
use crate::journal::Journal;
use crate::meter::{Gauge, Meter, Way, add};
use crate::shadow::Shadow;
use crate::start::Start;
use crate::watch::BackendWatch;

/// The cache device is given up after this many errors in reads and writes.
const ERRORS_MAX: u64 = 16;

pub(crate) struct Store {
    pub file: Arc<dyn File>,
    /// The file below a loop device, locked as long as the cache is attached.
    pub _below: Option<Arc<dyn File>>,
    pub via: Via,
    pub backend: Arc<dyn File>,
    pub slow_via: Via,
    pub clock: Arc<dyn Clock>,
    pub watch: BackendWatch,
    /// How it came to its content.
    pub start: Start,
    /// The shape when it was attached. The number of slots may have changed since; their positions never do.
    pub geometry: Geometry,
    /// Whole lines of the backend.
    pub backend_lines: u64,
    pub core: Mutex<Directory>,
    pub journal: Journal,
    pub guard: Guard,
    pub meter: Arc<Meter>,
    pub state: StoreState,
}

/// The state that begins empty when a cache is attached.
#[derive(Default)]
pub(crate) struct StoreState {
    /// How many of the journal's stumbles have had their consequences.
    pub stumbles: AtomicU64,
    /// The same for failed syncs.
    pub lost_syncs: AtomicU64,
    pub write_ended: Condvar,
    pub gauge: Gauge,
    pub errors: AtomicU64,
    pub failed: AtomicBool,
    /// It failed on request.
    pub detached: AtomicBool,
    pub giving_up: Mutex<()>,
    /// Held by a checkpoint or a change of size: one at a time.
    pub checkpointing: Mutex<()>,
    /// Every fill that writes to the cache device holds it for reading.
    pub filling: RwLock<()>,
    /// Sees each request after the active policy has decided.
    pub shadow: Mutex<Option<Shadow>>,
    /// Whether there is a shadow, readable without a lock.
    pub shadowed: AtomicBool,
}

impl Store {
    pub(crate) fn core(&self) -> MutexGuard<'_, Directory> {
        self.core.lock()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.state.failed.load(SeqCst)
    }

    /// The lines that a range touches, except a line that the end of the backend cuts.
    pub(crate) fn touched(
        &self,
        offset: u64,
        len_bytes: u64,
    ) -> impl Iterator<Item = LineRun> + Clone {
        let end = (offset + len_bytes).min(self.backend_lines * LINE);
        self.geometry.pieces(offset, end.saturating_sub(offset))
    }

    /// The lines that lie in a range entirely.
    pub(crate) fn whole(
        &self,
        offset: u64,
        len_bytes: u64,
    ) -> impl Iterator<Item = LineRun> + Clone {
        let start = offset.next_multiple_of(LINE);
        let end = (offset + len_bytes) / LINE * LINE;
        self.touched(start, end.saturating_sub(start))
    }

    /// Reads `found`, in order and without gaps in `out`; any result but `Good` leaves `out` worthless.
    pub(crate) fn read(&self, found: &[ServableLines], out: &mut [u8]) -> ByteTrust {
        let mut at = 0;
        let mut rest = found;
        let mut sums = Vec::with_capacity(out.len() / LINE as usize);
        while !rest.is_empty() {
            let (count, bytes) = self.contiguous(rest);
            let piece = rest[0].piece;
            let place = self.geometry.line_at(rest[0].slot, piece.first);
            let part = &mut out[at..at + bytes];
            if let Err(error) = self.file.read_exact_at(part, place, self.via) {
                let mut core = self.core();
                for found in &rest[..count] {
                    core.retire(found, &self.journal);
                }
                drop(core);
                self.count_error("read", &error);
                return ByteTrust::Damaged;
            }
            sums.extend(part.chunks(LINE as usize).map(crc32c));
            at += bytes;
            rest = &rest[count..];
        }
        self.judge(found, &sums)
    }

    /// Reads lines for a comparison. Nothing is changed nor counted, whatever is found; lines that cannot be read are
    /// `Damaged`.
    pub(crate) fn examine(&self, found: &ServableLines, out: &mut [u8]) -> ByteTrust {
        let place = self.geometry.line_at(found.slot, found.piece.first);
        if self.file.read_exact_at(out, place, self.via).is_err() {
            return ByteTrust::Damaged;
        }
        let sums: Vec<u32> = out.chunks(LINE as usize).map(crc32c).collect();
        self.core().judge(found, &sums)
    }

    /// Returns once no start believes what a repair dropped. `Err` only as in the invariant.
    pub(crate) fn settle_repair(&self) -> io::Result<()> {
        if self.has_failed() {
            return Ok(());
        }
        let committed = self.journal.commit_all();
        self.recorded(committed)
    }

    fn recorded(&self, committed: io::Result<()>) -> io::Result<()> {
        self.notice_stumbles();
        committed.or_else(|error| {
            add(&self.meter.cache_errors, 1);
            self.give_up("its log cannot be written", &error)
        })
    }

    /// How many of these are adjacent on the cache device, and their total bytes.
    fn contiguous(&self, found: &[ServableLines]) -> (usize, usize) {
        let mut bytes = 0;
        let start = self.geometry.line_at(found[0].slot, found[0].piece.first);
        let beside = found.iter().take_while(|next| {
            let place = self.geometry.line_at(next.slot, next.piece.first);
            let fits = place == start + bytes && (bytes == 0 || bytes < BUFFER_BYTES);
            bytes += if fits { next.piece.bytes() } else { 0 };
            fits
        });
        (beside.count(), bytes as usize)
    }

    fn judge(&self, found: &[ServableLines], sums: &[u32]) -> ByteTrust {
        let mut core = self.core();
        let mut sums = sums;
        let mut worth = ByteTrust::Good;
        for found in found {
            let (these, rest) = sums.split_at(found.piece.count as usize);
            sums = rest;
            match core.judge(found, these) {
                ByteTrust::Good => {}
                ByteTrust::Outdated if worth == ByteTrust::Good => worth = ByteTrust::Outdated,
                ByteTrust::Outdated => {}
                ByteTrust::Damaged => {
                    core.retire(found, &self.journal);
                    worth = ByteTrust::Damaged;
                }
            }
        }
        drop(core);
        match worth {
            ByteTrust::Good => {}
            ByteTrust::Outdated => add(&self.meter.outdated_reads, 1),
            ByteTrust::Damaged => {
                add(&self.meter.damaged_reads, 1);
                self.count_damage();
            }
        }
        worth
    }

    /// Takes the lines of a write; returns once the backend may be written. `Err` only as in the invariant.
    pub(crate) fn begin_write<'a>(
        &'a self,
        offset: u64,
        len_bytes: u64,
    ) -> io::Result<WriteInProgress<'a>> {
        let mut core = self.core();
        let taken = loop {
            match core.begin_write(self.touched(offset, len_bytes), &self.journal) {
                Some(taken) => break taken,
                None => self.state.write_ended.wait(&mut core),
            }
        };
        drop(core);
        let now_ns = self.clock.wall_ns();
        let noted = self.watch.begin(offset, len_bytes, now_ns, &self.journal);
        let writing = WriteInProgress {
            store: self,
            offset,
            len_bytes,
            taken,
            ended: false,
        };
        self.secure(taken.after.max(noted))?;
        Ok(writing)
    }

    /// Returns once the lines that the journal cleared up to `after` can never be believed again.
    pub(crate) fn secure(&self, after: u64) -> io::Result<()> {
        if after <= self.journal.committed() || self.has_failed() {
            return Ok(());
        }
        add(&self.meter.clearings, 1);
        let committed = self.journal.commit(after);
        self.recorded(committed)
    }

    /// Counts errors that the journal overcame as errors of the cache device. Slot writes around a failed sync may be
    /// lost and are dropped; durable lines are not affected. Returns how many syncs had failed.
    fn notice_stumbles(&self) -> u64 {
        let lost = self.journal.lost_syncs();
        if lost > self.state.lost_syncs.swap(lost, SeqCst) && !self.has_failed() {
            self.core().drop_volatile();
        }
        let now = self.journal.stumbles();
        let before = self.state.stumbles.swap(now, SeqCst);
        if now > before {
            add(&self.meter.cache_errors, now - before);
            (before..now).for_each(|_| self.count_damage());
        }
        lost
    }

    /// Claims the missing lines of a read, before the backend is read.
    pub(crate) fn claim(self: &Arc<Self>, offset: u64, len_bytes: u64) -> Claims {
        let claims = self.core().begin_fill(self.whole(offset, len_bytes));
        self.claims(claims)
    }

    fn claims(self: &Arc<Self>, claims: Vec<Claim>) -> Claims {
        Claims {
            store: Arc::clone(self),
            claims,
        }
    }

    /// Writes the claimed lines from `bytes`, which begin at `start` of the backend.
    pub(crate) fn fill(
        &self,
        view: impl Fn() -> View,
        mut claims: Claims,
        bytes: &Buffer,
        start: u64,
    ) {
        claims.claims.reverse();
        while let Some(claim) = claims.claims.pop() {
            let sums = self.fill_one(&view, &claim, bytes, start);
            if sums.is_none() {
                add(&self.meter.fills_refused, 1);
            }
            let written = sums.as_ref().map(|(slot, sums)| (*slot, sums.as_slice()));
            self.core().end_fill(&claim, written);
        }
    }

    fn fill_one(
        &self,
        view: &impl Fn() -> View,
        claim: &Claim,
        bytes: &Buffer,
        start: u64,
    ) -> Option<(u32, Vec<u32>)> {
        // A slot stays assigned until it is written.
        let _stays = self.state.filling.read();
        let spot = {
            let mut core = self.core();
            core.place(claim, &view(), &self.journal)?
        };
        // A slot that a start could still believe is never overwritten.
        self.secure(spot.after).ok()?;
        if self.has_failed() {
            return None;
        }
        let mut sums = Vec::new();
        for (first, count) in runs(claim.lines) {
            let piece = LineRun {
                block: claim.block,
                first,
                count,
            };
            let at = (piece.at(self.geometry) - start) as usize;
            let part = &bytes[at..at + piece.bytes() as usize];
            sums.extend(part.chunks(LINE as usize).map(crc32c));
            let place = self.geometry.line_at(spot.slot, first);
            let _entered = self.state.gauge.enter(Way::Write, piece.bytes());
            if let Err(error) = self.file.write_all_at(part, place, self.via) {
                self.count_error("write", &error);
                return None;
            }
            add(&self.meter.fill_bytes, piece.bytes());
        }
        add(&self.meter.fills, 1);
        Some((spot.slot, sums))
    }

    fn count_error(&self, action: &'static str, error: &io::Error) {
        add(&self.meter.cache_errors, 1);
        tracing::warn!(action, %error, "the cache device failed; the backend serves");
        self.count_damage();
    }

    fn count_damage(&self) {
        if self.state.errors.fetch_add(1, Relaxed) + 1 >= ERRORS_MAX {
            // Nothing is lost by an error here: cached data stays correct, and the next call tries again.
            let error = io::Error::other("too many errors");
            let _tried_again = self.give_up("its device failed too often", &error);
        }
    }

    /// Stops using the cache device for good. The guard is written first: from then on nothing on it is believed.
    fn give_up(&self, why: &'static str, error: &io::Error) -> io::Result<()> {
        let abandoned = self.abandon().inspect_err(|guard_error| {
            tracing::error!(why, %error, %guard_error, "neither the cache nor its guard can be written");
        })?;
        if abandoned {
            tracing::error!(why, %error, "the cache is disabled; the backend serves everything");
        }
        Ok(())
    }

    /// Returns whether this call did it.
    fn abandon(&self) -> io::Result<bool> {
        let _one = self.state.giving_up.lock();
        if self.has_failed() {
            return Ok(false);
        }
        self.guard.void()?;
        self.state.failed.store(true, SeqCst);
        self.core().abandon();
        Ok(true)
    }

    /// Stops using the cache device on request.
    pub(crate) fn detach(&self) -> io::Result<()> {
        self.abandon()?;
        self.state.detached.store(true, SeqCst);
        tracing::info!("the cache is detached; the backend serves everything");
        Ok(())
    }

    pub(crate) fn was_detached(&self) -> bool {
        self.state.detached.load(SeqCst)
    }

    /// Stops using the cache device because a sync of the backend failed.
    pub(crate) fn backend_failed(&self, error: &io::Error) -> io::Result<()> {
        self.give_up("the backend could not be synced", error)
    }

    /// Makes cached data durable. The caller syncs the backend between the two halves.
    pub(crate) fn checkpoint(
        &self,
        sync_backend: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let _one = self.state.checkpointing.lock();
        let lost_before = self.notice_stumbles();
        let candidates = self.core().candidates();
        if (candidates.is_empty() && !self.watch.is_unknown()) || self.has_failed() {
            return Ok(());
        }
        let quiet = self.watch.quiet();
        // Taken before the sync: this time is durable after it, a later one might not be.
        let changed_ns = crate::mark::mark(&*self.backend)?.changed_ns;
        sync_backend()?;
        let found = match quiet.is_some() && self.watch.is_unknown() {
            true => content::fingerprint(&*self.backend, self.watch.ranges(), self.slow_via).ok(),
            false => None,
        };
        self.watch.settle(quiet, changed_ns, found, &self.journal);
        if let Err(error) = self.journal.sync_cache_device() {
            // The slots are as good as before it; later fills do not count.
            self.notice_stumbles();
            self.count_error("sync", &error);
            return Ok(());
        }
        // A failed sync of the log meanwhile may have concerned these slots, without an error for our own sync.
        if self.journal.lost_syncs_for_sure() == lost_before {
            let mut core = self.core();
            for candidate in &candidates {
                core.settle(candidate, &self.journal);
            }
        }
        let committed = self.journal.commit_all();
        self.notice_stumbles();
        if let Err(error) = committed {
            add(&self.meter.cache_errors, 1);
            return self.give_up("it cannot be made durable", &error);
        }
        add(&self.meter.checkpoints, 1);
        Ok(())
    }

    /// Continues with that many bytes of the cache device. With fewer slots, the content of the last ones is dropped;
    /// the caller then cuts a file once nobody reads there.
    pub(crate) fn resize(&self, bytes: u64) -> Result<Geometry, Error> {
        let _one = self.state.checkpointing.lock();
        let failed = |action| {
            move |source| Error::Io {
                action,
                path: "the cache".into(),
                source,
            }
        };
        let before = self.core().geometry();
        let next = before.resized(bytes)?;
        let found = self.file.stat().map_err(failed("look at"))?;
        match found.kind == FileKind::File {
            true if found.len < next.end() => {
                extend(&*self.file, found.len, next.end()).map_err(failed("extend"))?;
            }
            false if found.len < next.end() => {
                return Err(Error::TooSmall {
                    device_bytes: next.end(),
                });
            }
            _ => {}
        }
        let _no_fill = self.state.filling.write();
        if next.slots < before.slots {
            self.core().shrink(next, &self.journal);
        }
        // The new log may overwrite the last slots, so the live table must not name them any longer.
        let cleared = self.journal.commit_all();
        if let Err(error) = cleared.and_then(|()| self.journal.resize(next)) {
            if error.kind() == io::ErrorKind::OutOfMemory {
                return Err(Error::Memory { source: error });
            }
            add(&self.meter.cache_errors, 1);
            self.give_up("its log cannot be written", &error)
                .map_err(failed("give up"))?;
            return Err(failed("write the log of")(error));
        }
        let mut core = self.core();
        if next.slots > before.slots && !self.has_failed() && !core.grow(next) {
            // The table on the cache device is larger than its used part, which is harmless.
            return Err(Error::Memory {
                source: io::ErrorKind::OutOfMemory.into(),
            });
        }
        drop(core);
        self.tell(|shadow| shadow.resize((next.slots - reserve(next)) as usize));
        Ok(next)
    }

    /// Tells the active policy and the shadow how a request ended.
    pub(crate) fn ended(&self, ended: &EndedRequest) {
        self.core().policy().ended(ended);
        self.tell(|shadow| shadow.ended(ended));
    }

    /// Calls the shadow, if there is one.
    pub(crate) fn tell(&self, what: impl FnOnce(&mut Shadow)) {
        if self.state.shadowed.load(Relaxed)
            && let Some(shadow) = self.state.shadow.lock().as_mut()
        {
            what(shadow);
        }
    }

    pub(crate) fn set_shadow(&self, shadow: Option<Shadow>) {
        let mut place = self.state.shadow.lock();
        self.state.shadowed.store(shadow.is_some(), Relaxed);
        *place = shadow;
    }

    pub(crate) fn census(&self) -> (Census, Gauges) {
        let mut core = self.core();
        (core.census(), core.policy().gauges())
    }
}

/// A write in flight; dropping it ends the write, with nothing kept.
pub(crate) struct WriteInProgress<'a> {
    store: &'a Store,
    offset: u64,
    len_bytes: u64,
    taken: WrittenLines,
    ended: bool,
}

impl WriteInProgress<'_> {
    fn end(&mut self, keep: bool) -> Vec<Claim> {
        self.ended = true;
        let (store, offset, len_bytes) = (self.store, self.offset, self.len_bytes);
        let kept = store.whole(offset, if keep { len_bytes } else { 0 });
        let touched = store.touched(offset, len_bytes);
        store.watch.end(offset, len_bytes);
        let claims = store.core().end_write(&self.taken, touched, kept);
        store.state.write_ended.notify_all();
        claims
    }

    /// The backend has the bytes; those that the cache must `keep` are claimed.
    pub(crate) fn done(mut self, store: &Arc<Store>, keep: bool) -> Claims {
        let claims = self.end(keep);
        store.claims(claims)
    }
}

impl Drop for WriteInProgress<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.end(false);
        }
    }
}

/// Lines that a fill owns; dropping them releases them.
pub(crate) struct Claims {
    store: Arc<Store>,
    claims: Vec<Claim>,
}

impl Claims {
    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    pub(crate) fn store(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }

    pub(crate) fn bytes(&self) -> u64 {
        let lines: u32 = self.claims.iter().map(|c| c.lines.count_ones()).sum();
        u64::from(lines) * LINE
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        if !self.claims.is_empty() {
            let mut core = self.store.core();
            for claim in &self.claims {
                core.end_fill(claim, None);
            }
        }
    }
}

/// Extends a file to `len` bytes that all have their space. A failure leaves it as long as it was, with no more space taken.
pub(crate) fn extend(file: &dyn File, before: u64, len: u64) -> io::Result<()> {
    let extended = file.set_len(len).and_then(|()| file.allocate(0..len));
    if extended.is_err() && before < len {
        // A full file system would stay full for everybody.
        let _as_before = file.set_len(before);
    }
    extended
}
