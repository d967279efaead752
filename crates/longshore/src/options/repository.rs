//! `expire`, `info`, `metrics`, `check` and `drill`: commands about the contents of targets.
//!
//! Invariants
//! - The first line of an option's comment is its help with `-h`, the rest that with `--help`; tests of the options
//!   demand both.
//! - Parsing opens no file. A value is checked by its own parser (`values.rs` of `longshore-terminal`).
//!
//! Leaves to others: the meaning of the options (files of the commands' names in `commands`).

use std::path::PathBuf;

use clap::Args;

use longshore_media::DeviceSpec;
use longshore_repository::Label;

use super::{AsOf, SetKeyOptions, TransferOptions, values};

const TEACH_EXPIRE: &str = "\
Examples:
  longshore expire sales --dry-run
      which backups would be removed, and why the others are kept
  longshore expire
      every configured database, by its own retention
  longshore expire sales --keep-full 3
      by another rule, once

Not for: making room in a hurry: it removes only backups that no retention rule covers, and never
the newest good backup, one that a kept backup depends on, one in use or one being written.";

/// Removes backups and WAL that no retention rule covers.
///
/// The rules are the database's [retention.NAME] in the configuration, or the options here. Without a rule nothing is
/// removed. A backup is removed with all its stripes; a differential is kept as long as its full backup, and WAL as
/// long as a kept backup needs it. Each backup is renamed first, so that an interruption leaves nothing that looks like
/// a backup. docs/repository.md has the rules in full.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_EXPIRE)]
pub struct Expire {
    /// Databases of the configuration; the default is all of them that have a target and a retention.
    ///
    /// With --target, the default is all at that target. Those that the configuration does not have may be another host's:
    /// without their names, only a `retention` of [target.NAME] itself removes anything of them.
    #[arg(value_name = "DATABASE")]
    pub databases: Vec<String>,

    /// The target; the default is the one configured for each database.
    ///
    /// The rules count the backups at one target. Without this option, copies at other targets are expired, too, each by its
    /// target's rules; rules of the command line apply to the database's own target.
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,

    /// Show what would be removed, and remove nothing.
    ///
    /// Use it before the first expire with a new rule: the table names each backup and the rule that keeps it.
    #[arg(long, short = 'n')]
    pub dry_run: bool,

    #[command(flatten)]
    pub rules: Rules,
}

/// Retention rules.
#[derive(Debug, Args)]
#[command(next_help_heading = "Rules, instead of the configured ones")]
pub struct Rules {
    /// Keep the newest N full backups.
    ///
    /// There is no default: only you know how many you need. Differentials are no full backups and are not counted. A
    /// backup that a kept one depends on is kept, too.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_full: Option<u32>,

    /// Keep what is needed to recover to any moment of the last N days.
    ///
    /// There is no default: only you know how far back you must go. That is more than the backups of these days: the
    /// one that was newest N days ago is needed, too, and its WAL.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_days: Option<u32>,

    /// Keep WAL without gaps for the newest N full backups only; the default is for all kept backups.
    ///
    /// Older backups keep only the WAL that makes them consistent, and can be restored only as they were at their end. Use
    /// it if WAL needs more room than backups.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_wal: Option<u32>,
}

const TEACH_STOP: &str = "\
Examples:
  longshore stop sales --reason 'the backup disk is replaced until noon'
      no backup, copy or expire of sales begins, from any host
  longshore stop
      the same of every configured database

Not for: ending what runs: that goes on to its end. Restores, verifications and the archiving of
WAL are not stopped.";

/// Keeps backups, copies and expires from beginning at a target, on every host.
///
/// A word at the target says who stopped them, when and why; commands that are refused show it. `longshore start` allows
/// them again.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_STOP)]
pub struct Stop {
    /// Databases of the configuration; the default is all of them that have a target.
    #[arg(value_name = "DATABASE")]
    pub databases: Vec<String>,

    /// The target; the default is the one configured for each database.
    ///
    /// Without this option the targets of copies are stopped, too.
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,

    /// Why; commands that are refused show it.
    ///
    /// Without it they show only who stopped them, and when. Write what has to happen before the start.
    #[arg(long, value_name = "TEXT", value_parser = values::description)]
    pub reason: Option<String>,
}

const TEACH_UPLOADS: &str = "\
Examples:
  longshore uploads s3://my-bucket/app/1.bak
      what a killed backup to this object left
  longshore uploads s3://my-bucket --abort
      the same everywhere in the bucket; aborts what got no part for a day and no lease protects

Not for: Azure, which has no uploads and drops blocks that belong to no blob after a week. Below a
target, `longshore expire` aborts them, too.";

/// Shows uploads to object stores that have not ended, and aborts old ones.
///
/// A process that is killed cannot abort its uploads, and the store charges for their parts until somebody does. An upload is
/// left alone while its last part is younger than --idle, or while a live lease next to it says that a backup is being written.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_UPLOADS)]
pub struct Uploads {
    /// Objects, or prefixes with all below them: s3://BUCKET/KEY, gs://BUCKET/KEY.
    ///
    /// There is no default. A bucket alone, s3://BUCKET, means all uploads in it, also those of other programs.
    #[arg(value_name = "ADDRESS", required = true, value_parser = values::device())]
    pub addresses: Vec<DeviceSpec>,

    /// Abort those that nothing protects; without it they are only shown.
    ///
    /// An aborted upload cannot be completed, and an interrupted copy cannot go on with it. Needs
    /// s3:AbortMultipartUpload.
    #[arg(long)]
    pub abort: bool,

    /// Hours without a part after which an upload may be aborted.
    ///
    /// The default is 24: a part takes seconds to minutes, and a day leaves time to run an interrupted copy again. Programs that
    /// share the bucket may be slower. Their uploads count, too.
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..))]
    pub idle: u32,
}

const TEACH_START: &str = "\
Examples:
  longshore start sales
      after `longshore stop sales`, from any host

Not for: running a backup: `longshore backup sales` does that.";

/// Allows again what `longshore stop` forbade.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_START)]
pub struct Start {
    /// Databases of the configuration; the default is all of them that have a target.
    #[arg(value_name = "DATABASE")]
    pub databases: Vec<String>,

    /// The target; the default is the one configured for each database.
    ///
    /// Without this option the targets of copies are started, too.
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
}

const TEACH_COPY: &str = "\
Examples:
  longshore copy sales
      what the targets in `copies` of [database.sales] lack; for a timer
  longshore copy sales --to offsite --dry-run
      what would be copied there, and why the rest would not
  longshore copy sales --from offsite --to disks --label 20270131T020000Z-full-1a2b3c4d
      back from the copy, with all backups that this one needs

Not for: a first backup at a second place while the first one is away: name that target for the
backup itself (`longshore backup sales --target offsite`).";

/// Copies backups and WAL from one target to another, byte for byte.
///
/// A copy is the same backup under the same label: any command reads it with --target. Nothing is decoded, but every
/// checksum is compared on the way, so damage is not copied. The backups that are there are left alone, and those that
/// the next expire there would remove are not copied. WAL goes into an archive of the other target. Each target has its
/// own retention: `retention` in [target.NAME]. An interrupted copy is no backup; the next run goes on with it.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_COPY)]
pub struct Copy {
    /// Databases of the configuration; the default is all of them that have copies.
    #[arg(value_name = "DATABASE")]
    pub databases: Vec<String>,

    /// The target that is read; the default is the one configured for each database.
    ///
    /// Give a copy's target to bring backups back from it, with --to.
    #[arg(long, value_name = "NAME")]
    pub from: Option<String>,

    /// The target that is written; the default is each in `copies` of the database.
    ///
    /// Give one to copy to another place once. Its directories or buckets must exist.
    #[arg(long, value_name = "NAME")]
    pub to: Option<String>,

    /// Only this backup and those it needs, also if retention would remove it there; repeatable.
    ///
    /// The default is every backup that retention there keeps. `longshore info` shows the labels.
    #[arg(long = "label", value_name = "LABEL")]
    pub labels: Vec<Label>,

    /// Show what would be copied, and copy nothing.
    ///
    /// Use it before the first copy: the table has the bytes that the other target will need.
    #[arg(long, short = 'n')]
    pub dry_run: bool,

    /// Copy no WAL.
    ///
    /// Use it where the server archives its WAL to the other target, too, or where backups hold the WAL they need. The
    /// default copies what recovery from the copied backups needs, to any moment up to the archive's end.
    #[arg(long)]
    pub no_wal: bool,

    /// Read at most this many bytes of backups per second.
    ///
    /// Counts stored bytes of stripes; WAL is not counted. Units are powers of 1024; `/s` may follow. There is no default
    /// limit. Use it to spare a line that others need.
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub max_rate: Option<u64>,
}

const TEACH_INFO: &str = "\
Examples:
  longshore info
      every configured database
  longshore info sales --json
      one, for a script

Not for: proving that backups can be restored; `longshore verify` reads them, `longshore drill`
restores one.";

/// Shows what targets hold: backups, chains, sizes, WAL and its gaps, what will expire.
///
/// Everything is read from the media and the archive, not from the history. Only headers are read.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_INFO)]
pub struct Info {
    /// Databases; the default is all configured ones, or with --target all at that target.
    #[arg(value_name = "DATABASE")]
    pub databases: Vec<String>,

    /// The target; the default is the one configured for each database.
    ///
    /// With this option and without a database, the command shows all databases at the target, also those that the
    /// configuration does not name. Give it for copies at another target.
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,

    /// Print metrics in Prometheus' text format, as `longshore metrics` does.
    ///
    /// The older name of that command, for scripts that have it: `longshore metrics --output FILE` also writes the file
    /// as a collector needs it. Without this option the answer is for people, or JSON.
    #[arg(long)]
    pub prometheus: bool,

    #[command(flatten)]
    pub past: AsOf,
}

const TEACH_METRICS: &str = "\
Examples:
  longshore metrics
      every configured database, to standard output
  longshore metrics --output /var/lib/prometheus/node-exporter/longshore.prom
      for the textfile collector of node_exporter; by cron or a timer, each 5 minutes

Not for: a Prometheus that asks by itself; `longshore serve --http` answers it at /metrics, with
what `longshore check` says in addition.";

/// Prints the facts of `longshore info` as metrics for Prometheus.
///
/// Times, ages, sizes and states of the backups of each database at each target, its WAL and its gaps, what earlier runs
/// found out, and whether the target could be read (longshore_up). docs/recipes.md lists the metrics, the alert rules
/// and the dashboard.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_METRICS)]
pub struct Metrics {
    /// Databases; the default is all configured ones, or with --target all at that target.
    #[arg(value_name = "DATABASE")]
    pub databases: Vec<String>,

    /// The target; the default is the one configured for each database, and those of its copies.
    ///
    /// With this option and without a database, the command shows all databases at the target, also those that the
    /// configuration does not name.
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,

    /// Write the metrics to this file; the default is standard output.
    ///
    /// The file is replaced as a whole, so that a collector never reads half of it, and everybody may read it. Give it
    /// the ending .prom in the directory of node_exporter's textfile collector.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

const TEACH_CHECK: &str = "\
Examples:
  longshore check
      every configured database; for a monitor: exit code 0, 1 or 5
  longshore check sales --max-age 26

Not for: reading backups; `longshore verify` does that. The check changes nothing, except that a
PostgreSQL server switches to a new WAL segment.";

/// Checks whether the next backup and the next restore would work.
///
/// Checks the configuration, target directories and their free space, whether the source can be reached, the newest
/// backup's age and state, chains, gaps in the WAL; for PostgreSQL also whether a WAL segment arrives in the archive.
/// Exit code 0: no problem. 5: a warning. 1: something is wrong.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_CHECK)]
pub struct Check {
    /// Databases of the configuration; the default is all of them.
    #[arg(value_name = "DATABASE")]
    pub databases: Vec<String>,

    /// Maximum age of the newest good backup, in hours.
    ///
    /// The default is 26: a day, and two hours for a slow nightly backup. Give the interval of your schedule and the length
    /// of its longest run.
    #[arg(long, value_name = "HOURS", default_value_t = 26)]
    pub max_age: u32,

    /// Maximum age of the last verification that found a backup good, in hours.
    ///
    /// Counts verifications of backups that are still there, by any host: their results are recorded at the target. Without
    /// this option their age is shown and judged by nobody. Give the interval of your timer for `longshore verify` and the
    /// length of its longest run.
    #[arg(long, value_name = "HOURS")]
    pub max_verify_age: Option<u32>,

    /// Maximum age of the last drill that found a backup good, in hours.
    ///
    /// Counts drills of backups that are still there, by any host. Without this option their age is shown and judged by
    /// nobody. Give the interval of your timer for `longshore drill` and the length of its longest run.
    #[arg(long, value_name = "HOURS")]
    pub max_drill_age: Option<u32>,

    /// Seconds to wait for a WAL segment to arrive in the archive; 0: only the server is asked.
    ///
    /// The default is 60: a server whose archive_command failed tries again after at most a minute. The check makes the
    /// server switch to a new segment, so give 0 where a check runs every minute: it then fails by the server's own report on
    /// archive_command, and does not see whether a segment that the server takes for archived is in the archive.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub archive_wait: u32,
}

const TEACH_DRILL: &str = "\
Examples:
  longshore drill sales
      the latest backup
  longshore drill sales --label 20270131T020000Z-full-1a2b3c4d --work /mnt/scratch

Not for: keeping the restored copy: the drill always removes it. Use `longshore restore`.";

/// Restores a backup to a scratch directory and checks that the database is sound.
///
/// A SQLite database is opened and checked (PRAGMA integrity_check). Tables that need what only their application
/// adds to SQLite are not checked, and named in a warning (5). A PostgreSQL cluster is started as a private
/// server, without network and archiving, recovered to consistency, checked with pg_amcheck and stopped; then its
/// page checksums are checked. Files are compared with their checksums while they are restored. Exit code 0: the
/// backup is good. 1: it is not.
#[derive(Debug, Args)]
#[command(after_long_help = TEACH_DRILL)]
pub struct Drill {
    /// The database of the configuration whose backup is tried.
    ///
    /// Its target comes from there, too, unless --target is given.
    #[arg(value_name = "DATABASE")]
    pub database: String,

    /// The target; the default is the one configured for the database.
    ///
    /// Give another one to prove a copy, for example at another site. The drill reads the whole backup from there, so
    /// a slow link makes it slow.
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,

    /// Which backup: a label that `longshore list` shows, or `latest` (the default).
    ///
    /// The latest is the one that an emergency would use. Give a label to prove an older one before the newer ones expire.
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,

    /// Directory for the scratch directory; needs space for the whole database.
    ///
    /// The default is the system's directory for temporary files. A drill removes what a killed drill left there.
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,

    /// Directory of PostgreSQL's programs; the default is found by the backup's major version.
    ///
    /// Give it if the programs are outside the usual directories of distributions. The major version must be the backup's:
    /// a server starts only on data of its own major version.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub bin_dir: Option<PathBuf>,

    #[command(flatten)]
    pub keys: SetKeyOptions,

    #[command(flatten)]
    pub moving: TransferOptions,
}
