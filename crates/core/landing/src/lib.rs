//! Between the blocks of a restore and the disk: staging, names, and protection of everything that must not be
//! replaced.
//!
//! [`Destination`] is the door: a restore passes entries and bytes to it, from several threads, and finishes. A
//! [`Target`] receives the names of a directory, a [`Cluster`] a data directory with its tablespaces. Both are staged
//! next to existing files and get their names last, or (delta restores) change only the differences in place.
//!
//! Invariants
//! - A restore that cannot finish leaves nothing that looks like a database, and keeps what existed before.
//! - Nothing that is in use, or that this program itself needs, is replaced: a running server's directory, a database
//!   that a program has open, a WAL archive, a backup at a target, the media that are being read.
//! - Nothing outside the named directories is touched.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod cluster;
mod cluster_error;
mod error;
mod files;
mod locked_target;
mod mounts;
mod moves;
mod options;
mod path_list;
mod place;
mod protected;
mod running;
mod sides;
mod survey;
mod tree;

pub use cluster::{
    Cluster, HeldCluster, HeldLock, Outline, RestoredConfiguration, enabled_subscriptions,
    restored_configuration, taken_tablespaces, told_of_data_directory, told_of_not_ahead,
    told_of_overruled, told_of_subscriptions, told_of_taken, told_of_unlogged_hints,
};
pub use cluster_error::ClusterError;
pub use error::{Error, at};
pub use files::FILES_OWN;
pub use locked_target::STAGING;
pub use moves::{check_moves, chosen, chosen_entry, may_be_log, moved, place_of};
pub use options::{ClusterOptions, DatabaseChoice, RecoverySettings, SpaceOptions};
pub use path_list::PathList;
pub use place::{
    DeltaResult, Destination, FilePiece, LOST_AND_FOUND, LostAttributes, OwnDirectory,
    ReplacePolicy, RootWish, Scope, Target, WantedAttributes, standing,
};
pub use protected::{KnownFiles, ProtectedFiles, SET, directory, real, refuse_media};
pub use survey::{StandingNames, Survey, SurveyedNames};
