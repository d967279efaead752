//! Names in the staging directory of a restore, and those that a target may have by itself.

/// Says which cluster a delta restore in the target was about, until it is complete; beside it the control file.
pub const DELTA: &str = "delta";
pub const DELTA_CONTROL: &str = "pg_control";
/// What a file system puts into its root by itself.
pub const LOST_AND_FOUND: &str = "lost+found";
/// Stands in the staging directory from when everything of a replaced directory is in `old` until nothing of it is to go
/// back any more: what stands in the target meanwhile is new.
pub const DISPLACED: &str = "displaced";
/// What `old` is called when nothing of it goes back any more.
pub const GONE: &str = "gone";
/// Stands there from when the first side file of a restored database gets its name until the database has its own.
pub const ARRIVING: &str = "arriving";
