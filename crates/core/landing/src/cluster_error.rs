//! Why a PostgreSQL cluster cannot be restored as requested.
//!
//! Invariants
//! - There is one variant for each remedy, and each has its next step ([`ClusterError::hint`]).
//! - Each refusal names what it is about: the directory, the tablespace or the LSN.
//!
//! Leaves to others: failures of the file system and SQL Server's numbers (`error.rs`), and exit codes
//! (`longshore-terminal`).

use std::path::PathBuf;

use longshore_pg::Lsn;
use longshore_pg::wal::MadeTablespace;

#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("a server may be running in {}: its postmaster.pid names process {process}", path.display())]
    Running { path: PathBuf, process: String },

    #[error(
        "the set has tablespaces outside the data directory: {list}{}",
        linked(links)
    )]
    TablespacesNotPlaced {
        list: String,
        /// The options that mean the links of the cluster that is to be changed; empty if it has none.
        links: String,
    },

    #[error("the set has no tablespace {name}")]
    NoSuchTablespace { name: String },

    #[error("tablespace {oid} cannot be at {}: {what}", path.display())]
    TablespacePath {
        oid: u32,
        path: PathBuf,
        what: &'static str,
    },

    #[error("a pipe shows its tablespaces only while it is read, and {name} is no OID")]
    NotAnOid { name: String },

    #[error("the set has a tablespace {oid}, at {}", stored.display())]
    TablespaceFromPipe { oid: u32, stored: PathBuf },

    #[error("tablespace {oid} is mapped twice")]
    TablespaceTwice { oid: u32 },

    #[error("the tablespace_map of the set is not understood")]
    TablespaceMap,

    #[error("the set has no global/pg_control")]
    NoControlFile,

    #[error("the set was not made from a PostgreSQL cluster")]
    NotACluster,

    #[error("{} has no global/pg_control, so there is no cluster to change", path.display())]
    NothingToChange { path: PathBuf },

    #[error("{} is not a data directory of the set's cluster: {what}", path.display())]
    Foreign { path: PathBuf, what: String },

    /// `--replace` removes nothing but the cluster that the set is of.
    #[error("{} is not empty, and --replace removes nothing but the cluster of the set: {what}", path.display())]
    NotReplaced { path: PathBuf, what: String },

    #[error("{} has another cluster: its system identifier is {found}, the set's is {system}", path.display())]
    Another {
        path: PathBuf,
        found: u64,
        system: u64,
    },

    #[error("{} is not empty and is no data directory of PostgreSQL", path.display())]
    NoDataDirectory { path: PathBuf },

    #[error("the set is consistent from {reached} on, and the target {target} is before that")]
    TargetTooEarly { target: String, reached: String },

    #[error("no set on the media is consistent before the target {target}")]
    NoSetBefore { target: String },

    #[error("{what} needs media that can be read twice")]
    NeedsIndex { what: &'static str },

    #[error("{} of the set is a hard link, and clusters have none", path.display())]
    HardLink { path: PathBuf },

    /// The file got another name while the restore wrote to it.
    #[error("{} got another name (a hard link) while it was restored", path.display())]
    Shared { path: PathBuf },

    #[error("{} is not a restored cluster in NORECOVERY state: {what}", path.display())]
    NotHeld { path: PathBuf, what: String },

    #[error("the WAL that was restored to {} no longer exists", path.display())]
    RestoredLogLost { path: PathBuf },

    #[error(
        "the restored WAL creates the tablespace {} in {}, where a server has files: a server that replays it here would \
         write into them",
        made.oid,
        made.place.display()
    )]
    TablespaceTaken { made: MadeTablespace },

    #[error("the set ends at {last} and does not hold its WAL")]
    LogNotIncluded { last: Lsn },

    #[error(
        "without recovery settings a server replays only the WAL in the set, and this set, which ends at {last}, does not \
         hold its WAL"
    )]
    OwnLogOnly { last: Lsn },

    #[error(
        "the set is of a standby, which ends no backup in its WAL: without recovery settings no server knows where it is consistent"
    )]
    OwnLogOfStandby,

    #[error("the set has no database {name}; it has {known}")]
    NoSuchDatabase { name: String, known: String },

    #[error("the set does not say how its databases are called, and {name} is no OID")]
    DatabasesUnnamed { name: String },

    #[error(
        "the set does not say how its databases are called, and postgres, template0 or template1 was created again: which databases \
         every cluster needs cannot be told"
    )]
    DatabasesRemade,

    #[error("the set names more than {max} databases")]
    DatabasesMany { max: usize },

    #[error("several databases of the set were called {name} during the backup")]
    DatabaseTwice { name: String },

    #[error("every cluster needs its database {name}, so it is always restored")]
    DatabaseKept { name: String },
}

fn linked(options: &str) -> String {
    match options {
        "" => String::new(),
        options => format!(
            ". The links of the cluster in the directory mean {options}; if the directory is a copy, these are its origin's"
        ),
    }
}

impl ClusterError {
    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            ClusterError::Running { .. } => {
                "stop the server; remove postmaster.pid only if you are sure that no server runs"
            }
            ClusterError::TablespacesNotPlaced { .. } => {
                "give each a directory with --tablespace-map OID=DIR, or accept these with --tablespaces-as-stored"
            }
            ClusterError::NoSuchTablespace { .. } => {
                "name a tablespace by its OID or its stored directory; `longshore list --files` shows them"
            }
            ClusterError::TablespacePath { .. } => {
                "choose an absolute path of its own, outside the data directory, with --tablespace-map"
            }
            ClusterError::TablespaceTwice { .. } => {
                "give each tablespace one directory with --tablespace-map"
            }
            ClusterError::NotAnOid { .. } | ClusterError::TablespaceFromPipe { .. } => {
                "from a pipe, give each tablespace a directory by its OID: --tablespace-map OID=DIR"
            }
            ClusterError::NeedsIndex { .. } => "save the stream to a file and restore that",
            ClusterError::TablespaceMap => {
                "restore an older set; this one was not made by PostgreSQL"
            }
            ClusterError::HardLink { .. } => "restore without --delta",
            ClusterError::Shared { .. } => {
                "stop the program that copies the directory with hard links, then run the same command again"
            }
            ClusterError::NoControlFile => {
                "choose another set; `longshore list --files` shows the content of a set"
            }
            ClusterError::NotACluster => {
                "leave out the options for recovery, tablespaces and delta, or choose another set"
            }
            ClusterError::NothingToChange { .. } => {
                "leave out --delta, so that a new directory is made or an empty one is filled; with --replace instead of --delta, \
                 what is there is replaced"
            }
            ClusterError::Foreign { .. } => {
                "check --to and --tablespace-map; restore elsewhere, or use --replace instead of --delta"
            }
            ClusterError::Another { .. }
            | ClusterError::NoDataDirectory { .. }
            | ClusterError::NotReplaced { .. } => {
                "restore to another directory, or move this one away first: mv DIR DIR.old"
            }
            ClusterError::TargetTooEarly { .. } => {
                "leave out --position, so that the restore chooses the set, or choose an older one"
            }
            ClusterError::NoSetBefore { .. } => "choose a later target, or older media",
            ClusterError::NotHeld { .. } | ClusterError::RestoredLogLost { .. } => {
                "restore it again WITH NORECOVERY, from its full backup on"
            }
            ClusterError::TablespaceTaken { .. } => {
                "if no server uses the directory, move it away and recover the database again; otherwise restore on \
                 another machine"
            }
            ClusterError::OwnLogOnly { .. } | ClusterError::OwnLogOfStandby => {
                "leave out --recovery-settings none, so that the server recovers from an archive, or restore a backup of a \
                 primary that was made with --with-wal"
            }
            ClusterError::NoSuchDatabase { .. } | ClusterError::DatabaseTwice { .. } => {
                "name a database of the set, or give its OID"
            }
            ClusterError::DatabasesUnnamed { .. } => {
                "give the OID of the database: the directories below base in `longshore list --files` are named after OIDs"
            }
            ClusterError::DatabasesRemade => {
                "give the OIDs of those that are to be empty: --db-exclude"
            }
            ClusterError::DatabasesMany { .. } => "restore all databases",
            ClusterError::DatabaseKept { .. } => "leave it out of --db-exclude",
            ClusterError::LogNotIncluded { .. } => {
                "name the WAL archive with --wal-archive, or give a --restore-command; or make backups with --with-wal"
            }
        }
    }
}
