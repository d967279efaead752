//! Measurements for a check of the device: the speed of plain copies, and the behaviour without free memory.
//!
//! Invariants
//! - Copied bytes are nobody's: no result is read, and memory is freed only after the streams have ended.
//! - The first copies do not count: they pay for waking the bus.
//! - Held memory is given back when its holder is dropped.
//!
//! Leaves to others: batches (`batch_memory.rs`), and the memory and the streams of this (`driver.rs`).

use std::sync::Arc;

use super::device::Device;
use super::driver::{CudaError, DeviceMemory, PinnedMemory, StreamMark};

/// The speed of plain copies between pinned memory and the device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CopyRates {
    pub to_device_bytes_per_s: f64,
    pub from_device_bytes_per_s: f64,
    /// Of each direction, while both run.
    pub both_bytes_per_s: f64,
}

/// Device memory that is held and not used, until dropped.
pub struct MemoryHold {
    _memory: Vec<DeviceMemory>,
    pub bytes: usize,
}

/// Copies `len` bytes `rounds` times in each direction, then in both.
pub(super) fn copy_rates(device: &Device, len: usize, rounds: u32) -> Result<CopyRates, CudaError> {
    let context = &device.queues.context;
    let (mut inwards, mut outwards) = (
        PinnedMemory::new(context, len)?,
        PinnedMemory::new(context, len)?,
    );
    let (target, origin) = (
        DeviceMemory::new(context, len)?,
        DeviceMemory::new(context, len)?,
    );
    let (input, output) = (&device.queues.streams.input, &device.queues.streams.output);
    let marks = [
        StreamMark::new(context)?,
        StreamMark::new(context)?,
        StreamMark::new(context)?,
        StreamMark::new(context)?,
    ];
    let mut copy = |to_device: bool, from_device: bool| -> Result<(u64, u64), CudaError> {
        marks[0].record(input)?;
        marks[2].record(output)?;
        for _ in 0..rounds {
            // SAFETY: the copies demand ranges that stay alone until they are done: all four are `len` bytes long and
            // this function's alone. It reads none of them, and frees them after both streams were awaited. After an
            // error in between, freeing waits for the device's work.
            unsafe {
                if to_device {
                    context.copy_in(target.start(), inwards.as_mut_ptr(), len, input)?;
                }
                if from_device {
                    context.copy_out(outwards.as_mut_ptr(), origin.start(), len, output)?;
                }
            }
        }
        marks[1].record(input)?;
        marks[3].record(output)?;
        input.synchronize()?;
        output.synchronize()?;
        Ok((marks[1].ns_since(&marks[0])?, marks[3].ns_since(&marks[2])?))
    };
    // The first copies pay for waking the bus.
    copy(true, true)?;
    let (to_device, _) = copy(true, false)?;
    let (_, from_device) = copy(false, true)?;
    let (in_both, out_both) = copy(true, true)?;
    let rate = |ns: u64| len as f64 * f64::from(rounds) * 1e9 / ns.max(1) as f64;
    Ok(CopyRates {
        to_device_bytes_per_s: rate(to_device),
        from_device_bytes_per_s: rate(from_device),
        both_bytes_per_s: rate(in_both.max(out_both)),
    })
}

/// Takes device memory until at most `leave` bytes are free.
pub(super) fn hold(device: &Device, leave: usize) -> Result<MemoryHold, CudaError> {
    const PIECE: usize = 1 << 30;
    const PIECE_MIN: usize = 1 << 20;
    let context = &device.queues.context;
    let mut held = MemoryHold {
        _memory: Vec::new(),
        bytes: 0,
    };
    let mut piece = PIECE;
    loop {
        let (free, _) = context.memory()?;
        let wanted = free.saturating_sub(leave).min(piece);
        if wanted < PIECE_MIN {
            return Ok(held);
        }
        match DeviceMemory::new(&Arc::clone(context), wanted) {
            Ok(memory) => {
                held._memory.push(memory);
                held.bytes += wanted;
            }
            // Free memory is not always contiguous.
            Err(e) if e.out_of_memory() => piece /= 2,
            Err(e) => return Err(e),
        }
    }
}
