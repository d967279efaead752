//! A file in memory, of one receiver: a segment that no disk of this host needs to keep.
//!
//! Invariants
//! - It has no name, so no other handle reaches it, and it is gone when it is dropped.
//! - Nothing in it is durable: a sync is refused, so that nobody takes one for done.
//! - Bytes read as they were written; a gap reads as zeros.
//!
//! Leaves to others: how long a segment is, and what is durable instead (`workplace.rs`).

use std::io;
use std::ops::Range;

use longshore_facts as facts;
use longshore_io::{FileKind, FileLock, FileRead, FileWrite, Stat, Via};
use parking_lot::RwLock;

#[derive(Debug)]
pub(super) struct MemoryFile(RwLock<Vec<u8>>);

impl MemoryFile {
    pub fn zeros(len: usize) -> MemoryFile {
        MemoryFile(RwLock::new(vec![0; len]))
    }

    pub fn of(bytes: &[u8]) -> MemoryFile {
        MemoryFile(RwLock::new(bytes.to_vec()))
    }
}

impl FileRead for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, _via: Via) -> io::Result<usize> {
        let bytes = self.0.read();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let there = bytes.get(start..).unwrap_or_default();
        let n = there.len().min(buf.len());
        buf[..n].copy_from_slice(&there[..n]);
        Ok(n)
    }

    /// The attributes of a file of the process's own user.
    fn stat(&self) -> io::Result<Stat> {
        let (uid, gid) = facts::own_ids();
        Ok(Stat {
            kind: FileKind::File,
            len: self.0.read().len() as u64,
            mode: 0o600,
            uid,
            gid,
            mtime_ns: 0,
            ctime_ns: 0,
            dev: 0,
            ino: 0,
            links: 0,
        })
    }

    fn is_cached(&self, _range: Range<u64>) -> bool {
        true
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let len = self.0.read().len() as u64;
        Ok((offset < len).then_some(offset..len))
    }
}

impl FileWrite for MemoryFile {
    fn write_at(&self, buf: &[u8], offset: u64, _via: Via) -> io::Result<usize> {
        let mut bytes = self.0.write();
        let range = usize::try_from(offset)
            .ok()
            .and_then(|start| Some(start..start.checked_add(buf.len())?))
            .ok_or(io::ErrorKind::FileTooLarge)?;
        if bytes.len() < range.end {
            bytes.resize(range.end, 0);
        }
        bytes[range].copy_from_slice(buf);
        Ok(buf.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.0.write().resize(len, 0);
        Ok(())
    }

    fn allocate(&self, _range: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    fn free_unwritten(&self) -> io::Result<()> {
        Ok(())
    }

    /// Nothing in memory is durable.
    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl FileLock for MemoryFile {
    /// No other handle reaches it.
    fn try_lock(&self) -> io::Result<bool> {
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longshore_io::{OpenHow, SimDisk, Storage};
    use longshore_kit::random::Random;

    use super::*;

    /// Goal: it holds what a file on a disk would hold. Method: the same calls go to both.
    #[test]
    fn a_file_in_memory_reads_as_one_on_a_disk_after_any_writes() {
        let disk = SimDisk::new(1);
        let dir = disk.create_dir_all(Path::new("/d")).unwrap();
        let file = dir.open(Path::new("file"), OpenHow::CreateNew).unwrap();
        let memory = MemoryFile::of(b"");
        let mut random = Random(7);
        for round in 0..500u64 {
            let at = random.below(5000);
            let bytes = vec![round as u8; random.below(300) as usize];
            match random.below(4) {
                0 => {
                    file.set_len(at).unwrap();
                    memory.set_len(at).unwrap();
                }
                _ => {
                    let to =
                        (&*file as &dyn longshore_io::File).write_all_at(&bytes, at, Via::Cache);
                    to.unwrap();
                    assert_eq!(
                        memory.write_at(&bytes, at, Via::Cache).unwrap(),
                        bytes.len()
                    );
                }
            }
            let len = file.stat().unwrap().len;
            assert_eq!(memory.stat().unwrap().len, len);
            let (mut one, mut other) = ([1; 700], [2; 700]);
            let at = random.below(6000);
            let read = memory.read_at(&mut other, at, Via::Direct).unwrap();
            assert_eq!(file.read_at(&mut one, at, Via::Cache).unwrap(), read);
            assert_eq!(one[..read], other[..read], "round {round}");
            assert_eq!(memory.next_data(len).unwrap(), None);
        }
        assert!(memory.write_at(b"x", u64::MAX, Via::Cache).is_err());
        assert!(memory.sync().is_err(), "nothing in memory is durable");
    }
}
