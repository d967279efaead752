//! Pages of PostgreSQL from a seed: as a server leaves them, as it may leave them, and as nobody does.
//!
//! - [`Table`]: the layout of a table, and heap pages of its rows;
//! - [`index_page`]: B-tree pages and others like them;
//! - [`damage`]: a few bytes of a page get other values, those with a meaning more often;
//! - [`Buffer`]: pieces of several files, some with the layout of their table, some with a wrong one.
//!
//! Invariants
//! - The same seed makes the same pages.
//! - The parts of a buffer cover it.
//!
//! Leaves to others: real pages, which servers make ([`crate::postgres`]).
//!
//! Source: "Database Page Layout" of PostgreSQL's documentation, htup_details.h, varatt.h, itup.h, nbtree.h.

use crate::Random;

/// `attlen` and `attalign` (in bytes) of each attribute.
pub type Attributes = Vec<(i16, u8)>;

const HEAD: usize = 24;
const SIZES: [usize; 8] = [8192, 8192, 8192, 8192, 8192, 4096, 16384, 32768];

/// A kind of values that a column has.
#[derive(Clone, Copy)]
enum Style {
    Same,
    Rising,
    Few,
    Noise,
    Text,
    Empty,
}

/// A table, and how its rows go on.
pub struct Table {
    pub attributes: Attributes,
    styles: Vec<Style>,
    row: u64,
    /// Some values are out of line, or have headers of four bytes though they are short.
    mixed: bool,
    /// One value in this many is missing; 0 none.
    missing: u64,
    /// One thing in this many is not as a server does it; 0 none.
    odd: u64,
}

fn attributes(random: &mut Random) -> Attributes {
    let count = match random.below(8) {
        0 => 1 + random.below(130),
        1 => 120 + random.below(11),
        _ => 1 + random.below(12),
    };
    let common = [(4, 4), (8, 8), (-1, 4), (-1, 4), (2, 2), (1, 1)];
    let others = [
        (6, 2),
        (12, 8),
        (16, 1),
        (16, 8),
        (64, 1),
        (6, 4),
        (24, 8),
        (32, 8),
        (3, 1),
        (-1, 1),
        (-1, 8),
        (-1, 2),
        (4, 8),
        (4, 1),
        (8, 4),
        (1, 8),
        (2, 8),
        (65, 1),
        (130, 4),
        (-2, 1),
    ];
    let any = |random: &mut Random| match random.below(20) {
        0 => others[random.below(others.len())],
        1 => (1 + random.below(70) as i16, 1 << random.below(4)),
        _ => common[random.below(common.len())],
    };
    let mut all: Attributes = (0..count).map(|_| any(random)).collect();
    // A string that ends in a zero byte makes a layout useless; one in a few tables is enough.
    if random.one_in(4) {
        return all;
    }
    all.retain(|(len, _)| *len != -2);
    if all.is_empty() {
        all.push((4, 4));
    }
    all
}

impl Table {
    pub fn new(random: &mut Random) -> Table {
        let attributes = attributes(random);
        Table::with(random, attributes)
    }

    pub fn with(random: &mut Random, attributes: Attributes) -> Table {
        const STYLES: [Style; 8] = [
            Style::Same,
            Style::Rising,
            Style::Rising,
            Style::Few,
            Style::Few,
            Style::Noise,
            Style::Text,
            Style::Empty,
        ];
        Table {
            styles: attributes.iter().map(|_| STYLES[random.below(8)]).collect(),
            attributes,
            row: random.below(1 << 20),
            mixed: random.one_in(2),
            missing: [0, 0, 2, 20, 300][random.below(5)],
            odd: [0, 0, 0, 3, 40, 1000][random.below(6)],
        }
    }

    /// One in `n`, if this table has odd things at all.
    fn odd(&self, random: &mut Random, n: u64) -> bool {
        self.odd > 0 && random.one_in(self.odd * n)
    }

    fn value(&self, random: &mut Random, column: usize, len: usize) -> Vec<u8> {
        const WORDS: [&str; 5] = ["paid", "shipped", "returned", "a longer word of a list", ""];
        let from = |word: u64| {
            let bytes = word.to_le_bytes();
            (0..len).map(|i| if i < 8 { bytes[i] } else { 0 }).collect()
        };
        match self.styles[column] {
            Style::Same => from(column as u64 * 77),
            Style::Rising => from(self.row * (1 + column as u64)),
            Style::Few => {
                let word = WORDS[random.below(WORDS.len())].bytes();
                word.chain(std::iter::repeat(0)).take(len).collect()
            }
            Style::Noise => random.bytes(len),
            Style::Text => {
                let mut text = String::new();
                while text.len() < len {
                    text += ["the ", "order ", "of ", "customer ", "7"][random.below(5)];
                }
                text.into_bytes()[..len].to_vec()
            }
            Style::Empty => vec![0; len],
        }
    }

    fn length(&self, random: &mut Random, column: usize) -> usize {
        match self.styles[column] {
            Style::Same => column % 9,
            Style::Rising => 6,
            Style::Few => [4, 7, 8, 23, 0][random.below(5)],
            Style::Noise => random.below(40),
            Style::Text => match random.below(30) {
                0 => random.below(3000),
                1 => 120 + random.below(20),
                _ => random.below(60),
            },
            Style::Empty => random.below(60) / 59 * 8,
        }
    }

    /// A value with a length of its own, behind what `tuple` has.
    fn varlena(&self, random: &mut Random, column: usize, tuple: &mut Vec<u8>, align: usize) {
        if self.mixed && random.one_in(60) || self.odd(random, 4) {
            let tag = if self.odd(random, 2) {
                random.next() as u8
            } else {
                18
            };
            tuple.extend([1, tag]);
            return tuple.extend(random.bytes(16));
        }
        let len = self.length(random, column);
        if len < 127 && !self.odd(random, 4) && !(self.mixed && random.one_in(50)) {
            tuple.push((len as u8 + 1) << 1 | 1);
            return tuple.extend(self.value(random, column, len));
        }
        self.fill(random, tuple, align);
        let bits = match random.below(5) {
            0 => 2,
            _ => 0,
        };
        let claimed = match self.odd(random, 8) {
            true => [0, 3, 4, 127, 16_383, 16_387, 16_388, 1 << 20][random.below(8)],
            false => len as u32 + 4,
        };
        tuple.extend((claimed << 2 | bits).to_le_bytes());
        tuple.extend(self.value(random, column, len));
    }

    /// Bytes up to the next multiple of `align`.
    fn fill(&self, random: &mut Random, tuple: &mut Vec<u8>, align: usize) {
        while !tuple.len().is_multiple_of(align) {
            let old = self.odd(random, 10);
            tuple.push(if old { random.next() as u8 & 0xfe } else { 0 });
        }
    }

    fn tuple(&mut self, random: &mut Random, index: usize, block: u32) -> Vec<u8> {
        let all = self.attributes.len();
        let some = random.one_in(40) && all > 1;
        let count = if some { 1 + random.below(all) } else { all };
        let missing: Vec<bool> = (0..count)
            .map(|_| self.missing > 0 && random.one_in(self.missing))
            .collect();
        let has_bitmap = missing.contains(&true) || self.odd(random, 8);
        let mut tuple = vec![0; 23];
        let transaction = 700 + (self.row / 50) as u32;
        tuple[..4].copy_from_slice(&transaction.to_le_bytes());
        if random.one_in(9) {
            tuple[4..8].copy_from_slice(&(transaction + 1).to_le_bytes());
        }
        tuple[12..14].copy_from_slice(&((block >> 16) as u16).to_le_bytes());
        tuple[14..16].copy_from_slice(&(block as u16).to_le_bytes());
        let posid = if random.one_in(9) {
            random.below(300)
        } else {
            index as u16 + 1
        };
        tuple[16..18].copy_from_slice(&posid.to_le_bytes());
        let flags = if random.one_in(9) { 0x8000 } else { 0 };
        tuple[18..20].copy_from_slice(&(count as u16 | flags).to_le_bytes());
        let mut info = 0x0902_u16 & !1 | u16::from(has_bitmap);
        if self.odd(random, 10) {
            info ^= random.next() as u16;
        }
        tuple[20..22].copy_from_slice(&info.to_le_bytes());
        if has_bitmap {
            let bits = missing.chunks(8).map(|eight| {
                let bits = eight.iter().enumerate();
                bits.fold(0, |byte, (i, is)| byte | u8::from(!is) << i)
            });
            tuple.extend(bits);
            if self.odd(random, 10) {
                *tuple.last_mut().unwrap() = random.next() as u8;
            }
        }
        self.fill(random, &mut tuple, 8);
        if self.odd(random, 20) {
            tuple.extend([0; 8]);
        }
        tuple[22] = tuple.len() as u8;
        if self.odd(random, 20) {
            tuple[22] = random.next() as u8;
        }
        for (column, missing) in missing.iter().enumerate() {
            if *missing && has_bitmap {
                continue;
            }
            let (len, align) = self.attributes[column];
            let align = usize::from(align);
            match usize::try_from(len) {
                Ok(len) => {
                    self.fill(random, &mut tuple, align);
                    let value = self.value(random, column, len);
                    tuple.extend(value);
                }
                Err(_) if len == -1 => self.varlena(random, column, &mut tuple, align),
                Err(_) => tuple.extend(b"a string\0"),
            }
        }
        if self.odd(random, 10) {
            tuple.extend(random.bytes(3));
        }
        self.row += 1;
        tuple
    }

    /// A page of `size` bytes with the table's next rows.
    pub fn page(&mut self, random: &mut Random, size: usize) -> Vec<u8> {
        let old = self.odd(random, 1);
        let mut page = if old {
            random.bytes(size)
        } else {
            vec![0; size]
        };
        let special = if self.odd(random, 5) { size - 8 } else { size };
        let (mut tuples, mut free) = (Vec::new(), special - HEAD);
        let block = random.below(90_000);
        let want = if random.one_in(5) {
            random.below(size / 40)
        } else {
            size
        };
        while tuples.len() < want {
            let tuple = self.tuple(random, tuples.len(), block);
            let needed = tuple.len().next_multiple_of(8) + 4;
            if needed > free {
                break;
            }
            free -= needed;
            tuples.push(tuple);
        }
        let mut order: Vec<usize> = (0..tuples.len()).collect();
        if random.one_in(4) {
            random.shuffle(&mut order);
        }
        let mut pointers = vec![0_u32; tuples.len()];
        let mut upper = special;
        let loose = random.one_in(6);
        for index in order {
            let tuple = &tuples[index];
            if loose && random.one_in(9) && free > 64 {
                let gap = 8 * random.below(8);
                upper -= gap;
                free -= gap;
            }
            let end = upper;
            upper -= tuple.len().next_multiple_of(8);
            page[upper..upper + tuple.len()].copy_from_slice(tuple);
            if !self.odd(random, 5) {
                page[upper + tuple.len()..end].fill(0);
            }
            pointers[index] = upper as u32 | 1 << 15 | (tuple.len() as u32) << 17;
        }
        if random.one_in(3) {
            // Rows that are gone, pointers that lead elsewhere; the bytes stay or do not.
            for pointer in &mut pointers {
                if random.one_in(7) {
                    *pointer = [0, 3 << 15, 2 << 15 | 1][random.below(3)];
                }
            }
        }
        for (i, pointer) in pointers.iter().enumerate() {
            page[HEAD + 4 * i..HEAD + 4 * i + 4].copy_from_slice(&pointer.to_le_bytes());
        }
        let lower = HEAD + 4 * pointers.len();
        if !(old || random.one_in(8)) {
            page[lower..upper].fill(0);
        }
        head(random, &mut page, lower, upper, special);
        page
    }
}

/// Writes the head of a page.
fn head(random: &mut Random, page: &mut [u8], lower: usize, upper: usize, special: usize) {
    let version = page.len() as u16 | 4;
    page[..8].copy_from_slice(&(0x1_4d3f_0000 + random.below(1_u64 << 16)).to_le_bytes());
    page[8..10].copy_from_slice(&(random.next() as u16).to_le_bytes());
    page[10..12].copy_from_slice(&(4 * random.below(2_u16)).to_le_bytes());
    for (at, value) in [
        (12, lower as u16),
        (14, upper as u16),
        (16, special as u16),
        (18, version),
    ] {
        page[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    page[20..24].copy_from_slice(&[0; 4]);
}

/// A row's address: block and line pointer.
fn address(block: u32, pointer: u16) -> [u8; 6] {
    let [a, b, c, d] = block.to_le_bytes();
    let [e, f] = pointer.to_le_bytes();
    [c, d, a, b, e, f]
}

fn item(random: &mut Random, key: &[u8], block: u32, odd: bool) -> Vec<u8> {
    let mut item = address(block, 1 + random.below(200_u16)).to_vec();
    let mut flags = 0_u16;
    item.extend([0, 0]);
    item.extend(key);
    match random.below(12) {
        0 | 1 => {
            // Rows with equal keys.
            let count = 1 + random.below(30_u16);
            let at = item.len();
            item[..6].copy_from_slice(&address(at as u32, count | 0x2000));
            flags |= 0x2000;
            let mut block = block;
            for _ in 0..count {
                block += random.below(3);
                item.extend(address(block, 1 + random.below(200_u16)));
            }
        }
        2 => {
            // A pivot whose last attributes are cut off: only their number is left.
            let left = 1 + random.below(3_u16);
            let has_row = 0x1000 * random.below(2_u16);
            item[4..6].copy_from_slice(&(left | has_row).to_le_bytes());
            flags |= 0x2000;
        }
        _ => {}
    }
    while !item.len().is_multiple_of(8) {
        item.push(if odd { random.next() as u8 } else { 0 });
    }
    if odd && random.one_in(9) {
        item.truncate((item.len() - random.below(5)).max(8));
        flags |= random.next() as u16 & 0xe000;
    }
    let has_width = 0x4000 * random.below(2_u16);
    let info = item.len() as u16 & 0x1fff | flags | has_width;
    item[6..8].copy_from_slice(&info.to_le_bytes());
    item
}

/// A page of an index, with 8 or 16 bytes at its end that are the index's own.
pub fn index_page(random: &mut Random, size: usize) -> Vec<u8> {
    let odd = random.one_in(4);
    let mut page = if odd {
        random.bytes(size)
    } else {
        vec![0; size]
    };
    let special = size - if random.one_in(4) { 8 } else { 16 };
    let len = [8, 8, 16, 16, 24, 40, 64, 72, 1, 13, 0][random.below(11)];
    let (mut items, mut free, mut key) = (Vec::new(), special - HEAD, random.below(1 << 20));
    let want = if random.one_in(5) {
        random.below(20)
    } else {
        size
    };
    while items.len() < want {
        key += random.below(4_u64);
        let len = if random.one_in(30) {
            random.below(90)
        } else {
            len
        };
        let bytes = (0..len).map(|i| {
            if i < 8 {
                key.to_be_bytes()[i]
            } else {
                b'a' + i as u8 % 9
            }
        });
        let bytes: Vec<u8> = bytes.collect();
        let item = item(random, &bytes, (key / 60) as u32, odd);
        let needed = item.len().next_multiple_of(8) + 4;
        if needed > free {
            break;
        }
        free -= needed;
        items.push(item);
    }
    let mut order: Vec<usize> = (0..items.len()).collect();
    match random.below(5) {
        0 => random.shuffle(&mut order),
        1 | 2 if items.len() > 1 => order.rotate_left(1),
        _ => {}
    }
    let mut pointers = vec![0_u32; items.len()];
    let mut upper = special;
    for index in order {
        let item = &items[index];
        if odd && random.one_in(20) && free > 64 {
            upper -= 16;
            free -= 16;
        }
        upper -= item.len().next_multiple_of(8);
        page[upper..upper + item.len()].copy_from_slice(item);
        pointers[index] = upper as u32 | 1 << 15 | (item.len() as u32) << 17;
    }
    if random.one_in(4) {
        for pointer in &mut pointers {
            if random.one_in(9) {
                *pointer |= 3 << 15;
            }
            if odd && random.one_in(9) {
                *pointer &= !0 >> 15;
            }
        }
    }
    for (i, pointer) in pointers.iter().enumerate() {
        page[HEAD + 4 * i..HEAD + 4 * i + 4].copy_from_slice(&pointer.to_le_bytes());
    }
    let lower = HEAD + 4 * pointers.len();
    if !odd || random.one_in(2) {
        page[lower..upper].fill(0);
    }
    head(random, &mut page, lower, upper, special);
    page
}

/// A page that is neither rows nor items: zeros, maps of free space, metapages, noise, other files.
pub fn other_page(random: &mut Random, size: usize) -> Vec<u8> {
    let mut page = vec![0; size];
    match random.below(6) {
        0 => {}
        1 => {
            // A map: all bytes after the head are used, and the head does not say so.
            let len = size - HEAD;
            page[HEAD..].copy_from_slice(&random.bytes(len));
            head(random, &mut page, HEAD, size, size);
        }
        2 => {
            let lower = HEAD + 4 * random.below(20);
            page[HEAD..lower].fill(7);
            page[size - 16..].fill(3);
            head(random, &mut page, lower, size - 16, size - 16);
        }
        3 => page = random.bytes(size),
        4 => page
            .iter_mut()
            .enumerate()
            .for_each(|(i, byte)| *byte = (i / 9) as u8),
        _ => {
            // Places at their limits.
            let places = [HEAD, HEAD + 4, size / 2, size - 8, size];
            let mut places = [0; 3].map(|_| places[random.below(places.len())]);
            places.sort_unstable();
            let old = random.bytes(size);
            page.copy_from_slice(&old);
            head(random, &mut page, places[0], places[1], places[2]);
        }
    }
    page
}

/// Gives a few bytes other values: any bytes, or numbers of the head, of line pointers, and of what they lead to.
pub fn damage(random: &mut Random, bytes: &mut [u8]) {
    if bytes.len() < 256 {
        let at = random.below(bytes.len().max(1));
        bytes
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|byte| *byte ^= 1);
        return;
    }
    for _ in 0..1 + random.below(4) {
        let size = SIZES[random.below(SIZES.len())].min(bytes.len());
        let page = random.below(bytes.len() / size) * size;
        let page = &mut bytes[page..page + size];
        let last = size - 8;
        match random.below(8) {
            0 => page[random.below(size)] ^= 1 << random.below(8),
            1 => page[random.below(size)] = random.next() as u8,
            2 => page[12 + random.below(8)] = random.next() as u8,
            3 => {
                let extreme =
                    [0_u16, 1, 23, 24, 28, 0x7fff, 0x8000, 0xffff, 8191, 8192][random.below(10)];
                let at = 12 + 2 * random.below(4);
                page[at..at + 2].copy_from_slice(&extreme.to_le_bytes());
            }
            4 => {
                let at = HEAD + 4 * random.below((last - HEAD) / 8);
                let bit = random.below(32);
                page[at + bit / 8] ^= 1 << (bit % 8);
            }
            5 | 6 => {
                // Near the start of a tuple or an item: its header, its bitmap, its first values.
                let at = HEAD + 4 * random.below(40);
                let offset = usize::from(u16::from_le_bytes([page[at], page[at + 1]]) & 0x7fff);
                let at = (offset + random.below(48)).min(last);
                page[at] = [0, 1, 2, 3, 0xff, 0x12, 0x80, random.next() as u8][random.below(8)];
            }
            _ => {
                let (from, to) = (random.below(last), random.below(last));
                let len = 1 + random.below(size - from.max(to) - 1).min(99);
                page.copy_within(from..from + len, to);
            }
        }
    }
}

/// A buffer of a backup: pieces of files.
pub struct Buffer {
    pub bytes: Vec<u8>,
    /// Bytes of each piece, and the layout that its caller names.
    pub parts: Vec<(usize, Option<Attributes>)>,
}

impl Buffer {
    /// Up to about `most` bytes.
    pub fn new(random: &mut Random, most: usize) -> Buffer {
        let (mut bytes, mut parts) = (Vec::new(), Vec::new());
        let odd = random.one_in(3);
        for _ in 0..1 + random.below(4) {
            let size = SIZES[random.below(SIZES.len())];
            let start = bytes.len();
            let room = most.saturating_sub(start) / size;
            let many = if random.one_in(4) { 40 } else { 3 };
            let count = 1 + random.below(many);
            let count = count.min(room.max(1));
            let layout = match random.below(7) {
                0 => {
                    (0..count).for_each(|_| bytes.extend(other_page(random, size)));
                    random.one_in(3).then(|| attributes(random))
                }
                1 | 2 => {
                    (0..count).for_each(|_| bytes.extend(index_page(random, size)));
                    random.one_in(5).then(|| attributes(random))
                }
                _ => {
                    let mut table = Table::new(random);
                    (0..count).for_each(|_| bytes.extend(table.page(random, size)));
                    told(random, table.attributes)
                }
            };
            if odd && random.one_in(3) {
                let len = bytes.len() - start;
                bytes.truncate(start + 1 + random.below(len));
            }
            if odd {
                (0..random.below(4)).for_each(|_| damage(random, &mut bytes[start..]));
            }
            parts.push((bytes.len() - start, layout));
            if bytes.len() >= most {
                break;
            }
        }
        Buffer { bytes, parts }
    }
}

/// What somebody may say of a table with these attributes: mostly the truth.
fn told(random: &mut Random, mut attributes: Attributes) -> Option<Attributes> {
    match random.below(12) {
        0 => return None,
        1 => {
            let at = random.below(attributes.len());
            attributes[at].1 = 1 << random.below(4);
        }
        2 => {
            let at = random.below(attributes.len());
            attributes[at].0 = [-1, 1, 2, 4, 8, 16, 3, 6, i16::MAX, 1000][random.below(10)];
        }
        3 => attributes.push((4, 4)),
        4 if attributes.len() > 1 => drop(attributes.pop()),
        _ => {}
    }
    Some(attributes)
}
