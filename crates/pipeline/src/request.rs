//! What can be asked for.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_codec::dispatch::Verify;
use longshore_codec::{Algorithm, Level};
use longshore_io::facts::LowIoPriority;
use longshore_io::{Clock, Throttle};
use longshore_media::{DeviceSpec, Disposition, SourceIdentity};
use longshore_source::{PostgresOptions, SourceSpec};

use crate::{ClusterOptions, Error, WalProof};

#[derive(Debug, Clone)]
pub enum Request {
    Backup(BackupRequest),
    Restore(RestoreRequest),
    Verify(VerifyRequest),
}

/// Sizes the user may set; what is `None` is decided by the plan.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tuning {
    /// BUFFERCOUNT: buffers in all, 1 or more.
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

/// How much of the machine a run may take.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Bytes read from the source (backup) or written (restore) per second.
    pub rate_bytes_per_s: Option<u64>,
    /// Percent of the whole machine's CPU, above 0 up to 100.
    pub cpu_percent: Option<f64>,
    /// The lowest best-effort I/O priority: a small share beside other programs. Not above the one there is.
    pub low_io_priority: bool,
}

impl Limits {
    /// The rate limit at work; its burst is one buffer.
    pub(crate) fn throttle(&self, clock: &Arc<dyn Clock>, buffer_bytes: usize) -> Option<Throttle> {
        let rate = self.rate_bytes_per_s.and_then(NonZeroU64::new)?;
        Some(Throttle::new(
            clock.clone(),
            Some(rate),
            buffer_bytes as u64,
        ))
    }

    /// Lowers this thread's I/O priority, and that of threads started meanwhile, until the guard is dropped.
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

/// What to do when a file changes while it is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnChange {
    /// Report it and mark the set as damaged.
    #[default]
    Mark,
    Fail,
}

/// Which set a differential backup differs from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// The last full one: a *differential* backup.
    LastFull,
    /// The newest, full or not: an *incremental* backup.
    Newest,
}

/// Where the set is that a differential backup differs from.
#[derive(Debug, Clone)]
pub struct BaseRequest {
    pub against: Against,
    /// The stripes of its media set.
    pub devices: Vec<DeviceSpec>,
}

/// A place in a cluster's log up to which another set has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPlace {
    /// PostgreSQL's system identifier.
    pub system: u64,
    pub timeline: u32,
    pub lsn: u64,
    /// By which the branch of that set is told: the archive must have the same log there.
    /// The set header's; empty where it has none.
    pub lineage: Vec<u8>,
}

/// That the log is to be stored, and from where on.
#[derive(Debug, Clone)]
pub struct LogRequest {
    /// The WAL archive that it is taken from.
    pub archive: PathBuf,
    /// Where a chain may go on, in the order of preference: the first that the archive leads on from is taken.
    pub since: Vec<LogPlace>,
    /// The log of the last log backup is of a future that was given up: the chain goes on from full backups alone.
    pub is_set_back: bool,
    /// How long the server may take to archive what it has.
    pub patience: Duration,
}

#[derive(Debug, Clone)]
pub struct BackupRequest {
    pub source: SourceSpec,
    /// The database's name, where it is not the source's own.
    pub database: Option<String>,
    /// What tells the source from others of its name at a target; of sources without a log.
    pub identity: SourceIdentity,
    pub devices: Vec<DeviceSpec>,
    /// Files of the caller's that no device may be.
    pub own: Vec<PathBuf>,
    /// Store only what differs from another set; `None`: everything. PostgreSQL only.
    pub base: Option<BaseRequest>,
    /// Store the log alone, from another set on, instead of the cluster.
    pub log: Option<LogRequest>,
    pub disposition: Disposition,
    pub algorithm: Algorithm,
    pub level: Level,
    pub name: String,
    pub description: String,
    pub media_name: String,
    pub media_description: String,
    pub copy_only: bool,
    /// Microseconds since the Unix epoch.
    pub expires_us: Option<i64>,
    pub on_change: OnChange,
    /// Directories to be treated as volumes of their own, with the volume's name.
    pub volume_map: Vec<(PathBuf, String)>,
    /// End the backup when the database's WAL has grown by more than this meanwhile.
    pub wal_growth_limit_bytes: Option<u64>,
    /// Rely on a SQLite database's locks on any file system: every program that writes to it uses the same mount.
    pub trust_locks: bool,
    pub postgres: Box<PostgresOptions>,
    /// Where the log of a PostgreSQL backup must be when it is not part of the set.
    pub wal_proof: Option<Box<WalProof>>,
    pub offload: Offload,
    pub tuning: Tuning,
    pub limits: Limits,
}

impl BackupRequest {
    /// A full backup with the defaults: QAT_DEFLATE, LOW, a new media set.
    pub fn new(source: SourceSpec, devices: Vec<DeviceSpec>) -> BackupRequest {
        BackupRequest {
            source,
            database: None,
            identity: SourceIdentity::default(),
            devices,
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
            expires_us: None,
            on_change: OnChange::Mark,
            volume_map: Vec::new(),
            wal_growth_limit_bytes: None,
            trust_locks: false,
            postgres: Box::default(),
            wal_proof: None,
            offload: Offload::default(),
            tuning: Tuning::default(),
            limits: Limits::default(),
        }
    }
}

/// What the history tells of a restore beside what was read and written.
#[derive(Debug, Clone, Default)]
pub struct RestoreNote {
    /// The name it gets; `None`: the one it was backed up under.
    pub database: Option<String>,
    /// Microseconds since the Unix epoch.
    pub stop_at_us: Option<i64>,
    /// Whether more is to be restored before the database can be used.
    pub no_recovery: bool,
}

#[derive(Debug, Clone)]
pub struct RestoreRequest {
    pub devices: Vec<DeviceSpec>,
    /// All stripes of the other media sets that a differential set needs, in any order.
    pub bases: Vec<DeviceSpec>,
    /// 1-based; 0 is the last set.
    pub position: u32,
    /// Directory that receives the entries; created when missing.
    pub target: PathBuf,
    /// Overwrite what stands there.
    pub replace: bool,
    /// And SQLite databases that somebody uses, too: what they commit meanwhile is lost.
    pub in_use: bool,
    /// Files of the caller's that are never replaced.
    pub own: Vec<PathBuf>,
    /// Only these paths of the set and what is below them; empty: everything.
    pub only: Vec<PathBuf>,
    /// Entry path in the set → path below the target (MOVE).
    pub moves: Vec<(PathBuf, PathBuf)>,
    /// For sets of PostgreSQL clusters only.
    pub cluster: ClusterOptions,
    pub note: RestoreNote,
    /// Who decompresses.
    pub offload: Offload,
    pub tuning: Tuning,
    pub limits: Limits,
}

impl RestoreRequest {
    /// Everything of the last set, into a directory of its own, with the defaults.
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
    /// All stripes of the other media sets that differential sets need, in any order. Their sets are verified too as far
    /// as they are needed.
    pub bases: Vec<DeviceSpec>,
    /// 1-based; `None` verifies every set.
    pub position: Option<u32>,
    pub tuning: Tuning,
    pub limits: Limits,
}

/// Who should compress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OffloadMode {
    /// CPUs alone.
    #[default]
    Software,
    /// The accelerator; CPUs do what it leaves undone.
    Hardware,
    /// The accelerator kept full, CPUs besides.
    Hybrid,
    /// Hybrid or hardware, as the objective says, where there is an accelerator.
    Auto,
}

/// What `Auto` is to keep small.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Objective {
    /// The time that it takes.
    #[default]
    Time,
    /// The CPU time that it takes from others.
    Cpu,
}

/// How an accelerator is to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offload {
    pub mode: OffloadMode,
    pub objective: Objective,
    pub verify: Verify,
    /// A call is given up before it takes longer.
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
