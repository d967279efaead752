//! The memory for data in transit: a fixed number of equal buffers, allocated once.
//!
//! The pool bounds the memory of a run: users of its buffers cannot make the process grow. Pages that were never
//! touched use no memory. The buffer returned last is handed out first, so a run that needs only a few keeps using
//! buffers that are in the CPU caches.
//!
//! Invariants
//! - The address and the length of every buffer are multiples of [`ALIGN_BYTES`], as direct transfers require.
//! - A buffer has exactly one owner and goes back exactly once, when it is dropped.
//! - The memory lives until the pool and all its buffers are gone: a buffer held by a device that hangs stays valid.
//!
//! Leaves to others: the number and the size of the buffers (the callers).
//!
//! A buffer is zero when it is first taken; later it holds whatever its last owner left.

use std::collections::TryReserveError;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Alignment of every buffer, in bytes.
pub const ALIGN_BYTES: usize = 4096;

/// A pool of at least this size uses large pages where the system has them; its size is then a multiple of this.
///
/// With small pages, a transfer of 1 MiB is 256 pieces for the device. Measured in a virtual machine: writing takes
/// 0.12 CPU seconds per GB instead of 0.04 with large pages, at three fifths of the throughput.
pub const HUGE_BYTES: usize = 2 << 20;

/// A fixed number of equal buffers. Clones are the same pool.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    memory: Mapping,
    buffer_len: usize,
    count: usize,
    state: Mutex<State>,
    returned: Condvar,
}

struct State {
    /// Indices of the free buffers; the one returned last is at the end.
    free: Vec<usize>,
    closed: bool,
}

impl Pool {
    /// `count` buffers of `len_bytes` each, rounded up to a multiple of [`ALIGN_BYTES`].
    ///
    /// `OutOfMemory` when the system refuses so much; `InvalidInput` when either is 0.
    pub fn new(count: usize, len_bytes: usize) -> io::Result<Self> {
        if count == 0 || len_bytes == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a pool needs buffers",
            ));
        }
        let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
        let buffer_len = len_bytes
            .checked_next_multiple_of(ALIGN_BYTES)
            .ok_or_else(too_much)?;
        let memory = Mapping::new(buffer_len.checked_mul(count).ok_or_else(too_much)?)?;
        let mut free = Vec::new();
        free.try_reserve_exact(count)
            .map_err(|_: TryReserveError| too_much())?;
        free.extend((0..count).rev());
        let state = Mutex::new(State {
            free,
            closed: false,
        });
        let shared = Shared {
            memory,
            buffer_len,
            count,
            state,
            returned: Condvar::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Takes a free buffer; waits until there is one. `None` once the pool is closed.
    pub fn take(&self) -> Option<Buffer> {
        let mut state = self.shared.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(number) = state.free.pop() {
                return Some(self.buffer(number));
            }
            self.shared.returned.wait(&mut state);
        }
    }

    /// Takes a free buffer if there is one now and the pool is open. Never waits.
    pub fn try_take(&self) -> Option<Buffer> {
        let mut state = self.shared.state.lock();
        if state.closed {
            return None;
        }
        state.free.pop().map(|number| self.buffer(number))
    }

    /// Ends all present and future waits with `None`, to abort a run. Buffers that were taken stay with their owners.
    pub fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.returned.notify_all();
    }

    /// The number of free buffers.
    pub fn free(&self) -> usize {
        self.shared.state.lock().free.len()
    }

    /// The number of buffers.
    pub fn count(&self) -> usize {
        self.shared.count
    }

    /// Bytes in one buffer: a multiple of [`ALIGN_BYTES`].
    pub fn buffer_len(&self) -> usize {
        self.shared.buffer_len
    }

    /// The most memory the pool can use: all buffers, rounded up to large pages.
    pub fn len_bytes(&self) -> usize {
        self.shared.memory.len
    }

    fn buffer(&self, number: usize) -> Buffer {
        // SAFETY: `add` demands that the result stays in one allocation: only numbers below `count` are handed out, and the
        // mapping has room for `count` buffers.
        let start = unsafe {
            self.shared
                .memory
                .start
                .add(number * self.shared.buffer_len)
        };
        Buffer {
            start,
            number,
            shared: Arc::clone(&self.shared),
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, len) = (self.shared.count, self.shared.buffer_len);
        write!(
            f,
            "Pool({} of {count} buffers of {len} bytes free)",
            self.free()
        )
    }
}

/// One buffer of a [`Pool`], returned when dropped.
pub struct Buffer {
    start: NonNull<u8>,
    number: usize,
    shared: Arc<Shared>,
}

// SAFETY: `Send` demands that another thread may own the bytes: a buffer is their only owner, like a `Box<[u8]>`; the
// shared part is guarded by a mutex or never changes.
unsafe impl Send for Buffer {}
// SAFETY: `Sync` demands that uses by several threads do not race: a shared reference allows only reading the bytes,
// which nobody else can write: the buffer owns them alone. The shared part is guarded by a mutex or never changes.
unsafe impl Sync for Buffer {}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `from_raw_parts` demands bytes that are initialised, live and not written: they lie in the mapping,
        // which `shared` keeps alive, were zeroed by the system and belong to this buffer alone, for its number is not
        // in the free list.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.shared.buffer_len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `from_raw_parts_mut` demands bytes that are initialised, live and nobody else's: they lie in the
        // mapping, which `shared` keeps alive, were zeroed by the system and belong to this buffer alone. The exclusive
        // reference to the buffer makes this the only slice.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.shared.buffer_len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.shared.state.lock().free.push(self.number);
        self.shared.returned.notify_one();
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Buffer({} of {} bytes)",
            self.number, self.shared.buffer_len
        )
    }
}

/// Anonymous private memory, zero until written.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: `Send` demands that another thread may own the value: a mapping is an address and a length; threads share the
// bytes only through `Buffer`.
unsafe impl Send for Mapping {}
// SAFETY: `Sync` demands that uses by several threads do not race: `&Mapping` gives the address and the length, which
// never change, and no access to the bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `len` bytes. From [`HUGE_BYTES`] on, start and end are aligned to large pages, so that large
    /// pages can hold all of it.
    fn new(len: usize) -> io::Result<Self> {
        let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
        let (len, spare) = match len {
            0..HUGE_BYTES => (len, 0),
            _ => (
                len.checked_next_multiple_of(HUGE_BYTES)
                    .ok_or_else(too_much)?,
                HUGE_BYTES,
            ),
        };
        let mapped = len.checked_add(spare).ok_or_else(too_much)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: `mmap_anonymous` demands an address range that is free: the system chooses it, so no existing memory
        // is affected.
        let first = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), mapped, protection, MapFlags::PRIVATE)
        }?
        .cast::<u8>();
        let before = match spare {
            0 => 0,
            _ => first.align_offset(HUGE_BYTES).min(spare),
        };
        // SAFETY: `munmap` demands ranges that nobody uses: all lie in the mapping just made, and nothing else refers
        // to its ends. The remaining part begins at `start` and is `len` bytes long.
        let start = unsafe {
            let start = first.add(before);
            for (end, len) in [(first, before), (start.add(len), spare - before)] {
                if len > 0 {
                    rustix::mm::munmap(end.cast(), len)?;
                }
            }
            // Large pages fault, and are pinned for transfers, 512 small pages at a time. A failure is harmless.
            let _ = rustix::mm::madvise(start.cast(), len, Advice::LinuxHugepage);
            start
        };
        let start = NonNull::new(start).ok_or_else(too_much)?;
        Ok(Self { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `munmap` demands a range that is no longer used: this is the whole mapping made in `new`, and no
        // slice of it is left: buffers keep the pool, and with it the mapping, alive.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn buffers_are_aligned_equal_apart_and_zero_at_first() {
        let pool = Pool::new(3, 5000).unwrap();
        assert_eq!(
            (pool.count(), pool.buffer_len(), pool.len_bytes()),
            (3, 8192, 3 * 8192)
        );
        let mut taken: Vec<Buffer> = (0..3).map(|_| pool.try_take().unwrap()).collect();
        assert!(pool.try_take().is_none());
        for (i, buffer) in taken.iter_mut().enumerate() {
            assert_eq!(
                (buffer.len(), buffer.as_ptr() as usize % ALIGN_BYTES),
                (8192, 0)
            );
            assert!(buffer.iter().all(|&b| b == 0));
            buffer.fill(i as u8 + 1);
        }
        for (i, buffer) in taken.iter().enumerate() {
            assert!(buffer.iter().all(|&b| b == i as u8 + 1));
        }
    }

    #[test]
    fn the_buffer_returned_last_is_handed_out_first() {
        let pool = Pool::new(4, 4096).unwrap();
        let (a, b) = (pool.take().unwrap(), pool.take().unwrap());
        let address = a.as_ptr();
        drop(b);
        drop(a);
        assert_eq!(pool.take().unwrap().as_ptr(), address);
    }

    #[test]
    fn a_taker_waits_until_a_buffer_comes_back() {
        let pool = Pool::new(1, 4096).unwrap();
        let mut only = pool.take().unwrap();
        let waiter = thread::spawn({
            let pool = pool.clone();
            move || pool.take().map(|buffer| buffer[0])
        });
        thread::sleep(Duration::from_millis(20));
        only[0] = 7;
        drop(only);
        assert_eq!(waiter.join().unwrap(), Some(7));
        assert_eq!(pool.free(), 1);
    }

    #[test]
    fn closing_wakes_everybody_with_nothing_and_leaves_taken_buffers_valid() {
        let pool = Pool::new(1, 4096).unwrap();
        let mut only = pool.take().unwrap();
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let pool = pool.clone();
                thread::spawn(move || pool.take().is_none())
            })
            .collect();
        thread::sleep(Duration::from_millis(20));
        pool.close();
        assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
        drop(pool);
        only.fill(9);
        assert_eq!(only[4095], 9);
    }

    #[test]
    fn a_closed_pool_gives_nothing_though_buffers_are_free() {
        let pool = Pool::new(1, 4096).unwrap();
        pool.close();
        assert!(pool.take().is_none() && pool.try_take().is_none());
    }

    #[test]
    fn impossible_pools_are_refused_without_a_panic() {
        assert_eq!(
            Pool::new(0, 4096).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(
            Pool::new(1, 0).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        for (count, len) in [(2, usize::MAX / 2), (1, usize::MAX), (1 << 20, 1 << 40)] {
            assert_eq!(
                Pool::new(count, len).unwrap_err().kind(),
                io::ErrorKind::OutOfMemory
            );
        }
    }

    #[test]
    fn large_pools_begin_where_large_pages_do_and_every_byte_of_them_is_there() {
        for (count, len) in [(1, HUGE_BYTES), (3, 1 << 20), (5, (1 << 20) + ALIGN_BYTES)] {
            let pool = Pool::new(count, len).unwrap();
            let mut taken: Vec<Buffer> = (0..count).map(|_| pool.take().unwrap()).collect();
            assert_eq!(
                taken[0].as_ptr() as usize % HUGE_BYTES,
                0,
                "{count} of {len}"
            );
            assert!(pool.len_bytes().is_multiple_of(HUGE_BYTES) && pool.len_bytes() >= count * len);
            for buffer in &mut taken {
                assert!(buffer.iter().all(|byte| *byte == 0));
                buffer.fill(1);
            }
        }
    }

    #[test]
    fn untouched_buffers_cost_no_memory() {
        // Other tests of this process use memory at the same time, but far less.
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * ALIGN_BYTES
        };
        let before = resident();
        let pool = Pool::new(1024, 1 << 20).unwrap();
        let buffer = pool.take().unwrap();
        assert!(resident() < before + (512 << 20), "{buffer:?}");
    }
}
