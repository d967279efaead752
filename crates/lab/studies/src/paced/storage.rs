//! A file system in which some directories, and a source, are on emulated devices.
//!
//! Invariants
//! - Each directory that was named is a device of its own; directories below it are on it, too. A directory that is
//!   named twice is one device.
//! - A file on a device has nothing in a page cache: a device has none.
//! - Names, attributes and locks are the real file system's, at its speed.
//!
//! Leaves to others: how fast a device is (`pace.rs`).

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{
    Attributes, Clock, Dir, DirAttributes, DirChange, DirIdentity, DirRead, DirSync, File,
    FileAttributes, FileLock, FileRead, FileWrite, OpenHow, Stat, Storage, Via, Xattr, Xattrs,
    ZeroedSpace,
};

use super::pace::{DevicePace, DeviceRate, PaceAccount};

/// A larger share of requests that the real storage answered later than the device says that there was no such device. So does
/// a larger share of the device's own time that syncs took beyond it.
const LATE_PERCENT: f64 = 5.0;

/// The stated speeds of a study's devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmulatedVolumes {
    /// Of each directory for stripes.
    pub target: DeviceRate,
    /// Of the source; `None`: as fast as it is.
    pub source: Option<DeviceRate>,
}

impl fmt::Display for EmulatedVolumes {
    /// `emulated at 200 MB/s`, with the source's rate if it has one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "emulated at {}", self.target)?;
        match self.source {
            Some(source) => write!(f, ", the source at {source}"),
            None => Ok(()),
        }
    }
}

/// The real storage with devices below some of its paths.
#[derive(Debug, Clone)]
pub struct PacedStorage {
    inner: Arc<dyn Storage>,
    /// `None`: a source that is as fast as it is, also where it lies below a directory that is a device.
    devices: Arc<Vec<(PathBuf, Option<Arc<DevicePace>>)>>,
}

impl PacedStorage {
    /// Makes a device of each of `dirs`, which are created if missing, and of each of `sources`, files and directories, if they
    /// have a rate.
    pub fn new(
        inner: Arc<dyn Storage>,
        clock: &Arc<dyn Clock>,
        rates: &EmulatedVolumes,
        dirs: &[PathBuf],
        sources: &[PathBuf],
    ) -> io::Result<PacedStorage> {
        let mut devices: Vec<(PathBuf, Option<Arc<DevicePace>>)> = Vec::new();
        let mut put = |path: PathBuf, rate: Option<DeviceRate>| {
            if !devices.iter().any(|(known, _)| *known == path) {
                let pace = rate.map(|rate| Arc::new(DevicePace::new(clock.clone(), rate)));
                devices.push((path, pace));
            }
        };
        for dir in dirs {
            inner.create_dir_all(dir)?;
            put(inner.canonical(dir)?, Some(rates.target));
        }
        for source in sources {
            put(inner.canonical(source)?, rates.source);
        }
        Ok(PacedStorage {
            inner,
            devices: Arc::new(devices),
        })
    }

    /// The devices in the order in which they were named, those of sources last.
    pub fn devices(&self) -> impl Iterator<Item = &DevicePace> {
        self.devices
            .iter()
            .filter_map(|(_, device)| device.as_deref())
    }

    /// A sentence for a headline, if the real storage was often slower than the devices are; `None`: it was not. It is about all
    /// since the last call, and the devices' accounts begin again: each figure has its own doubts.
    pub fn take_doubt(&self) -> Option<String> {
        let accounts: Vec<PaceAccount> = self.devices().map(DevicePace::take_account).collect();
        // One slow device decides, however many requests the others had.
        let most = |percent: &dyn Fn(&PaceAccount) -> f64| {
            let all = accounts.iter().map(percent);
            Some(all.fold(0.0, f64::max)).filter(|percent| *percent > LATE_PERCENT)
        };
        let late = most(&|of| 100.0 * of.late as f64 / of.requests.max(1) as f64);
        let late = late.map(|percent| format!("in {percent:.0} % of its requests"));
        let syncs = most(&|of| match of.busy.is_zero() {
            true => 0.0,
            false => 100.0 * of.late_syncs.as_secs_f64() / of.busy.as_secs_f64(),
        });
        let syncs = syncs.map(|percent| {
            format!("in its syncs, by {percent:.0} % of the time for which the device was at work")
        });
        let told: Vec<String> = late.into_iter().chain(syncs).collect();
        (!told.is_empty()).then(|| {
            format!(
                "The real storage was slower than an emulated device {}, so they were not as fast as stated.",
                told.join(", and ")
            )
        })
    }

    /// The device that holds a path without symbolic links: that of the longest named part.
    fn device_of(&self, path: &Path) -> Option<Arc<DevicePace>> {
        let holding = self.devices.iter().filter(|(of, _)| path.starts_with(of));
        let nearest = holding.max_by_key(|(of, _)| of.components().count());
        nearest.and_then(|(_, device)| device.clone())
    }

    fn dir_at(&self, path: PathBuf, dir: Arc<dyn Dir>) -> Arc<dyn Dir> {
        Arc::new(PacedDir {
            storage: self.clone(),
            path,
            dir,
        })
    }

    fn file_at(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        match self.device_of(path) {
            Some(device) => Arc::new(PacedFile { file, device }),
            None => file,
        }
    }
}

impl Storage for PacedStorage {
    fn dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let dir = self.inner.dir(path)?;
        Ok(self.dir_at(self.inner.canonical(path)?, dir))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let dir = self.inner.create_dir_all(path)?;
        Ok(self.dir_at(self.inner.canonical(path)?, dir))
    }

    fn disk(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = self.inner.disk(path)?;
        Ok(self.file_at(&self.inner.canonical(path)?, file))
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.inner.stat(path)
    }

    fn birth_ns(&self, path: &Path) -> io::Result<Option<i64>> {
        self.inner.birth_ns(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.canonical(path)
    }
}

#[derive(Debug)]
struct PacedDir {
    storage: PacedStorage,
    /// Without symbolic links.
    path: PathBuf,
    dir: Arc<dyn Dir>,
}

impl DirIdentity for PacedDir {
    fn birth_ns(&self, name: &Path) -> io::Result<Option<i64>> {
        self.dir.birth_ns(name)
    }

    fn mount_id(&self, name: &Path) -> io::Result<u64> {
        self.dir.mount_id(name)
    }
}

impl DirRead for PacedDir {
    fn open(&self, name: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let file = self.dir.open(name, how)?;
        Ok(self.storage.file_at(&self.path.join(name), file))
    }

    fn dir(&self, name: &Path) -> io::Result<Arc<dyn Dir>> {
        let dir = self.dir.dir(name)?;
        Ok(self.storage.dir_at(self.path.join(name), dir))
    }

    fn stat(&self, name: &Path) -> io::Result<Stat> {
        self.dir.stat(name)
    }

    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<OsString>> + Send>> {
        self.dir.list()
    }

    fn read_link(&self, name: &Path) -> io::Result<PathBuf> {
        self.dir.read_link(name)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.dir.free_bytes()
    }

    fn keeps_locks(&self, name: &Path) -> io::Result<bool> {
        self.dir.keeps_locks(name)
    }
}

impl DirChange for PacedDir {
    fn create_dir(&self, name: &Path) -> io::Result<()> {
        self.dir.create_dir(name)
    }

    fn create_shared_dir(&self, name: &Path) -> io::Result<()> {
        self.dir.create_shared_dir(name)
    }

    fn symlink(&self, target: &Path, name: &Path) -> io::Result<()> {
        self.dir.symlink(target, name)
    }

    fn hard_link(&self, existing: &Path, name: &Path) -> io::Result<()> {
        self.dir.hard_link(existing, name)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.dir.rename(from, to)
    }

    fn remove_file(&self, name: &Path) -> io::Result<()> {
        self.dir.remove_file(name)
    }

    fn remove_dir(&self, name: &Path) -> io::Result<()> {
        self.dir.remove_dir(name)
    }
}

impl DirAttributes for PacedDir {
    fn set_attributes(&self, name: &Path, attributes: &Attributes) -> io::Result<()> {
        self.dir.set_attributes(name, attributes)
    }

    fn xattrs(&self, name: &Path) -> io::Result<Xattrs> {
        self.dir.xattrs(name)
    }

    fn set_xattr(&self, name: &Path, xattr: &Xattr) -> io::Result<()> {
        self.dir.set_xattr(name, xattr)
    }

    fn remove_xattr(&self, name: &Path, xattr: &[u8]) -> io::Result<()> {
        self.dir.remove_xattr(name, xattr)
    }

    fn give(&self, owner: (u32, u32)) -> io::Result<bool> {
        self.dir.give(owner)
    }
}

impl DirSync for PacedDir {
    fn sync(&self, name: &Path) -> io::Result<()> {
        match self.storage.device_of(&self.path.join(name)) {
            Some(device) => device.sync(|| self.dir.sync(name)),
            None => self.dir.sync(name),
        }
    }

    /// Settling before a backup is none of the device's work, however long the real storage takes for it.
    fn sync_all(&self) -> io::Result<()> {
        let synced = self.dir.sync_all();
        if let Some(device) = self.storage.device_of(&self.path) {
            device.drain();
        }
        synced
    }
}

/// A file on a device.
#[derive(Debug)]
struct PacedFile {
    file: Arc<dyn File>,
    device: Arc<DevicePace>,
}

impl FileRead for PacedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, via: Via) -> io::Result<usize> {
        self.device.pass(|| self.file.read_at(buf, offset, via))
    }

    fn stat(&self) -> io::Result<Stat> {
        self.file.stat()
    }

    fn identity(&self) -> Option<String> {
        self.file.identity()
    }

    fn is_cached(&self, _range: Range<u64>) -> bool {
        false
    }

    fn drop_cached(&self) {
        self.file.drop_cached();
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.file.next_data(offset)
    }

    fn reflink(&self) -> Option<Arc<dyn File>> {
        let file = self.file.reflink()?;
        let device = self.device.clone();
        Some(Arc::new(PacedFile { file, device }))
    }
}

impl FileWrite for PacedFile {
    fn write_at(&self, buf: &[u8], offset: u64, via: Via) -> io::Result<usize> {
        self.device.pass(|| self.file.write_at(buf, offset, via))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        self.file.allocate(range)
    }

    fn free_unwritten(&self) -> io::Result<()> {
        self.file.free_unwritten()
    }

    fn zero(&self, range: Range<u64>, space: ZeroedSpace) -> io::Result<bool> {
        self.file.zero(range, space)
    }

    fn sync(&self) -> io::Result<()> {
        self.device.sync(|| self.file.sync())
    }

    fn sync_with_times(&self) -> io::Result<()> {
        self.device.sync(|| self.file.sync_with_times())
    }
}

impl FileAttributes for PacedFile {
    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.file.set_mode(mode)
    }

    fn give(&self, owner: (u32, u32)) -> io::Result<bool> {
        self.file.give(owner)
    }
}

impl FileLock for PacedFile {
    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }

    fn try_lock_range(&self, range: Range<u64>, exclusive: bool) -> io::Result<bool> {
        self.file.try_lock_range(range, exclusive)
    }

    fn unlock_range(&self, range: Range<u64>) -> io::Result<()> {
        self.file.unlock_range(range)
    }

    fn is_open_elsewhere(&self) -> io::Result<bool> {
        self.file.is_open_elsewhere()
    }

    fn is_written_elsewhere(&self) -> io::Result<bool> {
        self.file.is_written_elsewhere()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use longshore_io::{Host, SimClock};

    use super::*;

    /// Goal: who reads a report knows that a sync took longer than the device would have, and in which figure.
    /// Method: a second of the device's work, and syncs of stated lengths on a clock that nothing else moves.
    #[test]
    fn a_slow_sync_is_a_doubt_of_its_own_figure_and_a_short_one_is_none() {
        let root = tempfile::tempdir().unwrap();
        let clock = Arc::new(SimClock::new(0));
        let target = DeviceRate {
            bytes_per_s: NonZeroU64::new(1 << 20).unwrap(),
            latency: Duration::ZERO,
        };
        let rates = EmulatedVolumes {
            target,
            source: None,
        };
        let shared: Arc<dyn Clock> = clock.clone();
        let dirs = [root.path().to_owned()];
        let host = Arc::new(Host::new());
        let paced = PacedStorage::new(host, &shared, &rates, &dirs, &[]).unwrap();
        let doubt = |sync_ms| {
            let device = paced.devices().next().unwrap();
            device.pass(|| Ok(1 << 20)).unwrap();
            let synced = device.sync(|| {
                clock.advance(Duration::from_millis(sync_ms));
                Ok(())
            });
            synced.unwrap();
            paced.take_doubt()
        };
        assert_eq!(doubt(40), None);
        assert_eq!(
            doubt(400).unwrap(),
            "The real storage was slower than an emulated device in its syncs, by 40 % of the time for which the device was at \
             work, so they were not as fast as stated."
        );
        // Neither the doubt nor what made it is left for the next one.
        assert_eq!(doubt(40), None);
    }
}
