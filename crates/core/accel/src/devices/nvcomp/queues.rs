//! One GPU's queues, and the parts that all batches share: libraries, kernels, scratch memory, and the times measured.
//!
//! A batch goes through three queues of the device:
//!
//! ```text
//!  input     copy of the plain chunks to the device
//!  compute   checksums, compression, copy of lengths and statuses to the host
//!  output    gather into one dense run, copy of that run to the host
//! ```
//!
//! All batches share the queues for input and output, one for each direction of the bus. Each has a compute queue of its
//! own: one chunk takes about as long as a thousand, so a GPU that compresses one batch after another is mostly idle
//! (measured on an H100: 64 MiB at 5.1 GB/s, 256 MiB at 12.7 GB/s). Between compute and output the host reads lengths and
//! statuses, since it must know how much to copy.
//!
//! Invariants
//! - A batch's pieces are together in each shared queue: whoever queues work there holds the lock `order`.
//!
//! Leaves to others: the memory and the steps of one batch (`batch_memory.rs`), how many batches are in flight
//! (`device.rs`), and the libraries' functions (`driver.rs`, `library.rs`).

use std::sync::Arc;

use parking_lot::Mutex;

use super::driver::{Context, CudaError, Kernel, Stream};
use super::library::{CrcKernel, Library, NvcompStatus};

/// Plain bytes of every chunk that goes to the device: the most that nvCOMP takes.
pub(super) const CHUNK: usize = 65_536;

/// The gather kernel moves 16 bytes at a time, so every offset in the dense run is a multiple of 16.
pub(super) const GATHER_UNIT: usize = 16;

/// Why a whole batch failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    Cuda(CudaError),
    Nvcomp(NvcompStatus),
    /// As many batches as have memory are in flight.
    Busy,
}

impl Trouble {
    /// A smaller batch may succeed.
    pub fn is_size(&self) -> bool {
        match self {
            Trouble::Cuda(e) => e.out_of_memory(),
            Trouble::Nvcomp(e) => e.batch_too_large(),
            Trouble::Busy => false,
        }
    }
}

impl From<CudaError> for Trouble {
    fn from(e: CudaError) -> Trouble {
        Trouble::Cuda(e)
    }
}

impl From<NvcompStatus> for Trouble {
    fn from(e: NvcompStatus) -> Trouble {
        Trouble::Nvcomp(e)
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Cuda(e) => e.fmt(f),
            Trouble::Nvcomp(e) => e.fmt(f),
            Trouble::Busy => f.write_str("more calls at a time than batches in flight"),
        }
    }
}

/// A refusal by nvCOMP's answers about sizes.
pub(super) fn refused(status: i32) -> Trouble {
    Trouble::Nvcomp(NvcompStatus {
        call: "a query of sizes",
        status,
    })
}

/// The device's time for finished batches, by its own clock, and the bytes moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timings {
    pub batches: u64,
    /// Plain bytes of the chunks.
    pub plain_bytes: u64,
    /// Bytes copied back.
    pub dense_bytes: u64,
    /// Copies to the device.
    pub input_ns: u64,
    /// Checksums and compression. Batches that were compressed at the same time count their whole time each.
    pub compute_ns: u64,
    /// Gathering and copies to the host.
    pub output_ns: u64,
}

/// The queues that all batches share.
pub(super) struct Streams {
    pub input: Stream,
    pub output: Stream,
}

impl Streams {
    /// Waits until both queues are empty.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.input.synchronize()?;
        self.output.synchronize()
    }
}

/// One GPU as all its batches see it.
pub(super) struct Queues {
    pub context: Arc<Context>,
    pub library: Arc<Library>,
    pub streams: Streams,
    /// `None`: chunks are copied back one by one.
    pub gather: Option<Kernel>,
    /// `None`: the device does not check the bytes that reached it.
    pub checksums: Option<CrcKernel>,
    /// The most chunks of one batch.
    pub capacity: usize,
    /// Bytes for each chunk's output.
    pub slot: usize,
    /// The holder of this lock may queue work in the shared queues.
    pub order: Mutex<()>,
    pub timings: Mutex<Timings>,
}
