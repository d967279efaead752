//! Samples kept between studies: built once, then reused.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use longshore_io::{Dir, OpenHow, Storage, Via};

use crate::sample::{Progress, SampleKind, SampleSpec, sample};
use crate::scratch::remove_all;

/// The seed of stocked samples.
const SEED: u64 = 1;

/// The sample of this kind and size (met within 2 %) in `dir`; built if it does not exist.
pub fn sample_in(
    storage: &dyn Storage,
    dir: &Path,
    kind: SampleKind,
    size_bytes: u64,
    on_progress: &dyn Fn(Progress),
) -> Result<PathBuf> {
    let path = dir.join(format!("{kind}-{size_bytes}.db"));
    // Only a complete sample ever has this name.
    if storage.stat(&path).is_ok() {
        return Ok(path);
    }
    let spec = SampleSpec {
        kind,
        size_bytes,
        seed: SEED,
        files: 1,
        dirs: Vec::new(),
        path: Some(path.clone()),
        wal: false,
        replace: false,
    };
    sample(&spec, on_progress)?;
    Ok(path)
}

/// Files of one directory of a tree.
const TREE_FAN_OUT: usize = 1000;

/// A tree of `count` small files, 64 to 1087 bytes each, in `dir`; built if it does not exist.
pub fn tree_in(storage: &dyn Storage, dir: &Path, count: usize) -> Result<PathBuf> {
    let path = dir.join(format!("tree-{count}"));
    // Only a complete tree ever has this name.
    if storage.stat(&path).is_ok() {
        return Ok(path);
    }
    let build = || -> std::io::Result<()> {
        let dir = storage.create_dir_all(dir)?;
        let name = path.file_name().unwrap_or_default();
        let part = Path::new(name).with_extension("part");
        remove_all(&*dir, &part)?;
        dir.create_dir(&part)?;
        fill(&*dir.dir(&part)?, count)?;
        dir.sync_all()?;
        dir.rename(&part, Path::new(name))
    };
    build().with_context(|| format!("cannot build {}", path.display()))?;
    Ok(path)
}

fn fill(dir: &dyn Dir, count: usize) -> std::io::Result<()> {
    let text: Vec<u8> = (0..128u8).cycle().take(2048).collect();
    for first in (0..count).step_by(TREE_FAN_OUT) {
        let name = PathBuf::from(format!("{first:07}"));
        dir.create_dir(&name)?;
        let inside = dir.dir(&name)?;
        for n in first..count.min(first + TREE_FAN_OUT) {
            let file = inside.open(Path::new(&format!("{n:07}.dat")), OpenHow::CreateNew)?;
            file.write_all_at(&text[n % 128..][..64 + n % 1024], 0, Via::Cache)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::Host;

    #[test]
    fn a_tree_has_as_many_files_as_asked_and_an_unfinished_one_is_built_again() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("tree-2500.part/half")).unwrap();
        let path = tree_in(&Host::new(), root.path(), 2500).unwrap();
        let count = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
        assert_eq!((count(&path), count(root.path())), (3, 1));
        assert_eq!(count(&path.join("0002000")), 500);
        let file = path.join("0001000/0001023.dat");
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 1087);
        let again = tree_in(&Host::new(), root.path(), 2500).unwrap();
        assert_eq!(again, path);
    }
}
