//! Translates GROUP BY ROLLUP, CUBE and their older forms: one query for each set of groups, combined by UNION ALL.
//!
//! Invariants
//! - An expression of GROUP BY that a set leaves out is NULL there, but inside of an aggregate; GROUPING says which.
//! - Expressions are the same if their SQL is, with the values that it binds in place of their numbers.
//! - The number of sets is bounded.
//!
//! Leaves to others: a query with one set of groups (`translate.rs`).

use sqlparser::ast::{Expr, Function, GroupByExpr, Query, Select};

use super::call::plain_arguments;
use super::state::{GroupingSet, SelectPurpose, SelectedColumns, Translator, TypedSql, not_here};
use super::tables;
use crate::message::{self, Message};
use crate::query::number::wider;
use crate::value::{Column, Type, Value};

/// The most expressions of CUBE.
const CUBE_MAX: usize = 8;
/// The most expressions of ROLLUP.
const ROLLUP_MAX: usize = 32;

/// The sets of groups that GROUP BY names, as expressions that each of them has; `None`: only one.
fn sets(by: &GroupByExpr) -> Result<Option<Vec<Vec<&Expr>>>, Message> {
    let GroupByExpr::Expressions(by, modifiers) = by else {
        return Ok(None);
    };
    if !modifiers.is_empty() {
        return Err(not_here("this form of GROUP BY"));
    }
    let mut plain = Vec::new();
    let mut found: Option<(bool, Vec<Vec<&Expr>>)> = None;
    for expr in by {
        let set = match expr {
            Expr::Rollup(parts) | Expr::Cube(parts) => {
                let is_cube = matches!(expr, Expr::Cube(_));
                Some((is_cube, parts.iter().map(|p| p.iter().collect()).collect()))
            }
            Expr::GroupingSets(_) => return Err(not_here("GROUPING SETS")),
            Expr::Function(function) => {
                let name = tables::parts(&function.name).join(".").to_ascii_uppercase();
                match name.as_str() {
                    "ROLLUP" | "CUBE" => {
                        let parts = plain_arguments(function)?;
                        let parts = parts.into_iter().map(|part| match part {
                            Expr::Tuple(all) => all.iter().collect(),
                            part => vec![part],
                        });
                        Some((name == "CUBE", parts.collect()))
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        match (set, &found) {
            (Some(set), None) => found = Some(set),
            (Some(_), Some(_)) => return Err(not_here("several ROLLUP or CUBE")),
            (None, _) => plain.push(expr),
        }
    }
    let Some((is_cube, parts)) = found else {
        return Ok(None);
    };
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
        plain.iter().copied().chain(own).collect()
    };
    Ok(Some(chosen.into_iter().map(set).collect()))
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
        let all = sets.first().cloned().unwrap_or_default();
        let mut made: Option<SelectedColumns> = None;
        let mut parts = Vec::new();
        for set in &sets {
            let mut one = select.clone();
            one.top = None;
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
        made.sql = parts.join(" UNION ALL ");
        self.order_of_set(query, &mut made)?;
        let limit = self.top(select.top.as_ref())?;
        made.sql += &limit;
        Ok(Some(made))
    }

    /// Translates the expressions of all sets, in the scope of the query's tables.
    pub(super) fn begin_grouping(&mut self, pending: Vec<(Expr, bool)>) -> Result<(), Message> {
        let mut all = Vec::new();
        for (expr, has) in &pending {
            all.push((self.sameness(expr)?, *has));
        }
        self.grouping = (!pending.is_empty()).then_some(GroupingSet {
            all,
            is_held: false,
        });
        Ok(())
    }

    /// The text that equal expressions have in common. The values that it binds are dropped: it is not run.
    fn sameness(&mut self, expr: &Expr) -> Result<String, Message> {
        let mut expr = expr;
        while let Expr::Nested(inner) = expr {
            expr = inner;
        }
        let (values, tables) = (self.values.len(), self.tables.len());
        let variables = self.variables.clone();
        let seen = std::mem::take(&mut self.seen);
        let typed = self.all_held(|t| t.unheld(expr));
        let text = typed.map(|typed| self.with_values(&typed.sql.to_string()));
        self.seen = seen;
        self.variables = variables;
        self.tables.truncate(tables);
        self.values.truncate(values);
        text
    }

    /// SQL with the values in place of their numbers.
    fn with_values(&self, sql: &str) -> String {
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
        let typed = self.all_held(|t| t.unheld(expr))?;
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

    /// GROUPING: 1 where the set leaves the expression out.
    pub(super) fn grouping_of(&mut self, function: &Function) -> Result<TypedSql, Message> {
        let arguments = plain_arguments(function)?;
        let [expr] = arguments.as_slice() else {
            return Err(message::ARGUMENT_COUNT.with(&[&"grouping", &1]));
        };
        let text = self.sameness(expr)?;
        let set = self.grouping.clone().unwrap_or_default();
        let found = set.all.iter().find(|(sql, _)| *sql == text);
        let is_out = found.is_some_and(|(_, has)| !has);
        Ok(TypedSql::of(
            self.bind(Value::Int(is_out.into())),
            Type::TinyInt,
        ))
    }
}
