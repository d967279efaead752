//! Goal: the text of [`Source`] and [`Content`] as a test of any source: it is read as a backup reads it, and more.
//! Method: every entry is checked and every file read in pieces of several sizes, by every way and from several
//! threads; the results must be the same bytes.
//! Not covered: whether the bytes are the right ones, which the caller compares.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use longshore_io::Via;
use longshore_source::{Change, Content, Entry, EntryKind, Source, SourceSummary};

/// The content that a source held.
pub struct Kept {
    pub kinds: BTreeMap<PathBuf, EntryKind>,
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    pub changes: Vec<(PathBuf, Change)>,
    pub summary: SourceSummary,
}

/// Reads all of a source in every way and checks on the way whatever its traits promise.
pub fn keeps_its_contract(source: Box<dyn Source>) -> Kept {
    kept(source, check_content)
}

/// Like [`keeps_its_contract`], for a source that is a stream: each byte is read once, and in order.
pub fn keeps_its_contract_to_one_reader(source: Box<dyn Source>) -> Kept {
    kept(source, check_content_once)
}

type Check = fn(&dyn Content, u64, usize) -> Vec<u8>;

fn kept(source: Box<dyn Source>, check: Check) -> Kept {
    let volumes = source.description().volumes.len();
    assert!(volumes > 0, "a source has a volume");
    assert!(source.next(volumes).unwrap().is_none(), "no such volume");
    let summary = SourceSummary::default();
    let (kinds, files, changes) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let mut kept = Kept {
        kinds,
        files,
        changes,
        summary,
    };
    for volume in 0..volumes {
        kept.read(&*source, volume, check);
    }
    if source.epilogue().unwrap() {
        kept.read(&*source, 0, check);
    }
    kept.summary = source.finish().unwrap();
    kept
}

impl Kept {
    /// All entries of a volume, to its end, which stays its end.
    fn read(&mut self, source: &dyn Source, volume: usize, check: Check) {
        while let Some(entry) = source.next(volume).unwrap() {
            self.check_entry(&entry);
            if let Some(content) = &entry.content {
                let unit = entry.page_bytes.map_or(999, |bytes| bytes as usize);
                let bytes = check(&**content, entry.len, unit);
                let change = content.settle().unwrap();
                self.changes.extend(change.map(|c| (entry.path.clone(), c)));
                self.files.insert(entry.path, bytes);
            } else if entry.kind == EntryKind::File {
                self.files.insert(entry.path, Vec::new());
            }
        }
        assert!(source.next(volume).unwrap().is_none(), "an end is an end");
    }

    fn check_entry(&mut self, entry: &Entry) {
        let at = entry.path.display();
        let is_normal = |part: Component| matches!(part, Component::Normal(_));
        assert!(entry.path.components().all(is_normal), "{at}");
        assert!(entry.mode <= 0o7777, "{at}: mode {:o}", entry.mode);
        assert_eq!(entry.content.is_some(), entry.len > 0, "{at}");
        if let Some(bytes) = entry.page_bytes {
            let is_usual = (512..=65_536).contains(&bytes);
            assert!(bytes.is_power_of_two() && is_usual, "{at}");
        }
        let names = entry.xattrs.iter().map(|xattr| &xattr.name);
        assert!(names.is_sorted(), "{at}");
        if entry.kind != EntryKind::File {
            assert_eq!((entry.len, entry.page_bytes), (0, None), "{at}");
        }
        if let EntryKind::HardLink { target } = &entry.kind {
            assert_eq!(self.kinds.get(target), Some(&EntryKind::File), "{at}");
            assert!(entry.xattrs.is_empty(), "{at}");
        }
        if let EntryKind::Symlink { target } = &entry.kind {
            assert_ne!(target, Path::new(""), "{at}");
        }
        let before = self.kinds.insert(entry.path.clone(), entry.kind.clone());
        assert_eq!(before, None, "{at} is listed twice");
    }
}

/// Reads a file as a backup does: range after range as they are found, in pieces of up to 64 units.
fn check_content_once(content: &dyn Content, len: u64, unit: usize) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    let mut at = 0;
    while at < len {
        let Some(data) = content.next_data(at).unwrap() else {
            break;
        };
        assert!(at <= data.start && data.end <= len, "{data:?} of {len}");
        assert!(data.start < data.end, "{data:?}");
        let _cached = content.is_cached(data.clone());
        let found = &mut bytes[data.start as usize..data.end as usize];
        for (i, piece) in found.chunks_mut(64 * unit).enumerate() {
            let offset = data.start + (i * 64 * unit) as u64;
            content.read_at(piece, offset, Via::Cache).unwrap();
        }
        at = data.end;
    }
    bytes
}

/// Reads a file in multiples of `unit` by every way, from several threads, and looks for its holes.
pub fn check_content(content: &dyn Content, len: u64, unit: usize) -> Vec<u8> {
    let read = |units: usize, via: Via| {
        // The buffer is not empty before.
        let mut bytes = vec![0xa5; len as usize];
        for (i, piece) in bytes.chunks_mut(units * unit).enumerate() {
            let offset = (i * units * unit) as u64;
            content.read_at(piece, offset, via).unwrap();
        }
        bytes
    };
    let bytes = read(64, Via::Cache);
    std::thread::scope(|scope| {
        for (units, via) in [(1, Via::Cache), (7, Via::Direct), (64, Via::DontCache)] {
            let (read, bytes) = (&read, &bytes);
            scope.spawn(move || assert!(read(units, via) == *bytes));
        }
    });
    let _cached = content.is_cached(0..len);
    let mut at = 0;
    while at < len {
        let data = content.next_data(at).unwrap().unwrap_or(len..len);
        assert!(at <= data.start && data.end <= len, "{data:?} of {len}");
        assert!(data.start < data.end || data.start == len, "{data:?}");
        let hole = &bytes[at as usize..data.start as usize];
        assert!(hole.iter().all(|byte| *byte == 0), "{data:?} after {at}");
        at = data.end;
    }
    assert_eq!(content.next_data(len).unwrap(), None);
    let doubtful = content.next_doubtful(0).unwrap();
    assert!(doubtful.is_none_or(|range| range.start < range.end));
    bytes
}
