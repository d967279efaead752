//! One GPU made ready for batches: streams, kernels, and the memory of every batch that may be in flight.
//!
//! A batch goes through three queues of the device, so that three batches are at work at a time:
//!
//! ```text
//!  input     copy of the plain chunks to the device
//!  compute   checksums, compression, copy of lengths and statuses to the host
//!  output    gather into one dense run, copy of that run to the host
//! ```
//!
//! Between compute and output the host reads lengths and statuses, since it must know how much to copy. The memory of
//! one batch is a [`Lane`]. The scratch memory of compression is shared, since the compute queue runs one batch after
//! another.
//!
//! Invariants
//! - All memory is allocated here, none while batches run; the exception is scratch, which grows when a higher level
//!   is requested.
//! - At most half of the device's free memory is taken.
//! - A lane on which the device may still work is leaked, never freed or used again.
//!
//! Leaves to others: the steps of one batch (`lane.rs`), and the libraries' functions (`driver.rs`, `library.rs`).

use std::ffi::CString;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Options;
use super::driver::{Context, CudaError, DeviceMemory, Kernel, Stream, StreamMark};
use super::lane::{Lane, Made};
use super::library::{CrcKernel, Effort, Library, NvcompStatus};

/// Plain bytes of every chunk that goes to the device: the most that nvCOMP takes.
pub(super) const CHUNK: usize = 65_536;

/// Smaller batches (8 MiB) cannot keep a GPU busy.
pub(super) const CHUNKS_MIN: usize = 128;

/// The gather kernel moves 16 bytes at a time, so every offset in the dense run is a multiple of 16.
pub(super) const GATHER_UNIT: usize = 16;

const GATHER: &str = include_str!("gather.ptx");
const GATHER_NAME: &std::ffi::CStr = c"longshore_gather";

/// nvCOMP's statuses for errors that this file detects itself.
const OUTPUT_TOO_SMALL: i32 = 15;
const WRONG_ALIGNMENT: i32 = 17;

fn refused(status: i32) -> Trouble {
    Trouble::Nvcomp(NvcompStatus {
        call: "a query of sizes",
        status,
    })
}

/// Why a whole batch failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    Cuda(CudaError),
    Nvcomp(NvcompStatus),
    /// All lanes are taken.
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
    /// Checksums and compression.
    pub compute_ns: u64,
    /// Gathering and copies to the host.
    pub output_ns: u64,
}

pub(super) struct Streams {
    pub input: Stream,
    pub compute: Stream,
    pub output: Stream,
}

impl Streams {
    /// Waits until all queues are empty.
    fn synchronize(&self) -> Result<(), CudaError> {
        self.input.synchronize()?;
        self.compute.synchronize()?;
        self.output.synchronize()
    }
}

/// A GPU with everything allocated.
pub(super) struct Device {
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
    /// The holder of this lock may queue work. All batches go through the three queues in the same order.
    pub scratch: Mutex<DeviceMemory>,
    lanes: Mutex<Vec<Lane>>,
    pub timings: Mutex<Timings>,
}

impl Device {
    /// Allocates lanes of at most `chunks_max` chunks. Errors: the device's; a memory error if not even one small lane
    /// fits.
    pub fn new(
        context: Arc<Context>,
        library: Arc<Library>,
        options: &Options,
        chunks_max: usize,
    ) -> Result<Device, Trouble> {
        context.enter()?;
        let sizes = library.sizes(Effort::FAST, CHUNK, chunks_max)?;
        // The driver aligns its allocations to 256 bytes, and offsets inside them are aligned to this unit.
        if sizes
            .alignments
            .iter()
            .any(|a| !GATHER_UNIT.is_multiple_of(*a))
        {
            return Err(refused(WRONG_ALIGNMENT));
        }
        let slot = sizes.output_max.next_multiple_of(GATHER_UNIT);
        let per_lane = Lane::device_bytes(slot);
        let (free, _) = context.memory()?;
        let scratch = sizes.scratch.div_ceil(chunks_max);
        let (mut lanes, mut capacity) =
            plan(free / 2, options.lanes, chunks_max, per_lane, scratch);
        let gather = options.gather.then(|| load_gather(&context)).flatten();
        let checksums = options
            .checksums
            .then(|| library.checksum_kernel(CHUNK, capacity))
            .flatten();
        let streams = Streams {
            input: Stream::new(&context)?,
            compute: Stream::new(&context)?,
            output: Stream::new(&context)?,
        };
        let mut device = Device {
            scratch: Mutex::new(DeviceMemory::new(&context, 0)?),
            context,
            library,
            streams,
            gather,
            checksums,
            capacity,
            slot,
            lanes: Mutex::default(),
            timings: Mutex::default(),
        };
        // Another program may take memory between the query and the allocation.
        loop {
            device.capacity = capacity;
            match device.allocate(lanes) {
                Err(trouble) if trouble.is_size() && capacity / 2 >= CHUNKS_MIN => capacity /= 2,
                Err(trouble) if trouble.is_size() && lanes > 1 => lanes = 1,
                Err(trouble) => return Err(trouble),
                Ok(()) => return Ok(device),
            }
        }
    }

    fn allocate(&mut self, lanes: usize) -> Result<(), Trouble> {
        self.lanes.get_mut().clear();
        *self.scratch.get_mut() = DeviceMemory::new(&self.context, 0)?;
        let sizes = self.library.sizes(Effort::FAST, CHUNK, self.capacity)?;
        let scratch = DeviceMemory::new(&self.context, sizes.scratch)?;
        let made: Result<Vec<Lane>, CudaError> = (0..lanes)
            .map(|_| Lane::new(&self.context, &self.streams.input, self.capacity, self.slot))
            .collect();
        *self.lanes.get_mut() = made?;
        *self.scratch.get_mut() = scratch;
        Ok(())
    }

    /// How many batches may be in flight now.
    pub fn lanes_free(&self) -> usize {
        self.lanes.lock().len()
    }

    /// Compresses at most `capacity` chunks of [`CHUNK`] bytes and calls `done` with the result of each and with the
    /// lane that holds the results. Blocks.
    pub fn compress<R>(
        &self,
        chunks: &[&[u8]],
        effort: Effort,
        done: impl FnOnce(&mut Lane, &[Made]) -> R,
    ) -> Result<R, Trouble> {
        let mut lane = self.lanes.lock().pop().ok_or(Trouble::Busy)?;
        let trouble = match lane.compress(self, chunks, effort) {
            Ok(made) => {
                let result = done(&mut lane, &made);
                self.lanes.lock().push(lane);
                return Ok(result);
            }
            Err(trouble) => trouble,
        };
        // Some work of the lane may already be queued. The lane is returned only if the device is known to be idle.
        match self.streams.synchronize() {
            Ok(()) => self.lanes.lock().push(lane),
            Err(e) => {
                tracing::debug!(%e, "a batch's memory may still be in use by the device");
                std::mem::forget(lane);
            }
        }
        Err(trouble)
    }

    /// Makes sure that scratch memory for `chunks` chunks exists, and returns it while the queues are locked.
    pub fn scratch_for<'a>(
        &self,
        scratch: &'a mut DeviceMemory,
        effort: Effort,
        chunks: usize,
    ) -> Result<&'a DeviceMemory, Trouble> {
        let needed = self.library.sizes(effort, CHUNK, chunks)?;
        if needed.output_max > self.slot {
            return Err(refused(OUTPUT_TOO_SMALL));
        }
        if needed.scratch > scratch.len {
            // Batches in the compute queue still use the old one.
            self.streams.compute.synchronize()?;
            *scratch = DeviceMemory::new(&self.context, 0)?;
            let whole = self.library.sizes(effort, CHUNK, self.capacity)?.scratch;
            *scratch = DeviceMemory::new(&self.context, whole.max(needed.scratch))?;
        }
        Ok(scratch)
    }
}

/// How many lanes of how many chunks fit in `budget` bytes. As many lanes as wanted, unless they would be too small to
/// be useful.
fn plan(
    budget: usize,
    lanes_wanted: usize,
    chunks_max: usize,
    per_chunk: usize,
    scratch_per_chunk: usize,
) -> (usize, usize) {
    let fits = |lanes: usize| budget / (lanes * per_chunk + scratch_per_chunk);
    let lanes = (1..=lanes_wanted.max(1))
        .rev()
        .find(|&lanes| fits(lanes) >= CHUNKS_MIN)
        .unwrap_or(1);
    (lanes, fits(lanes).clamp(CHUNKS_MIN, chunks_max))
}

fn load_gather(context: &Context) -> Option<Kernel> {
    let text = CString::new(GATHER).ok()?;
    match context.kernel(&text, GATHER_NAME) {
        Ok(kernel) => Some(kernel),
        Err(e) => {
            tracing::warn!(%e, "the gather kernel is not used: compressed chunks are copied back one by one");
            None
        }
    }
}

/// An [`StreamMark`] for each point of a batch at which the host waits or the device's clock is read.
pub(super) struct Marks {
    pub input_starts: StreamMark,
    pub input_ends: StreamMark,
    pub compute_starts: StreamMark,
    pub compute_ends: StreamMark,
    pub output_starts: StreamMark,
    pub output_ends: StreamMark,
}

impl Marks {
    pub fn new(context: &Arc<Context>) -> Result<Marks, CudaError> {
        let event = || StreamMark::new(context);
        Ok(Marks {
            input_starts: event()?,
            input_ends: event()?,
            compute_starts: event()?,
            compute_ends: event()?,
            output_starts: event()?,
            output_ends: event()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_divided_among_lanes_and_small_memory_means_fewer_of_them() {
        let mib = 1 << 20;
        // 64 MiB lanes of about 280 KiB a chunk, 360 KiB scratch.
        let plan = |budget_mib: usize| plan(budget_mib * mib, 4, 1024, 280 << 10, 360 << 10);
        assert_eq!(plan(70_000), (4, 1024));
        assert_eq!(plan(1000), (4, 691));
        assert_eq!(plan(180), (3, 153));
        assert_eq!(plan(90), (1, 144));
        // Too little memory: the attempt reports it.
        assert_eq!(plan(10), (1, CHUNKS_MIN));
    }
}
