//! Recovery settings of a restored server: how far to replay, where to find WAL, what to do then.
//!
//! The settings are appended to `postgresql.auto.conf`, where the last value of each setting counts.
//!
//! Invariants
//! - Recovery targets in the stored file are removed: the server accepts at most one, and an empty value does not unset
//!   another. All other stored lines stay as they are.
//! - A value is one line in quotes, whatever it contains: it cannot begin another setting.
//! - A setting is written only for a server that knows it; an older one would not start.
//!
//! Leaves to others: whether the target can be reached (`longshore-wal`), and writing the file and the signal file
//! (`longshore-landing`).
//!
//! Source: PostgreSQL 18 manual, "Archive Recovery" and "Recovery Target".

use std::fmt::Write;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::{Lsn, Timeline};

/// The point at which replay ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryTarget {
    /// As soon as the cluster is consistent.
    Immediate,
    /// Microseconds since the Unix epoch.
    Time(i64),
    Lsn(Lsn),
    /// A transaction number.
    Xid(u64),
    /// A restore point made by `pg_create_restore_point`.
    Name(String),
}

/// Which timeline is followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TimelineChoice {
    /// The latest, where it is plain that the database went on there.
    #[default]
    Plain,
    /// The latest, whatever the others have.
    Latest,
    /// The timeline of the backup.
    Current,
    Number(Timeline),
}

/// The server's action at the target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TargetAction {
    /// Pause, open for queries, until an operator decides.
    #[default]
    Pause,
    /// Open for writing, on a new timeline.
    Promote,
    Shutdown,
}

/// How a restored server recovers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The point at which replay ends; `None`: at the end of the WAL.
    pub target: Option<RecoveryTarget>,
    /// Whether replay stops before the target itself.
    pub exclusive: bool,
    pub timeline: TimelineChoice,
    pub action: TargetAction,
    /// Whether the server stays a standby.
    pub standby: bool,
    /// The command that fetches WAL from an archive.
    pub restore_command: Option<String>,
    /// Whether `restore_command` still lacks its last word, the name of the restore: see [`Recovery::named`].
    pub takes_name: bool,
    /// The command that the server runs once, after recovery.
    pub end_command: Option<String>,
    /// Whether the server requests only the WAL that it replays next. PostgreSQL 15 and later prefetch, and a
    /// restore_command that must not return WAL after the target would end recovery before the target is reached.
    pub not_ahead: bool,
}

/// The first major version that reads WAL ahead of replay.
pub const READS_AHEAD: u32 = 15;

/// Settings that keep a restored server from archiving: the archive belongs to the original server while that runs.
pub const NO_ARCHIVING: &str = "\n# By longshore restore\narchive_mode = 'off'\n";

/// Settings that keep a restored server's subscriptions from running: their slots belong to the original server while
/// that runs.
pub const NO_SUBSCRIPTIONS: &str =
    "\n# By longshore restore\nmax_logical_replication_workers = '0'\n";

/// The effective line of [`NO_ARCHIVING`], in the same form in which the server itself would write it.
pub const ARCHIVING_OFF: &str = "archive_mode = 'off'";

/// A restore_command that never finds a file: the server uses the WAL in `pg_wal`.
pub const NO_ARCHIVE: &str = "false";

const END_COMMAND: &str = "recovery_end_command";
const DELAY: &str = "recovery_min_apply_delay";

/// The original's settings that take effect in a recovery, and that a restored server does without.
const OVERRULED: [&str; 3] = [DELAY, END_COMMAND, "archive_cleanup_command"];

/// The value that keeps a setting from having an effect.
fn overruling(name: &str) -> &'static str {
    if name == DELAY { "0" } else { "" }
}

/// The lines of a stored configuration file as names and values, without quotes.
fn settings(conf: &[u8]) -> impl Iterator<Item = (String, String)> {
    conf.split(|byte| *byte == b'\n').map(|line| {
        let line = String::from_utf8_lossy(line);
        let (name, value) = line
            .trim()
            .split_once(|c: char| c == '=' || c.is_whitespace())
            .unwrap_or_default();
        let value = value.trim_start_matches(|c: char| c == '=' || c.is_whitespace());
        let value = value.split('#').next().unwrap_or_default();
        let value = value.trim().trim_matches('\'');
        (name.to_owned(), value.to_owned())
    })
}

/// The directory that a stored configuration file makes the server use, wherever that file is. Files that it includes are not known
/// here.
pub fn data_directory(conf: &[u8]) -> Option<String> {
    let is_it = |(name, _): &(String, String)| name.eq_ignore_ascii_case("data_directory");
    let last = settings(conf).filter(is_it).last();
    last.map(|(_, value)| value)
        .filter(|value| !value.is_empty())
}

/// The settings in a stored configuration file that a restore overrules: each name once, in the order of the file.
pub fn overruled(conf: &[u8]) -> Vec<&'static str> {
    let mut found = Vec::new();
    for (name, value) in settings(conf) {
        let known = OVERRULED
            .into_iter()
            .find(|known| name.eq_ignore_ascii_case(known));
        let has_effect = |name: &&str| !value.is_empty() && value != overruling(name);
        if let Some(known) = known.filter(has_effect)
            && !found.contains(&known)
        {
            found.push(known);
        }
    }
    found
}

/// The prefix of every setting that names a target.
const TARGET: &[u8] = b"recovery_target";

impl Recovery {
    /// Replays to the end of the WAL in `pg_wal`, and then opens on a new timeline.
    ///
    /// Without recovery settings a server would replay the same WAL and stay on its timeline. The WAL it then writes
    /// would have the same LSNs as another future of the cluster: in archives, and as the base of differential
    /// backups, the two could not be distinguished.
    pub fn of_own_log() -> Recovery {
        Recovery {
            restore_command: Some(NO_ARCHIVE.to_owned()),
            ..Recovery::default()
        }
    }

    /// These settings for the restore of this name ([`crate::wal::restore_name`]).
    pub fn named(mut self, restore: &str) -> Recovery {
        if let Some(command) = self.restore_command.as_mut().filter(|_| self.takes_name) {
            command.push(' ');
            command.push_str(restore);
        }
        self.takes_name = false;
        self
    }

    /// The empty file that requests recovery. A server without such a file replays the WAL in `pg_wal` and stays on
    /// its timeline.
    pub fn signal_file(&self) -> &'static str {
        if self.standby {
            "standby.signal"
        } else {
            "recovery.signal"
        }
    }

    /// The stored `postgresql.auto.conf` with these settings, for a server of this major version.
    pub fn edit(&self, stored: &[u8], major: u32) -> Vec<u8> {
        let is_target = |line: &[u8]| {
            let name = line.trim_ascii_start().get(..TARGET.len());
            name.is_some_and(|name| name.eq_ignore_ascii_case(TARGET))
        };
        let lines = stored.split_inclusive(|byte| *byte == b'\n');
        let mut text: Vec<u8> = lines
            .filter(|line| !is_target(line))
            .flatten()
            .copied()
            .collect();
        text.extend_from_slice(self.settings(major).as_bytes());
        text
    }

    fn settings(&self, major: u32) -> String {
        let mut lines = String::from("\n# By longshore restore\n");
        let mut set = |name: &str, value: &str| {
            let _ = writeln!(lines, "{name} = '{}'", quoted(value));
        };
        if let Some(command) = &self.restore_command {
            set("restore_command", command);
        }
        if let Some(command) = &self.end_command {
            set("recovery_end_command", command);
        }
        match &self.target {
            None => {}
            Some(RecoveryTarget::Immediate) => set("recovery_target", "immediate"),
            Some(RecoveryTarget::Time(us)) => set("recovery_target_time", &time(*us)),
            Some(RecoveryTarget::Lsn(lsn)) => set("recovery_target_lsn", &lsn.to_string()),
            Some(RecoveryTarget::Xid(xid)) => set("recovery_target_xid", &xid.to_string()),
            Some(RecoveryTarget::Name(name)) => set("recovery_target_name", name),
        }
        set(
            "recovery_target_inclusive",
            if self.exclusive { "off" } else { "on" },
        );
        let timeline = match self.timeline {
            TimelineChoice::Plain | TimelineChoice::Latest => "latest".to_owned(),
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
        // A standby keeps its own. A copy would answer with old rows, and run commands that are meant for its original.
        if !self.standby {
            let is_given = self.end_command.is_some();
            let given = |name: &&str| !(is_given && *name == END_COMMAND);
            for name in OVERRULED.into_iter().filter(given) {
                set(name, overruling(name));
            }
        }
        // An older server does not start with a setting that it does not know.
        if self.not_ahead && major >= READS_AHEAD {
            set("recovery_prefetch", "off");
        }
        lines
    }
}

/// The time in the server's format, with its zone.
pub fn time(us: i64) -> String {
    Timestamp::from_microsecond(us)
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .to_zoned(TimeZone::UTC)
        .strftime("%Y-%m-%d %H:%M:%S%.6f+00")
        .to_string()
}

/// A setting's value in quotes: a single line, whatever it contains.
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
    fn the_target_replaces_what_was_stored() {
        let recovery = Recovery {
            target: Some(RecoveryTarget::Time(1_795_253_650_250_000)),
            exclusive: true,
            restore_command: Some("get '%f' \"%p\" \\".to_owned()),
            ..Recovery::default()
        };
        let stored =
            b"# mine\nwork_mem = '4MB'\n Recovery_target_xid='7'\nrecovery_target_name 'x'";
        let text = String::from_utf8(recovery.edit(stored, 18)).unwrap();
        assert!(
            text.starts_with("# mine\nwork_mem = '4MB'\n\n# By"),
            "{text}"
        );
        let line = "\nrecovery_target_time = '2026-11-21 09:34:10.250000+00'\n";
        assert!(text.contains(line), "{text}");
        assert!(
            !text.contains("xid") && !text.contains("target_name"),
            "{text}"
        );
        assert!(text.contains("recovery_target_inclusive = 'off'"), "{text}");
        assert!(
            text.contains("restore_command = 'get ''%f'' \"%p\" \\\\'\n"),
            "{text}"
        );
        assert_eq!(recovery.signal_file(), "recovery.signal");
        assert!(!text.contains("prefetch"), "{text}");
    }

    #[test]
    fn a_command_that_takes_the_restores_name_gets_it_once() {
        let command = |recovery: Recovery| recovery.restore_command.unwrap();
        let wanting = Recovery {
            restore_command: Some("get --restore".to_owned()),
            takes_name: true,
            ..Recovery::default()
        };
        let named = wanting.named("x.y").named("z");
        assert_eq!(command(named), "get --restore x.y");
        assert_eq!(command(Recovery::of_own_log().named("z")), NO_ARCHIVE);
    }

    #[test]
    fn only_a_server_that_prefetches_gets_recovery_prefetch_off() {
        let recovery = Recovery {
            not_ahead: true,
            ..Recovery::default()
        };
        let told = |major| {
            recovery
                .settings(major)
                .contains("\nrecovery_prefetch = 'off'\n")
        };
        assert_eq!((told(14), told(15)), (false, true));
    }

    #[test]
    fn a_copy_does_without_what_its_origin_did_at_the_end_of_a_recovery() {
        let stored = b"recovery_min_apply_delay = '1d'\n";
        let edited = |recovery: Recovery| {
            let text = String::from_utf8(recovery.edit(stored, 15)).unwrap();
            let (_, own) = text.rsplit_once("# By longshore restore").unwrap();
            own.to_owned()
        };
        let own = edited(Recovery::of_own_log());
        for line in [
            "min_apply_delay = '0'",
            "end_command = ''",
            "cleanup_command = ''",
        ] {
            assert!(own.contains(line), "{own}");
        }
        let commanded = Recovery {
            end_command: Some("mine".to_owned()),
            ..Recovery::default()
        };
        let own = edited(commanded);
        assert!(
            own.contains("end_command = 'mine'") && !own.contains("end_command = ''"),
            "{own}"
        );
        let standby = Recovery {
            standby: true,
            ..Recovery::default()
        };
        assert!(!edited(standby).contains("delay"));
    }

    #[test]
    fn overruled_settings_are_found_as_the_server_reads_them() {
        let conf = b"# recovery_end_command = 'a'\nRecovery_End_Command 'touch x' # why\n recovery_min_apply_delay=1d\n\
            archive_cleanup_command = ''\nrecovery_min_apply_delay = '2d'\nrecovery_ends = 1\n";
        assert_eq!(overruled(conf), [END_COMMAND, DELAY]);
        assert!(overruled(b"recovery_min_apply_delay = 0\n").is_empty());
    }

    #[test]
    fn the_last_data_directory_of_a_file_counts() {
        let conf =
            b"# data_directory = '/no'\ndata_directory = '/one'\nData_Directory '/two' # here\n";
        assert_eq!(data_directory(conf).as_deref(), Some("/two"));
        assert_eq!(data_directory(b"#data_directory = 'ConfigDir'\n"), None);
    }

    #[test]
    fn a_name_cannot_end_its_line() {
        let recovery = Recovery {
            target: Some(RecoveryTarget::Name("a'\nfsync = off".to_owned())),
            ..Recovery::default()
        };
        assert!(
            recovery
                .settings(18)
                .contains("recovery_target_name = 'a''\\nfsync = off'\n")
        );
    }
}
