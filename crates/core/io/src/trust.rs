//! Decides whether a program or a library is safe to run with our rights.
//!
//! Loading a file runs its code with the rights of the process that loads it. Root, this process's user, and users that
//! the caller names are trusted.
//!
//! Invariants
//! - A path is trusted only if no other user can change the file, or any directory or symbolic link on the way to it. A
//!   directory with the sticky bit may be writable by all.
//! - A relative path is never trusted: it depends on the working directory.
//! - The path that is returned has no symbolic links, so the caller opens the file that was checked.
//!
//! Leaves to others: a change by a trusted user between the check and the use, and what is done with a path that is not
//! trusted (`child.rs`, `loaded.rs`).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::process::{getegid, geteuid};

/// A path with more symbolic links than this is a loop, as for the kernel.
const LINKS_MAX: usize = 40;

/// Bits of a mode.
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Why a file is not run.
#[derive(Debug, thiserror::Error)]
pub enum Distrust {
    #[error("{} is not an absolute path: it would depend on the working directory", path.display())]
    Relative { path: PathBuf },
    #[error("cannot examine {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} belongs to user {uid}, who could change it; it must belong to root or to the user who runs it", path.display())]
    Owner { path: PathBuf, uid: u32 },
    #[error("other users may write to {} (mode {mode:04o}): remove that permission with `chmod go-w`", path.display())]
    Writable { path: PathBuf, mode: u32 },
    #[error("{} has too many symbolic links", path.display())]
    Links { path: PathBuf },
}

impl Distrust {
    /// Whether the file does not exist, which is no reason to warn.
    pub fn is_missing(&self) -> bool {
        matches!(self, Distrust::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
    }
}

/// The real path of a file or directory that only root, this process's user and `more` can change.
///
/// Every directory and every symbolic link on the path is checked. A directory with the sticky bit (`/tmp`) may be
/// writable by all: other users cannot replace a trusted user's file in it.
pub fn trusted(path: &Path, more: &[u32]) -> Result<PathBuf, Distrust> {
    if !path.is_absolute() {
        let path = path.to_owned();
        return Err(Distrust::Relative { path });
    }
    let own = geteuid().as_raw();
    let is_known = |uid: u32| uid == 0 || uid == own || more.contains(&uid);
    // Under the usual umask of 002 a user's own group has only that user; for root this assumption is not made.
    let is_known_group = |gid: u32| gid == 0 || (own != 0 && gid == getegid().as_raw());
    let mut at = PathBuf::from("/");
    let mut links = 0;
    let mut left: VecDeque<OsString> = parts(path);
    while let Some(name) = left.pop_front() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        let io = |source| Distrust::Io {
            path: next.clone(),
            source,
        };
        let stat = next.symlink_metadata().map_err(io)?;
        if !is_known(stat.uid()) {
            let uid = stat.uid();
            return Err(Distrust::Owner { path: next, uid });
        }
        if stat.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                let path = path.to_owned();
                return Err(Distrust::Links { path });
            }
            let to = next.read_link().map_err(io)?;
            if to.is_absolute() {
                at = PathBuf::from("/");
            }
            for part in parts(&to).into_iter().rev() {
                left.push_front(part);
            }
            continue;
        }
        let mode = stat.mode() & 0o7777;
        let open =
            mode & OTHERS_WRITE != 0 || (mode & GROUP_WRITES != 0 && !is_known_group(stat.gid()));
        if open && !(stat.is_dir() && mode & STICKY != 0) {
            return Err(Distrust::Writable { path: next, mode });
        }
        at = next;
    }
    Ok(at)
}

/// The components of a path, including `..`.
fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_path_that_only_root_or_we_can_change_is_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, file) = (dir.path().join("bin"), dir.path().join("bin/tool"));
        fs::create_dir(&bin).unwrap();
        fs::write(&file, "").unwrap();
        mode(&bin, 0o755);
        mode(&file, 0o755);
        let link = dir.path().join("link");
        symlink("bin/../bin/tool", &link).unwrap();
        let real = file.canonicalize().unwrap();
        assert_eq!(trusted(&link, &[]).unwrap(), real);
        assert_eq!(trusted(&file, &[]).unwrap(), real);

        mode(&bin, 0o777);
        assert!(
            matches!(trusted(&link, &[]), Err(Distrust::Writable { path, .. }) if path.ends_with("bin"))
        );
        mode(&bin, 0o755);
        mode(&file, 0o757);
        assert!(matches!(
            trusted(&file, &[]),
            Err(Distrust::Writable { .. })
        ));
        assert!(matches!(
            trusted(Path::new("bin/tool"), &[]),
            Err(Distrust::Relative { .. })
        ));
        assert!(
            trusted(&dir.path().join("none"), &[])
                .unwrap_err()
                .is_missing()
        );
        symlink("loop", dir.path().join("loop")).unwrap();
        assert!(matches!(
            trusted(&dir.path().join("loop"), &[]),
            Err(Distrust::Links { .. })
        ));
    }

    #[test]
    fn a_path_through_another_users_directory_is_not_trusted_unless_named() {
        if !geteuid().is_root() {
            return eprintln!("skipped: only root can give files away");
        }
        let dir = tempfile::tempdir().unwrap();
        let (home, file) = (dir.path().join("home"), dir.path().join("home/tool"));
        fs::create_dir(&home).unwrap();
        fs::write(&file, "").unwrap();
        let own = dir.path().join("own");
        fs::write(&own, "").unwrap();
        let link = home.join("link");
        symlink(&own, &link).unwrap();
        for path in [&home, &file] {
            mode(path, 0o755);
            chown(path, Some(4321), None).unwrap();
        }
        // Root owns the link and the file, but not the directory that holds the link.
        for path in [&file, &link] {
            assert!(matches!(
                trusted(path, &[]),
                Err(Distrust::Owner { uid: 4321, .. })
            ));
        }
        assert!(trusted(&file, &[4321]).is_ok());
        // A foreign group must not have write permission, even if root owns the file.
        chown(&own, None, Some(4321)).unwrap();
        mode(&own, 0o775);
        assert!(matches!(trusted(&own, &[]), Err(Distrust::Writable { .. })));
    }
}
