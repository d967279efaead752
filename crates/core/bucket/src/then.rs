//! An object of a bucket as it was at one moment.
//!
//! Invariants
//! - The version names these very bytes, whatever is under the key now.
//!
//! Leaves to others: which version a moment had (`versions.rs`, `generations.rs`).

/// An object as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Then {
    pub key: String,
    pub len_bytes: u64,
    pub modified_ns: i64,
    /// The store's own word for it.
    pub version: String,
}

#[cfg(test)]
impl Then {
    pub(crate) fn of(key: String, len_bytes: u64, modified_ns: i64) -> Then {
        let version = "1".to_owned();
        Then {
            key,
            len_bytes,
            modified_ns,
            version,
        }
    }
}
