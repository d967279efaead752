//! The settings of a comparison.

use std::path::PathBuf;

use longshore_pipeline::SourceSpec;

/// The settings of the comparison.
#[derive(Debug, Clone)]
pub struct CompareSpec {
    /// Name and source of each database.
    pub databases: Vec<(String, SourceSpec)>,
    /// A further database: a PostgreSQL cluster made for the comparison, which is many files.
    pub cluster: Option<ClusterMade>,
    /// Directories for stripes, used in turn; without any, backups go to NUL.
    pub dirs: Vec<PathBuf>,
    pub stripes: usize,
    /// Backups of each kind, alternating; at least 1.
    pub rounds: usize,
}

/// A cluster with the content of the sample `tprocc`.
#[derive(Debug, Clone)]
pub struct ClusterMade {
    /// Keeps the sample, and holds the cluster meanwhile.
    pub work: PathBuf,
    /// Of the sample.
    pub bytes: u64,
}
