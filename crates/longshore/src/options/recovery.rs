//! Options of `longshore restore` for PostgreSQL clusters only.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//! - Parsing opens no file. A value is checked by its own parser (`values.rs` of `longshore-terminal`).
//!
//! Leaves to others: the meaning of the options (`restore.rs` in `commands`).

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, ValueEnum};
use longshore_crypt::Signers;
use longshore_pipeline::{
    ClusterOptions, DatabaseChoice, Lsn, Recovery, RecoverySettings, RecoveryTarget, SpaceOptions,
    TargetAction, Timeline, TimelineChoice,
};
use longshore_wal::is_in_bucket;

use super::values::{self, ArchivePath, Pair};
use crate::key_command::is_key_of_command;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Action {
    #[default]
    Pause,
    Promote,
    Shutdown,
}

/// A restore's treatment of the recovery settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum RecoverySettingsArg {
    #[default]
    Write,
    Keep,
    None,
}

impl From<RecoverySettingsArg> for RecoverySettings {
    fn from(settings: RecoverySettingsArg) -> RecoverySettings {
        match settings {
            RecoverySettingsArg::Write => RecoverySettings::Write,
            RecoverySettingsArg::Keep => RecoverySettings::Keep,
            RecoverySettingsArg::None => RecoverySettings::None,
        }
    }
}

/// Options for PostgreSQL clusters.
#[derive(Debug, Args)]
#[command(next_help_heading = "PostgreSQL")]
#[command(group = ArgGroup::new("recovery-end").multiple(false))]
pub struct ClusterArgs {
    /// New directory of a tablespace (its OID or directory). Repeatable.
    ///
    /// Without it the restore writes nothing outside --to, unless --tablespaces-as-stored allows it. From a pipe, only OIDs
    /// are known before the set is read.
    #[arg(long = "tablespace-map", value_name = "OLD=NEW", value_parser = values::pair())]
    pub tablespace_map: Vec<Pair>,

    /// Restore tablespaces that --tablespace-map does not name into their original directories.
    ///
    /// For a machine that replaces the original, never for one on which the original server runs: the directories are that
    /// server's own.
    #[arg(long, hide_short_help = true)]
    pub tablespaces_as_stored: bool,

    /// Make this cluster's data directory the set's; write what differs.
    ///
    /// Everything is compared byte by byte; files that the set does not have are removed. No server starts on the
    /// directory before the restore is complete. An interrupted restore can be repeated.
    #[arg(long, conflicts_with_all = ["replace", "only", "moves"])]
    pub delta: bool,

    /// Remove transactions that only the target's own pg_wal has.
    ///
    /// A server that crashed may have committed them after its last archived WAL. A restore over its data directory (--replace,
    /// --delta) that goes to the archive's end is refused without this option; one with a recovery target warns.
    #[arg(long, hide_short_help = true, requires = "over")]
    pub discard_wal: bool,

    /// Recover until this time with its zone: `2026-11-21 09:34:10+01`.
    ///
    /// A time without a zone is refused, because recovery to the wrong hour loses data.
    /// Restores the newest backup that was complete before this time: with --database among the database's backups,
    /// with media and no --position among the sets on the media. Without a recovery target the server replays all WAL
    /// that it finds.
    #[arg(long, value_name = "TIME", value_parser = values::zoned_time, group = "recovery-end")]
    pub target_time: Option<i64>,

    /// Recover until this LSN, as in `16/B374D848`.
    ///
    /// The most exact target: pg_waldump shows the LSN of each commit. Give the one where the last wanted record
    /// begins. Without a recovery target the server replays all WAL that it finds.
    #[arg(long, value_name = "LSN", group = "recovery-end")]
    pub target_lsn: Option<Lsn>,

    /// Recover until this transaction.
    ///
    /// Transactions that committed before this one are restored, also those with a higher number; later ones are not.
    /// Without a recovery target the server replays all WAL that it finds.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "XID",
        group = "recovery-end"
    )]
    pub target_xid: Option<u64>,

    /// Recover until this point, made with pg_create_restore_point.
    ///
    /// For a point that was made before a risky change: `SELECT pg_create_restore_point('NAME')`. If several points
    /// have this name, recovery stops at the first. Without a recovery target the server replays all WAL that it
    /// finds.
    #[arg(long, value_name = "NAME", group = "recovery-end", value_parser = values::restore_point)]
    pub target_name: Option<String>,

    /// Recover only until the copy is consistent.
    ///
    /// The earliest state that this backup can give: the end of the backup. For a backup that an archive does not follow.
    #[arg(long, hide_short_help = true, group = "recovery-end")]
    pub target_immediate: bool,

    /// Stop just before the recovery target.
    ///
    /// Sets recovery_target_inclusive to off, to leave out the transaction that did the damage.
    #[arg(long, hide_short_help = true, requires = "recovery-end")]
    pub target_exclusive: bool,

    /// The timeline to follow: `latest`, `current` (the backup's own) or its number.
    ///
    /// The default is `latest`, as PostgreSQL's; it includes what was committed after an earlier recovery. Give a number
    /// to return to the state before that recovery; `longshore wal list` shows the timelines.
    #[arg(long, hide_short_help = true, value_name = "TIMELINE", value_parser = timeline)]
    pub target_timeline: Option<TimelineChoice>,

    /// What the server does at the target: pause, promote or shutdown.
    ///
    /// `pause` (the default) lets you read the data before you decide: pg_wal_replay_resume() opens the server. `promote`
    /// opens it for writing at once, on a new timeline. `shutdown` stops it, ready to replay further.
    #[arg(
        long,
        value_name = "ACTION",
        value_enum,
        hide_possible_values = true,
        requires = "recovery-end"
    )]
    pub target_action: Option<Action>,

    /// Restore a standby: it goes on replaying and is not writable.
    ///
    /// Creates standby.signal. Set primary_conninfo in the copy if it must also stream from the primary.
    #[arg(long)]
    pub standby: bool,

    /// Restore only this database's content: name or OID. Repeatable.
    ///
    /// Others are left empty: their files become holes of their length, so that the server can recover; drop these databases
    /// when it has opened. postgres, template0, template1 and what all databases share are always restored. By default
    /// every database is restored. Not with --delta, and not from a pipe.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["db_exclude", "delta", "only", "moves"])]
    pub db_include: Vec<String>,

    /// Leave this database empty. NAME: its name or OID. Repeatable.
    ///
    /// Its files become holes of their length, so that the server can recover; drop it when the server has opened. By default
    /// every database is restored. Not with --delta, and not from a pipe.
    #[arg(long, hide_short_help = true, value_name = "NAME", conflicts_with_all = ["delta", "only", "moves"])]
    pub db_exclude: Vec<String>,

    /// What happens to recovery settings: write, keep or none.
    ///
    /// `write` (the default) requests recovery and writes settings to postgresql.auto.conf. `keep` requests recovery by the
    /// settings that the cluster was backed up with, and changes none of them. `none` requests nothing: the server replays
    /// the WAL in the backup, as after a crash, and stays on its timeline; so the backup must hold its WAL. Archives and
    /// differential backups cannot tell such a copy from its original: use it where the original is gone.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "WHAT",
        value_enum,
        hide_possible_values = true,
        default_value = "write",
        hide_default_value = true
    )]
    pub recovery_settings: RecoverySettingsArg,

    /// Keep the restored server from archiving: for a copy of a server that keeps running.
    ///
    /// Sets archive_mode to off. Without it a copy that opens for writing archives a timeline of its own, as its
    /// stored settings say; later recoveries follow that timeline, since the latest is the default.
    #[arg(long, hide_short_help = true)]
    pub no_archiving: bool,

    /// Keep the restored server's subscriptions from running: for a copy of a server that keeps running.
    ///
    /// Sets max_logical_replication_workers to 0. Without it the copy's workers take over the original's replication
    /// slots at its publishers as soon as it opens. If the copy replaces the original, remove the line from
    /// postgresql.auto.conf and restart the server.
    #[arg(long, hide_short_help = true)]
    pub no_subscriptions: bool,

    /// The server's restore_command, which fetches WAL from an archive, with %f and %p.
    ///
    /// For archives of other programs; for Longshore's use --wal-archive, which also checks that the WAL is complete.
    /// The command must end with a code other than 0 if it does not have the file. Without either option
    /// the server fetches WAL from the archive of --database, else it replays only the WAL in the backup itself.
    #[arg(long, hide_short_help = true, value_name = "COMMAND")]
    pub restore_command: Option<String>,

    /// The WAL archive to use: a directory, or s3://BUCKET/PREFIX.
    ///
    /// Sets restore_command to `longshore wal get` with this program's own path. Before it writes, the restore checks
    /// that the archive has the WAL that is needed. With --database the default is the database's archive.
    #[arg(long, value_name = "DIR", conflicts_with = "restore_command", value_parser = values::archive())]
    pub wal_archive: Option<ArchivePath>,
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
            .ok_or_else(|| "write latest, current or a number above 0".to_owned()),
    }
}

impl ClusterArgs {
    pub fn lower(&self) -> ClusterOptions {
        ClusterOptions {
            any_system: false,
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
            proof: self.wal_archive.as_deref().map(Into::into),
            delta: self.delta,
            discard_wal: self.discard_wal,
            databases: match (&*self.db_include, &*self.db_exclude) {
                ([], []) => DatabaseChoice::All,
                ([], without) => DatabaseChoice::Without(without.to_vec()),
                (only, _) => DatabaseChoice::Only(only.to_vec()),
            },
            settings: self.recovery_settings.into(),
        }
    }

    /// Whether the restore writes recovery settings of its own.
    pub fn writes_settings(&self) -> bool {
        self.recovery_settings == RecoverySettingsArg::Write
    }

    /// The option that contradicts `--recovery-settings`, if one was given.
    pub fn contradiction(&self) -> Option<&'static str> {
        if self.writes_settings() {
            return None;
        }
        let given = [
            (self.target_time.is_some(), "--target-time"),
            (self.target_lsn.is_some(), "--target-lsn"),
            (self.target_xid.is_some(), "--target-xid"),
            (self.target_name.is_some(), "--target-name"),
            (self.target_immediate, "--target-immediate"),
            (self.target_timeline.is_some(), "--target-timeline"),
            (self.standby, "--standby"),
            (self.restore_command.is_some(), "--restore-command"),
            (self.wal_archive.is_some(), "--wal-archive"),
        ];
        let given = given.into_iter().find(|(is_given, _)| *is_given);
        given.map(|(_, option)| option)
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
            restore_command: self.restore_command.clone().or(self
                .wal_archive
                .as_deref()
                // The restore itself adds what it finds out about the archive.
                .map(|path| archive_command(path, &[], None, &Signers::default(), false))),
            takes_name: self.restore_command.is_none() && self.wal_archive.is_some(),
            end_command: None,
            not_ahead: false,
        })
    }
}

/// The moment at which this process reads buckets, as `--as-of` takes it.
fn past_us() -> Option<jiff::Timestamp> {
    let past_ns = longshore_repository::past_ns()?;
    jiff::Timestamp::from_microsecond(past_ns / 1000).ok()
}

/// How a restored server fetches its log from this archive, but for the name of the restore ([`Recovery::named`]). It
/// runs the command in its data directory, so all paths are absolute. `takes_part`: a segment that a receiver has in part, too. `identities`: files that open the archive,
/// or keys of programs. `config`: the file that has the archive's server, where its address names one, or those programs. `signers`: whose signatures the restore
/// demands, so that the server demands them, too.
pub fn archive_command(
    archive: &Path,
    identities: &[PathBuf],
    config: Option<&Path>,
    signers: &Signers,
    takes_part: bool,
) -> String {
    let (archive, past) = match is_in_bucket(archive) {
        true => (archive.to_owned(), past_us()),
        false => {
            let absolute = std::path::absolute(archive);
            (absolute.unwrap_or_else(|_| archive.into()), None)
        }
    };
    let program = std::env::current_exe().unwrap_or_else(|_| "longshore".into());
    let (program, archive) = (word(&program), word(&archive));
    let past = past
        .map(|past| format!(" --as-of {past}"))
        .unwrap_or_default();
    let mut keys = String::new();
    for file in identities {
        let absolute = match is_key_of_command(file) {
            true => file.clone(),
            false => std::path::absolute(file).unwrap_or_else(|_| file.clone()),
        };
        keys.push_str(&format!(" --identity {}", word(&absolute)));
    }
    if signers.required() {
        let named = signers.list().iter().map(|s| format!(" --signer {s}"));
        keys.extend(named.chain([" --require-signature".to_owned()]));
    }
    let config = config.map(|file| format!(" --config {}", word(file)));
    let config = config.unwrap_or_default();
    let part = if takes_part { " --partial" } else { "" };
    format!(
        "{program} wal get %f %p --archive {archive}{config}{keys}{past}{part} --async --restore"
    )
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

    /// Goal: WAL is fetched under the rules of the restore, which no configuration of the server's user need have.
    #[test]
    fn a_restored_server_demands_the_signatures_that_the_restore_demanded() {
        let text = "lssigner13r95ylmy6q3zy52h98e6zmf0wk9my5jc0my5yxs8cc73tyecp6kqc653gk";
        let signers = |required| Signers::new(vec![text.parse().unwrap()], required).unwrap();
        let command =
            |required| archive_command(Path::new("/a"), &[], None, &signers(required), false);
        let option = format!(" --signer {text} --require-signature ");
        assert!(command(true).contains(&option), "{}", command(true));
        assert!(!command(false).contains("sign"), "{}", command(false));
    }
}
