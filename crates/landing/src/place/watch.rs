//! Files that a restore writes, held open until they are synced.
//!
//! The system writes behind a program's back, and tells a failure to who has the file open or opens it later; not when it
//! dropped the file from its memory meanwhile, as it does where a restore is larger than that. What is open is not
//! dropped. Where more files are written than may be open, sight of all of them is lost: then only the file system as a
//! whole knows of every failure since the target was opened (`syncfs`, Linux from 5.8 on).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use longshore_io::{Dir, File, OpenHow};
use parking_lot::Mutex;

use crate::files::files_of;

/// Names that are synced one by one: PostgreSQL has about a thousand, and three hundred for each database more. From
/// here on one wait for everything is shorter even on a busy machine.
pub const EACH_MAX: usize = 4096;
/// Files watched by all restores of this process, and for all places of one: they share what may be open.
static OPEN: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Where fewer may be open, workers need them.
const WORTHWHILE: usize = 64;

pub struct Watch {
    max: usize,
    open: Arc<AtomicUsize>,
    /// `None`: sight was lost.
    files: Mutex<Option<HashMap<PathBuf, Arc<dyn File>>>>,
}

impl Watch {
    /// Of as many files as this process may have open beside all else; of none where that is few.
    pub fn new() -> Watch {
        let max = files_of(EACH_MAX);
        Watch {
            max: if max < WORTHWHILE { 0 } else { max },
            open: OPEN.clone(),
            files: Mutex::new(Some(HashMap::new())),
        }
    }

    #[cfg(test)]
    pub(super) fn of(max: usize) -> Watch {
        Watch {
            max,
            open: Arc::default(),
            files: Mutex::new(Some(HashMap::new())),
        }
    }

    /// To be called while who writes to `name` has it open. A descriptor of its own: a writer's may be two.
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

    /// Lets go of all of them, when they were synced.
    pub(super) fn end(&self) {
        let files = self.files.lock().replace(HashMap::new());
        let count = files.map_or(0, |files| files.len());
        self.open.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}
