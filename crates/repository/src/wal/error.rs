//! Why a WAL archive refuses.

use std::io;
use std::path::PathBuf;

use longshore_media::record::Malformed;
use longshore_pg::wal::{NotHistory, NotRecords, NotWal, WalName};
use longshore_pg::{Lsn, SegmentName, Timeline};

/// What a WAL archive cannot or will not do. Every variant names the file an operator must look at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused. The cause is in `source()` and is not repeated in the text.
    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    /// Nobody made an archive there, or it is not mounted.
    #[error("{} is no WAL archive: it has no {}", path.display(), super::IDENTITY_NAME)]
    NotAnArchive { path: PathBuf },

    /// Whoever may change the link decides where the log goes, and who reads it.
    #[error("{} is a symbolic link below a target", path.display())]
    LinkBelow { path: PathBuf },

    /// An archive that was made and not used yet.
    #[error("nothing came into the WAL archive {} yet", path.display())]
    NothingYet { path: PathBuf },

    /// The identity file is not what was written.
    #[error("{} is damaged", path.display())]
    IdentityDamaged { path: PathBuf },

    /// A file of another cluster.
    #[error("{} belongs to system {found}, the archive {} to system {expected}", path.display(), archive.display())]
    OtherCluster {
        path: PathBuf,
        archive: PathBuf,
        expected: u64,
        found: u64,
    },

    /// A cluster that was initialised with another segment size.
    #[error("{} has segments of {found} bytes, the archive {} of {expected}", path.display(), archive.display())]
    OtherSegmentSize {
        path: PathBuf,
        archive: PathBuf,
        expected: u64,
        found: u64,
    },

    /// The name is none that PostgreSQL archives.
    #[error("{name:?} is no WAL file's name")]
    BadName { name: String },

    /// What should be a segment begins otherwise.
    #[error("{} is not the segment it is named after", path.display())]
    NotWal { path: PathBuf, source: NotWal },

    /// The header is of another segment than the name, or the length is not a segment's.
    #[error("{} is not the segment it is named after: its {what} is another", path.display())]
    OtherSegment { path: PathBuf, what: &'static str },

    /// What should be a history begins otherwise.
    #[error("{} is no timeline history", path.display())]
    NotHistory { path: PathBuf, source: NotHistory },

    /// The archive has other bytes under this name. They are kept.
    #[error("the archive already has {name}, with other bytes than {}", path.display())]
    OtherContent { name: WalName, path: PathBuf },

    /// Two writers whose locks do not meet stored it at once. Which of them is to be kept, nobody knows here.
    #[error("the archive has {name} twice, with different bytes: {} and {}", path.display(), other.display())]
    TwoContents {
        name: WalName,
        path: PathBuf,
        other: PathBuf,
    },

    /// What the archive has under this name is not what the server wrote: another branch of the cluster archives there.
    #[error("the archive {} holds the log of another branch: its {name} has other bytes than {}", archive.display(),
        path.display())]
    OtherBranch {
        archive: PathBuf,
        name: SegmentName,
        /// The server's own.
        path: PathBuf,
    },

    /// What stands at the place of a backup's own checkpoint is another branch's.
    #[error("the archive {} holds the log of another branch of the cluster where the backup's own should be: {name}", archive.display())]
    NotTheBackups { archive: PathBuf, name: SegmentName },

    /// A segment that is whole in itself, and does not follow the one before.
    #[error("in the archive {} the segment {name} does not follow {before}: {source}", archive.display())]
    BrokenLink {
        archive: PathBuf,
        before: SegmentName,
        name: SegmentName,
        source: NotRecords,
    },

    /// The server has none of the log any more by which its archive could be told from another branch's.
    #[error("whether {name} in the archive {} is this server's cannot be known: {what}", archive.display())]
    BranchUnknown {
        archive: PathBuf,
        name: SegmentName,
        what: &'static str,
    },

    /// Another process has been writing this file all the time.
    #[error(
        "{name} is being archived by another process, and was not finished within {waited_s} s"
    )]
    Busy { name: WalName, waited_s: u64 },

    /// A record of what a target needs. While nobody can read it, it asks for everything.
    #[error("what a target needs of the archive cannot be read from {}: {what}", path.display())]
    NeedUnreadable { path: PathBuf, what: String },

    /// Who relies on the archive must leave word there.
    #[error("cannot leave word in {} that a target relies on the archive", path.display())]
    NeedUnwritten { path: PathBuf, source: io::Error },

    /// Log is being removed there, by an expire that may have begun before it could know of a backup.
    #[error("log is being removed from the archive {}: {holder}; it had not ended within {waited_s} s", archive.display())]
    BeingExpired {
        archive: PathBuf,
        holder: String,
        waited_s: u64,
    },

    /// The archive does not have it.
    #[error("{name} is not in the archive {}", archive.display())]
    Missing { name: WalName, archive: PathBuf },

    /// The archive does not have it, but it has later ones: this is not the end of the log.
    #[error("{name} is missing in the archive {}, which has {next}", archive.display())]
    Gap {
        name: WalName,
        next: WalName,
        archive: PathBuf,
    },

    /// Replay would write into somebody's files.
    #[error("{name} makes the tablespace {oid} in {}, where a server has files: this server would write into them",
        place.display())]
    TablespaceTaken {
        name: WalName,
        oid: u32,
        place: PathBuf,
    },

    /// Segments between a backup and where its recovery gets.
    #[error("the archive {} lacks log between the backup and the target: {missing}", archive.display())]
    ReplayGap { archive: PathBuf, missing: String },

    /// Replay would end before its target.
    #[error("the archive {} ends at {end}, before {target}", archive.display())]
    EndsBefore {
        archive: PathBuf,
        end: Lsn,
        target: Lsn,
    },

    /// The timeline that is followed was left before the backup, or never was the backup's.
    #[error("the backup ended on timeline {timeline} at {last}; timeline {followed} of the archive {} does not come \
        from there", archive.display())]
    OtherWay {
        archive: PathBuf,
        timeline: Timeline,
        last: Lsn,
        followed: Timeline,
    },

    /// A file of the archive is not what was written.
    #[error("{} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },

    /// A file of the archive was written by a later version.
    #[error("{} needs features this version does not know (bits {bits:#x})", path.display())]
    Newer { path: PathBuf, bits: u64 },

    /// The level does not go with the algorithm.
    #[error(transparent)]
    Codec(#[from] longshore_codec::Error),
}

impl Error {
    pub(super) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io {
            action,
            path,
            source,
        }
    }

    pub(super) fn malformed(path: PathBuf, what: Malformed) -> Error {
        match what {
            Malformed::Feature(bits) => Error::Newer { path, bits },
            what => Error::Damaged {
                path,
                what: what.to_string(),
            },
        }
    }

    /// What the operator can do now: one sentence, printed below the error after `hint: `.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge => {
                    "make room in the archive; until then PostgreSQL keeps the segments in pg_wal and tries again"
                }
                io::ErrorKind::PermissionDenied => {
                    "archive_command runs as the server's user: give it the right to write there"
                }
                _ => "look at the path and at the file system's messages",
            },
            Error::NotAnArchive { .. } => {
                "check that its file system is mounted; a new archive is made by `longshore wal create`, as the server's user"
            }
            Error::LinkBelow { .. } => {
                "move the directory to its place in the target; or name where it is as `archive` in [database.NAME.wal]"
            }
            Error::NothingYet { .. } => {
                "let the server's archive_command, or `longshore wal receive`, bring its first segment"
            }
            Error::IdentityDamaged { .. } => {
                "compare it with `pg_controldata`; when it is removed, `longshore wal create` and the next push write it again"
            }
            Error::OtherCluster { .. } | Error::OtherSegmentSize { .. } => {
                "give every cluster an archive of its own, and a new one after pg_upgrade or initdb"
            }
            Error::BadName { .. } => "archive_command needs %p, restore_command %f and %p",
            Error::NotWal { .. } | Error::OtherSegment { .. } | Error::NotHistory { .. } => {
                "do not remove it by hand: see whether the server's disk is sound and which major wrote it"
            }
            Error::OtherContent {
                name: WalName::History(_),
                ..
            } => {
                "the archive holds the log of another restore or promotion: make an archive for this server with \
                 `longshore wal create`, and begin there with a full backup"
            }
            Error::OtherContent { .. } | Error::OtherBranch { .. } => {
                "a standby that follows a promotion (archive_mode = always) hands over its timeline's last segment early: that \
                 succeeds by itself once pg_wal has the new timeline's history, if all that the standby wrote is in the archive. \
                 Else this server was set back, or is a copy of the one that archives there, and both are on one timeline: make an \
                 archive for it (`longshore wal create --archive NEW`), name NEW in archive_command and in the configuration, \
                 reload, and make a full backup that is proved there"
            }
            Error::TwoContents { .. } => {
                "two servers archive there at once: give one of them an archive of its own (`longshore wal create`). Compare both \
                 files with the pg_wal of the server that is to keep this one (zstd -dc, gzip -dc), and move the other's away"
            }
            Error::NotTheBackups { .. } => {
                "name the archive of the server that the backup is of (--wal-archive); where another server has archived there \
                 since, choose a backup of that one"
            }
            Error::BrokenLink { .. } => {
                "two branches of the cluster came into this archive: recover to before that place (--target-lsn), or begin with \
                 a backup that was made after it; archive to a new directory (`longshore wal create`), and make a full backup there"
            }
            Error::BranchUnknown { .. } => {
                "make the backup with its log in it (--with-wal); or have the server keep its log for longer (wal_keep_size) \
                 and try again"
            }
            Error::Busy { .. } => "find the process that holds it; PostgreSQL will try again",
            Error::NeedUnreadable { .. } => {
                "let this user read it. If it is damaged, remove it, and run `longshore expire` at each target that relies on \
                 the archive: that writes a new one"
            }
            Error::NeedUnwritten { .. } => {
                "give this user the right to write in the archive; or put the log into the backup (--with-wal), which then \
                 needs none of the archive's to be consistent"
            }
            Error::BeingExpired { .. } => {
                "run the backup again when that expire has ended; --wal-wait waits longer"
            }
            Error::Missing { .. } => "`longshore wal list` shows what there is",
            Error::Gap { .. } => {
                "bring the missing segment, from the old server's pg_wal for instance. Where the target lies before it, set \
                 recovery_prefetch = off (PostgreSQL 15 and later ask ahead); --to-gap ends recovery before it"
            }
            Error::TablespaceTaken { .. } => {
                "recover to a moment before it, with recovery_prefetch = off from PostgreSQL 15 on, or on another machine; if no server uses these files, move them away. \
                 `wal get --tablespaces-as-logged` in restore_command leaves it to you"
            }
            Error::ReplayGap { .. } => {
                "choose a target before them, or --target-immediate; or bring the segments, from the old server's pg_wal \
                 for instance"
            }
            Error::EndsBefore { .. } => {
                "let the server archive what it has (`select pg_switch_wal()`), or choose an earlier target"
            }
            Error::OtherWay { .. } => {
                "name the timeline to follow with --target-timeline, `current` for the backup's own"
            }
            Error::Damaged { .. } => {
                "take the file from another copy of the archive; a backup that ended later does not need it"
            }
            Error::Newer { .. } => "read it with a later version",
            Error::Codec(error) => error.hint(),
        }
    }
}
