//! How far the archive lets a backup be replayed.

use longshore_pg::wal::History;
use longshore_pg::{Lsn, SegmentSize, Timeline, TimelineChoice};

use crate::chain::LogRange;
use crate::wal::{Error, Run, Span, WalArchive};

/// What the archive has for a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The timeline that is followed: the latest that comes from the backup.
    pub timeline: Timeline,
    /// Where the archive ends on the way there.
    pub end: Lsn,
    /// Missing between the backup's first and last place: without these it is worthless, unless it holds them itself.
    pub missing_to_consistency: Vec<Span>,
    /// Missing between the first place and the end: replay goes only up to the first of these.
    pub missing_to_end: Vec<Span>,
}

impl WalArchive {
    /// How far a backup that needs this log can be replayed. One that holds its own log (`included`) needs the archive
    /// only from the segment behind its last place on.
    ///
    /// Errors: as [`WalArchive::runs`] and [`WalArchive::history`].
    pub fn replay(&self, log: &LogRange, included: bool) -> Result<Option<Replay>, Error> {
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
            missing_to_consistency: self.missing(&history, from, last)?,
            missing_to_end: self.missing(&history, from, end.max(last))?,
        }))
    }

    /// Where the archive ends on the way of `history`; nothing of it is 0.
    ///
    /// Errors: as [`WalArchive::runs`].
    pub(crate) fn end(&self, history: &History) -> Result<Lsn, Error> {
        let size = self.identified()?.segment_size;
        Ok(end_of(&self.runs()?, history, size))
    }

    /// The way that a server takes which begins on this timeline. It finds the latest as PostgreSQL does: the next
    /// history, and the next, until there is none, whether or not they come from where it is.
    ///
    /// Errors: as [`WalArchive::history`].
    pub fn way(&self, choice: TimelineChoice, from: Timeline) -> Result<History, Error> {
        let latest = || -> Result<Timeline, Error> {
            let known = self.histories()?;
            let next = |at: &Timeline| Timeline::new(at.number().checked_add(1)?);
            let numbers = std::iter::successors(Some(from), next);
            let after = numbers.skip(1).take_while(|next| known.contains(next));
            Ok(after.last().unwrap_or(from))
        };
        self.history(match choice {
            TimelineChoice::Latest => latest()?,
            TimelineChoice::Current => from,
            TimelineChoice::Number(number) => number,
        })
    }

    /// The history of the latest timeline that comes from this place.
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
