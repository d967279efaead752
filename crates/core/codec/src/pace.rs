//! How closely ZSTD's default level looks for matches.
//!
//! Blocks that hardly shrink often contain few matches (TPC-C's random strings, packed or hashed columns), and
//! searching for matches at every position is most of the work. So this is measured: the second poor block in a row is
//! compressed both ways. If the sparse search loses almost nothing, the next blocks are searched sparsely, until one
//! shrinks much better than the measured block, or until it is time to measure again. If it loses, nothing is tried for
//! a while.
//!
//! Invariants
//! - A block that shrinks well has been searched closely, whatever came before. So a payload may depend on the blocks
//!   before it, by a few percent of a poor block's size.
//! - If good and poor blocks alternate, each is searched closely, and none twice.
//!
//! Leaves to others: the two searches themselves (`zstd.rs`). Nothing of this kind pays for deflate: ISA-L is as fast
//! on such data as codes made from a sparse search.

/// How a block is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    Close,
    Sparse,
}

/// Blocks that are searched sparsely between two measurements.
const SPARSE_BLOCKS: u16 = 127;
/// Blocks without an attempt after the first failed one; doubled after each further failure.
const REST_BLOCKS: u16 = 16;
const REST_BLOCKS_MAX: u16 = 256;

#[derive(Debug)]
pub(crate) struct Pace {
    state: State,
    /// How long the next rest is, in blocks.
    rest: u16,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// The last block was `poor`, or not.
    Close { poor: bool },
    /// This many more blocks are searched sparsely. The measured block shrank to `share` 1024ths of its length.
    Sparse { left: u16, share: usize },
    /// The sparse search lost too much: this many more poor blocks are searched closely.
    Resting { left: u16 },
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace {
            state: State::Close { poor: false },
            rest: REST_BLOCKS,
        }
    }

    /// Compresses a block of `plain_len` bytes by `attempt`, once or several times; the last attempt counts. `attempt`
    /// returns the compressed length, or `None` if the block does not shrink.
    pub(crate) fn compress(
        &mut self,
        plain_len: usize,
        mut attempt: impl FnMut(Search) -> Option<usize>,
    ) -> Option<usize> {
        let length = |len: Option<usize>| len.unwrap_or(plain_len);
        // The block shrinks by a factor below 1.75.
        let is_poor = |len| length(len) > plain_len / 7 * 4;
        if let State::Sparse { left, share } = self.state {
            let len = attempt(Search::Sparse);
            let alike = length(len) * 1024 >= plain_len * (share - share / 5);
            if is_poor(len) && alike {
                self.state = match left - 1 {
                    0 => State::Close { poor: true },
                    left => State::Sparse { left, share },
                };
                return len;
            }
        }
        let close = attempt(Search::Close);
        self.state = match self.state {
            _ if !is_poor(close) => State::Close { poor: false },
            State::Close { poor: true } => {
                let sparse = attempt(Search::Sparse);
                if length(sparse) <= length(close) + length(close) / 32 {
                    self.rest = REST_BLOCKS;
                    self.state = State::Sparse {
                        left: SPARSE_BLOCKS,
                        share: length(sparse) * 1024 / plain_len,
                    };
                    return sparse;
                }
                let left = self.rest;
                self.rest = (2 * left).min(REST_BLOCKS_MAX);
                self.state = State::Resting { left };
                return attempt(Search::Close);
            }
            State::Resting { left } if left > 1 => State::Resting { left: left - 1 },
            _ => State::Close { poor: true },
        };
        close
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The compressed length of 1000 bytes under each search.
    type Block = (Option<usize>, Option<usize>);
    const GOOD: Block = (Some(300), Some(400));
    const POOR: Block = (Some(700), Some(720));
    const NOISE: Block = (None, None);
    const LOSING: Block = (Some(700), Some(730));

    /// The length of each block, and the number of attempts.
    fn run(pace: &mut Pace, blocks: impl IntoIterator<Item = Block>) -> Vec<(Option<usize>, u32)> {
        let one = |(close, sparse)| {
            let (mut tried, mut last) = (0, None);
            let len = pace.compress(1000, |search| {
                tried += 1;
                last = match search {
                    Search::Close => close,
                    Search::Sparse => sparse,
                };
                last
            });
            assert_eq!(len, last, "what was written last");
            (len, tried)
        };
        blocks.into_iter().map(one).collect()
    }

    #[test]
    fn alternating_good_and_poor_blocks_are_each_searched_closely_once() {
        let found = run(&mut Pace::new(), [GOOD, POOR, GOOD, NOISE].repeat(5));
        let expected = [(Some(300), 1), (Some(700), 1), (Some(300), 1), (None, 1)].repeat(5);
        assert_eq!(found, expected);
    }

    #[test]
    fn poor_blocks_are_searched_sparsely_and_measured_now_and_then() {
        for (block, close, sparse) in [(POOR, Some(700), Some(720)), (NOISE, None, None)] {
            let found = run(&mut Pace::new(), [block; 500]);
            assert_eq!(found[..3], [(close, 1), (sparse, 2), (sparse, 1)]);
            let twice: Vec<usize> = (0..500).filter(|i| found[*i].1 == 2).collect();
            assert_eq!(twice, [1, 129, 257, 385]);
            assert!(found[1..].iter().all(|(len, _)| *len == sparse));
        }
    }

    #[test]
    fn a_good_block_is_searched_closely_whatever_came_before() {
        let mut pace = Pace::new();
        for count in [1, 2, 3, 20, 128, 129, 140] {
            run(&mut pace, vec![POOR; count]);
            let found = run(&mut pace, [GOOD, GOOD, POOR, GOOD]);
            assert!(found[0].1 <= 2);
            let lens: Vec<_> = found.iter().map(|(len, _)| len.unwrap()).collect();
            assert_eq!(lens, [300, 300, 700, 300], "after {count}");
            assert_eq!(found[1..].iter().map(|(_, tried)| tried).max(), Some(&1));
        }
    }

    #[test]
    fn poor_blocks_of_another_kind_are_measured_by_themselves() {
        let mut pace = Pace::new();
        run(&mut pace, [NOISE; 4]);
        let found = run(&mut pace, [LOSING; 4]);
        assert_eq!(
            found,
            [
                (Some(700), 2),
                (Some(700), 3),
                (Some(700), 1),
                (Some(700), 1)
            ]
        );
    }

    #[test]
    fn a_search_that_loses_is_tried_more_and_more_seldom() {
        let found = run(&mut Pace::new(), [LOSING; 1200]);
        assert!(found.iter().all(|(len, _)| *len == Some(700)));
        let tried: Vec<usize> = (0..1200).filter(|i| found[*i].1 == 3).collect();
        assert_eq!(tried, [1, 18, 51, 116, 245, 502, 759, 1016]);
    }
}
