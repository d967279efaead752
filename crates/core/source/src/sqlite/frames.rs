//! Frames of a SQLite write-ahead log: their offsets, and the pages they hold.
//!
//! Source: SQLite file format, section 4. All numbers are big-endian.

pub(super) const LOG_HEADER_BYTES: u64 = 32;
pub(super) const FRAME_HEADER_BYTES: usize = 24;

/// The number at an offset; 0 after the end.
pub(super) fn be(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(four) => u32::from_be_bytes(*four),
        None => 0,
    }
}

/// The page in a frame of this log; `None`: a frame of another log, or not a frame.
pub(super) fn page_of(header: &[u8], salts: [u32; 2]) -> Option<u32> {
    let page = be(header, 0);
    (page != 0 && [be(header, 8), be(header, 12)] == salts).then_some(page)
}

pub(super) fn frame_offset(page_bytes: u64, frame: u32) -> u64 {
    LOG_HEADER_BYTES + u64::from(frame - 1) * (FRAME_HEADER_BYTES as u64 + page_bytes)
}
