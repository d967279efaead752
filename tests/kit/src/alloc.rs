//! Counts allocations, so that tests can bound what hostile lengths cost, and what a step costs that is repeated often.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator, with a record of the largest single request and the peak of all live bytes.
pub struct Counting;

static LARGEST: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

fn taken(len: usize) {
    // A thread that ends may no longer have a counter.
    let _counted = CALLS.try_with(|calls| calls.set(calls.get() + 1));
    LARGEST.fetch_max(len, Relaxed);
    PEAK.fetch_max(LIVE.fetch_add(len, Relaxed) + len, Relaxed);
}

// SAFETY: `GlobalAlloc` demands blocks that fit their layouts: every call is passed on to the system's allocator
// unchanged; counting touches no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller owes the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller owes the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller owes the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size(), Relaxed);
        taken(new_size);
        // SAFETY: the caller owes the contract of `realloc`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

/// Requests of this thread since it began: other tests run next to it.
pub fn calls() -> usize {
    CALLS.get()
}

/// Resets the counters of bytes.
pub fn reset() {
    LARGEST.store(0, Relaxed);
    PEAK.store(LIVE.load(Relaxed), Relaxed);
}

/// Bytes of the largest single request since [`reset`].
pub fn largest() -> usize {
    LARGEST.load(Relaxed)
}

/// Most live bytes at any moment since [`reset`], including earlier allocations.
pub fn peak() -> usize {
    PEAK.load(Relaxed)
}

pub fn live() -> usize {
    LIVE.load(Relaxed)
}
