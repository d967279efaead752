//! A file written sequentially, in long pieces.
//!
//! Compressed data is placed directly in the buffer from which it is written, so nothing is copied.
//!
//! Invariants
//! - Writes begin at multiples of [`ALIGN_BYTES`]; only the last one may end elsewhere.
//! - The buffer never grows.
//!
//! Leaves to others: a buffer that holds the longest piece and a unit more (the caller's duty), and making the file
//! durable.

use std::io;

use longshore_io::ALIGN_BYTES;

/// Writes bytes at an offset.
pub(super) type Sink<'a> = dyn FnMut(&[u8], u64) -> io::Result<()> + 'a;

/// See the module.
pub(super) struct Outflow<'a> {
    file: &'a mut Sink<'a>,
    buffer: &'a mut [u8],
    filled: usize,
    /// File offset of the buffer's first byte.
    at: u64,
}

impl<'a> Outflow<'a> {
    /// Starts at the file's beginning. The buffer must hold the longest piece that is put at a time, and
    /// [`ALIGN_BYTES`] more: bytes that do not fill a unit stay in it until the next piece.
    pub(super) fn new(file: &'a mut Sink<'a>, buffer: &'a mut [u8]) -> Outflow<'a> {
        Outflow {
            file,
            buffer,
            filled: 0,
            at: 0,
        }
    }

    /// The buffer for the next bytes: at least `len` of them. Bytes put there count after a call of
    /// [`Outflow::taken`].
    pub(super) fn space(&mut self, len: usize) -> io::Result<&mut [u8]> {
        if self.buffer.len() - self.filled < len {
            let whole = self.filled / ALIGN_BYTES * ALIGN_BYTES;
            (self.file)(&self.buffer[..whole], self.at)?;
            self.buffer.copy_within(whole..self.filled, 0);
            self.filled -= whole;
            self.at += whole as u64;
        }
        Ok(&mut self.buffer[self.filled..])
    }

    /// The first `len` bytes of the space are the file's next bytes.
    pub(super) fn taken(&mut self, len: usize) {
        self.filled += len;
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.space(bytes.len())?[..bytes.len()].copy_from_slice(bytes);
        self.taken(bytes.len());
        Ok(())
    }

    /// Writes the rest; returns the file's length in bytes. The file is not durable yet.
    pub(super) fn finish(self) -> io::Result<u64> {
        (self.file)(&self.buffer[..self.filled], self.at)?;
        Ok(self.at + self.filled as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longshore_io::{OpenHow, SimDisk, Storage, Via};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_file_is_the_pieces_one_after_the_other(
            lens in prop::collection::vec(0..3 * ALIGN_BYTES, 0..20),
        ) {
            let disk = SimDisk::new(1);
            let dir = disk.dir(Path::new("/")).unwrap();
            let file = dir.open(Path::new("f"), OpenHow::CreateNew).unwrap();
            let mut buffer = vec![0; 4 * ALIGN_BYTES];
            let mut sink = |bytes: &[u8], at: u64| file.write_all_at(bytes, at, Via::Direct);
            let mut outflow = Outflow::new(&mut sink, &mut buffer);
            let mut wanted = Vec::new();
            for (number, len) in lens.iter().enumerate() {
                let piece = vec![number as u8 + 1; *len];
                outflow.put(&piece).unwrap();
                assert_eq!(outflow.at % ALIGN_BYTES as u64, 0);
                wanted.extend(piece);
            }
            assert_eq!(outflow.finish().unwrap(), wanted.len() as u64);
            let mut found = vec![0; wanted.len() + 1];
            assert_eq!(file.read_full_at(&mut found, 0, Via::Cache).unwrap(), wanted.len());
            assert!(found[..wanted.len()] == wanted);
        }
    }
}
