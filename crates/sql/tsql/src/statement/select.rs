//! SELECT: its rows go to the client, into variables (`SELECT @a = …`), or into a new table (`SELECT … INTO`).
//!
//! Invariants
//! - A SELECT … INTO makes its table only where its query has a meaning, and each column a name (1038).
//!
//! Leaves to others: the query's meaning and its rows (`query`).

use sqlparser::ast::{Expr, FunctionArguments, Query, SelectItem, SetExpr};

use super::{change, table};
use crate::flow::{Flow, Out, Stop};
use crate::message::{self, Message};
use crate::query::{self, QueryPlan, Sqlite};
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{ColumnSpec, Fragment, TableSpec, TypeName};
use crate::value::Type;

pub(crate) fn select(session: &mut Session, query: &Fragment, out: &mut Out) -> Flow {
    let tree = query::read(&session.query_context(), query)?;
    if let Some((table, tree)) = into(&tree)? {
        if session.row_limit > 0 {
            let what = "SELECT INTO under SET ROWCOUNT";
            return Err(message::NOT_HERE.with(&[&what]).into());
        }
        return change::begun_again(session, out, |session, out| {
            select_into(session, &table, &tree, out)
        });
    }
    let plan = query::plan_of(&session.query_context(), &tree)?;
    let database = session.database.clone();
    // Before the rows of views are made: one of them shows this activity.
    session.enter("SELECT", &database);
    if !plan.is_alone() {
        session.begin_implicitly();
    }
    let mut known = Some(plan);
    let (plan, sqlite) = session.query_context().planned(|| match known.take() {
        Some(plan) => Ok(plan),
        None => query::plan_of(&session.query_context(), &tree),
    })?;
    let done = run(session, &sqlite, &plan, out);
    session.query_context().give_back(sqlite, &plan);
    done
}

/// The columns of a query, and no rows (`SET FMTONLY ON`).
pub(crate) fn describe(session: &mut Session, query: &Fragment, out: &mut Out) -> Flow {
    let tree = query::read(&session.query_context(), query)?;
    if into(&tree)?.is_some() {
        return Ok(());
    }
    let plan = query::plan_of(&session.query_context(), &tree)?;
    if plan.assigns.is_empty() {
        out.sink.columns(&plan.columns)?;
        out.done(Command::Select, Some(0))?;
    }
    Ok(())
}

/// A place among columns, some of which may be those of a `*`.
enum Place {
    /// After so many.
    After(usize),
    /// Before so many.
    Before(usize),
    Unknown,
}

/// `IDENTITY(int, 1, 1) AS id` of a SELECT … INTO.
struct Numbering {
    place: Place,
    column: ColumnSpec,
}

/// Whether an item has as many columns as its tables.
fn is_star(item: &SelectItem) -> bool {
    matches!(
        item,
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)
    )
}

/// The column that numbers rows, which is taken out of the select list.
fn numbering(items: &mut Vec<SelectItem>) -> Option<Numbering> {
    let is_it = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias {
            expr: Expr::Function(function),
            ..
        } => function.name.to_string().eq_ignore_ascii_case("IDENTITY"),
        _ => false,
    };
    let place = items.iter().position(is_it)?;
    let SelectItem::ExprWithAlias {
        expr: Expr::Function(function),
        alias,
    } = items.get(place)?
    else {
        return None;
    };
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let words: Vec<String> = list.args.iter().map(ToString::to_string).collect();
    let (kind, rest) = words.split_first()?;
    let numbers: Vec<i64> = rest.iter().map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let identity = match numbers.as_slice() {
        [] => (1, 1),
        [seed, step] => (*seed, *step),
        _ => return None,
    };
    let column = ColumnSpec {
        name: alias.value.clone(),
        kind: TypeName {
            name: kind.to_ascii_lowercase(),
            sizes: Vec::new(),
        },
        nullable: Some(false),
        identity: Some(identity),
        default: None,
        computed: None,
        fills: false,
    };
    items.remove(place);
    let (before, after) = items.split_at(place);
    let place = match (before.iter().any(is_star), after.iter().any(is_star)) {
        (false, _) => Place::After(place),
        (true, false) => Place::Before(after.len()),
        (true, true) => Place::Unknown,
    };
    Some(Numbering { place, column })
}

/// Takes the column that numbers rows out of the select list of a query.
pub(super) fn without_numbering(tree: &mut Query) {
    if let SetExpr::Select(select) = &mut *tree.body {
        numbering(&mut select.projection);
    }
}

/// The table of SELECT … INTO, and the query without it.
pub(super) fn into(tree: &Query) -> Result<Option<(Vec<String>, Query)>, Message> {
    let SetExpr::Select(select) = &*tree.body else {
        return Ok(None);
    };
    let Some(into) = &select.into else {
        return Ok(None);
    };
    let name = match into.targets.as_slice() {
        [Expr::Identifier(name)] => vec![name.value.clone()],
        [Expr::CompoundIdentifier(names)] => names.iter().map(|n| n.value.clone()).collect(),
        _ => return Err(message::SYNTAX.with(&[&"INTO"])),
    };
    let mut plain = tree.clone();
    if let SetExpr::Select(select) = &mut *plain.body {
        select.into = None;
    }
    Ok(Some((name, plain)))
}

/// Makes a table of a query's columns, with its rows. Errors: 1038 for a column without a name, 2705, 2714.
fn select_into(session: &mut Session, name: &[String], tree: &Query, out: &mut Out) -> Flow {
    let mut tree = tree.clone();
    let numbering = match &mut *tree.body {
        SetExpr::Select(select) => numbering(&mut select.projection),
        _ => None,
    };
    let plan = query::plan_of(&session.query_context(), &tree)?;
    if let Some(column) = &plan.foreign {
        let what = format!("SELECT INTO of a column with another collation ({column})");
        return Err(message::NOT_HERE.with(&[&what]).into());
    }
    let mut spec = TableSpec::default();
    for column in &plan.columns {
        if column.name.is_empty() {
            return Err(message::NAME_EMPTY.plain().into());
        }
        let declared = match column.kind {
            // A literal NULL is an int.
            Type::SqlVariant => Type::Int,
            kind => kind,
        };
        let text = declared.to_string();
        let (kind, sizes) = text.split_once('(').unwrap_or((&text, ""));
        let sizes = sizes
            .trim_end_matches(')')
            .split(',')
            .filter(|s| !s.is_empty());
        spec.columns.push(ColumnSpec {
            name: column.name.clone(),
            kind: TypeName {
                name: kind.to_owned(),
                sizes: sizes.map(|s| s.parse().ok()).collect(),
            },
            nullable: Some(true),
            identity: None,
            default: None,
            computed: None,
            fills: false,
        });
    }
    if let Some(numbering) = numbering {
        let count = spec.columns.len();
        let place = match numbering.place {
            Place::After(before) => before.min(count),
            Place::Before(after) => count.saturating_sub(after),
            Place::Unknown => {
                let what = "IDENTITY between two * of a SELECT INTO";
                return Err(message::NOT_HERE.with(&[&what]).into());
            }
        };
        spec.columns.insert(place, numbering.column);
    }
    if session.doomed {
        return Err(message::UNCOMMITTABLE.plain().into());
    }
    let made = table::make(session, name, &spec)?;
    let filled = change::fill(session, (name, made), &plan, out);
    match filled {
        // The statement makes a table of all rows, or none.
        Err(Stop::Failed(_)) => table::unmake(session, made).map_err(Stop::from).and(filled),
        filled => filled,
    }
}

fn run(session: &mut Session, sqlite: &Sqlite, plan: &QueryPlan, out: &mut Out) -> Flow {
    let limit = session.rows_max();
    if plan.assigns.is_empty() {
        out.sink.columns(&plan.columns)?;
        let rows = sqlite.run_first(limit, plan, &mut |row| Ok(out.sink.row(&row)?))?;
        session.row_count = rows;
        session.leave();
        return Ok(out.done(Command::Select, Some(rows))?);
    }
    if !plan.steps.is_empty() {
        if limit < u64::MAX {
            let what = "SELECT that sets variables row by row, under SET ROWCOUNT";
            return Err(message::NOT_HERE.with(&[&what]).into());
        }
        return set_stepwise(session, sqlite, plan);
    }
    let mut last = None;
    let rows = sqlite.run_first(limit, plan, &mut |row| {
        last = Some(row);
        Ok(())
    })?;
    session.row_count = rows;
    session.leave();
    // Without a row the variables stay unchanged.
    let values = plan.columns.iter().zip(last.into_iter().flatten());
    for (name, (column, value)) in plan.assigns.iter().zip(values) {
        let kind = session.variable(name)?.kind;
        let value = session.converted(&value, column.kind, kind)?;
        session.set_variable(name, value)?;
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
