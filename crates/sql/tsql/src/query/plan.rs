//! A query as the translation leaves it and SQLite runs it.

use super::schema::View;
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
}
