//! Proves, before anything new is streamed, that the server's WAL continues where the archive ends.
//!
//! Invariants
//! - The archive's last segment, and the contents of the partial file, are streamed again and compared: a server that was
//!   set back to an older copy of its files has other WAL under the same names, and its LSN may have passed the archive's
//!   end since. If they cannot be compared, the receiver does not continue.
//!
//! Leaves to others: where to continue (`receive.rs`), and the histories of timelines (`histories.rs`).

use std::io;
use std::sync::Arc;

use longshore_io::{File, Via};
use longshore_pg::client::Connection;
use longshore_pg::wal::{History, Records, WalName};
use longshore_pg::{Lsn, SegmentName, SegmentSize};

use super::Receiver;
use super::error::ReceiveError;
use super::histories::NO_SUCH_FILE;
use super::workplace::{OpenSegment, Workplace};
use crate::{Error, WalArchive};

/// Why bytes could not be compared.
enum CompareError {
    Archive(Error),
    Io(io::Error),
}

impl From<Error> for CompareError {
    fn from(error: Error) -> CompareError {
        CompareError::Archive(error)
    }
}

impl From<io::Error> for CompareError {
    fn from(error: io::Error) -> CompareError {
        CompareError::Io(error)
    }
}

/// The file that an earlier receiver left of the segment being filled, as far as its records go.
struct Begun {
    name: SegmentName,
    file: Arc<dyn File>,
    end: Lsn,
    /// The archive's previous segment, if the records continue from it.
    follows: Option<SegmentName>,
}

impl Begun {
    /// `None` if there is nothing on the server's history.
    fn look(
        archive: &WalArchive,
        workplace: &Workplace,
        history: &History,
        size: SegmentSize,
    ) -> Result<Option<Begun>, Error> {
        let Some(OpenSegment { name, file, .. }) = workplace.begun()? else {
            return Ok(None);
        };
        let start = name.start(size);
        let limit = match history.end_of(name.timeline) {
            Some(end) => end,
            None if name.timeline == history.timeline() => Lsn(u64::MAX),
            None => return Ok(None),
        };
        let before = start.0.checked_sub(1).map(Lsn).map(|last| {
            let timeline = history.timeline_at(last);
            SegmentName::holding(timeline, last, size)
        });
        let before = before.filter(|before| {
            archive.identity().is_some()
                && matches!(archive.find(WalName::Segment(*before)), Ok(Some(_)))
        });
        let read = |at: Lsn, buf: &mut [u8]| match at.0.checked_sub(start.0) {
            Some(offset) if offset < size.bytes() => file.read_exact_at(buf, offset, Via::Cache),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        let (mut end, mut follows) = (start, None);
        if let Ok(records) = Records::of_segment(read, start) {
            let mut records = records.verifying();
            while let Ok(Some(_)) = records.next(limit, |_, _| false) {
                end = records.place();
            }
        }
        end = end.min(limit).min(name.next(size).start(size));
        if let Some(before) = before
            && end > start
            && archive.leads_to(before, start, read)?
        {
            follows = Some(before);
        }
        Ok(Some(Begun {
            name,
            file: file.clone(),
            end,
            follows,
        }))
    }
}

impl Receiver<'_> {
    /// Proves that the server's WAL continues where the archive ends.
    ///
    /// Errors: the archive's `OtherBranch`, `BranchUnknown`; `Behind`.
    pub(super) fn compare(
        &mut self,
        connection: &mut Connection,
        history: &History,
        slot: &str,
    ) -> Result<(), ReceiveError> {
        let begun = Begun::look(self.archive, &self.workplace, history, self.size)?;
        let mut is_proved = begun.is_none();
        if let Some(begun) = &begun {
            let range = (begun.name.start(self.size), begun.end);
            let mut offset = 0;
            let same = self.streamed(connection, begun.name, range, &mut |bytes| {
                let mut own = vec![0; bytes.len()];
                begun.file.read_exact_at(&mut own, offset, Via::Cache)?;
                offset += bytes.len() as u64;
                Ok(own == bytes)
            })?;
            match same {
                Some(true) => is_proved = begun.end > range.0,
                Some(false) => return Err(self.other_branch(connection, begun.name)),
                // The checks below cover this case.
                None => {}
            }
        }
        let Some((name, end)) = self.newest(history)? else {
            return Ok(());
        };
        let start = name.start(self.size);
        let mut comparison = self.archive.comparison(name, end.0 - start.0)?;
        let same = self.streamed(connection, name, (start, end), &mut |bytes| {
            Ok(comparison.take(bytes)?)
        })?;
        match same {
            Some(true) => {
                self.kept_from = start;
                Ok(())
            }
            Some(false) => Err(self.other_branch(connection, name)),
            // The partial file continues the archive's last segment, and is the server's.
            None if is_proved && begun.is_some_and(|begun| begun.follows == Some(name)) => Ok(()),
            None if self.slot_told(connection, slot)? == Some(end) => Ok(()),
            None => {
                // Later WAL may be gone as well: then the server itself reports that.
                if end < self.server {
                    let next = Lsn(end.0.saturating_add(1));
                    connection.stream_log(name.timeline, (end, next), &mut |_| false)?;
                }
                Err(Error::BranchUnknown {
                    archive: self.archive.path().to_owned(),
                    name,
                    what: "the server no longer has it, and the slot does not know its end",
                }
                .into())
            }
        }
    }

    fn other_branch(&self, connection: &Connection, name: SegmentName) -> ReceiveError {
        let (archive, path) = (self.archive.path().to_owned(), connection.address().into());
        Error::OtherBranch {
            archive,
            name,
            path,
        }
        .into()
    }

    /// The newest segment of the archive on the server's history, and the LSN up to which it belongs to it.
    pub(super) fn newest(&self, history: &History) -> Result<Option<(SegmentName, Lsn)>, Error> {
        if self.archive.identity().is_none() {
            return Ok(None);
        }
        let runs = self.archive.runs()?;
        let newest = runs.iter().rev().find_map(|run| {
            let timeline = run.span.last.timeline;
            let limit = match history.end_of(timeline) {
                Some(end) => end,
                None if timeline == history.timeline() => Lsn(u64::MAX),
                None => return None,
            };
            let last = Lsn(limit.0.checked_sub(1)?);
            let name = SegmentName::holding(timeline, last, self.size).min(run.span.last);
            (name >= run.span.first).then_some((name, limit))
        });
        let Some((name, limit)) = newest else {
            return Ok(None);
        };
        let end = self.archive.written_to(name)?.min(limit);
        Ok((end > name.start(self.size)).then_some((name, end)))
    }

    /// Passes the server's WAL of a segment to `same`; `None` if the server no longer has it.
    fn streamed(
        &self,
        connection: &mut Connection,
        name: SegmentName,
        (from, to): (Lsn, Lsn),
        same: &mut dyn FnMut(&[u8]) -> Result<bool, CompareError>,
    ) -> Result<Option<bool>, ReceiveError> {
        let there = to.min(self.server);
        let mut judged = Ok(true);
        if from < there {
            let mut sink = |bytes: &[u8]| {
                judged = same(bytes);
                matches!(judged, Ok(true))
            };
            match connection.stream_log(name.timeline, (from, there), &mut sink) {
                Err(e) if e.sqlstate() == Some(NO_SUCH_FILE) => return Ok(None),
                came => drop::<Lsn>(came?),
            }
        }
        let is_same = judged.map_err(|e| match e {
            CompareError::Archive(e) => e,
            CompareError::Io(e) => Error::io("read", self.workplace.path())(e),
        })?;
        match is_same && there < to {
            false => Ok(Some(is_same)),
            true => Err(ReceiveError::Behind {
                archive: self.archive.path().to_owned(),
                address: connection.address().to_owned(),
                ours: to,
                theirs: self.server,
            }),
        }
    }

    /// The LSN that was reported to the slot: only a receiver of the WAL up to there reports it. Unknown before
    /// version 15.
    pub(super) fn slot_told(
        &self,
        connection: &mut Connection,
        slot: &str,
    ) -> Result<Option<Lsn>, ReceiveError> {
        if connection.major()? < 15 {
            return Ok(None);
        }
        let row = connection.query(&format!("READ_REPLICATION_SLOT {slot}"))?;
        match row.bytes(0, 1) {
            Some(_) => Ok(Some(row.value(0, 1)?)),
            None => Ok(None),
        }
    }
}
