//! What `longshore restore` asks only of PostgreSQL clusters.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, ValueEnum};
use longshore_pipeline::{
    ClusterOptions, Lsn, Recovery, RecoveryTarget, SpaceOptions, TargetAction, Timeline,
    TimelineChoice,
};
use uuid::Uuid;

use super::values::{self, Pair};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Action {
    #[default]
    Pause,
    Promote,
    Shutdown,
}

/// Options that PostgreSQL clusters have.
#[derive(Debug, Args)]
#[command(next_help_heading = "PostgreSQL")]
#[command(group = ArgGroup::new("recovery-end").multiple(false))]
pub struct ClusterArgs {
    /// The directory of a tablespace, named by its OID or its stored directory. Repeatable.
    ///
    /// Without it nothing is written outside --to, unless --tablespaces-as-stored allows it.
    #[arg(long = "tablespace-map", value_name = "OLD=NEW", value_parser = values::pair())]
    pub tablespace_map: Vec<Pair>,

    /// Put the tablespaces that --tablespace-map does not name into the directories they had.
    #[arg(long, hide_short_help = true)]
    pub tablespaces_as_stored: bool,

    /// Make an existing data directory of this cluster the set's, writing only what differs.
    ///
    /// Everything is compared byte by byte; what the set does not have is removed. No server starts on it before the
    /// restore is complete, and one that was interrupted can be repeated.
    #[arg(long, conflicts_with_all = ["replace", "only", "moves"])]
    pub delta: bool,

    /// Recover until this time; the zone must be given, as in `2026-11-21 09:34:10+01`.
    ///
    /// The newest backup that was complete before is restored: of the database's, or without --position of the media's.
    #[arg(long, value_name = "TIME", value_parser = values::zoned_time, group = "recovery-end")]
    pub target_time: Option<i64>,

    /// Recover until this place in the log, as in `16/B374D848`.
    #[arg(long, value_name = "LSN", group = "recovery-end")]
    pub target_lsn: Option<Lsn>,

    /// Recover until this transaction.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "XID",
        group = "recovery-end"
    )]
    pub target_xid: Option<u64>,

    /// Recover until this point, made with pg_create_restore_point.
    #[arg(long, value_name = "NAME", group = "recovery-end", value_parser = values::restore_point)]
    pub target_name: Option<String>,

    /// Recover only until the copy is consistent.
    #[arg(long, hide_short_help = true, group = "recovery-end")]
    pub target_immediate: bool,

    /// Leave out the target itself: stop just before it.
    #[arg(long, hide_short_help = true, requires = "recovery-end")]
    pub target_exclusive: bool,

    /// Which history to follow: `latest`, `current` (the backup's own) or its number.
    #[arg(long, hide_short_help = true, value_name = "TIMELINE", value_parser = timeline)]
    pub target_timeline: Option<TimelineChoice>,

    /// What the server does at the target: wait for you, open for writing, or shut down.
    #[arg(long, value_name = "ACTION", value_enum, requires = "recovery-end")]
    pub target_action: Option<Action>,

    /// Make it a standby: it goes on to replay and does not open for writing.
    #[arg(long)]
    pub standby: bool,

    /// Keep the restored server from archiving: for a copy beside an original that goes on.
    ///
    /// Sets archive_mode to off. Without it a copy that is opened for writing archives a timeline of its own, as its
    /// stored settings say; recoveries after that follow it, since the latest timeline is the default.
    #[arg(long, hide_short_help = true)]
    pub no_archiving: bool,

    /// Keep the restored server's subscriptions from running: for a copy beside an original that goes on.
    ///
    /// Sets max_logical_replication_workers to 0. Without it the copy's workers take the original's replication slots
    /// at its publishers as soon as it opens. Take the line out of postgresql.auto.conf, and restart, when the copy has
    /// taken the original's place.
    #[arg(long, hide_short_help = true)]
    pub no_subscriptions: bool,

    /// The command by which the server fetches log from an archive (restore_command), with %f and %p.
    #[arg(long, hide_short_help = true, value_name = "COMMAND")]
    pub restore_command: Option<String>,

    /// The directory of a `longshore wal` archive, from which the server fetches its log.
    ///
    /// Sets restore_command to `longshore wal get` with this program's own path. The log that is needed is looked for
    /// before anything is written. With --database the default is the database's archive.
    #[arg(long, value_name = "DIR", conflicts_with = "restore_command")]
    pub wal_archive: Option<PathBuf>,
}

fn timeline(text: &str) -> Result<TimelineChoice, String> {
    match text {
        "latest" => Ok(TimelineChoice::Latest),
        "current" => Ok(TimelineChoice::Current),
        number => number
            .parse()
            .ok()
            .and_then(Timeline::new)
            .map(TimelineChoice::Number)
            .ok_or_else(|| "write latest, current or a number from 1 on".to_owned()),
    }
}

impl ClusterArgs {
    pub fn lower(&self) -> ClusterOptions {
        ClusterOptions {
            spaces: SpaceOptions {
                map: self
                    .tablespace_map
                    .iter()
                    .map(|pair| (pair.0.display().to_string(), (&pair.1).into()))
                    .collect::<Vec<(String, PathBuf)>>(),
                as_stored: self.tablespaces_as_stored,
            },
            recovery: self.recovery(),
            no_archiving: self.no_archiving,
            no_subscriptions: self.no_subscriptions,
            log_follows: false,
            hold: false,
            proof: self.wal_archive.clone(),
            delta: self.delta,
        }
    }

    /// `None`: nothing was asked; the server replays the log that there is, and opens.
    pub fn recovery(&self) -> Option<Recovery> {
        let target = self
            .target_time
            .map(RecoveryTarget::Time)
            .or(self.target_lsn.map(RecoveryTarget::Lsn))
            .or(self.target_xid.map(RecoveryTarget::Xid))
            .or(self.target_name.clone().map(RecoveryTarget::Name))
            .or(self.target_immediate.then_some(RecoveryTarget::Immediate));
        let asked = target.is_some()
            || self.standby
            || self.restore_command.is_some()
            || self.wal_archive.is_some()
            || self.target_timeline.is_some();
        asked.then(|| Recovery {
            target,
            exclusive: self.target_exclusive,
            timeline: self.target_timeline.unwrap_or_default(),
            action: match self.target_action.unwrap_or_default() {
                Action::Pause => TargetAction::Pause,
                Action::Promote => TargetAction::Promote,
                Action::Shutdown => TargetAction::Shutdown,
            },
            standby: self.standby,
            restore_command: self
                .restore_command
                .clone()
                .or(self.wal_archive.as_deref().map(archive_command)),
            end_command: None,
            not_ahead: false,
        })
    }
}

/// How a restored server fetches its log from this archive, as a restore of its own. It runs the command in its data
/// directory, so both paths are absolute.
pub fn archive_command(archive: &Path) -> String {
    let archive = std::path::absolute(archive).unwrap_or_else(|_| archive.into());
    let program = std::env::current_exe().unwrap_or_else(|_| "longshore".into());
    let (program, archive) = (word(&program), word(&archive));
    let restore = Uuid::new_v4();
    format!("{program} wal get %f %p --archive {archive} --async --restore {restore}")
}

/// A path as one word of the shell, in a command in which the server replaces what follows a percent sign.
fn word(path: &Path) -> String {
    let text = path.display().to_string();
    format!("'{}'", text.replace('\'', "'\\''").replace('%', "%%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_whatever_is_in_it() {
        assert_eq!(word(Path::new("/a b/it's 5%")), "'/a b/it'\\''s 5%%'");
    }
}
