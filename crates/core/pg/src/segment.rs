//! Names of WAL segments: timeline, LSN and segment size in 24 hexadecimal digits.
//!
//! Invariants
//! - A name means nothing without the segment size of its cluster, so every conversion asks for it.
//! - Timelines are 1 or more; 0 is refused where a name or a number is read.
//! - A segment's size is a power of two from 1 MiB to 1 GiB.
//!
//! Leaves to others: other names in pg_wal (`wal/name.rs`), and a last part that is too large for the segment size.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::Lsn;

/// A timeline, 1 or more; each promotion begins the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timeline(pub NonZeroU32);

impl Timeline {
    pub fn new(number: u32) -> Option<Timeline> {
        NonZeroU32::new(number).map(Timeline)
    }

    pub fn number(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The size of a WAL segment in bytes: a power of two from 1 MiB to 1 GiB, fixed for a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentSize(u32);

impl SegmentSize {
    pub fn new(bytes: u64) -> Option<SegmentSize> {
        let fits = (1 << 20..=1 << 30).contains(&bytes) && bytes.is_power_of_two();
        fits.then_some(SegmentSize(bytes as u32))
    }

    pub fn bytes(self) -> u64 {
        u64::from(self.0)
    }
}

/// The name of one WAL segment: 24 hexadecimal digits, of timeline and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    pub timeline: Timeline,
    /// The middle eight digits.
    pub high: u32,
    /// The last eight: below 2^32 ÷ segment size.
    pub low: u32,
}

impl SegmentName {
    /// The segment that holds the byte at `lsn`.
    pub fn holding(timeline: Timeline, lsn: Lsn, size: SegmentSize) -> SegmentName {
        SegmentName {
            timeline,
            high: (lsn.0 >> 32) as u32,
            low: (lsn.0 as u32) / size.0,
        }
    }

    /// The LSN of the first byte.
    pub fn start(self, size: SegmentSize) -> Lsn {
        Lsn((u64::from(self.high) << 32) + u64::from(self.low) * size.bytes())
    }

    /// The next segment, on the same timeline.
    pub fn next(self, size: SegmentSize) -> SegmentName {
        let start = Lsn(self.start(size).0.wrapping_add(size.bytes()));
        SegmentName::holding(self.timeline, start, size)
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:08X}{:08X}{:08X}",
            self.timeline.number(),
            self.high,
            self.low
        )
    }
}

impl FromStr for SegmentName {
    type Err = String;

    fn from_str(s: &str) -> Result<SegmentName, String> {
        let upper = |b: u8| b.is_ascii_digit() || (b'A'..=b'F').contains(&b);
        let part = |i: usize| u32::from_str_radix(&s[8 * i..8 * i + 8], 16).ok();
        let name = || {
            Some(SegmentName {
                timeline: Timeline::new(part(0)?)?,
                high: part(1)?,
                low: part(2)?,
            })
        };
        let shaped = s.len() == 24 && s.bytes().all(upper);
        shaped
            .then(name)
            .flatten()
            .ok_or_else(|| format!("{s:?} is not the name of a WAL segment"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_name_is_found_from_a_place_and_read_back() {
        let size = SegmentSize::new(16 << 20).unwrap();
        let timeline = Timeline::new(3).unwrap();
        let name = SegmentName::holding(timeline, Lsn(0x16_b374_d848), size);
        assert_eq!(name.to_string(), "0000000300000016000000B3");
        assert_eq!(name.to_string().parse(), Ok(name));
        assert_eq!(name.start(size), Lsn(0x16_b300_0000));
        let last = SegmentName::holding(timeline, Lsn(0x1_ffff_ffff), size);
        assert_eq!(last.next(size).to_string(), "000000030000000200000000");
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "",
            "00000002.history",
            "000000000000000000000001",
            "00000001000000000000000g",
            "00000001000000000000000a",
            "0000000100000000000000011",
        ] {
            assert!(name.parse::<SegmentName>().is_err(), "{name}");
        }
    }
}
