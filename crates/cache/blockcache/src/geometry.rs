//! The layout of a cache device, and the division of a backend into cacheable blocks.
//!
//! ```text
//! 0        4096     8192     + log    + log     + log     + log
//! | super  | super  | log 0  | log 1  | log 0'  | log 1'  | slot 0 | slot 1 | …
//! ```
//!
//! The backend is divided into *cache blocks* of one slot's size.
//!
//! Invariants
//! - A cache that has grown beyond its original size has its logs after its slots; the first slot never moves.
//! - A cache block is held by at most one slot, in *lines* of 4 KiB each, any of which may be missing.
//! - A line that the end of the backend cuts is never cached.
//!
//! Leaves to others: the bytes of superblock and log (`format.rs`), and which block is in which slot (`directory.rs`).

use crate::Error;

/// The longest run of bytes that is handled at once; longer requests are split.
pub const BUFFER_BYTES: u64 = 1 << 20;
/// The unit that is cached or not.
pub const LINE: u64 = 4096;
/// One bit for each line of a slot.
pub type Lines = u16;

/// A slot has a bit for each of its lines.
const SLOT_BYTES_MAX: u32 = LINE as u32 * Lines::BITS;

/// Logs begin after the two copies of the superblock.
const LOGS_AT: u64 = 2 * LINE;
/// Two logs, each stored twice.
const LOGS: u64 = 4;
/// Slots begin at a multiple of this.
const SLOTS_ALIGN: u64 = 1 << 20;
/// A cache with fewer slots is refused as a mistake.
const SLOTS_MIN: u64 = 4;
const SLOTS_MAX: u32 = u32::MAX / 2;
/// The part of the logs' length by which the smallest step exceeds it.
const STEP_PART: u64 = 8;
/// Pages of a log in addition to a whole table: commits until the log is rewritten.
const LOG_ROOM: u64 = 64;

/// The shape of a cache. Only the number of slots, and with it the logs, can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a slot: a power of two from 4 KiB to 64 KiB.
    pub slot_bytes: u32,
    pub slots: u32,
    /// Pages of 4 KiB in each of the two logs, each of which is stored twice.
    pub log_pages: u32,
    /// Slots that it was made with: the space before the first slot holds logs for that many.
    pub made_slots: u32,
}

impl Geometry {
    /// The shape that makes the most of `device_bytes`.
    pub fn fit(device_bytes: u64, slot_bytes: u32) -> Result<Geometry, Error> {
        if !valid_slot(slot_bytes) {
            return Err(Error::SlotSize { slot_bytes });
        }
        largest(device_bytes, slot_bytes, SLOTS_MAX, |slots| Geometry {
            slot_bytes,
            slots,
            log_pages: log_pages(slots, slot_bytes),
            made_slots: slots,
        })
    }

    /// The shape for that many bytes. Its log may not overlap the present one, so that it can be written while the
    /// present one is live.
    pub(crate) fn resized(self, device_bytes: u64) -> Result<Geometry, Error> {
        // More slots than it was made with need space for other logs, too.
        let more = self.with_slots(self.made_slots + 1).end() <= device_bytes;
        let most = if more { SLOTS_MAX } else { self.made_slots };
        let shape = |slots| self.with_slots(slots);
        let next = largest(device_bytes, self.slot_bytes, most, shape)?;
        let apart = next.logs_at() == LOGS_AT
            || self.logs_at() == LOGS_AT
            || next.logs_at() >= self.end()
            || next.end() <= self.logs_at();
        match apart || next == self {
            true => Ok(next),
            false => {
                // As long as the logs are, and a part more: the logs of a larger cache are longer.
                let logs = self.end() - self.logs_at();
                Err(Error::SmallStep {
                    bytes: (logs + logs / STEP_PART + SLOTS_ALIGN).next_multiple_of(SLOTS_ALIGN),
                })
            }
        }
    }

    fn with_slots(self, slots: u32) -> Geometry {
        Geometry {
            slots,
            log_pages: log_pages(slots.max(self.made_slots), self.slot_bytes),
            ..self
        }
    }

    /// Refuses shapes that neither [`Geometry::fit`] nor a resize can have made.
    pub(crate) fn checked(self) -> Option<Geometry> {
        let valid = valid_slot(self.slot_bytes)
            && u64::from(self.slots.min(self.made_slots)) >= SLOTS_MIN
            && self.slots.max(self.made_slots) <= SLOTS_MAX
            && self == self.with_slots(self.slots);
        valid.then_some(self)
    }

    pub fn lines_per_slot(self) -> u32 {
        self.slot_bytes / LINE as u32
    }

    /// All lines of a slot.
    pub(crate) fn all_lines(self) -> Lines {
        ones(self.lines_per_slot())
    }

    /// Where a copy (0 or 1) of the log of a generation begins.
    pub(crate) fn log_at(self, generation: u64, copy: u64) -> u64 {
        let log = u64::from(self.log_pages) * LINE;
        self.logs_at() + (2 * copy + generation % 2) * log
    }

    fn logs_at(self) -> u64 {
        match self.slots > self.made_slots {
            true => self.slots_end(),
            false => LOGS_AT,
        }
    }

    /// Where a line of a slot lies on the cache device.
    pub(crate) fn line_at(self, slot: u32, line: u32) -> u64 {
        self.slots_at() + u64::from(slot) * u64::from(self.slot_bytes) + u64::from(line) * LINE
    }

    fn slots_at(self) -> u64 {
        let logs = LOGS * u64::from(log_pages(self.made_slots, self.slot_bytes)) * LINE;
        (LOGS_AT + logs).next_multiple_of(SLOTS_ALIGN)
    }

    fn slots_end(self) -> u64 {
        self.slots_at() + self.capacity_bytes()
    }

    /// Bytes of the cache device that are used.
    pub fn end(self) -> u64 {
        let logs_end = self.logs_at() + LOGS * u64::from(self.log_pages) * LINE;
        self.slots_end().max(logs_end)
    }

    /// Bytes that can be held.
    pub fn capacity_bytes(self) -> u64 {
        u64::from(self.slots) * u64::from(self.slot_bytes)
    }
}

/// The largest of these shapes, by slots, that fits.
fn largest(
    device_bytes: u64,
    slot_bytes: u32,
    most: u32,
    shape: impl Fn(u32) -> Geometry,
) -> Result<Geometry, Error> {
    let mut slots = (device_bytes / u64::from(slot_bytes)).min(most.into());
    loop {
        if slots < SLOTS_MIN {
            return Err(Error::TooSmall { device_bytes });
        }
        let geometry = shape(slots as u32);
        let over = geometry.end().saturating_sub(device_bytes);
        if over == 0 {
            return Ok(geometry);
        }
        slots -= over.div_ceil(u64::from(slot_bytes)).min(slots);
    }
}

fn valid_slot(slot_bytes: u32) -> bool {
    slot_bytes.is_power_of_two() && (LINE as u32..=SLOT_BYTES_MAX).contains(&slot_bytes)
}

/// Space for the records of a whole table, the same again for changes, and a margin.
fn log_pages(slots: u32, slot_bytes: u32) -> u32 {
    let lines = u64::from(slot_bytes) / LINE;
    let record = crate::log_size::set_len(lines as u32) as u64;
    let per_page = (LINE - crate::log_size::PAGE_HEAD as u64) / record;
    (2 * u64::from(slots).div_ceil(per_page) + LOG_ROOM) as u32
}

pub(crate) fn ones(count: u32) -> Lines {
    ((1u32 << count) - 1) as Lines
}

/// A run of lines within one block of the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineRun {
    pub block: u64,
    pub first: u32,
    pub count: u32,
}

impl LineRun {
    pub fn mask(self) -> Lines {
        ones(self.count) << self.first
    }

    pub fn bytes(self) -> u64 {
        u64::from(self.count) * LINE
    }

    /// Where it begins on the backend.
    pub fn at(self, geometry: Geometry) -> u64 {
        self.block * u64::from(geometry.slot_bytes) + u64::from(self.first) * LINE
    }
}

impl Geometry {
    /// Cuts `len_bytes` at `offset`, rounded out to lines, at the ends of blocks.
    pub(crate) fn pieces(
        self,
        offset: u64,
        len_bytes: u64,
    ) -> impl Iterator<Item = LineRun> + Clone {
        let slot = u64::from(self.slot_bytes);
        let start = offset / LINE * LINE;
        let end = match len_bytes {
            0 => start,
            _ => (offset + len_bytes).next_multiple_of(LINE),
        };
        let mut at = start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let block = at / slot;
            let stop = end.min((block + 1) * slot);
            let piece = LineRun {
                block,
                first: ((at - block * slot) / LINE) as u32,
                count: ((stop - at) / LINE) as u32,
            };
            at = stop;
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_uses_the_cache_device_and_never_more_of_it() {
        for slot_bytes in [4096, 8192, 16 << 10, 32 << 10, 64 << 10] {
            for device_bytes in [4 << 20, 5_000_001, 64 << 20, 10 << 30, 3 << 40] {
                let shape = Geometry::fit(device_bytes, slot_bytes).unwrap();
                assert!(shape.end() <= device_bytes, "{shape:?} of {device_bytes}");
                assert_eq!(shape.checked(), Some(shape));
                if device_bytes >= 64 << 20 {
                    let share = shape.capacity_bytes() as f64 / device_bytes as f64;
                    assert!(share > 0.9, "{slot_bytes} of {device_bytes}: {share}");
                }
            }
        }
        assert!(Geometry::fit(1 << 20, 64 << 10).is_err());
        assert!(Geometry::fit(1 << 30, 5000).is_err());
        assert!(Geometry::fit(1 << 30, 128 << 10).is_err());
    }

    #[test]
    fn a_shape_that_changes_keeps_its_slots_in_place_and_its_log_off_the_old_one() {
        for slot_bytes in [4096, 64 << 10] {
            let made = Geometry::fit(64 << 20, slot_bytes).unwrap();
            let mut shape = made;
            for mib in [1 << 10, 32, 64, 4 << 10, 128, 8 << 10] {
                let next = shape.resized(mib << 20).unwrap();
                assert!(next.end() <= mib << 20 && next.end() > (mib << 20) * 9 / 10);
                assert_eq!(next.checked(), Some(next));
                assert_eq!(next.line_at(3, 0), made.line_at(3, 0));
                let log = |shape: Geometry, copy, generation| {
                    let at = shape.log_at(generation, copy);
                    at..at + u64::from(shape.log_pages) * LINE
                };
                // The live log has one parity, the log being written has the other.
                for generation in [0, 1] {
                    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                        let (live, new) = (log(shape, a, generation), log(next, b, generation + 1));
                        assert!(
                            live.end <= new.start || new.end <= live.start,
                            "{live:?} {new:?}"
                        );
                    }
                }
                let first = next.line_at(0, 0);
                let slots = first..first + next.capacity_bytes();
                assert!(log(next, 1, 1).end <= slots.start || log(next, 0, 0).start >= slots.end);
                shape = next;
            }
            let least = match shape.resized((8 << 30) - (1 << 20)) {
                Err(Error::SmallStep { bytes }) => bytes,
                other => panic!("{other:?}"),
            };
            shape.resized((8 << 30) - least).unwrap();
            assert_eq!(shape.resized(8 << 30).unwrap(), shape);
        }
    }

    #[test]
    fn pieces_cover_a_range_once_and_stay_in_their_blocks() {
        let shape = Geometry::fit(64 << 20, 16 << 10).unwrap();
        for (offset, len_bytes) in [(0, 1), (4095, 2), (5000, 70_000), (16 << 10, 16 << 10)] {
            let mut at = offset / LINE * LINE;
            for piece in shape.pieces(offset, len_bytes) {
                assert_eq!(piece.at(shape), at);
                assert!(piece.count > 0 && piece.first + piece.count <= 4);
                assert_eq!(piece.mask().count_ones(), piece.count);
                at += piece.bytes();
            }
            assert_eq!(at, (offset + len_bytes).next_multiple_of(LINE));
        }
        assert_eq!(
            shape.pieces(4096, 0).count() + shape.pieces(5000, 0).count(),
            0
        );
    }
}
