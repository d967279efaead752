//! The results of earlier runs that `verify --all` believes, and those that it records for later ones.
//!
//! Invariants
//! - Records take a twentieth of the time at most; what the last one lacks is written at the end. Results that could not be
//!   written stay for the next record.
//! - The results that other hosts record meanwhile stay, and so do failures after the run began.
//!
//! Leaves to others: the form of records (`longshore_repository::status`).

use std::sync::Arc;
use std::time::Duration;

use longshore_io::Clock;
use longshore_repository::status::{FailedRun, GoodRun, LabelsThen, News, Task, Witnessed};
use longshore_repository::{Listing, Shelf};

use super::super::recording::{Recorder, now_us};
use crate::context::Context;

/// Records take one part in so many of the time.
const RECORD_SHARE: u32 = 20;

/// Writes results to the target's record, not more often than that is cheap.
pub(super) struct Ledger<'a> {
    recorder: Option<Recorder<'a>>,
    clock: Arc<dyn Clock>,
    began_us: i64,
    news: News,
    /// When the next record may be written.
    due: Duration,
}

impl<'a> Ledger<'a> {
    pub(super) fn new(context: &'a Context, shelf: &'a Shelf) -> Ledger<'a> {
        Ledger {
            recorder: Recorder::new(context, shelf, Task::Verify),
            clock: context.clock.clone(),
            began_us: now_us(context),
            news: News::default(),
            due: Duration::ZERO,
        }
    }

    /// All labels at the place: earlier results for others are left out from now on.
    pub(super) fn know(&mut self, listing: &Listing) {
        self.news.labels = Some(LabelsThen {
            labels: listing.sets.iter().map(|set| set.label.clone()).collect(),
            at_us: listing.at_us,
        });
    }

    /// Writes what is not recorded yet. `is_whole`: no backup was left. `has_wal`: all WAL was read or known, too.
    pub(super) fn end(&mut self, failed: Option<FailedRun>, is_whole: bool, has_wal: bool) {
        let is_good = is_whole && failed.is_none();
        self.news.good = is_good.then(|| GoodRun {
            by: self.now(),
            began_us: self.began_us,
            backups: None,
            wal: has_wal,
            to: None,
        });
        self.news.failed = failed;
        self.write();
    }

    pub(super) fn add(&mut self, add: impl FnOnce(&mut News)) {
        add(&mut self.news);
        if self.clock.now() >= self.due {
            self.write();
        }
    }

    fn write(&mut self) {
        let began = self.clock.now();
        let recorder = self.recorder.as_ref();
        let is_done = recorder.is_none_or(|recorder| recorder.record(&self.news));
        let now = self.clock.now();
        self.due = now + (now - began) * RECORD_SHARE;
        if is_done {
            self.news.sets.clear();
            self.news.wal.clear();
            self.news.unsound.clear();
        }
    }

    pub(super) fn now(&self) -> Witnessed {
        Witnessed::now(Clock::wall_ns(&*self.clock) / 1000)
    }
}

/// The rule by which an earlier result is believed.
#[derive(Clone, Copy)]
pub(super) struct Trust {
    pub(super) again: bool,
    pub(super) older_than_us: Option<i64>,
    pub(super) now_us: i64,
}

impl Trust {
    pub(super) fn in_result(&self, by: &Witnessed) -> bool {
        let age_us = self.now_us.saturating_sub(by.at_us);
        !self.again && self.older_than_us.is_none_or(|limit| age_us <= limit)
    }
}
