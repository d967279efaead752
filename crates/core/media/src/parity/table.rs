//! The rows of a set, as its parity stripes tell them.
//!
//! Normally the index of one parity stripe tells them all. If no parity stripe has a readable index, the Parity records
//! themselves are read, from whichever stripe has each of them.
//!
//! Invariants
//! - All rows are of one set, in their order; each begins in each stripe where the one before it ended.
//! - A row whose record no stripe has is *unknown*: nothing of it can be rebuilt, and nothing is claimed about it.
//! - Memory is bounded by [`TABLE_MAX`], whatever the records say.
//!
//! Leaves to others: the bytes of the rows (`group.rs`).

use std::io;
use std::ops::Range;

use longshore_io::crc32c_append;
use uuid::Uuid;

use crate::Error;
use crate::device::FamilyRead;
use crate::header::{SetTrailer, TRAILER_LEN};
use crate::index;
use crate::record::{HEAD_LEN, MAGIC, PREFIX_MAX, RecordError, RecordKind};

use super::row::{CHUNK_HEAD_LEN, CONTAINER, RowRecord, Span, record_len};

/// The most bytes of a table: of one data stripe of 100 TB, of eight of 28 TB each. The records in a parity stripe are longer
/// than their entries, so a table is smaller than the stripe that it is read from.
const TABLE_MAX: usize = 1 << 30;
/// Bytes that are searched at a time.
const SEARCH_BYTES: usize = 1 << 20;
/// Bytes that are skipped at a time if the medium lost them: one bad sector, or one of the larger ones.
const LOST_BYTES: usize = 4 << 10;
/// Lost places in a row that end the search: more of them are no stripe.
const LOST_MAX: u32 = 64;

/// The facts of one row; a run of unknown rows is one entry.
#[derive(Debug, Clone)]
struct Entry {
    row: u64,
    /// Offset of the record in the parity stripes.
    at: u64,
    chunk_len: u32,
    is_known: bool,
}

/// All rows of a set.
#[derive(Debug)]
pub(crate) struct RowTable {
    pub set: Uuid,
    pub row_bytes: u32,
    data: usize,
    parity: usize,
    entries: Vec<Entry>,
    /// For each entry, those of all data families.
    spans: Vec<Span>,
    /// For each entry, those of all parity families.
    chunk_crcs: Vec<u32>,
    /// The next record begins here or later: rows do not overlap, so a short stripe has few.
    next_at: u64,
    /// Where the rows so far end, in each data stripe.
    ends: Vec<u64>,
    /// Whether no row can follow the last entry.
    pub is_whole: bool,
}

impl RowTable {
    fn new(set: Uuid, row_bytes: u32, data: usize, parity: usize) -> RowTable {
        RowTable {
            set,
            row_bytes,
            data,
            parity,
            entries: Vec::new(),
            spans: Vec::new(),
            chunk_crcs: Vec::new(),
            next_at: 0,
            ends: vec![0; data],
            is_whole: false,
        }
    }

    /// The table that these parity stripes have; `None` if none of them has a row. A stripe that cannot be read tells
    /// nothing.
    pub fn load(
        stripes: &[&dyn FamilyRead],
        (data, parity): (usize, usize),
        set: Option<Uuid>,
    ) -> Option<RowTable> {
        let wanted = |table: &RowTable| {
            (table.data, table.parity) == (data, parity) && set.is_none_or(|set| set == table.set)
        };
        let mut indexed = stripes.iter().filter_map(|stripe| from_index(*stripe));
        indexed
            .find(|table| wanted(table))
            .or_else(|| from_records(stripes, (data, parity), set))
    }

    /// The table that a stripe's index has.
    pub fn of_index(stripe: &dyn FamilyRead) -> Option<RowTable> {
        from_index(stripe)
    }

    /// The chain of checksums in the trailer of a parity family, numbered from 0.
    pub fn chain(&self, parity: usize) -> u32 {
        (0..self.len()).fold(0, |chain, entry| {
            let mut link = [0; 12];
            link[..8].copy_from_slice(&self.entries[entry].row.to_le_bytes());
            let crc = self.chunk_crcs[entry * self.parity + parity];
            link[8..].copy_from_slice(&crc.to_le_bytes());
            crc32c_append(chain, &link)
        })
    }

    /// Whether both have the same rows.
    pub fn is_like(&self, other: &RowTable) -> bool {
        let same = |entry: usize| self.record(entry) == other.record(entry);
        self.len() == other.len() && (0..self.len()).all(same)
    }

    /// Adds the next known row. If rows before it are missing, they become unknown.
    fn push(&mut self, record: &RowRecord) -> Result<(), RecordError> {
        let next = self.entries.last().map_or(0, |entry| entry.row + 1);
        let goes_on = record.spans.iter().zip(&self.ends);
        let grows = goes_on.clone().all(|(span, end)| span.offset >= *end);
        let last_is_full = self
            .entries
            .last()
            .is_none_or(|entry| !entry.is_known || entry.chunk_len == self.row_bytes);
        if record.set != self.set
            || record.row_bytes != self.row_bytes
            || record.spans.len() != self.data
            || record.chunk_crcs.len() != self.parity
            || record.row < next
            || !grows
            || !last_is_full
            || record.at < self.next_at
        {
            return Err(RecordError::Field);
        }
        let is_next = record.row == next;
        if is_next && !goes_on.clone().all(|(span, end)| span.offset == *end) {
            return Err(RecordError::Field);
        }
        if !is_next {
            let gap = |(span, end): (&Span, &u64)| Span {
                offset: *end,
                len: (span.offset - *end).min(u64::from(u32::MAX)) as u32,
                crc: 0,
            };
            let gap: Vec<Span> = goes_on.map(gap).collect();
            self.add(record.row - 1, 0, 0, false, (&gap, &vec![0; self.parity]))?;
        }
        self.next_at = record.at.saturating_add(record.stored_len());
        let own = (&*record.spans, &*record.chunk_crcs);
        self.add(record.row, record.at, record.chunk_len, true, own)?;
        self.ends = record.spans.iter().filter_map(Span::end).collect();
        Ok(())
    }

    fn add(
        &mut self,
        row: u64,
        at: u64,
        chunk_len: u32,
        is_known: bool,
        (spans, crcs): (&[Span], &[u32]),
    ) -> Result<(), RecordError> {
        let bytes = size_of::<Entry>() + self.data * size_of::<Span>() + self.parity * 4;
        if self.entries.len() >= TABLE_MAX / bytes {
            return Err(RecordError::Length);
        }
        self.entries.push(Entry {
            row,
            at,
            chunk_len,
            is_known,
        });
        self.spans.extend_from_slice(spans);
        self.chunk_crcs.extend_from_slice(crcs);
        Ok(())
    }

    /// The number of data families.
    pub fn data(&self) -> usize {
        self.data
    }

    /// Entries: rows, and runs of unknown ones.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_known(&self, entry: usize) -> bool {
        self.entries[entry].is_known
    }

    /// Whether every row is known.
    pub fn is_complete(&self) -> bool {
        self.is_whole && self.entries.iter().all(|entry| entry.is_known)
    }

    /// Where a stripe's bytes of an entry are, and their checksum: data families first, then parity families.
    pub fn member(&self, entry: usize, member: usize) -> Span {
        match member.checked_sub(self.data) {
            None => self.spans[entry * self.data + member],
            Some(parity) => {
                let head = record_len(self.data, self.parity) + CHUNK_HEAD_LEN as u64;
                Span {
                    offset: self.entries[entry].at.saturating_add(head),
                    len: self.entries[entry].chunk_len,
                    crc: self.chunk_crcs[entry * self.parity + parity],
                }
            }
        }
    }

    /// The record of a known row.
    pub fn record(&self, entry: usize) -> RowRecord {
        RowRecord {
            set: self.set,
            row: self.entries[entry].row,
            at: self.entries[entry].at,
            row_bytes: self.row_bytes,
            chunk_len: self.entries[entry].chunk_len,
            spans: self.spans[entry * self.data..][..self.data].to_vec(),
            chunk_crcs: self.chunk_crcs[entry * self.parity..][..self.parity].to_vec(),
        }
    }

    /// The length of a data stripe, as far as it is known.
    pub fn stripe_len(&self, data: usize) -> u64 {
        self.ends[data]
    }

    /// The entry that has the byte at `offset` of a data stripe, and the entry's range there.
    pub fn entry_of(&self, data: usize, offset: u64) -> Option<(usize, Range<u64>)> {
        let start = |entry: usize| self.spans[entry * self.data + data].offset;
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = low.midpoint(high);
            match start(middle) <= offset {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let entry = low.checked_sub(1)?;
        let end = match entry + 1 < self.entries.len() {
            true => start(entry + 1),
            false => self.ends[data],
        };
        (offset < end).then(|| (entry, start(entry)..end))
    }
}

/// The trailer at the end of a parity stripe, and its offset.
pub(crate) fn trailer_of(stripe: &dyn FamilyRead) -> Option<(SetTrailer, u64)> {
    let len = CONTAINER.framed_len(TRAILER_LEN) as u64;
    let at = stripe.len_bytes().ok()??.checked_sub(len)?;
    let (kind, body, _) = record_at(stripe, at)?;
    match kind {
        RecordKind::Trailer => Some((SetTrailer::decode(&body).ok()?, at)),
        _ => None,
    }
}

/// The record at `offset`, and the offset after it.
pub(crate) fn record_at(
    stripe: &dyn FamilyRead,
    offset: u64,
) -> Option<(RecordKind, Vec<u8>, u64)> {
    let mut framed = vec![0; 2048];
    let got = match stripe.read_at(&mut framed, offset) {
        // The bytes after the record may be lost, and the record be there.
        Err(error) if is_lost_to_medium(&error) => {
            framed.truncate(PREFIX_MAX);
            stripe.read_at(&mut framed, offset).ok()?
        }
        got => got.ok()?,
    };
    let len = CONTAINER.framed_len_at(&framed[..got]).ok()?;
    if len > got {
        framed.resize(len, 0);
        if stripe.read_at(&mut framed, offset).ok()? < len {
            return None;
        }
    }
    let (kind, body) = CONTAINER.parse(&framed[..len]).ok()?;
    Some((kind, body.to_vec(), offset + len as u64))
}

fn row_at(stripe: &dyn FamilyRead, offset: u64) -> Option<RowRecord> {
    match record_at(stripe, offset)? {
        (RecordKind::Parity, body, _) => {
            let record = RowRecord::decode(&body).ok()?;
            (record.at == offset).then_some(record)
        }
        _ => None,
    }
}

fn from_index(stripe: &dyn FamilyRead) -> Option<RowTable> {
    let (trailer, at) = trailer_of(stripe)?;
    let chunk = |(offset, len): (u64, u32)| {
        if len == 0 || len as usize > index::CHUNK_FRAMED_MAX {
            return None;
        }
        let mut framed = vec![0; len as usize];
        let got = stripe.read_at(&mut framed, offset).ok()?;
        index::stored_chunk(CONTAINER, &framed[..got]).ok()
    };
    let mut places = Vec::new();
    let (mut place, mut limit) = ((trailer.index_offset, trailer.index_len), at);
    while place != (0, 0) {
        let end = place.0.checked_add(u64::from(place.1))?;
        if end > limit || places.len() * size_of::<(u64, u32)>() > TABLE_MAX {
            return None;
        }
        places.push(place);
        limit = place.0;
        place = chunk(place)?.previous;
    }
    let mut table: Option<RowTable> = None;
    for place in places.into_iter().rev() {
        for row in chunk(place)?.rows().ok()? {
            let record = RowRecord::decode(&row.manifest).ok()?;
            let (data, parity) = (record.spans.len(), record.chunk_crcs.len());
            let new = || RowTable::new(trailer.set, record.row_bytes, data, parity);
            let table = table.get_or_insert_with(new);
            let is_next = record.row == table.len() as u64;
            let is_there = (record.row, record.at) == (row.sequence, row.offset);
            if !is_next || !is_there || record.at.checked_add(record.stored_len())? > at {
                return None;
            }
            table.push(&record).ok()?;
        }
    }
    // The chain of one parity family says that no row is missing.
    let is_whole = |table: &RowTable| {
        let mut chains = (0..table.parity).map(|parity| table.chain(parity));
        chains.any(|chain| chain == trailer.chain_crc)
    };
    let mut table = table.filter(is_whole)?;
    table.is_whole = true;
    Some(table)
}

/// Reads Parity records, each from the first stripe that has it.
fn from_records(
    stripes: &[&dyn FamilyRead],
    (data, parity): (usize, usize),
    set: Option<Uuid>,
) -> Option<RowTable> {
    let mut table: Option<RowTable> = None;
    let mut searches: Vec<Search> = stripes
        .iter()
        .map(|stripe| Search::new(*stripe, record_len(data, parity)))
        .collect();
    let mut at = 0;
    loop {
        let fits = |record: &RowRecord, table: &Option<RowTable>| {
            let wanted = table.as_ref().map(|t| t.set).or(set);
            (record.spans.len(), record.chunk_crcs.len()) == (data, parity)
                && wanted.is_none_or(|set| set == record.set)
        };
        let here = stripes.iter().find_map(|stripe| row_at(*stripe, at));
        if here.is_none() {
            let skipped = stripes
                .iter()
                .find_map(|stripe| match record_at(*stripe, at)? {
                    (RecordKind::Parity, ..) => None,
                    (kind, _, end) => Some((kind, end)),
                });
            match (skipped, &mut table) {
                // Rows are ended by their index and the trailer.
                (Some((RecordKind::Trailer, _)), Some(table)) => {
                    table.is_whole = true;
                    break;
                }
                (Some((_, end)), _) => {
                    at = end;
                    continue;
                }
                (None, _) => {}
            }
        }
        let found = here.filter(|record| fits(record, &table)).or_else(|| {
            let found = searches.iter_mut().filter_map(|search| search.after(at));
            found.min_by_key(|record| record.at)
        });
        let Some(record) = found else {
            // Only a trailer that no stripe has can follow.
            let end = at + CONTAINER.framed_len(TRAILER_LEN) as u64;
            let ends = |stripe: &&dyn FamilyRead| matches!(stripe.len_bytes(), Ok(Some(len)) if len == end);
            if let Some(table) = table.as_mut().filter(|_| stripes.iter().any(ends)) {
                table.is_whole = true;
            }
            break;
        };
        at = record.at.saturating_add(match fits(&record, &table) {
            true => record.stored_len(),
            false => 1,
        });
        if fits(&record, &table) {
            let new = || RowTable::new(record.set, record.row_bytes, data, parity);
            let table = table.get_or_insert_with(new);
            if table.push(&record).is_err() {
                break;
            }
        }
    }
    table
}

/// Looks through a stripe for Parity records, once from its begin to its end, however often it is asked.
struct Search<'a> {
    stripe: &'a dyn FamilyRead,
    /// Bytes of a record of the wanted shape; a longer one is not read.
    framed_len: usize,
    window: Vec<u8>,
    /// The stripe's offset of the window, and the bytes in it.
    start: u64,
    got: usize,
    next_start: u64,
    /// Bytes that the next read is to give.
    size: usize,
    /// Places in a row that the medium lost.
    lost: u32,
    is_last: bool,
    /// The record that was found last.
    found: Option<RowRecord>,
    is_over: bool,
}

impl<'a> Search<'a> {
    fn new(stripe: &'a dyn FamilyRead, record_len: u64) -> Search<'a> {
        Search {
            stripe,
            framed_len: record_len as usize,
            window: Vec::new(),
            start: 0,
            got: 0,
            next_start: 0,
            size: SEARCH_BYTES,
            lost: 0,
            is_last: false,
            found: None,
            is_over: false,
        }
    }

    /// The first record after `from`, which never goes back.
    fn after(&mut self, from: u64) -> Option<RowRecord> {
        let is_passed = self.found.as_ref().is_none_or(|record| record.at <= from);
        if is_passed && !self.is_over {
            self.found = self.next(from);
            self.is_over = self.found.is_none();
        }
        self.found.clone()
    }

    fn next(&mut self, from: u64) -> Option<RowRecord> {
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&[RecordKind::Parity as u8, 0, 0, 0]);
        let prefix = CONTAINER.prefix_len() as u64;
        loop {
            let mut at = from.saturating_sub(self.start).min(self.got as u64) as usize;
            while let Some(found) = self.window[at..self.got]
                .windows(head.len())
                .position(|w| w == head)
            {
                let offset = (self.start + (at + found) as u64).checked_sub(prefix);
                at += found + 1;
                let record = offset.filter(|o| *o > from).and_then(|o| self.row_at(o));
                if record.is_some() {
                    return record;
                }
            }
            if self.is_last {
                return None;
            }
            self.go_on(from);
        }
    }

    /// Reads the next window, or ends the search. Places that the medium lost are skipped.
    fn go_on(&mut self, from: u64) {
        self.start = self.next_start.max(from);
        self.got = 0;
        let len = self.stripe.len_bytes().ok().flatten();
        if len.is_some_and(|len| self.start >= len) {
            self.is_last = true;
            return;
        }
        self.window.resize(self.size, 0);
        // A head may span two reads.
        let next_start = |got: usize| self.start + got.saturating_sub(HEAD_LEN) as u64;
        match self.stripe.read_at(&mut self.window, self.start) {
            Ok(got) => {
                self.next_start = next_start(got);
                self.is_last = got < self.size;
                self.got = got;
                self.lost = 0;
                self.size = (2 * self.size).min(SEARCH_BYTES);
            }
            Err(error) if is_lost_to_medium(&error) && self.size > LOST_BYTES => {
                self.next_start = self.start;
                self.size /= 2;
            }
            Err(error) if is_lost_to_medium(&error) && self.lost < LOST_MAX => {
                self.next_start = next_start(LOST_BYTES);
                self.lost += 1;
            }
            Err(_) => self.is_last = true,
        }
    }

    /// The record at `offset`, if its length is the wanted one.
    fn row_at(&self, offset: u64) -> Option<RowRecord> {
        let mut prefix = [0; PREFIX_MAX];
        let got = self.stripe.read_at(&mut prefix, offset).ok()?;
        let len = CONTAINER.framed_len_at(&prefix[..got]).ok()?;
        (len == self.framed_len).then(|| row_at(self.stripe, offset))?
    }
}

/// Whether an error is one of reading: a bad sector or a store that does not answer, for which parity can stand.
pub(crate) fn is_of_reading(error: &Error) -> bool {
    matches!(error, Error::Io { action: "read", .. } | Error::Bucket(_))
}

/// Whether a read failed because the medium lost its bytes, which a repair can bring back: bad sectors, and file systems
/// that found damage. Every other error may be gone at the next attempt.
pub(crate) fn is_lost_to_medium(error: &Error) -> bool {
    match error {
        Error::Io { source, .. } => is_of_medium(source),
        _ => false,
    }
}

/// The same of an error of the system.
pub(crate) fn is_of_medium(error: &io::Error) -> bool {
    // Linux, asm-generic/errno.h: EIO, ENODATA (bad sectors), EBADMSG and EUCLEAN (checksums of btrfs, ext4 and XFS).
    const LOST: [i32; 4] = [5, 61, 74, 117];
    error.raw_os_error().is_some_and(|e| LOST.contains(&e))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::parity::ROW_BYTES_MIN;

    use super::*;

    /// Counts the bytes that are read.
    #[derive(Debug)]
    struct Counted {
        bytes: Vec<u8>,
        read: AtomicU64,
    }

    impl FamilyRead for Counted {
        fn len_bytes(&self) -> Result<Option<u64>, Error> {
            Ok(Some(self.bytes.len() as u64))
        }

        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
            let from = self.bytes.len().min(offset as usize);
            let n = buf.len().min(self.bytes.len() - from);
            buf[..n].copy_from_slice(&self.bytes[from..][..n]);
            self.read.fetch_add(n as u64, Ordering::Relaxed);
            Ok(n)
        }
    }

    fn counted(bytes: Vec<u8>) -> Counted {
        Counted {
            bytes,
            read: AtomicU64::new(0),
        }
    }

    /// Goal: the search for records takes time in proportion to the stripes, whatever they hold.
    /// Method: one stripe has thousands of records of another set, the other one has none.
    #[test]
    fn stripes_of_a_stranger_are_searched_once() {
        let span = Span {
            offset: 0,
            len: 1,
            crc: 0,
        };
        let mut bytes = vec![0; 100];
        for _ in 0..20_000 {
            let record = RowRecord {
                set: Uuid::from_u128(1),
                row: 0,
                at: bytes.len() as u64,
                row_bytes: ROW_BYTES_MIN,
                chunk_len: 1,
                spans: vec![span; 2],
                chunk_crcs: vec![0; 2],
            };
            CONTAINER.append(RecordKind::Parity, &record.encode(), &mut bytes);
        }
        let size = bytes.len();
        let (crowded, empty) = (counted(bytes), counted(vec![0; size]));
        let stripes: [&dyn FamilyRead; 2] = [&empty, &crowded];
        let found = RowTable::load(&stripes, (2, 2), Some(Uuid::from_u128(2)));
        assert!(found.is_none());
        let read = [&crowded, &empty].map(|stripe| stripe.read.load(Ordering::Relaxed));
        // A few looks of 2 KiB at each record of 112 bytes; each from the begin of the stripe would be 20,000 times as much.
        let most = 100 * size as u64;
        assert!(read.iter().all(|read| *read < most), "{read:?} of {size}");
        assert!(RowTable::load(&stripes, (2, 2), Some(Uuid::from_u128(1))).is_some());
    }
}
