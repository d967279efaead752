//! Reading a payload within bounds.
//!
//! Invariants
//! - A cursor reads no byte beyond its end, whatever the bytes say.
//! - The plain bytes that a payload's streams promise together are bounded before any of them is decoded.
//! - Memory for them grows by [`Cursor::sized`] alone, and no further than the worker's bound.
//!
//! Leaves to others: what a number, a stream or a column means (`stream.rs`, `column.rs`).

use crate::PayloadError;

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

    /// Gives `room` this length. Its bytes are those that it had, or zeros.
    pub(super) fn sized(&mut self, room: &mut Vec<u8>, len: usize) -> Result<(), PayloadError> {
        let more = len.saturating_sub(room.capacity());
        if more == 0 {
            room.resize(len, 0);
            return Ok(());
        }
        let Some(left) = self.memory.checked_sub(more) else {
            self.lacks_memory = true;
            return Err(self.error("streams need more memory than a worker has"));
        };
        self.memory = left;
        // Freed first, and without what a vector takes in advance.
        *room = Vec::new();
        *room = vec![0; len];
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
