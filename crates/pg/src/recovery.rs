//! What a restored server is told: how far to replay, where to find the log, what to do then.
//!
//! The settings go to the end of `postgresql.auto.conf`, where the last word on each of them counts. All targets that
//! are not meant are set to nothing: a stored file may name another, and the server takes one at most.
//! Source: PostgreSQL 18 manual, "Archive Recovery" and "Recovery Target".

use std::fmt::Write;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::{Lsn, Timeline};

/// Where replay ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryTarget {
    /// As soon as the copy is consistent.
    Immediate,
    /// Microseconds since the Unix epoch.
    Time(i64),
    Lsn(Lsn),
    /// A transaction's number.
    Xid(u64),
    /// Made by `pg_create_restore_point`.
    Name(String),
}

/// Which history of the cluster is followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TimelineChoice {
    #[default]
    Latest,
    /// The one on which the backup was made.
    Current,
    Number(Timeline),
}

/// What the server does at the target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TargetAction {
    /// It waits, open for queries, until somebody looked and decided.
    #[default]
    Pause,
    /// It opens for writing, on a new timeline.
    Promote,
    Shutdown,
}

/// How a restored server recovers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Where replay ends; `None`: at the end of the log.
    pub target: Option<RecoveryTarget>,
    /// Whether the target itself is left out.
    pub exclusive: bool,
    pub timeline: TimelineChoice,
    pub action: TargetAction,
    /// Whether it stays a standby.
    pub standby: bool,
    /// The command that fetches log from an archive.
    pub restore_command: Option<String>,
}

/// The settings that name a target.
const TARGETS: [&str; 5] = [
    "recovery_target",
    "recovery_target_time",
    "recovery_target_lsn",
    "recovery_target_xid",
    "recovery_target_name",
];

impl Recovery {
    /// The empty file whose presence says what is wanted. A server without either replays only what `pg_wal` holds.
    pub fn signal_file(&self) -> &'static str {
        if self.standby {
            "standby.signal"
        } else {
            "recovery.signal"
        }
    }

    /// Lines for the end of `postgresql.auto.conf`.
    pub fn settings(&self) -> String {
        let mut lines = String::from("\n# By longshore restore\n");
        let mut set = |name: &str, value: &str| {
            let _ = writeln!(lines, "{name} = '{}'", quoted(value));
        };
        if let Some(command) = &self.restore_command {
            set("restore_command", command);
        }
        let meant = self.target.as_ref().map(|target| match target {
            RecoveryTarget::Immediate => ("recovery_target", "immediate".to_owned()),
            RecoveryTarget::Time(us) => ("recovery_target_time", time(*us)),
            RecoveryTarget::Lsn(lsn) => ("recovery_target_lsn", lsn.to_string()),
            RecoveryTarget::Xid(xid) => ("recovery_target_xid", xid.to_string()),
            RecoveryTarget::Name(name) => ("recovery_target_name", name.clone()),
        });
        for name in TARGETS {
            match &meant {
                Some((target, value)) if *target == name => set(name, value),
                _ => set(name, ""),
            }
        }
        set(
            "recovery_target_inclusive",
            if self.exclusive { "off" } else { "on" },
        );
        let timeline = match self.timeline {
            TimelineChoice::Latest => "latest".to_owned(),
            TimelineChoice::Current => "current".to_owned(),
            TimelineChoice::Number(number) => number.to_string(),
        };
        set("recovery_target_timeline", &timeline);
        let action = match self.action {
            TargetAction::Pause => "pause",
            TargetAction::Promote => "promote",
            TargetAction::Shutdown => "shutdown",
        };
        set("recovery_target_action", action);
        lines
    }
}

/// In the server's time format, with its zone.
pub fn time(us: i64) -> String {
    Timestamp::from_microsecond(us)
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .to_zoned(TimeZone::UTC)
        .strftime("%Y-%m-%d %H:%M:%S%.6f+00")
        .to_string()
}

/// A setting's value between quotes: one line, whatever is in it.
fn quoted(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('\'', "''")
        .replace('\n', "\\n")
        .replace('\r', "\\r")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_target_is_set_and_the_others_are_unset() {
        let recovery = Recovery {
            target: Some(RecoveryTarget::Time(1_795_253_650_250_000)),
            exclusive: true,
            restore_command: Some("get '%f' \"%p\" \\".to_owned()),
            ..Recovery::default()
        };
        let text = recovery.settings();
        assert!(
            text.contains("\nrecovery_target_time = '2026-11-21 09:34:10.250000+00'\n"),
            "{text}"
        );
        for name in ["", "_lsn", "_xid", "_name"] {
            assert!(
                text.contains(&format!("\nrecovery_target{name} = ''\n")),
                "{text}"
            );
        }
        assert!(text.contains("recovery_target_inclusive = 'off'"), "{text}");
        assert!(
            text.contains("restore_command = 'get ''%f'' \"%p\" \\\\'\n"),
            "{text}"
        );
        assert_eq!(recovery.signal_file(), "recovery.signal");
    }

    #[test]
    fn a_name_cannot_end_its_line() {
        let recovery = Recovery {
            target: Some(RecoveryTarget::Name("a'\nfsync = off".to_owned())),
            ..Recovery::default()
        };
        assert!(
            recovery
                .settings()
                .contains("recovery_target_name = 'a''\\nfsync = off'\n")
        );
    }
}
