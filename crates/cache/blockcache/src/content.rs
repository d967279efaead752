//! The content of a backend, in the few places that change whenever another system works with it, so that a cache is
//! not believed about a backend that was mounted or written without it.
//!
//! *Watched* are the first and the last line, and the line of each file system's superblock: ext2, ext3 and ext4
//! count mounts there and note their times, btrfs its generation, XFS the log sequence number of its last clean
//! unmount. At a clean stop the head of XFS's log counts, too; it moves with the first change after a mount. A backend
//! *tells* if it consists of such file systems only: as a whole, or in each partition. For all other content (volume
//! managers, encrypted containers, swap, databases on a bare device) nothing shows whether it was written to.
//!
//! Invariants
//! - Equal bytes give equal fingerprints. Looking at unknown bytes takes bounded work and never panics.
//! - In doubt a backend does not tell. What it tells can refute a cache and proves nothing: a superblock may be left over
//!   from earlier use, and counts no write to the bare device.
//!
//! Leaves to others: deciding whether a cache is believed (`open.rs`), and the bytes of a fingerprint (`format.rs`).

use std::io;
use std::ops::Range;

use longshore_io::{File, Via};
use sha2::{Digest, Sha256};

use crate::format::{BackendContent, Fingerprint};
use crate::geometry::LINE;

const EXT_AT: u64 = 1024;
const BTRFS_AT: u64 = 64 << 10;
/// The most partitions of a table that are examined; a backend with more does not tell.
const PARTITIONS_MAX: usize = 256;
const SECTOR: u64 = 512;

/// The findings on a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Look {
    /// Whole lines, except at the end of the backend, in no order.
    pub watched: Vec<Range<u64>>,
    /// The fingerprint of the watched places.
    pub fingerprint: Fingerprint,
    /// The content as a clean stop notes it.
    pub content: BackendContent,
}

/// Reads the places that show changes.
pub(crate) fn look(backend: &dyn File, len_bytes: u64, via: Via) -> io::Result<Look> {
    let disk = Disk {
        backend,
        len_bytes,
        via,
    };
    let mut found = ContentFindings::default();
    let last = len_bytes.saturating_sub(LINE) / LINE * LINE;
    found
        .watched
        .extend([0..len_bytes.min(LINE), last..len_bytes]);
    found.tells = disk.volumes(&mut found)?;
    let ContentFindings {
        mut watched,
        heads,
        tells,
    } = found;
    watched.retain(|range| !range.is_empty());
    watched.dedup();
    let fingerprint = fingerprint(backend, &watched, via)?;
    let mut all = Sha256::new();
    all.update(fingerprint);
    all.update(&heads);
    Ok(Look {
        watched,
        fingerprint,
        content: BackendContent {
            fingerprint: Some(half(all)),
            tells,
        },
    })
}

/// The fingerprint of these ranges of a backend, and of their positions.
pub(crate) fn fingerprint(
    backend: &dyn File,
    ranges: &[Range<u64>],
    via: Via,
) -> io::Result<Fingerprint> {
    let mut all = Sha256::new();
    for range in ranges {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        backend.read_exact_at(&mut bytes, range.start, via)?;
        all.update(range.start.to_le_bytes());
        all.update(range.end.to_le_bytes());
        all.update(&bytes);
    }
    Ok(half(all))
}

fn half(all: Sha256) -> Fingerprint {
    let whole = all.finalize();
    let mut half = Fingerprint::default();
    half.copy_from_slice(&whole[..16]);
    half
}

#[derive(Default)]
struct ContentFindings {
    watched: Vec<Range<u64>>,
    /// Heads of logs, as bytes.
    heads: Vec<u8>,
    tells: bool,
}

struct Disk<'a> {
    backend: &'a dyn File,
    len_bytes: u64,
    via: Via,
}

/// The content of a partition table.
enum Table {
    None,
    Partitions(Vec<Range<u64>>),
    /// There is one that is not understood.
    Strange,
}

impl Disk<'_> {
    /// Bytes at a position; zeros after the end.
    fn read(&self, at: u64, len_bytes: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len_bytes];
        if at < self.len_bytes {
            self.backend.read_full_at(&mut bytes, at, self.via)?;
        }
        Ok(bytes)
    }

    /// Examines the whole and its partitions; returns whether all of it tells.
    fn volumes(&self, found: &mut ContentFindings) -> io::Result<bool> {
        let whole = self.file_system(0..self.len_bytes, found)?;
        Ok(match (self.table()?, whole) {
            (Table::None, whole) => whole,
            // One of the two is left over from earlier use, and nothing shows which.
            (Table::Strange, _) | (Table::Partitions(_), true) => false,
            (Table::Partitions(parts), false) => {
                let mut all = true;
                for part in parts {
                    all &= self.file_system(part, found)?;
                }
                all
            }
        })
    }

    /// Watches the file systems that a volume may hold; returns whether it certainly is one.
    fn file_system(&self, volume: Range<u64>, found: &mut ContentFindings) -> io::Result<bool> {
        let at = volume.start;
        let head = self.read(at, 4 << 10)?;
        let btrfs = self.read(at + BTRFS_AT, 4 << 10)?;
        let is_ext = head[EXT_AT as usize + 0x38..][..2] == [0x53, 0xef];
        let is_xfs = head.starts_with(b"XFSB");
        let is_btrfs = &btrfs[0x40..0x48] == b"_BHRfS_M";
        let mut watch = |range: Range<u64>| {
            let (start, end) = (range.start / LINE * LINE, range.end.next_multiple_of(LINE));
            found.watched.push(start..end.min(self.len_bytes));
        };
        if is_ext || is_xfs {
            watch(at..at + 2 * EXT_AT);
        }
        if is_btrfs {
            watch(at + BTRFS_AT..at + BTRFS_AT + LINE);
        }
        let mut sure = u32::from(is_ext) + u32::from(is_xfs) + u32::from(is_btrfs) == 1;
        // A volume that contains other volumes may still show an earlier file system.
        let labels = head.chunks(SECTOR as usize);
        sure &= !head.starts_with(b"LUKS\xba\xbe")
            && labels.take(4).all(|s| !s.starts_with(b"LABELONE"));
        if is_xfs {
            match self.xfs_head(&head, &volume)? {
                Some(head) => found.heads.extend(head),
                None => sure = false,
            }
        }
        Ok(sure && volume.end <= self.len_bytes)
    }

    /// The head of XFS's log, with the last record before it; `None` if the log is elsewhere or not understood.
    fn xfs_head(&self, sb: &[u8], volume: &Range<u64>) -> io::Result<Option<Vec<u8>>> {
        let long = |at: usize| u64::from_be_bytes(sb[at..at + 8].try_into().unwrap_or_default());
        let int = |at: usize| {
            u64::from(u32::from_be_bytes(
                sb[at..at + 4].try_into().unwrap_or_default(),
            ))
        };
        let (fs_block_bytes, start, group_fs_blocks, log_fs_blocks) =
            (int(4), long(48), int(84), int(96));
        let shift = u32::from(sb[124]);
        if !(512..=65536).contains(&fs_block_bytes)
            || start == 0
            || log_fs_blocks == 0
            || shift > 31
        {
            return Ok(None);
        }
        let (group, within) = (start >> shift, start & ((1 << shift) - 1));
        let at = group.checked_mul(group_fs_blocks).and_then(|fs_blocks| {
            fs_blocks
                .checked_add(within)?
                .checked_mul(fs_block_bytes)?
                .checked_add(volume.start)
        });
        let Some(at) = at.filter(|at| {
            at.checked_add(log_fs_blocks * fs_block_bytes)
                .is_some_and(|end| end <= volume.end)
        }) else {
            return Ok(None);
        };
        let sectors = log_fs_blocks * fs_block_bytes / SECTOR;
        let cycle = |sector: u64| -> io::Result<u32> {
            let bytes = self.read(at + sector * SECTOR, 8)?;
            let word =
                |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
            Ok(if word(0) == 0xfeed_babe {
                word(4)
            } else {
                word(0)
            })
        };
        // All sectors before the head belong to one round through the log, all after it to the round before.
        let first = cycle(0)?;
        let (mut same, mut other) = (0, sectors);
        while same + 1 < other {
            let middle = same + (other - same) / 2;
            match cycle(middle)? == first {
                true => same = middle,
                false => other = middle,
            }
        }
        let before = other.saturating_sub(128);
        let mut head = first.to_le_bytes().to_vec();
        head.extend(other.to_le_bytes());
        head.extend(self.read(at + before * SECTOR, ((other - before) * SECTOR) as usize)?);
        Ok(Some(head))
    }

    fn table(&self) -> io::Result<Table> {
        for sector in [SECTOR, LINE] {
            let header = self.read(sector, SECTOR as usize)?;
            if header.starts_with(b"EFI PART") {
                return self.gpt(&header, sector);
            }
        }
        let first = self.read(0, SECTOR as usize)?;
        if first[510..] != [0x55, 0xaa] {
            return Ok(Table::None);
        }
        let mut parts = Vec::new();
        for entry in first[446..510].chunks(16) {
            let int = |at: usize| {
                u64::from(u32::from_le_bytes(
                    entry[at..at + 4].try_into().unwrap_or_default(),
                ))
            };
            let (status, kind) = (entry[0], entry[4]);
            let part = int(8) * SECTOR..(int(8) + int(12)) * SECTOR;
            match kind {
                0 if entry == [0; 16] => {}
                // Boot sectors of file systems end in the same bytes, with code at the position of the table.
                _ if status & 0x7f != 0
                    || part.start == 0
                    || part.is_empty()
                    || part.end > self.len_bytes =>
                {
                    return Ok(Table::None);
                }
                // A nested table, or one whose other half is missing.
                0 | 5 | 0xf | 0x85 | 0xee => return Ok(Table::Strange),
                _ => parts.push(part),
            }
        }
        Ok(match parts.is_empty() {
            true => Table::None,
            false => Table::Partitions(parts),
        })
    }

    fn gpt(&self, header: &[u8], sector: u64) -> io::Result<Table> {
        let long = |bytes: &[u8], at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
        };
        let int = |at: usize| {
            u32::from_le_bytes(header[at..at + 4].try_into().unwrap_or_default()) as usize
        };
        let (entries, count, size) = (long(header, 72), int(80), int(84));
        let Some(at) = entries
            .checked_mul(sector)
            .filter(|at| *at < self.len_bytes)
        else {
            return Ok(Table::Strange);
        };
        if count > PARTITIONS_MAX || !(128..=4096).contains(&size) {
            return Ok(Table::Strange);
        }
        let mut parts = Vec::new();
        for entry in self.read(at, count * size)?.chunks(size) {
            if entry[..16] == [0; 16] {
                continue;
            }
            let (first, last) = (long(entry, 32), long(entry, 40));
            let end = last.checked_add(1).and_then(|end| end.checked_mul(sector));
            match (first.checked_mul(sector), end) {
                (Some(start), Some(end)) if start < end && end <= self.len_bytes => {
                    parts.push(start..end)
                }
                _ => return Ok(Table::Strange),
            }
        }
        Ok(match parts.is_empty() {
            true => Table::Strange,
            false => Table::Partitions(parts),
        })
    }
}

#[cfg(test)]
mod tests;
