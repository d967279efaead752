//! How a cache came to its content.

use serde::Serialize;

/// How a cache came to its content when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// It is as a clean stop left it.
    Warm,
    /// It was not stopped cleanly; what was not durable is gone.
    AfterCrash,
    /// It was made just now, or another backend's.
    Fresh,
    /// The guard beside the backend does not vouch for it: lost, or the cache was detached or given up.
    NotVouched,
    /// The backend is another file, device or size, or its time of change says that somebody else wrote to it.
    BackendChanged,
    /// The backend's first or last block, or a superblock on it, is not as this cache left it.
    ContentChanged,
    /// Lines that were picked at random are not on the backend as the table has them.
    LinesDiffer,
    /// Nothing on the backend could say whether somebody else wrote to it.
    Unproved,
    /// Its superblock or its table is not what was written.
    Damaged,
}

impl Start {
    /// Why the cache holds what it holds now, for people.
    pub fn why(self) -> &'static str {
        match self {
            Start::Warm => "everything is held as the clean stop left it",
            Start::AfterCrash => "it was not stopped cleanly; what was durable is held",
            Start::Fresh => "begins empty: it is new, or was another backend's",
            Start::NotVouched => {
                "begins empty: the guard does not vouch for it; the backend was served without it, or the guard is lost"
            }
            Start::BackendChanged => {
                "begins empty: the backend is another one, or its time of change says that it was written to without the \
                 cache"
            }
            Start::ContentChanged => {
                "begins empty: the backend's first or last block, or a superblock on it, was changed without the cache; \
                 it was mounted or written to"
            }
            Start::LinesDiffer => {
                "begins empty: of lines picked at random some differ from the backend, which was written to without the \
                 cache"
            }
            Start::Unproved => {
                "begins empty: nothing on the backend tells whether it was written to without the cache; on a device \
                 that ext2, ext3, ext4, XFS or btrfs fill, superblocks do, unless one was just being written when the \
                 server ended without a stop"
            }
            Start::Damaged => "begins empty: its superblock or its table is damaged",
        }
    }

    /// Whether the content was believed.
    pub fn is_believed(self) -> bool {
        matches!(self, Start::Warm | Start::AfterCrash)
    }
}
