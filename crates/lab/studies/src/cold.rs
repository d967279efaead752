//! Sources that leave the page cache before a backup, as SQL Server reads past the cache.
//!
//! Invariants
//! - Only the cache is changed: files are made durable and read again from their disk.
//! - Pages that other programs have mapped may stay; how much came from the disk is measured, not believed.
//!
//! Leaves to others: measuring (`timing.rs`).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use longshore_io::{FileKind, Storage, drop_from_cache};
use longshore_pipeline::SourceSpec;

use crate::spread::median;
use crate::timing::Timing;

/// The files of a source.
#[derive(Debug)]
pub struct ColdSource {
    /// `None`: a server's, which are not ours to drop.
    files: Option<Vec<PathBuf>>,
}

impl ColdSource {
    pub fn find(storage: &dyn Storage, source: &SourceSpec) -> Result<ColdSource> {
        let named = match source {
            SourceSpec::Postgres(_) => return Ok(ColdSource { files: None }),
            SourceSpec::Sqlite(path) => {
                let mut log = path.clone().into_os_string();
                log.push("-wal");
                let log = PathBuf::from(log);
                let log = storage.stat(&log).is_ok().then_some(log);
                [path.clone()].into_iter().chain(log).collect()
            }
            SourceSpec::Files(paths) => paths.clone(),
        };
        let mut files = Vec::new();
        for path in named {
            let found = below(storage, &path, &mut files);
            found.with_context(|| format!("cannot read {}", path.display()))?;
        }
        Ok(ColdSource { files: Some(files) })
    }

    /// Drops all files. One that is gone is left out.
    pub fn drop_cached(&self) -> Result<()> {
        for path in self.files.iter().flatten() {
            match drop_from_cache(path) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                dropped => dropped
                    .with_context(|| format!("cannot drop {} from the cache", path.display()))?,
            }
        }
        Ok(())
    }

    /// The sentence for a report: what was done, and what came of it.
    pub fn told<'a>(&self, taken: impl Iterator<Item = &'a Timing>) -> String {
        let done = match self.files {
            Some(_) => "The source left the page cache before each backup",
            None => "The source belongs to a server, so the page cache was left as it was",
        };
        match median(taken.map(Timing::cold_percent)) {
            Some(share) => format!("{done}; {share:.0} % of it came from the disk (median)."),
            None => format!("{done}."),
        }
    }
}

/// The regular files at and below a path.
fn below(storage: &dyn Storage, path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if storage.stat(path)?.kind != FileKind::Dir {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut stack = vec![path.to_owned()];
    while let Some(dir) = stack.pop() {
        let inside = storage.dir(&dir)?;
        for name in inside.list()? {
            let name = PathBuf::from(name?);
            match inside.stat(&name)?.kind {
                FileKind::Dir => stack.push(dir.join(name)),
                FileKind::File => files.push(dir.join(name)),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::Host;

    #[test]
    fn all_files_of_a_source_are_dropped_and_a_missing_one_is_no_error() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, vec![7; 100_000]).unwrap();
            path
        };
        let (first, deep, log) = (put("tree/a"), put("tree/deep/b"), put("tree/a-wal"));
        std::os::unix::fs::symlink("a", root.path().join("tree/link")).unwrap();
        let tree = SourceSpec::Files(vec![root.path().join("tree")]);
        let found = ColdSource::find(&Host::new(), &tree).unwrap();
        let mut files = found.files.clone().unwrap();
        files.sort();
        assert_eq!(files, [first.clone(), log.clone(), deep.clone()]);
        std::fs::remove_file(deep).unwrap();
        found.drop_cached().unwrap();
        let database = ColdSource::find(&Host::new(), &SourceSpec::Sqlite(first.clone()));
        assert_eq!(database.unwrap().files, Some(vec![first, log]));
        let missing = SourceSpec::Files(vec![root.path().join("none")]);
        assert!(ColdSource::find(&Host::new(), &missing).is_err());
    }
}
