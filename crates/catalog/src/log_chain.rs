//! Where a database's log chain stands, as the history has it.

use rusqlite::{OptionalExtension, Row};
use uuid::Uuid;

use crate::{Catalog, Error};

/// A place in the log of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainPlace {
    /// PostgreSQL's system identifier.
    pub system: u64,
    pub timeline: u32,
    pub lsn: u64,
}

/// What a log backup may go on from; none of it copy-only, or on media that cannot be read back (NUL, pipes).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogChain {
    /// Where the last full backup begins its replay.
    pub full: Option<ChainPlace>,
    /// Where the last log backup ends.
    pub log: Option<ChainPlace>,
}

impl Catalog {
    /// Of the database of exactly this name.
    pub fn log_chain(&self, database: &str) -> Result<LogChain, Error> {
        self.read(|db| {
            let newest = |kind: &str, fork: &str, lsn: &str| {
                let sql = format!(
                    "SELECT {fork}, {lsn} FROM backupset
                     WHERE database_name = ?1 AND type = ?2 AND NOT is_copy_only AND {fork} IS NOT NULL
                       AND NOT EXISTS (SELECT 1 FROM backupmediafamily AS family
                                       WHERE family.media_set_id = backupset.media_set_id
                                         AND family.media_family_id IS NULL)
                     ORDER BY longshore_finish_us DESC, backup_set_id DESC LIMIT 1"
                );
                let mut statement = db.prepare_cached(&sql)?;
                statement.query_row([database, kind], place).optional()
            };
            Ok(LogChain {
                full: newest("D", "first_recovery_fork_guid", "first_lsn")?,
                log: newest("L", "last_recovery_fork_guid", "last_lsn")?,
            })
        })
    }
}

fn place(row: &Row) -> rusqlite::Result<ChainPlace> {
    let text: String = row.get(0)?;
    let fork = Uuid::try_parse(&text).map_err(|e| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, e.into())
    })?;
    let fork = fork.as_u128();
    Ok(ChainPlace {
        system: (fork >> 64) as u64,
        timeline: fork as u32,
        lsn: row.get::<_, i64>(1)? as u64,
    })
}
