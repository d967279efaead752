//! The bytes of a simulated file: pieces, and holes where there is no piece.
//!
//! Pages are shared between copies until one of them writes, so that a disk image costs little.
//!
//! Invariants
//! - Bytes after the end of the file are zero: a file that is cut and grows again reads as zeros there.
//! - Disk space is counted by pieces that exist; a hole uses none.
//! - A torn write loses whole sectors of the disk, never part of one.
//!
//! Leaves to others: which changes are durable (`state.rs`), and which of them a power cut keeps (`images.rs`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The unit that a power cut keeps or loses as a whole, in bytes.
pub(super) const SECTOR: u64 = 512;

pub(super) const PIECE: u64 = 4096;

type Piece = Arc<[u8; PIECE as usize]>;

#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    len: u64,
    pieces: BTreeMap<u64, Piece>,
}

/// A change of content that is not durable yet.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { offset: u64, bytes: Arc<[u8]> },
    SetLen(u64),
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of disk space that the pieces use.
    pub(super) fn used_bytes(&self) -> u64 {
        self.pieces.len() as u64 * PIECE
    }

    /// Bytes that `write` would add to `used_bytes`.
    pub(super) fn growth_bytes(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let pieces = offset / PIECE..(offset + len).div_ceil(PIECE);
        let present = self.pieces.range(pieces.clone()).count() as u64;
        (pieces.end - pieces.start - present) * PIECE
    }

    /// Fills `buf` up to the end of the file and returns the number of bytes.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let len = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        for (number, at, part) in pieces(offset, len) {
            match self.pieces.get(&number) {
                Some(piece) => buf[part.clone()].copy_from_slice(&piece[at..at + part.len()]),
                None => buf[part].fill(0),
            }
        }
        len
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        for (number, at, part) in pieces(offset, bytes.len()) {
            let piece = self
                .pieces
                .entry(number)
                .or_insert_with(|| Arc::new([0; PIECE as usize]));
            Arc::make_mut(piece)[at..at + part.len()].copy_from_slice(&bytes[part]);
        }
        if !bytes.is_empty() {
            self.len = self.len.max(offset + bytes.len() as u64);
        }
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pieces.split_off(&len.div_ceil(PIECE));
            // Bytes after the new end must read as zeros if the file grows again.
            if let Some(piece) = self.pieces.get_mut(&(len / PIECE)) {
                Arc::make_mut(piece)[(len % PIECE) as usize..].fill(0);
            }
        }
        self.len = len;
    }

    pub(super) fn next_data(&self, offset: u64) -> Option<Range<u64>> {
        let mut pieces = self
            .pieces
            .range(offset / PIECE..)
            .map(|(number, _)| *number)
            .peekable();
        let first = pieces.next()?;
        let mut last = first;
        while pieces.next_if_eq(&(last + 1)).is_some() {
            last += 1;
        }
        let range = (first * PIECE).max(offset)..((last + 1) * PIECE).min(self.len);
        (range.start < range.end).then_some(range)
    }

    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, bytes } => self.write(bytes, *offset),
            Change::SetLen(len) => self.set_len(*len),
        }
    }

    /// Applies a write of which only some sectors reached the disk.
    pub(super) fn apply_torn(&mut self, offset: u64, bytes: &[u8], mut kept: impl FnMut() -> bool) {
        let mut start = 0;
        while start < bytes.len() {
            let at = offset + start as u64;
            let end = bytes.len().min(start + (SECTOR - at % SECTOR) as usize);
            if kept() {
                self.write(&bytes[start..end], at);
            }
            start = end;
        }
    }
}

/// Cuts a range of a file at piece boundaries: piece number, offset in the piece, range of the buffer.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let in_piece = (at % PIECE) as usize;
        let part = done..len.min(done + PIECE as usize - in_piece);
        done = part.end;
        Some((at / PIECE, in_piece, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(content: &Content) -> Vec<u8> {
        let mut bytes = vec![1; content.len() as usize];
        assert_eq!(content.read(&mut bytes, 0), bytes.len());
        bytes
    }

    #[test]
    fn writes_cuts_and_growth_agree_with_a_plain_vector() {
        let (mut content, mut model) = (Content::default(), Vec::new());
        for i in 0u64..400 {
            let offset = (i * 7919) % 20_000;
            if i % 5 == 4 {
                content.set_len(offset);
                model.resize(offset as usize, 0);
            } else {
                let bytes = vec![i as u8 | 1; (i * 131 % 9000) as usize + 1];
                content.write(&bytes, offset);
                let end = offset as usize + bytes.len();
                model.resize(model.len().max(end), 0);
                model[offset as usize..end].copy_from_slice(&bytes);
            }
            assert_eq!(read_all(&content), model, "after change {i}");
        }
    }

    #[test]
    fn holes_are_found_between_pages_with_data() {
        let mut content = Content::default();
        content.write(b"x", PIECE + 5);
        content.write(b"y", 2 * PIECE);
        content.write(b"z", 9 * PIECE);
        assert_eq!(content.next_data(0), Some(PIECE..3 * PIECE));
        assert_eq!(content.next_data(PIECE + 7), Some(PIECE + 7..3 * PIECE));
        assert_eq!(content.next_data(3 * PIECE), Some(9 * PIECE..9 * PIECE + 1));
        assert_eq!(content.next_data(9 * PIECE + 1), None);
        content.set_len(100 * PIECE);
        assert_eq!(content.next_data(10 * PIECE), None);
    }

    #[test]
    fn growth_counts_only_pages_that_are_not_there() {
        let mut content = Content::default();
        content.write(&[1; 10], PIECE);
        assert_eq!(content.growth_bytes(0, 3 * PIECE), 2 * PIECE);
        assert_eq!(content.growth_bytes(PIECE + 100, 5), 0);
        assert_eq!(content.growth_bytes(0, 0), 0);
        assert_eq!(content.used_bytes(), PIECE);
    }

    #[test]
    fn a_torn_write_is_torn_at_sectors_of_the_disk() {
        let mut content = Content::default();
        content.write(&[1; 2000], 0);
        let mut flip = false;
        content.apply_torn(300, &[2; 1000], || std::mem::replace(&mut flip, true));
        let bytes = read_all(&content);
        assert_eq!(bytes[..512], [1; 512]);
        assert_eq!(bytes[512..1300], [2; 788]);
        assert_eq!(bytes[1300..], [1; 700]);
    }
}
