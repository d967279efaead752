//! Items of an index: a page as line pointers, item heads, row addresses and keys.
//!
//! An item is the row's address (six bytes), two bytes with its length and flags, and a key. Equal keys of a B-tree share
//! one item with a list of row addresses behind the key. Keys are sorted by their length, up to [`KEY_MAX`] bytes; all
//! keys of a length are a column. Where line pointers are kept, the bytes between items follow those that are left behind
//! the lists of the page.
//!
//! Invariants
//! - A page is taken apart only if `join` gives it back byte for byte; else nothing is kept of it.
//! - Whether an item has a list follows from its head and its length alone, for both directions.
//!
//! Leaves to others: special spaces and holes (`group.rs`).
//!
//! Source: itup.h and nbtree.h of PostgreSQL.

use super::cell::CellPlaces;
use super::heap::Taken;
use super::page::{Head, Pointer, u16_at, word_at};
use super::store::Store;

/// Bytes of an item before its key.
const HEAD: usize = 8;
/// The longest keys that are a column with those of their length.
pub(super) const KEY_MAX: usize = 64;
/// Columns of keys: 8, 16, … [`KEY_MAX`] bytes.
pub(super) const KEYS: usize = KEY_MAX / 8;
/// Bytes of a row's address on a page, and in its stream.
pub(super) const ADDRESS: usize = 6;
pub(super) const ADDRESS_STORED: usize = 8;

/// How the line pointers of a page are found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The first item is the highest on the page, and so on.
    Falling,
    /// So are the items but the first, which is the lowest.
    FirstLast,
    /// They are kept.
    Other,
}

/// The streams of index pages.
#[derive(Default)]
pub(super) struct Items {
    /// Lengths of items, two bytes each.
    pub(super) lengths: Store,
    pub(super) heads: Store,
    pub(super) pointers: Store,
    /// The first address of each list.
    pub(super) firsts: Store,
    /// Each other address, less the one before.
    pub(super) steps: Store,
    pub(super) keys: [Store; KEYS],
    /// Keys of other lengths.
    pub(super) long: Store,
    pub(super) rest: Store,
    /// Item numbers by their places.
    order: Vec<(u16, u16)>,
}

/// The list of row addresses of an item: where it begins, and how many there are.
fn list(head: u64, len: usize) -> Option<(usize, usize)> {
    let bytes = head.to_le_bytes();
    let (alternative, posting) = (bytes[7] & 0x20 != 0, bytes[5] & 0x20 != 0);
    let count = usize::from(u16_at(&bytes, 4) & 0x0fff);
    let at = usize::from(u16_at(&bytes, 0)) << 16 | usize::from(u16_at(&bytes, 2));
    let within = alternative && posting && count > 0 && at >= HEAD && at + count * ADDRESS <= len;
    within.then_some((at, count))
}

/// Block and line pointer as one number: neighbours differ little.
fn address(bytes: &[u8]) -> u64 {
    u64::from(u16_at(bytes, 0)) << 32
        | u64::from(u16_at(bytes, 2)) << 16
        | u64::from(u16_at(bytes, 4))
}

fn put_address(bytes: &mut [u8], address: u64) {
    bytes[..2].copy_from_slice(&((address >> 32) as u16).to_le_bytes());
    bytes[2..4].copy_from_slice(&((address >> 16) as u16).to_le_bytes());
    bytes[4..6].copy_from_slice(&(address as u16).to_le_bytes());
}

impl Items {
    fn stores(&mut self) -> impl Iterator<Item = &mut Store> {
        let Items {
            lengths,
            heads,
            pointers,
            firsts,
            steps,
            keys,
            long,
            rest,
            order: _,
        } = self;
        [lengths, heads, pointers, firsts, steps, long, rest]
            .into_iter()
            .chain(keys)
    }

    pub(super) fn memory(&mut self) -> usize {
        self.stores().map(|store| store.memory()).sum()
    }

    pub(super) fn clear(&mut self) {
        self.stores().for_each(Store::clear);
    }

    /// Takes `page` apart, whose head is plausible. `None`, and nothing is kept, if its line pointers are not those of items.
    pub(super) fn split(&mut self, page: &[u8], head: &Head) -> Option<Order> {
        let order = self.order(page, head)?;
        let count = head.pointers();
        if order == Order::Other {
            self.pointers.extend(&page[Head::LEN..head.lower]);
        }
        for index in 0..count {
            let pointer = Pointer::at(page, index);
            if order == Order::Other && pointer.len() == 0 {
                continue;
            }
            if order != Order::Other {
                self.lengths.push((pointer.len() as u16).to_le_bytes());
            }
            self.item(&page[pointer.offset()..][..pointer.len()]);
        }
        if order == Order::Other {
            let mut covered = head.upper;
            for (at, index) in &self.order {
                let at = usize::from(*at);
                self.rest.extend(&page[covered..at]);
                covered = at + Pointer::at(page, usize::from(*index)).len();
            }
            self.rest.extend(&page[covered..head.special]);
        }
        Some(order)
    }

    fn order(&mut self, page: &[u8], head: &Head) -> Option<Order> {
        let count = head.pointers();
        if count == 0 {
            return None;
        }
        let first = Pointer::at(page, 0);
        let (mut below, mut falling) = (head.special, true);
        let mut below_others = head.special;
        let mut first_last = first.offset() == head.upper && count > 1;
        self.order.clear();
        for index in 0..count {
            let pointer = Pointer::at(page, index);
            let (at, len) = (pointer.offset(), pointer.len());
            if len == 0 {
                // An item that is gone, or whose pointer leads to another one.
                (falling, first_last) = (false, false);
                continue;
            }
            let whole = len >= HEAD && at >= head.upper && at + len <= head.special;
            if !whole || !at.is_multiple_of(8) {
                return None;
            }
            let normal = pointer.0 == Pointer::normal(at, len).0 && len.is_multiple_of(8);
            below = below.wrapping_sub(len);
            falling &= normal && at == below;
            if index > 0 {
                below_others = below_others.wrapping_sub(len);
                first_last &= normal && at == below_others;
            }
            self.order.push((at as u16, index as u16));
        }
        if falling && below == head.upper {
            return Some(Order::Falling);
        }
        let normal = first.0 == Pointer::normal(first.offset(), first.len()).0;
        if first_last && normal && head.upper + first.len() == below_others {
            return Some(Order::FirstLast);
        }
        self.order.sort_unstable();
        let mut covered = head.upper;
        for (at, index) in &self.order {
            let at = usize::from(*at);
            if at < covered {
                return None;
            }
            covered = at + Pointer::at(page, usize::from(*index)).len();
        }
        Some(Order::Other)
    }

    #[inline(always)]
    fn item(&mut self, item: &[u8]) {
        let head = word_at(item, 0);
        self.heads.push(head.to_le_bytes());
        let Some((at, count)) = list(head, item.len()) else {
            return self.key(&item[HEAD..]);
        };
        self.key(&item[HEAD..at]);
        let (addresses, rest) = item[at..].split_at(count * ADDRESS);
        let mut addresses = addresses.chunks_exact(ADDRESS).map(address);
        let mut last = addresses.next().expect("at least one");
        self.firsts.push(last.to_le_bytes());
        for address in addresses {
            self.steps.push(address.wrapping_sub(last).to_le_bytes());
            last = address;
        }
        self.rest.extend(rest);
    }

    fn key(&mut self, key: &[u8]) {
        match self.keys.get_mut((key.len() / 8).wrapping_sub(1)) {
            Some(column) if key.len().is_multiple_of(8) => column.extend(key),
            _ => self.long.extend(key),
        }
    }
}

/// Streams from which index pages are put together.
#[derive(Default)]
pub(super) struct IndexParts {
    pub(super) lengths: Taken,
    pub(super) heads: Taken,
    pub(super) pointers: Taken,
    pub(super) firsts: Taken,
    pub(super) steps: Taken,
    pub(super) keys: [Taken; KEYS],
    pub(super) long: Taken,
    pub(super) rest: Taken,
    places: Vec<(usize, usize)>,
    /// The same in the order of their places.
    sorted: CellPlaces,
}

impl IndexParts {
    pub(super) fn streams(&mut self) -> impl Iterator<Item = &mut Taken> {
        let IndexParts {
            lengths,
            heads,
            pointers,
            firsts,
            steps,
            keys,
            long,
            rest,
            places: _,
            sorted: _,
        } = self;
        [lengths, heads, pointers, firsts, steps, long, rest]
            .into_iter()
            .chain(keys)
    }

    /// Puts a page together whose head, hole and special space are in `page`. `None` if the streams do not fit it.
    #[inline(always)]
    pub(super) fn join(&mut self, page: &mut [u8], head: &Head, order: Order) -> Option<()> {
        let count = head.pointers();
        self.places.clear();
        if order == Order::Other {
            let pointers = self.pointers.take(head.lower - Head::LEN)?;
            page[Head::LEN..head.lower].copy_from_slice(pointers);
            for index in 0..count {
                let pointer = Pointer::at(page, index);
                if pointer.len() > 0 {
                    self.places.push((pointer.offset(), pointer.len()));
                }
            }
            self.sorted.clear(head.size);
            for i in 0..self.places.len() {
                let (at, len) = self.places[i];
                // `gaps` looks no further than the end of the items.
                let items = page.get_mut(..head.special)?;
                self.item(items.get_mut(at..at + len)?)?;
                self.sorted.add(at, at + len)?;
            }
            let rest = &mut self.rest;
            return self.sorted.gaps(head.upper, head.special, |gap| {
                let kept = rest.take(gap.len())?;
                page.get_mut(gap)?.copy_from_slice(kept);
                Some(())
            });
        }
        let mut below = head.special;
        let lengths = self.lengths.take(2 * count)?;
        self.places
            .extend(lengths.as_chunks::<2>().0.iter().map(|len| {
                let len = usize::from(u16::from_le_bytes(*len));
                below = below.wrapping_sub(len);
                (below, len)
            }));
        if below != head.upper || count == 0 {
            return None;
        }
        if order == Order::FirstLast {
            let (_, first) = *self.places.first()?;
            for place in &mut self.places {
                place.0 = place.0.wrapping_add(first);
            }
            self.places[0].0 = head.upper;
        }
        for index in 0..count {
            let (at, len) = self.places[index];
            let item = page.get_mut(at..at.checked_add(len)?)?;
            self.item(item)?;
            Pointer::normal(at, len).put(page, index);
        }
        Some(())
    }

    #[inline(always)]
    fn item(&mut self, item: &mut [u8]) -> Option<()> {
        let head = self.heads.take(HEAD)?;
        item.get_mut(..HEAD)?.copy_from_slice(head);
        let head = word_at(item, 0);
        let len = item.len();
        let Some((at, count)) = list(head, len) else {
            return self.key(&mut item[HEAD..]);
        };
        self.key(&mut item[HEAD..at])?;
        let (addresses, rest) = item[at..].split_at_mut(count * ADDRESS);
        let mut address = word_at(self.firsts.take(ADDRESS_STORED)?, 0);
        for (i, bytes) in addresses.chunks_exact_mut(ADDRESS).enumerate() {
            if i > 0 {
                let step = word_at(self.steps.take(ADDRESS_STORED)?, 0);
                address = address.wrapping_add(step);
            }
            put_address(bytes, address);
        }
        rest.copy_from_slice(self.rest.take(rest.len())?);
        Some(())
    }

    #[inline(always)]
    fn key(&mut self, key: &mut [u8]) -> Option<()> {
        let column = match self.keys.get_mut((key.len() / 8).wrapping_sub(1)) {
            Some(column) if key.len().is_multiple_of(8) => column,
            _ => &mut self.long,
        };
        let kept = column.take(key.len())?;
        let (words, rest) = key.as_chunks_mut::<8>();
        let (kept, kept_rest) = kept.as_chunks();
        // Most keys have few words: a call to copy them would take longer.
        words
            .iter_mut()
            .zip(kept)
            .for_each(|(word, kept)| *word = *kept);
        rest.copy_from_slice(kept_rest);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::cursor::Cursor;
    use super::*;

    fn taken(bytes: &[u8]) -> Taken {
        let mut taken = Taken::default();
        let sized = Cursor::new(&[], 0, bytes.len()).sized(&mut taken.bytes, bytes.len());
        sized.unwrap();
        taken.bytes.copy_from_slice(bytes);
        taken
    }

    /// Goal: no item of a damaged payload is written over a special space, wherever that begins.
    #[test]
    fn items_with_kept_pointers_end_below_the_special_space() {
        const SIZE: usize = 8192;
        const LEN: usize = 16;
        for special in [4096, 4104, SIZE - 16, SIZE] {
            let head = Head {
                lower: Head::LEN + 4,
                upper: special - LEN,
                special,
                size: SIZE,
            };
            let places = [
                special - LEN,
                special - 8,
                special,
                special + 56,
                special + 64,
            ];
            for at in places.into_iter().chain([SIZE - LEN, SIZE - 8]) {
                let mut parts = IndexParts {
                    pointers: taken(&Pointer::normal(at, LEN).0.to_le_bytes()),
                    heads: taken(&[0; 8]),
                    rest: taken(&[7; LEN]),
                    ..IndexParts::default()
                };
                parts.keys[0] = taken(&[9; 8]);
                let mut page = vec![0xee; SIZE];
                let joined = parts.join(&mut page, &head, Order::Other);
                let fits = at == head.upper;
                assert_eq!(joined.is_some(), fits, "{special} {at}");
                let kept = page[special..].iter().all(|byte| *byte == 0xee);
                assert!(kept, "{special} {at}");
            }
        }
    }
}
