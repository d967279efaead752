//! Compares the tree that the source reads with the tree that `std::fs` sees.

mod change;
mod depth;
mod entries;
mod roots;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Host, Via};

use crate::{Change, Entry, Source, SourceOptions, SourceSpec, SourceSummary, open};

fn files(paths: &[&Path]) -> SourceSpec {
    SourceSpec::Files(paths.iter().map(|path| path.to_path_buf()).collect())
}

fn opened(paths: &[&Path]) -> Box<dyn Source> {
    open(
        Arc::new(Host::new()),
        &files(paths),
        &SourceOptions::default(),
    )
    .unwrap()
}

/// All entries of a volume, by path.
fn stream(source: &dyn Source, volume: usize) -> BTreeMap<PathBuf, Entry> {
    let mut entries = BTreeMap::new();
    while let Some(entry) = source.next(volume).unwrap() {
        assert!(
            entry
                .path
                .components()
                .all(|c| matches!(c, std::path::Component::Normal(_)))
        );
        if let Some(parent) = entry.path.parent().filter(|p| !p.as_os_str().is_empty()) {
            let parent: Option<&Entry> = entries.get(parent);
            assert!(
                volume > 0 || parent.is_some(),
                "{:?} comes before its directory",
                entry.path
            );
        }
        let path = entry.path.clone();
        assert!(entries.insert(path, entry).is_none(), "a path came twice");
    }
    entries
}

/// A file's bytes as a reader gets them, in pieces whose size does not divide its length.
fn read(entry: &Entry) -> (Vec<u8>, Option<Change>) {
    let Some(content) = &entry.content else {
        assert_eq!(entry.len, 0);
        return (Vec::new(), None);
    };
    let mut bytes = vec![0xAA; entry.len as usize];
    for (i, piece) in bytes.chunks_mut(1000).enumerate() {
        content.read_at(piece, i as u64 * 1000, Via::Cache).unwrap();
    }
    (bytes, content.settle().unwrap())
}

fn finish(source: Box<dyn Source>) -> Vec<String> {
    let SourceSummary { warnings, .. } = source.finish().unwrap();
    warnings
}
