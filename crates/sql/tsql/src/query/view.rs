//! A view that queries can name: its declaration, and the source of its rows.
//!
//! Invariants
//! - A row that is made of facts has a value, or NULL, for each declared column.
//!
//! Leaves to others: which views there are (`schema.rs`, `metadata.rs`), and finding one by its name (`views.rs`).

use crate::convert::type_of;
use crate::message::Message;
use crate::server::Server;
use crate::value::{Column, Type, Value};

/// The values of a row that are known, by their columns' names.
pub(super) type Facts = Vec<(&'static str, Value)>;

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
}

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
        let mut all = Vec::new();
        let mut rest = self.declared;
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

    /// Its rows for a database, if they are computed for one.
    pub(super) fn rows_of(&self, server: &Server, database: &str) -> Option<Made> {
        match self.rows {
            RowOrigin::OfDatabase(rows) => Some(rows(server, database)),
            RowOrigin::Facts(rows) => Some(rows(server, database).map(|all| {
                let row = |facts| self.filled(facts);
                all.into_iter().map(row).collect()
            })),
            RowOrigin::Catalog | RowOrigin::Made(_) => None,
        }
    }

    /// A row that has a value for some of the columns and NULL for all others.
    pub(super) fn filled(&self, values: Facts) -> Vec<Value> {
        let columns = self.columns().into_iter();
        let mut row: Vec<(String, Value)> = columns.map(|c| (c.name, Value::Null)).collect();
        for (name, value) in values {
            let place = row.iter_mut().find(|(column, _)| column == name);
            debug_assert!(place.is_some(), "{self:?} has no column {name}");
            if let Some((_, place)) = place {
                *place = value;
            }
        }
        row.into_iter().map(|(_, value)| value).collect()
    }
}
