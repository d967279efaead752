//! QAT_DEFLATE payloads: gzip members in QATzip's gzip-ext layout.
//!
//! A member is a gzip member whose extra field contains both of its sizes, so that a reader can skip from one to the
//! next without inflating. All numbers are little-endian.
//!
//! | offset | size | value |
//! |---|---|---|
//! | 0 | 4 | `1f 8b 08 04`: gzip, deflate, extra field |
//! | 4 | 4 | time, 0 |
//! | 8 | 2 | `00 ff`: no hint, unknown system. QATzip's software writes hints: 2 and 4 are read, too |
//! | 10 | 2 | length of the extra field, 12 |
//! | 12 | 4 | `'Q' 'Z' 08 00` |
//! | 16 | 4 | plain bytes |
//! | 20 | 4 | deflate bytes |
//! | 24 | n | deflate data |
//! | 24 + n | 4 | CRC-32 of the plain bytes |
//! | 28 + n | 4 | plain bytes once more |
//!
//! Invariants
//! - Members of one payload cover its plain bytes in order, without a gap, none of them empty.
//! - The writer makes members of equal size (within a byte), at most [`MEMBER_PLAIN_MAX`]: no runt member pays for its
//!   own Huffman tables at the end. The reader takes any size.
//! - A member never exceeds [`stored_len`]: incompressible data is stored in it.
//!
//! Leaves to others: deflating, inflating, and comparing the CRC-32 (`members.rs`).
//!
//! Source: QATzip 1.3.1, `qatzip_gzip.c`; RFC 1951 and 1952.

use std::ops::Range;

use crate::PayloadError;

/// Plain bytes of one member at most. Members of 256 KiB cost 0.6 % of ratio against one of
/// 1 MiB and let a restore spread a buffer over cores; 64 KiB would cost 2.5 % and 13 % of speed.
pub(crate) const MEMBER_PLAIN_MAX: usize = 256 << 10;

pub const HEADER_LEN: usize = 24;
pub const FOOTER_LEN: usize = 8;

/// Every header byte that is the same in all members.
const HEADER_START: [u8; 16] = [
    0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff, 12, 0, b'Q', b'Z', 8, 0,
];

/// XFL of RFC 1952: 2 for slow, 4 for fast compression.
const HINT_AT: usize = 8;

/// Most bytes of one stored deflate block, and what its header costs.
const STORED_BLOCK_MAX: usize = 65_535;
const STORED_BLOCK_HEADER: usize = 5;

/// The plain ranges of the members into which `plain_len` bytes are divided.
pub fn members(plain_len: usize) -> impl Iterator<Item = Range<usize>> {
    let count = plain_len.div_ceil(MEMBER_PLAIN_MAX);
    (0..count).map(move |i| plain_len * i / count..plain_len * (i + 1) / count)
}

/// Length of a member that stores `plain_len` bytes, header and footer included.
pub fn stored_len(plain_len: usize) -> usize {
    let blocks = plain_len.div_ceil(STORED_BLOCK_MAX);
    HEADER_LEN + plain_len + blocks * STORED_BLOCK_HEADER + FOOTER_LEN
}

/// Writes `plain` as stored deflate blocks after the space for the header; returns the deflate length.
pub fn store(plain: &[u8], member: &mut [u8]) -> usize {
    let mut at = HEADER_LEN;
    let count = plain.len().div_ceil(STORED_BLOCK_MAX);
    for (i, block) in plain.chunks(STORED_BLOCK_MAX).enumerate() {
        let len = block.len() as u16;
        member[at] = u8::from(i + 1 == count);
        member[at + 1..at + 3].copy_from_slice(&len.to_le_bytes());
        member[at + 3..at + 5].copy_from_slice(&(!len).to_le_bytes());
        at += STORED_BLOCK_HEADER;
        member[at..at + block.len()].copy_from_slice(block);
        at += block.len();
    }
    at - HEADER_LEN
}

/// Writes header and footer around `deflate_len` bytes of deflate data; returns the member's length.
pub fn seal(member: &mut [u8], plain_len: usize, deflate_len: usize, crc32: u32) -> usize {
    let plain_len = plain_len as u32;
    member[..16].copy_from_slice(&HEADER_START);
    member[16..20].copy_from_slice(&plain_len.to_le_bytes());
    member[20..24].copy_from_slice(&(deflate_len as u32).to_le_bytes());
    let footer = HEADER_LEN + deflate_len;
    member[footer..footer + 4].copy_from_slice(&crc32.to_le_bytes());
    member[footer + 4..footer + 8].copy_from_slice(&plain_len.to_le_bytes());
    footer + FOOTER_LEN
}

/// One member as its header and footer describe it; not decoded yet.
#[derive(Debug)]
pub struct Member<'a> {
    pub deflate: &'a [u8],
    pub plain_len: usize,
    pub crc32: u32,
    /// Bytes of the payload, header and footer included.
    pub len: usize,
}

impl<'a> Member<'a> {
    /// The member at the start of `bytes`, whose plain bytes must not exceed `room`.
    pub fn parse(bytes: &'a [u8], room: usize) -> Result<Member<'a>, PayloadError> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Err(PayloadError::at(
                bytes.len(),
                "gzip member header ends early",
            ));
        };
        let mut start = HEADER_START;
        if matches!(header[HINT_AT], 2 | 4) {
            start[HINT_AT] = header[HINT_AT];
        }
        if let Some(at) = start.iter().zip(header).position(|(a, b)| a != b) {
            return Err(PayloadError::at(at, "not the header of a gzip-ext member"));
        }
        let plain_len = u32_at(header, 16);
        let deflate_len = u32_at(header, 20) as usize;
        if plain_len == 0 || plain_len as usize > room {
            return Err(PayloadError::at(
                16,
                "member does not fit the block's plain length",
            ));
        }
        let Some((deflate, rest)) = rest.split_at_checked(deflate_len) else {
            return Err(PayloadError::at(20, "member is longer than the payload"));
        };
        let Some((footer, _)) = rest.split_first_chunk::<FOOTER_LEN>() else {
            return Err(PayloadError::at(
                bytes.len(),
                "gzip member footer ends early",
            ));
        };
        if u32_at(footer, 4) != plain_len {
            return Err(PayloadError::at(
                HEADER_LEN + deflate_len + 4,
                "member's two plain lengths differ",
            ));
        }
        Ok(Member {
            deflate,
            plain_len: plain_len as usize,
            crc32: u32_at(footer, 0),
            len: HEADER_LEN + deflate_len + FOOTER_LEN,
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
