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
//! - The rows are the same. A subquery is not grouped if that could fail for a row that it would not have read.
//! - Where an index of the catalog finds the rows, nothing is grouped: a query of few rows stays short.
//!
//! Leaves to others: translating the conditions' sides (`expression.rs`); the scopes that they reach (`comparison.rs`);
//! putting the parts into a query (`translate.rs`); which columns have an index (`schema.rs`).

use sqlparser::ast::{BinaryOperator, Expr, Select, Top, TopQuantity, Value as Literal};

use super::comparison::{Side, Sides, comparison};
use super::reach::Reach;
use super::state::{Item, SQL_LEN_MAX, SelectPurpose, Translator, column_alias};
use crate::message::{self, Message};
use crate::query::collation::Collation;
use crate::query::schema::has_index;
use crate::query::sql::Sql;

impl Side<Sql> {
    fn written(self) -> Side {
        Side {
            sql: self.sql.to_string(),
            reach: self.reach,
        }
    }
}

impl Side {
    /// It has a value for each row, or fails whichever the row is.
    fn is_safe(&self) -> bool {
        self.reach.is_empty() || is_safe(&self.sql)
    }
}

/// Functions of ours may refuse what they are given; these only what no script has.
fn is_safe(sql: &str) -> bool {
    let safe = ["ts_like(", "ts_cut(", "ts_heed("];
    let rest = safe
        .iter()
        .fold(sql.to_owned(), |rest, safe| rest.replace(safe, ""));
    !rest.contains("ts_")
}

/// The most alternatives of an OR that are looked up one by one.
const ALTERNATIVES_MAX: usize = 4;

/// One of the conditions that AND combines in a WHERE clause.
#[derive(Debug)]
pub(super) enum Condition {
    Comparison {
        left: Side,
        word: &'static str,
        right: Side,
        clause: &'static str,
    },
    /// What OR combines: each alternative is a row of conditions that AND combines.
    Any(Vec<Vec<Condition>>),
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
            Condition::Any(alternatives) => {
                let all = alternatives.iter().map(|all| {
                    let all: Vec<_> = all.iter().map(Condition::sql).collect();
                    all.join(" AND ")
                });
                format!("({})", all.collect::<Vec<_>>().join(" OR "))
            }
            Condition::Other(side) => side.sql.clone(),
        }
    }

    fn reach(&self) -> Reach {
        match self {
            Condition::Comparison { left, right, .. } => left.reach.with(right.reach),
            Condition::Any(alternatives) => {
                let all = alternatives.iter().flatten().map(Condition::reach);
                all.fold(Reach::default(), Reach::with)
            }
            Condition::Other(side) => side.reach,
        }
    }

    fn is_safe(&self) -> bool {
        match self {
            Condition::Comparison { left, right, .. } => left.is_safe() && right.is_safe(),
            Condition::Any(alternatives) => alternatives.iter().flatten().all(Condition::is_safe),
            Condition::Other(side) => side.is_safe(),
        }
    }

    /// The alternatives, if they compare the row inside with the row outside.
    fn alternatives(&self, scope: usize) -> Option<&[Vec<Condition>]> {
        let reach = self.reach();
        match self {
            Condition::Any(all) if reach.is_outside(scope) && reach.is_inside(scope) => Some(all),
            _ => None,
        }
    }
}

/// A SELECT as it was translated.
pub(super) struct TranslatedSelect<'a> {
    pub wanted: SelectPurpose,
    pub select: &'a Select,
    pub items: &'a [Item],
    pub item_reach: Reach,
    pub from: &'a str,
    pub conditions: &'a [&'a Condition],
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

/// The conditions, by the way in which each is used.
#[derive(Default)]
struct SortedConditions<'a> {
    keys: Vec<Pair<'a>>,
    /// At most one of these can be looked up next to the keys.
    ranges: Vec<Pair<'a>>,
    local: Vec<String>,
    outer: Vec<String>,
}

impl Translator<'_> {
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
            Expr::BinaryOp {
                op: BinaryOperator::Or,
                ..
            } if alternatives(expr).is_some() => {
                let mut each = Vec::new();
                for part in alternatives(expr).unwrap_or_default() {
                    let mut own = Vec::new();
                    self.descend(|t| t.conditions(part, &mut own))?;
                    each.push(own);
                }
                Condition::Any(each)
            }
            Expr::BinaryOp { left, op, right } if comparison(op).is_some() => {
                let Sides {
                    left,
                    right,
                    collation,
                } = self.descend(|t| t.sides(left, comparison(op).unwrap_or_default(), right))?;
                Condition::Comparison {
                    left: left.written(),
                    word: comparison(op).unwrap_or_default(),
                    right: right.written(),
                    clause: collation.map_or("", Collation::clause),
                }
            }
            other => {
                let (typed, reach) = self.watched(|t| t.expression(other))?;
                let sql = typed.sql;
                Condition::Other(Side { sql, reach }.written())
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
    pub(super) fn grouped(&mut self, shape: &TranslatedSelect) -> Option<(String, String)> {
        let at = self.scopes.len() - 1;
        let mixed = shape.conditions.iter().enumerate();
        let mut mixed = mixed.filter_map(|(i, c)| Some((i, c.alternatives(at)?)));
        let Some((place, alternatives)) = mixed.next() else {
            return self.grouped_all(shape);
        };
        if !matches!(shape.wanted, SelectPurpose::Existence) {
            return None;
        }
        // There is a row of any alternative where there is one of at least one of them.
        let (mut made, mut found) = (Vec::new(), Vec::new());
        for alternative in alternatives {
            let mut conditions = shape.conditions.to_vec();
            conditions.splice(place..=place, alternative);
            let (with, sql) = self.grouped_all(&TranslatedSelect {
                conditions: &conditions,
                ..*shape
            })?;
            made.push(with);
            found.push(format!("EXISTS ({sql})"));
        }
        let sql = format!(
            "SELECT 1 AS {} WHERE {}",
            column_alias(0),
            found.join(" OR ")
        );
        Some((made.join(", "), sql))
    }

    /// [`Translator::grouped`] where AND combines all conditions.
    fn grouped_all(&mut self, shape: &TranslatedSelect) -> Option<(String, String)> {
        let at = self.scopes.len() - 1;
        let sorted = self.sorted(shape, at)?;
        let item = match shape.items {
            [(_, item)] => Some(item.sql.to_string()),
            _ => None,
        };
        let from = match sorted.local.is_empty() {
            true => shape.from.to_owned(),
            false => format!("{} WHERE {}", shape.from, sorted.local.join(" AND ")),
        };
        let keys = |sql: fn(usize, &Pair) -> String| {
            let all = sorted.keys.iter().enumerate();
            all.map(|(i, pair)| sql(i, pair)).collect::<Vec<_>>()
        };
        let named = keys(|i, key| format!("{} AS k{i}", key.own));
        let by = keys(|_, key| format!("{}{}", key.own, key.clause)).join(", ");
        let found = keys(|i, key| format!("(k{i} = {}{})", key.outer, key.clause));
        let outer = sorted.outer.iter().cloned();
        let found = found.into_iter().chain(outer).collect();
        let group = Group {
            alias: self.new_alias(),
            from,
            named,
            by,
            found,
        };
        match shape.wanted {
            SelectPurpose::Existence => group.existence(shape, &sorted),
            SelectPurpose::Rows => None,
            SelectPurpose::Values => {
                let item = item.as_ref();
                let item = item.filter(|sql| !shape.item_reach.is_outside(at) && is_safe(sql));
                let orders = !shape.order_reach.is_outside(at);
                group.values(shape, &sorted, item, orders)
            }
        }
    }

    /// `None`: a condition cannot be looked up by keys, or there are no keys.
    fn sorted<'a>(&self, shape: &TranslatedSelect<'a>, at: usize) -> Option<SortedConditions<'a>> {
        let mut sorted = SortedConditions::default();
        let mut is_indexed = false;
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
                _ => {
                    is_indexed |= self.has_index(&own.sql);
                    sorted.ranges.push(pair);
                }
            }
        }
        // Without a key, an index of the catalog finds the first row of a range.
        (!sorted.keys.is_empty() || !is_indexed).then_some(sorted)
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

/// The alternatives that OR combines, if there are few enough.
fn alternatives(expr: &Expr) -> Option<Vec<&Expr>> {
    let (mut found, mut rest) = (Vec::new(), expr);
    loop {
        match rest {
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Or,
                right,
            } => {
                found.push(&**right);
                rest = left;
            }
            last => {
                found.push(last);
                found.reverse();
                return Some(found);
            }
        }
        if found.len() >= ALTERNATIVES_MAX {
            return None;
        }
    }
}

/// What a group keeps of the rows that are compared with the row outside, and the condition that there is such a row:
/// a row is above the one outside where the highest is, and another one where the lowest or the highest is another one.
fn extremes(range: &Pair) -> (Vec<String>, String) {
    let Pair {
        own,
        outer,
        word,
        clause,
    } = range;
    let extreme = |of: &str, name: &str| format!("{of}({own}{clause}) AS {name}");
    let compared = |name: &str| format!("({name} {word} {outer}{clause})");
    match *word {
        ">" | ">=" => (vec![extreme("max", "v")], compared("v")),
        "<>" => (
            vec![extreme("min", "v"), extreme("max", "w")],
            format!("({} OR {})", compared("v"), compared("w")),
        ),
        _ => (vec![extreme("min", "v")], compared("v")),
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
pub(super) fn aggregate(select: &Select) -> Option<String> {
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
pub(super) fn is_one(top: Option<&Top>) -> bool {
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

/// The rows of a subquery, made once and grouped by what the query outside compares them with.
struct Group {
    alias: String,
    /// FROM, and WHERE with the conditions of the subquery alone.
    from: String,
    /// The keys as columns.
    named: Vec<String>,
    /// The same for GROUP BY and PARTITION BY.
    by: String,
    /// How the query outside finds its group.
    found: Vec<String>,
}

impl Group {
    /// Whether there is a row: definition and query.
    fn existence(
        self,
        shape: &TranslatedSelect,
        sorted: &SortedConditions,
    ) -> Option<(String, String)> {
        if shape.has_aggregate || shape.select.top.is_some() {
            return None;
        }
        let Group {
            alias,
            from,
            named: mut made,
            by,
            mut found,
        } = self;
        match sorted.ranges.as_slice() {
            [] => {}
            [range] => {
                let (values, above) = extremes(range);
                made.extend(values);
                found.push(above);
            }
            _ => return None,
        }
        let made = match (made.as_slice(), by.as_str()) {
            ([], _) => format!("SELECT 1{from} LIMIT 1"),
            (made, "") => format!("SELECT {}{from}", made.join(", ")),
            (made, by) => format!("SELECT {}{from} GROUP BY {by}", made.join(", ")),
        };
        let found = match found.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", found.join(" AND ")),
        };
        let sql = format!("SELECT 1 AS {} FROM {alias}{found}", column_alias(0));
        Some((format!("{alias} AS MATERIALIZED ({made})"), sql))
    }

    /// The one value of a group: definition and query. `item`: it is computed from the group alone. `orders_here`: so is
    /// what orders it.
    fn values(
        self,
        shape: &TranslatedSelect,
        sorted: &SortedConditions,
        item: Option<&String>,
        orders_here: bool,
    ) -> Option<(String, String)> {
        // Without a key there is one row of all rows, also of none.
        if sorted.keys.is_empty() || !sorted.ranges.is_empty() {
            return None;
        }
        let Group {
            alias, from, by, ..
        } = self;
        let (named, found) = (self.named.join(", "), self.found.join(" AND "));
        let top = shape.select.top.as_ref();
        let (made, sql) = if shape.has_aggregate && top.is_none() && shape.orders.is_empty() {
            let name = aggregate(shape.select)?;
            let value = format!("(SELECT v FROM {alias} WHERE {found})");
            // There is a row also where there is no group.
            let value = match name.starts_with("COUNT") {
                true => format!("ifnull({value}, 0)"),
                false => value,
            };
            (
                format!("SELECT {named}, {} AS v{from} GROUP BY {by}", item?),
                format!("SELECT {value} AS {}", column_alias(0)),
            )
        } else if is_one(top) && !shape.has_aggregate {
            let is_plain = !shape.has_window && orders_here;
            let item = item.filter(|_| is_plain)?;
            let mut over = format!("PARTITION BY {by}");
            if !shape.orders.is_empty() {
                let all = shape.orders.iter().map(|order| spelled(order, item));
                over += &format!(" ORDER BY {}", all.collect::<Option<Vec<_>>>()?.join(", "));
            }
            (
                format!(
                    "SELECT * FROM (SELECT {named}, {item} AS v, row_number() OVER ({over}) AS n{from}) WHERE n = 1"
                ),
                format!("SELECT v AS {} FROM {alias} WHERE {found}", column_alias(0)),
            )
        } else {
            return None;
        };
        Some((format!("{alias} AS MATERIALIZED ({made})"), sql))
    }
}
