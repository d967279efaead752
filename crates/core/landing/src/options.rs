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

/// Which databases of a cluster are restored with their content; the files of the others are made empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DatabaseChoice {
    #[default]
    All,
    /// These, by name or OID, and those that every cluster has.
    Only(Vec<String>),
    /// All but these.
    Without(Vec<String>),
}

impl DatabaseChoice {
    /// The databases that were named; `None` if all are restored.
    pub fn given(&self) -> Option<&[String]> {
        match self {
            DatabaseChoice::All => None,
            DatabaseChoice::Only(given) | DatabaseChoice::Without(given) => Some(given),
        }
    }
}

/// A restore's treatment of the cluster's recovery settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RecoverySettings {
    /// It writes its own, and requests recovery.
    #[default]
    Write,
    /// It requests recovery, by the settings that the cluster was backed up with.
    Keep,
    /// It writes none: the server replays the WAL of the set as after a crash, and stays on its timeline.
    None,
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
    /// Whether a replaced directory may have another cluster, since the caller knows that it is to go.
    pub any_system: bool,
    /// Whether transactions that only the replaced directory's `pg_wal` has may go.
    pub discard_wal: bool,
    pub databases: DatabaseChoice,
    pub settings: RecoverySettings,
}

impl ClusterOptions {
    pub fn is_default(&self) -> bool {
        let spaces = &self.spaces;
        let places = spaces.map.is_empty() && !spaces.as_stored;
        let whole = self.databases == DatabaseChoice::All;
        let usual = whole
            && self.settings == RecoverySettings::Write
            && !self.delta
            && !self.no_archiving
            && !self.no_subscriptions
            && !self.log_follows
            && !self.hold;
        places && usual && self.recovery.is_none()
    }
}
