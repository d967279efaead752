//! The conditions of tables (CHECK): whether they can be asked, and whether rows keep them.
//!
//! Invariants
//! - A condition has no subquery and no variable: it means the same whoever changes a row.
//! - Unknown is not false: such a row keeps its condition.
//!
//! Leaves to others: keys (`tables.rs`) and foreign keys (`statement/foreign.rs`).

use super::target::ChangedTable;
use crate::flow::Stop;
use crate::message::{self, Message};
use crate::query::{self, MadeTable, QueryPlan};
use crate::session::Session;
use crate::syntax::{Fragment, tokens};
use crate::tables::{TableCheck, TableRow, TableShape};
use crate::variables::Variables;

/// Looks whether each condition of a table can be asked, before any row is there. A variable cannot: it would be the one of
/// whoever changes a row later.
///
/// Errors: 137, 207, 1046 and those of the conditions.
pub(super) fn check_shape(session: &Session, shape: &TableShape) -> Result<(), Message> {
    let made = [MadeTable {
        name: NEW_ROWS,
        columns: shape.result_columns(),
        rows: Vec::new(),
    }];
    for check in &shape.checks {
        if tokens(&check.condition.text)?
            .iter()
            .any(|t| t.is_word && t.raw.eq_ignore_ascii_case("SELECT"))
        {
            return Err(message::SUBQUERY_HERE.plain());
        }
        planned(session, &made, check)?;
    }
    Ok(())
}

/// The first condition of a table that names a column: it cannot be asked without it.
pub(super) fn check_of_column<'a>(
    session: &Session,
    shape: &'a TableShape,
    place: usize,
) -> Option<&'a TableCheck> {
    let mut columns = shape.result_columns();
    columns.remove(place);
    let made = [MadeTable {
        name: NEW_ROWS,
        columns,
        rows: Vec::new(),
    }];
    let mut checks = shape.checks.iter();
    checks.find(|check| planned(session, &made, check).is_err_and(|error| error.number == 207))
}

/// The query that finds a row for which a condition is false: unknown is not false.
fn planned(
    session: &Session,
    made: &[MadeTable],
    check: &TableCheck,
) -> Result<QueryPlan, Message> {
    let text = format!(
        "SELECT TOP (1) 1 FROM [{NEW_ROWS}] WHERE NOT ( {} )",
        check.condition
    );
    let variables = Variables::default();
    let mut context = session.query_context();
    context.made = made;
    context.variables = &variables;
    query::prepare(&context, &Fragment::new(text))
}

/// Checks the rows that a statement puts into a table. Errors: 547.
pub(super) fn check_conditions(
    session: &Session,
    target: &ChangedTable,
    rows: &[(i64, TableRow)],
    verb: &str,
) -> Result<(), Message> {
    if target.shape.checks.is_empty() || rows.is_empty() {
        return Ok(());
    }
    let made = [MadeTable {
        name: NEW_ROWS,
        columns: target.shape.result_columns(),
        rows: rows.to_vec(),
    }];
    for check in &target.shape.checks {
        let plan = planned(session, &made, check)?;
        let sqlite = session.query_context().sqlite(&plan)?;
        let refused = sqlite.run(&plan, &mut |_| Ok(())).map_err(Stop::message)?;
        if refused > 0 {
            let place = target.full.split('.').collect::<Vec<_>>();
            let (database, table) = match place.as_slice() {
                [database, schema, table] => (*database, format!("{schema}.{table}")),
                _ => ("tempdb", target.full.clone()),
            };
            let column = check.column.as_ref();
            let column = column.map_or(String::new(), |column| format!(", column '{column}'"));
            let values: [&dyn std::fmt::Display; 6] =
                [&verb, &"CHECK", &check.name, &database, &table, &column];
            return Err(message::KEY_CONFLICT.with(&values));
        }
    }
    Ok(())
}

/// The name of the rows that conditions are checked for. No script has reason to write it.
const NEW_ROWS: &str = "\u{1}rows";
