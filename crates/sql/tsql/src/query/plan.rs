//! A query as the translation leaves it and SQLite runs it.
//!
//! Invariants
//! - A plan names all that its query reads, so a caller knows whether the query stands alone.
//!
//! Leaves to others: making plans (`translate`), and running them (`sqlite.rs`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::schema::View;
use crate::dates::DateOrder;
use crate::flow::Login;
use crate::message::Message;
use crate::server::Server;
use crate::server::objects::StoredObject;
use crate::syntax::{Language, Routine};
use crate::tables::{TableRow, TableShape};
use crate::value::{Column, Value};

/// A query that is ready to run.
#[derive(Debug, Default)]
pub(crate) struct QueryPlan {
    pub sql: String,
    pub values: Vec<Value>,
    pub columns: Vec<Column>,
    /// The first column whose texts have another collation than the server's.
    pub foreign: Option<String>,
    /// Variables to set, in the columns' order; if empty, the rows go to the client.
    pub assigns: Vec<String>,
    /// The variables of these that are set row by row, because the query also reads them; in lower case, each once.
    pub steps: Vec<String>,
    /// The views that it reads.
    pub views: Vec<&'static View>,
    /// The tables that it reads.
    pub tables: Vec<UsedTable>,
    /// The functions of scripts that it calls.
    pub functions: Vec<UsedFunction>,
}

impl QueryPlan {
    /// Whether it reads nothing, and calls nothing that does.
    pub fn is_alone(&self) -> bool {
        self.views.is_empty() && self.tables.is_empty() && self.functions.is_empty()
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
    /// A table of the session, with the shape for which the query was translated. Read when the query runs.
    Own(u32, Arc<TableShape>),
    /// A table that outlives the session; the same.
    Stored(Arc<StoredObject>),
    /// Computed when the query was translated.
    Made(Vec<TableRow>),
}

impl UsedTable {
    pub fn name(&self) -> String {
        format!("u{}", self.number)
    }
}

/// A function of a script that a query calls, under the name [`UsedFunction::name`].
#[derive(Debug)]
pub(crate) struct UsedFunction {
    pub number: usize,
    pub call: FunctionCall,
}

impl UsedFunction {
    pub fn name(&self) -> String {
        format!("uf{}", self.number)
    }
}

/// Runs a function with the values of its parameters, in the form in which SQLite keeps values; gives its value, or its rows
/// packed, in the same form.
pub(crate) type FunctionCode = fn(&FunctionCall, &[Value]) -> Result<Value, Message>;

/// A function, and the state of the session that calls it.
#[derive(Clone)]
pub(crate) struct FunctionCall {
    pub server: Arc<Server>,
    pub login: Login,
    /// `@@SPID`
    pub session: u32,
    /// `@@DATEFIRST`
    pub date_first: i64,
    /// `SET DATEFORMAT`
    pub date_order: DateOrder,
    pub language: Language,
    /// The batches, functions and views around it.
    pub level: usize,
    pub cancel: Arc<AtomicBool>,
    pub code: FunctionCode,
    pub object: Arc<StoredObject>,
    pub routine: Arc<Routine>,
}

impl std::fmt::Debug for FunctionCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at level {}", self.object.object.name, self.level)
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
