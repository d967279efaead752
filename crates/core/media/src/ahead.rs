//! Reads a stripe ahead of its consumer, on separate threads.
//!
//! With one read at a time, a device is idle between two reads, and its queue is filled by other programs if they write
//! to it. Bytes in the page cache are not read ahead: that would only move them between cores.
//!
//! Invariants
//! - Buffers are allocated at the start, one for each lane, and a lane has at most one read in flight.
//! - Results are delivered in the order of the offsets; an error is delivered when its offset is reached.
//! - A request is served even if no lane has read it, or none could start: then the caller's thread reads.
//!
//! Leaves to others: the number of lanes and the buffers' sizes (the callers), and parsing what was read (`window.rs`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use longshore_io::Buffer;

use crate::Error;
use crate::device::FamilyRead;

type Answer = (Buffer, Result<usize, Error>);

/// A thread with at most one read in flight.
#[derive(Debug)]
struct Lane {
    /// `None` only while the lane ends.
    orders: Option<Sender<(u64, Buffer)>>,
    answers: Receiver<Answer>,
    /// Present while no read is in flight.
    spare: Option<Buffer>,
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    fn start(read: Arc<dyn FamilyRead>, spare: Buffer) -> std::io::Result<Lane> {
        let (orders, ordered) = channel::<(u64, Buffer)>();
        let (answer, answers) = channel();
        let work = move || {
            for (offset, mut buffer) in ordered {
                let result = read.read_at(&mut buffer, offset);
                if answer.send((buffer, result)).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("read-ahead".into())
            .spawn(work)?;
        Ok(Lane {
            orders: Some(orders),
            answers,
            spare: Some(spare),
            thread: Some(thread),
        })
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // The thread makes at most one more read, and its result no longer matters.
            let _ = thread.join();
        }
    }
}

/// Reads equal pieces of one stripe before they are requested.
#[derive(Debug)]
pub struct ReadAhead {
    read: Arc<dyn FamilyRead>,
    lanes: Vec<Lane>,
    /// Reads in flight, by lane and offset, in the order of the offsets.
    ordered: VecDeque<(usize, u64)>,
    /// The stripe's length: no read starts here or later.
    end: u64,
}

impl ReadAhead {
    /// Starts one lane for each of `buffers`, or as many as the system has threads for. Pieces that no lane has read
    /// are read when requested. `end` is the stripe's length.
    pub fn start(read: &Arc<dyn FamilyRead>, buffers: Vec<Buffer>, end: u64) -> ReadAhead {
        let lane = |spare| Lane::start(read.clone(), spare).ok();
        ReadAhead {
            read: read.clone(),
            lanes: buffers.into_iter().map_while(lane).collect(),
            ordered: VecDeque::new(),
            end,
        }
    }

    /// Whether any read has been started whose result was not taken yet.
    pub fn is_under_way(&self) -> bool {
        !self.ordered.is_empty()
    }

    /// Reads the bytes at `offset` into `buffer`, which may be exchanged for another buffer, and starts reads of the
    /// next pieces.
    pub fn read_at(&mut self, buffer: &mut Buffer, offset: u64) -> Result<usize, Error> {
        self.order(offset, buffer.len() as u64);
        while let Some((lane, at)) = self.ordered.pop_front() {
            let Ok((mut filled, result)) = self.lanes[lane].answers.recv() else {
                // The lane's thread is gone; only a panic ends it.
                break;
            };
            if at == offset {
                std::mem::swap(buffer, &mut filled);
            }
            self.lanes[lane].spare = Some(filled);
            if at == offset {
                let len = buffer.len() as u64;
                self.order(offset + len, len);
                return result;
            }
        }
        self.read.read_at(buffer, offset)
    }

    /// Keeps the lanes busy with the pieces from `offset` on, up to the first that needs no wait.
    fn order(&mut self, offset: u64, len: u64) {
        let mut at = match self.ordered.back() {
            Some((_, last)) => last + len,
            None => offset,
        };
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if lane.spare.is_none() {
                continue;
            }
            if at >= self.end || self.read.is_at_hand(at..at + len) {
                return;
            }
            let (Some(orders), Some(spare)) = (&lane.orders, lane.spare.take()) else {
                return;
            };
            if orders.send((at, spare)).is_err() {
                return;
            }
            self.ordered.push_back((number, at));
            at += len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const PIECE: usize = 4096;
    const LEN: usize = 40 * PIECE + 77;

    /// A stripe of pseudo-random bytes that records the most reads it saw at once.
    #[derive(Debug)]
    struct Stripe {
        bytes: Vec<u8>,
        cached: Range<u64>,
        bad_from: u64,
        now: AtomicUsize,
        most: AtomicUsize,
        reads: AtomicUsize,
    }

    impl Stripe {
        fn new(cached: Range<u64>, bad_from: u64) -> Arc<Stripe> {
            let byte = |i: usize| ((i * 31) ^ ((i >> 8) * 7)) as u8;
            Arc::new(Stripe {
                bytes: (0..LEN).map(byte).collect(),
                cached,
                bad_from,
                now: AtomicUsize::new(0),
                most: AtomicUsize::new(0),
                reads: AtomicUsize::new(0),
            })
        }
    }

    impl FamilyRead for Stripe {
        fn len_bytes(&self) -> Result<Option<u64>, Error> {
            Ok(Some(LEN as u64))
        }

        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
            self.reads.fetch_add(1, Ordering::SeqCst);
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(1));
            self.now.fetch_sub(1, Ordering::SeqCst);
            if offset >= self.bad_from {
                return Err(Error::Missing {
                    device: "bad".into(),
                });
            }
            let from = self.bytes.get(offset as usize..).unwrap_or(&[]);
            let n = from.len().min(buf.len());
            buf[..n].copy_from_slice(&from[..n]);
            Ok(n)
        }

        fn is_at_hand(&self, range: Range<u64>) -> bool {
            self.cached.start <= range.start && range.end <= self.cached.end
        }
    }

    fn start(stripe: &Arc<Stripe>, lanes: usize) -> ReadAhead {
        let read: Arc<dyn FamilyRead> = stripe.clone();
        let buffer = |_| crate::device::buffer("s", PIECE).unwrap();
        ReadAhead::start(&read, (0..lanes).map(buffer).collect(), LEN as u64)
    }

    /// All bytes from the start, and the error that ended the reading, if any.
    fn read_all(ahead: &mut ReadAhead) -> (Vec<u8>, Option<Error>) {
        let mut buffer = crate::device::buffer("s", PIECE).unwrap();
        let mut all = Vec::new();
        loop {
            match ahead.read_at(&mut buffer, all.len() as u64) {
                Ok(0) => return (all, None),
                Ok(n) => all.extend_from_slice(&buffer[..n]),
                Err(e) => return (all, Some(e)),
            }
        }
    }

    #[test]
    fn everything_comes_in_order_whatever_is_cached() {
        let pages = |r: Range<usize>| (r.start * PIECE) as u64..(r.end * PIECE) as u64;
        for cached in [0..0, pages(0..50), pages(3..9), pages(39..50)] {
            for lanes in [0, 1, 2, 5] {
                let stripe = Stripe::new(cached.clone(), u64::MAX);
                let (all, error) = read_all(&mut start(&stripe, lanes));
                assert!(error.is_none() && all == stripe.bytes, "{cached:?} {lanes}");
                // The last read finds the end.
                assert_eq!(stripe.reads.load(Ordering::SeqCst), 42, "read twice");
            }
        }
    }

    #[test]
    fn several_reads_are_under_way_and_none_of_what_is_at_hand() {
        let cold = Stripe::new(0..0, u64::MAX);
        read_all(&mut start(&cold, 3));
        assert_eq!(cold.most.load(Ordering::SeqCst), 3);
        let warm = Stripe::new(0..u64::MAX, u64::MAX);
        read_all(&mut start(&warm, 3));
        assert_eq!(warm.most.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn an_error_comes_when_its_place_is_reached_and_not_before() {
        let stripe = Stripe::new(0..0, 7 * PIECE as u64);
        let (all, error) = read_all(&mut start(&stripe, 3));
        assert_eq!(all, stripe.bytes[..7 * PIECE]);
        assert!(matches!(error, Some(Error::Missing { .. })), "{error:?}");
    }

    #[test]
    fn an_out_of_order_offset_can_be_read() {
        let stripe = Stripe::new(0..0, u64::MAX);
        let mut ahead = start(&stripe, 2);
        let mut buffer = crate::device::buffer("s", PIECE).unwrap();
        for page in [0, 1, 20, 3, 4] {
            let at = page * PIECE;
            assert_eq!(ahead.read_at(&mut buffer, at as u64).unwrap(), PIECE);
            assert_eq!(buffer[..], stripe.bytes[at..at + PIECE], "{page}");
        }
    }
}
