//! Columns that a table computes of the others of its row.
//!
//! A row keeps their values, which a statement computes when it writes the row. So only an expression whose value can never
//! change by itself may be one: the clock, the session and other rows are refused.
//!
//! Invariants
//! - A kept expression is `CAST ( … AS type )`: its type needs no query to be known.
//! - Every row that is put into a table has the values of its other columns in these.
//!
//! Leaves to others: the rows (`change.rs`), and tables (`table.rs`).

use std::collections::BTreeMap;

use crate::flow::Stop;
use crate::message::{self, Message};
use crate::query::{self, MadeTable, QueryPlan};
use crate::session::Session;
use crate::syntax::{Fragment, TableSpec, TypeName, tokens};
use crate::tables::{TableRow, TableShape, row_bytes};
use crate::value::{Column, Type, Value};
use crate::variables::Variables;

/// The rows that an expression is computed for. No script has reason to write such names.
const ROWS: &str = "\u{1}computed";
const NUMBER: &str = "\u{1}number";

/// Words that a parenthesis may follow in such an expression: functions of their arguments alone, types and operators.
const KNOWN: &[&str] = &[
    "ABS",
    "AND",
    "AS",
    "ASCII",
    "BETWEEN",
    "BINARY",
    "CASE",
    "CAST",
    "CEILING",
    "CHAR",
    "CHARACTER",
    "CHARINDEX",
    "CHOOSE",
    "COALESCE",
    "CONCAT",
    "CONCAT_WS",
    "CONVERT",
    "DATALENGTH",
    "DATEADD",
    "DATEDIFF",
    "DATEDIFF_BIG",
    "DATEFROMPARTS",
    "DATENAME",
    "DATEPART",
    "DATETIME2",
    "DATETIMEOFFSET",
    "DATETRUNC",
    "DAY",
    "DEC",
    "DECIMAL",
    "DEGREES",
    "ELSE",
    "EOMONTH",
    "EXP",
    "FLOAT",
    "FLOOR",
    "FORMAT",
    "GREATEST",
    "HASHBYTES",
    "IIF",
    "IN",
    "ISDATE",
    "ISJSON",
    "ISNULL",
    "ISNUMERIC",
    "JSON_QUERY",
    "JSON_VALUE",
    "LEAST",
    "LEFT",
    "LEN",
    "LIKE",
    "LOG",
    "LOG10",
    "LOWER",
    "LTRIM",
    "MONTH",
    "NCHAR",
    "NOT",
    "NULLIF",
    "NUMERIC",
    "NVARCHAR",
    "OR",
    "PARSENAME",
    "PATINDEX",
    "POWER",
    "QUOTENAME",
    "RADIANS",
    "REPLACE",
    "REPLICATE",
    "REVERSE",
    "RIGHT",
    "ROUND",
    "RTRIM",
    "SIGN",
    "SPACE",
    "SQRT",
    "SQUARE",
    "STR",
    "STUFF",
    "SUBSTRING",
    "SWITCHOFFSET",
    "THEN",
    "TIME",
    "TODATETIMEOFFSET",
    "TRANSLATE",
    "TRIM",
    "TRY_CAST",
    "TRY_CONVERT",
    "UNICODE",
    "UPPER",
    "VARBINARY",
    "VARCHAR",
    "WHEN",
    "YEAR",
];

/// Values of the session, which are called without parentheses.
const SESSIONS: &[&str] = &[
    "CURRENT_TIMESTAMP",
    "CURRENT_USER",
    "SESSION_USER",
    "SYSTEM_USER",
    "USER",
];

/// Refuses an expression whose value may change by itself. Errors: 1046, 50002.
fn check(expression: &Fragment) -> Result<(), Message> {
    let all = tokens(&expression.text)?;
    for (i, token) in all.iter().enumerate() {
        let is = |words: &[&str]| {
            token.is_word
                && words
                    .iter()
                    .any(|word| token.raw.eq_ignore_ascii_case(word))
        };
        if is(&["SELECT"]) {
            return Err(message::SUBQUERY_HERE.plain());
        }
        // The rules of time zones change.
        let before = i.checked_sub(1).and_then(|i| all.get(i));
        let is_zone = is(&["ZONE"])
            && before.is_some_and(|b| b.is_word && b.raw.eq_ignore_ascii_case("TIME"));
        let is_called = all.get(i + 1).is_some_and(|next| next.raw == "(");
        let is_name = token.is_word || token.raw.starts_with(['[', '"']);
        let is_variable = token.raw.starts_with('@');
        if is_variable || is_zone || is(SESSIONS) || is_called && is_name && !is(KNOWN) {
            let what = format!("a computed column with {}", token.raw);
            return Err(message::NOT_HERE.with(&[&what]));
        }
    }
    Ok(())
}

fn named(kind: Type) -> TypeName {
    let text = kind.to_string();
    let (name, sizes) = text.split_once('(').unwrap_or((&text, ""));
    let sizes = sizes
        .trim_end_matches(')')
        .split(',')
        .filter(|s| !s.is_empty());
    TypeName {
        name: name.to_owned(),
        sizes: sizes.map(|s| s.trim().parse().ok()).collect(),
    }
}

/// The query of some expressions over rows.
fn planned(
    session: &Session,
    made: &[MadeTable],
    expressions: &[&Fragment],
) -> Result<QueryPlan, Message> {
    let items: Vec<_> = expressions.iter().map(|e| format!("( {e} )")).collect();
    let text = format!("SELECT [{NUMBER}], {} FROM [{ROWS}]", items.join(", "));
    let variables = Variables::default();
    let mut context = session.query_context();
    context.made = made;
    context.variables = &variables;
    query::prepare(&context, &Fragment::new(text))
}

fn made(mut columns: Vec<Column>, rows: &[(i64, TableRow)]) -> [MadeTable; 1] {
    columns.push(Column::new(NUMBER, Type::BigInt));
    let numbered = |(number, row): &(i64, TableRow)| {
        let mut row = row.clone();
        row.push(Value::Int(*number));
        (*number, row)
    };
    [MadeTable {
        name: ROWS,
        columns,
        rows: rows.iter().map(numbered).collect(),
    }]
}

/// A table's declaration with the types of its computed columns. Errors: 207, 1046, 50002.
pub(crate) fn typed(session: &Session, spec: &TableSpec) -> Result<TableSpec, Message> {
    let mut spec = spec.clone();
    if spec.columns.iter().all(|column| column.computed.is_none()) {
        return Ok(spec);
    }
    let mut plain = spec.clone();
    plain.columns.retain(|column| column.computed.is_none());
    plain.constraints.clear();
    let columns = TableShape::of(plain, Vec::new(), "")?.result_columns();
    let made = made(columns, &[]);
    for column in &mut spec.columns {
        let Some(expression) = &column.computed else {
            continue;
        };
        check(expression)?;
        let plan = planned(session, &made, &[expression])?;
        let kind = plan.columns.get(1).map_or(Type::Int, |c| c.kind.declared());
        if column.kind.name.is_empty() {
            column.kind = named(kind);
            column.computed = Some(Fragment::new(format!("CAST ( {expression} AS {kind} )")));
        }
    }
    Ok(spec)
}

/// The computed columns of a table: their places and expressions.
fn all(shape: &TableShape) -> Vec<(usize, &Fragment)> {
    let columns = shape.columns.iter().enumerate();
    columns
        .filter_map(|(i, column)| Some((i, column.computed.as_ref()?)))
        .collect()
}

/// The columns that expressions may name: those that are not computed have values.
fn columns(shape: &TableShape) -> Vec<Column> {
    let mut columns = shape.result_columns();
    for (place, _) in all(shape) {
        // Its name stays free of what scripts write: none of these may name another.
        columns[place].name = format!("\u{1}{place}");
    }
    columns
}

/// Puts the computed values into rows.
pub(super) fn fill(
    session: &Session,
    shape: &TableShape,
    rows: &mut [(i64, TableRow)],
) -> Result<(), Message> {
    let computed = all(shape);
    if computed.is_empty() || rows.is_empty() {
        return Ok(());
    }
    let copied = rows.iter().map(|(_, row)| row_bytes(row)).sum::<usize>();
    let mut claim = session.server.setup.memory.claim(copied)?;
    let made = made(columns(shape), rows);
    let expressions: Vec<_> = computed.iter().map(|(_, expression)| *expression).collect();
    let plan = planned(session, &made, &expressions)?;
    let mut values: BTreeMap<i64, TableRow> = BTreeMap::new();
    let sqlite = session.query_context().sqlite(&plan)?;
    let ran = sqlite.run(&plan, &mut |mut row| {
        if let Value::Int(number) = row.remove(0) {
            claim.resize(claim.bytes() + row_bytes(&row))?;
            values.insert(number, row);
        }
        Ok(())
    });
    ran.map_err(Stop::message)?;
    for (number, row) in rows {
        let own = values.remove(number).unwrap_or_default();
        for ((place, _), value) in computed.iter().zip(own) {
            row[*place] = value;
        }
    }
    Ok(())
}

/// The first computed column whose expression names another column.
pub(super) fn user_of<'a>(
    session: &Session,
    shape: &'a TableShape,
    place: usize,
) -> Option<&'a str> {
    let mut left = columns(shape);
    left.remove(place);
    let made = made(left, &[]);
    let mut all = all(shape).into_iter();
    let found = all.find(|(_, expression)| {
        planned(session, &made, &[expression]).is_err_and(|error| error.number == 207)
    });
    found.map(|(i, _)| shape.columns[i].name.as_str())
}
