//! From workers to stripe writers: finished blocks wait here, in order of sequence.
//!
//! Invariants
//! - With one stripe, blocks leave in sequence without a gap. After a failure, blocks after a gap never leave.
//! - With several, each writer takes the earliest available block when its device is ready, so a slow device gets
//!   fewer.
//! - Of writers that wait, the one whose stripe is shortest comes first, so that devices of one speed get bytes by turns. A row of
//!   parity ends when one stripe has filled it (`longshore-media`), so the others must have nearly as much then.
//!
//! Leaves to others: how many blocks can wait (the buffer pool bounds it), and writing them (`load/write.rs`).

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::{Condvar, Mutex};

struct State<T> {
    ready: BTreeMap<u64, T>,
    next: u64,
    ended: bool,
    /// The writers that wait, with the bytes of their stripes.
    waiting: BTreeSet<(u64, usize)>,
}

pub struct Handoff<T> {
    state: Mutex<State<T>>,
    /// One for each writer.
    changed: Vec<Condvar>,
    in_sequence: bool,
}

impl<T> State<T> {
    fn first(&self) -> Option<u64> {
        self.ready.first_key_value().map(|(sequence, _)| *sequence)
    }
}

impl<T> Handoff<T> {
    /// For so many writers; a single one gets the blocks in sequence.
    pub fn new(writers: usize) -> Handoff<T> {
        let state = State {
            ready: BTreeMap::new(),
            next: 0,
            ended: false,
            waiting: BTreeSet::new(),
        };
        Handoff {
            state: Mutex::new(state),
            changed: (0..writers).map(|_| Condvar::new()).collect(),
            in_sequence: writers == 1,
        }
    }

    pub fn put(&self, sequence: u64, block: T) {
        let mut state = self.state.lock();
        state.ready.insert(sequence, block);
        if self.in_sequence && sequence != state.next {
            return;
        }
        self.call(state.waiting.first());
    }

    fn call(&self, waiting: Option<&(u64, usize)>) {
        if let Some((_, writer)) = waiting {
            self.changed[*writer].notify_one();
        }
    }

    /// The next block for a writer, by its number, whose stripe has `written` bytes; `None` at the end.
    ///
    /// # Panics
    /// If there are no more than `writer` writers.
    pub fn take(&self, writer: usize, written: u64) -> Option<T> {
        let mut state = self.state.lock();
        state.waiting.insert((written, writer));
        let block = loop {
            let is_its_turn = state.ended || state.waiting.first() == Some(&(written, writer));
            match state.first() {
                Some(sequence) if is_its_turn && (!self.in_sequence || sequence == state.next) => {
                    state.next = sequence + 1;
                    break state.ready.remove(&sequence);
                }
                _ if state.ended => break None,
                _ => self.changed[writer].wait(&mut state),
            }
        };
        state.waiting.remove(&(written, writer));
        // Another one may have waited for this one to come.
        if !state.ready.is_empty() {
            self.call(state.waiting.first());
        }
        block
    }

    /// The sequence of the next block to leave, with one stripe.
    pub fn next(&self) -> u64 {
        self.state.lock().next
    }

    /// The missing block that later blocks wait for, if any.
    pub fn blocked_at(&self) -> Option<u64> {
        let state = self.state.lock();
        let first = state.first();
        (self.in_sequence && first.is_some_and(|first| first > state.next)).then_some(state.next)
    }

    /// No more blocks will come. After a failure, blocks after a gap are dropped.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.changed.iter().for_each(|changed| {
            changed.notify_one();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stripe_gets_blocks_in_sequence() {
        let handoff = Handoff::new(1);
        for n in [2u64, 0, 1] {
            handoff.put(n, n);
        }
        handoff.end();
        assert_eq!(
            [
                handoff.take(0, 0),
                handoff.take(0, 0),
                handoff.take(0, 0),
                handoff.take(0, 0)
            ],
            [Some(0), Some(1), Some(2), None]
        );
    }

    #[test]
    fn several_stripes_do_not_wait_for_a_missing_block() {
        let handoff = Handoff::new(2);
        handoff.put(5, 5);
        assert_eq!(handoff.take(0, 0), Some(5));
    }

    #[test]
    fn after_a_failure_the_writer_ends_before_the_gap() {
        let handoff = Handoff::new(1);
        handoff.put(1, 1);
        handoff.end();
        assert_eq!(handoff.take(0, 0), None);
    }

    /// Goal: of two writers that wait, the one whose stripe is shorter gets the block, whichever came first.
    #[test]
    fn the_shortest_stripe_comes_first() {
        for round in 0..100 {
            let handoff = Handoff::new(2);
            let waiting = |count| {
                while handoff.state.lock().waiting.len() < count {
                    std::thread::yield_now();
                }
            };
            let rows = match round % 2 {
                0 => [(0, 1), (1, 0)],
                _ => [(1, 0), (0, 1)],
            };
            std::thread::scope(|scope| {
                let handoff = &handoff;
                let writers = rows.map(|(writer, written)| {
                    let taken = scope.spawn(move || handoff.take(writer, written));
                    waiting(1 + usize::from(writer == rows[1].0));
                    (writer, taken)
                });
                handoff.put(0, 0);
                handoff.put(1, 1);
                for (writer, taken) in writers {
                    // The shorter one has the earlier block.
                    assert_eq!(taken.join().unwrap(), Some(1 - writer as u64), "{round}");
                }
            });
        }
    }

    /// Goal: a device that takes long holds up nobody.
    #[test]
    fn writers_that_do_not_wait_are_not_waited_for() {
        let handoff = Handoff::new(2);
        for n in 0..100 {
            handoff.put(n, n);
        }
        // The other one is at work with its first block, and far behind.
        assert_eq!(handoff.take(0, 0), Some(0));
        for n in 1..100 {
            assert_eq!(handoff.take(1, n << 20), Some(n));
        }
    }
}
