//! Which log a backup needs.

use std::num::NonZeroU32;

use longshore_pg::{Lsn, Timeline};

/// The part of a database's log that a set needs to become consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRange {
    /// PostgreSQL's system identifier.
    pub system: u64,
    pub first_timeline: u32,
    /// Replay begins here.
    pub first_lsn: u64,
    pub last_timeline: u32,
    /// The database is consistent here.
    pub last_lsn: u64,
}

impl LogRange {
    /// Where replay begins.
    pub fn first(&self) -> (Timeline, Lsn) {
        (timeline(self.first_timeline), Lsn(self.first_lsn))
    }

    /// Where the database is consistent.
    pub fn last(&self) -> (Timeline, Lsn) {
        (timeline(self.last_timeline), Lsn(self.last_lsn))
    }
}

/// As media tell it; 0, which no server writes, is taken for the first.
fn timeline(number: u32) -> Timeline {
    Timeline(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN))
}
