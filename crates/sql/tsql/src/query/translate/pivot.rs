//! Translates PIVOT, UNPIVOT and VALUES in FROM.
//!
//! ```text
//! s PIVOT (SUM(x) FOR m IN ([1], [2])) AS p
//! (SELECT g, sum(CASE WHEN m = '1' THEN x END), sum(CASE WHEN m = '2' THEN x END) FROM s GROUP BY g) AS p
//! ```
//!
//! Invariants
//! - The columns of PIVOT are those that neither its aggregate nor its FOR names, and then one for each name of IN.
//! - UNPIVOT leaves out what is NULL.
//!
//! Leaves to others: aggregates (`call.rs`) and comparisons (`expression.rs`).

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, ExprWithAlias, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, PivotValueSource, TableAlias, TableFactor, Value as Literal, Values,
};

use super::state::{
    NamedTable, SelectedColumns, Translator, column_alias, folded, is_hidden, not_here, position,
    renamed,
};
use crate::message::{self, Message};
use crate::query::collation::Label;
use crate::query::number::wider;
use crate::value::{Column, Type, Value};

/// The parts of a PIVOT.
pub(super) struct Pivot<'a> {
    pub table: &'a TableFactor,
    pub aggregates: &'a [ExprWithAlias],
    pub column: &'a [Expr],
    pub source: &'a PivotValueSource,
    pub alias: Option<&'a TableAlias>,
}

/// The name of a column that an expression is.
fn column_name(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Identifier(name) => Some(&name.value),
        Expr::CompoundIdentifier(names) => names.last().map(|n| n.value.as_str()),
        _ => None,
    }
}

/// The columns that an aggregate names: only plain ones may be there.
fn argument(function: &Function) -> Option<&Expr> {
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))] => column_name(expr).map(|_| expr),
        _ => None,
    }
}

/// The same aggregate of another value.
fn with_argument(function: &Function, argument: Expr) -> Function {
    let mut changed = function.clone();
    if let FunctionArguments::List(list) = &mut changed.args {
        list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))];
    }
    changed
}

impl Translator<'_> {
    /// A table in a scope of its own: its SQL, and the table.
    fn lone_table(&mut self, factor: &TableFactor) -> Result<(String, NamedTable), Message> {
        self.scopes.push(Vec::new());
        let sql = self.factor(factor);
        let made = self.scopes.pop().and_then(|mut tables| tables.pop());
        let table = made.ok_or_else(|| not_here("this kind of table"));
        Ok((sql?, table?))
    }

    /// Works in the scope of one table.
    fn within<T>(
        &mut self,
        table: &NamedTable,
        work: impl FnOnce(&mut Self) -> Result<T, Message>,
    ) -> Result<T, Message> {
        self.scopes.push(vec![table.clone()]);
        let seen = std::mem::take(&mut self.seen);
        let done = work(self);
        // An aggregate in there is not one of the query around it.
        let inner = std::mem::replace(&mut self.seen, seen);
        self.seen.variables.extend(inner.variables);
        self.scopes.pop();
        done
    }

    /// Errors: 207, 50002.
    pub(super) fn pivot(&mut self, pivot: &Pivot) -> Result<String, Message> {
        let (from, table) = self.lone_table(pivot.table)?;
        let alias = pivot
            .alias
            .ok_or_else(|| message::SYNTAX.with(&[&"PIVOT"]))?;
        let aggregate = match pivot.aggregates {
            [
                ExprWithAlias {
                    expr: Expr::Function(function),
                    alias: None,
                },
            ] => function,
            _ => return Err(not_here("PIVOT of several aggregates")),
        };
        let [by] = pivot.column else {
            return Err(not_here("PIVOT of several columns"));
        };
        let PivotValueSource::List(values) = pivot.source else {
            return Err(not_here("PIVOT of other values than a list of names"));
        };
        let value = argument(aggregate)
            .ok_or_else(|| not_here("PIVOT of other aggregates than of a column"))?;
        let mut taken = Vec::new();
        for expr in [by, value] {
            let name = column_name(expr).unwrap_or_default();
            let unknown = || message::COLUMN_UNKNOWN.with(&[&name]);
            taken.push(position(&table.columns, name).ok_or_else(unknown)?);
        }
        let (mut columns, mut labels) = (Vec::new(), Vec::new());
        let mut list = Vec::new();
        let mut groups = Vec::new();
        for (i, column) in table.columns.iter().enumerate() {
            if taken.contains(&i) || is_hidden(column) {
                continue;
            }
            let typed = table.typed(i);
            list.push(format!("{} AS {}", typed.sql, column_alias(columns.len())));
            groups.push(folded(&typed));
            labels.push(typed.label);
            columns.push(column.clone());
        }
        let own = |i: usize| Expr::Identifier(Ident::new(table.columns[taken[i]].name.as_str()));
        for named in values {
            let name =
                column_name(&named.expr).ok_or_else(|| message::SYNTAX.with(&[&named.expr]))?;
            let text = Literal::SingleQuotedString(name.to_owned());
            let condition = Expr::BinaryOp {
                left: Box::new(own(0)),
                op: BinaryOperator::Eq,
                right: Box::new(Expr::Value(text.into())),
            };
            let case = Expr::Case {
                case_token: AttachedToken::empty(),
                end_token: AttachedToken::empty(),
                operand: None,
                conditions: vec![CaseWhen {
                    condition,
                    result: own(1),
                }],
                else_result: None,
            };
            let function = with_argument(aggregate, case);
            self.pivots = true;
            let typed = self.within(&table, |t| {
                t.unruled(|t| t.expression(&Expr::Function(function)))
            });
            self.pivots = false;
            let typed = typed?;
            list.push(format!("{} AS {}", typed.sql, column_alias(columns.len())));
            let shown = named.alias.as_ref().map_or(name, |a| a.value.as_str());
            columns.push(Column::new(shown, typed.kind()));
        }
        let by = match groups.is_empty() {
            true => String::new(),
            false => format!(" GROUP BY {}", groups.join(", ")),
        };
        let own_alias = self.new_alias();
        let list = list.join(", ");
        self.add(NamedTable {
            name: alias.name.value.clone(),
            prefix: format!("{own_alias}."),
            columns: renamed(columns, &alias.columns)?,
            view: None,
            is_packed: false,
            labels,
        })?;
        Ok(format!(
            "(SELECT {list} FROM {from}{by} HAVING count(*) > 0) AS {own_alias}"
        ))
    }

    /// `s UNPIVOT (value FOR name IN (a, b)) AS u`. Errors: 207, 50002.
    pub(super) fn unpivot(
        &mut self,
        factor: &TableFactor,
        (value, name): (&Expr, &Ident),
        from_columns: &[ExprWithAlias],
        alias: Option<&TableAlias>,
    ) -> Result<String, Message> {
        let (from, table) = self.lone_table(factor)?;
        let alias = alias.ok_or_else(|| message::SYNTAX.with(&[&"UNPIVOT"]))?;
        let value = column_name(value).ok_or_else(|| message::SYNTAX.with(&[value]))?;
        let mut places = Vec::new();
        for column in from_columns {
            let name = column_name(&column.expr);
            let name = name.ok_or_else(|| message::SYNTAX.with(&[&column.expr]))?;
            let unknown = || message::COLUMN_UNKNOWN.with(&[&name]);
            places.push(position(&table.columns, name).ok_or_else(unknown)?);
        }
        let kinds = places.iter().map(|i| table.columns[*i].kind);
        let kind = kinds.reduce(wider).unwrap_or(Type::Int);
        let turn = self.new_alias();
        let (mut columns, mut labels, mut list) = (Vec::new(), Vec::new(), Vec::new());
        for (i, column) in table.columns.iter().enumerate() {
            if places.contains(&i) || is_hidden(column) {
                continue;
            }
            list.push(format!(
                "{} AS {}",
                table.column(i),
                column_alias(columns.len())
            ));
            labels.push(table.typed(i).label);
            columns.push(column.clone());
        }
        let (mut values, mut names, mut turns) = (String::new(), String::new(), Vec::new());
        let mut label = Label::Default;
        for (n, place) in places.iter().enumerate() {
            let column = &table.columns[*place];
            let typed = table.typed(*place);
            label = label.with(typed.text_label(), "UNPIVOT")?;
            let typed = self.widened(typed, Some(kind));
            let shown = self.bind(Value::text(column.name.as_str()));
            values += &format!(" WHEN {n} THEN {typed}");
            names += &format!(" WHEN {n} THEN {shown}");
            turns.push(format!("SELECT {n} AS n"));
        }
        let at = columns.len();
        list.push(format!("CASE {turn}.n{values} END AS {}", column_alias(at)));
        list.push(format!(
            "CASE {turn}.n{names} END AS {}",
            column_alias(at + 1)
        ));
        columns.push(Column::new(value, kind));
        labels.push(label);
        columns.push(Column::new(name.value.clone(), Type::nvarchar(128)));
        let own_alias = self.new_alias();
        self.add(NamedTable {
            name: alias.name.value.clone(),
            prefix: format!("{own_alias}."),
            columns: renamed(columns, &alias.columns)?,
            view: None,
            is_packed: false,
            labels,
        })?;
        Ok(format!(
            "(SELECT * FROM (SELECT {} FROM {from} CROSS JOIN ({}) AS {turn}) WHERE {} IS NOT NULL) AS {own_alias}",
            list.join(", "),
            turns.join(" UNION ALL "),
            column_alias(at)
        ))
    }

    /// `(VALUES (1, 'a'), (2, 'b'))`. Errors: 10709 for rows of different lengths.
    pub(super) fn values_rows(&mut self, values: &Values) -> Result<SelectedColumns, Message> {
        let mut rows = Vec::new();
        for row in &values.rows {
            let mut typed = Vec::new();
            for value in &row.content {
                typed.push(self.expression(value)?);
            }
            rows.push(typed);
        }
        let count = rows.first().map_or(0, Vec::len);
        if rows.iter().any(|row| row.len() != count) {
            return Err(message::VALUES_UNEVEN.plain());
        }
        let (mut kinds, mut labels) = (Vec::new(), Vec::new());
        for i in 0..count {
            let all = rows.iter().filter_map(|row| row[i].kind);
            kinds.push(all.reduce(wider));
            labels.push(Label::of_all(
                rows.iter().map(|row| row[i].text_label()),
                "UNION ALL",
            )?);
        }
        // The first part names the columns. SQLite's own names for those of VALUES are not known to what stands in a LATERAL.
        let list: Vec<_> = (0..count)
            .map(|i| format!("NULL AS {}", column_alias(i)))
            .collect();
        let mut written = Vec::new();
        for row in rows {
            let row = row.into_iter().zip(&kinds);
            let row: Vec<_> = row
                .map(|(value, kind)| self.widened(value, *kind).to_string())
                .collect();
            written.push(format!("({})", row.join(", ")));
        }
        let columns = kinds.into_iter();
        let columns = columns.map(|kind| Column::new("", kind.unwrap_or(Type::Int)));
        let sql = format!(
            "SELECT {} WHERE 0 UNION ALL VALUES {}",
            list.join(", "),
            written.join(", ")
        );
        Ok(SelectedColumns {
            labels,
            ..SelectedColumns::new(sql, columns.collect())
        })
    }
}
