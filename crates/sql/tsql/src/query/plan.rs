//! A query as the translation leaves it and SQLite runs it.

use super::schema::View;
use crate::tables::{TableId, TableRow};
use crate::value::{Column, Value};

/// A query that is ready to run.
#[derive(Debug, Default)]
pub(crate) struct QueryPlan {
    pub sql: String,
    pub values: Vec<Value>,
    pub columns: Vec<Column>,
    /// Variables to set, in the columns' order; if empty, the rows go to the client.
    pub assigns: Vec<String>,
    /// The variables of these that are set row by row, because the query also reads them; in lower case, each once.
    pub steps: Vec<String>,
    /// The views that it reads.
    pub views: Vec<&'static View>,
    /// The tables that it reads.
    pub tables: Vec<UsedTable>,
}

impl QueryPlan {
    /// Whether it reads nothing.
    pub fn is_alone(&self) -> bool {
        self.views.is_empty() && self.tables.is_empty()
    }
}

/// A table that a query reads, which SQLite has under the name [`UsedTable::name`].
#[derive(Debug)]
pub(crate) struct UsedTable {
    pub number: usize,
    /// How many columns it has. One more has the rows' numbers.
    pub columns: usize,
    pub rows: UsedRows,
}

#[derive(Debug)]
pub(crate) enum UsedRows {
    /// Read when the query runs.
    Table(TableId),
    /// Computed when the query was translated.
    Made(Vec<TableRow>),
}

impl UsedTable {
    pub fn name(&self) -> String {
        format!("u{}", self.number)
    }
}

/// A table that a statement gives to a query of its own.
#[derive(Debug)]
pub(crate) struct MadeTable {
    pub name: &'static str,
    pub columns: Vec<Column>,
    /// With their numbers.
    pub rows: Vec<(i64, TableRow)>,
}
