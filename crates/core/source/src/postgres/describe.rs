//! The common parts of descriptions of local and of remote clusters.

use crate::SourceOptions;

/// Memory for small files held until their blocks are made: at most one buffer for each job in progress.
pub(super) const MEMORY_BYTES: u64 = 16 << 20;

/// The database's name: as it was asked for, or as the cluster calls itself.
pub(super) fn name_of(options: &SourceOptions, cluster_name: &str) -> String {
    let own = match cluster_name {
        "" => "postgres".into(),
        name => name.replace('/', "-"),
    };
    options.database.clone().unwrap_or(own)
}
