//! How a cache came to its content.

use serde::Serialize;

/// How a cache came to its content when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// The content is as a clean stop left it, less what could not be compared in time.
    Warm,
    /// It was not stopped cleanly; content that was not durable is gone.
    AfterCrash,
    /// It was just made, or belonged to another backend.
    Fresh,
    /// The guard next to the backend does not match it: the guard was lost, or the cache was detached or given up.
    NotVouched,
    /// The backend is another file, device or size, or its time of change shows that another program wrote to it.
    BackendChanged,
    /// The backend's first or last line, or a superblock on it, differs from how this cache left it.
    ContentChanged,
    /// Lines differ on the backend from the table.
    LinesDiffer,
    /// Nothing on the backend shows whether another program wrote to it.
    Unproved,
    /// Its superblock or its table is damaged.
    Damaged,
}

impl Start {
    /// Why the cache holds what it holds now, for people.
    pub fn why(self) -> &'static str {
        match self {
            Start::Warm => "the content is as the clean stop left it, as far as it is proved",
            Start::AfterCrash => {
                "it was not stopped cleanly; the durable content that equals the backend is kept"
            }
            Start::Fresh => "starts empty: it is new, or belonged to another backend",
            Start::NotVouched => {
                "starts empty: the guard does not confirm it; the backend was served without it, or the guard is lost"
            }
            Start::BackendChanged => {
                "starts empty: the backend is another one, or its modification time shows that it was written to without the \
                 cache"
            }
            Start::ContentChanged => {
                "starts empty: the backend's first or last block, or a superblock on it, was changed without the cache; \
                 it was mounted or written to"
            }
            Start::LinesDiffer => {
                "starts empty: cached lines differ from the backend, which was written to without the cache"
            }
            Start::Unproved => {
                "starts empty: nothing on the backend shows whether it was written to without the cache; after a crash a file \
                 needs a birth and a clock that was not ahead, and superblocks show it on a device that ext2, ext3, ext4, XFS or btrfs fill, unless one was being written when the \
                 server ended without a stop"
            }
            Start::Damaged => "starts empty: its superblock or its table is damaged",
        }
    }

    /// Whether the content was believed.
    pub fn is_believed(self) -> bool {
        matches!(self, Start::Warm | Start::AfterCrash)
    }
}
