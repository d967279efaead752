//! Why a PostgreSQL cluster cannot be restored as asked.

use std::path::PathBuf;

use longshore_pg::Lsn;
use longshore_pg::wal::MadeTablespace;

#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("a server may be running in {}: its postmaster.pid names process {process}", path.display())]
    Running { path: PathBuf, process: String },

    #[error("the set has tablespaces outside the data directory: {list}")]
    TablespacesNotPlaced { list: String },

    #[error("the set has no tablespace {name}")]
    NoSuchTablespace { name: String },

    #[error("tablespace {oid} cannot lie at {}: {what}", path.display())]
    TablespacePath {
        oid: u32,
        path: PathBuf,
        what: &'static str,
    },

    #[error("a cluster's tablespaces can only be placed from media that can be read twice")]
    TablespacesFromPipe,

    #[error("the tablespace_map of the set makes no sense")]
    TablespaceMap,

    #[error("the set holds no global/pg_control")]
    NoControlFile,

    #[error("the set was not made from a PostgreSQL cluster")]
    NotACluster,

    #[error("{} is not a data directory of the set's cluster: {what}", path.display())]
    Foreign { path: PathBuf, what: String },

    #[error("the set is consistent from {reached} on; the target {target} lies before that")]
    TargetTooEarly { target: String, reached: String },

    #[error("no set on the media is consistent before the target {target}")]
    NoSetBefore { target: String },

    #[error("{what} needs media that can be read twice")]
    NeedsIndex { what: &'static str },

    #[error("{} of the set is a hard link, which no cluster has", path.display())]
    HardLink { path: PathBuf },

    /// Somebody gave the file another name while the restore wrote to it.
    #[error("{} got another name (a hard link) while it was restored", path.display())]
    Shared { path: PathBuf },

    #[error("{} is not a restored cluster that waits for recovery: {what}", path.display())]
    NotHeld { path: PathBuf, what: String },

    #[error("the log that was restored to {} is not there any more", path.display())]
    RestoredLogLost { path: PathBuf },

    #[error(
        "the restored log makes the tablespace {} in {}, where a server has files: a server that replays it here would \
         write into them",
        made.oid,
        made.place.display()
    )]
    TablespaceTaken { made: MadeTablespace },

    #[error("the set ends at {last} and does not hold its log")]
    LogNotIncluded { last: Lsn },
}

impl ClusterError {
    /// What the operator can do now, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            ClusterError::Running { .. } => {
                "stop the server; remove postmaster.pid only when you are sure that none runs"
            }
            ClusterError::TablespacesNotPlaced { .. } => {
                "say where each goes with --tablespace-map OID=DIR, or accept these with --tablespaces-as-stored"
            }
            ClusterError::NoSuchTablespace { .. } => {
                "name a tablespace by its OID or its stored directory; `longshore list --files` shows them"
            }
            ClusterError::TablespacePath { .. } => {
                "choose an absolute path of its own, outside the data directory, with --tablespace-map"
            }
            ClusterError::TablespacesFromPipe | ClusterError::NeedsIndex { .. } => {
                "save the stream to a file and restore that"
            }
            ClusterError::TablespaceMap => {
                "restore an older set; this one was not made by PostgreSQL"
            }
            ClusterError::HardLink { .. } => "restore without --delta",
            ClusterError::Shared { .. } => {
                "end the program that copies the directory with hard links, then run the same command again"
            }
            ClusterError::NoControlFile => {
                "choose another set; `longshore list --files` shows what this one holds"
            }
            ClusterError::NotACluster => {
                "leave out the options for recovery, tablespaces and delta, or choose another set"
            }
            ClusterError::Foreign { .. } => {
                "check --to and --tablespace; restore elsewhere, or use --replace instead of --delta"
            }
            ClusterError::TargetTooEarly { .. } => {
                "leave out --position to have the right set chosen, or choose an older one"
            }
            ClusterError::NoSetBefore { .. } => "choose a later target, or older media",
            ClusterError::NotHeld { .. } | ClusterError::RestoredLogLost { .. } => {
                "restore it again WITH NORECOVERY, from its full backup on"
            }
            ClusterError::TablespaceTaken { .. } => {
                "move the directory away if no server uses it, and let the database be recovered then, or restore it on \
                 another machine"
            }
            ClusterError::LogNotIncluded { .. } => {
                "name the log archive with --wal-archive, or a --restore-command; or make backups that hold their log"
            }
        }
    }
}
