//! Notes from a look-ahead to the calls that follow it: this same file is in that archive, durably.
//!
//! Invariants
//! - A note identifies the server's file by device, inode, length and time of last change. It does not match a file that
//!   was written, renamed or replaced since.
//! - In a directory, it identifies the archive's file in the same way: it does not match one that the archive no longer
//!   has, or that another disk in its place has.
//! - In a bucket, it is the store's acknowledgement, written down: it names the archive by server, bucket and prefix, and
//!   is believed for five minutes on the machine that wrote it, until that starts again. Asking the store each time would
//!   take longer than the server takes for a segment.
//! - Notes only save reading the file again; without one, or with a torn one, the bytes are compared. So they need no
//!   sync.
//! - A note is used once by the call that it is for. A call removes no note that it does not believe: a look-ahead may be
//!   writing it.
//!
//! Leaves to others: pushing, and comparing bytes (`archive.rs`, `ahead.rs`).

use std::io;
use std::path::{Path, PathBuf};

use longshore_io::{Clock, Dir, OpenHow, Stat, Via, boot_id, crc32c};
use longshore_pg::wal::WalName;

/// The suffix of a note's name.
pub(super) const ENDING: &str = ".pushed";
const FIELDS: usize = 8;
const LEN: usize = FIELDS * 8 + 4;
/// How long a store's acknowledgement is believed, in nanoseconds.
const BELIEVED_NS: i64 = 300_000_000_000;

/// The contents of a note. The first four fields identify the server's file, the others what it was compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PushedNote {
    fields: [u64; FIELDS],
    /// The last field is the time of an acknowledgement, which makes it no other note.
    expires: bool,
}

impl PushedNote {
    /// A note about a file as it was before it was pushed, and the archive's file as it is since.
    pub(super) fn new(file: &Stat, archived: &Stat) -> PushedNote {
        let [file, archived] = [file, archived].map(identity);
        PushedNote {
            fields: join(file, archived),
            expires: false,
        }
    }

    /// A note about a file as it was before it was pushed to the archive `origin` in a bucket, which has acknowledged it
    /// by now.
    pub(super) fn acknowledged(file: &Stat, origin: &str, clock: &dyn Clock) -> PushedNote {
        let boot = boot_id().unwrap_or_default();
        let by = [sum(origin), sum(&boot), u64::MAX, clock.wall_ns() as u64];
        PushedNote {
            fields: join(identity(file), by),
            expires: true,
        }
    }

    /// Writes the note for a file of this name.
    pub(super) fn leave(self, dir: &dyn Dir, place: &Path, name: &str) -> io::Result<()> {
        let path = path(place, name);
        match dir.remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut bytes = [0; LEN];
        for (place, field) in bytes.chunks_mut(8).zip(self.fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let crc = crc32c(&bytes[..LEN - 4]);
        bytes[LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        // Programs that walk through the server's directory as its user, as `pg_rewind` does, have to read it.
        let file = dir.create_for_its_owner(&path)?;
        file.write_all_at(&bytes, 0, Via::Cache)
    }

    /// Whether this same note exists for the name, or, of an acknowledgement, one that is still believed.
    pub(super) fn is_left(self, dir: &dyn Dir, place: &Path, name: &str) -> bool {
        let mut bytes = [0; LEN];
        let read = dir
            .open(&path(place, name), OpenHow::Read)
            .and_then(|file| file.read_exact_at(&mut bytes, 0, Via::Cache));
        let crc = crc32c(&bytes[..LEN - 4]).to_le_bytes();
        if read.is_err() || bytes[LEN - 4..] != crc {
            return false;
        }
        let mut left = [0; FIELDS];
        for (field, bytes) in left.iter_mut().zip(bytes.chunks_exact(8)) {
            *field = bytes
                .iter()
                .rev()
                .fold(0, |sum, b| sum << 8 | u64::from(*b));
        }
        let (time, rest) = (FIELDS - 1, ..FIELDS - 1);
        match self.expires {
            false => left == self.fields,
            true => {
                let age_ns = (self.fields[time] as i64).checked_sub(left[time] as i64);
                left[rest] == self.fields[rest]
                    && age_ns.is_some_and(|age| (0..=BELIEVED_NS).contains(&age))
            }
        }
    }

    /// Like [`PushedNote::is_left`], and removes that note.
    pub(super) fn was_left(self, dir: &dyn Dir, place: &Path, name: &str) -> bool {
        let left = self.is_left(dir, place, name);
        if left {
            // If this cannot be removed now, the next look-ahead removes it.
            let _gone = dir.remove_file(&path(place, name));
        }
        left
    }
}

/// Whether both are attributes of one file that has not changed in between.
pub(super) fn is_same_file(one: &Stat, other: &Stat) -> bool {
    identity(one) == identity(other)
}

fn identity(stat: &Stat) -> [u64; 4] {
    [stat.dev, stat.ino, stat.len, stat.ctime_ns as u64]
}

fn join(file: [u64; 4], other: [u64; 4]) -> [u64; FIELDS] {
    let mut fields = [0; FIELDS];
    fields[..4].copy_from_slice(&file);
    fields[4..].copy_from_slice(&other);
    fields
}

/// Two checksums of a text, which differ where one of them would agree by chance.
fn sum(text: &str) -> u64 {
    let (one, other) = (crc32c(text.as_bytes()), text.bytes().rev());
    u64::from(one) << 32 | u64::from(crc32c(&other.collect::<Vec<u8>>()))
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
    use std::time::Duration;

    use super::*;
    use longshore_io::{SimClock, SimDisk, Storage};

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
        let note = PushedNote::new(&stat(&*a), &stat(&*c));
        let left = |other: PushedNote| {
            note.leave(&*a, Path::new(""), "n").unwrap();
            note.leave(&*a, Path::new(""), "n").unwrap();
            other.was_left(&*a, Path::new(""), "n")
        };
        assert!(left(note));
        assert!(!note.was_left(&*a, Path::new(""), "n"), "it was taken");
        assert!(!left(PushedNote::new(&stat(&*b), &stat(&*c))));
        assert!(!left(PushedNote::new(&stat(&*a), &stat(&*b))));
        disk.write_file("/a/file", b"y").unwrap();
        assert!(!left(PushedNote::new(&stat(&*a), &stat(&*c))));
        let note = PushedNote::new(&stat(&*a), &stat(&*c));
        note.leave(&*a, Path::new(""), "n").unwrap();
        disk.write_file("/c/file", b"another").unwrap();
        let changed = PushedNote::new(&stat(&*a), &stat(&*c));
        assert!(!changed.is_left(&*a, Path::new(""), "n"));
        disk.write_file("/a/n.pushed", b"torn").unwrap();
        assert!(!note.was_left(&*a, Path::new(""), "n"));
    }

    /// Goal: an acknowledgement is believed for five minutes, for the same file and the same archive.
    #[test]
    fn an_acknowledgement_is_believed_for_a_while_and_for_one_archive() {
        let disk = SimDisk::new(1);
        disk.write_file("/a/file", b"x").unwrap();
        disk.write_file("/a/other", b"x").unwrap();
        let dir = disk.dir(Path::new("/a")).unwrap();
        let stat = |name: &str| dir.stat(Path::new(name)).unwrap();
        let clock = SimClock::new(0);
        let (here, there) = ("https://one/bucket/wal", "https://two/bucket/wal");
        let note = |file: &str, origin: &str| PushedNote::acknowledged(&stat(file), origin, &clock);
        let is_left = |note: PushedNote| note.is_left(&*dir, Path::new(""), "n");
        note("file", here).leave(&*dir, Path::new(""), "n").unwrap();
        assert!(is_left(note("file", here)));
        assert!(!is_left(note("other", here)));
        assert!(!is_left(note("file", there)));
        assert!(!is_left(PushedNote::new(&stat("file"), &stat("other"))));
        clock.sleep(Duration::from_secs(299));
        assert!(is_left(note("file", here)));
        clock.sleep(Duration::from_secs(2));
        assert!(!is_left(note("file", here)), "it is too old");
        let ahead = SimClock::new(clock.wall_ns() + 1);
        let of_the_future = PushedNote::acknowledged(&stat("file"), here, &ahead);
        of_the_future.leave(&*dir, Path::new(""), "n").unwrap();
        assert!(!is_left(note("file", here)), "the clock was set back");
    }
}
