//! Creates a cache, and reopens one.
//!
//! A cache is believed if all of this holds:
//!
//! - both copies of its superblock and its log are sound, and the guard next to the backend names its tie and session;
//! - the backend is as long as it was and the same file or block device: a file also by its birth, without which no
//!   cache is believed after a crash, since a removed file's number is given to the next one;
//! - a file's time of change is that of the clean stop, or after a crash one at which this cache may have written, by a
//!   clock that was not ahead;
//! - the watched places (`content.rs`) are as they were left: the first and last line, superblocks of file systems;
//! - a block device holds only file systems whose superblock tells of every mount;
//! - the durable lines have on the backend the checksums of the table.
//!
//! All of that but the last can only refute a cache. A superblock tells of mounts and of no other write, also where it is
//! left over from earlier use. So every line is compared (`compare.rs`), and a line that was not compared is dropped. One
//! observation stands for the comparison: a file's time of change since a clean stop, within one boot, on a file system of
//! this machine that notes time finely and birth. Then up to [`SAMPLE`] lines, a new random choice each time, are compared.
//! After another boot the time proves nothing: bytes that another program synced reach the medium before it does, and a
//! power cut loses it.
//!
//! [`Start`] reports what was found.
//!
//! The order of a start: the guard says *starting*; the table goes to the cache device as the log of the new session;
//! the superblock; the guard says *running*.
//!
//! Invariants
//! - Names, numbers and times are hints that can refute a cache and never prove it.
//! - If any of the conditions above does not hold, the cache begins empty, which is never wrong.
//! - A power cut at any point of a start costs nothing.
//!
//! Leaves to others: the guard's file (`guard.rs`), the watched places (`content.rs`), and the table (`journal.rs`).

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_io::{Clock, Dir, File, FileKind, OpenHow, Stat, Storage, Via, crc32c};
use parking_lot::Mutex;

use crate::Error;
use crate::cached::{CachedBackend, Settings, policy};
use crate::compare;
use crate::content::{self, Look};
use crate::directory::Directory;
use crate::disks;
use crate::format::{BackendContent, BackendMark, FORM, ServedBackend, Superblock, newer_form};
use crate::geometry::{Geometry, LINE};
use crate::guard::{Guard, Word};
use crate::journal::{self, Journal, Superblocks, Table};
use crate::mark::{boot, mark_at};
use crate::start::Start;
use crate::store::{Store, StoreState, extend};
use crate::watch::{BackendWatch, LEASE_MAX_NS};

/// Durable lines that are compared with the backend at a start that need not compare all. If 1 % of the cached data was
/// changed on the backend, the comparison notices it in 98 of 100 cases.
pub const SAMPLE: usize = 400;

/// The paths of a backend and its guard.
#[derive(Debug, Clone)]
pub struct Backend {
    pub path: PathBuf,
    /// Next to the backend if not named; only a file may leave it out.
    pub guard: Option<PathBuf>,
}

impl Backend {
    /// The guard's path: the named one, or `PATH.longshore-guard` next to the file to which `path` leads, so that all
    /// names of one backend have one guard. Next to a block device no file survives a reboot.
    fn guard_path(&self, storage: &dyn Storage) -> Result<PathBuf, Error> {
        match &self.guard {
            Some(path) => Ok(path.clone()),
            None => {
                let path = storage
                    .canonical(&self.path)
                    .map_err(failed("find", &self.path))?;
                let found = storage.stat(&path).map_err(failed("look at", &path))?;
                if found.kind != FileKind::File {
                    return Err(Error::NoGuard { path });
                }
                let mut path = path.into_os_string();
                path.push(".longshore-guard");
                Ok(path.into())
            }
        }
    }
}

/// How often, and after which pause, to look whether a file is still open for writing elsewhere: a program that has just
/// ended may have left a child that has not begun its own program yet.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// Refuses a backend's file that another program, or a loop device, has open for writing. Readers do no harm. If the
/// system cannot tell, as it does only to the file's owner, nothing is refused, and the log says so.
fn nobody_writes(storage: &dyn Storage, path: &Path, clock: &dyn Clock) -> Result<(), Error> {
    let path = storage.canonical(path).map_err(failed("find", path))?;
    let found = storage.stat(&path).map_err(failed("look at", &path))?;
    let (FileKind::File, Some(parent), Some(name)) = (found.kind, path.parent(), path.file_name())
    else {
        return Ok(());
    };
    let dir = storage.dir(parent).map_err(failed("open", parent))?;
    let file = dir
        .open(Path::new(name), OpenHow::Read)
        .map_err(failed("open", &path))?;
    for _ in 0..LOOKS {
        match file.is_written_elsewhere() {
            Ok(true) => clock.sleep(PAUSE),
            Ok(false) => return Ok(()),
            Err(error) => {
                tracing::warn!(
                    %error,
                    backend = %path.display(),
                    "cannot tell whether another program writes to the backend: see that none does, or serve as its owner"
                );
                return Ok(());
            }
        }
    }
    Err(Error::InUse { path })
}

/// Opens a file or block device that nobody else uses, and locks it.
fn take(storage: &dyn Storage, path: &Path) -> Result<Arc<dyn File>, Error> {
    let in_use = || Error::InUse {
        path: path.to_owned(),
    };
    let file = storage.disk(path).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => in_use(),
        _ => failed("open", path)(error),
    })?;
    match file.try_lock().map_err(failed("lock", path))? {
        true => Ok(file),
        false => Err(in_use()),
    }
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> Error + use<'a> {
    move |source| Error::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Makes an empty cache. Creates a regular file of `len_bytes` if nothing exists. An existing empty file is used whole, and
/// a larger `len_bytes` extends it. Of a block device `len_bytes` are used, or all if none are given. With `force` other
/// content is overwritten, and a file is cut to a smaller `len_bytes`.
///
/// Errors: `NotEmpty`, `InUse`, `SlotSize`, `TooSmall`, `Memory`, `Io`; `Beyond` if the block device is smaller.
pub fn create(
    storage: &dyn Storage,
    path: &Path,
    len_bytes: Option<u64>,
    slot_bytes: u32,
    force: bool,
) -> Result<Geometry, Error> {
    let made = match storage.stat(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Some(create_file(storage, path, len_bytes)?)
        }
        _ => None,
    };
    let created = fill(storage, path, len_bytes, slot_bytes, force);
    if let (Err(_), Some((dir, name))) = (&created, made) {
        // If this fails, an empty file stays.
        let _stays = dir.remove_file(name);
    }
    created
}

/// Makes an empty cache of an existing file or block device.
fn fill(
    storage: &dyn Storage,
    path: &Path,
    len_bytes: Option<u64>,
    slot_bytes: u32,
    force: bool,
) -> Result<Geometry, Error> {
    let (file, _below) = (take(storage, path)?, take_below(storage, path)?);
    let found = file.stat().map_err(failed("look at", path))?;
    let is_block_device = found.kind != FileKind::File;
    if !force && !holds_nothing(&*file, &found).map_err(failed("read", path))? {
        return Err(Error::NotEmpty {
            path: path.to_owned(),
        });
    }
    let len_bytes = match force || is_block_device {
        true => len_bytes,
        false => len_bytes.map(|len_bytes| len_bytes.max(found.len)),
    };
    let wanted = len_bytes.unwrap_or(found.len);
    if is_block_device && wanted > found.len {
        return Err(Error::Beyond {
            path: path.to_owned(),
            device_bytes: found.len,
            wanted_bytes: wanted,
        });
    }
    // Nothing is changed for a cache that cannot be made.
    let geometry = Geometry::fit(wanted, slot_bytes)?;
    if let Some(len_bytes) = len_bytes.filter(|_| !is_block_device) {
        extend(&*file, found.len, len_bytes).map_err(failed("extend", path))?;
    }
    if !is_block_device {
        let reserved = file.allocate(0..geometry.end()).inspect_err(|_| {
            // A full file system would stay full for everybody.
            let _as_before = file.free_unwritten();
        });
        reserved.map_err(failed("reserve space in", path))?;
    }
    let table = empty(geometry)?;
    let superblock = Superblock {
        geometry,
        clean: true,
        sequence: 0,
        generation: 0,
        session: 0,
        backend: BackendMark::default(),
        tie: *uuid::Uuid::new_v4().as_bytes(),
        log_pages: 0,
        content: BackendContent::default(),
        boot: 0,
    };
    // From here on, nothing is left of an earlier cache.
    file.write_all_at(&[0; 2 * LINE as usize], 0, Via::Cache)
        .map_err(failed("write", path))?;
    Journal::begin(file, superblock, table).map_err(failed("write", path))?;
    Ok(geometry)
}

/// Bytes at each end of a block device where file systems, volume managers and partition tables have their marks.
const MARKS: u64 = 1 << 20;

/// Whether there are only zeros: anywhere in a file; at the places of marks on a block device, which may be huge and
/// has no holes.
fn holds_nothing(file: &dyn File, found: &Stat) -> io::Result<bool> {
    let len_bytes = found.len;
    if found.kind != FileKind::File {
        let end = len_bytes.saturating_sub(MARKS);
        return Ok(is_zero(file, 0..len_bytes.min(MARKS))? && is_zero(file, end..len_bytes)?);
    }
    let mut at = 0;
    while let Some(data) = file.next_data(at)? {
        if !is_zero(file, data.clone())? {
            return Ok(false);
        }
        // Always moves on, whatever a file system answers.
        at = data.end.max(at + 1);
    }
    Ok(true)
}

fn is_zero(file: &dyn File, range: Range<u64>) -> io::Result<bool> {
    let mut bytes = vec![0; MARKS.min(range.end - range.start) as usize];
    let mut at = range.start;
    while at < range.end {
        let len_bytes = (range.end - at).min(MARKS) as usize;
        let read = file.read_full_at(&mut bytes[..len_bytes], at, Via::Cache)?;
        if !longshore_io::is_zero(&bytes[..read]) {
            return Ok(false);
        }
        at += len_bytes as u64;
    }
    Ok(true)
}

fn create_file<'a>(
    storage: &dyn Storage,
    path: &'a Path,
    len_bytes: Option<u64>,
) -> Result<(Arc<dyn Dir>, &'a Path), Error> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let dir = storage
        .dir(parent.unwrap_or(Path::new(".")))
        .map_err(failed("open the directory of", path))?;
    let name = Path::new(path.file_name().unwrap_or_default());
    if len_bytes.is_none() {
        return Err(Error::TooSmall { device_bytes: 0 });
    }
    dir.open(name, OpenHow::CreateNew)
        .map_err(failed("create", path))?;
    dir.sync(Path::new("")).map_err(failed("create", path))?;
    Ok((dir, name))
}

fn empty(geometry: Geometry) -> Result<Table, Error> {
    Table::empty(geometry).ok_or(Error::Memory {
        source: io::ErrorKind::OutOfMemory.into(),
    })
}

/// A backend that is ready to be served.
#[derive(Debug)]
pub struct OpenedBackend {
    pub cached: CachedBackend,
    /// How the cache came to its content; an error says why it cannot be used, and the backend is served without it.
    /// `None`: no cache was requested.
    pub cache: Option<Result<Start, Error>>,
}

/// Opens a backend, with the cache at `cache` in front of it.
///
/// A backend that is served without its cache may change unseen, so in that case no cache is believed afterwards. If
/// that cannot be recorded, nothing is opened.
pub fn open(
    storage: &dyn Storage,
    backend: &Backend,
    cache: Option<&Path>,
    settings: Settings,
    clock: Arc<dyn Clock>,
) -> Result<OpenedBackend, Error> {
    let path = &*backend.path;
    nobody_writes(storage, path, &*clock)?;
    let file = take(storage, path)?;
    let found = file.stat().map_err(failed("look at", path))?;
    let guard = Guard::take(storage, &backend.guard_path(storage)?)?;
    is_apart(&guard, &found)?;
    let guard = guard.with_below(take_below(storage, path)?);
    let cached = CachedBackend::new(file, found.len, settings, clock, guard.clone())?;
    let cache = match cache.map(|cache| attach(storage, &cached, backend, cache, false)) {
        Some(Err(error @ (Error::GuardOnCache { .. } | Error::NotAGuard { .. }))) => {
            return Err(error);
        }
        attached => attached,
    };
    if !matches!(cache, Some(Ok(_))) {
        let path = guard.path();
        // Without a guard no cache is believed anyway.
        if guard.stat().map_err(failed("read", path))?.is_some() {
            guard.void().map_err(failed("write", path))?;
        }
    }
    Ok(OpenedBackend { cached, cache })
}

/// Locks the file below a loop device: a second loop device over it, and the file itself, are other names of the same bytes.
/// `None`: there is no such file, or it cannot be opened here.
fn take_below(storage: &dyn Storage, device: &Path) -> Result<Option<Arc<dyn File>>, Error> {
    let opened = || {
        let path = disks::backing_file(storage, device)?;
        let (parent, name) = (path.parent()?, Path::new(path.file_name()?));
        let file = storage.dir(parent).ok()?.open(name, OpenHow::Read).ok()?;
        Some((path.clone(), file))
    };
    match opened() {
        None => Ok(None),
        Some((path, file)) => match file.try_lock() {
            Ok(false) => Err(Error::InUse { path }),
            Ok(true) | Err(_) => Ok(Some(file)),
        },
    }
}

/// Refuses a guard that is this file of a backend or a cache.
fn is_apart(guard: &Guard, file: &Stat) -> Result<(), Error> {
    let found = guard.stat().map_err(failed("read", guard.path()))?;
    match found.is_some_and(|found| (found.dev, found.ino) == (file.dev, file.ino)) {
        false => Ok(()),
        true => Err(Error::NotAGuard {
            path: guard.path().to_owned(),
        }),
    }
}

/// Refuses a guard that fails with the cache: on the file system of its file, or on a disk whose failure ends both. Then
/// nothing could be recorded, and clients' writes would fail. A backend that fails with that disk fails anyway.
fn survives(
    storage: &dyn Storage,
    guard: &Guard,
    cache: (&Path, &Stat),
    backend: (&Path, &Stat),
) -> Result<(), Error> {
    let ((path, cache), (slow, backend)) = (cache, backend);
    is_apart(guard, cache)?;
    let folder = guard.path().parent().unwrap_or(Path::new("/"));
    let (with_guard, with_cache) = (disks::fatal(storage, folder), disks::fatal(storage, path));
    let with_backend = disks::fatal(storage, slow);
    let ends_both = |disk: &PathBuf| with_cache.contains(disk) && !with_backend.contains(disk);
    let is_shared = with_guard.iter().any(ends_both);
    let dev = guard.dev().map_err(failed("look at", guard.path()))?;
    let is_file = |stat: &Stat| stat.kind == FileKind::File;
    let falls_too = is_file(backend) && backend.dev == dev;
    match is_shared || is_file(cache) && cache.dev == dev && !falls_too {
        false => Ok(()),
        true => Err(Error::GuardOnCache {
            guard: guard.path().to_owned(),
            cache: path.to_owned(),
        }),
    }
}

/// Attaches the cache at `path` to a cached backend that `backend` was opened for.
///
/// Nothing is served from the cache until this returns. `online`: clients may have written without a cache, so its old
/// content is not believed.
pub fn attach(
    storage: &dyn Storage,
    cached: &CachedBackend,
    backend: &Backend,
    path: &Path,
    online: bool,
) -> Result<Start, Error> {
    let _one = cached.attaching();
    cached.still_serves()?;
    if cached.is_attached() {
        return Err(Error::Attached);
    }
    let cache = Cache::take(storage, path)?;
    let guard = cached.guard().clone();
    let slow = &**cached.backend();
    let fast_stat = cache.file.stat().map_err(failed("look at", path))?;
    let slow_stat = slow.stat().map_err(failed("look at", &backend.path))?;
    survives(
        storage,
        &guard,
        (path, &fast_stat),
        (&backend.path, &slow_stat),
    )?;
    let word = guard.read().map_err(failed("read", guard.path()))?;
    if !online {
        // The times recorded below must not be older ones after a power cut.
        slow.sync_with_times()
            .map_err(failed("sync", &backend.path))?;
    }
    let settings = cached.settings();
    let seen = BackendFacts::of(storage, slow, &backend.path, settings.slow_via)?;
    let geometry = cache.superblock.geometry;
    let backend_lines = seen.mark.len_bytes / LINE;
    let load = |table: &Table| {
        Directory::load(table, geometry, backend_lines, policy(&settings, geometry))
    };
    let TrustedCache { start, content } = match cache.superblock.backend == BackendMark::default() {
        true => TrustedCache::nothing(Start::Fresh),
        false if !online && word.believes(&cache.superblock) => cache
            .believe(&seen, slow, settings.slow_via, &*cached.clock(), load)
            .map_err(failed("read", path))?,
        false => TrustedCache::nothing(Start::NotVouched),
    };
    let next = next_session(&cache.superblock, &seen.mark, content.is_some());
    let LoadedCache {
        mut table,
        directory,
    } = content.map_or_else(|| LoadedCache::empty(geometry, load), Ok)?;
    let clock = cached.clock();
    // Clients that are served already write while this looks.
    let served = ServedBackend {
        watched: (!online).then_some(seen.look.fingerprint),
        changed_ns: seen.mark.changed_ns,
        until_ns: if online {
            BackendWatch::lease(clock.wall_ns())
        } else {
            0
        },
    };
    table.set_served(served);
    let (tie, session) = (next.tie, next.session);
    let vouch = |word| guard.write(&word).map_err(failed("write", guard.path()));
    vouch(Word::Starting { tie, session })?;
    let file = cache.file;
    let journal = Journal::begin(Arc::clone(&file), next, table).map_err(failed("write", path))?;
    vouch(Word::Running { tie, session })?;
    cached.put(Store {
        file,
        _below: cache.below,
        via: settings.fast_via,
        backend: Arc::clone(cached.backend()),
        slow_via: settings.slow_via,
        clock,
        watch: BackendWatch::new(seen.look.watched, served),
        start,
        geometry,
        backend_lines,
        core: Mutex::new(directory),
        journal,
        guard,
        meter: cached.meter(),
        state: StoreState::default(),
    })?;
    Ok(start)
}

/// A cache device, which nobody else uses.
struct Cache {
    file: Arc<dyn File>,
    /// The file below a loop device, locked.
    below: Option<Arc<dyn File>>,
    superblock: Superblock,
    /// Both copies of the superblock are.
    sound: bool,
}

/// The present state of a backend.
struct BackendFacts {
    mark: BackendMark,
    look: Look,
    is_block_device: bool,
}

/// The part of a cache that can be trusted.
struct TrustedCache {
    start: Start,
    /// `None`: nothing is.
    content: Option<LoadedCache>,
}

struct LoadedCache {
    table: Table,
    directory: Directory,
}

impl LoadedCache {
    fn empty(
        geometry: Geometry,
        load: impl Fn(&Table) -> Option<Directory>,
    ) -> Result<LoadedCache, Error> {
        let table = empty(geometry)?;
        let directory = load(&table).ok_or(Error::Memory {
            source: io::ErrorKind::OutOfMemory.into(),
        })?;
        Ok(LoadedCache { table, directory })
    }
}

impl TrustedCache {
    fn nothing(start: Start) -> TrustedCache {
        TrustedCache {
            start,
            content: None,
        }
    }
}

impl BackendFacts {
    fn of(
        storage: &dyn Storage,
        backend: &dyn File,
        path: &Path,
        via: Via,
    ) -> Result<BackendFacts, Error> {
        let mark = mark_at(storage, backend, path).map_err(failed("look at", path))?;
        let look = content::look(backend, mark.len_bytes, via).map_err(failed("read", path))?;
        let stat = backend.stat().map_err(failed("look at", path))?;
        Ok(BackendFacts {
            mark,
            look,
            is_block_device: stat.kind != FileKind::File,
        })
    }
}

impl Cache {
    fn take(storage: &dyn Storage, path: &Path) -> Result<Cache, Error> {
        let (file, below) = (take(storage, path)?, take_below(storage, path)?);
        let found = journal::read_superblock(&*file).map_err(failed("read", path))?;
        let no_cache = || {
            let mut first = [0; FORM.len()];
            let _too_short = file.read_exact_at(&mut first, 0, Via::Cache);
            let path = path.to_owned();
            match newer_form(&first) {
                Some(form) => Error::NewerCache { path, form },
                None => Error::NoCache { path },
            }
        };
        let Superblocks {
            newest: superblock,
            sound,
        } = found.ok_or_else(no_cache)?;
        let len_bytes = file.stat().map_err(failed("look at", path))?.len;
        if len_bytes < superblock.geometry.end() {
            return Err(no_cache());
        }
        Ok(Cache {
            file,
            below,
            superblock,
            sound,
        })
    }

    /// Decides how much of the content to trust, in a cache that matches its guard: all of it or nothing.
    fn believe(
        &self,
        seen: &BackendFacts,
        backend: &dyn File,
        via: Via,
        clock: &dyn Clock,
        load: impl Fn(&Table) -> Option<Directory>,
    ) -> io::Result<TrustedCache> {
        // One copy of the superblock is damaged, and it may have been the newer one.
        if !self.sound {
            return Ok(TrustedCache::nothing(Start::Damaged));
        }
        let mut start = judge(&self.superblock, seen);
        if !start.is_believed() {
            return Ok(TrustedCache::nothing(start));
        }
        let Some(mut table) = journal::replay(&*self.file, &self.superblock)? else {
            return Ok(TrustedCache::nothing(Start::Damaged));
        };
        if start == Start::AfterCrash {
            start = judge_crash(&table.served(), seen, clock.wall_ns());
        }
        if !start.is_believed() {
            return Ok(TrustedCache::nothing(start));
        }
        let geometry = self.superblock.geometry;
        let is_proved = start == Start::Warm && is_proved_by_time(&self.superblock, seen);
        let compared = match is_proved {
            false => compare::all(backend, via, &mut table, geometry, || clock.now()),
            true => {
                let seed = uuid::Uuid::new_v4().as_u64_pair().0;
                sample(backend, via, &table, geometry, seed)
            }
        };
        match compared {
            Ok(true) => {}
            Ok(false) => return Ok(TrustedCache::nothing(Start::LinesDiffer)),
            // The backend could not be read, so nothing was compared.
            Err(_) => return Ok(TrustedCache::nothing(Start::Unproved)),
        }
        let Some(directory) = load(&table) else {
            return Ok(TrustedCache::nothing(Start::Damaged));
        };
        let content = Some(LoadedCache { table, directory });
        Ok(TrustedCache { start, content })
    }
}

/// The shortest time that a file system notes if it has no finer one.
const COARSE_NS: i64 = 1_000_000_000;

/// Whether a time of change that stayed the same since a clean stop shows that nobody wrote to the backend.
fn is_proved_by_time(known: &Superblock, seen: &BackendFacts) -> bool {
    let mark = &seen.mark;
    // A file system that was mounted from a disk that had lost power may have another number; a boot it has.
    let is_same_boot = known.boot != 0 && (known.boot, known.backend.dev) == (boot(), mark.dev);
    // A file without a birth may have its times from another machine. In a whole second there may be a second write.
    let is_trusted = known.backend.birth_ns.is_some() && mark.birth_ns.is_some();
    is_same_boot && is_trusted && mark.changed_ns % COARSE_NS != 0 && !seen.is_block_device
}

/// The superblock of the next session. A cache that starts empty gets a new tie, so that no guard matches its old
/// content.
fn next_session(superblock: &Superblock, mark: &BackendMark, believed: bool) -> Superblock {
    let tie = match believed {
        true => superblock.tie,
        false => *uuid::Uuid::new_v4().as_bytes(),
    };
    Superblock {
        clean: false,
        session: superblock.session + 1,
        backend: BackendMark {
            changed_ns: 0,
            ..*mark
        },
        tie,
        content: BackendContent::default(),
        boot: boot(),
        ..*superblock
    }
}

/// Whether the backend is the one that the cache knows. After a crash [`judge_crash`] decides.
fn judge(superblock: &Superblock, seen: &BackendFacts) -> Start {
    let (known, mark) = (superblock.backend, &seen.mark);
    if known.len_bytes != mark.len_bytes || known.inode != mark.inode {
        return Start::BackendChanged;
    }
    if let (Some(known), Some(seen)) = (known.birth_ns, mark.birth_ns)
        && known != seen
    {
        return Start::BackendChanged;
    }
    match superblock.clean {
        false if seen.is_block_device => Start::AfterCrash,
        // The file's number alone may be that of another file by now.
        false if known.birth_ns.is_none() || mark.birth_ns.is_none() => Start::Unproved,
        // A copy of the file system has files of the same number and birth. Some file systems get another number when
        // they are mounted: the cache is lost then.
        false if known.dev != mark.dev => Start::BackendChanged,
        false => Start::AfterCrash,
        // An older time also means other content: a snapshot from before the stop was put back. A power cut does not
        // revert the time: the stop synced it.
        true if mark.changed_ns != known.changed_ns => Start::BackendChanged,
        true => match superblock.content.fingerprint {
            None => Start::Unproved,
            known if known != seen.look.content.fingerprint => Start::ContentChanged,
            // A block device's times mean nothing.
            Some(_) if seen.is_block_device && !superblock.content.tells => Start::Unproved,
            Some(_) => Start::Warm,
        },
    }
}

/// The same after a crash, with the facts in the log.
fn judge_crash(known: &ServedBackend, seen: &BackendFacts, now_ns: i64) -> Start {
    let (look, is_block_device) = (&seen.look, seen.is_block_device);
    // An older time: a snapshot from before the last checkpoint was put back. A later one: this session did not write
    // then.
    let ours = known.changed_ns..=known.until_ns.max(known.changed_ns);
    if !is_block_device && !ours.contains(&seen.mark.changed_ns) {
        return Start::BackendChanged;
    }
    // A clock was ahead when this cache wrote, or is behind now: the range has no end.
    if !is_block_device && known.until_ns > now_ns.saturating_add(LEASE_MAX_NS) {
        return Start::Unproved;
    }
    match known.watched {
        Some(known) if known != look.fingerprint => Start::ContentChanged,
        Some(_) if is_block_device && !look.content.tells => Start::Unproved,
        None if is_block_device => Start::Unproved,
        _ => Start::AfterCrash,
    }
}

/// Whether random durable lines have on the backend the checksums of the table.
fn sample(
    backend: &dyn File,
    via: Via,
    table: &Table,
    geometry: Geometry,
    seed: u64,
) -> io::Result<bool> {
    let lines = |slot: u32| {
        let held = table.held(slot);
        let there = (0..geometry.lines_per_slot()).filter(move |line| held.lines >> line & 1 == 1);
        there.map(move |line| (held.cache_block, line, slot))
    };
    let all = (0..geometry.slots).flat_map(lines);
    let mut random = seed;
    let mut picked: Vec<(u64, u32, u32)> = Vec::with_capacity(SAMPLE);
    for (seen, line) in all.enumerate() {
        if picked.len() < SAMPLE {
            picked.push(line);
            continue;
        }
        // Every line has the same chance to be chosen in the end.
        let place = next_random(&mut random) % (seen as u64 + 1);
        if let Some(place) = picked.get_mut(place as usize) {
            *place = line;
        }
    }
    picked.sort_unstable();
    let mut bytes = vec![0; LINE as usize];
    for (block, line, slot) in picked {
        let at = block * u64::from(geometry.slot_bytes) + u64::from(line) * LINE;
        backend.read_exact_at(&mut bytes, at, via)?;
        if crc32c(&bytes) != table.sums(slot)[line as usize] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// SplitMix64.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(watched: Option<u8>) -> ServedBackend {
        ServedBackend {
            watched: watched.map(|n| [n; 16]),
            changed_ns: 100,
            until_ns: 200,
        }
    }

    /// After a crash a block device is believed if its superblocks are those recorded, and only if they tell; a file
    /// also by its time of change.
    #[test]
    fn after_a_crash_a_backend_is_believed_by_what_was_noted_of_it() {
        let look = |n, tells| Look {
            watched: Vec::new(),
            fingerprint: [n; 16],
            content: BackendContent {
                fingerprint: None,
                tells,
            },
        };
        let judge = |known: Option<u8>, found, tells, is_block_device, changed_ns| {
            let mark = BackendMark {
                len_bytes: 0,
                inode: 0,
                changed_ns,
                dev: 0,
                birth_ns: Some(1),
            };
            let look = look(found, tells);
            let seen = BackendFacts {
                mark,
                look,
                is_block_device,
            };
            judge_crash(&served(known), &seen, 150)
        };
        let device = |known, found, tells| judge(known, found, tells, true, 0);
        assert_eq!(device(Some(1), 1, true), Start::AfterCrash);
        assert_eq!(device(Some(1), 2, true), Start::ContentChanged);
        assert_eq!(device(Some(1), 1, false), Start::Unproved);
        assert_eq!(device(None, 1, true), Start::Unproved, "amid a write of it");
        let file = |known, found, changed_ns| judge(known, found, false, false, changed_ns);
        for changed_ns in [100, 200] {
            assert_eq!(file(Some(1), 1, changed_ns), Start::AfterCrash);
            assert_eq!(file(None, 1, changed_ns), Start::AfterCrash);
        }
        assert_eq!(file(Some(1), 2, 100), Start::ContentChanged);
        for changed_ns in [99, 201] {
            assert_eq!(file(Some(1), 1, changed_ns), Start::BackendChanged);
        }
    }

    fn file_seen(changed_ns: i64, dev: u64, birth_ns: Option<i64>) -> BackendFacts {
        BackendFacts {
            mark: BackendMark {
                len_bytes: 0,
                inode: 7,
                changed_ns,
                dev,
                birth_ns,
            },
            look: Look {
                watched: Vec::new(),
                fingerprint: [1; 16],
                content: BackendContent {
                    fingerprint: Some([5; 16]),
                    tells: false,
                },
            },
            is_block_device: false,
        }
    }

    /// Goal: a clock that was ahead leaves no time in which another program's write is taken for this cache's.
    #[test]
    fn after_a_crash_an_end_of_writing_that_is_far_ahead_proves_nothing() {
        let judge = |now_ns| judge_crash(&served(Some(1)), &file_seen(150, 0, Some(1)), now_ns);
        assert_eq!(judge(200 - LEASE_MAX_NS), Start::AfterCrash);
        assert_eq!(judge(199 - LEASE_MAX_NS), Start::Unproved);
    }

    /// Goal: a file that got the number of a removed one is not taken for it.
    #[test]
    fn a_file_is_known_by_its_birth_and_after_a_crash_never_without() {
        let judge = |clean, known: Option<i64>, dev, seen: Option<i64>| {
            let superblock = Superblock {
                geometry: Geometry::fit(4 << 20, 64 << 10).unwrap(),
                clean,
                sequence: 0,
                generation: 0,
                session: 1,
                backend: file_seen(9, 3, known).mark,
                tie: [0; 16],
                log_pages: 0,
                content: file_seen(9, 3, known).look.content,
                boot: 0,
            };
            super::judge(&superblock, &file_seen(9, dev, seen))
        };
        assert_eq!(judge(false, Some(1), 3, Some(1)), Start::AfterCrash);
        assert_eq!(judge(false, Some(1), 3, Some(2)), Start::BackendChanged);
        assert_eq!(judge(false, Some(1), 4, Some(1)), Start::BackendChanged);
        for (known, seen) in [(None, None), (Some(1), None), (None, Some(1))] {
            assert_eq!(judge(false, known, 3, seen), Start::Unproved);
            assert_eq!(judge(true, known, 3, seen), Start::Warm);
        }
        // The number of a file system may be another one after a boot.
        assert_eq!(judge(true, Some(1), 4, Some(1)), Start::Warm);
        assert_eq!(judge(true, Some(1), 3, Some(2)), Start::BackendChanged);
    }
}
