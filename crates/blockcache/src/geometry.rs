//! Where things lie on a cache device, and how a backend is cut into what is cached.
//!
//! ```text
//! 0        4096     8192            + log        + log
//! | super  | super  | log 0         | log 1      | slot 0 | slot 1 | …
//! ```
//!
//! The backend is cut into *blocks* of one slot's size. A block is held by at most one slot, in *lines* of 4 KiB
//! that are each there or not. A line that the end of the backend cuts is never held.

use crate::Error;

/// What is there or not there together.
pub const LINE: u64 = 4096;
/// One bit for each line of a slot.
pub type Lines = u16;

/// Logs begin behind the two copies of the superblock.
const LOGS_AT: u64 = 2 * LINE;
/// Slots begin at a multiple of this.
const SLOTS_ALIGN: u64 = 1 << 20;
/// A cache of fewer slots is a mistake.
const SLOTS_MIN: u64 = 4;
/// Blocks of a log beside a whole table: commits until the log is written anew.
const LOG_ROOM: u64 = 64;

/// The shape of a cache. Constant for its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a slot: a power of two from 4 KiB to 64 KiB.
    pub slot_bytes: u32,
    pub slots: u32,
    /// Blocks of 4 KiB in each of the two logs.
    pub log_blocks: u32,
}

impl Geometry {
    /// The shape that makes the most of `device_bytes`.
    pub fn fit(device_bytes: u64, slot_bytes: u32) -> Result<Geometry, Error> {
        if !valid_slot(slot_bytes) {
            return Err(Error::SlotSize { slot_bytes });
        }
        let mut slots = (device_bytes / u64::from(slot_bytes)).min(u64::from(u32::MAX) / 2);
        loop {
            let geometry = Geometry {
                slot_bytes,
                slots: slots as u32,
                log_blocks: log_blocks(slots, slot_bytes),
            };
            if slots < SLOTS_MIN {
                return Err(Error::TooSmall { device_bytes });
            }
            let over = geometry.end().saturating_sub(device_bytes);
            if over == 0 {
                return Ok(geometry);
            }
            slots -= over.div_ceil(u64::from(slot_bytes)).min(slots);
        }
    }

    /// Refuses what [`Geometry::fit`] cannot have made.
    pub(crate) fn checked(self) -> Option<Geometry> {
        let valid = valid_slot(self.slot_bytes)
            && u64::from(self.slots) >= SLOTS_MIN
            && self.slots <= u32::MAX / 2
            && self.log_blocks == log_blocks(self.slots.into(), self.slot_bytes);
        valid.then_some(self)
    }

    pub fn lines_per_slot(self) -> u32 {
        self.slot_bytes / LINE as u32
    }

    /// All lines of a slot.
    pub(crate) fn all_lines(self) -> Lines {
        ones(self.lines_per_slot())
    }

    pub(crate) fn log_at(self, half: u64) -> u64 {
        LOGS_AT + half * u64::from(self.log_blocks) * LINE
    }

    /// Where a line of a slot lies on the cache device.
    pub(crate) fn line_at(self, slot: u32, line: u32) -> u64 {
        self.slots_at() + u64::from(slot) * u64::from(self.slot_bytes) + u64::from(line) * LINE
    }

    fn slots_at(self) -> u64 {
        self.log_at(2).next_multiple_of(SLOTS_ALIGN)
    }

    /// Bytes of the device that are used.
    pub fn end(self) -> u64 {
        self.slots_at() + u64::from(self.slots) * u64::from(self.slot_bytes)
    }

    /// Bytes that can be held.
    pub fn capacity_bytes(self) -> u64 {
        u64::from(self.slots) * u64::from(self.slot_bytes)
    }
}

fn valid_slot(slot_bytes: u32) -> bool {
    slot_bytes.is_power_of_two() && (LINE as u32..=64 << 10).contains(&slot_bytes)
}

/// Room for the records of a whole table, as much again for changes, and a margin.
fn log_blocks(slots: u64, slot_bytes: u32) -> u32 {
    let lines = u64::from(slot_bytes) / LINE;
    let record = crate::format::set_len(lines as u32) as u64;
    let per_block = (LINE - crate::format::BLOCK_HEAD as u64) / record;
    (2 * slots.div_ceil(per_block) + LOG_ROOM) as u32
}

pub(crate) fn ones(count: u32) -> Lines {
    ((1u32 << count) - 1) as Lines
}

/// A run of lines within one block of the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub block: u64,
    pub first: u32,
    pub count: u32,
}

impl Piece {
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
    /// Cuts `len` bytes at `offset`, rounded out to lines, at the ends of blocks.
    pub(crate) fn pieces(self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + Clone {
        let slot = u64::from(self.slot_bytes);
        let start = offset / LINE * LINE;
        let end = match len {
            0 => start,
            _ => (offset + len).next_multiple_of(LINE),
        };
        let mut at = start;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let block = at / slot;
            let stop = end.min((block + 1) * slot);
            let piece = Piece {
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
    fn a_shape_uses_the_device_and_never_more_of_it() {
        for slot_bytes in [4096, 8192, 16 << 10, 32 << 10, 64 << 10] {
            for device in [4 << 20, 5_000_001, 64 << 20, 10 << 30, 3 << 40] {
                let shape = Geometry::fit(device, slot_bytes).unwrap();
                assert!(shape.end() <= device, "{shape:?} of {device}");
                assert_eq!(shape.checked(), Some(shape));
                if device >= 64 << 20 {
                    let share = shape.capacity_bytes() as f64 / device as f64;
                    assert!(share > 0.9, "{slot_bytes} of {device}: {share}");
                }
            }
        }
        assert!(Geometry::fit(1 << 20, 64 << 10).is_err());
        assert!(Geometry::fit(1 << 30, 5000).is_err());
        assert!(Geometry::fit(1 << 30, 128 << 10).is_err());
    }

    #[test]
    fn pieces_cover_a_range_once_and_stay_in_their_blocks() {
        let shape = Geometry::fit(64 << 20, 16 << 10).unwrap();
        for (offset, len) in [(0, 1), (4095, 2), (5000, 70_000), (16 << 10, 16 << 10)] {
            let mut at = offset / LINE * LINE;
            for piece in shape.pieces(offset, len) {
                assert_eq!(piece.at(shape), at);
                assert!(piece.count > 0 && piece.first + piece.count <= 4);
                assert_eq!(piece.mask().count_ones(), piece.count);
                at += piece.bytes();
            }
            assert_eq!(at, (offset + len).next_multiple_of(LINE));
        }
        assert_eq!(
            shape.pieces(4096, 0).count() + shape.pieces(5000, 0).count(),
            0
        );
    }
}
