//! Errors of a run.
//!
//! Invariants
//! - Errors of lower rooms are kept as they are, with their text, number and hint; variants of its own are for what
//!   only a run can find.
//! - A cancelled run is one variant, whichever room noticed it.
//! - A mark (a file changed, a page is wrong) is no error: the report has it, and the exit code is 5.
//!
//! Leaves to others: exit codes (`longshore-terminal`), and the messages of statements (`longshore-tsql`).

use std::path::{Path, PathBuf};

use longshore_media::{LeftStripe, ServerUrl, Standing};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Source(#[from] longshore_source::Error),

    #[error(transparent)]
    Media(longshore_media::Error),

    /// The WAL archive cannot be used.
    #[error(transparent)]
    Archive(#[from] longshore_wal::Error),

    /// The target cannot record what its backups need from the archive, or the backup's place there was lost.
    #[error(transparent)]
    Reliance(#[from] longshore_repository::Error),

    /// The WAL that makes a backup consistent has not reached the archive.
    #[error("the WAL segment {segment} ({count} in all) was not in {} after {waited_s} seconds: the backup is not valid",
        archive.display())]
    LogMissing {
        archive: PathBuf,
        segment: String,
        count: u64,
        waited_s: u64,
    },

    /// A WAL-only backup continues none of the possible predecessors.
    #[error(
        "the server's WAL on timeline {timeline}, which ends at {end}, does not continue any of its backups"
    )]
    LogBroken {
        timeline: u32,
        end: longshore_pg::Lsn,
    },

    #[error("the backup would not hold its WAL, and no archive is named that has the WAL")]
    LogUnproved,

    #[error(transparent)]
    Codec(#[from] longshore_codec::Error),

    /// The destination of a restore returned an error.
    #[error(transparent)]
    Landing(longshore_landing::Error),

    #[error("no backup set on the media can be the base of a differential: {reasons}")]
    NoBase { reasons: String },

    /// The base is encrypted, and what opens its index is in the history.
    #[error("the history, which has what opens the index of the base, cannot be read: {why}")]
    HistoryUnread { why: String },

    /// A stripe inside the source would be part of every later backup, and lost together with the source.
    #[error("device {} is in {}, which is the source of this backup", device.display(), tree.display())]
    DeviceInside { device: PathBuf, tree: PathBuf },

    /// Refused whatever the disposition.
    #[error("device {device} is, or is in, {what}")]
    DeviceKept { device: String, what: &'static str },

    /// INIT or FORMAT of the media set that holds the base.
    #[error("the media on device {device} hold the base of this backup and would be overwritten")]
    BaseOverwritten { device: String },

    /// A restore to the archive's end would remove committed transactions.
    #[error("{tail}: the restore would remove them")]
    Unarchived { tail: longshore_wal::Tail },

    /// Other sources have no WAL that could be stored separately.
    #[error("only PostgreSQL clusters have a log that can be backed up")]
    NoLog,

    #[error("the value {value} is not within range for the {name} parameter")]
    OutOfRange { name: &'static str, value: u64 },

    #[error("cannot get {bytes} bytes of memory for buffers")]
    Memory { bytes: u64, source: std::io::Error },

    /// A limit on processes or on memory.
    #[error("cannot start a thread")]
    Thread { source: std::io::Error },

    #[error("the system provides no random bytes for a key")]
    Random { source: std::io::Error },

    #[error("the set's key cannot be wrapped for its recipients")]
    NewKey { source: longshore_media::KeyError },

    /// The base's page sums do not fit into memory, and storing them in a file failed.
    #[error("cannot {action} a file for page checksums in {}", path.display())]
    Spool {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },

    #[error("the backup or restore was aborted")]
    Cancelled,

    /// A failed backup to object stores that left more than nothing. Each stripe is in the list.
    #[error("{source}")]
    Left {
        source: Box<Error>,
        stripes: Vec<LeftStripe>,
    },

    /// Otherwise the run would be killed, or fail in the middle.
    #[error("this run needs {needed} {what}, and {allowed} are allowed")]
    Room {
        what: &'static str,
        needed: u64,
        allowed: u64,
    },

    #[error("{} {what} while it was read", path.display())]
    Changed { path: PathBuf, what: &'static str },

    /// Such a path can be created step by step, but not named in one call.
    #[error("the path that begins with {1} has {0} bytes: {bytes_max} is the limit",
        path.as_os_str().len(), shortened(path))]
    PathTooLong { path: PathBuf, bytes_max: usize },

    /// No shorter path than that of the whole tree contains it.
    #[error("{} cannot be in a backup: its path is too long or too deep", path.display())]
    LeftOut { path: PathBuf },

    /// A source gave a name that every reader would refuse.
    #[error("the source has an entry {path:?}, which a backup set cannot hold")]
    EntryName { path: PathBuf },

    #[error("the backup set has no entry {}", path.display())]
    NotInSet { path: PathBuf },

    /// Of a pipe it is not known in advance which names share their bytes; other sets have no file for the name.
    #[error("{} is a further name of {}, with which its bytes did not come", path.display(), target.display())]
    FurtherName { path: PathBuf, target: PathBuf },

    /// A differential set lacks something that it needs.
    #[error(transparent)]
    Chain(#[from] crate::ChainError),

    #[error("backup sets made from source kind {kind} cannot be restored by this version")]
    SourceKind { kind: u8 },

    /// A bug ended a thread; the run's result is worthless and was removed.
    #[error("internal error: a {thread} thread panicked")]
    Panicked { thread: &'static str },
}

impl From<longshore_media::Error> for Error {
    fn from(error: longshore_media::Error) -> Error {
        match error {
            // All layers report a cancelled run as the same error.
            longshore_media::Error::Cancelled { .. } => Error::Cancelled,
            error => Error::Media(error),
        }
    }
}

impl From<longshore_landing::Error> for Error {
    fn from(error: longshore_landing::Error) -> Error {
        match error {
            // So that callers find the media's errors in one place only.
            longshore_landing::Error::Media(error) => error.into(),
            error => Error::Landing(error),
        }
    }
}

impl From<longshore_landing::ClusterError> for Error {
    fn from(error: longshore_landing::ClusterError) -> Error {
        Error::Landing(error.into())
    }
}

impl Error {
    /// Whether the media may be sound, and only the reader's identities or rules keep a set closed.
    pub fn is_closed(&self) -> bool {
        match self {
            Error::Media(e) => e.is_closed(),
            Error::Chain(crate::ChainError::Broken { source, .. }) => source.is_closed(),
            Error::Left { source, .. } => source.is_closed(),
            _ => false,
        }
    }

    /// SQL Server's message number for this error.
    pub fn number(&self) -> Option<u32> {
        match self {
            Error::Media(e) => e.number(),
            Error::OutOfRange { .. } => Some(3250),
            Error::Cancelled => Some(3204),
            Error::Left { source, .. } => source.number(),
            Error::Landing(e) => e.number(),
            Error::NotInSet { .. } => Some(3234),
            Error::DeviceKept { .. } => Some(3201),
            Error::SourceKind { .. } => Some(3169),
            Error::NoBase { .. } | Error::Source(longshore_source::Error::Base { .. }) => {
                Some(3035)
            }
            Error::Chain(e) => Some(e.number()),
            Error::LogBroken { .. } => Some(4214),
            Error::Source(
                longshore_source::Error::InUse { .. }
                | longshore_source::Error::BeingRestored { .. },
            ) => Some(3023),
            Error::Changed { .. } | Error::LeftOut { .. } => Some(3043),
            Error::Memory { .. } | Error::Room { .. } | Error::Thread { .. } => Some(701),
            Error::Source(_)
            | Error::Archive(_)
            | Error::Reliance(_)
            | Error::LogMissing { .. }
            | Error::LogUnproved
            | Error::Unarchived { .. }
            | Error::NoLog
            | Error::BaseOverwritten { .. }
            | Error::HistoryUnread { .. }
            | Error::DeviceInside { .. }
            | Error::Codec(_)
            | Error::Spool { .. }
            | Error::Random { .. }
            | Error::NewKey { .. }
            | Error::PathTooLong { .. }
            | Error::EntryName { .. }
            | Error::FurtherName { .. }
            | Error::Panicked { .. } => None,
        }
    }

    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Source(e) => e.hint(),
            Error::Media(e) => e.hint(),
            Error::Codec(e) => e.hint(),
            Error::Landing(e) => e.hint(),
            Error::Archive(e) => e.hint(),
            Error::Reliance(e) => e.hint(),
            Error::LogMissing { .. } => {
                "does archive_command succeed? After a standby's backup run pg_switch_wal() on the primary; or use --with-wal"
            }
            Error::Unarchived { .. } => "archive these files first; or remove them: --discard-wal",
            Error::LogUnproved => "use --with-wal, or name the archive with --wal-archive",
            Error::NoBase { .. } => {
                "make a full backup as a base for later ones; --or-full does that automatically"
            }
            Error::HistoryUnread { .. } => {
                "mend what keeps the history from being read, or name an identity (--identity FILE), then run the command again"
            }
            Error::DeviceInside { .. } => {
                "choose a directory outside of it, best on another disk: a device inside is lost with the source, and is part of every later backup"
            }
            Error::DeviceKept { .. } => {
                "name a device elsewhere; `longshore backup --target NAME` writes to a target"
            }
            Error::BaseOverwritten { .. } => "use --append, or write to other devices",
            Error::LogBroken { .. } => "make a full backup to begin a log chain",
            Error::NoLog => "back up the database as a whole",
            Error::OutOfRange {
                name: "MAXTRANSFERSIZE",
                ..
            } => "use a multiple of 65536 up to 4194304",
            Error::OutOfRange { .. } => "`longshore backup --help` gives the ranges",
            Error::Room { .. } => {
                "raise the limit (ulimit -n, LimitNOFILE=; MemoryMax=; ulimit -v), or lower --buffer-count, --max-transfer-size or, for \
                 object stores, LONGSHORE_PART_MIB"
            }
            Error::Memory { .. } => "lower --buffer-count or --max-transfer-size",
            Error::Random { .. } => "allow the system call getrandom to this program",
            Error::NewKey { .. } => {
                "run the command of `wrap_command` by hand (docs/recipes.md), or encrypt for other recipients (--encrypt-to)"
            }
            Error::Spool { .. } => {
                "set TMPDIR to a directory with 1/1000 of the cluster's size free, or make a full backup"
            }
            Error::Thread { .. } => {
                "raise the limit on threads (ulimit -u, TasksMax=, a container's pids limit) or on memory (ulimit -v)"
            }
            Error::Cancelled => "nothing was left behind; run the command again",
            Error::Left { stripes, .. } if stripes.iter().all(|s| s.standing == Standing::No) => {
                "abort the uploads that are left, then run the command again"
            }
            Error::Left { .. } => {
                "`longshore verify` with all stripes says whether they are a whole set; if not, run the backup again with --format, or to other names"
            }
            Error::Changed { .. } => {
                "stop the program that writes to it, or drop --on-change fail to mark the set instead"
            }
            Error::LeftOut { .. } => {
                "name a directory further down as its own source, or drop --on-change fail to leave the file out and mark the set"
            }
            Error::PathTooLong { .. } => {
                "name a directory further down as its own source, or leave the tree out"
            }
            Error::EntryName { .. } => {
                "report this with the source's kind, and leave the entry out until it is fixed"
            }
            Error::NotInSet { .. } => "`longshore list --files` shows the names in the set",
            Error::FurtherName { .. } => {
                "add that name with --only, or restore from media that are no pipe"
            }
            Error::Chain(e) => e.hint(),
            Error::SourceKind { .. } => "use the version that made the backup, or a later one",
            Error::Panicked { .. } => "report this bug with the lines above",
        }
    }
}

/// The objects that a failed backup left in its stores, in lines for people.
pub fn left_lines(stripes: &[LeftStripe]) -> Vec<String> {
    let names = |standing| {
        let there = stripes.iter().filter(|s| s.standing == standing);
        there.map(|s| s.device.as_str()).collect::<Vec<_>>()
    };
    let mut lines = Vec::new();
    for (standing, words) in [
        (Standing::Yes, "complete"),
        (
            Standing::Unknown,
            "perhaps complete (the store did not say)",
        ),
        (
            Standing::Replaced,
            "complete, and then replaced by another writer",
        ),
        (Standing::No, "not complete"),
    ] {
        let names = names(standing);
        if !names.is_empty() {
            lines.push(format!("{words}: {}", names.join(" ")));
        }
    }
    let commands = stripes.iter().filter_map(abort_command);
    lines.extend(commands.map(|c| format!("an upload that could not be aborted is left: {c}")));
    lines
}

/// The command that aborts the upload that is left of the stripe. In an address that begins with its server the bucket comes
/// after that.
pub fn abort_command(stripe: &LeftStripe) -> Option<String> {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let server = stripe.server.as_ref();
    // A bucket with a dot in its name, at the environment's server, comes without a server.
    let given = ServerUrl::parse(&stripe.device).filter(|_| server.is_some());
    let plain = match given {
        Some(url) => url.ok()?.plain(),
        None => stripe.device.clone(),
    };
    let (scheme, rest) = plain.split_once("://")?;
    let is_s3 = scheme == "s3" || scheme.starts_with("s3+");
    let (bucket, key) = rest.split_once('/').filter(|_| is_s3)?;
    let id = stripe.upload.as_ref()?;
    let server = server.map(|server| format!(" --endpoint-url {}", quoted(server)));
    Some(format!(
        "aws s3api abort-multipart-upload --bucket {bucket} --key {} --upload-id {}{}",
        quoted(key),
        quoted(id),
        server.unwrap_or_default()
    ))
}

/// The first components of a path, enough to find it.
fn shortened(path: &Path) -> String {
    path.iter()
        .take(4)
        .collect::<PathBuf>()
        .display()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_aborts_an_upload_names_its_bucket() {
        let command = |device: &str, server: Option<&str>| {
            abort_command(&LeftStripe {
                device: device.to_owned(),
                standing: Standing::No,
                upload: Some("id".to_owned()),
                server: server.map(str::to_owned),
            })
        };
        let said = |bucket: &str, more: &str| {
            format!(
                "aws s3api abort-multipart-upload --bucket {bucket} --key 'k/a' --upload-id 'id'{more}"
            )
        };
        let at = " --endpoint-url 'https://h.example:9000'";
        let server = Some("https://h.example:9000");
        for (device, server, expected) in [
            ("s3://abc/k/a", None, Some(said("abc", ""))),
            ("s3://a.bc/k/a", None, Some(said("a.bc", ""))),
            ("s3+far://abc/k/a", server, Some(said("abc", at))),
            ("s3://h.example:9000/abc/k/a", server, Some(said("abc", at))),
            (
                "https://v.blob.core.windows.net/abc/k/a",
                Some("https://v.blob.core.windows.net"),
                None,
            ),
            ("az://abc/k/a", None, None),
        ] {
            assert_eq!(command(device, server), expected, "{device}");
        }
    }
}
