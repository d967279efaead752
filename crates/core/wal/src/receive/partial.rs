//! The segment that is being filled, as a file: `receiving/NAME.partial` below the archive.
//!
//! Invariants
//! - Only one receiver works on an archive: it holds a lock, and a reservation where locks may not reach every host.
//! - The directory's name, and the file's name and space, are durable before a byte of WAL is written.
//!
//! Leaves to others: the file's content (`receive.rs`), and whether it continues the archive (`proof.rs`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Clock, Dir, File, OpenHow, Reservation, Via};
use longshore_pg::wal::WalName;
use longshore_pg::{SegmentName, SegmentSize};

use super::error::ReceiveError;
use crate::staged::StagedFile;
use crate::waiting::{WAIT_MAX, wait};
use crate::{Error, WalArchive};

/// Below the archive: the directory of the segment being filled.
pub(super) const RECEIVING: &str = "receiving";
const LOCK: &str = "lock";
/// In that directory, where locks may not reach every receiver: the reservation of the active one.
pub(super) const RESERVED: &str = "reserved";

/// The directory of the segment being filled, and its lock.
pub(super) struct SegmentDirectory {
    pub dir: Arc<dyn Dir>,
    pub path: PathBuf,
    _lock: Arc<dyn File>,
    /// Used where locks may not reach every receiver.
    _reserved: Option<Reservation>,
}

impl SegmentDirectory {
    pub fn open(archive: &WalArchive) -> Result<SegmentDirectory, ReceiveError> {
        let path = archive.path().join(RECEIVING);
        let io = |action| Error::io(action, path.clone());
        let Some(own) = archive.directory() else {
            let archive = archive.path().to_owned();
            return Err(Error::NotInBucket { archive }.into());
        };
        // The process that created it may have been killed before its name was durable.
        match own.create_dir(Path::new(RECEIVING)) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
        .and_then(|()| own.sync(Path::new("")))
        .map_err(io("create"))?;
        let dir = own.dir(Path::new(RECEIVING)).map_err(io("open"))?;
        let lock = match dir.open(Path::new(LOCK), OpenHow::CreateNew) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                dir.open(Path::new(LOCK), OpenHow::ReadWrite)
            }
            made => made,
        }
        .map_err(io("lock"))?;
        if !lock.try_lock().map_err(io("lock"))? {
            let archive = archive.path().to_owned();
            return Err(ReceiveError::Taken { archive });
        }
        let keeps_locks = dir.keeps_locks(Path::new(""));
        let reserved = match keeps_locks.map_err(io("look at"))? {
            true => None,
            false => {
                let reserved =
                    Reservation::take(&dir, Path::new(RESERVED)).map_err(io("reserve"))?;
                let taken = || ReceiveError::Taken {
                    archive: archive.path().to_owned(),
                };
                Some(reserved.ok_or_else(taken)?)
            }
        };
        Ok(SegmentDirectory {
            dir,
            path,
            _lock: lock,
            _reserved: reserved,
        })
    }

    /// The last segment that was being filled.
    pub fn last(&self) -> Result<Option<SegmentName>, Error> {
        let io = |e| Error::io("list", &self.path)(e);
        let mut last = None;
        for name in self.dir.list().map_err(io)? {
            let name = name.map_err(io)?;
            if let Some(Ok(WalName::Partial(segment))) = name.to_str().map(str::parse) {
                last = last.max(Some(segment));
            }
        }
        Ok(last)
    }

    /// Opens the segment's file, created with the segment's length and with its space reserved.
    pub fn fill(&self, name: SegmentName, size: SegmentSize) -> Result<OpenSegment, Error> {
        let file_name = PathBuf::from(WalName::Partial(name).to_string());
        let path = self.path.join(&file_name);
        let file = match self.dir.open(&file_name, OpenHow::CreateNew) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.dir.open_own(&file_name, size.bytes())
            }
            made => made,
        }
        .map_err(Error::io("create", &path))?;
        file.allocate(0..size.bytes())
            .and_then(|()| file.set_len(size.bytes()))
            .and_then(|()| file.sync())
            .and_then(|()| self.dir.sync(Path::new("")))
            .map_err(Error::io("reserve", &path))?;
        Ok(OpenSegment {
            name,
            file_name,
            path,
            file,
        })
    }
}

/// The segment being filled.
pub(super) struct OpenSegment {
    pub name: SegmentName,
    pub file_name: PathBuf,
    pub path: PathBuf,
    pub file: Arc<dyn File>,
}

impl WalArchive {
    /// Writes the segment that a receiver is still filling to `to` in `dir`, with zeros after the received bytes;
    /// `false` if there is none. The server, if it is still alive, has the rest.
    pub fn fetch_partial(
        &self,
        name: SegmentName,
        dir: &Arc<dyn Dir>,
        path: &Path,
        to: &str,
        clock: &dyn Clock,
    ) -> Result<bool, Error> {
        let size = self.identified()?.segment_size;
        let partial = Path::new(RECEIVING).join(WalName::Partial(name).to_string());
        let from = self.path().join(&partial);
        let Some(own) = self.directory() else {
            return Ok(false);
        };
        let file = match own.open(&partial, OpenHow::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(Error::io("open", &from))?,
        };
        let target = path.join(to);
        // The first try removes what a killed process left.
        let staged = wait(WAIT_MAX, WalName::Segment(name), clock, || {
            StagedFile::begin(dir.clone(), to).map_err(Error::io("create", &target))
        })?;
        let mut buffer = vec![0; 1 << 20];
        for offset in (0..size.bytes()).step_by(buffer.len()) {
            file.read_exact_at(&mut buffer, offset, Via::Cache)
                .map_err(Error::io_at("read", &from, offset))?;
            staged
                .file
                .write_all_at(&buffer, offset, Via::Cache)
                .map_err(Error::io_at("write", &target, offset))?;
        }
        staged
            .publish(Path::new(to))
            .map_err(Error::io("store", target))?;
        Ok(true)
    }
}
