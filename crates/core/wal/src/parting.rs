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
//! - A target time before the followed timeline began is told, too, if the left one has a transaction up to it: the database had
//!   that then.
//! - With a backup that was made behind the parting, a timeline that was left is told only if a transaction ended there after the
//!   backup was complete: older ones were given up before it.
//! - Headers and a few segments are read, never all WAL.
//!
//! Leaves to others: which timeline is followed (`replay.rs`), and refusing (the program).

use std::io;

use longshore_pg::wal::{History, Records, WalName, first_end_within, latest_end_within, opened};
use longshore_pg::{Lsn, Recovery, RecoveryTarget, SegmentName, Timeline, TimelineChoice};

use super::doubt::Parting;
use super::{Error, LogRange, WalArchive};

/// The most segments that are searched for a transaction.
const LOOK_MAX: u64 = 16;

impl WalArchive {
    /// Refuses the latest timeline, where nobody has named it, if it leaves one with newer transactions, as a copy does that was
    /// promoted and archives; and if the way to a later one is cut. `log`: the backup's, which was complete at `complete_us`, in
    /// microseconds since 1970.
    ///
    /// Errors: `Parted`, `Cut`; those of [`WalArchive::runs`] and [`WalArchive::history`].
    pub fn check_plain(
        &self,
        log: &LogRange,
        complete_us: i64,
        recovery: &Recovery,
    ) -> Result<(), Error> {
        let Some(timeline) = Timeline::new(log.last_timeline) else {
            return Ok(());
        };
        if recovery.timeline != TimelineChoice::Plain {
            return Ok(());
        }
        let archive = self.path().to_owned();
        if recovery.target != Some(RecoveryTarget::Immediate)
            && let Some(cut) = self.cut(timeline, Lsn(log.last_lsn))?
        {
            return Err(Error::Cut { archive, cut });
        }
        match self.parting(log, complete_us, recovery)? {
            None => Ok(()),
            Some(parting) => Err(Error::Parted { archive, parting }),
        }
    }

    /// The timeline that the latest one leaves although newer transactions ended there; `None`: following the latest one loses
    /// none of those. `log`: the backup's, which was complete at `complete_us`, in microseconds since 1970. A target on both
    /// timelines needs neither.
    ///
    /// Errors: those of [`WalArchive::runs`] and [`WalArchive::history`].
    pub fn parting(
        &self,
        log: &LogRange,
        complete_us: i64,
        recovery: &Recovery,
    ) -> Result<Option<Parting>, Error> {
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
            if left_end <= at {
                continue;
            }
            if !history.passes(own, last) || at < last {
                // Nothing of that timeline can be recovered with this backup: another one is needed, if it is the right one.
                let is_newer = match self.ended(&history, at, left_end)? {
                    Ended::At(us) => us > complete_us,
                    Ended::None | Ended::Unread => false,
                };
                if !is_newer || recovery.target == Some(RecoveryTarget::Immediate) {
                    continue;
                }
            } else if self.is_before(recovery, &history, (last, at))? {
                continue;
            }
            let began_us = self.began(next, at)?;
            let left_us = match self.ended(&history, at, left_end)? {
                Ended::At(us) => Some(us),
                Ended::None => continue,
                Ended::Unread => None,
            };
            let is_between = match (&recovery.target, began_us) {
                // Before the followed one began: what the left one has up to then was there at that time.
                (Some(RecoveryTarget::Time(us)), Some(began)) if *us < began => {
                    let first = self.first_ended(&history, at, left_end)?;
                    first.is_some_and(|first| first <= *us)
                }
                _ => false,
            };
            if let (Some(began), Some(ended)) = (began_us, left_us)
                && ended <= began
                && !is_between
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

    /// The end of the first transaction of the WAL from `start` to `end` on `history`; `None` if none is found, or it cannot be read.
    fn first_ended(&self, history: &History, start: Lsn, end: Lsn) -> Result<Option<i64>, Error> {
        let size = self.identified()?.segment_size.bytes();
        let first = start.0 / size * size;
        for at in (0..LOOK_MAX).map(|n| first.saturating_add(n * size)) {
            if at >= end.0 {
                break;
            }
            let to = Lsn(at.saturating_add(size)).min(end);
            let Ok(names) = self.segments(history, Lsn(at), to) else {
                break;
            };
            let Some(records) = names.first().and_then(|name| self.records(*name, Lsn(at))) else {
                break;
            };
            if let Some(us) = first_end_within(records, start, to) {
                return Ok(Some(us));
            }
        }
        Ok(None)
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
