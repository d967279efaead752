//! SELECT: its rows go to the client, or into variables (`SELECT @a = …`).
//!
//! Leaves to others: the query's meaning and its rows (`query`).

use crate::convert::convert_from;
use crate::flow::{Flow, Out};
use crate::query::{self, QueryPlan, Sqlite};
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::Fragment;

pub(crate) fn select(session: &mut Session, query: &Fragment, out: &mut Out) -> Flow {
    let plan = query::prepare(&session.query_context(), query)?;
    let database = session.database.clone();
    // Before the rows of views are made: one of them shows this activity.
    session.enter("SELECT", &database);
    if !plan.views.is_empty() {
        session.begin_implicitly();
    }
    let sqlite = session.query_context().sqlite(&plan.views)?;
    let done = run(session, &sqlite, &plan, out);
    session.query_context().give_back(sqlite, &plan.views);
    done
}

fn run(session: &mut Session, sqlite: &Sqlite, plan: &QueryPlan, out: &mut Out) -> Flow {
    if plan.assigns.is_empty() {
        out.sink.columns(&plan.columns)?;
        let rows = sqlite.run(plan, &mut |row| Ok(out.sink.row(&row)?))?;
        session.row_count = rows;
        session.leave();
        return Ok(out.done(Command::Select, Some(rows))?);
    }
    if !plan.steps.is_empty() {
        return set_stepwise(session, sqlite, plan);
    }
    let mut last = None;
    let rows = sqlite.run(plan, &mut |row| {
        last = Some(row);
        Ok(())
    })?;
    session.row_count = rows;
    session.leave();
    // Without a row the variables stay unchanged.
    let values = plan.columns.iter().zip(last.into_iter().flatten());
    for (name, (column, value)) in plan.assigns.iter().zip(values) {
        let kind = session.variable(name)?.kind;
        session.set_variable(name, convert_from(&value, column.kind, kind)?)?;
    }
    Ok(())
}

/// Each row sets the variables, and the next one reads them. After an error they have the values of the rows before it.
fn set_stepwise(session: &mut Session, sqlite: &Sqlite, plan: &QueryPlan) -> Flow {
    let mut before = Vec::new();
    for name in &plan.steps {
        before.push(session.variable(name)?.clone());
    }
    let (rows, after) = sqlite.run_stepwise(plan, before);
    session.leave();
    for (name, variable) in plan.steps.iter().zip(after) {
        session.set_variable(name, variable.value)?;
    }
    session.row_count = rows?;
    Ok(())
}
