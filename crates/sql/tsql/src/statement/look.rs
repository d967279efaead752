//! Looks through queries and changes of rows before their batch runs: the same translation as when they run, and no rows.
//!
//! Invariants
//! - Nothing is read and nothing is changed.
//!
//! Leaves to others: which mistakes count (`compile.rs`), and running (`statement/select.rs`, `statement/change.rs`).

use super::change::{RowQuery, check_output, combined, places, value_of};
use super::output::RowOutput;
use super::select;
use super::target::find;
use crate::message::{self, Message};
use crate::query;
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{Delete, Fragment, Insert, InsertSource, Update};

/// Errors: those of the query's meaning.
pub(crate) fn look_through_query(session: &Session, query: &Fragment) -> Result<(), Message> {
    let context = session.query_context();
    let tree = query::read(&context, query)?;
    let plan = match select::into(&tree)? {
        Some((_, mut tree)) => {
            select::without_numbering(&mut tree);
            query::plan_of(&context, &tree)
        }
        None => query::plan_of(&context, &tree),
    };
    plan.map(drop)
}

/// The values of VALUES.
pub(crate) fn values_of(insert: &Insert) -> impl Iterator<Item = &Fragment> {
    let rows = match &insert.source {
        InsertSource::Values(rows) => rows.as_slice(),
        _ => &[],
    };
    rows.iter().flatten().flatten()
}

/// The query whose rows are inserted.
pub(crate) fn query_of(insert: &Insert) -> Option<&Fragment> {
    match &insert.source {
        InsertSource::Query(query) => Some(query),
        _ => None,
    }
}

/// Errors: columns that the table does not have, a number of values that is not that of the columns, and those of the
/// query.
pub(crate) fn look_through_insert(
    session: &Session,
    insert: &Insert,
    line: u32,
) -> Result<(), Message> {
    let target = find(session, &insert.table)?;
    places(session, &target, &insert.columns)?;
    let output = RowOutput::of(insert.output.as_ref(), Command::Insert, line);
    check_output(session, &target, output)?;
    // Without names it depends on IDENTITY_INSERT, which the batch may set.
    let wanted = Some(insert.columns.len()).filter(|count| *count > 0);
    match &insert.source {
        InsertSource::Values(rows) => rows.iter().try_for_each(|row| match wanted {
            Some(count) if row.len() < count => Err(message::VALUES_FEWER.plain()),
            Some(count) if row.len() > count => Err(message::VALUES_MORE.plain()),
            _ => Ok(()),
        }),
        InsertSource::Query(query) => {
            let query = combined(insert.with.as_ref(), query);
            let plan = query::prepare(&session.query_context(), &query)?;
            match wanted {
                Some(count) if plan.columns.len() < count => Err(message::ITEMS_FEWER.plain()),
                Some(count) if plan.columns.len() > count => Err(message::ITEMS_MORE.plain()),
                _ => Ok(()),
            }
        }
        InsertSource::Execute(_) | InsertSource::DefaultValues => Ok(()),
    }
}

/// Errors: those of its query, and columns that the table does not have.
pub(crate) fn look_through_update(
    session: &Session,
    update: &Update,
    line: u32,
) -> Result<(), Message> {
    let rows = RowQuery {
        with: update.with.as_ref(),
        top: update.top.as_ref(),
        table: &update.table,
        values: update.sets.iter().map(value_of).collect(),
        rest: update.rest.as_ref(),
    };
    let (_, target) = rows.plan(session, line)?;
    for set in &update.sets {
        if !set.column.is_empty() && target.shape.place(&set.column).is_none() {
            return Err(message::COLUMN_UNKNOWN.with(&[&set.column]));
        }
    }
    let output = RowOutput::of(update.output.as_ref(), Command::Update, line);
    check_output(session, &target, output)
}

/// Errors: those of its query.
pub(crate) fn look_through_delete(
    session: &Session,
    delete: &Delete,
    line: u32,
) -> Result<(), Message> {
    let rows = RowQuery {
        with: delete.with.as_ref(),
        top: delete.top.as_ref(),
        table: &delete.table,
        values: Vec::new(),
        rest: delete.rest.as_ref(),
    };
    let (_, target) = rows.plan(session, line)?;
    let output = RowOutput::of(delete.output.as_ref(), Command::Delete, line);
    check_output(session, &target, output)
}
