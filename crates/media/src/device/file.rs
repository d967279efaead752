//! A stripe in a file.
//!
//! A new stripe is written to `NAME.longshore-new` and renamed when it and all its siblings are
//! durable. The renames of several stripes are not atomic together: after a crash between them some
//! stripes stand under their names and the others, complete and durable, under the temporary one. Readers then
//! take those ([`BackupDevice::open_pending`]), the next writer finishes the renames.
//!
//! A stripe that is appended to is changed where it stands, unless it has other names: then it is replaced by a copy
//! first, and a copy that somebody made of hard links stays what it was.
//!
//! Writers keep each other away by locks. Where these may not reach all of them, on a network or FUSE, and wherever one of
//! those has been, the stripe is reserved by a file beside it, `NAME.longshore-writing` ([`Reservation`]). Who lost his
//! reservation learns it before the trailer is written, without which there is no set.
//!
//! Writing is staged: bytes gather in one aligned buffer and go out in large aligned writes, past
//! the page cache where asked. A flush writes the unaligned rest through the cache and keeps it
//! staged, so that later bytes rewrite that sector with the same contents in front.

use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{
    Attributes, Buffer, Dir, File, OpenHow, Reservation, Storage, Via, copy_nontemporal,
};

use super::{BackupDevice, DeviceClass, FamilyRead, FamilyWrite};
use crate::Error;

/// Bytes gathered before a write; the memory a stripe needs beside the pool. One large page.
pub const STAGING_BYTES: usize = longshore_io::HUGE_BYTES;
const ALIGN: usize = 4096;

#[derive(Debug)]
pub struct FileDevice {
    storage: Arc<dyn Storage>,
    path: PathBuf,
}

/// A file's directory and its name in there.
struct Place {
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

    fn place(&self) -> Result<Place, Error> {
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
        Ok(Place {
            dir,
            name,
            pending,
            reservation,
        })
    }

    fn open_name(
        &self,
        place: &Place,
        name: &Path,
        how: OpenHow,
    ) -> Result<Option<Arc<dyn File>>, Error> {
        self.found(place.dir.open(name, how))
    }

    fn open_to_lock(&self, place: &Place, name: &Path) -> Result<Option<Arc<dyn File>>, Error> {
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

    /// Keeps others from writing to `file`, which was opened as `name`, as long as it is open.
    ///
    /// Whoever removes or renames a stripe holds its lock. So once a lock is ours and the name still
    /// means the same file, it will until we let go; else our lock is on something nobody will find again.
    fn lock(&self, place: &Place, name: &Path, file: &dyn File) -> Result<(), Error> {
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

    /// Keeps those away whom a lock does not reach. Comes before every lock that is taken to write.
    fn reserve(&self, place: &Place) -> Result<Option<Reservation>, Error> {
        let dir = &place.dir;
        let failed = self.io("reserve");
        if dir.keeps_locks(Path::new("")).map_err(&failed)? && dir.stat(&place.reservation).is_err()
        {
            return Ok(None);
        }
        match Reservation::take(dir, &place.reservation).map_err(failed)? {
            Some(reservation) => Ok(Some(reservation)),
            None => Err(Error::Busy {
                device: self.name(),
            }),
        }
    }

    /// Makes the temporary and locks it; removes what a dead writer left there.
    fn make_pending(&self, place: &Place) -> Result<Arc<dyn File>, Error> {
        if let Some(stale) = self.open_to_lock(place, &place.pending)? {
            // Its writer is gone, or this would be busy.
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

    /// The stripe to append to, which is `file` unless that has other names (hard links): these keep their bytes, and
    /// the name gets a copy of the first `keep` ones. To readers the copy under the temporary name is rubbish until it
    /// is renamed: the stripe itself is in place and whole.
    fn alone(&self, place: &Place, file: Arc<dyn File>, keep: u64) -> Result<Arc<dyn File>, Error> {
        let found = file.stat().map_err(self.io("look at"))?;
        if found.links <= 1 {
            return Ok(file);
        }
        tracing::info!(
            device = self.name(),
            "a stripe with other names (hard links) is copied before it is appended to"
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
            // What cannot be removed now, the next writer of this name removes.
            let _left = place.dir.remove_file(&place.pending);
        }
        copied.map_err(self.io("copy"))?;
        Ok(copy)
    }

    fn writer(
        &self,
        place: Place,
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
        // Its writer may be alive and about to do the same.
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

    fn create(&self, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        let place = self.place()?;
        let reservation = self.reserve(&place)?;
        let file = self.make_pending(&place)?;
        let mut writer = self.writer(place, file, reservation, 0, Fate::Rename, via)?;
        // With the temporary ours, nobody else can put a stripe in place. Whoever appends to the one that
        // stands there holds its lock.
        let existing = self.open_to_lock(&writer.place, &writer.place.name)?;
        if let Some(old) = &existing {
            self.lock(&writer.place, &writer.place.name, &**old)?;
        }
        writer._existing = existing;
        Ok(Box::new(writer))
    }

    fn append(&self, offset: u64, via: Via) -> Result<Box<dyn FamilyWrite>, Error> {
        let place = self.place()?;
        let reservation = self.reserve(&place)?;
        let file = self
            .open_name(&place, &place.name, OpenHow::ReadWrite)?
            .ok_or_else(|| Error::Missing {
                device: self.name(),
            })?;
        self.lock(&place, &place.name, &*file)?;
        let file = self.alone(&place, file, offset)?;
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
        // What is cached is read from there; what is not must not push out what is.
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
    /// New: by renaming the temporary.
    Rename,
    /// Appended: it is there already.
    Keep,
}

struct FileWrite {
    device: String,
    place: Place,
    file: Arc<dyn File>,
    reservation: Option<Reservation>,
    /// The stripe to be replaced, held for its lock: until the new one is in place, nobody may append to it.
    _existing: Option<Arc<dyn File>>,
    staging: Buffer,
    /// File offset of the staging buffer, a multiple of `ALIGN`.
    base: u64,
    staged: usize,
    /// Where this backup begins; behind it nothing older stands once it has `begun`.
    start: u64,
    begun: bool,
    via: Via,
    fate: Fate,
    done: bool,
}

impl FileWrite {
    fn error(&self, action: &'static str, source: std::io::Error) -> Error {
        Error::Io {
            action,
            device: self.device.clone(),
            offset: self.offset(),
            source,
        }
    }

    /// Errors: [`Error::Busy`] when somebody took this writer for dead and may write here now.
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
            .write_all_at(&self.staging[..len], self.base, via)
            .map_err(|e| self.error("write", e))
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
                .map_err(|e| self.error("write", e))?;
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
        self.file.sync().map_err(|e| self.error("sync", e))?;
        // The temporary's name must outlive a crash too: a sibling may be renamed first.
        self.place
            .dir
            .sync(Path::new(""))
            .map_err(|e| self.error("sync", e))
    }

    fn keep(&mut self) {
        self.done = true;
    }

    fn complete(mut self: Box<Self>) -> Result<(), Error> {
        self.check_reserved()?;
        let Place {
            dir, name, pending, ..
        } = &self.place;
        let io = |e| self.error("complete", e);
        match self.fate {
            Fate::Rename => {
                dir.rename(pending, name).map_err(io)?;
                dir.sync(Path::new("")).map_err(io)?;
            }
            // Writing and syncing succeed on a file that nobody can find any more.
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
        Ok(())
    }
}

impl Drop for FileWrite {
    fn drop(&mut self) {
        // What is there now may be somebody else's.
        if self.done || self.check_reserved().is_err() {
            return;
        }
        // Best effort: a reader recognises what is left by its missing trailer.
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
