//! How the GPU is used, by default or as the environment says.
//!
//! Invariants
//! - A batch is whole chunks, and never so small that it cannot keep a GPU busy.
//! - By default all batches together take an eighth of the machine's memory at most.
//!
//! Leaves to others: what the device's own memory allows (`device.rs`).

use std::env;
use std::ffi::OsString;

use longshore_facts as facts;

use super::queues::CHUNK;

/// Smaller batches (8 MiB) cannot keep a GPU busy.
pub(super) const CHUNKS_MIN: usize = 128;

/// How the GPU is used. A backup takes [`Options::from_environment`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The driver's library, or `off`; `None` asks the dynamic linker for `libcuda.so.1`.
    pub cuda: Option<OsString>,
    /// nvCOMP's library, or `off`; `None` searches where pip and packages install it.
    pub nvcomp: Option<OsString>,
    /// The most plain bytes of a batch: 8 MiB or more. The device may have memory for less.
    pub batch_bytes: usize,
    /// Batches in flight, 1 or more. The device compresses all that have arrived, while the CPU fills and frames others.
    pub batches: usize,
    /// nvCOMP's algorithm, 0 to 5, instead of the level's own.
    pub algorithm: Option<i32>,
    /// Compressed chunks come back in one run, rather than one by one.
    pub gather: bool,
    /// The device computes a checksum of the bytes that reached it.
    pub checksums: bool,
}

/// Measured on an H100: with two batches in flight, compression takes 1.7 times as long; with eight, 0.85 times as long
/// and twice the memory.
const BATCHES: usize = 4;
/// The most plain bytes of a batch: on an H100, batches of 256 MiB make backups a quarter faster and take four times the
/// memory; with 16 MiB they lose more than a third.
const BATCH_BYTES: usize = 64 << 20;
/// The machine's memory that a hybrid backup takes for each byte of a batch: pinned, and twice in buffers for input and
/// output.
const MEMORY_FOR_EACH: u64 = 5;

/// The length of a batch for a machine with this much memory: all batches take an eighth of it at most, if that fills
/// the smallest ones.
pub(super) fn batch_bytes_within(memory_bytes: u64) -> usize {
    let share = memory_bytes / 8 / (BATCHES as u64 * MEMORY_FOR_EACH);
    let most = usize::try_from(share).unwrap_or(usize::MAX);
    most.clamp(CHUNKS_MIN * CHUNK, BATCH_BYTES) / CHUNK * CHUNK
}

impl Default for Options {
    fn default() -> Options {
        let memory = facts::memory_bytes().unwrap_or(u64::MAX);
        let memory = facts::memory_allowed().map_or(memory, |allowed| allowed.min(memory));
        Options {
            cuda: None,
            nvcomp: None,
            batch_bytes: batch_bytes_within(memory),
            batches: BATCHES,
            algorithm: None,
            gather: true,
            checksums: true,
        }
    }
}

impl Options {
    /// The defaults with the libraries that `LONGSHORE_CUDA` and `LONGSHORE_NVCOMP` name.
    pub fn from_environment() -> Options {
        Options {
            cuda: env::var_os("LONGSHORE_CUDA"),
            nvcomp: env::var_os("LONGSHORE_NVCOMP"),
            ..Options::default()
        }
    }
}
