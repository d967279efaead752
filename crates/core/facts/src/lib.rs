//! Facts about this machine: platform records, samples for reports, I/O priority.
//!
//! All values are read from `/proc` and `/sys` at the moment of the call, users' names from the passwd database. A value that a system may lack (a sensor, a
//! block device behind a file system) is `None`; an error means that the system's files cannot be read at all.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![expect(
    clippy::disallowed_methods,
    reason = "/proc and /sys, where nobody locks"
)]

mod child;
mod disk;
mod drives;
mod hardware;
mod heat;
mod limits;
mod machine;
mod others;
mod pci;
mod priority;
mod process;
mod user;

use std::io;

pub use child::{EndedChild, run_to_end};
pub use disk::{DiskStats, Mount, Volume, disk_stats, drive_model, may_write, mount_of, volume_of};
pub use drives::{drives_of, groups_apart};
pub use hardware::Hardware;
pub use heat::{Sensors, Temperatures};
pub use limits::{Descriptors, address_space_left, descriptors, memory_allowed, raise_descriptors};
pub use machine::{
    CpuTimes, core_times, cores, cpu_model, cpu_times, host_name, kernel, memory_bytes, uptime,
};
pub use others::{WorkingDirectory, has_ended, process_mark, process_started, working_directories};
pub use pci::{PciDevice, first_line, has_entries, pci_devices, small_text};
pub use priority::LowIoPriority;
pub use process::{ProcessUsage, children_cpu, process_usage};
pub use user::{login_name, name_of, own_ids, user_name};

/// The error for a line of a system file in an unexpected format.
fn strange(file: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{file} has an unknown format"),
    )
}
