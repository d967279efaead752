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

use super::{Error, StorageForm};

/// Plain bytes of a block. Throughput is flat from 256 KiB to 2 MiB; a segment of 1 GiB then has 1,024 blocks.
pub(super) const BLOCK_BYTES: u32 = 1 << 20;

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
    /// Takes one for this form.
    ///
    /// Errors: `Codec`; `Io` if there is no memory, for the file `target`.
    pub(super) fn take(&self, form: &StorageForm, target: &Path) -> Result<Press, Error> {
        let mut idle = self.0.lock();
        let fits = |press: &Press| (press.algorithm, press.level) == (form.algorithm, form.level);
        if let Some(at) = idle.iter().position(fits) {
            return Ok(idle.swap_remove(at));
        }
        drop(idle);
        let bound = payload_bound(form.algorithm, BLOCK_BYTES as usize) + ALIGN_BYTES;
        let out = Pool::new(1, bound.max(GATHER_BYTES))
            .and_then(|pool| pool.take().ok_or(io::ErrorKind::OutOfMemory.into()))
            .map_err(Error::io("write", target))?;
        Ok(Press {
            algorithm: form.algorithm,
            level: form.level,
            compressor: Compressor::new(form.algorithm, form.level)?,
            decompressor: Decompressor::new(),
            plain: vec![0; BLOCK_BYTES as usize],
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
