//! Space for the stripes and restored files of a study.
//!
//! Invariants
//! - A study gets a new directory in each directory that it was given, and removes these at its end, except after a
//!   crash.
//! - Nothing else in the given directories is touched.
//! - Settling makes earlier writes and removals durable, so that no measurement pays for another's.
//!
//! Leaves to others: how much space there is, and what is measured (the studies).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use longshore_io::{Dir, FileKind, Storage};
use longshore_pipeline::DeviceSpec;

/// The directories of one study. Removed when dropped.
pub struct Scratch {
    places: Vec<(PathBuf, Arc<dyn Dir>)>,
    name: PathBuf,
}

impl Scratch {
    /// Makes a directory in each of `dirs`, which are created if missing.
    pub fn new(storage: &dyn Storage, dirs: &[PathBuf]) -> Result<Scratch> {
        Scratch::called(
            storage,
            dirs,
            format!("longshore-lab-{}", std::process::id()),
        )
    }

    /// A second one next to it, for what a study keeps while it clears its stripes.
    pub fn named(storage: &dyn Storage, dirs: &[PathBuf], name: &str) -> Result<Scratch> {
        let name = format!("longshore-lab-{}-{name}", std::process::id());
        Scratch::called(storage, dirs, name)
    }

    fn called(storage: &dyn Storage, dirs: &[PathBuf], name: String) -> Result<Scratch> {
        ensure!(
            !dirs.is_empty(),
            "the study needs a directory for its stripes"
        );
        let mut scratch = Scratch {
            places: Vec::new(),
            name: name.into(),
        };
        for path in dirs {
            let dir = storage
                .create_dir_all(path)
                .with_context(|| format!("cannot open directory {}", path.display()))?;
            dir.create_dir(&scratch.name)
                .with_context(|| format!("cannot create {}", path.join(&scratch.name).display()))?;
            scratch.places.push((path.clone(), dir));
        }
        Ok(scratch)
    }

    /// Devices for `count` new stripes, spread over the directories in turn.
    pub fn stripes(&self, count: usize) -> Vec<DeviceSpec> {
        let dirs = self.places.iter().cycle();
        let stripe = |n, path: &Path| path.join(&self.name).join(format!("{n}.bak"));
        dirs.zip(1..=count)
            .map(|((path, _), n)| DeviceSpec::File(stripe(n, path)))
            .collect()
    }

    /// The files among devices.
    pub fn written(&self, devices: &[DeviceSpec]) -> Vec<PathBuf> {
        let path = |device: &DeviceSpec| match device {
            DeviceSpec::File(path) => Some(path.clone()),
            _ => None,
        };
        devices.iter().filter_map(path).collect()
    }

    /// A path in the first directory, where nothing exists yet.
    pub fn path(&self, name: &str) -> PathBuf {
        self.places[0].0.join(&self.name).join(name)
    }

    /// Removes the file or directory at [`Scratch::path`] of `name`.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        let (_, dir) = &self.places[0];
        remove_all(&**dir, &self.name.join(name))
            .with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Makes earlier writes and removals durable, so that no measurement pays for another's.
    pub fn settle(&self) -> Result<()> {
        for (path, dir) in &self.places {
            dir.sync_all()
                .with_context(|| format!("cannot sync {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes everything in the directories.
    pub fn clear(&self) -> Result<()> {
        for (path, dir) in &self.places {
            let ours = dir.dir(&self.name);
            ours.and_then(|dir| clear(&*dir))
                .with_context(|| format!("cannot clear {}", path.join(&self.name).display()))?;
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let cleared = self.clear();
        for (path, dir) in &self.places {
            if let Err(error) = dir.remove_dir(&self.name) {
                let path = path.join(&self.name);
                tracing::warn!(path = %path.display(), %error, ?cleared, "a study's files could not be removed");
            }
        }
    }
}

/// Removes `name` and everything below it; a missing name is no error.
pub fn remove_all(dir: &dyn Dir, name: &Path) -> io::Result<()> {
    match dir.stat(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        _ => {}
    }
    remove(dir, vec![(name.to_owned(), false)])
}

/// Removes all below `dir`.
fn clear(dir: &dyn Dir) -> io::Result<()> {
    remove(dir, children(dir, Path::new(""))?)
}

/// Removes the entries on the stack; `true` marks a directory that is already empty.
fn remove(dir: &dyn Dir, mut stack: Vec<(PathBuf, bool)>) -> io::Result<()> {
    while let Some((name, emptied)) = stack.pop() {
        if dir.stat(&name)?.kind != FileKind::Dir {
            dir.remove_file(&name)?;
        } else if emptied {
            dir.remove_dir(&name)?;
        } else {
            stack.push((name.clone(), true));
            stack.extend(children(dir, &name)?);
        }
    }
    Ok(())
}

fn children(dir: &dyn Dir, name: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
    let list = match name.as_os_str().is_empty() {
        true => dir.list()?,
        false => dir.dir(name)?.list()?,
    };
    list.map(|child| Ok((name.join(child?), false))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::{Host, OpenHow};

    #[test]
    fn a_study_removes_what_it_made_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let dirs = [root.path().join("a"), root.path().join("new/b")];
        std::fs::create_dir(&dirs[0]).unwrap();
        std::fs::write(dirs[0].join("theirs"), "x").unwrap();
        let scratch = Scratch::new(&Host::new(), &dirs).unwrap();
        let stripes = scratch.stripes(3);
        let DeviceSpec::File(third) = &stripes[2] else {
            panic!("no file");
        };
        assert!(third.starts_with(&dirs[0]) && third.ends_with("3.bak"));
        std::fs::create_dir_all(scratch.path("tree/deep")).unwrap();
        std::fs::write(scratch.path("tree/deep/file"), "x").unwrap();
        let dir = Host::new().dir(&dirs[1].join(&scratch.name)).unwrap();
        dir.open(Path::new("2.bak"), OpenHow::CreateNew).unwrap();
        drop(scratch);
        let left = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
        assert_eq!((left(&dirs[0]), left(&dirs[1])), (1, 0));
    }
}
