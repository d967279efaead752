//! What a file on its way into an archive is compressed with.
//!
//! Making one costs a twentieth of what a segment takes, most of it for memory that is used for the first time. So those
//! that are done with a file are kept for the next one.
//!
//! Invariants
//! - No more are kept than files were written at a time.

use std::fmt;
use std::io;
use std::path::Path;

use longshore_codec::{Algorithm, Compressor, Decompressor, Level, payload_bound};
use longshore_io::{ALIGN_BYTES, Buffer, Pool};
use parking_lot::Mutex;

use super::{Error, Form};

/// Plain bytes of a block. Flat from 256 KiB to 2 MiB; a segment of 1 GiB then has 1,024 of them.
pub(super) const BLOCK_BYTES: u32 = 1 << 20;

/// Bytes that are gathered for one write, as long as a piece is no longer: a large page.
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
    /// What is written: room for a block's payload and what may stand before it.
    pub(super) out: Buffer,
}

/// Those that wait for a file.
#[derive(Default)]
pub(super) struct Presses(Mutex<Vec<Press>>);

impl Presses {
    /// One for this form.
    ///
    /// Errors: `Codec`; `Io` without memory, of the file `target`.
    pub(super) fn take(&self, form: &Form, target: &Path) -> Result<Press, Error> {
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
