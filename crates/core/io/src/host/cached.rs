//! Asks whether a range of a file is in the page cache.
//!
//! `cachestat` (kernel 6.5) counts pages exactly. If it is missing or refused (the caller must own the file or have it
//! open for writing), one byte is read at each end with a call that may not wait. That is a good guess, since the
//! bytes between the ends were read or written together with them.

use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::ReadWriteFlags;

/// `cachestat` has the same number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CachestatRange {
    offset: u64,
    len: u64,
}

/// `struct cachestat` of Linux, `mm.h`: counts of pages.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether the part of `range` inside the file is all cached. True for an empty range.
pub(super) fn is_cached(fd: BorrowedFd<'_>, range: Range<u64>) -> bool {
    let Ok(stat) = rustix::fs::fstat(fd) else {
        return false;
    };
    let end = range.end.min(u64::try_from(stat.st_size).unwrap_or(0));
    if range.start >= end {
        return true;
    }
    match cached_pages(fd, range.start..end) {
        Ok(pages) => {
            let page = rustix::param::page_size() as u64;
            pages >= end.div_ceil(page) - range.start / page
        }
        Err(_) => byte_is_cached(fd, range.start) && byte_is_cached(fd, end - 1),
    }
}

fn cached_pages(fd: BorrowedFd<'_>, range: Range<u64>) -> io::Result<u64> {
    let range = CachestatRange {
        offset: range.start,
        len: range.end - range.start,
    };
    let mut found = Cachestat::default();
    // SAFETY: the call demands two structures of its own layout: both have it and outlive the call, which writes
    // `found` only.
    let failed = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_raw_fd(),
            &raw const range,
            &raw mut found,
            0u32,
        )
    } != 0;
    if failed {
        Err(io::Error::last_os_error())
    } else {
        Ok(found.cached)
    }
}

fn byte_is_cached(fd: BorrowedFd<'_>, offset: u64) -> bool {
    let mut byte = [0];
    let bufs = &mut [IoSliceMut::new(&mut byte)];
    rustix::io::preadv2(fd.as_fd(), bufs, offset, ReadWriteFlags::NOWAIT) == Ok(1)
}
