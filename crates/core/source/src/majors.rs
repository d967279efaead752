//! The PostgreSQL versions that can be backed up: those tested with real servers.

/// The oldest supported major version.
pub(crate) const MAJOR_MIN: u32 = 14;
/// The newest supported major version.
pub(crate) const MAJOR_MAX: u32 = 18;
