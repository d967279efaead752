//! Proof that log is in its archive: what a backup needs, or the set must not become valid; what a recovery needs, or
//! nothing must be written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_media::{SetHeader, SetTrailer};
use longshore_pg::wal::{History, WalName};
use longshore_pg::{Lsn, Recovery, SegmentName};
use longshore_repository::chain::LogRange;
use longshore_repository::recover::Reach;
use longshore_repository::wal::{self, WalArchive};
use longshore_source::{LogEnd, LogStart};

use crate::{Error, House};

/// How often the archive is looked at while the server still hands over.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Where the log is proved to be, and how long it may take to get there.
#[derive(Debug, Clone)]
pub struct WalProof {
    /// The archive's own directory.
    pub archive: PathBuf,
    pub patience: Duration,
}

/// Refuses at the beginning what could only fail at the end: a directory that is no archive, or another cluster's.
pub fn check_archive(house: &House, proof: &WalProof, start: &LogStart) -> Result<(), Error> {
    let archive = WalArchive::open(&*house.storage, &proof.archive)?;
    check_system(&archive, start)
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

/// Waits until every segment from the backup's start to its end is in the archive. Blocks up to `proof.patience`.
/// `history` is the server's.
///
/// Errors: [`Error::LogMissing`] with the first segment that is not there, or not all of it; [`Error::Archive`] when the
/// directory is no archive, another cluster's, or that of another restore of this one; [`Error::Cancelled`].
pub fn wait_for_log(
    house: &House,
    proof: &WalProof,
    (start, end): (&LogStart, &LogEnd),
    history: Option<&[u8]>,
) -> Result<(), Error> {
    let began = house.clock.now();
    loop {
        house.check_cancel()?;
        let is_late = house.clock.now() - began >= proof.patience;
        match first_missing(house, &proof.archive, start, end) {
            Ok(None) => return check_history(house, &proof.archive, end, history),
            Ok(Some((segment, count))) if is_late => {
                return Err(Error::LogMissing {
                    archive: proof.archive.clone(),
                    segment,
                    count,
                    waited_s: proof.patience.as_secs(),
                });
            }
            Ok(Some(_)) => {}
            // The first segment of all is on its way.
            Err(Error::Archive(wal::Error::NothingYet { .. })) if !is_late => {}
            Err(e) => return Err(e),
        }
        house.clock.sleep(LOOK_EVERY);
    }
}

/// Archives that the log came into after a promotion may lack its history.
fn check_history(
    house: &House,
    path: &Path,
    end: &LogEnd,
    history: Option<&[u8]>,
) -> Result<(), Error> {
    let Some(theirs) = history else {
        return Ok(());
    };
    let archive = WalArchive::existing(&*house.storage, path)?;
    match archive.check_history(end.timeline, theirs, Path::new("the server")) {
        Err(wal::Error::Missing { .. }) => Ok(()),
        checked => Ok(checked?),
    }
}

fn first_missing(
    house: &House,
    path: &Path,
    start: &LogStart,
    end: &LogEnd,
) -> Result<Option<(String, u64)>, Error> {
    let archive = WalArchive::existing(&*house.storage, path)?;
    check_system(&archive, start)?;
    // The backup began and ended on this timeline.
    let history = History::first(end.timeline);
    let missing = archive.missing(&history, start.first, end.last)?;
    let count = missing.iter().map(|span| span.segments).sum();
    if let Some(span) = missing.first() {
        return Ok(Some((span.first.to_string(), count)));
    }
    let Some(identity) = archive.identity() else {
        return Ok(None);
    };
    // One that was handed over before it was full may end before the backup does.
    let last = Lsn(end.last.0.saturating_sub(1)).max(start.first);
    let last = SegmentName::holding(end.timeline, last, identity.segment_size);
    match archive.is_unfinished(WalName::Segment(last)) {
        Ok(false) => Ok(None),
        Ok(true) | Err(wal::Error::Missing { .. }) => Ok(Some((last.to_string(), 1))),
        Err(e) => Err(e.into()),
    }
}

/// Proves that the archive has the log that a recovery from this set needs; returns a warning where that is open.
///
/// Errors: those of [`WalArchive::prove`].
pub fn prove_replay(
    house: &House,
    path: &Path,
    (header, trailer): (&SetHeader, &SetTrailer),
    recovery: &Recovery,
) -> Result<Option<String>, Error> {
    let archive = WalArchive::existing(&*house.storage, path)?;
    let log = LogRange {
        system: header.log.system,
        first_timeline: header.log.timeline,
        first_lsn: header.log.first_lsn,
        last_timeline: trailer.log.timeline,
        last_lsn: trailer.log.last_lsn,
    };
    let reach = Reach::of(recovery.target.as_ref(), Lsn(log.last_lsn));
    let proven = archive.prove(&log, trailer.log.included, recovery, reach)?;
    Ok(proven.warning())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longshore_pg::Timeline;

    use super::support::{ARCHIVE, PAGE, SEGMENT, SYSTEM, disk, name, push, segment};
    use super::*;
    use crate::place::tests::house;

    /// Goal: a backup is proved only by a last segment that holds the log to the backup's end. One that was handed over
    /// before it was full may end before, though it is there by name and length.
    #[test]
    fn a_last_segment_that_was_handed_over_too_early_proves_nothing() {
        for early in [false, true] {
            let disk = disk(1);
            push(&disk, name(1, 3), &segment(1, 3, 3)).unwrap();
            let mut last = segment(1, 4, 4);
            if early {
                // What an earlier use of the file left there.
                last[SEGMENT - PAGE..].copy_from_slice(&segment(1, 1, 1)[..PAGE]);
            }
            push(&disk, name(1, 4), &last).unwrap();
            let proof = WalProof {
                archive: ARCHIVE.into(),
                patience: Duration::ZERO,
            };
            let timeline = Timeline::new(1).unwrap();
            let start = LogStart {
                system: SYSTEM,
                timeline,
                first: Lsn(3 * SEGMENT as u64 + 40),
            };
            // In it, and at its very end.
            for last in [4 * SEGMENT as u64 + 100, 5 * SEGMENT as u64] {
                let end = LogEnd {
                    timeline,
                    last: Lsn(last),
                    included: false,
                };
                let proved = wait_for_log(&house(&disk), &proof, (&start, &end), None);
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

// The archive's own tests use all of it, this module's a part.
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../repository/tests/wal/support.rs"]
mod support;
