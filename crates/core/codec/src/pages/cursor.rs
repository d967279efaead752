//! Reading a payload within bounds.
//!
//! Invariants
//! - A cursor reads no byte beyond its end, whatever the bytes say.
//! - The plain bytes that a payload's streams promise together are bounded before any of them is decoded.
//! - Memory for them grows by [`Cursor::sized`] alone, and no further than the worker's bound.
//!
//! Leaves to others: what a number, a stream or a column means (`stream.rs`, `column.rs`).

use std::ops::{Deref, DerefMut};

use crate::PayloadError;

/// Plain bytes of streams: memory that is filled from its start, and again for the next stream. To fill it with zeros each time
/// would cost as much as a copy.
#[derive(Default)]
pub(super) struct Bytes {
    bytes: Box<[u8]>,
    len: usize,
}

impl Bytes {
    /// Bytes that it holds, used or not.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Bytes {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

/// Reads a payload from its start to its end.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// How many more bytes the streams of this payload may decode to.
    allowance: usize,
    /// By how much more the decoder's memory may grow.
    memory: usize,
    lacks_memory: bool,
}

impl<'a> Cursor<'a> {
    /// Reads `bytes`, which decode to `allowance` bytes at most, with `memory` bytes more than the decoder has.
    pub(super) fn new(bytes: &'a [u8], allowance: usize, memory: usize) -> Cursor<'a> {
        Cursor {
            bytes,
            at: 0,
            allowance,
            memory,
            lacks_memory: false,
        }
    }

    /// Whether an error came from memory that was kept for other payloads.
    pub(super) fn lacks_memory(&self) -> bool {
        self.lacks_memory
    }

    /// Gives `room` this length. Its bytes are any that it had, or zeros.
    pub(super) fn sized(&mut self, room: &mut Bytes, len: usize) -> Result<(), PayloadError> {
        let more = len.saturating_sub(room.memory());
        if more == 0 {
            room.len = len;
            return Ok(());
        }
        let Some(left) = self.memory.checked_sub(more) else {
            self.lacks_memory = true;
            return Err(self.error("streams need more memory than a worker has"));
        };
        self.memory = left;
        // Freed first.
        *room = Bytes::default();
        room.bytes = vec![0; len].into();
        room.len = len;
        Ok(())
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Bytes that are not read yet.
    pub(super) fn rest(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn error(&self, what: &'static str) -> PayloadError {
        PayloadError::at(self.at, what)
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], PayloadError> {
        let Some(bytes) = self.bytes[self.at..].get(..len) else {
            return Err(PayloadError::at(self.bytes.len(), "payload ends early"));
        };
        self.at += len;
        Ok(bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, PayloadError> {
        Ok(self.take(1)?[0])
    }

    /// A number of at most four groups, which is below 2^28.
    pub(super) fn number(&mut self) -> Result<usize, PayloadError> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.error("a number has more than four bytes"))
    }

    /// A number of plain bytes, taken off the allowance.
    pub(super) fn promised(&mut self) -> Result<usize, PayloadError> {
        let len = self.number()?;
        self.charge(len)?;
        Ok(len)
    }

    /// Takes `len` plain bytes off the allowance.
    pub(super) fn charge(&mut self, len: usize) -> Result<(), PayloadError> {
        match self.allowance.checked_sub(len) {
            Some(left) => {
                self.allowance = left;
                Ok(())
            }
            None => Err(self.error("streams are longer than the buffer can need")),
        }
    }
}
