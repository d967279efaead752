//! Expressions that need no SQLite: read, translated and evaluated here.
//!
//! ```text
//! text ──read──▶ tree ──translate──▶ tree of SQL, values, type ──evaluate──▶ value
//! ```
//!
//! The translation is that of queries, so there is one set of T-SQL's rules. An expression that is unusual, or fails,
//! is not evaluated here; SQLite evaluates it and has the last word about its error.

mod evaluate;
#[cfg(test)]
mod lies;
mod node;
mod read;

use super::cell::typed_value;
use super::context::QueryContext;
use super::reader::QuerySource;
use super::translate;
use crate::flow::Variable;
use crate::value::{Type, Value};

/// Whether [`value`] can read it.
pub(super) fn reads(asked: QuerySource) -> bool {
    text(asked).is_some_and(read::is_readable)
}

fn text(asked: QuerySource<'_>) -> Option<&str> {
    match asked {
        QuerySource::Query(_) => None,
        QuerySource::Expression(text) | QuerySource::Condition(text) => Some(&text.text),
    }
}

/// The value of an expression, and of a condition 1 or 0. `None`: SQLite has to say.
pub(super) fn value(context: &QueryContext, asked: QuerySource) -> Option<Variable> {
    let expr = read::read(text(asked)?)?;
    let is_condition = matches!(asked, QuerySource::Condition(_));
    let plan = translate::scalar(context, &expr, is_condition).ok()?;
    let found = evaluate::evaluated(&plan.sql, plan.values, context.cancel)?;
    if context.is_cancelled() {
        return None;
    }
    Some(match is_condition {
        true => Variable {
            kind: Type::Int,
            value: Value::bit(evaluate::is_true(&found)? == Some(true)),
        },
        false => Variable {
            kind: plan.kind,
            value: typed_value(found, plan.kind).ok()?,
        },
    })
}

#[cfg(test)]
pub(super) use lies::{HARMLESS, LIES};
#[cfg(test)]
pub(super) use read::{FUNCTIONS, OF_PARTS, read};
