//! Procedures and tables that T-SQL scripts have created, and the rows of the tables.
//!
//! Invariants
//! - A name is there once in its database, whatever its case.
//! - Each change of a table's rows raises its version. A change that was computed from another version is not made, so no
//!   program overwrites what another one has changed meanwhile.
//! - A row is the text that was given for it; its object goes with all its rows.
//!
//! Leaves to others: what a definition and a row mean, and how many there may be (`tsql`).

use rusqlite::{OptionalExtension, Row, Transaction, params};

use crate::{Catalog, Error};

/// A procedure or a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogObject {
    /// Given by the catalog when it is added.
    pub id: i64,
    pub database: String,
    pub name: String,
    /// As in `sys.objects`: `P`, `U`.
    pub kind: String,
    /// Local time: `2026-03-01T22:15:04.120`.
    pub created: String,
    pub changed: String,
    /// The statement that creates it.
    pub definition: String,
    pub uses_ansi_nulls: bool,
    pub uses_quoted_identifier: bool,
}

/// The rows of a table at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredRows {
    pub version: i64,
    /// The last value of the identity column.
    pub last_identity: Option<i64>,
    /// The highest number that a row has had.
    pub last_row: i64,
    /// By their numbers, ascending.
    pub rows: Vec<(i64, String)>,
}

/// A change of a table's rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowChanges {
    /// The version that it was computed from; `None`: any.
    pub version: Option<i64>,
    pub last_identity: Option<i64>,
    pub last_row: i64,
    pub removed: Vec<i64>,
    /// New rows and rows with new values.
    pub put: Vec<(i64, String)>,
}

const COLUMNS: &str = "object_id, database_name, name, type, create_date, modify_date, definition, uses_ansi_nulls, \
                       uses_quoted_identifier";

impl Catalog {
    /// All objects, by number.
    pub fn objects(&self) -> Result<Vec<CatalogObject>, Error> {
        self.read(|db| {
            let sql = format!("SELECT {COLUMNS} FROM longshore_object ORDER BY object_id");
            db.prepare_cached(&sql)?.query_map([], object)?.collect()
        })
    }

    /// Adds an object and returns its number; `None`: its name is taken.
    pub fn add_object(&self, new: &CatalogObject) -> Result<Option<i64>, Error> {
        self.write(|tx| {
            let sql = "INSERT INTO longshore_object (database_name, name, type, create_date, modify_date, definition, \
                       uses_ansi_nulls, uses_quoted_identifier, version, last_row) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1, 0) ON CONFLICT DO NOTHING";
            let values = params![
                new.database,
                new.name,
                new.kind,
                new.created,
                new.changed,
                new.definition,
                new.uses_ansi_nulls,
                new.uses_quoted_identifier
            ];
            let added = tx.execute(sql, values)?;
            Ok((added > 0).then(|| tx.last_insert_rowid()))
        })
    }

    /// Gives an object another definition, and its rows other values; returns whether it was there, at this version if
    /// the rows change.
    pub fn change_object(
        &self,
        object: &CatalogObject,
        rows: Option<&RowChanges>,
    ) -> Result<bool, Error> {
        self.write(|tx| {
            if let Some(rows) = rows
                && !change(tx, object.id, rows)?
            {
                return Ok(false);
            }
            let sql = "UPDATE longshore_object SET modify_date = ?2, definition = ?3, uses_ansi_nulls = ?4, \
                       uses_quoted_identifier = ?5, name = ?6 WHERE object_id = ?1";
            let values = params![
                object.id,
                object.changed,
                object.definition,
                object.uses_ansi_nulls,
                object.uses_quoted_identifier,
                object.name
            ];
            Ok(tx.execute(sql, values)? > 0)
        })
    }

    /// Removes an object and its rows; returns whether it was there.
    pub fn drop_object(&self, id: i64) -> Result<bool, Error> {
        self.write(|tx| {
            tx.execute("DELETE FROM longshore_row WHERE object_id = ?1", [id])?;
            Ok(tx.execute("DELETE FROM longshore_object WHERE object_id = ?1", [id])? > 0)
        })
    }

    /// The rows of a table; `None`: there is no such object.
    pub fn object_rows(&self, id: i64) -> Result<Option<StoredRows>, Error> {
        self.read(|db| {
            let tx = db.unchecked_transaction()?;
            let head = "SELECT version, last_identity, last_row FROM longshore_object WHERE object_id = ?1";
            let each = |row: &Row| {
                Ok(StoredRows {
                    version: row.get(0)?,
                    last_identity: row.get(1)?,
                    last_row: row.get(2)?,
                    rows: Vec::new(),
                })
            };
            let Some(mut stored) = tx.query_row(head, [id], each).optional()? else {
                return Ok(None);
            };
            let sql = "SELECT row_id, row_values FROM longshore_row WHERE object_id = ?1 ORDER BY row_id";
            stored.rows = tx
                .prepare_cached(sql)?
                .query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<_, _>>()?;
            Ok(Some(stored))
        })
    }

    /// Bytes of all definitions and rows together.
    pub fn object_bytes(&self) -> Result<i64, Error> {
        self.read(|db| {
            let sql = "SELECT (SELECT ifnull(sum(length(definition)), 0) FROM longshore_object) + \
                       (SELECT ifnull(sum(length(row_values)), 0) FROM longshore_row)";
            db.query_row(sql, [], |row| row.get(0))
        })
    }

    /// Changes rows of a table; returns whether it was there, at the version that the change was computed from.
    pub fn change_rows(&self, id: i64, changes: &RowChanges) -> Result<bool, Error> {
        self.write(|tx| change(tx, id, changes))
    }
}

fn object(row: &Row) -> rusqlite::Result<CatalogObject> {
    Ok(CatalogObject {
        id: row.get(0)?,
        database: row.get(1)?,
        name: row.get(2)?,
        kind: row.get(3)?,
        created: row.get(4)?,
        changed: row.get(5)?,
        definition: row.get(6)?,
        uses_ansi_nulls: row.get(7)?,
        uses_quoted_identifier: row.get(8)?,
    })
}

fn change(tx: &Transaction, id: i64, changes: &RowChanges) -> rusqlite::Result<bool> {
    let sql = "UPDATE longshore_object SET version = version + 1, last_identity = ifnull(?3, last_identity), \
               last_row = max(last_row, ?4) WHERE object_id = ?1 AND version = ifnull(?2, version)";
    let head = params![id, changes.version, changes.last_identity, changes.last_row];
    if tx.execute(sql, head)? == 0 {
        return Ok(false);
    }
    let mut remove =
        tx.prepare_cached("DELETE FROM longshore_row WHERE object_id = ?1 AND row_id = ?2")?;
    for row in &changes.removed {
        remove.execute([id, *row])?;
    }
    let mut put = tx.prepare_cached("INSERT OR REPLACE INTO longshore_row VALUES (?1, ?2, ?3)")?;
    for (row, values) in &changes.put {
        put.execute(params![id, row, values])?;
    }
    Ok(true)
}
