//! Queries on the history: past backups and restores as rows.
//!
//! Invariants
//! - Columns have msdb's meaning and units, so that scripts for SQL Server get comparable numbers.
//! - A query changes nothing.
//!
//! Leaves to others: runs of commands (`runs.rs`), writing rows (`write.rs`) and the shape of tables; T-SQL's views read
//! the tables themselves.

use std::ops::ControlFlow;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use uuid::Uuid;

use crate::catalog::PAGE_BYTES;
use crate::moment::{quarters_between, zoned_text};
use crate::msdb::as_word;
use crate::record::{EngineRecord, HistoryQuery};
use crate::{Catalog, Error};

/// A backup as the history shows it: one row of msdb's backupset with the media of the set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryRow {
    pub backup_set_id: i64,
    pub set: Uuid,
    pub media_set: Uuid,
    pub database: String,
    /// msdb's letter, `D`: a whole database. Shown as PostgreSQL's word for it.
    #[serde(rename = "type", serialize_with = "as_word")]
    pub kind: String,
    pub name: Option<String>,
    /// 1-based position of the set on its media.
    pub position: u32,
    /// Local time of the machine that made it, with its offset from UTC; `None` if the media had no date.
    pub start: Option<String>,
    pub finish: Option<String>,
    /// Microseconds since the Unix epoch.
    pub start_us: i64,
    pub finish_us: i64,
    pub expires: Option<String>,
    pub expires_us: Option<i64>,
    pub seconds: f64,
    pub size_bytes: u64,
    pub compressed_bytes: u64,
    /// `None` if the set is not compressed.
    pub algorithm: Option<String>,
    pub level: Option<String>,
    /// Size divided by compressed size; 1 if nothing was stored.
    pub ratio: f64,
    /// SQL Server's MB/s: pages of 8 KiB, uncompressed, in units of 2^20 bytes.
    pub mb_per_s: f64,
    pub file_count: u64,
    pub copy_only: bool,
    /// Whether it was made from files that changed meanwhile.
    pub damaged: bool,
    pub machine: Option<String>,
    pub user: Option<String>,
    pub origin: Option<String>,
    /// One per family, in order, as last recorded.
    pub devices: Vec<String>,
    /// The engines that compressed it; empty if only the media are known.
    pub engines: Vec<EngineRecord>,
    /// The limit that held its run, in one word; `None` if only the media are known.
    pub limit: Option<String>,
}

/// A restore as the history shows it: one row of msdb's restorehistory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RestoreRow {
    pub restore_history_id: i64,
    /// The name of the restored database.
    pub database: String,
    /// msdb's letter, `D`: a whole database, `F`: some of its files. Shown as a word.
    #[serde(rename = "type", serialize_with = "as_word")]
    pub kind: String,
    /// When it ended, in local time with its offset from UTC.
    pub date: Option<String>,
    /// Microseconds since the Unix epoch.
    pub start_us: i64,
    pub finish_us: i64,
    pub seconds: f64,
    pub size_bytes: u64,
    pub mb_per_s: f64,
    pub target: String,
    pub replace: bool,
    pub user: Option<String>,
    /// Paths to which files were restored; empty if there were too many to record.
    pub paths: Vec<String>,
    pub set: Uuid,
    /// The name of the backed-up database.
    pub source_database: String,
    pub position: u32,
    pub devices: Vec<String>,
}

/// A query for backups with this condition.
macro_rules! backups {
    ($which:literal) => {
        concat!(
            "
SELECT backup_set_id, backup_set_uuid, media_uuid, database_name,
    CASE WHEN type = 'I' AND (SELECT b.type FROM backupset b WHERE b.backup_set_uuid = s.differential_base_guid) = 'I'
        THEN 'incr' ELSE type END,
    s.name, position,
    time_zone, longshore_start_us, longshore_finish_us, longshore_expires_us,
    backup_size, compressed_backup_size, compression_algorithm, longshore_level, longshore_file_count,
    is_copy_only, is_damaged, machine_name, user_name, longshore_origin, s.media_set_id, longshore_limit
FROM backupset s JOIN backupmediaset m USING (media_set_id)
WHERE ",
            $which
        )
    };
}

const BACKUPS: Portions = Portions {
    all: backups!(
        "(longshore_finish_us, backup_set_id) < (?1, ?2)
         ORDER BY longshore_finish_us DESC, backup_set_id DESC LIMIT ?3"
    ),
    named: backups!(
        "(longshore_finish_us, backup_set_id) < (?1, ?2) AND database_name = ?4
         ORDER BY longshore_finish_us DESC, backup_set_id DESC LIMIT ?3"
    ),
    without_time: "SELECT longshore_finish_us FROM backupset
        WHERE longshore_finish_us IS NULL OR longshore_finish_us > 9223372036854775807",
};
const BACKUP: &str = backups!("backup_set_id = ?1");
const BACKUP_OF_SET: &str = backups!("backup_set_uuid = ?1");

const FULL_BACKUPS: &str = "
SELECT backup_set_id FROM backupset WHERE database_name = ?1 AND type = 'D' AND NOT is_copy_only
ORDER BY longshore_finish_us DESC, backup_set_id DESC";

/// A query for restores with this condition.
macro_rules! restores {
    ($which:literal) => {
        concat!(
            "
SELECT restore_history_id, destination_database_name, restore_type, CAST(strftime('%s', restore_date) AS int),
    r.longshore_start_us, r.longshore_finish_us, longshore_size, longshore_target, \"replace\",
    r.user_name, backup_set_uuid, database_name, position, media_set_id
FROM restorehistory r JOIN backupset s USING (backup_set_id)
WHERE (r.longshore_finish_us, restore_history_id) < (?1, ?2) ",
            $which,
            " ORDER BY r.longshore_finish_us DESC, restore_history_id DESC LIMIT ?3"
        )
    };
}

const RESTORES: Portions = Portions {
    all: restores!(""),
    named: restores!("AND destination_database_name = ?4"),
    without_time: "SELECT longshore_finish_us FROM restorehistory
        WHERE longshore_finish_us IS NULL OR longshore_finish_us > 9223372036854775807",
};

/// Rows in one portion.
const PORTION_ROWS: i64 = 500;

/// Reads rows newest first, portion by portion: each portion begins after the last row of the previous one.
pub(crate) struct Portions {
    pub(crate) all: &'static str,
    /// The query for one database.
    pub(crate) named: &'static str,
    /// Finds rows that no portion holds because their time is not a number. We write none.
    pub(crate) without_time: &'static str,
}

/// Where a portion begins: after the row with this end time and this number.
pub(crate) type PortionStart = (i64, i64);

impl Catalog {
    /// Backups, newest first.
    pub fn history(&self, query: &HistoryQuery) -> Result<Vec<HistoryRow>, Error> {
        self.gathered(&BACKUPS, query, backup, place_of_backup)
    }

    /// Like [`Catalog::history`], portion by portion, for callers that must not hold all rows. `each` returns whether
    /// it wants more.
    ///
    /// Every portion is a separate query: the catalog is not locked while `each` runs. Rows are complete and come once;
    /// a backup recorded meanwhile may be missing.
    pub fn history_portions(
        &self,
        query: &HistoryQuery,
        each: impl FnMut(Vec<HistoryRow>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.portions(&BACKUPS, query, backup, place_of_backup, each)
    }

    /// The backup of this set.
    pub fn backup_of(&self, set: Uuid) -> Result<Option<HistoryRow>, Error> {
        self.read(|db| {
            let tx = db.unchecked_transaction()?;
            tx.prepare_cached(BACKUP_OF_SET)?
                .query_row([set.to_string()], |row| backup(&tx, row))
                .optional()
        })
    }

    /// With how many copies of each stripe a media set was begun, by the history; 1 for one that it does not have.
    ///
    /// Errors: the history cannot be read.
    pub fn mirror_count(&self, media: Uuid) -> Result<u64, Error> {
        self.read(|db| {
            let sql = "SELECT mirror_count FROM backupmediaset WHERE media_uuid = ?1";
            let found = db
                .prepare_cached(sql)?
                .query_row([media.to_string()], |row| bytes(row, 0))
                .optional()?;
            Ok(found.unwrap_or(1))
        })
    }

    /// The newest full backup of a database that is not copy-only and satisfies `fits`. Older backups are not read.
    pub fn newest_full(
        &self,
        database: &str,
        fits: impl Fn(&HistoryRow) -> bool,
    ) -> Result<Option<HistoryRow>, Error> {
        self.read(|db| {
            let tx = db.unchecked_transaction()?;
            let mut newest_first = tx.prepare_cached(FULL_BACKUPS)?;
            let mut ids = newest_first.query([database])?;
            while let Some(id) = ids.next()? {
                let id: i64 = id.get(0)?;
                let found = tx
                    .prepare_cached(BACKUP)?
                    .query_row([id], |row| backup(&tx, row))?;
                if fits(&found) {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        })
    }

    /// Restores, newest first.
    pub fn restores(&self, query: &HistoryQuery) -> Result<Vec<RestoreRow>, Error> {
        self.gathered(&RESTORES, query, restore, place_of_restore)
    }

    /// See [`Catalog::history_portions`].
    pub fn restore_portions(
        &self,
        query: &HistoryQuery,
        each: impl FnMut(Vec<RestoreRow>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.portions(&RESTORES, query, restore, place_of_restore, each)
    }

    /// Reads everything in one snapshot: a backup recorded meanwhile is seen completely or not at all.
    pub(crate) fn gathered<T>(
        &self,
        portions: &Portions,
        query: &HistoryQuery,
        of: fn(&Connection, &Row) -> rusqlite::Result<T>,
        place: fn(&T) -> PortionStart,
    ) -> Result<Vec<T>, Error> {
        self.read(|db| {
            let tx = db.unchecked_transaction()?;
            let mut all = Vec::new();
            let read = |from, limit| portion(&tx, portions, query, from, limit, of);
            walk(query, place, read, |rows| {
                all.extend(rows);
                ControlFlow::Continue(())
            })?;
            Ok(all)
        })
    }

    pub(crate) fn portions<T>(
        &self,
        portions: &Portions,
        query: &HistoryQuery,
        of: fn(&Connection, &Row) -> rusqlite::Result<T>,
        place: fn(&T) -> PortionStart,
        each: impl FnMut(Vec<T>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let read = |from, limit| {
            let tx = self.db.unchecked_transaction()?;
            portion(&tx, portions, query, from, limit, of)
        };
        self.read(|_| walk(query, place, read, each))
    }
}

/// Before the newest row.
const NEWEST: PortionStart = (i64::MAX, i64::MAX);

/// Passes portion after portion to `each`, as many rows as requested.
fn walk<T>(
    query: &HistoryQuery,
    place: fn(&T) -> PortionStart,
    read: impl Fn(PortionStart, i64) -> rusqlite::Result<Vec<T>>,
    mut each: impl FnMut(Vec<T>) -> ControlFlow<()>,
) -> rusqlite::Result<()> {
    let mut left = query.limit.map_or(i64::MAX, i64::from);
    let mut from = NEWEST;
    while left > 0 {
        let wanted = left.min(PORTION_ROWS);
        let rows = read(from, wanted)?;
        let (count, last) = (rows.len() as i64, rows.last().map(place));
        left -= count;
        if each(rows).is_break() || count < wanted {
            break;
        }
        from = last.unwrap_or(from);
    }
    Ok(())
}

fn portion<T>(
    db: &Connection,
    portions: &Portions,
    query: &HistoryQuery,
    from: PortionStart,
    limit: i64,
    of: fn(&Connection, &Row) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    if from == NEWEST {
        // A time of another type than a number is reported as the error.
        db.prepare_cached(portions.without_time)?
            .query_row([], |row| row.get::<_, i64>(0))
            .optional()?;
    }
    let each = |row: &Row| of(db, row);
    match &query.database {
        None => db
            .prepare_cached(portions.all)?
            .query_map(params![from.0, from.1, limit], each)?
            .collect(),
        Some(name) => db
            .prepare_cached(portions.named)?
            .query_map(params![from.0, from.1, limit, name], each)?
            .collect(),
    }
}

fn place_of_backup(row: &HistoryRow) -> PortionStart {
    (row.finish_us, row.backup_set_id)
}

fn place_of_restore(row: &RestoreRow) -> PortionStart {
    (row.finish_us, row.restore_history_id)
}

fn backup(db: &Connection, row: &Row) -> rusqlite::Result<HistoryRow> {
    let (start_us, finish_us) = (row.get(8)?, row.get(9)?);
    let expires_us: Option<i64> = row.get(10)?;
    let (size_bytes, compressed_bytes) = (bytes(row, 11)?, bytes(row, 12)?);
    let seconds = seconds(start_us, finish_us);
    let zone: Option<i16> = row.get(7)?;
    let text = |us| zoned_text(db, us, zone);
    Ok(HistoryRow {
        backup_set_id: row.get(0)?,
        set: uuid(row, 1)?,
        media_set: uuid(row, 2)?,
        database: row.get(3)?,
        kind: row.get(4)?,
        name: row.get(5)?,
        position: row.get(6)?,
        start: text(start_us)?,
        finish: text(finish_us)?,
        start_us,
        finish_us,
        expires: expires_us.map_or(Ok(None), text)?,
        expires_us,
        seconds,
        size_bytes,
        compressed_bytes,
        algorithm: row.get(13)?,
        level: row.get(14)?,
        ratio: match compressed_bytes {
            0 => 1.0,
            n => size_bytes as f64 / n as f64,
        },
        mb_per_s: mb_per_s(size_bytes, seconds),
        file_count: bytes(row, 15)?,
        copy_only: row.get(16)?,
        damaged: row.get(17)?,
        machine: row.get(18)?,
        user: row.get(19)?,
        origin: row.get(20)?,
        devices: devices(db, row.get(21)?)?,
        engines: engines(db, row.get(0)?)?,
        limit: row.get(22)?,
    })
}

fn restore(db: &Connection, row: &Row) -> rusqlite::Result<RestoreRow> {
    let restore_history_id = row.get(0)?;
    let (start_us, finish_us) = (row.get(4)?, row.get(5)?);
    let size_bytes = bytes(row, 6)?;
    let seconds = seconds(start_us, finish_us);
    let files = "SELECT destination_phys_name FROM restorefile WHERE restore_history_id = ?1
                 ORDER BY file_number, rowid";
    Ok(RestoreRow {
        restore_history_id,
        database: row.get(1)?,
        kind: row.get(2)?,
        date: zoned_text(db, finish_us, quarters_between(row.get(3)?, finish_us))?,
        start_us,
        finish_us,
        seconds,
        size_bytes,
        mb_per_s: mb_per_s(size_bytes, seconds),
        target: row.get(7)?,
        replace: row.get(8)?,
        user: row.get(9)?,
        paths: strings(db, files, restore_history_id)?,
        set: uuid(row, 10)?,
        source_database: row.get(11)?,
        position: row.get(12)?,
        devices: devices(db, row.get(13)?)?,
    })
}

fn engines(db: &Connection, set: i64) -> rusqlite::Result<Vec<EngineRecord>> {
    let sql =
        "SELECT engine_name, is_accelerator, block_count, plain_size, recomputed_count, fault_count
               FROM backupengine WHERE backup_set_id = ?1 ORDER BY is_accelerator, engine_name";
    let engine = |row: &Row| {
        Ok(EngineRecord {
            name: row.get(0)?,
            is_accelerator: row.get(1)?,
            blocks: bytes(row, 2)?,
            plain_bytes: bytes(row, 3)?,
            recomputed: bytes(row, 4)?,
            fault_count: bytes(row, 5)?,
        })
    };
    db.prepare_cached(sql)?.query_map([set], engine)?.collect()
}

fn devices(db: &Connection, media: i64) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT physical_device_name FROM backupmediafamily WHERE media_set_id = ?1
               AND mirror = 0 ORDER BY family_sequence_number";
    strings(db, sql, media)
}

fn strings(db: &Connection, sql: &str, id: i64) -> rusqlite::Result<Vec<String>> {
    db.prepare_cached(sql)?
        .query_map([id], |row| row.get(0))?
        .collect()
}

pub(crate) fn uuid(row: &Row, column: usize) -> rusqlite::Result<Uuid> {
    let text: String = row.get(column)?;
    Uuid::try_parse(&text).map_err(|e| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, e.into())
    })
}

/// Never negative in rows that we write.
pub(crate) fn bytes(row: &Row, column: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(0))
}

pub(crate) fn seconds(start_us: i64, finish_us: i64) -> f64 {
    finish_us.saturating_sub(start_us).max(0) as f64 / 1e6
}

/// The calculation of message 3014; a run too short to be timed counts as a millisecond.
fn mb_per_s(plain_bytes: u64, seconds: f64) -> f64 {
    let pages = plain_bytes.div_ceil(PAGE_BYTES) as f64;
    pages * PAGE_BYTES as f64 / f64::from(1 << 20) / seconds.max(0.001)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_the_published_example_of_message_3014() {
        let rate = mb_per_s(2_136_466 * PAGE_BYTES, 39.266);
        // The message truncates to three decimals: 425.078.
        assert_eq!((rate * 1000.0).floor(), 425_078.0);
        // A partial page counts as a page.
        assert_eq!(mb_per_s(1, 1.0), mb_per_s(PAGE_BYTES, 1.0));
    }
}
