//! The manifest of a block: which files its plain bytes belong to.
//!
//! A sequence of items. An [`Entry`] introduces a name with its attributes; the [`Extent`]s that
//! follow it say where in that file the block's next plain bytes go. Every block introduces the
//! files it holds, so that any block can be restored, or salvaged, without the ones before it.
//! A [`Mark`] reports what happened to a file while it was read.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use crate::record::{Fields, Malformed};

/// Longest path or link target, in bytes (Linux `PATH_MAX` less the NUL).
pub const PATH_MAX: usize = 4095;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Dir,
    /// The target is stored as it was and may point anywhere; restore never follows it.
    Symlink {
        target: PathBuf,
    },
    /// Another name of the file at `target`, a path of the same set.
    HardLink {
        target: PathBuf,
    },
}

/// One name in a backup set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative, only normal components: decoding refuses anything else.
    pub path: PathBuf,
    pub kind: EntryKind,
    /// Whether this is the first block of the set that names the entry.
    pub first: bool,
    /// In a differential set: what no extent covers is as in the parent's file of this path, up to that
    /// file's length, instead of zeros.
    pub based: bool,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime_ns: i64,
    /// Bytes of the file, holes included; what no extent covers is zeros.
    pub len: u64,
}

/// A contiguous run of a file's bytes; belongs to the entry before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    pub len: u32,
}

/// What a file did while it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MarkKind {
    Modified = 1,
    Shrunk = 2,
    Vanished = 3,
}

/// A file of this set that is not what the source held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub path: PathBuf,
    pub kind: MarkKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Entry(Entry),
    Extent(Extent),
    Mark(Mark),
}

const TAG_ENTRY: u8 = 1;
const TAG_EXTENT: u8 = 2;
const TAG_MARK: u8 = 3;
const ENTRY_FIRST: u16 = 1;
const ENTRY_BASED: u16 = 2;

/// Bytes of an encoded extent.
pub const EXTENT_LEN: usize = 13;

fn put_path(out: &mut Vec<u8>, path: &Path) {
    let bytes = path.as_os_str().as_bytes();
    assert!(
        bytes.len() <= PATH_MAX,
        "a path of {} bytes passed the source's door",
        bytes.len()
    );
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

impl Item {
    /// Appends the item.
    ///
    /// # Panics
    /// If a path exceeds [`PATH_MAX`]: callers check names where they enter.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Item::Entry(e) => e.encode(out),
            Item::Extent(e) => {
                out.push(TAG_EXTENT);
                out.extend_from_slice(&e.offset.to_le_bytes());
                out.extend_from_slice(&e.len.to_le_bytes());
            }
            Item::Mark(m) => {
                out.push(TAG_MARK);
                out.push(m.kind as u8);
                put_path(out, &m.path);
            }
        }
    }
}

impl Entry {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(TAG_ENTRY);
        let (kind, target) = match &self.kind {
            EntryKind::File => (1, Path::new("")),
            EntryKind::Dir => (2, Path::new("")),
            EntryKind::Symlink { target } => (3, target.as_path()),
            EntryKind::HardLink { target } => (4, target.as_path()),
        };
        out.push(kind);
        let first = if self.first { ENTRY_FIRST } else { 0 };
        let based = if self.based { ENTRY_BASED } else { 0 };
        out.extend_from_slice(&(first | based).to_le_bytes());
        out.extend_from_slice(&self.mode.to_le_bytes());
        out.extend_from_slice(&self.uid.to_le_bytes());
        out.extend_from_slice(&self.gid.to_le_bytes());
        out.extend_from_slice(&self.mtime_ns.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        put_path(out, &self.path);
        put_path(out, target);
    }

    fn decode(f: &mut Fields) -> Result<Entry, Malformed> {
        let kind = f.u8()?;
        let flags = f.u16()?;
        let mode = f.u32()?;
        let uid = f.u32()?;
        let gid = f.u32()?;
        let mtime_ns = f.i64()?;
        let len = f.u64()?;
        let path = safe_path(f.run()?)?;
        let target = f.run()?;
        let kind = match (kind, target.is_empty()) {
            (1, true) => EntryKind::File,
            (2, true) => EntryKind::Dir,
            (3, false) if target.len() <= PATH_MAX && !target.contains(&0) => EntryKind::Symlink {
                target: OsStr::from_bytes(target).into(),
            },
            (4, false) => EntryKind::HardLink {
                target: safe_path(target)?,
            },
            _ => return Err(Malformed::Field),
        };
        // A file of 2^63 bytes or more exists on no file system and overflows offsets.
        let based = flags & ENTRY_BASED != 0;
        if flags & !(ENTRY_FIRST | ENTRY_BASED) != 0
            || mode > 0o7777
            || len > i64::MAX as u64
            || (based && kind != EntryKind::File)
        {
            return Err(Malformed::Field);
        }
        Ok(Entry {
            path,
            kind,
            first: flags & ENTRY_FIRST != 0,
            based,
            mode,
            uid,
            gid,
            mtime_ns,
            len,
        })
    }
}

/// Accepts only a relative path of normal components in canonical form.
pub fn safe_path(bytes: &[u8]) -> Result<PathBuf, Malformed> {
    let path = PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()));
    let normal = path.components().all(|c| matches!(c, Component::Normal(_)));
    // Comparing with the components' own spelling refuses "a//b", "a/./b" and "a/".
    let canonical = path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
    if bytes.is_empty() || bytes.len() > PATH_MAX || bytes.contains(&0) || !normal || !canonical {
        return Err(Malformed::Field);
    }
    Ok(path)
}

/// Reads a block's whole manifest. Checks that the extents add up to `plain_len` and lie inside their
/// files.
pub fn decode(bytes: &[u8], plain_len: u32) -> Result<Vec<Item>, Malformed> {
    let mut f = Fields(bytes);
    let mut items = Vec::new();
    let mut file_len = None;
    let mut plain = 0u64;
    while !f.0.is_empty() {
        items.push(match f.u8()? {
            TAG_ENTRY => {
                let entry = Entry::decode(&mut f)?;
                file_len = (entry.kind == EntryKind::File).then_some(entry.len);
                Item::Entry(entry)
            }
            TAG_EXTENT => {
                let extent = Extent {
                    offset: f.u64()?,
                    len: f.u32()?,
                };
                let end = extent
                    .offset
                    .checked_add(u64::from(extent.len))
                    .ok_or(Malformed::Field)?;
                if extent.len == 0 || file_len.is_none_or(|len| end > len) {
                    return Err(Malformed::Field);
                }
                plain += u64::from(extent.len);
                Item::Extent(extent)
            }
            TAG_MARK => Item::Mark(Mark {
                kind: match f.u8()? {
                    1 => MarkKind::Modified,
                    2 => MarkKind::Shrunk,
                    3 => MarkKind::Vanished,
                    _ => return Err(Malformed::Field),
                },
                path: safe_path(f.run()?)?,
            }),
            _ => return Err(Malformed::Field),
        });
    }
    if plain != u64::from(plain_len) {
        return Err(Malformed::Length);
    }
    Ok(items)
}
