//! The manifest of a block: the files that its plain bytes belong to.
//!
//! A manifest is a sequence of items. An [`Entry`] introduces a name with its attributes; the [`Extent`]s after it say
//! where in that file the block's next plain bytes go. A [`Mark`] reports what happened to a file while it was read.
//! [`Sums`] identify the contents of a file's pages, so that a later set can tell which pages differ.
//!
//! Invariants
//! - Every block introduces the files it holds, so any block can be restored, or salvaged, without the blocks before
//!   it.
//!
//! Leaves to others: the bytes of files (`block.rs`), and the index of a set (`index.rs`).

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use longshore_io::{XATTRS_BYTES_MAX, Xattr};

use crate::record::{Fields, RecordError};

/// Longest path or link target, in bytes (Linux `PATH_MAX` less the NUL).
pub const PATH_MAX: usize = 4095;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Dir,
    /// The target is stored unchanged and may point anywhere; a restore never follows it.
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
    /// Relative, with normal components only: decoding refuses any other path.
    pub path: PathBuf,
    pub kind: EntryKind,
    /// Whether this is the first block of the set that names the entry.
    pub first: bool,
    /// In a differential set: ranges without an extent are as in the parent's file of this path, up to the parent
    /// file's length, instead of zeros.
    pub based: bool,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime_ns: i64,
    /// Length of the file in bytes, holes included; ranges without an extent are zeros.
    pub len: u64,
    /// Extended attributes, each name once; stored with the first entry of the name, empty in later ones.
    pub xattrs: Vec<Xattr>,
}

/// A contiguous run of a file's bytes; belongs to the preceding entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    pub len: u32,
}

/// How a file changed while it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MarkKind {
    Modified = 1,
    Shrunk = 2,
    Vanished = 3,
}

/// A file of this set that differs from the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub path: PathBuf,
    pub kind: MarkKind,
}

/// Sums of consecutive pages of a file ([`longshore_io::SumKey`], with the set's key), whether or not the set holds
/// the pages. The last page ends with the file. Belongs to the preceding entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sums {
    /// File offset of the first page: a multiple of `page_bytes`.
    pub offset: u64,
    pub page_bytes: u32,
    /// At least one; none is 0.
    pub sums: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Entry(Entry),
    Extent(Extent),
    Mark(Mark),
    Sums(Sums),
}

const TAG_ENTRY: u8 = 1;
const TAG_EXTENT: u8 = 2;
const TAG_MARK: u8 = 3;
const TAG_CHECK: u8 = 4;
const TAG_ATTRIBUTE: u8 = 6;
const TAG_SUMS: u8 = 5;
const ENTRY_FIRST: u16 = 1;
const ENTRY_BASED: u16 = 2;

/// Bytes of an encoded Check.
pub const CHECK_LEN: usize = 5;
/// Bytes of an encoded extent.
pub const EXTENT_LEN: usize = 13;
/// Bytes of an encoded [`Sums`] before its sums.
pub const SUMS_HEAD_LEN: usize = 15;
/// Bytes of a sum.
pub const SUM_LEN: usize = 8;
/// The smallest page size; page sizes are powers of two.
pub const SUM_PAGE_MIN: u32 = 512;
pub const SUM_PAGE_MAX: u32 = 64 << 10;

/// Bytes of encoded [`Sums`] of `pages` pages.
pub fn sums_len(pages: usize) -> usize {
    SUMS_HEAD_LEN + pages * SUM_LEN
}

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
    /// If a path exceeds [`PATH_MAX`]: callers check names on input.
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
            Item::Sums(s) => s.encode(out),
        }
    }
}

impl Sums {
    /// Appends the item.
    ///
    /// # Panics
    /// If there are more sums than fit in a manifest.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let count = u16::try_from(self.sums.len()).expect("more sums than a manifest holds");
        out.push(TAG_SUMS);
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.page_bytes.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        for sum in &self.sums {
            out.extend_from_slice(&sum.to_le_bytes());
        }
    }

    fn decode(f: &mut Fields, file_len: u64) -> Result<Sums, RecordError> {
        let offset = f.u64()?;
        let page_bytes = f.u32()?;
        let count = usize::from(f.u16()?);
        let (words, _) = f.bytes(count * SUM_LEN)?.as_chunks();
        let sums: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let pages = SUM_PAGE_MIN..=SUM_PAGE_MAX;
        let page = u64::from(page_bytes);
        if !pages.contains(&page_bytes)
            || !page_bytes.is_power_of_two()
            || !offset.is_multiple_of(page)
            || sums.is_empty()
            || sums.contains(&0)
            || offset
                .checked_add((count as u64 - 1) * page)
                .is_none_or(|last| last >= file_len)
        {
            return Err(RecordError::Field);
        }
        Ok(Sums {
            offset,
            page_bytes,
            sums,
        })
    }
}

impl Entry {
    /// Appends the entry, and its extended attributes if this is the first entry of the name.
    ///
    /// # Panics
    /// If a path exceeds [`PATH_MAX`], or an attribute's name or value exceeds the system's limit.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_name(out);
        if self.first {
            self.encode_attributes(out);
        }
    }

    /// Appends the extended attributes.
    pub(crate) fn encode_attributes(&self, out: &mut Vec<u8>) {
        for xattr in &self.xattrs {
            out.push(TAG_ATTRIBUTE);
            out.push(u8::try_from(xattr.name.len()).expect("a name passed the source's door"));
            let len = u32::try_from(xattr.value.len()).expect("a value passed the source's door");
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(&xattr.name);
            out.extend_from_slice(&xattr.value);
        }
    }

    fn encode_name(&self, out: &mut Vec<u8>) {
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

    fn decode(f: &mut Fields) -> Result<Entry, RecordError> {
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
            _ => return Err(RecordError::Field),
        };
        // No file system has files of 2^63 bytes or more; they would overflow offsets.
        let based = flags & ENTRY_BASED != 0;
        if flags & !(ENTRY_FIRST | ENTRY_BASED) != 0
            || mode > 0o7777
            || len > i64::MAX as u64
            || (based && kind != EntryKind::File)
        {
            return Err(RecordError::Field);
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
            xattrs: Vec::new(),
        })
    }

    /// Decodes attributes up to the end.
    pub(crate) fn decode_attributes(&mut self, f: &mut Fields) -> Result<(), RecordError> {
        while !f.0.is_empty() {
            match f.u8()? {
                TAG_ATTRIBUTE => self.decode_attribute(f)?,
                _ => return Err(RecordError::Field),
            }
        }
        Ok(())
    }

    /// Decodes the attribute after the tag.
    fn decode_attribute(&mut self, f: &mut Fields) -> Result<(), RecordError> {
        let name_len = f.u8()?;
        let value_len = f.u32()?;
        let xattr = Xattr {
            name: f.bytes(usize::from(name_len))?.to_owned(),
            value: f.bytes(value_len as usize)?.to_owned(),
        };
        // A hard link has its file's attributes.
        let fits = self.first
            && !matches!(self.kind, EntryKind::HardLink { .. })
            && Xattr::is_kept(&xattr.name)
            // In ascending order, so that each name occurs once.
            && self.xattrs.last().is_none_or(|last| last.name < xattr.name);
        self.xattrs.push(xattr);
        let bytes: usize = self.xattrs.iter().map(Xattr::bytes).sum();
        match fits && bytes <= XATTRS_BYTES_MAX {
            true => Ok(()),
            false => Err(RecordError::Field),
        }
    }
}

/// Appends a Check, the last item of an encrypted manifest: the CRC-32C of the block's plain bytes.
pub fn put_check(plain_crc: u32, out: &mut Vec<u8>) {
    out.push(TAG_CHECK);
    out.extend_from_slice(&plain_crc.to_le_bytes());
}

/// Takes the Check from the end of a decrypted manifest.
pub fn take_check(manifest: &mut Vec<u8>) -> Result<u32, RecordError> {
    let at = manifest.len().checked_sub(CHECK_LEN);
    let at = at.ok_or(RecordError::Length)?;
    let mut f = Fields(&manifest[at..]);
    if f.u8()? != TAG_CHECK {
        return Err(RecordError::Field);
    }
    let plain_crc = f.u32()?;
    manifest.truncate(at);
    Ok(plain_crc)
}

/// Accepts only a relative path of normal components in canonical form.
pub fn safe_path(bytes: &[u8]) -> Result<PathBuf, RecordError> {
    let path = PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()));
    let normal = path.components().all(|c| matches!(c, Component::Normal(_)));
    // The comparison with the components' own spelling refuses "a//b", "a/./b" and "a/".
    let canonical = path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
    if bytes.is_empty() || bytes.len() > PATH_MAX || bytes.contains(&0) || !normal || !canonical {
        return Err(RecordError::Field);
    }
    Ok(path)
}

/// Like [`decode`], for a block of a set: refuses attributes in a set whose header does not announce them.
pub fn decode_with(
    attributes: bool,
    bytes: &[u8],
    plain_len: u32,
) -> Result<Vec<Item>, RecordError> {
    let items = decode(bytes, plain_len)?;
    let has_attributes = |item: &Item| matches!(item, Item::Entry(e) if !e.xattrs.is_empty());
    match !attributes && items.iter().any(has_attributes) {
        true => Err(RecordError::Field),
        false => Ok(items),
    }
}

/// Decodes a block's whole manifest. Checks that the extents add up to `plain_len` and lie inside their files.
pub fn decode(bytes: &[u8], plain_len: u32) -> Result<Vec<Item>, RecordError> {
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
                    .ok_or(RecordError::Field)?;
                if extent.len == 0 || file_len.is_none_or(|len| end > len) {
                    return Err(RecordError::Field);
                }
                plain += u64::from(extent.len);
                Item::Extent(extent)
            }
            TAG_ATTRIBUTE => match items.last_mut() {
                // Attributes precede the extents.
                Some(Item::Entry(entry)) => {
                    entry.decode_attribute(&mut f)?;
                    continue;
                }
                _ => return Err(RecordError::Field),
            },
            TAG_SUMS => Item::Sums(Sums::decode(&mut f, file_len.ok_or(RecordError::Field)?)?),
            TAG_MARK => Item::Mark(Mark {
                kind: match f.u8()? {
                    1 => MarkKind::Modified,
                    2 => MarkKind::Shrunk,
                    3 => MarkKind::Vanished,
                    _ => return Err(RecordError::Field),
                },
                path: safe_path(f.run()?)?,
            }),
            _ => return Err(RecordError::Field),
        });
    }
    if plain != u64::from(plain_len) {
        return Err(RecordError::Length);
    }
    Ok(items)
}
