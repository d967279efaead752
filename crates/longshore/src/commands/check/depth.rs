//! How far a check goes.

use crate::options::Check;

/// How a check is made.
#[derive(Debug, Clone, Copy)]
pub struct CheckDepth {
    /// The maximum age of the newest good backup, in hours.
    pub max_age: u32,
    /// The maximum age of the last good verification, in hours; `None`: any.
    pub max_verify_age: Option<u32>,
    /// The same of the last good drill.
    pub max_drill_age: Option<u32>,
    /// The seconds to wait for a WAL segment to arrive; 0: the server switches none.
    pub archive_wait: u32,
    /// Whether nothing may be changed, wherever: the server only reports on its archive_command, and no object is written
    /// to find out what a store does.
    pub only_looks: bool,
}

impl CheckDepth {
    pub fn of(options: &Check) -> CheckDepth {
        CheckDepth {
            max_age: options.max_age,
            max_verify_age: options.max_verify_age,
            max_drill_age: options.max_drill_age,
            archive_wait: options.archive_wait,
            only_looks: false,
        }
    }
}
