//! Files that a restore writes, held open until they are synced.
//!
//! The system writes files with a delay and reports a failure to programs that have the file open or open it later. It
//! does not report it if the file was dropped from memory meanwhile, as happens when a restore is larger than memory.
//! An open file is not dropped. If more files are written than may be open, all of them are released: then only the
//! whole file system reports every failure since the target was opened (`syncfs`, Linux 5.8 and later).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use longshore_io::{Dir, File, OpenHow};
use parking_lot::Mutex;

use crate::files::files_of;

/// The most names that are synced one by one: PostgreSQL has about a thousand, and three hundred more for each
/// database. With more names, one sync of everything is faster even on a busy machine.
pub const EACH_MAX: usize = 4096;
/// Files watched by all restores of this process, and by all parts of one: they share one limit.
static OPEN: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// If fewer may be open, the workers need them.
const WORTHWHILE: usize = 64;

pub struct OpenFiles {
    max: usize,
    open: Arc<AtomicUsize>,
    /// `None`: too many files were written.
    files: Mutex<Option<HashMap<PathBuf, Arc<dyn File>>>>,
}

impl OpenFiles {
    /// Watches as many files as this process may have open in addition to all others; none if those are few.
    pub fn new() -> OpenFiles {
        let max = files_of(EACH_MAX);
        OpenFiles {
            max: if max < WORTHWHILE { 0 } else { max },
            open: OPEN.clone(),
            files: Mutex::new(Some(HashMap::new())),
        }
    }

    #[cfg(test)]
    pub(super) fn of(max: usize) -> OpenFiles {
        OpenFiles {
            max,
            open: Arc::default(),
            files: Mutex::new(Some(HashMap::new())),
        }
    }

    /// Must be called while a worker has `name` open for writing. Opens a separate descriptor, because a writer may
    /// have two.
    pub fn add(&self, dir: &dyn Dir, name: &Path) {
        let mut files = self.files.lock();
        let Some(open) = files.as_mut() else { return };
        if open.contains_key(name) {
            return;
        }
        let fits = self.open.fetch_add(1, Ordering::Relaxed) < self.max;
        match dir.open(name, OpenHow::Read) {
            Ok(file) if fits => {
                open.insert(name.to_owned(), file);
            }
            _ => {
                let count = open.len() + 1;
                self.open.fetch_sub(count, Ordering::Relaxed);
                *files = None;
            }
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.files.lock().is_none()
    }

    /// The file that was written as `name`.
    pub(super) fn of_name(&self, name: &Path) -> Option<Arc<dyn File>> {
        self.files.lock().as_ref()?.get(name).cloned()
    }

    /// Releases all of them, after they were synced.
    pub(super) fn end(&self) {
        let files = self.files.lock().replace(HashMap::new());
        let count = files.map_or(0, |files| files.len());
        self.open.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        self.end();
    }
}
