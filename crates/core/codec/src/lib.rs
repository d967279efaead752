//! Algorithms, and the libraries and code of the CPU that do them: everything that makes bytes smaller or brings them
//! back. Nothing here knows of devices.
//!
//! A *payload* is the form of one buffer in a stripe: whole members or frames of a standard container, readable by
//! stock tools without the rest of the block, or skipped by them where no stock tool knows what is in it.
//!
//! | algorithm | payload | decoders |
//! |---|---|---|
//! | `NONE` | one LZ4 frame of uncompressed blocks | any lz4 |
//! | `MS_XPRESS` | one LZ4 skippable frame that holds MS-XCA LZ77+Huffman chunks | ours, and any MS-XCA decoder chunk by chunk |
//! | `QAT_DEFLATE` | gzip members in QATzip's gzip-ext layout | any gzip |
//! | `ZSTD` | one zstd frame | any zstd |
//! | `LZ4` | one LZ4 frame | any lz4 |
//! | `PAGES` | one LZ4 skippable frame that holds pages in columns | ours |
//!
//! Invariants
//! - Incompressible input is stored, in the same container: a payload is never longer than [`payload_bound`], which
//!   exceeds the input by less than 0.1 % at 64 KiB and above.
//! - Payloads do not refer to one another, and do not depend on which engine made them.
//! - A decoder accepts any bytes without panic, writes only into the buffer it was given, and
//!   succeeds only when it filled that buffer exactly.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod chunks;
mod compress;
mod decompress;
pub mod deflate;
mod door;
mod encoded;
mod engines;
mod error;
pub mod gzext;
mod huffman;
mod lazy;
mod lz4;
mod members;
mod pace;
pub mod pages;
mod window;
pub mod xpress;
mod zstd;

pub use compress::{Compressor, PLAIN_LEN_MAX, payload_bound};
pub use decompress::{Decompressor, NoneFrame, none_frame};
pub use door::{Algorithm, Level};
pub use encoded::{Encoded, worth};
pub use engines::{EngineFact, engines};
pub use error::{Error, PayloadError};
pub use pages::{Column, Layout, Part};
