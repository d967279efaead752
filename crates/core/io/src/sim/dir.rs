//! A directory of a simulated disk. It returns the error numbers that Linux returns.
//!
//! Invariants
//! - A directory keeps its inode when it is renamed, as a descriptor does.
//! - Every call is a step that the disk's rules may fail, before it changes anything.
//!
//! Leaves to others: the tree and what is durable of it (`state.rs`), and which call fails (`fault.rs`).

use crate::{DirAttributes, DirChange, DirIdentity, DirRead, DirSync};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fault::Op;
use super::file::SimFile;
use super::shared::SharedState;
use super::state::{Power, State, errno};
use super::tree::{Body, Ino, TreeChange};
use crate::names;
use crate::storage::{Attributes, Dir, File, OpenHow, Stat};

/// Free space of a file system without a set capacity.
const PLENTY_BYTES: u64 = 1 << 50;

pub(super) struct SimDir {
    disk: SharedState,
    ino: Ino,
    /// The path at the time it was opened.
    path: PathBuf,
}

/// The result of resolving a name: the directory that holds it, its last component, and the inode.
struct Resolution<'a> {
    dir: Ino,
    name: &'a OsStr,
    ino: Option<Ino>,
}

impl Resolution<'_> {
    fn ino(&self) -> io::Result<Ino> {
        self.ino.ok_or_else(|| errno(libc::ENOENT))
    }

    /// Fails unless a new name can be made here.
    fn vacant(&self, state: &State) -> io::Result<()> {
        match self.ino {
            Some(_) => Err(errno(libc::EEXIST)),
            // The directory was removed while it was open.
            None if state.node(self.dir)?.links == 0 => Err(errno(libc::ENOENT)),
            None => Ok(()),
        }
    }
}

impl SimDir {
    pub(super) fn new(disk: SharedState, ino: Ino, path: PathBuf) -> Self {
        Self { disk, ino, path }
    }

    pub(super) fn make_dir(&self, name: &Path, mode: u32) -> io::Result<()> {
        self.change(Op::CreateDir, name, libc::EEXIST, |state, found| {
            found.vacant(state)?;
            state
                .add(found.dir, found.name, Body::Dir(Default::default()), mode)
                .map(drop)
        })
    }

    /// Performs a call on the last component of `name`. `itself` is the error number for an empty name, if the call
    /// does not apply to the directory itself.
    fn change<T>(
        &self,
        op: Op,
        name: &Path,
        itself: i32,
        body: impl FnOnce(&mut State, Resolution<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let name = names::normal(name)?;
        self.disk
            .call(op, &self.path.join(&name), None, |state, _, _| {
                body(state, self.find(state, &name, itself)?)
            })
    }

    fn find<'a>(&self, state: &State, normal: &'a Path, itself: i32) -> io::Result<Resolution<'a>> {
        let (_, name) = names::split(normal).ok_or_else(|| errno(itself))?;
        let dir = state.parent(self.ino, normal)?;
        Ok(Resolution {
            dir,
            name,
            ino: state.child(dir, name)?,
        })
    }

    /// The inode of `normal`, including that of the directory itself.
    fn any(&self, state: &State, normal: &Path) -> io::Result<Ino> {
        match normal.as_os_str().is_empty() {
            true => Ok(self.ino),
            false => self.find(state, normal, libc::ENOENT)?.ino(),
        }
    }

    fn subdir(&self, state: &State, normal: &Path) -> io::Result<Ino> {
        let ino = self.any(state, normal)?;
        if state.node(ino)?.is_dir() {
            Ok(ino)
        } else {
            Err(errno(libc::ENOTDIR))
        }
    }

    fn file(&self, state: &mut State, ino: Ino, how: OpenHow, name: &Path) -> Arc<dyn File> {
        state.handle_last += 1;
        let path = self.path.join(name);
        Arc::new(SimFile::new(
            self.disk.clone(),
            ino,
            how,
            state.handle_last,
            path,
        ))
    }
}

impl DirIdentity for SimDir {}

impl DirRead for SimDir {
    fn open(&self, name: &Path, how: OpenHow) -> io::Result<Arc<dyn File>> {
        let full = names::normal(name)?;
        if how == OpenHow::CreateNew {
            return self.change(Op::Create, name, libc::EEXIST, |state, found| {
                found.vacant(state)?;
                let ino = state.add(found.dir, found.name, Body::File, 0o600)?;
                Ok(self.file(state, ino, how, &full))
            });
        }
        self.change(Op::Open, name, libc::EISDIR, |state, found| {
            let ino = found.ino()?;
            match state.node(ino)?.body {
                Body::File => Ok(self.file(state, ino, how, &full)),
                Body::Dir(_) => Err(errno(libc::EISDIR)),
                Body::Symlink(_) => Err(errno(libc::ELOOP)),
            }
        })
    }

    fn dir(&self, name: &Path) -> io::Result<Arc<dyn Dir>> {
        let name = names::normal(name)?;
        let path = self.path.join(&name);
        self.disk
            .call(Op::Open, &path.clone(), None, |state, _, _| {
                let ino = self.subdir(state, &name)?;
                Ok(Arc::new(Self::new(self.disk.clone(), ino, path)) as Arc<dyn Dir>)
            })
    }

    fn stat(&self, name: &Path) -> io::Result<Stat> {
        let name = names::normal(name)?;
        self.disk
            .call(Op::Stat, &self.path.join(&name), None, |state, _, _| {
                state.stat(self.any(state, &name)?)
            })
    }

    fn list(&self) -> io::Result<Box<dyn Iterator<Item = io::Result<OsString>> + Send>> {
        let names: Vec<OsString> = self.disk.call(Op::List, &self.path, None, |state, _, _| {
            Ok(state
                .live
                .names(self.ino)
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone())
                .collect())
        })?;
        Ok(Box::new(names.into_iter().map(Ok)))
    }

    fn read_link(&self, name: &Path) -> io::Result<PathBuf> {
        self.change(
            Op::ReadLink,
            name,
            libc::EINVAL,
            |state, found| match &state.node(found.ino()?)?.body {
                Body::Symlink(target) => Ok(target.clone()),
                _ => Err(errno(libc::EINVAL)),
            },
        )
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.call(Op::Stat, &self.path, None, |state, _, _| {
            let dev = state.node(self.ino)?.dev;
            Ok(state.free_bytes(dev).unwrap_or(PLENTY_BYTES))
        })
    }

    fn keeps_locks(&self, _name: &Path) -> io::Result<bool> {
        self.disk.call(Op::Stat, &self.path, None, |state, _, _| {
            Ok(state.locks_are_kept)
        })
    }
}

impl DirChange for SimDir {
    fn create_dir(&self, name: &Path) -> io::Result<()> {
        self.make_dir(name, 0o700)
    }

    fn symlink(&self, target: &Path, name: &Path) -> io::Result<()> {
        self.change(Op::Symlink, name, libc::EEXIST, |state, found| {
            if target.as_os_str().is_empty() {
                return Err(errno(libc::ENOENT));
            }
            found.vacant(state)?;
            state
                .add(
                    found.dir,
                    found.name,
                    Body::Symlink(target.to_owned()),
                    0o777,
                )
                .map(drop)
        })
    }

    fn hard_link(&self, existing: &Path, name: &Path) -> io::Result<()> {
        let (existing, name) = (names::normal(existing)?, names::normal(name)?);
        self.disk
            .call(Op::Link, &self.path.join(&name), None, |state, _, _| {
                let existing = self.find(state, &existing, libc::EPERM)?;
                let new = self.find(state, &name, libc::EEXIST)?;
                let ino = existing.ino()?;
                new.vacant(state)?;
                let (node, dev) = (state.node(ino)?, state.node(new.dir)?.dev);
                if node.dev != dev {
                    return Err(errno(libc::EXDEV));
                }
                if node.is_dir() {
                    return Err(errno(libc::EPERM));
                }
                let (dir, name) = (new.dir, new.name.to_owned());
                state.journal(dev, TreeChange::Link { dir, name, ino });
                Ok(())
            })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (names::normal(from)?, names::normal(to)?);
        self.disk
            .call(Op::Rename, &self.path.join(&to), None, |state, _, _| {
                let from = self.find(state, &from, libc::EBUSY)?;
                let to = self.find(state, &to, libc::EBUSY)?;
                let dev = state.node(from.dir)?.dev;
                if state.node(to.dir)?.dev != dev {
                    return Err(errno(libc::EXDEV));
                }
                let ino = from.ino()?;
                // A mount point.
                if state.node(ino)?.dev != dev {
                    return Err(errno(libc::EBUSY));
                }
                if to.ino == Some(ino) {
                    return Ok(());
                }
                let moves_dir = state.node(ino)?.is_dir();
                if moves_dir && state.live.holds(ino, to.dir) {
                    return Err(errno(libc::EINVAL));
                }
                match to.ino {
                    Some(old) if state.live.holds(old, from.dir) => {
                        return Err(errno(libc::ENOTEMPTY));
                    }
                    Some(old) => match (moves_dir, state.live.names(old)) {
                        (true, None) => return Err(errno(libc::ENOTDIR)),
                        (false, Some(_)) => return Err(errno(libc::EISDIR)),
                        (true, Some(names)) if !names.is_empty() => {
                            return Err(errno(libc::ENOTEMPTY));
                        }
                        _ => {}
                    },
                    None => to.vacant(state)?,
                }
                let (from_dir, from) = (from.dir, from.name.to_owned());
                let (to_dir, to) = (to.dir, to.name.to_owned());
                let now_ns = state.tick();
                state.journal(
                    dev,
                    TreeChange::Rename {
                        from_dir,
                        from,
                        to_dir,
                        to,
                        now_ns,
                    },
                );
                Ok(())
            })
    }

    fn remove_file(&self, name: &Path) -> io::Result<()> {
        self.change(Op::RemoveFile, name, libc::EISDIR, |state, found| {
            let node = state.node(found.ino()?)?;
            if node.is_dir() {
                return Err(errno(libc::EISDIR));
            }
            state.journal(
                node.dev,
                TreeChange::Remove {
                    dir: found.dir,
                    name: found.name.to_owned(),
                },
            );
            Ok(())
        })
    }

    fn remove_dir(&self, name: &Path) -> io::Result<()> {
        self.change(Op::RemoveDir, name, libc::EINVAL, |state, found| {
            let ino = found.ino()?;
            let dev = state.node(found.dir)?.dev;
            match state.live.names(ino) {
                None => return Err(errno(libc::ENOTDIR)),
                Some(_) if state.node(ino)?.dev != dev => return Err(errno(libc::EBUSY)),
                Some(names) if !names.is_empty() => return Err(errno(libc::ENOTEMPTY)),
                Some(_) => {}
            }
            state.journal(
                dev,
                TreeChange::Remove {
                    dir: found.dir,
                    name: found.name.to_owned(),
                },
            );
            Ok(())
        })
    }
}

impl DirAttributes for SimDir {
    fn set_attributes(&self, name: &Path, attributes: &Attributes) -> io::Result<()> {
        let name = names::normal(name)?;
        self.disk.call(
            Op::SetAttributes,
            &self.path.join(&name),
            None,
            |state, _, _| {
                let ino = self.any(state, &name)?;
                state.set(ino, *attributes)
            },
        )
    }

    fn give(&self, owner: (u32, u32)) -> io::Result<bool> {
        self.disk
            .call(Op::SetAttributes, &self.path, None, |state, _, _| {
                let is_ours = state.node(self.ino)?.uid == 0;
                match state.live.names(self.ino) {
                    Some(names) if is_ours && !names.is_empty() => Err(errno(libc::ENOTEMPTY)),
                    _ => state.give(self.ino, owner),
                }
            })
    }
}

impl DirSync for SimDir {
    fn sync(&self, name: &Path) -> io::Result<()> {
        let name = names::normal(name)?;
        self.disk.call(
            Op::SyncDir,
            &self.path.join(&name),
            None,
            |state, power, _| {
                let ino = self.subdir(state, &name)?;
                if power == Power::On {
                    state.sync_dir(ino);
                }
                Ok(())
            },
        )
    }

    fn sync_all(&self) -> io::Result<()> {
        self.disk
            .call(Op::SyncAll, &self.path, None, |state, power, _| {
                let dev = state.node(self.ino)?.dev;
                if power == Power::On {
                    state.sync_all(dev);
                }
                Ok(())
            })
    }
}

impl State {
    /// Free space of a file system with a capacity.
    pub(super) fn free_bytes(&self, dev: u64) -> Option<u64> {
        let capacity = *self.capacity_bytes.get(&dev)?;
        Some(capacity.saturating_sub(self.used_bytes(dev)))
    }
}

impl fmt::Debug for SimDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDir({:?})", self.path)
    }
}
