//! Which branch of its cluster's life a server is of, told by its own files, and how earlier backups relate to it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use longshore_io::{Dir, HostClock, OpenHow, Storage, Via, facts};
use longshore_pg::client::Options;
use longshore_pg::lineage::{Digest, Line};
use longshore_pg::wal::segments_in;
use longshore_pg::{
    Control, Earlier, Lineage, Lsn, Relation, SegmentName, SegmentSize, Timeline, Witness,
};

use super::cluster::{data_directory, pid_file_process, read_control};
use super::log_files::{self, WAL_DIR};
use super::open_link;
use super::session::Session;
use crate::Error;

/// What a server is now, and how each of the earlier backups relates to it.
#[derive(Debug)]
pub struct Identified {
    pub lineage: Lineage,
    /// In the order in which the backups were given.
    pub relations: Vec<Relation>,
}

/// Connects to a server and says which branch it is of. Nothing is begun. Where the server's files are out of reach, only
/// its system identifier is known.
///
/// Errors: a server that cannot be reached.
pub fn identify(
    storage: &dyn Storage,
    server: &Options,
    earlier: &[Earlier],
) -> Result<Identified, Error> {
    let clock = Arc::new(HostClock);
    let session = Session::open(storage, server, clock.clone())?;
    let found = data_directory(storage, &*clock, &session.about);
    let (dir, path, _) = match found {
        Ok(found) => found,
        Err(Error::DataDirectory { .. } | Error::Io { .. }) => {
            let reached = session.log_end()?;
            let timeline = Timeline::new(1).unwrap_or(Timeline(std::num::NonZeroU32::MIN));
            let lineage = Lineage::unrecorded(session.about.system, timeline, reached);
            let relation = |earlier: &Earlier| match earlier.lineage.system == lineage.system {
                true => Relation::Unknown(longshore_pg::lineage::Doubt::NotCompared),
                false => lineage.comes_from(earlier),
            };
            let relations = earlier.iter().map(relation).collect();
            return Ok(Identified { lineage, relations });
        }
        Err(e) => return Err(e),
    };
    let (control, _) = read_control(&*dir, &path, &*clock)?;
    let (wal_dir, _) = open_link(storage, &path.join(WAL_DIR))?;
    let mut lineage = observe(&session, (&*dir, &path), &*wal_dir, &control)?;
    let relations = relate(&mut lineage, &*wal_dir, control.wal_segment, earlier);
    Ok(Identified { lineage, relations })
}

/// What the server is, as of the checkpoint of `control`.
pub(super) fn observe(
    session: &Session,
    (dir, path): (&dyn Dir, &Path),
    wal_dir: &dyn Dir,
    control: &Control,
) -> Result<Lineage, Error> {
    let timeline = control.timeline;
    let line = match timeline.number() {
        1 => Some(Line::first()),
        _ => {
            log_files::history(wal_dir, timeline).and_then(|text| Line::parse(timeline, &text).ok())
        }
    };
    let size = control.wal_segment;
    let read = segments_in(wal_dir, timeline, size);
    let witness = Witness::take(read, timeline, control.checkpoint, size);
    let witness = witness.inspect_err(|error| {
        let error = crate::error::with_cause(error);
        tracing::warn!(
            error,
            "the checkpoint's record cannot be read: the backup has no witness"
        );
    });
    Ok(Lineage {
        line,
        checkpoint: control.checkpoint,
        next_xid: control.next_xid,
        in_recovery: session.about.in_recovery,
        home: home(dir, path),
        run: run(dir),
        witness: witness.ok(),
        ..Lineage::unrecorded(control.system, timeline, session.log_end()?)
    })
}

/// Of the host, the directory's path and its inode: a copy of the directory has another one.
pub fn home(dir: &dyn Dir, path: &Path) -> Option<Digest> {
    let ino = dir.stat(Path::new("")).ok()?.ino.to_le_bytes();
    let host = facts::host_name();
    Some(Digest::of([
        host.as_bytes(),
        path.as_os_str().as_encoded_bytes(),
        &ino,
    ]))
}

/// Of the server's process, as this machine knows it. `None` where it cannot be seen, as from another container.
fn run(dir: &dyn Dir) -> Option<Digest> {
    let pid = pid_file_process(dir)?;
    let started = facts::process_started(pid)?.to_le_bytes();
    let boot = facts::boot_id()?;
    Some(Digest::of([
        boot.as_bytes(),
        &pid.to_le_bytes()[..],
        &started,
    ]))
}

/// How each of the backups relates to the server, whose lineage takes note of it.
pub(super) fn relate(
    lineage: &mut Lineage,
    wal_dir: &dyn Dir,
    size: SegmentSize,
    earlier: &[Earlier],
) -> Vec<Relation> {
    let now = lineage.timeline;
    let relation = |earlier: &Earlier| {
        lineage.follows(earlier, |timeline, at, buf| {
            read(wal_dir, size, (timeline, now), at, buf)
        })
    };
    let relations: Vec<Relation> = earlier.iter().map(relation).collect();
    for (earlier, relation) in earlier.iter().zip(&relations) {
        lineage.note(earlier.set, relation);
    }
    relations
}

/// Reads WAL that was written on a timeline. The segment in which it was left is there by a later one's name, too.
fn read(
    dir: &dyn Dir,
    size: SegmentSize,
    (first, last): (Timeline, Timeline),
    at: Lsn,
    buf: &mut [u8],
) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        let place = Lsn(at.0 + done as u64);
        let within = place.0 % size.bytes();
        let len = (size.bytes() - within).min((buf.len() - done) as u64) as usize;
        let names = (first.number()..=last.number()).filter_map(Timeline::new);
        let mut opened = Err(io::ErrorKind::NotFound.into());
        for timeline in names {
            let name = SegmentName::holding(timeline, place, size).to_string();
            opened = dir.open(Path::new(&name), OpenHow::Read);
            match &opened {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                _ => break,
            }
        }
        opened?.read_exact_at(&mut buf[done..done + len], within, Via::Cache)?;
        done += len;
    }
    Ok(())
}
