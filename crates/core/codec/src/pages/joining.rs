//! Records of SQLite: the cells of a page from their columns.
//!
//! Invariants
//! - `join` writes within the page, or refuses, with any streams.
//!
//! Leaves to others: taking pages apart (`records.rs`), and reading the columns (`measures.rs`, `column.rs`).

use super::cell::{CellPlaces, HEAD, Leaf, Varint, has_rowids};
use super::column::{Decoded, Read, get_fixed, get_values};
use super::cursor::Cursor;
use super::heap::Taken;
use super::measures::{Integers, RealsRead, get_reals};
use super::records::{
    BLOB, COLUMNS_MAX, INTEGER, NONE, NULL, REAL, STEP_MAX, TEXT, TYPED, integer_type,
    integer_width,
};
use super::stream::Decoder;
use crate::PayloadError;

const POINTER: usize = 2;
const ROWID: usize = 8;

/// A column of a class, and how far it is used.
#[derive(Default)]
pub(super) struct FieldRead {
    kinds: Taken,
    integers: Integers,
    reals: Taken,
    values: Read,
    row: usize,
    at: usize,
}

impl FieldRead {
    fn memory(&self) -> usize {
        self.kinds.memory() + self.integers.memory() + self.reals.memory() + self.values.memory()
    }

    fn is_used_up(&self) -> bool {
        self.kinds.is_used_up()
            && self.integers.is_used_up()
            && self.reals.is_used_up()
            && self.row == self.values.low.len()
            && self.at == self.values.bytes.len()
    }

    /// The next text or blob.
    #[inline(always)]
    fn value(&mut self) -> Option<(usize, usize)> {
        let (low, high) = (
            *self.values.low.get(self.row)?,
            *self.values.high.get(self.row)?,
        );
        let (at, len) = (self.at, usize::from(u16::from_le_bytes([low, high])));
        self.row += 1;
        self.at += len;
        (self.at <= self.values.bytes.len()).then_some((at, len))
    }
}

/// A class of pages, and how far its streams are used.
#[derive(Default)]
pub(super) struct ClassRead {
    columns: usize,
    pub(super) heads: Taken,
    /// Cell pointers of pages whose order is not the usual one.
    pointers: Taken,
    pub(super) gaps: Taken,
    steps: Taken,
    rowids: Taken,
    last: u64,
    parts: Vec<FieldRead>,
}

impl ClassRead {
    pub(super) fn memory(&mut self) -> usize {
        let parts: usize = self.parts.iter().map(FieldRead::memory).sum();
        let own = self.streams_mut().map(|taken| taken.memory());
        own.iter().sum::<usize>() + parts
    }

    fn streams_mut(&mut self) -> [&mut Taken; 5] {
        let ClassRead {
            heads,
            pointers,
            gaps,
            steps,
            rowids,
            ..
        } = self;
        [heads, pointers, gaps, steps, rowids]
    }

    /// Reads the streams of a class: the type of its pages, its columns. They have at most `most` records.
    pub(super) fn read(
        &mut self,
        decoder: &mut Decoder,
        cursor: &mut Cursor<'_>,
        room: &mut Decoded,
        reals: &mut RealsRead,
        (page, columns): (u8, usize),
        most: usize,
    ) -> Result<(), PayloadError> {
        (self.columns, self.last) = (columns, 0);
        self.streams_mut().into_iter().for_each(Taken::rewind);
        let mut fixed =
            |cursor: &mut Cursor<'_>, decoder: &mut Decoder, width, taken: &mut Taken| {
                get_fixed(decoder, cursor, room, width, most, &mut taken.bytes)
            };
        fixed(cursor, decoder, HEAD, &mut self.heads)?;
        fixed(cursor, decoder, POINTER, &mut self.pointers)?;
        decoder.get(cursor, &mut self.gaps.bytes)?;
        self.steps.bytes.clear();
        self.rowids.bytes.clear();
        if has_rowids(page) {
            decoder.get(cursor, &mut self.steps.bytes)?;
            fixed(cursor, decoder, ROWID, &mut self.rowids)?;
        }
        if self.parts.len() < self.columns {
            self.parts.resize_with(self.columns, FieldRead::default);
        }
        for part in &mut self.parts[..self.columns] {
            (part.row, part.at) = (0, 0);
            part.kinds.rewind();
            part.reals.rewind();
            decoder.get(cursor, &mut part.kinds.bytes)?;
            if part.kinds.bytes.len() > most {
                return Err(cursor.error("more records than their pages hold"));
            }
            let most = part.kinds.bytes.len();
            part.integers.read(decoder, cursor, room, most)?;
            get_reals(decoder, cursor, room, reals, most, &mut part.reals.bytes)?;
            get_values(decoder, cursor, room, most, &mut part.values)?;
        }
        Ok(())
    }

    pub(super) fn is_used_up(&mut self) -> bool {
        let own = self.streams_mut().into_iter();
        let is_own_used_up = own.map(|taken| &*taken).all(Taken::is_used_up);
        is_own_used_up && self.parts[..self.columns].iter().all(FieldRead::is_used_up)
    }

    fn rowid(&mut self) -> Option<u64> {
        let step = u64::from(self.steps.take(1)?[0]);
        self.last = match step {
            STEP_MAX => u64::from_le_bytes(self.rowids.take(8)?.try_into().ok()?),
            _ => self.last.wrapping_add(step),
        };
        Some(self.last)
    }
}

/// Kinds of integers whose type is not the shortest one that holds them.
const TYPED_FIRST: u8 = TYPED + 1;
const TYPED_LAST: u8 = TYPED + 6;

/// Short values are copied as so many bytes.
const PIECE: usize = 32;
/// Bytes of the longest record's values.
const VALUES_MAX: usize = 1 << 16;
/// Bytes of a serial type.
const TYPE_LEN: usize = 3;

/// One record before its place is known.
pub(super) struct Record {
    header: [u8; TYPE_LEN * (COLUMNS_MAX + 1)],
    values: Box<[u8; VALUES_MAX + PIECE]>,
}

impl Default for Record {
    fn default() -> Record {
        Record {
            header: [0; TYPE_LEN * (COLUMNS_MAX + 1)],
            values: Box::new([0; VALUES_MAX + PIECE]),
        }
    }
}

impl Record {
    /// Takes the next record of `class`; returns the lengths of its header and its values.
    #[inline(always)]
    fn take(&mut self, class: &mut ClassRead) -> Option<(usize, usize)> {
        let (mut header, mut len, mut ended) = (1, 0, false);
        for part in &mut class.parts[..class.columns] {
            let kind = part.kinds.take(1)?[0];
            if ended && kind != NONE {
                return None;
            }
            match kind {
                NULL => {
                    self.header[header] = 0;
                    header += 1;
                }
                INTEGER | TYPED_FIRST..=TYPED_LAST => {
                    let value = part.integers.next()?;
                    let serial = match kind {
                        INTEGER => integer_type(value),
                        typed => u32::from(typed - TYPED),
                    };
                    let width = integer_width(serial);
                    self.header[header] = serial as u8;
                    header += 1;
                    let bytes = (value << ((64 - 8 * width) & 63)).to_be_bytes();
                    self.values.get_mut(len..len + 8)?.copy_from_slice(&bytes);
                    len += width;
                }
                REAL => {
                    let bits = u64::from_le_bytes(part.reals.take(8)?.try_into().ok()?);
                    self.header[header] = 7;
                    header += 1;
                    let bytes = bits.to_be_bytes();
                    self.values.get_mut(len..len + 8)?.copy_from_slice(&bytes);
                    len += 8;
                }
                TEXT | BLOB => {
                    let (at, value_len) = part.value()?;
                    let serial = 12 + 2 * value_len as u64 + u64::from(kind == TEXT);
                    header += Varint::write(serial, &mut self.header[header..])?;
                    let out = self.values.get_mut(len..)?;
                    let bytes = &part.values.bytes[..];
                    if value_len <= PIECE
                        && let Some(piece) = bytes.get(at..at + PIECE)
                        && let Some(out) = out.get_mut(..PIECE)
                    {
                        out.copy_from_slice(piece);
                    } else {
                        out.get_mut(..value_len)?
                            .copy_from_slice(&bytes[at..at + value_len]);
                    }
                    len += value_len;
                }
                NONE => ended = true,
                _ => return None,
            }
        }
        self.header[0] = header as u8;
        (header < 0x80).then_some((header, len))
    }
}

/// Cells of pages whose order is not the usual one, and bytes between them.
#[derive(Default)]
pub(super) struct Joining {
    record: Record,
    places: CellPlaces,
}

impl Joining {
    /// Puts the cells of a page together, whose head is in `page`. `None` if the streams do not fit it.
    pub(super) fn join(
        &mut self,
        page: &mut [u8],
        head: &Leaf,
        class: &mut ClassRead,
        is_falling: bool,
    ) -> Option<()> {
        let mut below = page.len();
        if !is_falling {
            self.places.clear(page.len());
        }
        for index in 0..head.cells {
            let rowid = match head.has_rowids() {
                true => Some(class.rowid()?),
                false => None,
            };
            let (header, values) = self.record.take(class)?;
            let len = (header + values) as u64;
            let rowid_len = rowid.map_or(0, Varint::len);
            let cell = Varint::len(len) + rowid_len + header + values;
            let mut less = 0;
            if !is_falling {
                let bytes = class.pointers.take(POINTER)?;
                less = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
            }
            // Modulo 2^16: the end of a page of that size is 0 there.
            let start = usize::from(below.wrapping_sub(less).wrapping_sub(cell) as u16);
            let end = start + cell;
            if start < head.content {
                return None;
            }
            let out = page.get_mut(start..end)?;
            let mut at = Varint::write(len, out)?;
            if let Some(rowid) = rowid {
                at += Varint::write(rowid, &mut out[at..])?;
            }
            out[at..at + header].copy_from_slice(&self.record.header[..header]);
            out[at + header..].copy_from_slice(&self.record.values[..values]);
            Leaf::put_pointer(page, index, start);
            below = start;
            if !is_falling {
                self.places.add(start, end)?;
            }
        }
        if is_falling {
            return (below == head.content).then_some(());
        }
        let len = page.len();
        self.places.gaps(head.content, len, |gap| {
            let kept = class.gaps.take(gap.len())?;
            page.get_mut(gap)?.copy_from_slice(kept);
            Some(())
        })
    }

    pub(super) fn memory(&self) -> usize {
        size_of::<[u32; 1 << 16]>()
    }
}
