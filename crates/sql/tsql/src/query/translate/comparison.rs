//! Comparisons: how SQLite spells them, and which queries their sides name columns of.
//!
//! `expression.rs` makes comparisons, and `grouped.rs` takes them apart again: both use these types.

use sqlparser::ast::BinaryOperator;

use super::{Collation, Translator};
use crate::message::Message;
use crate::query::sql::Sql;

/// The scopes of columns that were named: the least and the greatest.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reach(Option<(usize, usize)>);

impl Reach {
    pub fn add(&mut self, scope: usize) {
        *self = self.with(Reach(Some((scope, scope))));
    }

    pub fn with(self, other: Reach) -> Reach {
        Reach(match (self.0, other.0) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        })
    }

    /// Whether no column was named.
    pub fn is_empty(self) -> bool {
        self.0.is_none()
    }

    /// Whether a column is of a query around the one of this scope.
    pub fn is_outside(self, scope: usize) -> bool {
        self.0.is_some_and(|(least, _)| least < scope)
    }

    pub fn is_inside(self, scope: usize) -> bool {
        self.0.is_some_and(|(_, greatest)| greatest >= scope)
    }

    /// The row outside, and nothing else.
    pub fn is_outer(self, scope: usize) -> bool {
        self.is_outside(scope) && !self.is_inside(scope)
    }

    pub fn is_own(self, scope: usize) -> bool {
        self.is_inside(scope) && !self.is_outside(scope)
    }
}

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

impl Translator<'_> {
    /// Does some work and says of which scopes it named columns.
    pub(super) fn watched<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Message>,
    ) -> Result<(T, Reach), Message> {
        let before = std::mem::take(&mut self.reach);
        let done = work(self);
        let found = std::mem::replace(&mut self.reach, before);
        self.reach = self.reach.with(found);
        Ok((done?, found))
    }
}
