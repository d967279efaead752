//! LZ4 and NONE payloads: one LZ4 frame each.
//!
//! | offset | size | value |
//! |---|---|---|
//! | 0 | 4 | `04 22 4d 18` |
//! | 4 | 1 | `68`: version 1, independent blocks, content size given |
//! | 5 | 1 | `70`: blocks of at most 4 MiB |
//! | 6 | 8 | plain bytes |
//! | 14 | 1 | header checksum: second byte of xxh32 over bytes 4 to 13 |
//! | 15 | 4 | length of the block; top bit set: stored as it is |
//! | 19 | n | the block |
//! | 19 + n | 4 | 0: no more blocks |
//!
//! All numbers are little-endian.
//!
//! The named levels, measured as in `deflate.rs`:
//!
//! | level | MB/s | ratio | |
//! |---|---|---|---|
//! | 1 | 1100 | 3.15 | `LOW` |
//! | 2 | 370 | 3.46 | `MEDIUM` |
//! | 3 | 160 | 3.66 | |
//! | 4 | 166 | 3.69 | `HIGH` |
//! | 6 | 115 | 3.71 | |
//! | 9 | 55 | 3.72 | |
//!
//! Decoding runs at 5000 MB/s.
//!
//! Invariants
//! - The writer makes exactly this frame, with one block for the whole buffer.
//! - The reader takes any number and size of independent blocks, with or without a content size, and refuses by name
//!   what the writer never sets: linked blocks, LZ4's own checksums (the payload has one around it already), dictionaries, reserved bits.
//!
//! Leaves to others: the checksums around a payload (`longshore-media`).
//!
//! Source: LZ4 frame format 1.6.4.

use std::ffi::{c_char, c_int, c_void};

use crate::encoded::{Encoded, worth};
use crate::{Level, PayloadError};

/// Largest block of a frame, and so the largest buffer.
const BLOCK_MAX: usize = 4 << 20;

const MAGIC: u32 = 0x184d_2204;
/// FLG: version 01 in the top bits, block independence, content size.
const FLAGS: u8 = 0b0110_1000;
/// BD: 4 MiB.
const BLOCK_SIZE_CODE: u8 = 7 << 4;
/// Top bit of a block's length.
const STORED: u32 = 1 << 31;

const HEADER_LEN: usize = 15;
pub(crate) const PREFIX_LEN: usize = HEADER_LEN + 4;
pub(crate) const SUFFIX: [u8; 4] = [0; 4];

/// The bytes that the frame adds to a stored buffer.
pub(crate) const OVERHEAD: usize = PREFIX_LEN + SUFFIX.len();

/// The frame's bytes before its one block of `block_len` bytes.
fn prefix(plain_len: usize, block_len: usize, stored: bool) -> [u8; PREFIX_LEN] {
    let mut prefix = [0; PREFIX_LEN];
    prefix[..4].copy_from_slice(&MAGIC.to_le_bytes());
    prefix[4] = FLAGS;
    prefix[5] = BLOCK_SIZE_CODE;
    prefix[6..14].copy_from_slice(&(plain_len as u64).to_le_bytes());
    prefix[14] = header_checksum(&prefix[4..14]);
    let block = block_len as u32 | if stored { STORED } else { 0 };
    prefix[15..].copy_from_slice(&block.to_le_bytes());
    prefix
}

/// The frame's bytes before `plain_len` bytes that are stored as they are.
pub(crate) fn stored_prefix(plain_len: usize) -> [u8; PREFIX_LEN] {
    prefix(plain_len, plain_len, true)
}

fn header_checksum(descriptor: &[u8]) -> u8 {
    (xxhash_rust::xxh32::xxh32(descriptor, 0) >> 8) as u8
}

/// Writes `plain` as a stored frame; returns the payload's length.
pub(crate) fn store(plain: &[u8], out: &mut [u8]) -> usize {
    let end = PREFIX_LEN + plain.len();
    out[..PREFIX_LEN].copy_from_slice(&stored_prefix(plain.len()));
    out[PREFIX_LEN..end].copy_from_slice(plain);
    out[end..end + SUFFIX.len()].copy_from_slice(&SUFFIX);
    end + SUFFIX.len()
}

/// How hard to try: 1 is the fast compressor, 2 to 12 are LZ4's HC levels.
pub(crate) const LEVELS: std::ops::RangeInclusive<i32> = 1..=12;

/// One worker's compressor. LZ4's own memory is on the stack, or short-lived with HC.
pub(crate) struct Compressor {
    level: i32,
    /// The last buffer was stored. Incompressible buffers come in runs, and HC spends ten times longer on them than on
    /// data; so the fast compressor is then tried first.
    noise: bool,
}

impl Compressor {
    pub(crate) fn new(level: Level) -> Compressor {
        let level = match level {
            Level::Low => 1,
            Level::Medium => 2,
            Level::High => 4,
            Level::Number(n) => n,
        };
        Compressor {
            level,
            noise: false,
        }
    }

    /// Writes the payload for `plain` into `out`, which holds it stored.
    pub(crate) fn compress(&mut self, plain: &[u8], out: &mut [u8]) -> Encoded {
        let room = &mut out[PREFIX_LEN..PREFIX_LEN + worth(plain.len())];
        let hopeless = self.noise && encode_block(1, plain, room).is_none();
        let block = if hopeless {
            None
        } else {
            encode_block(self.level, plain, room)
        };
        self.noise = block.is_none();
        let Some(block_len) = block else {
            return Encoded {
                len: store(plain, out),
                stored: true,
            };
        };
        out[..PREFIX_LEN].copy_from_slice(&prefix(plain.len(), block_len, false));
        let end = PREFIX_LEN + block_len;
        out[end..end + SUFFIX.len()].copy_from_slice(&SUFFIX);
        Encoded {
            len: end + SUFFIX.len(),
            stored: false,
        }
    }
}

/// Compresses `plain` into `room`. `None` if it does not fit; `room` is then worthless.
fn encode_block(level: i32, plain: &[u8], room: &mut [u8]) -> Option<usize> {
    let (source, dest) = (plain.as_ptr().cast(), room.as_mut_ptr().cast());
    let (source_len, room_len) = (plain.len() as c_int, room.len() as c_int);
    // SAFETY: lz4.h demands that both ranges are valid for the lengths given, and writes no more than `room_len`: they are
    // those of two slices. A length that no c_int holds would become a smaller or a negative one, which is refused.
    let len = unsafe {
        match level {
            ..=1 => lz4_sys::LZ4_compress_fast(source, dest, source_len, room_len, 1),
            _ => lz4_sys::LZ4_compress_HC(source, dest, source_len, room_len, level),
        }
    };
    usize::try_from(len).ok().filter(|len| *len > 0)
}

/// LZ4's fast compressor with memory of its own, for blocks without a frame.
pub(crate) struct Fast {
    /// 64-bit words, as LZ4 wants it aligned.
    state: Box<[u64]>,
}

impl Fast {
    pub(crate) fn new() -> Fast {
        // SAFETY: the call demands nothing; it returns a constant.
        let len = unsafe { LZ4_sizeofState() } as usize;
        Fast {
            state: vec![0; len.div_ceil(8)].into(),
        }
    }

    /// Writes the block of `plain` (at most 4 MiB) to the start of `room`, which grows as needed, if it has at most `most`
    /// bytes; returns its length. One position in `step` is looked at where nothing was found for a while.
    pub(crate) fn encode(
        &mut self,
        plain: &[u8],
        most: usize,
        step: i32,
        room: &mut Vec<u8>,
    ) -> Option<usize> {
        if room.len() < most {
            room.resize(most, 0);
        }
        // SAFETY: lz4.h demands a state of LZ4_sizeofState() bytes, aligned to eight: `new` made it of words. Both ranges are
        // those of slices that hold the lengths given.
        let len = unsafe {
            LZ4_compress_fast_extState(
                self.state.as_mut_ptr().cast(),
                plain.as_ptr().cast(),
                room.as_mut_ptr().cast(),
                plain.len() as c_int,
                most as c_int,
                step,
            )
        };
        usize::try_from(len).ok().filter(|len| *len > 0)
    }
}

// Not among the declarations of `lz4-sys`, but in the library that it builds.
unsafe extern "C" {
    fn LZ4_sizeofState() -> c_int;
    fn LZ4_compress_fast_extState(
        state: *mut c_void,
        source: *const c_char,
        dest: *mut c_char,
        source_len: c_int,
        dest_len: c_int,
        acceleration: c_int,
    ) -> c_int;
}

/// Which blocks a payload may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocks {
    Any,
    StoredOnly,
}

/// Decodes one frame that fills `payload` and gives exactly `plain.len()` bytes.
pub(crate) fn decompress(
    payload: &[u8],
    plain: &mut [u8],
    blocks: Blocks,
) -> Result<(), PayloadError> {
    let mut reader = Reader { payload, at: 0 };
    let block_max = frame_header(&mut reader, plain.len())?;
    let mut filled = 0;
    loop {
        let start = reader.at;
        let word = reader.u32()?;
        if word == 0 {
            break;
        }
        let (len, stored) = ((word & !STORED) as usize, word & STORED != 0);
        if len > block_max || len == 0 {
            return Err(PayloadError::at(
                start,
                "LZ4 block has an impossible length",
            ));
        }
        let block = reader.take(len)?;
        let rest = &mut plain[filled..];
        let room = rest.len().min(block_max);
        filled += match (stored, blocks) {
            (true, _) if len <= room => {
                rest[..len].copy_from_slice(block);
                len
            }
            (true, _) => {
                return Err(PayloadError::at(
                    start,
                    "frame holds more than the plain length",
                ));
            }
            (false, Blocks::StoredOnly) => {
                return Err(PayloadError::at(
                    start,
                    "compressed block where only stored blocks are allowed",
                ));
            }
            (false, Blocks::Any) => decode_block(block, &mut rest[..room])
                .ok_or(PayloadError::at(start + 4, "LZ4 block does not decode"))?,
        };
    }
    if filled != plain.len() {
        return Err(PayloadError::at(
            reader.at,
            "frame holds less than the plain length",
        ));
    }
    if reader.at != payload.len() {
        return Err(PayloadError::at(
            reader.at,
            "bytes after the end of the frame",
        ));
    }
    Ok(())
}

/// Checks the header up to the first block; returns the largest block allowed.
fn frame_header(reader: &mut Reader<'_>, plain_len: usize) -> Result<usize, PayloadError> {
    if reader.u32()? != MAGIC {
        return Err(PayloadError::at(0, "not an LZ4 frame"));
    }
    let descriptor = reader.at;
    let &[flags, block_size] = reader.take(2)? else {
        unreachable!("two bytes were taken")
    };
    let refused = match flags {
        f if f >> 6 != 1 => Some("LZ4 frame of an unknown version"),
        f if f & 0b10_0000 == 0 => Some("LZ4 frame with linked blocks, which is not supported"),
        f if f & 0b1_0100 != 0 => Some("LZ4 frame with its own checksums, which is not supported"),
        f if f & 0b01 != 0 => Some("LZ4 frame with a dictionary, which is not supported"),
        f if f & 0b10 != 0 => Some("LZ4 frame with a reserved bit"),
        _ => None,
    };
    if let Some(what) = refused {
        return Err(PayloadError::at(descriptor, what));
    }
    let block_max = match block_size {
        0x40 => 64 << 10,
        0x50 => 256 << 10,
        0x60 => 1 << 20,
        0x70 => BLOCK_MAX,
        _ => {
            return Err(PayloadError::at(
                descriptor + 1,
                "LZ4 frame with an unknown block size",
            ));
        }
    };
    if flags & 0b1000 != 0 {
        let content = u64::from(reader.u32()?) | u64::from(reader.u32()?) << 32;
        if content != plain_len as u64 {
            return Err(PayloadError::at(
                descriptor + 2,
                "frame's content size is not the plain length",
            ));
        }
    }
    let end = reader.at;
    if reader.take(1)? != [header_checksum(&reader.payload[descriptor..end])] {
        return Err(PayloadError::at(
            end,
            "LZ4 frame header does not match its checksum",
        ));
    }
    Ok(block_max)
}

/// The library's version, for example `1.10.0`.
pub(crate) fn version() -> String {
    // SAFETY: the call demands nothing, and returns a constant of the library that is linked.
    let number = unsafe { lz4_sys::LZ4_versionNumber() };
    format!(
        "{}.{}.{}",
        number / 10_000,
        number / 100 % 100,
        number % 100
    )
}

/// Decodes one block without a frame; returns how much of `room` it filled.
pub(crate) fn decode_block(block: &[u8], room: &mut [u8]) -> Option<usize> {
    // SAFETY: lz4.h demands that both ranges are valid for the lengths given: they are those of two slices, and a length
    // that no c_int holds would become a smaller or a negative one, which is refused. The safe decoder neither reads nor
    // writes beyond them, whatever the block holds.
    let len = unsafe {
        lz4_sys::LZ4_decompress_safe(
            block.as_ptr().cast(),
            room.as_mut_ptr().cast(),
            block.len() as c_int,
            room.len() as c_int,
        )
    };
    usize::try_from(len).ok()
}

struct Reader<'a> {
    payload: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], PayloadError> {
        let bytes = self.payload[self.at..]
            .get(..len)
            .ok_or(PayloadError::at(self.payload.len(), "LZ4 frame ends early"))?;
        self.at += len;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, PayloadError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}
