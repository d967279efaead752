//! The head of a page and its line pointers.
//!
//! Invariants
//! - A plausible head has `LEN <= lower <= upper <= special <= size`, and whole line pointers below `lower`.
//!
//! Leaves to others: what is below the pointers (`heap.rs`, `index.rs`).
//!
//! Source: "Database Page Layout" of PostgreSQL's documentation, bufpage.h and itemid.h.

/// `lp_flags` of a line pointer to a tuple or an item.
pub(super) const POINTER_NORMAL: u32 = 1;
const POINTER_LEN: usize = 4;

/// The smallest and the largest page of PostgreSQL, as powers of two.
pub(super) const SIZE_BITS: std::ops::RangeInclusive<u8> = 12..=15;
pub(super) const SIZE_BITS_USUAL: u8 = 13;
const VERSION: u16 = 4;

/// The part of a page's head that says where the rest is.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) lower: usize,
    pub(super) upper: usize,
    pub(super) special: usize,
    pub(super) size: usize,
}

impl Head {
    /// Bytes of a page's head.
    pub(super) const LEN: usize = 24;

    /// The head of `page`, whose length is a size of pages; `None` if it is not plausible.
    pub(super) fn of(page: &[u8]) -> Option<Head> {
        Head::read(page, page.len())
    }

    /// The head in `bytes`, of a page of `size` bytes.
    pub(super) fn read(bytes: &[u8], size: usize) -> Option<Head> {
        let head = Head {
            lower: usize::from(u16_at(bytes, 12)),
            upper: usize::from(u16_at(bytes, 14)),
            special: usize::from(u16_at(bytes, 16)),
            size,
        };
        let version = u16_at(bytes, 18);
        let plausible = usize::from(version) == size | usize::from(VERSION)
            && Head::LEN <= head.lower
            && head.lower <= head.upper
            && head.upper <= head.special
            && head.special <= size
            && head.lower.is_multiple_of(POINTER_LEN)
            && head.upper.is_multiple_of(8)
            && head.special.is_multiple_of(8);
        plausible.then_some(head)
    }

    /// How many line pointers there are.
    pub(super) fn pointers(&self) -> usize {
        (self.lower - Head::LEN) / POINTER_LEN
    }
}

/// The size of the page that begins with `bytes` (at least [`Head::LEN`]) as a power of two, if it names one.
pub(super) fn size_bits(bytes: &[u8]) -> Option<u8> {
    let version = u16_at(bytes, 18);
    let size = version & !0xff;
    let bits = size.trailing_zeros() as u8;
    let plausible =
        version & 0xff == VERSION && size.count_ones() == 1 && SIZE_BITS.contains(&bits);
    plausible.then_some(bits)
}

/// A line pointer.
#[derive(Clone, Copy)]
pub(super) struct Pointer(pub(super) u32);

impl Pointer {
    pub(super) fn at(page: &[u8], index: usize) -> Pointer {
        Pointer(u32_at(page, Head::LEN + POINTER_LEN * index))
    }

    pub(super) fn normal(offset: usize, len: usize) -> Pointer {
        Pointer(offset as u32 | POINTER_NORMAL << 15 | (len as u32) << 17)
    }

    pub(super) fn put(self, page: &mut [u8], index: usize) {
        let at = Head::LEN + POINTER_LEN * index;
        page[at..at + POINTER_LEN].copy_from_slice(&self.0.to_le_bytes());
    }

    pub(super) fn offset(self) -> usize {
        (self.0 & 0x7fff) as usize
    }

    pub(super) fn state(self) -> u32 {
        self.0 >> 15 & 3
    }

    pub(super) fn len(self) -> usize {
        (self.0 >> 17) as usize
    }
}

pub(super) fn align8(len: usize) -> usize {
    (len + 7) & !7
}

#[inline(always)]
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

#[inline(always)]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[inline(always)]
pub(super) fn word_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The bytes from `start` to `end`, at most seven, in the top of a word: 0 if they are zeros. At least eight bytes lie
/// before `end`.
#[inline(always)]
pub(super) fn between(page: &[u8], start: usize, end: usize) -> u64 {
    word_at(page, end - 8) >> 1 >> (63 - 8 * (end - start))
}
