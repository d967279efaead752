//! A group: a run of pages of one size and one layout, or a run of other bytes.
//!
//! | part | form |
//! |---|---|
//! | kind | 0: other bytes. 12 to 15: pages of 2^kind bytes. 41 to 48: pages of SQLite (`sqlite.rs`), and nothing of this table |
//! | other bytes | a stream of mode 1 or 6, and nothing else |
//! | pages | number |
//! | columns of the layout | number; 0: no layout |
//! | each column | number: its alignment's logarithm in the low two bits, above them the bytes of a value, or 0 |
//! | forms of the pages | stream |
//! | heads | column of 24 bytes, for pages of forms 2 to 5 |
//! | flags of tuples | stream |
//! | headers of tuples | column of 24 bytes |
//! | line pointers of tuples | column of 4 bytes |
//! | bitmaps of NULLs | a stream for each eight columns of the layout |
//! | bytes of gaps in heap pages | stream |
//! | lengths of items | column of 2 bytes |
//! | heads of items | column of 8 bytes |
//! | line pointers of items | column of 4 bytes |
//! | first addresses, steps | two columns of 8 bytes |
//! | keys of 8, 16, … 64 bytes | eight columns |
//! | other keys | stream |
//! | bytes of gaps in index pages | stream |
//! | bytes of plain pages, of holes and special spaces | stream |
//! | values of each column of the layout | column |
//!
//! A page's form is in its low three bits: 0 plain, 1 all zeros, 2 two runs around a hole, 3 rows, 4 items whose first is
//! the highest, 5 items whose first is the lowest. Bit 3: the hole is not zeros. Bit 4: line pointers are kept. Bit 5:
//! bitmaps are kept. Bit 6: gaps are kept.
//!
//! Invariants
//! - `get` gives back what `put` was given, or refuses; and refuses if a stream has more than its pages need.
//!
//! Leaves to others: rows (`heap.rs`), items (`index.rs`), columns (`column.rs`), streams (`stream.rs`).

use super::cell::CellPlaces;
use super::column::{Decoded, Room, get_fixed, get_fixed_now, get_values, put_fixed, put_values};
use super::cursor::Cursor;
use super::heap::{self, COLUMNS_MAX, Form, HEADER_STORED, HeapRows, Taken};
use super::index::{self, ADDRESS, ADDRESS_STORED, Items, KEYS, Order};
use super::kernel::Kernel;
use super::layout::{Column, Layout};
use super::loops::Loops;
use super::out::Out;
use super::page::{Head, SIZE_BITS, SIZE_BITS_USUAL, size_bits};
use super::sqlite::{self, Cells, CellsRead};
use super::store::Store;
use super::stream::{Coder, Decoder, StreamHead, is_constant};
use crate::PayloadError;

const OTHER_BYTES: u8 = 0;

const PLAIN: u8 = 0;
const ZEROS: u8 = 1;
const AROUND: u8 = 2;
const ROWS: u8 = 3;
const ITEMS: u8 = 4;
const ITEMS_FIRST_LAST: u8 = 5;
const FORM: u8 = 7;
const HOLE: u8 = 8;
const POINTERS: u8 = 16;
const NULLS: u8 = 32;
const GAPS: u8 = 64;

/// Values with lengths of their own count as text if they are longer on average.
const TEXT_FROM: usize = 16;

/// Bytes of a line pointer, of an item's length, and of a column of heads.
const POINTER: usize = 4;
const LENGTH: usize = 2;

/// The streams of a group's pages.
#[derive(Default)]
pub(super) struct Group {
    forms: Store,
    heads: Store,
    rows: HeapRows,
    items: Items,
    plain: Store,
    room: Room,
    cells: Cells,
    /// The layout whose pages are text above all, and how many more of its groups are not taken apart.
    text: Option<(Vec<Column>, usize)>,
    /// The layout of the last group.
    last: Vec<Column>,
}

/// Where so much of a group went to zstd, in tenths, taking it apart costs time and gains nothing.
const TEXT_TENTHS: usize = 8;
/// Groups of the same layout that are then left as they are, before one is looked at again.
const LEFT_AS_TEXT: usize = 7;

/// The columns of a layout that pages can be taken apart by.
fn usable(layout: Option<&Layout>) -> &[Column] {
    let columns = layout.map_or(&[][..], Layout::columns);
    let known = |c: &Column| matches!(c.len, 1.. | -1) && matches!(c.align, 1 | 2 | 4 | 8);
    match columns.len() <= COLUMNS_MAX && columns.iter().all(known) {
        true => columns,
        false => &[],
    }
}

impl Group {
    /// Bytes of memory that it holds.
    pub(super) fn memory(&mut self) -> usize {
        let own = [&self.forms, &self.heads, &self.plain].map(Store::memory);
        let rows = self.rows.memory() + self.items.memory();
        own.iter().sum::<usize>() + rows + self.room.memory() + self.cells.memory()
    }

    /// Appends `bytes` as one group, or two: a last piece that is no whole page is one of its own.
    pub(super) fn put(
        &mut self,
        coder: &mut Coder,
        bytes: &[u8],
        layout: Option<&Layout>,
        out: &mut Out<'_>,
    ) {
        let head = bytes.first_chunk::<{ Head::LEN }>();
        let is_postgres = head.is_some_and(|head| {
            size_bits(head).is_some_and(|bits| Head::read(head, 1 << bits).is_some())
        });
        if layout.is_none()
            && !is_postgres
            && let Some(len) = self.cells.put(coder, bytes, out)
        {
            return put_other(coder, &bytes[len..], out);
        }
        let bits = bytes
            .chunks(1 << SIZE_BITS.start())
            .filter(|piece| piece.len() >= Head::LEN)
            .find_map(size_bits)
            .unwrap_or(SIZE_BITS_USUAL);
        let size = 1 << bits;
        let (pages, rest) = bytes.split_at(bytes.len() / size * size);
        let columns = usable(layout);
        if pages.is_empty()
            || self.is_left_as_text(columns)
            || !self.split(coder.kernel, pages, size, columns)
        {
            return put_other(coder, bytes, out);
        }
        let before = coder.zstd_bytes();
        self.write(coder, bits, columns, out);
        put_other(coder, rest, out);
        // Groups without a layout have nothing in common.
        let is_text = (coder.zstd_bytes() - before) * 10 >= TEXT_TENTHS * pages.len();
        if is_text && !columns.is_empty() {
            self.text = Some((columns.to_vec(), LEFT_AS_TEXT));
        }
    }

    fn is_left_as_text(&mut self, columns: &[Column]) -> bool {
        match &mut self.text {
            Some((text, left)) if text == columns && *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    /// Takes pages apart; says whether that gains anything.
    fn split(&mut self, kernel: Kernel, pages: &[u8], size: usize, columns: &[Column]) -> bool {
        for store in [&mut self.forms, &mut self.heads, &mut self.plain] {
            store.clear();
        }
        self.rows.clear(columns.len());
        self.items.clear();
        let mut gained = false;
        for page in pages.chunks_exact(size) {
            let form = self.page(kernel, page, columns);
            self.forms.push([form]);
            gained |= form != PLAIN;
        }
        gained
    }

    fn page(&mut self, kernel: Kernel, page: &[u8], columns: &[Column]) -> u8 {
        let Some(head) = Head::of(page) else {
            if is_constant(page, 0) {
                return ZEROS;
            }
            self.plain.extend(page);
            return PLAIN;
        };
        let hole = &page[head.lower..head.upper];
        let kept_hole = if is_constant(hole, 0) { 0 } else { HOLE };
        let form = self.form(kernel, page, &head, columns);
        if form & FORM == AROUND && (kept_hole != 0 || hole.is_empty()) {
            self.plain.extend(page);
            return PLAIN;
        }
        self.heads.extend(&page[..Head::LEN]);
        if form & FORM == AROUND {
            self.plain.extend(&page[Head::LEN..head.lower]);
            self.plain.extend(&page[head.upper..]);
            return AROUND;
        }
        self.plain.extend(&page[head.special..]);
        if kept_hole != 0 {
            self.plain.extend(hole);
        }
        form | kept_hole
    }

    fn form(&mut self, kernel: Kernel, page: &[u8], head: &Head, columns: &[Column]) -> u8 {
        if !columns.is_empty() && head.special == head.size {
            return match self.rows.split(kernel, page, head, columns) {
                Some(form) => ROWS | bits_of(form),
                None => AROUND,
            };
        }
        if head.special == head.size {
            return AROUND;
        }
        match self.items.split(page, head) {
            Some(Order::Falling) => ITEMS,
            Some(Order::FirstLast) => ITEMS_FIRST_LAST,
            Some(Order::Other) => ITEMS | POINTERS,
            None => AROUND,
        }
    }

    fn write(&mut self, coder: &mut Coder, bits: u8, columns: &[Column], out: &mut Out<'_>) {
        out.push(bits);
        out.number(self.forms.len());
        out.number(columns.len());
        for column in columns {
            let len = usize::try_from(column.len).unwrap_or(0);
            out.number(len << 2 | column.align.trailing_zeros() as usize);
        }
        coder.begin(self.last == columns, self.spare(columns));
        if self.last != columns {
            self.last = columns.to_vec();
        }
        let Group {
            forms,
            heads,
            rows,
            items,
            plain,
            room,
            cells: _,
            text: _,
            last: _,
        } = self;
        coder.put(forms.used(), out);
        let mut fixed = |coder: &mut Coder, store: &Store, width, out: &mut Out<'_>| {
            put_fixed(coder, room, store.used(), width, out)
        };
        fixed(coder, heads, Head::LEN, out);
        let text = |coder: &mut Coder, store: &Store, out: &mut Out<'_>| {
            coder.begin_next();
            coder.put_text(store.used(), out)
        };
        coder.put(rows.flags.used(), out);
        fixed(coder, &rows.headers, HEADER_STORED, out);
        fixed(coder, &rows.pointers, POINTER, out);
        for i in 0..columns.len().div_ceil(8) {
            coder.put(rows.nulls.get(i).map_or(&[], Store::used), out);
        }
        text(coder, &rows.rest, out);
        fixed(coder, &items.lengths, LENGTH, out);
        fixed(coder, &items.heads, 8, out);
        fixed(coder, &items.pointers, POINTER, out);
        fixed(coder, &items.firsts, ADDRESS_STORED, out);
        fixed(coder, &items.steps, ADDRESS_STORED, out);
        for (i, keys) in items.keys.iter().enumerate() {
            fixed(coder, keys, 8 * (i + 1), out);
        }
        text(coder, &items.long, out);
        text(coder, &items.rest, out);
        text(coder, plain, out);
        for (column, values) in columns.iter().zip(&rows.columns) {
            match usize::try_from(column.len) {
                Ok(width) => put_fixed(coder, room, values.bytes.used(), width, out),
                Err(_) => put_values(coder, room, values, out),
            }
        }
    }

    /// About how many bytes the columns that are no text save against zstd: three in ten of their plain bytes.
    fn spare(&self, columns: &[Column]) -> usize {
        let (rows, items) = (&self.rows, &self.items);
        let mut saved =
            self.heads.len() + items.heads.len() + items.steps.len() + rows.headers.len();
        saved += rows.flags.len() * HEADER_STORED;
        saved += items.keys.iter().map(Store::len).sum::<usize>();
        for (column, values) in columns.iter().zip(&rows.columns) {
            let is_text = column.len < 0 && values.bytes.len() > TEXT_FROM * values.low.len();
            if !is_text {
                saved += values.bytes.len() + values.low.len();
            }
        }
        saved * 3 / 10
    }
}

fn bits_of(form: Form) -> u8 {
    let bit = |is: bool, bit| if is { bit } else { 0 };
    bit(form.pointers, POINTERS) | bit(form.nulls, NULLS) | bit(form.gaps, GAPS)
}

fn put_other(coder: &mut Coder, bytes: &[u8], out: &mut Out<'_>) {
    if !bytes.is_empty() {
        out.push(OTHER_BYTES);
        coder.put_any(bytes, out);
    }
}

/// Memory for decoding groups.
#[derive(Default)]
pub(super) struct Ungroup {
    columns: Vec<Column>,
    forms: Taken,
    heads: Taken,
    rows: heap::HeapParts,
    items: index::IndexParts,
    plain: Taken,
    room: Decoded,
    cells: CellsRead,
}

impl Ungroup {
    /// Bytes of memory that it holds.
    pub(super) fn memory(&mut self) -> usize {
        let own = [&self.forms, &self.heads, &self.plain].map(Taken::memory);
        let items: usize = self.items.streams().map(|taken| taken.memory()).sum();
        let rest = self.room.memory() + self.cells.memory() + CellPlaces::MEMORY;
        own.iter().sum::<usize>() + self.rows.memory() + items + rest
    }

    /// Reads a group into the start of `plain`; returns how many bytes it had.
    pub(super) fn get(
        &mut self,
        decoder: &mut Decoder,
        cursor: &mut Cursor<'_>,
        plain: &mut [u8],
    ) -> Result<usize, PayloadError> {
        let at = cursor.at();
        let wrong = |what| PayloadError::at(at, what);
        let kind = cursor.byte()?;
        if kind == OTHER_BYTES {
            return decoder.get_other(cursor, plain);
        }
        if sqlite::is_kind(kind) {
            return self.cells.get(kind, decoder, cursor, plain);
        }
        if !SIZE_BITS.contains(&kind) {
            return Err(wrong("a group has a kind that is not known"));
        }
        let size = 1 << kind;
        let count = cursor.number()?;
        let Some(plain) = plain.get_mut(..count * size).filter(|_| count > 0) else {
            return Err(wrong("groups are longer than the buffer"));
        };
        self.read_columns(cursor)?;
        self.read_streams(decoder, cursor, count * size)?;
        if self.forms.bytes.len() != count {
            return Err(wrong("a group has not one form for each page"));
        }
        let pages = Pages {
            groups: self,
            plain,
            size,
        };
        let joined = decoder.kernel.run(pages);
        joined.ok_or(wrong("a page does not come out of its streams"))?;
        match self.is_used_up() {
            true => Ok(count * size),
            false => Err(wrong("streams have more than their pages need")),
        }
    }

    fn read_columns(&mut self, cursor: &mut Cursor<'_>) -> Result<(), PayloadError> {
        let count = cursor.number()?;
        if count > COLUMNS_MAX {
            return Err(cursor.error("a layout has too many columns"));
        }
        self.columns.clear();
        for _ in 0..count {
            let number = cursor.number()?;
            let align = 1 << (number & 3);
            let len = match i16::try_from(number >> 2) {
                Ok(0) => -1,
                Ok(len) => len,
                Err(_) => return Err(cursor.error("a column is too wide")),
            };
            self.columns.push(Column { len, align });
        }
        Ok(())
    }

    fn read_streams(
        &mut self,
        decoder: &mut Decoder,
        cursor: &mut Cursor<'_>,
        pages_len: usize,
    ) -> Result<(), PayloadError> {
        let Ungroup {
            columns,
            forms,
            heads,
            rows,
            items,
            plain,
            room,
            cells: _,
        } = self;
        rows.rewind(columns.len());
        items.streams().for_each(Taken::rewind);
        for taken in [&mut *forms, heads, plain] {
            taken.rewind();
        }
        decoder.get(cursor, &mut forms.bytes)?;
        decoder.together(|decoder, pending| {
            // A value is so many bytes of its page at least, but a row's address is two fewer.
            let mut fixed = |decoder: &mut Decoder,
                             cursor: &mut Cursor<'_>,
                             taken: &mut Taken,
                             width: usize| {
                let most = match width {
                    ADDRESS_STORED => pages_len / ADDRESS,
                    _ => pages_len / width,
                };
                get_fixed_now(decoder, cursor, room, width, most, &mut taken.bytes)
            };
            fixed(decoder, cursor, heads, Head::LEN)?;
            let flags = StreamHead::read(cursor)?;
            let tuples = flags.len;
            if tuples * HEADER_STORED > pages_len {
                return Err(cursor.error("more tuples than their pages hold"));
            }
            cursor.sized(&mut rows.flags.bytes, tuples)?;
            decoder.body(flags, cursor, &mut rows.flags.bytes, pending)?;
            fixed(decoder, cursor, &mut rows.headers, HEADER_STORED)?;
            fixed(decoder, cursor, &mut rows.pointers, POINTER)?;
            for nulls in &mut rows.nulls {
                decoder.put_off(cursor, &mut nulls.bytes, pending)?;
            }
            decoder.put_off(cursor, &mut rows.rest.bytes, pending)?;
            fixed(decoder, cursor, &mut items.lengths, LENGTH)?;
            fixed(decoder, cursor, &mut items.heads, 8)?;
            fixed(decoder, cursor, &mut items.pointers, POINTER)?;
            fixed(decoder, cursor, &mut items.firsts, ADDRESS_STORED)?;
            fixed(decoder, cursor, &mut items.steps, ADDRESS_STORED)?;
            for i in 0..KEYS {
                fixed(decoder, cursor, &mut items.keys[i], 8 * (i + 1))?;
            }
            decoder.put_off(cursor, &mut items.long.bytes, pending)?;
            decoder.put_off(cursor, &mut items.rest.bytes, pending)?;
            decoder.put_off(cursor, &mut plain.bytes, pending)?;
            for (column, part) in columns.iter().zip(&mut rows.columns) {
                let values = &mut part.values;
                match usize::try_from(column.len) {
                    Ok(width) => {
                        let bytes = &mut values.bytes;
                        get_fixed(decoder, cursor, room, width, tuples, bytes, pending)?
                    }
                    Err(_) => get_values(decoder, cursor, room, tuples, values, pending)?,
                }
            }
            Ok(())
        })
    }

    /// Puts together one page, whatever its bytes are.
    #[inline(always)]
    fn page(&mut self, page: &mut [u8], form: u8) -> Option<()> {
        match form {
            PLAIN => {
                page.copy_from_slice(self.plain.take(page.len())?);
                return Some(());
            }
            ZEROS => {
                page.fill(0);
                return Some(());
            }
            _ => {}
        }
        page[..Head::LEN].copy_from_slice(self.heads.take(Head::LEN)?);
        let head = Head::of(page)?;
        let mut copy = |range: std::ops::Range<usize>, page: &mut [u8]| {
            let bytes = self.plain.take(range.len())?;
            page[range].copy_from_slice(bytes);
            Some(())
        };
        if form == AROUND {
            copy(Head::LEN..head.lower, page)?;
            page[head.lower..head.upper].fill(0);
            return copy(head.upper..head.size, page);
        }
        copy(head.special..head.size, page)?;
        match form & HOLE {
            0 => page[head.lower..head.upper].fill(0),
            _ => copy(head.lower..head.upper, page)?,
        }
        let pointers = form & POINTERS != 0;
        match form & !HOLE {
            _ if form & FORM == ROWS && form < 128 => {
                let form = Form {
                    pointers,
                    nulls: form & NULLS != 0,
                    gaps: form & GAPS != 0,
                };
                self.rows.join(page, &head, form, &self.columns)
            }
            ITEMS => self.items.join(page, &head, Order::Falling),
            ITEMS_FIRST_LAST => self.items.join(page, &head, Order::FirstLast),
            form if form == ITEMS | POINTERS => self.items.join(page, &head, Order::Other),
            _ => None,
        }
    }

    fn is_used_up(&mut self) -> bool {
        let rows = &mut self.rows;
        let mut columns = self.columns.iter().zip(&rows.columns);
        let mut streams = [
            &rows.flags,
            &rows.headers,
            &rows.pointers,
            &rows.rest,
            &self.heads,
            &self.plain,
        ]
        .into_iter()
        .chain(&rows.nulls);
        columns.all(|(column, part)| part.is_used_up(column.len <= 0))
            && streams.all(Taken::is_used_up)
            && self.items.streams().all(|taken| taken.is_used_up())
    }
}

/// Putting together the pages of a group, of which each has its form.
struct Pages<'g, 'p> {
    groups: &'g mut Ungroup,
    plain: &'p mut [u8],
    size: usize,
}

impl Loops for Pages<'_, '_> {
    type Result = Option<()>;

    #[inline(always)]
    fn run(self) -> Option<()> {
        for (i, page) in self.plain.chunks_exact_mut(self.size).enumerate() {
            let form = self.groups.forms.bytes[i];
            self.groups.page(page, form)?;
        }
        Some(())
    }
}
