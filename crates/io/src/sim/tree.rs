//! Names of a simulated disk: directories, what is in them, and attributes.
//!
//! Every change is an [`Entry`] of the journal of its file system, so that the same change can be
//! made to the names everybody sees now and, later or never, to those that survive a power cut.
//! Replaying entries in order always succeeds: they are made only after all checks.

use std::collections::BTreeMap;
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
    /// The file system this is on.
    pub(super) dev: u64,
    pub(super) links: u64,
    /// Of a directory: where `..` leads. Of the root: itself.
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
pub(super) enum Entry {
    /// A new file, directory or symbolic link appears.
    Add {
        dir: Ino,
        name: OsString,
        ino: Ino,
        node: Node,
    },
    /// One more name for a file.
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
    },
    Set {
        ino: Ino,
        attributes: Attributes,
        now_ns: i64,
    },
}

impl Entry {
    /// Whether making the names in `dir` durable makes this entry durable.
    pub(super) fn concerns(&self, dir: Ino) -> bool {
        match self {
            Self::Add { dir: d, .. } | Self::Link { dir: d, .. } | Self::Remove { dir: d, .. } => {
                *d == dir
            }
            Self::Rename {
                from_dir, to_dir, ..
            } => *from_dir == dir || *to_dir == dir,
            Self::Set { ino, .. } => *ino == dir,
        }
    }
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

    /// The names in `ino` if that is a directory.
    pub(super) fn names(&self, ino: Ino) -> Option<&BTreeMap<OsString, Ino>> {
        match &self.nodes.get(&ino)?.body {
            Body::Dir(names) => Some(names),
            _ => None,
        }
    }

    pub(super) fn lookup(&self, dir: Ino, name: &OsStr) -> Option<Ino> {
        self.names(dir)?.get(name).copied()
    }

    /// Whether `above` is `ino` or holds it.
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

    /// Forgets whatever has no name any more.
    pub(super) fn forget_nameless(&mut self) {
        self.nodes.retain(|_, node| node.links > 0);
    }

    pub(super) fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Add {
                dir,
                name,
                ino,
                node,
            } => {
                self.nodes.insert(*ino, node.clone());
                self.attach(*dir, name, *ino);
            }
            Entry::Link { dir, name, ino } => self.attach(*dir, name, *ino),
            Entry::Remove { dir, name } => drop(self.detach(*dir, name)),
            Entry::Rename {
                from_dir,
                from,
                to_dir,
                to,
            } => {
                let same = self.lookup(*from_dir, from) == self.lookup(*to_dir, to);
                // Two names of one file: renaming one to the other leaves both.
                if !same && let Some(ino) = self.detach(*from_dir, from) {
                    self.detach(*to_dir, to);
                    self.attach(*to_dir, to, ino);
                }
            }
            Entry::Set {
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
