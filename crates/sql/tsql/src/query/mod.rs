//! Queries and expressions: T-SQL's SELECT over the server's views, by an embedded SQLite.
//!
//! ```text
//! text ──sqlparser──▶ tree ──translate──▶ SQLite's SQL, values, types ──SQLite──▶ rows of T-SQL's types
//! ```
//!
//! [`schema`] describes the views; those of msdb read the catalog, which is attached read-only, the others are filled
//! when a query names them.
//!
//! Limits of the arithmetic: numbers with a fraction are binary floating point inside and rounded to their type's scale
//! at each step, so about 15 digits are exact. An operation that would lose digits before the point is refused (8115).
//!
//! Invariants
//! - The translation passes on only constructs that it knows and refuses all others, so no text of a query reaches
//!   SQLite unchanged.
//! - Nothing here knows sessions: a session lends the part of it that a query may read ([`QueryContext`]).
//!
//! Leaves to others: keeping SQLite's database and the trees of a batch (the session), and which statements contain
//! queries (`statement`).

mod cell;
mod collated;
mod collation;
mod context;
mod datatypes;
mod digest;
mod direct;
mod formats;
mod function;
mod instants;
mod json;
mod known;
mod like;
mod markup;
mod metadata;
mod moment;
mod number;
mod objects;
mod options;
mod packed;
mod parse;
mod percentile;
mod plan;
mod principals;
mod reader;
mod schema;
mod single;
mod sql;
mod sqlite;
mod system;
#[cfg(test)]
pub(crate) mod tests;
mod texts;
mod translate;
mod variance;
mod view;
mod views;
mod xml;
mod zones;

use std::sync::Arc;

use sqlparser::ast::{Query, SetExpr, TableFactor};

use crate::flow::Variable;
use crate::message::{self, Message};
use crate::syntax::{Fragment, Operand};
use crate::value::{Type, Value};

pub(crate) use cell::{stored, typed_value};
pub(crate) use collation::SERVER as SERVER_COLLATION;
pub(crate) use context::{BatchPlace, Compiling, QueryContext};
pub(crate) use known::{text_kind, value_of};
pub(crate) use objects::facts as type_facts;
pub(crate) use packed::rows as packed_rows;
pub(crate) use plan::{FunctionCall, FunctionCode, MadeTable, QueryPlan};
pub(crate) use reader::{QuerySource, Reader};
pub(crate) use schema::database_names;
pub(crate) use sqlite::{Sqlite, SqliteCache};
pub(crate) use system::{database_id as database_number, database_of};
pub(crate) use texts::parts as name_parts;
pub(crate) use translate::{
    NESTING_MAX, ROW_NUMBER, check_order, is_of_transaction, lock_name, lock_principal, lock_word,
    parts,
};
pub use view::View;
pub(crate) use view::{declared_columns, filled};
pub use views::views;

/// Finds the meaning of a query. Errors: what cannot be read or is not known here.
pub(crate) fn prepare(context: &QueryContext, query: &Fragment) -> Result<QueryPlan, Message> {
    let parsed = context.reader.by_text(QuerySource::Query(query))?;
    translate::query(context, &parsed, &[])
}

/// The tree of a query. Errors: what cannot be read.
pub(crate) fn read(context: &QueryContext, query: &Fragment) -> Result<Arc<Query>, Message> {
    context.reader.by_text(QuerySource::Query(query))
}

/// The name of the first table of FROM, as columns of it can name it.
pub(crate) fn first_table(query: &Query) -> Option<String> {
    let SetExpr::Select(select) = &*query.body else {
        return None;
    };
    let (name, alias) = match &select.from.first()?.relation {
        TableFactor::Table { name, alias, .. } => (Some(name), alias),
        TableFactor::Derived { alias, .. } => (None, alias),
        _ => return None,
    };
    let last = || name.and_then(|name| parts(name).pop());
    let alias = alias.as_ref().map(|alias| alias.name.value.clone());
    alias.or_else(last)
}

/// The meaning of a tree. Errors: what is not known here.
pub(crate) fn plan_of(context: &QueryContext, query: &Query) -> Result<QueryPlan, Message> {
    translate::query(context, query, &[])
}

/// Errors: what cannot be read.
pub(crate) fn check(reader: &Reader, asked: QuerySource) -> Result<(), Message> {
    if direct::reads(asked) {
        return Ok(());
    }
    match reader.by_form(asked) {
        Some(_) => Ok(()),
        None => reader.by_text(asked).map(drop),
    }
}

/// Looks for mistakes of names and types in an expression or a condition. One that needs no SQLite is not looked at: its
/// names are known, and to translate it takes as long as to run it.
pub(crate) fn look_through(context: &QueryContext, asked: QuerySource) -> Result<(), Message> {
    match direct::reads(asked) {
        true => Ok(()),
        false => plan(context, asked).map(drop),
    }
}

/// The value of an expression, and its type.
pub(crate) fn scalar(context: &QueryContext, expression: &Fragment) -> Result<Variable, Message> {
    let of = |(kind, value)| Variable { kind, value };
    // Most expressions in scripts are one literal or one variable.
    Ok(match crate::syntax::single(&expression.text) {
        Some(Operand::Variable(name)) if name.starts_with("@@") => {
            of(known::global(context, &name)?)
        }
        Some(Operand::Variable(name)) => context.variable(&name)?.clone(),
        Some(Operand::Text(text)) => {
            let is_national = expression.text.starts_with(['N', 'n']);
            of((text_kind(&text, is_national), Value::Text(text)))
        }
        Some(operand) => of((Type::Int, value_of(context, &operand)?)),
        None => return evaluated(context, QuerySource::Expression(expression)),
    })
}

/// Whether a condition is true; unknown counts as false.
pub(crate) fn holds(context: &QueryContext, condition: &Fragment) -> Result<bool, Message> {
    Ok(evaluated(context, QuerySource::Condition(condition))?.value == Value::Int(1))
}

fn evaluated(context: &QueryContext, asked: QuerySource) -> Result<Variable, Message> {
    match direct::value(context, asked) {
        Some(found) => Ok(found),
        None => one(context, asked),
    }
}

/// By its form, where that has a meaning; else messages are to show the text as it was written.
fn plan(context: &QueryContext, asked: QuerySource) -> Result<QueryPlan, Message> {
    if let Some((tree, literals)) = context.reader.by_form(asked)
        && let Ok(plan) = translate::query(context, &tree, &literals)
    {
        return Ok(plan);
    }
    translate::query(context, &*context.reader.by_text(asked)?, &[])
}

fn one(context: &QueryContext, asked: QuerySource) -> Result<Variable, Message> {
    let (plan, sqlite) = context.planned(|| {
        let plan = plan(context, asked)?;
        match plan.columns.len() {
            1 => Ok(plan),
            _ => Err(message::SYNTAX.with(&[&","])),
        }
    })?;
    let mut first = None;
    let mut more = false;
    let ran = sqlite.run(&plan, &mut |mut row| {
        match first {
            None => first = row.pop(),
            Some(_) => more = true,
        }
        Ok(())
    });
    context.give_back(sqlite, &plan);
    match ran {
        Ok(_) if more => Err(message::SUBQUERY_ROWS.plain()),
        Ok(_) => Ok(Variable {
            kind: plan.columns[0].kind,
            value: first.unwrap_or(Value::Null),
        }),
        Err(stop) => Err(stop.message()),
    }
}

/// A text without some of its unquoted words.
pub(crate) fn without_words(text: &str, words: &[&str]) -> Result<String, Message> {
    let tokens = crate::syntax::tokens(text)?;
    let kept: Vec<_> = tokens
        .into_iter()
        .filter(|t| !(t.is_word && words.iter().any(|w| t.raw.eq_ignore_ascii_case(w))))
        .map(|t| t.raw)
        .collect();
    Ok(kept.join(" "))
}
