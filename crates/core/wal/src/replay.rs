//! How far the archive allows a backup to be replayed, for reports about backups.
//!
//! Invariants
//! - A gap within the backup's own WAL, without which it is worthless, is told apart from one after it.
//! - Nothing is refused here.
//! - The latest timeline is found as PostgreSQL finds it: number by number, until a history file is missing. Later timelines
//!   that descend from a backup all the same are told, since a server does not come to them.
//!
//! Leaves to others: the proof before a restore (`proof.rs`).

use std::collections::BTreeSet;

use longshore_pg::wal::History;
use longshore_pg::{Lsn, SegmentSize, Timeline, TimelineChoice};

use super::doubt::Cut;
use super::{Error, LogRange, Lost, Run, Span, WalArchive};

/// The WAL that the archive has for a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The timeline that is followed: the latest that descends from the backup.
    pub timeline: Timeline,
    /// The end of the archive along that timeline's history.
    pub end: Lsn,
    /// Segments missing between the backup's first and last LSN: without them it is worthless, unless it holds them
    /// itself.
    pub missing_to_consistency: Vec<Span>,
    /// Segments missing between the first LSN and the end: replay stops before the first of these.
    pub missing_to_end: Vec<Span>,
    /// Why a server does not come to [`Replay::timeline`] of itself.
    pub cut: Option<Cut>,
}

impl WalArchive {
    /// The latest timeline that descends from this LSN and to which a recovery from `timeline` does not come of itself.
    ///
    /// Errors: those of [`WalArchive::runs`] and [`WalArchive::history`].
    pub fn cut(&self, timeline: Timeline, from: Lsn) -> Result<Option<Cut>, Error> {
        let reached = self.latest_after(timeline)?;
        let known: BTreeSet<Timeline> = self.histories()?.into_iter().collect();
        let runs = self.runs()?;
        let archived = runs.iter().map(|run| run.span.last.timeline);
        let all: BTreeSet<Timeline> = known.iter().copied().chain(archived).collect();
        for beyond in all.into_iter().rev().take_while(|later| *later > reached) {
            // Where a timeline comes from that has no history cannot be told.
            let descends = match known.contains(&beyond) {
                true => self.history(beyond)?.passes(timeline, from),
                false => true,
            };
            let missing = Timeline::new(reached.number().saturating_add(1));
            if let Some(missing) = missing.filter(|_| descends) {
                return Ok(Some(Cut {
                    reached,
                    missing,
                    beyond,
                }));
            }
        }
        Ok(None)
    }

    /// How far a backup that needs this WAL can be replayed. A backup that holds its own WAL (`included`) needs the
    /// archive only from the segment after its last LSN on.
    ///
    /// Errors: those of [`WalArchive::runs`] and [`WalArchive::history`].
    pub fn replay(&self, log: &LogRange, included: bool) -> Result<Option<Replay>, Error> {
        self.replay_without(log, included, &Lost::default())
    }

    /// [`WalArchive::replay`], where lost segments count as missing.
    ///
    /// Errors: those of [`WalArchive::runs`] and [`WalArchive::history`].
    pub fn replay_without(
        &self,
        log: &LogRange,
        included: bool,
        lost: &Lost,
    ) -> Result<Option<Replay>, Error> {
        let (Some(identity), Some(first)) = (self.identity(), Timeline::new(log.first_timeline))
        else {
            return Ok(None);
        };
        let history = self.followed(first, Lsn(log.first_lsn.max(log.last_lsn)))?;
        let end = self.end(&history)?;
        let last = Lsn(log.last_lsn);
        let size = identity.segment_size.bytes();
        let from = match included {
            true => Lsn(last.0.div_ceil(size).saturating_mul(size)),
            false => Lsn(log.first_lsn),
        };
        Ok(Some(Replay {
            timeline: history.timeline(),
            end,
            missing_to_consistency: self.missing_or_lost(&history, (from, last), lost)?,
            missing_to_end: self.missing_or_lost(&history, (from, end.max(last)), lost)?,
            cut: self.cut(first, last.max(Lsn(log.first_lsn)))?,
        }))
    }

    /// The end of the archive along `history`; 0 if it has nothing of it.
    ///
    /// Errors: those of [`WalArchive::runs`].
    pub(crate) fn end(&self, history: &History) -> Result<Lsn, Error> {
        let size = self.identified()?.segment_size;
        Ok(end_of(&self.runs()?, history, size))
    }

    /// The history that a server follows from this timeline. It finds the latest timeline as PostgreSQL does: the next
    /// history file, and the next, until there is none, whether or not they descend from the present timeline.
    ///
    /// Errors: those of [`WalArchive::history`].
    pub fn way(&self, choice: TimelineChoice, from: Timeline) -> Result<History, Error> {
        self.history(match choice {
            TimelineChoice::Plain | TimelineChoice::Latest => self.latest_after(from)?,
            TimelineChoice::Current => from,
            TimelineChoice::Number(number) => number,
        })
    }

    /// The history of the latest timeline that descends from this LSN.
    fn followed(&self, timeline: Timeline, from: Lsn) -> Result<History, Error> {
        for later in self.histories()?.into_iter().rev() {
            if later <= timeline {
                break;
            }
            let history = self.history(later)?;
            if history.passes(timeline, from) {
                return Ok(history);
            }
        }
        self.history(timeline)
    }
}

fn end_of(runs: &[Run], history: &History, size: SegmentSize) -> Lsn {
    let on_the_way = |run: &&Run| {
        let timeline = run.span.last.timeline;
        timeline == history.timeline() || history.end_of(timeline).is_some()
    };
    let end = |run: &Run| {
        let end = run.span.last.start(size).0.saturating_add(size.bytes());
        match history.end_of(run.span.last.timeline) {
            Some(left) => end.min(left.0),
            None => end,
        }
    };
    Lsn(runs.iter().filter(on_the_way).map(end).max().unwrap_or(0))
}
