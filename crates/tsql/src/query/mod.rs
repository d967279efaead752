//! Queries and expressions: T-SQL's SELECT over the server's views, by an embedded SQLite.
//!
//! ```text
//! text ──sqlparser──▶ tree ──translate──▶ SQLite's SQL, values, types ──engine──▶ rows of T-SQL's types
//! ```
//!
//! The translation knows every construct that it passes on; what it does not know is refused, so no text of a query
//! reaches SQLite as it is. Views are described in [`schema`]; those of msdb read the catalog, which is attached
//! read-only, the others are filled when a query names them.
//!
//! Limits of the arithmetic: numbers with a fraction are binary floating point inside and rounded to their type's scale at
//! the end, so some 15 digits count.

mod engine;
mod function;
mod like;
mod moment;
mod number;
mod schema;
mod translate;

use sqlparser::ast::{Query, Statement as Parsed};
use sqlparser::dialect::MsSqlDialect;
use sqlparser::parser::Parser;

use crate::convert::{convert, parse_decimal};
use crate::message::{self, Message};
use crate::session::{Flow, Out, Session};
use crate::sink::Command;
use crate::syntax::Fragment;
use crate::value::{Column, Decimal, Type, Value};

pub use schema::{VIEWS, View};

/// Tokens of one query, at most: what is built from them nests no deeper than a thread's stack can bear.
const LEN_MAX: usize = 256 << 10;
const DEPTH_MAX: usize = 50;
/// Tokens between commas and parentheses, at most.
const RUN_MAX: usize = 2000;

/// Reads a query. Errors: what the parser did not expect, as 102.
pub(crate) fn parse(text: &str) -> Result<Query, Message> {
    if text.len() > LEN_MAX {
        return Err(message::NESTED_TOO_DEEPLY.plain());
    }
    check_runs(text)?;
    let dialect = MsSqlDialect {};
    let parsed = Parser::new(&dialect)
        .with_recursion_limit(DEPTH_MAX)
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_statements());
    let mut statements = parsed.map_err(|error| wrong(&error.to_string(), text))?;
    match (statements.pop(), statements.is_empty()) {
        (Some(Parsed::Query(query)), true) => Ok(*query),
        _ => Err(message::SYNTAX.with(&[&near(text)])),
    }
}

/// What stands between commas and parentheses becomes a tree that leans to the left, as deep as there are operators.
fn check_runs(text: &str) -> Result<(), Message> {
    let mut runs = vec![0];
    for (_, raw) in crate::syntax::tokens(text)? {
        match (raw.as_str(), runs.last_mut()) {
            ("(", _) => runs.push(0),
            (")", _) => drop(runs.pop()),
            (",", Some(run)) => *run = 0,
            (_, Some(run)) if *run >= RUN_MAX => {
                return Err(message::NESTED_TOO_DEEPLY.plain());
            }
            (_, Some(run)) => *run += 1,
            // More closed than opened: the parser says so.
            (_, None) => return Ok(()),
        }
    }
    Ok(())
}

fn near(text: &str) -> String {
    text.chars().take(60).collect()
}

/// `… found: X at Line: 1, Column: 5`
fn wrong(error: &str, text: &str) -> Message {
    if error.contains("recursion limit") {
        return message::NESTED_TOO_DEEPLY.plain();
    }
    let found = error.split_once("found: ").map(|(_, rest)| rest);
    let found = found.map(|rest| rest.split(" at Line:").next().unwrap_or(rest));
    match found {
        Some("EOF") | None => {
            let last = text.rsplit(' ').next().unwrap_or(text);
            message::SYNTAX.with(&[&near(last)])
        }
        Some(found) => message::SYNTAX.with(&[&near(found)]),
    }
}

/// Runs a query; its rows go to the sink, or into variables (`SELECT @a = …`).
pub(crate) fn select(session: &mut Session, query: &Fragment, out: &mut Out) -> Flow {
    let parsed = parse(&query.text)?;
    let database = session.database.clone();
    session.enter("SELECT", &database);
    let plan = translate::query(session, &parsed)?;
    if !plan.views.is_empty() {
        session.begin_implicitly();
    }
    let engine = engine::Engine::open(session, &plan.views)?;
    if plan.assigns.is_empty() {
        out.sink.columns(&plan.columns)?;
        let rows = engine.run(session, &plan, &mut |row| Ok(out.sink.row(&row)?))?;
        session.row_count = rows;
        session.leave();
        return Ok(out.done(Command::Select, Some(rows))?);
    }
    let mut last = None;
    let rows = engine.run(session, &plan, &mut |row| {
        last = Some(row);
        Ok(())
    })?;
    session.row_count = rows;
    session.leave();
    // No row leaves the variables as they were.
    for (name, value) in plan.assigns.iter().zip(last.into_iter().flatten()) {
        let kind = session.variable(name)?.kind;
        session.set_variable(name, convert(&value, kind)?)?;
    }
    Ok(())
}

/// The value of an expression.
pub(crate) fn scalar(session: &Session, expression: &Fragment) -> Result<(Type, Value), Message> {
    one(session, &expression_text(expression))
}

/// An expression as a query; in parentheses, so that nothing behind it is taken for a name.
pub(crate) fn expression_text(expression: &Fragment) -> String {
    format!("SELECT ( {} )", expression.text)
}

/// Whether a condition is true; unknown is not.
pub(crate) fn holds(session: &Session, condition: &Fragment) -> Result<bool, Message> {
    let text = condition_text(condition);
    Ok(one(session, &text)?.1 == Value::Int(1))
}

/// A condition as a query.
pub(crate) fn condition_text(condition: &Fragment) -> String {
    format!("SELECT CASE WHEN ( {} ) THEN 1 ELSE 0 END", condition.text)
}

fn one(session: &Session, text: &str) -> Result<(Type, Value), Message> {
    let parsed = parse(text)?;
    let plan = translate::query(session, &parsed)?;
    let [column] = plan.columns.as_slice() else {
        return Err(message::SYNTAX.with(&[&","]));
    };
    let kind = column.kind;
    let engine = engine::Engine::open(session, &plan.views)?;
    let mut first = None;
    let mut more = false;
    let ran = engine.run(session, &plan, &mut |mut row| {
        match first {
            None => first = row.pop(),
            Some(_) => more = true,
        }
        Ok(())
    });
    match ran {
        Ok(_) if more => Err(message::SUBQUERY_ROWS.plain()),
        Ok(_) => Ok((kind, first.unwrap_or(Value::Null))),
        Err(stop) => Err(stop.message()),
    }
}

/// The value of a number as it was written.
pub(crate) fn literal(text: &str) -> Value {
    if let Ok(n) = text.parse() {
        return Value::Int(n);
    }
    let scale = text
        .split_once('.')
        .map_or(0, |(_, fraction)| fraction.len());
    let scale = u8::try_from(scale).unwrap_or(u8::MAX);
    match parse_decimal(text, scale) {
        Some(Some(unscaled)) => Value::Decimal(Decimal { unscaled, scale }),
        _ => text.parse().map_or(Value::Null, Value::Float),
    }
}

/// `@@NAME`. Errors: 137 for one that there is not.
pub(crate) fn global(session: &Session, name: &str) -> Result<(Type, Value), Message> {
    let whole = |n: i64| (Type::Int, Value::Int(n));
    let text = |text: String| (Type::nvarchar(300), Value::Text(text));
    Ok(match name.to_ascii_uppercase().as_str() {
        "@@ERROR" => whole(session.error.into()),
        "@@ROWCOUNT" => whole(i64::try_from(session.row_count).unwrap_or(i64::MAX)),
        "@@TRANCOUNT" => whole(session.transactions.into()),
        "@@NESTLEVEL" => whole(0),
        "@@SPID" => whole(session.id().into()),
        "@@SERVERNAME" => text(session.server.setup.name.clone()),
        "@@SERVICENAME" => text("LONGSHORE".to_owned()),
        "@@VERSION" => text(version()),
        "@@LANGUAGE" => text("us_english".to_owned()),
        "@@MAX_PRECISION" => whole(38),
        "@@FETCH_STATUS" => whole(-1),
        _ => return Err(message::NOT_DECLARED.with(&[&name])),
    })
}

/// What `@@VERSION` says.
pub(crate) fn version() -> String {
    format!(
        "Longshore {} ({}); speaks the backup language of Microsoft SQL Server 2022",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    )
}

/// A text without some of its bare words.
pub(crate) fn without_words(text: &str, words: &[&str]) -> Result<String, Message> {
    let tokens = crate::syntax::tokens(text)?;
    let kept: Vec<_> = tokens
        .into_iter()
        .filter(|(bare, raw)| !(*bare && words.iter().any(|w| raw.eq_ignore_ascii_case(w))))
        .map(|(_, raw)| raw)
        .collect();
    Ok(kept.join(" "))
}

/// A query that is ready to run.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub sql: String,
    pub values: Vec<Value>,
    pub columns: Vec<Column>,
    /// Variables to be set, in the columns' order; else the rows are for the client.
    pub assigns: Vec<String>,
    /// Those it reads.
    pub views: Vec<&'static View>,
}
