//! Reads of the backend under way, for clients that want the same bytes: they wait for these and read nothing.
//!
//! Invariants
//! - Between the beginning of a read that somebody joins and the joining no write to its range was under way. So who
//!   joins gets what its own read would have found, and nobody gets what is older than what another one got before.
//! - Who is waited for waits for nobody: it has its buffer, and does nothing but I/O.
//! - A read that fails, or panics, gives nothing to those who joined; each of them reads for itself.
//! - Memory: what somebody waits for is copied once, up to [`BUFFER_BYTES`](super::BUFFER_BYTES) for each read under way.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
pub(super) struct Together {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Those that may be joined.
    reads: Vec<Arc<Reading>>,
    writes: Vec<Range<u64>>,
}

/// One read under way.
pub(super) struct Reading {
    range: Range<u64>,
    /// Somebody waits for it. Set with the table in hand.
    joined: AtomicBool,
    outcome: Mutex<Outcome>,
    ended: Condvar,
}

enum Outcome {
    UnderWay,
    Failed,
    Read(Arc<[u8]>),
}

/// Who reads a range.
pub(super) enum Turn<'a> {
    /// Another one does.
    Join(Arc<Reading>),
    /// Whoever asked.
    Own(Own<'a>),
}

/// The right to read; dropped without [`Own::read`], it has failed.
pub(super) struct Own<'a> {
    together: &'a Together,
    reading: Arc<Reading>,
}

/// A write under way, until it is dropped.
pub(super) struct Writing<'a> {
    together: &'a Together,
    range: Range<u64>,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Together {
    /// Asked before a range is read.
    pub(super) fn turn(&self, range: &Range<u64>) -> Turn<'_> {
        let mut table = self.table.lock();
        let brings =
            |read: &&Arc<Reading>| read.range.start <= range.start && range.end <= read.range.end;
        if let Some(reading) = table.reads.iter().find(brings) {
            reading.joined.store(true, SeqCst);
            return Turn::Join(Arc::clone(reading));
        }
        let reading = Arc::new(Reading {
            range: range.clone(),
            joined: AtomicBool::new(false),
            outcome: Mutex::new(Outcome::UnderWay),
            ended: Condvar::new(),
        });
        if !table.writes.iter().any(|write| overlap(write, range)) {
            table.reads.push(Arc::clone(&reading));
        }
        Turn::Own(Own {
            together: self,
            reading,
        })
    }

    /// Told before the backend is written.
    pub(super) fn write(&self, range: Range<u64>) -> Writing<'_> {
        let mut table = self.table.lock();
        table.reads.retain(|read| !overlap(&read.range, &range));
        table.writes.push(range.clone());
        Writing {
            together: self,
            range,
        }
    }
}

impl Reading {
    /// Waits until it has ended and copies `range` of it, which lies within its own; false if it failed.
    pub(super) fn wait(&self, range: &Range<u64>, out: &mut [u8]) -> bool {
        let mut outcome = self.outcome.lock();
        loop {
            match &*outcome {
                Outcome::UnderWay => self.ended.wait(&mut outcome),
                Outcome::Failed => return false,
                Outcome::Read(bytes) => {
                    let bytes = Arc::clone(bytes);
                    drop(outcome);
                    let from = (range.start - self.range.start) as usize;
                    out.copy_from_slice(&bytes[from..from + out.len()]);
                    return true;
                }
            }
        }
    }
}

impl Own<'_> {
    /// The range was read.
    pub(super) fn read(self, bytes: &[u8]) {
        self.end(|| Outcome::Read(bytes.into()));
    }

    /// Nobody joins any more; those who did are told. The second time nothing is done.
    fn end(&self, outcome: impl FnOnce() -> Outcome) {
        let mut table = self.together.table.lock();
        table.reads.retain(|read| !Arc::ptr_eq(read, &self.reading));
        drop(table);
        if self.reading.joined.swap(false, SeqCst) {
            *self.reading.outcome.lock() = outcome();
            self.reading.ended.notify_all();
        }
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        self.end(|| Outcome::Failed);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut table = self.together.table.lock();
        if let Some(at) = table.writes.iter().position(|write| *write == self.range) {
            table.writes.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joins(turn: &Turn) -> bool {
        matches!(turn, Turn::Join(_))
    }

    #[test]
    fn who_wants_what_is_read_joins_unless_it_was_written_since() {
        let together = Together::default();
        let own = together.turn(&(0..8192));
        assert!(!joins(&own));
        assert!(joins(&together.turn(&(0..8192))));
        assert!(joins(&together.turn(&(4096..8192))));
        assert!(!joins(&together.turn(&(4096..12288))), "more than is read");
        drop(together.write(8192..12288));
        assert!(joins(&together.turn(&(0..4096))), "another range");
        let writing = together.write(4096..4097);
        assert!(!joins(&together.turn(&(0..8192))), "being written");
        let during = together.turn(&(0..8192));
        assert!(!joins(&during));
        assert!(
            !joins(&together.turn(&(0..8192))),
            "one may see it, one not"
        );
        drop(writing);
        assert!(!joins(&together.turn(&(0..8192))), "begun before its end");
        drop((own, during));
        assert!(together.table.lock().reads.is_empty() && together.table.lock().writes.is_empty());
    }

    #[test]
    fn those_who_joined_get_their_part_or_hear_of_the_failure() {
        for fails in [false, true] {
            let together = Together::default();
            let Turn::Own(own) = together.turn(&(100..104)) else {
                panic!("nobody reads yet");
            };
            std::thread::scope(|scope| {
                let waiting =
                    [(100..104, vec![1, 2, 3, 4]), (102..103, vec![3])].map(|(range, expected)| {
                        let Turn::Join(reading) = together.turn(&range) else {
                            panic!("it is being read");
                        };
                        scope.spawn(move || {
                            let mut out = vec![0; expected.len()];
                            let there = reading.wait(&range, &mut out);
                            assert_eq!(there, !fails);
                            assert!(fails || out == expected, "{out:?}");
                        })
                    });
                match fails {
                    false => own.read(&[1, 2, 3, 4]),
                    true => drop(own),
                }
                for one in waiting {
                    one.join().unwrap();
                }
            });
            assert!(
                matches!(together.turn(&(100..104)), Turn::Own(_)),
                "it is over"
            );
        }
    }
}
