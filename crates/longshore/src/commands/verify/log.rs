//! The WAL of a database in `verify --all`: what no earlier run has found good.
//!
//! Invariants
//! - An earlier result counts for the very segments that were read: a copy of an archive has none, and one segment that
//!   was replaced is read again, and so is all WAL after a run that could not read it. A segment that is missing between two others ends a run.
//! - A part is recorded when its segments decode and each continues the one before. A segment is recorded as it was
//!   before it was read.
//! - A segment that an expire removes meanwhile is no damage.
//!
//! Leaves to others: decoding and following WAL (`longshore-wal`).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_pg::wal::WalName;
use longshore_pg::{SegmentName, SegmentSize};
use longshore_repository::Shelf;
use longshore_repository::status::{Status, Task, UnsoundWal, WalResult};
use longshore_wal::{Error, Run, SegmentImprint, Span, WalArchive};
use serde::Serialize;

use super::ledger::{Ledger, Trust};
use longshore_terminal::failure::Failure;
use longshore_terminal::text::plain;

/// Segments that are verified before they are recorded.
const PART: usize = 16;
/// The most segments of a recorded range.
const RANGE: usize = 2048;

/// The WAL of one database.
#[derive(Debug, Default, Serialize)]
pub struct VerifiedWal {
    /// Segments that were read and are good.
    verified_count: u64,
    /// Segments that an earlier run had found good.
    known_count: u64,
    /// Segments that do not decode to what was pushed.
    damaged_segments: Vec<String>,
    /// Segments that do not continue the one before, and why.
    broken_segments: Vec<String>,
    /// Segments of a newer version: nobody here knows whether they are good.
    closed_segments: Vec<String>,
    /// Whether the run ended before all was read.
    was_interrupted: bool,
}

impl VerifiedWal {
    pub fn is_valid(&self) -> bool {
        self.damaged_segments.is_empty() && self.broken_segments.is_empty()
    }

    /// Whether all of it is known to be good.
    pub fn is_whole(&self) -> bool {
        self.is_valid() && self.closed_segments.is_empty() && !self.was_interrupted
    }

    pub fn first_closed(&self) -> Option<&str> {
        self.closed_segments.first().map(String::as_str)
    }

    pub fn first_wrong(&self) -> Option<&str> {
        let mut wrong = self.damaged_segments.iter().chain(&self.broken_segments);
        wrong.next().map(String::as_str)
    }

    /// The numbers of segments.
    pub fn counts(&self) -> String {
        let closed = match self.closed_segments.len() {
            0 => String::new(),
            closed => format!(", {closed} NOT OPENED"),
        };
        format!(
            "{} segments verified, {} known to be good, {} DAMAGED{closed}{}",
            self.verified_count,
            self.known_count,
            self.damaged_segments.len(),
            if self.was_interrupted {
                ", the rest left"
            } else {
                ""
            }
        )
    }

    pub fn text(&self) -> String {
        let mut text = format!("WAL               {}\n", self.counts());
        for what in self
            .damaged_segments
            .iter()
            .chain(&self.broken_segments)
            .chain(&self.closed_segments)
        {
            text += &format!("  {}\n", plain(what));
        }
        text
    }
}

/// An archive that is verified.
struct LogVerification<'a, 'b> {
    archive: &'a WalArchive,
    size: SegmentSize,
    /// The segments that are known to be good.
    known: HashSet<SegmentImprint>,
    ledger: &'a mut Ledger<'b>,
    cancel: &'a AtomicBool,
    /// The segments of the run, as they were before they were read.
    imprints: HashMap<SegmentName, u32>,
    /// The stretch that this run has found good up to now.
    good: Option<WalResult>,
    found: VerifiedWal,
}

pub fn verify(
    shelf: &Shelf,
    status: &Status,
    trust: Trust,
    (ledger, cancel): (&mut Ledger, &AtomicBool),
) -> Result<Option<VerifiedWal>, Failure> {
    let Some(archive) = shelf.wal()? else {
        return Ok(None);
    };
    let Some(identity) = archive.identity() else {
        return Ok(None);
    };
    let open = status.open(Task::Verify);
    let is_doubted = |range: &WalResult| open.is_some_and(|run| run.doubts_wal(&range.by));
    let believed = status
        .wal(trust.now_us)
        .filter(|range| trust.in_result(&range.by) && !is_doubted(range));
    let size = identity.segment_size;
    let mut verification = LogVerification {
        archive: &archive,
        size,
        known: believed.flat_map(|range| segments(range, size)).collect(),
        ledger,
        cancel,
        imprints: HashMap::new(),
        good: None,
        found: VerifiedWal::default(),
    };
    for run in archive.runs()? {
        verification.run(&run)?;
    }
    Ok(Some(verification.found))
}

/// The segments of a recorded range; none if it has another number of them than its names say.
fn segments(range: &WalResult, size: SegmentSize) -> Vec<SegmentImprint> {
    let mut name = range.first;
    let mut found = Vec::new();
    for imprint in &range.imprints {
        let imprint = *imprint;
        found.push(SegmentImprint { name, imprint });
        name = name.next(size);
    }
    let is_whole = found.last().is_some_and(|last| last.name == range.last);
    if !is_whole {
        found.clear();
    }
    found
}

/// An error with its cause, on one line.
fn told(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

impl LogVerification<'_, '_> {
    /// Verifies a run of segments, in parts.
    fn run(&mut self, run: &Run) -> Result<(), Failure> {
        let mut part: Vec<SegmentName> = Vec::new();
        let mut before = None;
        let mut name = run.span.first;
        self.good = None;
        let imprints = self.archive.imprints(&run.span)?.into_iter();
        self.imprints = imprints.map(|own| (own.name, own.imprint)).collect();
        for _ in 0..run.span.segments {
            if self.is_known(name) {
                self.part(&mut part, before, Some(name))?;
                self.good = None;
                self.found.known_count += 1;
                before = Some(name);
            } else {
                part.push(name);
                if part.len() == PART {
                    let last = part.last().copied();
                    self.part(&mut part, before, None)?;
                    before = last;
                }
            }
            name = name.next(self.size);
        }
        self.part(&mut part, before, None)
    }

    fn is_known(&self, name: SegmentName) -> bool {
        let imprint = self.imprints.get(&name).copied();
        imprint.is_some_and(|imprint| self.known.contains(&SegmentImprint { name, imprint }))
    }

    /// Verifies consecutive segments, that they continue the one before, and that a known one after them continues them.
    fn part(
        &mut self,
        part: &mut Vec<SegmentName>,
        before: Option<SegmentName>,
        after: Option<SegmentName>,
    ) -> Result<(), Failure> {
        let names = std::mem::take(part);
        let (Some(first), Some(last)) = (names.first(), names.last()) else {
            return Ok(());
        };
        let mut good = 0;
        let mut lost: Vec<SegmentName> = Vec::new();
        for name in &names {
            let before_it = self.found.damaged_segments.len();
            if self.cancel.load(Ordering::Relaxed) {
                self.found.was_interrupted = true;
                return Ok(());
            }
            match self.archive.verify(WalName::Segment(*name)) {
                // Retention has removed it meanwhile.
                Err(Error::Missing { .. }) => {}
                Ok(_) => good += 1,
                Err(error @ Error::Damaged { .. }) => {
                    self.found.damaged_segments.push(error.to_string())
                }
                Err(error @ Error::Unopened { .. }) if error.is_tampering() => {
                    self.found.damaged_segments.push(told(&error));
                }
                Err(error @ Error::OtherHistory { .. }) => {
                    self.found.damaged_segments.push(told(&error))
                }
                Err(
                    error @ (Error::Newer { .. }
                    | Error::Unopened { .. }
                    | Error::NotSealed { .. }
                    | Error::Unsigned { .. }),
                ) => self.found.closed_segments.push(told(&error)),
                Err(error) => return Err(error.into()),
            }
            if self.found.damaged_segments.len() > before_it {
                lost.push(*name);
            }
        }
        let span = Span {
            first: before.unwrap_or(*first),
            last: after.unwrap_or(*last),
            segments: (names.len() + before.iter().count() + after.iter().count()) as u64,
        };
        let broken = self.archive.broken_links(&span)?;
        let is_sound = good == names.len() && broken.is_empty();
        self.found.verified_count += good as u64;
        self.found
            .broken_segments
            .extend(broken.iter().map(ToString::to_string));
        if is_sound {
            self.record(*first, *last, &names);
        } else {
            self.good = None;
        }
        lost.extend(broken.iter().filter_map(|error| match error {
            Error::BrokenLink { name, .. } => Some(*name),
            _ => None,
        }));
        for (first, last) in stretches(lost, self.size) {
            let by = self.ledger.now();
            let lost = UnsoundWal { first, last, by };
            self.ledger.add(|news| news.unsound.push(lost));
        }
        Ok(())
    }

    /// Records a part that is good, together with those before it.
    fn record(&mut self, first: SegmentName, last: SegmentName, names: &[SegmentName]) {
        let imprints = names.iter().map(|name| self.imprints.get(name).copied());
        let Some(imprints) = imprints.collect::<Option<Vec<u32>>>() else {
            self.good = None;
            return;
        };
        let has_room = |range: &WalResult| range.imprints.len() + imprints.len() <= RANGE;
        let mut range = self.good.take().filter(has_room).unwrap_or(WalResult {
            first,
            last,
            imprints: Vec::new(),
            by: self.ledger.now(),
        });
        range.last = last;
        range.imprints.extend(imprints);
        self.good = Some(range.clone());
        self.ledger.add(|news| {
            // It has grown from the one that is not recorded yet.
            news.wal.retain(|own| own.first != range.first);
            news.wal.push(range);
        });
    }
}

/// The first and the last of each stretch of consecutive segments.
fn stretches(mut names: Vec<SegmentName>, size: SegmentSize) -> Vec<(SegmentName, SegmentName)> {
    names.sort_unstable();
    names.dedup();
    let mut found: Vec<(SegmentName, SegmentName)> = Vec::new();
    for name in names {
        match found.last_mut() {
            Some((_, last)) if last.next(size) == name => *last = name,
            _ => found.push((name, name)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_repository::status::Witnessed;

    #[test]
    fn a_range_has_as_many_imprints_as_segments_or_counts_for_nothing() {
        let name = |n: u32| format!("0000000100000000{n:08X}").parse().unwrap();
        let size = SegmentSize::new(16 << 20).unwrap();
        let of = |first: SegmentName, last, imprints: &[u32]| {
            let range = WalResult {
                first,
                last,
                imprints: imprints.to_vec(),
                by: Witnessed::now(1),
            };
            segments(&range, size)
        };
        let found = of(
            name(0xff),
            "000000010000000100000000".parse().unwrap(),
            &[7, 8],
        );
        assert_eq!(found[1].name.to_string(), "000000010000000100000000");
        assert_eq!((found[0].imprint, found[1].imprint), (7, 8));
        for imprints in [&[][..], &[7], &[7, 8, 9]] {
            assert_eq!(of(name(1), name(2), imprints), []);
        }
    }

    #[test]
    fn only_consecutive_segments_are_one_stretch() {
        let name = |n: u32| format!("0000000100000000{n:08X}").parse().unwrap();
        let size = SegmentSize::new(16 << 20).unwrap();
        let found = stretches([9, 4, 3, 7, 3].map(name).to_vec(), size);
        let expected = [(3, 4), (7, 7), (9, 9)].map(|(first, last)| (name(first), name(last)));
        assert_eq!(found, expected);
    }
}
