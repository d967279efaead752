//! Working ahead: the settings for it, and the process that does it.
//!
//! Invariants
//! - A process that does not start only makes later calls slower.
//!
//! Leaves to others: the work (`push.rs`, `get.rs`, and `longshore-wal`).

use std::path::Path;
use std::process::Stdio;

use longshore_io::child;
use longshore_wal::{AheadLimits, is_in_bucket};

use crate::config;
use crate::context::Context;
use crate::options::LookAheadOptions;

/// The workers that serve a store 10 ms away at 190 segments of 1 MiB a second, where four reach 110 and sixteen 220
/// (two cores, 1,000 segments). Each holds a stored segment in memory.
const IN_BUCKETS: usize = 8;

/// The default limit of bytes that are worked on ahead.
pub const QUEUE_MAX: u64 = 1 << 30;

/// The settings for working ahead: the command's own options, then those of the database.
pub struct LookAheadSettings {
    pub ahead: bool,
    pub reach: AheadLimits,
}

impl LookAheadSettings {
    /// `configured`: the bytes that the database's settings allow for this command. `archive`: where the archive is.
    pub fn of(
        options: &LookAheadOptions,
        wal: Option<&config::Wal>,
        configured: Option<u64>,
        archive: &Path,
    ) -> LookAheadSettings {
        // A worker waits for the disk, three times per file, for about as long as it computes; and for a store longer.
        let least = if is_in_bucket(archive) { IN_BUCKETS } else { 1 };
        let twice = || {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            least.max(2 * cores)
        };
        let own = wal
            .and_then(|wal| wal.workers)
            .map(|n| usize::from(n.get()));
        LookAheadSettings {
            ahead: options.ahead.unwrap_or(wal.is_some_and(|wal| wal.ahead)),
            reach: AheadLimits {
                bytes_max: options.queue_max.or(configured).unwrap_or(QUEUE_MAX),
                workers: options
                    .workers
                    .map(|n| n as usize)
                    .or(own)
                    .unwrap_or_else(twice),
            },
        }
    }
}

/// Runs this same command once more in the background, to work ahead. The process is independent: it is not in the
/// server's process group and holds none of its files open. A failure to start it only makes later calls slower.
pub fn start_ahead(context: &Context) {
    start_again(context, "--only-ahead");
}

pub fn start_again(context: &Context, option: &str) {
    use std::os::unix::process::CommandExt;
    let started = child::again().and_then(|mut command| {
        command
            .args(std::env::args_os().skip(1))
            .arg(option)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
    });
    if let Err(e) = started {
        context.output.warn(&format!("cannot work ahead: {e}"));
    }
}
