//! Members in QATzip's gzip-ext layout, as its hardware and its software write them, and the rules of its reader.
//!
//! Source: QATzip 1.3.1, `qatzip_gzip.c` (`qzGzipHeaderGen`, `qzGzipHeaderExt`, `qzGzipFooterGen`), `qatzip_sw.c`.
//!
//! Invariants
//! - The reader accepts only headers that QATzip's own reader accepts, and only members whose length and checksum are
//!   right.
//! - Nothing here is shared with the code under test: layout and checksum are written a second time.
//!
//! Leaves to others: when a member is made and how it is corrupted (`device.rs`).

use miniz_oxide::deflate::core::{self as deflate, CompressorOxide, TDEFLFlush, TDEFLStatus};
use miniz_oxide::inflate;

pub const HEADER_LEN: usize = 24;
pub const FOOTER_LEN: usize = 8;

/// The view of QATzip's reader of a header, and of the footer after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    pub plain_len: usize,
    pub deflate_len: usize,
    pub crc32: u32,
}

impl Member {
    pub fn len(&self) -> usize {
        HEADER_LEN + self.deflate_len + FOOTER_LEN
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    /// The member at the start of `bytes`, by `qzGzipHeaderExt`: extra field of 12, subfield of 8, system 255, XFL 0, 2 or 4.
    pub fn read(bytes: &[u8]) -> Option<Member> {
        let header = bytes.get(..HEADER_LEN)?;
        let strict = header[..3] == [0x1f, 0x8b, 8]
            && header[3] == 4
            && matches!(header[8], 0 | 2 | 4)
            && header[9] == 255
            && header[10..12] == [12, 0]
            && header[12..16] == [b'Q', b'Z', 8, 0];
        let deflate_len = u32_at(header, 20) as usize;
        let footer_at = HEADER_LEN.checked_add(deflate_len)?;
        let footer = bytes.get(footer_at..footer_at.checked_add(FOOTER_LEN)?)?;
        let member = Member {
            plain_len: u32_at(header, 16) as usize,
            deflate_len,
            crc32: u32_at(footer, 0),
        };
        (strict && u32_at(footer, 4) == u32_at(header, 16)).then_some(member)
    }
}

/// The plain bytes of whole members that fill `bytes`; `None` if QATzip would refuse them.
pub fn read_all(bytes: &[u8]) -> Option<Vec<u8>> {
    let (mut at, mut plain) = (0, Vec::new());
    while at < bytes.len() {
        let member = Member::read(&bytes[at..])?;
        let body = &bytes[at + HEADER_LEN..at + HEADER_LEN + member.deflate_len];
        let part = inflate::decompress_to_vec_with_limit(body, member.plain_len).ok()?;
        if part.len() != member.plain_len || crc32(&part) != member.crc32 {
            return None;
        }
        plain.extend(part);
        at += member.len();
    }
    Some(plain)
}

/// One member as the hardware path writes it: `plain` in one stream.
pub fn hardware(plain: &[u8], level: u32) -> Vec<u8> {
    let mut body = Vec::new();
    compress(&mut compressor(level), plain, TDEFLFlush::Finish, &mut body);
    const NO_HINT: u8 = 0;
    wrap(plain, &body, NO_HINT)
}

/// One member as the software path writes it: a full flush after each chunk but the last.
pub fn software(plain: &[u8], chunk_len: usize, level: u32) -> Vec<u8> {
    let (mut state, mut body) = (compressor(level), Vec::new());
    let count = plain.len().div_ceil(chunk_len);
    for (i, chunk) in plain.chunks(chunk_len).enumerate() {
        let flush = if i + 1 == count {
            TDEFLFlush::Finish
        } else {
            TDEFLFlush::Full
        };
        compress(&mut state, chunk, flush, &mut body);
    }
    // zlib's `deflate.c`: 2 at level 9, 4 below level 2.
    let hint = match level {
        9.. => 2,
        ..2 => 4,
        _ => 0,
    };
    wrap(plain, &body, hint)
}

fn compressor(level: u32) -> CompressorOxide {
    const RAW: i32 = -15;
    let level = i32::try_from(level.min(9)).unwrap_or(9);
    CompressorOxide::new(deflate::create_comp_flags_from_zip_params(level, RAW, 0))
}

fn compress(state: &mut CompressorOxide, mut plain: &[u8], flush: TDEFLFlush, out: &mut Vec<u8>) {
    let mut room = vec![0; 64 << 10];
    loop {
        let (status, taken, made) = deflate::compress(state, plain, &mut room, flush);
        out.extend(&room[..made]);
        plain = &plain[taken..];
        let ended = match flush {
            TDEFLFlush::Finish => status == TDEFLStatus::Done,
            _ => plain.is_empty() && made < room.len(),
        };
        if ended {
            return;
        }
        assert!(
            matches!(status, TDEFLStatus::Okay),
            "miniz_oxide does not compress: {status:?}"
        );
    }
}

fn wrap(plain: &[u8], body: &[u8], hint: u8) -> Vec<u8> {
    let mut member = vec![
        0x1f, 0x8b, 8, 4, 0, 0, 0, 0, hint, 255, 12, 0, b'Q', b'Z', 8, 0,
    ];
    member.extend((plain.len() as u32).to_le_bytes());
    member.extend((body.len() as u32).to_le_bytes());
    member.extend(body);
    member.extend(crc32(plain).to_le_bytes());
    member.extend((plain.len() as u32).to_le_bytes());
    member
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// gzip's CRC-32, byte by byte from a table: independent of the code under test.
pub fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let (mut value, mut bit) = (i as u32, 0);
            while bit < 8 {
                value = if value & 1 == 1 {
                    0xedb8_8320 ^ (value >> 1)
                } else {
                    value >> 1
                };
                bit += 1;
            }
            table[i] = value;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, byte| {
        TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ (crc >> 8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Vec<u8> {
        (0..50_000_u32)
            .flat_map(|i| format!("row {} of {}; ", i % 977, i / 3).into_bytes())
            .collect()
    }

    #[test]
    fn the_checksum_is_gzips() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn both_ways_of_writing_are_read_back_and_one_wrong_byte_is_not() {
        let plain = text();
        let hardware: Vec<u8> = plain.chunks(65_536).flat_map(|c| hardware(c, 1)).collect();
        let software = software(&plain, 65_536, 1);
        for members in [hardware, software] {
            assert_eq!(read_all(&members).as_ref(), Some(&plain));
            for at in [0, 3, 8, 9, 10, 13, 14, 16, 20, 5000, members.len() - 1] {
                let mut wrong = members.clone();
                wrong[at] ^= 1;
                assert_eq!(read_all(&wrong), None, "byte {at}");
            }
        }
    }
}
