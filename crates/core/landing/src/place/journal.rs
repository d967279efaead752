//! The journal of a switch: every place that gets a new name, and what that name is.
//!
//! Invariants
//! - The journal has its name when it is whole and durable.
//! - A name is known by its number, its birth and its content's marks, so that a name of somebody else is not taken for ours.
//! - No mark is one that a rename changes: a switch renames what it has recorded, and taking it back does so again.
//!
//! Leaves to others: what the places are, and what goes back (`swap.rs`).

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longshore_io::{Dir, FileKind, OpenHow, Stat, Via};

use super::layout::{MOVING, MOVING_NEW};
use crate::locked_target::STAGING;

/// The first line.
const HEAD: &[u8] = b"longshore switch 2\n";
/// The last record: without it the journal is not whole.
const END: &[u8] = b"end";
/// The birth of a name on a file system that records none.
const NO_BIRTH: &str = "-";

/// A name that gets a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) place: PathBuf,
    ino: u64,
    /// Nanoseconds since the Unix epoch; `None`: the file system records none.
    birth_ns: Option<i64>,
    marks: Marks,
}

/// The content and the rights of a file, as far as its attributes tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Marks {
    len: u64,
    mtime_ns: i64,
    mode: u32,
    owner: (u32, u32),
}

impl Marks {
    fn of(stat: &Stat) -> Marks {
        Marks {
            len: stat.len,
            mtime_ns: stat.mtime_ns,
            mode: stat.mode,
            owner: (stat.uid, stat.gid),
        }
    }
}

impl Arrival {
    /// The arrival at `place` of what is staged as `name` and was found so.
    pub(super) fn of(dir: &dyn Dir, name: &Path, place: &Path, staged: &Stat) -> Arrival {
        Arrival {
            place: place.to_path_buf(),
            ino: staged.ino,
            birth_ns: birth(dir, name, staged),
            marks: Marks::of(staged),
        }
    }

    /// Whether `name` in `dir`, which was found so, is this file or directory, by this name or another.
    pub(super) fn is(&self, dir: &dyn Dir, name: &Path, found: &Stat) -> bool {
        self.ino == found.ino && self.birth_ns == birth(dir, name, found)
    }

    /// Whether a file has the content and the rights with which it arrived.
    pub(super) fn is_unchanged(&self, found: &Stat) -> bool {
        self.marks == Marks::of(found)
    }
}

/// A birth that cannot be asked for is as one that is not recorded: then the number decides.
fn birth(dir: &dyn Dir, name: &Path, found: &Stat) -> Option<i64> {
    match found.kind {
        FileKind::File | FileKind::Dir | FileKind::Symlink => dir.birth_ns(name).ok().flatten(),
        FileKind::Other => None,
    }
}

/// Writes the journal durably.
pub(super) fn write(dir: &dyn Dir, arrivals: &[Arrival]) -> io::Result<()> {
    let staging = Path::new(STAGING);
    let (new, name) = (staging.join(MOVING_NEW), staging.join(MOVING));
    let mut bytes = HEAD.to_vec();
    for one in arrivals {
        let Marks {
            len,
            mtime_ns,
            mode,
            owner: (uid, gid),
        } = one.marks;
        let birth = one.birth_ns.map(|ns| ns.to_string());
        let birth = birth.as_deref().unwrap_or(NO_BIRTH);
        let ino = one.ino;
        bytes.extend(format!("{ino} {birth} {len} {mtime_ns} {mode} {uid} {gid} ").as_bytes());
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
        let mut fields = record.splitn(8, |byte| *byte == b' ');
        let ino = number(&mut fields)?;
        let birth_ns = match text(&mut fields)? {
            NO_BIRTH => None,
            birth => Some(birth.parse().ok()?),
        };
        let marks = Marks {
            len: number(&mut fields)?,
            mtime_ns: number(&mut fields)?,
            mode: number(&mut fields)?,
            owner: (number(&mut fields)?, number(&mut fields)?),
        };
        let place = PathBuf::from(OsStr::from_bytes(fields.next()?));
        // Nothing outside the target is moved, whoever wrote the journal.
        longshore_media::manifest::safe_path(place.as_os_str().as_bytes()).ok()?;
        arrivals.push(Arrival {
            place,
            ino,
            birth_ns,
            marks,
        });
    }
    Some(arrivals)
}

fn text<'a>(fields: &mut impl Iterator<Item = &'a [u8]>) -> Option<&'a str> {
    std::str::from_utf8(fields.next()?).ok()
}

fn number<'a, T: std::str::FromStr>(fields: &mut impl Iterator<Item = &'a [u8]>) -> Option<T> {
    text(fields)?.parse().ok()
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
        let arrival = |name: &[u8], mtime_ns, birth_ns| Arrival {
            place: OsStr::from_bytes(name).into(),
            ino: u64::MAX,
            birth_ns,
            marks: Marks {
                len: 7,
                mtime_ns,
                mode: 0o644,
                owner: (1, u32::MAX),
            },
        };
        let all = [
            arrival(b"a b\n\xff", -5, None),
            arrival(b"etc/one", 0, Some(-1)),
            arrival(b"end", 1, Some(i64::MAX)),
        ];
        write(&*dir, &all).unwrap();
        assert_eq!(read(&*dir).unwrap().0, all);
        let name = Path::new("/d").join(STAGING).join(MOVING);
        let whole = disk.read_file(&name).unwrap();
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), None, "{len}");
        }
        for (name, is_read) in [("x", true), ("../x", false)] {
            let record = format!("1 - 1 1 1 1 1 {name}\0");
            let journal = [HEAD, record.as_bytes(), END].concat();
            assert_eq!(parse(&journal).is_some(), is_read, "{name}");
        }
    }
}
