//! Bytes that must survive a crash: the lowest room, which all others use.
//!
//! The only room that opens files, syncs, renames, reads a clock or allocates aligned buffers
//! (SQLite's library and dlopen excepted). Disks and clocks have a simulated twin (feature `sim`, for tests alone), so that
//! the same shipped code runs against a disk that tears, loses, shortens or refuses writes.
//!
//! Doors: [`Storage`], [`Dir`] and [`File`] for bytes on disk, [`Claim`] for whoever holds SQLite's locks, [`Clock`] for
//! time, [`Pool`] for buffers, [`standard`] for pipes, [`crc32c`] for checksums, [`SumKey`] for sums of pages, [`Throttle`]
//! and [`Gate`] for ceilings on bytes and CPU, [`side_by_side`] for threads that may not be had, [`child`] and
//! [`Confinement`] for other programs, [`trusted`] for files that are run, [`loaded`] for libraries, [`SmallFile`] for what is read and replaced,
//! [`JournalSocket`] for entries of systemd's journal.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod checksum;
pub mod child;
mod clock;
mod confine;
mod copy;
mod gate;
#[expect(
    clippy::disallowed_methods,
    reason = "here the register of claims is asked"
)]
mod host;
#[expect(
    clippy::disallowed_methods,
    reason = "/proc and /sys, where nobody locks"
)]
mod identity;
mod journal;
pub mod loaded;
mod machine;
mod names;
mod pool;
mod reservation;
mod side;
#[cfg(any(test, feature = "sim"))]
mod sim;
mod small;
pub mod standard;
mod storage;
mod sum;
mod throttle;
mod trust;
mod xattr;

pub use checksum::{crc32c, crc32c_append, crc32c_join, crc32c_zeros, is_zero};
pub use clock::{Clock, HostClock};
pub use confine::Confinement;
pub use copy::copy_nontemporal;
pub use gate::{Gate, Turn};
pub use host::{Claim, ConnectionClaims, Host, Hush, InUse, drop_from_cache};
pub use identity::boot_id;
pub use journal::JournalSocket;
pub use machine::Machine;
pub use pool::{ALIGN_BYTES, Buffer, HUGE_BYTES, Pool};
pub use reservation::{Reservation, SILENT, STALE, is_stale};
pub use side::side_by_side;
#[cfg(any(test, feature = "sim"))]
pub use sim::{Fault, Op, SimClock, SimDisk};
pub use small::SmallFile;
pub use storage::{
    Attributes, BrokenWrite, Dir, DirAttributes, DirChange, DirIdentity, DirRead, DirSync, File,
    FileAttributes, FileKind, FileLock, FileRead, FileWrite, OpenHow, Stat, Storage, Via,
    ZeroedSpace,
};
pub use sum::SumKey;
pub use throttle::Throttle;
pub use trust::{Distrust, trusted};
pub use xattr::{
    ACL_ACCESS, ACL_DEFAULT, CAPABILITY, LABEL, USER, XATTR_HEAD, XATTR_NAME_MAX, XATTRS_BYTES_MAX,
    Xattr, Xattrs,
};
