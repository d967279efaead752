//! The requests of operators to a cached backend at work: another policy, a shadow policy, figures, reasons, a
//! comparison of everything cached with the backend.
//!
//! Invariants
//! - Requests continue meanwhile, and no answer stops them.
//! - A comparison that a write has overtaken is void and counts for nothing. Only a repair drops lines, and only those
//!   that differ.
//! - Another policy, or a shadow, changes no cached data.
//!
//! Leaves to others: the control socket (`control.rs`), and the shape of answers (`status.rs`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use longshore_io::{Clock, File, Pool};
use longshore_policy::policy::Choice;

use super::shared::{CachedBackend, Settings, policy};
use crate::decisions::Decision;
use crate::directory::ServableLines;
use crate::geometry::{BUFFER_BYTES, LINE};
use crate::meter::{Counters, Meter, add};
use crate::shadow::{Comparison, Shadow, ShadowTotals};
use crate::tape::TapeExtract;
use crate::{ByteTrust, Error, Status};

impl CachedBackend {
    /// Compares everything cached with the backend; with `repair`, drops the lines that differ. Requests continue
    /// meanwhile. Returns how many lines were compared, and how many differ.
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
        for slot in all.chunk_by(|a, b| a.slot == b.slot) {
            // Dropped together: a drop makes the slot's other findings out of date.
            let mut wrong = Vec::new();
            for found in slot {
                if self.shared.ending.load(SeqCst) {
                    return Err(Error::Ending);
                }
                let piece = found.piece;
                let start = piece.at(store.geometry);
                let len_bytes = piece.bytes() as usize;
                if store.read(&[*found], &mut held[..len_bytes]) != ByteTrust::Good {
                    continue;
                }
                let range = start..start + piece.bytes();
                let read = self.shared.read_backend(Some(store), &mut truth, range);
                read.map_err(failed)?;
                // A write since then invalidates the comparison.
                if !store.core().is_current(found) {
                    continue;
                }
                compared += u64::from(piece.count);
                let pairs = held[..len_bytes]
                    .chunks(LINE as usize)
                    .zip(truth[..len_bytes].chunks(LINE as usize));
                let differ = pairs.filter(|(a, b)| a != b).count() as u64;
                differing += differ;
                if differ > 0 {
                    wrong.push(*found);
                }
            }
            if repair {
                store.core().drop_lines(&wrong, &store.journal);
            }
        }
        add(&self.shared.meter.verify_differences, differing);
        Ok((compared, differing))
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
