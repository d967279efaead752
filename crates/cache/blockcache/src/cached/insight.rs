//! The requests of operators to a cached backend at work: another policy, a shadow policy, figures, reasons, a
//! comparison of everything cached with the backend.
//!
//! Invariants
//! - Requests continue meanwhile, and no answer stops them.
//! - A comparison that a write has overtaken is void. Only a repair changes anything: it drops lines that differ, and slots
//!   whose bytes are not those that were written, and returns once that is durable.
//! - Another policy, or a shadow, changes no cached data.
//!
//! Leaves to others: the control socket (`control.rs`), and the shape of answers (`status.rs`).

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use longshore_io::{Buffer, Clock, File, Pool};
use longshore_policy::policy::Choice;
use serde::Serialize;

use super::shared::{CachedBackend, Settings, policy};
use crate::decisions::Decision;
use crate::directory::ServableLines;
use crate::geometry::{BUFFER_BYTES, LINE};
use crate::meter::{Counters, Meter, add};
use crate::shadow::{Comparison, Shadow, ShadowTotals};
use crate::store::Store;
use crate::tape::TapeExtract;
use crate::{ByteTrust, Error, Status};

/// The result of a comparison of everything cached with the backend, in lines of 4 KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// Lines that were compared.
    pub compared: u64,
    /// Of these, lines that differ from the backend.
    pub differing: u64,
    /// Lines that the cache device cannot read, or returns with other bytes than were written: not compared.
    #[serde(rename = "unreadable_lines")]
    pub unreadable: u64,
    /// Lines that a client wrote, or that were evicted, meanwhile: not judged.
    pub overtaken: u64,
}

impl Verification {
    fn add(&mut self, more: &Verification) {
        self.compared += more.compared;
        self.differing += more.differing;
        self.unreadable += more.unreadable;
        self.overtaken += more.overtaken;
    }
}

impl CachedBackend {
    /// Compares everything cached with the backend; with `repair`, drops the lines that differ, and takes slots out of use
    /// whose bytes are not those that were written. Requests continue meanwhile. Without `repair` nothing changes.
    ///
    /// Errors: `Detached`; `GivenUp` if the cache has failed, also meanwhile; `Ending`; `Io` if the backend cannot be read,
    /// or a repair cannot be recorded; `Memory`.
    pub fn verify(&self, repair: bool) -> Result<Verification, Error> {
        let store = self.shared.store();
        let store = store.as_ref().ok_or(Error::Detached)?;
        let pool =
            Pool::new(2, BUFFER_BYTES as usize).map_err(|source| Error::Memory { source })?;
        let none = || Error::Memory {
            source: io::ErrorKind::OutOfMemory.into(),
        };
        let mut buffers = [pool.take().ok_or_else(none)?, pool.take().ok_or_else(none)?];
        let mut total = Verification::default();
        let all = store.core().all();
        for slot in all.chunk_by(|a, b| a.slot == b.slot) {
            // Dropped together: a drop makes the slot's other findings out of date.
            let (mut wrong, mut rotten) = (Vec::new(), None);
            for found in slot {
                let judged = self.compare(store, found, &mut buffers)?;
                if judged.differing > 0 {
                    wrong.push(*found);
                }
                if judged.unreadable > 0 {
                    rotten = Some(found);
                }
                total.add(&judged);
            }
            match rotten {
                _ if !repair => {}
                Some(found) => store.core().retire(found, &store.journal),
                None => store.core().drop_lines(&wrong, &store.journal),
            }
        }
        if repair {
            store.settle_repair().map_err(|source| Error::Io {
                action: "record the repair in the guard of",
                path: "the backend".into(),
                source,
            })?;
        }
        add(&self.shared.meter.verify_differences, total.differing);
        add(&self.shared.meter.verify_unreadable, total.unreadable);
        match store.has_failed() {
            true => Err(Error::GivenUp),
            false => Ok(total),
        }
    }

    /// Compares lines of one slot with the backend.
    fn compare(
        &self,
        store: &Arc<Store>,
        found: &ServableLines,
        [held, truth]: &mut [Buffer; 2],
    ) -> Result<Verification, Error> {
        if self.shared.ending.load(SeqCst) {
            return Err(Error::Ending);
        }
        let start = found.piece.at(store.geometry);
        let range = start..start + found.piece.bytes();
        let len_bytes = found.piece.bytes() as usize;
        let trust = store.examine(found, &mut held[..len_bytes]);
        let read = self.shared.read_backend(Some(store), truth, range);
        read.map_err(|source| Error::Io {
            action: "read",
            path: "the backend".into(),
            source,
        })?;
        let mut judged = Verification::default();
        let mut unread: u64 = 0;
        for (number, line) in found.each_line().enumerate() {
            let part = number * LINE as usize..(number + 1) * LINE as usize;
            let is_read = trust == ByteTrust::Good
                || store.examine(&line, &mut held[part.clone()]) == ByteTrust::Good;
            match is_read {
                false => unread |= 1 << number,
                true => judged.differing += u64::from(held[part.clone()] != truth[part]),
            }
        }
        // A write since then invalidates the comparison.
        let lines = u64::from(found.piece.count);
        if !store.core().is_current(found) {
            return Ok(Verification {
                overtaken: lines,
                ..Verification::default()
            });
        }
        judged.unreadable = u64::from(unread.count_ones());
        judged.compared = lines - judged.unreadable;
        Ok(judged)
    }

    /// The ranges of the backend that are cached, in no order.
    pub fn held(&self) -> Vec<Range<u64>> {
        let store = self.shared.store();
        let Some(store) = store.as_ref() else {
            return Vec::new();
        };
        let all = store.core().all();
        let range = |found: &ServableLines| {
            let start = found.piece.at(store.geometry);
            start..start + found.piece.bytes()
        };
        all.iter().map(range).collect()
    }

    /// Sets another policy; cached data stays.
    pub fn set_policy(&self, choice: Choice) {
        // Not while a cache is being attached: it would keep the policy that it was made with.
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

    /// Starts another policy as a shadow that watches the requests, beginning with the cached data; `None` stops it.
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
            Shadow::new(
                choice,
                policy,
                held.into_iter(),
                ShadowTotals::of(&self.counters()),
            )
        });
        store.set_shadow(shadow);
        Ok(())
    }

    /// The shadow policy's decisions, compared with those that were made.
    pub fn shadow(&self) -> Option<Comparison> {
        let store = self.shared.store();
        let shadow = store.as_ref()?.state.shadow.lock();
        let now = ShadowTotals::of(&self.counters());
        shadow.as_ref().map(|shadow| shadow.comparison(now))
    }

    pub fn status(&self) -> Status {
        let store = self.shared.store();
        let store = store.as_ref().filter(|store| !store.was_detached());
        let (census, gauges) = store.map_or_else(Default::default, |store| store.census());
        Status::new(
            &self.shared.settings.lock().choice,
            self.shared.len_bytes,
            store,
            self.shared.gauge.load(),
            census,
            &gauges,
        )
    }

    pub fn counters(&self) -> Counters {
        self.shared.meter.read()
    }

    /// The last requests, newest first, and the reasons for their routes.
    pub fn why(&self, count: usize) -> Vec<Decision> {
        self.shared.diary.last(count)
    }

    /// Starts recording the clients' requests; returns the recording's number. It ends with the next recording, with
    /// [`CachedBackend::end_recording`], and if nobody has fetched from it for 10 s.
    pub fn record(&self) -> u64 {
        self.shared.tape.begin(self.shared.clock.now())
    }

    /// The requests recorded since the last call, as lines of a trace.
    ///
    /// Errors: `NotRecording`.
    pub fn recorded(&self, number: u64) -> Result<TapeExtract, Error> {
        let taken = self.shared.tape.take(number, self.shared.clock.now());
        taken.ok_or(Error::NotRecording)
    }

    pub fn end_recording(&self, number: u64) {
        self.shared.tape.end(number);
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

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.clock)
    }

    pub(crate) fn backend(&self) -> &Arc<dyn File> {
        &self.shared.backend
    }
}
