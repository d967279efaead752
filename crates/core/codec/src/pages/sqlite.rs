//! A group of pages of a SQLite database.
//!
//! | part | form |
//! |---|---|
//! | kind | 41 to 48: pages of 2^(kind - 32) bytes |
//! | pages | number |
//! | classes | number |
//! | each class | a byte, the type of its pages: 10 or 13; number of columns |
//! | forms of the pages | stream |
//! | classes of pages of form 2 | stream |
//! | plain pages | stream |
//! | of each class: heads of its pages | column of 8 bytes |
//! | cell pointers | column of 2 bytes |
//! | bytes of holes and gaps | stream |
//! | of a class of type 13: steps | stream |
//! | and other rowids | column of 8 bytes |
//! | of each of its columns: kinds | stream |
//! | and values | integers, real numbers (`measures.rs`), column of lengths |
//!
//! A page's form is in its low three bits: 0 plain, 1 all zeros, 2 cells. Bit 3: the hole is not zeros. Bit 4: cell pointers and
//! gaps are kept.
//!
//! Invariants
//! - `get` gives back what `put` was given, or refuses; and refuses if a stream has more than its pages need.
//!
//! Leaves to others: records (`records.rs`, `joining.rs`), streams (`stream.rs`).

use super::cell::{HEAD, Leaf, SIZE_BITS, has_rowids, is_known, size_bits};
use super::column::{Decoded, Room, put_fixed, put_values};
use super::cursor::Cursor;
use super::heap::Taken;
use super::joining::{ClassRead, Joining};
use super::loops::Loops;
use super::measures::{RealsRead, Scratch, put_integers, put_reals, width_of};
use super::out::Out;
use super::records::{COLUMNS_MAX, Field, LeafRecords, NULL, PageRecords, STEP_MAX};
use super::store::Store;
use super::stream::{Coder, Decoder, is_constant};
use crate::PayloadError;

/// A group's kind, less the logarithm of its pages' size.
const KIND: u8 = 32;

const PLAIN: u8 = 0;
const ZEROS: u8 = 1;
const CELLS: u8 = 2;
const HOLE: u8 = 8;
const POINTERS: u8 = 16;

const POINTER: usize = 2;
const ROWID: usize = 8;

/// The most classes of a group, and the most columns of all of them.
const CLASSES_MAX: usize = 64;
const COLUMNS_TOTAL_MAX: usize = 512;

/// The least cell and its pointer.
const CELL_MIN: usize = 4;
/// Where cells are shorter than this on average, with their pointers, they are not taken apart: records need memory.
const CELL_SHORT: usize = 8;

/// Pages that are read together, in bytes.
const BATCH: usize = 16 << 10;

/// The pages of one table or index, and perhaps of others like it.
#[derive(Default)]
struct Class {
    /// The type of the pages.
    page: u8,
    /// The kind of each column, or [`NULL`] while none is known.
    kinds: Vec<u8>,
    /// The places of the pages in the buffer, and whether their holes are kept.
    pages: Vec<(usize, bool, PageRecords)>,
}

impl Class {
    fn memory(&self) -> usize {
        self.kinds.capacity() + self.pages.capacity() * size_of::<(usize, bool, PageRecords)>()
    }

    fn begin(&mut self, page: u8, kinds: &[u8]) {
        self.page = page;
        self.pages.clear();
        self.kinds.clear();
        self.kinds.extend(kinds);
    }

    /// Whether these kinds are not known to be of another table. Those of columns that were NULL are then known.
    fn fits(&mut self, page: u8, kinds: &[u8]) -> bool {
        let same = |(known, kind): (&u8, &u8)| known == kind || *known == NULL || *kind == NULL;
        let fits = self.page == page
            && self.kinds.len() == kinds.len()
            && self.kinds.iter().zip(kinds).all(same);
        if fits {
            for (known, kind) in self.kinds.iter_mut().zip(kinds) {
                *known = (*known).max(*kind);
            }
        }
        fits
    }
}

/// The streams of one class.
#[derive(Default)]
struct Streams {
    heads: Store,
    pointers: Store,
    gaps: Store,
    steps: Store,
    rowids: Store,
    fields: Vec<Field>,
}

impl Streams {
    fn streams_mut(&mut self) -> [&mut Store; 5] {
        let Streams {
            heads,
            pointers,
            gaps,
            steps,
            rowids,
            fields: _,
        } = self;
        [heads, pointers, gaps, steps, rowids]
    }

    fn memory(&mut self) -> usize {
        let fields: usize = self.fields.iter().map(Field::memory).sum();
        let own = self.streams_mut().map(|store| store.memory());
        own.iter().sum::<usize>() + fields
    }

    fn clear(&mut self, columns: usize) {
        self.streams_mut().into_iter().for_each(Store::clear);
        if self.fields.len() < columns {
            self.fields.resize_with(columns, Field::default);
        }
        self.fields.iter_mut().for_each(Field::clear);
    }

    fn put_rowids(&mut self, last: u64, rowids: &[u64]) -> u64 {
        let steps = self.steps.room(rowids.len());
        let mut last = last;
        for (step, rowid) in steps.iter_mut().zip(rowids) {
            let less = rowid.wrapping_sub(last);
            last = *rowid;
            *step = less.min(STEP_MAX) as u8;
            if less >= STEP_MAX {
                self.rowids.push(rowid.to_le_bytes());
            }
        }
        self.steps.advance(rowids.len());
        last
    }

    /// At most so many bytes a reader counts for them: values of a list are counted twice, and their places.
    fn promised(&self) -> usize {
        let mut sum = 3 * self.heads.len() + self.pointers.len();
        sum += TEXT_PROMISED * self.gaps.len();
        sum += self.steps.len() + 3 * self.rowids.len();
        for part in &self.fields {
            let integers = part.integers.len() / 8;
            sum += part.kinds.len() + (2 * width_of(part.magnitudes) + 1) * integers;
            sum += 6 * part.reals.len();
            sum += 4 * part.values.bytes.len() + 6 * part.values.low.len();
        }
        sum
    }
}

/// Groups of pages on their way into a payload.
#[derive(Default)]
pub(super) struct Cells {
    /// The size of the pages before, as a power of two.
    bits: u8,
    forms: Store,
    numbers: Store,
    plain: Store,
    records: LeafRecords,
    /// The first `count` are in use.
    classes: Vec<Class>,
    count: usize,
    streams: Streams,
    room: Room,
    scratch: Scratch,
    /// The class of the page before, and the columns of the classes of the group before.
    recent: usize,
    last: Vec<(u8, usize)>,
    /// How many more groups are left to zstd.
    left: usize,
}

/// Where so much of a group went to zstd, in tenths, taking it apart costs time and gains nothing.
const TEXT_TENTHS: usize = 8;
/// Groups that are then left as they are, before one is looked at again.
const LEFT_AS_TEXT: usize = 7;
/// Fewer bytes say nothing of the groups after them: the first page of a database, for example, which has no records most often.
const JUDGED_FROM: usize = 128 << 10;

impl Cells {
    /// Bytes of memory that it holds.
    pub(super) fn memory(&mut self) -> usize {
        let own = [&self.forms, &self.numbers, &self.plain].map(Store::memory);
        let work = self.records.memory() + self.room.memory() + self.scratch.memory();
        let mut classes = self.classes.capacity() * size_of::<Class>();
        classes += self.classes.iter().map(Class::memory).sum::<usize>();
        classes += self.last.capacity() * size_of::<(u8, usize)>();
        own.iter().sum::<usize>() + work + classes + self.streams.memory()
    }

    /// Appends the pages at the start of `bytes` as a group; returns how many bytes they are: 0, and nothing is appended, if that
    /// gains nothing. `None` if they are no pages of SQLite.
    pub(super) fn put(
        &mut self,
        coder: &mut Coder,
        bytes: &[u8],
        out: &mut Out<'_>,
    ) -> Option<usize> {
        if self.left > 0 {
            self.left -= 1;
            return Some(0);
        }
        self.bits = size_bits(bytes, self.bits)?;
        let pages = &bytes[..bytes.len() >> self.bits << self.bits];
        let before = (coder.zstd_bytes(), out.len());
        let done = self.find(pages) && self.write(coder, pages, out).is_some();
        if !done {
            out.truncate(before.1);
        }
        let is_text = (coder.zstd_bytes() - before.0) * 10 >= TEXT_TENTHS * pages.len();
        if pages.len() >= JUDGED_FROM && (!done || is_text) {
            self.left = LEFT_AS_TEXT;
        }
        Some(if done { pages.len() } else { 0 })
    }

    /// Finds the cells of all pages; says whether that gains anything.
    fn find(&mut self, pages: &[u8]) -> bool {
        for store in [&mut self.forms, &mut self.numbers] {
            store.clear();
        }
        self.records.clear();
        (self.count, self.recent) = (0, 0);
        let size = 1 << self.bits;
        let (mut plain, most) = (0, pages.len() / size / 2);
        for (index, page) in pages.chunks_exact(size).enumerate() {
            let form = match self.cells(page, size * index) {
                Some(form) => form,
                None if is_constant(page, 0) => ZEROS,
                None => PLAIN,
            };
            self.forms.push([form]);
            plain += usize::from(form == PLAIN);
            if plain > most || self.records.len() > pages.len() / CELL_SHORT {
                return false;
            }
        }
        self.count > 0
    }

    fn put_plain(&mut self, coder: &mut Coder, pages: &[u8], out: &mut Out<'_>) {
        self.plain.clear();
        let pages = pages.chunks_exact(1 << self.bits);
        for (page, form) in pages.zip(self.forms.used()) {
            if *form == PLAIN {
                self.plain.extend(page);
            }
        }
        coder.begin_next();
        coder.put_text(self.plain.used(), out);
    }

    fn cells(&mut self, page: &[u8], place: usize) -> Option<u8> {
        let head = Leaf::of(page)?;
        let found = self.records.find(page, &head)?;
        let number = self.class(head.page)?;
        self.recent = number;
        self.numbers.push([number as u8]);
        let hole = &page[head.pointers_end()..head.content];
        let kept_hole = if is_constant(hole, 0) { 0 } else { HOLE };
        let kept_pointers = if found.is_falling { 0 } else { POINTERS };
        let pages = &mut self.classes[number].pages;
        pages.push((place, kept_hole != 0, found));
        Some(CELLS | kept_hole | kept_pointers)
    }

    /// The class of the page whose cells were found.
    fn class(&mut self, page: u8) -> Option<usize> {
        let kinds = &self.records.kinds;
        let known = &mut self.classes[..self.count];
        let order = std::iter::once(self.recent).chain(0..self.count);
        for number in order {
            let class = known.get_mut(number);
            if class.is_some_and(|class| class.fits(page, kinds)) {
                return Some(number);
            }
        }
        let columns: usize = known.iter().map(|class| class.kinds.len()).sum();
        if self.count == CLASSES_MAX || columns + kinds.len() > COLUMNS_TOTAL_MAX {
            return None;
        }
        if self.classes.len() == self.count {
            self.classes.push(Class::default());
        }
        self.classes[self.count].begin(page, kinds);
        self.count += 1;
        Some(self.count - 1)
    }

    /// Appends the group. `None` if a reader would not have the memory for it.
    fn write(&mut self, coder: &mut Coder, pages: &[u8], out: &mut Out<'_>) -> Option<()> {
        out.push(KIND + self.bits);
        out.number(self.forms.len());
        out.number(self.count);
        for class in &self.classes[..self.count] {
            out.push(class.page);
            out.number(class.kinds.len());
        }
        let shape = |class: &Class| (class.page, class.kinds.len());
        let shapes = self.classes[..self.count].iter().map(shape);
        let is_known = self.last.iter().copied().eq(shapes.clone());
        if !is_known {
            self.last.clear();
            self.last.extend(shapes);
        }
        // About how many bytes columns that are no text save against zstd.
        coder.begin(is_known, self.records.measured * 3 / 10);
        coder.put(self.forms.used(), out);
        coder.put(self.numbers.used(), out);
        self.put_plain(coder, pages, out);
        let mut promised = self.forms.len() + self.numbers.len();
        promised += TEXT_PROMISED * self.plain.len();
        for number in 0..self.count {
            self.fill(number, pages)?;
            promised += self.streams.promised();
            (promised < PROMISED_MAX * pages.len()).then_some(())?;
            self.write_class(number, coder, out);
        }
        Some(())
    }

    /// Fills the streams with those of a class.
    fn fill(&mut self, number: usize, pages: &[u8]) -> Option<()> {
        let Cells {
            bits,
            records,
            classes,
            streams,
            ..
        } = self;
        let class = &classes[number];
        let columns = class.kinds.len();
        streams.clear(columns);
        let (mut last, size) = (0, 1 << *bits);
        for some in class.pages.chunks((BATCH / size).max(1)) {
            for (place, keeps_hole, found) in some {
                let page = &pages[*place..][..size];
                let head = Leaf::of(page)?;
                streams.heads.extend(&page[..HEAD]);
                if *keeps_hole {
                    let hole = head.pointers_end()..head.content;
                    streams.gaps.extend(&page[hole]);
                }
                if !found.is_falling {
                    let (pointers, gaps) = (&mut streams.pointers, &mut streams.gaps);
                    records.keep(found, page, &head, pointers, gaps)?;
                }
                if head.has_rowids() {
                    last = streams.put_rowids(last, found.rowids(records));
                }
                records.gather(found, *place);
            }
            let most = size * some.len();
            let fields = &mut streams.fields[..columns];
            records.split(pages, most, fields)?;
            let integers: usize = fields.iter().map(|field| field.integers.len()).sum();
            (integers <= INTEGERS_MAX * pages.len()).then_some(())?;
        }
        Some(())
    }

    fn write_class(&mut self, number: usize, coder: &mut Coder, out: &mut Out<'_>) {
        let Cells {
            classes,
            streams,
            room,
            scratch,
            ..
        } = self;
        let class = &classes[number];
        put_fixed(coder, room, streams.heads.used(), HEAD, out);
        put_fixed(coder, room, streams.pointers.used(), POINTER, out);
        coder.begin_next();
        coder.put_text(streams.gaps.used(), out);
        if has_rowids(class.page) {
            coder.put(streams.steps.used(), out);
            put_fixed(coder, room, streams.rowids.used(), ROWID, out);
        }
        for part in &streams.fields[..class.kinds.len()] {
            coder.put(part.kinds.used(), out);
            let integers = part.integers.used();
            put_integers(
                coder,
                room,
                scratch.narrow(),
                integers,
                part.magnitudes,
                out,
            );
            put_reals(coder, room, scratch, part.reals.used(), out);
            put_values(coder, room, &part.values, out);
        }
    }
}

/// A reader has memory for a little more than so many times the pages.
pub(super) const PROMISED_MAX: usize = 5;
/// Text is counted so often at most: once, and in sequences.
const TEXT_PROMISED: usize = 3;
/// Integers, of which a page has a byte at least, are eight bytes each while a class is written: no more than so many times
/// the pages.
const INTEGERS_MAX: usize = 3;

/// Memory for decoding groups.
#[derive(Default)]
pub(super) struct CellsRead {
    forms: Taken,
    numbers: Taken,
    plain: Taken,
    joining: Joining,
    /// The type of each class's pages, and how many columns their records have.
    classes: Vec<(u8, usize)>,
    class: ClassRead,
    room: Decoded,
    reals: RealsRead,
}

/// Whether a group of this kind is one of SQLite's pages.
pub(super) fn is_kind(kind: u8) -> bool {
    kind.checked_sub(KIND)
        .is_some_and(|bits| SIZE_BITS.contains(&bits))
}

impl CellsRead {
    /// Bytes of memory that it holds.
    pub(super) fn memory(&mut self) -> usize {
        let own = [&self.forms, &self.numbers, &self.plain].map(Taken::memory);
        let rest = self.joining.memory() + self.room.memory() + self.reals.memory();
        own.iter().sum::<usize>() + self.class.memory() + rest
    }

    /// Reads a group of this kind into the start of `plain`; returns how many bytes it had.
    pub(super) fn get(
        &mut self,
        kind: u8,
        decoder: &mut Decoder,
        cursor: &mut Cursor<'_>,
        plain: &mut [u8],
    ) -> Result<usize, PayloadError> {
        let at = cursor.at();
        let wrong = |what| PayloadError::at(at, what);
        let size = 1 << (kind - KIND);
        let count = cursor.number()?;
        let Some(plain) = plain.get_mut(..count * size).filter(|_| count > 0) else {
            return Err(wrong("groups are longer than the buffer"));
        };
        self.read_classes(cursor)?;
        for taken in [&mut self.forms, &mut self.numbers, &mut self.plain] {
            taken.rewind();
            decoder.get(cursor, &mut taken.bytes)?;
        }
        if self.forms.bytes.len() != count {
            return Err(wrong("a group has not one form for each page"));
        }
        self.others(plain, size)
            .ok_or(wrong("a page has no class, or is not among the plain ones"))?;
        for number in 0..self.classes.len() {
            let at = cursor.at();
            self.read_class(number, decoder, cursor, plain.len())?;
            let pages = Pages {
                cells: self,
                plain,
                size,
                number,
            };
            decoder.kernel.run(pages).ok_or(PayloadError::at(
                at,
                "a page does not come out of its streams",
            ))?;
            if !self.class.is_used_up() || !self.joining.is_used_up() {
                return Err(PayloadError::at(at, "a class has more than its pages need"));
            }
        }
        Ok(count * size)
    }

    fn read_classes(&mut self, cursor: &mut Cursor<'_>) -> Result<(), PayloadError> {
        let count = cursor.number()?;
        if count > CLASSES_MAX {
            return Err(cursor.error("a group has too many classes"));
        }
        self.classes.clear();
        let mut total = 0;
        for _ in 0..count {
            let (page, columns) = (cursor.byte()?, cursor.number()?);
            total += columns;
            if !is_known(page) || columns > COLUMNS_MAX || total > COLUMNS_TOTAL_MAX {
                return Err(cursor.error("a class of pages is impossible"));
            }
            self.classes.push((page, columns));
        }
        Ok(())
    }

    /// Puts together the pages that have no cells. `None` if the streams of the group do not fit them.
    fn others(&mut self, plain: &mut [u8], size: usize) -> Option<()> {
        let forms = self.forms.bytes.iter();
        for (form, page) in forms.zip(plain.chunks_exact_mut(size)) {
            match *form {
                PLAIN => page.copy_from_slice(self.plain.take(size)?),
                ZEROS => page.fill(0),
                form if form & !(HOLE | POINTERS) == CELLS => {
                    let number = usize::from(self.numbers.take(1)?[0]);
                    self.classes.get(number)?;
                }
                _ => return None,
            }
        }
        (self.numbers.is_used_up() && self.plain.is_used_up()).then_some(())
    }

    fn read_class(
        &mut self,
        number: usize,
        decoder: &mut Decoder,
        cursor: &mut Cursor<'_>,
        pages_len: usize,
    ) -> Result<(), PayloadError> {
        let (page, columns) = self.classes[number];
        let most = pages_len / CELL_MIN;
        let (room, reals) = (&mut self.room, &mut self.reals);
        self.class
            .read(decoder, cursor, room, reals, (page, columns), most)
    }

    /// Puts together the pages of a class, whatever their bytes are.
    #[inline(always)]
    fn pages(&mut self, plain: &mut [u8], size: usize, number: usize) -> Option<()> {
        let page_type = self.classes[number].0;
        self.joining.begin();
        let mut numbers = self.numbers.bytes.iter();
        let forms = self.forms.bytes.iter();
        for (form, page) in forms.zip(plain.chunks_exact_mut(size)) {
            if form & CELLS == 0 || usize::from(*numbers.next()?) != number {
                continue;
            }
            page[..HEAD].copy_from_slice(self.class.heads.take(HEAD)?);
            let head = Leaf::of(page)?;
            (head.page == page_type).then_some(())?;
            let hole = &mut page[head.pointers_end()..head.content];
            match form & HOLE {
                0 => hole.fill(0),
                _ => hole.copy_from_slice(self.class.gaps.take(hole.len())?),
            }
            let class = &mut self.class;
            self.joining
                .join(page, &head, class, form & POINTERS == 0)?;
        }
        Some(())
    }
}

/// Putting together the pages of a class.
struct Pages<'c, 'p> {
    cells: &'c mut CellsRead,
    plain: &'p mut [u8],
    size: usize,
    number: usize,
}

impl Loops for Pages<'_, '_> {
    type Result = Option<()>;

    #[inline(always)]
    fn run(self) -> Option<()> {
        self.cells.pages(self.plain, self.size, self.number)
    }
}
