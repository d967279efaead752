//! Proof that the log a backup needs is in its archive: without it the set must not become valid.

use std::path::{Path, PathBuf};
use std::time::Duration;

use longshore_pg::wal::History;
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

/// Waits until every segment from the backup's start to its end is in the archive. Blocks up to `proof.patience`.
///
/// Errors: [`Error::LogMissing`] with the first segment that is not there; [`Error::Archive`] when the directory is no
/// archive, or another cluster's; [`Error::Cancelled`].
pub fn wait_for_log(
    house: &House,
    proof: &WalProof,
    start: &LogStart,
    end: &LogEnd,
) -> Result<(), Error> {
    let began = house.clock.now();
    loop {
        house.check_cancel()?;
        let is_late = house.clock.now() - began >= proof.patience;
        match first_missing(house, &proof.archive, start, end) {
            Ok(None) => return Ok(()),
            Ok(Some((segment, count))) if is_late => {
                return Err(Error::LogMissing {
                    archive: proof.archive.clone(),
                    segment,
                    count,
                    waited_s: proof.patience.as_secs(),
                });
            }
            Ok(Some(_)) => {}
            // The first segment of all makes it one, and is on its way.
            Err(Error::Archive(wal::Error::NotAnArchive { .. })) if !is_late => {}
            Err(e) => return Err(e),
        }
        house.clock.sleep(LOOK_EVERY);
    }
}

fn first_missing(
    house: &House,
    path: &Path,
    start: &LogStart,
    end: &LogEnd,
) -> Result<Option<(String, u64)>, Error> {
    let archive = WalArchive::existing(&*house.storage, path)?;
    if let Some(identity) = archive.identity()
        && identity.system != start.system
    {
        return Err(Error::Archive(wal::Error::OtherCluster {
            path: "the server".into(),
            archive: path.into(),
            expected: identity.system,
            found: start.system,
        }));
    }
    // The backup began and ended on this timeline.
    let history = History::first(end.timeline);
    let missing = archive.missing(&history, start.first, end.last)?;
    let count = missing.iter().map(|span| span.segments).sum();
    Ok(missing.first().map(|span| (span.first.to_string(), count)))
}
