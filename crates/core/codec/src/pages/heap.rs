//! Rows of a table: a heap page as line pointers, tuple headers and columns.
//!
//! The lengths of a column's values without one width are two bytes each. The high one is 0 for a value with a header of
//! one byte; bit 7 is set for one of four bytes, and then bit 6 if it is compressed, and the bits below are bits 8 to 13 of
//! the length; 0x40 alone is a pointer to TOAST. The low one has the lowest bits of the length, without the header.
//!
//! Invariants
//! - A page is taken apart only if `join` gives it back byte for byte; else nothing is kept of it.
//!
//! Leaves to others: special spaces and holes (`group.rs`), and how a column is coded (`column.rs`).
//!
//! Source: "Database Page Layout" and "TOAST" of PostgreSQL's documentation, htup_details.h and varatt.h.

use std::ops::Range;

use super::column::{Read, Values};
use super::cursor::Bytes;
use super::kernel::{Kernel, fixed};
use super::layout::Column;
use super::page::{Head, POINTER_NORMAL, Pointer, align8, between, word_at};
use super::store::Store;

/// Tables with more columns are not taken apart.
pub(super) const COLUMNS_MAX: usize = 128;

/// Bytes of a tuple's header without its bitmap.
const HEADER: usize = 23;
pub(super) const HEADER_STORED: usize = 24;
/// `varatt_external` with its tag, after the byte 1: the only pointer that is on disk.
const EXTERNAL: usize = 17;
const EXTERNAL_TAG: u8 = 18;

const LONG: u8 = 0x80;
const COMPRESSED: u8 = 0x40;
const TOASTED: u8 = 0x40;
/// Bits 8 to 13 of a length.
const REST: u8 = 0x3f;
const LENGTH_MAX: usize = 1 << 14;

/// A tuple's flags: which header it has, and whether it has a bitmap of NULLs.
const SAME: u8 = 0;
const BEFORE: u8 = 1;
const OTHER: u8 = 2;
const HAS_NULLS: u8 = 4;

/// What of a header's last eight bytes is kept: not `t_hoff`, not the first byte of the bitmap, and not the bit that says
/// that there is one.
const KEPT: u64 = 0x0000_fffe_ffff_ffff;

/// A tuple's header: three words.
type Header = [u64; 3];

/// Headers seen last, over all pages of a group.
#[derive(Default, Clone, Copy)]
pub(super) struct Recent {
    last: Header,
    before: Header,
}

/// Where a tuple is. No page has more than 32 KiB.
#[derive(Clone, Copy, Default)]
struct Tuple {
    start: u16,
    end: u16,
    /// Bytes before its values.
    header: u16,
    /// Its line pointer's index.
    index: u16,
}

impl Tuple {
    fn start(self) -> usize {
        usize::from(self.start)
    }

    fn end(self) -> usize {
        usize::from(self.end)
    }
}

/// The streams of heap pages.
#[derive(Default)]
pub(super) struct HeapRows {
    recent: Recent,
    /// One byte for each tuple.
    pub(super) flags: Store,
    /// Headers that are not among the last two, [`HEADER_STORED`] bytes each.
    pub(super) headers: Store,
    /// Line pointers of pages whose order is not the usual one.
    pub(super) pointers: Store,
    /// The bitmaps of all tuples of pages that have NULLs: all first bytes, all second ones.
    pub(super) nulls: Vec<Store>,
    pub(super) columns: Vec<Values>,
    /// Bytes of holes, between tuples, and after them.
    pub(super) rest: Store,
    marks: Vec<[usize; 3]>,
    tuples: Vec<Tuple>,
    /// Which attributes each tuple has, if some tuple has not all.
    present: Vec<u128>,
    /// The tuples' numbers by their places, on a page with an unusual order.
    order: Vec<usize>,
    offsets: Vec<u32>,
}

/// The parts of a page, apart from its columns, that are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// Its line pointers are kept.
    pub(super) pointers: bool,
    /// Bytes between or after tuples are kept.
    pub(super) gaps: bool,
    /// The bitmaps of its tuples are kept.
    pub(super) nulls: bool,
}

/// Brings bytes into the core's cache, many lines at a time: rows are then read one after the other.
#[inline(always)]
fn touch(bytes: &[u8]) {
    const LINE: usize = 64;
    std::hint::black_box(bytes.iter().step_by(LINE).fold(0, |all, byte| all ^ byte));
}

/// All of `count` bits.
fn all(count: usize) -> u128 {
    match count {
        128.. => u128::MAX,
        count => (1 << count) - 1,
    }
}

impl HeapRows {
    pub(super) fn memory(&self) -> usize {
        let stores = [&self.flags, &self.headers, &self.pointers, &self.rest];
        let stores = stores.into_iter().chain(&self.nulls).map(Store::memory);
        stores.sum::<usize>() + self.columns.iter().map(Values::memory).sum::<usize>()
    }

    /// Makes everything empty, for `columns` columns.
    pub(super) fn clear(&mut self, columns: usize) {
        if self.columns.len() < columns {
            self.columns.resize_with(columns, Values::default);
        }
        self.recent = Recent::default();
        for store in [
            &mut self.flags,
            &mut self.headers,
            &mut self.pointers,
            &mut self.rest,
        ] {
            store.clear();
        }
        self.nulls.iter_mut().for_each(Store::clear);
        for column in &mut self.columns {
            column.bytes.clear();
            column.low.clear();
            column.high.clear();
        }
    }

    /// Takes `page` apart, whose head is plausible and which has no special space. `None`, and nothing is kept, if it is not
    /// exactly as `columns` say.
    pub(super) fn split(
        &mut self,
        kernel: Kernel,
        page: &[u8],
        head: &Head,
        columns: &[Column],
    ) -> Option<Form> {
        let recent = self.recent;
        let lens = [self.flags.len(), self.headers.len(), self.pointers.len()];
        self.marks.clear();
        self.marks.extend(
            self.columns[..columns.len()]
                .iter()
                .map(|c| [c.bytes.len(), c.low.len(), c.high.len()]),
        );
        let form = self.attempt(kernel, page, head, columns);
        if form.is_none() {
            self.recent = recent;
            self.flags.truncate(lens[0]);
            self.headers.truncate(lens[1]);
            self.pointers.truncate(lens[2]);
            for (column, mark) in self.columns.iter_mut().zip(&self.marks) {
                column.bytes.truncate(mark[0]);
                column.low.truncate(mark[1]);
                column.high.truncate(mark[2]);
            }
        }
        form
    }

    fn attempt(
        &mut self,
        kernel: Kernel,
        page: &[u8],
        head: &Head,
        columns: &[Column],
    ) -> Option<Form> {
        touch(&page[head.upper..]);
        let usual = self.find_tuples(page, head)?;
        if self.tuples.is_empty() {
            return None;
        }
        let (nulls, filled) = self.take_headers(page, columns.len())?;
        self.offsets.clear();
        let data = self
            .tuples
            .iter()
            .map(|tuple| u32::from(tuple.start + tuple.header));
        self.offsets.extend(data);
        let present = &self.present;
        let (every, any) = match present.is_empty() {
            true => (u128::MAX, u128::MAX),
            false => present.iter().fold((u128::MAX, 0), |(every, any), bits| {
                (every & bits, any | bits)
            }),
        };
        for (i, column) in columns.iter().enumerate() {
            if any >> i & 1 == 0 {
                continue;
            }
            let whole = every >> i & 1 == 1;
            let mut walk = Walk {
                kernel,
                page,
                present: &self.present,
                offsets: &mut self.offsets,
                column: i,
                align: usize::from(column.align) - 1,
            };
            let values = &mut self.columns[i];
            match (column.len, whole) {
                (1, true) => walk.fixed::<1>(&mut values.bytes)?,
                (2, true) => walk.fixed::<2>(&mut values.bytes)?,
                (4, true) => walk.fixed::<4>(&mut values.bytes)?,
                (8, true) => walk.fixed::<8>(&mut values.bytes)?,
                (16, true) => walk.fixed::<16>(&mut values.bytes)?,
                (1.., _) => walk.fixed_or_null(column.len as usize, &mut values.bytes)?,
                _ => walk.values(values, whole)?,
            }
        }
        let ends = self.tuples.iter().map(|tuple| u32::from(tuple.end));
        if !self.offsets.iter().copied().eq(ends) {
            return None;
        }
        let form = Form {
            pointers: !usual,
            gaps: filled || self.has_gaps(page, head),
            nulls,
        };
        self.keep(page, head, columns.len(), form);
        Some(form)
    }

    /// Keeps the tuples' headers; says whether there are bitmaps of NULLs, and whether bytes after a tuple are not zeros.
    fn take_headers(&mut self, page: &[u8], columns: usize) -> Option<(bool, bool)> {
        let full = all(columns);
        let (mut nulls, mut filled) = (false, 0);
        self.present.clear();
        let flags = self.flags.room(self.tuples.len());
        for (i, (tuple, flag)) in self.tuples.iter_mut().zip(flags).enumerate() {
            let (at, end) = (tuple.start(), tuple.end());
            filled |= between(page, end, align8(end));
            let fixed: &[u8; HEADER_STORED] = page[at..at + HEADER_STORED].try_into().expect("24");
            let header = [word_at(fixed, 0), word_at(fixed, 8), word_at(fixed, 16)];
            let attributes = attributes(&header);
            if attributes == 0 || attributes > columns {
                return None;
            }
            let has_nulls = header[2] >> 32 & 1 == 1;
            let start = (header[2] >> 48) as usize & 0xff;
            let mut present = all(attributes);
            if has_nulls {
                present = bitmap(&page[at..end], attributes, start)?;
                nulls = true;
            } else if start != HEADER_STORED || fixed[HEADER] != 0 {
                return None;
            }
            if present != full && self.present.len() < i {
                self.present.resize(i, full);
            }
            if present != full || !self.present.is_empty() {
                self.present.push(present);
            }
            tuple.header = start as u16;
            let header = normal(header, tuple.index);
            let known = self.recent.find(header);
            *flag = known | if has_nulls { HAS_NULLS } else { 0 };
            if known == OTHER {
                for word in header {
                    self.headers.push(word.to_le_bytes());
                }
            }
        }
        self.flags.advance(self.tuples.len());
        if nulls && self.present.is_empty() {
            // Bitmaps may say that nothing is missing; they are kept all the same.
            self.present.resize(self.tuples.len(), full);
        }
        Some((nulls, filled != 0))
    }

    /// Finds the tuples; says whether they lie as PostgreSQL places them: one below the other, in order, without a gap.
    fn find_tuples(&mut self, page: &[u8], head: &Head) -> Option<bool> {
        self.tuples.clear();
        let (mut below, mut usual) = (head.size, true);
        for index in 0..head.pointers() {
            let pointer = Pointer::at(page, index);
            if pointer.state() != POINTER_NORMAL {
                if pointer.len() != 0 {
                    return None;
                }
                usual = false;
                continue;
            }
            let (at, end) = (pointer.offset(), pointer.offset() + pointer.len());
            if pointer.len() < HEADER_STORED
                || at < head.upper
                || end > head.size
                || !at.is_multiple_of(8)
            {
                return None;
            }
            below = below.wrapping_sub(align8(pointer.len()));
            usual &= at == below;
            self.tuples.push(Tuple {
                start: at as u16,
                end: end as u16,
                header: 0,
                index: index as u16,
            });
        }
        self.order.clear();
        if usual && below == head.upper {
            return Some(true);
        }
        // In another order, they must not overlap.
        self.order.extend(0..self.tuples.len());
        self.order.sort_unstable_by_key(|i| self.tuples[*i].start);
        let mut end = head.upper;
        for i in &self.order {
            let tuple = self.tuples[*i];
            if tuple.start() < end {
                return None;
            }
            end = align8(tuple.end());
        }
        Some(false)
    }

    /// Whether a byte that is not zero lies between the tuples.
    fn has_gaps(&self, page: &[u8], head: &Head) -> bool {
        let mut gaps = self.gaps(head);
        gaps.any(|gap| page[gap].iter().any(|byte| *byte != 0))
    }

    /// Every run of bytes from `pd_upper` on that no tuple with its filling covers; only a page with an unusual order has
    /// some.
    fn gaps(&self, head: &Head) -> impl Iterator<Item = Range<usize>> {
        let starts = self.order.iter().map(|i| self.tuples[*i].start());
        let starts = starts.chain((!self.order.is_empty()).then_some(head.size));
        let ends = self.order.iter().map(|i| align8(self.tuples[*i].end()));
        let ends = std::iter::once(head.upper).chain(ends);
        ends.zip(starts).map(|(end, start)| end..start)
    }

    fn keep(&mut self, page: &[u8], head: &Head, columns: usize, form: Form) {
        if form.pointers {
            self.pointers.extend(&page[Head::LEN..head.lower]);
        }
        if form.nulls {
            let bytes = columns.div_ceil(8);
            if self.nulls.len() < bytes {
                self.nulls.resize_with(bytes, Store::default);
            }
            for (i, nulls) in self.nulls[..bytes].iter_mut().enumerate() {
                for present in &self.present {
                    nulls.push([(present >> (8 * i)) as u8]);
                }
            }
        }
        if form.gaps {
            for tuple in &self.tuples {
                self.rest.extend(&page[tuple.end()..align8(tuple.end())]);
            }
            let mut rest = std::mem::take(&mut self.rest);
            self.gaps(head).for_each(|gap| rest.extend(&page[gap]));
            self.rest = rest;
        }
    }
}

/// The attributes of a tuple that are there, by its bitmap of NULLs; `None` if the header is not as PostgreSQL makes it.
fn bitmap(tuple: &[u8], attributes: usize, start: usize) -> Option<u128> {
    let len = attributes.div_ceil(8);
    if start != align8(HEADER + len) || start > tuple.len() {
        return None;
    }
    let (bytes, after) = tuple[HEADER..start].split_at(len);
    let mut bits = [0; 16];
    bits[..len].copy_from_slice(bytes);
    let bits = u128::from_le_bytes(bits);
    let exact = bits & !all(attributes) == 0 && after.iter().all(|byte| *byte == 0);
    exact.then_some(bits)
}

/// `HeapTupleHeaderGetNatts`: attributes that the tuple has, of which some may be NULL.
fn attributes(header: &Header) -> usize {
    (header[2] >> 16) as usize & 0x7ff
}

/// The header without what follows from its place and its bitmap.
fn normal(header: Header, index: u16) -> Header {
    [
        header[0],
        header[1],
        (header[2] & KEPT) ^ (u64::from(index) + 1),
    ]
}

impl Recent {
    #[inline(always)]
    fn find(&mut self, header: Header) -> u8 {
        // Word by word: an array is compared in memory, where it was just written in other pieces.
        let differ = |a: &Header| (a[0] ^ header[0]) | (a[1] ^ header[1]) | (a[2] ^ header[2]);
        if differ(&self.last) == 0 {
            return SAME;
        }
        if differ(&self.before) == 0 {
            return BEFORE;
        }
        self.before = self.last;
        self.last = header;
        OTHER
    }
}

/// One column of a page: reads its values, and moves the offsets behind them.
struct Walk<'a> {
    kernel: Kernel,
    page: &'a [u8],
    /// As that of [`HeapRows`].
    present: &'a [u128],
    offsets: &'a mut [u32],
    column: usize,
    /// Its alignment less one.
    align: usize,
}

impl Walk<'_> {
    fn has(&self, tuple: usize) -> bool {
        let present = self.present.get(tuple);
        present.is_none_or(|bits| bits >> self.column & 1 == 1)
    }

    /// All tuples have a value of `N` bytes.
    fn fixed<const N: usize>(&mut self, out: &mut Store) -> Option<()> {
        let len = self.offsets.len() * N;
        let room = &mut out.room(len)[..len];
        let (page, offsets) = (self.page, &mut *self.offsets);
        match N {
            4 => self.kernel.fixed_four(page, offsets, self.align, room)?,
            _ => fixed::<N>(page, offsets, self.align, room)?,
        }
        out.advance(len);
        Some(())
    }

    fn fixed_or_null(&mut self, len: usize, out: &mut Store) -> Option<()> {
        let mut filling = 0;
        // The values of one column of a page are not longer than the page.
        let most = out.len() + self.page.len();
        for i in 0..self.offsets.len() {
            if !self.has(i) {
                continue;
            }
            if out.len() > most {
                return None;
            }
            let offset = self.offsets[i] as usize;
            let at = (offset + self.align) & !self.align;
            let value = self.page.get(at..at + len)?;
            out.extend(value);
            filling |= between(self.page, offset, at);
            self.offsets[i] = (at + len) as u32;
        }
        (filling == 0).then_some(())
    }

    /// Values with lengths of their own. `whole`: all tuples have one.
    fn values(&mut self, out: &mut Values, whole: bool) -> Option<()> {
        let rows = self.offsets.len();
        // The values of one column of a page are not longer than the page.
        let bytes = out.bytes.room(self.page.len() + 128);
        let low = &mut out.low.room(rows)[..rows];
        let high = out.high.room(rows);
        if whole && let Some(longest) = self.kernel.short_lengths(self.page, self.offsets, low) {
            high[..rows].fill(0);
            let (page, offsets) = (self.page, &mut *self.offsets);
            let used = match longest {
                0..=8 => copy_short::<8>(page, offsets, low, bytes)?,
                9..=16 => copy_short::<16>(page, offsets, low, bytes)?,
                17..=32 => copy_short::<32>(page, offsets, low, bytes)?,
                33..=64 => copy_short::<64>(page, offsets, low, bytes)?,
                _ => copy_short::<128>(page, offsets, low, bytes)?,
            };
            out.bytes.advance(used);
            out.low.advance(rows);
            out.high.advance(rows);
            return Some(());
        }
        let (mut used, mut row) = (0, 0);
        for i in 0..rows {
            if !whole && !self.has(i) {
                continue;
            }
            let offset = self.offsets[i] as usize;
            let first = *self.page.get(offset)?;
            let (at, len, how) = match first & 1 == 1 && first != 1 {
                true => (offset + 1, usize::from(first >> 1) - 1, 0),
                false => self.long(offset)?,
            };
            low[row] = len as u8;
            high[row] = how;
            row += 1;
            copy(self.page, at, len, bytes.get_mut(used..)?)?;
            used += len;
            self.offsets[i] = (at + len) as u32;
        }
        out.bytes.advance(used);
        out.low.advance(row);
        out.high.advance(row);
        Some(())
    }

    /// A value whose header is not one byte with a length: where it begins, its length, and the high byte that says so.
    fn long(&self, offset: usize) -> Option<(usize, usize, u8)> {
        if self.page[offset] == 1 {
            let tagged = *self.page.get(offset + 1)? == EXTERNAL_TAG;
            return tagged.then_some((offset + 1, EXTERNAL, TOASTED));
        }
        let at = (offset + self.align) & !self.align;
        if between(self.page, offset, at) != 0 {
            return None;
        }
        let header = u32::from_le_bytes(self.page.get(at..at + 4)?.try_into().ok()?);
        let len = ((header >> 2) as usize).checked_sub(4)?;
        if header & 1 == 1 || len >= LENGTH_MAX {
            return None;
        }
        let compressed = if header & 2 == 2 { COMPRESSED } else { 0 };
        Some((at + 4, len, LONG | compressed | (len >> 8) as u8))
    }
}

/// Copies the values at `offsets` with these lengths, none above `N`, one behind the other; returns the bytes of all.
fn copy_short<const N: usize>(
    page: &[u8],
    offsets: &mut [u32],
    lengths: &[u8],
    out: &mut [u8],
) -> Option<usize> {
    let mut used = 0;
    for (offset, len) in offsets.iter_mut().zip(lengths) {
        let (at, len) = (*offset as usize, usize::from(*len));
        let room = out.get_mut(used..used + N)?;
        match page.get(at..at + N) {
            Some(piece) => room.copy_from_slice(piece),
            None => room
                .get_mut(..len)?
                .copy_from_slice(page.get(at..at + len)?),
        }
        used += len;
        *offset = (at + len) as u32;
    }
    Some(used)
}

/// Copies `len` bytes of the page, and perhaps some more, in pieces of a fixed size where that is possible.
#[inline(always)]
pub(super) fn copy(page: &[u8], at: usize, len: usize, out: &mut [u8]) -> Option<()> {
    const PIECE: usize = 32;
    if len <= PIECE
        && let Some(piece) = page.get(at..at + PIECE)
        && let Some(out) = out.get_mut(..PIECE)
    {
        out.copy_from_slice(piece);
        return Some(());
    }
    out.get_mut(..len)?.copy_from_slice(page.get(at..at + len)?);
    Some(())
}

/// Streams from which heap pages are put together, and how far they are used.
#[derive(Default)]
pub(super) struct HeapParts {
    recent: Recent,
    pub(super) flags: Taken,
    pub(super) headers: Taken,
    pub(super) pointers: Taken,
    pub(super) nulls: Vec<Taken>,
    pub(super) columns: Vec<ColumnRead>,
    pub(super) rest: Taken,
    row: Row,
    /// Places of the tuples of a page that has gaps.
    places: Vec<Range<usize>>,
}

/// The longest tuple.
const ROW_MAX: usize = (1 << 15) - 1;
/// Short values are copied as so many bytes.
const PIECE: usize = 32;

/// One tuple, which is put together before its length and so its place are known. What is behind its end is of no meaning:
/// copies may write there.
struct Row(Box<[u8; ROW_MAX + 1 + PIECE]>);

impl Default for Row {
    fn default() -> Row {
        Row(Box::new([0; ROW_MAX + 1 + PIECE]))
    }
}

impl Row {
    /// Copies `len` bytes from `from` on to `at`. `None` if there are not so many, or the row becomes too long.
    #[inline(always)]
    fn copy(&mut self, at: usize, bytes: &[u8], from: usize, len: usize) -> Option<()> {
        if at > ROW_MAX || len > ROW_MAX - at {
            return None;
        }
        if len <= PIECE
            && let Some(piece) = bytes.get(from..from + PIECE)
        {
            self.0[at..at + PIECE].copy_from_slice(piece);
        } else {
            self.0[at..at + len].copy_from_slice(bytes.get(from..from + len)?);
        }
        Some(())
    }

    /// Copies a value of `N` bytes.
    #[inline(always)]
    fn copy_fixed<const N: usize>(&mut self, at: usize, bytes: &[u8], from: usize) -> Option<()> {
        if at > ROW_MAX - N {
            return None;
        }
        self.0[at..at + N].copy_from_slice(bytes.get(from..from + N)?);
        Some(())
    }

    /// Writes zeros between two values, at most eight.
    #[inline(always)]
    fn fill(&mut self, at: usize) -> Option<()> {
        if at > ROW_MAX {
            return None;
        }
        self.0[at..at + 8].copy_from_slice(&[0; 8]);
        Some(())
    }
}

/// A stream of which the first bytes are used up.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) bytes: Bytes,
    used: usize,
}

impl Taken {
    pub(super) fn rewind(&mut self) {
        self.used = 0;
    }

    pub(super) fn memory(&self) -> usize {
        self.bytes.memory()
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.used == self.bytes.len()
    }

    /// The bytes that are not used yet.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    #[inline(always)]
    pub(super) fn take(&mut self, len: usize) -> Option<&[u8]> {
        let taken = self.bytes.get(self.used..self.used + len)?;
        self.used += len;
        Some(taken)
    }
}

/// A column, and how far it is used. For values of one width, `values.bytes` has them.
#[derive(Default)]
pub(super) struct ColumnRead {
    pub(super) values: Read,
    pub(super) row: usize,
    pub(super) at: usize,
}

impl ColumnRead {
    pub(super) fn rewind(&mut self) {
        (self.row, self.at) = (0, 0);
    }

    /// The next value's length, in two bytes.
    #[inline(always)]
    pub(super) fn length(&mut self) -> Option<(u8, u8)> {
        let row = self.row;
        self.row += 1;
        Some((*self.values.low.get(row)?, *self.values.high.get(row)?))
    }

    pub(super) fn is_used_up(&self, has_lengths: bool) -> bool {
        self.at == self.values.bytes.len() && (!has_lengths || self.row == self.values.low.len())
    }
}

/// How a value with a length of its own lies in a tuple.
#[derive(Clone, Copy)]
struct Stored {
    /// Its header is aligned.
    aligned: bool,
    /// Bytes of its header, and the header.
    header: (usize, u32),
    len: usize,
}

impl Stored {
    #[inline(always)]
    fn of(low: u8, high: u8) -> Option<Stored> {
        let len = usize::from(low);
        let (aligned, header, len) = match high {
            0 if len < 127 => (false, (1, (low as u32 + 1) << 1 | 1), len),
            TOASTED if len == EXTERNAL => (false, (1, 1), len),
            LONG.. => {
                let len = len | usize::from(high & REST) << 8;
                let compressed = u32::from(high & COMPRESSED != 0) << 1;
                (true, (4, ((len + 4) as u32) << 2 | compressed), len)
            }
            _ => return None,
        };
        Some(Stored {
            aligned,
            header,
            len,
        })
    }
}

impl HeapParts {
    pub(super) fn memory(&self) -> usize {
        let streams = [&self.flags, &self.headers, &self.pointers, &self.rest];
        let streams = streams.into_iter().chain(&self.nulls).map(Taken::memory);
        let columns = self.columns.iter().map(|part| part.values.memory());
        streams.chain(columns).sum()
    }

    /// Makes everything unused, for `columns` columns.
    pub(super) fn rewind(&mut self, columns: usize) {
        self.recent = Recent::default();
        let streams = [
            &mut self.flags,
            &mut self.headers,
            &mut self.pointers,
            &mut self.rest,
        ];
        streams.into_iter().for_each(Taken::rewind);
        self.nulls.resize_with(columns.div_ceil(8), Taken::default);
        self.nulls.iter_mut().for_each(Taken::rewind);
        if self.columns.len() < columns {
            self.columns.resize_with(columns, ColumnRead::default);
        }
        self.columns.iter_mut().for_each(ColumnRead::rewind);
    }

    /// Puts a page together whose head, hole and special space are in `page`. `None` if the streams do not fit it.
    #[inline(always)]
    pub(super) fn join(
        &mut self,
        page: &mut [u8],
        head: &Head,
        form: Form,
        columns: &[Column],
    ) -> Option<()> {
        if form.pointers {
            let pointers = self.pointers.take(head.lower - Head::LEN)?;
            page[Head::LEN..head.lower].copy_from_slice(pointers);
            page[head.upper..head.special].fill(0);
        }
        self.places.clear();
        let mut below = head.size;
        for index in 0..head.pointers() {
            let kept = form.pointers.then(|| Pointer::at(page, index));
            if kept.is_some_and(|pointer| pointer.state() != POINTER_NORMAL) {
                continue;
            }
            let len = self.tuple(index, form, columns)?;
            let start = match kept {
                Some(pointer) => {
                    (pointer.len() == len).then_some(())?;
                    pointer.offset()
                }
                None => {
                    below = below.checked_sub(align8(len))?;
                    Pointer::normal(below, len).put(page, index);
                    below
                }
            };
            (start >= head.upper && start.is_multiple_of(8)).then_some(())?;
            page.get_mut(start..start + align8(len))?
                .copy_from_slice(&self.row.0[..align8(len)]);
            if form.gaps {
                self.places.push(start..start + len);
            }
        }
        (form.pointers || below == head.upper).then_some(())?;
        match form.gaps {
            true => self.fill_gaps(page, head, form),
            false => Some(()),
        }
    }

    /// Makes the next tuple in `row`; returns its length.
    #[inline(always)]
    fn tuple(&mut self, index: usize, form: Form, columns: &[Column]) -> Option<usize> {
        let flag = self.flags.take(1)?[0];
        let header = match flag & 3 {
            SAME => self.recent.last,
            BEFORE => self.recent.before,
            OTHER => {
                let bytes = self.headers.take(HEADER_STORED)?;
                let header = [word_at(bytes, 0), word_at(bytes, 8), word_at(bytes, 16)];
                self.recent.before = std::mem::replace(&mut self.recent.last, header);
                header
            }
            _ => return None,
        };
        let has_nulls = flag & HAS_NULLS != 0;
        let attributes = attributes(&header);
        if attributes == 0 || attributes > columns.len() || flag > HAS_NULLS | OTHER {
            return None;
        }
        let mut present = all(attributes);
        if form.nulls {
            let mut bits = [0; 16];
            for (byte, nulls) in bits.iter_mut().zip(&mut self.nulls) {
                *byte = nulls.take(1)?[0];
            }
            present &= u128::from_le_bytes(bits);
        } else if has_nulls {
            return None;
        }
        let row = &mut self.row.0;
        let mut start = HEADER_STORED;
        let mut last = (header[2] ^ (index as u64 + 1)) & KEPT;
        if has_nulls {
            let len = attributes.div_ceil(8);
            start = align8(HEADER + len);
            let bits = present.to_le_bytes();
            row[HEADER + 1..HEADER + 16].copy_from_slice(&bits[1..]);
            row[HEADER + len..HEADER + 17].fill(0);
            last |= u64::from(bits[0]) << 56 | 1 << 32;
        }
        last |= (start as u64) << 48;
        row[..8].copy_from_slice(&header[0].to_le_bytes());
        row[8..16].copy_from_slice(&header[1].to_le_bytes());
        row[16..24].copy_from_slice(&last.to_le_bytes());
        let end = self.values(present, start, columns)?;
        self.row.fill(end)?;
        Some(end)
    }

    /// Appends the values that are there to `row`, from `start` on; returns where they end.
    #[inline(always)]
    fn values(&mut self, mut present: u128, start: usize, columns: &[Column]) -> Option<usize> {
        let mut offset = start;
        let row = &mut self.row;
        for (column, part) in columns.iter().zip(&mut self.columns) {
            let is_there = present & 1 == 1;
            present >>= 1;
            if !is_there {
                continue;
            }
            let align = usize::from(column.align) - 1;
            if let Ok(len) = usize::try_from(column.len) {
                row.fill(offset)?;
                let at = (offset + align) & !align;
                let bytes = &part.values.bytes[..];
                match len {
                    4 => row.copy_fixed::<4>(at, bytes, part.at)?,
                    8 => row.copy_fixed::<8>(at, bytes, part.at)?,
                    _ => row.copy(at, bytes, part.at, len)?,
                }
                part.at += len;
                offset = at + len;
                continue;
            }
            let (low, high) = part.length()?;
            let (at, len) = if high == 0 && low < 127 {
                row.copy_fixed::<1>(offset, &[(low + 1) << 1 | 1], 0)?;
                (offset + 1, usize::from(low))
            } else {
                let stored = Stored::of(low, high)?;
                row.fill(offset)?;
                let at = match stored.aligned {
                    true => (offset + align) & !align,
                    false => offset,
                };
                let (header_len, header) = stored.header;
                row.copy_fixed::<4>(at, &header.to_le_bytes(), 0)?;
                (at + header_len, stored.len)
            };
            row.copy(at, &part.values.bytes, part.at, len)?;
            part.at += len;
            offset = at + len;
        }
        Some(offset)
    }

    fn fill_gaps(&mut self, page: &mut [u8], head: &Head, form: Form) -> Option<()> {
        for place in &self.places {
            let gap = place.end..align8(place.end);
            page[gap.clone()].copy_from_slice(self.rest.take(gap.len())?);
        }
        if !form.pointers {
            return Some(());
        }
        self.places.sort_unstable_by_key(|place| place.start);
        let mut covered = head.upper;
        let places = self
            .places
            .iter()
            .map(|place| (place.start, align8(place.end)));
        for (start, end) in places.chain([(head.size, head.size)]) {
            let gap = page.get_mut(covered..start)?;
            gap.copy_from_slice(self.rest.take(gap.len())?);
            covered = end;
        }
        Some(())
    }
}
