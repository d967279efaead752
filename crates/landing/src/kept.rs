//! What neither a backup nor a restore writes onto: archives of log, sets at targets, and the media and files that the
//! run itself needs.
//!
//! An archive is known by its identity file and a set by its directory's label, wherever they lie and whoever is
//! configured to use them. Single files are known by device and inode, so no other name of a file gets around it.

use std::path::{Path, PathBuf};

use longshore_io::{Dir, FileKind, Stat, Storage};
use longshore_repository::Label;
use longshore_repository::wal::IDENTITY_NAME;

use crate::error::Error;

const ARCHIVE: &str = "a WAL archive";
/// What [`directory`] says of a backup.
pub const SET: &str = "a backup at a target";
const MEDIUM: &str = "a medium that is being read";
const OWN: &str = "a file that this program needs";

/// What a directory is, if it is to be kept.
pub fn directory(storage: &dyn Storage, path: &Path) -> Option<&'static str> {
    let is_archive = storage
        .stat(&path.join(IDENTITY_NAME))
        .is_ok_and(|stat| stat.kind == FileKind::File);
    if is_archive {
        return Some(ARCHIVE);
    }
    let is_set = path.file_name().is_some_and(is_label)
        && storage.dir(path).is_ok_and(|dir| holds_stripe(&*dir));
    is_set.then_some(SET)
}

/// Whether stripes of a set are there; a restored directory may have a set's label, too.
fn holds_stripe(dir: &dyn Dir) -> bool {
    let is_stripe = |name: std::io::Result<std::ffi::OsString>| {
        name.is_ok_and(|name| {
            let name = name.to_string_lossy();
            name.starts_with("family-") && name.ends_with(".bak")
        })
    };
    dir.list().is_ok_and(|mut names| names.any(is_stripe))
}

fn is_label(name: &std::ffi::OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.parse::<Label>().is_ok())
}

/// `path` without links, as far as it exists.
pub fn real(storage: &dyn Storage, path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    for known in path.ancestors() {
        if let (Ok(base), Ok(rest)) = (storage.canonical(known), path.strip_prefix(known)) {
            return base.join(rest);
        }
    }
    path
}

/// Files that stay, by device and inode.
pub struct KeptFiles(Vec<((u64, u64), &'static str)>);

impl KeptFiles {
    fn of<'a>(
        storage: &dyn Storage,
        paths: impl Iterator<Item = &'a PathBuf>,
        what: &'static str,
    ) -> KeptFiles {
        let id = |path: &PathBuf| {
            let stat = storage.stat(path).ok()?;
            Some(((stat.dev, stat.ino), what))
        };
        KeptFiles(paths.filter_map(id).collect())
    }

    /// Those that this program needs itself, and what SQLite keeps beside its history.
    pub fn own(storage: &dyn Storage, own: &[PathBuf], catalog: Option<&Path>) -> KeptFiles {
        let beside = |catalog: &Path| {
            ["", "-wal", "-shm", "-journal"].map(|suffix| {
                let mut path = catalog.as_os_str().to_owned();
                path.push(suffix);
                PathBuf::from(path)
            })
        };
        let catalog: Vec<PathBuf> = catalog.into_iter().flat_map(beside).collect();
        KeptFiles::of(storage, own.iter().chain(&catalog), OWN)
    }

    /// What a file is, if it is one of them.
    pub fn find(&self, stat: &Stat) -> Option<&'static str> {
        let id = (stat.dev, stat.ino);
        self.0.iter().find(|(known, _)| *known == id).map(|f| f.1)
    }
}

/// What a restore must leave where it is.
pub struct Kept {
    files: KeptFiles,
    /// What the target lies in, or is.
    around: Option<&'static str>,
}

impl Kept {
    /// Of the media that a restore to `target` reads, and of the files that this program needs.
    pub fn of(storage: &dyn Storage, media: &[PathBuf], own: KeptFiles, target: &Path) -> Kept {
        let mut files = KeptFiles::of(storage, media.iter(), MEDIUM);
        files.0.extend(own.0);
        let target = real(storage, target);
        let around = target.ancestors().filter_map(|dir| directory(storage, dir));
        Kept {
            files,
            around: around.last(),
        }
    }

    /// Refuses a target in an archive or in a set. Errors: [`Error::TargetKept`].
    pub fn check_target(&self, target: &Path) -> Result<(), Error> {
        match self.around {
            Some(what) => Err(refused(target, what)),
            None => Ok(()),
        }
    }

    /// Refuses to replace `top`, a name in `dir`, which is at `path`, when it is or holds what stays. Errors:
    /// [`Error::TargetKept`].
    pub fn check_replaced(&self, dir: &dyn Dir, path: &Path, top: &Path) -> Result<(), Error> {
        let cannot = |name: &Path| {
            let path = path.join(name);
            move |source| Error::Target {
                action: "look at",
                path,
                source,
            }
        };
        // A stack instead of recursion: depth is the tree's choice.
        let mut stack = vec![top.to_path_buf()];
        while let Some(name) = stack.pop() {
            let stat = match dir.stat(&name) {
                Ok(stat) => stat,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) => return Err(cannot(&name)(e)),
            };
            let what = match stat.kind {
                FileKind::Dir => {
                    let is_set = name.file_name().is_some_and(is_label)
                        && dir.dir(&name).is_ok_and(|dir| holds_stripe(&*dir));
                    is_set.then_some(SET)
                }
                FileKind::File if name.file_name().is_some_and(|n| n == IDENTITY_NAME) => {
                    Some(ARCHIVE)
                }
                FileKind::File => self.files.find(&stat),
                FileKind::Symlink | FileKind::Other => None,
            };
            if let Some(what) = what {
                return Err(refused(&path.join(name), what));
            }
            if stat.kind == FileKind::Dir {
                let listed = dir
                    .dir(&name)
                    .and_then(|dir| dir.list())
                    .map_err(cannot(&name))?;
                for child in listed {
                    stack.push(name.join(child.map_err(cannot(&name))?));
                }
            }
        }
        Ok(())
    }
}

fn refused(path: &Path, what: &'static str) -> Error {
    Error::TargetKept {
        path: path.to_owned(),
        what,
    }
}
