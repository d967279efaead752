//! MS_XPRESS: the LZ77+Huffman form of MS-XCA, one chunk of up to 64 KiB at a time.
//!
//! A chunk is a table of 512 code lengths, four bits each, and a bit stream of literals and matches ([MS-XCA] 2.1.4 and
//! 2.2). One Huffman code serves both: a symbol is a byte, or the length of a match and the magnitude of its offset.
//! The bits below the magnitude follow uncoded. For a match longer than 17 bytes, the rest of the length follows in
//! whole bytes.
//!
//! Invariants
//! - A chunk depends on its plain bytes and the level, and on nothing that the encoder saw before.
//! - A chunk ends in symbol 256, as [MS-XCA] 2.1.4.3 advises for readers that want it. The symbol occurs nowhere else,
//!   although the format has a match with this number.
//! - The decoder accepts chunks with and without that symbol, requires a complete Huffman code, and refuses a chunk
//!   that is longer or shorter than its content.
//!
//! Leaves to others: chunks that do not shrink, and the frame around chunks (`chunks.rs`).

#![forbid(unsafe_code)]

mod bits;
mod decode;
mod matcher;
mod optimal;
mod stream;
mod symbol;

use matcher::{ChunkSearch, Matcher};
use optimal::Optimal;
use stream::StreamWriter;
use symbol::{Sequence, Window};

use crate::lazy::{self, Search};

pub use decode::{ChunkError, decompress};
pub use symbol::CHUNK_BYTES_MAX;

/// Compresses chunks. Holds about 0.6 MiB of tables (level 3: 3 MiB) and reuses them.
pub struct Encoder {
    level: Level,
    window: Window,
    matcher: Matcher,
    sequences: Vec<Sequence>,
    stream: StreamWriter,
}

enum Level {
    Fast,
    Normal,
    High(Box<Optimal>),
}

impl Encoder {
    /// An encoder for `level`: 1 fast, 2 normal, 3 high. Other numbers are taken as the nearest.
    pub fn new(level: u8) -> Encoder {
        let level = match level {
            0 | 1 => Level::Fast,
            2 => Level::Normal,
            _ => Level::High(Box::new(Optimal::new())),
        };
        Encoder {
            level,
            window: Window::new(),
            matcher: Matcher::new(),
            sequences: Vec::new(),
            stream: StreamWriter::new(),
        }
    }

    /// Compresses `plain`, 1 to 65536 bytes, as one chunk; returns its length in bytes.
    ///
    /// `None` when the chunk would not be smaller than `out`: then the caller stores `plain` as it
    /// is. Also `None` for a `plain` of another size.
    pub fn compress(&mut self, plain: &[u8], out: &mut [u8]) -> Option<usize> {
        if plain.is_empty() || plain.len() > CHUNK_BYTES_MAX {
            return None;
        }
        self.window.fill(plain);
        self.matcher.clear();
        self.sequences.clear();
        let (window, matcher, sequences) = (&self.window, &mut self.matcher, &mut self.sequences);
        match &mut self.level {
            Level::Fast => parse(
                window,
                ChunkSearch::<1, 16, false> { window, matcher },
                sequences,
            ),
            Level::Normal => parse(
                window,
                ChunkSearch::<5, 32, true> { window, matcher },
                sequences,
            ),
            Level::High(optimal) => optimal.parse(window, matcher, sequences),
        }
        self.stream.write(window, sequences, out)
    }
}

fn parse(window: &Window, mut search: impl Search, sequences: &mut Vec<Sequence>) {
    lazy::parse(window.len(), &mut search, |literals, found| {
        sequences.push(Sequence {
            literals: literals as u16,
            match_len: found.len as u16,
            offset: found.distance as u16,
        });
    });
}
