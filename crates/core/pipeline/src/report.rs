//! The result of a run: the same facts for people, `--json` and history.
//!
//! Invariants
//! - A number that was not measured is absent, never 0.
//! - Field names are those of the JSON and do not change; a new fact is a new field.
//! - Lists that a run could make endless are cut to their first entries, next to a count or a flag of all.
//!
//! Leaves to others: showing (the programs), measuring (`measure.rs`), and recording (`history.rs`).

use longshore_media::manifest::MarkKind;
use longshore_media::{MediaSet, SetHeader, StripeFault};
use longshore_pg::Lsn;
use serde::Serialize;
use uuid::Uuid;

use crate::measure::{Limit, Sample, Waits};
use crate::plan::Plan;
use crate::share::EngineShare;

/// The beginning of the warnings of [`degraded`].
const DEGRADED: &str = "the set is DEGRADED: ";

/// A warning for each stripe that parity stood for.
pub fn degraded(media: &MediaSet) -> Vec<String> {
    degraded_by(&media.faults())
}

/// A warning for each of these stripes.
pub fn degraded_by(faults: &[StripeFault]) -> Vec<String> {
    let warning = |fault: &StripeFault| {
        format!("{DEGRADED}{fault} (`longshore repair` writes the stripe once more)")
    };
    faults.iter().map(warning).collect()
}

impl Run {
    /// Its warnings that parity stood for stripes.
    pub fn degraded(&self) -> impl Iterator<Item = &String> {
        self.warnings
            .iter()
            .filter(|text| text.starts_with(DEGRADED))
    }
}

/// SQL Server counts every database in pages of this size.
const PAGE_BYTES: u64 = 8192;

#[derive(Debug, Clone, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Report {
    Backup(BackupReport),
    Restore(RestoreReport),
    Verify(VerifyReport),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FileTotals {
    /// Names of every kind.
    pub entry_count: u64,
    pub file_count: u64,
}

/// Time, work and the bottleneck; common to all actions.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    pub plan: Plan,
    pub elapsed_s: f64,
    /// CPU seconds of this process, user and system, during the run.
    pub cpu_s: f64,
    pub limit: Limit,
    pub waits: Waits,
    pub samples: Vec<Sample>,
    /// How much each engine compressed or decompressed.
    pub engines: Vec<EngineShare>,
    /// Things that went wrong, or may be wrong with the result, although the run succeeded.
    pub warnings: Vec<String>,
    /// Facts that are worth knowing although nothing is wrong.
    pub notes: Vec<String>,
    /// A history is kept, but this run is not in it; `warnings` says why.
    pub history_failed: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct ChangedFile {
    pub path: String,
    pub what: &'static str,
}

/// The differential part of a backup.
#[derive(Debug, Clone, Serialize)]
pub struct DifferentialReport {
    /// The set that it is compared with.
    pub parent: Uuid,
    /// How changed pages were found.
    pub method: &'static str,
    /// Bytes of all files that a restore of it gives; holes only in those of which the differences were stored.
    pub described_bytes: u64,
    /// Files of which only the differences were stored.
    pub based_files: u64,
    /// Bytes read of them to find the differences.
    pub read_bytes: u64,
    /// Bytes stored of them.
    pub changed_bytes: u64,
}

/// The WAL that a restore of a cluster's set replays at least; all `None` for sources without WAL.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NeededWal {
    pub timeline: Option<u32>,
    /// Where replay begins.
    pub first_lsn: Option<String>,
    /// From where on a restore is consistent; `None` if the set does not say it.
    pub last_lsn: Option<String>,
}

impl NeededWal {
    /// That of the set with this header; `last_lsn` is its trailer's.
    pub fn of(header: &SetHeader, last_lsn: Option<u64>) -> NeededWal {
        if header.log.timeline == 0 {
            return NeededWal::default();
        }
        NeededWal {
            timeline: Some(header.log.timeline),
            first_lsn: Some(Lsn(header.log.first_lsn).to_string()),
            last_lsn: last_lsn.map(|lsn| Lsn(lsn).to_string()),
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct BackupReport {
    pub set: Uuid,
    pub media_set: Uuid,
    pub database: String,
    pub position: u32,
    /// Microseconds since the Unix epoch.
    pub start_us: i64,
    /// When it was complete.
    pub finish_us: i64,
    #[serde(flatten)]
    pub wal: NeededWal,
    pub plain_bytes: u64,
    pub stored_bytes: u64,
    pub totals: FileTotals,
    /// `None` for a full backup.
    pub differential: Option<DifferentialReport>,
    /// Whether the set holds files that changed while they were read.
    pub damaged: bool,
    /// The first of those files.
    pub changed: Vec<ChangedFile>,
    /// Whether devices failed, as far as that was tolerated, so that parity stands for their stripes.
    pub degraded: bool,
    pub run: Run,
}

/// One of several sets that are restored together.
#[derive(Debug, Clone, Serialize)]
pub struct RestoredSet {
    pub set: Uuid,
    /// [`longshore_media::SetTrailer::root_text`].
    pub root: Option<String>,
    pub position: u32,
    pub is_differential: bool,
    pub devices: Vec<String>,
    /// Plain bytes read and decoded from it; before it was read, those of the whole set.
    pub plain_bytes: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct RestoreReport {
    pub set: Uuid,
    /// [`longshore_media::SetTrailer::root_text`].
    pub root: Option<String>,
    pub database: String,
    pub position: u32,
    pub target: String,
    #[serde(flatten)]
    pub wal: NeededWal,
    pub plain_bytes: u64,
    pub stored_bytes: u64,
    pub totals: FileTotals,
    /// A differential set and the sets it needed, newest first; empty if one set was enough.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<RestoredSet>,
    /// In a delta restore: bytes that were written because they differed.
    pub rewritten_bytes: Option<u64>,
    /// Where existing names may be replaced: names that were removed because the set does not have them, each with everything
    /// below it.
    pub removed_names: Option<u64>,
    /// The paths of the first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// Extended attributes, owners and set-id bits that the target or this user's rights did not allow, except SELinux labels,
    /// and except owners of a cluster's files.
    pub attributes_lost: u64,
    pub damaged: bool,
    /// For a cluster: tablespaces that its server would create in another server's files.
    pub tablespaces_taken: u64,
    /// For a cluster: enabled subscriptions, which run when its server opens unless that was prevented.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<String>,
    /// For a cluster whose configuration was outside its data directory: the copies of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<ConfigurationReport>,
    /// For a cluster: databases whose files were made empty, as asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub emptied: Vec<EmptiedDatabase>,
    pub run: Run,
}

/// A database of a restored cluster whose files are empty: it is to be dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EmptiedDatabase {
    pub oid: u32,
    /// `None` if the set does not say it.
    pub name: Option<String>,
}

/// Copies of a cluster's configuration in the restored data directory.
#[derive(Debug, Clone, Serialize)]
pub struct ConfigurationReport {
    /// Where the original was; `None` if it was in the data directory, or is not in the set.
    pub config_file: Option<String>,
    pub hba_file: Option<String>,
    pub ident_file: Option<String>,
    /// The directory of the copies.
    pub copies_directory: String,
    /// A command that starts the server with the copies.
    pub start: String,
}

/// The result of a restore that only looked.
#[derive(Debug, Clone, Serialize)]
pub struct RestorePreview {
    pub database: String,
    pub target: String,
    /// The requested set, then those that it needs, newest first.
    pub sets: Vec<RestoredSet>,
    /// Plain bytes of all of them. Chosen files are fewer, and so are the blocks that a chain needs.
    pub plain_bytes: u64,
    /// Existing names in the target that would be replaced; in a delta, existing files that would be compared and changed in
    /// place.
    pub replaced_names: u64,
    /// The first of them.
    pub replaced: Vec<String>,
    /// Files of a cluster that would go with them; 0 for anything else.
    pub swept_file_count: u64,
    /// Bytes of those files.
    pub swept_bytes: u64,
    /// Existing names that would be gone, each with everything below it: what a delta removes, and what the set does not have
    /// of directories that are replaced.
    pub removed_names: u64,
    /// The first of them.
    pub removed: Vec<String>,
    /// OIDs and directories.
    pub tablespaces: Vec<(u32, String)>,
    /// Databases whose files would be made empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub emptied: Vec<EmptiedDatabase>,
    pub plan: Plan,
}

#[derive(Debug, Clone, Serialize)]
pub struct VerifiedSet {
    pub set: Uuid,
    pub database: String,
    pub position: u32,
    /// The first of its stripes.
    pub device: String,
    pub valid: bool,
    /// Whether parity stood for stripes that are lost or damaged.
    pub degraded: bool,
    #[serde(flatten)]
    pub wal: NeededWal,
    pub plain_bytes: u64,
    pub stored_bytes: u64,
    /// Whether the set was made from files that changed meanwhile; the set itself may be valid.
    pub made_damaged: bool,
    /// Whose it is, in one word; `None` if that cannot be told, as from a pipe.
    pub signature: Option<&'static str>,
    pub signer: Option<String>,
    /// Whether it holds only WAL.
    pub is_log: bool,
    /// The set that it is compared with.
    pub parent: Option<Uuid>,
    /// The number of sets in a differential set's chain, if all of them are valid and fit together; `None` if they
    /// were not checked.
    pub chain_sets: Option<usize>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    pub number: Option<u32>,
    pub text: String,
    pub hint: &'static str,
}

#[derive(Debug, Clone, Serialize)]
pub struct VerifyReport {
    /// Whether nothing was decoded: the checksums of what is stored were compared, and the roots of an encrypted set.
    pub stored_only: bool,
    pub sets: Vec<VerifiedSet>,
    /// Everything found wrong, at most [`VerifyReport::FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    pub run: Run,
}

impl VerifyReport {
    pub const FINDINGS_MAX: usize = 100;

    pub fn is_valid(&self) -> bool {
        self.findings.is_empty() && self.sets.iter().all(|s| s.valid)
    }
}

/// Changed files named in a report; all of them are marked in the set.
pub(crate) const CHANGED_MAX: usize = 100;

pub(crate) fn mark_text(kind: MarkKind) -> &'static str {
    match kind {
        MarkKind::Modified => "changed",
        MarkKind::Shrunk => "became shorter",
        MarkKind::Vanished => "vanished",
    }
}

/// The number of 8 KiB pages for this many bytes.
pub fn pages(plain_bytes: u64) -> u64 {
    plain_bytes.div_ceil(PAGE_BYTES)
}

/// MB/s as SQL Server prints it: pages of 8 KiB in units of 2^20 bytes, uncompressed.
pub fn mb_per_s(plain_bytes: u64, elapsed_s: f64) -> f64 {
    (pages(plain_bytes) * PAGE_BYTES) as f64 / f64::from(1 << 20) / elapsed_s.max(0.001)
}

/// Plain bytes divided by stored bytes; 1 if nothing was stored.
pub fn ratio(plain_bytes: u64, stored_bytes: u64) -> f64 {
    if stored_bytes == 0 {
        1.0
    } else {
        plain_bytes as f64 / stored_bytes as f64
    }
}
