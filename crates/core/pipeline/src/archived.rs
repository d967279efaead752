//! Proves that WAL is in its archive: the WAL that a backup needs, before its set becomes valid, and the WAL that a
//! recovery needs, before anything is written.
//!
//! Invariants
//! - The archived segments are compared with samples of the server's own, because an archive may hold another branch's
//!   WAL under the same names.
//! - From the first check on, no expire removes the WAL on which the backup will rely.
//! - An encrypted archive that this host cannot read is compared by tags, whole blocks at a time. The backup's last segment
//!   must then be the server's own, whole: it ends with this backup's record, and each record names the one before.
//!
//! Leaves to others: the archive's files and gaps (`longshore-wal`), and the records of reliance
//! (`longshore-repository`).

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_io::crc32c_append;
use longshore_media::{SetHeader, SetTrailer};
use longshore_pg::wal::{History, WalName};
use longshore_pg::{Lineage, Lsn, Recovery, SegmentName, SegmentSize};
use longshore_repository::Reliance;
use longshore_source::{LogEnd, LogStart, OwnLog, StandbyState};
use longshore_wal::LogRange;
use longshore_wal::proof::{ProvenLog, Reach};
use longshore_wal::{self as wal, SegmentTags, TagKey, WalArchive};

use crate::{Error, RunContext};

/// How often the archive is checked while the server still archives.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The archive that must hold the WAL, and how long to wait for it.
#[derive(Debug, Clone)]
pub struct WalProof {
    /// The archive's own directory.
    pub archive: PathBuf,
    pub patience: Duration,
    /// Records at the target that its backups rely on the archive. `None`: the set holds its WAL.
    pub reliance: Option<Reliance>,
}

/// Facts about the server to which the archived WAL is compared.
#[derive(Debug, Clone, Copy)]
pub struct ServerFacts<'a> {
    pub own: Option<&'a OwnLog>,
    /// The segment in which the needed WAL begins, as the server had it when the backup began.
    pub first: Option<SegmentDigest>,
    /// The server's history file.
    pub history: Option<&'a [u8]>,
}

/// A checksum of a segment's first bytes, as a server had it at some moment: the server may recycle the file before
/// the segment is archived.
#[derive(Debug, Clone, Copy)]
pub struct SegmentDigest {
    len: u64,
    crc: u32,
}

impl SegmentDigest {
    /// `None`: the server no longer has the segment.
    fn take(own: &OwnLog, name: SegmentName, len: u64) -> Result<Option<SegmentDigest>, Error> {
        let mut crc = 0;
        let is_own = own.read(name, len, &mut |bytes| {
            crc = crc32c_append(crc, bytes);
            ControlFlow::Continue(())
        })?;
        Ok(is_own.then_some(SegmentDigest { len, crc }))
    }

    fn is_of(self, archive: &WalArchive, name: SegmentName) -> Result<bool, Error> {
        Ok(archive.crc_of(name, self.len)? == self.crc)
    }
}

/// Refuses at the start what would fail at the end: a directory that is not an archive, an archive of another cluster,
/// or one into which another branch of the cluster archives. Returns a sample of the segment in which the needed WAL
/// begins.
///
/// From then on, no expire removes the WAL on which the backup will rely.
///
/// Errors: [`Error::Archive`], [`Error::Reliance`].
pub fn check_archive(
    context: &RunContext,
    proof: &WalProof,
    start: &LogStart,
    own: Option<&OwnLog>,
) -> Result<Option<SegmentDigest>, Error> {
    let archive = open(context, &proof.archive)?.with_tags(tags(own, start));
    check_system(&archive, start)?;
    let sample = match own {
        Some(own) => check_own(&archive, start, own)?,
        None => None,
    };
    if let Some(reliance) = &proof.reliance {
        reliance.announce(&archive, start.system, start.first)?;
    }
    Ok(sample)
}

/// An archive, which may still be empty, with the identities of the run.
pub(crate) fn open(context: &RunContext, path: &Path) -> Result<WalArchive, Error> {
    Ok(WalArchive::open(&*context.storage, path)?.with_keyring(&context.keyring))
}

/// An archive that has WAL, with the identities of the run.
pub(crate) fn existing(context: &RunContext, path: &Path) -> Result<WalArchive, Error> {
    Ok(WalArchive::existing(&*context.storage, path)?.with_keyring(&context.keyring))
}

/// The start of the archive's newest segment: a standby that the archive feeds has replayed all before it. `None`: the archive
/// cannot be listed.
pub(crate) fn fed_until(
    context: &RunContext,
    archive: &Path,
    standby: &StandbyState,
) -> Option<Lsn> {
    let archive = existing(context, archive).ok()?;
    let size = archive.identity()?.segment_size;
    let newest = archive.newest(standby.timeline).ok()??;
    Some(newest.start(size))
}

/// The key of the server's tags, if its files are at hand.
fn tags(own: Option<&OwnLog>, start: &LogStart) -> Option<Arc<TagKey>> {
    let secret = own.and_then(OwnLog::secret)?;
    Some(Arc::new(TagKey::of_cluster(secret, start.system)))
}

fn check_own(
    archive: &WalArchive,
    start: &LogStart,
    own: &OwnLog,
) -> Result<Option<SegmentDigest>, Error> {
    let size = own.segment_size();
    // Segments that the server has written and the archive may have: those waiting to be archived (their archiving may
    // have been refused), the segment before the start, and the start's own segment up to the start.
    let first = SegmentName::holding(start.timeline, start.first, size);
    let written = start.first.0 - first.start(size).0;
    let before = first.start(size).0.checked_sub(1);
    let before = before.map(|last| SegmentName::holding(start.timeline, Lsn(last), size));
    let whole = own.waiting().into_iter().take(WAITING_MAX).chain(before);
    let stretches = whole.map(|name| (name, size.bytes()));
    for (name, len) in stretches.chain([(first, written)]) {
        match compare(archive, own, (name, len)) {
            Err(Error::Archive(wal::Error::Missing { .. })) => {}
            compared => drop::<Compared>(compared?),
        }
    }
    // Includes WAL after the start, which contains the time of the checkpoint.
    let written = own.written(first, start.first)?;
    SegmentDigest::take(own, first, written)
}

/// How many of the waiting segments are compared before a backup.
const WAITING_MAX: usize = 4;

/// The result of a comparison with the server's segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    Same,
    /// The server no longer has the segment.
    Gone,
    /// More had to be compared than the server has certainly written, and it differs: a standby may still receive it.
    Unclear,
}

/// Compares the first bytes of a segment in the archive with the server's.
///
/// Errors: the archive's `OtherBranch` if they differ, `Missing`, `Unopened`.
fn compare(
    archive: &WalArchive,
    own: &OwnLog,
    (name, len): (SegmentName, u64),
) -> Result<Compared, Error> {
    let mut comparison = archive.comparison(name, len)?;
    let compared = comparison.len();
    let mut same = Ok(true);
    let is_own = own.read(name, compared, &mut |bytes| {
        same = comparison.take(bytes);
        match same {
            Ok(true) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    })?;
    match (is_own, same?) {
        (true, true) if comparison.is_whole() => Ok(Compared::Same),
        (false, _) | (true, true) => Ok(Compared::Gone),
        (true, false) if compared > len && comparison.block_end() > len => Ok(Compared::Unclear),
        (true, false) => Err(other_branch(archive, own, name)),
    }
}

fn other_branch(archive: &WalArchive, own: &OwnLog, name: SegmentName) -> Error {
    Error::Archive(wal::Error::OtherBranch {
        archive: archive.path().to_owned(),
        name,
        path: own.path_of(name),
    })
}

fn check_system(archive: &WalArchive, start: &LogStart) -> Result<(), Error> {
    match archive.identity() {
        Some(identity) if identity.system != start.system => {
            Err(Error::Archive(wal::Error::OtherCluster {
                path: "the server".into(),
                archive: archive.path().into(),
                expected: identity.system,
                found: start.system,
            }))
        }
        _ => Ok(()),
    }
}

/// Waits until every segment from the backup's start to its end is in the archive, and proves that the segments are
/// this server's. Blocks up to `proof.patience`.
///
/// A segment's name and checksum do not show which branch of the cluster wrote it. So every segment that the server
/// still has is compared byte for byte, each segment must continue the one before, and a primary's last segment must
/// end with this backup's end record. If the server has recycled the first segment, or a standby the last one, the
/// archive's must match the sample taken before.
///
/// Errors: [`Error::LogMissing`] with the first segment that is missing or incomplete; [`Error::Archive`] if the
/// directory is not an archive, or belongs to another cluster or to another branch of this one; [`Error::Reliance`];
/// [`Error::Cancelled`].
pub fn wait_for_log(
    context: &RunContext,
    proof: &WalProof,
    (start, end): (&LogStart, &LogEnd),
    known: ServerFacts<'_>,
) -> Result<(), Error> {
    if let Some(reliance) = &proof.reliance {
        let archive = WalArchive::open(&*context.storage, &proof.archive)?;
        reliance.settle(&archive, start.system, start.first, proof.patience)?;
    }
    let began = context.clock.now();
    let mut compared = SegmentComparison::default();
    if let (Some(own), false) = (known.own, end.is_marked) {
        let (_, last) = ends(start, end, own.segment_size());
        let written = end.last.0.saturating_sub(last.start(own.segment_size()).0);
        compared.last = SegmentDigest::take(own, last, written)?;
    }
    if let (Some(own), true) = (known.own, end.is_marked) {
        compared.last_tags = sample(own, start, end)?;
    }
    loop {
        context.check_cancel()?;
        let is_late = context.clock.now() - began >= proof.patience;
        match first_missing(
            context,
            &proof.archive,
            (start, end),
            known.own,
            &mut compared,
        ) {
            Ok(None) => {
                check_history(context, &proof.archive, end, known.history)?;
                match prove(context, &proof.archive, (start, end), known, &compared) {
                    // The standby's own last segment may still be on its way.
                    Err(Error::Archive(wal::Error::BranchUnknown { .. }))
                        if compared.is_unclear && !is_late => {}
                    proved => return proved,
                }
            }
            Ok(Some((segment, count))) if is_late => {
                return Err(Error::LogMissing {
                    archive: proof.archive.clone(),
                    segment,
                    count,
                    waited_s: proof.patience.as_secs(),
                });
            }
            Ok(Some(_)) => {}
            // The archive's first segment is still to come.
            Err(Error::Archive(wal::Error::NothingYet { .. })) if !is_late => {}
            Err(e) => return Err(e),
        }
        context.clock.sleep(LOOK_EVERY);
    }
}

/// Segments that were compared with the server's own WAL.
#[derive(Default)]
struct SegmentComparison {
    next: Option<SegmentName>,
    first_is_same: bool,
    last_is_same: bool,
    /// The last segment differs after the part that the server has certainly written.
    is_unclear: bool,
    /// A sample of a standby's last segment, taken before the wait.
    last: Option<SegmentDigest>,
    /// A sample of a primary's last segment, taken before the wait, for an archive that this host cannot read.
    last_tags: Option<SegmentTags>,
}

impl SegmentComparison {
    /// Compares the segments that are in the archive by now.
    fn go_on(
        &mut self,
        archive: &WalArchive,
        own: &OwnLog,
        (start, end): (&LogStart, &LogEnd),
        size: SegmentSize,
    ) -> Result<(), Error> {
        let (first, last) = ends(start, end, size);
        let mut name = self.next.unwrap_or(first);
        while name <= last {
            let is_border = name == first || name == last;
            if own.is_at_hand() || is_border {
                let written = end.last.0.saturating_sub(name.start(size).0);
                let same = match compare(archive, own, (name, written.min(size.bytes()))) {
                    // The segment is still to come.
                    Err(Error::Archive(wal::Error::Missing { .. })) => return Ok(()),
                    compared => compared?,
                };
                if same == Compared::Unclear && name == last {
                    // A primary has closed its last segment.
                    if end.is_marked {
                        return Err(other_branch(archive, own, name));
                    }
                    self.is_unclear = true;
                    return Ok(());
                }
                let same = same == Compared::Same;
                self.first_is_same |= same && name == first;
                self.last_is_same |= same && name == last;
            }
            name = name.next(size);
            self.next = Some(name);
        }
        Ok(())
    }
}

/// The segments in which the backup's WAL begins and ends. It begins and ends on one timeline.
fn ends(start: &LogStart, end: &LogEnd, size: SegmentSize) -> (SegmentName, SegmentName) {
    let last = Lsn(end.last.0.saturating_sub(1)).max(start.first);
    (
        SegmentName::holding(end.timeline, start.first, size),
        SegmentName::holding(end.timeline, last, size),
    )
}

/// Tags of the segment in which a primary's backup ends, which is closed; `None` if the server has no key for them, or no
/// longer has the segment.
fn sample(own: &OwnLog, start: &LogStart, end: &LogEnd) -> Result<Option<SegmentTags>, Error> {
    let Some(key) = tags(Some(own), start) else {
        return Ok(None);
    };
    let size = own.segment_size();
    let (_, last) = ends(start, end, size);
    let written = end.last.0.saturating_sub(last.start(size).0);
    let mut sample = SegmentTags::of(key, last, size, written.min(size.bytes()));
    let is_own = own.read(last, sample.len(), &mut |bytes| {
        sample.take(bytes);
        ControlFlow::Continue(())
    })?;
    Ok(is_own.then_some(sample))
}

/// Proves that the archived WAL is this backup's.
fn prove(
    context: &RunContext,
    path: &Path,
    (start, end): (&LogStart, &LogEnd),
    known: ServerFacts<'_>,
    compared: &SegmentComparison,
) -> Result<(), Error> {
    let (Some(own), archive) = (known.own, existing(context, path)?) else {
        return Ok(());
    };
    let Some(identity) = archive.identity() else {
        return Ok(());
    };
    let (first, last) = ends(start, end, identity.segment_size);
    let history = History::first(end.timeline);
    let is_readable = |name| archive.is_readable(WalName::Segment(name));
    if !is_readable(first)? || !is_readable(last)? {
        let is_sampled = || match &compared.last_tags {
            Some(sample) => archive.is_sampled(sample),
            None => Ok(false),
        };
        return match compared.last_is_same || is_sampled()? {
            true => Ok(()),
            false => Err(Error::Archive(wal::Error::BranchUnknown {
                archive: archive.path().to_owned(),
                name: last,
                what: match compared.is_unclear {
                    true => {
                        "it is encrypted, no identity opens it, and the server's own differs or is not complete yet"
                    }
                    false => {
                        "it is encrypted, no identity opens it, and the server no longer has it"
                    }
                },
            })),
        };
    }
    archive.check_links(&history, start.first, end.last)?;
    if end.is_marked && !archive.ends_backup(&history, start.first, end.last)? {
        return Err(other_branch(&archive, own, last));
    }
    // Segments that the server had earlier and has recycled since.
    let by_sample = |name, sample: Option<SegmentDigest>| match sample {
        Some(sample) if sample.is_of(&archive, name)? => Ok(()),
        Some(_) => Err(other_branch(&archive, own, name)),
        None => Err(Error::Archive(wal::Error::BranchUnknown {
            archive: archive.path().to_owned(),
            name,
            what: "the server no longer has it",
        })),
    };
    if !compared.first_is_same {
        by_sample(first, known.first)?;
    }
    match compared.last_is_same || end.is_marked {
        true => Ok(()),
        false => by_sample(last, compared.last),
    }
}

/// An archive that received its first WAL after a promotion may lack the timeline's history.
fn check_history(
    context: &RunContext,
    path: &Path,
    end: &LogEnd,
    history: Option<&[u8]>,
) -> Result<(), Error> {
    let Some(theirs) = history else {
        return Ok(());
    };
    let archive = existing(context, path)?;
    match archive.check_history(end.timeline, theirs, Path::new("the server")) {
        Err(wal::Error::Missing { .. }) => Ok(()),
        checked => Ok(checked?),
    }
}

fn first_missing(
    context: &RunContext,
    path: &Path,
    (start, end): (&LogStart, &LogEnd),
    own: Option<&OwnLog>,
    compared: &mut SegmentComparison,
) -> Result<Option<(String, u64)>, Error> {
    let archive = existing(context, path)?.with_tags(tags(own, start));
    check_system(&archive, start)?;
    let Some(identity) = archive.identity() else {
        return Ok(None);
    };
    if let Some(own) = own {
        compared.go_on(&archive, own, (start, end), identity.segment_size)?;
    }
    let history = History::first(end.timeline);
    let missing = archive.missing(&history, start.first, end.last)?;
    let count = missing.iter().map(|span| span.segments).sum();
    if let Some(span) = missing.first() {
        return Ok(Some((span.first.to_string(), count)));
    }
    // A segment that was archived before it was full may end before the backup does.
    let (_, last) = ends(start, end, identity.segment_size);
    match archive.is_unfinished(WalName::Segment(last)) {
        Ok(false) => Ok(None),
        Ok(true) | Err(wal::Error::Missing { .. }) => Ok(Some((last.to_string(), 1))),
        Err(e) => Err(e.into()),
    }
}

/// Proves that the archive has the WAL that a recovery from this set needs.
///
/// Errors: those of [`WalArchive::check_witness`], [`WalArchive::check_plain`] and [`WalArchive::prove`].
pub fn prove_replay(
    context: &RunContext,
    path: &Path,
    (header, trailer): (&SetHeader, &SetTrailer),
    recovery: &Recovery,
) -> Result<ProvenLog, Error> {
    let archive = existing(context, path)?;
    let log = LogRange {
        system: header.log.system,
        first_timeline: header.log.timeline,
        first_lsn: header.log.first_lsn,
        last_timeline: trailer.log.timeline,
        last_lsn: trailer.log.last_lsn,
    };
    let lineage = Lineage::decode(&header.lineage);
    archive.check_witness(lineage.as_ref().and_then(|l| l.witness.as_ref()))?;
    archive.check_plain(&log, trailer.finish_us, recovery)?;
    let reach = Reach::of(recovery.target.as_ref(), Lsn(log.last_lsn));
    Ok(archive.prove(&log, trailer.log.included, recovery, reach)?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use longshore_io::{HostClock, SimDisk};
    use longshore_pg::Timeline;

    use super::support::{ARCHIVE, PAGE, SEGMENT, SYSTEM, disk, name, push, segment};
    use super::*;

    fn context(disk: &SimDisk) -> RunContext {
        RunContext {
            keyring: Default::default(),
            storage: Arc::new(disk.clone()),
            clock: Arc::new(HostClock),
            catalog: None,
            cancel: Arc::default(),
            accelerators: Vec::new(),
        }
    }

    /// Goal: only a last segment that holds the WAL up to the backup's end proves a backup. A segment that was
    /// archived before it was full may end earlier, although its name and length are right.
    #[test]
    fn a_last_segment_that_was_handed_over_too_early_proves_nothing() {
        for early in [false, true] {
            let disk = disk(1);
            push(&disk, name(1, 3), &segment(1, 3, 3)).unwrap();
            let mut last = segment(1, 4, 4);
            if early {
                // The content of an earlier use of the file.
                last[SEGMENT - PAGE..].copy_from_slice(&segment(1, 1, 1)[..PAGE]);
            }
            push(&disk, name(1, 4), &last).unwrap();
            let proof = WalProof {
                archive: ARCHIVE.into(),
                patience: Duration::ZERO,
                reliance: None,
            };
            let timeline = Timeline::new(1).unwrap();
            let start = LogStart {
                system: SYSTEM,
                timeline,
                first: Lsn(3 * SEGMENT as u64 + 40),
            };
            // Inside the segment, and at its very end.
            for last in [4 * SEGMENT as u64 + 100, 5 * SEGMENT as u64] {
                let end = LogEnd {
                    timeline,
                    last: Lsn(last),
                    included: false,
                    is_marked: false,
                };
                let known = ServerFacts {
                    own: None,
                    first: None,
                    history: None,
                };
                let proved = wait_for_log(&context(&disk), &proof, (&start, &end), known);
                match proved {
                    Ok(()) => assert!(!early, "{last}"),
                    Err(Error::LogMissing {
                        archive, segment, ..
                    }) => {
                        assert!(early && archive == Path::new(ARCHIVE), "{last}");
                        assert_eq!(segment, name(1, 4).to_string());
                    }
                    Err(e) => panic!("{e}"),
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(
    dead_code,
    reason = "the archive's own tests use all of it, this module's a part"
)]
#[path = "../../wal/tests/archive/support.rs"]
pub(crate) mod support;
