//! SQLite's rollback journal, read where other programs would roll it back.
//!
//! Before a writer changes a page of the database file, it copies the page to the journal. If it dies, the journal is
//! *hot*: the valid state is the database file with those original pages in place of its own, truncated to the length
//! in the journal's header. SQLite writes the originals back when it opens the database.
//!
//! Invariants
//! - Nothing is written: the originals are used in place of the file's pages.
//! - Validity is decided exactly as in `pager_playback`: runs of records begin at sectors, each with a count of records and a
//!   nonce for their checksums. The first record that is short, has no page number or does not match its checksum ends
//!   the journal; pages beyond the old length are skipped.
//! - A journal of several databases is recognised, and never taken for one of this database alone.
//!
//! Leaves to others: the locks ([`super::snapshot`]), and reading the originals (`overlay.rs`).
//!
//! Source: SQLite file format, section 3; `pager.c` (`hasHotJournal`, `readJournalHdr`, `readSuperJournal`,
//! `pager_playback`). All numbers are big-endian.

use std::path::Path;

use longshore_io::{File, Via};

use super::frames::be;
use super::overlay::{Overlay, PageRecord, RECORDS_MAX, Records};
use super::records::{AFTER_PAGE, BEFORE_PAGE, RecordRun, checksum, stored_checksum};
use crate::Error;

const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
const HEADER_BYTES: usize = 28;

/// SQLite looks for a header only in journals of at least this length.
const JOURNAL_BYTES_MIN: u64 = 512;

/// A record count that means: the rest of the journal is records.
const TO_THE_END: u32 = u32::MAX;

/// The page that holds SQLite's lock bytes is never written.
const LOCK_BYTE: u32 = 0x4000_0000;

/// SQLite ignores longer names of super-journals.
const NAME_BYTES_MAX: u32 = 512;

/// The meaning of a database's journal for its state.
#[derive(Debug)]
pub(super) enum JournalState {
    /// The transaction has ended: the journal's header is empty.
    Ended,
    /// The journal ends before its first header is complete, so nothing was changed yet.
    Unused,
    /// The transaction spans several databases.
    Several,
    Hot(Originals),
}

/// The state before the transaction.
#[derive(Debug)]
pub(super) struct Originals {
    /// 512 to 65,536.
    pub(super) page_bytes: u32,
    /// Pages in the database before the transaction; 0: it was empty.
    pub(super) pages: u32,
    pub(super) overlay: Overlay,
}

/// Whether SQLite would treat the journal as hot if no writer is alive: its first byte is not zero.
pub(super) fn looks_hot(journal: &dyn File, path: &Path) -> Result<bool, Error> {
    let mut first = [0];
    read(journal, path, &mut first, 0)?;
    Ok(first != [0])
}

/// Reads a journal whose writer is dead. `page_bytes` applies if the header has no page size: before SQLite 3.5.8.
/// Errors: [`Error::Read`]; [`Error::HotJournal`] if it has more records than are kept in memory.
pub(super) fn find(
    journal: &dyn File,
    path: &Path,
    page_bytes: u32,
) -> Result<JournalState, Error> {
    if !looks_hot(journal, path)? {
        return Ok(JournalState::Ended);
    }
    let len = match journal.stat() {
        Ok(stat) => stat.len,
        Err(source) => {
            return Err(Error::Io {
                action: "look at",
                path: path.into(),
                source,
            });
        }
    };
    if names_a_super_journal(journal, path, len)? {
        return Ok(JournalState::Several);
    }
    let mut head = [0; HEADER_BYTES];
    if len < JOURNAL_BYTES_MIN
        || read(journal, path, &mut head, 0)? < HEADER_BYTES
        || !head.starts_with(&MAGIC)
    {
        return Ok(JournalState::Unused);
    }
    let pages = be(&head, 16);
    let sector = be(&head, 20);
    let page_bytes = match be(&head, 24) {
        0 => page_bytes,
        told => told,
    };
    let fits = |n: u32, min: u32| n.is_power_of_two() && (min..=65_536).contains(&n);
    if !fits(page_bytes, 512) || !fits(sector, 32) {
        return Ok(JournalState::Unused);
    }
    let mut reading = JournalReader {
        journal,
        path,
        len,
        sector: sector.into(),
        page_bytes,
        pages,
        runs: Vec::new(),
        places: Vec::new(),
        count: 0,
    };
    reading.all(&head)?;
    let records = Records::Journal(reading.runs);
    Ok(JournalState::Hot(Originals {
        page_bytes,
        pages,
        overlay: Overlay::new(page_bytes, records, reading.places),
    }))
}

struct JournalReader<'a> {
    journal: &'a dyn File,
    path: &'a Path,
    len: u64,
    sector: u64,
    page_bytes: u32,
    pages: u32,
    runs: Vec<RecordRun>,
    places: Vec<PageRecord>,
    /// Records so far.
    count: u32,
}

impl JournalReader<'_> {
    fn all(&mut self, first_head: &[u8]) -> Result<(), Error> {
        let mut head = [0; HEADER_BYTES];
        head.copy_from_slice(first_head);
        let mut at = self.sector;
        loop {
            let Some(end) = self.run(&head, at)? else {
                return Ok(());
            };
            at = end.next_multiple_of(self.sector);
            if at + self.sector > self.len
                || read(self.journal, self.path, &mut head, at)? < 20
                || !head.starts_with(&MAGIC)
            {
                return Ok(());
            }
            at += self.sector;
        }
    }

    /// Adds the records from `at`; returns where they end, or `None` if the journal ends with them.
    fn run(&mut self, head: &[u8], mut at: u64) -> Result<Option<u64>, Error> {
        let nonce = be(head, 12);
        let record_bytes = (BEFORE_PAGE + self.page_bytes as usize + AFTER_PAGE) as u64;
        let count = match be(head, 8) {
            TO_THE_END => self.len.saturating_sub(self.sector) / record_bytes,
            count => count.into(),
        };
        if count > 0 {
            self.runs.push(RecordRun {
                first: self.count,
                offset: at,
                nonce,
            });
        }
        let mut record = vec![0; record_bytes as usize];
        for _ in 0..count {
            if read(self.journal, self.path, &mut record, at)? < record.len() {
                return Ok(None);
            }
            at += record_bytes;
            let page = be(&record, 0);
            if page == 0 || page == LOCK_BYTE / self.page_bytes + 1 {
                return Ok(None);
            }
            if page <= self.pages {
                if checksum(nonce, &record) != stored_checksum(&record) {
                    return Ok(None);
                }
                self.places.push(PageRecord {
                    page,
                    record: self.count,
                });
            }
            self.count += 1;
            if self.count > RECORDS_MAX {
                return Err(Error::HotJournal {
                    path: self.path.into(),
                    what: "it has more pages than can be tracked in memory",
                });
            }
        }
        Ok(Some(at))
    }
}

/// Whether the journal ends with a super-journal name that SQLite would accept.
fn names_a_super_journal(journal: &dyn File, path: &Path, len: u64) -> Result<bool, Error> {
    let mut end = [0; 16];
    let Some(at) = len.checked_sub(end.len() as u64) else {
        return Ok(false);
    };
    read(journal, path, &mut end, at)?;
    let (name_bytes, sum) = (be(&end, 0), be(&end, 4));
    let fits = (1..=NAME_BYTES_MAX).contains(&name_bytes) && u64::from(name_bytes) <= at;
    if !fits || !end.ends_with(&MAGIC) {
        return Ok(false);
    }
    let mut name = vec![0; name_bytes as usize];
    read(journal, path, &mut name, at - u64::from(name_bytes))?;
    // C's `char` is signed on some machines and unsigned on others.
    let unsigned = name
        .iter()
        .fold(0u32, |sum, b| sum.wrapping_add((*b).into()));
    let signed = name
        .iter()
        .fold(0u32, |sum, b| sum.wrapping_add_signed((*b as i8).into()));
    Ok(sum == unsigned || sum == signed)
}

/// Returns the number of bytes read.
fn read(journal: &dyn File, path: &Path, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
    journal
        .read_full_at(buf, offset, Via::Cache)
        .map_err(|source| Error::Read {
            path: path.into(),
            offset,
            source,
        })
}
