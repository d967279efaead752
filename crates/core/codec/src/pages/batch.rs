//! Records of SQLite, made column by column, some at a time.
//!
//! A loop over one column asks once what is the same for all its values, and none of its branches depends on a value. So records
//! are made before it is known where in their pages they lie.
//!
//! Invariants
//! - A record's header and values are written within their own room, or it is refused.
//! - Memory does not depend on what the streams say.
//!
//! Leaves to others: reading the columns (`joining.rs`, `measures.rs`), and where a record lies (`joining.rs`).

use super::cell::Varint;
use super::heap::{ColumnRead, Taken};
use super::measures::Integers;
use super::records::{
    BLOB, COLUMNS_MAX, INTEGER, NONE, NULL, REAL, TEXT, TYPED, integer_type, integer_width,
};

/// A column of a class, and how far it is used.
#[derive(Default)]
pub(super) struct FieldRead {
    pub(super) kinds: Taken,
    pub(super) integers: Integers,
    pub(super) reals: Taken,
    pub(super) texts: ColumnRead,
}

impl FieldRead {
    pub(super) fn memory(&self) -> usize {
        self.kinds.memory()
            + self.integers.memory()
            + self.reals.memory()
            + self.texts.values.memory()
    }

    pub(super) fn rewind(&mut self) {
        self.kinds.rewind();
        self.reals.rewind();
        self.texts.rewind();
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.kinds.is_used_up()
            && self.integers.is_used_up()
            && self.reals.is_used_up()
            && self.texts.is_used_up(true)
    }

    /// The next text or blob.
    #[inline(always)]
    fn value(&mut self) -> Option<(usize, usize)> {
        let texts = &mut self.texts;
        let (low, high) = texts.length()?;
        let (at, len) = (texts.at, usize::from(u16::from_le_bytes([low, high])));
        texts.at += len;
        (texts.at <= texts.values.bytes.len()).then_some((at, len))
    }

    /// Adds the lengths of texts and blobs of the next records.
    #[inline(always)]
    fn add_lengths(&self, sums: &mut [u32]) -> Option<()> {
        let kinds = self.kinds.rest().get(..sums.len())?;
        let kind = same(kinds);
        if kind.is_some_and(|kind| !matches!(kind, TEXT | BLOB)) {
            return Some(());
        }
        let ColumnRead { values, row, .. } = &self.texts;
        let (low, high) = (&values.low[*row..], values.high.get(*row..)?);
        if kind.is_some() {
            let (low, high) = (low.get(..sums.len())?, high.get(..sums.len())?);
            for (sum, (low, high)) in sums.iter_mut().zip(low.iter().zip(high)) {
                *sum += u32::from(u16::from_le_bytes([*low, *high]));
            }
            return Some(());
        }
        let mut lengths = low.iter().zip(high);
        for (sum, kind) in sums.iter_mut().zip(kinds) {
            if matches!(*kind, TEXT | BLOB) {
                let (low, high) = lengths.next()?;
                *sum += u32::from(u16::from_le_bytes([*low, *high]));
            }
        }
        Some(())
    }
}

/// The kind that all have.
#[inline(always)]
fn same(kinds: &[u8]) -> Option<u8> {
    let first = *kinds.first()?;
    // No loop that ends early: it would look at one kind after the other.
    let differ = kinds.iter().fold(0, |all, kind| all | (kind ^ first));
    (differ == 0).then_some(first)
}

/// Kinds of integers whose type is not the shortest one that holds them.
const TYPED_FIRST: u8 = TYPED + 1;
const TYPED_LAST: u8 = TYPED + 6;

/// Records that are made together.
const ROWS: usize = 64;
/// Bytes of a serial type.
const TYPE_LEN: usize = 3;
/// Bytes of the longest record's values.
const VALUES_MAX: usize = 1 << 16;
/// Values are copied as so many bytes at most, if they are no longer.
const PIECE: usize = 64;
/// Bytes of numbers, of which each may have eight.
const NUMBERS_MAX: usize = 8 * COLUMNS_MAX;
/// Bytes of the values of all records: the longest one fits, with what a copy may write behind it.
const VALUES_ROOM: usize = PIECE + VALUES_MAX + NUMBERS_MAX + PIECE;
/// A header is copied as so many bytes, if it is no longer.
const HEADER_PIECE: usize = 32;
/// A type is written as four bytes.
const HEADER_MAX: usize = HEADER_PIECE + 1 + TYPE_LEN * COLUMNS_MAX + 1;

/// How many bytes from one header to the next.
#[inline(always)]
fn step(parts: &[FieldRead]) -> usize {
    HEADER_PIECE + 1 + TYPE_LEN * parts.len() + 1
}

/// Some records, of which the first are used.
pub(super) struct Batch {
    headers: Box<[u8; ROWS * HEADER_MAX]>,
    values: Box<[u8; VALUES_ROOM]>,
    rows: usize,
    used: usize,
    header_ends: [u32; ROWS],
    starts: [u32; ROWS],
    ends: [u32; ROWS],
    /// Whether a record had its last column.
    ended: [bool; ROWS],
}

impl Default for Batch {
    fn default() -> Batch {
        Batch {
            headers: Box::new([0; ROWS * HEADER_MAX]),
            values: Box::new([0; VALUES_ROOM]),
            rows: 0,
            used: 0,
            header_ends: [0; ROWS],
            starts: [0; ROWS],
            ends: [0; ROWS],
            ended: [false; ROWS],
        }
    }
}

/// A record: its header and its values. Before both there are bytes of no meaning, [`HEADER_PIECE`] and [`PIECE`].
pub(super) struct Record<'b> {
    header: &'b [u8],
    values: &'b [u8],
}

impl Record<'_> {
    pub(super) fn header(&self) -> &[u8] {
        &self.header[HEADER_PIECE..]
    }

    pub(super) fn values(&self) -> &[u8] {
        &self.values[PIECE..]
    }

    /// Bytes of both.
    pub(super) fn len(&self) -> usize {
        self.header.len() - HEADER_PIECE + self.values.len() - PIECE
    }

    /// Writes the record to the end of `out`, and other bytes before it, at most [`BEFORE`]. `None` if there is no room for them.
    #[inline(always)]
    pub(super) fn put_back(&self, out: &mut [u8]) -> Option<()> {
        let len = self.values.len() - PIECE;
        if len <= PIECE {
            *out.last_chunk_mut::<PIECE>()? = *self.values.last_chunk()?;
        } else {
            let at = out.len().checked_sub(len)?;
            out[at..].copy_from_slice(self.values());
        }
        let at = out.len() - len;
        let out = &mut out[..at];
        let len = self.header.len() - HEADER_PIECE;
        if len <= HEADER_PIECE {
            *out.last_chunk_mut::<HEADER_PIECE>()? = *self.header.last_chunk()?;
        } else {
            let at = out.len().checked_sub(len)?;
            out[at..].copy_from_slice(self.header());
        }
        Some(())
    }
}

/// Bytes before a record that [`Record::put_back`] may change.
pub(super) const BEFORE: usize = PIECE;

impl Batch {
    pub(super) const MEMORY: usize = ROWS * HEADER_MAX + VALUES_ROOM;

    /// Forgets records that were not used.
    pub(super) fn clear(&mut self) {
        (self.rows, self.used) = (0, 0);
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.used == self.rows
    }

    /// The next record of these columns. `None` if they have no more, or it is impossible.
    #[inline(always)]
    pub(super) fn next(&mut self, parts: &mut [FieldRead]) -> Option<Record<'_>> {
        if self.used == self.rows {
            self.make(parts)?;
        }
        let row = self.used;
        self.used += 1;
        let ends = (*self.header_ends.get(row)?, *self.ends.get(row)?);
        let start = *self.starts.get(row)? as usize - PIECE;
        Some(Record {
            header: self.headers.get(row * step(parts)..ends.0 as usize)?,
            values: self.values.get(start..ends.1 as usize)?,
        })
    }

    #[inline(always)]
    fn make(&mut self, parts: &mut [FieldRead]) -> Option<()> {
        self.clear();
        // Without columns there is no end to them.
        let most = if parts.is_empty() { 1 } else { ROWS };
        let rows = parts
            .iter()
            .fold(most, |rows, part| rows.min(part.kinds.rest().len()));
        let rows = self.place(parts, rows)?;
        let step = step(parts);
        for (row, end) in self.header_ends[..rows].iter_mut().enumerate() {
            *end = (row * step + HEADER_PIECE + 1) as u32;
        }
        self.ended = [false; ROWS];
        for part in &mut *parts {
            self.column(part, rows)?;
        }
        for (row, end) in self.header_ends[..rows].iter().enumerate() {
            let start = row * step + HEADER_PIECE;
            let len = *end as usize - start;
            // Longer headers have a length of two bytes.
            if len >= 0x80 {
                return None;
            }
            self.headers[start] = len as u8;
        }
        self.rows = rows;
        Some(())
    }

    /// Finds room for the values of the next records, `rows` at most; returns how many it is for, at least one.
    #[inline(always)]
    fn place(&mut self, parts: &[FieldRead], rows: usize) -> Option<usize> {
        let mut lengths = [0; ROWS];
        let lengths = &mut lengths[..rows];
        for part in parts {
            part.add_lengths(lengths)?;
        }
        let numbers = 8 * parts.len();
        let mut at = PIECE;
        let mut placed = 0;
        for (row, len) in lengths.iter().enumerate() {
            let len = *len as usize;
            let end = at + len + numbers + PIECE;
            if len > VALUES_MAX || end > VALUES_ROOM {
                break;
            }
            (self.starts[row], self.ends[row]) = (at as u32, at as u32);
            at = end;
            placed += 1;
        }
        (placed > 0).then_some(placed)
    }

    /// Appends a column's values to the records.
    #[inline(always)]
    fn column(&mut self, part: &mut FieldRead, rows: usize) -> Option<()> {
        let kind = same(part.kinds.rest().get(..rows)?);
        // No loop that ends early, as above.
        let any_ended = self.ended.iter().fold(false, |any, ended| any | ended);
        let Some(kind) = kind.filter(|_| !any_ended) else {
            return self.mixed(part, rows);
        };
        match kind {
            NULL => {
                for end in &mut self.header_ends[..rows] {
                    *self.headers.get_mut(*end as usize)? = 0;
                    *end += 1;
                }
            }
            INTEGER => match part.integers.width() {
                1 => self.integers::<1>(part.integers.take(rows)?, rows)?,
                2 => self.integers::<2>(part.integers.take(rows)?, rows)?,
                4 => self.integers::<4>(part.integers.take(rows)?, rows)?,
                8 => self.integers::<8>(part.integers.take(rows)?, rows)?,
                _ => return None,
            },
            TEXT | BLOB => self.texts(part, rows, kind)?,
            _ => return self.mixed(part, rows),
        }
        part.kinds.take(rows)?;
        Some(())
    }

    /// Headers and values of all records, and where each one's end so far.
    #[inline(always)]
    fn places(&mut self) -> (&mut [u8], &mut [u8], &mut [u32], &mut [u32]) {
        let Batch {
            headers,
            values,
            header_ends,
            ends,
            ..
        } = self;
        (&mut headers[..], &mut values[..], header_ends, ends)
    }

    #[inline(always)]
    fn integers<const N: usize>(&mut self, integers: &[u8], rows: usize) -> Option<()> {
        let (headers, values, header_ends, ends) = self.places();
        let ends = header_ends[..rows].iter_mut().zip(&mut ends[..rows]);
        for (integer, (header_end, end)) in integers.as_chunks::<N>().0.iter().zip(ends) {
            let mut word = [0; 8];
            word[8 - N..].copy_from_slice(integer);
            let value = i64::from_le_bytes(word) >> (64 - 8 * N);
            let serial = integer_type(value);
            *headers.get_mut(*header_end as usize)? = serial as u8;
            *header_end += 1;
            let width = integer_width(serial);
            let place = values.get_mut(*end as usize..)?.first_chunk_mut()?;
            *place = (value << ((64 - 8 * width) & 63)).to_be_bytes();
            *end += width as u32;
        }
        Some(())
    }

    #[inline(always)]
    fn texts(&mut self, part: &mut FieldRead, rows: usize, kind: u8) -> Option<()> {
        /// Longer texts have types of two bytes.
        const SHORT: u8 = (0x80 - 14) / 2;
        let ColumnRead { values, row, at } = &part.texts;
        let low = values.low.get(*row..*row + rows)?;
        let high = values.high.get(*row..*row + rows)?;
        let longest = low.iter().fold(0, |most: u8, len| most.max(*len));
        let is_short = longest <= SHORT && high.iter().fold(0, |any, high| any | high) == 0;
        if !is_short {
            for row in 0..rows {
                self.text(part, row, kind)?;
            }
            return Some(());
        }
        let used = match longest {
            0..=16 => self.short::<16>(&values.bytes[*at..], low, kind)?,
            17..=32 => self.short::<32>(&values.bytes[*at..], low, kind)?,
            _ => self.short::<PIECE>(&values.bytes[*at..], low, kind)?,
        };
        part.texts.row += rows;
        part.texts.at += used;
        Some(())
    }

    /// Appends texts that are no longer than `N`; returns their length.
    #[inline(always)]
    fn short<const N: usize>(&mut self, bytes: &[u8], lengths: &[u8], kind: u8) -> Option<usize> {
        let (headers, values, header_ends, ends) = self.places();
        let mut at = 0;
        for (len, (header_end, end)) in lengths.iter().zip(header_ends.iter_mut().zip(ends)) {
            *headers.get_mut(*header_end as usize)? = 12 + 2 * len + u8::from(kind == TEXT);
            *header_end += 1;
            let place = values.get_mut(*end as usize..)?;
            let len = usize::from(*len);
            match bytes.get(at..at + N) {
                Some(piece) => place.get_mut(..N)?.copy_from_slice(piece),
                None => place
                    .get_mut(..len)?
                    .copy_from_slice(bytes.get(at..at + len)?),
            }
            at += len;
            *end += len as u32;
        }
        Some(at)
    }

    /// Appends a text or blob of any length.
    #[inline(always)]
    fn text(&mut self, part: &mut FieldRead, row: usize, kind: u8) -> Option<()> {
        let (at, len) = part.value()?;
        let serial = 12 + 2 * len as u64 + u64::from(kind == TEXT);
        let header = self.headers.get_mut(self.header_ends[row] as usize..)?;
        self.header_ends[row] += Varint::write(serial, header)? as u32;
        let place = self.values.get_mut(self.ends[row] as usize..)?;
        let bytes = &part.texts.values.bytes[..];
        if len <= PIECE
            && let Some(piece) = bytes.get(at..at + PIECE)
            && let Some(place) = place.get_mut(..PIECE)
        {
            place.copy_from_slice(piece);
        } else {
            place.get_mut(..len)?.copy_from_slice(&bytes[at..at + len]);
        }
        self.ends[row] += len as u32;
        Some(())
    }

    /// Appends values of different kinds.
    #[inline(always)]
    fn mixed(&mut self, part: &mut FieldRead, rows: usize) -> Option<()> {
        for row in 0..rows {
            let kind = part.kinds.take(1)?[0];
            if self.ended[row] && kind != NONE {
                return None;
            }
            match kind {
                NULL => self.serial(row, 0)?,
                INTEGER | TYPED_FIRST..=TYPED_LAST => {
                    let value = part.integers.next()?;
                    let serial = match kind {
                        INTEGER => integer_type(value),
                        typed => u32::from(typed - TYPED),
                    };
                    self.serial(row, serial as u8)?;
                    let width = integer_width(serial);
                    self.number(row, value << ((64 - 8 * width) & 63), width)?;
                }
                REAL => {
                    let real = i64::from_le_bytes(part.reals.take(8)?.try_into().ok()?);
                    self.serial(row, 7)?;
                    self.number(row, real, 8)?;
                }
                TEXT | BLOB => self.text(part, row, kind)?,
                NONE => self.ended[row] = true,
                _ => return None,
            }
        }
        Some(())
    }

    /// Appends a serial type of one byte.
    #[inline(always)]
    fn serial(&mut self, row: usize, serial: u8) -> Option<()> {
        let end = &mut self.header_ends[row];
        *self.headers.get_mut(*end as usize)? = serial;
        *end += 1;
        Some(())
    }

    /// Appends the first `width` bytes of a number, the highest byte first.
    #[inline(always)]
    fn number(&mut self, row: usize, number: i64, width: usize) -> Option<()> {
        let end = &mut self.ends[row];
        let place = self.values.get_mut(*end as usize..)?.first_chunk_mut()?;
        *place = number.to_be_bytes();
        *end += width as u32;
        Some(())
    }
}
