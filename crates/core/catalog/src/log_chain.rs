//! The state of a database's log chain according to the history: which sets the next log backup may continue.
//!
//! Invariants
//! - Copy-only sets, and sets on media that cannot be read back, are never predecessors.
//! - History may contain the sets of a copy, so several predecessors are offered, newest first and a bounded number of
//!   them.
//! - Full backups that ended before the last log backup are left out, except the newest one.
//!
//! Leaves to others: the decision which of them the archive continues (`log.rs` of the pipeline).

use rusqlite::{OptionalExtension, Row, params};
use uuid::Uuid;

use crate::{Catalog, Error};

/// How many log sets are considered as predecessors of a chain.
const LOGS_MAX: u32 = 64;

/// An LSN of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainPlace {
    /// PostgreSQL's system identifier.
    pub system: u64,
    pub timeline: u32,
    pub lsn: u64,
    /// The lineage in the set's header, which identifies its branch; empty if it has none.
    pub lineage: Vec<u8>,
}

/// The possible predecessors of a log backup; none is copy-only, or on media that cannot be read back (NUL, pipes).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogChain {
    /// The ends of the newest log backups, the last one first, at most 64: the history may contain sets of other
    /// branches.
    pub logs: Vec<ChainPlace>,
    /// The LSNs at which full backups begin their replay, in the order in which the backups ended: those since the
    /// last log backup, or otherwise the last one.
    pub fulls: Vec<ChainPlace>,
    /// Whether one of those is newer than the last log backup and was complete before that backup's end LSN: the
    /// server was reset to a copy of its files in between.
    pub is_set_back: bool,
}

macro_rules! base {
    () => {
        "NOT is_copy_only AND NOT EXISTS (SELECT 1 FROM backupmediafamily AS family
            WHERE family.media_set_id = backupset.media_set_id AND family.media_family_id IS NULL)"
    };
}

/// Sets that a differential may build upon.
const BASE: &str = base!();

/// Sets that others may build upon in a log chain.
pub(crate) const SOUND: &str = concat!(base!(), " AND first_recovery_fork_guid IS NOT NULL");

/// The full backup that the next differential one differs from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DifferentialBase {
    /// An LSN; for a database without WAL the begin of the backup, in microseconds since 1970, as in the views of msdb.
    pub checkpoint_lsn: i64,
    pub set: String,
    /// Local time in whole seconds, as the views of msdb have it.
    pub finished: String,
}

impl Catalog {
    /// The moment of each database's first backup, in local time as msdb has it.
    ///
    /// Errors: the history cannot be read.
    pub fn first_backups(&self) -> Result<Vec<(String, String)>, Error> {
        self.read(|db| {
            let sql = "SELECT database_name, min(backup_start_date) FROM backupset
                       WHERE backup_start_date IS NOT NULL GROUP BY database_name";
            let row = |row: &Row| Ok((row.get(0)?, row.get(1)?));
            db.prepare_cached(sql)?.query_map([], row)?.collect()
        })
    }

    /// The base of the next differential backup of the database with exactly this name.
    ///
    /// Errors: the history cannot be read.
    pub fn differential_base(&self, database: &str) -> Result<Option<DifferentialBase>, Error> {
        self.read(|db| {
            let sql = format!(
                "SELECT ifnull(checkpoint_lsn, longshore_start_us), backup_set_uuid, substr(backup_finish_date, 1, 19)
                 FROM backupset
                 WHERE database_name = ?1 AND type = 'D' AND {BASE}
                 ORDER BY longshore_finish_us DESC, backup_set_id DESC LIMIT 1"
            );
            let row = |row: &Row| {
                Ok(DifferentialBase {
                    checkpoint_lsn: row.get(0)?,
                    set: row.get(1)?,
                    finished: row.get(2)?,
                })
            };
            db.prepare_cached(&sql)?
                .query_row([database], row)
                .optional()
        })
    }

    /// The log chain of the database with exactly this name.
    pub fn log_chain(&self, database: &str) -> Result<LogChain, Error> {
        self.read(|db| {
            let newest_logs = format!(
                "SELECT last_recovery_fork_guid, last_lsn, longshore_lineage, longshore_finish_us FROM backupset
                 WHERE database_name = ?1 AND type = ?2 AND {SOUND}
                 ORDER BY longshore_finish_us DESC, backup_set_id DESC LIMIT {LOGS_MAX}"
            );
            let logs: Vec<(ChainPlace, i64)> = db
                .prepare_cached(&newest_logs)?
                .query_map([database, "L"], |row| Ok((place(row)?, row.get(3)?)))?
                .collect::<Result<_, _>>()?;
            let ended_us = logs.first().map(|(_, ended_us)| *ended_us);
            let logs: Vec<ChainPlace> = logs.into_iter().map(|(log, _)| log).collect();
            let newest = format!(
                "SELECT backup_set_id, longshore_finish_us FROM backupset
                 WHERE database_name = ?1 AND type = ?2 AND {SOUND}
                 ORDER BY longshore_finish_us DESC, backup_set_id DESC LIMIT 1"
            );
            let newest = db
                .prepare_cached(&newest)?
                .query_row([database, "D"], |row| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
                });
            let Some((newest, newest_us)) = newest.optional()? else {
                return Ok(LogChain {
                    logs,
                    ..LogChain::default()
                });
            };
            // The newest is included whenever it ended. Full backups before the last log backup are not even read.
            let fulls = format!(
                "SELECT first_recovery_fork_guid, first_lsn, longshore_lineage, last_lsn, longshore_finish_us
                 FROM backupset
                 WHERE database_name = ?1 AND type = ?2 AND longshore_finish_us >= ?5
                     AND (longshore_finish_us > ?3 OR backup_set_id = ?4) AND {SOUND}
                 ORDER BY longshore_finish_us, backup_set_id"
            );
            let ended_us = ended_us.unwrap_or(i64::MIN);
            let from_us = newest_us.min(ended_us);
            let fulls: Vec<(ChainPlace, bool)> = db
                .prepare_cached(&fulls)?
                .query_map(params![database, "D", ended_us, newest, from_us], |row| {
                    let full = place(row)?;
                    let (reached, finish_us) = (row.get::<_, i64>(3)? as u64, row.get::<_, i64>(4)?);
                    let is_before = |log: &ChainPlace| log.system == full.system && reached < log.lsn;
                    let is_back = finish_us > ended_us && logs.first().is_some_and(is_before);
                    Ok((full, is_back))
                })?
                .collect::<Result<_, _>>()?;
            let is_set_back = fulls.iter().any(|(_, is_before)| *is_before);
            let fulls = fulls.into_iter().map(|(full, _)| full).collect();
            Ok(LogChain {
                logs,
                fulls,
                is_set_back,
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
        lineage: row.get::<_, Option<Vec<u8>>>(2)?.unwrap_or_default(),
    })
}
