//! Where a receiver keeps what it has received of a segment, until the archive has the whole of it.
//!
//! An archive in a directory has `receiving/NAME.partial` for it. In a bucket an object is written once, when all of it is
//! there: so the segment is kept in memory, and the server keeps its bytes until the archive has them.
//!
//! Invariants
//! - [`Workplace::is_durable`] says whether synced bytes survive the process and the host. If not, only the archive's
//!   own bytes may be reported to the server.
//! - In a directory only one receiver works at a time: it holds a lock, and a reservation where locks may not reach every
//!   host. In a bucket two of them store the same bytes under the same names.
//! - The directory's name, and the file's name and space, are durable before a byte of WAL is written.
//!
//! Leaves to others: the file's content (`receive.rs`), and whether it continues the archive (`proof.rs`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_crypt::SignatureState;
use longshore_io::{Clock, Dir, File, OpenHow, Reservation, Via};
use longshore_pg::wal::WalName;
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};

use super::error::ReceiveError;
use crate::memory::MemoryFile;
use crate::staged::StagedFile;
use crate::waiting::{WAIT_MAX, wait};
use crate::{Error, WalArchive};

/// Below the archive: the directory of the segment being filled.
pub(super) const RECEIVING: &str = "receiving";
const LOCK: &str = "lock";
/// In that directory, where locks may not reach every receiver: the reservation of the active one.
pub(super) const RESERVED: &str = "reserved";

/// Where the segment being filled is kept.
pub(super) enum Workplace {
    Directory(SegmentDirectory),
    /// In memory, for an archive at this path, which is in a bucket.
    Memory(PathBuf),
}

/// The directory of the segment being filled, and its lock.
pub(super) struct SegmentDirectory {
    dir: Arc<dyn Dir>,
    path: PathBuf,
    _lock: Arc<dyn File>,
    /// Used where locks may not reach every receiver.
    _reserved: Option<Reservation>,
}

/// The segment being filled.
pub(super) struct OpenSegment {
    pub name: SegmentName,
    /// For messages.
    pub path: PathBuf,
    pub file: Arc<dyn File>,
}

/// A short file on its way into the archive, which is gone when this is dropped.
pub(super) struct ShortFile {
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    _staged: Option<StagedFile>,
}

impl Workplace {
    pub fn open(archive: &WalArchive) -> Result<Workplace, ReceiveError> {
        match archive.directory() {
            Some(own) => SegmentDirectory::open(archive, &**own).map(Workplace::Directory),
            None => Ok(Workplace::Memory(archive.path().to_owned())),
        }
    }

    /// Whether bytes are safe here once they are synced.
    pub fn is_durable(&self) -> bool {
        matches!(self, Workplace::Directory(_))
    }

    /// For messages.
    pub fn path(&self) -> &Path {
        match self {
            Workplace::Directory(own) => &own.path,
            Workplace::Memory(archive) => archive,
        }
    }

    /// The last segment that an earlier receiver began to fill.
    pub fn last(&self) -> Result<Option<SegmentName>, Error> {
        match self {
            Workplace::Directory(own) => own.last(),
            Workplace::Memory(_) => Ok(None),
        }
    }

    /// That segment, opened for reading.
    pub fn begun(&self) -> Result<Option<OpenSegment>, Error> {
        let (Workplace::Directory(own), Some(name)) = (self, self.last()?) else {
            return Ok(None);
        };
        let file_name = WalName::Partial(name).to_string();
        let path = own.path.join(&file_name);
        let file = own.dir.open(Path::new(&file_name), OpenHow::Read);
        let file = file.map_err(Error::io("open", &path))?;
        Ok(Some(OpenSegment { name, path, file }))
    }

    /// Opens a segment to be filled, with all of its length.
    pub fn fill(&self, name: SegmentName, size: SegmentSize) -> Result<OpenSegment, Error> {
        match self {
            Workplace::Directory(own) => own.fill(name, size),
            Workplace::Memory(archive) => Ok(OpenSegment {
                name,
                path: archive.join(WalName::Partial(name).to_string()),
                file: Arc::new(MemoryFile::zeros(size.bytes() as usize)),
            }),
        }
    }

    /// Forgets a segment that the archive has.
    pub fn forget(&self, segment: &OpenSegment) -> Result<(), Error> {
        let Workplace::Directory(own) = self else {
            return Ok(());
        };
        let file_name = WalName::Partial(segment.name).to_string();
        own.dir
            .remove_file(Path::new(&file_name))
            .map_err(Error::io("remove", &segment.path))
    }

    /// A short file with this content.
    pub fn short(&self, name: WalName, content: &[u8]) -> Result<ShortFile, ReceiveError> {
        let path = self.path().join(name.to_string());
        let own = match self {
            Workplace::Directory(own) => own,
            Workplace::Memory(_) => {
                let (file, staged) = (MemoryFile::of(content), None);
                return Ok(ShortFile {
                    path,
                    file: Arc::new(file),
                    _staged: staged,
                });
            }
        };
        let io = |e| Error::io("write", &path)(e);
        let staged = StagedFile::begin(own.dir.clone(), &name.to_string()).map_err(io)?;
        // Only one receiver works here: an abandoned file was removed just now, so the second try succeeds.
        let staged = match staged {
            Some(staged) => Some(staged),
            None => StagedFile::begin(own.dir.clone(), &name.to_string()).map_err(io)?,
        };
        let staged = staged.ok_or_else(|| ReceiveError::Taken {
            archive: own.path.parent().unwrap_or(&own.path).to_owned(),
        })?;
        staged
            .file
            .write_all_at(content, 0, Via::Cache)
            .map_err(io)?;
        Ok(ShortFile {
            file: staged.file.clone(),
            path,
            _staged: Some(staged),
        })
    }
}

impl SegmentDirectory {
    fn open(archive: &WalArchive, own: &dyn Dir) -> Result<SegmentDirectory, ReceiveError> {
        let path = archive.path().join(RECEIVING);
        let io = |action| Error::io(action, path.clone());
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
    fn last(&self) -> Result<Option<SegmentName>, Error> {
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
    fn fill(&self, name: SegmentName, size: SegmentSize) -> Result<OpenSegment, Error> {
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
        Ok(OpenSegment { name, path, file })
    }
}

impl WalArchive {
    /// The segment after `end` of which a receiver has a part that [`WalArchive::fetch_partial`] gives: without it a recovery to
    /// the end lacks the last commits.
    pub fn partial_after(&self, timeline: Timeline, end: Lsn) -> Option<SegmentName> {
        let keyring = &self.keys.keyring;
        if keyring.requires_encryption() || keyring.signers().required() {
            return None;
        }
        let name = SegmentName::holding(timeline, end, self.identity()?.segment_size);
        let partial = Path::new(RECEIVING).join(WalName::Partial(name).to_string());
        self.directory()?.stat(&partial).is_ok().then_some(name)
    }

    /// The file of a part.
    pub(crate) fn partial(&self, name: SegmentName) -> io::Result<Arc<dyn File>> {
        let partial = Path::new(RECEIVING).join(WalName::Partial(name).to_string());
        let own = self.directory().ok_or(io::ErrorKind::NotFound)?;
        own.open(&partial, OpenHow::Read)
    }

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
        if self.keys.keyring.requires_encryption() {
            return Err(Error::NotSealed { path: from });
        }
        if self.keys.keyring.signers().required() {
            return Err(Error::Unsigned {
                path: from,
                what: SignatureState::Unsigned,
            });
        }
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
