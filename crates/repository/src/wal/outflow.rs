//! A file written from front to back, past the page cache.
//!
//! Who archives seldom reads the archive again soon, and memory full of other files' pages has to be cleared for each
//! page that goes through the cache. What is compressed is put where it is written from, so nothing is copied.
//!
//! Invariants
//! - Writes begin at multiples of [`ALIGN_BYTES`]; only the last one may end elsewhere.
//! - The buffer never grows.

use std::io;

use longshore_io::{ALIGN_BYTES, File, Via};

/// See the module.
pub(super) struct Outflow<'a> {
    file: &'a dyn File,
    buffer: &'a mut [u8],
    filled: usize,
    /// Where the buffer's first byte goes to.
    at: u64,
}

impl<'a> Outflow<'a> {
    /// From the file's start. The buffer holds the longest piece that is put at a time, and [`ALIGN_BYTES`] more: what
    /// cannot be written yet, as it does not fill a unit, stays before the next piece.
    pub(super) fn new(file: &'a dyn File, buffer: &'a mut [u8]) -> Outflow<'a> {
        Outflow {
            file,
            buffer,
            filled: 0,
            at: 0,
        }
    }

    /// Where the next bytes go: at least `len` of them. What is put there counts once it is
    /// [`Outflow::taken`].
    pub(super) fn space(&mut self, len: usize) -> io::Result<&mut [u8]> {
        if self.buffer.len() - self.filled < len {
            let whole = self.filled / ALIGN_BYTES * ALIGN_BYTES;
            self.file
                .write_all_at(&self.buffer[..whole], self.at, Via::Direct)?;
            self.buffer.copy_within(whole..self.filled, 0);
            self.filled -= whole;
            self.at += whole as u64;
        }
        Ok(&mut self.buffer[self.filled..])
    }

    /// The first `len` bytes of the space are the file's next.
    pub(super) fn taken(&mut self, len: usize) {
        self.filled += len;
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.space(bytes.len())?[..bytes.len()].copy_from_slice(bytes);
        self.taken(bytes.len());
        Ok(())
    }

    /// Writes the rest; gives the file's length in bytes. It is not durable yet.
    pub(super) fn finish(self) -> io::Result<u64> {
        self.file
            .write_all_at(&self.buffer[..self.filled], self.at, Via::Direct)?;
        Ok(self.at + self.filled as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longshore_io::SimDisk;
    use longshore_io::{OpenHow, Storage};
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
            let mut outflow = Outflow::new(&*file, &mut buffer);
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
