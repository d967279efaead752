//! A stripe in a file.
//!
//! A new stripe is written to `NAME.longshore-new` and renamed when it and all stripes of its set are durable. The
//! renames of several stripes are not atomic together. After a crash between them, some stripes have their final names
//! and the others, complete and durable, their temporary ones. Readers use those too ([`BackupDevice::open_pending`]),
//! and the next writer finishes the renames.
//!
//! A backup set is appended in place.
//!
//! Where locks may not reach all writers (network file systems, FUSE), and wherever such a writer has been, the stripe
//! is reserved by a file next to it, `NAME.longshore-writing` ([`Reservation`]).
//!
//! Bytes are collected in one aligned buffer and written in large aligned writes, without the page cache if requested.
//! A flush writes the unaligned rest through the cache and keeps it in the buffer, so that the next write repeats that
//! sector with the same bytes at its start.
//!
//! Invariants
//! - If the stripe has other names (hard links), the name first gets a copy of its own, so that the other names keep
//!   their content. So it does if a writer was taken for dead because it was silent: it may wake and write.
//! - Writers exclude each other by locks.
//! - A writer that lost its reservation learns so before it writes the trailer; without a trailer there is no set.
//! - A stripe whose sync failed is not left for a later writer: from then on, the page cache may show bytes that the medium does
//!   not have. A stripe that is left is synced and read from the medium before anyone goes on with it.
//!
//! Leaves to others: which stripes make a set (`set_reader.rs`), and the order in which they are completed
//! (`set_writer.rs`).

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{
    Attributes, Buffer, Dir, File, OpenHow, Reservation, Storage, Via, copy_nontemporal,
};

use super::door::{
    BackupDevice, DeviceClass, FamilyRead, FamilyWrite, LastLook, PendingStripe, Remains,
    Surroundings,
};
use super::folder::Folder;
use crate::Error;

/// Bytes collected before a write: the memory that a stripe needs in addition to the pool. One large page.
pub const STAGING_BYTES: usize = longshore_io::HUGE_BYTES;
const ALIGN: usize = 4096;

#[derive(Debug)]
pub struct FileDevice {
    storage: Arc<dyn Storage>,
    path: PathBuf,
}

/// A file's directory, and its name in it.
struct FileLocation {
    dir: Arc<dyn Dir>,
    name: PathBuf,
    pending: PathBuf,
    reservation: PathBuf,
}

impl FileDevice {
    pub fn new(storage: Arc<dyn Storage>, path: PathBuf) -> Self {
        FileDevice { storage, path }
    }

    fn io(&self, action: &'static str) -> impl Fn(std::io::Error) -> Error + '_ {
        move |source| Error::Io {
            action,
            device: self.name(),
            offset: 0,
            source,
        }
    }

    fn place(&self) -> Result<FileLocation, Error> {
        let invalid = || self.io("open")(std::io::ErrorKind::InvalidFilename.into());
        let name = PathBuf::from(self.path.file_name().ok_or_else(invalid)?);
        let parent = match self.path.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        let beside = |suffix| {
            let mut beside = OsString::from(name.as_os_str());
            beside.push(suffix);
            PathBuf::from(beside)
        };
        let pending = beside(".longshore-new");
        let reservation = beside(".longshore-writing");
        let dir = self
            .storage
            .dir(parent)
            .map_err(self.io("open the directory of"))?;
        Ok(FileLocation {
            dir,
            name,
            pending,
            reservation,
        })
    }

    fn open_name(
        &self,
        place: &FileLocation,
        name: &Path,
        how: OpenHow,
    ) -> Result<Option<Arc<dyn File>>, Error> {
        self.found(place.dir.open(name, how))
    }

    fn open_to_lock(
        &self,
        place: &FileLocation,
        name: &Path,
    ) -> Result<Option<Arc<dyn File>>, Error> {
        self.found(place.dir.open_to_lock(name))
    }

    fn found(
        &self,
        opened: std::io::Result<Arc<dyn File>>,
    ) -> Result<Option<Arc<dyn File>>, Error> {
        match opened {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.io("open")(e)),
        }
    }

    fn reader(&self, file: Arc<dyn File>) -> Arc<dyn FamilyRead> {
        Arc::new(FileRead {
            device: self.name(),
            file,
        })
    }

    /// Keeps other writers from `file`, which was opened as `name`, as long as it is open.
    ///
    /// Removing or renaming a stripe requires its lock. So if the name still refers to the locked file after we have
    /// the lock, it does until we release it. Otherwise our lock is on a file that nobody will find again.
    fn lock(&self, place: &FileLocation, name: &Path, file: &dyn File) -> Result<(), Error> {
        let busy = || Error::Busy {
            device: self.name(),
        };
        if !file.try_lock().map_err(self.io("lock"))? {
            return Err(busy());
        }
        let ours = file.stat().map_err(self.io("lock"))?;
        match place.dir.stat(name) {
            Ok(named) if (named.dev, named.ino) == (ours.dev, ours.ino) => Ok(()),
            Ok(_) => Err(busy()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(busy()),
            Err(e) => Err(self.io("lock")(e)),
        }
    }

    /// Excludes writers that a lock does not reach. Must precede every lock for writing.
    fn reserve(&self, place: &FileLocation) -> Result<Option<Reservation>, Error> {
        let dir = &place.dir;
        let failed = self.io("reserve");
        if dir.keeps_locks(Path::new("")).map_err(&failed)? && dir.stat(&place.reservation).is_err()
        {
            return Ok(None);
        }
        match Reservation::take_marking(dir, &place.reservation).map_err(failed)? {
            Some(reservation) => Ok(Some(reservation)),
            None => Err(Error::Busy {
                device: self.name(),
            }),
        }
    }

    /// Creates the temporary file and locks it; removes the one that a dead writer left.
    fn make_pending(&self, place: &FileLocation) -> Result<Arc<dyn File>, Error> {
        if let Some(stale) = self.open_to_lock(place, &place.pending)? {
            // Its writer is gone, otherwise this fails as busy.
            self.lock(place, &place.pending, &*stale)?;
            place
                .dir
                .remove_file(&place.pending)
                .map_err(self.io("create"))?;
        }
        let file = match place.dir.open(&place.pending, OpenHow::CreateNew) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(Error::Busy {
                    device: self.name(),
                });
            }
            other => other.map_err(self.io("create"))?,
        };
        self.lock(place, &place.pending, &*file)?;
        Ok(file)
    }

    /// The file to append to. This is `file`, unless it has other names (hard links), or somebody else may still write to
    /// it: then the others keep it, and the device's name gets a copy of the first `keep` bytes. Until the rename, readers
    /// ignore the copy under the temporary name, because the stripe itself is in place and complete.
    fn alone(
        &self,
        place: &FileLocation,
        file: Arc<dyn File>,
        has_company: bool,
        keep: u64,
    ) -> Result<Arc<dyn File>, Error> {
        let found = file.stat().map_err(self.io("look at"))?;
        if found.links <= 1 && !has_company {
            return Ok(file);
        }
        tracing::info!(
            device = self.name(),
            has_company,
            "a stripe with other names (hard links), or with a writer that may wake, is copied before it is appended to"
        );
        let copy = self.make_pending(place)?;
        let copied = file
            .copy_to(&*copy, keep)
            .and_then(|()| copy.sync())
            .and_then(|()| {
                place
                    .dir
                    .set_attributes(&place.pending, &Attributes::of(&found))
            })
            .and_then(|()| place.dir.rename(&place.pending, &place.name))
            .and_then(|()| place.dir.sync(Path::new("")));
        if copied.is_err() {
            // If this cannot be removed now, the next writer of this name removes it.
            let _left = place.dir.remove_file(&place.pending);
        }
        copied.map_err(self.io("copy"))?;
        Ok(copy)
    }

    /// The writer of a new stripe into the temporary file, which is locked, from `offset` on.
    fn new_stripe(
        &self,
        place: FileLocation,
        file: Arc<dyn File>,
        reservation: Option<Reservation>,
        (offset, via): (u64, Via),
    ) -> Result<Box<dyn FamilyWrite>, Error> {
        let mut writer = self.writer(place, file, reservation, offset, Fate::Rename, via)?;
        // While we hold the temporary file, no other writer can put a stripe in place. A writer that appends to the
        // existing stripe holds that stripe's lock.
        let existing = self.open_to_lock(&writer.place, &writer.place.name)?;
        if let Some(old) = &existing {
            self.lock(&writer.place, &writer.place.name, &**old)?;
        }
        writer._existing = existing;
        Ok(Box::new(writer))
    }

    fn writer(
        &self,
        place: FileLocation,
        file: Arc<dyn File>,
        reservation: Option<Reservation>,
        offset: u64,
        fate: Fate,
        via: Via,
    ) -> Result<FileWrite, Error> {
        let staging = super::buffer(&self.name(), STAGING_BYTES)?;
        let base = offset - offset % ALIGN as u64;
        let mut writer = FileWrite {
            device: self.name(),
            place,
            file,
            reservation,
            _existing: None,
            staging,
            base,
            staged: (offset - base) as usize,
            start: offset,
            begun: false,
            is_lost: false,
            via,
            fate,
            done: false,
        };
        let partial = writer.staged;
        if partial > 0 {
            let read = writer
                .file
                .read_exact_at(&mut writer.staging[..partial], base, Via::Cache);
            read.map_err(self.io("read"))?;
        }
        Ok(writer)
    }
}

impl PendingStripe for FileDevice {
    fn open_pending(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        let place = match self.place() {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            other => other?,
        };
        let file = self.open_name(&place, &place.pending, OpenHow::Read)?;
        Ok(file.map(|f| self.reader(f)))
    }

    fn complete_pending(&self) -> Result<(), Error> {
        let place = self.place()?;
        let _reserved = self.reserve(&place)?;
        // The stripe's writer may be alive and about to complete it.
        let file = self
            .open_to_lock(&place, &place.pending)?
            .ok_or_else(|| Error::Busy {
                device: self.name(),
            })?;
        self.lock(&place, &place.pending, &*file)?;
        place
            .dir
            .rename(&place.pending, &place.name)
            .map_err(self.io("complete"))?;
        place.dir.sync(Path::new("")).map_err(self.io("complete"))
    }

    fn remains(&self, via: Via) -> Result<Option<Remains>, Error> {
        let place = self.place()?;
        let reservation = self.reserve(&place)?;
        let Some(file) = self.open_name(&place, &place.pending, OpenHow::ReadWrite)? else {
            return Ok(None);
        };
        // Its writer is gone, otherwise this fails as busy.
        self.lock(&place, &place.pending, &*file)?;
        let links = file.stat().map_err(self.io("look at"))?.links;
        let company = reservation
            .as_ref()
            .is_some_and(Reservation::may_have_company);
        // Other names keep their content, and a writer that was taken for dead may wake.
        if links > 1 || company {
            return Ok(None);
        }
        // A write-back may have failed since, and perhaps nobody was told.
        if let Err(error) = file.sync() {
            let device = self.name();
            tracing::warn!(device, %error, "what an interrupted copy left cannot be made durable, and is written again");
            return Ok(None);
        }
        file.drop_cached();
        let device = FileDevice::new(self.storage.clone(), self.path.clone());
        let read = self.reader(file.clone());
        let go_on = move |offset| device.new_stripe(place, file, reservation, (offset, via));
        Ok(Some(Remains::new(read, Box::new(go_on))))
    }
}

impl Surroundings for FileDevice {
    fn folder(&self) -> Option<Folder> {
        Some(Folder::of_file(&self.storage, &self.path))
    }
}

impl BackupDevice for FileDevice {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn class(&self) -> DeviceClass {
        DeviceClass::File
    }

    fn open(&self) -> Result<Option<Arc<dyn FamilyRead>>, Error> {
        let place = match self.place() {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            other => other?,
        };
        let file = self.open_name(&place, &place.name, OpenHow::Read)?;
        Ok(file.map(|f| self.reader(f)))
    }

    fn create(&self, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        let place = self.place()?;
        let reservation = self.reserve(&place)?;
        let file = self.make_pending(&place)?;
        self.new_stripe(place, file, reservation, (0, via))
    }

    fn append(&self, offset: u64, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        let place = self.place()?;
        let mut reservation = self.reserve(&place)?;
        let file = self
            .open_name(&place, &place.name, OpenHow::ReadWrite)?
            .ok_or_else(|| Error::Missing {
                device: self.name(),
            })?;
        self.lock(&place, &place.name, &*file)?;
        let company = reservation
            .as_ref()
            .is_some_and(Reservation::may_have_company);
        let file = self.alone(&place, file, company, offset)?;
        if let Some(reservation) = reservation.as_mut().filter(|_| company) {
            reservation.settle().map_err(self.io("reserve"))?;
        }
        Ok(Box::new(self.writer(
            place,
            file,
            reservation,
            offset,
            Fate::Keep,
            via,
        )?))
    }
}

#[derive(Debug)]
struct FileRead {
    device: String,
    file: Arc<dyn File>,
}

impl FileRead {
    fn error(&self, offset: u64) -> impl Fn(std::io::Error) -> Error + '_ {
        move |source| Error::Io {
            action: "read",
            device: self.device.clone(),
            offset,
            source,
        }
    }
}

impl FamilyRead for FileRead {
    fn len_bytes(&self) -> Result<Option<u64>, Error> {
        Ok(Some(self.file.stat().map_err(self.error(0))?.len))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        // Cached bytes are read from the cache; other bytes must not evict them.
        let via = match self.is_at_hand(offset..offset.saturating_add(buf.len() as u64)) {
            true => Via::Cache,
            false => Via::Direct,
        };
        self.file
            .read_full_at(buf, offset, via)
            .map_err(self.error(offset))
    }

    fn is_at_hand(&self, range: Range<u64>) -> bool {
        self.file.is_cached(range)
    }
}

/// How a stripe becomes visible.
enum Fate {
    /// A new stripe: by renaming the temporary file.
    Rename,
    /// An appended stripe: the name exists already.
    Keep,
}

struct FileWrite {
    device: String,
    place: FileLocation,
    file: Arc<dyn File>,
    reservation: Option<Reservation>,
    /// The stripe to be replaced, kept open for its lock: until the new one is in place, nobody may append to it.
    _existing: Option<Arc<dyn File>>,
    staging: Buffer,
    /// File offset of the buffer, a multiple of `ALIGN`.
    base: u64,
    staged: usize,
    /// Where this backup begins. Once it has `begun`, no older bytes follow.
    start: u64,
    begun: bool,
    /// A sync failed: what was written may not be on the medium, and no later sync says so.
    is_lost: bool,
    via: Via,
    fate: Fate,
    done: bool,
}

impl FileWrite {
    fn error(&self, action: &'static str, source: std::io::Error) -> Error {
        self.error_at(self.offset(), action, source)
    }

    fn error_at(&self, offset: u64, action: &'static str, source: std::io::Error) -> Error {
        Error::Io {
            action,
            device: self.device.clone(),
            offset,
            source,
        }
    }

    /// Errors: [`Error::Busy`] if another writer took this one for dead and may be writing here now.
    fn check_reserved(&self) -> Result<(), Error> {
        match self.reservation.as_ref().map(Reservation::is_ours) {
            None | Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => Err(Error::Busy {
                device: self.device.clone(),
            }),
            Some(Err(e)) => Err(self.error("reserve", e)),
        }
    }

    fn write_out(&self, len: usize, via: Via) -> Result<(), Error> {
        self.file
            .write_counted(&self.staging[..len], self.base, via)
            .map_err(|e| self.error_at(self.base + e.done as u64, "write", e.source))
    }

    fn flush(&mut self) -> Result<(), Error> {
        let aligned = self.staged - self.staged % ALIGN;
        if aligned > 0 {
            self.write_out(aligned, self.via)?;
            self.staging.copy_within(aligned..self.staged, 0);
            self.base += aligned as u64;
            self.staged -= aligned;
        }
        if self.staged > 0 {
            self.write_out(self.staged, Via::Cache)?;
        }
        Ok(())
    }
}

impl FamilyWrite for FileWrite {
    fn offset(&self) -> u64 {
        self.base + self.staged as u64
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        if !self.begun {
            self.file
                .set_len(self.start)
                .map_err(|e| self.error_at(self.start, "write", e))?;
            self.begun = true;
        }
        while !bytes.is_empty() {
            let n = bytes.len().min(STAGING_BYTES - self.staged);
            copy_nontemporal(&bytes[..n], &mut self.staging[self.staged..self.staged + n]);
            self.staged += n;
            bytes = &bytes[n..];
            if self.staged == STAGING_BYTES {
                self.write_out(STAGING_BYTES, self.via)?;
                self.base += STAGING_BYTES as u64;
                self.staged = 0;
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.check_reserved()?;
        self.flush()?;
        if let Err(error) = self.file.sync() {
            self.is_lost = true;
            return Err(self.error("sync", error));
        }
        // The temporary name must survive a crash too: the stripe of another family may be renamed first.
        self.place
            .dir
            .sync(Path::new(""))
            .map_err(|e| self.error("sync", e))
    }

    fn keep(&mut self) {
        self.done = !self.is_lost;
    }

    fn complete(mut self: Box<Self>) -> Result<Option<LastLook>, Error> {
        self.check_reserved()?;
        let FileLocation {
            dir, name, pending, ..
        } = &self.place;
        let io = |e| self.error("complete", e);
        match self.fate {
            Fate::Rename => {
                dir.rename(pending, name).map_err(io)?;
                dir.sync(Path::new("")).map_err(io)?;
            }
            // Writing and syncing also succeed on a file that no longer has a name.
            Fate::Keep => {
                let (named, ours) = (dir.stat(name).map_err(io)?, self.file.stat().map_err(io)?);
                if (named.dev, named.ino) != (ours.dev, ours.ino) {
                    return Err(Error::Missing {
                        device: self.device.clone(),
                    });
                }
            }
        }
        self.done = true;
        // A silent writer that wakes has the file that had the name before. The mark is no reason to fail now: it costs the
        // next append a copy.
        if let Some(reservation) = &mut self.reservation
            && reservation.may_have_company()
        {
            let _left = reservation.settle();
        }
        Ok(None)
    }
}

impl Drop for FileWrite {
    fn drop(&mut self) {
        // The present file may belong to another writer.
        if self.done || self.check_reserved().is_err() {
            return;
        }
        // Best effort: readers recognise a leftover by its missing trailer.
        let cleaned = match self.fate {
            Fate::Rename => self.place.dir.remove_file(&self.place.pending),
            Fate::Keep if self.begun => self.file.set_len(self.start),
            Fate::Keep => Ok(()),
        };
        if let Err(error) = cleaned {
            tracing::warn!(device = self.device, %error, "an unfinished stripe could not be removed");
        }
    }
}
