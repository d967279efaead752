//! The checksum of every restored file, from the checked bytes of the blocks, in any order.
//!
//! They are written as a `backup_manifest`, so that PostgreSQL's own `pg_verifybackup` can compare the files on disk
//! with the backup.
//!
//! Invariants
//! - A sum comes from the bytes that were decoded and checked, not from the file that was written; ranges that no block
//!   covers count as zeros.
//! - Only unfinished files are in memory; lines of complete files are written at once.
//! - WAL and the manifest itself have no line, as in a server's own manifest.
//! - The head and the last line are written at the end: without them no tool accepts the file.
//!
//! Leaves to others: the text (`longshore-pg`), each byte once (the callers), and the manifest's name and durability
//! (`cluster/mod.rs`).

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{File, Via, crc32c, crc32c_join, crc32c_zeros};
use longshore_media::{Entry, EntryKind, Extent};
use longshore_pg::backup_manifest::{self, HEAD_LEN, ManifestFile, ManifestHash, WalRange};
use parking_lot::Mutex;

/// Bytes of text that are written together.
const FLUSH: usize = 64 << 10;
const NAME: &str = "backup_manifest";
const WAL: &str = "pg_wal";
const VERSION: &str = "PG_VERSION";

/// The checksums that form a `backup_manifest`.
pub struct Checksums {
    file: Arc<dyn File>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    growing: HashMap<PathBuf, PageBuffer>,
    /// The major version, once `PG_VERSION` has been restored.
    major: Option<u32>,
    pending: Vec<u8>,
    written: u64,
    files: u64,
}

#[derive(Default)]
struct PageBuffer {
    /// Offset, length and CRC-32C of each part so far.
    parts: Vec<(u64, u64, u32)>,
    bytes: u64,
    introduced: bool,
    len: u64,
    mtime_ns: i64,
}

impl Checksums {
    /// Writes the manifest to `file`, which is empty.
    pub fn new(file: Arc<dyn File>) -> Checksums {
        let state = State {
            written: HEAD_LEN as u64,
            ..State::default()
        };
        Checksums {
            file,
            state: Mutex::new(state),
        }
    }

    /// Adds the bytes that a block has of an entry. Each byte must be added once.
    pub fn note(&self, entry: &Entry, parts: &[(Extent, &[u8])]) -> io::Result<()> {
        if !is_listed(entry) {
            return Ok(());
        }
        let sums: Vec<_> = parts
            .iter()
            .map(|(extent, bytes)| (extent.offset, u64::from(extent.len), crc32c(bytes)))
            .collect();
        self.note_version(&entry.path, parts);
        let mut state = self.state.lock();
        let bytes: u64 = sums.iter().map(|sum| sum.1).sum();
        if entry.first && bytes == entry.len {
            let crc = join(sums, entry.len);
            return state.put(&*self.file, &entry.path, (entry.len, entry.mtime_ns, crc));
        }
        let growing = state.growing.entry(entry.path.clone()).or_default();
        growing.len = entry.len;
        growing.mtime_ns = entry.mtime_ns;
        growing.introduced |= entry.first;
        growing.bytes += bytes;
        growing.parts.extend(sums);
        if growing.introduced && growing.bytes >= growing.len {
            state.complete(&*self.file, &entry.path)?;
        }
        Ok(())
    }

    /// Reads the major version if this file contains it.
    pub fn note_version(&self, path: &Path, parts: &[(Extent, &[u8])]) {
        if let ([(_, bytes)], true) = (parts, path == Path::new(VERSION)) {
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            self.state.lock().major = text.trim().parse().ok();
        }
    }

    /// The major version, if known by now.
    pub fn major(&self) -> Option<u32> {
        self.state.lock().major
    }

    /// Adds a file whose checksum is already known.
    pub fn add(&self, entry: &Entry, crc32c: u32) -> io::Result<()> {
        if !is_listed(entry) {
            return Ok(());
        }
        let facts = (entry.len, entry.mtime_ns, crc32c);
        self.state.lock().put(&*self.file, &entry.path, facts)
    }

    /// Completes the manifest. False if that is impossible, because there was no `PG_VERSION`.
    pub fn finish(&self, system: u64, ranges: &[WalRange]) -> io::Result<bool> {
        let mut state = self.state.lock();
        // Files with holes: ranges without an extent are zeros.
        let rest: Vec<_> = state.growing.keys().cloned().collect();
        for path in rest {
            state.complete(&*self.file, &path)?;
        }
        let Some(major) = state.major else {
            return Ok(false);
        };
        state
            .pending
            .extend_from_slice(backup_manifest::tail(ranges).as_bytes());
        state.flush(&*self.file)?;
        let head = backup_manifest::head(major, system);
        self.file.write_all_at(head.as_bytes(), 0, Via::Cache)?;
        let mut hash = ManifestHash::default();
        let mut buffer = vec![0; FLUSH];
        let mut at = 0;
        loop {
            let read = self.file.read_full_at(&mut buffer, at, Via::Cache)?;
            if read == 0 {
                break;
            }
            hash.update(&buffer[..read]);
            at += read as u64;
        }
        self.file
            .write_all_at(hash.last_line().as_bytes(), at, Via::Cache)?;
        Ok(true)
    }
}

/// Whether a manifest has a line for the entry.
fn is_listed(entry: &Entry) -> bool {
    entry.kind == EntryKind::File && !entry.path.starts_with(WAL) && entry.path != Path::new(NAME)
}

impl State {
    fn complete(&mut self, file: &dyn File, path: &Path) -> io::Result<()> {
        let Some(grown) = self.growing.remove(path) else {
            return Ok(());
        };
        let crc = join(grown.parts, grown.len);
        self.put(file, path, (grown.len, grown.mtime_ns, crc))
    }

    fn put(
        &mut self,
        file: &dyn File,
        path: &Path,
        (len, mtime_ns, crc32c): (u64, i64, u32),
    ) -> io::Result<()> {
        let listed = ManifestFile {
            path,
            len_bytes: len,
            mtime_ns,
            crc32c,
        };
        let line = backup_manifest::line(&listed, self.files == 0);
        self.files += 1;
        self.pending.extend_from_slice(line.as_bytes());
        if self.pending.len() >= FLUSH {
            self.flush(file)?;
        }
        Ok(())
    }

    fn flush(&mut self, file: &dyn File) -> io::Result<()> {
        file.write_all_at(&self.pending, self.written, Via::Cache)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
}

/// The checksum of a whole file of `len` bytes; ranges that no part covers are zeros.
fn join(mut parts: Vec<(u64, u64, u32)>, len: u64) -> u32 {
    parts.sort_unstable();
    let mut crc = 0;
    let mut at = 0;
    for (offset, bytes, part) in parts {
        crc = crc32c_join(
            crc,
            crc32c_zeros(offset.saturating_sub(at)),
            offset.saturating_sub(at),
        );
        crc = crc32c_join(crc, part, bytes);
        at = offset + bytes;
    }
    let rest = len.saturating_sub(at);
    crc32c_join(crc, crc32c_zeros(rest), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_any_order_with_holes_add_up_to_the_whole() {
        let mut whole = vec![0u8; 100_000];
        whole[10_000..30_000].fill(7);
        whole[50_001..50_004].copy_from_slice(b"abc");
        let parts = vec![
            (50_001, 3, crc32c(b"abc")),
            (20_000, 10_000, crc32c(&[7; 10_000])),
            (10_000, 10_000, crc32c(&[7; 10_000])),
        ];
        assert_eq!(join(parts, 100_000), crc32c(&whole));
        assert_eq!(join(Vec::new(), 0), 0);
        assert_eq!(join(Vec::new(), 77), crc32c(&[0; 77]));
    }
}
