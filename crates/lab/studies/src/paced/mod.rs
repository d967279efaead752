//! Emulated devices with a stated rate: files whose bytes pass no sooner than such a device would take them.
//!
//! A study that needs several drives on a machine with one gives each directory a device of its own. Its results
//! are about the program on such devices, not about this machine's: a report of them says that they were emulated.
//!
//! Invariants
//! - The bytes are the file's, and everything that is no byte of a paced file is the real storage's.
//! - A device passes no more than its rate, and a file's sync waits until all bytes of its device are through.
//! - The real file's own time comes on top where it is slower: a device is never faster than the disk below it.
//!
//! Leaves to others: devices with queues and limits of their own (`longshore-policy`), and saying that a report is emulated.

mod pace;
mod storage;

pub use pace::{DevicePace, DeviceRate, PaceAccount};
pub use storage::{EmulatedVolumes, PacedStorage};
