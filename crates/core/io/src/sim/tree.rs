//! The names of a simulated disk: directories, their entries, and attributes.
//!
//! Invariants
//! - Every change is an [`TreeChange`], so that the same change can be made to the names everybody sees now and, later
//!   or never, to those that survive a power cut.
//! - Entries of one name are replayed in order and none is left out between two ([`closed`], [`without`]); replaying
//!   then always succeeds, for all checks were made before.
//!
//! Leaves to others: what of the names is durable (`state.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::storage::{Attributes, FileKind};

pub(super) type Ino = u64;

/// The root directory.
pub(super) const ROOT: Ino = 1;

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) body: Body,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime_ns: i64,
    pub(super) ctime_ns: i64,
    /// The file system that holds this node.
    pub(super) dev: u64,
    pub(super) links: u64,
    /// For a directory, the target of `..`; for the root, the root itself.
    pub(super) parent: Ino,
}

#[derive(Debug, Clone)]
pub(super) enum Body {
    File,
    Dir(BTreeMap<OsString, Ino>),
    Symlink(PathBuf),
}

impl Node {
    pub(super) fn new(body: Body, mode: u32, dev: u64, now_ns: i64) -> Self {
        let (mtime_ns, ctime_ns) = (now_ns, now_ns);
        Self {
            body,
            mode,
            uid: 0,
            gid: 0,
            mtime_ns,
            ctime_ns,
            dev,
            links: 0,
            parent: ROOT,
        }
    }

    pub(super) fn kind(&self) -> FileKind {
        match self.body {
            Body::File => FileKind::File,
            Body::Dir(_) => FileKind::Dir,
            Body::Symlink(_) => FileKind::Symlink,
        }
    }

    pub(super) fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir(_))
    }

    fn set(&mut self, attributes: &Attributes, now_ns: i64) {
        if let Some((uid, gid)) = attributes.owner {
            (self.uid, self.gid) = (uid, gid);
            if !self.is_dir() {
                self.mode &= 0o1777;
            }
        }
        if let Some(mode) = attributes.mode
            && !matches!(self.body, Body::Symlink(_))
        {
            self.mode = mode & 0o7777;
        }
        if let Some(ns) = attributes.mtime_ns {
            self.mtime_ns = ns;
        }
        self.ctime_ns = now_ns;
    }
}

/// One change of names or attributes.
#[derive(Debug, Clone)]
pub(super) enum TreeChange {
    /// Adds a new file, directory or symbolic link.
    Add {
        dir: Ino,
        name: OsString,
        ino: Ino,
        node: Node,
    },
    /// Adds another name for a file.
    Link {
        dir: Ino,
        name: OsString,
        ino: Ino,
    },
    Remove {
        dir: Ino,
        name: OsString,
    },
    Rename {
        from_dir: Ino,
        from: OsString,
        to_dir: Ino,
        to: OsString,
        now_ns: i64,
    },
    Set {
        ino: Ino,
        attributes: Attributes,
        now_ns: i64,
    },
}

/// A name in a directory.
type Slot<'a> = (Ino, &'a OsStr);

impl TreeChange {
    /// The names it changes: one, or two of a rename. An entry that sets attributes has none.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        let (first, second) = match self {
            Self::Add { dir, name, .. }
            | Self::Link { dir, name, .. }
            | Self::Remove { dir, name } => (Some((*dir, &**name)), None),
            Self::Rename {
                from_dir,
                from,
                to_dir,
                to,
                ..
            } => (Some((*from_dir, &**from)), Some((*to_dir, &**to))),
            Self::Set { .. } => (None, None),
        };
        first.into_iter().chain(second)
    }
}

/// The entries that `wanted` names, with every earlier one of the same names.
pub(super) fn closed(
    journal: &[TreeChange],
    mut wanted: impl FnMut(usize, &TreeChange) -> bool,
) -> Vec<bool> {
    let mut slots = BTreeSet::new();
    let mut kept = vec![false; journal.len()];
    for (i, entry) in journal.iter().enumerate().rev() {
        kept[i] = wanted(i, entry) || entry.slots().any(|slot| slots.contains(&slot));
        if kept[i] {
            slots.extend(entry.slots());
        }
    }
    kept
}

/// All entries but those that `lost` names, and every later one of the same names.
pub(super) fn without(journal: &[TreeChange], mut lost: impl FnMut(usize) -> bool) -> Vec<bool> {
    let mut slots = BTreeSet::new();
    let mut kept = vec![true; journal.len()];
    for (i, entry) in journal.iter().enumerate() {
        kept[i] = !lost(i) && !entry.slots().any(|slot| slots.contains(&slot));
        if !kept[i] {
            slots.extend(entry.slots());
        }
    }
    kept
}

#[derive(Debug, Clone)]
pub(super) struct Tree {
    nodes: BTreeMap<Ino, Node>,
}

impl Tree {
    /// An empty root directory on file system `dev`.
    pub(super) fn new(dev: u64) -> Self {
        let root = Node {
            links: 1,
            ..Node::new(Body::Dir(BTreeMap::new()), 0o755, dev, 0)
        };
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
        }
    }

    pub(super) fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    pub(super) fn node_mut(&mut self, ino: Ino) -> Option<&mut Node> {
        self.nodes.get_mut(&ino)
    }

    /// The names in `ino` if it is a directory.
    pub(super) fn names(&self, ino: Ino) -> Option<&BTreeMap<OsString, Ino>> {
        match &self.nodes.get(&ino)?.body {
            Body::Dir(names) => Some(names),
            _ => None,
        }
    }

    pub(super) fn lookup(&self, dir: Ino, name: &OsStr) -> Option<Ino> {
        self.names(dir)?.get(name).copied()
    }

    /// Whether `above` is `ino` or contains it.
    pub(super) fn holds(&self, above: Ino, mut ino: Ino) -> bool {
        while ino != above {
            match self.nodes.get(&ino) {
                Some(node) if ino != ROOT => ino = node.parent,
                _ => return false,
            }
        }
        true
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = (Ino, &Node)> {
        self.nodes.iter().map(|(ino, node)| (*ino, node))
    }

    /// Forgets whatever no path leads to, and counts the names of the rest.
    pub(super) fn forget_nameless(&mut self) {
        let mut found: BTreeMap<Ino, (u64, Ino)> = BTreeMap::from([(ROOT, (1, ROOT))]);
        let mut todo = vec![ROOT];
        while let Some(dir) = todo.pop() {
            for ino in self.names(dir).into_iter().flat_map(BTreeMap::values) {
                let (links, _) = found.entry(*ino).or_insert((0, dir));
                *links += 1;
                if *links == 1 {
                    todo.push(*ino);
                }
            }
        }
        self.nodes.retain(|ino, _| found.contains_key(ino));
        for (ino, (links, parent)) in found {
            if let Some(node) = self.nodes.get_mut(&ino) {
                (node.links, node.parent) = (links, parent);
            }
        }
    }

    /// Adds what has no name yet, for names in it or of it; what is known stays as it is.
    pub(super) fn know(&mut self, ino: Ino, node: &Node) {
        self.nodes.entry(ino).or_insert_with(|| node.clone());
    }

    pub(super) fn apply(&mut self, entry: &TreeChange) {
        match entry {
            TreeChange::Add {
                dir,
                name,
                ino,
                node,
            } => {
                self.know(*ino, node);
                self.attach(*dir, name, *ino);
            }
            TreeChange::Link { dir, name, ino } => self.attach(*dir, name, *ino),
            TreeChange::Remove { dir, name } => drop(self.detach(*dir, name)),
            TreeChange::Rename {
                from_dir,
                from,
                to_dir,
                to,
                now_ns,
            } => {
                let same = self.lookup(*from_dir, from) == self.lookup(*to_dir, to);
                // Renaming one name of a file to another name of the same file leaves both.
                if !same && let Some(ino) = self.detach(*from_dir, from) {
                    self.detach(*to_dir, to);
                    self.attach(*to_dir, to, ino);
                    // As on Linux's file systems, by whatever name the file is seen. A sync may have kept a later time.
                    if let Some(node) = self.nodes.get_mut(&ino) {
                        node.ctime_ns = node.ctime_ns.max(*now_ns);
                    }
                }
            }
            TreeChange::Set {
                ino,
                attributes,
                now_ns,
            } => {
                if let Some(node) = self.nodes.get_mut(ino) {
                    node.set(attributes, *now_ns);
                }
            }
        }
    }

    fn attach(&mut self, dir: Ino, name: &OsStr, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.links += 1;
            node.parent = dir;
        }
        if let Some(Node {
            body: Body::Dir(names),
            ..
        }) = self.nodes.get_mut(&dir)
        {
            names.insert(name.to_owned(), ino);
        }
    }

    fn detach(&mut self, dir: Ino, name: &OsStr) -> Option<Ino> {
        let Body::Dir(names) = &mut self.nodes.get_mut(&dir)?.body else {
            return None;
        };
        let ino = names.remove(name)?;
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.links -= 1;
        }
        Some(ino)
    }
}
