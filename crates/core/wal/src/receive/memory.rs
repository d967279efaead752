//! A file in memory, of one receiver: a segment that no disk of this host needs to keep.

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
