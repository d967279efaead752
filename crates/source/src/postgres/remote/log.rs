//! The log that a server sends, looked through on its way: what of databases is in it ([`super::super::copies`]).
//!
//! Its bytes come in order, in pieces, and are asked for in order by who reads records: a thread of its own, so that
//! neither has to be turned inside out. It ends when the log has ended, or cannot be followed; then nothing is found.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use longshore_pg::wal::{NotRecords, Records};
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};

use super::super::copies::{self, Event};

/// Pieces on their way to the reader, besides the one that it has.
const PIECES: usize = 1;
/// Far more than a server makes, drops and moves databases during a backup.
const EVENTS_MAX: usize = 1 << 20;

/// Bytes of the log from a place on.
type Piece = (Lsn, Vec<u8>);

pub(super) struct PassingLog {
    timeline: Timeline,
    start: Lsn,
    reading: Option<Reading>,
}

struct Reading {
    pieces: SyncSender<Piece>,
    reader: JoinHandle<Followed>,
}

/// What was found, and how far the log could be followed.
struct Followed {
    events: Vec<(Lsn, Event)>,
    to: Lsn,
    /// Of what ended it.
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

    /// Where in the log the file at `path`, of this length, begins; `None` of what is not of it.
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
            self.reading = reader.ok().map(|reader| Reading { pieces, reader });
        }
        (name.timeline == self.timeline).then(|| name.start(size))
    }

    /// Waits while the reader is behind.
    pub(super) fn take(&mut self, at: Lsn, bytes: &[u8]) {
        if let Some(reading) = &self.reading {
            // Who has ended needs no more.
            let _ended = reading.pieces.send((at, bytes.to_vec()));
        }
    }

    /// What happened before `end`, in order; `None` where that is not known.
    pub(super) fn events(&mut self, end: Lsn) -> Option<Vec<Event>> {
        let Reading { pieces, reader } = self.reading.take()?;
        drop(pieces);
        let followed = reader.join().ok()?;
        if followed.to < end {
            let reason = followed.reason.map(|reason| reason.to_string());
            tracing::info!(
                reason,
                "the log cannot be looked through for copied databases"
            );
            return None;
        }
        let before = followed.events.into_iter().filter(|(at, _)| *at < end);
        Some(before.map(|(_, event)| event).collect())
    }
}

fn follow(pieces: Receiver<Piece>, start: Lsn, segment: Lsn) -> Followed {
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
    let mut followed = Followed {
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
