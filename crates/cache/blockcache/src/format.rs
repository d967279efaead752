//! The bytes of a cache device's metadata: superblock, log pages, records. All numbers are little-endian.
//!
//! Superblock, 144 bytes at the start of its 4 KiB (less than a sector, so a cut write leaves it old or new). Both
//! copies are written one after the other, each synced:
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `LSCACHE5` |
//! | 8 | 4 | slot bytes |
//! | 12 | 4 | slots |
//! | 16 | 4 | log pages: room in each log |
//! | 20 | 4 | 1: stopped cleanly |
//! | 24 | 8 | sequence: of two copies, the higher one counts |
//! | 32 | 8 | log generation; the log's half is its remainder by 2 |
//! | 40 | 8 | session |
//! | 48 | 8 | backend: bytes |
//! | 56 | 8 | backend: inode; of a block device, FNV-1a of what the system knows it by, or 0 |
//! | 64 | 8 | backend: time of its last change (ctime) at a clean stop, ns; 0 of a block device |
//! | 72 | 16 | tie: the guard next to the backend names it, too |
//! | 88 | 4 | pages that the live log had when this was written; after a clean stop, all |
//! | 92 | 4 | slots that it was made with |
//! | 96 | 4 | content of the backend at a clean stop: 0 not known, 1 known, 2 known and it tells of every mount |
//! | 100 | 16 | fingerprint of that content (`content.rs`), or 0 |
//! | 116 | 8 | backend: number of its file system; 0 of a block device |
//! | 124 | 8 | backend: time of its birth, ns; 0 of a block device, and if it is not known |
//! | 132 | 8 | FNV-1a of the machine's boot id in this session, or 0 |
//! | 140 | 4 | CRC-32C of the 140 bytes before |
//!
//! Older versions are read. `LSCACHE4` ends at 116 with its checksum: no birth is known, so a crash leaves no cache.
//! `LSCACHE3` ends at 96 with its checksum and has no content either: the cache begins empty.
//!
//! Log page, 4 KiB: `LSLB`, CRC-32C of all that follows in the page, first 8 bytes of the tie (8), generation (8),
//! session (8), index in the log (4), index at which its commit began (4), bytes of records (4), records, zeros.
//! The session is there because a generation may recur: an interrupted rewrite leaves its pages, and the next session
//! counts on from the same superblock. A page of a later commit proves that all pages before that commit once
//! existed.
//!
//! Each log is stored twice, far apart; a page that is damaged in one copy is read from the other.
//!
//! Record: `1`, slot (4), cache block (8), lines (2), CRC-32C of each line there is (4 each): the slot holds these lines.
//! `2`, slot (4): the slot holds nothing. `3`, fingerprint known (1), fingerprint of the watched places or 0 (16), time of
//! change (8), time up to which this session may write (8): what the backend is while it is served.
//!
//! Invariants
//! - The superblock's checksum covers all bytes before it, and a log page's checksum all bytes after it.
//! - Decoding never panics, whatever the bytes. It returns `None` where a magic number, a checksum, a length or a field
//!   does not fit.
//! - A log page counts only at its own position: tie, generation, session and index must match.
//!
//! Leaves to others: reading and writing the pages, and choosing between two copies (`journal.rs`); limits of sizes
//! (`geometry.rs`, `log_size.rs`); fingerprints of the backend (`content.rs`).

use longshore_io::crc32c;

use crate::geometry::{Geometry, LINE, Lines};
use crate::log_size::set_len;

/// The form in which this version writes caches, as they begin with it.
pub const FORM: &str = "LSCACHE5";
const MAGIC: &[u8] = FORM.as_bytes();
/// Without the backend's birth, and without the boot.
const BIRTHLESS_MAGIC: &[u8; 8] = b"LSCACHE4";
const BIRTHLESS_LEN: usize = 120;
/// Without the backend's content, too.
const OLD_MAGIC: &[u8; 8] = b"LSCACHE3";
const OLD_LEN: usize = 100;
const PAGE_MAGIC: &[u8; 4] = b"LSLB";
pub(crate) const SUPER_LEN: usize = 144;
const SET: u8 = 1;
const CLEAR: u8 = 2;
const BACKEND: u8 = 3;

/// Sixteen random bytes that a cache and the guard next to its backend share.
pub type Tie = [u8; 16];

/// The first half of a SHA-256 over places of a backend.
pub type Fingerprint = [u8; 16];

/// The content of the backend at a clean stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackendContent {
    /// `None`: it could not be read, or an older version stopped.
    pub fingerprint: Option<Fingerprint>,
    /// All of it is file systems whose superblock changes whenever they are mounted for writing.
    pub tells: bool,
}

/// The durable facts about the backend while it is served: a start after a crash compares with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServedBackend {
    /// The fingerprint of the watched places; `None` while a client may be writing to one.
    pub watched: Option<Fingerprint>,
    /// The backend's time of change was this or later when it was last made durable.
    pub changed_ns: i64,
    /// This session writes to the backend until then, and notes a later time before it writes on.
    pub until_ns: i64,
}

/// A backend's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackendMark {
    pub len_bytes: u64,
    pub inode: u64,
    /// Time of the last change, which no user can set; 0 if unknown.
    pub changed_ns: i64,
    /// The number of a file's file system, which may be another one after a boot; 0 of a block device.
    pub dev: u64,
    /// A file's birth; `None` if its file system does not record it, or has another machine's clock.
    pub birth_ns: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    pub geometry: Geometry,
    pub clean: bool,
    pub sequence: u64,
    pub generation: u64,
    pub session: u64,
    pub backend: BackendMark,
    pub tie: Tie,
    /// Log pages that the live log had when this was written: a log with fewer is damaged.
    pub log_pages: u32,
    /// Of a clean stop; otherwise empty.
    pub content: BackendContent,
    /// FNV-1a of the boot id of the machine that began this session; 0 if it is not known.
    pub boot: u64,
}

impl Superblock {
    pub fn encode(&self) -> [u8; SUPER_LEN] {
        let mut out = Vec::with_capacity(SUPER_LEN);
        out.extend(MAGIC);
        out.extend(self.geometry.slot_bytes.to_le_bytes());
        out.extend(self.geometry.slots.to_le_bytes());
        out.extend(self.geometry.log_pages.to_le_bytes());
        out.extend(u32::from(self.clean).to_le_bytes());
        out.extend(self.sequence.to_le_bytes());
        out.extend(self.generation.to_le_bytes());
        out.extend(self.session.to_le_bytes());
        out.extend(self.backend.len_bytes.to_le_bytes());
        out.extend(self.backend.inode.to_le_bytes());
        out.extend(self.backend.changed_ns.to_le_bytes());
        out.extend(self.tie);
        out.extend(self.log_pages.to_le_bytes());
        out.extend(self.geometry.made_slots.to_le_bytes());
        let known = match self.content {
            BackendContent {
                fingerprint: None, ..
            } => 0u32,
            BackendContent { tells: false, .. } => 1,
            BackendContent { tells: true, .. } => 2,
        };
        out.extend(known.to_le_bytes());
        out.extend(self.content.fingerprint.unwrap_or_default());
        out.extend(self.backend.dev.to_le_bytes());
        out.extend(self.backend.birth_ns.unwrap_or(0).to_le_bytes());
        out.extend(self.boot.to_le_bytes());
        out.extend(crc32c(&out).to_le_bytes());
        let mut bytes = [0; SUPER_LEN];
        bytes.copy_from_slice(&out);
        bytes
    }

    /// `None` for any bytes that [`Superblock::encode`], of this version or an older one, did not write.
    pub fn decode(bytes: &[u8]) -> Option<Superblock> {
        let len = match bytes.get(..8)? {
            magic if magic == OLD_MAGIC => OLD_LEN,
            magic if magic == BIRTHLESS_MAGIC => BIRTHLESS_LEN,
            magic if magic == MAGIC => SUPER_LEN,
            _ => return None,
        };
        let bytes = bytes.get(..len)?;
        let mut cursor = Cursor(bytes);
        let _magic = cursor.take(8)?;
        let (slot_bytes, slots, log_pages) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        let made_slots = Cursor(bytes.get(92..)?).u32()?;
        let geometry = Geometry {
            slot_bytes,
            slots,
            log_pages,
            made_slots,
        };
        let clean = cursor.u32()?;
        let superblock = Superblock {
            geometry: geometry.checked()?,
            clean: clean == 1,
            sequence: cursor.u64()?,
            generation: cursor.u64()?,
            session: cursor.u64()?,
            backend: BackendMark {
                len_bytes: cursor.u64()?,
                inode: cursor.u64()?,
                changed_ns: cursor.u64()? as i64,
                ..BackendMark::default()
            },
            tie: cursor.take(16)?.try_into().ok()?,
            log_pages: cursor.u32()?,
            content: BackendContent::default(),
            boot: 0,
        };
        let _made_slots = cursor.u32()?;
        let (content, valid) = match len {
            OLD_LEN => (BackendContent::default(), true),
            _ => {
                let known = cursor.u32()?;
                let fingerprint: Fingerprint = cursor.take(16)?.try_into().ok()?;
                let content = BackendContent {
                    fingerprint: (known > 0).then_some(fingerprint),
                    tells: known == 2,
                };
                (content, known <= 2)
            }
        };
        let mut superblock = Superblock {
            content,
            ..superblock
        };
        if len == SUPER_LEN {
            superblock.backend.dev = cursor.u64()?;
            superblock.backend.birth_ns = Some(cursor.u64()? as i64).filter(|at| *at != 0);
            superblock.boot = cursor.u64()?;
        }
        let sum = cursor.u32()?;
        // This program never counts so high that a counter could overflow.
        let counters = [
            superblock.sequence,
            superblock.generation,
            superblock.session,
        ];
        let sane = counters.iter().all(|counter| *counter < u64::MAX / 2);
        let fits = superblock.log_pages <= superblock.geometry.log_pages;
        let sound = valid && clean <= 1 && fits && sane;
        (sound && sum == crc32c(&bytes[..len - 4])).then_some(superblock)
    }
}

/// One change of the table of slots, or of the facts about the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalRecord {
    Set {
        slot: u32,
        cache_block: u64,
        lines: Lines,
        /// One for each line, in order.
        sums: Vec<u32>,
    },
    Clear {
        slot: u32,
    },
    Backend(ServedBackend),
}

impl JournalRecord {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            JournalRecord::Set {
                slot,
                cache_block,
                lines,
                sums,
            } => {
                out.push(SET);
                out.extend(slot.to_le_bytes());
                out.extend(cache_block.to_le_bytes());
                out.extend(lines.to_le_bytes());
                sums.iter().for_each(|sum| out.extend(sum.to_le_bytes()));
            }
            JournalRecord::Clear { slot } => {
                out.push(CLEAR);
                out.extend(slot.to_le_bytes());
            }
            JournalRecord::Backend(served) => {
                out.push(BACKEND);
                out.push(u8::from(served.watched.is_some()));
                out.extend(served.watched.unwrap_or_default());
                out.extend(served.changed_ns.to_le_bytes());
                out.extend(served.until_ns.to_le_bytes());
            }
        }
    }

    /// The slot that the record concerns, if any.
    pub(crate) fn slot(&self) -> Option<u32> {
        match self {
            JournalRecord::Set { slot, .. } | JournalRecord::Clear { slot } => Some(*slot),
            JournalRecord::Backend(_) => None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            JournalRecord::Set { sums, .. } => set_len(sums.len() as u32),
            JournalRecord::Clear { .. } => 5,
            JournalRecord::Backend(_) => 34,
        }
    }

    fn decode(cursor: &mut Cursor<'_>) -> Option<JournalRecord> {
        match cursor.take(1)?[0] {
            SET => {
                let (slot, cache_block) = (cursor.u32()?, cursor.u64()?);
                let lines = u16::from_le_bytes(cursor.take(2)?.try_into().ok()?);
                let sums: Option<Vec<u32>> =
                    (0..lines.count_ones()).map(|_| cursor.u32()).collect();
                Some(JournalRecord::Set {
                    slot,
                    cache_block,
                    lines,
                    sums: sums?,
                })
            }
            CLEAR => Some(JournalRecord::Clear {
                slot: cursor.u32()?,
            }),
            BACKEND => {
                let known = cursor.take(1)?[0];
                let fingerprint: Fingerprint = cursor.take(16)?.try_into().ok()?;
                let served = ServedBackend {
                    watched: (known == 1).then_some(fingerprint),
                    changed_ns: cursor.u64()? as i64,
                    until_ns: cursor.u64()? as i64,
                };
                (known <= 1).then_some(JournalRecord::Backend(served))
            }
            _ => None,
        }
    }
}

/// The log to which a page belongs, and its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    pub tie: Tie,
    pub generation: u64,
    pub session: u64,
    pub index: u32,
}

/// One page of a log, [`LINE`] bytes, of a commit that `began` at that index; `records` are at most
/// `LINE - PAGE_HEAD` bytes.
pub(crate) fn encode_log_page(place: &LogPosition, began: u32, records: &[u8], out: &mut [u8]) {
    let mut body = Vec::with_capacity(LINE as usize);
    body.extend(&place.tie[..8]);
    body.extend(place.generation.to_le_bytes());
    body.extend(place.session.to_le_bytes());
    body.extend(place.index.to_le_bytes());
    body.extend(began.to_le_bytes());
    body.extend((records.len() as u32).to_le_bytes());
    body.extend(records);
    body.resize(LINE as usize - 8, 0);
    out[..4].copy_from_slice(PAGE_MAGIC);
    out[4..8].copy_from_slice(&crc32c(&body).to_le_bytes());
    out[8..LINE as usize].copy_from_slice(&body);
}

/// The content of a log page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    /// The index at which its commit began: all pages before that were durable.
    pub began: u32,
    pub records: Vec<JournalRecord>,
}

/// The page at `place`; `None` if other bytes are there.
pub fn decode_log_page(place: &LogPosition, bytes: &[u8]) -> Option<LogPage> {
    let bytes = bytes.get(..LINE as usize)?;
    let mut cursor = Cursor(bytes);
    let sound = cursor.take(4)? == PAGE_MAGIC && cursor.u32()? == crc32c(&bytes[8..]);
    let here = cursor.take(8)? == &place.tie[..8]
        && cursor.u64()? == place.generation
        && cursor.u64()? == place.session
        && cursor.u32()? == place.index;
    let began = cursor.u32()?;
    let len = cursor.u32()? as usize;
    if !sound || !here || began > place.index {
        return None;
    }
    let mut cursor = Cursor(cursor.0.get(..len)?);
    let mut records = Vec::new();
    while !cursor.0.is_empty() {
        records.push(JournalRecord::decode(&mut cursor)?);
    }
    Some(LogPage { began, records })
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(len)?;
        self.0 = tail;
        Some(head)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

/// The form of a cache that a newer version made, by its first bytes.
pub fn newer_form(first: &[u8]) -> Option<String> {
    let (known, number) = FORM.split_at(FORM.len() - 1);
    let form = first.get(..FORM.len())?;
    let is_newer = form.starts_with(known.as_bytes()) && &form[known.len()..] > number.as_bytes();
    is_newer.then(|| String::from_utf8_lossy(form).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Superblock {
        Superblock {
            geometry: Geometry::fit(64 << 20, 64 << 10).unwrap(),
            clean: true,
            sequence: 7,
            generation: 3,
            session: 9,
            backend: BackendMark {
                len_bytes: 1 << 30,
                inode: 12,
                changed_ns: -5,
                dev: 77,
                birth_ns: Some(-9),
            },
            tie: [6; 16],
            log_pages: 5,
            content: BackendContent {
                fingerprint: Some([3; 16]),
                tells: true,
            },
            boot: 1 << 60,
        }
    }

    fn birthless() -> Superblock {
        let BackendMark {
            len_bytes,
            inode,
            changed_ns,
            ..
        } = superblock().backend;
        Superblock {
            backend: BackendMark {
                len_bytes,
                inode,
                changed_ns,
                ..BackendMark::default()
            },
            boot: 0,
            ..superblock()
        }
    }

    #[test]
    fn a_superblock_of_the_version_before_is_read_and_knows_no_birth_and_no_boot() {
        let mut old = superblock().encode()[..BIRTHLESS_LEN].to_vec();
        old[..8].copy_from_slice(BIRTHLESS_MAGIC);
        let sum = crc32c(&old[..BIRTHLESS_LEN - 4]);
        old[BIRTHLESS_LEN - 4..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Superblock::decode(&old), Some(birthless()));
        old[90] ^= 1;
        assert_eq!(Superblock::decode(&old), None);
    }

    /// A superblock of an older version: its content is unknown, too.
    #[test]
    fn an_older_superblock_is_read_and_knows_no_content() {
        let mut old = superblock().encode()[..OLD_LEN].to_vec();
        old[..8].copy_from_slice(OLD_MAGIC);
        let sum = crc32c(&old[..OLD_LEN - 4]);
        old[OLD_LEN - 4..].copy_from_slice(&sum.to_le_bytes());
        let expected = Superblock {
            content: BackendContent::default(),
            ..birthless()
        };
        assert_eq!(Superblock::decode(&old), Some(expected));
        old[40] ^= 1;
        assert_eq!(Superblock::decode(&old), None);
    }

    #[test]
    fn a_superblock_comes_back_and_no_bit_of_it_may_differ() {
        let bytes = superblock().encode();
        assert_eq!(Superblock::decode(&bytes), Some(superblock()));
        for bit in 0..SUPER_LEN * 8 {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Superblock::decode(&other), None, "bit {bit}");
        }
        assert_eq!(Superblock::decode(&bytes[..SUPER_LEN - 1]), None);
    }

    #[test]
    fn a_log_page_comes_back_only_where_it_was_written() {
        let place = LogPosition {
            tie: [1; 16],
            generation: 4,
            session: 7,
            index: 2,
        };
        let records = vec![
            JournalRecord::Clear { slot: 9 },
            JournalRecord::Backend(ServedBackend {
                watched: Some([8; 16]),
                changed_ns: -7,
                until_ns: 1 << 60,
            }),
            JournalRecord::Backend(ServedBackend::default()),
            JournalRecord::Set {
                slot: 3,
                cache_block: 1 << 40,
                lines: 0b1000_0000_0000_0101,
                sums: vec![1, 2, 3],
            },
        ];
        let mut body = Vec::new();
        records.iter().for_each(|r| r.encode(&mut body));
        assert_eq!(
            body.len(),
            records.iter().map(JournalRecord::len).sum::<usize>()
        );
        let mut page = vec![0; LINE as usize];
        encode_log_page(&place, 1, &body, &mut page);
        let expected = LogPage { began: 1, records };
        assert_eq!(decode_log_page(&place, &page), Some(expected));
        let others = [
            LogPosition { index: 3, ..place },
            LogPosition {
                generation: 6,
                ..place
            },
            LogPosition {
                session: 8,
                ..place
            },
            LogPosition {
                tie: [2; 16],
                ..place
            },
        ];
        for other in others {
            assert_eq!(decode_log_page(&other, &page), None);
        }
        for bit in (0..LINE as usize * 8).step_by(61) {
            let mut damaged = page.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_log_page(&place, &damaged), None, "bit {bit}");
        }
    }
}
