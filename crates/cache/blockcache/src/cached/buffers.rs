//! The memory of requests: small buffers, enough for all that many connections have in flight, and large ones.
//!
//! A request of up to [`SMALL_BYTES`] takes a small buffer, so that depth costs little memory: a backend behind a network
//! needs hundreds of requests in flight.
//!
//! Invariants
//! - All is allocated once. Buffers that nobody has used yet cost no memory.
//! - At least an eighth of each kind is never held by requests in the cache device: while that hangs, the backend serves on.
//!   [`RequestBuffers::fast`] gives a turn to half of them, and [`RequestBuffers::aside`] leaves a quarter. The others wait for
//!   a turn, and go to the backend only once the device has answered nothing for [`STUCK_AFTER`].
//! - The buffers that fills hold are counted separately, and are not missed by requests.
//!
//! Leaves to others: what is done with a buffer (`read.rs`, `write.rs`, `fill.rs`).

use std::io;
use std::time::Duration;

use longshore_io::{Buffer, Pool};
use parking_lot::{Condvar, Mutex};

use crate::geometry::{BUFFER_BYTES, LINE};

/// The longest request for which a small buffer has room, wherever it begins within a line.
const SMALL_BYTES: u64 = 128 << 10;
const SMALL_BUFFER_BYTES: u64 = SMALL_BYTES + 2 * LINE;

/// Connections whose requests all have a small buffer.
const CONNECTIONS: usize = 64;
/// The parts of the buffers of requests of which one is for requests in the cache device at most, and of which one is left to
/// first buffers.
const FAST_PART: usize = 2;
const RESERVE_PART: usize = 4;
/// How long a cache device that answers nothing is waited for.
const STUCK_AFTER: Duration = Duration::from_millis(100);
/// The most small buffers, whatever the settings.
const SMALL_MOST: usize = 2048;
/// Large buffers for each request that one connection may have in flight.
const LARGE_FOR_EACH: usize = 6;

/// Waiting fills for each filler thread; further ones are dropped.
const JOBS_PER_FILLER: usize = 8;

/// The length of the queue of fills for this many threads.
pub(super) fn fill_queue(fillers: usize) -> usize {
    JOBS_PER_FILLER * fillers
}

/// The buffers of all requests. See the module.
pub(super) struct RequestBuffers {
    small: Kind,
    large: Kind,
}

/// Buffers of one length.
struct Kind {
    pool: Pool,
    fast: Mutex<FastRequests>,
    /// A request has left the cache device.
    left: Condvar,
    /// How many requests may hold one of these in the cache device.
    fast_most: usize,
    /// Free buffers that no second one for a request is taken from.
    reserve: usize,
}

/// The requests that hold a buffer in the cache device.
#[derive(Default)]
struct FastRequests {
    held: usize,
    /// All that have left it.
    left_count: u64,
    /// None has left it for so long that others no longer wait.
    is_stuck: bool,
}

/// The right of one request to wait for the cache device with a buffer, until dropped.
pub(super) struct FastTurn<'a> {
    kind: &'a Kind,
}

impl Drop for FastTurn<'_> {
    fn drop(&mut self) {
        let mut fast = self.kind.fast.lock();
        fast.held -= 1;
        fast.left_count += 1;
        fast.is_stuck = false;
        drop(fast);
        self.kind.left.notify_one();
    }
}

impl Kind {
    /// `requests`: buffers for requests; as many as the threads that fill can hold come on top.
    fn new(requests: usize, fillers: usize, len_bytes: u64) -> io::Result<Kind> {
        let of_fills = fill_queue(fillers) + fillers;
        Ok(Kind {
            pool: Pool::new(requests + of_fills, len_bytes as usize)?,
            fast: Mutex::default(),
            left: Condvar::new(),
            fast_most: (requests / FAST_PART).max(1),
            reserve: requests / RESERVE_PART + of_fills,
        })
    }
}

impl RequestBuffers {
    /// `clients`: requests of one connection that are served at once. `OutOfMemory` when the system refuses so much address
    /// space.
    pub(super) fn new(clients: usize, fillers: usize) -> io::Result<RequestBuffers> {
        let clients = clients.max(1);
        let small = (CONNECTIONS * clients).min(SMALL_MOST);
        Ok(RequestBuffers {
            small: Kind::new(small, fillers, SMALL_BUFFER_BYTES)?,
            large: Kind::new(LARGE_FOR_EACH * clients, fillers, BUFFER_BYTES)?,
        })
    }

    fn kind(&self, span_bytes: u64) -> &Kind {
        match span_bytes <= SMALL_BUFFER_BYTES {
            true => &self.small,
            false => &self.large,
        }
    }

    /// A buffer for `span_bytes`, at most [`BUFFER_BYTES`]; waits until one is free.
    pub(super) fn take(&self, span_bytes: u64) -> io::Result<Buffer> {
        let taken = self.kind(span_bytes).pool.take();
        taken.ok_or_else(|| io::Error::other("the buffers are closed"))
    }

    /// A second buffer for a request that holds one already, and so may not wait.
    pub(super) fn aside(&self, span_bytes: u64) -> Option<Buffer> {
        let kind = self.kind(span_bytes);
        let is_spare = kind.pool.free() > kind.reserve;
        is_spare.then(|| kind.pool.try_take()).flatten()
    }

    /// The right to wait for the cache device with a buffer for `span_bytes`, once fewer than the most have it; `None` if the
    /// device has answered none of them for [`STUCK_AFTER`].
    pub(super) fn fast(&self, span_bytes: u64) -> Option<FastTurn<'_>> {
        let kind = self.kind(span_bytes);
        let mut fast = kind.fast.lock();
        while fast.held >= kind.fast_most {
            let before = fast.left_count;
            let is_over = fast.is_stuck || kind.left.wait_for(&mut fast, STUCK_AFTER).timed_out();
            if is_over && fast.left_count == before {
                fast.is_stuck = true;
                return None;
            }
        }
        fast.held += 1;
        Some(FastTurn { kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffers() -> RequestBuffers {
        RequestBuffers::new(16, 2).unwrap()
    }

    #[test]
    fn small_requests_of_64_connections_have_buffers_at_once_and_each_has_room() {
        let buffers = buffers();
        let small: Vec<Buffer> = (0..64 * 16).map(|_| buffers.take(LINE).unwrap()).collect();
        let longest = buffers.take(SMALL_BYTES + 2 * LINE).unwrap();
        assert_eq!(longest.len() as u64, SMALL_BUFFER_BYTES);
        let large = buffers.take(SMALL_BYTES + 2 * LINE + 1).unwrap();
        assert_eq!(large.len() as u64, BUFFER_BYTES);
        drop(small);
    }

    #[test]
    fn requests_in_the_cache_device_leave_an_eighth_of_the_buffers_to_the_backend() {
        let buffers = buffers();
        for span_bytes in [LINE, BUFFER_BYTES] {
            let (mut held, mut turns) = (Vec::new(), Vec::new());
            while let Some(turn) = buffers.fast(span_bytes) {
                turns.push(turn);
                held.push(buffers.take(span_bytes).unwrap());
                held.extend(buffers.aside(span_bytes));
            }
            let pool = &buffers.kind(span_bytes).pool;
            let requests = pool.count() - 18;
            assert_eq!(turns.len(), requests / 2);
            assert!(pool.free() >= requests / 8 + 18, "{pool:?}");
            turns.pop();
            assert!(buffers.fast(span_bytes).is_some());
        }
    }

    /// Goal: a device that answers is waited for, however many requests want it.
    #[test]
    fn a_device_that_answers_serves_all() {
        let buffers = buffers();
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..200)
                .map(|_| {
                    scope.spawn(|| {
                        let turn = buffers.fast(BUFFER_BYTES);
                        std::thread::sleep(Duration::from_millis(2));
                        turn.is_some()
                    })
                })
                .collect();
            assert!(all.into_iter().all(|one| one.join().unwrap()));
        });
    }
}
