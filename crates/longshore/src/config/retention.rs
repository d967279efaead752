//! The table `[retention.NAME]`: rules that decide which backups of a database a target keeps.
//!
//! Invariants
//! - A rule that would keep nothing is refused.
//!
//! Leaves to others: which rules apply to a database (`mod.rs`), and what they keep (`longshore-repository`).

use longshore_repository::retention::Policy;
use serde::Deserialize;

/// The rules that decide which backups of a database a target keeps.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    pub keep_full: Option<u32>,
    pub keep_days: Option<u32>,
    pub keep_wal: Option<u32>,
}

impl Retention {
    pub const KEYS: &[&str] = &["keep_full", "keep_days", "keep_wal"];

    pub fn policy(self) -> Policy {
        Policy {
            keep_full: self.keep_full,
            keep_days: self.keep_days,
            keep_wal: self.keep_wal,
            counts_emptied: false,
        }
    }
}

/// Errors: the rules keep nothing, or there is none.
pub fn check_retention(name: &str, retention: &Retention) -> Result<(), String> {
    let numbers = [retention.keep_full, retention.keep_days, retention.keep_wal];
    if numbers.contains(&Some(0)) {
        return Err(format!(
            "[retention.{name}]: 0 would keep nothing; leave out the key to have no such rule"
        ));
    }
    match retention.policy().is_empty() {
        true => Err(format!(
            "[retention.{name}] needs `keep_full` or `keep_days`: without a rule nothing is removed"
        )),
        false => Ok(()),
    }
}
