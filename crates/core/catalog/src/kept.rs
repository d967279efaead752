//! State of a T-SQL server between its runs: logical devices, restored databases, restores that wait for more.
//!
//! Invariants
//! - Each change is one transaction, made before the statement reports success.
//! - Names are unique: a logical device's whatever its case, and each database has one location and one restore that
//!   waits.
//! - A row describes what was there then; whoever uses it checks that the files still exist.
//!
//! Leaves to others: the meaning of the state (`tsql`), and history (`write.rs`).

use std::path::PathBuf;

use rusqlite::{Row, params};
use uuid::Uuid;

use crate::{Catalog, Error};

/// A database that was restored under a name that is not in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredDatabase {
    pub name: String,
    /// The source kind's number on media.
    pub source_kind: u8,
    pub path: PathBuf,
}

/// A restore of a database that waits for more: differential sets, WAL, the command to recover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreSequence {
    pub database: String,
    /// The data directory.
    pub target: PathBuf,
    /// Whether the last step that was begun is complete.
    pub is_ready: bool,
    /// PostgreSQL's system identifier.
    pub system: u64,
    /// The timeline of `next_lsn`.
    pub timeline: u32,
    /// The database is consistent when WAL has been replayed up to here.
    pub consistent_lsn: u64,
    /// WAL was restored up to here.
    pub next_lsn: u64,
    /// Everything committed before this time is restored. Microseconds since the Unix epoch.
    pub reached_us: i64,
    /// The time at which recovery stops. Microseconds since the Unix epoch.
    pub stop_at_us: Option<i64>,
    /// The number of restored log sets.
    pub log_count: u32,
    /// Full and differential sets that were restored, in order.
    pub sets: Vec<Uuid>,
    /// All stripes from which they were read.
    pub devices: Vec<PathBuf>,
}

impl Catalog {
    /// Logical devices and their paths, by name.
    pub fn devices(&self) -> Result<Vec<(String, PathBuf)>, Error> {
        self.read(|db| {
            db.prepare_cached("SELECT name, physical_name FROM backupdevice ORDER BY name")?
                .query_map([], |row| Ok((row.get(0)?, path(row, 1)?)))?
                .collect()
        })
    }

    /// Adds a logical device; returns whether the name was new, ignoring case.
    pub fn add_device(&self, name: &str, path: &str) -> Result<bool, Error> {
        self.write(|tx| {
            let sql = "INSERT INTO backupdevice VALUES (?1, ?2) ON CONFLICT DO NOTHING";
            Ok(tx.execute(sql, [name, path])? > 0)
        })
    }

    /// Removes a logical device by its name, ignoring case; returns whether it existed.
    pub fn drop_device(&self, name: &str) -> Result<bool, Error> {
        self.write(|tx| Ok(tx.execute("DELETE FROM backupdevice WHERE name = ?1", [name])? > 0))
    }

    /// Databases that were restored under other names, by name.
    pub fn restored_databases(&self) -> Result<Vec<RestoredDatabase>, Error> {
        self.read(|db| {
            let sql = "SELECT name, source_kind, physical_name FROM restoreddatabase ORDER BY name";
            let each = |row: &Row| {
                Ok(RestoredDatabase {
                    name: row.get(0)?,
                    source_kind: row.get(1)?,
                    path: path(row, 2)?,
                })
            };
            db.prepare_cached(sql)?.query_map([], each)?.collect()
        })
    }

    /// Records the location of a database.
    pub fn keep_database(&self, database: &RestoredDatabase) -> Result<(), Error> {
        self.write(|tx| {
            tx.execute(
                "INSERT OR REPLACE INTO restoreddatabase VALUES (?1, ?2, ?3)",
                params![database.name, database.source_kind, text(&database.path)],
            )
        })?;
        Ok(())
    }

    /// Removes the location of a database, by its exact name.
    pub fn forget_database(&self, name: &str) -> Result<(), Error> {
        self.write(|tx| tx.execute("DELETE FROM restoreddatabase WHERE name = ?1", [name]))?;
        Ok(())
    }

    /// Restores that wait for more, by database name.
    pub fn sequences(&self) -> Result<Vec<RestoreSequence>, Error> {
        self.read(|db| {
            let tx = db.unchecked_transaction()?;
            let sql = "SELECT name, target, is_ready, log_system, timeline, consistent_lsn, next_lsn, reached_us, \
                       stop_at_us, log_count FROM restoresequence ORDER BY name";
            let mut all: Vec<RestoreSequence> = tx
                .prepare_cached(sql)?
                .query_map([], sequence)?
                .collect::<Result<_, _>>()?;
            for sequence in &mut all {
                let sql = "SELECT backup_set_uuid FROM restoresequenceset WHERE name = ?1 ORDER BY step";
                let each = |row: &Row| uuid(&row.get::<_, String>(0)?, 0);
                sequence.sets = tx
                    .prepare_cached(sql)?
                    .query_map([&sequence.database], each)?
                    .collect::<Result<_, _>>()?;
                let sql =
                    "SELECT physical_name FROM restoresequencedevice WHERE name = ?1 ORDER BY ordinal";
                sequence.devices = tx
                    .prepare_cached(sql)?
                    .query_map([&sequence.database], |row| path(row, 0))?
                    .collect::<Result<_, _>>()?;
            }
            Ok(all)
        })
    }

    /// Records the progress of a restore, replacing the record of the same database.
    pub fn keep_sequence(&self, sequence: &RestoreSequence) -> Result<(), Error> {
        let lsn = |n: u64| n as i64;
        self.write(|tx| {
            tx.execute(
                "DELETE FROM restoresequence WHERE name = ?1",
                [&sequence.database],
            )?;
            tx.execute(
                "INSERT INTO restoresequence VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                params![
                    sequence.database,
                    text(&sequence.target),
                    sequence.is_ready,
                    sequence.system.to_string(),
                    sequence.timeline,
                    lsn(sequence.consistent_lsn),
                    lsn(sequence.next_lsn),
                    sequence.reached_us,
                    sequence.stop_at_us,
                    sequence.log_count,
                ],
            )?;
            for (i, set) in sequence.sets.iter().enumerate() {
                tx.execute(
                    "INSERT INTO restoresequenceset VALUES (?1, ?2, ?3)",
                    params![sequence.database, i as i64, set.to_string()],
                )?;
            }
            for (i, device) in sequence.devices.iter().enumerate() {
                tx.execute(
                    "INSERT INTO restoresequencedevice VALUES (?1, ?2, ?3)",
                    params![sequence.database, i as i64, text(device)],
                )?;
            }
            Ok(())
        })
    }

    /// Records that the restore of this database has ended. `restored`: the database's location from now on.
    pub fn end_sequence(
        &self,
        database: &str,
        restored: Option<&RestoredDatabase>,
    ) -> Result<(), Error> {
        self.write(|tx| {
            tx.execute("DELETE FROM restoresequence WHERE name = ?1", [database])?;
            if let Some(restored) = restored {
                tx.execute(
                    "INSERT OR REPLACE INTO restoreddatabase VALUES (?1, ?2, ?3)",
                    params![restored.name, restored.source_kind, text(&restored.path)],
                )?;
            }
            Ok(())
        })
    }
}

fn sequence(row: &Row) -> rusqlite::Result<RestoreSequence> {
    // LSNs use all 64 bits; SQLite's integers are signed.
    let lsn = |column| Ok::<_, rusqlite::Error>(row.get::<_, i64>(column)? as u64);
    let system: String = row.get(3)?;
    Ok(RestoreSequence {
        database: row.get(0)?,
        target: path(row, 1)?,
        is_ready: row.get(2)?,
        system: system.parse().map_err(|e| odd(3, e))?,
        timeline: row.get(4)?,
        consistent_lsn: lsn(5)?,
        next_lsn: lsn(6)?,
        reached_us: row.get(7)?,
        stop_at_us: row.get(8)?,
        log_count: row.get(9)?,
        sets: Vec::new(),
        devices: Vec::new(),
    })
}

fn text(path: &std::path::Path) -> String {
    path.display().to_string()
}

fn path(row: &Row, column: usize) -> rusqlite::Result<PathBuf> {
    Ok(row.get::<_, String>(column)?.into())
}

fn uuid(text: &str, column: usize) -> rusqlite::Result<Uuid> {
    Uuid::try_parse(text).map_err(|e| odd(column, e))
}

fn odd(column: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into())
}
