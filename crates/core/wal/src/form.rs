//! How files are stored in an archive.

use std::sync::Arc;

use longshore_codec::{Algorithm, Level};
use longshore_crypt::Recipients;

/// The file that makes a directory an archive, and names the cluster of its WAL.
pub const IDENTITY_NAME: &str = "longshore-wal";

/// How files are stored.
#[derive(Debug, Clone)]
pub struct StorageForm {
    pub algorithm: Algorithm,
    pub level: Level,
    /// Decode every block before it is written, and compare.
    pub verify: bool,
    /// For whom files are encrypted, all but histories; `None`: they are not.
    pub recipients: Option<Arc<Recipients>>,
}
