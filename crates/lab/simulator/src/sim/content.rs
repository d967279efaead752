//! The content of the simulated cache device: a bit for each line of every resident slot.
//!
//! Invariants
//! - A cached line has the backend's present version: a write invalidates its lines when it begins, and a copy of older
//!   content is refused by its slot's version.
//! - Only a resident slot has lines; one that is evicted loses the copies in flight, too.
//!
//! Leaves to others: which slots are resident (the policy), and the time that copies take (the simulation).

use std::ops::Range;

use longshore_policy::policy::{LINE_BYTES, Slot, SlotMap};

/// A slot has 64 lines at most.
pub const SLOT_BYTES_MAX: u64 = 64 * LINE_BYTES;

pub struct SimulatedContent {
    slot_bytes: u64,
    lines: SlotMap<u64>,
    /// The number of writes to a slot that began or ended so far.
    versions: SlotMap<u64>,
}

fn ones(count: u64) -> u64 {
    if count >= 64 {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

impl SimulatedContent {
    /// Slots of `slot_bytes`: whole lines, up to [`SLOT_BYTES_MAX`].
    pub fn new(slot_bytes: u64) -> SimulatedContent {
        SimulatedContent {
            slot_bytes,
            lines: SlotMap::default(),
            versions: SlotMap::default(),
        }
    }

    /// The part of a range that lies in each slot.
    pub fn pieces(&self, bytes: Range<u64>) -> impl Iterator<Item = (Slot, Range<u64>)> + use<> {
        let slot_bytes = self.slot_bytes;
        let mut at = bytes.start;
        std::iter::from_fn(move || {
            if at >= bytes.end {
                return None;
            }
            let slot = at / slot_bytes;
            let end = bytes.end.min((slot + 1) * slot_bytes);
            let piece = at..end;
            at = end;
            Some((Slot(slot), piece))
        })
    }

    /// The bits of the lines that a piece of a slot touches.
    fn bits(&self, piece: &Range<u64>) -> u64 {
        let start = piece.start % self.slot_bytes;
        let last = start + (piece.end - piece.start);
        ones(last.div_ceil(LINE_BYTES)) & !ones(start / LINE_BYTES)
    }

    /// Divides a range into runs, each cached in full or not at all, into `out`: whether it is cached, and its bytes.
    pub fn runs(&self, bytes: Range<u64>, out: &mut Vec<(bool, Range<u64>)>) {
        out.clear();
        let mut add = |held: bool, run: Range<u64>| match out.last_mut() {
            Some((same, last)) if *same == held => last.end = run.end,
            _ => out.push((held, run)),
        };
        for (slot, piece) in self.pieces(bytes) {
            let wanted = self.bits(&piece);
            let have = self.lines.get(&slot).copied().unwrap_or(0) & wanted;
            if have == 0 || have == wanted {
                add(have != 0, piece);
                continue;
            }
            let mut at = piece.start;
            while at < piece.end {
                let end = piece.end.min((at / LINE_BYTES + 1) * LINE_BYTES);
                let line = at % self.slot_bytes / LINE_BYTES;
                add(have >> line & 1 == 1, at..end);
                at = end;
            }
        }
    }

    /// A write to the range begins or ends: its lines and copies in flight are void.
    pub fn void(&mut self, bytes: Range<u64>) {
        for (slot, piece) in self.pieces(bytes) {
            let bits = self.bits(&piece);
            if let Some(have) = self.lines.get_mut(&slot) {
                *have &= !bits;
            }
            *self.versions.entry(slot).or_insert(0) += 1;
        }
    }

    /// Trims or zeroes a range of any length, with the effect of [`SimulatedContent::void`].
    pub fn discard(&mut self, bytes: Range<u64>) {
        let slots = (bytes.end - bytes.start) / self.slot_bytes;
        if slots <= self.lines.len() as u64 {
            return self.void(bytes);
        }
        // Slots with cached data or copies in flight have lines.
        let known: Vec<Slot> = self.lines.keys().copied().collect();
        for slot in known {
            let start = bytes.start.max(slot.0 * self.slot_bytes);
            let end = bytes.end.min((slot.0 + 1) * self.slot_bytes);
            if start < end {
                self.void(start..end);
            }
        }
    }

    /// The version that a copy made now must still find when it is complete.
    pub fn version(&self, slot: Slot) -> u64 {
        self.versions.get(&slot).copied().unwrap_or(0)
    }

    /// Completes a copy of whole lines; it counts if its slot is resident and was not written since `version`.
    pub fn fill(&mut self, slot: Slot, piece: &Range<u64>, version: u64) {
        let bits = self.bits(piece);
        if self.version(slot) == version
            && let Some(have) = self.lines.get_mut(&slot)
        {
            *have |= bits;
        }
    }

    /// Makes a slot resident; it is empty if it was not resident before.
    pub fn admit(&mut self, slot: Slot) {
        self.lines.entry(slot).or_insert(0);
    }

    /// Makes a slot resident and cached in full.
    pub fn load(&mut self, slot: Slot) {
        self.lines.insert(slot, u64::MAX);
    }

    /// Evicts a slot; a copy into it that is in flight is lost.
    pub fn evict(&mut self, slot: Slot) {
        self.lines.remove(&slot);
        *self.versions.entry(slot).or_insert(0) += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: u64 = 64 << 10;

    fn held(content: &SimulatedContent, bytes: Range<u64>) -> Vec<(bool, Range<u64>)> {
        let mut out = Vec::new();
        content.runs(bytes, &mut out);
        out
    }

    #[test]
    fn content_is_held_by_the_line_and_runs_join_across_slots() {
        let mut content = SimulatedContent::new(SLOT);
        (0..3).for_each(|n| content.admit(Slot(n)));
        content.fill(Slot(0), &(4096..SLOT), 0);
        content.fill(Slot(1), &(SLOT..SLOT + 8192), 0);
        let runs = held(&content, 0..2 * SLOT);
        let expected = vec![
            (false, 0..4096),
            (true, 4096..SLOT + 8192),
            (false, SLOT + 8192..2 * SLOT),
        ];
        assert_eq!(runs, expected);
        assert_eq!(held(&content, 5000..5001), vec![(true, 5000..5001)]);
        content.void(SLOT - 100..SLOT + 100);
        let runs = held(&content, SLOT - 8192..SLOT + 8192);
        let expected = vec![
            (true, SLOT - 8192..SLOT - 4096),
            (false, SLOT - 4096..SLOT + 4096),
            (true, SLOT + 4096..SLOT + 8192),
        ];
        assert_eq!(runs, expected);
    }

    #[test]
    fn a_copy_of_what_was_written_or_evicted_meanwhile_is_not_held() {
        let mut content = SimulatedContent::new(SLOT);
        content.admit(Slot(0));
        let version = content.version(Slot(0));
        content.void(0..4096);
        content.fill(Slot(0), &(0..4096), version);
        assert_eq!(held(&content, 0..4096), vec![(false, 0..4096)]);
        let version = content.version(Slot(0));
        content.evict(Slot(0));
        content.admit(Slot(0));
        content.fill(Slot(0), &(0..4096), version);
        assert_eq!(held(&content, 0..4096), vec![(false, 0..4096)]);
        content.fill(Slot(0), &(0..4096), content.version(Slot(0)));
        assert_eq!(held(&content, 0..4096), vec![(true, 0..4096)]);
    }
}
