//! Timelines that part from the one that a recovery follows, and that have newer WAL.
//!
//! Recovery follows the latest timeline. That is right after a fail-over: the old primary's last WAL was written before the new
//! one opened. It is wrong if a copy was promoted and archived while its original ran on: then the lower timeline has
//! transactions that ended after the higher one began.
//!
//! Invariants
//! - A timeline on which nothing ended after the other began is never told: a fail-over, or a return to an earlier moment.
//! - A timeline whose transactions cannot be read is told, not skipped. So is one with a transaction in the very second in which the
//!   other began, if a checkpoint began it: a checkpoint tells its time in whole seconds.
//! - Headers and a few segments are read, never all WAL.
//!
//! Leaves to others: which timeline is followed (`replay.rs`), and refusing (the program).

use std::io;

use longshore_pg::wal::{History, Records, WalName, latest_end_within, opened};
use longshore_pg::{Lsn, Recovery, RecoveryTarget, SegmentName, Timeline, TimelineChoice};

use super::{Error, LogRange, WalArchive};

/// The most segments that are searched for a transaction.
const LOOK_MAX: u64 = 16;

/// Two timelines of which each has WAL that the other lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parting {
    /// The timeline that a recovery follows.
    pub followed: Timeline,
    /// The timeline that was left, and that has newer transactions.
    pub left: Timeline,
    /// The first LSN that is not on both.
    pub at: Lsn,
    /// The archive's ends on both.
    pub followed_end: Lsn,
    pub left_end: Lsn,
    /// When the followed one began; microseconds since 1970. `None`: that cannot be read.
    pub began_us: Option<i64>,
    /// When the last transaction on the left one ended. `None`: that cannot be read.
    pub left_us: Option<i64>,
}

impl WalArchive {
    /// The timeline that the latest one leaves although newer transactions ended there; `None`: following the latest one loses
    /// none of those. `log`: the backup's. A target on both timelines needs neither.
    ///
    /// Errors: those of [`WalArchive::runs`] and [`WalArchive::history`].
    pub fn parting(&self, log: &LogRange, recovery: &Recovery) -> Result<Option<Parting>, Error> {
        let Some(own) = Timeline::new(log.last_timeline) else {
            return Ok(None);
        };
        let last = Lsn(log.last_lsn);
        let way = self.way(TimelineChoice::Latest, own)?;
        let mut timelines: Vec<Timeline> =
            self.runs()?.iter().map(|r| r.span.last.timeline).collect();
        timelines.dedup();
        for left in timelines.into_iter().filter(|left| *left < way.timeline()) {
            let history = self.history(left)?;
            let Some((at, next)) = fork(&way, &history) else {
                continue;
            };
            let left_end = self.end(&history)?;
            // Of a timeline that the backup is not on nothing can be recovered with it.
            if !history.passes(own, last) || at < last || left_end <= at {
                continue;
            }
            if self.is_before(recovery, &history, (last, at))? {
                continue;
            }
            let began_us = self.began(next, at)?;
            let left_us = match self.ended(&history, at, left_end)? {
                Ended::At(us) => Some(us),
                Ended::None => continue,
                Ended::Unread => None,
            };
            if let (Some(began), Some(ended)) = (began_us, left_us)
                && ended <= began
            {
                continue;
            }
            return Ok(Some(Parting {
                followed: way.timeline(),
                left,
                at,
                followed_end: self.end(&way)?,
                left_end,
                began_us,
                left_us,
            }));
        }
        Ok(None)
    }

    /// The timeline that a recovery from this one follows, by the names of the histories alone.
    ///
    /// Errors: those of [`WalArchive::runs`].
    pub fn latest_after(&self, from: Timeline) -> Result<Timeline, Error> {
        let known = self.histories()?;
        let next = |at: &Timeline| Timeline::new(at.number().checked_add(1)?);
        let numbers = std::iter::successors(Some(from), next);
        let after = numbers.skip(1).take_while(|next| known.contains(next));
        Ok(after.last().unwrap_or(from))
    }

    /// Whether recovery ends on the WAL that both timelines have.
    fn is_before(
        &self,
        recovery: &Recovery,
        history: &History,
        (last, at): (Lsn, Lsn),
    ) -> Result<bool, Error> {
        Ok(match recovery.target {
            _ if recovery.standby => false,
            Some(RecoveryTarget::Immediate) => true,
            Some(RecoveryTarget::Lsn(lsn)) => lsn < at,
            Some(RecoveryTarget::Time(us)) => match self.ended(history, last, at)? {
                Ended::At(ended) => ended > us,
                Ended::None | Ended::Unread => false,
            },
            Some(RecoveryTarget::Xid(_) | RecoveryTarget::Name(_)) | None => false,
        })
    }

    /// The end of the last transaction of the WAL from `start` to `end` on `history`.
    fn ended(&self, history: &History, start: Lsn, end: Lsn) -> Result<Ended, Error> {
        let size = self.identified()?.segment_size.bytes();
        let Some(last) = end.0.checked_sub(1) else {
            return Ok(Ended::None);
        };
        let last = last / size * size;
        for at in (0..LOOK_MAX).map_while(|n| last.checked_sub(n * size)) {
            if at.saturating_add(size) <= start.0 {
                return Ok(Ended::None);
            }
            let to = Lsn(at.saturating_add(size)).min(end);
            let Ok(names) = self.segments(history, Lsn(at), to) else {
                return Ok(Ended::Unread);
            };
            let Some(records) = names.first().and_then(|name| self.records(*name, Lsn(at))) else {
                return Ok(Ended::Unread);
            };
            if let Some(us) = latest_end_within(records, start, to) {
                return Ok(Ended::At(us));
            }
        }
        Ok(Ended::Unread)
    }

    /// When a server opened on `timeline`, which begins at `at`.
    fn began(&self, timeline: Timeline, at: Lsn) -> Result<Option<i64>, Error> {
        let size = self.identified()?.segment_size;
        let name = SegmentName::holding(timeline, at, size);
        let records = self.records(name, name.start(size));
        Ok(records.and_then(|records| opened(records, at)))
    }

    /// The records of a segment that begins at `start`; `None` if it cannot be read.
    fn records(&self, name: SegmentName, start: Lsn) -> Option<Records<SegmentBytes<'_>>> {
        let size = self.identity()?.segment_size.bytes();
        let file = self.open_file(WalName::Segment(name)).ok()?;
        let read = move |lsn: Lsn, buf: &mut [u8]| match lsn.0.checked_sub(start.0) {
            Some(offset) if offset + buf.len() as u64 <= size => {
                file.read_at(buf, offset).map_err(io::Error::other)
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        let read: SegmentBytes<'_> = Box::new(read);
        Records::of_segment(read, start).ok()
    }
}

/// Reads a segment's bytes from an LSN on.
type SegmentBytes<'a> = Box<dyn FnMut(Lsn, &mut [u8]) -> io::Result<()> + 'a>;

/// The end of the last transaction of some WAL.
enum Ended {
    /// Microseconds since 1970.
    At(i64),
    /// No transaction ended.
    None,
    /// Segments are missing or cannot be read, or there are too many without one.
    Unread,
}

/// The first LSN that two histories do not have in common, and the first timeline of `way` that `left` does not have. `None` if
/// `way` has no timeline of its own, or both have nothing in common.
fn fork(way: &History, left: &History) -> Option<(Lsn, Timeline)> {
    let legs = |history: &History| -> Vec<(Timeline, Lsn)> {
        let forks = history.forks().iter().map(|fork| (fork.timeline, fork.end));
        let last = (history.timeline(), Lsn(u64::MAX));
        forks.chain([last]).collect()
    };
    let (way, left) = (legs(way), legs(left));
    let same = way
        .iter()
        .zip(&left)
        .take_while(|(one, other)| one == other);
    let same = same.count();
    let (one, other) = (way.get(same)?, left.get(same)?);
    match one.0 == other.0 {
        true => Some((one.1.min(other.1), way.get(same + 1)?.0)),
        false => Some((way.get(same.checked_sub(1)?)?.1, one.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(timeline: u32, text: &str) -> History {
        let timeline = Timeline::new(timeline).unwrap();
        match text {
            "" => History::first(timeline),
            text => History::parse(timeline, text.as_bytes()).unwrap(),
        }
    }

    #[test]
    fn two_histories_part_where_the_first_leaves_what_they_share() {
        let told =
            |way: &History, left: &History| fork(way, left).map(|(at, next)| (at.0, next.number()));
        let (one, two) = (history(1, ""), history(2, "1\t0/100\tx"));
        assert_eq!(told(&two, &one), Some((0x100, 2)));
        assert_eq!(told(&one, &two), None, "nothing of its own");
        // A fail-over to 3, after a copy was promoted to 2.
        let three = history(3, "1\t0/200\tx");
        assert_eq!(told(&three, &two), Some((0x100, 3)));
        assert_eq!(told(&history(4, "1\t0/100\tx"), &two), Some((0x100, 4)));
        let after = history(3, "1\t0/100\tx\n2\t0/300\tx");
        assert_eq!(told(&after, &two), Some((0x300, 3)));
        assert_eq!(told(&history(7, ""), &one), None, "nothing in common");
    }
}
