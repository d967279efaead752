//! Reasons for which it is not plain which timeline a recovery follows.
//!
//! Invariants
//! - Each names the timelines, so that the user can name the right one.
//!
//! Leaves to others: finding them (`parting.rs`, `replay.rs`), and refusing.

use std::fmt;

use longshore_pg::recovery::time;
use longshore_pg::wal::WalName;
use longshore_pg::{Lsn, Timeline};

/// Two timelines of which each has WAL that the other lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parting {
    /// The timeline that a recovery follows.
    pub followed: Timeline,
    /// The timeline that was left, and that has newer transactions.
    pub left: Timeline,
    /// The first LSN that is not on both.
    pub at: Lsn,
    /// The archive's ends on both.
    pub followed_end: Lsn,
    pub left_end: Lsn,
    /// When the followed one began; microseconds since 1970. `None`: that cannot be read.
    pub began_us: Option<i64>,
    /// When the last transaction on the left one ended. `None`: that cannot be read.
    pub left_us: Option<i64>,
}

impl fmt::Display for Parting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = match self.left_us {
            Some(us) => format!("its last transaction ended at {}", time(us)),
            None => "the end of its last transaction cannot be read".to_owned(),
        };
        let began = match self.began_us {
            Some(us) => format!("it began at {}", time(us)),
            None => "it cannot be read when it began".to_owned(),
        };
        write!(
            f,
            "two timelines that part at {}, and each has WAL that the other lacks: timeline {} goes on to {} ({ended}), \
             timeline {} to {} ({began}): it is not plain which one to restore",
            self.at, self.left, self.left_end, self.followed, self.followed_end,
        )
    }
}

/// A timeline to which a recovery does not come, because a history on the way is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The timeline on which a server ends that follows the latest one.
    pub reached: Timeline,
    /// The timeline whose history is missing.
    pub missing: Timeline,
    /// The latest timeline that descends from the backup, or may do so: its own history is missing, too.
    pub beyond: Timeline,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = WalName::History(self.missing);
        write!(
            f,
            "the archive has WAL of timeline {}, but {file} is missing: without it a server that recovers ends on timeline {}",
            self.beyond, self.reached
        )
    }
}
