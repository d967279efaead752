//! The journal of a switch: every place that gets a new name, and what that name is.
//!
//! Invariants
//! - The journal has its name when it is whole and durable.
//! - A name is known by its number and its content's marks, so that a name of somebody else is not taken for ours.
//!
//! Leaves to others: what the places are, and what goes back (`swap.rs`).

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longshore_io::{Dir, OpenHow, Stat, Via};

use super::layout::{MOVING, MOVING_NEW};
use crate::locked_target::STAGING;

/// The first line.
const HEAD: &[u8] = b"longshore switch 1\n";
/// The last record: without it the journal is not whole.
const END: &[u8] = b"end";

/// A name that gets a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) place: PathBuf,
    ino: u64,
    len: u64,
    mtime_ns: i64,
}

impl Arrival {
    pub(super) fn of(place: &Path, staged: &Stat) -> Arrival {
        Arrival {
            place: place.to_path_buf(),
            ino: staged.ino,
            len: staged.len,
            mtime_ns: staged.mtime_ns,
        }
    }

    /// Whether it is this file or directory.
    pub(super) fn is(&self, found: &Stat) -> bool {
        self.ino == found.ino
    }

    /// Whether a file has the content with which it arrived.
    pub(super) fn is_unchanged(&self, found: &Stat) -> bool {
        (self.len, self.mtime_ns) == (found.len, found.mtime_ns)
    }
}

/// Writes the journal durably.
pub(super) fn write(dir: &dyn Dir, arrivals: &[Arrival]) -> io::Result<()> {
    let staging = Path::new(STAGING);
    let (new, name) = (staging.join(MOVING_NEW), staging.join(MOVING));
    let mut bytes = HEAD.to_vec();
    for one in arrivals {
        bytes.extend(format!("{} {} {} ", one.ino, one.len, one.mtime_ns).as_bytes());
        bytes.extend(one.place.as_os_str().as_bytes());
        bytes.push(0);
    }
    bytes.extend(END);
    let file = dir.open(&new, OpenHow::CreateNew)?;
    file.write_all_at(&bytes, 0, Via::Cache)?;
    file.sync()?;
    drop(file);
    dir.rename(&new, &name)?;
    dir.sync(staging)
}

/// The journal in the order of its arrivals, and when it was written (nanoseconds since the Unix epoch).
pub(super) fn read(dir: &dyn Dir) -> io::Result<(Vec<Arrival>, i64)> {
    let file = dir.open(&Path::new(STAGING).join(MOVING), OpenHow::Read)?;
    let stat = file.stat()?;
    let mut bytes = vec![0; usize::try_from(stat.len).map_err(|_| ErrorKind::InvalidData)?];
    file.read_exact_at(&mut bytes, 0, Via::Cache)?;
    let arrivals = parse(&bytes).ok_or(ErrorKind::InvalidData)?;
    Ok((arrivals, stat.ctime_ns))
}

fn parse(bytes: &[u8]) -> Option<Vec<Arrival>> {
    let records = bytes.strip_prefix(HEAD)?.strip_suffix(END)?;
    let records = records.split(|byte| *byte == 0);
    let mut arrivals = Vec::new();
    for record in records.filter(|record| !record.is_empty()) {
        let mut fields = record.splitn(4, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(fields.next()?).ok();
        let (ino, len, mtime) = (number()?, number()?, number()?);
        let place = PathBuf::from(OsStr::from_bytes(fields.next()?));
        // Nothing outside the target is moved, whoever wrote the journal.
        longshore_media::manifest::safe_path(place.as_os_str().as_bytes()).ok()?;
        arrivals.push(Arrival {
            place,
            ino: ino.parse().ok()?,
            len: len.parse().ok()?,
            mtime_ns: mtime.parse().ok()?,
        });
    }
    Some(arrivals)
}

#[cfg(test)]
mod tests {
    use longshore_io::{SimDisk, Storage};

    use super::*;

    #[test]
    fn a_journal_is_read_as_it_was_written_or_not_at_all() {
        let disk = SimDisk::new(1);
        disk.write_file(Path::new("/d").join(STAGING).join("lock"), b"")
            .unwrap();
        let dir = disk.dir(Path::new("/d")).unwrap();
        let arrival = |name: &[u8], mtime_ns| Arrival {
            place: OsStr::from_bytes(name).into(),
            ino: u64::MAX,
            len: 7,
            mtime_ns,
        };
        let all = [
            arrival(b"a b\n\xff", -5),
            arrival(b"etc/one", 0),
            arrival(b"end", 1),
        ];
        write(&*dir, &all).unwrap();
        assert_eq!(read(&*dir).unwrap().0, all);
        let name = Path::new("/d").join(STAGING).join(MOVING);
        let whole = disk.read_file(&name).unwrap();
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), None, "{len}");
        }
        let outside = [HEAD, b"1 1 1 ../x\0", END].concat();
        assert_eq!(parse(&outside), None);
    }
}
