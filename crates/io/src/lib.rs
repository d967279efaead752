//! Bytes that must survive a crash: the floor every other room stands on.
//!
//! The only room that opens files, syncs, renames, reads a clock or allocates aligned buffers
//! (SQLite's library and dlopen excepted). Every real part has a simulated twin, so that the same
//! shipped code runs against a disk that tears, loses, shortens or refuses writes.
//!
//! Doors: [`Storage`], [`Dir`] and [`File`] for bytes on disk, [`Clock`] for time, [`Pool`] for
//! buffers, [`standard`] for pipes, [`crc32c`] for checksums, [`Throttle`] and [`Gate`] for ceilings on bytes and CPU,
//! [`side_by_side`] for threads that may not be had, [`facts`] for what the machine is and does.

mod checksum;
mod clock;
mod copy;
pub mod facts;
mod gate;
mod host;
mod names;
mod pool;
mod side;
mod sim;
pub mod standard;
mod storage;
mod throttle;

pub use checksum::{crc32c, crc32c_append, crc32c_join, is_zero};
pub use clock::{Clock, HostClock, SimClock};
pub use copy::copy_nontemporal;
pub use gate::{Gate, Pass};
pub use host::{Host, drop_from_cache};
pub use pool::{ALIGN_BYTES, Buffer, HUGE_BYTES, Pool};
pub use side::side_by_side;
pub use sim::{Fault, Op, SimDisk};
pub use storage::{Attributes, Dir, File, FileKind, OpenHow, Stat, Storage, Via};
pub use throttle::Throttle;
