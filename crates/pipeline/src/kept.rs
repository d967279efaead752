//! What neither a backup nor a restore writes onto: archives of log, sets at targets, and the media and files that the
//! run itself needs.
//!
//! An archive is known by its identity file and a set by its directory's label, wherever they lie and whoever is
//! configured to use them. Single files are known by device and inode, so no other name of a file gets around it.

use std::path::{Path, PathBuf};

use longshore_io::{Dir, FileKind, Stat, Storage};
use longshore_media::{DeviceSpec, Disposition};
use longshore_repository::Label;
use longshore_repository::wal::IDENTITY_NAME;

use crate::request::RestoreRequest;
use crate::{Error, House};

const ARCHIVE: &str = "a WAL archive";
const SET: &str = "a backup at a target";
const MEDIUM: &str = "a medium that is being read";
const OWN: &str = "a file that this program needs";

/// What a directory is, if it is to be kept.
fn directory(storage: &dyn Storage, path: &Path) -> Option<&'static str> {
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
fn real(storage: &dyn Storage, path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    for known in path.ancestors() {
        if let (Ok(base), Ok(rest)) = (storage.canonical(known), path.strip_prefix(known)) {
            return base.join(rest);
        }
    }
    path
}

/// Refuses devices in an archive, and those that would change a set at a target. A backup to a target begins with new
/// files in a directory of its own. Errors: [`Error::DeviceKept`].
pub fn check_devices(
    house: &House,
    devices: &[DeviceSpec],
    disposition: Disposition,
    own: &[PathBuf],
) -> Result<(), Error> {
    let storage = &*house.storage;
    let kept = Files::own(house, own);
    for device in devices {
        let DeviceSpec::File(path) = device else {
            continue;
        };
        let refused = |what| Error::DeviceKept {
            device: path.display().to_string(),
            what,
        };
        if let Ok(stat) = storage.stat(path)
            && let Some(what) = kept.find(&stat)
        {
            return Err(refused(what));
        }
        let real = real(storage, path);
        let around = real.ancestors().skip(1);
        let found = around.filter_map(|dir| directory(storage, dir)).next();
        match found {
            Some(SET) if disposition == Disposition::New => {}
            Some(what) => return Err(refused(what)),
            None => {}
        }
    }
    Ok(())
}

/// Files that stay, by device and inode.
struct Files(Vec<((u64, u64), &'static str)>);

impl Files {
    fn of<'a>(
        storage: &dyn Storage,
        paths: impl Iterator<Item = &'a PathBuf>,
        what: &'static str,
    ) -> Files {
        let id = |path: &PathBuf| {
            let stat = storage.stat(path).ok()?;
            Some(((stat.dev, stat.ino), what))
        };
        Files(paths.filter_map(id).collect())
    }

    /// The caller's, and the catalog with what SQLite keeps beside it.
    fn own(house: &House, own: &[PathBuf]) -> Files {
        let beside = |catalog: &PathBuf| {
            ["", "-wal", "-shm", "-journal"].map(|suffix| {
                let mut path = catalog.as_os_str().to_owned();
                path.push(suffix);
                PathBuf::from(path)
            })
        };
        let catalog: Vec<PathBuf> = house.catalog.iter().flat_map(beside).collect();
        Files::of(&*house.storage, own.iter().chain(&catalog), OWN)
    }

    fn find(&self, stat: &Stat) -> Option<&'static str> {
        let id = (stat.dev, stat.ino);
        self.0.iter().find(|(known, _)| *known == id).map(|f| f.1)
    }
}

/// What a restore must leave where it is.
pub struct Kept {
    files: Files,
    /// What the target lies in, or is.
    around: Option<&'static str>,
}

impl Kept {
    /// Of the media that a restore reads, and of the files that this program needs.
    pub fn of(house: &House, request: &RestoreRequest) -> Kept {
        let storage = &*house.storage;
        let media = request.devices.iter().chain(&request.bases);
        let media: Vec<PathBuf> = media
            .filter_map(|device| match device {
                DeviceSpec::File(path) => Some(path.clone()),
                DeviceSpec::Nul | DeviceSpec::Pipe => None,
            })
            .collect();
        let mut files = Files::of(storage, media.iter(), MEDIUM);
        files.0.extend(Files::own(house, &request.own).0);
        let target = real(storage, &request.target);
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
