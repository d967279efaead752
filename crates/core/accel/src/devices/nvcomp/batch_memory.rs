//! The memory of one batch in flight, and the steps of the batch on the device.
//!
//! ```text
//!  host     [ chunks, later the dense run ] [ lengths, statuses, checksums | table ]     pinned
//!  device   [ chunks ] [ slots ] [ dense run ] [ addresses | lengths, statuses, checksums | table ] [ scratch ]
//! ```
//!
//! Invariants
//! - The device touches only this memory, never a job's buffers.
//! - Outside [`BatchMemory::compress`] it is idle: no work that touches it is queued or running. Memory on which the device
//!   may still work is leaked, never freed or used again.
//! - Lengths and statuses are filled with nonsense before a batch starts, so that values the library did not write are
//!   noticed.
//! - Nothing is gathered or copied by a length that was not checked against its slot.
//! - Scratch grows when a higher level is requested, while the memory is idle.
//!
//! Leaves to others: the queues that batches share (`queues.rs`), how many batches have memory (`device.rs`), and
//! framing the results (`frame.rs`).

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;

use longshore_codec::deflate::{Deflater, Isal};
use longshore_codec::worth;

use super::driver::{
    Context, CudaError, DeviceMemory, DevicePtr, PinnedMemory, Stream, StreamMark,
};
use super::library::{Batch, Effort, status_name};
use super::queues::{CHUNK, GATHER_UNIT, Queues, Trouble, refused};
use crate::Fault;

/// Threads of a block of the gather kernel.
const GATHER_THREADS: u32 = 256;

/// nvCOMP's status for an output that does not fit.
const OUTPUT_TOO_SMALL: i32 = 15;

/// Fills memory that the library must overwrite: not a valid status, and longer than any slot.
const NONSENSE: u8 = 0xee;

/// The layout of a batch's arrays in a region, for batches of `capacity` chunks.
#[derive(Debug, Clone, Copy)]
struct Layout {
    capacity: usize,
}

/// Bytes of pinned memory for batches of this capacity in chunks.
pub(super) fn host_len(capacity: usize) -> usize {
    capacity * CHUNK + Layout { capacity }.table_end()
}

impl Layout {
    /// Bytes of lengths, statuses and checksums together: what comes back after compression.
    fn answers_len(self) -> usize {
        self.capacity * (8 + 4 + 4)
    }
    fn sizes(self) -> usize {
        0
    }
    fn statuses(self) -> usize {
        self.capacity * 8
    }
    fn checksums(self) -> usize {
        self.capacity * 12
    }
    /// Two numbers of four bytes for each chunk.
    fn table(self) -> usize {
        self.answers_len()
    }
    fn table_end(self) -> usize {
        self.table() + self.capacity * 8
    }
    /// Three addresses or lengths of eight bytes for each chunk, after the table; on the device only.
    fn addresses(self) -> usize {
        self.table_end()
    }
    fn addresses_len(self) -> usize {
        self.capacity * 24
    }
}

/// The result for one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Made {
    /// Deflate data at this range of [`output`](BatchMemory::output), and the CRC-32 of the plain bytes.
    Deflated {
        at: Range<usize>,
        crc32: u32,
    },
    /// Too long to be worth it.
    Incompressible,
    Failed(Fault),
}

/// A [`StreamMark`] for each point of a batch at which the host waits or the device's clock is read.
struct Marks {
    input_starts: StreamMark,
    input_ends: StreamMark,
    compute_starts: StreamMark,
    compute_ends: StreamMark,
    output_starts: StreamMark,
    output_ends: StreamMark,
}

impl Marks {
    fn new(context: &Arc<Context>) -> Result<Marks, CudaError> {
        let mark = || StreamMark::new(context);
        Ok(Marks {
            input_starts: mark()?,
            input_ends: mark()?,
            compute_starts: mark()?,
            compute_ends: mark()?,
            output_starts: mark()?,
            output_ends: mark()?,
        })
    }
}

/// The memory of one batch.
pub(super) struct BatchMemory {
    layout: Layout,
    slot: usize,
    host: PinnedMemory,
    answers: PinnedMemory,
    input: DeviceMemory,
    slots: DeviceMemory,
    dense: DeviceMemory,
    arrays: DeviceMemory,
    scratch: DeviceMemory,
    compute: Stream,
    marks: Marks,
    /// For the chunks that the device does not do: tails, and chunks that failed. With its level.
    software: Option<(i32, Deflater)>,
    /// The software's output.
    pub deflated: Vec<u8>,
}

impl BatchMemory {
    /// Device memory for each chunk of a batch, besides scratch.
    pub fn device_bytes(slot: usize) -> usize {
        let layout = Layout { capacity: 1 };
        2 * CHUNK + slot + layout.addresses() + layout.addresses_len()
    }

    /// Allocates memory for batches of the queues' capacity, with `scratch_len` bytes of scratch.
    pub fn new(queues: &Queues, scratch_len: usize) -> Result<BatchMemory, CudaError> {
        let (context, capacity, slot) = (&queues.context, queues.capacity, queues.slot);
        let layout = Layout { capacity };
        let device = |len| DeviceMemory::new(context, len);
        let mut memory = ManuallyDrop::new(BatchMemory {
            layout,
            slot,
            host: PinnedMemory::new(context, capacity * CHUNK)?,
            answers: PinnedMemory::new(context, layout.table_end())?,
            input: device(capacity * CHUNK)?,
            slots: device(capacity * slot)?,
            dense: device(capacity * CHUNK)?,
            arrays: device(layout.addresses() + layout.addresses_len())?,
            scratch: device(scratch_len)?,
            compute: Stream::new(context)?,
            marks: Marks::new(context)?,
            software: None,
            deflated: vec![0; CHUNK],
        });
        match memory.write_addresses(queues) {
            Ok(()) => Ok(ManuallyDrop::into_inner(memory)),
            Err(e) => {
                drop(memory_if_idle(memory, queues));
                Err(e)
            }
        }
    }

    /// The addresses and plain lengths of the chunks never change: they are copied to the device once.
    fn write_addresses(&mut self, queues: &Queues) -> Result<(), CudaError> {
        let count = self.layout.capacity as u64;
        let (input, slots, slot) = (self.input.start(), self.slots.start(), self.slot as u64);
        let numbers = (0..count)
            .map(|i| input + i * CHUNK as u64)
            .chain((0..count).map(|_| CHUNK as u64))
            .chain((0..count).map(|i| slots + i * slot));
        // SAFETY: `bytes_mut` demands that no work of the device uses the bytes: the memory is new, so no copy of
        // it was queued yet.
        let host = unsafe { self.host.bytes_mut() };
        for (place, number) in host.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let to = self.arrays.start() + self.layout.addresses() as u64;
        let (stream, len) = (&queues.streams.input, self.layout.addresses_len());
        // SAFETY: `copy_in` demands two ranges of `len` bytes that stay alone until the copy is done: both are this
        // batch's, whose addresses take less room than its chunks. The copy is awaited before either is used again,
        // and if it cannot be, `new` leaks the memory.
        unsafe {
            queues
                .context
                .copy_in(to, self.host.as_mut_ptr(), len, stream)
        }?;
        stream.synchronize()
    }

    /// The compressed chunks that [`Made::Deflated`] points into.
    pub fn output(&self) -> &[u8] {
        // SAFETY: `bytes` demands that no work of the device writes the bytes: outside `compress` the memory is
        // idle, and `compress` has it for itself.
        unsafe { self.host.bytes() }
    }

    /// Deflates `plain` (at most [`CHUNK`] bytes) on this thread. Returns the length of the result in `deflated` if it
    /// is short enough to be worth keeping.
    pub fn deflate(&mut self, plain: &[u8], level: i32) -> Option<usize> {
        if self.software.as_ref().is_none_or(|(l, _)| *l != level) {
            self.software = Some((level, Deflater::new(level, Isal::load().ok())));
        }
        let (_, deflater) = self.software.as_mut()?;
        deflater.deflate(plain, &mut self.deflated[..worth(plain.len())])
    }

    /// Compresses at most `capacity` chunks of [`CHUNK`] bytes and calls `done` with this memory and the result of
    /// each. Blocks. The memory comes back unless the device may still be at work in it.
    pub fn compress<R>(
        self,
        queues: &Queues,
        chunks: &[&[u8]],
        effort: Effort,
        done: impl FnOnce(&mut BatchMemory, &[Made]) -> R,
    ) -> (Option<BatchMemory>, Result<R, Trouble>) {
        // A panic in between leaks the memory as well.
        let mut memory = ManuallyDrop::new(self);
        match memory.run(queues, chunks, effort) {
            Ok(made) => {
                let mut memory = ManuallyDrop::into_inner(memory);
                let result = done(&mut memory, &made);
                (Some(memory), Ok(result))
            }
            Err(trouble) => (memory_if_idle(memory, queues), Err(trouble)),
        }
    }

    /// The result of each of `chunks`, in order. After an error the device may still be at work in this memory.
    fn run(
        &mut self,
        queues: &Queues,
        chunks: &[&[u8]],
        effort: Effort,
    ) -> Result<Vec<Made>, Trouble> {
        assert!(chunks.len() <= self.layout.capacity);
        // Jobs shorter than a chunk. nvCOMP answers an internal error if it is asked for checksums of no chunks.
        if chunks.is_empty() {
            return Ok(Vec::new());
        }
        // SAFETY: `bytes_mut` demands that no work of the device uses the bytes: outside `compress` the memory is
        // idle, and nothing was queued since it began.
        let host = unsafe { self.host.bytes_mut() };
        for (place, chunk) in host.chunks_exact_mut(CHUNK).zip(chunks) {
            place.copy_from_slice(chunk);
        }
        self.start(queues, chunks.len(), effort)?;
        // Runs while the device works.
        let crcs: Vec<u32> = chunks
            .iter()
            .map(|chunk| crc_fast::crc32_iso_hdlc(chunk))
            .collect();
        self.marks.compute_ends.synchronize()?;
        let made = self.judge(&crcs, queues.checksums.is_some());
        let dense_len = self.bring_back(queues, &made)?;
        self.marks.output_ends.synchronize()?;
        self.count(queues, chunks.len(), dense_len)?;
        Ok(made)
    }

    /// Queues all work up to the arrival of lengths, statuses and checksums.
    fn start(&mut self, queues: &Queues, count: usize, effort: Effort) -> Result<(), Trouble> {
        self.need_scratch(queues, effort, count)?;
        let (context, input, marks) = (&queues.context, &queues.streams.input, &self.marks);
        let compute = &self.compute;
        let arrays = |offset: usize| self.arrays.start() + offset as DevicePtr;
        let address = |n: usize| arrays(self.layout.addresses() + n * self.layout.capacity * 8);
        let batch = Batch {
            input_ptrs: address(0),
            input_sizes: address(1),
            chunk_len: CHUNK,
            chunks: count,
            scratch: self.scratch.start(),
            scratch_len: self.scratch.len(),
            output_ptrs: address(2),
            output_sizes: arrays(self.layout.sizes()),
            statuses: arrays(self.layout.statuses()),
        };
        context.enter()?;
        let order = queues.order.lock();
        // SAFETY: the driver demands memory that stays alone until the work is done: all of it is this batch's; nobody
        // reads it before the marks are reached, and after an error the caller first waits for the streams.
        unsafe {
            marks.input_starts.record(input)?;
            let (to, from) = (self.input.start(), self.host.as_mut_ptr());
            context.copy_in(to, from, count * CHUNK, input)?;
            marks.input_ends.record(input)?;
            drop(order);

            compute.wait_for(&marks.input_ends)?;
            marks.compute_starts.record(compute)?;
            let answers = (arrays(0), self.layout.answers_len());
            context.fill(answers.0, NONSENSE, answers.1, compute)?;
            if let Some(kernel) = queues.checksums {
                let crcs = arrays(self.layout.checksums());
                queues.library.checksum(&batch, kernel, crcs, compute)?;
            }
            queues.library.compress(&batch, effort, compute)?;
            let to = self.answers.as_mut_ptr();
            context.copy_out(to, answers.0, answers.1, compute)?;
            marks.compute_ends.record(compute)?;
        }
        Ok(())
    }

    /// Makes sure that there is scratch memory for `chunks` chunks. The memory is idle.
    fn need_scratch(
        &mut self,
        queues: &Queues,
        effort: Effort,
        chunks: usize,
    ) -> Result<(), Trouble> {
        let needed = queues.library.sizes(effort, CHUNK, chunks)?;
        if needed.output_max > self.slot {
            return Err(refused(OUTPUT_TOO_SMALL));
        }
        if needed.scratch > self.scratch.len() {
            let whole = queues.library.sizes(effort, CHUNK, self.layout.capacity)?;
            // The old memory first, since a device may not have room for both.
            self.scratch = DeviceMemory::new(&queues.context, 0)?;
            self.scratch = DeviceMemory::new(&queues.context, whole.scratch.max(needed.scratch))?;
        }
        Ok(())
    }

    /// Reads lengths, statuses and checksums, and lays out the dense run.
    fn judge(&self, crcs: &[u32], with_checksums: bool) -> Vec<Made> {
        // SAFETY: `bytes` demands that no work of the device writes the bytes: `run` has awaited the mark that follows
        // the copy to this memory.
        let answers = unsafe { self.answers.bytes() };
        let mut at = 0;
        let judged = crcs.iter().enumerate().map(|(i, &crc32)| {
            let len = u64_at(answers, self.layout.sizes() + 8 * i);
            let status = u32_at(answers, self.layout.statuses() + 4 * i) as i32;
            let seen = u32_at(answers, self.layout.checksums() + 4 * i);
            if status != 0 {
                tracing::debug!(chunk = i, status = status_name(status), "a chunk failed");
                return Made::Failed(Fault::Device { code: status });
            }
            if len == 0 || len > self.slot as u64 {
                tracing::warn!(chunk = i, len, "a chunk has an impossible length");
                return Made::Failed(Fault::Corrupt);
            }
            if with_checksums && seen != crc32 {
                tracing::warn!(chunk = i, "a chunk reached the device damaged");
                return Made::Failed(Fault::Corrupt);
            }
            let len = len as usize;
            if len > worth(CHUNK) {
                return Made::Incompressible;
            }
            let start = at;
            at += len.next_multiple_of(GATHER_UNIT);
            let at = start..start + len;
            Made::Deflated { at, crc32 }
        });
        judged.collect()
    }

    /// Queues the gathering and the copy back; returns the length of the dense run.
    fn bring_back(&mut self, queues: &Queues, made: &[Made]) -> Result<usize, CudaError> {
        let (context, stream, marks) = (&queues.context, &queues.streams.output, &self.marks);
        let place = |made: &Made| match made {
            Made::Deflated { at, .. } => Some(at.clone()),
            Made::Incompressible | Made::Failed(_) => None,
        };
        let last = made.iter().rev().find_map(place);
        let dense_len = last.map_or(0, |at| at.end.next_multiple_of(GATHER_UNIT));
        let _order = queues.order.lock();
        marks.output_starts.record(stream)?;
        let host = self.host.as_mut_ptr();
        if let Some(kernel) = &queues.gather {
            // SAFETY: `bytes_mut` demands that no work of the device uses the bytes: `run` has awaited the only copy
            // that was queued for this memory.
            let answers = unsafe { self.answers.bytes_mut() };
            let table = &mut answers[self.layout.table()..];
            for (entry, made) in table.chunks_exact_mut(8).zip(made) {
                let at = place(made).unwrap_or(0..0);
                let first = (at.start / GATHER_UNIT) as u32;
                let count = at.len().div_ceil(GATHER_UNIT) as u32;
                entry[..4].copy_from_slice(&first.to_le_bytes());
                entry[4..].copy_from_slice(&count.to_le_bytes());
            }
            let from = table.as_ptr();
            let to = self.arrays.start() + self.layout.table() as u64;
            let mut arguments = [self.slots.start(), self.slot as u64, self.dense.start(), to];
            let grid = (made.len() as u32, GATHER_THREADS);
            // SAFETY: the kernel demands a table whose places lie in the slots and in the dense run: its offsets do,
            // and their lengths are multiples of the unit. All memory is this batch's; the marks are awaited before any
            // byte is read.
            unsafe {
                context.copy_in(to, from, made.len() * 8, stream)?;
                context.launch(kernel, grid, &mut arguments, stream)?;
                if dense_len > 0 {
                    context.copy_out(host, self.dense.start(), dense_len, stream)?;
                }
            }
        } else {
            for (i, at) in made.iter().map(place).enumerate() {
                let Some(at) = at else { continue };
                let from = self.slots.start() + (i * self.slot) as u64;
                // SAFETY: `copy_out` demands two ranges of that length: the length was checked against the slot; dense
                // offsets lie in `host`, for no chunk is longer than its plain bytes; the marks are awaited before any
                // byte is read.
                unsafe { context.copy_out(host.add(at.start), from, at.len(), stream) }?;
            }
        }
        marks.output_ends.record(stream)?;
        Ok(dense_len)
    }

    fn count(&self, queues: &Queues, chunks: usize, dense_len: usize) -> Result<(), CudaError> {
        let m = &self.marks;
        let input_ns = m.input_ends.ns_since(&m.input_starts)?;
        let compute_ns = m.compute_ends.ns_since(&m.compute_starts)?;
        let output_ns = m.output_ends.ns_since(&m.output_starts)?;
        let mut timings = queues.timings.lock();
        timings.batches += 1;
        timings.plain_bytes += (chunks * CHUNK) as u64;
        timings.dense_bytes += dense_len as u64;
        timings.input_ns += input_ns;
        timings.compute_ns += compute_ns;
        timings.output_ns += output_ns;
        Ok(())
    }
}

/// The memory, once the queues are empty. `None`: that cannot be known, and the memory is leaked.
fn memory_if_idle(memory: ManuallyDrop<BatchMemory>, queues: &Queues) -> Option<BatchMemory> {
    let idle = queues.streams.synchronize();
    match idle.and_then(|()| memory.compute.synchronize()) {
        Ok(()) => Some(ManuallyDrop::into_inner(memory)),
        Err(e) => {
            tracing::debug!(%e, "a batch's memory may still be in use by the device");
            None
        }
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}
