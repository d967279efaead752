//! Algorithms and engines: everything that makes bytes smaller or brings them back.
//!
//! A *payload* is what stands in a stripe for one buffer: whole members or frames of a standard
//! container, readable by stock tools without the rest of the block.
//!
//! | algorithm | payload | decoders |
//! |---|---|---|
//! | `NONE` | one LZ4 frame of uncompressed blocks | any lz4 |
//! | `MS_XPRESS` | one LZ4 skippable frame that holds MS-XCA LZ77+Huffman chunks | ours, and any MS-XCA decoder chunk by chunk |
//! | `QAT_DEFLATE` | gzip members in QATzip's gzip-ext layout | any gzip |
//! | `ZSTD` | one zstd frame | any zstd |
//! | `LZ4` | one LZ4 frame | any lz4 |
//!
//! Invariants
//! - What shrinks by nothing is stored, in the same container: a payload is never longer than
//!   [`payload_bound`], which exceeds the input by less than 0.1 % at 64 KiB and above.
//! - Payloads do not refer to one another, and do not depend on which engine made them.
//! - A decoder accepts any bytes without panic, writes only into the buffer it was given, and
//!   succeeds only when it filled that buffer exactly.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod accel;
mod chunks;
mod compress;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod decompress;
mod deflate;
pub mod dispatch;
mod door;
mod encoded;
mod engine;
mod engines;
mod error;
mod gzext;
mod huffman;
mod lazy;
mod loaded;
mod lz4;
mod members;
mod pace;
#[cfg(any(test, feature = "contract"))]
pub mod scripted;
mod software;
mod window;
pub mod xpress;
mod zstd;

pub use accel::{accelerators, nvcomp};
pub use compress::{Compressor, PLAIN_LEN_MAX, payload_bound};
pub use decompress::{Decompressor, NoneFrame, none_frame};
pub use door::{Algorithm, Level};
pub use encoded::Encoded;
pub use engine::{Caps, Engine, Fault, Health, Job, Outcome, State, Task};
pub use engines::{EngineFact, engines};
pub use error::{Damaged, Error};
pub use software::Software;
