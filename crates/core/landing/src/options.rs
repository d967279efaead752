//! Options for the restore of a cluster. Pure data: decides nothing.

use std::path::PathBuf;

use longshore_pg::Recovery;

/// The locations of tablespaces.
#[derive(Debug, Clone, Default)]
pub struct SpaceOptions {
    /// A tablespace, by its OID or its stored directory, and the directory it gets.
    pub map: Vec<(String, PathBuf)>,
    /// Whether other tablespaces may be written to the directories that the set names.
    pub as_stored: bool,
}

/// Options for the restore of a cluster.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    pub spaces: SpaceOptions,
    /// How the server recovers; `None`: to the end of the WAL in the set, and from there on a new timeline.
    pub recovery: Option<Recovery>,
    /// Whether the restored server must not archive, whatever its stored settings are.
    pub no_archiving: bool,
    /// Whether the restored server must not run subscriptions, whatever its catalog says.
    pub no_subscriptions: bool,
    /// Whether the caller adds the WAL that the set lacks to the restored `pg_wal`.
    pub log_follows: bool,
    /// Whether the server is kept from starting because more is to be restored: see [`crate::HeldCluster`].
    pub hold: bool,
    /// The archive that must be proved to have the WAL for the recovery before anything is written.
    pub proof: Option<PathBuf>,
    /// Whether to change an existing data directory of the same cluster in place, writing only the differences.
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
