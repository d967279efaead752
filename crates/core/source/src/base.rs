//! The base of a differential backup of a server, as a source sees it.

use longshore_pg::{Earlier, Lsn, Timeline};

use crate::LogStart;

/// The set that a backup is compared with.
#[derive(Debug, Clone)]
pub struct Base {
    /// The start of its replay.
    pub start: LogStart,
    /// The point at which its files are consistent.
    pub end: (Timeline, Lsn),
    /// When its server was started, in microseconds since the Unix epoch; `None` if unknown.
    pub server_started_us: Option<i64>,
    /// Identifies its branch; `None` if the branch is not checked.
    pub identity: Option<Earlier>,
}
