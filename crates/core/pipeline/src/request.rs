//! The requests: backup, restore and verify, with their options.
//!
//! Invariants
//! - A request is complete and independent of who made it: the command line and T-SQL lower to the same types.
//! - Options that are `None` are decided by the plan.
//! - `check` methods refuse values that no run can honour, before anything is opened.
//!
//! Leaves to others: sizes and threads (`plan.rs`), and defaults from the configuration (the programs).

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_accel::dispatch::Verify;
use longshore_accelerators::OffloadMode;
use longshore_codec::{Algorithm, Level};
use longshore_facts::LowIoPriority;
use longshore_io::{Clock, Throttle};
use longshore_media::{DeviceSpec, Disposition, Folder, Recipients, SourceIdentity};
use longshore_repository::NewBackup;
use longshore_source::{PostgresOptions, SourceSpec};
use uuid::Uuid;

use crate::{ClusterOptions, Error, WalProof};

#[derive(Debug, Clone)]
pub enum Request {
    Backup(BackupRequest),
    Restore(RestoreRequest),
    Verify(VerifyRequest),
}

/// Sizes that the user may set; the plan decides those that are `None`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tuning {
    /// BUFFERCOUNT: the total number of buffers, 1 or more.
    pub buffer_count: Option<usize>,
    /// MAXTRANSFERSIZE: bytes of one buffer, a multiple of 65,536 up to 4 MiB.
    pub buffer_bytes: Option<usize>,
}

impl Tuning {
    pub const BUFFER_UNIT: usize = 64 << 10;
    pub const BUFFER_MAX: usize = 4 << 20;

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.buffer_count == Some(0) {
            return Err(Error::OutOfRange {
                name: "BUFFERCOUNT",
                value: 0,
            });
        }
        match self.buffer_bytes {
            Some(n) if n == 0 || n > Self::BUFFER_MAX || n % Self::BUFFER_UNIT != 0 => {
                Err(Error::OutOfRange {
                    name: "MAXTRANSFERSIZE",
                    value: n as u64,
                })
            }
            _ => Ok(()),
        }
    }
}

/// How much of the machine a run may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Bytes read from the source (backup) or written (restore) per second.
    pub rate_bytes_per_s: Option<u64>,
    /// Percent of the whole machine's CPU, above 0 up to 100.
    pub cpu_percent: Option<f64>,
    /// Use the lowest best-effort I/O priority: a small share next to other programs. Never raises the priority.
    pub low_io_priority: bool,
}

impl Limits {
    /// The rate limiter; its burst is one buffer.
    pub(crate) fn throttle(&self, clock: &Arc<dyn Clock>, buffer_bytes: usize) -> Option<Throttle> {
        let rate = self.rate_bytes_per_s.and_then(NonZeroU64::new)?;
        Some(Throttle::new(
            clock.clone(),
            Some(rate),
            buffer_bytes as u64,
        ))
    }

    /// Lowers the I/O priority of this thread and of threads started from it, until the guard is dropped.
    pub(crate) fn lower_io_priority(&self) -> Option<LowIoPriority> {
        if !self.low_io_priority {
            return None;
        }
        LowIoPriority::take()
            .inspect_err(|error| tracing::warn!(%error, "the I/O priority could not be lowered"))
            .ok()
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.cpu_percent {
            Some(p) if !(p > 0.0 && p <= 100.0) => Err(Error::OutOfRange {
                name: "MAX_CPU_PERCENT",
                value: p.max(0.0) as u64,
            }),
            _ => Ok(()),
        }
    }
}

/// The reaction to a file that changes while it is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnChange {
    /// Report it and mark the set as damaged.
    #[default]
    Mark,
    Fail,
}

/// Which set a differential backup is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// The last full one: a *differential* backup.
    LastFull,
    /// The newest, full or not: an *incremental* backup.
    Newest,
}

/// Where the base of a differential backup is.
#[derive(Debug, Clone)]
pub struct BaseRequest {
    pub against: Against,
    /// The stripes of its media set.
    pub devices: Vec<DeviceSpec>,
    /// The only set on them that is the base; `None`: the newest that can be one.
    pub set: Option<Uuid>,
}

/// An LSN of a cluster up to which another set has the WAL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPlace {
    /// PostgreSQL's system identifier.
    pub system: u64,
    pub timeline: u32,
    pub lsn: u64,
    /// The lineage in that set's header, which identifies its branch: the archive must have the same WAL there. Empty
    /// if the set has none.
    pub lineage: Vec<u8>,
}

/// Requests a WAL-only backup, and where it starts.
#[derive(Debug, Clone)]
pub struct LogRequest {
    /// The WAL archive to read from.
    pub archive: PathBuf,
    /// Where the chain may continue, in order of preference: the first place from which the archive's WAL continues is
    /// used.
    pub since: Vec<LogPlace>,
    /// The WAL of the last log backup belongs to an abandoned future: the chain continues from full backups only.
    pub is_set_back: bool,
    /// How long the server may take to archive its WAL.
    pub patience: Duration,
}

#[derive(Debug, Clone)]
pub struct BackupRequest {
    pub source: SourceSpec,
    /// The database's name, if it differs from the source's own.
    pub database: Option<String>,
    /// Distinguishes the source from others with its name at a target; for sources without WAL.
    pub identity: SourceIdentity,
    pub devices: Vec<DeviceSpec>,
    /// Further devices that get the bytes of `devices`: for each mirror as many, in the same order. They need FORMAT.
    pub mirrors: Vec<Vec<DeviceSpec>>,
    /// How many of the devices, the last ones, get parity of the others.
    pub parity: u16,
    /// How many devices may fail meanwhile: parity then stands for their stripes, and the set is degraded.
    pub tolerated: u16,
    /// The place at a target that the devices are in: without it, others may take the backup for dead.
    pub place: Option<Arc<NewBackup>>,
    /// Files of the caller that must not be devices.
    pub own: Vec<PathBuf>,
    /// Store only the differences from another set; `None`: everything.
    pub base: Option<BaseRequest>,
    /// Store only WAL, starting from another set, instead of the cluster.
    pub log: Option<LogRequest>,
    pub disposition: Disposition,
    pub algorithm: Algorithm,
    pub level: Level,
    pub name: String,
    pub description: String,
    pub media_name: String,
    pub media_description: String,
    pub copy_only: bool,
    /// For whom the set is encrypted; `None`: it is not.
    pub encrypt_to: Option<Recipients>,
    /// Where the slots go, in a key object at each of these places; `None`: they are on the media.
    pub key_places: Option<Vec<Folder>>,
    /// Keep page sums, so that the set can be a base. Sets of PostgreSQL and differential sets have them in any case.
    pub page_sums: bool,
    /// Microseconds since the Unix epoch.
    pub expires_us: Option<i64>,
    pub on_change: OnChange,
    /// Directories that count as separate volumes, with the volume's name.
    pub volume_map: Vec<(PathBuf, String)>,
    /// End the backup if the database's WAL has grown by more than this many bytes meanwhile.
    pub wal_growth_limit_bytes: Option<u64>,
    /// Rely on a SQLite database's locks on any file system: every program that writes to it uses the same mount.
    pub trust_locks: bool,
    /// Whoever asked for it; `None`: the user of this process.
    pub user: Option<String>,
    /// End a backup of files that finds the data directory of a running PostgreSQL server; otherwise it warns.
    pub refuse_servers: bool,
    pub postgres: Box<PostgresOptions>,
    /// Where the WAL of a PostgreSQL backup must be if it is not part of the set.
    pub wal_proof: Option<Box<WalProof>>,
    pub offload: Offload,
    pub tuning: Tuning,
    pub limits: Limits,
}

impl BackupRequest {
    /// The devices that are written, those of mirrors last.
    pub fn all_devices(&self) -> impl Iterator<Item = &DeviceSpec> {
        self.devices.iter().chain(self.mirrors.iter().flatten())
    }

    /// A full backup with the defaults: QAT_DEFLATE, LOW, a new media set.
    pub fn new(source: SourceSpec, devices: Vec<DeviceSpec>) -> BackupRequest {
        BackupRequest {
            source,
            database: None,
            identity: SourceIdentity::default(),
            devices,
            mirrors: Vec::new(),
            parity: 0,
            tolerated: 0,
            place: None,
            own: Vec::new(),
            base: None,
            log: None,
            disposition: Disposition::New,
            algorithm: Algorithm::QatDeflate,
            level: Level::Low,
            name: String::new(),
            description: String::new(),
            media_name: String::new(),
            media_description: String::new(),
            copy_only: false,
            encrypt_to: None,
            key_places: None,
            page_sums: false,
            expires_us: None,
            on_change: OnChange::Mark,
            volume_map: Vec::new(),
            wal_growth_limit_bytes: None,
            trust_locks: false,
            user: None,
            refuse_servers: false,
            postgres: Box::default(),
            wal_proof: None,
            offload: Offload::default(),
            tuning: Tuning::default(),
            limits: Limits::default(),
        }
    }
}

/// Facts about a restore for the history, in addition to what was read and written.
#[derive(Debug, Clone, Default)]
pub struct RestoreNote {
    /// The name of the restored database; `None`: the name under which it was backed up.
    pub database: Option<String>,
    /// Microseconds since the Unix epoch.
    pub stop_at_us: Option<i64>,
    /// Whether more is to be restored before the database can be used.
    pub no_recovery: bool,
    /// Whoever asked for it; `None`: the user of this process.
    pub user: Option<String>,
    /// Whether the request was to replace; `None`: as the restore does.
    pub replaces: Option<bool>,
    /// Whether the caller records it itself with [`crate::record_accepted`], since it may still be refused.
    pub unrecorded: bool,
}

#[derive(Debug, Clone)]
pub struct RestoreRequest {
    pub devices: Vec<DeviceSpec>,
    /// All stripes of the other media sets that a differential set needs, in any order.
    pub bases: Vec<DeviceSpec>,
    /// 1-based; 0 is the last set.
    pub position: u32,
    /// Directory that receives the entries; created if missing.
    pub target: PathBuf,
    /// Overwrite existing files.
    pub replace: bool,
    /// Also overwrite SQLite databases in use: commits made meanwhile are lost.
    pub in_use: bool,
    /// Files of the caller that are never replaced.
    pub own: Vec<PathBuf>,
    /// Only these paths of the set and everything below them; empty: everything.
    pub only: Vec<PathBuf>,
    /// Entry path in the set → path below the target (MOVE).
    pub moves: Vec<(PathBuf, PathBuf)>,
    /// For sets of PostgreSQL clusters only.
    pub cluster: ClusterOptions,
    pub note: RestoreNote,
    /// Which engines decompress.
    pub offload: Offload,
    pub tuning: Tuning,
    pub limits: Limits,
}

impl RestoreRequest {
    /// Everything of the last set, into a new directory, with the defaults.
    pub fn new(devices: Vec<DeviceSpec>, target: PathBuf) -> RestoreRequest {
        RestoreRequest {
            devices,
            bases: Vec::new(),
            position: 0,
            target,
            replace: false,
            in_use: false,
            own: Vec::new(),
            only: Vec::new(),
            moves: Vec::new(),
            cluster: ClusterOptions::default(),
            note: RestoreNote::default(),
            offload: Offload::default(),
            tuning: Tuning::default(),
            limits: Limits::default(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct VerifyRequest {
    pub devices: Vec<DeviceSpec>,
    /// All stripes of the other media sets that differential sets need, in any order. Their sets are verified too if
    /// they are needed.
    pub bases: Vec<DeviceSpec>,
    /// 1-based; `None` verifies every set.
    pub position: Option<u32>,
    /// Sets that are known to be sound. Of the sets that a differential set needs, these are not read again.
    pub known: Vec<Uuid>,
    pub depth: VerifyDepth,
    pub tuning: Tuning,
    pub limits: Limits,
}

/// How much a verification looks at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VerifyDepth {
    /// The sets, and all that a differential set needs.
    #[default]
    Chains,
    /// The sets alone.
    Alone,
    /// The checksums of what the sets' stripes store, which needs no identity: nothing is decoded.
    Stored,
}

/// The quantity that `Auto` minimizes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Objective {
    /// The elapsed time.
    #[default]
    Time,
    /// The CPU time taken from other programs.
    Cpu,
}

/// How to use an accelerator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offload {
    pub mode: OffloadMode,
    pub objective: Objective,
    pub verify: Verify,
    /// A call that takes longer is given up.
    pub hang_bound: Duration,
}

impl Default for Offload {
    fn default() -> Offload {
        Offload {
            mode: OffloadMode::default(),
            objective: Objective::default(),
            verify: Verify::default(),
            hang_bound: Duration::from_secs(5),
        }
    }
}
