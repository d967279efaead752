//! What the simulated cache holds: slots of 64 KiB with a bit for each line of 4 KiB, evicted least recently used.

use std::num::NonZeroUsize;

use lru::LruCache;

pub const LINE_BYTES: u64 = 4096;
pub const SLOT_BYTES: u64 = 64 << 10;

/// Lines of a slot.
type Lines = u16;

pub struct Content {
    slots: LruCache<u64, Lines>,
}

fn lines_of(offset: u64, len: u64, slot: u64) -> Lines {
    let start = offset.max(slot * SLOT_BYTES) - slot * SLOT_BYTES;
    let end = (offset + len).min((slot + 1) * SLOT_BYTES) - slot * SLOT_BYTES;
    let (first, last) = (start / LINE_BYTES, end.div_ceil(LINE_BYTES));
    let ones = |n: u64| ((1u32 << n) - 1) as Lines;
    ones(last) & !ones(first)
}

fn slots(offset: u64, len: u64) -> std::ops::RangeInclusive<u64> {
    offset / SLOT_BYTES..=(offset + len - 1) / SLOT_BYTES
}

impl Content {
    pub fn new(bytes: u64) -> Content {
        let slots = NonZeroUsize::new((bytes / SLOT_BYTES) as usize).unwrap_or(NonZeroUsize::MIN);
        Content {
            slots: LruCache::new(slots),
        }
    }

    /// Whether all of it is there; what is looked at is used.
    pub fn holds(&mut self, offset: u64, len: u64) -> bool {
        let mut all = true;
        for slot in slots(offset, len) {
            let wanted = lines_of(offset, len, slot);
            all &= self
                .slots
                .get(&slot)
                .is_some_and(|have| have & wanted == wanted);
        }
        all
    }

    pub fn insert(&mut self, offset: u64, len: u64) {
        for slot in slots(offset, len) {
            let lines = lines_of(offset, len, slot);
            *self.slots.get_or_insert_mut(slot, || 0) |= lines;
        }
    }

    pub fn drop_range(&mut self, offset: u64, len: u64) {
        for slot in slots(offset, len) {
            if let Some(have) = self.slots.peek_mut(&slot) {
                *have &= !lines_of(offset, len, slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_held_by_the_line_and_the_least_used_slot_goes_first() {
        let mut content = Content::new(2 * SLOT_BYTES);
        content.insert(4096, 8192);
        assert!(content.holds(4096, 8192) && content.holds(8192, 1));
        assert!(!content.holds(0, 4096) && !content.holds(8192, 8192));
        content.insert(SLOT_BYTES - 4096, 8192);
        assert!(content.holds(SLOT_BYTES - 4096, 8192));
        content.drop_range(8192, 100);
        assert!(content.holds(4096, 4096) && !content.holds(8192, 4096));
        content.insert(5 * SLOT_BYTES, 4096);
        assert!(content.holds(4096, 4096), "it was used last");
        assert!(!content.holds(SLOT_BYTES, 4096));
    }
}
