//! One attached cache: its device, what it holds, and how it fails.
//!
//! Invariants
//! - No error of the cache device reaches a caller, with one exception: [`Store::secure`], when neither the cache
//!   device nor the guard beside the backend can be written. Going on would let a later start believe stale bytes.
//! - Once the store has [failed](Store::has_failed), nothing is held, and no cache written before is believed again.
//! - The lock of the core is never held during I/O.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use longshore_cache::policy::{Ended, Gauges, View};
use longshore_io::{Buffer, Clock, File, FileKind, Via, crc32c};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use crate::Error;
use crate::content;
use crate::directory::{Census, Claim, Directory, Found, Taken, Worth, reserve, runs};
use crate::geometry::{Geometry, LINE, Piece};
use crate::guard::Guard;
use crate::journal::Journal;
use crate::meter::{Gauge, Meter, Way, add};
use crate::shadow::Shadow;
use crate::start::Start;
use crate::watch::Watch;

/// Errors of the cache device in reads and writes after which it is given up.
const ERRORS_MAX: u64 = 16;
/// The largest run of lines that one read of the device takes.
const RUN_BYTES: u64 = 1 << 20;

pub(crate) struct Store {
    pub file: Arc<dyn File>,
    pub via: Via,
    pub backend: Arc<dyn File>,
    pub slow_via: Via,
    pub clock: Arc<dyn Clock>,
    pub watch: Watch,
    /// How it came to its content.
    pub start: Start,
    /// Of the journal's stumbles, those that had their consequences.
    pub stumbles: AtomicU64,
    /// The same of syncs that failed.
    pub lost_syncs: AtomicU64,
    /// As it was when it was attached. The number of slots may have changed since; where they lie never does.
    pub geometry: Geometry,
    /// Lines that the backend has whole.
    pub backend_lines: u64,
    pub core: Mutex<Directory>,
    pub write_ended: Condvar,
    pub journal: Journal,
    pub guard: Guard,
    pub meter: Arc<Meter>,
    pub gauge: Gauge,
    pub errors: AtomicU64,
    pub failed: AtomicBool,
    /// Failed because it was asked to.
    pub detached: AtomicBool,
    pub giving_up: Mutex<()>,
    /// One checkpoint at a time, or a change of size.
    pub checkpointing: Mutex<()>,
    /// Held for reading by every fill that writes to the device.
    pub filling: RwLock<()>,
    /// Told of what happens after it was decided.
    pub shadow: Mutex<Option<Shadow>>,
    /// Whether there is one, for those who have no time to look.
    pub shadowed: AtomicBool,
}

impl Store {
    pub(crate) fn core(&self) -> MutexGuard<'_, Directory> {
        self.core.lock()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(SeqCst)
    }

    /// Lines that a range touches, without one that the backend's end cuts.
    pub(crate) fn touched(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + Clone {
        let end = (offset + len).min(self.backend_lines * LINE);
        self.geometry.pieces(offset, end.saturating_sub(offset))
    }

    /// Lines that lie in a range as a whole.
    pub(crate) fn whole(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + Clone {
        let start = offset.next_multiple_of(LINE);
        let end = (offset + len) / LINE * LINE;
        self.touched(start, end.saturating_sub(start))
    }

    /// Reads `found`, in order and without gaps in `out`; anything but `Good` leaves `out` worthless.
    pub(crate) fn read(&self, found: &[Found], out: &mut [u8]) -> Worth {
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
                return Worth::Damaged;
            }
            sums.extend(part.chunks(LINE as usize).map(crc32c));
            at += bytes;
            rest = &rest[count..];
        }
        self.judge(found, &sums)
    }

    /// How many of these lie side by side on the device, and their bytes together.
    fn contiguous(&self, found: &[Found]) -> (usize, usize) {
        let mut bytes = 0;
        let start = self.geometry.line_at(found[0].slot, found[0].piece.first);
        let beside = found.iter().take_while(|next| {
            let place = self.geometry.line_at(next.slot, next.piece.first);
            let fits = place == start + bytes && (bytes == 0 || bytes < RUN_BYTES);
            bytes += if fits { next.piece.bytes() } else { 0 };
            fits
        });
        (beside.count(), bytes as usize)
    }

    fn judge(&self, found: &[Found], sums: &[u32]) -> Worth {
        let mut core = self.core();
        let mut sums = sums;
        let mut worth = Worth::Good;
        for found in found {
            let (these, rest) = sums.split_at(found.piece.count as usize);
            sums = rest;
            match core.judge(found, these) {
                Worth::Good => {}
                Worth::Outdated if worth == Worth::Good => worth = Worth::Outdated,
                Worth::Outdated => {}
                Worth::Damaged => {
                    core.retire(found, &self.journal);
                    worth = Worth::Damaged;
                }
            }
        }
        drop(core);
        match worth {
            Worth::Good => {}
            Worth::Outdated => add(&self.meter.outdated, 1),
            Worth::Damaged => {
                add(&self.meter.damaged, 1);
                self.count_damage();
            }
        }
        worth
    }

    /// Takes the lines of a write; returns when the backend may be written. `Err` only as the invariant says.
    pub(crate) fn begin_write<'a>(&'a self, offset: u64, len: u64) -> io::Result<Writing<'a>> {
        let mut core = self.core();
        let taken = loop {
            match core.begin_write(self.touched(offset, len), &self.journal) {
                Some(taken) => break taken,
                None => self.write_ended.wait(&mut core),
            }
        };
        drop(core);
        let now_ns = self.clock.wall_ns();
        let noted = self.watch.begin(offset, len, now_ns, &self.journal);
        let writing = Writing {
            store: self,
            offset,
            len,
            taken,
            ended: false,
        };
        self.secure(taken.after.max(noted))?;
        Ok(writing)
    }

    /// Returns when what the journal took away up to `after` can never be believed again.
    pub(crate) fn secure(&self, after: u64) -> io::Result<()> {
        if after <= self.journal.committed() || self.has_failed() {
            return Ok(());
        }
        add(&self.meter.clearings, 1);
        let committed = self.journal.commit(after);
        self.notice_stumbles();
        match committed {
            Ok(()) => Ok(()),
            Err(error) => {
                add(&self.meter.cache_errors, 1);
                self.give_up("its log cannot be written", &error)
            }
        }
    }

    /// Errors that the journal got over count as errors of the device. What was written to slots around a sync that
    /// failed may be lost, and is held no more; what is durable is not in question. Gives how many syncs had failed.
    fn notice_stumbles(&self) -> u64 {
        let lost = self.journal.lost_syncs();
        if lost > self.lost_syncs.swap(lost, SeqCst) && !self.has_failed() {
            self.core().drop_volatile();
        }
        let now = self.journal.stumbles();
        let before = self.stumbles.swap(now, SeqCst);
        if now > before {
            add(&self.meter.cache_errors, now - before);
            (before..now).for_each(|_| self.count_damage());
        }
        lost
    }

    /// Claims what of a read is missing, before the backend is read.
    pub(crate) fn claim(self: &Arc<Self>, offset: u64, len: u64) -> Claims {
        let claims = self.core().begin_fill(self.whole(offset, len));
        self.claims(claims)
    }

    fn claims(self: &Arc<Self>, claims: Vec<Claim>) -> Claims {
        Claims {
            store: Arc::clone(self),
            claims,
        }
    }

    /// Writes what was claimed, from `bytes`, which begin at `start` of the backend.
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
        // A slot that is given out stays one until it is written.
        let _stays = self.filling.read();
        let spot = {
            let mut core = self.core();
            core.place(claim, &view(), &self.journal)?
        };
        // A slot is never overwritten that a start could still believe.
        self.secure(spot.after).ok()?;
        if self.has_failed() {
            return None;
        }
        let mut sums = Vec::new();
        for (first, count) in runs(claim.lines) {
            let piece = Piece {
                block: claim.block,
                first,
                count,
            };
            let at = (piece.at(self.geometry) - start) as usize;
            let part = &bytes[at..at + piece.bytes() as usize];
            sums.extend(part.chunks(LINE as usize).map(crc32c));
            let place = self.geometry.line_at(spot.slot, first);
            let _entered = self.gauge.enter(Way::Write, piece.bytes());
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
        if self.errors.fetch_add(1, Relaxed) + 1 >= ERRORS_MAX {
            // Nothing is lost by an error here: what is held stays right, and it is tried again.
            let error = io::Error::other("too many errors");
            let _tried_again = self.give_up("its device fails too often", &error);
        }
    }

    /// Stops using the device for good. The word of the guard comes first: from then on nothing on it is believed.
    fn give_up(&self, why: &'static str, error: &io::Error) -> io::Result<()> {
        let abandoned = self.abandon().inspect_err(|guard_error| {
            tracing::error!(why, %error, %guard_error, "neither the cache nor its guard can be written");
        })?;
        if abandoned {
            tracing::error!(why, %error, "the cache is given up; the backend serves everything");
        }
        Ok(())
    }

    /// Says whether it was this call that did it.
    fn abandon(&self) -> io::Result<bool> {
        let _one = self.giving_up.lock();
        if self.has_failed() {
            return Ok(false);
        }
        self.guard.void()?;
        self.failed.store(true, SeqCst);
        self.core().abandon();
        Ok(true)
    }

    /// Stops using the device on request.
    pub(crate) fn detach(&self) -> io::Result<()> {
        self.abandon()?;
        self.detached.store(true, SeqCst);
        tracing::info!("the cache is detached; the backend serves everything");
        Ok(())
    }

    pub(crate) fn was_detached(&self) -> bool {
        self.detached.load(SeqCst)
    }

    /// Stops using the device because a sync of the backend failed.
    pub(crate) fn backend_failed(&self, error: &io::Error) -> io::Result<()> {
        self.give_up("the backend could not be synced", error)
    }

    /// Makes what is held durable. The caller syncs the backend between the two halves.
    pub(crate) fn checkpoint(
        &self,
        sync_backend: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let _one = self.checkpointing.lock();
        let lost_before = self.notice_stumbles();
        let candidates = self.core().candidates();
        if (candidates.is_empty() && !self.watch.is_unknown()) || self.has_failed() {
            return Ok(());
        }
        let quiet = self.watch.quiet();
        // Before the sync: that time is durable after it, a later one might not be.
        let changed_ns = crate::mark::mark(&*self.backend)?.changed_ns;
        sync_backend()?;
        let found = match quiet.is_some() && self.watch.is_unknown() {
            true => content::fingerprint(&*self.backend, self.watch.ranges(), self.slow_via).ok(),
            false => None,
        };
        self.watch.settle(quiet, changed_ns, found, &self.journal);
        if let Err(error) = self.journal.sync_device() {
            // The slots are as good as before that; what was filled since counts for nothing.
            self.notice_stumbles();
            self.count_error("sync", &error);
            return Ok(());
        }
        // A sync of the log that failed meanwhile may have been about these slots, and ours heard nothing of it.
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

    /// Goes on with so many bytes of the device. Of fewer slots, what the last ones held is let go; a file is cut by the
    /// caller then, when nobody reads there any more.
    pub(crate) fn resize(&self, bytes: u64) -> Result<Geometry, Error> {
        let _one = self.checkpointing.lock();
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
            true if found.len < next.end() => self
                .file
                .set_len(next.end())
                .and_then(|()| self.file.allocate(0..next.end()))
                .map_err(failed("extend"))?,
            false if found.len < next.end() => {
                return Err(Error::TooSmall {
                    device_bytes: next.end(),
                });
            }
            _ => {}
        }
        let _no_fill = self.filling.write();
        if next.slots < before.slots {
            self.core().shrink(next, &self.journal);
        }
        if let Err(error) = self.journal.resize(next) {
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
            // The table on the device is larger than what is used of it, which is no harm.
            return Err(Error::Memory {
                source: io::ErrorKind::OutOfMemory.into(),
            });
        }
        drop(core);
        self.tell(|shadow| shadow.resize((next.slots - reserve(next)) as usize));
        Ok(next)
    }

    /// Tells the policy, and the one that watches, how a request ended.
    pub(crate) fn ended(&self, ended: &Ended) {
        self.core().policy().ended(ended);
        self.tell(|shadow| shadow.ended(ended));
    }

    /// Tells whoever watches, if somebody does.
    pub(crate) fn tell(&self, what: impl FnOnce(&mut Shadow)) {
        if self.shadowed.load(Relaxed)
            && let Some(shadow) = self.shadow.lock().as_mut()
        {
            what(shadow);
        }
    }

    pub(crate) fn set_shadow(&self, shadow: Option<Shadow>) {
        let mut place = self.shadow.lock();
        self.shadowed.store(shadow.is_some(), Relaxed);
        *place = shadow;
    }

    pub(crate) fn census(&self) -> (Census, Gauges) {
        let mut core = self.core();
        (core.census(), core.policy().gauges())
    }
}

/// A write under way; dropping it ends it, with nothing kept.
pub(crate) struct Writing<'a> {
    store: &'a Store,
    offset: u64,
    len: u64,
    taken: Taken,
    ended: bool,
}

impl Writing<'_> {
    fn end(&mut self, keep: bool) -> Vec<Claim> {
        self.ended = true;
        let (store, offset, len) = (self.store, self.offset, self.len);
        let kept = store.whole(offset, if keep { len } else { 0 });
        let touched = store.touched(offset, len);
        store.watch.end(offset, len);
        let claims = store.core().end_write(&self.taken, touched, kept);
        store.write_ended.notify_all();
        claims
    }

    /// The backend has the bytes; those that the cache shall `keep` are claimed.
    pub(crate) fn done(mut self, store: &Arc<Store>, keep: bool) -> Claims {
        let claims = self.end(keep);
        store.claims(claims)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.end(false);
        }
    }
}

/// Lines that a fill owns; dropping them gives them up.
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
