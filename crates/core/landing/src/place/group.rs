//! A place that a restore takes in its target, with what belongs to it.
//!
//! Invariants
//! - Logs come before their file: at no moment is the file there without them.
//!
//! Leaves to others: which places there are, and their switch (`swap.rs`).

use std::path::PathBuf;

/// A place, and the logs that arrive with it.
pub(super) struct FileGroup {
    pub(super) main: PathBuf,
    pub(super) is_file: bool,
    pub(super) sides: Vec<PathBuf>,
}

impl FileGroup {
    /// In the order in which they arrive.
    pub(super) fn arriving(&self) -> impl Iterator<Item = &PathBuf> {
        self.sides.iter().chain([&self.main])
    }
}
