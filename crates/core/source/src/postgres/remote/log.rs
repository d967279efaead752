//! Scans the WAL that a server sends, in transit, for events about database directories ([`super::super::copies`]).
//!
//! The bytes arrive in order, in pieces, and the reader of records requests them in order. The reader has a separate
//! thread, so that neither side must be turned into a state machine.
//!
//! Invariants
//! - There is a result only if the WAL was followed up to the LSN that the caller names; otherwise the events are
//!   unknown, never few.
//! - The backup never waits for a reader that has ended. Memory is bounded by the queue and by the most events.
//! - A WAL that cannot be followed does not fail the backup here.
//!
//! Leaves to others: what an event means (`copies.rs`), and backing up the WAL itself.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use longshore_pg::wal::{NotRecords, Records};
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};

use super::super::copies::{self, Event};

/// Pieces queued for the reader, in addition to the one it is reading.
const PIECES: usize = 1;
/// Far more events than a server has during a backup.
const EVENTS_MAX: usize = 1 << 20;

/// Bytes of the WAL, and the LSN at which they begin.
type Piece = (Lsn, Vec<u8>);

pub(super) struct PassingLog {
    timeline: Timeline,
    start: Lsn,
    reading: Option<LogReader>,
}

struct LogReader {
    pieces: SyncSender<Piece>,
    reader: JoinHandle<FollowResult>,
}

/// The events found, and the LSN up to which the WAL could be followed.
struct FollowResult {
    events: Vec<(Lsn, Event)>,
    to: Lsn,
    /// Why the WAL could not be followed further.
    reason: Option<NotRecords>,
}

impl PassingLog {
    pub(super) fn new(timeline: Timeline, start: Lsn) -> PassingLog {
        PassingLog {
            timeline,
            start,
            reading: None,
        }
    }

    /// The LSN at which the file at `path`, of this length, begins; `None` if it is not a WAL segment.
    pub(super) fn place(&mut self, path: &Path, len: u64) -> Option<Lsn> {
        let name = path.strip_prefix("pg_wal").ok()?.to_str()?;
        let name: SegmentName = name.parse().ok()?;
        let size = SegmentSize::new(len)?;
        if u64::from(name.low) * size.bytes() > u64::from(u32::MAX) {
            return None;
        }
        let holds_start = name == SegmentName::holding(self.timeline, self.start, size);
        if holds_start && self.reading.is_none() {
            let (pieces, received) = sync_channel(PIECES);
            let start = self.start;
            let reader = std::thread::Builder::new().name("log".into());
            let reader = reader.spawn(move || follow(received, start, name.start(size)));
            self.reading = reader.ok().map(|reader| LogReader { pieces, reader });
        }
        (name.timeline == self.timeline).then(|| name.start(size))
    }

    /// Passes bytes to the reader; waits while the reader's queue is full.
    pub(super) fn take(&mut self, at: Lsn, bytes: &[u8]) {
        if let Some(reading) = &self.reading {
            // A reader that has ended needs no more bytes.
            let _ended = reading.pieces.send((at, bytes.to_vec()));
        }
    }

    /// The events before `end`, in order; `None` if they are not known.
    pub(super) fn events(&mut self, end: Lsn) -> Option<Vec<Event>> {
        let LogReader { pieces, reader } = self.reading.take()?;
        drop(pieces);
        let followed = reader.join().ok()?;
        if followed.to < end {
            let reason = followed.reason.map(|reason| reason.to_string());
            tracing::info!(reason, "the WAL cannot be searched for copied databases");
            return None;
        }
        let before = followed.events.into_iter().filter(|(at, _)| *at < end);
        Some(before.map(|(_, event)| event).collect())
    }
}

fn follow(pieces: Receiver<Piece>, start: Lsn, segment: Lsn) -> FollowResult {
    let mut held: Piece = (Lsn(0), Vec::new());
    let read = move |at: Lsn, buf: &mut [u8]| {
        let mut filled = 0;
        while filled < buf.len() {
            let next = at.0 + filled as u64;
            let within = next.checked_sub(held.0.0).unwrap_or(u64::MAX);
            match held.1.get(usize::try_from(within).unwrap_or(usize::MAX)..) {
                Some(rest) if !rest.is_empty() => {
                    let len = rest.len().min(buf.len() - filled);
                    buf[filled..filled + len].copy_from_slice(&rest[..len]);
                    filled += len;
                }
                _ if held.0.0 > next => return Err(io::ErrorKind::NotFound.into()),
                _ => held = pieces.recv().map_err(|_| io::ErrorKind::UnexpectedEof)?,
            }
        }
        Ok(())
    };
    let mut followed = FollowResult {
        events: Vec::new(),
        to: start,
        reason: None,
    };
    let mut records = match Records::new(read, start, segment) {
        Ok(records) => records,
        Err(reason) => {
            followed.reason = Some(reason);
            return followed;
        }
    };
    let major = records.major().into();
    while followed.events.len() < EVENTS_MAX {
        let next = records.next(Lsn(u64::MAX), copies::is_wanted);
        let found = next.and_then(|record| match record {
            Some(record) => Ok((record.at, copies::events_of(&record, major)?)),
            None => Ok((start, Vec::new())),
        });
        match found {
            Ok((at, events)) => {
                followed.to = records.place();
                let events = events.into_iter().map(|event| (at, event));
                followed.events.extend(events);
            }
            Err(reason) => {
                followed.reason = Some(reason);
                break;
            }
        }
    }
    followed
}
