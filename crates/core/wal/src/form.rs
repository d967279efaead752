//! How files are stored in an archive.

use longshore_codec::{Algorithm, Level};

/// The file that makes a directory an archive, and names the cluster of its WAL.
pub const IDENTITY_NAME: &str = "longshore-wal";

/// How files are stored.
#[derive(Debug, Clone, Copy)]
pub struct StorageForm {
    pub algorithm: Algorithm,
    pub level: Level,
    /// Decode every block before it is written, and compare.
    pub verify: bool,
}
