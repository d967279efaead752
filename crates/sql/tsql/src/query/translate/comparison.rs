//! Comparisons: how SQLite spells them, and which queries their sides name columns of.
//!
//! `expression.rs` makes comparisons, and `grouped.rs` takes them apart again: both use these types.

use sqlparser::ast::BinaryOperator;

use super::reach::Reach;
use crate::query::collation::Collation;
use crate::query::sql::Sql;

/// One of two values that are compared.
#[derive(Debug)]
pub(super) struct Side<T = String> {
    pub sql: T,
    pub reach: Reach,
}

/// The two sides of a comparison; its collation, if they are texts.
pub(super) struct Sides {
    pub left: Side<Sql>,
    pub right: Side<Sql>,
    pub collation: Option<Collation>,
}

/// How SQLite spells a comparison.
pub(super) fn comparison(op: &BinaryOperator) -> Option<&'static str> {
    Some(match op {
        BinaryOperator::Eq => "=",
        BinaryOperator::NotEq => "<>",
        BinaryOperator::Gt => ">",
        BinaryOperator::Lt => "<",
        BinaryOperator::GtEq => ">=",
        BinaryOperator::LtEq => "<=",
        _ => return None,
    })
}

/// The name of a comparison in messages.
pub(super) fn operation(word: &str) -> &'static str {
    match word {
        "=" => "equal to",
        "<>" => "not equal to",
        ">" => "greater than",
        "<" => "less than",
        ">=" => "greater than or equal to",
        _ => "less than or equal to",
    }
}
