//! Determines from a server's own files which branch of its cluster it is on, and how earlier backups relate to it.
//!
//! Invariants
//! - No backup is started and nothing is written.
//! - A relation that cannot be decided stays unknown; it is never guessed. If the server's files are not readable, it
//!   is asked over a replication connection (`remote/branch.rs`); if it takes none, only its system identifier is
//!   known.
//! - A base that may be of another branch no longer counts as of this server's run, so all its pages are compared.
//!
//! Leaves to others: comparing histories and samples (`longshore-pg`), and what a relation means for a backup (the
//! pipeline and the programs).

use std::io;
use std::path::Path;
use std::sync::Arc;

use longshore_facts as facts;
use longshore_io::{Dir, HostClock, OpenHow, Storage, Via, boot_id};
use longshore_pg::client::Options;
use longshore_pg::lineage::{Digest, TimelineHistory};
use longshore_pg::wal::{restored_sets, segments_in};
use longshore_pg::{
    Control, Earlier, Lineage, Lsn, Relation, SegmentName, SegmentSize, Timeline, Witness,
};

use super::cluster::{DataDirectory, data_directory, open_link, pid_file_process, read_control};
use super::log_files::{self, WAL_DIR};
use super::remote;
use super::server_branch::ServerBranch;
use super::session::Session;
use crate::Error;
use crate::base::Base;

/// Connects to a server and determines its branch. Starts no backup.
///
/// Errors: the server cannot be reached.
pub fn identify(
    storage: &Arc<dyn Storage>,
    server: &Options,
    earlier: &[Earlier],
) -> Result<ServerBranch, Error> {
    let clock = Arc::new(HostClock);
    let session = Session::open(&**storage, server, clock.clone())?;
    let found = data_directory(&**storage, &*clock, &session.about);
    let DataDirectory { dir, path, .. } = match found {
        Ok(found) => found,
        Err(Error::DataDirectory { .. } | Error::Io { .. }) => {
            match remote::branch::identify(storage, server, earlier) {
                Ok(found) => return Ok(found),
                Err(error) => {
                    let error = crate::error::with_cause(&error);
                    tracing::info!(error, "the server does not say on which branch it is");
                }
            }
            let reached = session.log_end()?;
            let timeline = Timeline::new(1).unwrap_or(Timeline(std::num::NonZeroU32::MIN));
            let lineage = Lineage::unrecorded(session.about.system, timeline, reached);
            let relation = |earlier: &Earlier| match earlier.lineage.system == lineage.system {
                true => Relation::Unknown(longshore_pg::lineage::Doubt::NotCompared),
                false => lineage.comes_from(earlier),
            };
            let relations = earlier.iter().map(relation).collect();
            return Ok(ServerBranch { lineage, relations });
        }
        Err(e) => return Err(e),
    };
    let (control, _) = read_control(&*dir, &path, &*clock)?;
    let (wal_dir, _) = open_link(&**storage, &path.join(WAL_DIR))?;
    let mut lineage = observe(&session, (&*dir, &path), &*wal_dir, &control)?;
    let relations = relate(&mut lineage, &*wal_dir, control.wal_segment, earlier);
    Ok(ServerBranch { lineage, relations })
}

/// The server's lineage as of the checkpoint in `control`.
pub(super) fn observe(
    session: &Session,
    (dir, path): (&dyn Dir, &Path),
    wal_dir: &dyn Dir,
    control: &Control,
) -> Result<Lineage, Error> {
    let timeline = control.timeline;
    let line = match timeline.number() {
        1 => Some(TimelineHistory::first()),
        _ => log_files::history(wal_dir, timeline)
            .and_then(|text| TimelineHistory::parse(timeline, &text).ok()),
    };
    let size = control.wal_segment;
    let read = segments_in(wal_dir, timeline, size);
    let witness = Witness::take(read, timeline, control.checkpoint, size);
    let witness = witness.inspect_err(|error| {
        let error = crate::error::with_cause(error);
        tracing::warn!(
            error,
            "the checkpoint record cannot be read, so the backup does not record its branch"
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

/// A digest of the host, the directory's path and its inode: a copy of the directory has a different one.
pub fn home(dir: &dyn Dir, path: &Path) -> Option<Digest> {
    let ino = dir.stat(Path::new("")).ok()?.ino.to_le_bytes();
    let host = facts::host_name();
    Some(Digest::of([
        host.as_bytes(),
        path.as_os_str().as_encoded_bytes(),
        &ino,
    ]))
}

/// A digest of the server's process on this machine. `None` if the process is not visible, as from another container.
fn run(dir: &dyn Dir) -> Option<Digest> {
    let pid = pid_file_process(dir)?;
    let started = facts::process_started(pid)?.to_le_bytes();
    let boot = boot_id()?;
    Some(Digest::of([
        boot.as_bytes(),
        &pid.to_le_bytes()[..],
        &started,
    ]))
}

/// The relation of each backup to the server; records them in the server's lineage.
pub(super) fn relate(
    lineage: &mut Lineage,
    wal_dir: &dyn Dir,
    size: SegmentSize,
    earlier: &[Earlier],
) -> Vec<Relation> {
    let now = lineage.timeline;
    let history = log_files::history(wal_dir, now).unwrap_or_default();
    let restored = restored_sets(now, &history);
    let relation = |earlier: &Earlier| {
        let relation = lineage.follows(earlier, |timeline, at, buf| {
            read(wal_dir, size, (timeline, now), at, buf)
        });
        relation.or_restored(restored.contains(&earlier.set))
    };
    let relations: Vec<Relation> = earlier.iter().map(relation).collect();
    for (earlier, relation) in earlier.iter().zip(&relations) {
        lineage.note(earlier.set, relation);
    }
    relations
}

/// Differences from a base are found by content, so any base of any branch will do. But others may remove a base of
/// another branch, and the summaries of this server's WAL say nothing of it: a base that may be one no longer tells
/// when its server was started. The operator is told why.
pub(super) fn distrust(
    base: &mut Base,
    lineage: &Lineage,
    wal_dir: &dyn Dir,
    size: SegmentSize,
) -> Option<String> {
    let identity = base.identity.as_ref()?;
    let mut asked = lineage.clone();
    let relation = relate(&mut asked, wal_dir, size, std::slice::from_ref(identity)).pop();
    let of_this_run = lineage.run.is_some() && identity.lineage.run == lineage.run;
    let doubt = match relation? {
        Relation::Refuted(what) => format!("the base is of another branch of the cluster: {what}"),
        Relation::Unknown(what) if !of_this_run => {
            format!("the base is not known to be of this server's branch: {what}")
        }
        Relation::Unknown(_) | Relation::Proved(_) => return None,
    };
    base.server_started_us = None;
    Some(format!(
        "{doubt}; the content of every page is compared with the base"
    ))
}

/// Reads WAL of a timeline. The segment in which the timeline ended also exists under the next timeline's name.
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
