//! What this machine is and does: platform records, samples for reports, I/O priority.
//!
//! Everything here is read from `/proc` and `/sys` at the moment of asking. What a system may lack
//! (a sensor, a block device behind a file system) is `None`; an error is a system that cannot be
//! read at all.

mod child;
mod disk;
mod heat;
mod limits;
mod machine;
mod others;
mod pci;
mod priority;
mod process;

use std::io;

pub use child::{Ended, run_to_end};
pub use disk::{DiskStats, Mount, disk_identity, disk_stats, mount_of};
pub use heat::{cpu_temperature_c, drive_temperature_c};
pub use limits::{Descriptors, address_space_left, descriptors, memory_allowed, raise_descriptors};
pub use machine::{
    CpuTimes, boot_id, cores, cpu_model, cpu_times, host_name, kernel, memory_bytes, user_name,
};
pub use others::{WorkingDirectory, process_started, working_directories};
pub use pci::{PciDevice, first_line, has_entries, pci_devices, small_text};
pub use priority::LowIoPriority;
pub use process::{ProcessUsage, process_usage};

/// A line of a system file that does not look as it should.
fn strange(file: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{file} has an unknown form"),
    )
}
