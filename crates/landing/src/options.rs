//! What can be asked for when a cluster is restored. Pure data: it decides nothing.

use std::path::PathBuf;

use longshore_pg::Recovery;

/// Where tablespaces go.
#[derive(Debug, Clone, Default)]
pub struct SpaceOptions {
    /// A tablespace, by its OID or its stored directory, and the directory it gets.
    pub map: Vec<(String, PathBuf)>,
    /// Whether the others may be written to the directories that the set names.
    pub as_stored: bool,
}

/// What can be asked for when a cluster is restored.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    pub spaces: SpaceOptions,
    /// How the server recovers; `None`: from the log that the set holds, to its end, and on a new timeline from there.
    pub recovery: Option<Recovery>,
    /// Whether the restored server is to archive nothing, whatever its stored settings say.
    pub no_archiving: bool,
    /// Whether the restored server is to run no subscriptions, whatever its catalogue says.
    pub no_subscriptions: bool,
    /// Whether the caller puts the log that the set lacks into the restored `pg_wal`.
    pub log_follows: bool,
    /// Whether it is kept from being started, because more is to be restored: see [`crate::Held`].
    pub hold: bool,
    /// The archive in which the log that the recovery needs is proved to be, before anything is written.
    pub proof: Option<PathBuf>,
    /// Whether an existing data directory of the same cluster is made the set's, writing only what differs.
    pub delta: bool,
}

impl ClusterOptions {
    pub fn is_default(&self) -> bool {
        let spaces = &self.spaces;
        let places = spaces.map.is_empty() && !spaces.as_stored;
        let usual = !self.delta
            && !self.no_archiving
            && !self.no_subscriptions
            && !self.log_follows
            && !self.hold;
        places && usual && self.recovery.is_none()
    }
}
