//! Translates sqlparser's tree to SQLite's SQL, with a T-SQL type for every expression.
//!
//! Invariants
//! - Only constructs that are matched here are passed on; all others are refused by name (50002).
//! - Texts and numbers of the query are bound, never written into the SQL.
//! - Tables get our own aliases (`t0`, `t1`, …), so no name of the query has a meaning for SQLite.
//!
//! Leaves to others: parsing (`parse.rs`); FROM (`translate/tables.rs`), expressions (`translate/expression.rs`), calls
//! (`translate/call.rs`) and grouping (`translate/grouped.rs`); running the SQL (`sqlite.rs`).

mod applock;
mod apply;
mod call;
mod clause;
mod common;
mod comparison;
mod constant;
mod expression;
mod grouped;
mod instant;
mod lookup;
mod markup;
mod own;
mod pivot;
mod reach;
mod rules;
mod sets;
mod state;
mod table_function;
mod tables;
mod top;
mod windowed;

pub(crate) use applock::{is_of_transaction, lock_name, lock_principal, lock_word};
pub(in crate::query) use call::takes;
pub(crate) use own::NESTING_MAX;
pub(crate) use state::ROW_NUMBER;
pub(crate) use tables::parts;

use sqlparser::ast::{
    Distinct, Expr, GroupByExpr, LimitClause, OrderByExpr, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, SetOperator, SetQuantifier, Top, TopQuantity,
    Value as Literal,
};

use super::collation::Label;
use super::context::QueryContext;
use super::number::wider;
use super::parse::OFFSET_FETCH;
use super::plan::QueryPlan;
use super::sql::{Parameter, Sql};
use crate::message::{self, Message};
use crate::syntax;
use crate::value::{Column, Type, Value};
use clause::Clause;
use grouped::{Condition, TranslatedSelect};
use reach::Reach;
use state::{
    Item, NamedTable, Passed, SelectFindings, SelectPurpose, SelectedColumns, Stepwise, Translator,
    TypedSql, column_alias, direction, folded, is_hidden, not_here, position,
};

/// Finds the meaning of a query, in which marks stand for the literals. Errors: names that are not there, constructs
/// that this server does not know.
pub(super) fn query(
    context: &QueryContext,
    query: &Query,
    literals: &[syntax::Literal],
) -> Result<QueryPlan, Message> {
    let mut translator = Translator::new(context, literals);
    let selected = translator.query(query)?;
    let foreign = (0..selected.columns.len()).find(|i| selected.label(*i).is_of_no_column());
    Ok(QueryPlan {
        foreign: foreign.map(|i| selected.columns[i].name.clone()),
        sql: selected.sql,
        columns: selected.columns,
        assigns: selected.assigns,
        steps: selected.steps,
        values: translator.values.into_iter().map(Value::from).collect(),
        views: translator.views,
        tables: translator.tables,
        functions: translator.functions,
    })
}

/// An expression without a query around it.
#[derive(Debug)]
pub(super) struct ScalarPlan {
    pub sql: Sql,
    pub values: Vec<Parameter>,
    pub kind: Type,
}

/// Finds the meaning of an expression, as [`query`] does of a SELECT of it in parentheses. Errors: the same.
pub(super) fn scalar(
    context: &QueryContext,
    expr: &Expr,
    is_condition: bool,
) -> Result<ScalarPlan, Message> {
    let mut translator = Translator::new(context, &[]);
    translator.queries = 1;
    let typed = match is_condition {
        true => translator.expression(expr)?,
        false => translator.unheld(expr)?,
    };
    Ok(ScalarPlan {
        kind: typed.kind(),
        sql: typed.sql,
        values: translator.values,
    })
}

/// The clauses after FROM in a SELECT, but for its limit.
struct Clauses {
    sql: String,
    /// Each row comes from one row: nothing is grouped or computed over rows.
    is_plain: bool,
    conditions: Vec<Condition>,
    /// The words of ORDER BY.
    orders: Vec<String>,
    order_reach: Reach,
}

/// The place, from 1, of a column of a table among the items of the first of several combined queries.
fn place_in_first(body: &SetExpr, column: &Expr) -> Option<usize> {
    let select = match body {
        SetExpr::SetOperation { left, .. } => return place_in_first(left, column),
        SetExpr::Select(select) => select,
        _ => return None,
    };
    let wanted = column.to_string();
    for (item, place) in select.projection.iter().zip(1..) {
        match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                if expr.to_string().eq_ignore_ascii_case(&wanted) {
                    return Some(place);
                }
            }
            // Behind `*` no place is known.
            _ => return None,
        }
    }
    None
}

impl Translator<'_> {
    fn query(&mut self, query: &Query) -> Result<SelectedColumns, Message> {
        self.query_for(query, SelectPurpose::Values)
    }

    fn query_for(
        &mut self,
        query: &Query,
        wanted: SelectPurpose,
    ) -> Result<SelectedColumns, Message> {
        // CREATE VIEW has checked a view, unless it is older than the check.
        if self.queries > 0 && self.views_open == 0 {
            check_order(query)?;
        }
        self.inside("a subquery", |t| {
            t.may_query()?;
            t.queries += 1;
            let selected = t.descend(|t| t.query_of(query, wanted));
            t.queries -= 1;
            selected
        })
    }

    /// Translates a part that has one value for all rows.
    fn inside<T>(
        &mut self,
        what: &'static str,
        work: impl FnOnce(&mut Self) -> Result<T, Message>,
    ) -> Result<T, Message> {
        let within = |t: &mut Self, what| match &mut t.stepwise {
            Some(stepwise) => std::mem::replace(&mut stepwise.within, what),
            None => None,
        };
        let outer = within(self, Some(what));
        let result = work(self);
        within(self, outer);
        result
    }

    fn query_of(
        &mut self,
        query: &Query,
        wanted: SelectPurpose,
    ) -> Result<SelectedColumns, Message> {
        if let Some(clause) = &query.for_clause {
            return self.marked_up(query, clause);
        }
        let before = self.commons.len();
        let mut parts = Vec::new();
        if let Some(with) = &query.with {
            for cte in &with.cte_tables {
                let part = self.common(cte, query)?;
                parts.push(part);
            }
        }
        let mut selected = match query.body.as_ref() {
            SetExpr::Select(select) => self.select(select, query, wanted)?,
            body => {
                let mut selected = self.set(body)?;
                self.order_of_set(query, &mut selected)?;
                selected
            }
        };
        self.commons.truncate(before);
        parts.append(&mut selected.with);
        if !parts.is_empty() {
            selected.sql = format!("WITH RECURSIVE {} {}", parts.join(", "), selected.sql);
        }
        Ok(selected)
    }

    /// A SELECT, or several combined by UNION and similar operators.
    fn set(&mut self, body: &SetExpr) -> Result<SelectedColumns, Message> {
        self.queries += 1;
        let selected = self.descend(|t| match body {
            SetExpr::Select(select) => {
                let mut selected = t.plain_select(select)?;
                // SQLite allows no LIMIT inside.
                selected.sql = format!("SELECT * FROM ({})", selected.sql);
                Ok(selected)
            }
            SetExpr::Query(query) => {
                let mut selected = t.query(query)?;
                selected.sql = format!("SELECT * FROM ({})", selected.sql);
                Ok(selected)
            }
            SetExpr::Values(values) => {
                let mut selected = t.values_rows(values)?;
                selected.sql = format!("SELECT * FROM ({})", selected.sql);
                Ok(selected)
            }
            SetExpr::SetOperation {
                op,
                set_quantifier,
                left,
                right,
            } => {
                let (left, right) = (t.set(left)?, t.set(right)?);
                if left.columns.len() != right.columns.len() {
                    return Err(message::UNION_COLUMNS.plain());
                }
                let word = match (op, set_quantifier) {
                    (SetOperator::Union, SetQuantifier::All) => "UNION ALL",
                    (SetOperator::Union, _) => "UNION",
                    (SetOperator::Except, _) => "EXCEPT",
                    (SetOperator::Intersect, _) => "INTERSECT",
                    (SetOperator::Minus, _) => return Err(not_here("MINUS")),
                };
                let columns: Vec<_> = left
                    .columns
                    .iter()
                    .zip(&right.columns)
                    .map(|(a, b)| Column::new(a.name.clone(), wider(a.kind, b.kind)))
                    .collect();
                let mut labels = Vec::with_capacity(columns.len());
                for (i, column) in columns.iter().enumerate() {
                    let label = left.label(i).with(right.label(i), word)?;
                    // Only UNION ALL compares nothing.
                    if column.kind.is_text() && word != "UNION ALL" {
                        label.resolved(word)?;
                    }
                    labels.push(label.of_text(column.kind)?);
                }
                let left = t.side(left, &columns, &labels);
                let right = t.side(right, &columns, &labels);
                Ok(SelectedColumns {
                    labels,
                    ..SelectedColumns::new(format!("{left} {word} {right}"), columns)
                })
            }
            _ => Err(not_here("this kind of query")),
        });
        self.queries -= 1;
        selected
    }

    /// One of two queries whose rows are compared: its columns in the common types, texts with the collations of both.
    fn side(&mut self, selected: SelectedColumns, columns: &[Column], labels: &[Label]) -> String {
        let sides = selected.columns.iter().zip(columns).zip(labels).enumerate();
        let list: Vec<_> = sides
            .map(|(i, ((own, column), label))| {
                let name = column_alias(i);
                let value = self.widened(TypedSql::of(&name, own.kind), Some(column.kind));
                let value = TypedSql::of(value, column.kind).labelled(label.clone());
                format!("{} AS {name}", folded(&value))
            })
            .collect();
        format!("SELECT {} FROM ({})", list.join(", "), selected.sql)
    }

    /// ORDER BY after a UNION names columns or their positions.
    fn order_of_set(
        &mut self,
        query: &Query,
        selected: &mut SelectedColumns,
    ) -> Result<(), Message> {
        let mut words = Vec::new();
        for order in orders(query)? {
            top::check_place(&order.expr, selected.columns.len())?;
            let at = match &order.expr {
                Expr::Value(value) => match &value.value {
                    Literal::Number(n, _) => n.parse::<usize>().ok().filter(|n| *n > 0),
                    _ => None,
                },
                Expr::Identifier(name) => position(&selected.columns, &name.value).map(|i| i + 1),
                column @ Expr::CompoundIdentifier(_) => place_in_first(&query.body, column),
                _ => None,
            };
            let at = at.filter(|n| *n <= selected.columns.len());
            let at = at.ok_or_else(|| message::COLUMN_UNKNOWN.with(&[&order.expr]))?;
            selected
                .label(at - 1)
                .as_column("ORDER BY", words.len() + 1)?;
            words.push(format!("{at}{}", direction(order)));
        }
        if !words.is_empty() {
            selected.sql += &format!(" ORDER BY {}", words.join(", "));
        }
        selected.sql += &self.limit(query, None)?;
        Ok(())
    }

    fn plain_select(&mut self, select: &Select) -> Result<SelectedColumns, Message> {
        self.select_of(select, &[], None, |_| Ok(String::new()))
    }

    fn select(
        &mut self,
        select: &Select,
        query: &Query,
        wanted: SelectPurpose,
    ) -> Result<SelectedColumns, Message> {
        if let Some(combined) = self.grouping_sets(select, query)? {
            return Ok(combined);
        }
        let orders: Vec<&OrderByExpr> = orders(query)?;
        if let Some(top) = select.top.as_ref().filter(|t| t.percent || t.with_ties) {
            return self.shared_top(select, top, &orders);
        }
        let is_whole = query.fetch.is_none() && query.limit_clause.is_none();
        let wanted = Some(wanted).filter(|w| is_whole && *w != SelectPurpose::Rows);
        self.select_of(select, &orders, wanted, |t| {
            t.limit(query, select.top.as_ref())
        })
    }

    /// `wanted`: what for, where its rows may be grouped.
    fn select_of(
        &mut self,
        select: &Select,
        orders: &[&OrderByExpr],
        wanted: Option<SelectPurpose>,
        limit: impl FnOnce(&mut Self) -> Result<String, Message>,
    ) -> Result<SelectedColumns, Message> {
        if select.into.is_some() {
            return Err(not_here("SELECT INTO"));
        }
        let passes = self.passes.take();
        let mut pending = std::mem::take(&mut self.pending_groups);
        if let GroupByExpr::Expressions(by, _) = &select.group_by
            && pending.is_empty()
        {
            pending.extend(by.iter().map(|expr| (expr.clone(), true)));
        }
        let outer_grouping = self.grouping.take();
        let is_grouped = outer_grouping.is_some();
        self.outer_groupings.extend(outer_grouping);
        let clause = std::mem::take(&mut self.clause);
        let (from, reach) = self.watched(|t| t.from(&select.from))?;
        self.begin_grouping(pending)?;
        let is_existence = wanted == Some(SelectPurpose::Existence);
        let wanted = wanted.filter(|_| !reach.is_outside(self.scopes.len() - 1));
        let windows = std::mem::replace(&mut self.windows, select.named_window.clone());
        let rules = self.rules.len();
        self.begin_rule(select, is_existence);
        let done = self.select_within(select, orders, &from, (wanted, passes), limit);
        self.rules.truncate(rules);
        self.clause = clause;
        self.windows = windows;
        self.scopes.pop();
        self.grouping = is_grouped.then(|| self.outer_groupings.pop()).flatten();
        done
    }

    /// The words of ORDER BY, and where they reach.
    fn words(
        &mut self,
        select: &Select,
        orders: &[&OrderByExpr],
        items: &[Item],
    ) -> Result<(Vec<String>, Reach), Message> {
        let is_distinct = matches!(select.distinct, Some(Distinct::Distinct));
        let mut all = Reach::default();
        let mut words = Vec::new();
        for (order, place) in orders.iter().zip(1..) {
            let distinct = is_distinct.then_some(select);
            let (word, reach) = self.watched(|t| t.order(order, (items, distinct), place))?;
            all = all.with(reach);
            words.push(word);
        }
        Ok((words, all))
    }

    /// Goes back to what was seen outside of the clauses after the select list. Whether these compute over rows: an
    /// aggregate in WHERE is of the query outside, and one in ORDER BY makes one row of all.
    fn leave_clauses(&mut self, outer: SelectFindings) -> bool {
        let clauses = std::mem::replace(&mut self.seen, outer);
        self.seen.aggregate |= clauses.aggregate;
        self.seen.window |= clauses.window;
        self.seen.variables.extend(clauses.variables);
        clauses.aggregate || clauses.window
    }

    /// The expressions that GROUP BY names, in SQLite's words; empty without one.
    fn group_by(&mut self, by: &GroupByExpr) -> Result<String, Message> {
        match by {
            // The set of all rows: one row, if there are any.
            GroupByExpr::Expressions(by, _) if by.is_empty() && self.grouping.is_some() => {
                Ok("NULL".to_owned())
            }
            GroupByExpr::Expressions(by, modifiers) if modifiers.is_empty() => {
                let mut words = Vec::with_capacity(by.len());
                for expr in by {
                    let (typed, reach) = self.watched(|t| t.expression(expr))?;
                    if !reach.is_inside(self.scopes.len() - 1) {
                        return Err(message::GROUP_BY_CONSTANT.plain());
                    }
                    // SQL Server counts a column of its own before those of GROUP BY.
                    typed.text_label().as_column("GROUP BY", words.len() + 2)?;
                    words.push(folded(&typed));
                }
                Ok(words.join(", "))
            }
            _ => Err(not_here("GROUP BY with ROLLUP, CUBE or ALL")),
        }
    }

    /// Everything from WHERE to ORDER BY.
    fn clauses(
        &mut self,
        select: &Select,
        orders: &[&OrderByExpr],
        items: &[Item],
    ) -> Result<Clauses, Message> {
        let mut sql = String::new();
        let outer = std::mem::take(&mut self.seen);
        let mut conditions = Vec::new();
        if let Some(selection) = &select.selection {
            self.in_clause(Clause::Where, |t| {
                t.held(|t| t.conditions(selection, &mut conditions))
            })?;
            let all: Vec<_> = conditions.iter().map(Condition::sql).collect();
            sql += &format!(" WHERE {}", all.join(" AND "));
        }
        let by = self.in_clause(Clause::GroupBy, |t| t.group_by(&select.group_by))?;
        if !by.is_empty() {
            sql += &format!(" GROUP BY {by}");
        }
        if let Some(having) = &select.having {
            let having = self.in_clause(Clause::Having, |t| t.expression(having))?;
            sql += &format!(" HAVING {}", having.sql);
        }
        let (orders, order_reach) =
            self.in_clause(Clause::OrderBy, |t| t.words(select, orders, items))?;
        let computes_over_rows = self.leave_clauses(outer);
        if !orders.is_empty() {
            sql += &format!(" ORDER BY {}", orders.join(", "));
        }
        Ok(Clauses {
            sql,
            is_plain: by.is_empty() && select.having.is_none() && !computes_over_rows,
            conditions,
            orders,
            order_reach,
        })
    }

    fn select_within(
        &mut self,
        select: &Select,
        orders: &[&OrderByExpr],
        from: &str,
        (wanted, passes): (Option<SelectPurpose>, Option<Passed>),
        limit: impl FnOnce(&mut Self) -> Result<String, Message>,
    ) -> Result<SelectedColumns, Message> {
        let (values, variables) = (self.values.len(), self.variables.clone());
        let outer = std::mem::take(&mut self.seen);
        let ((mut items, assigns), item_reach) =
            self.watched(|t| t.in_clause(Clause::Items, |t| t.projection(select)))?;
        items.extend(passes.and_then(|passed| self.passed(passed, select)));
        let seen = std::mem::replace(&mut self.seen, outer);
        if assigns
            .iter()
            .any(|a| seen.variables.contains(&a.to_lowercase()))
        {
            self.end_rule()?;
            self.values.truncate(values);
            self.variables = variables;
            return self.select_stepwise(select, orders, from, limit, assigns, &seen);
        }
        self.seen.variables.extend(seen.variables);
        let distinct = match &select.distinct {
            None | Some(Distinct::All) => "",
            Some(Distinct::Distinct) => "DISTINCT ",
            Some(Distinct::On(_)) => return Err(not_here("DISTINCT ON")),
        };
        let list = select_list(&items, !distinct.is_empty());
        let clauses = self.clauses(select, orders, &items)?;
        self.end_rule()?;
        if assigns.is_empty() && wanted != Some(SelectPurpose::Existence) {
            for ((_, item), place) in items.iter().zip(1..) {
                item.text_label().as_column("SELECT", place)?;
            }
        }
        let mut sql = format!("SELECT {distinct}{list}{from}{}", clauses.sql);
        let is_set = orders.is_empty();
        let end = limit(self)?;
        sql += &end;
        if is_set && end.is_empty() {
            sql += &self.top(select.top.as_ref())?;
        }
        let is_plain = distinct.is_empty() && clauses.is_plain && assigns.is_empty();
        let grouped = wanted.filter(|_| is_plain).and_then(|wanted| {
            self.grouped(&TranslatedSelect {
                wanted,
                select,
                items: &items,
                item_reach,
                from,
                conditions: &clauses.conditions.iter().collect::<Vec<_>>(),
                orders: &clauses.orders,
                order_reach: clauses.order_reach,
                has_aggregate: seen.aggregate,
                has_window: seen.window,
            })
        });
        let marks = items.iter().map(|(_, item)| item.markup).collect();
        let labels = items.iter().map(|(_, item)| item.text_label()).collect();
        let columns = items
            .into_iter()
            .map(|(name, item)| Column::new(name, item.kind()))
            .collect();
        let (sql, with) = match grouped {
            Some((with, sql)) => (sql, vec![with]),
            None => (sql, Vec::new()),
        };
        Ok(SelectedColumns {
            assigns,
            with,
            marks,
            labels,
            ..SelectedColumns::new(sql, columns)
        })
    }

    /// The column that a SELECT passes on for the server, if it has one.
    fn passed(&mut self, passed: Passed, select: &Select) -> Option<Item> {
        match passed {
            Passed::Level => {
                let recursion = self.recursion.as_ref()?;
                let common = self.commons.last()?;
                let (at, limit) = (column_alias(common.columns.len() - 1), recursion.limit);
                let sql = format!("ts_level({}{at}, {limit})", recursion.prefix);
                Some((String::new(), TypedSql::of(sql, Type::Int)))
            }
            Passed::Rows => {
                let is_grouped = match &select.group_by {
                    GroupByExpr::Expressions(by, _) => !by.is_empty(),
                    GroupByExpr::All(_) => true,
                };
                let is_distinct = !matches!(&select.distinct, None | Some(Distinct::All));
                let tables = self.scopes.last()?;
                let table = tables.first().filter(|_| tables.len() == 1)?;
                let at = table.columns.iter().position(|c| c.name == ROW_NUMBER)?;
                if is_grouped || is_distinct || self.seen.aggregate && !self.seen.window {
                    return None;
                }
                let sql = table.column(at);
                Some((ROW_NUMBER.to_owned(), TypedSql::of(sql, Type::BigInt)))
            }
        }
    }

    /// A SELECT whose items set variables and read them. Its rows are made first, in their order; then each is
    /// evaluated with the variables as the row before left them (`ts_variable`, `ts_assign`).
    fn select_stepwise(
        &mut self,
        select: &Select,
        orders: &[&OrderByExpr],
        from: &str,
        limit: impl FnOnce(&mut Self) -> Result<String, Message>,
        assigns: Vec<String>,
        seen: &SelectFindings,
    ) -> Result<SelectedColumns, Message> {
        check_stepwise(select, seen, !orders.is_empty())?;
        let mut rows = from.to_owned();
        if let Some(selection) = &select.selection {
            let condition = self.in_clause(Clause::Where, |t| t.expression(selection))?;
            rows += &format!(" WHERE {}", condition.sql);
        }
        // An aggregate has one row, and so has a SELECT without a table: no order is needed.
        let is_single = seen.aggregate || from.is_empty();
        let mut words = Vec::new();
        for (order, place) in orders.iter().zip(1..).filter(|_| !is_single) {
            if matches!(&order.expr, Expr::Value(_)) {
                return Err(not_here("ORDER BY a place in a SELECT that sets variables"));
            }
            words.push(self.order(order, (&[], None), place)?);
        }
        if !words.is_empty() {
            rows += &format!(" ORDER BY {}", words.join(", "));
        }
        let mut end = limit(self)?;
        if orders.is_empty() && end.is_empty() {
            end = self.top(select.top.as_ref())?;
        }
        let mut with = Vec::new();
        if is_single {
            rows += &end;
        } else {
            let (alias, made) = self.made_first(&rows, &end);
            with.push(made);
            rows = format!(" FROM {alias}");
        }
        let mut steps: Vec<String> = Vec::new();
        for name in assigns.iter().map(|a| a.to_lowercase()) {
            self.context.variable(&name)?;
            if !steps.contains(&name) {
                steps.push(name);
            }
        }
        let variables = steps.iter().map(|s| (s.clone(), !is_single)).collect();
        self.stepwise = Some(Stepwise {
            variables,
            within: None,
        });
        let projected = self.projection(select);
        self.stepwise = None;
        let (items, _) = projected?;
        let mut list = Vec::new();
        for ((_, item), name) in items.into_iter().zip(&assigns) {
            let name = name.to_lowercase();
            let slot = steps.iter().position(|s| *s == name).unwrap_or_default();
            let item = self.dated(item, self.context.variable(&name)?.kind);
            let kind = self.bind_type(item.kind());
            list.push(format!("ts_assign({slot}, {}, {kind})", item.sql));
        }
        Ok(SelectedColumns {
            assigns,
            steps,
            with,
            ..SelectedColumns::new(format!("SELECT {}{rows}", list.join(", ")), Vec::new())
        })
    }

    /// Makes the rows of the innermost query first, in their order, and lets its tables' columns mean those. Returns
    /// the name of these rows and their definition.
    fn made_first(&mut self, rows: &str, end: &str) -> (String, String) {
        let alias = self.new_alias();
        let mut columns = Vec::new();
        for table in self.scopes.last_mut().into_iter().flatten() {
            let own = table.prefix.replace('.', "_");
            for i in 0..table.columns.len() {
                let column = column_alias(i);
                columns.push(format!("{} AS {own}{column}", table.column(i)));
            }
            table.prefix = format!("{alias}.{own}");
            table.is_packed = false;
        }
        // The limit keeps the order: without a limit SQLite might drop the order as useless.
        let end = if end.is_empty() { " LIMIT -1" } else { end };
        let list = columns.join(", ");
        let made = format!("{alias} AS MATERIALIZED (SELECT {list}{rows}{end})");
        (alias, made)
    }

    /// ORDER BY names a result column, its position, or any expression; it is the word at this place, from 1. Of DISTINCT,
    /// only what is selected. Errors: 145.
    fn order(
        &mut self,
        order: &OrderByExpr,
        (items, distinct): (&[Item], Option<&Select>),
        place: usize,
    ) -> Result<String, Message> {
        top::check_place(&order.expr, items.len())?;
        let at = match &order.expr {
            Expr::Value(value) => match &value.value {
                Literal::Number(n, _) => n.parse::<usize>().ok().and_then(|n| n.checked_sub(1)),
                _ => None,
            },
            Expr::Identifier(name) => items
                .iter()
                .position(|(n, _)| n.eq_ignore_ascii_case(&name.value)),
            _ => None,
        };
        let sql = match at {
            Some(i) => {
                let (_, item) = items
                    .get(i)
                    .ok_or_else(|| message::COLUMN_UNKNOWN.with(&[&order.expr]))?;
                item.text_label().as_column("ORDER BY", place)?;
                format!("{}{}", column_alias(i), item.collation())
            }
            None => {
                let typed = self.expression(&order.expr)?;
                typed.text_label().as_column("ORDER BY", place)?;
                if let Some(select) = distinct {
                    self.must_be_selected(select, items, &order.expr)?;
                }
                folded(&typed)
            }
        };
        Ok(sql + direction(order))
    }

    fn top(&mut self, top: Option<&Top>) -> Result<String, Message> {
        let Some(top) = top else {
            return Ok(String::new());
        };
        if top.percent || top.with_ties {
            return Err(not_here("TOP with PERCENT or TIES"));
        }
        let count = match &top.quantity {
            Some(TopQuantity::Constant(n)) => {
                let n = i64::try_from(*n).unwrap_or(i64::MAX);
                self.bind(Value::Int(n)).to_string()
            }
            Some(TopQuantity::Expr(e)) => {
                let count = self.expression(e)?;
                if count.kind.is_some_and(|kind| !kind.is_integer()) {
                    return Err(message::TOP_NOT_WHOLE.plain());
                }
                format!("ts_top({})", count.sql)
            }
            None => return Err(not_here("TOP without a number")),
        };
        Ok(format!(" LIMIT {count}"))
    }

    fn limit(&mut self, query: &Query, top: Option<&Top>) -> Result<String, Message> {
        let mut limit = self.top(top)?;
        if let Some(fetch) = &query.fetch {
            if fetch.percent || fetch.with_ties {
                return Err(not_here("FETCH with PERCENT or TIES"));
            }
            let count = match &fetch.quantity {
                Some(quantity) => self.expression(quantity)?.sql.to_string(),
                None => "1".to_owned(),
            };
            limit = format!(" LIMIT ts_rows({count}, 1)");
        }
        match &query.limit_clause {
            None => Ok(limit),
            Some(LimitClause::LimitOffset {
                limit: None,
                offset: Some(offset),
                limit_by,
            }) if limit_by.is_empty() => {
                if let Expr::Function(function) = &offset.value
                    && function.name.to_string() == OFFSET_FETCH
                {
                    let [skip, count] = *call::plain_arguments(function)?.as_slice() else {
                        return Err(not_here("LIMIT"));
                    };
                    let (skip, count) = (self.expression(skip)?.sql, self.expression(count)?.sql);
                    return Ok(format!(
                        " LIMIT ts_rows({count}, 1) OFFSET ts_rows({skip}, 0)"
                    ));
                }
                let skip = self.expression(&offset.value)?.sql;
                let all = if limit.is_empty() { " LIMIT -1" } else { "" };
                Ok(format!("{limit}{all} OFFSET ts_rows({skip}, 0)"))
            }
            Some(_) => Err(not_here("LIMIT")),
        }
    }

    /// An expression of a select list. SQLite checks those of the outermost query against their types.
    fn item(&mut self, expr: &Expr) -> Result<TypedSql, Message> {
        match self.queries {
            1 => self.unheld(expr),
            _ => self.expression(expr),
        }
    }

    /// Items to the right of this one read the value that it sets.
    fn is_set(&mut self, name: &str) {
        let name = name.to_lowercase();
        let all = self.stepwise.iter_mut().flat_map(|s| &mut s.variables);
        all.for_each(|(variable, set)| *set |= *variable == name);
    }

    /// The items of a SELECT with their names, and the variables that they set.
    fn projection(&mut self, select: &Select) -> Result<(Vec<Item>, Vec<String>), Message> {
        let mut items = Vec::new();
        let mut assigns = Vec::new();
        for item in &select.projection {
            let Some((name, value)) = assignment(item) else {
                self.columns(item, &mut items)?;
                continue;
            };
            items.push((String::new(), self.unheld(value)?));
            self.is_set(name);
            assigns.push(name.to_owned());
        }
        let is_outermost = self.queries == 1;
        match assigns.is_empty() || (is_outermost && assigns.len() == items.len()) {
            true => Ok((items, assigns)),
            false => Err(message::ASSIGNS_AND_ROWS.plain()),
        }
    }

    /// Adds the columns of an item that sets no variable.
    fn columns(&mut self, item: &SelectItem, items: &mut Vec<Item>) -> Result<(), Message> {
        let tables = || self.scopes.last().cloned().unwrap_or_default();
        match item {
            SelectItem::UnnamedExpr(expr) => items.push((name_of(expr), self.item(expr)?)),
            SelectItem::ExprWithAlias { expr, alias } => {
                items.push((alias.value.clone(), self.item(expr)?));
            }
            SelectItem::Wildcard(_) => {
                let tables = tables();
                if tables.is_empty() {
                    return Err(message::STAR_WITHOUT_TABLE.plain());
                }
                tables.iter().for_each(|t| items.extend(all_of(t)));
                self.meets_all(&tables);
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let last = tables::parts(name).pop().unwrap_or_default();
                let tables = tables();
                let table = tables.iter().find(|t| t.name.eq_ignore_ascii_case(&last));
                let table = table.ok_or_else(|| message::PREFIX_UNKNOWN.with(&[&last]))?;
                items.extend(all_of(table));
                self.meets_all(std::slice::from_ref(table));
            }
            SelectItem::QualifiedWildcard(..) | SelectItem::ExprWithAliases { .. } => {
                return Err(not_here("this kind of column"));
            }
        }
        Ok(())
    }
}

/// The variable that an item sets, and the value: `@a = 1`, and `1 AS @a` as the parser reads some of these.
fn assignment(item: &SelectItem) -> Option<(&str, &Expr)> {
    match item {
        SelectItem::UnnamedExpr(Expr::BinaryOp {
            left,
            op: sqlparser::ast::BinaryOperator::Eq,
            right,
        }) => variable(left).map(|name| (name, &**right)),
        SelectItem::ExprWithAlias { expr, alias }
            if alias.quote_style.is_none() && alias.value.starts_with('@') =>
        {
            Some((&alias.value, expr))
        }
        _ => None,
    }
}

/// The name of a column that has no alias: that of the column that the expression is, else none.
fn name_of(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(name) if !name.value.starts_with('@') => name.value.clone(),
        Expr::CompoundIdentifier(names) => names.last().map_or(String::new(), |n| n.value.clone()),
        _ => String::new(),
    }
}

fn variable(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Identifier(name) if name.value.starts_with('@') => Some(&name.value),
        _ => None,
    }
}

fn all_of(table: &NamedTable) -> Vec<Item> {
    let columns = table.columns.iter().enumerate();
    columns
        .filter(|(_, column)| !is_hidden(column))
        .map(|(i, column)| (column.name.clone(), table.typed(i)))
        .collect()
}

fn orders(query: &Query) -> Result<Vec<&OrderByExpr>, Message> {
    match query.order_by.as_ref().map(|o| &o.kind) {
        None => Ok(Vec::new()),
        Some(OrderByKind::Expressions(all)) => Ok(all.iter().collect()),
        Some(OrderByKind::All(_)) => Err(not_here("ORDER BY ALL")),
    }
}

/// Errors: 1033 for an order of a query inside of another one.
pub(crate) fn check_order(query: &Query) -> Result<(), Message> {
    let has_top = match &*query.body {
        SetExpr::Select(select) => select.top.is_some(),
        _ => false,
    };
    let is_cut = has_top || query.fetch.is_some() || query.limit_clause.is_some();
    match query.order_by.is_some() && !is_cut && query.for_clause.is_none() {
        true => Err(message::ORDER_INSIDE.plain()),
        false => Ok(()),
    }
}

/// The items by their places' names. DISTINCT compares them as the server does.
fn select_list(items: &[(String, TypedSql)], distinct: bool) -> String {
    let list = items.iter().enumerate().map(|(i, (_, item))| {
        let sql = match distinct {
            true => folded(item),
            false => item.sql.to_string(),
        };
        format!("{sql} AS {}", column_alias(i))
    });
    list.collect::<Vec<_>>().join(", ")
}

/// Rows that are evaluated one after the other cannot be grouped or compared with one another. OVER gives the rows an order
/// of its own, and an aggregate with OVER is none of one row.
fn check_stepwise(select: &Select, seen: &SelectFindings, is_ordered: bool) -> Result<(), Message> {
    let is_grouped = match &select.group_by {
        GroupByExpr::Expressions(by, modifiers) => !by.is_empty() || !modifiers.is_empty(),
        GroupByExpr::All(_) => true,
    };
    let is_distinct = !matches!(&select.distinct, None | Some(Distinct::All));
    let is_window = seen.window && (is_ordered || seen.aggregate);
    match is_grouped || is_distinct || select.having.is_some() || is_window {
        true => Err(not_here(
            "DISTINCT, GROUP BY, HAVING, or OVER with an aggregate or ORDER BY, in a SELECT that sets a variable and reads it",
        )),
        false => Ok(()),
    }
}
