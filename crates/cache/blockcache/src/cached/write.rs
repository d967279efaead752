//! Writes, and zeroing: through to the backend, after the cached lines of the range were invalidated.
//!
//! Invariants
//! - The backend is written only while the lines of the range are taken, so that no older content is cached afterwards.
//! - After [`CachedBackend::stop`] nothing is written.
//!
//! Leaves to others: invalidating lines durably before the write (`store`), durability on the backend (`flush.rs`), and
//! copies into the cache (`fill.rs`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use longshore_io::ZeroedSpace;
use longshore_policy::model::Op;
use longshore_policy::policy::{Side, Write};

use super::shared::{CachedBackend, Job, Shared, cut, inside_of};
use crate::decisions::{Decision, RequestKind};
use crate::geometry::{BUFFER_BYTES, LINE};
use crate::meter::{Way, add};
use crate::store::Store;
use crate::tape;

impl CachedBackend {
    /// Writes `bytes` at `offset`; with `durable` they are on the backend's medium when the call returns.
    pub fn write(&self, bytes: &[u8], offset: u64, durable: bool) -> io::Result<()> {
        self.shared.inside(offset, bytes.len() as u64)?;
        let begun = self.shared.clock.now();
        let failures = self.shared.syncs_failed.load(SeqCst);
        let meter = &self.shared.meter;
        add(&meter.writes, 1);
        add(&meter.write_bytes, bytes.len() as u64);
        for (at, part) in cut(offset, bytes.len() as u64) {
            self.write_run(&bytes[part], at)?;
        }
        if durable {
            self.flush_since(failures)?;
        }
        let ended = self.shared.clock.now();
        meter.write_latency.add(ended - begun);
        let len_bytes = bytes.len() as u64;
        self.shared
            .tape
            .note(tape::Op::Write, offset, len_bytes, begun, ended);
        Ok(())
    }

    /// Makes a range read as zeros. `may_trim`: its space may be released.
    pub fn zero(
        &self,
        offset: u64,
        len_bytes: u64,
        may_trim: bool,
        durable: bool,
    ) -> io::Result<()> {
        self.shared.inside(offset, len_bytes)?;
        let begun = self.shared.clock.now();
        add(&self.shared.meter.zeroed, 1);
        let failures = self.shared.syncs_failed.load(SeqCst);
        let store = self.shared.store();
        self.shared.writable()?;
        let _writing = match store.as_ref() {
            Some(store) => Some(store.begin_write(offset, len_bytes)?),
            None => None,
        };
        let _together = self.shared.together.write(offset..offset + len_bytes);
        let backend = &self.shared.backend;
        let range = offset..offset + len_bytes;
        let without_writing = || {
            let freed = may_trim && backend.zero(range.clone(), ZeroedSpace::Freed)?;
            Ok(freed || backend.zero(range.clone(), ZeroedSpace::Kept)?)
        };
        let mut is_zero = false;
        self.shared
            .seen(without_writing().map(|made| is_zero = made))?;
        if !is_zero {
            self.shared.write_zeros(offset, len_bytes)?;
        }
        drop((_together, _writing));
        drop(store);
        if durable {
            self.flush_since(failures)?;
        }
        let op = match may_trim {
            true => tape::Op::Trim,
            false => tape::Op::Zero,
        };
        let ended = self.shared.clock.now();
        self.shared.tape.note(op, offset, len_bytes, begun, ended);
        Ok(())
    }

    fn write_run(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let shared = &*self.shared;
        // At the same offset within a line as on the backend, so that lines can be filled from the buffer.
        let start = offset / LINE * LINE;
        let head = (offset - start) as usize;
        let part = head..head + bytes.len();
        let aligned = || {
            let mut buffer = shared.buffers.take(part.end as u64)?;
            buffer[part.clone()].copy_from_slice(bytes);
            io::Result::Ok(buffer)
        };
        let store = shared.store();
        shared.writable()?;
        let Some(store) = store.as_ref().filter(|store| !store.has_failed()) else {
            return shared.write_backend(None, &aligned()?[part.clone()], offset);
        };
        let begun = shared.clock.now();
        let len_bytes = bytes.len() as u64;
        let view = shared.view(store);
        let (held_bytes, plan) = {
            let mut core = store.core();
            let found = core.look_up(store.touched(offset, bytes.len() as u64));
            let held_bytes = inside_of(store.geometry, &found, offset, bytes.len() as u64);
            let write = Write {
                offset,
                len_bytes: bytes.len() as u64,
                held_bytes,
            };
            (held_bytes, core.policy().write(&view, write))
        };
        store.tell(|shadow| {
            let (touched, whole) = (
                store.touched(offset, len_bytes),
                store.whole(offset, len_bytes),
            );
            shadow.write(&view, (offset, len_bytes), touched, whole);
        });
        let writing = store.begin_write(offset, len_bytes)?;
        // Taken only now: a write that waits for the cache device holds no buffer.
        let buffer = aligned()?;
        shared.write_backend(Some(store), &buffer[part.clone()], offset)?;
        let claims = writing.done(store, plan.admit);
        shared.diary.add(Decision {
            at_ns: begun.as_nanos() as u64,
            asked: RequestKind::Write,
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
}

impl Shared {
    fn write_zeros(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        // As long as the first run and its line, and as aligned as the backend's own blocks.
        let mut zeros = self.buffers.take(BUFFER_BYTES.min(len_bytes + LINE))?;
        zeros.fill(0);
        for (at, part) in cut(offset, len_bytes) {
            let head = (at % LINE) as usize;
            let bytes = &zeros[head..head + part.len()];
            self.seen(self.backend.write_all_at(bytes, at, self.slow_via))?;
        }
        Ok(())
    }

    fn write_backend(
        &self,
        store: Option<&Arc<Store>>,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        let len_bytes = bytes.len() as u64;
        let entered = self.gauge.enter(Way::Write, len_bytes);
        let _together = self.together.write(offset..offset + len_bytes);
        let begun = self.clock.now();
        self.seen(self.backend.write_all_at(bytes, offset, self.slow_via))?;
        if let Some(store) = store {
            let took = self.clock.now() - begun;
            self.answered(store, (Side::Slow, Op::Write), &entered, took);
        }
        Ok(())
    }
}
