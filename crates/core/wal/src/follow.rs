//! Second archives that pushes keep close to the end of the first: WAL leaves the machine within seconds, and not with the
//! next run of a timer.
//!
//! A push stores its file in the first archive and then starts a process that copies the end of that archive to the others.
//! So a store that is slow or away delays no push. A note in `pg_wal/longshore/behind` says from where on each of them may lack WAL.
//!
//! Invariants
//! - WAL is copied as `copy.rs` copies it: another branch's is refused, and an interruption leaves no gap.
//! - A second archive's note names a segment before which it lacks nothing that was archived since the note was begun:
//!   segments are archived side by side, so it stays before the first one that the server still waits for. A note that is
//!   lost makes it look closer than it is; what is copied comes from the archives alone. It stays before the first one that
//!   the first archive is owed (`debts.rs`), too; while that list cannot be read, nothing counts as reached.
//! - One process copies at a time for each database. One that ends looks once more after it has let others in, so no segment waits for the
//!   push after it.
//!
//! Leaves to others: gaps before the end of a second archive, which `longshore copy` fills; when a push fails because of one
//! that is too far behind (`longshore`, `commands/wal/push.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use longshore_io::{Clock, SmallFile, crc32c};
use longshore_pg::wal::WalName;
use longshore_pg::{Lsn, SegmentName, SegmentSize};

use super::ahead::{AheadLock, PLACE};
use super::{Error, PgWal, StorageForm, WalArchive, WalToCopy, copy_wal};

const LOCK: &str = "follow.";
const NOTE: &str = "behind";
/// Of some thousand targets.
const NOTE_MAX: usize = 1 << 20;
/// The longest reason that is noted, in characters.
const WHY_MAX: usize = 300;

/// How far behind a second archive is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lag {
    /// The first segment that it may lack.
    pub since: SegmentName,
    /// Why the last attempt to copy failed.
    pub why: Option<String>,
}

impl Lag {
    /// The bytes of WAL up to the end of `own` that may be missing.
    pub fn bytes(&self, own: SegmentName, size: SegmentSize) -> u64 {
        let end = own.start(size).0.saturating_add(size.bytes());
        end.saturating_sub(self.since.start(size).0)
    }
}

impl PgWal {
    /// The turn to copy to the second archives of a database; `None` while another process has it.
    pub fn turn_to_follow(&self, database: &str) -> Result<Option<AheadLock>, Error> {
        // Two databases whose sums agree only wait for each other.
        self.turn(&format!("{LOCK}{:08x}.lock", crc32c(database.as_bytes())))
    }

    /// How far behind the archive at `target` is. The first question about one notes that it may lack everything from `own`
    /// on, and so does the first one of a timeline that goes on from an earlier moment. `size` is that of the cluster's
    /// segments.
    pub fn lag(
        &self,
        target: &str,
        own: SegmentName,
        size: SegmentSize,
        clock: &dyn Clock,
    ) -> Result<Lag, Error> {
        let goes_back = |known: &Lag| {
            let since = known.since;
            own.timeline > since.timeline && own.start(size) < since.start(size)
        };
        let begun = |known: Option<Lag>| match known {
            Some(known) if !goes_back(&known) => known,
            known => Lag {
                since: own,
                why: known.and_then(|known| known.why),
            },
        };
        let known = self.lags()?.remove(target);
        if let Some(known) = known.as_ref().filter(|known| !goes_back(known)) {
            return Ok(known.clone());
        }
        let lag = self.change_lag(target, clock, |known| Some(begun(known)))?;
        Ok(lag.unwrap_or_else(|| begun(known)))
    }

    /// Copies to the archive `to` of `target` what the first one has after the end of it. Returns the number of files.
    ///
    /// Errors: those of [`WalArchive::lacking`] and [`copy_wal`]; they are noted, too.
    pub fn follow(
        &self,
        _turn: &AheadLock,
        (database, from): (&str, &WalArchive),
        (target, to): (&str, &WalArchive),
        form: &StorageForm,
        clock: &dyn Clock,
    ) -> Result<u64, Error> {
        let Some(size) = from.identity().map(|identity| identity.segment_size) else {
            return Ok(0);
        };
        let since = self.lags()?.remove(target).map(|lag| lag.since);
        // Before the archives are looked at: segments that come meanwhile are lacking, and those that the server waits for
        // may come after later ones. All others are there when this has ended, also those that another process copied.
        let order = |name: &SegmentName| (name.timeline, name.start(size));
        let waits = self.ready()?.into_iter().filter_map(|name| match name {
            WalName::Segment(name) => Some(name),
            _ => None,
        });
        let waits = waits.min_by_key(order);
        let newest = from.runs()?.into_iter().map(|run| run.span.last);
        let newest = newest.max_by_key(order).map(|last| last.next(size));
        // The first archive does not have yet what it is owed. Lost files come to neither.
        let reached = match self.owed_list() {
            Ok(list) if list.unread == 0 => {
                let owed = list.of(database).waits_since();
                match waits.into_iter().chain(owed).min_by_key(order) {
                    Some(open) => newest.map(|newest| std::cmp::min_by_key(newest, open, order)),
                    None => newest,
                }
            }
            // It may owe the first segment of all.
            _ => None,
        };
        let result = from.lacking_at_end(to, since).and_then(|todo| {
            let copied = copy_wal(from, to, &todo, form, clock, &|| true)?;
            match copied.unreadable.into_iter().next() {
                Some(error) => Err(error),
                None => Ok(copied.files),
            }
        });
        match result {
            Ok(files) => {
                self.note_reached(target, reached, size, clock)?;
                Ok(files)
            }
            Err(error) => {
                self.note_failed(target, &error.to_string(), clock)?;
                Err(error)
            }
        }
    }

    /// Whether the archive at a target lacks something at its end.
    pub fn is_behind(
        &self,
        from: &WalArchive,
        (target, to): (&str, &WalArchive),
    ) -> Result<bool, Error> {
        let since = self.lags()?.remove(target).map(|lag| lag.since);
        Ok(!from.lacking_at_end(to, since)?.names.is_empty())
    }

    /// Notes why nothing was copied to a target that has a note.
    pub fn note_failed(&self, target: &str, why: &str, clock: &dyn Clock) -> Result<(), Error> {
        if self.lags()?.contains_key(target) {
            let why: String = why
                .chars()
                .filter(|c| !c.is_control())
                .take(WHY_MAX)
                .collect();
            self.change_lag(target, clock, |known| {
                let since = known?.since;
                Some(Lag {
                    since,
                    why: Some(why),
                })
            })?;
        }
        Ok(())
    }

    /// Notes that nothing before `next` is lacking.
    fn note_reached(
        &self,
        target: &str,
        next: Option<SegmentName>,
        size: SegmentSize,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        let Some(known) = self.lags()?.remove(target) else {
            return Ok(());
        };
        let order = |name: &SegmentName| (name.timeline, name.start(size));
        let is_further = |next: &SegmentName| order(next) > order(&known.since);
        let next = next.filter(is_further);
        if known.why.is_some() || next.is_some() {
            self.change_lag(target, clock, |known| {
                Some(Lag {
                    since: next.unwrap_or(known?.since),
                    why: None,
                })
            })?;
        }
        Ok(())
    }

    fn behind(&self) -> Result<SmallFile, Error> {
        self.make_place()?;
        let place = self.dir.dir(Path::new(PLACE));
        let place = place.map_err(Error::io("open", self.path.join(PLACE)))?;
        Ok(SmallFile::new(place, NOTE, NOTE_MAX).of_its_directory())
    }

    /// The archives to which the last attempt to bring WAL failed.
    pub fn failing(&self) -> BTreeSet<String> {
        let lags = self.lags().unwrap_or_default().into_iter();
        let failing = lags.filter(|(_, lag)| lag.why.is_some());
        failing.map(|(target, _)| target).collect()
    }

    /// Notes that the archive of a target took WAL, whether or not it lacks some.
    ///
    /// Errors: `Io`.
    pub fn note_well(&self, target: &str, clock: &dyn Clock) -> Result<(), Error> {
        if self.failing().contains(target) {
            self.change_lag(target, clock, |known| {
                let since = known?.since;
                Some(Lag { since, why: None })
            })?;
        }
        Ok(())
    }

    fn lags(&self) -> Result<BTreeMap<String, Lag>, Error> {
        let bytes = self.behind()?.read();
        let bytes = bytes.map_err(Error::io("read", self.path.join(PLACE).join(NOTE)))?;
        Ok(read(&bytes.unwrap_or_default()))
    }

    fn change_lag(
        &self,
        target: &str,
        clock: &dyn Clock,
        change: impl FnOnce(Option<Lag>) -> Option<Lag>,
    ) -> Result<Option<Lag>, Error> {
        let path = self.path.join(PLACE).join(NOTE);
        let changed = self.behind()?.change(clock, 0o600, |before| {
            let mut lags = read(before.unwrap_or_default());
            let lag = change(lags.remove(target));
            lags.extend(lag.clone().map(|lag| (target.to_owned(), lag)));
            Ok::<_, std::io::Error>((Some(write(&lags)), lag))
        });
        changed.map_err(Error::io("write", path))
    }
}

/// One line for each target: segment, reason, target. A line that cannot be read is no note.
fn read(bytes: &[u8]) -> BTreeMap<String, Lag> {
    let text = String::from_utf8_lossy(bytes);
    let line = |line: &str| {
        let mut fields = line.splitn(3, '\t');
        let since = fields.next()?.parse().ok()?;
        let why = fields.next()?.to_owned();
        let lag = Lag {
            since,
            why: (!why.is_empty()).then_some(why),
        };
        Some((fields.next()?.to_owned(), lag))
    };
    text.lines().filter_map(line).collect()
}

fn write(lags: &BTreeMap<String, Lag>) -> Vec<u8> {
    let line = |(target, lag): (&String, &Lag)| {
        let why = lag.why.as_deref().unwrap_or_default();
        format!("{}\t{why}\t{target}\n", lag.since)
    };
    lags.iter().map(line).collect::<String>().into_bytes()
}

impl WalArchive {
    /// The segments from `since` on and those after the end of `to`, and the histories that it lacks.
    ///
    /// Errors: those of [`WalArchive::lacking`].
    fn lacking_at_end(
        &self,
        to: &WalArchive,
        since: Option<SegmentName>,
    ) -> Result<WalToCopy, Error> {
        let size = self.identified()?.segment_size;
        let runs = match to.identity() {
            Some(_) => to.runs()?,
            None => Vec::new(),
        };
        let newest = runs.iter().map(|run| run.span.last.timeline).max();
        let end_of = |timeline| {
            let of_timeline = runs.iter().filter(|run| run.span.last.timeline == timeline);
            of_timeline.map(|run| run.span.last.start(size)).max()
        };
        let is_noted = |timeline, start: Lsn| {
            since.is_some_and(|since| (timeline, start) >= (since.timeline, since.start(size)))
        };
        let is_at_end = |timeline, start: Lsn| match end_of(timeline) {
            Some(end) => start > end,
            None => newest.is_some_and(|newest| timeline > newest),
        };
        self.lacking(Some(to), &|timeline, start, _| {
            is_noted(timeline, start) || is_at_end(timeline, start)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back_and_what_is_no_note_is_left_out() {
        let name = |text: &str| text.parse::<SegmentName>().unwrap();
        let mut lags = BTreeMap::new();
        let lag = |since: &str, why: Option<&str>| Lag {
            since: name(since),
            why: why.map(str::to_owned),
        };
        lags.insert("a b".to_owned(), lag("000000010000000000000007", None));
        lags.insert(
            "c".to_owned(),
            lag("0000000200000001000000FF", Some("away")),
        );
        assert_eq!(read(&write(&lags)), lags);
        let torn = b"000000010000000000000007\t\ta b\nrubbish\n0000\t\tc\n\xff\n";
        assert_eq!(read(torn).keys().collect::<Vec<_>>(), ["a b"]);
    }

    #[test]
    fn a_lag_counts_from_the_first_segment_that_may_be_missing() {
        let size = SegmentSize::new(16 << 20).unwrap();
        let name = |text: &str| text.parse::<SegmentName>().unwrap();
        let lag = Lag {
            since: name("000000010000000000000007"),
            why: None,
        };
        let behind = |own: &str| lag.bytes(name(own), size) >> 20;
        assert_eq!(behind("000000010000000000000006"), 0);
        assert_eq!(behind("000000010000000000000007"), 16);
        assert_eq!(behind("000000020000000100000000"), (256 - 7 + 1) * 16);
    }
}
