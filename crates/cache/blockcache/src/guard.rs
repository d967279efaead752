//! The guard: a small file next to the backend that says which cache may be believed about it.
//!
//! A cache device that fails can return later, with a table that does not include the writes made meanwhile. Nothing
//! could be written to it while it was gone. So the backend's side keeps a record, and a cache whose superblock does
//! not match it is treated as empty. Opening goes through *starting*, in which two sessions are believed, because
//! nothing is written to the backend between them.
//!
//! Invariants
//! - A lost, damaged or foreign guard believes no cache.
//! - After [`Guard::void`] has returned, no cache written before is believed again.
//! - Only a guard, or an empty file, is ever replaced or removed; any other file at its place is an error. It is always
//!   replaced by a rename, so a power cut leaves it whole, and a file that is cut short is none.
//! - A backend's guard has one name: links to it are followed when it is taken, and other names of it are refused.
//! - While a guard is taken, nobody else takes it: a file next to it is locked, which is never replaced nor removed.
//!
//! Leaves to others: when to write which word (`open.rs`, `store`), and whether another program changed the backend
//! (`content.rs`, `watch.rs`).
//!
//! 48 bytes: `LSGUARD1`, state (4: 0 void, 1 starting, 2 running), 0 (4), session (8), tie (16), 0 (4), CRC-32C (4).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, File, FileKind, OpenHow, Stat, Storage, Via, crc32c};

use crate::Error;
use crate::format::{Superblock, Tie};

const MAGIC: &[u8; 8] = b"LSGUARD1";
const LEN: usize = 48;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Void,
    /// Between the previous session and this one.
    Starting {
        tie: Tie,
        session: u64,
    },
    Running {
        tie: Tie,
        session: u64,
    },
}

impl Word {
    /// Whether the table of this superblock is true of the backend.
    pub fn believes(&self, superblock: &Superblock) -> bool {
        match self {
            Word::Void => false,
            Word::Starting { tie, session } => {
                *tie == superblock.tie
                    && (superblock.session == *session
                        || superblock.session.checked_add(1) == Some(*session))
            }
            Word::Running { tie, session } => {
                *tie == superblock.tie && superblock.session == *session
            }
        }
    }

    fn encode(&self) -> Vec<u8> {
        let (state, session, tie) = match *self {
            Word::Void => (0u32, 0, [0; 16]),
            Word::Starting { tie, session } => (1, session, tie),
            Word::Running { tie, session } => (2, session, tie),
        };
        let mut out = Vec::with_capacity(LEN);
        out.extend(MAGIC);
        out.extend(state.to_le_bytes());
        out.extend([0; 4]);
        out.extend(session.to_le_bytes());
        out.extend(tie);
        out.extend([0; 4]);
        out.extend(crc32c(&out).to_le_bytes());
        out
    }

    /// Bytes that [`Word::encode`] did not write are void.
    pub fn decode(bytes: &[u8]) -> Word {
        let field = |at: usize| {
            bytes
                .get(at..at + 4)?
                .try_into()
                .ok()
                .map(u32::from_le_bytes)
        };
        let long = |at: usize| {
            bytes
                .get(at..at + 8)?
                .try_into()
                .ok()
                .map(u64::from_le_bytes)
        };
        let sound = bytes.len() == LEN
            && bytes.starts_with(MAGIC)
            && field(LEN - 4) == Some(crc32c(&bytes[..LEN - 4]));
        let tie = bytes.get(24..40).and_then(|tie| tie.try_into().ok());
        match (sound, field(8), long(16), tie) {
            (true, Some(1), Some(session), Some(tie)) => Word::Starting { tie, session },
            (true, Some(2), Some(session), Some(tie)) => Word::Running { tie, session },
            _ => Word::Void,
        }
    }
}

/// The guard file of one backend, which nobody else takes meanwhile.
#[derive(Debug, Clone)]
pub struct Guard {
    dir: Arc<dyn Dir>,
    path: PathBuf,
    name: PathBuf,
    temporary: PathBuf,
    /// Locked; the lock ends with the last clone.
    _lock: Arc<dyn File>,
    /// A file below the backend that nobody else may serve meanwhile; locked like the guard.
    _below: Option<Arc<dyn File>>,
}

impl Guard {
    /// Takes the guard at `path`, which need not exist; its directory must.
    ///
    /// Errors: [`Error::NotAGuard`] if a file that is no guard is there, or in the place of its next version;
    /// [`Error::GuardNames`]; [`Error::InUse`] if somebody else has taken it.
    pub fn take(storage: &dyn Storage, path: &Path) -> Result<Guard, Error> {
        let failed = |action| {
            move |source| Error::Io {
                action,
                path: path.to_owned(),
                source,
            }
        };
        let path = real(storage, path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::NotAGuard { path });
        };
        let dir = storage
            .dir(parent)
            .map_err(failed("open the directory of"))?;
        let with = |end: &str| {
            let mut name = name.to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        let (temporary, lock) = (with(".longshore-new"), with(".lock"));
        for name in [Path::new(name), &temporary] {
            if !may_replace(&*dir, name, name == temporary).map_err(failed("read"))? {
                let path = path.with_file_name(name);
                return Err(Error::NotAGuard { path });
            }
        }
        match dir.stat(Path::new(name)) {
            Ok(found) if found.links > 1 => return Err(Error::GuardNames { path }),
            _ => {}
        }
        let opened = match dir.open(&lock, OpenHow::ReadWrite) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                match dir.open(&lock, OpenHow::CreateNew) {
                    // Another process made it meanwhile.
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                        dir.open(&lock, OpenHow::ReadWrite)
                    }
                    made => made,
                }
            }
            opened => opened,
        };
        let file = opened.map_err(failed("open the lock of"))?;
        if !file.try_lock().map_err(failed("lock"))? {
            return Err(Error::InUse {
                path: path.with_file_name(lock),
            });
        }
        Ok(Guard {
            dir,
            name: PathBuf::from(name),
            path,
            temporary,
            _lock: file,
            _below: None,
        })
    }

    /// Keeps another file locked as long as the guard is.
    pub(crate) fn with_below(self, below: Option<Arc<dyn File>>) -> Guard {
        Guard {
            _below: below,
            ..self
        }
    }

    /// Where it is, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `None`: there is no such file.
    pub fn stat(&self) -> io::Result<Option<Stat>> {
        match self.dir.stat(&self.name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// The number of the file system that holds it.
    pub fn dev(&self) -> io::Result<u64> {
        Ok(self.dir.stat(Path::new(""))?.dev)
    }

    pub fn read(&self) -> io::Result<Word> {
        let file = match self.dir.open(&self.name, OpenHow::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Word::Void),
            opened => opened?,
        };
        let mut bytes = [0; LEN + 1];
        let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
        Ok(Word::decode(&bytes[..len]))
    }

    /// Durable when the call returns; after an error, the old or the new word is there.
    pub fn write(&self, word: &Word) -> io::Result<()> {
        // A power cut may have left it.
        if !may_replace(&*self.dir, &self.temporary, true)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match self.dir.remove_file(&self.temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = self.dir.open(&self.temporary, OpenHow::CreateNew)?;
        file.write_all_at(&word.encode(), 0, Via::Cache)?;
        file.sync()?;
        self.dir.rename(&self.temporary, &self.name)?;
        self.dir.sync(Path::new(""))
    }

    /// From now on no cache is believed, even after a power cut.
    pub fn void(&self) -> io::Result<()> {
        self.write(&Word::Void).or_else(|_| {
            // A full file system still allows removing a file.
            match self.dir.remove_file(&self.name) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => self.dir.sync(Path::new("")),
            }
        })
    }
}

/// The path without links, its last name included: a guard that is replaced under the name of a link would leave the
/// guard behind the link as it was.
fn real(storage: &dyn Storage, path: &Path) -> Result<PathBuf, Error> {
    let failed = |source| Error::Io {
        action: "find the directory of",
        path: path.to_owned(),
        source,
    };
    let not_a_guard = || Error::NotAGuard {
        path: path.to_owned(),
    };
    let name = path.file_name().ok_or_else(not_a_guard)?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let parent = storage
        .canonical(parent.unwrap_or(Path::new(".")))
        .map_err(failed)?;
    let named = storage.dir(&parent).map_err(failed)?.stat(Path::new(name));
    match named {
        Ok(found) if found.kind == FileKind::Symlink => {
            // A link to nothing: the next start may find something behind it.
            storage.canonical(path).map_err(|_| Error::GuardNames {
                path: path.to_owned(),
            })
        }
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(e)),
        _ => Ok(parent.join(name)),
    }
}

/// Whether nothing of anybody else is at `name`: nothing at all, an empty file, or a guard, damaged or not. Of a guard
/// that is being written, a power cut may leave zeros, or its first bytes.
fn may_replace(dir: &dyn Dir, name: &Path, is_unfinished: bool) -> io::Result<bool> {
    let found = match dir.stat(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        found => found?,
    };
    if found.kind != FileKind::File {
        return Ok(false);
    }
    let mut bytes = [0; LEN + 1];
    let len = dir
        .open(name, OpenHow::Read)?
        .read_full_at(&mut bytes, 0, Via::Cache)?;
    let bytes = &bytes[..len];
    let head = &bytes[..len.min(MAGIC.len())];
    Ok(match is_unfinished {
        true => len <= LEN && (MAGIC.starts_with(head) || longshore_io::is_zero(bytes)),
        false => len == 0 || len == LEN && head == MAGIC,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::SimDisk;

    #[test]
    fn a_word_comes_back_and_anything_else_is_void() {
        let words = [
            Word::Void,
            Word::Starting {
                tie: [3; 16],
                session: 8,
            },
            Word::Running {
                tie: [4; 16],
                session: u64::MAX,
            },
        ];
        for word in words {
            let bytes = word.encode();
            assert_eq!((Word::decode(&bytes), bytes.len()), (word, LEN));
            for bit in 0..LEN * 8 {
                let mut other = bytes.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Word::decode(&other), Word::Void, "bit {bit}");
            }
            assert_eq!(Word::decode(&bytes[..LEN - 1]), Word::Void);
        }
    }

    #[test]
    fn a_lost_guard_trusts_no_cache_and_a_full_disk_does_not_prevent_voiding() {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("/b")).unwrap();
        let guard = Guard::take(&disk, Path::new("/b/guard")).unwrap();
        assert_eq!(guard.read().unwrap(), Word::Void);
        let word = Word::Running {
            tie: [1; 16],
            session: 1,
        };
        guard.write(&word).unwrap();
        assert_eq!(guard.read().unwrap(), word);
        disk.set_capacity("/b", 0).unwrap();
        guard.void().unwrap();
        assert_eq!(guard.read().unwrap(), Word::Void);
    }

    #[test]
    fn a_file_of_somebody_else_is_never_replaced_nor_removed() {
        let disk = SimDisk::new(1);
        disk.create_dir_all(Path::new("/b")).unwrap();
        let guard = Path::new("/b/guard");
        let take = || Guard::take(&disk, guard);
        let word = Word::Void.encode();
        let foreign = [
            b"x".to_vec(),
            vec![7; LEN],
            word[..LEN - 1].to_vec(),
            [&word[..], b"x"].concat(),
        ];
        for bytes in &foreign {
            disk.write_file("/b/guard", bytes).unwrap();
            assert!(matches!(take(), Err(Error::NotAGuard { .. })), "{bytes:?}");
            assert_eq!(&disk.read_file("/b/guard").unwrap(), bytes);
        }
        let mut damaged = word.clone();
        damaged[20] ^= 1;
        for bytes in [Vec::new(), damaged, word] {
            disk.write_file("/b/guard", &bytes).unwrap();
            take().unwrap().void().unwrap();
        }
        let new = "/b/guard.longshore-new";
        let held = take().unwrap();
        for bytes in [b"precious".to_vec(), vec![0; LEN + 1]] {
            disk.write_file(new, &bytes).unwrap();
            held.write(&Word::Void).unwrap_err();
            assert_eq!(disk.read_file(new).unwrap(), bytes);
        }
        drop(held);
        assert!(matches!(take(), Err(Error::NotAGuard { .. })));
        for bytes in [&b""[..], b"LSGU", &[0; LEN]] {
            disk.write_file(new, bytes).unwrap();
            take().unwrap().write(&Word::Void).unwrap();
        }
    }

    #[test]
    fn a_guard_is_taken_once_by_its_one_name() {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir_all(Path::new("/b")).unwrap();
        let take = |path: &str| Guard::take(&disk, Path::new(path));
        let held = take("/b/guard").unwrap();
        dir.symlink(Path::new("guard"), Path::new("link")).unwrap();
        // Nothing is behind the link yet.
        assert!(matches!(take("/b/link"), Err(Error::GuardNames { .. })));
        held.write(&Word::Void).unwrap();
        for name in ["/b/guard", "/b/link"] {
            assert!(matches!(take(name), Err(Error::InUse { .. })));
        }
        drop(held);
        let word = Word::Running {
            tie: [1; 16],
            session: 1,
        };
        take("/b/link").unwrap().write(&word).unwrap();
        assert_eq!(take("/b/guard").unwrap().read().unwrap(), word);
        dir.hard_link(Path::new("guard"), Path::new("other"))
            .unwrap();
        for name in ["/b/guard", "/b/other"] {
            assert!(matches!(take(name), Err(Error::GuardNames { .. })));
        }
    }
}
