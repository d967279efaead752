//! Makes a restored tree durable without waiting for other programs' writes to its file system.
//!
//! A tree of up to [`EACH_MAX`](super::EACH_MAX) names is synced name by name: files with their attributes, and every
//! directory. A tree with more names, or one that this user may not walk, is synced with the whole file system; that
//! waits for the dirty pages of every other program, too.
//!
//! Invariants
//! - Afterwards everything below the root survives a power cut, whoever wrote it. Files that a delta restore found to
//!   be right may be in the page cache only.
//! - A file that was written is synced through a descriptor that was open all the time ([`OpenFiles`]), so an error in
//!   the system's own delayed writing is reported. If there are more files than may be open, the whole file system is
//!   synced, which reports it, too.
//!
//! Leaves to others: file systems mounted below the root after a sync of the whole one, and final names
//! (`place/mod.rs`).

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_io::{Dir, FileKind, OpenHow};
use parking_lot::Mutex;

use super::watch::OpenFiles;
use crate::files::files_of;

/// Syncs in flight at a time. They share the commits of a journal: 16 took a tenth to a twentieth of the time of
/// sequential syncs.
const AT_A_TIME: usize = 16;

/// A name, and the kind of file to be synced.
type Name = (PathBuf, FileKind);

/// How a tree was made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMethod {
    /// Name by name, including file systems mounted below the root.
    Each,
    /// With the file system of the directory itself; file systems mounted below it are not durable yet.
    Whole,
}

/// A name that could not be made durable, and why.
pub type SyncError = (PathBuf, Error);

/// Syncs everything at `root` and below it, and the directories above it up to `dir`'s own.
pub fn make_durable(
    dir: &dyn Dir,
    root: &Path,
    each_max: usize,
    watch: &OpenFiles,
) -> Result<SyncMethod, SyncError> {
    let each = match watch.is_lost() {
        true => Ok(SyncMethod::Whole),
        false => names(dir, root, each_max).and_then(|names| match names {
            Some(names) => sync_each(dir, &names, watch).map(|()| SyncMethod::Each),
            None => Ok(SyncMethod::Whole),
        }),
    };
    watch.end();
    match each {
        Err((_, e)) if e.kind() == ErrorKind::PermissionDenied => {}
        Ok(SyncMethod::Whole) => {}
        each => return each,
    }
    dir.sync_all().map_err(|e| (PathBuf::new(), e))?;
    Ok(SyncMethod::Whole)
}

/// The names to sync; `None` if there are more than `max`.
fn names(dir: &dyn Dir, root: &Path, max: usize) -> Result<Option<Vec<Name>>, SyncError> {
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

fn sync_each(dir: &dyn Dir, names: &[Name], watch: &OpenFiles) -> Result<(), SyncError> {
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
        // Each sync has a file and its directory open.
        for _ in 1..files_of(2 * AT_A_TIME).div_ceil(2).min(names.len()) {
            // If the system has no thread to give, the existing ones do all the work.
            let _helps = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    failed.into_inner().map_or(Ok(()), Err)
}

fn sync(dir: &dyn Dir, path: &Path, kind: FileKind, watch: &OpenFiles) -> std::io::Result<()> {
    if kind == FileKind::Dir {
        return dir.sync(path);
    }
    // A file that this restore did not write, such as another name of a file.
    let anew = || dir.open(path, OpenHow::Read);
    watch.of_name(path).map_or_else(anew, Ok)?.sync_with_times()
}
