//! Rules about rows and groups that SQLite does not have: which columns a query of groups may name, and where aggregates
//! and functions with OVER may stand.
//!
//! Invariants
//! - A column of a query of groups stands in an aggregate, or in an expression that GROUP BY has.
//! - Whether a query has groups is known at its end alone, so the first column that would break the rule is kept until then.
//!
//! Leaves to others: translating; columns that a set of groups leaves out (`sets.rs`).

use sqlparser::ast::{Expr, GroupByExpr, Select, SelectItem};

use super::clause::{AggregateRule, Clause, GroupRule};
use super::state::{Item, NamedTable, Translator, TypedSql, is_hidden};
use crate::message::{self, Message};

impl Translator<'_> {
    /// Begins a SELECT behind its FROM.
    pub(super) fn begin_rule(&mut self, select: &Select, is_existence: bool) {
        let by = match &select.group_by {
            GroupByExpr::Expressions(by, _) => by.as_slice(),
            GroupByExpr::All(_) => &[],
        };
        let tables = self.scopes.last().into_iter().flatten();
        let rule = GroupRule {
            prefixes: tables.map(|table| table.prefix.clone()).collect(),
            clause: Clause::Items,
            by: self
                .grouping
                .iter()
                .flat_map(|set| set.all.iter().map(|(sql, _)| sql.clone()))
                .collect(),
            texts: by.iter().map(text_of).collect(),
            is_aggregated: self.grouping.is_some() || select.having.is_some(),
            is_existence,
            loose: None,
        };
        self.rules.push(rule);
    }

    /// Ends it. Errors: 8120, 8121, 8127.
    pub(super) fn end_rule(&mut self) -> Result<(), Message> {
        let Some(rule) = self.rules.pop() else {
            return Ok(());
        };
        let Some((clause, column)) = rule.loose.filter(|_| rule.is_aggregated) else {
            return Ok(());
        };
        Err(match clause {
            Clause::Having => message::HAVING_UNGROUPED.with(&[&column]),
            Clause::OrderBy => message::ORDER_UNGROUPED.with(&[&column]),
            _ => message::ITEM_UNGROUPED.with(&[&column]),
        })
    }

    /// Translates one clause of the present SELECT.
    pub(super) fn in_clause<T>(
        &mut self,
        clause: Clause,
        work: impl FnOnce(&mut Self) -> Result<T, Message>,
    ) -> Result<T, Message> {
        let outer = std::mem::replace(&mut self.clause, clause);
        let before = self
            .rules
            .last_mut()
            .map(|rule| std::mem::replace(&mut rule.clause, clause));
        let done = work(self);
        self.clause = outer;
        if let (Some(rule), Some(before)) = (self.rules.last_mut(), before) {
            rule.clause = before;
        }
        done
    }

    /// A column is named.
    pub(super) fn meets_column(&mut self, table: &NamedTable, column: &str, typed: &TypedSql) {
        let of = |rule: &GroupRule| rule.prefixes.contains(&table.prefix);
        let Some(at) = self.rules.iter().rposition(of) else {
            return;
        };
        if self.aggregates.open > 0 {
            let owner = self.aggregates.owner.unwrap_or(at);
            self.aggregates.owner = Some(owner.max(at));
            return;
        }
        let rule = &mut self.rules[at];
        let counts = matches!(
            rule.clause,
            Clause::Items | Clause::Having | Clause::OrderBy
        );
        let sql = format!("{}{}", typed.sql, typed.collation());
        if counts && rule.loose.is_none() && !rule.by.contains(&sql) {
            rule.loose = Some((rule.clause, format!("{}.{column}", table.name)));
        }
    }

    /// A star names all columns of these tables.
    pub(super) fn meets_all(&mut self, tables: &[NamedTable]) {
        if self.rules.last().is_some_and(|rule| rule.is_existence) {
            return;
        }
        for table in tables {
            for (i, column) in table.columns.iter().enumerate() {
                if !is_hidden(column) {
                    self.meets_column(table, &column.name, &table.typed(i));
                }
            }
        }
    }

    /// Errors: 145 for what orders the rows of SELECT DISTINCT and is none of its items.
    pub(super) fn must_be_selected(
        &mut self,
        select: &Select,
        items: &[Item],
        expr: &Expr,
    ) -> Result<(), Message> {
        let own = text_of(expr);
        let is_same = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. } => {
                text_of(item) == own
            }
            _ => false,
        };
        if select.projection.iter().any(is_same) {
            return Ok(());
        }
        let own = self.sameness(expr)?;
        let is_item =
            |(_, item): &Item| own == self.with_values(&item.sql.to_string()) + item.collation();
        match items.iter().any(is_item) {
            true => Ok(()),
            false => Err(message::ORDER_NOT_SELECTED.plain()),
        }
    }

    /// Translates an expression; one that GROUP BY has may name any column.
    pub(super) fn as_group(
        &mut self,
        expr: &Expr,
        work: impl FnOnce(&mut Self) -> Result<TypedSql, Message>,
    ) -> Result<TypedSql, Message> {
        let is_plain = |rule: &GroupRule| rule.by.is_empty() || rule.loose.is_some();
        if self.rules.iter().all(is_plain) {
            return work(self);
        }
        let before: Vec<bool> = self.rules.iter().map(|rule| rule.loose.is_some()).collect();
        let typed = work(self)?;
        for (at, was_loose) in before.into_iter().enumerate() {
            let is_new = !was_loose && self.rules.get(at).is_some_and(|rule| rule.loose.is_some());
            if !is_new {
                continue;
            }
            let sql = self.with_values(&typed.sql.to_string()) + typed.collation();
            let rule = &mut self.rules[at];
            if rule.by.contains(&sql) || rule.texts.contains(&text_of(expr)) {
                rule.loose = None;
            }
        }
        Ok(typed)
    }

    /// Translates what is compared and not run.
    pub(super) fn unruled<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::replace(
            &mut self.aggregates,
            AggregateRule {
                open: 1,
                owner: None,
                queries: usize::MAX,
            },
        );
        let done = work(self);
        self.aggregates = outer;
        done
    }

    /// Translates the argument of an aggregate. Errors: 130, 144, 147.
    pub(super) fn in_aggregate<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Message>,
    ) -> Result<T, Message> {
        let is_compared = self.aggregates.queries == usize::MAX;
        if is_compared {
            return work(self);
        }
        if self.aggregates.open > 0 {
            return Err(message::AGGREGATE_IN_AGGREGATE.plain());
        }
        if self.clause == Clause::GroupBy {
            return Err(message::GROUP_BY_AGGREGATE.plain());
        }
        let own = AggregateRule {
            open: 1,
            owner: None,
            queries: self.queries,
        };
        let outer = std::mem::replace(&mut self.aggregates, own);
        let done = work(self);
        let own = std::mem::replace(&mut self.aggregates, outer);
        let done = done?;
        let last = self.rules.len().checked_sub(1);
        let owner = own.owner.or(last);
        if self.clause == Clause::Where {
            let is_outer = own.owner.is_some_and(|owner| {
                Some(owner) < last && self.rules[owner].clause != Clause::Where
            });
            if !is_outer {
                return Err(message::WHERE_AGGREGATE.plain());
            }
        }
        if let Some(owner) = owner {
            self.rules[owner].is_aggregated = true;
        }
        Ok(done)
    }

    /// Errors: 130 for a query in an aggregate.
    pub(super) fn may_query(&self) -> Result<(), Message> {
        let rule = &self.aggregates;
        match rule.open > 0 && rule.queries != usize::MAX {
            true => Err(message::AGGREGATE_IN_AGGREGATE.plain()),
            false => Ok(()),
        }
    }

    /// Errors: 4108, 4109 for a function with OVER that may not stand here.
    pub(super) fn may_window(&self) -> Result<(), Message> {
        let rule = &self.aggregates;
        if rule.open > 0 && rule.queries != usize::MAX {
            return Err(message::WINDOW_IN_WINDOW.plain());
        }
        match self.clause {
            Clause::Where | Clause::GroupBy | Clause::Having => Err(message::WINDOW_HERE.plain()),
            _ => Ok(()),
        }
    }
}

/// The text of an expression, without regard to case and parentheses around it.
fn text_of(expr: &Expr) -> String {
    match expr {
        Expr::Nested(inner) => text_of(inner),
        expr => expr.to_string().to_lowercase(),
    }
}
