//! How files are stored in an archive.

use longshore_codec::{Algorithm, Level};

/// The file that makes a directory an archive, and says whose log it holds.
pub const IDENTITY_NAME: &str = "longshore-wal";

/// How files are stored.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    pub algorithm: Algorithm,
    pub level: Level,
    /// Decode every block before it is written, and compare.
    pub verify: bool,
}
