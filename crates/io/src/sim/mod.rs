//! A disk in memory that fails on purpose: the twin of [`crate::Host`] for power cuts and faults.
//!
//! The shipped code runs on it unchanged, with all its threads. Each call that changes something or
//! makes it durable is a *step*. A test counts the steps of one run, then runs once per step with
//! the power cut there, and looks at the [images](SimDisk::images) the cut can leave.
//!
//! What a cut leaves
//! - Bytes and lengths: all that [`File::sync`](crate::File::sync) or [`Dir::sync_all`] confirmed. Each later write or
//!   change of length of each file is by itself there, lost, or (a write) torn: some sectors of 512
//!   bytes are there and some are not. Nothing is ordered, neither within a file nor between files.
//! - Names and attributes: per file system a prefix, in order, of all changes, as on a journalled
//!   file system, at least as long as [`Dir::sync`] and [`Dir::sync_all`] confirmed. Syncing a
//!   file does not make its name durable.
//! - Bytes and names know nothing of each other: a rename may survive though the bytes do not.
//! - The step in which the power goes may have had its effect or not; afterwards every call fails
//!   with `EIO`.
//!
//! Faults besides ([`Fault`]): any error at any call, once, sometimes or from a step on; bad sectors;
//! short writes; slow calls; a full file system with partial last writes ([`SimDisk::set_capacity`]);
//! trees removed by others. A failed sync leaves each unsynced change durable or lost for ever, and
//! the next sync succeeds, as Linux does.
//!
//! Not simulated, and why that is fair
//! - Bits that rot or lies in synced data: whoever reads must find those by checksums, and tests flip
//!   them in the files themselves.
//! - A journal that loses its order, disks that confirm a sync and forget: no program survives those,
//!   `docs/format.md` lists them as assumptions about storage.
//! - Sectors torn within 512 bytes: no disk has smaller ones.
//! - Permissions, FIFOs, sockets, quotas: they lead to errors that `Fault` can give, or are refused by
//!   [`crate::Host`], whose tests use real ones.
//!
//! One seed is one run as long as one thread calls; with several, their order is the scheduler's.
//! Space and memory of removed files come back only with the disk (except for `set_capacity`).

mod content;
mod dir;
mod fault;
mod file;
mod images;
mod random;
mod state;
mod tree;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::storage::{Dir, Stat, Storage};
use dir::SimDir;
use fault::Call;
pub use fault::{Fault, Op};
use state::{Power, State, errno};
use tree::{Body, Ino, Node, ROOT};

/// Bytes of a disk that are there or not there together.
const SECTOR: u64 = 512;

/// A simulated disk with one or more file systems. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk: a root directory, no faults, as much space as anybody wants.
    pub fn new(seed: u64) -> Self {
        Self::from_state(State::new(seed))
    }

    fn from_state(state: State) -> Self {
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Cuts the power in the step that follows `steps_before` completed ones: with 0 none is ever
    /// completed, with the [`Self::steps`] of a whole run none is disturbed.
    pub fn cut_power_at(&self, steps_before: u64) -> Self {
        self.state.lock().cut_at = Some(steps_before);
        self.clone()
    }

    /// Lets calls go wrong from now on. Several faults work side by side.
    pub fn inject(&self, fault: Fault) -> Self {
        self.state.lock().faults.push(fault);
        self.clone()
    }

    /// Ends all faults, also those that wait for their step. A power cut stays.
    pub fn heal(&self) -> Self {
        let mut state = self.state.lock();
        state.faults.clear();
        state.removals.clear();
        state.capacity_bytes.clear();
        drop(state);
        self.clone()
    }

    /// Somebody else removes `path` and everything below it when `steps_before` steps are done.
    pub fn remove_tree_at(&self, steps_before: u64, path: impl Into<PathBuf>) -> Self {
        self.state.lock().removals.push((steps_before, path.into()));
        self.clone()
    }

    /// The file system that holds `path` takes no more than `bytes`, in pages of 4096. A write that
    /// meets the end goes in part, the next one fails with `ENOSPC`.
    pub fn set_capacity(&self, path: impl AsRef<Path>, bytes: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let (ino, _) = state.resolve(path.as_ref())?;
        let dev = state.node(ino)?.dev;
        state.capacity_bytes.insert(dev, bytes);
        Ok(())
    }

    /// What [`File::is_cached`](crate::File::is_cached) says of files at or below `path`; `false` where nothing is set.
    pub fn set_cached(&self, path: impl Into<PathBuf>, cached: bool) -> Self {
        self.state.lock().cached.push((path.into(), cached));
        self.clone()
    }

    /// Whether [`File::next_data`](crate::File::next_data) finds holes (it does at first) or takes everything for data.
    pub fn set_tells_holes(&self, tells: bool) -> Self {
        self.state.lock().tells_holes = tells;
        self.clone()
    }

    /// Whether only files that are open for writing can be locked, as on NFS (at first: all can).
    pub fn set_locks_need_writing(&self, need: bool) -> Self {
        self.state.lock().locks_need_writing = need;
        self.clone()
    }

    /// What [`Dir::keeps_locks`](crate::Dir::keeps_locks) says (at first: they are kept).
    pub fn set_keeps_locks(&self, keeps: bool) -> Self {
        self.state.lock().locks_are_kept = keeps;
        self.clone()
    }

    /// Makes `path` (with missing parents) a file system of its own, with a journal of its own.
    /// Everything on the disk becomes durable.
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

    /// Puts a file there, with missing parents, as if it had always been: no step is counted, no
    /// fault hits, everything on the disk becomes durable.
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

    /// All bytes of a file as everybody sees them: no fault hits, and a cut does not matter.
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

    /// Every name on the disk, directories too, sorted; a symbolic link is not followed.
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

    /// Everything everybody sees becomes durable. No step is counted.
    pub fn settle(&self) {
        self.state.lock().settle();
    }

    /// How many steps were completed.
    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// The completed steps in order, with the path each was called by.
    pub fn history(&self) -> Vec<(Op, PathBuf)> {
        self.state.lock().history.clone()
    }

    /// Whether the power was cut.
    pub fn power_is_off(&self) -> bool {
        self.state.lock().power_is_off
    }

    /// What a power cut now, or the one there was, can leave on the disk: up to `count_max` (at least
    /// 2) different disks, each with power, without faults, everything on it durable. The first has
    /// nothing that was not synced, the second all of it, the others are by chance. There is only
    /// one when nothing is in doubt, and fewer than asked when there are not so many.
    pub fn images(&self, count_max: usize) -> Vec<SimDisk> {
        images::images(&self.state.lock(), count_max)
            .into_iter()
            .map(Self::from_state)
            .collect()
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

    /// Carries out one call: faults, counting, the cut, and then `body` with the power's state and
    /// the most bytes it may transfer.
    fn call<T>(
        &self,
        op: Op,
        path: &Path,
        bytes: Option<Range<u64>>,
        body: impl FnOnce(&mut State, Power, u64) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.state.lock();
        if state.power_is_off {
            return Err(errno(libc::EIO));
        }
        let step = state.steps;
        let verdict = state.judge(&Call {
            op,
            path,
            bytes,
            step,
        });
        if !verdict.delay.is_zero() || !verdict.meanwhile.is_empty() {
            drop(state);
            verdict.meanwhile.iter().for_each(fault::Deed::run);
            std::thread::sleep(verdict.delay);
            state = self.state.lock();
        }
        let power = state.begin(op, path)?;
        let done = match verdict.errno {
            Some(number) => Err(errno(number)),
            None => body(&mut state, power, verdict.len_max.unwrap_or(u64::MAX)),
        };
        // What the call opened may be dropped now, and that locks the disk.
        drop(state);
        match power {
            Power::On => done,
            Power::Going => Err(errno(libc::EIO)),
        }
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
        self.call(Op::Open, path, None, |state, _, _| {
            let (ino, path) = state.resolve(path)?;
            match state.node(ino)?.is_dir() {
                true => Ok(Arc::new(SimDir::new(self.clone(), ino, path)) as Arc<dyn Dir>),
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
            let parent = self.call(Op::Open, parent, None, |state, _, _| {
                let (ino, path) = state.resolve(parent)?;
                Ok(SimDir::new(self.clone(), ino, path))
            })?;
            match parent.make_dir(Path::new(name), 0o755) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.and_then(|()| parent.sync(Path::new("")))?,
            }
        }
        self.dir(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.call(Op::Stat, path, None, |state, _, _| {
            let (ino, _) = state.resolve(path)?;
            state.stat(ino)
        })
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.call(Op::Stat, path, None, |state, _, _| {
            Ok(state.resolve(path)?.1)
        })
    }
}

impl State {
    fn stat(&self, ino: Ino) -> io::Result<Stat> {
        let node = self.node(ino)?;
        let Node {
            mode,
            uid,
            gid,
            mtime_ns,
            ctime_ns,
            dev,
            links,
            ..
        } = *node;
        let len = match &node.body {
            Body::File => self.files.get(&ino).map_or(0, |data| data.live.len()),
            Body::Dir(_) => content::PAGE,
            Body::Symlink(target) => target.as_os_str().len() as u64,
        };
        Ok(Stat {
            kind: node.kind(),
            len,
            mode,
            uid,
            gid,
            mtime_ns,
            ctime_ns,
            dev,
            ino,
            links,
        })
    }

    /// The bytes of a file changed just now.
    fn touch(&mut self, ino: Ino) {
        let now_ns = self.tick();
        if let Some(node) = self.live.node_mut(ino) {
            (node.mtime_ns, node.ctime_ns) = (now_ns, now_ns);
        }
    }
}
