//! Translates TOP with PERCENT or WITH TIES: the rows are numbered in their order, and the first ones stay.
//!
//! Invariants
//! - WITH TIES needs an order (1062).
//!
//! Leaves to others: the plain TOP, and the order of a query (`translate.rs`).

use sqlparser::ast::{Expr, OrderByExpr, Select, SelectItem, Top, TopQuantity, Value as Literal};

use super::state::{
    SelectPurpose, SelectedColumns, Translator, TypedSql, column_alias, direction, folded,
    not_here, position,
};
use crate::message::{self, Message};
use crate::query::sql::Sql;
use crate::value::{Type, Value};

/// The place that ORDER BY names by its number.
pub(super) fn number(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Value(value) => match &value.value {
            Literal::Number(n, _) => n.parse::<usize>().ok()?.checked_sub(1),
            _ => None,
        },
        _ => None,
    }
}

/// Refuses the place of a column that a select list does not have. Errors: 108.
pub(super) fn check_place(expr: &Expr, columns: usize) -> Result<(), Message> {
    let Expr::Value(value) = expr else {
        return Ok(());
    };
    match &value.value {
        Literal::Number(n, _) if n.bytes().all(|b| b.is_ascii_digit()) => {
            let is_there = n.parse().is_ok_and(|n: usize| (1..=columns).contains(&n));
            match is_there {
                true => Ok(()),
                false => Err(message::ORDER_POSITION.with(&[n])),
            }
        }
        _ => Ok(()),
    }
}

/// Whether ORDER BY means a column of the result by its name.
fn is_alias(select: &Select, expr: &Expr) -> bool {
    let Expr::Identifier(name) = expr else {
        return false;
    };
    let same = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => alias.value.eq_ignore_ascii_case(&name.value),
        _ => false,
    };
    select.projection.iter().any(same)
}

impl Translator<'_> {
    pub(super) fn shared_top(
        &mut self,
        select: &Select,
        top: &Top,
        orders: &[&OrderByExpr],
    ) -> Result<SelectedColumns, Message> {
        if top.with_ties && orders.is_empty() {
            return Err(message::TIES_WITHOUT_ORDER.plain());
        }
        let mut one = select.clone();
        one.top = None;
        let mut added = 0;
        let hidden: Vec<bool> = orders
            .iter()
            .map(|o| number(&o.expr).is_none() && !is_alias(select, &o.expr))
            .collect();
        for (order, hidden) in orders.iter().zip(&hidden) {
            if *hidden {
                one.projection
                    .push(SelectItem::UnnamedExpr(order.expr.clone()));
                added += 1;
            }
        }
        let wanted = Some(SelectPurpose::Rows);
        let inner = self.select_of(&one, &[], wanted, |_| Ok(String::new()))?;
        if !inner.assigns.is_empty() {
            return Err(not_here(
                "TOP with PERCENT or TIES in a SELECT that sets variables",
            ));
        }
        let labels = inner.labels;
        let mut columns = inner.columns;
        let count = columns.len().saturating_sub(added);
        let mut words = Vec::new();
        let mut next = count;
        for (order, hidden) in orders.iter().zip(&hidden) {
            let place = match (hidden, number(&order.expr), &order.expr) {
                (true, ..) => {
                    next += 1;
                    Some(next - 1)
                }
                (false, Some(place), _) => Some(place).filter(|place| *place < count),
                (false, None, Expr::Identifier(name)) => position(&columns, &name.value),
                _ => None,
            };
            let place = place.ok_or_else(|| message::COLUMN_UNKNOWN.with(&[&order.expr]))?;
            let typed = TypedSql::of(column_alias(place), columns[place].kind);
            let typed = typed.labelled(labels.get(place).cloned().unwrap_or_default());
            words.push(folded(&typed) + direction(order));
        }
        let order = match words.is_empty() {
            true => String::new(),
            false => format!("ORDER BY {}", words.join(", ")),
        };
        let quantity = match &top.quantity {
            Some(TopQuantity::Constant(n)) if top.percent && *n > 100 => {
                return Err(message::PERCENT_RANGE.plain());
            }
            Some(TopQuantity::Constant(n)) => {
                self.bind(Value::Int(i64::try_from(*n).unwrap_or(i64::MAX)))
            }
            Some(TopQuantity::Expr(e)) => {
                let count = self.expression(e)?;
                let is_whole = count.kind.is_none_or(Type::is_integer);
                match (top.percent, is_whole) {
                    (false, false) => return Err(message::TOP_NOT_WHOLE.plain()),
                    (false, true) => Sql::call("ts_top", [count.sql]),
                    (true, _) => Sql::call("ts_percent", [count.sql]),
                }
            }
            None => return Err(not_here("TOP without a number")),
        };
        // Part of a row counts as a row.
        let most = match top.percent {
            true => format!("n * {quantity} / 100.0 + 0.9999999999"),
            false => quantity.to_string(),
        };
        let numbers = if top.with_ties {
            "rank()"
        } else {
            "row_number()"
        };
        let list: Vec<_> = (0..count).map(column_alias).collect();
        columns.truncate(count);
        let sql = format!(
            "SELECT {} FROM (SELECT *, {numbers} OVER ({order}) AS r, row_number() OVER ({order}) AS i, \
             count(*) OVER () AS n FROM ({})) WHERE r <= CAST({most} AS INTEGER) ORDER BY i",
            list.join(", "),
            inner.sql
        );
        Ok(SelectedColumns {
            marks: inner.marks,
            labels,
            ..SelectedColumns::new(sql, columns)
        })
    }
}
