//! The bytes of one file of a running cluster.
//!
//! Invariants
//! - Exactly the listed length is given; bytes that a relation's file no longer has are zeros. A file may grow, shrink
//!   or vanish while it is read: replaying the WAL repeats everything that happened after the backup began.
//! - A WAL segment is different: it must exist, be complete, be this cluster's segment of its name, and still have its
//!   name at the end.
//! - No read succeeds after the backup session was lost.
//!
//! Leaves to others: which files belong to the backup (`rules.rs`, `tree.rs`), the judgement of a page (`pages.rs`),
//! and which pages need not be read (`differs.rs`).

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use longshore_io::{Dir, Stat, Via};
use longshore_pg::Lsn;
use longshore_pg::wal::SegmentHeader;
use parking_lot::Mutex;

use super::base;
use super::cluster::Cluster;
use super::pages::{PAUSE, READINGS_MAX, SegmentFile};
use crate::reading::Reading;
use crate::reading::is_missing;
use crate::{BaseRefusal, Change, Content, Error};

/// Bytes that are known already: small files, and files that the server sent.
pub(super) struct KnownBytes(pub(super) Vec<u8>);

impl Content for KnownBytes {
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
    /// Relative to `dir`.
    pub(super) name: PathBuf,
    /// The path for messages.
    pub(super) host_path: PathBuf,
    pub(super) len: u64,
    pub(super) kind: FileClass,
    pub(super) state: Mutex<ReadState>,
}

/// The kind of a file, as far as it affects reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileClass {
    /// A relation file: its pages are verified, and it may vanish.
    Relation {
        /// The file's number in its fork.
        number: u32,
        /// Present for main forks.
        main: Option<base::RelationSegment>,
    },
    /// The WAL segment that begins at `start`: it must exist, be complete, and be that segment.
    Log {
        start: Lsn,
    },
    Other,
}

pub(super) enum ReadState {
    Unopened,
    Open(Arc<Reading>),
    Gone,
}

impl OnDisk {
    /// `None` if the file no longer exists.
    fn open(&self) -> Result<Option<Arc<Reading>>, Error> {
        let mut state = self.state.lock();
        match &*state {
            ReadState::Open(reading) => return Ok(Some(reading.clone())),
            ReadState::Gone => return Ok(None),
            ReadState::Unopened => {}
        }
        match Reading::open(&*self.dir, &self.name, &self.host_path) {
            Ok(reading) => {
                let reading = Arc::new(reading);
                *state = ReadState::Open(reading.clone());
                Ok(Some(reading))
            }
            Err(Error::Io { source, .. }) if is_missing(&source) => {
                *state = ReadState::Gone;
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Fills `buf` from `offset` and verifies its pages; with zeros if the file no longer exists.
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
        if let FileClass::Log { start } = self.kind
            && (filled < buf.len() || offset == 0 && !self.is_segment_at(start, buf))
        {
            return Err(self.log_is_gone());
        }
        buf[filled..].fill(0);
        let FileClass::Relation { number, .. } = self.kind else {
            return Ok(());
        };
        if let Some(verifier) = &self.cluster.verifier {
            let segment_file = SegmentFile {
                file,
                path: &self.host_path,
                number,
            };
            let (session, clock) = (&self.cluster.session, &*self.cluster.clock);
            let read = (&buf[..filled], offset);
            verifier.verify(session, clock, &segment_file, read)?;
        }
        Ok(())
    }

    fn is_log(&self) -> bool {
        matches!(self.kind, FileClass::Log { .. })
    }

    /// Whether a file that begins with these bytes is this cluster's segment that begins at `start`. A server renames
    /// segments that it no longer needs to later names; until it writes them, they hold their old content.
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

    /// A server may rename a segment that it no longer needs to a later name while the segment is being read. The
    /// bytes read are the wanted ones only if the file still has its name.
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
        let relation = match self.kind {
            FileClass::Relation { main, .. } => main,
            FileClass::Log { .. } | FileClass::Other => None,
        };
        Ok(match &self.cluster.differing {
            Some(differing) => differing.next(relation, offset, self.len),
            None => Some(offset..self.len),
        })
    }

    /// A page that was read during a write looks different the next time.
    fn explain(&self, page: &[u8], offset: u64) -> Result<(), Error> {
        let Some(differing) = &self.cluster.differing else {
            return Ok(());
        };
        let is_intact = |page: &[u8]| match (&self.cluster.verifier, self.kind) {
            (Some(verifier), FileClass::Relation { number, .. }) => {
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
        // A damaged page was reported as damaged, and proves nothing about the summaries.
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

    /// Ranges are whole pages: a page that is partly a hole is read completely.
    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let Some(reading) = self.open()? else {
            // The read will report the missing segment.
            return Ok((self.is_log() && offset < self.len).then_some(offset..self.len));
        };
        // A segment that begins with a hole is read from its start, too.
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
        let read = std::mem::replace(&mut *self.state.lock(), ReadState::Gone);
        if let (FileClass::Log { .. }, ReadState::Open(reading)) = (self.kind, read) {
            self.still_there(&reading)?;
        }
        Ok(None)
    }
}
