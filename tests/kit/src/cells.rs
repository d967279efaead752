//! Pages of SQLite's b-trees from a seed: as SQLite leaves them, as it may leave them, and as nobody does.
//!
//! - [`Tree`]: the columns of a table or an index, and leaves of it;
//! - [`buffer`]: leaves of a few trees and other pages, perhaps after pages of PostgreSQL;
//! - [`damage`]: a few bytes of a page get other values, those with a meaning more often.
//!
//! Invariants
//! - The same seed makes the same pages.
//!
//! Leaves to others: real databases, which SQLite makes.
//!
//! Source: "Database File Format" of SQLite's documentation.

use crate::Random;
use crate::pages::Buffer;

const HEAD: usize = 8;
const SIZES: [usize; 10] = [4096, 4096, 4096, 1024, 512, 2048, 8192, 16384, 32768, 65536];

/// The values that a column has.
#[derive(Clone, Copy)]
enum Style {
    Null,
    Rising,
    Small,
    Truth,
    Wide,
    Decimal,
    Real,
    Word,
    Text,
    Noise,
    Mixed,
}

/// A table or an index.
pub struct Tree {
    is_table: bool,
    styles: Vec<Style>,
    rowid: u64,
    /// One value in this many is NULL; 0 none.
    missing: u64,
    /// One thing in this many is not as SQLite does it; 0 none.
    odd: u64,
}

/// Appends an integer of one to nine bytes.
fn varint(out: &mut Vec<u8>, value: u64) {
    if value >> 56 != 0 {
        let top = (0..8).map(|i| (value >> (57 - 7 * i)) as u8 | 0x80);
        out.extend(top);
        return out.push(value as u8);
    }
    let groups = (64 - (value | 1).leading_zeros()).div_ceil(7);
    for group in (0..groups).rev() {
        let more = if group > 0 { 0x80 } else { 0 };
        out.push((value >> (7 * group)) as u8 & 0x7f | more);
    }
}

/// The shortest serial type of an integer, and the bytes of its value.
fn integer(value: i64) -> (u64, Vec<u8>) {
    const WIDTHS: [(u64, usize); 6] = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (6, 8)];
    if value == 0 || value == 1 {
        return (8 + value as u64, Vec::new());
    }
    let bytes = value.to_be_bytes();
    let fits = |width: usize| width == 8 || value >> (8 * width - 1) == value >> 63;
    let (serial, width) = WIDTHS.into_iter().find(|(_, width)| fits(*width)).unwrap();
    (serial, bytes[8 - width..].to_vec())
}

impl Tree {
    pub fn new(random: &mut Random) -> Tree {
        const STYLES: [Style; 11] = [
            Style::Null,
            Style::Rising,
            Style::Small,
            Style::Truth,
            Style::Wide,
            Style::Decimal,
            Style::Real,
            Style::Word,
            Style::Text,
            Style::Noise,
            Style::Mixed,
        ];
        let count = match random.below(8) {
            0 => 1 + random.below(126),
            1 => 1,
            _ => 1 + random.below(10),
        };
        Tree {
            is_table: random.one_in(2),
            styles: (0..count).map(|_| STYLES[random.below(11)]).collect(),
            rowid: match random.below(6) {
                0 => random.next(),
                1 => (1 << 56) - 3,
                _ => random.below(100_000),
            },
            missing: [0, 0, 0, 3, 40][random.below(5)],
            odd: [0, 0, 0, 0, 30, 1000][random.below(6)],
        }
    }

    fn odd(&self, random: &mut Random, n: u64) -> bool {
        self.odd > 0 && random.one_in(self.odd * n)
    }

    /// The serial type and the bytes of a column's next value.
    fn value(&self, random: &mut Random, style: Style) -> (u64, Vec<u8>) {
        const WORDS: [&str; 6] = [
            "paid",
            "shipped",
            "",
            "returned",
            "a longer word of a list",
            "x",
        ];
        let real = |real: f64| (7, real.to_be_bytes().to_vec());
        let text = |bytes: Vec<u8>| (13 + 2 * bytes.len() as u64, bytes);
        match style {
            Style::Null => (0, Vec::new()),
            Style::Rising => integer(self.rowid as i64 / 3 + 1_700_000_000),
            Style::Small => integer(random.below(300_u64) as i64 - 150),
            Style::Truth => integer(random.below(2_u64) as i64),
            Style::Wide => integer(random.next() as i64 >> random.below(64)),
            Style::Decimal => real(random.below(100_000_u64) as f64 / 100.0),
            Style::Real => match random.below(9) {
                0 => real(-0.0),
                1 => real(f64::NAN),
                2 => real(5e-324),
                3 => real(random.below(1 << 20) as f64 * 1e10),
                _ => real(random.next() as f64 / 1e7),
            },
            Style::Word => text(WORDS[random.below(6)].bytes().collect()),
            Style::Text => {
                let most = if random.one_in(30) { 400 } else { 60 };
                let len = random.below(most);
                let mut out = String::new();
                while out.len() < len {
                    out += ["the ", "order ", "of ", "customer ", "7"][random.below(5)];
                }
                text(out.into_bytes())
            }
            Style::Noise => {
                let len = random.below(40);
                (12 + 2 * len as u64, random.bytes(len))
            }
            Style::Mixed => {
                let styles = [
                    Style::Small,
                    Style::Wide,
                    Style::Decimal,
                    Style::Word,
                    Style::Noise,
                ];
                let style = styles[random.below(5)];
                self.value(random, style)
            }
        }
    }

    fn cell(&mut self, random: &mut Random) -> Vec<u8> {
        let mut columns = self.styles.len();
        if random.one_in(60) {
            columns = random.below(columns + 1);
        }
        let (mut serials, mut values) = (Vec::new(), Vec::new());
        for column in 0..columns {
            let style = self.styles[column];
            let (mut serial, mut value) = self.value(random, style);
            if self.missing > 0 && random.one_in(self.missing) {
                (serial, value) = (0, Vec::new());
            }
            if self.odd(random, 1) {
                match random.below(4) {
                    // As before SQLite 3.3, or as nobody writes an integer.
                    0 if serial == 8 || serial == 9 => {
                        (serial, value) = (1, vec![serial as u8 - 8]);
                    }
                    1 if serial == 1 => (serial, value) = (2, vec![0, value[0]]),
                    2 => serial = random.below(14_u64),
                    _ => drop(value.pop()),
                }
            }
            varint(&mut serials, serial);
            values.extend(value);
        }
        let mut header = serials.len() + 1;
        header += usize::from(header > 127);
        let mut cell = Vec::new();
        let mut len = header + values.len();
        if self.odd(random, 4) {
            len = len.wrapping_add_signed(random.below(5) as isize - 2);
        }
        varint(&mut cell, len as u64);
        if self.is_table {
            self.rowid = match random.below(40) {
                0 => self.rowid.wrapping_add(random.below(1000)),
                _ => self.rowid.wrapping_add(1),
            };
            varint(&mut cell, self.rowid);
        }
        varint(&mut cell, header as u64);
        cell.extend(serials);
        cell.extend(values);
        cell
    }

    /// A leaf of `size` bytes with the tree's next records.
    pub fn page(&mut self, random: &mut Random, size: usize) -> Vec<u8> {
        let old = random.one_in(4);
        let mut page = if old {
            random.bytes(size)
        } else {
            vec![0; size]
        };
        let mut content = size - if random.one_in(20) { 32 } else { 0 };
        let (mut cells, mut free) = (Vec::new(), content - HEAD);
        let want = if random.one_in(6) {
            1 + random.below(size / 40)
        } else {
            size
        };
        while cells.len() < want {
            let cell = self.cell(random);
            if cell.len() + 2 > free {
                break;
            }
            free -= cell.len() + 2;
            cells.push(cell);
        }
        let mut order: Vec<usize> = (0..cells.len()).collect();
        let loose = random.one_in(4);
        if random.one_in(3) {
            random.shuffle(&mut order);
        }
        let mut pointers = vec![0; cells.len()];
        for index in order {
            let gap = match loose && random.one_in(6) {
                true => random.below(20).min(free),
                false => 0,
            };
            free -= gap;
            content -= gap + cells[index].len();
            page[content..content + cells[index].len()].copy_from_slice(&cells[index]);
            pointers[index] = content;
        }
        page[..HEAD].fill(0);
        page[0] = if self.is_table { 13 } else { 10 };
        page[3..5].copy_from_slice(&(cells.len() as u16).to_be_bytes());
        let claimed = content
            - if random.one_in(30) {
                random.below(free + 1)
            } else {
                0
            };
        page[5..7].copy_from_slice(&(claimed as u16).to_be_bytes());
        if loose {
            page[1..3].copy_from_slice(&(content as u16).to_be_bytes());
            page[7] = random.below(60);
        }
        for (i, pointer) in pointers.iter().enumerate() {
            let at = HEAD + 2 * i;
            page[at..at + 2].copy_from_slice(&(*pointer as u16).to_be_bytes());
        }
        if !old || random.one_in(2) {
            page[HEAD + 2 * cells.len()..claimed].fill(0);
        }
        page
    }
}

/// A page that is no leaf with cells: zeros, an empty leaf, an interior page, an overflow page.
fn other_page(random: &mut Random, size: usize) -> Vec<u8> {
    let mut page = vec![0; size];
    match random.below(5) {
        0 => {}
        1 => page[0] = 13,
        2 => {
            page[..12].copy_from_slice(&[5, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0, 9]);
            let len = size / 2;
            page[size - len..].copy_from_slice(&random.bytes(len));
        }
        3 => page = random.bytes(size),
        _ => {
            let text = b"a part of a long text ".iter().cycle();
            page[4..].iter_mut().zip(text).for_each(|(a, b)| *a = *b);
        }
    }
    page
}

/// Pages of a database of a few trees, of at most `most` bytes but one page at least.
pub fn database(random: &mut Random, most: usize) -> Vec<u8> {
    let fitting = SIZES.iter().filter(|size| **size <= most).count();
    let size = match fitting {
        0 => 512,
        _ => *SIZES
            .iter()
            .filter(|size| **size <= most)
            .nth(random.below(fitting))
            .unwrap(),
    };
    let mut trees: Vec<Tree> = (0..1 + random.below(4))
        .map(|_| Tree::new(random))
        .collect();
    let mut bytes = Vec::new();
    if random.one_in(3) {
        bytes.extend(b"SQLite format 3\0");
        bytes.extend((size as u16 | (size >> 16) as u16).to_be_bytes());
        bytes.resize(size, 0);
    }
    let others = [3, 30, 1000][random.below(3)];
    while bytes.len() + size <= most || bytes.is_empty() {
        let tree = random.below(trees.len());
        let page = match random.one_in(others) {
            true => other_page(random, size),
            false => trees[tree].page(random, size),
        };
        bytes.extend(page);
    }
    if random.one_in(4) {
        let len = random.below(size);
        bytes.extend(random.bytes(len));
    }
    bytes
}

/// Pages of a database as a part without a layout, perhaps after those of PostgreSQL.
pub fn buffer(random: &mut Random, most: usize) -> Buffer {
    let mut buffer = match random.one_in(3) {
        true => Buffer::new(random, 1 + most / 2),
        false => Buffer {
            bytes: Vec::new(),
            parts: Vec::new(),
        },
    };
    let bytes = database(random, most);
    buffer.parts.push((bytes.len(), None));
    buffer.bytes.extend(bytes);
    buffer
}

/// Gives a few bytes other values: any bytes, or numbers of a head, pointers, and the start of a cell.
pub fn damage(random: &mut Random, bytes: &mut [u8]) {
    for _ in 0..1 + random.below(4) {
        let size = SIZES[random.below(SIZES.len())];
        let Some(last) = (bytes.len() / size).checked_sub(1) else {
            continue;
        };
        let page = random.below(last + 1) * size;
        let page = &mut bytes[page..page + size];
        let byte = [0, 1, 2, 0x7f, 0x80, 0xff, random.next() as u8][random.below(7)];
        let at = match random.below(4) {
            0 => random.below(size),
            1 => random.below(HEAD),
            2 => HEAD + random.below(size / 8),
            _ => {
                let at = HEAD + 2 * random.below(size / 64);
                let start = usize::from(u16::from_be_bytes([page[at], page[at + 1]]));
                (start + random.below(20)).min(size - 1)
            }
        };
        page[at] = byte;
    }
}
