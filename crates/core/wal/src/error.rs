//! Errors of a WAL archive.
//!
//! There is one variant for each remedy, since the hint is one sentence that names the next command. A file that the
//! archive has already with the same bytes is no error, and a missing segment is one only where it is needed.
//!
//! Invariants
//! - Each variant has a hint: the compiler refuses a variant without one.
//! - The operating system's cause is the `source()` of an error, and is not repeated in its text.
//!
//! Leaves to others: finding the errors (all other files of this crate); exit codes (`longshore-terminal`); hints about
//! object stores (`longshore-bucket`).

use std::io;
use std::path::PathBuf;

use longshore_crypt::SignatureState;
use longshore_media::record::RecordError;
use longshore_pg::wal::{NotHistory, NotRecords, NotWal, WalName};
use longshore_pg::{Lsn, SegmentName, Timeline};

use super::doubt::{Cut, Parting};

/// Errors of a WAL archive. Every variant names the file that an operator must look at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system returned an error. The cause is in `source()` and is not repeated in the text.
    #[error("cannot {action} {}{}", path.display(), at_byte(*offset))]
    Io {
        action: &'static str,
        path: PathBuf,
        /// Where bytes were read or written.
        offset: Option<u64>,
        source: io::Error,
    },

    /// The object store that has the archive, or should have it.
    #[error(transparent)]
    Store(Box<longshore_bucket::Error>),

    /// Of two writers of one name, both would be told of success.
    #[error("the store of {} replaces objects that are there, whatever If-None-Match says", path.display())]
    Replaces { path: PathBuf },

    /// No archive was created there, or it is not mounted.
    #[error("{} is not a WAL archive (file {} not found)", path.display(), super::IDENTITY_NAME)]
    NotAnArchive { path: PathBuf },

    /// A user who can change the link decides where the WAL goes, and who can read it.
    #[error("{} is a symbolic link below a target", path.display())]
    LinkBelow { path: PathBuf },

    /// Root was about to make an archive in another user's directory.
    #[error(
        "{} belongs to {owner}, who could not write to an archive that root makes there",
        path.parent().unwrap_or(path).display()
    )]
    OthersDirectory {
        /// The directory that was about to be made.
        path: PathBuf,
        /// A name, or `#` and a number.
        owner: String,
    },

    /// An archive that was created and not used yet.
    #[error("the WAL archive {} is still empty", path.display())]
    NothingYet { path: PathBuf },

    /// The identity file was changed.
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

    /// PostgreSQL archives no file of this name.
    #[error("{name:?} is not the name of a WAL file")]
    BadName { name: String },

    /// A file named like a segment does not begin like one.
    #[error("{} is not the segment that its name says", path.display())]
    NotWal { path: PathBuf, source: NotWal },

    /// The header is that of another segment, or the length is not a segment's.
    #[error("{} is not the segment that its name says: its {what} is another", path.display())]
    OtherSegment { path: PathBuf, what: &'static str },

    /// A file named like a history does not begin like one.
    #[error("{} is not a timeline history file", path.display())]
    NotHistory { path: PathBuf, source: NotHistory },

    /// The archive has other bytes under this name. They are kept.
    #[error("the archive already has {name}, with other bytes than {}", path.display())]
    OtherContent { name: WalName, path: PathBuf },

    /// Two writers that do not see each other's locks stored it at the same time. It is unknown which one must be
    /// kept.
    #[error("the archive has {name} twice, with different bytes: {} and {}", path.display(), other.display())]
    TwoContents {
        name: WalName,
        path: PathBuf,
        other: PathBuf,
    },

    /// The archive's file differs from what the server wrote: another branch of the cluster archives there.
    #[error("the archive {} holds the WAL of another branch: its {name} has other bytes than {}", archive.display(),
        path.display())]
    OtherBranch {
        archive: PathBuf,
        name: SegmentName,
        /// The server's own file.
        path: PathBuf,
    },

    /// The archive has another branch's WAL at the LSN of a backup's own checkpoint.
    #[error("the archive {} holds the WAL of another branch of the cluster instead of the backup's: {name}", archive.display())]
    NotTheBackups { archive: PathBuf, name: SegmentName },

    /// A segment that is valid in itself, but does not continue the one before.
    #[error("in the archive {} the segment {name} does not follow {before}: {source}", archive.display())]
    BrokenLink {
        archive: PathBuf,
        before: SegmentName,
        name: SegmentName,
        source: NotRecords,
    },

    /// The server no longer has any WAL that could distinguish its archive from another branch's.
    #[error("it is unknown whether {name} in the archive {} is this server's: {what}", archive.display())]
    BranchUnknown {
        archive: PathBuf,
        name: SegmentName,
        what: &'static str,
    },

    /// Two archives have no segment that could be compared.
    #[error("it is unknown whether {name} in {} goes on with the WAL in {}: they have no segment in common", archive.display(), to.display())]
    CopyUnknown {
        archive: PathBuf,
        to: PathBuf,
        name: SegmentName,
    },

    /// The archive goes on after a segment that it lacks, and the server does not have what follows there.
    #[error("the archive {} has {after} and not {name}, and pg_wal has no {after} that would show whose it is",
        archive.display())]
    HoleBefore {
        archive: PathBuf,
        name: SegmentName,
        after: SegmentName,
    },

    /// The file is in another archive, and the server keeps its own until this one comes closer.
    #[error(
        "target {target} may lack {lag_bytes} bytes of WAL, from {since} on, and {key} allows {limit_bytes}{}",
        why.as_ref().map(|why| format!(": {why}")).unwrap_or_default()
    )]
    Behind {
        target: String,
        since: SegmentName,
        lag_bytes: u64,
        /// The key of the configuration that has the limit.
        key: &'static str,
        limit_bytes: u64,
        why: Option<String>,
    },

    /// The archive is there, and refuses WAL that another archive took for it: nothing newer may come after it.
    #[error("target {target} refuses WAL that it is owed, from {since} on: {why}")]
    Refuses {
        target: String,
        /// The first file that is owed.
        since: WalName,
        why: String,
    },

    /// A copy's archive has another file under the name of one that it took from this server.
    #[error("{} is not the {name} that the server archived", path.display())]
    NotOwed { path: PathBuf, name: WalName },

    /// Debts of two databases cannot be one: they owe two branches of a cluster.
    #[error("{} owes {name} twice, with different contents", path.display())]
    OwedTwice {
        name: WalName,
        /// The list.
        path: PathBuf,
    },

    /// Files that an archive is owed are in no archive of a copy and not in pg_wal.
    #[error("no copy's archive has {name}{}, and pg_wal has it no longer", more(*count))]
    Lost {
        /// The first of them.
        name: WalName,
        count: usize,
    },

    /// An encrypted file whose content nothing here can be compared with.
    #[error("{} cannot be compared with what is owed: it is encrypted", path.display())]
    Uncompared { path: PathBuf },

    /// Another process was writing this file for the whole time.
    #[error("another process is archiving {name}, and did not finish within {waited_s} s")]
    Busy { name: WalName, waited_s: u64 },

    /// A record of a target's needs. As long as it cannot be read, everything counts as needed.
    #[error("cannot read the record of a target's needs from {}: {what}", path.display())]
    NeedUnreadable { path: PathBuf, what: String },

    /// Every target that relies on the archive must have a record there.
    #[error("cannot record in {} that a target relies on the archive", path.display())]
    NeedUnwritten { path: PathBuf, source: io::Error },

    /// An expire is removing WAL there, and may have begun before it could know about a backup.
    #[error("WAL is being removed from the archive {}: {holder}; it did not end within {waited_s} s", archive.display())]
    BeingExpired {
        archive: PathBuf,
        holder: String,
        waited_s: u64,
    },

    /// The archive does not have it.
    #[error("{name} is not in the archive {}", archive.display())]
    Missing { name: WalName, archive: PathBuf },

    /// The archive's listing shows it, and its store says that there is none.
    #[error("{name} is listed in the archive {}, whose store answers that there is no such file", archive.display())]
    Hidden { name: WalName, archive: PathBuf },

    /// The archive does not have it, but it has later ones: this is not the end of the WAL.
    #[error("{name} is missing in the archive {}, which has {next}", archive.display())]
    Gap {
        name: WalName,
        next: WalName,
        archive: PathBuf,
    },

    /// Replay would write into another server's files.
    #[error("{name} creates the tablespace {oid} in {}, where a server has files: this server would write into them",
        place.display())]
    TablespaceTaken {
        name: WalName,
        oid: u32,
        place: PathBuf,
    },

    /// Segments are missing between a backup and the LSN that its recovery reaches.
    #[error("the archive {} lacks WAL between the backup and the target: {missing}", archive.display())]
    ReplayGap { archive: PathBuf, missing: String },

    /// Replay would end before its target.
    #[error("the archive {} ends at {end}, before {target}", archive.display())]
    EndsBefore {
        archive: PathBuf,
        end: Lsn,
        target: Lsn,
    },

    /// The timeline that is followed was left before the backup, or never included the backup.
    #[error("the backup ended on timeline {timeline} at {last}; timeline {followed} of the archive {} does not continue \
        from there", archive.display())]
    OtherWay {
        archive: PathBuf,
        timeline: Timeline,
        last: Lsn,
        followed: Timeline,
    },

    /// Nobody has named a timeline, and two have transactions that the other lacks.
    #[error("the archive {} has {parting}", archive.display())]
    Parted { archive: PathBuf, parting: Parting },

    /// Nobody has named a timeline, and a server would not come to the latest one.
    #[error("{cut} ({})", archive.display())]
    Cut { archive: PathBuf, cut: Cut },

    /// A file of the archive has changed.
    #[error("{} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },

    /// A file of the archive was written by a later version.
    #[error("{} needs features that this version does not know (bits {bits:#x})", path.display())]
    Newer { path: PathBuf, bits: u64 },

    /// None of the identities at hand opens it, or somebody changed it.
    #[error("cannot open the encrypted file {}", path.display())]
    Unopened {
        path: PathBuf,
        source: longshore_crypt::Error,
    },

    /// Encrypted files were asked for.
    #[error("{} is not encrypted, and must be", path.display())]
    NotSealed { path: PathBuf },

    /// Its signature is wrong, or a trusted one was asked for.
    #[error("{} is not taken for a trusted signer's: {what}", path.display())]
    Unsigned { path: PathBuf, what: SignatureState },

    /// No key for a new file, or nobody to encrypt it for.
    #[error("cannot encrypt {}", path.display())]
    Keys {
        path: PathBuf,
        source: longshore_crypt::Error,
    },

    /// Nobody could compare the encrypted file with the server's afterwards.
    #[error("cannot encrypt {}: global/pg_control of its cluster cannot be read, and there is no identity", path.display())]
    Untagged { path: PathBuf },

    /// A receiver keeps the segment that is being filled, which nobody could encrypt a byte at a time.
    #[error("the segment that is being received would be unencrypted in {}", path.display())]
    ClearPart { path: PathBuf },

    /// An encrypted segment belongs to another history of its timeline than the archive has.
    #[error("{name} was written for another history of its timeline than {} in the archive {}", WalName::History(*timeline),
        archive.display())]
    OtherHistory {
        archive: PathBuf,
        name: WalName,
        timeline: Timeline,
    },

    /// The level does not fit the algorithm.
    #[error(transparent)]
    Codec(#[from] longshore_codec::Error),
}

/// How many further files there are.
fn more(count: usize) -> String {
    match count {
        0 | 1 => String::new(),
        count => format!(" nor {} others", count - 1),
    }
}

fn at_byte(offset: Option<u64>) -> String {
    offset.map_or(String::new(), |offset| format!(" at byte {offset}"))
}

impl From<longshore_bucket::Error> for Error {
    fn from(error: longshore_bucket::Error) -> Error {
        Error::Store(Box::new(error))
    }
}

impl Error {
    /// The next step where it is not plain which timeline to follow.
    fn way_hint(&self) -> &'static str {
        match self {
            Error::Parted { .. } => PARTED_HINT,
            Error::Cut { .. } => CUT_HINT,
            _ => OTHER_WAY_HINT,
        }
    }

    /// Whether somebody changed an encrypted file, for whose key there is an identity.
    pub fn is_tampering(&self) -> bool {
        use longshore_crypt::Error as Crypt;
        let source = match self {
            Error::Unopened { source, .. } => source,
            _ => return false,
        };
        matches!(source, Crypt::Malformed { .. } | Crypt::Tag { .. })
    }

    /// Whether an archive could not be reached or written to, or is not where it should be. It says nothing about the file.
    pub fn is_away(&self) -> bool {
        matches!(
            self,
            Error::Store(_) | Error::Io { .. } | Error::NotAnArchive { .. }
        )
    }

    /// Whether an archive has looked at a file, and has another one of its name.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Error::OtherContent { .. } | Error::OtherBranch { .. } | Error::TwoContents { .. }
        )
    }

    /// Whether it is about one file of an archive, which is damaged, or which nobody here can read or takes for a signer's.
    pub(super) fn is_fault_of_file(&self) -> bool {
        matches!(
            self,
            Error::Damaged { .. }
                | Error::Newer { .. }
                | Error::Unopened { .. }
                | Error::NotSealed { .. }
                | Error::Unsigned { .. }
                | Error::Uncompared { .. }
        )
    }

    /// True if the cause goes without anybody's help: a network or a store that did not answer or had too much to do, or another
    /// process that was at work on the same.
    pub(super) fn passes_by_itself(&self) -> bool {
        let is_at_work = matches!(self, Error::Busy { .. } | Error::BeingExpired { .. });
        is_at_work || self.may_pass()
    }

    /// Whether a store was away: the same may succeed a little later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Error::Store(store) if store.may_pass())
    }

    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io {
            action,
            path,
            offset: None,
            source,
        }
    }

    /// Like [`Error::io`], for bytes that were read or written at `offset`.
    pub fn io_at(
        action: &'static str,
        path: impl Into<PathBuf>,
        offset: u64,
    ) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io {
            action,
            path,
            offset: Some(offset),
            source,
        }
    }

    pub(super) fn malformed(path: PathBuf, what: RecordError) -> Error {
        match what {
            RecordError::Feature(bits) => Error::Newer { path, bits },
            what => Error::Damaged {
                path,
                what: what.to_string(),
            },
        }
    }

    /// What the operator can do now: one sentence, printed below the error after `hint: `.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Io { source, .. } => io_hint(source.kind()),
            Error::Store(error) => error.hint(),
            Error::Replaces { .. } => {
                "make the archive in a directory, or in a store that heeds conditions (docs/buckets.md)"
            }
            Error::NotAnArchive { .. } => {
                "check that its file system is mounted; a new archive is made by `longshore wal create`, as the server's user"
            }
            Error::LinkBelow { .. } => {
                "move the directory into the target; or name its path as `archive` in [database.NAME.wal]"
            }
            Error::OthersDirectory { .. } => {
                "run the command as the server's user: runuser -u postgres -- longshore wal create …"
            }
            Error::NothingYet { .. } => {
                "wait until the server's archive_command or `longshore wal receive` has archived the first segment"
            }
            Error::IdentityDamaged { .. } => {
                "compare it with `pg_controldata`; if you remove it, `longshore wal create` and the next push write it again"
            }
            Error::OtherCluster { .. } | Error::OtherSegmentSize { .. } => {
                "use one archive for each cluster, and a new one after pg_upgrade or initdb"
            }
            Error::BadName { .. } => "archive_command needs %p, restore_command %f and %p",
            Error::NotWal { .. } | Error::OtherSegment { .. } | Error::NotHistory { .. } => {
                "do not remove it by hand: check the server's disk, and which major version wrote the file"
            }
            Error::OtherContent {
                name: WalName::History(_),
                ..
            } => {
                "the archive holds the WAL of another restore or promotion: create an archive for this server with \
                 `longshore wal create`, and begin there with a full backup"
            }
            Error::OtherContent { .. } | Error::OtherBranch { .. } => OTHER_HINT,
            Error::TwoContents { .. } => {
                "two servers archive there at the same time: run `longshore wal create --archive NEW` for one of them and name NEW in its \
                 archive_command. Then compare both files with that server's pg_wal (zstd -dc, gzip -dc) and move its file away"
            }
            Error::NotTheBackups { .. } => {
                "name the archive of the backup's server (--wal-archive); if another server has archived there since, \
                 choose a backup of that server"
            }
            Error::BrokenLink { .. } => {
                "the archive has WAL of two branches of the cluster: recover to an LSN before that segment (--target-lsn), \
                 or start from a backup made after it; archive to a new directory (`longshore wal create`), and make a full backup there"
            }
            Error::BranchUnknown { .. } => {
                "store the WAL in the backup (--with-wal); or let the server keep its WAL for longer \
                 (wal_keep_size) and retry"
            }
            Error::CopyUnknown { .. }
            | Error::HoleBefore { .. }
            | Error::Behind { .. }
            | Error::Refuses { .. }
            | Error::NotOwed { .. }
            | Error::OwedTwice { .. }
            | Error::Lost { .. }
            | Error::Uncompared { .. } => self.hint_of_copies(),
            Error::Busy { .. } => "find the process that holds it; PostgreSQL will retry",
            Error::NeedUnreadable { .. } => {
                "give this user read permission on it (chmod a+r); if it is readable and damaged, remove it and run `longshore expire` at each \
                 target that relies on the archive, which writes it again"
            }
            Error::NeedUnwritten { .. } => {
                "give this user the permission to write in the archive; or store the WAL in the backup (--with-wal), which \
                 then needs no archive to be consistent"
            }
            Error::BeingExpired { .. } => {
                "run the backup again after that expire has ended, or wait longer with --wal-wait"
            }
            Error::Missing { .. } => "`longshore wal list` shows the archive's segments",
            Error::Hidden { .. } => HIDDEN_HINT,
            Error::Gap { .. } => GAP_HINT,
            Error::TablespaceTaken { .. } => {
                "restore on another machine, or with --target-lsn before that record; `wal get --tablespaces-as-logged` in restore_command \
                 disables this check if no server uses these files"
            }
            Error::ReplayGap { .. } => {
                "choose a target before them, or --target-immediate; or archive the segments, for instance from the old \
                 server's pg_wal"
            }
            Error::EndsBefore { .. } => {
                "let the server archive its last segment (`select pg_switch_wal()`), or choose an earlier target"
            }
            Error::OtherWay { .. } | Error::Parted { .. } | Error::Cut { .. } => self.way_hint(),
            Error::Damaged { .. } => {
                "take the file from another copy of the archive; a backup that ended later does not need it"
            }
            Error::Newer { .. } => "read it with a later version",
            Error::Unopened { .. }
            | Error::NotSealed { .. }
            | Error::Unsigned { .. }
            | Error::Keys { .. }
            | Error::Untagged { .. }
            | Error::ClearPart { .. }
            | Error::OtherHistory { .. } => self.hint_of_keys(),
            Error::Codec(error) => error.hint(),
        }
    }

    /// [`Error::hint`] of the variants that concern several archives of one server.
    fn hint_of_copies(&self) -> &'static str {
        match self {
            Error::CopyUnknown { .. } => COPY_HINT,
            Error::HoleBefore { .. } => {
                "wait until this server has that segment: PostgreSQL repeats the push. If the server was set back to an older copy, run \
                 `longshore wal create --archive NEW`, name NEW in archive_command, and make a full backup there"
            }
            Error::Uncompared { .. } => {
                "name the identity of a recipient in [encryption], then run `longshore wal owed --database NAME --settle`"
            }
            Error::OwedTwice { .. } => {
                "give each of the two a [database.NAME] with an archive of its own, then run `longshore wal owed --database NAME --settle` for each"
            }
            Error::NotOwed { .. } | Error::Lost { .. } => LOST_HINT,
            Error::Refuses { .. } => OTHER_HINT,
            _ => BEHIND_HINT,
        }
    }

    /// [`Error::hint`] of the variants that concern encryption.
    fn hint_of_keys(&self) -> &'static str {
        match self {
            Error::Unopened { source, .. } => match source {
                longshore_crypt::Error::Scheme { .. } => "read it with a later version",
                longshore_crypt::Error::Command { .. } => {
                    "run the command of `unwrap_command` by hand (docs/recipes.md), or name the identity of another recipient (--identity FILE)"
                }
                longshore_crypt::Error::Malformed { .. } | longshore_crypt::Error::Tag { .. } => {
                    "somebody changed it: take the file from another copy of the archive"
                }
                _ => {
                    "name the file with the identity of one of its recipients (--identity FILE, or `identities` in [encryption])"
                }
            },
            Error::NotSealed { .. } => {
                "find out who put it there; if it is of the time before the archive was encrypted, read it without `require` in [encryption]"
            }
            Error::Unsigned { what, .. } => match what {
                SignatureState::Wrong(_) => {
                    "somebody changed it, or put it there: take the file from another copy of the archive"
                }
                _ => {
                    "find out who put it there; if it is yours, name its signer (--signer, or `signers` in [encryption]), or read it without \
                     `require_signature`"
                }
            },
            Error::Keys {
                source: longshore_crypt::Error::Command { .. },
                ..
            } => {
                "run the command of `wrap_command` by hand (docs/recipes.md): until it succeeds, the server keeps its WAL"
            }
            Error::Keys { .. } => {
                "name other recipients: age1pq1… or age1… (--encrypt-to, or `recipients` in [encryption])"
            }
            Error::Untagged { .. } => {
                "let the server run `longshore wal push` in its data directory, with %p as it gives it; a receiver, and a push from elsewhere, need an \
                 identity (--identity FILE)"
            }
            Error::ClearPart { .. } => {
                "archive with archive_command (`longshore wal push`), or receive into a bucket, where the segment is in memory until it is full"
            }
            Error::OtherHistory { .. } => {
                "the archive's history was exchanged, or WAL of two branches is there: compare it with the history in the server's pg_wal"
            }
            _ => "docs/postgres-wal.md has a section on encryption",
        }
    }
}

const OTHER_WAY_HINT: &str = "if the server went on with that timeline, name it with --target-timeline: an older backup may lead to \
    it. To restore the backup's own timeline, use --target-timeline current; `longshore wal list` shows what each has";
const PARTED_HINT: &str = "name the right one: if the later timeline is a restored copy's, the other one's number with --target-timeline; \
    if the database went on with it, --target-timeline latest";
const CUT_HINT: &str = "bring the missing file back; or name the timeline on which the database went on with --target-timeline";
const OTHER_HINT: &str = "if this is a standby (archive_mode = always) after a promotion, wait: PostgreSQL repeats the push, and it \
                 succeeds once pg_wal has the new timeline's history. Otherwise two servers archive on one timeline: run \
                 `longshore wal create --archive NEW` for this one, name NEW in its archive_command, and make a full backup there";
const HIDDEN_HINT: &str = "a cache between here and the store may keep the answer of a time before the file was there: run the \
                 command again in some minutes, or name the store itself in `endpoint`; `longshore wal list --verify` reads the file";
const GAP_HINT: &str = "archive the missing segment, for instance from the old server's pg_wal. If the target is before it, \
                 set recovery_prefetch = off (PostgreSQL 15 and later prefetch); --to-gap ends recovery before it";
const COPY_HINT: &str = "rename the archive that is copied to, and copy again: it then begins with the WAL that the copied \
    backups need";
const BEHIND_HINT: &str = "bring the target back, then run `longshore copy`; PostgreSQL keeps its WAL until then, and \
    `copy_behind` and `home_behind` in [database.NAME.wal] say how much may wait";
const LOST_HINT: &str = "bring back the copy that had it; or make a full backup, so that later moments can be recovered, and run \
    `longshore wal owed --database NAME --give-up`";

fn io_hint(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space on this path's file system; PostgreSQL keeps WAL that is not archived in pg_wal and retries"
        }
        io::ErrorKind::FileTooLarge => {
            "raise the limit on a file's size for the server's user (`ulimit -f`; LimitFSIZE= in a systemd unit); \
             PostgreSQL keeps WAL that is not archived in pg_wal and retries"
        }
        io::ErrorKind::PermissionDenied => {
            "PostgreSQL runs archive_command and restore_command as the server's user: give that user the right to this path"
        }
        _ => "check the path and the kernel's messages",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: nobody is sent to free space where the limit is on a file's size.
    #[test]
    fn a_file_that_may_not_grow_has_another_next_step_than_a_full_disk() {
        let full = io_hint(io::ErrorKind::StorageFull);
        assert!(full.contains("free space"), "{full}");
        assert_eq!(io_hint(io::ErrorKind::QuotaExceeded), full);
        let large = io_hint(io::ErrorKind::FileTooLarge);
        assert!(large.contains("`ulimit -f`"), "{large}");
        assert!(!large.contains("free space"), "{large}");
    }

    /// Goal: a network that answers again and a store that was slow need nobody; credentials and a bucket that is gone do.
    #[test]
    fn only_what_may_succeed_a_little_later_passes_by_itself() {
        use longshore_bucket::Error as Bucket;
        let (action, at, endpoint) = ("read", "s3://b/k".to_owned(), "http://s".to_owned());
        let silent = |why: &str| Bucket::Silent {
            action,
            at: at.clone(),
            endpoint: endpoint.clone(),
            why: why.to_owned(),
            tries: 9,
        };
        let refused = |status| Bucket::Refused {
            action,
            at: at.clone(),
            endpoint: endpoint.clone(),
            status,
            code: String::new(),
            message: String::new(),
            tries: 9,
        };
        let no_bucket = Bucket::NoBucket {
            action,
            at: at.clone(),
        };
        for (error, passes) in [
            (silent("connection refused"), true),
            (silent("invalid peer certificate"), false),
            (refused(503), true),
            (refused(429), true),
            (refused(403), false),
            (no_bucket, false),
        ] {
            let text = error.to_string();
            assert_eq!(Error::from(error).passes_by_itself(), passes, "{text}");
        }
        let name = "000000010000000000000001".parse().unwrap();
        assert!(Error::Busy { name, waited_s: 1 }.passes_by_itself());
        assert!(!Error::Lost { name, count: 1 }.passes_by_itself());
        let gone = io::ErrorKind::NotFound.into();
        assert!(!Error::io("open", "/near")(gone).passes_by_itself());
    }
}
