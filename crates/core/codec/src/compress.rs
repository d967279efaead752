//! Compresses buffers to payloads: one [`Compressor`] for each worker thread.
//!
//! Invariants
//! - No payload is longer than [`payload_bound`] of its plain length, so compression never runs out of room.
//! - A compressor owns its engines' memory and reuses it for every buffer; a worker never waits for another.
//! - A buffer of zeros gets the payload of the last one of its length, byte for byte.
//! - A level outside the algorithm's scale is refused when the compressor is made, not at the first buffer.
//!
//! Leaves to others: the engines (`engines.rs` and the modules of algorithms), and decoding (`decompress.rs`).

use longshore_io::is_zero;

use crate::encoded::Encoded;
use crate::{Algorithm, Error, Level, Part, chunks, deflate, gzext, lz4, members, pages, zstd};

/// Most plain bytes of one payload: 4 MiB, SQL Server's largest MAXTRANSFERSIZE.
pub const PLAIN_LEN_MAX: usize = 4 << 20;

/// The longest payload that `plain_len` bytes (at most [`PLAIN_LEN_MAX`]) can become.
pub fn payload_bound(algorithm: Algorithm, plain_len: usize) -> usize {
    match algorithm {
        Algorithm::None | Algorithm::Lz4 => plain_len + lz4::OVERHEAD,
        Algorithm::MsXpress => chunks::stored_len(plain_len),
        Algorithm::QatDeflate => gzext::members(plain_len)
            .map(|m| gzext::stored_len(m.len()))
            .sum(),
        Algorithm::Zstd => zstd::stored_len(plain_len),
        Algorithm::Pages => pages::stored_len(plain_len),
    }
}

/// Compresses buffers, one at a time. One per worker thread: it owns the engines' memory (a few
/// MiB at the named levels, tens at the highest numbers; [`worker_memory`](crate::pages::worker_memory) for `PAGES`) and reuses it for every buffer.
pub struct Compressor {
    algorithm: Algorithm,
    engine: Engine,
    /// The payload of the last buffer that was all zeros: such buffers come in long runs.
    zeros: Option<Zeros>,
}

enum Engine {
    None,
    Xpress(chunks::Compressor),
    Deflate(members::Compressor),
    Zstd(zstd::Compressor),
    Lz4(lz4::Compressor),
    Pages(Box<pages::Compressor>),
}

impl Compressor {
    /// Errors: `LevelOutOfRange`, `LevelNotSupported`.
    pub fn new(algorithm: Algorithm, level: Level) -> Result<Compressor, Error> {
        check(algorithm, level)?;
        let engine = match algorithm {
            Algorithm::None => Engine::None,
            Algorithm::MsXpress => Engine::Xpress(chunks::Compressor::new(level)),
            Algorithm::QatDeflate => Engine::Deflate(members::Compressor::new(level)),
            Algorithm::Zstd => Engine::Zstd(zstd::Compressor::new(level)),
            Algorithm::Lz4 => Engine::Lz4(lz4::Compressor::new(level)),
            Algorithm::Pages => Engine::Pages(Box::new(pages::Compressor::new(level))),
        };
        Ok(Compressor {
            algorithm,
            engine,
            zeros: None,
        })
    }

    /// Compresses `plain` (1 to [`PLAIN_LEN_MAX`] bytes) to a payload at the start of `out`, which holds at least
    /// [`payload_bound`] bytes. The bytes after the payload are undefined.
    ///
    /// # Panics
    /// If the lengths are not as above.
    pub fn compress(&mut self, plain: &[u8], out: &mut [u8]) -> Encoded {
        self.compress_parts(plain, &[whole(plain)], out)
    }

    /// The same for bytes of which the caller knows what they are: `parts` cover `plain` in order. `PAGES` alone looks at
    /// them.
    ///
    /// # Panics
    /// Also if the parts' lengths do not add up to that of `plain`.
    pub fn compress_parts(&mut self, plain: &[u8], parts: &[Part<'_>], out: &mut [u8]) -> Encoded {
        assert!(
            (1..=PLAIN_LEN_MAX).contains(&plain.len()),
            "{} plain bytes",
            plain.len()
        );
        let covered: usize = parts.iter().map(|part| part.len).sum();
        assert_eq!(covered, plain.len(), "bytes of parts");
        let out = &mut out[..payload_bound(self.algorithm, plain.len())];
        // NONE gains nothing from zeros.
        if matches!(self.engine, Engine::None) || !is_zero(plain) {
            return self.engine.compress(plain, parts, out);
        }
        if let Some(zeros) = &self.zeros
            && zeros.plain_len == plain.len()
        {
            out[..zeros.payload.len()].copy_from_slice(&zeros.payload);
            return zeros.encoded;
        }
        let encoded = self.engine.compress(plain, &[whole(plain)], out);
        let payload = out[..encoded.len].into();
        self.zeros = Some(Zeros {
            plain_len: plain.len(),
            payload,
            encoded,
        });
        encoded
    }

    /// The name of the engine that does the work: `isa-l`, `deflate` (our own), `libdeflate`, `miniz_oxide`, `zstd`,
    /// `lz4`, `xpress`, `pages` or `none`.
    pub fn engine(&self) -> &'static str {
        match &self.engine {
            Engine::None => "none",
            Engine::Deflate(members) => members.engine(),
            Engine::Zstd(_) => "zstd",
            Engine::Lz4(_) => "lz4",
            Engine::Xpress(_) => "xpress",
            Engine::Pages(_) => "pages",
        }
    }
}

impl Engine {
    fn compress(&mut self, plain: &[u8], parts: &[Part<'_>], out: &mut [u8]) -> Encoded {
        match self {
            Engine::None => Encoded {
                len: lz4::store(plain, out),
                stored: true,
            },
            Engine::Xpress(chunks) => chunks.compress(plain, out),
            Engine::Deflate(members) => members.compress(plain, out),
            Engine::Zstd(zstd) => zstd.compress(plain, out),
            Engine::Lz4(lz4) => lz4.compress(plain, out),
            Engine::Pages(pages) => pages.compress(plain, parts, out),
        }
    }
}

/// One part of which nothing is known.
fn whole(plain: &[u8]) -> Part<'static> {
    Part {
        len: plain.len(),
        layout: None,
    }
}

struct Zeros {
    plain_len: usize,
    payload: Box<[u8]>,
    encoded: Encoded,
}

/// Refuses a number outside the algorithm's scale.
fn check(algorithm: Algorithm, level: Level) -> Result<(), Error> {
    let Level::Number(level) = level else {
        return Ok(());
    };
    let levels = match algorithm {
        Algorithm::None => return Err(Error::LevelNotSupported { algorithm, level }),
        Algorithm::MsXpress => chunks::LEVELS,
        Algorithm::QatDeflate => deflate::LEVELS,
        Algorithm::Zstd => zstd::LEVELS,
        Algorithm::Lz4 => lz4::LEVELS,
        Algorithm::Pages => pages::LEVELS,
    };
    if levels.contains(&level) {
        return Ok(());
    }
    let (lowest, highest) = (*levels.start(), *levels.end());
    Err(Error::LevelOutOfRange {
        algorithm,
        level,
        lowest,
        highest,
    })
}
