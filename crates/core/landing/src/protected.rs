//! Files that neither a backup nor a restore may overwrite: WAL archives, sets at targets, and the media and files that
//! the run itself needs.
//!
//! Invariants
//! - An archive is recognised by its identity file and a set by its directory's label, wherever they are and whoever
//!   uses them.
//! - Single files are recognised by device and inode, so another name of a file makes no difference.
//! - The names of the history's side files are kept even if nothing has them now.
//! - Replacing a directory is refused if anything below it must stay. Where a directory goes as a whole, unnamed names
//!   included, every backup medium below it stays.
//!
//! Leaves to others: which media and files a run needs (the pipeline), and backups' own targets.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, FileKind, OpenHow, Stat, Storage, Via};
use longshore_media::{Container, DeviceSpec, MediaSet};
use longshore_repository::Label;
use longshore_wal::IDENTITY_NAME;

use crate::error::{Error, at};
use crate::tree::is_absent;

const ARCHIVE: &str = "a WAL archive";
/// The description that [`directory`] returns for a backup.
pub const SET: &str = "a backup at a target";
const MEDIUM: &str = "media that are being read";
const OWN: &str = "a file that this program needs";
const BACKUP: &str = "a backup medium";

/// The bytes at the beginning of a file that tell whether it can be a medium.
const START_LEN: usize = 64;

/// The description of a directory that must be kept; `None` for others.
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

/// Whether the directory holds stripes of a set: a restored directory may have a set's label as its name, too.
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

/// `path` without symbolic links, as far as it exists.
pub fn real(storage: &dyn Storage, path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    for known in path.ancestors() {
        if let (Ok(base), Ok(rest)) = (storage.canonical(known), path.strip_prefix(known)) {
            // Joining nothing would add a slash.
            return match rest.as_os_str().is_empty() {
                true => base,
                false => base.join(rest),
            };
        }
    }
    path
}

/// Device and inode.
type Id = (u64, u64);

/// A name in a directory, which may not exist yet.
struct Name {
    dir: PathBuf,
    id: Option<Id>,
    name: OsString,
}

/// Files that stay.
pub struct KnownFiles {
    files: Vec<(Id, &'static str)>,
    /// Names in directories, whether or not something has them now, and whether or not there is a history yet: SQLite takes
    /// what has them for the history's log, or removes it when the history is made.
    names: Vec<Name>,
}

impl KnownFiles {
    fn of<'a>(
        storage: &dyn Storage,
        paths: impl Iterator<Item = &'a PathBuf>,
        what: &'static str,
    ) -> KnownFiles {
        let id = |path: &PathBuf| {
            let stat = storage.stat(path).ok()?;
            Some(((stat.dev, stat.ino), what))
        };
        KnownFiles {
            files: paths.filter_map(id).collect(),
            names: Vec::new(),
        }
    }

    /// Files that this program itself needs, including those that SQLite keeps for its history, and its service key.
    pub fn own(storage: &dyn Storage, own: &[PathBuf], catalog: Option<&Path>) -> KnownFiles {
        let beside = |catalog: &Path| {
            ["", "-wal", "-shm", "-journal", ".key"].map(|suffix| {
                let mut path = catalog.as_os_str().to_owned();
                path.push(suffix);
                PathBuf::from(path)
            })
        };
        let catalog = catalog.map(|catalog| real(storage, catalog));
        let all: Vec<PathBuf> = catalog.iter().flat_map(|path| beside(path)).collect();
        let name = |path: &PathBuf| {
            let dir = path.parent()?;
            Some(Name {
                id: storage.stat(dir).ok().map(|stat| (stat.dev, stat.ino)),
                dir: dir.to_owned(),
                name: path.file_name()?.to_owned(),
            })
        };
        KnownFiles {
            names: all.iter().skip(1).filter_map(name).collect(),
            ..KnownFiles::of(storage, own.iter().chain(&all), OWN)
        }
    }

    /// The use of `name` in this directory, if this program needs it, whether or not it exists. The directory may not
    /// exist yet; then its absolute path counts.
    pub fn find_name(&self, path: &Path, dir: Option<&Stat>, name: &OsStr) -> Option<&'static str> {
        let id = dir.map(|stat| (stat.dev, stat.ino));
        let is_own = |own: &Name| {
            let is_there = (own.id.is_some() && own.id == id) || own.dir == path;
            is_there && own.name == name
        };
        self.names.iter().any(is_own).then_some(OWN)
    }

    /// The description of a file, if it is one of them.
    pub fn find(&self, stat: &Stat) -> Option<&'static str> {
        let id = (stat.dev, stat.ino);
        self.files
            .iter()
            .find(|(known, _)| *known == id)
            .map(|f| f.1)
    }
}

/// Everything that a restore must not replace.
pub struct ProtectedFiles {
    files: KnownFiles,
    /// The description of the directory that is or contains the target.
    around: Option<&'static str>,
}

impl ProtectedFiles {
    /// For a restore to `target` from these media, and the files that this program needs.
    pub fn of(
        storage: &dyn Storage,
        media: &[PathBuf],
        own: KnownFiles,
        target: &Path,
    ) -> ProtectedFiles {
        let mut files = KnownFiles::of(storage, media.iter(), MEDIUM);
        files.files.extend(own.files);
        files.names = own.names;
        let target = real(storage, target);
        let around = target.ancestors().filter_map(|dir| directory(storage, dir));
        ProtectedFiles {
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

    /// Refuses a name below `dir`, which is at `path`, that this program needs, whether or not something has it now.
    /// Errors: [`Error::TargetKept`].
    pub fn check_name(&self, dir: &dyn Dir, path: &Path, place: &Path) -> Result<(), Error> {
        // A restore asks for each name that it takes.
        let is_own = |name: &&OsStr| self.files.names.iter().any(|own| own.name == *name);
        let Some(name) = place.file_name().filter(is_own) else {
            return Ok(());
        };
        let parent = place.parent().unwrap_or(Path::new(""));
        let stat = match dir.stat(parent) {
            Err(e) if is_absent(&e) => None,
            found => Some(found.map_err(at("look at", path))?),
        };
        let whole = path.join(parent);
        let absolute = std::path::absolute(&whole).unwrap_or(whole);
        match self.files.find_name(&absolute, stat.as_ref(), name) {
            Some(what) => Err(refused(&path.join(place), what)),
            None => Ok(()),
        }
    }

    /// Refuses a place in an archive or a set that stands below `dir`, which is at `path`. Errors: [`Error::TargetKept`].
    pub fn check_entered(&self, dir: &dyn Dir, path: &Path, place: &Path) -> Result<(), Error> {
        let above = place.ancestors().skip(1);
        for name in above.filter(|name| !name.as_os_str().is_empty()) {
            let Ok(below) = dir.dir(name) else {
                continue;
            };
            let is_archive = below
                .stat(Path::new(IDENTITY_NAME))
                .is_ok_and(|stat| stat.kind == FileKind::File);
            let is_set = || name.file_name().is_some_and(is_label) && holds_stripe(&*below);
            if is_archive {
                return Err(refused(&path.join(name), ARCHIVE));
            }
            if is_set() {
                return Err(refused(&path.join(name), SET));
            }
        }
        Ok(())
    }

    /// Refuses to replace `top`, a name in `dir` (which is at `path`), if it is or contains something to keep. Errors:
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
        // A stack instead of recursion: the tree decides its depth.
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

/// Refuses a directory at `path` that is to go as a whole if a backup medium is anywhere below it, of this restore or of
/// another. Links are not followed.
///
/// Errors: [`Error::TargetKept`], which names the medium; a directory cannot be listed.
pub fn refuse_media(storage: &Arc<dyn Storage>, path: &Path) -> Result<(), Error> {
    // The restore itself reports what cannot be opened.
    let Ok(dir) = storage.dir(path) else {
        return Ok(());
    };
    // A stack instead of recursion: the tree decides its depth.
    let mut stack = vec![PathBuf::new()];
    while let Some(place) = stack.pop() {
        let below = match place.as_os_str().is_empty() {
            true => dir.list(),
            false => dir.dir(&place).and_then(|below| below.list()),
        };
        let cannot = at("list", &path.join(&place));
        for name in below.map_err(&cannot)? {
            let name = place.join(name.map_err(&cannot)?);
            match dir.stat(&name).map(|stat| stat.kind) {
                Ok(FileKind::Dir) => stack.push(name),
                Ok(FileKind::File) if is_medium(storage, &*dir, path, &name) => {
                    return Err(refused(&path.join(name), BACKUP));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Whether the file `name` in `dir`, which is at `path`, is a stripe of backup media. Few files begin as one.
fn is_medium(storage: &Arc<dyn Storage>, dir: &dyn Dir, path: &Path, name: &Path) -> bool {
    let mut start = [0; START_LEN];
    let read = dir.open(name, OpenHow::Read);
    let read = read.and_then(|file| file.read_full_at(&mut start, 0, Via::Cache));
    let may_be = read.is_ok_and(|len| Container::detect(&start[..len]).is_some());
    may_be && MediaSet::label(&*DeviceSpec::File(path.join(name)).open(storage)).is_ok()
}

fn refused(path: &Path, what: &'static str) -> Error {
    Error::TargetKept {
        path: path.to_owned(),
        what,
    }
}

#[cfg(test)]
mod tests {
    use longshore_io::SimDisk;

    use super::*;

    /// Goal: nothing is put where SQLite would take it for the log of the history that stands there.
    #[test]
    fn names_of_the_historys_side_files_are_kept_even_if_missing() {
        let disk = SimDisk::new(1);
        for path in ["/state/history.db", "/other/history.db"] {
            disk.write_file(path, b"history").unwrap();
        }
        let history = Path::new("/state/history.db");
        let own = KnownFiles::own(&disk, &[], Some(history));
        let kept = ProtectedFiles::of(&disk, &[], own, Path::new("/state"));
        for (parent, name, is_kept) in [
            ("/state", "history.db-wal", true),
            ("/state", "history.db-shm", true),
            ("/state", "history.db-journal", true),
            // The key that seals its credentials.
            ("/state", "history.db.key", true),
            ("/state", "other.db-wal", false),
            ("/other", "history.db-wal", false),
        ] {
            let parent = Path::new(parent);
            let dir = disk.dir(parent).unwrap();
            let checked = kept.check_name(&*dir, parent, Path::new(name));
            let refused = matches!(checked, Err(Error::TargetKept { .. }));
            assert_eq!(refused, is_kept, "{} {name}", parent.display());
        }
        // SQLite removes such a file when it makes the history, and the run would have reported it as written.
        for absent in ["/state/none.db", "/nowhere/yet/none.db"] {
            let absent = Path::new(absent);
            let none = KnownFiles::own(&disk, &[], Some(absent));
            let dir = absent.parent().unwrap();
            let stat = disk.stat(dir).ok();
            let found = |name| none.find_name(dir, stat.as_ref(), OsStr::new(name));
            assert!(found("none.db-wal").is_some());
            assert!(found("none.db").is_none());
        }
    }
}
