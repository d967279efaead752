//! Which parts of a tree have their own I/O capacity.
//!
//! Invariants
//! - A volume begins at a mount point, or at a directory that the caller maps to a volume name, so that one machine can
//!   simulate several volumes. The deepest such directory above a file decides.
//! - Mounts of one device are one volume, and so are directories mapped to one name.
//! - Mount points that cannot be read fail nothing: each root is one volume then.
//!
//! Leaves to others: dividing the walk at these directories (`files/roots.rs`).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use longshore_io::{FileKind, OpenHow, Storage, Via};

use crate::{Error, Volume};

/// Two directories with the same key are on the same volume.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Device(u64),
    Named(String),
}

/// The volumes seen so far, and where each begins.
pub(crate) struct Volumes {
    mounts: Vec<PathBuf>,
    mapped: Vec<(PathBuf, String)>,
    found: Vec<(Key, Volume)>,
}

impl Volumes {
    /// `map`: directories and the volume names they count as.
    pub(crate) fn new(storage: &dyn Storage, map: &[(PathBuf, String)]) -> Result<Self, Error> {
        let mapped = map
            .iter()
            .map(|(path, name)| match storage.canonical(path) {
                Ok(path) => Ok((path, name.clone())),
                Err(source) => Err(Error::Io {
                    action: "find the mapped",
                    path: path.clone(),
                    source,
                }),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            mounts: mount_points(storage),
            mapped,
            found: Vec::new(),
        })
    }

    /// The volume of `path`, which is canonical and on device `dev`: an index into the result of
    /// [`Volumes::into_vec`].
    pub(crate) fn of(&mut self, path: &Path, dev: u64) -> usize {
        let above = |at: &&PathBuf| path.starts_with(at);
        let depth = |at: &&PathBuf| at.components().count();
        let mount = self.mounts.iter().filter(above).max_by_key(depth);
        let mapped = self
            .mapped
            .iter()
            .filter(|(at, _)| path.starts_with(at))
            .max_by_key(|(at, _)| at.components().count());
        let (key, begin) = match (mapped, mount) {
            (Some((at, name)), mount) if mount.is_none_or(|mount| at.starts_with(mount)) => {
                (Key::Named(name.clone()), at.as_path())
            }
            (_, Some(mount)) => (Key::Device(dev), mount.as_path()),
            (_, None) => (Key::Device(dev), path),
        };
        if let Some(known) = self.found.iter().position(|(known, _)| *known == key) {
            return known;
        }
        self.found.push((key, Volume { path: begin.into() }));
        self.found.len() - 1
    }

    /// The directories strictly below `root` (canonical) where a volume may begin, each with its device. Those that
    /// cannot be examined stay with the volume around them.
    pub(crate) fn beginnings(&self, storage: &dyn Storage, root: &Path) -> Vec<(PathBuf, u64)> {
        let mut below: Vec<_> = self
            .mounts
            .iter()
            .chain(self.mapped.iter().map(|(at, _)| at))
            .filter(|at| at.starts_with(root) && *at != root)
            .collect();
        below.sort();
        below.dedup();
        below
            .into_iter()
            .filter_map(|at| {
                let stat = storage.stat(at).ok()?;
                (stat.kind == FileKind::Dir).then(|| (at.clone(), stat.dev))
            })
            .collect()
    }

    pub(crate) fn into_vec(self) -> Vec<Volume> {
        self.found.into_iter().map(|(_, volume)| volume).collect()
    }
}

/// Mounts beyond this many bytes of text are ignored.
const MOUNTINFO_BYTES_MAX: usize = 16 << 20;

/// The mount points that this process sees, by their absolute paths; none where the system does not tell.
pub fn mount_points(storage: &dyn Storage) -> Vec<PathBuf> {
    let read = || -> std::io::Result<Vec<u8>> {
        let file = storage
            .dir(Path::new("/proc/self"))?
            .open(Path::new("mountinfo"), OpenHow::Read)?;
        let mut text = Vec::new();
        let mut piece = vec![0; 64 << 10];
        while text.len() < MOUNTINFO_BYTES_MAX {
            match file.read_at(&mut piece, text.len() as u64, Via::Cache)? {
                0 => break,
                n => text.extend_from_slice(&piece[..n]),
            }
        }
        Ok(text)
    };
    match read() {
        Ok(text) => parse_mountinfo(&text),
        Err(e) => {
            tracing::debug!(error = %e, "mount points are not known; each root is one volume");
            Vec::new()
        }
    }
}

/// Field 5 of each line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
fn parse_mountinfo(text: &[u8]) -> Vec<PathBuf> {
    text.split(|&b| b == b'\n')
        .filter_map(|line| line.split(|&b| b == b' ').nth(4))
        .map(|field| OsString::from_vec(unescape(field)).into())
        .collect()
}

/// The kernel writes space, tab, newline and backslash as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                plain.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = tail;
            }
            _ => plain.push(*first),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_the_fifth_field_with_octal_escapes_undone() {
        let text = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            30 27 8:1 / /mnt/a\\040b\\134c\\012 rw shared:1 - ext4 /dev/sda1 rw\n\nshort line\n";
        assert_eq!(
            parse_mountinfo(text),
            [Path::new("/proc"), Path::new("/mnt/a b\\c\n")]
        );
        assert_eq!(unescape(b"\\"), b"\\");
        assert_eq!(unescape(b"\\04"), b"\\04");
        assert_eq!(unescape(b"\\777"), b"\\777");
    }

    #[test]
    fn the_deepest_beginning_decides_and_one_device_is_one_volume() {
        let mut volumes = Volumes {
            mounts: ["/", "/data", "/data/deep/disk", "/data/bind"]
                .map(PathBuf::from)
                .into(),
            mapped: vec![
                ("/data/deep".into(), "b".into()),
                ("/else".into(), "b".into()),
            ],
            found: Vec::new(),
        };
        assert_eq!(volumes.of(Path::new("/data/x"), 7), 0);
        assert_eq!(volumes.of(Path::new("/data/deep/x"), 7), 1);
        assert_eq!(volumes.of(Path::new("/data/deep/disk/x"), 9), 2);
        assert_eq!(volumes.of(Path::new("/data/bind"), 7), 0);
        assert_eq!(volumes.of(Path::new("/else/x"), 1), 1);
        let paths: Vec<_> = volumes.into_vec().into_iter().map(|v| v.path).collect();
        assert_eq!(
            paths,
            ["/data", "/data/deep", "/data/deep/disk"].map(PathBuf::from)
        );
    }
}
