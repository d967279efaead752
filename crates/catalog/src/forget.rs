//! Taking rows out of the history, as msdb's procedures do it: of sets that ended long ago, or of one database.
//!
//! A set goes with its files, its engines and the restores that were made from it; media go with their last set. What
//! the next differential or log backup of a cluster builds upon is known from the history alone, so age does not take
//! it: the last full and the last log set of each database that others may build upon. Media are not touched, and
//! [`Catalog::rebuild`] learns from them again.

use rusqlite::{Transaction, params};

use crate::log_chain::SOUND;
use crate::{Catalog, Error};

/// What is to be taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forget<'a> {
    /// Sets that ended before this moment: local time of the machine that made them, as `backup_finish_date` has it.
    EndedBefore(&'a str),
    /// All sets of the database of this name; of those whose names differ in case alone if none has exactly this.
    Database(&'a str),
}

/// What was taken out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forgotten {
    pub sets: u64,
    pub restores: u64,
    /// Sets that are old enough and stay, because later backups build upon them.
    pub kept: u64,
}

/// Where the sets to be taken out are listed meanwhile.
const LIST: &str = "
    CREATE TEMP TABLE IF NOT EXISTS forgotten (
        backup_set_id INTEGER PRIMARY KEY,
        media_set_id int NOT NULL
    );
    DELETE FROM temp.forgotten;";

const OLD: &str = "INSERT INTO temp.forgotten SELECT backup_set_id, media_set_id FROM backupset WHERE backup_finish_date < ?1";

const OF_DATABASE: &str = "
    INSERT INTO temp.forgotten SELECT backup_set_id, media_set_id FROM backupset
    WHERE database_name = ?1 OR database_name = ?1 COLLATE NOCASE
        AND NOT EXISTS (SELECT 1 FROM backupset WHERE database_name = ?1)";

/// In this order nothing ever refers to a row that is not there.
const TAKE_OUT: [&str; 5] = [
    "DELETE FROM restorefile WHERE restore_history_id IN
        (SELECT restore_history_id FROM restorehistory WHERE backup_set_id IN
            (SELECT backup_set_id FROM temp.forgotten))",
    "DELETE FROM backupfile WHERE backup_set_id IN (SELECT backup_set_id FROM temp.forgotten)",
    "DELETE FROM backupengine WHERE backup_set_id IN (SELECT backup_set_id FROM temp.forgotten)",
    "DELETE FROM backupmediafamily WHERE media_set_id IN (SELECT media_set_id FROM temp.forgotten)
        AND media_set_id NOT IN (SELECT media_set_id FROM backupset)",
    "DELETE FROM backupmediaset WHERE media_set_id IN (SELECT media_set_id FROM temp.forgotten)
        AND media_set_id NOT IN (SELECT media_set_id FROM backupset)",
];

impl Catalog {
    /// Takes sets out of the history, with all that is about them.
    pub fn forget(&self, what: Forget<'_>) -> Result<Forgotten, Error> {
        self.write(|tx| {
            tx.execute_batch(LIST)?;
            let kept = match what {
                Forget::EndedBefore(moment) => {
                    tx.execute(OLD, params![moment])?;
                    keep_bases(tx)?
                }
                Forget::Database(name) => {
                    tx.execute(OF_DATABASE, params![name])?;
                    0
                }
            };
            let [restore_files, files, engines, families, media] = TAKE_OUT;
            for sql in [restore_files, files, engines] {
                tx.execute(sql, [])?;
            }
            let gone = "IN (SELECT backup_set_id FROM temp.forgotten)";
            let delete = |table| format!("DELETE FROM {table} WHERE backup_set_id {gone}");
            let restores = tx.execute(&delete("restorehistory"), [])?;
            let sets = tx.execute(&delete("backupset"), [])?;
            for sql in [families, media] {
                tx.execute(sql, [])?;
            }
            tx.execute_batch("DELETE FROM temp.forgotten")?;
            Ok(Forgotten {
                sets: sets as u64,
                restores: restores as u64,
                kept,
            })
        })
    }
}

/// Takes off the list what later backups build upon; says how many sets that were.
fn keep_bases(tx: &Transaction) -> rusqlite::Result<u64> {
    let newest = format!(
        "DELETE FROM temp.forgotten WHERE backup_set_id IN (
            SELECT backup_set_id FROM (
                SELECT backup_set_id, row_number() OVER (
                    PARTITION BY database_name, type ORDER BY longshore_finish_us DESC, backup_set_id DESC) AS age
                FROM backupset WHERE type IN ('D', 'L') AND {SOUND})
            WHERE age = 1)"
    );
    Ok(tx.execute(&newest, [])? as u64)
}
