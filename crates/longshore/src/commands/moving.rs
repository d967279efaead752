//! How a command moves bytes: its options, and the configuration's defaults for the rest.

use longshore_pipeline::{Limits, Tuning};

use crate::config::Defaults;
use crate::options::TransferOptions;

/// The given options; the configuration's defaults for the rest.
pub fn tuning(moving: &TransferOptions, defaults: &Defaults) -> Tuning {
    let whole = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    Tuning {
        buffer_count: moving
            .buffer_count
            .or(defaults.buffer_count)
            .map(|n| whole(n.into())),
        buffer_bytes: moving
            .max_transfer_size
            .or(defaults.max_transfer_size)
            .map(whole),
    }
}

/// The same for reading. The configured size of sets is ignored, because existing sets have one.
pub fn reading_tuning(moving: &TransferOptions, defaults: &Defaults) -> Tuning {
    Tuning {
        buffer_bytes: moving.max_transfer_size.and_then(|n| n.try_into().ok()),
        ..tuning(moving, defaults)
    }
}

/// Limits of a restore: those that were asked for. The configured ones spare a workload during backups, and nobody wants
/// to wait longer for a database that is gone.
pub fn restore_limits(moving: &TransferOptions) -> Limits {
    limits(moving, &Defaults::default())
}

pub fn limits(moving: &TransferOptions, defaults: &Defaults) -> Limits {
    Limits {
        rate_bytes_per_s: moving.max_rate.or(defaults.max_rate),
        cpu_percent: moving.max_cpu.or(defaults.max_cpu),
        low_io_priority: moving.low_io_priority || defaults.low_io_priority,
    }
}
