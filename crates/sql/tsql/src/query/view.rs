//! A view that queries can name: its declaration, and the source of its rows.
//!
//! Invariants
//! - A row that is made of facts has a value, or NULL, for each declared column.
//!
//! Leaves to others: which views there are (`schema.rs`, `metadata.rs`), and finding one by its name (`views.rs`).

use std::sync::Arc;

use crate::convert::type_of;
use crate::message::Message;
use crate::server::Server;
use crate::server::objects::StoredObject;
use crate::value::{Column, Type, Value};

/// The values of a row that are known, by their columns' names.
pub(crate) type Facts = Vec<(&'static str, Value)>;

/// The source of a view's rows.
#[derive(Clone, Copy)]
pub enum RowOrigin {
    /// The catalog's table of the same name.
    Catalog,
    /// Computed when a query needs them.
    Made(fn(&Server) -> Made),
    /// The same for a database, by its name.
    OfDatabase(fn(&Server, &str) -> Made),
    /// The same by the names of columns; all others are NULL.
    Facts(fn(&Server, &str) -> Result<Vec<Facts>, Message>),
    /// The same, also of the columns of the database's own views.
    OfColumns(fn(&Server, &str, &ViewColumns) -> Result<Vec<Facts>, Message>),
}

/// Views that scripts have created, with the columns of their queries.
pub(super) type ViewColumns = Vec<(Arc<StoredObject>, Vec<Column>)>;

/// Rows that were computed.
pub(super) type Made = Result<Vec<Vec<Value>>, Message>;

/// A view that queries can name.
pub struct View {
    /// The only database that has it; `None`: every database does.
    pub database: Option<&'static str>,
    pub schema: &'static str,
    pub name: &'static str,
    /// `name type, …`, as documentation writes it.
    pub(super) declared: &'static str,
    pub(super) rows: RowOrigin,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

impl View {
    pub fn columns(&self) -> Vec<Column> {
        declared_columns(self.declared)
    }

    /// Its rows for a database, if they are computed for one. `views`: the columns of the database's own views, and of tables that no
    /// script keeps there.
    pub(super) fn rows_of(
        &self,
        server: &Server,
        database: &str,
        views: impl FnOnce() -> Result<ViewColumns, Message>,
    ) -> Option<Made> {
        let facts = match self.rows {
            RowOrigin::OfDatabase(rows) => return Some(rows(server, database)),
            RowOrigin::Facts(rows) => rows(server, database),
            RowOrigin::OfColumns(rows) => views().and_then(|views| rows(server, database, &views)),
            RowOrigin::Catalog | RowOrigin::Made(_) => return None,
        };
        Some(facts.map(|all| {
            let columns = self.columns();
            let row = |facts| filled(&columns, facts);
            all.into_iter().map(row).collect()
        }))
    }
}

/// The columns of `name type, …`, as documentation writes it.
pub(crate) fn declared_columns(declared: &str) -> Vec<Column> {
    let mut all = Vec::new();
    let mut rest = declared;
    while let Some((name, after)) = rest.trim_start().split_once(' ') {
        // A comma inside parentheses belongs to a type.
        let mut open = 0;
        let end = after.find(|c: char| {
            open += i32::from(c == '(') - i32::from(c == ')');
            c == ',' && open == 0
        });
        let (kind, later) = match end {
            Some(end) => (&after[..end], &after[end + 1..]),
            None => (after, ""),
        };
        let (kind_name, sizes) = kind.trim().split_once('(').unwrap_or((kind.trim(), ""));
        let sizes: Vec<Option<u32>> = sizes
            .trim_end_matches(')')
            .split(',')
            .filter(|s| !s.is_empty())
            .map(|s| s.trim().parse().ok())
            .collect();
        let kind = type_of(kind_name, &sizes).unwrap_or(Type::NVarChar(None));
        all.push(Column::new(name, kind));
        rest = later;
    }
    all
}

/// A row that has a value for some of these columns and NULL for all others.
pub(crate) fn filled(columns: &[Column], values: Facts) -> Vec<Value> {
    let mut row = vec![Value::Null; columns.len()];
    for (name, value) in values {
        let place = columns.iter().position(|column| column.name == name);
        debug_assert!(place.is_some(), "there is no column {name}");
        if let Some(place) = place.and_then(|place| row.get_mut(place)) {
            *place = value;
        }
    }
    row
}
