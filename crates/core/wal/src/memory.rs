//! A file in memory, of one receiver or one copy: a segment that no disk of this host needs to keep.
//!
//! Invariants
//! - It has no name, so no other handle reaches it, and it is gone when it is dropped.
//! - Nothing in it is durable: a sync is refused, so that nobody takes one for done.
//! - Bytes read as they were written; a gap reads as zeros. A length for which there is no memory is an error.
//!
//! Leaves to others: how long a segment is, and what is durable instead (`receive/workplace.rs`, `copy.rs`).

use std::io;
use std::ops::Range;

use longshore_facts as facts;
use longshore_io::{FileAttributes, FileKind, FileLock, FileRead, FileWrite, Stat, Via};
use parking_lot::RwLock;

#[derive(Debug)]
pub(crate) struct MemoryFile(RwLock<Vec<u8>>);

impl MemoryFile {
    pub fn zeros(len: usize) -> MemoryFile {
        MemoryFile(RwLock::new(vec![0; len]))
    }

    pub fn of(bytes: &[u8]) -> MemoryFile {
        MemoryFile(RwLock::new(bytes.to_vec()))
    }
}

/// The end of `len_bytes` at `offset`. `FileTooLarge` if no file can reach so far.
fn end_of(offset: u64, len_bytes: usize) -> io::Result<usize> {
    let end = offset.checked_add(len_bytes as u64);
    end.filter(|end| i64::try_from(*end).is_ok())
        .and_then(|end| usize::try_from(end).ok())
        .ok_or_else(|| io::ErrorKind::FileTooLarge.into())
}

/// Extends with zeros. `OutOfMemory` if there is no memory for it.
fn extend(bytes: &mut Vec<u8>, len_bytes: usize) -> io::Result<()> {
    let more = len_bytes.saturating_sub(bytes.len());
    bytes
        .try_reserve_exact(more)
        .map_err(|_| io::ErrorKind::OutOfMemory)?;
    bytes.resize(bytes.len() + more, 0);
    Ok(())
}

impl FileRead for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, _via: Via) -> io::Result<usize> {
        end_of(offset, buf.len())?;
        let bytes = self.0.read();
        let there = bytes.get(offset as usize..).unwrap_or_default();
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
        let end = end_of(offset, buf.len())?;
        if buf.is_empty() {
            return Ok(0);
        }
        let mut bytes = self.0.write();
        extend(&mut bytes, end)?;
        bytes[end - buf.len()..end].copy_from_slice(buf);
        Ok(buf.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = end_of(len, 0)?;
        let mut bytes = self.0.write();
        bytes.truncate(len);
        extend(&mut bytes, len)
    }

    /// Memory is taken when bytes are written.
    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        end_of(range.end, 0).map(drop)
    }

    fn free_unwritten(&self) -> io::Result<()> {
        Ok(())
    }

    /// Nothing in memory is durable.
    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl FileAttributes for MemoryFile {}

impl FileLock for MemoryFile {
    /// No other handle reaches it.
    fn try_lock(&self) -> io::Result<bool> {
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use longshore_io::{OpenHow, SimDisk, Storage};
    use longshore_kit::random::Random;

    use super::*;
    use crate::file_suite;

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
    }

    #[test]
    fn a_file_in_memory_keeps_the_contract_of_files_and_refuses_syncs() {
        file_suite::keeps_its_contract(&|_| file_suite::Lone {
            file: Arc::new(MemoryFile::of(b"")),
            synced: Err(io::ErrorKind::Unsupported),
        });
    }
}
