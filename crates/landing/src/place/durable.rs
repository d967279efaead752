//! Makes a restored tree durable without waiting for what others have written to its file system.
//!
//! A tree of up to [`EACH_MAX`](super::EACH_MAX) names is synced name by name: files with their attributes, and every directory. One of
//! more names, or one that this user may not walk, is synced with the whole file system, where the dirty pages of every
//! other program are waited for, too.
//!
//! Invariant: afterwards everything that stands below the root survives a power cut, whoever wrote it. What a delta
//! restore found to be right may lie in the page cache alone.
//!
//! A file that was written is synced through a descriptor that was open all the time ([`Watch`]): so an error of the
//! system's own late writing is told. Where there are more files than may be open, the whole file system is synced, which
//! tells it, too.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_io::{Dir, FileKind, OpenHow};
use parking_lot::Mutex;

use super::watch::Watch;
use crate::files::files_of;

/// Syncs under way at a time. They share the commits of a journal: 16 took a tenth to a twentieth of the time of one
/// after the other.
const AT_A_TIME: usize = 16;

/// A name, and what is synced of it.
type Name = (PathBuf, FileKind);

/// How a tree was made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synced {
    /// Name by name, whatever file systems are mounted below the root.
    Each,
    /// With the file system of the directory itself; those that are mounted below it are not durable yet.
    Whole,
}

/// A name that could not be made durable, and why.
pub type Failed = (PathBuf, Error);

/// Syncs everything at `root` and below it, and the directories above it up to `dir`'s own.
pub fn make_durable(
    dir: &dyn Dir,
    root: &Path,
    each_max: usize,
    watch: &Watch,
) -> Result<Synced, Failed> {
    let each = match watch.is_lost() {
        true => Ok(Synced::Whole),
        false => names(dir, root, each_max).and_then(|names| match names {
            Some(names) => sync_each(dir, &names, watch).map(|()| Synced::Each),
            None => Ok(Synced::Whole),
        }),
    };
    watch.end();
    match each {
        Err((_, e)) if e.kind() == ErrorKind::PermissionDenied => {}
        Ok(Synced::Whole) => {}
        each => return each,
    }
    dir.sync_all().map_err(|e| (PathBuf::new(), e))?;
    Ok(Synced::Whole)
}

/// What is to be synced; `None` where that is more than `max`.
fn names(dir: &dyn Dir, root: &Path, max: usize) -> Result<Option<Vec<Name>>, Failed> {
    let mut found: Vec<Name> = root
        .ancestors()
        .map(|above| (above.to_owned(), FileKind::Dir))
        .collect();
    let mut stack = vec![root.to_owned()];
    while let Some(parent) = stack.pop() {
        let at = |e| (parent.clone(), e);
        for child in dir.dir(&parent).and_then(|dir| dir.list()).map_err(at)? {
            let path = parent.join(child.map_err(at)?);
            let kind = dir.stat(&path).map_err(|e| (path.clone(), e))?.kind;
            match kind {
                FileKind::Dir => stack.push(path.clone()),
                FileKind::File => {}
                // Durable with the directory that holds it.
                FileKind::Symlink | FileKind::Other => continue,
            }
            found.push((path, kind));
            if found.len() > max {
                return Ok(None);
            }
        }
    }
    Ok(Some(found))
}

fn sync_each(dir: &dyn Dir, names: &[Name], watch: &Watch) -> Result<(), Failed> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let work = || {
        while let Some((path, kind)) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(e) = sync(dir, path, *kind, watch) {
                next.store(names.len(), Ordering::Relaxed);
                failed.lock().get_or_insert((path.clone(), e));
            }
        }
    };
    std::thread::scope(|scope| {
        // A name has a file open, and the directory on its way.
        for _ in 1..files_of(2 * AT_A_TIME).div_ceil(2).min(names.len()) {
            // Where the system has no thread to give, those that there are do it all.
            let _helps = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    failed.into_inner().map_or(Ok(()), Err)
}

fn sync(dir: &dyn Dir, path: &Path, kind: FileKind, watch: &Watch) -> std::io::Result<()> {
    if kind == FileKind::Dir {
        return dir.sync(path);
    }
    // What nobody wrote to, such as another name of a file.
    let anew = || dir.open(path, OpenHow::Read);
    watch.of_name(path).map_or_else(anew, Ok)?.sync_with_times()
}
