//! Removes rows from the history, like msdb's procedures: sets that ended long ago, or those of one database.
//!
//! A long history is removed in many small transactions: backups that end meanwhile find the catalog free, and the
//! caller can stop it.
//!
//! Invariants
//! - Each set is removed completely or not at all, with its files, its engines and the restores made from it; media are
//!   removed with their last set. No row ever refers to a missing row. Runs are removed by their own end and their own
//!   database, with or without the set that they were about.
//! - The next differential or log backup of a cluster finds its base only in the history, so age does not remove the
//!   last full and the last log set of each database that others may build upon.
//! - Media are not changed, and [`Catalog::rebuild`] can relearn them.
//!
//! Leaves to others: the removal of backups themselves (`longshore-repository`), and which moment is old enough (the
//! caller).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction, params};

use crate::log_chain::SOUND;
use crate::{Catalog, Error};

/// The sets to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forget<'a> {
    /// Sets that ended before this time: local time of the machine that made them, as in `backup_finish_date`.
    EndedBefore(&'a str),
    /// All sets of the database with this name; if none has exactly this name, of those whose names differ in case
    /// only.
    Database(&'a str),
}

/// The result of a removal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovalResult {
    pub sets: u64,
    pub restores: u64,
    /// Runs of commands.
    pub runs: u64,
    /// Sets that are old enough but stay, because later backups build upon them.
    pub kept: u64,
    /// Whether it was stopped before all were removed.
    pub interrupted: bool,
}

/// Sets, or runs, that one transaction removes.
const STEP: u32 = 500;
/// SQLite's instructions between two checks for a stop.
const INSTRUCTIONS: i32 = 10_000;
/// The longest pause between two transactions. Waiting connections try at least every 100 ms.
const PAUSE_MAX: Duration = Duration::from_millis(100);

const LISTS: &str = "
    CREATE TEMP TABLE IF NOT EXISTS forgotten (
        backup_set_id INTEGER PRIMARY KEY,
        media_set_id int NOT NULL
    );
    CREATE TEMP TABLE IF NOT EXISTS kept (backup_set_id INTEGER PRIMARY KEY);
    DELETE FROM temp.forgotten;
    DELETE FROM temp.kept;";

const OLD: &str = "INSERT INTO temp.forgotten SELECT backup_set_id, media_set_id FROM backupset
    WHERE backup_finish_date < ?1 AND backup_set_id NOT IN (SELECT backup_set_id FROM temp.kept) LIMIT ?2";

const OF_DATABASE: &str =
    "INSERT INTO temp.forgotten SELECT backup_set_id, media_set_id FROM backupset
    WHERE database_name = ?1 LIMIT ?2";

const OLD_RUNS: &str = "DELETE FROM longshore_run WHERE longshore_run_id IN (
    SELECT longshore_run_id FROM longshore_run WHERE finish_date < ?1 LIMIT ?2)";

const RUNS_OF_DATABASE: &str = "DELETE FROM longshore_run WHERE longshore_run_id IN (
    SELECT longshore_run_id FROM longshore_run WHERE database_name = ?1 LIMIT ?2)";

/// In this order no row ever refers to a missing row.
const TAKE_OUT: [&str; 8] = [
    "DELETE FROM restorefile WHERE restore_history_id IN
        (SELECT restore_history_id FROM restorehistory WHERE backup_set_id IN
            (SELECT backup_set_id FROM temp.forgotten))",
    "DELETE FROM backupfile WHERE backup_set_id IN (SELECT backup_set_id FROM temp.forgotten)",
    "DELETE FROM backupengine WHERE backup_set_id IN (SELECT backup_set_id FROM temp.forgotten)",
    "DELETE FROM longshore_index WHERE backup_set_uuid IN (SELECT backup_set_uuid FROM backupset
        WHERE backup_set_id IN (SELECT backup_set_id FROM temp.forgotten))",
    RESTORES,
    SETS,
    "DELETE FROM backupmediafamily WHERE media_set_id IN (SELECT media_set_id FROM temp.forgotten)
        AND NOT EXISTS (SELECT 1 FROM backupset WHERE backupset.media_set_id = backupmediafamily.media_set_id)",
    "DELETE FROM backupmediaset WHERE media_set_id IN (SELECT media_set_id FROM temp.forgotten)
        AND NOT EXISTS (SELECT 1 FROM backupset WHERE backupset.media_set_id = backupmediaset.media_set_id)",
];
const RESTORES: &str =
    "DELETE FROM restorehistory WHERE backup_set_id IN (SELECT backup_set_id FROM temp.forgotten)";
const SETS: &str =
    "DELETE FROM backupset WHERE backup_set_id IN (SELECT backup_set_id FROM temp.forgotten)";

impl Catalog {
    /// Removes sets and all rows about them from the history. Another thread can set `stop` to end it; rows removed by
    /// then stay removed.
    pub fn forget(
        &mut self,
        what: Forget<'_>,
        stop: &Arc<AtomicBool>,
    ) -> Result<RemovalResult, Error> {
        let asked = stop.clone();
        let handler = move || asked.load(Ordering::Relaxed);
        self.watch(Some(handler))?;
        let mut forgotten = RemovalResult::default();
        let done = self.forget_in_steps(what, stop, &mut forgotten);
        self.watch(None::<fn() -> bool>)?;
        self.read(|db| db.execute_batch(LISTS))?;
        match done {
            // SQLite reports the stop as an error.
            _ if stop.load(Ordering::Relaxed) => forgotten.interrupted = true,
            done => done?,
        }
        Ok(forgotten)
    }

    /// SQLite ends its statement if the callback returns true.
    fn watch<F: FnMut() -> bool + Send + 'static>(&mut self, ends: Option<F>) -> Result<(), Error> {
        let set = self.db.progress_handler(INSTRUCTIONS, ends);
        set.map_err(|e| Error::sql(self.path(), e))
    }

    fn forget_in_steps(
        &self,
        what: Forget<'_>,
        stop: &AtomicBool,
        forgotten: &mut RemovalResult,
    ) -> Result<(), Error> {
        self.read(|db| db.execute_batch(LISTS))?;
        let (sql, of, runs_sql, runs_of) = match what {
            Forget::EndedBefore(moment) => {
                forgotten.kept = self.read(|db| keep_bases(db, moment))?;
                let of = vec![moment.to_owned()];
                (OLD, of.clone(), OLD_RUNS, of)
            }
            Forget::Database(name) => (
                OF_DATABASE,
                self.read(|db| meant(db, "backupset", name))?,
                RUNS_OF_DATABASE,
                self.read(|db| meant(db, "longshore_run", name))?,
            ),
        };
        for value in of {
            in_steps(stop, || {
                let (sets, restores) = self.write(|tx| take_out(tx, sql, &value))?;
                forgotten.sets += sets;
                forgotten.restores += restores;
                Ok(sets)
            })?;
        }
        for value in runs_of {
            in_steps(stop, || {
                let runs = self.write(|tx| {
                    let mut delete = tx.prepare_cached(runs_sql)?;
                    delete.execute(params![value, STEP])
                })?;
                forgotten.runs += runs as u64;
                Ok(runs as u64)
            })?;
        }
        Ok(())
    }
}

/// Removes rows step by step until a step finds none, or `stop` is set.
fn in_steps(stop: &AtomicBool, mut step: impl FnMut() -> Result<u64, Error>) -> Result<(), Error> {
    loop {
        let began = Instant::now();
        if step()? == 0 {
            return Ok(());
        }
        // The catalog is left free for as long as it was held.
        sleep(began.elapsed().min(PAUSE_MAX));
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

/// Removes the next sets and their restores; returns how many.
fn take_out(tx: &Transaction, sql: &str, value: &str) -> rusqlite::Result<(u64, u64)> {
    tx.execute("DELETE FROM temp.forgotten", [])?;
    let (mut sets, mut restores) = (0, 0);
    if tx.prepare_cached(sql)?.execute(params![value, STEP])? == 0 {
        return Ok((sets, restores));
    }
    for sql in TAKE_OUT {
        let count = tx.prepare_cached(sql)?.execute([])? as u64;
        match sql {
            SETS => sets = count,
            RESTORES => restores = count,
            _ => {}
        }
    }
    Ok((sets, restores))
}

/// The databases with this name in a table; if none has exactly this name, those whose names differ in case only.
fn meant(db: &Connection, table: &str, name: &str) -> rusqlite::Result<Vec<String>> {
    let exact = format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE database_name = ?1)");
    if db.query_row(&exact, [name], |row| row.get(0))? {
        return Ok(vec![name.to_owned()]);
    }
    // One index lookup per name, whatever the number of its rows.
    let names = format!(
        "WITH RECURSIVE names(name) AS (
            SELECT min(database_name) FROM {table}
            UNION ALL
            SELECT (SELECT min(database_name) FROM {table} WHERE database_name > names.name) FROM names
            WHERE name IS NOT NULL)
        SELECT name FROM names WHERE name = ?1 COLLATE NOCASE"
    );
    let mut names = db.prepare(&names)?;
    names.query_map([name], |row| row.get(0))?.collect()
}

/// Lists the sets that later backups build upon; returns how many of them are older than `moment`.
fn keep_bases(db: &Connection, moment: &str) -> rusqlite::Result<u64> {
    let newest = format!(
        "INSERT INTO temp.kept SELECT backup_set_id FROM (
            SELECT backup_set_id, row_number() OVER (
                PARTITION BY database_name, type ORDER BY longshore_finish_us DESC, backup_set_id DESC) AS age
            FROM backupset WHERE type IN ('D', 'L') AND {SOUND})
        WHERE age = 1"
    );
    db.execute(&newest, [])?;
    let old = "SELECT count(*) FROM backupset JOIN temp.kept USING (backup_set_id) WHERE backup_finish_date < ?1";
    let old: i64 = db.query_row(old, [moment], |row| row.get(0))?;
    Ok(old.cast_unsigned())
}
