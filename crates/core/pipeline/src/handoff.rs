//! From workers to stripe writers: finished blocks wait here, in order of sequence.
//!
//! Invariants
//! - With one stripe, blocks leave in sequence without a gap. After a failure, blocks after a gap never leave.
//! - With several, each writer takes the earliest available block when its device is ready, so a slow device gets
//!   fewer.
//!
//! Leaves to others: how many blocks can wait (the buffer pool bounds it), and writing them (`load/write.rs`).

use std::collections::BTreeMap;

use parking_lot::{Condvar, Mutex};

struct State<T> {
    ready: BTreeMap<u64, T>,
    next: u64,
    ended: bool,
}

pub struct Handoff<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    in_sequence: bool,
}

impl<T> Handoff<T> {
    pub fn new(in_sequence: bool) -> Handoff<T> {
        let state = State {
            ready: BTreeMap::new(),
            next: 0,
            ended: false,
        };
        Handoff {
            state: Mutex::new(state),
            changed: Condvar::new(),
            in_sequence,
        }
    }

    pub fn put(&self, sequence: u64, block: T) {
        let mut state = self.state.lock();
        state.ready.insert(sequence, block);
        if !self.in_sequence || sequence == state.next {
            self.changed.notify_one();
        }
    }

    /// The next block for a writer, `None` at the end.
    pub fn take(&self) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            let first = state.ready.first_key_value().map(|(k, _)| *k);
            match first {
                Some(sequence) if !self.in_sequence || sequence == state.next => {
                    state.next = sequence + 1;
                    return state.ready.remove(&sequence);
                }
                _ if state.ended => return None,
                _ => self.changed.wait(&mut state),
            }
        }
    }

    /// The sequence of the next block to leave, with one stripe.
    pub fn next(&self) -> u64 {
        self.state.lock().next
    }

    /// The missing block that later blocks wait for, if any.
    pub fn blocked_at(&self) -> Option<u64> {
        let state = self.state.lock();
        let first = state.ready.first_key_value().map(|(k, _)| *k);
        (self.in_sequence && first.is_some_and(|first| first > state.next)).then_some(state.next)
    }

    /// No more blocks will come. After a failure, blocks after a gap are dropped.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stripe_gets_blocks_in_sequence() {
        let handoff = Handoff::new(true);
        for n in [2u64, 0, 1] {
            handoff.put(n, n);
        }
        handoff.end();
        assert_eq!(
            [
                handoff.take(),
                handoff.take(),
                handoff.take(),
                handoff.take()
            ],
            [Some(0), Some(1), Some(2), None]
        );
    }

    #[test]
    fn several_stripes_do_not_wait_for_a_missing_block() {
        let handoff = Handoff::new(false);
        handoff.put(5, 5);
        assert_eq!(handoff.take(), Some(5));
    }

    #[test]
    fn after_a_failure_the_writer_ends_before_the_gap() {
        let handoff = Handoff::new(true);
        handoff.put(1, 1);
        handoff.end();
        assert_eq!(handoff.take(), None);
    }
}
