//! Runs of bytes: the parts of files that one set provides.
//!
//! Scattered changed pages cause many runs: a tenth of a database, spread evenly, takes about 200 KB per GB of
//! database.
//!
//! Invariants, once `seal` was called
//! - Runs are sorted by row and offset, 16 bytes each; adjacent runs are joined while the length fits.
//! - Runs of a row do not overlap, or `seal` named the row.
//!
//! Leaves to others: rows, that is which file a run belongs to, and what an overlap means (`merge.rs`).

use std::ops::Range;

/// A run of a file's bytes; the row identifies the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    row: u32,
    start: u64,
    len: u32,
}

impl Span {
    fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }
}

/// The runs of one set. Call `put` for all of them, then [`seal`](Spans::seal), then query.
#[derive(Debug, Default)]
pub struct Spans(Vec<Span>);

impl Spans {
    /// `start + len` must be below 2^63, as everywhere in a file.
    pub fn put(&mut self, row: u32, start: u64, len: u32) {
        let span = Span { row, start, len };
        match self.0.last_mut() {
            Some(last) if joined(last, &span) => last.len += len,
            _ => self.0.push(span),
        }
    }

    /// Sorts the runs. Returns a row with overlapping runs, if there is one.
    pub fn seal(&mut self) -> Option<u32> {
        self.0.sort_unstable();
        let mut overlap = None;
        self.0.dedup_by(|next, last| {
            if last.row == next.row && last.end() > next.start {
                overlap = Some(last.row);
            }
            let joins = joined(last, next);
            if joins {
                last.len += next.len;
            }
            joins
        });
        self.0.shrink_to_fit();
        overlap
    }

    pub fn len_bytes(&self) -> u64 {
        self.0.iter().map(|span| u64::from(span.len)).sum()
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<Span>()) as u64
    }

    /// The parts of a row's runs inside `range`, in order.
    pub fn within(&self, row: u32, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self
            .0
            .partition_point(|span| (span.row, span.end()) <= (row, range.start));
        self.0[first..]
            .iter()
            .take_while(move |span| span.row == row && span.start < range.end)
            .map(move |span| span.start.max(range.start)..span.end().min(range.end))
    }
}

/// Whether `next` begins where `last` ends and both fit in one run.
fn joined(last: &Span, next: &Span) -> bool {
    last.row == next.row && last.end() == next.start && last.len.checked_add(next.len).is_some()
}

/// Calls `each` with the parts of `range` that none of `sets` has, in order.
pub fn without(sets: &[Spans], row: u32, range: Range<u64>, each: &mut dyn FnMut(Range<u64>)) {
    let Some((first, rest)) = sets.split_first() else {
        if !range.is_empty() {
            each(range);
        }
        return;
    };
    let mut at = range.start;
    for covered in first.within(row, range.clone()) {
        if covered.start > at {
            without(rest, row, at..covered.start, each);
        }
        at = at.max(covered.end);
    }
    if at < range.end {
        without(rest, row, at..range.end, each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small pseudo-random number.
    fn next(state: &mut u64, below: u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (*state >> 33) % below
    }

    #[test]
    fn ranges_inside_and_outside_match_a_check_byte_by_byte() {
        let mut random = 7;
        for round in 0..300 {
            let mut sets = Vec::new();
            let mut bytes = Vec::new();
            for _ in 0..1 + round % 3 {
                let mut runs = vec![];
                let mut taken = vec![[false; 200]; 3];
                for _ in 0..next(&mut random, 12) {
                    let row = next(&mut random, 3) as u32;
                    let start = next(&mut random, 180);
                    let len = 1 + next(&mut random, 20);
                    let place = &mut taken[row as usize][start as usize..(start + len) as usize];
                    if place.iter().all(|taken| !taken) {
                        place.fill(true);
                        runs.push((row, start, len as u32));
                    }
                }
                let mut spans = Spans::default();
                runs.iter()
                    .for_each(|(row, start, len)| spans.put(*row, *start, *len));
                assert_eq!(spans.seal(), None);
                sets.push(spans);
                bytes.push(taken);
            }
            for row in 0..3 {
                let from = next(&mut random, 100);
                let range = from..from + next(&mut random, 100);
                let mut found = vec![];
                for part in sets[0].within(row, range.clone()) {
                    found.extend(part);
                }
                let expected: Vec<_> = range
                    .clone()
                    .filter(|at| bytes[0][row as usize][*at as usize])
                    .collect();
                assert_eq!(found, expected);
                let mut found = vec![];
                without(&sets, row, range.clone(), &mut |part| found.extend(part));
                let free = |at: &u64| bytes.iter().all(|set| !set[row as usize][*at as usize]);
                assert_eq!(found, range.filter(free).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn runs_that_touch_are_one_and_runs_that_overlap_are_told() {
        let mut spans = Spans::default();
        for start in [16, 0, 8, 24] {
            spans.put(1, start, 8);
        }
        assert_eq!(spans.seal(), None);
        assert_eq!(spans.0.len(), 1);
        // A run of another file, and one that is too long for a single run.
        spans.put(2, 0, u32::MAX);
        spans.put(2, u32::MAX.into(), 8);
        assert_eq!(spans.seal(), None);
        assert_eq!(spans.0.len(), 3);
        spans.put(2, 7, 8);
        assert_eq!(spans.seal(), Some(2));
    }
}
