//! Translates GROUP BY ROLLUP, CUBE, GROUPING SETS and their older forms: one query for each set of groups, combined by UNION ALL.
//!
//! Invariants
//! - An expression of GROUP BY that a set leaves out is NULL there, but inside of an aggregate; GROUPING says which.
//! - Expressions are the same if their SQL is, with the values that it binds in place of their numbers.
//! - The number of sets is bounded.
//!
//! Leaves to others: a query with one set of groups (`translate.rs`).

use sqlparser::ast::{
    Distinct, Expr, Function, GroupByExpr, OrderByExpr, Query, Select, SelectItem,
};

use super::call::plain_arguments;
use super::state::{
    GroupingSet, SelectPurpose, SelectedColumns, Translator, TypedSql, column_alias, direction,
    folded, not_here, position,
};
use super::{orders, select_list, tables, top};
use crate::message::{self, Message};
use crate::query::collation::Label;
use crate::query::number::wider;
use crate::query::parse::{EMPTY_SET, GROUPING_SETS};
use crate::value::{Column, Type, Value};

/// The most expressions of CUBE.
const CUBE_MAX: usize = 8;
/// The most expressions of ROLLUP.
const ROLLUP_MAX: usize = 32;

/// The most sets of groups.
const SETS_MAX: usize = 1 << CUBE_MAX;

/// The sets that ROLLUP, CUBE or GROUPING SETS means; `None`: it is a plain expression.
fn sets_of(expr: &Expr) -> Result<Option<Vec<Vec<&Expr>>>, Message> {
    let (name, parts) = match expr {
        Expr::Rollup(parts) => ("ROLLUP", parts.iter().map(|p| p.iter().collect()).collect()),
        Expr::Cube(parts) => ("CUBE", parts.iter().map(|p| p.iter().collect()).collect()),
        Expr::Function(function) => {
            let name = tables::parts(&function.name).join(".").to_ascii_uppercase();
            let known = ["ROLLUP", "CUBE", GROUPING_SETS, EMPTY_SET];
            let Some(name) = known.into_iter().find(|known| *known == name) else {
                return Ok(None);
            };
            let given = plain_arguments(function)?;
            if name == EMPTY_SET {
                return Ok(Some(vec![Vec::new()]));
            }
            if name == GROUPING_SETS {
                let mut all = Vec::new();
                for one in given {
                    match sets_of(one)? {
                        Some(sets) => all.extend(sets),
                        None => all.push(members(one)),
                    }
                }
                return Ok(Some(all));
            }
            (name, given.into_iter().map(members).collect::<Vec<_>>())
        }
        _ => return Ok(None),
    };
    let is_cube = name == "CUBE";
    let most = if is_cube { CUBE_MAX } else { ROLLUP_MAX };
    if parts.len() > most {
        return Err(message::NO_PLAN.plain());
    }
    let chosen: Vec<Vec<usize>> = match is_cube {
        false => (0..=parts.len()).rev().map(|n| (0..n).collect()).collect(),
        true => {
            let every = (0..1_usize << parts.len()).rev();
            let last = parts.len().saturating_sub(1);
            let members = |mask: usize| {
                let all = 0..=last;
                all.filter(move |i| mask >> (last - i) & 1 == 1)
            };
            every.map(|mask| members(mask).collect()).collect()
        }
    };
    let set = |chosen: Vec<usize>| {
        let own = chosen.into_iter().flat_map(|i| parts[i].iter().copied());
        own.collect()
    };
    Ok(Some(chosen.into_iter().map(set).collect()))
}

/// `(a, b)` as its expressions; any other expression alone.
fn members(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Tuple(all) => all.iter().collect(),
        Expr::Nested(inner) => members(inner),
        expr => vec![expr],
    }
}

/// The sets of groups that GROUP BY names, as expressions that each of them has; `None`: only one. Of several lists of
/// sets each set of one goes with each of the others.
fn sets(by: &GroupByExpr) -> Result<Option<Vec<Vec<&Expr>>>, Message> {
    let GroupByExpr::Expressions(by, modifiers) = by else {
        return Ok(None);
    };
    if !modifiers.is_empty() {
        return Err(not_here("this form of GROUP BY"));
    }
    let mut all: Vec<Vec<&Expr>> = vec![Vec::new()];
    let mut is_plain = true;
    for expr in by {
        let own = match sets_of(expr)? {
            Some(own) => {
                is_plain = false;
                own
            }
            None => vec![vec![expr]],
        };
        if all.len().saturating_mul(own.len()) > SETS_MAX {
            return Err(message::NO_PLAN.plain());
        }
        let mut both = Vec::new();
        for set in &all {
            both.extend(own.iter().map(|one| [set.as_slice(), one].concat()));
        }
        all = both;
    }
    Ok((!is_plain).then_some(all))
}

/// Whether ORDER BY means something else than a column of the result.
fn is_hidden(select: &Select, order: &OrderByExpr) -> bool {
    match &order.expr {
        Expr::Identifier(name) => !select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(Expr::Identifier(own)) => {
                own.value.eq_ignore_ascii_case(&name.value)
            }
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(own)) => own
                .last()
                .is_some_and(|own| own.value.eq_ignore_ascii_case(&name.value)),
            SelectItem::ExprWithAlias { alias, .. } => {
                alias.value.eq_ignore_ascii_case(&name.value)
            }
            _ => false,
        }),
        expr => top::number(expr).is_none(),
    }
}

/// The place of the select list's item that ORDER BY repeats, as SELECT DISTINCT needs it. Behind `*` no place is known.
/// Errors: 145 for a column that is not selected, 50002 for another expression.
fn repeated(select: &Select, order: &OrderByExpr) -> Result<usize, Message> {
    let column = |expr: &Expr| match expr {
        Expr::Identifier(name) => Some(name.value.to_lowercase()),
        Expr::CompoundIdentifier(names) => names.last().map(|name| name.value.to_lowercase()),
        _ => None,
    };
    let is_short = |expr: &Expr| matches!(expr, Expr::Identifier(_));
    let text = |expr: &Expr| expr.to_string().to_lowercase();
    let (own, own_text) = (column(&order.expr), text(&order.expr));
    for (item, place) in select.projection.iter().zip(0..) {
        let expr = match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr,
            _ => break,
        };
        let is_same = (is_short(expr) || is_short(&order.expr)) && column(expr) == own;
        if text(expr) == own_text || own.is_some() && is_same {
            return Ok(place);
        }
    }
    Err(match own {
        Some(_) => message::ORDER_NOT_SELECTED.plain(),
        None => not_here("ORDER BY another expression in a SELECT DISTINCT of several groupings"),
    })
}

fn is_distinct(select: &Select) -> bool {
    !matches!(&select.distinct, None | Some(Distinct::All))
}

/// The words of ORDER BY over the rows of all sets, whose last columns are the hidden ones.
fn words(
    select: &Select,
    orders: &[&OrderByExpr],
    hidden: &[bool],
    (columns, labels): (&[Column], &[Label]),
) -> Result<Vec<String>, Message> {
    let added = hidden.iter().filter(|hidden| **hidden).count();
    let count = columns.len().saturating_sub(added);
    let mut words = Vec::new();
    let mut next = count;
    for (order, hidden) in orders.iter().zip(hidden) {
        let place = match (hidden, &order.expr) {
            (true, _) => {
                next += 1;
                Some(next - 1)
            }
            _ if is_distinct(select) && is_hidden(select, order) => Some(repeated(select, order)?),
            (false, Expr::Identifier(name)) => position(&columns[..count], &name.value),
            (false, expr) => top::number(expr).filter(|place| *place < count),
        };
        let place = place.filter(|place| *place < columns.len());
        let place = place.ok_or_else(|| message::COLUMN_UNKNOWN.with(&[&order.expr]))?;
        let typed = TypedSql::of(column_alias(place), columns[place].kind);
        let typed = typed.labelled(labels.get(place).cloned().unwrap_or_default());
        typed.text_label().as_column("ORDER BY", words.len() + 1)?;
        words.push(folded(&typed) + direction(order));
    }
    Ok(words)
}

impl Translator<'_> {
    /// A SELECT whose GROUP BY names several sets of groups; `None`: it does not.
    pub(super) fn grouping_sets(
        &mut self,
        select: &Select,
        query: &Query,
    ) -> Result<Option<SelectedColumns>, Message> {
        let Some(sets) = sets(&select.group_by)? else {
            return Ok(None);
        };
        let mut all: Vec<&Expr> = Vec::new();
        for expr in sets.iter().flatten() {
            if !all.iter().any(|known| std::ptr::eq(*known, *expr)) {
                all.push(expr);
            }
        }
        let orders = orders(query)?;
        if matches!(&select.distinct, Some(Distinct::On(_))) {
            return Err(not_here("DISTINCT ON"));
        }
        let is_distinct = is_distinct(select);
        let hidden: Vec<bool> = orders
            .iter()
            .map(|order| !is_distinct && is_hidden(select, order))
            .collect();
        let mut made: Option<SelectedColumns> = None;
        let mut parts = Vec::new();
        for set in &sets {
            let mut one = select.clone();
            one.top = None;
            // Rows of several sets may be the same: they are compared below.
            one.distinct = None;
            for (order, _) in orders.iter().zip(&hidden).filter(|(_, hidden)| **hidden) {
                let item = SelectItem::UnnamedExpr(order.expr.clone());
                one.projection.push(item);
            }
            let by = set.iter().map(|expr| (*expr).clone()).collect();
            one.group_by = GroupByExpr::Expressions(by, Vec::new());
            self.pending_groups = all
                .iter()
                .map(|expr| {
                    let has = set.iter().any(|own| std::ptr::eq(*own, *expr));
                    ((*expr).clone(), has)
                })
                .collect();
            self.queries += 1;
            let selected =
                self.select_of(&one, &[], Some(SelectPurpose::Rows), |_| Ok(String::new()));
            self.queries -= 1;
            let selected = selected?;
            if !selected.assigns.is_empty() {
                return Err(not_here("ROLLUP in a SELECT that sets variables"));
            }
            // The set of no groups has a row only where there are rows, as the others have.
            parts.push(format!("SELECT * FROM ({})", selected.sql));
            made = Some(match made {
                None => selected,
                // A column has one label in all sets.
                Some(first) => SelectedColumns {
                    columns: first
                        .columns
                        .iter()
                        .zip(&selected.columns)
                        .map(|(a, b)| Column::new(a.name.clone(), wider(a.kind, b.kind)))
                        .collect(),
                    ..first
                },
            });
        }
        let Some(mut made) = made else {
            return Ok(None);
        };
        let added = hidden.iter().filter(|hidden| **hidden).count();
        let count = made.columns.len().saturating_sub(added);
        let words = words(select, &orders, &hidden, (&made.columns, &made.labels))?;
        made.columns.truncate(count);
        let items = made.columns.iter().enumerate().map(|(i, column)| {
            let typed = TypedSql::of(column_alias(i), column.kind).labelled(made.label(i));
            (column.name.clone(), typed)
        });
        let list = select_list(&items.collect::<Vec<_>>(), is_distinct);
        let distinct = if is_distinct { "DISTINCT " } else { "" };
        made.sql = format!(
            "SELECT {distinct}{list} FROM ({})",
            parts.join(" UNION ALL ")
        );
        if !words.is_empty() {
            made.sql += &format!(" ORDER BY {}", words.join(", "));
        }
        made.sql += &self.limit(query, select.top.as_ref())?;
        Ok(Some(made))
    }

    /// Translates the expressions of all sets, in the scope of the query's tables.
    pub(super) fn begin_grouping(&mut self, pending: Vec<(Expr, bool)>) -> Result<(), Message> {
        let mut all: Vec<(String, bool)> = Vec::new();
        for (expr, has) in &pending {
            let text = self.sameness(expr)?;
            match all.iter_mut().find(|(known, _)| *known == text) {
                Some((_, known)) => *known |= has,
                None => all.push((text, *has)),
            }
        }
        self.grouping = (!pending.is_empty()).then_some(GroupingSet {
            all,
            is_held: false,
        });
        Ok(())
    }

    /// The text that equal expressions have in common. The values that it binds are dropped: it is not run.
    pub(super) fn sameness(&mut self, expr: &Expr) -> Result<String, Message> {
        let mut expr = expr;
        while let Expr::Nested(inner) = expr {
            expr = inner;
        }
        let (values, tables) = (self.values.len(), self.tables.len());
        let variables = self.variables.clone();
        let seen = std::mem::take(&mut self.seen);
        let typed = self.unruled(|t| t.all_held(|t| t.unheld(expr)));
        // A text under another collation makes other groups.
        let text = typed.map(|typed| {
            let sql = self.with_values(&typed.sql.to_string());
            sql + typed.collation()
        });
        self.seen = seen;
        self.variables = variables;
        self.tables.truncate(tables);
        self.values.truncate(values);
        text
    }

    /// SQL with the values in place of their numbers.
    pub(super) fn with_values(&self, sql: &str) -> String {
        let mut parts = sql.split('?');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(|c: char| !c.is_ascii_digit());
            let (number, rest) = part.split_at(end.unwrap_or(part.len()));
            let number = number.parse::<usize>().ok();
            let value = number.and_then(|n| self.values.get(n.checked_sub(1)?));
            text += &format!("{value:?}{rest}");
        }
        text
    }

    /// The value of an expression that GROUP BY names: NULL where the present set of groups, or that of a query outside,
    /// leaves it out. `None`: it is another expression.
    pub(super) fn of_set(&mut self, expr: &Expr) -> Result<Option<TypedSql>, Message> {
        let is_open = |set: &GroupingSet| !set.is_held && set.all.iter().any(|(_, has)| !has);
        let mut sets = self.outer_groupings.iter().chain(&self.grouping);
        if !sets.any(is_open) || matches!(expr, Expr::Value(_) | Expr::Nested(_)) {
            return Ok(None);
        }
        let text = self.sameness(expr)?;
        let sets = self.outer_groupings.iter().chain(&self.grouping);
        let mut all = sets.filter(|set| is_open(set)).flat_map(|set| &set.all);
        let Some(has) = all.find(|(own, _)| *own == text).map(|(_, has)| *has) else {
            return Ok(None);
        };
        let typed = self.unruled(|t| t.all_held(|t| t.unheld(expr)))?;
        Ok(Some(match has {
            true => typed,
            false => TypedSql {
                sql: crate::query::sql::Sql::null(),
                ..typed
            },
        }))
    }

    /// Works where the rows' own values count, those of queries outside as well.
    fn all_held<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let outer = std::mem::take(&mut self.outer_groupings);
        let done = self.held(work);
        self.outer_groupings = outer;
        done
    }

    /// Works where the rows' own values count.
    pub(super) fn held<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = self
            .grouping
            .as_mut()
            .map(|set| std::mem::replace(&mut set.is_held, true));
        let done = work(self);
        if let (Some(set), Some(before)) = (&mut self.grouping, before) {
            set.is_held = before;
        }
        done
    }

    /// GROUPING: 1 where the set leaves the expression out. GROUPING_ID: a digit of two for each expression. Errors: 8160,
    /// 8161.
    pub(super) fn grouping_of(
        &mut self,
        name: &str,
        function: &Function,
    ) -> Result<TypedSql, Message> {
        let arguments = plain_arguments(function)?;
        let is_list = name == "GROUPING_ID";
        if arguments.is_empty() || (!is_list && arguments.len() > 1) || arguments.len() > ROLLUP_MAX
        {
            return Err(message::ARGUMENT_COUNT.with(&[&name.to_lowercase(), &1]));
        }
        let Some(set) = self.grouping.clone() else {
            return Err(message::GROUPING_ALONE.plain());
        };
        let mut number = 0_i64;
        for (expr, place) in arguments.into_iter().zip(1..) {
            let text = self.sameness(expr)?;
            let found = set.all.iter().find(|(sql, _)| *sql == text);
            let (_, has) = found.ok_or_else(|| message::GROUPING_OTHER.with(&[&place, &name]))?;
            number = number << 1 | i64::from(!has);
        }
        let kind = if is_list { Type::Int } else { Type::TinyInt };
        Ok(TypedSql::of(self.bind(Value::Int(number)), kind))
    }
}
