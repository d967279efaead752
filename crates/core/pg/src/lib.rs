//! PostgreSQL itself: its numbers and names, the layouts of its files, and a connection to its server.
//!
//! Facts only: the rooms above decide what to copy, keep or restore. Major versions whose layouts are not in the
//! tables here are refused by name, never guessed.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod backup_manifest;
pub mod client;
mod control;
mod label;
pub mod lineage;
mod lsn;
mod page;
pub mod recovery;
mod relation;
mod segment;
pub mod set_notes;
pub mod wal;

pub use control::{
    CONTROL_FILE_LEN, ClusterSecret, ClusterState, Control, ControlError, cluster_secret,
};
pub use label::{
    BACKUP_LABEL, BackupLabel, TABLESPACE_MAP, Tablespace, format_tablespace_map,
    parse_tablespace_map,
};
pub use lineage::{Earlier, Lineage, Relation, Witness};
pub use lsn::Lsn;
pub use page::Page;
pub use recovery::{Recovery, RecoveryTarget, TargetAction, TimelineChoice};
pub use relation::{Fork, RelationFile};
pub use segment::{SegmentName, SegmentSize, Timeline};

/// The file that a server keeps in the data directory while it runs. A killed server leaves it behind.
pub const PID_FILE: &str = "postmaster.pid";
