//! Notes from a look-ahead to the calls that follow it: this same file is in that archive, durably.
//!
//! Invariants
//! - A note identifies both files, the server's and the archive's, by device, inode, length and time of last change. It
//!   does not match a file that was written, renamed or replaced since, nor one that the archive no longer has, or that
//!   another disk in its place has.
//! - Notes only save reading the file again; without one, or with a torn one, the bytes are compared. So they need no
//!   sync.
//! - A note is used once by the call that it is for.
//!
//! Leaves to others: pushing, and comparing bytes (`archive.rs`, `ahead.rs`).

use std::io;
use std::path::{Path, PathBuf};

use longshore_io::{Dir, OpenHow, Stat, Via, crc32c};
use longshore_pg::wal::WalName;

/// The suffix of a note's name.
pub(super) const ENDING: &str = ".pushed";
const LEN: usize = 68;

/// The contents of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note([u8; LEN]);

impl Note {
    /// A note about a file as it was before it was pushed, and the archive's file as it is since.
    pub(super) fn new(file: &Stat, archived: &Stat) -> Note {
        let fields = [file, archived]
            .map(|stat| [stat.dev, stat.ino, stat.len, stat.ctime_ns as u64])
            .concat();
        let mut bytes = [0; LEN];
        for (place, field) in bytes.chunks_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let crc = crc32c(&bytes[..LEN - 4]);
        bytes[LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        Note(bytes)
    }

    /// Writes the note for a file of this name.
    pub(super) fn leave(self, dir: &dyn Dir, place: &Path, name: &str) -> io::Result<()> {
        let path = path(place, name);
        match dir.remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = dir.open(&path, OpenHow::CreateNew)?;
        file.write_all_at(&self.0, 0, Via::Cache)
    }

    /// Whether this same note exists for the name.
    pub(super) fn is_left(self, dir: &dyn Dir, place: &Path, name: &str) -> bool {
        let mut bytes = [0; LEN];
        let read = dir
            .open(&path(place, name), OpenHow::Read)
            .and_then(|file| file.read_exact_at(&mut bytes, 0, Via::Cache));
        read.is_ok() && bytes == self.0
    }

    /// Like [`Note::is_left`], and removes the note.
    pub(super) fn was_left(self, dir: &dyn Dir, place: &Path, name: &str) -> bool {
        let left = self.is_left(dir, place, name);
        // If this cannot be removed now, the next look-ahead removes it.
        let _gone = dir.remove_file(&path(place, name));
        left
    }
}

/// Whether any note for the name is in this directory.
pub(super) fn is_there(place: &dyn Dir, name: &WalName) -> bool {
    place.stat(&path(Path::new(""), &name.to_string())).is_ok()
}

fn path(place: &Path, name: &str) -> PathBuf {
    place.join(format!("{name}{ENDING}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::{SimDisk, Storage};

    #[test]
    fn a_note_fits_only_the_unchanged_file_and_the_same_archive_and_only_once() {
        let disk = SimDisk::new(1);
        disk.write_file("/a/file", b"x").unwrap();
        disk.write_file("/b/file", b"x").unwrap();
        disk.write_file("/c/file", b"x").unwrap();
        let dir = |path: &str| disk.dir(Path::new(path)).unwrap();
        let (a, b, c) = (dir("/a"), dir("/b"), dir("/c"));
        let stat = |dir: &dyn Dir| dir.stat(Path::new("file")).unwrap();
        // The archive's file of that name is in `c`.
        let note = Note::new(&stat(&*a), &stat(&*c));
        let left = |other: Note| {
            note.leave(&*a, Path::new(""), "n").unwrap();
            note.leave(&*a, Path::new(""), "n").unwrap();
            other.was_left(&*a, Path::new(""), "n")
        };
        assert!(left(note));
        assert!(!note.was_left(&*a, Path::new(""), "n"), "it was taken");
        assert!(!left(Note::new(&stat(&*b), &stat(&*c))));
        assert!(!left(Note::new(&stat(&*a), &stat(&*b))));
        disk.write_file("/a/file", b"y").unwrap();
        assert!(!left(Note::new(&stat(&*a), &stat(&*c))));
        let note = Note::new(&stat(&*a), &stat(&*c));
        note.leave(&*a, Path::new(""), "n").unwrap();
        disk.write_file("/c/file", b"another").unwrap();
        let changed = Note::new(&stat(&*a), &stat(&*c));
        assert!(!changed.is_left(&*a, Path::new(""), "n"));
        disk.write_file("/a/n.pushed", b"torn").unwrap();
        assert!(!note.was_left(&*a, Path::new(""), "n"));
    }
}
