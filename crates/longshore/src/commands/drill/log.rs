//! Fetches the WAL that a backup needs but does not hold: from the archive into the restored cluster's `pg_wal`.
//!
//! A server that finds its WAL in `pg_wal` needs no restore_command, and so neither our program nor the right to read
//! the archive.
//!
//! Invariants
//! - WAL is fetched only after the proof that a restore to the backup's own moment demands.
//! - WAL that is missing or damaged is a finding of the drill; other errors end it.
//! - The files belong to the owner of `pg_wal`, as the server demands.
//!
//! Leaves to others: the proof and the checks of each file (`longshore-wal`), and starting the server
//! (`drill/postgres.rs`).

use std::path::Path;

use longshore_io::Attributes;
use longshore_media::{SetHeader, SetTrailer};
use longshore_pg::wal::WalName;
use longshore_pg::{Lineage, Lsn, Recovery, RecoveryTarget, SegmentName, Timeline, TimelineChoice};
use longshore_repository::Shelf;
use longshore_wal::LogRange;
use longshore_wal::proof::Reach;
use longshore_wal::{Error, WalArchive};

use super::proof::Proof;
use crate::context::Context;
use longshore_terminal::failure::Failure;

/// The proof about the WAL without which the backup is worthless.
pub const WHAT: &str = "log";

/// `None`: the backup holds all the WAL it needs.
pub fn fetch(
    context: &Context,
    shelf: &Shelf,
    header: &SetHeader,
    trailer: &SetTrailer,
    data: &Path,
) -> Result<Option<Proof>, Failure> {
    let what = WHAT;
    let Some(timeline) = Timeline::new(trailer.log.timeline).filter(|_| !trailer.log.included)
    else {
        return Ok(None);
    };
    let Some(archive) = shelf.wal()? else {
        let text = "the backup does not hold its WAL, and there is no archive at the target";
        return Ok(Some(Proof::of_place(what, false, text)));
    };
    let (first, last) = (Lsn(header.log.first_lsn), Lsn(trailer.log.last_lsn));
    let lineage = Lineage::decode(&header.lineage);
    let witness = lineage.as_ref().and_then(|l| l.witness.as_ref());
    // The same proof refuses a restore to the backup's own moment.
    let Some(log) = range(header, trailer) else {
        return Ok(None);
    };
    let recovery = Recovery {
        target: Some(RecoveryTarget::Immediate),
        timeline: TimelineChoice::Current,
        ..Recovery::default()
    };
    let reach = Reach::of(recovery.target.as_ref(), last);
    let proved = archive
        .check_witness(witness)
        .and_then(|()| archive.prove(&log, false, &recovery, reach));
    if let Err(refused) = proved {
        return Ok(Some(Proof::of_place(what, false, refused.to_string())));
    }
    match copy(context, &archive, timeline, (first, last), data) {
        Ok(count) => {
            let text = format!("{count} segments from the archive");
            Ok(Some(Proof::of_place(what, true, text)))
        }
        Err(e @ (Error::Missing { .. } | Error::Damaged { .. } | Error::NotHistory { .. })) => {
            Ok(Some(Proof::of_place(what, false, e.to_string())))
        }
        Err(e) => Err(e.into()),
    }
}

/// The WAL that the backup needs; `None` for a set without WAL.
pub fn range(header: &SetHeader, trailer: &SetTrailer) -> Option<LogRange> {
    Timeline::new(trailer.log.timeline)?;
    Some(LogRange {
        system: header.log.system,
        first_timeline: header.log.timeline,
        first_lsn: header.log.first_lsn,
        last_timeline: trailer.log.timeline,
        last_lsn: trailer.log.last_lsn,
    })
}

fn copy(
    context: &Context,
    archive: &WalArchive,
    timeline: Timeline,
    (first, last): (Lsn, Lsn),
    data: &Path,
) -> Result<u64, Error> {
    let path = data.join("pg_wal");
    let io = |source| Error::Io {
        action: "open",
        path: path.clone(),
        offset: None,
        source,
    };
    let Some(identity) = archive.identity() else {
        return Err(Error::NothingYet {
            path: archive.path().to_owned(),
        });
    };
    let size = identity.segment_size;
    let dir = context.storage.dir(&path).map_err(io)?;
    let stat = dir.stat(Path::new("")).map_err(io)?;
    let ours = Attributes {
        owner: Some((stat.uid, stat.gid)),
        ..Attributes::default()
    };
    let history = archive.history(timeline)?;
    let fetch = |name: WalName| -> Result<(), Error> {
        let to = name.to_string();
        archive.fetch(name, &dir, &path, &to, &*context.clock)?;
        dir.set_attributes(Path::new(&to), &ours).map_err(io)
    };
    if timeline.number() > 1 {
        fetch(WalName::History(timeline))?;
    }
    let end = Lsn(last.0.saturating_sub(1).max(first.0));
    let mut name = SegmentName::holding(history.timeline_at(first), first, size);
    let mut count = 1;
    fetch(WalName::Segment(name))?;
    while Lsn(name.start(size).0 + size.bytes()) <= end {
        let next = Lsn(name.start(size).0 + size.bytes());
        name = SegmentName::holding(history.timeline_at(next), next, size);
        fetch(WalName::Segment(name))?;
        count += 1;
    }
    Ok(count)
}
