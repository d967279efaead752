//! The head of a page of SQLite's b-trees, and its integers of variable length.
//!
//! Invariants
//! - A plausible head has whole cell pointers, and cells above them.
//!
//! Leaves to others: what is in the cells (`records.rs`).
//!
//! Source: "Database File Format" of SQLite's documentation.

use std::ops::Range;

/// The page's type: leaves of an index and of a table.
const KEYS: u8 = 10;
const ROWS: u8 = 13;

/// Bytes of a leaf's head.
pub(super) const HEAD: usize = 8;
const POINTER: usize = 2;

/// The smallest and the largest page, as powers of two.
pub(super) const SIZE_BITS: std::ops::RangeInclusive<u8> = 9..=16;

/// Where the parts of a leaf are.
#[derive(Clone, Copy)]
pub(super) struct Leaf {
    pub(super) page: u8,
    pub(super) cells: usize,
    /// Where the cells begin. Before it, from the end of the pointers on, nothing is used.
    pub(super) content: usize,
}

impl Leaf {
    /// The head of `page`, whose length is a size of pages; `None` if it is not that of a leaf with cells.
    pub(super) fn of(page: &[u8]) -> Option<Leaf> {
        let head = Leaf {
            page: page[0],
            cells: u16_at(page, 3),
            content: match u16_at(page, 5) {
                0 => 1 << 16,
                content => content,
            },
        };
        let plausible = matches!(head.page, KEYS | ROWS)
            && head.cells > 0
            && head.pointers_end() <= head.content
            && head.content < page.len();
        plausible.then_some(head)
    }

    pub(super) fn has_rowids(&self) -> bool {
        has_rowids(self.page)
    }

    pub(super) fn pointers_end(&self) -> usize {
        HEAD + POINTER * self.cells
    }

    /// Where a cell begins.
    pub(super) fn pointer(&self, page: &[u8], index: usize) -> usize {
        u16_at(page, HEAD + POINTER * index)
    }

    pub(super) fn put_pointer(page: &mut [u8], index: usize, start: usize) {
        let at = HEAD + POINTER * index;
        page[at..at + POINTER].copy_from_slice(&(start as u16).to_be_bytes());
    }
}

/// Whether cells of a page of this type have rowids.
pub(super) fn has_rowids(page: u8) -> bool {
    page == ROWS
}

/// Whether pages of this type are taken apart.
pub(super) fn is_known(page: u8) -> bool {
    matches!(page, KEYS | ROWS)
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// The size of the pages in `bytes` as a power of two, if most look like leaves, or the first has a database's header. `last`:
/// the size of the pages before.
pub(super) fn size_bits(bytes: &[u8], last: u8) -> Option<u8> {
    const HEADER: &[u8] = b"SQLite format 3\0";
    if bytes.starts_with(HEADER) && bytes.len() > 18 {
        let size = match u16_at(bytes, 16) {
            1 => 1 << 16,
            size => size,
        };
        let bits = size.trailing_zeros() as u8;
        return (size.is_power_of_two() && SIZE_BITS.contains(&bits)).then_some(bits);
    }
    if SIZE_BITS.contains(&last) && share(bytes, last) >= 0.5 {
        return Some(last);
    }
    let shares = SIZE_BITS.map(|bits| (bits, share(bytes, bits)));
    let (bits, most) = shares.fold(
        (0, 0.0),
        |most, next| {
            if next.1 > most.1 { next } else { most }
        },
    );
    (most >= 0.2).then_some(bits)
}

/// The share of pages of this size that look like leaves, of the first ones.
fn share(bytes: &[u8], bits: u8) -> f32 {
    const LOOKED_AT: usize = 64;
    let pages = bytes.chunks_exact(1 << bits).take(LOOKED_AT);
    let looked_at = pages.len();
    let leaves = pages.filter(|page| looks_like_leaf(page)).count();
    leaves as f32 / (looked_at.max(1)) as f32
}

/// Whether cells are at the upper end of the page, and none is beyond it.
fn looks_like_leaf(page: &[u8]) -> bool {
    let Some(head) = Leaf::of(page) else {
        return false;
    };
    let (mut lowest, mut highest) = (usize::MAX, 0);
    for index in [0, head.cells / 2, head.cells - 1] {
        let start = head.pointer(page, index);
        (lowest, highest) = (lowest.min(start), highest.max(start));
    }
    head.content <= lowest && highest < page.len() && highest >= page.len() / 2
}

/// The places of the cells of one page, in order.
pub(super) struct CellPlaces {
    /// A bit for each byte at which a cell begins.
    begins: Box<[u64; 1 << 10]>,
    /// Where the cell that begins there ends.
    ends: Box<[u32; 1 << 16]>,
}

impl Default for CellPlaces {
    fn default() -> CellPlaces {
        CellPlaces {
            begins: Box::new([0; 1 << 10]),
            ends: Box::new([0; 1 << 16]),
        }
    }
}

impl CellPlaces {
    pub(super) const MEMORY: usize = size_of::<[u32; 1 << 16]>() + size_of::<[u64; 1 << 10]>();

    pub(super) fn clear(&mut self, page: usize) {
        self.begins[..page.div_ceil(64).min(1 << 10)].fill(0);
    }

    /// Adds a cell, which begins below 2^16. `None` if one is there that begins at the same place.
    #[inline(always)]
    pub(super) fn add(&mut self, start: usize, end: usize) -> Option<()> {
        let word = self.begins.get_mut(start / 64)?;
        let bit = 1 << (start % 64);
        if *word & bit != 0 {
            return None;
        }
        *word |= bit;
        *self.ends.get_mut(start)? = end as u32;
        Some(())
    }

    /// Calls `gap` with each run of bytes from `content` to `end` that no cell covers. `None` if cells overlap, or one
    /// that begins before `end` ends behind it.
    #[inline(always)]
    pub(super) fn gaps(
        &self,
        content: usize,
        end: usize,
        mut gap: impl FnMut(Range<usize>) -> Option<()>,
    ) -> Option<()> {
        let mut covered = content;
        for (i, word) in self.begins[..end.div_ceil(64).min(1 << 10)]
            .iter()
            .enumerate()
        {
            let mut word = *word;
            while word != 0 {
                let start = 64 * i + word.trailing_zeros() as usize;
                word &= word - 1;
                if start < covered {
                    return None;
                }
                if start > covered {
                    gap(covered..start)?;
                }
                covered = self.ends[start] as usize;
            }
        }
        if covered > end {
            return None;
        }
        gap(covered..end)
    }
}

/// SQLite's integers of one to nine bytes, the highest bits first.
pub(super) struct Varint;

impl Varint {
    /// Reads one at `at`, and moves `at` behind it. `None` if it is cut off or longer than it must be.
    #[inline(always)]
    pub(super) fn read(page: &[u8], at: &mut usize) -> Option<u64> {
        match *page.get(*at)? {
            short @ ..0x80 => {
                *at += 1;
                Some(u64::from(short))
            }
            _ => Varint::read_long(page, at),
        }
    }

    fn read_long(page: &[u8], at: &mut usize) -> Option<u64> {
        let mut value = 0;
        for i in 0..9 {
            let byte = *page.get(*at + i)?;
            if i == 8 {
                value = value << 8 | u64::from(byte);
            } else {
                value = value << 7 | u64::from(byte & 0x7f);
                if byte >= 0x80 {
                    continue;
                }
            }
            *at += i + 1;
            return (Varint::len(value) == i + 1).then_some(value);
        }
        None
    }

    #[inline(always)]
    pub(super) fn len(value: u64) -> usize {
        let bits = 64 - (value | 1).leading_zeros();
        match bits {
            57.. => 9,
            // A seventh, rounded up.
            _ => (bits as usize * 37 + 221) >> 8,
        }
    }

    /// Writes `value` to the end of `out`, and perhaps up to three other bytes before it; returns its length. `None` if there
    /// is no room.
    #[inline(always)]
    pub(super) fn write_back(value: u64, out: &mut [u8]) -> Option<usize> {
        let len = Varint::len(value);
        if len <= 4
            && let Some(out) = out.last_chunk_mut()
        {
            *out = Varint::four(value).to_be_bytes();
            return Some(len);
        }
        let at = out.len().checked_sub(len)?;
        Varint::write(value, &mut out[at..])
    }

    /// A value below 2^28 as four bytes, of which the last ones are those that it has.
    #[inline(always)]
    fn four(value: u64) -> u32 {
        let groups = value as u32;
        groups & 0x7f
            | (groups & 0x7f << 7) << 1
            | (groups & 0x7f << 14) << 2
            | (groups & 0x7f << 21) << 3
            | 0x8080_8000
    }

    /// Writes `value` to the start of `out`; returns its length. `None` if there is no room.
    #[inline(always)]
    pub(super) fn write(value: u64, out: &mut [u8]) -> Option<usize> {
        let len = Varint::len(value);
        // Whether one has a byte or two is not foreseen.
        if len <= 4
            && let Some(out) = out.first_chunk_mut()
        {
            *out = (Varint::four(value) << (32 - 8 * len)).to_be_bytes();
            return Some(len);
        }
        let out = out.get_mut(..len)?;
        let (mut left, last) = match len {
            9 => (value >> 8, value as u8),
            _ => (value >> 7, value as u8 & 0x7f),
        };
        let (end, before) = out.split_last_mut()?;
        *end = last;
        for byte in before.iter_mut().rev() {
            *byte = left as u8 | 0x80;
            left >>= 7;
        }
        Some(len)
    }
}
