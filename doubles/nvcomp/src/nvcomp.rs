//! The functions of `libnvcomp.so.5` and `.so.6`. Both ways to ask for scratch sizes exist; the version says which one
//! a caller should use.
//!
//! Invariants
//! - Work is only queued here; the device does it when a caller waits for it.
//! - Options are valid only with reserved bytes of zero, as the headers require. Too little scratch memory and another
//!   CRC than gzip's are refused.
//!
//! Leaves to others: streams, memory and the work itself (`world.rs`), and the faults (`script.rs`).

use std::ffi::{c_int, c_void};

use crate::world::{self, Compress, Work};

const INVALID_VALUE: c_int = 10;
const NOT_SUPPORTED: c_int = 11;
const CHUNK_TOO_LARGE: c_int = 18;
const CUDA_ERROR: c_int = 1000;
const INTERNAL: c_int = 10_000;

/// The largest output of one chunk of 64 KiB.
const OUTPUT_MAX: usize = 148_256;
const CHUNK_MAX: usize = 65_536;

/// Scratch memory in halves of the plain bytes, by algorithm.
const SCRATCH_HALVES: [usize; 6] = [0, 11, 20, 20, 34, 36];

#[repr(C)]
#[derive(Clone, Copy)]
struct DeflateOptions {
    algorithm: c_int,
    reserved: [u8; 60],
}

impl DeflateOptions {
    /// The algorithm, if it is valid and the reserved bytes are zero, as the header requires.
    fn algorithm(&self) -> Result<usize, c_int> {
        let known = (0..=5).contains(&self.algorithm) && self.reserved == [0; 60];
        known
            .then_some(self.algorithm as usize)
            .ok_or(NOT_SUPPORTED)
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CrcKernel {
    kind: c_int,
    bytes_per_read: i32,
    blocks_per_message: i32,
    reserved: [u8; 20],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CrcOptions {
    polynomial: u32,
    init: u32,
    reflect_in: bool,
    reflect_out: bool,
    xor_out: u32,
    spec_reserved: [u8; 16],
    kernel: CrcKernel,
    reserved: [u8; 64],
}

fn code(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}

/// Begins a call; the script's failures are statuses here.
fn call(name: &str, run: impl FnOnce(&mut world::Guard) -> Result<(), c_int>) -> c_int {
    match world::enter(name) {
        Ok(mut world) => code(run(&mut world)),
        // nvCOMP reports a lost device as a CUDA error.
        Err(700..=799) => CUDA_ERROR,
        Err(status) => status,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvcompGetProperties(properties: *mut [u32; 2]) -> c_int {
    call("nvcompGetProperties", |world| {
        // SAFETY: nvCOMP's headers oblige the caller: `properties` is valid for writing two numbers.
        unsafe { properties.write([world.script.version, 13_000]) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvcompBatchedDeflateCompressGetRequiredAlignments(
    options: DeflateOptions,
    alignments: *mut [usize; 3],
) -> c_int {
    code(options.algorithm().map(|_| {
        // SAFETY: nvCOMP's headers oblige the caller: `alignments` is valid for writing three numbers.
        unsafe { alignments.write([1, 8, 8]) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvcompBatchedDeflateCompressGetMaxOutputChunkSize(
    chunk_len: usize,
    options: DeflateOptions,
    output_max: *mut usize,
) -> c_int {
    code(options.algorithm().and_then(|_| {
        if chunk_len > CHUNK_MAX {
            return Err(CHUNK_TOO_LARGE);
        }
        // SAFETY: nvCOMP's headers oblige the caller: `output_max` is valid for writing a number.
        unsafe { output_max.write(OUTPUT_MAX) };
        Ok(())
    }))
}

fn scratch_len(chunks: usize, chunk_len: usize, algorithm: usize) -> usize {
    chunks * chunk_len * SCRATCH_HALVES[algorithm] / 2 + 64
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvcompBatchedDeflateCompressGetTempSizeAsync(
    chunks: usize,
    chunk_len: usize,
    options: DeflateOptions,
    len: *mut usize,
    _all: usize,
) -> c_int {
    code(options.algorithm().map(|algorithm| {
        // SAFETY: nvCOMP's headers oblige the caller: `len` is valid for writing a number.
        unsafe { len.write(scratch_len(chunks, chunk_len, algorithm)) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvcompBatchedDeflateCompressGetTempSize(
    chunks: usize,
    chunk_len: usize,
    options: DeflateOptions,
    len: *mut usize,
    all: usize,
    _stream: *mut c_void,
) -> c_int {
    // SAFETY: nvCOMP's headers oblige our caller as they oblige that function's: `len` is valid for writing a number.
    unsafe { nvcompBatchedDeflateCompressGetTempSizeAsync(chunks, chunk_len, options, len, all) }
}

#[unsafe(no_mangle)]
// The signature is the library's.
#[allow(clippy::too_many_arguments)]
extern "C" fn nvcompBatchedDeflateCompressAsync(
    inputs: u64,
    sizes: u64,
    chunk_len: usize,
    chunks: usize,
    scratch: u64,
    scratch_given: usize,
    outputs: u64,
    output_sizes: u64,
    options: DeflateOptions,
    statuses: u64,
    stream: *mut c_void,
) -> c_int {
    call("nvcompBatchedDeflateCompressAsync", |world| {
        let algorithm = options.algorithm()?;
        let scratch_needed = scratch_len(chunks, chunk_len, algorithm);
        if chunk_len > CHUNK_MAX || scratch_given < scratch_needed || !scratch.is_multiple_of(8) {
            return Err(INVALID_VALUE);
        }
        let work = Work::Compress(Compress {
            inputs,
            sizes,
            chunks: chunks as u64,
            scratch: (scratch, scratch_needed),
            outputs,
            output_sizes,
            statuses,
            algorithm: algorithm as i32,
            slot: OUTPUT_MAX,
        });
        let stream = stream.addr().wrapping_sub(1);
        world.queue(stream, work).map_err(|_| CUDA_ERROR)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvcompBatchedCRC32GetHeuristicConf(
    _sizes: u64,
    _chunks: usize,
    kernel: *mut CrcKernel,
    _chunk_len: usize,
    _stream: *mut c_void,
) -> c_int {
    call("nvcompBatchedCRC32GetHeuristicConf", |_| {
        let made = CrcKernel {
            kind: 0,
            bytes_per_read: 16,
            blocks_per_message: 0,
            reserved: [0; 20],
        };
        // SAFETY: nvCOMP's headers oblige the caller: `kernel` is valid for writing the structure.
        unsafe { kernel.write(made) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
// The signature is the library's.
#[allow(clippy::too_many_arguments)]
extern "C" fn nvcompBatchedCRC32Async(
    inputs: u64,
    sizes: u64,
    chunks: usize,
    crcs: u64,
    options: CrcOptions,
    segment: c_int,
    _statuses: u64,
    stream: *mut c_void,
) -> c_int {
    call("nvcompBatchedCRC32Async", |world| {
        // Only gzip's CRC, over whole messages, with the structure in the header's layout.
        let whole = segment == 0 && options.kernel.bytes_per_read == 16;
        let gzip = (options.polynomial, options.init, options.xor_out) == (0x04c1_1db7, !0, !0)
            && options.reflect_in
            && options.reflect_out;
        let zero = options.reserved == [0; 64] && options.spec_reserved == [0; 16];
        if !whole || !gzip || !zero || options.kernel.reserved != [0; 20] {
            return Err(INVALID_VALUE);
        }
        // So does nvCOMP 5.2.0 on an H100.
        if chunks == 0 {
            return Err(INTERNAL);
        }
        let chunks = chunks as u64;
        let work = Work::Checksum {
            inputs,
            sizes,
            chunks,
            crcs,
        };
        let stream = stream.addr().wrapping_sub(1);
        world.queue(stream, work).map_err(|_| CUDA_ERROR)
    })
}
