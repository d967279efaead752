//! Reads of the backend in flight, for clients that want the same bytes: they wait for such a read and make none.
//!
//! Invariants
//! - Between the start of a read that a client joins and the joining, no write to its range was in flight. So the
//!   client gets what its own read would have returned, and no client gets older bytes than another got before.
//! - A read that others wait for waits for nobody: it has its buffer, and does only I/O.
//! - A read that fails, or panics, returns nothing to the clients that joined it; each of them reads for itself.
//! - Memory: a joined read's bytes are copied once, up to [`BUFFER_BYTES`](crate::BUFFER_BYTES) for each read in
//!   flight.
//!
//! Leaves to others: the reads and writes themselves (`read.rs`, `write.rs`), which announce their ranges here.

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
    /// The reads that may be joined.
    reads: Vec<Arc<ReadInProgress>>,
    writes: Vec<Range<u64>>,
}

/// One read in flight.
pub(super) struct ReadInProgress {
    range: Range<u64>,
    /// A client waits for it. Set while the table is locked.
    joined: AtomicBool,
    outcome: Mutex<Outcome>,
    ended: Condvar,
}

enum Outcome {
    UnderWay,
    Failed,
    Read(Arc<[u8]>),
}

/// Which client reads a range.
pub(super) enum ReadBy<'a> {
    /// Another client does.
    Join(Arc<ReadInProgress>),
    /// The caller does.
    Own(ReadRight<'a>),
}

/// The right to read; if dropped without [`ReadRight::read`], the read has failed.
pub(super) struct ReadRight<'a> {
    together: &'a Together,
    reading: Arc<ReadInProgress>,
}

/// A write in flight, until it is dropped.
pub(super) struct WriteInProgress<'a> {
    together: &'a Together,
    range: Range<u64>,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Together {
    /// Must be called before a range is read.
    pub(super) fn read_by(&self, range: &Range<u64>) -> ReadBy<'_> {
        let mut table = self.table.lock();
        let brings = |read: &&Arc<ReadInProgress>| {
            read.range.start <= range.start && range.end <= read.range.end
        };
        if let Some(reading) = table.reads.iter().find(brings) {
            reading.joined.store(true, SeqCst);
            return ReadBy::Join(Arc::clone(reading));
        }
        let reading = Arc::new(ReadInProgress {
            range: range.clone(),
            joined: AtomicBool::new(false),
            outcome: Mutex::new(Outcome::UnderWay),
            ended: Condvar::new(),
        });
        if !table.writes.iter().any(|write| overlap(write, range)) {
            table.reads.push(Arc::clone(&reading));
        }
        ReadBy::Own(ReadRight {
            together: self,
            reading,
        })
    }

    /// Must be called before the backend is written.
    pub(super) fn write(&self, range: Range<u64>) -> WriteInProgress<'_> {
        let mut table = self.table.lock();
        table.reads.retain(|read| !overlap(&read.range, &range));
        table.writes.push(range.clone());
        WriteInProgress {
            together: self,
            range,
        }
    }
}

impl ReadInProgress {
    /// Waits for the read and copies `range`, which lies within the read's own; false if it failed.
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

impl ReadRight<'_> {
    /// Passes the bytes of the range on.
    pub(super) fn read(self, bytes: &[u8]) {
        self.end(|| Outcome::Read(bytes.into()));
    }

    /// Ends the read: nobody joins it from now on, and the clients that joined are woken. A second call does nothing.
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

impl Drop for ReadRight<'_> {
    fn drop(&mut self) {
        self.end(|| Outcome::Failed);
    }
}

impl Drop for WriteInProgress<'_> {
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

    fn joins(by: &ReadBy) -> bool {
        matches!(by, ReadBy::Join(_))
    }

    #[test]
    fn a_miss_joins_a_read_in_flight_unless_a_write_came_between() {
        let together = Together::default();
        let own = together.read_by(&(0..8192));
        assert!(!joins(&own));
        assert!(joins(&together.read_by(&(0..8192))));
        assert!(joins(&together.read_by(&(4096..8192))));
        assert!(
            !joins(&together.read_by(&(4096..12288))),
            "more than is read"
        );
        drop(together.write(8192..12288));
        assert!(joins(&together.read_by(&(0..4096))), "another range");
        let writing = together.write(4096..4097);
        assert!(!joins(&together.read_by(&(0..8192))), "being written");
        let during = together.read_by(&(0..8192));
        assert!(!joins(&during));
        assert!(
            !joins(&together.read_by(&(0..8192))),
            "one may see it, one not"
        );
        drop(writing);
        assert!(
            !joins(&together.read_by(&(0..8192))),
            "begun before its end"
        );
        drop((own, during));
        assert!(together.table.lock().reads.is_empty() && together.table.lock().writes.is_empty());
    }

    #[test]
    fn joined_misses_get_their_part_or_the_failure() {
        for fails in [false, true] {
            let together = Together::default();
            let ReadBy::Own(own) = together.read_by(&(100..104)) else {
                panic!("nobody reads yet");
            };
            std::thread::scope(|scope| {
                let waiting =
                    [(100..104, vec![1, 2, 3, 4]), (102..103, vec![3])].map(|(range, expected)| {
                        let ReadBy::Join(reading) = together.read_by(&range) else {
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
                matches!(together.read_by(&(100..104)), ReadBy::Own(_)),
                "it is over"
            );
        }
    }
}
