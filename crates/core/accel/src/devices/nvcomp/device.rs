//! One GPU made ready for batches: its queues, and memory for every batch that may be in flight.
//!
//! Invariants
//! - All memory is allocated here, none while batches run; the exception is a batch's scratch, which grows when a
//!   higher level is requested.
//! - At most half of the device's free memory is taken.
//! - All batch memory that is kept here is idle.
//!
//! Leaves to others: the steps of one batch (`batch_memory.rs`), what batches share (`queues.rs`), and the libraries'
//! functions (`driver.rs`, `library.rs`).

use std::ffi::CString;
use std::sync::Arc;

use parking_lot::Mutex;

use super::batch_memory::{BatchMemory, Made};
use super::driver::{Context, CudaError, Kernel, Stream};
use super::library::{Effort, Library};
use super::options::{CHUNKS_MIN, Options};
use super::queues::{CHUNK, GATHER_UNIT, Queues, Streams, Timings, Trouble, refused};

const GATHER: &str = include_str!("gather.ptx");
const GATHER_NAME: &std::ffi::CStr = c"longshore_gather";

/// nvCOMP's status for memory that is not aligned as it wants.
const WRONG_ALIGNMENT: i32 = 17;

/// A GPU with everything allocated.
pub(super) struct Device {
    pub queues: Queues,
    idle: Mutex<Vec<BatchMemory>>,
}

impl Device {
    /// Allocates memory for batches of at most `chunks_max` chunks. Errors: the device's; a memory error if not even one
    /// small batch fits.
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
        let per_chunk = BatchMemory::device_bytes(slot) + sizes.scratch.div_ceil(chunks_max);
        let (free, _) = context.memory()?;
        let (mut batches, mut capacity) = plan(free / 2, options.batches, chunks_max, per_chunk);
        let gather = options.gather.then(|| load_gather(&context)).flatten();
        let checksums = options
            .checksums
            .then(|| library.checksum_kernel(CHUNK, capacity))
            .flatten();
        let streams = Streams {
            input: Stream::new(&context)?,
            output: Stream::new(&context)?,
        };
        let mut device = Device {
            queues: Queues {
                context,
                library,
                streams,
                gather,
                checksums,
                capacity,
                slot,
                order: Mutex::default(),
                timings: Mutex::new(Timings::default()),
            },
            idle: Mutex::default(),
        };
        // Another program may take memory between the query and the allocation.
        loop {
            device.queues.capacity = capacity;
            match device.allocate(batches) {
                Err(trouble) if trouble.is_size() && capacity / 2 >= CHUNKS_MIN => capacity /= 2,
                Err(trouble) if trouble.is_size() && batches > 1 => batches = 1,
                Err(trouble) => return Err(trouble),
                Ok(()) => return Ok(device),
            }
        }
    }

    fn allocate(&mut self, batches: usize) -> Result<(), Trouble> {
        let queues = &self.queues;
        self.idle.get_mut().clear();
        let sizes = queues.library.sizes(Effort::FAST, CHUNK, queues.capacity)?;
        let memory = |_| BatchMemory::new(queues, sizes.scratch);
        let made: Result<Vec<BatchMemory>, CudaError> = (0..batches).map(memory).collect();
        *self.idle.get_mut() = made?;
        Ok(())
    }

    /// How many batches may be in flight now.
    pub fn batches_free(&self) -> usize {
        self.idle.lock().len()
    }

    /// Compresses at most `capacity` chunks of [`CHUNK`] bytes and calls `done` with the result of each and with the
    /// batch memory that holds the results. Blocks.
    pub fn compress<R>(
        &self,
        chunks: &[&[u8]],
        effort: Effort,
        done: impl FnOnce(&mut BatchMemory, &[Made]) -> R,
    ) -> Result<R, Trouble> {
        let memory = self.idle.lock().pop().ok_or(Trouble::Busy)?;
        let (memory, result) = memory.compress(&self.queues, chunks, effort, done);
        self.idle.lock().extend(memory);
        result
    }
}

/// How many batches of how many chunks fit in `budget` bytes. As many batches as wanted, unless they would be too small
/// to be useful.
fn plan(
    budget: usize,
    batches_wanted: usize,
    chunks_max: usize,
    per_chunk: usize,
) -> (usize, usize) {
    let fits = |batches: usize| budget / (batches * per_chunk);
    let batches = (1..=batches_wanted.max(1))
        .rev()
        .find(|&batches| fits(batches) >= CHUNKS_MIN)
        .unwrap_or(1);
    (batches, fits(batches).clamp(CHUNKS_MIN, chunks_max))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_divided_among_batches_and_small_memory_means_fewer_of_them() {
        let mib = 1 << 20;
        // 64 MiB batches of about 280 KiB a chunk and 360 KiB scratch.
        let plan = |budget_mib: usize| plan(budget_mib * mib, 4, 1024, 640 << 10);
        assert_eq!(plan(70_000), (4, 1024));
        assert_eq!(plan(1000), (4, 400));
        assert_eq!(plan(250), (3, 133));
        assert_eq!(plan(90), (1, 144));
        // Too little memory: the attempt reports it.
        assert_eq!(plan(10), (1, CHUNKS_MIN));
    }
}
