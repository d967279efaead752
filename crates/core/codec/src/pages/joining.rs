//! Records of SQLite: the cells of a page from their columns.
//!
//! Invariants
//! - `join` writes within the page, or refuses, with any streams.
//!
//! Leaves to others: taking pages apart (`records.rs`), and reading the columns (`measures.rs`, `column.rs`).

use super::batch::{BEFORE, Batch, FieldRead};
use super::cell::{CellPlaces, HEAD, Leaf, Varint, has_rowids};
use super::column::{Decoded, get_fixed_now, get_values};
use super::cursor::Cursor;
use super::heap::Taken;
use super::measures::{RealsRead, get_reals};
use super::records::STEP_MAX;
use super::stream::{Decoder, StreamHead};
use crate::PayloadError;

const POINTER: usize = 2;
const ROWID: usize = 8;

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
        decoder.together(|decoder, pending| {
            let mut fixed =
                |cursor: &mut Cursor<'_>, decoder: &mut Decoder, width, taken: &mut Taken| {
                    get_fixed_now(decoder, cursor, room, width, most, &mut taken.bytes)
                };
            fixed(cursor, decoder, HEAD, &mut self.heads)?;
            fixed(cursor, decoder, POINTER, &mut self.pointers)?;
            decoder.put_off(cursor, &mut self.gaps.bytes, pending)?;
            self.rowids.bytes.clear();
            match has_rowids(page) {
                true => {
                    decoder.put_off(cursor, &mut self.steps.bytes, pending)?;
                    fixed(cursor, decoder, ROWID, &mut self.rowids)?;
                }
                false => self.steps.bytes.clear(),
            }
            if self.parts.len() < self.columns {
                self.parts.resize_with(self.columns, FieldRead::default);
            }
            for part in &mut self.parts[..self.columns] {
                part.rewind();
                let head = StreamHead::read(cursor)?;
                if head.len > most {
                    return Err(cursor.error("more records than their pages hold"));
                }
                let most = head.len;
                cursor.sized(&mut part.kinds.bytes, most)?;
                decoder.body(head, cursor, &mut part.kinds.bytes, pending)?;
                part.integers.read(decoder, cursor, room, most, pending)?;
                get_reals(decoder, cursor, room, reals, most, &mut part.reals.bytes)?;
                get_values(decoder, cursor, room, most, &mut part.texts.values, pending)?;
            }
            Ok(())
        })
    }

    pub(super) fn is_used_up(&mut self) -> bool {
        let own = self.streams_mut().into_iter();
        let is_own_used_up = own.map(|taken| &*taken).all(Taken::is_used_up);
        is_own_used_up && self.parts[..self.columns].iter().all(FieldRead::is_used_up)
    }

    #[inline(always)]
    fn rowid(&mut self) -> Option<u64> {
        let step = u64::from(self.steps.take(1)?[0]);
        self.last = match step {
            STEP_MAX => u64::from_le_bytes(self.rowids.take(8)?.try_into().ok()?),
            _ => self.last.wrapping_add(step),
        };
        Some(self.last)
    }
}

/// Cells of pages whose order is not the usual one, and bytes between them.
#[derive(Default)]
pub(super) struct Joining {
    batch: Batch,
    places: CellPlaces,
}

impl Joining {
    /// Begins another class.
    pub(super) fn begin(&mut self) {
        self.batch.clear();
    }

    /// Whether all records were used that were made.
    pub(super) fn is_used_up(&self) -> bool {
        self.batch.is_used_up()
    }

    /// Puts the cells of a page together, whose head is in `page`. `None` if the streams do not fit it.
    #[inline(always)]
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
            let record = self.batch.next(&mut class.parts[..class.columns])?;
            let len = record.len();
            let rowid_len = rowid.map_or(0, Varint::len);
            let cell = Varint::len(len as u64) + rowid_len + len;
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
            // Below a cell nothing is written yet, as far as the last one.
            let before = start - head.content;
            if is_falling && before >= BEFORE {
                let out = page.get_mut(start - BEFORE..end)?;
                record.put_back(out)?;
                let mut at = out.len() - len;
                if let Some(rowid) = rowid {
                    at -= Varint::write_back(rowid, &mut out[..at])?;
                }
                Varint::write_back(len as u64, &mut out[..at])?;
            } else {
                let out = page.get_mut(start..end)?;
                let mut at = Varint::write(len as u64, out)?;
                if let Some(rowid) = rowid {
                    at += Varint::write(rowid, &mut out[at..])?;
                }
                let (header, values) = (record.header(), record.values());
                out[at..at + header.len()].copy_from_slice(header);
                out[at + header.len()..].copy_from_slice(values);
            }
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
        CellPlaces::MEMORY + Batch::MEMORY
    }
}
