//! The directory in which a drill works: its own, and removed at the end, whatever happens.
//!
//! Invariants
//! - A drill that is killed leaves its directory. Each drill holds a lock in its directory, so the next drill in the
//!   same place knows which directories are abandoned, and removes those.
//! - Only directories of the same user, with the name of a drill's, are considered.
//! - The lock is removed last, so the remains of an interrupted removal are still known as abandoned.
//!
//! Leaves to others: what is in the directory, and ending its server before it is removed (`drill/postgres.rs`).

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_io::{Dir, File, FileKind, OpenHow};
use uuid::Uuid;

use crate::context::Context;
use longshore_terminal::failure::Failure;
use longshore_terminal::numbers;

const PREFIX: &str = "longshore-drill-";
const LOCK: &str = "lock";

/// The interval and the number of attempts to remove an abandoned directory: its server may still be shutting down.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// See the module.
pub struct Scratch<'a> {
    context: &'a Context,
    pub parent: Arc<dyn Dir>,
    name: PathBuf,
    pub path: PathBuf,
    _lock: Arc<dyn File>,
    is_removed: Cell<bool>,
}

impl<'a> Scratch<'a> {
    pub fn new(context: &'a Context, work: Option<&Path>) -> Result<Scratch<'a>, Failure> {
        let work = work.map_or_else(std::env::temp_dir, Path::to_owned);
        let name = PathBuf::from(format!("{PREFIX}{:08x}", Uuid::new_v4().as_fields().0));
        let made = context.storage.canonical(&work).and_then(|work| {
            let parent = context.storage.dir(&work)?;
            parent.create_dir(&name)?;
            let lock = parent.open(&name.join(LOCK), OpenHow::CreateNew)?;
            lock.try_lock()?;
            Ok((parent, work.join(&name), lock))
        });
        let (parent, path, lock) = made.map_err(|e| {
            Failure::usage(
                format!("cannot create a directory in {}", work.display()),
                "name one that you can write to with --work",
            )
            .numbered(numbers::FILE_UNUSABLE)
            .because(e)
        })?;
        let scratch = Scratch {
            context,
            parent,
            name,
            path,
            _lock: lock,
            is_removed: Cell::new(false),
        };
        scratch.sweep();
        Ok(scratch)
    }

    /// Removes what killed drills left next to this one.
    fn sweep(&self) {
        let uid = self.parent.stat(&self.name).map(|stat| stat.uid).ok();
        let names = self.parent.list().into_iter().flatten().flatten();
        for name in names.map(PathBuf::from) {
            if name == self.name || !is_scratch(&name) {
                continue;
            }
            let stat = self.parent.stat(&name).ok();
            let is_own = stat.is_some_and(|s| s.kind == FileKind::Dir && Some(s.uid) == uid);
            // A directory without a lock is still being created.
            let lock = self.parent.open(&name.join(LOCK), OpenHow::Read);
            if !is_own || !lock.is_ok_and(|lock| lock.try_lock().unwrap_or(false)) {
                continue;
            }
            let path = self.path.with_file_name(&name);
            let output = self.context.output;
            match self.remove_patiently(&name) {
                Ok(()) => output.remark(&format!(
                    "longshore: removed {}, left by a killed drill\n",
                    path.display()
                )),
                Err(e) => output.warn(&format!(
                    "{}, left by a killed drill, could not be removed: {e}",
                    path.display()
                )),
            }
        }
    }

    /// Removes it and says so if that fails; afterwards there is nothing left to remove.
    pub fn remove(&self) {
        if self.is_removed.replace(true) {
            return;
        }
        if let Err(e) = remove_tree(&*self.parent, &self.name) {
            let path = self.path.display();
            self.context
                .output
                .warn(&format!("{path} could not be removed: {e}"));
        }
    }

    fn remove_patiently(&self, name: &Path) -> std::io::Result<()> {
        let mut tries = 0;
        loop {
            match remove_tree(&*self.parent, name) {
                Err(_) if tries < TRIES => {
                    tries += 1;
                    self.context.clock.sleep(PAUSE);
                }
                done => return done,
            }
        }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Whether the name has the form that drills use.
fn is_scratch(name: &Path) -> bool {
    let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    digits.is_some_and(|d| d.len() == 8 && d.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Removes the lock last: the remains of an interrupted removal are still known as abandoned. A file system that is mounted in it is not
/// emptied.
fn remove_tree(dir: &dyn Dir, name: &Path) -> std::io::Result<()> {
    let below = dir.dir(name)?;
    if below.mount_id(Path::new(""))? != dir.mount_id(Path::new(""))? {
        let what = format!("a file system is mounted on {}", name.display());
        return Err(std::io::Error::new(std::io::ErrorKind::ResourceBusy, what));
    }
    for entry in below.list()? {
        let entry = PathBuf::from(entry?);
        match below.stat(&entry)?.kind {
            FileKind::Dir => remove_tree(&*below, &entry)?,
            _ if entry == Path::new(LOCK) && is_scratch(name) => {}
            _ => below.remove_file(&entry)?,
        }
    }
    match below.remove_file(Path::new(LOCK)) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        done => done?,
    }
    dir.remove_dir(name)
}
