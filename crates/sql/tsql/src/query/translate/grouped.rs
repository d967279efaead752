//! Subqueries that name the row outside, answered for all rows at once.
//!
//! ```text
//! (SELECT MAX(finish) FROM sets c WHERE c.name = b.name AND c.type = 'D')
//!
//! (WITH g AS MATERIALIZED (SELECT c.name AS k0, MAX(finish) AS v FROM sets c WHERE c.type = 'D' GROUP BY c.name)
//!  SELECT (SELECT v FROM g WHERE g.k0 = b.name))
//! ```
//!
//! SQLite runs the first for each row of `b`, and each time reads all sets: names are compared in an order of ours, which
//! no index of the catalog has. Of the second it makes `g` once, and an index of its keys: the time grows as the sets do.
//!
//! Invariants
//! - The rows are the same. What may fail for a row that the subquery would not have looked at is not grouped.
//! - Where an index of the catalog finds the rows, nothing is grouped: a query of few rows stays short.

use sqlparser::ast::{BinaryOperator, Expr, Select, Top, TopQuantity, Value as Literal};

use super::expression::comparison;
use super::{Item, SQL_LEN_MAX, SelectPurpose, Translator, column_alias};
use crate::message::{self, Message};
use crate::query::schema::has_index;

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

    /// Whether a column is of a query around the one of this scope.
    pub fn is_outside(self, scope: usize) -> bool {
        self.0.is_some_and(|(least, _)| least < scope)
    }

    fn is_inside(self, scope: usize) -> bool {
        self.0.is_some_and(|(_, greatest)| greatest >= scope)
    }

    /// The row outside, and nothing else.
    fn is_outer(self, scope: usize) -> bool {
        self.is_outside(scope) && !self.is_inside(scope)
    }

    fn is_own(self, scope: usize) -> bool {
        self.is_inside(scope) && !self.is_outside(scope)
    }
}

/// One of two values that are compared.
#[derive(Debug)]
pub(super) struct Side {
    pub sql: String,
    pub reach: Reach,
}

impl Side {
    /// It has a value for each row, or fails whichever the row is.
    fn is_safe(&self) -> bool {
        self.reach.0.is_none() || is_safe(&self.sql)
    }
}

/// Functions of ours may refuse what they are given; this one only what no script has.
fn is_safe(sql: &str) -> bool {
    !sql.replace("ts_like(", "").contains("ts_")
}

/// What AND combines in a WHERE clause.
#[derive(Debug)]
pub(super) enum Condition {
    Comparison {
        left: Side,
        word: &'static str,
        right: Side,
        clause: &'static str,
    },
    Other(Side),
}

impl Condition {
    pub fn sql(&self) -> String {
        match self {
            Condition::Comparison {
                left,
                word,
                right,
                clause,
            } => format!("({} {word} {}{clause})", left.sql, right.sql),
            Condition::Other(side) => side.sql.clone(),
        }
    }

    fn reach(&self) -> Reach {
        match self {
            Condition::Comparison { left, right, .. } => left.reach.with(right.reach),
            Condition::Other(side) => side.reach,
        }
    }

    fn is_safe(&self) -> bool {
        match self {
            Condition::Comparison { left, right, .. } => left.is_safe() && right.is_safe(),
            Condition::Other(side) => side.is_safe(),
        }
    }
}

/// A SELECT as it was translated.
pub(super) struct Shape<'a> {
    pub wanted: SelectPurpose,
    pub select: &'a Select,
    pub items: &'a [Item],
    pub item_reach: Reach,
    pub from: &'a str,
    pub conditions: &'a [Condition],
    pub orders: &'a [String],
    pub order_reach: Reach,
    pub has_aggregate: bool,
    pub has_window: bool,
}

/// A comparison of a row inside with the row outside.
struct Pair<'a> {
    own: &'a str,
    outer: &'a str,
    /// As it stands between the own side and the outer one.
    word: &'static str,
    clause: &'static str,
}

/// What becomes of each condition.
#[derive(Default)]
struct SortedConditions<'a> {
    keys: Vec<Pair<'a>>,
    ranges: Vec<Pair<'a>>,
    local: Vec<String>,
    outer: Vec<String>,
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

    /// The conditions that AND combines.
    pub(super) fn conditions(
        &mut self,
        expr: &Expr,
        all: &mut Vec<Condition>,
    ) -> Result<(), Message> {
        let condition = match expr {
            Expr::BinaryOp {
                left,
                op: BinaryOperator::And,
                right,
            } => {
                return self.descend(|t| {
                    t.conditions(left, all)?;
                    t.conditions(right, all)
                });
            }
            Expr::Nested(inner) if matches!(**inner, Expr::Nested(_) | Expr::BinaryOp { .. }) => {
                return self.descend(|t| t.conditions(inner, all));
            }
            Expr::BinaryOp { left, op, right } if comparison(op).is_some() => {
                let (left, right, clause) = self.descend(|t| t.sides(left, right))?;
                Condition::Comparison {
                    left,
                    word: comparison(op).unwrap_or_default(),
                    right,
                    clause,
                }
            }
            other => {
                let (typed, reach) = self.watched(|t| t.expression(other))?;
                let sql = typed.sql;
                Condition::Other(Side { sql, reach })
            }
        };
        if condition.sql().len() > SQL_LEN_MAX {
            return Err(message::NO_PLAN.plain());
        }
        all.push(condition);
        Ok(())
    }

    /// A query that gives the same and whose rows are grouped once: its WITH clause, and the rest. `None`: there is none,
    /// or an index does better.
    pub(super) fn grouped(&mut self, shape: &Shape) -> Option<(String, String)> {
        let at = self.scopes.len() - 1;
        let sorted = self.sorted(shape, at)?;
        let has_top = shape.select.top.is_some();
        let item = match shape.items {
            [(_, item)] => Some(&item.sql),
            _ => None,
        };
        let own_item = item.filter(|sql| !shape.item_reach.is_outside(at) && is_safe(sql));
        let group = self.new_alias();
        let from = match sorted.local.is_empty() {
            true => shape.from.to_owned(),
            false => format!("{} WHERE {}", shape.from, sorted.local.join(" AND ")),
        };
        let keys = |sql: fn(usize, &Pair) -> String| {
            let all = sorted.keys.iter().enumerate();
            all.map(|(i, pair)| sql(i, pair)).collect::<Vec<_>>()
        };
        let named = keys(|i, key| format!("{} AS k{i}", key.own)).join(", ");
        let by = keys(|_, key| format!("{}{}", key.own, key.clause)).join(", ");
        let found = keys(|i, key| format!("(k{i} = {}{})", key.outer, key.clause));
        let found: Vec<_> = found.into_iter().chain(sorted.outer).collect();
        let found = found.join(" AND ");
        let (made, sql) = match (shape.wanted, sorted.ranges.as_slice()) {
            (SelectPurpose::Existence, _) if shape.has_aggregate || has_top => return None,
            (SelectPurpose::Existence, []) => (
                format!("SELECT {named}{from} GROUP BY {by}"),
                format!("SELECT 1 AS {} FROM {group} WHERE {found}", column_alias(0)),
            ),
            // A row is above the one outside where the highest is.
            (SelectPurpose::Existence, [range]) => {
                let extreme = match range.word {
                    ">" | ">=" => "max",
                    _ => "min",
                };
                let Pair { own, clause, .. } = range;
                let above = format!("(v {} {}{clause})", range.word, range.outer);
                (
                    format!("SELECT {named}, {extreme}({own}{clause}) AS v{from} GROUP BY {by}"),
                    format!(
                        "SELECT 1 AS {} FROM {group} WHERE {found} AND {above}",
                        column_alias(0)
                    ),
                )
            }
            (SelectPurpose::Values, [])
                if shape.has_aggregate && !has_top && shape.orders.is_empty() =>
            {
                let name = aggregate(shape.select)?;
                let value = format!("(SELECT v FROM {group} WHERE {found})");
                // There is a row also where there is no group.
                let value = match name.starts_with("COUNT") {
                    true => format!("ifnull({value}, 0)"),
                    false => value,
                };
                (
                    format!("SELECT {named}, {} AS v{from} GROUP BY {by}", own_item?),
                    format!("SELECT {value} AS {}", column_alias(0)),
                )
            }
            (SelectPurpose::Values, [])
                if is_one(shape.select.top.as_ref()) && !shape.has_aggregate =>
            {
                let is_plain = !shape.has_window && !shape.order_reach.is_outside(at);
                let item = own_item.filter(|_| is_plain)?;
                let mut over = format!("PARTITION BY {by}");
                if !shape.orders.is_empty() {
                    let all = shape.orders.iter().map(|order| spelled(order, item));
                    over += &format!(" ORDER BY {}", all.collect::<Option<Vec<_>>>()?.join(", "));
                }
                (
                    format!(
                        "SELECT * FROM (SELECT {named}, {item} AS v, row_number() OVER ({over}) AS n{from}) WHERE n = 1"
                    ),
                    format!("SELECT v AS {} FROM {group} WHERE {found}", column_alias(0)),
                )
            }
            _ => return None,
        };
        Some((format!("{group} AS MATERIALIZED ({made})"), sql))
    }

    /// `None`: a condition cannot be looked up by keys, or there are no keys.
    fn sorted<'a>(&self, shape: &Shape<'a>, at: usize) -> Option<SortedConditions<'a>> {
        let mut sorted = SortedConditions::default();
        for condition in shape.conditions {
            let reach = condition.reach();
            if !reach.is_outside(at) {
                sorted
                    .local
                    .push(condition.is_safe().then(|| condition.sql())?);
                continue;
            }
            // Where no row inside is left, the subquery does not look at the row outside.
            if !reach.is_inside(at) {
                sorted
                    .outer
                    .push(condition.is_safe().then(|| condition.sql())?);
                continue;
            }
            let Condition::Comparison {
                left,
                word,
                right,
                clause,
            } = condition
            else {
                return None;
            };
            let (own, outer, word) = match (left.reach.is_own(at), right.reach.is_own(at)) {
                (true, false) => (left, right, *word),
                (false, true) => (right, left, turned(word)),
                _ => return None,
            };
            if !outer.reach.is_outer(at) || !is_safe(&own.sql) || !is_safe(&outer.sql) {
                return None;
            }
            let pair = Pair {
                own: &own.sql,
                outer: &outer.sql,
                word,
                clause,
            };
            match word {
                "=" if self.has_index(&own.sql) => return None,
                "=" => sorted.keys.push(pair),
                "<>" => return None,
                _ => sorted.ranges.push(pair),
            }
        }
        (!sorted.keys.is_empty()).then_some(sorted)
    }

    /// Whether it is a column that the catalog finds rows by.
    fn has_index(&self, sql: &str) -> bool {
        let tables = self.scopes.last().into_iter().flatten();
        tables.into_iter().any(|table| {
            let place = sql.strip_prefix(table.prefix.as_str());
            let column = place.and_then(|alias| {
                let mut columns = table.columns.iter().enumerate();
                columns.find(|(i, _)| column_alias(*i) == alias)
            });
            match (table.view, column) {
                (Some(view), Some((_, column))) => has_index(view, &column.name),
                _ => false,
            }
        })
    }
}

/// The same comparison with its sides exchanged.
fn turned(word: &'static str) -> &'static str {
    match word {
        "<" => ">",
        ">" => "<",
        "<=" => ">=",
        ">=" => "<=",
        same => same,
    }
}

/// The only item's name, where it is an aggregate and nothing else, of which the order of the rows does not count.
fn aggregate(select: &Select) -> Option<String> {
    use sqlparser::ast::SelectItem::{ExprWithAlias, UnnamedExpr};
    let mut expr = match select.projection.as_slice() {
        [UnnamedExpr(expr) | ExprWithAlias { expr, .. }] => expr,
        _ => return None,
    };
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    match expr {
        Expr::Function(function) if function.over.is_none() => {
            let name = function.name.to_string().to_ascii_uppercase();
            let known = ["COUNT", "COUNT_BIG", "SUM", "AVG", "MIN", "MAX"];
            known.contains(&name.as_str()).then_some(name)
        }
        _ => None,
    }
}

/// `TOP 1`
fn is_one(top: Option<&Top>) -> bool {
    let Some(top) = top.filter(|t| !t.percent && !t.with_ties) else {
        return false;
    };
    match &top.quantity {
        Some(TopQuantity::Constant(n)) => *n == 1,
        Some(TopQuantity::Expr(Expr::Value(value))) => {
            matches!(&value.value, Literal::Number(n, _) if n == "1")
        }
        _ => false,
    }
}

/// A word of ORDER BY where the only item has no name yet. `None`: it may fail.
fn spelled(order: &str, item: &str) -> Option<String> {
    let spelled = match order.strip_prefix(&column_alias(0)) {
        Some(rest) => format!("{item}{rest}"),
        None => order.to_owned(),
    };
    is_safe(&spelled).then_some(spelled)
}
