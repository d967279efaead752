//! Procedures and tables that outlive the session, and the texts that they are kept as.
//!
//! Invariants
//! - A row is read as it was written, for each type that a column can have.
//! - What another version's language says, or a damaged file, is a table without a shape, or NULL: never a panic.
//!
//! Leaves to others: keeping them (`stored.rs`).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use longshore_catalog::{CatalogObject, RowChanges, StoredRows};
use serde_json::Value as Json;

use crate::convert::{convert, convert_styled};
use crate::syntax::{IndexSpec, Statement, TableSpec, parse};
use crate::tables::{TableRow, TableRows, TableShape};
use crate::value::{Column, Type, Value};

/// The most procedures and tables of all databases.
pub(crate) const OBJECTS_MAX: usize = 1000;
/// The longest definition, in bytes.
pub(crate) const DEFINITION_MAX: usize = 2 << 20;
/// The most bytes of all definitions and rows.
pub(crate) const OBJECTS_BYTES_MAX: i64 = 64 << 20;

/// `sys.objects` types.
pub(crate) const PROCEDURE: &str = "P";
pub(crate) const TABLE: &str = "U";
pub(crate) const VIEW: &str = "V";
/// Functions: of one value, of a query, of rows that statements make.
pub(crate) const FUNCTIONS: [&str; 3] = ["FN", "IF", "TF"];

/// The number of the first object where there is no catalog, as in a catalog.
pub(super) const FIRST_ID: i64 = 1_000_001;

/// The database whose objects last as long as the program: its tables are those whose names begin with `##`.
pub(crate) const VOLATILE: &str = "tempdb";
/// The number of the first object there, far above those of a catalog.
pub(super) const VOLATILE_FIRST: i64 = 1_900_000_001;

/// The name of a procedure or function as messages and ERROR_PROCEDURE have it: with its schema, but for those of a session.
pub(crate) fn shown_name(object: &CatalogObject) -> Arc<str> {
    match object.name.starts_with('#') {
        true => object.name.as_str().into(),
        false => format!("dbo.{}", object.name).into(),
    }
}

pub(super) fn is_volatile(object: &CatalogObject) -> bool {
    object.database.eq_ignore_ascii_case(VOLATILE)
}

/// A name that means a table of `tempdb`, whichever database is in use.
pub(crate) fn is_shared(name: &str) -> bool {
    name.starts_with("##")
}

/// A procedure, a function, a view or a table.
#[derive(Debug, Clone)]
pub(crate) struct StoredObject {
    pub object: CatalogObject,
    /// A table's columns and constraints.
    pub table: Option<Arc<TableShape>>,
}

impl StoredObject {
    pub fn of(object: CatalogObject) -> StoredObject {
        let table = match object.kind.as_str() {
            TABLE => shape_of(&object).map(Arc::new),
            _ => None,
        };
        StoredObject { object, table }
    }

    pub fn is(&self, database: &str, name: &str) -> bool {
        let same = |a: &str, b: &str| {
            a.trim_end_matches(' ')
                .eq_ignore_ascii_case(b.trim_end_matches(' '))
        };
        same(&self.object.database, database) && same(&self.object.name, name)
    }

    /// The columns of a table as queries see them.
    pub fn columns(&self) -> Vec<Column> {
        self.table
            .as_ref()
            .map_or_else(Vec::new, |t| t.result_columns())
    }
}

/// The statements that create a table and its indexes.
pub(crate) fn table_text(name: &str, spec: &TableSpec, indexes: &[IndexSpec]) -> String {
    let create = Statement::CreateTable {
        name: vec![name.to_owned()],
        table: spec.clone(),
    };
    let indexes = indexes
        .iter()
        .map(|i| Statement::CreateIndex(Box::new(i.clone())));
    let all: Vec<_> = std::iter::once(create)
        .chain(indexes)
        .map(|s| s.to_string())
        .collect();
    all.join(";\n")
}

/// The table that a definition makes; `None`: another version's language.
fn shape_of(object: &CatalogObject) -> Option<TableShape> {
    let batch = parse(&object.definition).ok()?;
    let mut indexes = Vec::new();
    let mut spec = None;
    for located in batch.statements {
        match located.statement {
            Statement::CreateTable { table, .. } => spec = Some(table),
            Statement::CreateIndex(index) => indexes.push(*index),
            _ => return None,
        }
    }
    TableShape::of(spec?, indexes, &object.name).ok()
}

/// A row as it is kept: whole numbers, texts and null in a JSON array; everything else as the text of its type.
pub(crate) fn encoded(row: &TableRow) -> String {
    let value = |value: &Value| match value {
        Value::Null => Json::Null,
        Value::Int(n) => Json::from(*n),
        other => Json::from(other.to_string()),
    };
    Json::Array(row.iter().map(value).collect()).to_string()
}

/// A number for a row, which another row hardly has.
pub(crate) fn row_digest(shape: &TableShape, row: &TableRow) -> u64 {
    digest(shape, &encoded(row))
}

/// The same for a row as it is kept.
pub(crate) fn digest(shape: &TableShape, text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    // As it will be read: that may be written in another way.
    encoded(&decoded(shape, text)).hash(&mut hasher);
    hasher.finish()
}

/// The row that a text keeps; a column that it lacks is NULL, and so is a value that is none of the column's type.
pub(super) fn decoded(shape: &TableShape, text: &str) -> TableRow {
    let values = match serde_json::from_str(text) {
        Ok(Json::Array(values)) => values,
        _ => Vec::new(),
    };
    let mut values = values.into_iter();
    let columns = shape.columns.iter();
    columns
        .map(|column| {
            let value = match values.next() {
                Some(Json::Number(n)) => n.as_i64().map_or(Value::Null, Value::Int),
                Some(Json::String(text)) => Value::Text(text),
                _ => return Value::Null,
            };
            let typed = match (&value, column.kind) {
                (Value::Text(_), Type::Binary(_) | Type::VarBinary(_)) => {
                    let binary =
                        convert_styled(&value, Type::VarChar(None), Type::VarBinary(None), 1);
                    binary.and_then(|bytes| convert(&bytes, column.kind))
                }
                (Value::Text(_), kind) if kind.is_text() => Ok(value),
                (_, Type::SqlVariant) => Ok(value),
                (_, kind) => convert(&value, kind),
            };
            typed.unwrap_or(Value::Null)
        })
        .collect()
}

/// The rows of a table as they were read.
pub(crate) struct LoadedRows {
    pub version: i64,
    pub rows: TableRows,
}

/// Objects where there is no catalog.
#[derive(Default)]
pub(super) struct InMemory {
    pub rows: BTreeMap<i64, StoredRows>,
    pub next: i64,
}

impl InMemory {
    pub fn change(&mut self, id: i64, changes: &RowChanges) -> bool {
        let Some(stored) = self.rows.get_mut(&id) else {
            return false;
        };
        if changes
            .version
            .is_some_and(|version| version != stored.version)
        {
            return false;
        }
        stored.version += 1;
        stored.last_identity = changes.last_identity.or(stored.last_identity);
        stored.last_row = stored.last_row.max(changes.last_row);
        let mut rows: BTreeMap<i64, String> =
            std::mem::take(&mut stored.rows).into_iter().collect();
        for row in &changes.removed {
            rows.remove(row);
        }
        rows.extend(changes.put.iter().cloned());
        stored.rows = rows.into_iter().collect();
        true
    }

    pub fn bytes(&self) -> i64 {
        let rows = self.rows.values().flat_map(|stored| &stored.rows);
        rows.map(|(_, text)| text.len() as i64).sum()
    }
}
