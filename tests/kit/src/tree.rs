//! Directories as values that can be written, read and compared.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub type Tree = BTreeMap<PathBuf, Vec<u8>>;

pub fn put(root: &Path, tree: &Tree) {
    for (name, bytes) in tree {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// Every file below `root`; also the names of directories and links, with their kind.
pub fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(path) = todo.pop() {
        let Ok(meta) = std::fs::symlink_metadata(&path) else {
            continue;
        };
        let bytes = if meta.is_dir() {
            let names = std::fs::read_dir(&path).unwrap();
            todo.extend(names.map(|e| e.unwrap().path()));
            continue;
        } else if meta.is_symlink() {
            format!("-> {:?}", std::fs::read_link(&path).unwrap()).into_bytes()
        } else {
            std::fs::read(&path).unwrap()
        };
        tree.insert(path.strip_prefix(root).unwrap().into(), bytes);
    }
    tree
}

/// Names, times and contents of everything below `root`: equal before and after means untouched.
pub fn fingerprint(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(path) = todo.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let mut what = format!(
            "{:o} {} {}:{} x{}",
            meta.mode(),
            meta.len(),
            meta.ctime(),
            meta.ctime_nsec(),
            meta.nlink()
        );
        if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else if meta.is_file() {
            let mut hasher = DefaultHasher::new();
            std::fs::read(&path).unwrap().hash(&mut hasher);
            what.push_str(&format!(" {:016x}", hasher.finish()));
        }
        all.insert(path, what);
    }
    all
}
