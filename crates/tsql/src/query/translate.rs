//! From sqlparser's tree to SQLite's SQL, with a T-SQL type for everything.
//!
//! Invariants
//! - Only what is matched here is passed on; everything else is refused by name (50002).
//! - Texts and numbers of the query are bound, never written into the SQL.
//! - Tables get aliases of ours (`t0`, `t1`, …), so no name of the query has a meaning for SQLite.

mod call;
mod expression;
mod tables;

use std::collections::BTreeMap;

use sqlparser::ast::{
    Distinct, Expr, GroupByExpr, LimitClause, OrderByExpr, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, SetOperator, SetQuantifier, Top, TopQuantity,
    Value as Literal,
};

use super::Plan;
use super::number::wider;
use super::schema::View;
use crate::message::{self, Message};
use crate::session::Session;
use crate::value::{Column, Type, Value};
use crate::variables::Sum;

/// An expression of a select list under its name.
type Item = (String, Typed);

/// SQL of an expression, and its type; `None` for a bare NULL.
#[derive(Debug, Clone)]
struct Typed {
    sql: String,
    kind: Option<Type>,
}

impl Typed {
    fn of(sql: impl Into<String>, kind: Type) -> Typed {
        Typed {
            sql: sql.into(),
            kind: Some(kind),
        }
    }

    /// NULL counts as an int, as in SQL Server.
    fn kind(&self) -> Type {
        self.kind.unwrap_or(Type::Int)
    }
}

/// A table that a FROM clause names.
#[derive(Debug, Clone)]
struct Table {
    /// What the query calls it.
    name: String,
    /// What we call it.
    alias: String,
    columns: Vec<Column>,
}

/// A WITH clause's query.
#[derive(Debug, Clone)]
struct Common {
    name: String,
    alias: String,
    columns: Vec<Column>,
}

struct Translator<'a> {
    session: &'a Session,
    values: Vec<Value>,
    /// What they take.
    sum: Sum,
    /// The number of each variable among them: it is bound once, however often it stands there.
    variables: BTreeMap<String, usize>,
    views: Vec<&'static View>,
    /// Tables that can be named, the innermost SELECT's last.
    scopes: Vec<Vec<Table>>,
    commons: Vec<Common>,
    aliases: usize,
    depth: usize,
    steps: usize,
}

/// A SELECT's columns and SQL.
struct Selected {
    sql: String,
    columns: Vec<Column>,
    assigns: Vec<String>,
}

/// Expressions inside expressions, at most: well below what a thread's stack bears.
const DEPTH_MAX: usize = 200;

/// Expressions and queries that are translated for one statement, at most, and the length of one's SQL. What stands once
/// in a query may be needed several times in SQLite's, and that multiplies with every level.
const STEPS_MAX: usize = 100_000;
const SQL_LEN_MAX: usize = 1 << 20;

fn not_here(what: &str) -> Message {
    message::NOT_HERE.with(&[&what])
}

/// Finds the meaning of a query. Errors: names that are not there, constructs that this server does not know.
pub(super) fn query(session: &Session, query: &Query) -> Result<Plan, Message> {
    let mut translator = Translator {
        session,
        values: Vec::new(),
        sum: Sum::default(),
        variables: BTreeMap::new(),
        views: Vec::new(),
        scopes: Vec::new(),
        commons: Vec::new(),
        aliases: 0,
        depth: 0,
        steps: 0,
    };
    let selected = translator.query(query)?;
    Ok(Plan {
        sql: selected.sql,
        columns: selected.columns,
        assigns: selected.assigns,
        values: translator.values,
        views: translator.views,
    })
}

/// Names as SQLite takes them.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The name that SQLite knows a result's column by: names may be empty, or alike.
fn column_alias(i: usize) -> String {
    format!("c{i}")
}

impl Translator<'_> {
    fn bind(&mut self, value: Value) -> String {
        self.values.push(value);
        format!("?{}", self.values.len())
    }

    /// Errors: more than a query can have.
    fn bind_variable(&mut self, name: &str) -> Result<Typed, Message> {
        let variable = self.session.variable(name)?;
        let name = name.to_lowercase();
        if let Some(number) = self.variables.get(&name) {
            return Ok(Typed::of(format!("?{number}"), variable.kind));
        }
        let bound = self.bind_long(variable.value.clone())?;
        self.variables.insert(name, self.values.len());
        Ok(Typed::of(bound, variable.kind))
    }

    /// The same as [`Translator::bind`] for what no query's length bounds.
    fn bind_long(&mut self, value: Value) -> Result<String, Message> {
        self.sum.add(&value)?;
        Ok(self.bind(value))
    }

    fn new_alias(&mut self) -> String {
        self.aliases += 1;
        format!("t{}", self.aliases - 1)
    }

    fn descend<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Message>,
    ) -> Result<T, Message> {
        if self.depth >= DEPTH_MAX {
            return Err(message::NESTED_TOO_DEEPLY.plain());
        }
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(message::NO_PLAN.plain());
        }
        if self.session.is_cancelled() {
            return Err(message::ABORTED.plain());
        }
        self.depth += 1;
        let result = work(self);
        self.depth -= 1;
        result
    }

    fn query(&mut self, query: &Query) -> Result<Selected, Message> {
        self.descend(|t| t.query_of(query))
    }

    fn query_of(&mut self, query: &Query) -> Result<Selected, Message> {
        if query.for_clause.is_some() {
            return Err(not_here("FOR XML or FOR JSON"));
        }
        let before = self.commons.len();
        let mut head = String::new();
        if let Some(with) = &query.with {
            let mut parts = Vec::new();
            for cte in &with.cte_tables {
                let selected = self.query(&cte.query)?;
                let columns = renamed(selected.columns, &cte.alias.columns)?;
                let alias = self.new_alias();
                let names: Vec<_> = (0..columns.len()).map(column_alias).collect();
                parts.push(format!(
                    "{alias}({}) AS ({})",
                    names.join(", "),
                    selected.sql
                ));
                let name = cte.alias.name.value.clone();
                self.commons.push(Common {
                    name,
                    alias,
                    columns,
                });
            }
            head = format!("WITH {} ", parts.join(", "));
        }
        let mut selected = match query.body.as_ref() {
            SetExpr::Select(select) => self.select(select, query)?,
            body => {
                let mut selected = self.set(body)?;
                self.order_of_set(query, &mut selected)?;
                selected
            }
        };
        self.commons.truncate(before);
        selected.sql = head + &selected.sql;
        Ok(selected)
    }

    /// A SELECT, or several that UNION and its kin combine.
    fn set(&mut self, body: &SetExpr) -> Result<Selected, Message> {
        self.descend(|t| match body {
            SetExpr::Select(select) => {
                let mut selected = t.plain_select(select)?;
                // SQLite takes no LIMIT within.
                selected.sql = format!("SELECT * FROM ({})", selected.sql);
                Ok(selected)
            }
            SetExpr::Query(query) => {
                let mut selected = t.query(query)?;
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
                let columns = left
                    .columns
                    .iter()
                    .zip(&right.columns)
                    .map(|(a, b)| Column::new(a.name.clone(), wider(a.kind, b.kind)))
                    .collect();
                Ok(Selected {
                    sql: format!("{} {word} {}", left.sql, right.sql),
                    columns,
                    assigns: Vec::new(),
                })
            }
            _ => Err(not_here("this kind of query")),
        })
    }

    /// ORDER BY after a UNION names columns or their places.
    fn order_of_set(&mut self, query: &Query, selected: &mut Selected) -> Result<(), Message> {
        let mut words = Vec::new();
        for order in orders(query)? {
            let at = match &order.expr {
                Expr::Value(value) => match &value.value {
                    Literal::Number(n, _) => n.parse::<usize>().ok().filter(|n| *n > 0),
                    _ => None,
                },
                Expr::Identifier(name) => position(&selected.columns, &name.value).map(|i| i + 1),
                _ => None,
            };
            let at = at.filter(|n| *n <= selected.columns.len());
            let at = at.ok_or_else(|| message::COLUMN_UNKNOWN.with(&[&order.expr]))?;
            words.push(format!("{at}{}", direction(order)));
        }
        if !words.is_empty() {
            selected.sql += &format!(" ORDER BY {}", words.join(", "));
        }
        selected.sql += &self.limit(query, None)?;
        Ok(())
    }

    fn plain_select(&mut self, select: &Select) -> Result<Selected, Message> {
        self.select_of(select, &[], |_| Ok(String::new()))
    }

    fn select(&mut self, select: &Select, query: &Query) -> Result<Selected, Message> {
        let orders: Vec<&OrderByExpr> = orders(query)?;
        self.select_of(select, &orders, |t| t.limit(query, select.top.as_ref()))
    }

    fn select_of(
        &mut self,
        select: &Select,
        orders: &[&OrderByExpr],
        limit: impl FnOnce(&mut Self) -> Result<String, Message>,
    ) -> Result<Selected, Message> {
        if select.into.is_some() {
            return Err(not_here("SELECT INTO"));
        }
        let from = self.from(&select.from)?;
        let done = self.select_within(select, orders, &from, limit);
        self.scopes.pop();
        done
    }

    fn select_within(
        &mut self,
        select: &Select,
        orders: &[&OrderByExpr],
        from: &str,
        limit: impl FnOnce(&mut Self) -> Result<String, Message>,
    ) -> Result<Selected, Message> {
        let (items, assigns) = self.projection(select)?;
        let distinct = match &select.distinct {
            None | Some(Distinct::All) => "",
            Some(Distinct::Distinct) => "DISTINCT ",
            Some(Distinct::On(_)) => return Err(not_here("DISTINCT ON")),
        };
        let list: Vec<_> = items
            .iter()
            .enumerate()
            .map(|(i, (_, item))| {
                let folded = if distinct.is_empty() {
                    item.sql.clone()
                } else {
                    folded(item)
                };
                format!("{folded} AS {}", column_alias(i))
            })
            .collect();
        let mut sql = format!("SELECT {distinct}{}{from}", list.join(", "));
        if let Some(selection) = &select.selection {
            sql += &format!(" WHERE {}", self.expression(selection)?.sql);
        }
        match &select.group_by {
            GroupByExpr::Expressions(by, modifiers) if modifiers.is_empty() => {
                let by: Result<Vec<_>, _> = by
                    .iter()
                    .map(|e| Ok(folded(&self.expression(e)?)))
                    .collect();
                let by = by?;
                if !by.is_empty() {
                    sql += &format!(" GROUP BY {}", by.join(", "));
                }
            }
            _ => return Err(not_here("GROUP BY with ROLLUP, CUBE or ALL")),
        }
        if let Some(having) = &select.having {
            sql += &format!(" HAVING {}", self.expression(having)?.sql);
        }
        let mut words = Vec::new();
        for order in orders {
            words.push(self.order(order, &items)?);
        }
        if !words.is_empty() {
            sql += &format!(" ORDER BY {}", words.join(", "));
        }
        let is_set = orders.is_empty();
        let end = limit(self)?;
        sql += &end;
        if is_set && end.is_empty() {
            sql += &self.top(select.top.as_ref())?;
        }
        let columns = items
            .into_iter()
            .map(|(name, item)| Column::new(name, item.kind()))
            .collect();
        Ok(Selected {
            sql,
            columns,
            assigns,
        })
    }

    /// ORDER BY names a result's column, its place, or any expression.
    fn order(&mut self, order: &OrderByExpr, items: &[(String, Typed)]) -> Result<String, Message> {
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
                format!("{}{}", column_alias(i), collation(item.kind()))
            }
            None => folded(&self.expression(&order.expr)?),
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
                self.bind(Value::Int(n))
            }
            Some(TopQuantity::Expr(e)) => self.expression(e)?.sql,
            None => return Err(not_here("TOP without a number")),
        };
        Ok(format!(" LIMIT max(0, {count})"))
    }

    fn limit(&mut self, query: &Query, top: Option<&Top>) -> Result<String, Message> {
        let mut limit = self.top(top)?;
        if let Some(fetch) = &query.fetch {
            if fetch.percent || fetch.with_ties {
                return Err(not_here("FETCH with PERCENT or TIES"));
            }
            let count = match &fetch.quantity {
                Some(quantity) => self.expression(quantity)?.sql,
                None => "1".to_owned(),
            };
            limit = format!(" LIMIT {count}");
        }
        match &query.limit_clause {
            None => Ok(limit),
            Some(LimitClause::LimitOffset {
                limit: None,
                offset: Some(offset),
                limit_by,
            }) if limit_by.is_empty() => {
                let skip = self.expression(&offset.value)?.sql;
                match limit.is_empty() {
                    true => Ok(format!(" LIMIT -1 OFFSET {skip}")),
                    false => Ok(format!("{limit} OFFSET {skip}")),
                }
            }
            Some(_) => Err(not_here("LIMIT")),
        }
    }

    /// The items of a SELECT with their names, and the variables that they are for.
    fn projection(&mut self, select: &Select) -> Result<(Vec<Item>, Vec<String>), Message> {
        let mut items = Vec::new();
        let mut assigns = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(Expr::BinaryOp {
                    left,
                    op: sqlparser::ast::BinaryOperator::Eq,
                    right,
                }) if variable(left).is_some() => {
                    assigns.extend(variable(left).map(str::to_owned));
                    items.push((String::new(), self.expression(right)?));
                }
                SelectItem::UnnamedExpr(expr) => {
                    let name = match expr {
                        Expr::Identifier(name) if !name.value.starts_with('@') => {
                            name.value.clone()
                        }
                        Expr::CompoundIdentifier(names) => {
                            names.last().map_or(String::new(), |n| n.value.clone())
                        }
                        _ => String::new(),
                    };
                    items.push((name, self.expression(expr)?));
                }
                SelectItem::ExprWithAlias { expr, alias } if alias.value.starts_with('@') => {
                    assigns.push(alias.value.clone());
                    items.push((String::new(), self.expression(expr)?));
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    items.push((alias.value.clone(), self.expression(expr)?));
                }
                SelectItem::Wildcard(_) => {
                    let tables = self.scopes.last().cloned().unwrap_or_default();
                    if tables.is_empty() {
                        return Err(message::STAR_WITHOUT_TABLE.plain());
                    }
                    tables.iter().for_each(|t| items.extend(all_of(t)));
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    _,
                ) => {
                    let last = tables::parts(name).pop().unwrap_or_default();
                    let tables = self.scopes.last().cloned().unwrap_or_default();
                    let table = tables.iter().find(|t| t.name.eq_ignore_ascii_case(&last));
                    let table = table.ok_or_else(|| message::PREFIX_UNKNOWN.with(&[&last]))?;
                    items.extend(all_of(table));
                }
                SelectItem::QualifiedWildcard(..) | SelectItem::ExprWithAliases { .. } => {
                    return Err(not_here("this kind of column"));
                }
            }
        }
        match assigns.is_empty() || assigns.len() == items.len() {
            true => Ok((items, assigns)),
            false => Err(message::ASSIGNS_AND_ROWS.plain()),
        }
    }
}

fn variable(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Identifier(name) if name.value.starts_with('@') => Some(&name.value),
        _ => None,
    }
}

fn all_of(table: &Table) -> Vec<Item> {
    let columns = table.columns.iter().enumerate();
    columns
        .map(|(i, column)| {
            let sql = format!("{}.{}", table.alias, column_alias(i));
            (column.name.clone(), Typed::of(sql, column.kind))
        })
        .collect()
}

fn position(columns: &[Column], name: &str) -> Option<usize> {
    columns
        .iter()
        .position(|c| c.name.eq_ignore_ascii_case(name))
}

fn renamed(
    mut columns: Vec<Column>,
    names: &[sqlparser::ast::TableAliasColumnDef],
) -> Result<Vec<Column>, Message> {
    if names.is_empty() {
        return Ok(columns);
    }
    if names.len() != columns.len() {
        return Err(message::UNION_COLUMNS.plain());
    }
    for (column, name) in columns.iter_mut().zip(names) {
        column.name = name.name.value.clone();
    }
    Ok(columns)
}

/// Texts are compared without regard to case.
fn collation(kind: Type) -> &'static str {
    match kind.is_text() {
        true => " COLLATE NOCASE",
        false => "",
    }
}

fn folded(item: &Typed) -> String {
    format!("{}{}", item.sql, collation(item.kind()))
}

fn orders(query: &Query) -> Result<Vec<&OrderByExpr>, Message> {
    match query.order_by.as_ref().map(|o| &o.kind) {
        None => Ok(Vec::new()),
        Some(OrderByKind::Expressions(all)) => Ok(all.iter().collect()),
        Some(OrderByKind::All(_)) => Err(not_here("ORDER BY ALL")),
    }
}

fn direction(order: &OrderByExpr) -> &'static str {
    match order.options.sort {
        Some(sqlparser::ast::OrderBySort::Desc) => " DESC",
        _ => "",
    }
}
