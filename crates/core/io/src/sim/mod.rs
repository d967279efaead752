//! A disk in memory that fails on purpose: the twin of [`crate::Host`] for power cuts and faults.
//!
//! The shipped code runs on it unchanged, with all its threads. Each call that changes something or makes it durable
//! is a *step*. A test counts the steps of one run, then repeats the run once per step with the power cut there, and
//! checks the [images](SimDisk::images) that the cut can leave.
//!
//! Invariants: the state that a cut leaves
//! - Bytes and lengths: all that [`FileWrite::sync`](crate::File::sync) or [`DirSync::sync_all`] confirmed. Each later write or
//!   change of length of each file is by itself there, lost, or (a write) torn: some sectors of 512
//!   bytes are there and some are not. Nothing is ordered, neither within a file nor between files.
//! - Names and attributes: all that [`DirSync::sync`] of their directory and [`DirSync::sync_all`] confirmed. Each later change
//!   (a rename is one) is by itself there or lost; only changes of one name keep their order. A sync makes durable
//!   neither what was done before in other directories, nor the name of the directory itself. Syncing a file does not
//!   make its name durable.
//! - Bytes and names know nothing of each other: a rename may survive though the bytes do not.
//! - The step in which the power goes may have had its effect or not; afterwards every call fails
//!   with `EIO`.
//!
//! Faults besides ([`Fault`]): any error at any call, once, sometimes or from a step on; bad sectors;
//! short writes; slow calls; syncs that somebody forgot; a full file system with partial last writes
//! ([`SimDisk::set_capacity`]);
//! trees removed by others. A failed sync leaves each unsynced change durable or lost for ever, and
//! the next sync succeeds, as Linux does. Lost changes are read until the cache is dropped.
//!
//! Not simulated, and why that is fair
//! - Bits that rot or lies in synced data: whoever reads must find those by checksums, and tests flip
//!   them in the files themselves.
//! - Renames of which one half survives, disks that confirm a sync and forget: no program survives those,
//!   `docs/format.md` lists them as assumptions about storage.
//! - Tears within a sector of 512 bytes: no disk has smaller sectors.
//! - Permissions, FIFOs, sockets, quotas: they lead to errors that `Fault` can produce, or are refused by
//!   [`crate::Host`], whose tests use real ones.
//!
//! Leaves to others: which call fails (`fault.rs`), its way (`shared.rs`), the names (`tree.rs`), and the state of the disk
//! (`state.rs`).
//!
//! One seed repeats the same run if only one thread makes calls; with several, the scheduler decides their order.
//! Space and memory of removed files are freed only with the disk (except for `set_capacity`).

mod clock;
mod content;
mod dir;
mod fault;
mod file;
mod images;
mod random;
mod shared;
mod state;
mod tree;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::storage::{Dir, Stat, Storage};
pub use clock::SimClock;
use dir::SimDir;
pub use fault::{Fault, Op};
use shared::SharedState;
use state::{State, errno};
use tree::{Body, Ino, ROOT};

/// A simulated disk with one or more file systems. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: SharedState,
}

impl SimDisk {
    /// An empty disk: a root directory, no faults, unlimited space.
    pub fn new(seed: u64) -> Self {
        Self::from_state(State::new(seed))
    }

    fn from_state(state: State) -> Self {
        Self {
            state: SharedState::new(state),
        }
    }

    /// Cuts the power in the step after `steps_before` completed ones: with 0, no step completes; with the
    /// [`Self::steps`] of a whole run, none is disturbed.
    pub fn cut_power_at(&self, steps_before: u64) -> Self {
        self.state.lock().cut_at = Some(steps_before);
        self.clone()
    }

    /// Adds a fault from now on. Several faults work together.
    pub fn inject(&self, fault: Fault) -> Self {
        self.state.lock().faults.push(fault);
        self.clone()
    }

    /// Removes all faults, including those that wait for their step. A power cut stays.
    pub fn heal(&self) -> Self {
        let mut state = self.state.lock();
        state.faults.clear();
        state.removals.clear();
        state.capacity_bytes.clear();
        drop(state);
        self.clone()
    }

    /// Another process removes `path` and everything below it once `steps_before` steps are done.
    pub fn remove_tree_at(&self, steps_before: u64, path: impl Into<PathBuf>) -> Self {
        self.state.lock().removals.push((steps_before, path.into()));
        self.clone()
    }

    /// Limits the file system that holds `path` to `bytes`, in pages of 4096. A write that reaches the limit is short;
    /// the next one fails with `ENOSPC`.
    pub fn set_capacity(&self, path: impl AsRef<Path>, bytes: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let (ino, _) = state.resolve(path.as_ref())?;
        let dev = state.node(ino)?.dev;
        state.capacity_bytes.insert(dev, bytes);
        Ok(())
    }

    /// Sets what [`FileRead::is_cached`](crate::File::is_cached) returns for files at or below `path`; `false` by default.
    pub fn set_cached(&self, path: impl Into<PathBuf>, cached: bool) -> Self {
        self.state.lock().cached.push((path.into(), cached));
        self.clone()
    }

    /// Sets whether [`FileRead::next_data`](crate::File::next_data) finds holes (the default) or reports everything as
    /// data.
    pub fn set_tells_holes(&self, tells: bool) -> Self {
        self.state.lock().tells_holes = tells;
        self.clone()
    }

    /// Sets whether only files open for writing can be locked, as on NFS (by default, all can).
    pub fn set_locks_need_writing(&self, need: bool) -> Self {
        self.state.lock().locks_need_writing = need;
        self.clone()
    }

    /// Sets what [`DirRead::keeps_locks`](crate::Dir::keeps_locks) returns (by default, `true`).
    pub fn set_keeps_locks(&self, keeps: bool) -> Self {
        self.state.lock().locks_are_kept = keeps;
        self.clone()
    }

    /// Makes `path` (with missing parents) a separate file system with its own journal. Everything on the disk becomes
    /// durable.
    pub fn mount(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(errno(libc::EINVAL));
        };
        let dir = self.make_dirs(parent)?;
        let mut state = self.state.lock();
        if state.child(dir, name)?.is_some() {
            return Err(errno(libc::EEXIST));
        }
        let ino = state.add(dir, name, Body::Dir(Default::default()), 0o755)?;
        state.settle();
        state.dev_last += 1;
        let State {
            live,
            durable,
            dev_last,
            ..
        } = &mut *state;
        for tree in [live, durable] {
            if let Some(node) = tree.node_mut(ino) {
                node.dev = *dev_last;
            }
        }
        Ok(())
    }

    /// Puts a file there, with missing parents, as if it had always existed: no step is counted, no fault hits, and
    /// everything on the disk becomes durable.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
        let path = path.as_ref();
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(errno(libc::EINVAL));
        };
        let dir = self.make_dirs(parent)?;
        let mut state = self.state.lock();
        let ino = match state.child(dir, name)? {
            Some(ino) => ino,
            None => state.add(dir, name, Body::File, 0o644)?,
        };
        let data = state.data(ino)?;
        data.live.set_len(0);
        data.live.write(bytes, 0);
        data.durable = data.live.clone();
        data.pending.clear();
        state.touch(ino);
        state.settle();
        Ok(())
    }

    /// All bytes of a file as running programs see them, ignoring faults and a power cut.
    pub fn read_file(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut state = self.state.lock();
        let (ino, _) = state.resolve(path.as_ref())?;
        if state.node(ino)?.is_dir() {
            return Err(errno(libc::EISDIR));
        }
        let data = state.data(ino)?;
        let mut bytes = vec![0; data.live.len() as usize];
        data.live.read(&mut bytes, 0);
        Ok(bytes)
    }

    /// Every name on the disk, directories included, sorted; symbolic links are not followed.
    pub fn paths(&self) -> Vec<PathBuf> {
        let state = self.state.lock();
        let (mut paths, mut todo) = (Vec::new(), vec![(PathBuf::from("/"), ROOT)]);
        while let Some((path, dir)) = todo.pop() {
            for (name, ino) in state.live.names(dir).into_iter().flatten() {
                paths.push(path.join(name));
                todo.push((path.join(name), *ino));
            }
        }
        paths.sort();
        paths
    }

    /// Makes everything that is visible durable. No step is counted.
    pub fn settle(&self) {
        self.state.lock().settle();
    }

    /// The number of completed steps.
    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// The completed steps in order, each with its path.
    pub fn history(&self) -> Vec<(Op, PathBuf)> {
        self.state.lock().history.clone()
    }

    /// For each sync of a directory since the step `from`: where it was, and the fault that forgets it in the same run.
    /// Two runs are the same where one thread calls; of several, the syncs of each directory are counted.
    pub fn forgetting(&self, from: u64) -> Vec<(PathBuf, Fault)> {
        let state = self.state.lock();
        let history = state.history.iter().skip(from as usize);
        let paths = history.filter(|(op, _)| *op == Op::SyncDir);
        let paths: Vec<&PathBuf> = paths.map(|(_, path)| path).collect();
        let forget = |(i, path): (usize, &&PathBuf)| {
            let nth = paths[..=i].iter().filter(|p| p.starts_with(path)).count();
            let fault = Fault::forgotten_sync().on(Op::SyncDir).below(*path);
            ((*path).clone(), fault.nth(nth as u64).times(1))
        };
        paths.iter().enumerate().map(forget).collect()
    }

    /// Whether the power was cut.
    pub fn power_is_off(&self) -> bool {
        self.state.lock().power_is_off
    }

    /// The disks that a power cut now, or the cut that happened, can leave: up to `count_max` (at least 2) different
    /// ones, each with power, without faults, with everything durable. The first lacks everything that was not synced,
    /// the second has all of it, the others are random. There is only one if everything was durable, and there are
    /// fewer than asked if fewer exist.
    pub fn images(&self, count_max: usize) -> Vec<SimDisk> {
        images::images(&self.state.lock(), count_max)
            .into_iter()
            .map(Self::from_state)
            .collect()
    }

    /// Runs `act` on a disk that `prepare` makes of a seed, once per step with the power cut there, and passes up to
    /// `count_max` images of each cut to `judge`, with whether `act` reported success, and words for where it was. Returns
    /// the number of steps.
    ///
    /// # Panics
    /// If `act` fails without a cut.
    pub fn cut_everywhere<E: std::fmt::Debug>(
        count_max: usize,
        prepare: impl Fn(u64) -> SimDisk,
        act: impl Fn(&SimDisk) -> Result<(), E>,
        judge: impl Fn(&SimDisk, bool, &str),
    ) -> u64 {
        let whole = prepare(7);
        let before = whole.steps();
        act(&whole).expect("without a cut it succeeds");
        let steps = whole.steps() - before;
        for step in 0..=steps {
            let disk = prepare(step);
            let at = disk.steps() + step;
            let reported = act(&disk.cut_power_at(at)).is_ok();
            for (i, image) in disk.images(count_max).iter().enumerate() {
                let at = format!("cut at step {step} of {steps}, image {i}, reported {reported}");
                judge(image, reported, &at);
            }
        }
        steps
    }

    fn make_dirs(&self, path: &Path) -> io::Result<Ino> {
        let mut state = self.state.lock();
        let mut at = ROOT;
        for part in path.components().skip(1) {
            at = match state.child(at, part.as_os_str())? {
                Some(ino) => ino,
                None => state.add(at, part.as_os_str(), Body::Dir(Default::default()), 0o755)?,
            };
            if !state.node(at)?.is_dir() {
                return Err(errno(libc::ENOTDIR));
            }
        }
        Ok(at)
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("SimDisk")
            .field("seed", &state.seed)
            .field("steps", &state.steps)
            .field("power_is_off", &state.power_is_off)
            .finish()
    }
}

impl Storage for SimDisk {
    fn dir(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        self.state.call(Op::Open, path, None, |state, _, _| {
            let (ino, path) = state.resolve(path)?;
            match state.node(ino)?.is_dir() {
                true => Ok(Arc::new(SimDir::new(self.state.clone(), ino, path)) as Arc<dyn Dir>),
                false => Err(errno(libc::ENOTDIR)),
            }
        })
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<Arc<dyn Dir>> {
        let mut missing = Vec::new();
        let mut at = path;
        while let Err(e) = self.stat(at) {
            match (at.parent(), at.file_name()) {
                (Some(parent), Some(name)) if e.kind() == io::ErrorKind::NotFound => {
                    missing.push((parent, name));
                    at = parent;
                }
                _ => return Err(e),
            }
        }
        for (parent, name) in missing.into_iter().rev() {
            let parent = self.state.call(Op::Open, parent, None, |state, _, _| {
                let (ino, path) = state.resolve(parent)?;
                Ok(SimDir::new(self.state.clone(), ino, path))
            })?;
            match parent.make_dir(Path::new(name), 0o755) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        let made = self.dir(path)?;
        let mut below = self.stat(path)?;
        for parent in self.canonical(path)?.ancestors().skip(1) {
            let stat = self.stat(parent)?;
            if stat.dev != below.dev {
                break;
            }
            below = stat;
            self.dir(parent)?.sync(Path::new(""))?;
        }
        Ok(made)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.state.call(Op::Stat, path, None, |state, _, _| {
            let (ino, _) = state.resolve(path)?;
            state.stat(ino)
        })
    }

    /// Files are numbered in the order of their births, and no number is given twice: it stands for the time.
    fn birth_ns(&self, path: &Path) -> io::Result<Option<i64>> {
        self.state.call(Op::Stat, path, None, |state, _, _| {
            let (ino, _) = state.resolve(path)?;
            Ok(i64::try_from(state.stat(ino)?.ino).ok())
        })
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.state.call(Op::Stat, path, None, |state, _, _| {
            Ok(state.resolve(path)?.1)
        })
    }
}
