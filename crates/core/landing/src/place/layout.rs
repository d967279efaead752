//! Names in the staging directory of a restore, and names that a target may have by itself.

/// Names the cluster of a delta restore in the target until the restore is complete; the control file is next to it.
pub const DELTA: &str = "delta";
pub const DELTA_CONTROL: &str = "pg_control";
/// A directory that a file system itself creates in its root.
pub const LOST_AND_FOUND: &str = "lost+found";
/// Exists in the staging directory from when everything of a replaced directory is in `old` until nothing of it is to
/// go back: names that exist in the target meanwhile are new.
pub const DISPLACED: &str = "displaced";
/// The name of `old` when nothing in it can go back.
pub const GONE: &str = "gone";
/// The journal of a switch of single names, from before the first one changes until the restore is complete.
pub const MOVING: &str = "moving";
/// The journal while it is written.
pub const MOVING_NEW: &str = "moving.new";
