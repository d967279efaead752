//! The WAL that an archive has and lacks, and the removal of WAL that no backup needs.
//!
//! Memory is bounded by one directory of 2^32 bytes of WAL at a time, and by the number of gaps; the list that `segments`
//! returns has one name for each segment.
//!
//! Invariants
//! - Names that are not the archive's own are skipped, and never removed.
//! - A removal takes only segments that end at or before the given LSN and that no need requires, with their marks and
//!   partial files, oldest first. Histories are never removed.
//! - A segment in which a timeline ends counts for that timeline only as long as the replay stays on it.
//!
//! Leaves to others: which WAL must stay (`needs.rs`, `longshore-repository`); reading segments (`read.rs`); whether
//! they continue each other (`links.rs`); listing and removing files (`place.rs`).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use longshore_io::{crc32c, crc32c_join};
use longshore_pg::wal::{History, WalName};
use longshore_pg::{Lsn, SegmentName, Timeline};

use super::place::{directory, directory_of, is_in_bucket};
use super::{Error, WalArchive, staged};

/// Consecutive segments of one timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub first: SegmentName,
    pub last: SegmentName,
    pub segments: u64,
}

/// `000000010000000000000003 to 000000010000000000000007 (5)`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.segments {
            1 => self.first.fmt(f),
            n => write!(f, "{} to {} ({n})", self.first, self.last),
        }
    }
}

/// Consecutive segments in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub span: Span,
    pub stored_bytes: u64,
}

/// Segments that no replay gets over although their files are there. They count as missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost(Vec<(SegmentName, SegmentName)>);

impl Lost {
    /// Adds the segments from `first` to `last`, on one timeline.
    pub fn add(&mut self, first: SegmentName, last: SegmentName) {
        self.0.push((first, last));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, name: SegmentName) -> bool {
        self.0
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&name))
    }
}

/// A segment, and a sum that the same segment has as long as nothing replaces it. No copy of it has that, but by a chance
/// of 2^-32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentImprint {
    pub name: SegmentName,
    pub imprint: u32,
}

/// The result of [`WalArchive::remove_unneeded`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovalResult {
    pub files: u64,
    pub stored_bytes: u64,
    /// Why the store does not allow the removal of the next file; nothing after it was tried.
    pub retained: Option<String>,
}

/// A file of the archive.
struct StoredFile {
    name: WalName,
    /// Relative to the archive.
    file: PathBuf,
    len: u64,
    changed_ns: i64,
}

impl WalArchive {
    /// The existing segments, by timeline and LSN.
    ///
    /// Errors: `NothingYet`, `Io`.
    pub fn runs(&self) -> Result<Vec<Run>, Error> {
        self.runs_without(&Lost::default())
    }

    /// The segment with the greatest LSN, on a timeline up to this one; `None`: of all.
    ///
    /// Errors: `NothingYet`, `Io`.
    pub fn newest(&self, until: Option<Timeline>) -> Result<Option<SegmentName>, Error> {
        let size = self.identified()?.segment_size;
        let runs = self.runs()?.into_iter().map(|run| run.span.last);
        let known = runs.filter(|name| until.is_none_or(|until| name.timeline <= until));
        Ok(known.max_by_key(|name| name.start(size)))
    }

    /// The existing segments but the lost ones, by timeline and LSN.
    ///
    /// Errors: `NothingYet`, `Io`.
    pub fn runs_without(&self, lost: &Lost) -> Result<Vec<Run>, Error> {
        let size = self.identified()?.segment_size;
        let mut runs: Vec<Run> = Vec::new();
        for (timeline, high) in self.directories()? {
            for stored in self.files(timeline, high, true)? {
                let WalName::Segment(name) = stored.name else {
                    continue;
                };
                if lost.has(name) {
                    continue;
                }
                let bytes = stored.len;
                match runs.last_mut() {
                    Some(run) if run.span.last.next(size) == name => {
                        run.span.last = name;
                        run.span.segments += 1;
                        run.stored_bytes += bytes;
                    }
                    Some(run) if run.span.last == name => {}
                    _ => runs.push(Run {
                        span: Span {
                            first: name,
                            last: name,
                            segments: 1,
                        },
                        stored_bytes: bytes,
                    }),
                }
            }
        }
        Ok(runs)
    }

    /// The segments of this span that exist, ascending, with the imprint of each: of its length and its last change; in a
    /// bucket also of the place, since a store's copy may have the time.
    ///
    /// Errors: `NothingYet`, `Io`.
    pub fn imprints(&self, span: &Span) -> Result<Vec<SegmentImprint>, Error> {
        let place = match is_in_bucket(self.path()) {
            true => self.path().display().to_string(),
            false => String::new(),
        };
        let mut found: Vec<SegmentImprint> = Vec::new();
        let within = |name: &SegmentName| span.first <= *name && *name <= span.last;
        for (timeline, high) in self.directories()? {
            let directory = (timeline, high);
            let (first, last) = (span.first, span.last);
            if directory < (first.timeline, first.high) || (last.timeline, last.high) < directory {
                continue;
            }
            for stored in self.files(timeline, high, true)? {
                let WalName::Segment(name) = stored.name else {
                    continue;
                };
                let line = format!("{name} {} {} {place}\n", stored.len, stored.changed_ns);
                match found.last_mut() {
                    // It is there under another ending, too.
                    Some(last) if last.name == name => {
                        let more = crc32c(line.as_bytes());
                        last.imprint = crc32c_join(last.imprint, more, line.len() as u64);
                    }
                    _ if within(&name) => found.push(SegmentImprint {
                        name,
                        imprint: crc32c(line.as_bytes()),
                    }),
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    /// The timelines whose histories exist, ascending.
    pub fn histories(&self) -> Result<Vec<Timeline>, Error> {
        let mut found: Vec<_> = self
            .names(Path::new(""), false)?
            .into_iter()
            .filter_map(|stored| match stored.name {
                WalName::History(timeline) => Some(timeline),
                _ => None,
            })
            .collect();
        found.dedup();
        Ok(found)
    }

    /// The segments that a replay from `start` to `end` along `history` needs and the archive lacks.
    ///
    /// The segment in which a timeline was left counts as present on either timeline, as long as the replay stays on
    /// it: the later timeline's segment begins with a copy of the earlier one's. `.partial` files do not count: no
    /// server asks for them.
    ///
    /// The time is that of listing the existing files, however far apart `start` and `end` are.
    ///
    /// Errors: `NothingYet`, `Io`.
    pub fn missing(&self, history: &History, start: Lsn, end: Lsn) -> Result<Vec<Span>, Error> {
        self.missing_or_lost(history, (start, end), &Lost::default())
    }

    /// [`WalArchive::missing`], with the lost ones.
    ///
    /// Errors: `NothingYet`, `Io`.
    pub(super) fn missing_or_lost(
        &self,
        history: &History,
        (start, end): (Lsn, Lsn),
        lost: &Lost,
    ) -> Result<Vec<Span>, Error> {
        let size = self.identified()?.segment_size;
        let number = |lsn: Lsn| lsn.0 / size.bytes();
        let wanted = number(start)..end.0.div_ceil(size.bytes());
        let mut held = self.held(history, &wanted, (end, lost))?;
        held.push(wanted.end..wanted.end);
        held.sort_unstable_by_key(|numbers| numbers.start);
        // Where the timeline in the segments' names changes.
        let forks = history.forks().iter().filter(|fork| fork.end < end);
        let turns: Vec<u64> = forks.map(|fork| number(fork.end)).collect();
        let mut missing = Vec::new();
        let mut at = wanted.start;
        for held in held {
            while at < held.start.min(wanted.end) {
                let turn = turns.iter().find(|turn| **turn > at);
                let stop = turn.map_or(held.start, |turn| held.start.min(*turn));
                let behind = Lsn(stop.saturating_mul(size.bytes())).min(end);
                let timeline = history.timeline_at(Lsn(behind.0 - 1));
                let name =
                    |number: u64| SegmentName::holding(timeline, Lsn(number * size.bytes()), size);
                missing.push(Span {
                    first: name(at),
                    last: name(stop - 1),
                    segments: stop - at,
                });
                at = stop;
            }
            at = at.max(held.end);
        }
        Ok(missing)
    }

    /// The segments that a replay from `start` to `end` along `history` uses, in order: if a segment exists on several
    /// timelines, that of the latest one, as a server does.
    ///
    /// Errors: `Missing` for the first that does not exist; `NothingYet`, `Io`.
    pub fn segments(
        &self,
        history: &History,
        start: Lsn,
        end: Lsn,
    ) -> Result<Vec<SegmentName>, Error> {
        let size = self.identified()?.segment_size;
        let segment_of = |lsn: Lsn| Lsn(lsn.0 / size.bytes() * size.bytes());
        let mut have: Option<(u32, HashSet<SegmentName>)> = None;
        let mut found = Vec::new();
        let mut at = segment_of(start);
        while at < end {
            let high = (at.0 >> 32) as u32;
            if have.as_ref().is_none_or(|(of, _)| *of != high) {
                have = Some((high, self.segments_in(history, high)?));
            }
            let names = have.as_ref().map(|(_, names)| names);
            // The bytes needed from this segment end here.
            let needed = Lsn(at.0.saturating_add(size.bytes())).min(end);
            let there = ways(history)
                .filter(|(_, begin, left)| segment_of(*begin) <= at && needed <= *left)
                .map(|(timeline, ..)| SegmentName::holding(timeline, at, size))
                .filter(|name| names.is_some_and(|names| names.contains(name)));
            let Some(name) = there.last() else {
                let name = SegmentName::holding(history.timeline_at(at), at, size);
                return Err(Error::Missing {
                    name: WalName::Segment(name),
                    archive: self.path().to_owned(),
                });
            };
            found.push(name);
            match at.0.checked_add(size.bytes()) {
                Some(next) => at = Lsn(next),
                None => break,
            }
        }
        Ok(found)
    }

    /// The segments of the history's timelines, in one directory for each.
    fn segments_in(&self, history: &History, high: u32) -> Result<HashSet<SegmentName>, Error> {
        let mut names = HashSet::new();
        for (timeline, ..) in ways(history) {
            for stored in self.files(timeline, high, false)? {
                if let WalName::Segment(name) = stored.name {
                    names.insert(name);
                }
            }
        }
        Ok(names)
    }

    /// Runs of segment numbers, among `wanted`, that serve a replay along `history` up to `end`.
    fn held(
        &self,
        history: &History,
        wanted: &Range<u64>,
        (end, lost): (Lsn, &Lost),
    ) -> Result<Vec<Range<u64>>, Error> {
        let size = self.identified()?.segment_size;
        let number = |lsn: Lsn| lsn.0 / size.bytes();
        let high = |number: u64| (number.saturating_mul(size.bytes()) >> 32) as u32;
        let highs = high(wanted.start)..=high(wanted.end.saturating_sub(1));
        let ways: HashMap<Timeline, Range<u64>> = ways(history)
            .map(|(timeline, begin, left)| {
                // The rest of the segment in which it was left is on the next timeline.
                let stop = if end <= left { u64::MAX } else { number(left) };
                (timeline, number(begin)..stop)
            })
            .collect();
        let mut held: Vec<Range<u64>> = Vec::new();
        for (timeline, high) in self.directories()? {
            let Some(way) = ways.get(&timeline).filter(|_| highs.contains(&high)) else {
                continue;
            };
            for stored in self.files(timeline, high, false)? {
                let WalName::Segment(name) = stored.name else {
                    continue;
                };
                let number = number(name.start(size));
                match held.last_mut() {
                    _ if !way.contains(&number) || lost.has(name) => {}
                    Some(run) if run.end == number => run.end += 1,
                    _ => held.push(number..number + 1),
                }
            }
        }
        Ok(held)
    }

    /// Makes sure that the archive has no file of this name, which its store did not give: no listing shows it. A cache
    /// before a store, and a client of NFS, may go on to say for a while that there is none.
    ///
    /// Returns the first later segment of a segment's timeline: with one, this is a gap.
    ///
    /// Errors: `Hidden` if a listing shows it; `Store`, `Io`.
    pub fn absent(&self, name: WalName) -> Result<Option<SegmentName>, Error> {
        let hidden = || Error::Hidden {
            name,
            archive: self.path().to_owned(),
        };
        let WalName::Segment(segment) = name else {
            let names = self.names(&directory_of(name), false)?;
            return match names.iter().any(|stored| stored.name == name) {
                true => Err(hidden()),
                false => Ok(None),
            };
        };
        for (timeline, high) in self.directories()? {
            if timeline != segment.timeline || high < segment.high {
                continue;
            }
            for stored in self.files(timeline, high, false)? {
                match stored.name {
                    WalName::Segment(found) if found == segment => return Err(hidden()),
                    WalName::Segment(found) if found > segment => return Ok(Some(found)),
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    /// Removes the segments that end at or before `keep`, on every timeline, with their backup marks and partial
    /// files, except those that `needs` requires by timeline, first LSN and the LSN after the last; oldest first, so
    /// that an interruption leaves no gap. Histories stay: they are tiny, and lead to every later LSN. `dry`: only
    /// counts them.
    ///
    /// Errors: `NothingYet`, `Io`. Files removed before the error stay removed.
    pub fn remove_unneeded(
        &self,
        keep: Lsn,
        dry: bool,
        needs: impl Fn(Timeline, Lsn, Lsn) -> bool,
    ) -> Result<RemovalResult, Error> {
        let size = self.identified()?.segment_size;
        let mut directories = self.directories()?;
        directories.sort_by_key(|(timeline, high)| (*high, *timeline));
        let mut removed = RemovalResult::default();
        for (timeline, high) in directories {
            if u64::from(high) << 32 >= keep.0 {
                break;
            }
            let place = directory(timeline, high);
            let place = Path::new(&place);
            let mut kept = false;
            for stored in self.files(timeline, high, true)? {
                let goes = |name: SegmentName| {
                    let start = name.start(size);
                    let end = start.0.checked_add(size.bytes());
                    end.is_some_and(|end| end <= keep.0 && !needs(timeline, start, Lsn(end)))
                };
                if !stored.name.segment().is_some_and(goes) {
                    kept = true;
                    continue;
                }
                if !dry {
                    match self.place.remove(&stored.file) {
                        // The files after it are newer, and are kept as long at least.
                        Err(Error::Store(error)) if error.is_forbidden() => {
                            removed.retained = Some(error.to_string());
                            return Ok(removed);
                        }
                        done => done?,
                    }
                }
                removed.files += 1;
                removed.stored_bytes += stored.len;
            }
            if !dry {
                self.place.settle(place, !kept)?;
            }
        }
        Ok(removed)
    }

    /// Every segment's file, relative to the archive, with its length in bytes, by timeline and LSN.
    ///
    /// Errors: `Io`.
    pub(super) fn segment_files(&self) -> Result<Vec<(SegmentName, PathBuf, u64)>, Error> {
        let mut found = Vec::new();
        for (timeline, high) in self.directories()? {
            for stored in self.files(timeline, high, true)? {
                if let WalName::Segment(name) = stored.name {
                    found.push((name, stored.file, stored.len));
                }
            }
        }
        Ok(found)
    }

    /// The directories of segments, ascending by timeline and LSN.
    pub(super) fn directories(&self) -> Result<Vec<(Timeline, u32)>, Error> {
        let mut found = Vec::new();
        for entry in self.place.list(Path::new(""), false)? {
            let name = entry.name;
            let part = |range| {
                let digits: &str = name.to_str()?.get(range)?;
                u32::from_str_radix(digits, 16).ok()
            };
            if name.len() == 16
                && let (Some(timeline), Some(high)) =
                    (part(0..8).and_then(Timeline::new), part(8..16))
                && name.to_str() == Some(&directory(timeline, high))
            {
                found.push((timeline, high));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// The files of one directory of segments, ascending; empty if there is no such directory.
    fn files(
        &self,
        timeline: Timeline,
        high: u32,
        lengths: bool,
    ) -> Result<Vec<StoredFile>, Error> {
        let place = directory(timeline, high);
        let mut files = self.names(Path::new(&place), lengths)?;
        files.retain(|f| {
            f.name
                .segment()
                .is_some_and(|s| (s.timeline, s.high) == (timeline, high))
        });
        Ok(files)
    }

    /// The archived files in a directory; other names are skipped.
    fn names(&self, place: &Path, lengths: bool) -> Result<Vec<StoredFile>, Error> {
        let endings = self.ground().endings();
        let mut files = Vec::new();
        for entry in self.place.list(place, lengths)? {
            let name = entry.name;
            let parsed = name
                .to_str()
                .filter(|n| !n.ends_with(staged::ENDING))
                .and_then(|n| n.rsplit_once('.'))
                .filter(|(_, ending)| endings.contains(ending))
                .and_then(|(stem, _)| stem.parse().ok());
            if let Some(parsed) = parsed {
                files.push(StoredFile {
                    name: parsed,
                    file: place.join(&name),
                    len: entry.len_bytes,
                    changed_ns: entry.changed_ns,
                });
            }
        }
        files.sort_by_key(|f| (f.name.segment(), f.name));
        Ok(files)
    }
}

/// The timelines of a history, with where each begins and is left, oldest first.
fn ways(history: &History) -> impl Iterator<Item = (Timeline, Lsn, Lsn)> {
    let begins = std::iter::once(Lsn(0)).chain(history.forks().iter().map(|f| f.end));
    let ends = history.forks().iter().map(|f| (f.timeline, f.end));
    let last = std::iter::once((history.timeline(), Lsn(u64::MAX)));
    begins
        .zip(ends.chain(last))
        .map(|(begin, (timeline, end))| (timeline, begin, end))
}
