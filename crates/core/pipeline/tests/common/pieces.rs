//! Blocks of files for sets that are assembled by hand.

use std::collections::BTreeMap;
use std::path::PathBuf;

use longshore_media::{Entry, EntryKind, Extent, Item};

use super::forge::Block;

/// A block with parts of one file.
pub fn file(path: &str, len: u64, based: bool, first: bool, parts: &[(usize, Vec<u8>)]) -> Block {
    let mut block = Block::default();
    block.0.push(Item::Entry(Entry {
        path: path.into(),
        kind: EntryKind::File,
        first,
        based,
        xattrs: Vec::new(),
        mode: 0o640,
        uid: 0,
        gid: 0,
        mtime_ns: 5,
        len,
    }));
    for (at, bytes) in parts {
        block.0.push(Item::Extent(Extent {
            offset: *at as u64,
            len: bytes.len() as u32,
        }));
        block.1.extend_from_slice(bytes);
    }
    block
}

/// A tree of files as blocks: files that `base` lacks, and the differing parts of others.
pub fn differing(
    tree: &BTreeMap<PathBuf, Vec<u8>>,
    base: &BTreeMap<PathBuf, Vec<u8>>,
) -> Vec<Block> {
    const PART: usize = 50_000;
    let mut blocks = Vec::new();
    for (path, bytes) in tree {
        let old = base.get(path);
        let path = path.to_str().unwrap();
        let len = bytes.len() as u64;
        blocks.push(file(path, len, old.is_some(), true, &[]));
        for (i, part) in bytes.chunks(PART).enumerate() {
            let at = i * PART;
            if old.is_none_or(|old| old.get(at..at + part.len()) != Some(part)) {
                let parts = [(at, part.to_vec())];
                blocks.push(file(path, len, old.is_some(), false, &parts));
            }
        }
    }
    blocks
}
