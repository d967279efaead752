//! The WAL of a database in `verify --all`: what no earlier run has found good.
//!
//! Invariants
//! - An earlier result counts for a run of segments only if its last segment is the very one that was read: a copy of an
//!   archive has none. A segment that is missing between two others ends a run.
//! - A part is recorded when its segments decode and each continues the one before.
//! - A segment that an expire removes meanwhile is no damage.
//!
//! Leaves to others: decoding and following WAL (`longshore-wal`).

use std::sync::atomic::{AtomicBool, Ordering};

use longshore_pg::wal::WalName;
use longshore_pg::{SegmentName, SegmentSize};
use longshore_repository::Shelf;
use longshore_repository::status::{Status, WalResult};
use longshore_wal::{Error, Run, Span, WalArchive, is_in_bucket};
use serde::Serialize;

use super::ledger::{Ledger, Trust};
use longshore_terminal::failure::Failure;
use longshore_terminal::text::plain;

/// Segments that are verified before they are recorded.
const PART: usize = 16;

/// The WAL of one database.
#[derive(Debug, Default, Serialize)]
pub struct VerifiedWal {
    /// Segments that were read and are good.
    verified: u64,
    /// Segments that an earlier run had found good.
    known: u64,
    /// Segments that do not decode to what was pushed.
    damaged: Vec<String>,
    /// Segments that do not continue the one before, and why.
    broken: Vec<String>,
    /// Whether the run ended before all was read.
    left: bool,
}

impl VerifiedWal {
    pub fn is_valid(&self) -> bool {
        self.damaged.is_empty() && self.broken.is_empty()
    }

    pub fn first_wrong(&self) -> Option<&str> {
        let mut wrong = self.damaged.iter().chain(&self.broken);
        wrong.next().map(String::as_str)
    }

    pub fn text(&self) -> String {
        let mut text = format!(
            "WAL               {} segments verified, {} known to be good, {} DAMAGED{}\n",
            self.verified,
            self.known,
            self.damaged.len(),
            if self.left { ", the rest left" } else { "" }
        );
        for what in self.damaged.iter().chain(&self.broken) {
            text += &format!("  {}\n", plain(what));
        }
        text
    }
}

/// An archive that is verified.
struct LogVerification<'a, 'b> {
    archive: &'a WalArchive,
    size: SegmentSize,
    /// Ranges that are known to be good.
    known: Vec<&'a WalResult>,
    ledger: &'a mut Ledger<'b>,
    cancel: &'a AtomicBool,
    /// Where the stretch begins that this run has found good up to now.
    good_from: Option<SegmentName>,
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
    let believed = status
        .wal(trust.now_us)
        .filter(|range| trust.in_result(&range.by));
    let is_it = |range: &&WalResult| imprint(&archive, range.last).as_ref() == Some(&range.imprint);
    let mut verification = LogVerification {
        archive: &archive,
        size: identity.segment_size,
        known: believed.filter(is_it).collect(),
        ledger,
        cancel,
        good_from: None,
        found: VerifiedWal::default(),
    };
    for run in archive.runs()? {
        verification.run(&run)?;
    }
    Ok(Some(verification.found))
}

/// Tells a segment from all copies of it; `None` if it is not there.
fn imprint(archive: &WalArchive, name: SegmentName) -> Option<String> {
    let file = archive.open_file(WalName::Segment(name)).ok()?;
    let stat = file.stat();
    let path = archive.path();
    // A copy in another bucket may have the time, as replication keeps it.
    let place = is_in_bucket(path).then(|| path.display().to_string());
    let (len, at_ns) = (stat.len, stat.ctime_ns.max(stat.mtime_ns));
    Some(format!("{len} {at_ns} {}", place.unwrap_or_default()))
}

impl LogVerification<'_, '_> {
    /// Verifies a run of segments, in parts.
    fn run(&mut self, run: &Run) -> Result<(), Failure> {
        let mut part: Vec<SegmentName> = Vec::new();
        let mut before = None;
        let mut name = run.span.first;
        self.good_from = None;
        for _ in 0..run.span.segments {
            if self.is_known(name) {
                self.part(&mut part, before)?;
                self.good_from = None;
                self.found.known += 1;
                before = Some(name);
            } else {
                part.push(name);
                if part.len() == PART {
                    let last = part.last().copied();
                    self.part(&mut part, before)?;
                    before = last;
                }
            }
            name = name.next(self.size);
        }
        self.part(&mut part, before)
    }

    fn is_known(&self, name: SegmentName) -> bool {
        let within = |range: &&WalResult| {
            range.first.timeline == name.timeline && range.first <= name && name <= range.last
        };
        self.known.iter().any(within)
    }

    /// Verifies consecutive segments, and that they continue the one before.
    fn part(
        &mut self,
        part: &mut Vec<SegmentName>,
        before: Option<SegmentName>,
    ) -> Result<(), Failure> {
        let names = std::mem::take(part);
        let (Some(first), Some(last)) = (names.first(), names.last()) else {
            return Ok(());
        };
        let mut good = 0;
        for name in &names {
            if self.cancel.load(Ordering::Relaxed) {
                self.found.left = true;
                return Ok(());
            }
            match self.archive.verify(WalName::Segment(*name)) {
                // Retention has removed it meanwhile.
                Err(Error::Missing { .. }) => {}
                Ok(_) => good += 1,
                Err(error @ (Error::Damaged { .. } | Error::Newer { .. })) => {
                    self.found.damaged.push(error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        let span = Span {
            first: before.unwrap_or(*first),
            last: *last,
            segments: names.len() as u64 + u64::from(before.is_some()),
        };
        let broken = self.archive.broken_links(&span)?;
        let is_sound = good == names.len() && broken.is_empty();
        self.found.verified += good as u64;
        self.found
            .broken
            .extend(broken.iter().map(ToString::to_string));
        if !is_sound {
            self.good_from = None;
            let lost = (*first, *last);
            self.ledger.add(|news| news.unsound.push(lost));
        } else if let Some(imprint) = imprint(self.archive, *last) {
            let range = WalResult {
                first: *self.good_from.get_or_insert(*first),
                last: *last,
                imprint,
                by: self.ledger.now(),
            };
            self.ledger.add(|news| news.wal.push(range));
        }
        Ok(())
    }
}
