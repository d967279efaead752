//! Refuses to choose between two timelines that both have transactions which the other lacks.
//!
//! Invariants
//! - A timeline that the user names is never refused here.
//! - Both timelines are named, with the LSN where they part and the WAL that each has.
//!
//! Leaves to others: comparing timelines (`longshore-wal`).

use longshore_pg::Recovery;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::numbers;
use longshore_terminal::output::{bytes, moment};
use longshore_wal::{LogRange, WalArchive};

use crate::options::Restore;

/// Refuses the latest timeline if it leaves one with newer transactions, as a copy does that was promoted and archives.
pub fn refuse(
    archive: &WalArchive,
    log: &LogRange,
    recovery: &Recovery,
    options: &Restore,
) -> Result<(), Failure> {
    if options.cluster.target_timeline.is_some() {
        return Ok(());
    }
    let parting = archive.parting(log, recovery);
    let Some(parting) = parting.map_err(longshore_repository::Error::from)? else {
        return Ok(());
    };
    let (left, followed, at) = (parting.left, parting.followed, parting.at);
    let beyond = |end: longshore_pg::Lsn| bytes(end.0.saturating_sub(at.0));
    let ended = match parting.left_us {
        Some(us) => format!("its last transaction ended at {} UTC", moment(us)),
        None => "the end of its last transaction cannot be read".to_owned(),
    };
    let began = match parting.began_us {
        Some(us) => format!("it began at {} UTC", moment(us)),
        None => "it cannot be read when it began".to_owned(),
    };
    let text = format!(
        "the archive {} has two timelines that part at {at}, and each has WAL that the other lacks: timeline {left} goes on for {} \
         ({ended}), timeline {followed} for {} ({began}): it is not plain which one to restore",
        archive.path().display(),
        beyond(parting.left_end),
        beyond(parting.followed_end),
    );
    let hint = format!(
        "if timeline {followed} is a restored copy's, restore with --target-timeline {left}; if the database went on with {followed}, \
         restore with --target-timeline latest"
    );
    Err(Failure::new(Exit::Media, numbers::ARCHIVE, text, hint))
}
