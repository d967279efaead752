//! Where a database's log chain stands, as the history has it.

use rusqlite::{OptionalExtension, Row, params};
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogChain {
    /// Where the last log backup ends.
    pub log: Option<ChainPlace>,
    /// Where full backups begin their replay, in the order in which they ended: those since the last log backup, or
    /// else the last one.
    pub fulls: Vec<ChainPlace>,
}

/// Sets that others may build upon.
pub(crate) const SOUND: &str = "NOT is_copy_only AND first_recovery_fork_guid IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM backupmediafamily AS family
                    WHERE family.media_set_id = backupset.media_set_id AND family.media_family_id IS NULL)";

impl Catalog {
    /// Of the database of exactly this name.
    pub fn log_chain(&self, database: &str) -> Result<LogChain, Error> {
        self.read(|db| {
            let last_log = format!(
                "SELECT last_recovery_fork_guid, last_lsn, longshore_finish_us FROM backupset
                 WHERE database_name = ?1 AND type = ?2 AND {SOUND}
                 ORDER BY longshore_finish_us DESC, backup_set_id DESC LIMIT 1"
            );
            let last_log = db
                .prepare_cached(&last_log)?
                .query_row([database, "L"], |row| {
                    Ok((place(row)?, row.get::<_, i64>(2)?))
                });
            let (log, ended_us) = last_log.optional()?.unzip();
            // The newest first, so that it is there whenever it ended.
            let fulls = format!(
                "SELECT first_recovery_fork_guid, first_lsn,
                        longshore_finish_us > ?3 OR row_number() OVER newest = 1
                 FROM backupset WHERE database_name = ?1 AND type = ?2 AND {SOUND}
                 WINDOW newest AS (ORDER BY longshore_finish_us DESC, backup_set_id DESC)
                 ORDER BY longshore_finish_us, backup_set_id"
            );
            let mut fulls = db.prepare_cached(&fulls)?;
            let ended_us = ended_us.unwrap_or(i64::MIN);
            let all = fulls.query_map(params![database, "D", ended_us], |row| {
                Ok((place(row)?, row.get::<_, bool>(2)?))
            })?;
            let all = all.collect::<Result<Vec<_>, _>>()?;
            let counts = all.into_iter().filter(|(_, counts)| *counts);
            Ok(LogChain {
                log,
                fulls: counts.map(|(place, _)| place).collect(),
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
