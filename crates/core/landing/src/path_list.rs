//! Paths for a report: all are counted, and the first are kept.

use std::path::PathBuf;

/// Paths, of which only the first are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathList {
    pub count: u64,
    /// At most [`PathList::KEPT_MAX`].
    pub first: Vec<PathBuf>,
}

impl PathList {
    pub const KEPT_MAX: usize = 16;

    pub fn add(&mut self, path: PathBuf) {
        self.count += 1;
        if self.first.len() < PathList::KEPT_MAX {
            self.first.push(path);
        }
    }

    pub fn append(&mut self, other: PathList) {
        self.count += other.count;
        let room = PathList::KEPT_MAX - self.first.len();
        self.first.extend(other.first.into_iter().take(room));
    }
}
