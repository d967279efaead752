//! The runs of a database in this machine's history, for commands that judge by them.
//!
//! Invariants
//! - A history that is missing or cannot be read remembers nothing.
//!
//! Leaves to others: recording runs (`runs.rs`), showing them (`catalog.rs`), and the table (`longshore-catalog`).

use longshore_catalog::{Catalog, HistoryQuery, RunRow};

use crate::context::Context;

/// This machine's history, if there is one that can be read.
pub fn history(context: &Context) -> Option<Catalog> {
    let path = context.catalog.as_deref();
    let path = path.filter(|path| context.storage.stat(path).is_ok())?;
    Catalog::open(path).ok()
}

/// The runs of a database in this machine's history, if there is one.
pub fn runs_of(database: &str, context: &Context) -> Vec<RunRow> {
    let query = HistoryQuery {
        database: Some(database.to_owned()),
        limit: None,
    };
    let runs = history(context).and_then(|catalog| catalog.runs(&query).ok());
    runs.unwrap_or_default()
}
