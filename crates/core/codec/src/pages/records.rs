//! Records of SQLite: the cells of pages as columns.
//!
//! A cell of a table is the length of its record, the rowid, and the record; one of an index has no rowid. A record is its
//! header's length, a serial type for each column, and the values. Types are kept as kinds: an integer has the shortest type
//! that holds it most often, and a text's type follows from its length.
//!
//! Pages of one class have records with the same number of columns, whose values are of the same kinds as far as is
//! known: most often the pages of one table or index.
//!
//! Invariants
//! - A page whose cells were found comes back byte for byte (`joining.rs`): what the decoder infers was checked.
//! - A record lies in its page as a whole: those with overflow pages are not found.
//!
//! Leaves to others: heads and pages of other kinds (`sqlite.rs`), and how a column is coded (`measures.rs`, `column.rs`).
//!
//! Source: "Database File Format" of SQLite's documentation.

use super::cell::{CellPlaces, Leaf, Varint};
use super::column::Values;
use super::heap::copy;
use super::store::Store;

/// Records with more columns are not taken apart: the header's length then is one byte.
pub(super) const COLUMNS_MAX: usize = 126;

/// Kinds of values.
pub(super) const NULL: u8 = 0;
pub(super) const INTEGER: u8 = 1;
pub(super) const REAL: u8 = 2;
pub(super) const TEXT: u8 = 3;
pub(super) const BLOB: u8 = 4;
/// The record has ended before this column.
pub(super) const NONE: u8 = 5;
/// An integer of the type that is added, which is not the shortest one.
pub(super) const TYPED: u8 = 16;

/// A rowid that is so much or more above the last one is kept as a whole.
pub(super) const STEP_MAX: u64 = 255;

const TYPE_REAL: u32 = 7;
const TYPE_ZERO: u32 = 8;
const TYPE_BLOB: u32 = 12;

/// Bytes of an integer of each type, and of a real one.
const WIDTHS: [u8; 16] = [0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0];

/// Bytes of a value of each type of one byte; types that are not in use have [`UNUSED`].
const LENGTHS: [u8; 128] = {
    let mut lengths = [UNUSED; 128];
    let mut serial = 0;
    while serial < 128 {
        if serial < 10 {
            lengths[serial] = WIDTHS[serial];
        } else if serial >= 12 {
            lengths[serial] = (serial as u8 - 12) / 2;
        }
        serial += 1;
    }
    lengths
};
const UNUSED: u8 = 0x80;

/// The type of an integer by the leading zeros of its magnitude's bits.
const TYPES: [u8; 65] = {
    let mut types = [6; 65];
    let mut zeros = 0;
    while zeros <= 64 {
        let bits = 65 - zeros;
        types[zeros] = match bits {
            0..=8 => 1,
            9..=16 => 2,
            17..=24 => 3,
            25..=32 => 4,
            33..=48 => 5,
            _ => 6,
        };
        zeros += 1;
    }
    types
};

/// The serial type of an integer.
#[inline(always)]
pub(super) fn integer_type(value: i64) -> u32 {
    // Without a branch: which values are 0 or 1 is not foreseen.
    let is_short = u32::from((value as u64) < 2);
    let other = u32::from(TYPES[magnitude(value).leading_zeros() as usize]);
    let short = TYPE_ZERO + (value as u32 & 1);
    other ^ ((other ^ short) & is_short.wrapping_neg())
}

pub(super) fn integer_width(serial: u32) -> usize {
    usize::from(WIDTHS[(serial & 15) as usize])
}

/// The bits of a value without copies of its sign.
#[inline(always)]
fn magnitude(value: i64) -> u64 {
    (value ^ (value >> 63)) as u64
}

/// The kind of a serial type that is in use.
#[inline(always)]
fn kind_of(serial: u32) -> u8 {
    const KINDS: [u8; 12] = [NULL, 1, 1, 1, 1, 1, 1, REAL, 1, 1, NULL, NULL];
    match KINDS.get(serial as usize) {
        Some(kind) => *kind,
        None => BLOB - (serial & 1) as u8,
    }
}

/// One column of a class.
#[derive(Default)]
pub(super) struct Field {
    /// A kind for each record.
    pub(super) kinds: Store,
    /// Eight bytes each, and the magnitudes of all.
    pub(super) integers: Store,
    pub(super) magnitudes: u64,
    pub(super) reals: Store,
    /// Texts and blobs.
    pub(super) values: Values,
}

impl Field {
    pub(super) fn memory(&self) -> usize {
        let stores = [&self.kinds, &self.integers, &self.reals].map(Store::memory);
        stores.iter().sum::<usize>() + self.values.memory()
    }

    pub(super) fn clear(&mut self) {
        self.magnitudes = 0;
        let Values { bytes, low, high } = &mut self.values;
        let Field {
            kinds,
            integers,
            reals,
            ..
        } = self;
        for store in [kinds, integers, reals, bytes, low, high] {
            store.clear();
        }
    }
}

/// One record while its columns are read: places in its page.
#[derive(Clone, Copy)]
struct Record {
    /// The next serial type, and where they end.
    next: u32,
    values: u32,
    /// The next value, and where the record ends.
    at: u32,
    end: u32,
    /// Where the cell begins.
    start: u32,
}

/// The records of a group, page after page.
#[derive(Default)]
pub(super) struct LeafRecords {
    records: Vec<Record>,
    /// Those that are read next, with their places in the group.
    batch: Vec<Record>,
    pub(super) rowids: Vec<u64>,
    serials: Vec<u32>,
    places: CellPlaces,
    /// The kinds of the first record of the page that was found last.
    pub(super) kinds: Vec<u8>,
    /// Bytes of values that are no text.
    pub(super) measured: usize,
}

/// The records of one page.
#[derive(Clone, Copy, Default)]
pub(super) struct PageRecords {
    first: usize,
    /// The first of its rowids.
    rowid: usize,
    cells: usize,
    /// The cells follow each other down from the page's end.
    pub(super) is_falling: bool,
}

impl PageRecords {
    pub(super) fn rowids<'a>(&self, records: &'a LeafRecords) -> &'a [u64] {
        &records.rowids[self.rowid..][..self.cells]
    }
}

impl LeafRecords {
    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.batch.clear();
        self.rowids.clear();
        self.measured = 0;
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn memory(&self) -> usize {
        size_of::<Record>() * (self.records.capacity() + self.batch.capacity())
            + size_of::<u64>() * self.rowids.capacity()
            + size_of::<u32>() * self.serials.capacity()
            + CellPlaces::MEMORY
    }

    /// Finds the cells of `page`. `None`, and nothing is kept, if one is not whole, not as SQLite writes it, or overlaps another.
    pub(super) fn find(&mut self, page: &[u8], head: &Leaf) -> Option<PageRecords> {
        let (first, rowid, measured) = (self.records.len(), self.rowids.len(), self.measured);
        let is_falling = self.attempt(page, head);
        if is_falling.is_none() {
            self.records.truncate(first);
            self.rowids.truncate(rowid);
            self.measured = measured;
        }
        Some(PageRecords {
            first,
            rowid,
            cells: head.cells,
            is_falling: is_falling?,
        })
    }

    fn attempt(&mut self, page: &[u8], head: &Leaf) -> Option<bool> {
        let (mut below, mut falling, mut columns) = (page.len(), true, 0);
        let first = self.records.len();
        for index in 0..head.cells {
            let start = head.pointer(page, index);
            let mut at = start;
            let len = Varint::read(page, &mut at)?;
            if head.has_rowids() {
                self.rowids.push(Varint::read(page, &mut at)?);
            }
            let header = usize::from(*page.get(at)?);
            let end = at.checked_add(usize::try_from(len).ok()?)?;
            // Longer headers have a length of two bytes.
            if !(1..0x80).contains(&header) || start < head.content || end > page.len() {
                return None;
            }
            let values = at + header;
            let (count, len) = self.values_len(page.get(at + 1..values)?)?;
            if values + len != end {
                return None;
            }
            columns = columns.max(count);
            falling &= below == end;
            below = start;
            self.records.push(Record {
                next: at as u32 + 1,
                values: values as u32,
                at: values as u32,
                end: end as u32,
                start: start as u32,
            });
        }
        let falling = falling && below == head.content;
        if !falling {
            self.mark(first, page.len())?;
            self.places.gaps(head.content, page.len(), |_| Some(()))?;
        }
        self.find_kinds(page, first, columns)?;
        Some(falling)
    }

    /// How many values these types are of, and the bytes of all.
    #[inline(always)]
    fn values_len(&mut self, serials: &[u8]) -> Option<(usize, usize)> {
        let (mut sum, mut all) = (0, 0);
        for serial in serials {
            let len = LENGTHS[usize::from(serial & 0x7f)];
            all |= serial | len;
            sum += usize::from(len);
        }
        if all < 0x80 {
            self.measured += serials.len() + sum;
            return Some((serials.len(), sum));
        }
        self.long_values_len(serials)
    }

    fn long_values_len(&mut self, serials: &[u8]) -> Option<(usize, usize)> {
        const LONGEST: u64 = 12 + 2 * u16::MAX as u64 + 1;
        let (mut at, mut count, mut sum) = (0, 0, 0);
        while at < serials.len() {
            count += 1;
            self.measured += 1;
            match Varint::read(serials, &mut at)? {
                short @ ..0x80 => {
                    let len = LENGTHS[short as usize];
                    if len == UNUSED {
                        return None;
                    }
                    self.measured += usize::from(len);
                    sum += usize::from(len);
                }
                long @ ..=LONGEST => sum += (long as usize - 12) / 2,
                _ => return None,
            }
        }
        Some((count, sum))
    }

    fn mark(&mut self, first: usize, page: usize) -> Option<()> {
        self.places.clear(page);
        for record in &self.records[first..] {
            self.places
                .add(record.start as usize, record.end as usize)?;
        }
        Some(())
    }

    /// The kinds of the first record's values, of so many columns. Rows from before a column was added are shorter than others.
    fn find_kinds(&mut self, page: &[u8], first: usize, columns: usize) -> Option<()> {
        self.kinds.clear();
        let record = self.records.get(first)?;
        let serials = &page[..record.values as usize];
        let mut at = record.next as usize;
        while at < serials.len() {
            let serial = Varint::read(serials, &mut at)?;
            self.kinds.push(kind_of(serial as u32));
        }
        self.kinds.resize(columns, NULL);
        Some(())
    }

    /// Appends the pointers of the cells of a page, each as what it is below the place that the cell before it leaves, and what
    /// lies between the cells, in the order of their places.
    pub(super) fn keep(
        &mut self,
        found: &PageRecords,
        page: &[u8],
        head: &Leaf,
        pointers: &mut Store,
        gaps: &mut Store,
    ) -> Option<()> {
        let mut below = page.len() as u32;
        let records = &self.records[found.first..][..found.cells];
        for record in records {
            pointers.push((below.wrapping_sub(record.end) as u16).to_le_bytes());
            below = record.start;
        }
        self.places.clear(page.len());
        for record in records {
            self.places
                .add(record.start as usize, record.end as usize)?;
        }
        self.places.gaps(head.content, page.len(), |gap| {
            gaps.extend(&page[gap]);
            Some(())
        })
    }

    /// Adds the records of a page, which begins at `base`, to those that are read next.
    pub(super) fn gather(&mut self, found: &PageRecords, base: usize) {
        let base = base as u32;
        let records = &self.records[found.first..][..found.cells];
        self.batch.extend(records.iter().map(|record| Record {
            next: base + record.next,
            values: base + record.values,
            at: base + record.at,
            end: base + record.end,
            start: base + record.start,
        }));
    }

    /// Appends the columns of the records that were gathered to `fields`; they are in at most `most` bytes. `None` if a record
    /// has more columns.
    pub(super) fn split(&mut self, pages: &[u8], most: usize, fields: &mut [Field]) -> Option<()> {
        let mut walk = Walk {
            pages,
            most,
            records: &mut self.batch,
            serials: &mut self.serials,
        };
        for field in fields {
            walk.column(field)?;
        }
        let ended = |record: &Record| record.next == record.values && record.at == record.end;
        let all = self.batch.iter().all(ended);
        self.batch.clear();
        all.then_some(())
    }
}

/// The records of a few pages, column by column: their pages stay in the core's nearest cache meanwhile.
struct Walk<'a> {
    pages: &'a [u8],
    most: usize,
    records: &'a mut [Record],
    serials: &'a mut Vec<u32>,
}

impl Walk<'_> {
    /// Reads the next value of all records.
    fn column(&mut self, field: &mut Field) -> Option<()> {
        let count = self.records.len();
        self.serials.clear();
        self.serials.resize(count, 0);
        let at = field.kinds.len();
        let kinds = &mut field.kinds.room(count)[..count];
        let mut met = 0;
        for ((record, kind), serial) in self
            .records
            .iter_mut()
            .zip(kinds)
            .zip(&mut self.serials[..])
        {
            if record.next == record.values {
                *kind = NONE;
            } else {
                let short = *self.pages.get(record.next as usize)?;
                record.next += 1;
                *serial = u32::from(short);
                if short >= 0x80 {
                    let mut at = record.next as usize - 1;
                    *serial = Varint::read(self.pages, &mut at)? as u32;
                    record.next = at as u32;
                }
                *kind = kind_of(*serial);
            }
            met |= 1_u32 << *kind;
        }
        field.kinds.advance(count);
        if met >> INTEGER & 1 == 1 {
            self.integers(field, at, met == 1 << INTEGER)?;
        }
        if met >> REAL & 1 == 1 {
            self.reals(field)?;
        }
        if met >> TEXT & 3 != 0 {
            self.values(field)?;
        }
        Some(())
    }

    /// Reads the integers of a column, whose kinds begin at `first`. `only`: it has nothing else.
    fn integers(&mut self, field: &mut Field, first: usize, only: bool) -> Option<()> {
        let room = field.integers.room(8 * self.records.len());
        let (mut used, mut magnitudes, mut unlike) = (0, 0, 0);
        let places = room.as_chunks_mut::<8>().0;
        for (record, serial) in self.records.iter_mut().zip(&*self.serials) {
            let serial = *serial;
            if !only && !(1..10).contains(&serial) || serial == TYPE_REAL {
                continue;
            }
            let width = u32::from(WIDTHS[(serial & 15) as usize]);
            // The head of the page and a pointer are before every value.
            let end = (record.at + width) as usize;
            let word = self.pages.get(end.checked_sub(8)?..end)?;
            let word = u64::from_be_bytes(word.try_into().ok()?);
            let unused = (64 - 8 * width) & 63;
            let read = ((word << unused) as i64) >> unused;
            let value = if serial >= TYPE_ZERO {
                i64::from(serial - TYPE_ZERO)
            } else {
                read
            };
            unlike |= integer_type(value) ^ serial;
            magnitudes |= magnitude(value);
            *places.get_mut(used)? = value.to_le_bytes();
            used += 1;
            record.at = end as u32;
        }
        if unlike != 0 {
            let values = places[..used]
                .iter()
                .map(|value| i64::from_le_bytes(*value));
            let kinds = field.kinds.used_mut()[first..]
                .iter_mut()
                .zip(&*self.serials);
            let kinds = kinds.filter(|(kind, _)| **kind == INTEGER);
            for ((kind, serial), value) in kinds.zip(values) {
                if integer_type(value) != *serial {
                    *kind = TYPED + *serial as u8;
                }
            }
        }
        field.magnitudes |= magnitudes;
        field.integers.advance(8 * used);
        Some(())
    }

    fn reals(&mut self, field: &mut Field) -> Option<()> {
        let room = field.reals.room(8 * self.records.len());
        let places = room.as_chunks_mut::<8>().0;
        let mut used = 0;
        for (record, serial) in self.records.iter_mut().zip(&*self.serials) {
            if *serial != TYPE_REAL {
                continue;
            }
            let at = record.at as usize;
            let word = self.pages.get(at..at + 8)?;
            let word = u64::from_be_bytes(word.try_into().ok()?);
            *places.get_mut(used)? = word.to_le_bytes();
            used += 1;
            record.at += 8;
        }
        field.reals.advance(8 * used);
        Some(())
    }

    fn values(&mut self, field: &mut Field) -> Option<()> {
        let count = self.records.len();
        // The values of one column are not longer than their pages.
        let bytes = field.values.bytes.room(self.most);
        let low = field.values.low.room(count);
        let high = field.values.high.room(count);
        let (mut row, mut used) = (0, 0);
        for (record, serial) in self.records.iter_mut().zip(&*self.serials) {
            let Some(twice) = serial.checked_sub(TYPE_BLOB) else {
                continue;
            };
            let (at, len) = (record.at as usize, (twice / 2) as usize);
            low[row] = len as u8;
            high[row] = (len >> 8) as u8;
            row += 1;
            copy(self.pages, at, len, bytes.get_mut(used..)?)?;
            used += len;
            record.at += len as u32;
        }
        field.values.bytes.advance(used);
        field.values.low.advance(row);
        field.values.high.advance(row);
        Some(())
    }
}
