//! Creates a cache, and reopens one.
//!
//! A cache is believed if all of this holds:
//!
//! - both copies of its superblock and its log are sound, and the guard next to the backend names its tie and session;
//! - the backend is as long as it was and the same file or block device;
//! - a file's time of change is that of the clean stop, or after a crash one at which this cache may have written;
//! - the watched places (`content.rs`) are as they were left: the first and last line, superblocks of file systems;
//! - a block device holds only file systems whose superblock tells of every mount;
//! - up to [`SAMPLE`] durable lines, a new random choice each time, have on the backend the checksums of the table.
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

use longshore_io::{Clock, Dir, File, FileKind, OpenHow, Stat, Storage, Via, crc32c};
use parking_lot::Mutex;

use crate::Error;
use crate::cached::{CachedBackend, Settings, policy};
use crate::content::{self, Look};
use crate::directory::Directory;
use crate::format::{BackendContent, BackendMark, ServedBackend, Superblock};
use crate::geometry::{Geometry, LINE};
use crate::guard::{Guard, Word};
use crate::journal::{self, Journal, Superblocks, Table};
use crate::mark::mark;
use crate::start::Start;
use crate::store::{Store, StoreState};
use crate::watch::BackendWatch;

/// Durable lines that are compared with the backend at a start. If 1 % of the cached data was changed on the backend,
/// the comparison notices it in 98 of 100 cases.
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

/// Makes an empty cache. Creates a regular file of `len_bytes` if nothing exists. An existing block device or empty file
/// is used whole, and a larger `len_bytes` extends the file. With `force` other content is overwritten, and a file is cut
/// to a smaller `len_bytes`.
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
    let file = take(storage, path)?;
    let found = file.stat().map_err(failed("look at", path))?;
    let is_block_device = found.kind != FileKind::File;
    if !force && !holds_nothing(&*file, &found).map_err(failed("read", path))? {
        return Err(Error::NotEmpty {
            path: path.to_owned(),
        });
    }
    let len_bytes = match force {
        true => len_bytes,
        false => len_bytes.map(|len_bytes| len_bytes.max(found.len)),
    };
    if let Some(len_bytes) = len_bytes.filter(|_| !is_block_device) {
        file.set_len(len_bytes).map_err(failed("extend", path))?;
    }
    let len_bytes = len_bytes
        .unwrap_or(found.len)
        .max(if is_block_device { found.len } else { 0 });
    let geometry = Geometry::fit(len_bytes, slot_bytes)?;
    if !is_block_device {
        file.allocate(0..geometry.end())
            .map_err(failed("reserve space in", path))?;
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
    let file = take(storage, path)?;
    let len_bytes = file.stat().map_err(failed("look at", path))?.len;
    let cached = CachedBackend::new(file, len_bytes, settings, clock)?;
    let cache = cache.map(|cache| attach(storage, &cached, backend, cache, false));
    if !matches!(cache, Some(Ok(_))) {
        let path = backend.guard_path(storage)?;
        let guard = Guard::at(storage, &path).map_err(failed("open the directory of", &path))?;
        // Without a guard no cache is believed anyway.
        match storage.stat(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            _ => guard.void().map_err(failed("write", &path))?,
        }
    }
    Ok(OpenedBackend { cached, cache })
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
    if cached.is_attached() {
        return Err(Error::Attached);
    }
    let cache = Cache::take(storage, path)?;
    let guard_path = backend.guard_path(storage)?;
    let guard =
        Guard::at(storage, &guard_path).map_err(failed("open the directory of", &guard_path))?;
    let word = guard.read().map_err(failed("read", &guard_path))?;
    let slow = &**cached.backend();
    if !online {
        // The times recorded below must not be older ones after a power cut.
        slow.sync_with_times()
            .map_err(failed("sync", &backend.path))?;
    }
    let settings = cached.settings();
    let seen = BackendFacts::of(slow, &backend.path, settings.slow_via)?;
    let geometry = cache.superblock.geometry;
    let backend_lines = seen.mark.len_bytes / LINE;
    let load = |table: &Table| {
        Directory::load(table, geometry, backend_lines, policy(&settings, geometry))
    };
    let TrustedCache { start, content } = match cache.superblock.backend == BackendMark::default() {
        true => TrustedCache::nothing(Start::Fresh),
        false if !online && word.believes(&cache.superblock) => cache
            .believe(&seen, slow, settings.slow_via, load)
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
    let vouch = |word| guard.write(&word).map_err(failed("write", &guard_path));
    vouch(Word::Starting { tie, session })?;
    let file = cache.file;
    let journal = Journal::begin(Arc::clone(&file), next, table).map_err(failed("write", path))?;
    vouch(Word::Running { tie, session })?;
    cached.put(Store {
        file,
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
    fn of(backend: &dyn File, path: &Path, via: Via) -> Result<BackendFacts, Error> {
        let mark = mark(backend).map_err(failed("look at", path))?;
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
        let no_cache = || Error::NoCache {
            path: path.to_owned(),
        };
        let file = take(storage, path)?;
        let found = journal::read_superblock(&*file).map_err(failed("read", path))?;
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
        let table = journal::replay(&*self.file, &self.superblock)?;
        let loaded = table.and_then(|table| {
            let directory = load(&table)?;
            Some(LoadedCache { table, directory })
        });
        let Some(loaded) = loaded else {
            return Ok(TrustedCache::nothing(Start::Damaged));
        };
        if start == Start::AfterCrash {
            start = judge_crash(&loaded.table.served(), seen);
        }
        if !start.is_believed() {
            return Ok(TrustedCache::nothing(start));
        }
        let seed = uuid::Uuid::new_v4().as_u64_pair().0;
        let geometry = self.superblock.geometry;
        Ok(match sample(backend, via, &loaded.table, geometry, seed) {
            Ok(true) => TrustedCache {
                start,
                content: Some(loaded),
            },
            Ok(false) => TrustedCache::nothing(Start::LinesDiffer),
            // The backend could not be read, so nothing was compared.
            Err(_) => TrustedCache::nothing(Start::Unproved),
        })
    }
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
        ..*superblock
    }
}

/// Whether the backend is the one that the cache knows. After a crash [`judge_crash`] decides.
fn judge(superblock: &Superblock, seen: &BackendFacts) -> Start {
    let (known, mark) = (superblock.backend, &seen.mark);
    if known.len_bytes != mark.len_bytes || known.inode != mark.inode {
        return Start::BackendChanged;
    }
    match superblock.clean {
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
fn judge_crash(known: &ServedBackend, seen: &BackendFacts) -> Start {
    let (look, is_block_device) = (&seen.look, seen.is_block_device);
    // An older time: a snapshot from before the last checkpoint was put back. A later one: this session did not write
    // then.
    let ours = known.changed_ns..=known.until_ns.max(known.changed_ns);
    if !is_block_device && !ours.contains(&seen.mark.changed_ns) {
        return Start::BackendChanged;
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
            };
            let look = look(found, tells);
            let seen = BackendFacts {
                mark,
                look,
                is_block_device,
            };
            judge_crash(&served(known), &seen)
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
}
