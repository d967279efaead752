//! The state of a simulated disk: what is visible now, what is durable, and the changes between them.
//!
//! Invariants
//! - Only a sync makes a change durable.
//! - A power cut keeps what is durable and, as a file system may, any part of the later changes.
//! - Times come from a clock that ticks with every change, so two runs of a test are equal.
//!
//! Leaves to others: the calls on files and directories (`dir.rs`, `file.rs`).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::content::{Change, Content, PIECE};
use super::fault::{Call, Fault, FaultEffect, Op};
use super::random::Random;
use super::tree::{Body, Ino, Node, ROOT, Tree, TreeChange, closed};
use crate::storage::{Attributes, Stat};

/// The tick of the simulated clock: every change of a file gets a different time.
const TICK_NS: i64 = 1_000;

/// The simulated time of the first change: 2020-01-01.
const START_NS: i64 = 1_577_836_800_000_000_000;

/// The root's file system; each mount has the next number.
const ROOT_DEV: u64 = 1;

/// How many symbolic links a path can lead through, as on Linux.
const LINKS_MAX: usize = 40;

#[derive(Debug)]
pub(super) struct State {
    pub(super) seed: u64,
    pub(super) random: Random,
    /// The names as running programs see them.
    pub(super) live: Tree,
    /// The names that are durable.
    pub(super) durable: Tree,
    /// Per file system, the changes that turn `durable` into `live`.
    pub(super) journals: BTreeMap<u64, Vec<TreeChange>>,
    pub(super) files: BTreeMap<Ino, Data>,
    pub(super) ino_last: Ino,
    pub(super) dev_last: u64,
    pub(super) now_ns: i64,
    pub(super) steps: u64,
    pub(super) history: Vec<(Op, PathBuf)>,
    pub(super) cut_at: Option<u64>,
    pub(super) power_is_off: bool,
    pub(super) faults: Vec<Fault>,
    /// Trees that another process removes at a step.
    pub(super) removals: Vec<(u64, PathBuf)>,
    /// The most bytes that a file system can hold.
    pub(super) capacity_bytes: BTreeMap<u64, u64>,
    /// Later rules override earlier ones.
    pub(super) cached: Vec<(PathBuf, bool)>,
    pub(super) tells_holes: bool,
    pub(super) locks_need_writing: bool,
    pub(super) locks_are_kept: bool,
    /// The holder of each file's lock.
    pub(super) locks: BTreeMap<Ino, u64>,
    pub(super) handle_last: u64,
}

/// The bytes of one file.
#[derive(Debug, Clone, Default)]
pub(super) struct Data {
    pub(super) live: Content,
    pub(super) durable: Content,
    /// The changes that turn `durable` into `live`, in order.
    pub(super) pending: Vec<Change>,
}

impl Data {
    pub(super) fn change(&mut self, change: Change) {
        self.live.apply(&change);
        self.pending.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            self.durable.apply(&change);
        }
    }

    /// From now on, changes that a failed sync lost are not seen either.
    pub(super) fn drop_cached(&mut self) {
        self.live = self.durable.clone();
        for change in &self.pending {
            self.live.apply(change);
        }
    }
}

/// Applies the entries of `journal` that are `kept`. A node that is not yet durable is made without a name, where an
/// entry needs it.
pub(super) fn replay(journal: &[TreeChange], kept: &[bool], names: &mut Tree) {
    let added = journal.iter().filter_map(|entry| match entry {
        TreeChange::Add { ino, node, .. } => Some((*ino, node)),
        _ => None,
    });
    for (ino, node) in added {
        names.know(ino, node);
    }
    for (entry, _) in journal.iter().zip(kept).filter(|(_, kept)| **kept) {
        names.apply(entry);
    }
}

pub(super) fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// Whether a call that passed all faults is performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Power {
    On,
    /// The power goes during this call: the call may have its effect, but its caller never learns.
    Going,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            random: Random::new(seed),
            live: Tree::new(ROOT_DEV),
            durable: Tree::new(ROOT_DEV),
            journals: BTreeMap::new(),
            files: BTreeMap::new(),
            ino_last: ROOT,
            dev_last: ROOT_DEV,
            now_ns: START_NS,
            steps: 0,
            history: Vec::new(),
            cut_at: None,
            power_is_off: false,
            faults: Vec::new(),
            removals: Vec::new(),
            capacity_bytes: BTreeMap::new(),
            cached: Vec::new(),
            tells_holes: true,
            locks_need_writing: false,
            locks_are_kept: true,
            locks: BTreeMap::new(),
            handle_last: 0,
        }
    }

    pub(super) fn judge(&mut self, call: &Call<'_>) -> FaultEffect {
        let mut verdict = FaultEffect::default();
        for fault in &mut self.faults {
            fault.judge(call, &mut self.random, &mut verdict);
        }
        verdict
    }

    /// Counts a call and returns whether it goes on.
    pub(super) fn begin(&mut self, op: Op, path: &Path) -> io::Result<Power> {
        if self.power_is_off {
            return Err(errno(libc::EIO));
        }
        if !op.is_step() {
            return Ok(Power::On);
        }
        let due = |(step, _): &(u64, PathBuf)| *step <= self.steps;
        for (_, tree) in self
            .removals
            .extract_if(.., |removal| due(removal))
            .collect::<Vec<_>>()
        {
            self.remove_tree(&tree);
        }
        if self.cut_at.is_some_and(|step| step <= self.steps) {
            self.power_is_off = true;
            return Ok(Power::Going);
        }
        self.steps += 1;
        self.history.push((op, path.to_owned()));
        Ok(Power::On)
    }

    pub(super) fn tick(&mut self) -> i64 {
        self.now_ns += TICK_NS;
        self.now_ns
    }

    /// Records that the bytes of a file changed now.
    pub(super) fn touch(&mut self, ino: Ino) {
        let now_ns = self.tick();
        if let Some(node) = self.live.node_mut(ino) {
            (node.mtime_ns, node.ctime_ns) = (now_ns, now_ns);
        }
    }

    /// Changes attributes.
    pub(super) fn set(&mut self, ino: Ino, attributes: Attributes) -> io::Result<()> {
        let (dev, now_ns) = (self.node(ino)?.dev, self.tick());
        let change = TreeChange::Set {
            ino,
            attributes,
            now_ns,
        };
        self.journal(dev, change);
        Ok(())
    }

    /// Gives a node away; `false` if it is not root's, as whom all calls are made.
    pub(super) fn give(&mut self, ino: Ino, owner: (u32, u32)) -> io::Result<bool> {
        let is_ours = self.node(ino)?.uid == 0;
        if is_ours {
            let attributes = Attributes {
                owner: Some(owner),
                ..Attributes::default()
            };
            self.set(ino, attributes)?;
        }
        Ok(is_ours)
    }

    /// Makes a change visible; it becomes durable later.
    pub(super) fn journal(&mut self, dev: u64, entry: TreeChange) {
        self.live.apply(&entry);
        self.journals.entry(dev).or_default().push(entry);
    }

    pub(super) fn add(&mut self, dir: Ino, name: &OsStr, body: Body, mode: u32) -> io::Result<Ino> {
        let dev = self.node(dir)?.dev;
        self.ino_last += 1;
        let ino = self.ino_last;
        if matches!(body, Body::File) {
            self.files.insert(ino, Data::default());
        }
        let node = Node::new(body, mode, dev, self.tick());
        self.journal(
            dev,
            TreeChange::Add {
                dir,
                name: name.to_owned(),
                ino,
                node,
            },
        );
        Ok(ino)
    }

    /// Makes the names in `dir` durable, with its attributes and those of what it holds. The other name of a rename
    /// that moved them becomes durable with them; the name of `dir` itself does not.
    pub(super) fn sync_dir(&mut self, dir: Ino) {
        let Some(dev) = self.live.node(dir).map(|node| node.dev) else {
            return;
        };
        let Some(journal) = self.journals.get_mut(&dev) else {
            return;
        };
        let live = &self.live;
        let durable = closed(journal, |_, entry| match entry {
            TreeChange::Set { ino, .. } => {
                *ino == dir || live.node(*ino).is_some_and(|node| node.parent == dir)
            }
            entry => entry.slots().any(|(at, _)| at == dir),
        });
        replay(journal, &durable, &mut self.durable);
        let mut durable = durable.into_iter();
        journal.retain(|_| durable.next() == Some(false));
    }

    pub(super) fn sync_all(&mut self, dev: u64) {
        for entry in self.journals.remove(&dev).unwrap_or_default() {
            self.durable.apply(&entry);
        }
        for (ino, data) in &mut self.files {
            if self.live.node(*ino).is_some_and(|node| node.dev == dev) {
                data.sync();
            }
        }
        for ino in self.files.keys().copied().collect::<Vec<_>>() {
            if self.live.node(ino).is_some_and(|node| node.dev == dev) {
                self.keep_times(ino);
            }
        }
    }

    /// Makes the times of a file durable: now, or together with its name.
    pub(super) fn keep_times(&mut self, ino: Ino) {
        let Some(times) = self
            .live
            .node(ino)
            .map(|node| (node.mtime_ns, node.ctime_ns))
        else {
            return;
        };
        if let Some(node) = self.durable.node_mut(ino) {
            (node.mtime_ns, node.ctime_ns) = times;
        }
        for entry in self.journals.values_mut().flatten() {
            if let TreeChange::Add {
                ino: added, node, ..
            } = entry
                && *added == ino
            {
                (node.mtime_ns, node.ctime_ns) = times;
            }
        }
    }

    /// Applies a failed sync: each change is now durable or lost for ever.
    pub(super) fn sync_failed(&mut self, ino: Ino) {
        let Some(data) = self.files.get_mut(&ino) else {
            return;
        };
        for change in data.pending.drain(..) {
            if self.random.below(2) == 0 {
                data.durable.apply(&change);
            }
        }
    }

    /// Makes everything that is visible durable.
    pub(super) fn settle(&mut self) {
        for dev in ROOT_DEV..=self.dev_last {
            self.sync_all(dev);
        }
    }

    pub(super) fn node(&self, ino: Ino) -> io::Result<&Node> {
        self.live.node(ino).ok_or_else(|| errno(libc::ENOENT))
    }

    pub(super) fn data(&mut self, ino: Ino) -> io::Result<&mut Data> {
        self.files.get_mut(&ino).ok_or_else(|| errno(libc::ENOENT))
    }

    pub(super) fn stat(&self, ino: Ino) -> io::Result<Stat> {
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
            Body::Dir(_) => PIECE,
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

    /// The directory that holds the last component of `name`, a normal name below `dir`.
    pub(super) fn parent(&self, dir: Ino, name: &Path) -> io::Result<Ino> {
        let mut at = dir;
        for part in name.parent().into_iter().flatten() {
            at = self.child(at, part)?.ok_or_else(|| errno(libc::ENOENT))?;
            match self.node(at)?.body {
                Body::Dir(_) => {}
                Body::Symlink(_) => return Err(errno(libc::ELOOP)),
                Body::File => return Err(errno(libc::ENOTDIR)),
            }
        }
        Ok(at)
    }

    /// The inode of `name` in `dir`, if it exists.
    pub(super) fn child(&self, dir: Ino, name: &OsStr) -> io::Result<Option<Ino>> {
        if name.len() > 255 {
            return Err(errno(libc::ENAMETOOLONG));
        }
        Ok(self.live.lookup(dir, name))
    }

    /// Follows `path` from the root, through symbolic links and `..`; returns the inode and its real path.
    pub(super) fn resolve(&self, path: &Path) -> io::Result<(Ino, PathBuf)> {
        let parts = |path: &Path| {
            path.components()
                .rev()
                .map(|c| c.as_os_str().to_owned())
                .collect()
        };
        let mut todo: Vec<OsString> = parts(path);
        let (mut at, mut real, mut links) = (ROOT, PathBuf::from("/"), 0);
        while let Some(part) = todo.pop() {
            match Path::new(&part).components().next() {
                Some(Component::Normal(name)) => {
                    let names = self.live.names(at).ok_or_else(|| errno(libc::ENOTDIR))?;
                    let ino = *names.get(name).ok_or_else(|| errno(libc::ENOENT))?;
                    if let Body::Symlink(target) = &self.node(ino)?.body {
                        links += 1;
                        if links > LINKS_MAX {
                            return Err(errno(libc::ELOOP));
                        }
                        let more: Vec<OsString> = parts(target);
                        todo.extend(more);
                    } else {
                        at = ino;
                        real.push(name);
                    }
                }
                Some(Component::ParentDir) => {
                    at = self.node(at)?.parent;
                    real.pop();
                }
                Some(Component::RootDir) => (at, real) = (ROOT, PathBuf::from("/")),
                _ => {}
            }
        }
        Ok((at, real))
    }

    pub(super) fn used_bytes(&self, dev: u64) -> u64 {
        let here = |ino| {
            self.live
                .node(ino)
                .is_some_and(|node| node.dev == dev && node.links > 0)
        };
        self.files
            .iter()
            .filter(|(ino, _)| here(**ino))
            .map(|(_, data)| data.live.used_bytes())
            .sum()
    }

    /// Another process removes `path` and everything below it.
    pub(super) fn remove_tree(&mut self, path: &Path) {
        if let Ok((ino, _)) = self.resolve(path)
            && let Some(name) = path.file_name()
            && let Ok(node) = self.node(ino)
        {
            self.remove_below(node.parent, name.to_owned(), ino);
        }
    }

    fn remove_below(&mut self, dir: Ino, name: OsString, ino: Ino) {
        for (name, child) in self.live.names(ino).cloned().unwrap_or_default() {
            self.remove_below(ino, name, child);
        }
        if let Ok(node) = self.node(dir) {
            self.journal(node.dev, TreeChange::Remove { dir, name });
        }
    }
}
