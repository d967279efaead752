//! Sequential streams: a read that begins where a recent one ended continues its stream.
//!
//! A database scans in requests no longer than its read-ahead, which may be short; they are bulk because they follow
//! each other. Streams are kept by the offset of their next read, in a table of fixed size; the one idle longest makes
//! room.

use longshore_balance::constants::cache::CLIENTS;

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    next: u64,
    /// Sequential bytes so far.
    run: u64,
    used: u64,
}

#[derive(Debug)]
pub struct Streams {
    table: [Stream; CLIENTS],
    clock: u64,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams {
            table: [Stream::default(); CLIENTS],
            clock: 0,
        }
    }
}

impl Streams {
    /// Sequential bytes that end with this request, including it.
    pub fn follow(&mut self, offset: u64, len: u64) -> u64 {
        self.clock += 1;
        let found = self
            .table
            .iter()
            .position(|s| s.run > 0 && s.next == offset);
        let at = found.unwrap_or_else(|| {
            let oldest = (0..CLIENTS).min_by_key(|i| self.table[*i].used);
            oldest.unwrap_or(0)
        });
        let before = found.map_or(0, |at| self.table[at].run);
        self.table[at] = Stream {
            next: offset.saturating_add(len),
            run: before.saturating_add(len),
            used: self.clock,
        };
        self.table[at].run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_streams_are_separated_and_random_reads_are_no_stream() {
        let mut streams = Streams::default();
        for step in 1..=20u64 {
            for stream in 0..8u64 {
                let run = streams.follow((stream << 30) + (step - 1) * 4096, 4096);
                assert_eq!(run, step * 4096);
            }
            assert_eq!(streams.follow((step * step) << 40, 8192), 8192);
        }
    }

    #[test]
    fn a_stream_that_rests_longest_is_forgotten_first() {
        let mut streams = Streams::default();
        streams.follow(0, 4096);
        (1..64).for_each(|n| _ = streams.follow(n << 30, 4096));
        assert_eq!(streams.follow(4096, 4096), 8192, "there is room for all");
        (100..164).for_each(|n| _ = streams.follow(n << 30, 4096));
        assert_eq!(streams.follow(8192, 4096), 4096);
        assert_eq!(streams.follow(u64::MAX, u64::MAX), u64::MAX, "no overflow");
    }
}
