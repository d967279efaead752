//! The engines and memory that compress a file for an archive.
//!
//! Creating one costs a twentieth of the time for a segment, most of it for memory that is used for the first time. So
//! they are kept for the next file.
//!
//! Invariants
//! - There are never more than the files that were written at the same time.

use std::fmt;
use std::io;
use std::path::Path;

use longshore_codec::{Algorithm, Compressor, Decompressor, Level, payload_bound};
use longshore_io::{ALIGN_BYTES, Buffer, Pool};
use parking_lot::Mutex;

use super::object::SEALED_MORE;
use super::{Error, StorageForm};

/// Plain bytes of a block of most files. Throughput is flat from 256 KiB to 2 MiB.
const BLOCK_BYTES: u32 = 1 << 20;
/// The most blocks of a file: as many as an encrypted file's end has room for.
const BLOCKS_MAX: u32 = 512;

/// Plain bytes of each block of a file of `len` bytes.
pub(super) fn block_bytes(len: u32) -> u32 {
    let block = BLOCK_BYTES.max(len.div_ceil(BLOCKS_MAX).next_power_of_two());
    block.min(len.max(1))
}

/// Bytes collected for one write, unless a piece is longer: a large page.
const GATHER_BYTES: usize = 2 << 20;

/// Engines and memory for one file at a time.
pub(super) struct Press {
    algorithm: Algorithm,
    level: Level,
    pub(super) compressor: Compressor,
    pub(super) decompressor: Decompressor,
    /// A block before compression.
    pub(super) plain: Vec<u8>,
    /// A block after decompression; empty until one is checked.
    pub(super) check: Vec<u8>,
    /// Output buffer: room for a block's payload and everything that may precede it.
    pub(super) out: Buffer,
}

/// Those that are not in use.
#[derive(Default)]
pub(super) struct Presses(Mutex<Vec<Press>>);

impl Presses {
    /// Takes one for this form, and for blocks of so many bytes.
    ///
    /// Errors: `Codec`; `Io` if there is no memory, for the file `target`.
    pub(super) fn take(
        &self,
        form: &StorageForm,
        block_bytes: usize,
        target: &Path,
    ) -> Result<Press, Error> {
        let mut idle = self.0.lock();
        let fits = |press: &Press| {
            (press.algorithm, press.level) == (form.algorithm, form.level)
                && press.plain.len() >= block_bytes
        };
        if let Some(at) = idle.iter().position(fits) {
            return Ok(idle.swap_remove(at));
        }
        drop(idle);
        let block_bytes = block_bytes.max(BLOCK_BYTES as usize);
        let bound = payload_bound(form.algorithm, block_bytes) + SEALED_MORE + ALIGN_BYTES;
        let out = Pool::new(1, bound.max(GATHER_BYTES))
            .and_then(|pool| pool.take().ok_or(io::ErrorKind::OutOfMemory.into()))
            .map_err(Error::io("write", target))?;
        Ok(Press {
            algorithm: form.algorithm,
            level: form.level,
            compressor: Compressor::new(form.algorithm, form.level)?,
            decompressor: Decompressor::new(),
            plain: vec![0; block_bytes],
            check: Vec::new(),
            out,
        })
    }

    pub(super) fn give_back(&self, press: Press) {
        self.0.lock().push(press);
    }
}

impl fmt::Debug for Presses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Presses({} idle)", self.0.lock().len())
    }
}
