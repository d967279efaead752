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
//!
//! Leaves to others: when to write which word (`open.rs`, `store`), and whether another program changed the backend
//! (`content.rs`, `watch.rs`).
//!
//! 48 bytes: `LSGUARD1`, state (4: 0 void, 1 starting, 2 running), 0 (4), session (8), tie (16), 0 (4), CRC-32C (4).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, OpenHow, Storage, Via, crc32c};

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

/// The guard file of one backend.
#[derive(Debug)]
pub struct Guard {
    dir: Arc<dyn Dir>,
    name: PathBuf,
    temporary: PathBuf,
}

impl Guard {
    /// `path` need not exist; its directory must.
    pub fn at(storage: &dyn Storage, path: &Path) -> io::Result<Guard> {
        let name = path
            .file_name()
            .ok_or(io::Error::from(io::ErrorKind::InvalidInput))?;
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let mut temporary = name.to_owned();
        temporary.push(".new");
        Ok(Guard {
            dir: storage.dir(parent.unwrap_or(Path::new(".")))?,
            name: PathBuf::from(name),
            temporary: PathBuf::from(temporary),
        })
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
        let guard = Guard::at(&disk, Path::new("/b/guard")).unwrap();
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
}
