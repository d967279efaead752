//! Which branch of its cluster a server is on, asked over a replication connection.
//!
//! The server's WAL proves it, as it does where the server's files can be read: the server sends the few segments that
//! are compared. A host name and a port prove nothing, because a copy may answer there tomorrow; so a lineage that was
//! asked has no home.
//!
//! Invariants
//! - No WAL is asked for that the server had not written when it said how far it is: such a request would block.
//! - WAL that the server does not send leaves a relation unknown, unless the server's history says that it was restored
//!   from that very set. It never makes one.
//!
//! Leaves to others: the comparison (`longshore-pg`), and what a relation means for a backup.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use longshore_io::Storage;
use longshore_pg::client::{Connection, Mode, Options};
use longshore_pg::lineage::TimelineHistory;
use longshore_pg::wal::restored_sets;
use longshore_pg::{Earlier, Lineage, Lsn, Relation, SegmentName, SegmentSize, Timeline, Witness};

use super::super::OwnLog;
use super::super::server_branch::ServerBranch;
use super::facts::{ReplicationFacts, history, refused};
use crate::Error;

/// Earlier backups whose WAL is asked for: the newest ones. Each costs the server two segments.
const ASKED: usize = 2;
/// Longer segments are not asked for: one of them is held in memory.
const SEGMENT_MAX: u64 = 64 << 20;

/// Asks a server for its branch, and how earlier backups relate to it. Starts no backup.
///
/// Errors: the server takes no replication connection, or does not answer.
pub fn identify(
    storage: &Arc<dyn Storage>,
    server: &Options,
    earlier: &[Earlier],
) -> Result<ServerBranch, Error> {
    let mut connection = Connection::open(&**storage, server, Mode::Replication)
        .map_err(refused("connect for replication to"))?;
    let about = ReplicationFacts::ask(&mut connection)?;
    let told = about.timeline.and_then(|t| history(&mut connection, t));
    Ok(observe(&about, told.as_deref(), storage, server, earlier))
}

/// [`identify`] for a server that was asked for its facts and its timeline's history.
pub(super) fn observe(
    about: &ReplicationFacts,
    history: Option<&[u8]>,
    storage: &Arc<dyn Storage>,
    server: &Options,
    earlier: &[Earlier],
) -> ServerBranch {
    let first = Timeline(std::num::NonZeroU32::MIN);
    let timeline = about.timeline.unwrap_or(first);
    let mut lineage = Lineage::unrecorded(about.system, timeline, about.reached);
    lineage.in_recovery = about.is_standby;
    lineage.line = line(timeline, history);
    let mut log = SentLog::new(about, storage, server);
    let restored = restored_sets(timeline, history.unwrap_or_default());
    let relations = relate(&lineage, earlier, &restored, &mut log);
    for (earlier, relation) in earlier.iter().zip(&relations) {
        lineage.note(earlier.set, relation);
    }
    ServerBranch { lineage, relations }
}

/// How a server came to its timeline; `None` if it did not say.
pub(super) fn line(timeline: Timeline, history: Option<&[u8]>) -> Option<TimelineHistory> {
    match timeline.number() {
        1 => Some(TimelineHistory::first()),
        _ => history.and_then(|text| TimelineHistory::parse(timeline, text).ok()),
    }
}

/// The witness of a backup that begins at `start`: the WAL before the segment in which it begins, which is complete.
pub(super) fn witness(
    about: &ReplicationFacts,
    (timeline, start): (Timeline, Lsn),
    storage: &Arc<dyn Storage>,
    server: &Options,
) -> Option<Witness> {
    let size = about.segment?;
    let segment = (start.0 / size.bytes()).checked_sub(1)? * size.bytes();
    let mut log = SentLog::new(about, storage, server);
    // The server began another segment for the backup.
    log.written = start;
    Witness::of_end(
        |at, buf| log.read(timeline, at, buf),
        timeline,
        Lsn(segment),
        size,
    )
}

fn relate(
    lineage: &Lineage,
    earlier: &[Earlier],
    restored: &[[u8; 16]],
    log: &mut SentLog,
) -> Vec<Relation> {
    let mut ends: Vec<Lsn> = earlier.iter().map(|earlier| earlier.end.1).collect();
    ends.sort_unstable();
    let asked_from = ends
        .iter()
        .rev()
        .nth(ASKED - 1)
        .copied()
        .unwrap_or_default();
    let relation = |earlier: &Earlier| {
        let is_asked = earlier.end.1 >= asked_from;
        let relation = lineage.follows(earlier, |timeline, at, buf| match is_asked {
            true => log.read(timeline, at, buf),
            false => Err(io::ErrorKind::NotFound.into()),
        });
        relation.or_restored(restored.contains(&earlier.set))
    };
    earlier.iter().map(relation).collect()
}

/// A server's WAL, by range. The last whole segment that was sent is kept: a digest reads it in parts.
struct SentLog {
    log: Option<OwnLog>,
    segment_bytes: u64,
    /// The server has written so far.
    written: Lsn,
    kept: Option<(SegmentName, Vec<u8>)>,
}

/// Ranges of at least this many bytes are cut out of a whole segment that is kept.
const WHOLE_FROM: usize = 1 << 20;

impl SentLog {
    fn new(about: &ReplicationFacts, storage: &Arc<dyn Storage>, server: &Options) -> SentLog {
        let size = about.segment.filter(|size| size.bytes() <= SEGMENT_MAX);
        SentLog {
            log: size.map(|size| OwnLog::sent(storage.clone(), server, size)),
            segment_bytes: size.map_or(1, SegmentSize::bytes),
            written: about.reached,
            kept: None,
        }
    }

    /// Errors: `NotFound` for WAL that the server does not have or does not send.
    fn read(&mut self, timeline: Timeline, at: Lsn, buf: &mut [u8]) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let log = self.log.clone().ok_or_else(gone)?;
        let end = Lsn(at.0.saturating_add(buf.len() as u64));
        if end > self.written {
            return Err(gone());
        }
        let mut done = 0;
        while done < buf.len() {
            let from = Lsn(at.0 + done as u64);
            let within = from.0 % self.segment_bytes;
            let len = (self.segment_bytes - within).min((buf.len() - done) as u64) as usize;
            let to = &mut buf[done..done + len];
            let name = SegmentName::holding(timeline, from, log.segment_size());
            if len >= WHOLE_FROM {
                let segment = self.whole(&log, name).ok_or_else(gone)?;
                let piece = segment.get(within as usize..within as usize + len);
                to.copy_from_slice(piece.ok_or_else(gone)?);
            } else {
                let sent = sent(&log, name, within, len).ok_or_else(gone)?;
                to.copy_from_slice(&sent);
            }
            done += len;
        }
        Ok(())
    }

    fn whole(&mut self, log: &OwnLog, name: SegmentName) -> Option<&[u8]> {
        if self.kept.as_ref().is_none_or(|(kept, _)| *kept != name) {
            let start = name.start(log.segment_size());
            let len = self
                .written
                .0
                .saturating_sub(start.0)
                .min(self.segment_bytes);
            let segment = sent(log, name, 0, len as usize)?;
            self.kept = Some((name, segment));
        }
        self.kept.as_ref().map(|(_, segment)| segment.as_slice())
    }
}

/// `len` bytes of a segment; `None` if the server does not send all of them.
fn sent(log: &OwnLog, name: SegmentName, within: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len);
    let read = log.read_range(name, (within, len as u64), &mut |piece| {
        bytes.extend_from_slice(piece);
        ControlFlow::Continue(())
    });
    match read {
        Ok(true) if bytes.len() == len => Some(bytes),
        Ok(_) => None,
        Err(error) => {
            let error = crate::error::with_cause(&error);
            tracing::info!(error, segment = %name, "the server does not send this WAL");
            None
        }
    }
}
