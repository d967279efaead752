//! Reads: divided between cache device and backend, and what happens when one of them fails.
//!
//! Invariants
//! - Clients get good bytes whatever the cache device does: the backend serves what the cache device cannot.
//! - No thread waits for a second buffer while it holds one: all of them might wait. Nor does one with a buffer wait for
//!   `store`: an attach waits for threads that have `store`, and they for buffers.
//!
//! Leaves to others: joining reads of the same bytes (`together.rs`), and copies into the cache (`fill.rs`).

use std::io;
use std::ops::Range;
use std::sync::Arc;

use longshore_io::Buffer;
use longshore_policy::model::Op;
use longshore_policy::policy::{EndedRequest, Purpose, Read, Reason, Side};
use parking_lot::Mutex;

use super::shared::{CachedBackend, Job, Shared, cut, inside_of};
use super::together::ReadBy;
use crate::ByteTrust;
use crate::decisions::{Decision, RequestKind};
use crate::directory::ServableLines;
use crate::geometry::{Geometry, LINE};
use crate::meter::{Way, add};
use crate::store::{Claims, Store};
use crate::tape;

/// How a read is served.
struct Plan {
    held_bytes: u64,
    /// How many of these the cache device serves.
    fast_bytes: u64,
    fast: Vec<ServableLines>,
    /// The range that the backend serves at the same time.
    slow: Option<Range<u64>>,
    /// The read may wait for another client's read of the same bytes.
    join: bool,
    claims: Option<Claims>,
    reason: Reason,
}

impl CachedBackend {
    /// Fills `out` from `offset`. `InvalidInput` beyond the end; otherwise fails as the backend does.
    pub fn read(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        self.shared.inside(offset, out.len() as u64)?;
        let begun = self.shared.clock.now();
        let meter = &self.shared.meter;
        add(&meter.reads, 1);
        add(&meter.read_bytes, out.len() as u64);
        for (at, part) in cut(offset, out.len() as u64) {
            self.read_run(&mut out[part], at)?;
        }
        let ended = self.shared.clock.now();
        meter.read_latency.add(ended - begun);
        let len_bytes = out.len() as u64;
        self.shared
            .tape
            .note(tape::Op::Read, offset, len_bytes, begun, ended);
        Ok(())
    }

    fn read_run(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        let shared = &*self.shared;
        let span = shared.span(offset, out.len() as u64);
        let span_bytes = span.end - span.start;
        let store = shared.store();
        let mut buffer = shared.buffers.take(span_bytes)?;
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
        let mut joined = false;
        // A request that gets no turn goes to the backend: too many are in the cache device, which answers nothing.
        let turn = match plan.fast.is_empty() {
            true => None,
            false => shared.buffers.fast(span_bytes),
        };
        let fast = turn.as_ref().map(|_| plan.fast.as_slice());
        let good = match (fast, plan.slow.clone()) {
            (None, _) => false,
            (Some(fast), None) => shared.read_fast(store, fast, &mut buffer, &span),
            (Some(fast), Some(slow)) => {
                // Taken without waiting, because this thread holds a buffer: all threads might wait.
                let Some(mut aside) = shared.buffers.aside(slow.end - slow.start) else {
                    shared.read_backend(Some(store), &mut buffer, span.clone())?;
                    give(&buffer, &span, out, offset);
                    return Ok(());
                };
                let (good, read) = beside(
                    || shared.read_slow(store, &mut aside, slow.clone(), plan.join, &mut joined),
                    || shared.read_fast(store, fast, &mut buffer, &span),
                );
                read?;
                let len_bytes = (slow.end - slow.start) as usize;
                buffer[(slow.start - span.start) as usize..][..len_bytes]
                    .copy_from_slice(&aside[..len_bytes]);
                good
            }
        };
        drop(turn);
        if !good {
            served = 0;
            shared.read_slow(store, &mut buffer, span.clone(), plan.join, &mut joined)?;
        }
        give(&buffer, &span, out, offset);
        add(&meter.fast_bytes, served);
        add(
            &meter.bypassed_bytes,
            plan.held_bytes.saturating_sub(served),
        );
        shared.diary.add(Decision {
            at_ns: begun.as_nanos() as u64,
            asked: RequestKind::Read,
            offset,
            len: out.len() as u64,
            held_bytes: plan.held_bytes,
            fast_bytes: served,
            reason: plan.reason,
            took_us: (shared.clock.now() - begun).as_micros() as u64,
        });
        // The client that reads for both also fills for both.
        if let Some(claims) = plan.claims.filter(|_| !joined) {
            self.offer(Job {
                claims,
                bytes: buffer,
                start: span.start,
            });
        }
        Ok(())
    }
}

/// Divides a span between the devices: about `fast_bytes` of the cached bytes stay in `found`, and the rest is one run
/// from the backend. Cached bytes inside that run come from the backend, too: one transfer costs less than two.
fn divide(
    geometry: Geometry,
    found: &mut Vec<ServableLines>,
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
    let ends = |found: &ServableLines| {
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

/// Does both at the same time; one after the other if the system has no thread to give.
fn beside<T>(
    aside: impl FnOnce() -> io::Result<()> + Send,
    here: impl FnOnce() -> T,
) -> (T, io::Result<()>) {
    beside_by(std::thread::Builder::new(), aside, here)
}

pub(super) fn beside_by<T>(
    thread: std::thread::Builder,
    aside: impl FnOnce() -> io::Result<()> + Send,
    here: impl FnOnce() -> T,
) -> (T, io::Result<()>) {
    // The thread takes and runs it, or, if there is no thread, this one does.
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

/// Copies the requested bytes from a buffer that holds `span`.
fn give(buffer: &Buffer, span: &Range<u64>, out: &mut [u8], offset: u64) {
    let from = (offset - span.start) as usize;
    out.copy_from_slice(&buffer[from..from + out.len()]);
}

impl Shared {
    fn plan(&self, store: &Arc<Store>, span: &Range<u64>, offset: u64, len_bytes: u64) -> Plan {
        let geometry = store.geometry;
        let mut core = store.core();
        let mut fast = core.look_up(store.touched(offset, len_bytes));
        let held_bytes = inside_of(geometry, &fast, offset, len_bytes);
        let read = Read {
            offset,
            len_bytes,
            held_bytes,
        };
        let view = self.view(store);
        let plan = core.policy().read(&view, read);
        drop(core);
        add(&self.meter.read_runs, 1);
        store.tell(|shadow| {
            let whole = store.whole(span.start, span.end - span.start);
            let inside = |found: &[ServableLines]| inside_of(geometry, found, offset, len_bytes);
            let by_fast = |mut found: Vec<ServableLines>, fast_bytes| {
                divide(geometry, &mut found, span, fast_bytes);
                inside(&found)
            };
            let touched = store.touched(offset, len_bytes);
            shadow.read(&view, (offset, len_bytes), touched, whole, inside, by_fast);
        });
        let claims = (plan.admit && held_bytes < len_bytes)
            .then(|| store.claim(span.start, span.end - span.start));
        let slow = divide(geometry, &mut fast, span, plan.fast_bytes);
        Plan {
            held_bytes,
            fast_bytes: inside_of(geometry, &fast, offset, len_bytes),
            fast,
            slow,
            join: plan.join,
            claims: claims.filter(|claims| !claims.is_empty()),
            reason: plan.reason,
        }
    }

    /// Whether `found` could be read into its positions in `buffer`, which holds `span`.
    fn read_fast(
        &self,
        store: &Store,
        found: &[ServableLines],
        buffer: &mut Buffer,
        span: &Range<u64>,
    ) -> bool {
        let len_bytes: u64 = found.iter().map(|found| found.piece.bytes()).sum();
        let entered = store.state.gauge.enter(Way::Read, len_bytes);
        let begun = self.clock.now();
        // Adjacent runs are read together; there are at most two separate ones.
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
            if store.read(&rest[..count], &mut buffer[part]) != ByteTrust::Good {
                return false;
            }
            rest = &rest[count..];
        }
        let took = self.clock.now() - begun;
        self.meter.fast_latency.add(took);
        self.answered(store, (Side::Fast, Op::Read), &entered, took);
        true
    }

    /// Reads `range` into the start of `buffer`, or waits for a client that is reading it, if allowed; returns whether
    /// it joined.
    fn read_slow(
        &self,
        store: &Arc<Store>,
        buffer: &mut Buffer,
        range: Range<u64>,
        join: bool,
        joined: &mut bool,
    ) -> io::Result<()> {
        let len_bytes = range.end - range.start;
        let own = match join.then(|| self.together.read_by(&range)) {
            Some(ReadBy::Join(reading)) => {
                let (begun, before) = (self.clock.now(), self.gauge.load());
                if reading.wait(&range, &mut buffer[..len_bytes as usize]) {
                    add(&self.meter.joined, 1);
                    let took = self.clock.now() - begun;
                    store.ended(&EndedRequest {
                        now: self.now(),
                        side: Side::Slow,
                        op: Op::Read,
                        purpose: Purpose::Joined,
                        len_bytes,
                        took_us: took.as_secs_f64() * 1e6,
                        before,
                    });
                    *joined = true;
                    return Ok(());
                }
                None
            }
            Some(ReadBy::Own(own)) => Some(own),
            None => None,
        };
        self.read_backend(Some(store), buffer, range)?;
        if let Some(own) = own {
            own.read(&buffer[..len_bytes as usize]);
        }
        Ok(())
    }

    /// Reads `range` into the start of `buffer`.
    pub(super) fn read_backend(
        &self,
        store: Option<&Arc<Store>>,
        buffer: &mut Buffer,
        range: Range<u64>,
    ) -> io::Result<()> {
        let len_bytes = range.end - range.start;
        let entered = self.gauge.enter(Way::Read, len_bytes);
        let begun = self.clock.now();
        let part = &mut buffer[..len_bytes as usize];
        self.seen(self.backend.read_exact_at(part, range.start, self.slow_via))?;
        let took = self.clock.now() - begun;
        self.meter.slow_latency.add(took);
        if let Some(store) = store {
            self.answered(store, (Side::Slow, Op::Read), &entered, took);
        }
        Ok(())
    }
}
