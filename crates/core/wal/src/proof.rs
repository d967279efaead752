//! Proves, before a restore writes anything, that the archive has the WAL that its recovery needs.
//!
//! The proof has two parts: no segment is missing between the backup and the recovery target, and each segment continues
//! the one before it. WAL that replay certainly needs must be there, else the proof fails with the name of the gap. WAL
//! that replay may or may not reach (a target time, transaction or restore point has no known LSN) only causes a
//! warning.
//!
//! The time of the last transaction in the archive decides whether a target time is reached. That causes only a warning,
//! too: a clock that was set back makes such times unreliable.
//!
//! The proof reads headers and a few last segments, never all WAL.
//!
//! Invariants
//! - Nothing is written, neither to the archive nor to the target.
//! - A gap or a broken link before [`Reach::certain`] is an error. After it, up to [`Reach::possible`], it is in the
//!   result for a warning.
//! - The archive must be of the backup's own cluster, and the history that is followed must pass through the backup's
//!   end.
//!
//! Leaves to others: finding and opening segments (`archive.rs`, `read.rs`); comparing two segments (`links.rs`); which
//! targets a recovery can have (`longshore-pg`); acting on a warning (`longshore-pipeline`).

use std::io;

use longshore_pg::lineage::WitnessResult;
use longshore_pg::wal::{History, Records, WalName, latest_end};
use longshore_pg::{
    Lsn, Recovery, RecoveryTarget, SegmentName, Timeline, TimelineChoice, Witness, recovery,
};

use super::{Error, LogRange, Span, WalArchive};

/// How far a recovery replays, as two LSNs: the proof fails on a gap before the first and warns about one before the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Replay certainly reaches this LSN. The highest [`Lsn`]: the archive's end.
    pub certain: Lsn,
    /// Replay certainly stops at this LSN or before it.
    pub possible: Lsn,
}

impl Reach {
    /// The reach of a recovery from one backup that is consistent at `last`, without knowledge of later backups.
    pub fn of(target: Option<&RecoveryTarget>, last: Lsn) -> Reach {
        let to_end = Lsn(u64::MAX);
        match target {
            None => Reach {
                certain: to_end,
                possible: to_end,
            },
            Some(RecoveryTarget::Immediate) => Reach {
                certain: last,
                possible: last,
            },
            // Replay ends at the first record that begins at this LSN or later.
            Some(RecoveryTarget::Lsn(lsn)) => Reach {
                certain: Lsn(lsn.0.saturating_add(1)),
                possible: Lsn(lsn.0.saturating_add(1)),
            },
            Some(RecoveryTarget::Time(_) | RecoveryTarget::Xid(_) | RecoveryTarget::Name(_)) => {
                Reach {
                    certain: last,
                    possible: to_end,
                }
            }
        }
    }
}

/// The WAL that a recovery replays.
struct Course {
    history: History,
    /// Where the backup ends.
    timeline: Timeline,
    last: Lsn,
    /// The end of the segment that holds the backup's end.
    segment_end: Lsn,
    /// The first LSN whose WAL the archive must have.
    from: Lsn,
    /// Recovery certainly reaches this LSN…
    known: Lsn,
    /// …and possibly this one.
    possible: Lsn,
    /// The end of the archive, or of the backup if that is later.
    end: Lsn,
}

impl Course {
    /// Where the WAL begins that recovery may or may not reach.
    fn known_from(&self) -> Lsn {
        self.known.max(self.from)
    }
}

impl WalArchive {
    /// Reads WAL of a timeline, for comparisons.
    pub fn wal_reader(&self) -> impl FnMut(Timeline, Lsn, &mut [u8]) -> io::Result<()> + use<'_> {
        move |timeline, at, buf| {
            let Some(identity) = self.identity() else {
                return Err(io::ErrorKind::NotFound.into());
            };
            let size = identity.segment_size;
            let mut done = 0;
            while done < buf.len() {
                let lsn = Lsn(at.0 + done as u64);
                let within = lsn.0 % size.bytes();
                let len = (size.bytes() - within).min((buf.len() - done) as u64) as usize;
                let name = SegmentName::holding(timeline, lsn, size);
                let file = self.open_file(WalName::Segment(name));
                let file = file.map_err(|e| match e {
                    Error::Missing { .. } => io::ErrorKind::NotFound.into(),
                    e => io::Error::other(e),
                })?;
                file.read_at(&mut buf[done..done + len], within)
                    .map_err(io::Error::other)?;
                done += len;
            }
            Ok(())
        }
    }

    /// Refuses an archive that has another branch's WAL at the LSN of a backup's witness. An archive without WAL at that
    /// LSN passes: [`WalArchive::prove`] finds out whether a recovery needs it.
    ///
    /// Errors: `NotTheBackups`.
    pub fn check_witness(&self, witness: Option<&Witness>) -> Result<(), Error> {
        let (Some(witness), Some(identity)) = (witness, self.identity()) else {
            return Ok(());
        };
        match witness.check(self.wal_reader()) {
            WitnessResult::Same | WitnessResult::Gone | WitnessResult::Unreadable(_) => Ok(()),
            WitnessResult::Other => Err(Error::NotTheBackups {
                archive: self.path().to_owned(),
                name: SegmentName::holding(witness.timeline, witness.start, identity.segment_size),
            }),
        }
    }

    /// Proves that the archive has the WAL from a backup to the LSN that its recovery certainly reaches. The result names
    /// gaps after that LSN, which the recovery may or may not reach.
    ///
    /// `included`: the set contains the WAL up to its last LSN. A primary's set holds that whole segment; a standby's does
    /// not, so replay reads the segment from the archive. A set does not say which of the two made it, so a gap there only
    /// causes a warning.
    ///
    /// The segments must also continue each other. The check begins with the first segment that the archive has of the
    /// set's own WAL: a server asks the archive before it uses the copy in the set.
    ///
    /// Errors: `ReplayGap`, `EndsBefore`, `OtherWay`, `OtherCluster`, `BrokenLink`, and as [`WalArchive::runs`] and
    /// [`WalArchive::history`].
    pub fn prove(
        &self,
        log: &LogRange,
        included: bool,
        recovery: &Recovery,
        reach: Reach,
    ) -> Result<ProvenLog, Error> {
        let course = self.course(log, included, recovery, reach)?;
        let Course {
            history,
            last,
            segment_end,
            known,
            possible,
            end,
            ..
        } = &course;
        self.check_complete(history, course.from, *known)?;
        if included {
            self.check_own(history, Lsn(log.first_lsn), *segment_end, *known)?;
        }
        let (doubtful, broken) = self.doubts(&course)?;
        let in_part = match included && known.max(possible) > last {
            true => self.missing(history, *last, *segment_end)?,
            false => Vec::new(),
        };
        let not_reached = self.time_not_reached(recovery, history, *known, *end);
        let instead = match not_reached {
            Some(_) => self.own_timeline_reaches(recovery, &course)?,
            None => None,
        };
        let read_ahead = recovery.target.is_some() && !recovery.standby;
        let is_doubted = !doubtful.is_empty() || broken.is_some();
        let not_ahead = read_ahead
            && (is_doubted || !self.answers_ahead(history, course.known_from(), *end)?);
        Ok(ProvenLog {
            timeline: history.timeline(),
            end: *end,
            not_ahead,
            doubtful: texts(&doubtful),
            broken,
            in_part: texts(&in_part),
            not_reached,
            instead,
        })
    }

    /// The WAL that a recovery replays, as far as the archive goes.
    ///
    /// Errors: `EndsBefore`, `OtherWay`, `OtherCluster`, and as [`WalArchive::history`].
    fn course(
        &self,
        log: &LogRange,
        included: bool,
        recovery: &Recovery,
        reach: Reach,
    ) -> Result<Course, Error> {
        let identity = self.identified()?;
        if identity.system != log.system {
            return Err(Error::OtherCluster {
                path: "the backup".into(),
                archive: self.path().to_owned(),
                expected: identity.system,
                found: log.system,
            });
        }
        let (timeline, last) = log.last();
        let history = self.history_through(recovery.timeline, timeline, last)?;
        let size = identity.segment_size.bytes();
        let segment_end = Lsn(last.0.div_ceil(size).saturating_mul(size));
        let from = match included {
            true => segment_end,
            false => Lsn(log.first_lsn),
        };
        let end = self.end(&history)?.max(last);
        // A standby waits for WAL that the archive does not have yet, or streams it.
        let certain = match recovery.standby {
            true => last,
            false => reach.certain,
        };
        if certain > end && certain != Lsn(u64::MAX) {
            return Err(Error::EndsBefore {
                archive: self.path().to_owned(),
                end,
                target: certain,
            });
        }
        Ok(Course {
            history,
            timeline,
            last,
            segment_end,
            from,
            known: certain.min(end),
            possible: reach.possible.min(end),
            end,
        })
    }

    /// The gaps after the LSN that the recovery certainly reaches; if there are none, the first segment there that does
    /// not continue the one before, as text.
    fn doubts(&self, course: &Course) -> Result<(Vec<Span>, Option<String>), Error> {
        let (from, to) = (course.known_from(), course.possible);
        let doubtful = self.missing(&course.history, from, to)?;
        let broken = match doubtful.is_empty() {
            true => self.first_broken(&course.history, from.min(to), to)?,
            false => None,
        };
        Ok((doubtful, broken))
    }

    /// The history that recovery follows, which must pass through the backup's end.
    ///
    /// Errors: `OtherWay`; those of [`WalArchive::history`].
    fn history_through(
        &self,
        choice: TimelineChoice,
        timeline: Timeline,
        last: Lsn,
    ) -> Result<History, Error> {
        let history = self.way(choice, timeline)?;
        match history.passes(timeline, last) {
            true => Ok(history),
            false => Err(Error::OtherWay {
                archive: self.path().to_owned(),
                timeline,
                last,
                followed: history.timeline(),
            }),
        }
    }

    /// Refuses a gap, and segments that do not continue one another.
    ///
    /// Errors: `ReplayGap`, `BrokenLink`, and as [`WalArchive::check_links`].
    fn check_complete(&self, history: &History, from: Lsn, to: Lsn) -> Result<(), Error> {
        let missing = self.missing(history, from, to)?;
        match missing.is_empty() {
            true => self.check_links(history, from, to),
            false => Err(Error::ReplayGap {
                archive: self.path().to_owned(),
                missing: texts(&missing),
            }),
        }
    }

    /// The first segment that does not continue the one before, as text. A segment that was removed meanwhile is none.
    fn first_broken(&self, history: &History, from: Lsn, to: Lsn) -> Result<Option<String>, Error> {
        match self.check_links(history, from, to) {
            Err(broken @ Error::BrokenLink { .. }) => Ok(Some(broken.to_string())),
            Err(Error::Missing { .. }) | Ok(()) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The last commit of the WAL, if recovery wants a later time and would wait for it in vain.
    fn time_not_reached(
        &self,
        recovery: &Recovery,
        history: &History,
        known: Lsn,
        end: Lsn,
    ) -> Option<LastEnd> {
        let us = time_wanted(recovery)?;
        let last_end = self.last_end(history, known, end)?;
        (!last_end.reaches(us, recovery.exclusive)).then_some(last_end)
    }

    /// The backup's own timeline, if another is followed and its WAL reaches the time that the one followed does not.
    fn own_timeline_reaches(
        &self,
        recovery: &Recovery,
        course: &Course,
    ) -> Result<Option<Timeline>, Error> {
        let (timeline, last) = (course.timeline, course.last);
        let wanted = time_wanted(recovery).filter(|_| course.history.timeline() != timeline);
        let Some(us) = wanted else {
            return Ok(None);
        };
        let own = self.way(TimelineChoice::Current, timeline)?;
        let last_end = self.last_end(&own, last, self.end(&own)?);
        let reaches = last_end.is_some_and(|end| end.reaches(us, recovery.exclusive));
        Ok(reaches.then_some(timeline))
    }

    /// Whether a server whose replay reads ahead of `from` gets every segment that it may ask for. A missing segment counts
    /// anywhere before the archive's end, because the distance of the server's reads is not known. A damaged or unconnected
    /// segment counts only if it is the next one.
    ///
    /// Errors: `NothingYet`, `Io`.
    fn answers_ahead(&self, history: &History, from: Lsn, end: Lsn) -> Result<bool, Error> {
        let size = self.identified()?.segment_size.bytes();
        if !self.missing(history, from, end)?.is_empty() {
            return Ok(false);
        }
        let last = Lsn(from.0.saturating_sub(1));
        let next = Lsn(from.0.div_ceil(size).saturating_mul(size));
        let to = Lsn(next.0.saturating_add(size)).min(end);
        if to <= next {
            return Ok(true);
        }
        let follows = match self.check_links(history, last, to) {
            // The segment that ends at `next` may be in the backup only.
            Ok(()) | Err(Error::Missing { .. }) => true,
            Err(_) => false,
        };
        let mut names = self.segments(history, next, to)?.into_iter();
        Ok(follows && names.all(|name| self.crc_of(name, size).is_ok()))
    }

    /// Checks the archive's copies of the WAL that the set contains: they must continue into the WAL after `segment_end`,
    /// because a server replays them instead of the set's.
    fn check_own(
        &self,
        history: &History,
        first: Lsn,
        segment_end: Lsn,
        known: Lsn,
    ) -> Result<(), Error> {
        let size = self.identified()?.segment_size.bytes();
        let missing = self.missing(history, first, segment_end)?;
        // The check begins after the last missing segment.
        let from = missing.iter().map(|span| {
            let last = span.last.start(self.identified()?.segment_size);
            Ok(Lsn(last.0.saturating_add(size)))
        });
        let from = from.collect::<Result<Vec<Lsn>, Error>>()?;
        let from = from.into_iter().max().unwrap_or(first);
        // One segment more than the set's own, if the archive has it: the border between the two must fit.
        let to = Lsn(segment_end.0.saturating_add(size)).min(known.max(segment_end));
        match from < to {
            true => self.check_links(history, from, to),
            false => Ok(()),
        }
    }

    /// When the last transaction of the WAL from `start` to `end` ended, on the timelines of `history`. `None`: the last
    /// 16 segments contain no end of a transaction, or one of them cannot be read.
    pub fn last_end(&self, history: &History, start: Lsn, end: Lsn) -> Option<LastEnd> {
        let size = self.identified().ok()?.segment_size;
        let last = Lsn(end.0.checked_sub(1)? / size.bytes() * size.bytes());
        let starts = (0..LOOK_MAX).map_while(|n| last.0.checked_sub(n * size.bytes()));
        for at in starts.map(Lsn) {
            if at.0.saturating_add(size.bytes()) <= start.0 {
                return Some(LastEnd::None);
            }
            let segment_end = Lsn(at.0.saturating_add(size.bytes())).min(end);
            let name = *self.segments(history, at, segment_end).ok()?.first()?;
            let file = self.open_file(WalName::Segment(name)).ok()?;
            let read = |lsn: Lsn, buf: &mut [u8]| match lsn.0.checked_sub(at.0) {
                Some(offset) if offset + buf.len() as u64 <= size.bytes() => {
                    file.read_at(buf, offset).map_err(io::Error::other)
                }
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            };
            if let Some(moment) = latest_end(Records::of_segment(read, at).ok()?) {
                return Some(LastEnd::At(moment));
            }
        }
        None
    }
}

/// The most segments at the end of the WAL that are searched for the last transaction. One is nearly always in the
/// last; the bound keeps the proof from reading an archive of hours without a commit.
const LOOK_MAX: u64 = 16;

/// When the last transaction of a range of WAL ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastEnd {
    /// Microseconds since 1970.
    At(i64),
    /// The range contains no end of a transaction.
    None,
}

impl LastEnd {
    /// Whether this transaction ends a recovery to the moment `us`: replay stops before the first transaction that ended
    /// after the moment, or with `exclusive` exactly at it.
    fn reaches(self, us: i64, exclusive: bool) -> bool {
        match self {
            LastEnd::None => false,
            LastEnd::At(moment) => moment > us || (exclusive && moment == us),
        }
    }
}

fn texts(spans: &[Span]) -> String {
    let texts: Vec<String> = spans.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// The result of a proof: which WAL the archive has for a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenLog {
    /// The timeline that the recovery follows.
    pub timeline: Timeline,
    /// The archive's end on this timeline and its ancestors.
    pub end: Lsn,
    /// Whether replay must not read ahead: it could ask for a segment after its target that the archive must refuse.
    pub not_ahead: bool,
    /// Missing segments that the target may be in or after; empty: none.
    pub doubtful: String,
    /// A segment that does not continue the one before it, at an LSN that the recovery may or may not reach.
    pub broken: Option<String>,
    /// The segment in which a set with its own WAL ends, if replay may continue after it and the archive lacks it.
    pub in_part: String,
    /// The last transaction in the archive, if it ended before the target time.
    pub not_reached: Option<LastEnd>,
    /// The backup's own timeline, if it reaches the target time and the recovery follows another timeline.
    pub instead: Option<Timeline>,
}

impl ProvenLog {
    /// What the operator must know before the server starts; `None`: nothing.
    pub fn warning(&self) -> Option<String> {
        let mut texts = Vec::new();
        if !self.in_part.is_empty() {
            texts.push(format!(
                "the archive lacks {}, in which the backup ends: recovery crosses it if the backup was made from a primary, whose backups \
                 have the whole segment, and does not start if it was made from a standby",
                self.in_part
            ));
        }
        if !self.doubtful.is_empty() {
            texts.push(format!(
                "the archive lacks {}: recovery to a later target stops there",
                self.doubtful
            ));
        }
        if let Some(broken) = &self.broken {
            texts.push(format!("{broken}: recovery to a later target stops there"));
        }
        if let Some(last_end) = self.not_reached {
            let ends = match last_end {
                LastEnd::At(moment) => {
                    format!("with a transaction of {}", recovery::time(moment))
                }
                LastEnd::None => "without a transaction after the backup".to_owned(),
            };
            let advice = match self.instead {
                Some(own) => format!(
                    "Recovery follows the latest timeline, {}, perhaps a restored copy's; if the target is on the backup's own timeline, use \
                     --target-timeline {own}",
                    self.timeline
                ),
                None => "If the original still runs, let it archive the rest (select pg_switch_wal()); otherwise recover \
                         to the end, without a target"
                    .to_owned(),
            };
            texts.push(format!(
                "the archive ends {ends}, before the target: a server that does not reach its target ends recovery with an error. \
                 {advice}"
            ));
        }
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// The time at which recovery is to end. A standby goes on.
fn time_wanted(recovery: &Recovery) -> Option<i64> {
    match (&recovery.target, recovery.standby) {
        (Some(RecoveryTarget::Time(us)), false) => Some(*us),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_at_the_very_moment_ends_only_a_recovery_that_excludes_it() {
        for (moment, included, excluded) in
            [(99, false, false), (100, false, true), (101, true, true)]
        {
            let end = LastEnd::At(moment);
            assert_eq!(
                (end.reaches(100, false), end.reaches(100, true)),
                (included, excluded),
                "{moment}"
            );
        }
        assert!(!LastEnd::None.reaches(i64::MIN, true));
    }
}
