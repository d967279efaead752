//! The bytes of one file of a running cluster.
//!
//! A file may grow, shrink and vanish while it is read: replaying the log makes good whatever happened after the
//! backup began. What counts is that exactly the listed length is stored: missing bytes are zeros.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use longshore_io::{Dir, Stat, Via};
use longshore_pg::Lsn;
use longshore_pg::wal::SegmentHeader;
use parking_lot::Mutex;

use super::base;
use super::cluster::Cluster;
use super::pages::{PAUSE, READINGS_MAX, Segment};
use crate::reading::Reading;
use crate::reading::is_missing;
use crate::{BaseRefusal, Change, Content, Error};

/// Bytes that are known already: small files, and what the server said.
pub(super) struct Held(pub(super) Vec<u8>);

impl Content for Held {
    fn read_at(&self, buf: &mut [u8], offset: u64, _via: Via) -> Result<(), Error> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let from = self.0.get(start..).unwrap_or_default();
        let len = from.len().min(buf.len());
        buf[..len].copy_from_slice(&from[..len]);
        buf[len..].fill(0);
        Ok(())
    }

    fn is_cached(&self, _range: Range<u64>) -> bool {
        true
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let len = self.0.len() as u64;
        Ok((offset < len).then_some(offset..len))
    }

    fn settle(&self) -> Result<Option<Change>, Error> {
        Ok(None)
    }
}

/// A file on disk, opened at the first use unless it was opened when it was listed.
pub(super) struct OnDisk {
    pub(super) cluster: Arc<Cluster>,
    pub(super) dir: Arc<dyn Dir>,
    /// Below `dir`.
    pub(super) name: PathBuf,
    /// For people.
    pub(super) host_path: PathBuf,
    pub(super) len: u64,
    pub(super) kind: Kind,
    pub(super) state: Mutex<State>,
}

/// What a file is, as far as reading it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A relation's file: its pages are verified, and it may vanish.
    Relation {
        /// Of the segment, in its fork.
        number: u32,
        /// Of main forks.
        segment: Option<base::Segment>,
    },
    /// The segment of the log that begins at `start`: it must be there, whole, and its own.
    Log {
        start: Lsn,
    },
    Other,
}

pub(super) enum State {
    Unopened,
    Open(Arc<Reading>),
    Gone,
}

impl OnDisk {
    /// `None` when the file is gone.
    fn open(&self) -> Result<Option<Arc<Reading>>, Error> {
        let mut state = self.state.lock();
        match &*state {
            State::Open(reading) => return Ok(Some(reading.clone())),
            State::Gone => return Ok(None),
            State::Unopened => {}
        }
        match Reading::open(&*self.dir, &self.name, &self.host_path) {
            Ok(reading) => {
                let reading = Arc::new(reading);
                *state = State::Open(reading.clone());
                Ok(Some(reading))
            }
            Err(Error::Io { source, .. }) if is_missing(&source) => {
                *state = State::Gone;
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Fills `buf` from `offset` and verifies its pages; with zeros when the file is gone.
    fn fill(&self, buf: &mut [u8], offset: u64, via: Via) -> Result<(), Error> {
        self.cluster.session.check()?;
        let Some(reading) = self.open()? else {
            if self.is_log() {
                return Err(self.log_is_gone());
            }
            buf.fill(0);
            return Ok(());
        };
        let file = reading.file();
        let filled = file
            .read_full_at(buf, offset, via)
            .map_err(|e| self.read_error(offset, e))?;
        if let Kind::Log { start } = self.kind
            && (filled < buf.len() || offset == 0 && !self.is_segment_at(start, buf))
        {
            return Err(self.log_is_gone());
        }
        buf[filled..].fill(0);
        let Kind::Relation { number, .. } = self.kind else {
            return Ok(());
        };
        if let Some(verifier) = &self.cluster.verifier {
            let segment = Segment {
                file,
                path: &self.host_path,
                number,
            };
            let (session, clock) = (&self.cluster.session, &*self.cluster.clock);
            let read = (&buf[..filled], offset);
            verifier.verify(session, clock, &segment, read)?;
        }
        Ok(())
    }

    fn is_log(&self) -> bool {
        matches!(self.kind, Kind::Log { .. })
    }

    /// Whether a file that begins with these bytes is this cluster's segment that begins at `start`: of those that it needs
    /// no more a server makes later ones, which are what they were until it writes them.
    fn is_segment_at(&self, start: Lsn, bytes: &[u8]) -> bool {
        let control = &self.cluster.control;
        SegmentHeader::parse(bytes).is_ok_and(|header| {
            header.system == control.system
                && header.segment_size == control.wal_segment
                && header.start == start
        })
    }

    fn page_bytes(&self) -> u64 {
        u64::from(self.cluster.control.page_bytes)
    }

    /// A segment that the server no longer needs becomes a later one by a new name, while it may be read by its old one:
    /// only what has its name still was what was wanted.
    fn still_there(&self, reading: &Reading) -> Result<(), Error> {
        let id = |stat: &Stat| (stat.dev, stat.ino);
        match self.dir.stat(&self.name) {
            Ok(now) if id(&now) == id(reading.stat()) => Ok(()),
            Ok(_) => Err(self.log_is_gone()),
            Err(e) if is_missing(&e) => Err(self.log_is_gone()),
            Err(source) => Err(Error::Io {
                action: "look at",
                path: self.host_path.clone(),
                source,
            }),
        }
    }

    fn log_is_gone(&self) -> Error {
        Error::SegmentMissing {
            path: self.host_path.clone(),
        }
    }

    fn read_error(&self, offset: u64, source: std::io::Error) -> Error {
        Error::Read {
            path: self.host_path.clone(),
            offset,
            source,
        }
    }
}

impl Content for OnDisk {
    fn read_at(&self, buf: &mut [u8], offset: u64, via: Via) -> Result<(), Error> {
        self.fill(buf, offset, via)
    }

    fn next_doubtful(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let segment = match self.kind {
            Kind::Relation { segment, .. } => segment,
            Kind::Log { .. } | Kind::Other => None,
        };
        Ok(match &self.cluster.differing {
            Some(differing) => differing.next(segment, offset, self.len),
            None => Some(offset..self.len),
        })
    }

    /// A page that was caught while it was written looks different the next time.
    fn explain(&self, page: &[u8], offset: u64) -> Result<(), Error> {
        let Some(differing) = &self.cluster.differing else {
            return Ok(());
        };
        let is_intact = |page: &[u8]| match (&self.cluster.verifier, self.kind) {
            (Some(verifier), Kind::Relation { number, .. }) => {
                verifier.is_page_intact(page, number, offset)
            }
            _ => true,
        };
        let (mut last, mut again) = (page.to_vec(), vec![0; page.len()]);
        for _ in 1..READINGS_MAX {
            if differing.is_explained(&last) {
                return Ok(());
            }
            self.cluster.clock.sleep(PAUSE);
            self.fill(&mut again, offset, Via::Cache)?;
            if again != last {
                std::mem::swap(&mut last, &mut again);
            }
        }
        // One that is damaged was reported as that, and says nothing of summaries.
        if differing.is_explained(&last) || !is_intact(&last) {
            return Ok(());
        }
        Err(Error::Base {
            source: BaseRefusal::NotNamed {
                path: self.host_path.clone(),
                block: offset / self.page_bytes(),
            },
        })
    }

    fn is_cached(&self, range: Range<u64>) -> bool {
        matches!(self.open(), Ok(Some(reading)) if reading.file().is_cached(range))
    }

    /// Ranges are those of whole pages: a page of which a part is a hole is read whole.
    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let Some(reading) = self.open()? else {
            // Whoever reads it is told.
            return Ok((self.is_log() && offset < self.len).then_some(offset..self.len));
        };
        // Of a segment that begins with a hole that is read, too.
        if self.is_log() && offset == 0 {
            return Ok((self.len > 0).then_some(0..self.len));
        }
        let data = reading
            .file()
            .next_data(offset)
            .map_err(|e| self.read_error(offset, e))?;
        let page = self.page_bytes();
        Ok(data
            .map(|data| {
                let start = (data.start / page * page).max(offset);
                start..data.end.next_multiple_of(page).min(self.len)
            })
            .filter(|data| data.start < data.end))
    }

    fn settle(&self) -> Result<Option<Change>, Error> {
        let read = std::mem::replace(&mut *self.state.lock(), State::Gone);
        if let (Kind::Log { .. }, State::Open(reading)) = (self.kind, read) {
            self.still_there(&reading)?;
        }
        Ok(None)
    }
}
