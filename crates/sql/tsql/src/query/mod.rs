//! Queries and expressions: T-SQL's SELECT over the server's views, by an embedded SQLite.
//!
//! ```text
//! text ──sqlparser──▶ tree ──translate──▶ SQLite's SQL, values, types ──engine──▶ rows of T-SQL's types
//! ```
//!
//! The translation passes on only constructs that it knows and refuses all others, so no text of a query reaches
//! SQLite unchanged. [`schema`] describes the views; those of msdb read the catalog, which is attached read-only, the
//! others are filled when a query names them.
//!
//! Limits of the arithmetic: numbers with a fraction are binary floating point inside and rounded to their type's
//! scale at each step, so about 15 digits are exact. An operation that would lose digits before the point is refused
//! (8115).

mod collation;
mod direct;
mod engine;
mod function;
mod like;
mod moment;
mod number;
mod reader;
mod schema;
mod sql;
#[cfg(test)]
mod tests;
mod translate;

use sqlparser::ast::{Query, Statement as Parsed};
use sqlparser::dialect::MsSqlDialect;
use sqlparser::parser::Parser;

use crate::convert::{convert, convert_from, narrow, parse_decimal};
use crate::flow::{Flow, Out, Variable};
use crate::message::{self, Message};
use crate::session::Session;
use crate::sink::Command;
use crate::syntax::{Fragment, Operand};
use crate::value::{Column, Decimal, LENGTH_MAX, Type, Value};

pub(crate) use engine::EngineCache;
pub(crate) use reader::{QuerySource, Reader};
pub use schema::{VIEWS, View};

/// The most bytes of one query's text: the tree built from it must not nest deeper than a thread's stack allows.
const LEN_MAX: usize = 256 << 10;
const DEPTH_MAX: usize = 50;
/// The most tokens between commas and parentheses.
const RUN_MAX: usize = 2000;

/// Parses a query. Errors: 102 for a token that the parser did not expect.
fn parse(text: &str) -> Result<Query, Message> {
    if text.len() > LEN_MAX {
        return Err(message::NESTED_TOO_DEEPLY.plain());
    }
    let mut tokens = crate::syntax::tokens(text)?;
    check_runs(&tokens)?;
    let has_money = spell_money(&mut tokens);
    let written_out = compound(&tokens, has_money);
    let text = written_out.as_deref().unwrap_or(text);
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

/// The tokens between commas and parentheses become a left-leaning tree, as deep as there are operators.
fn check_runs(tokens: &[(bool, String)]) -> Result<(), Message> {
    let mut runs = vec![0];
    for (_, raw) in tokens {
        match (raw.as_str(), runs.last_mut()) {
            ("(", _) => runs.push(0),
            (")", _) => drop(runs.pop()),
            (",", Some(run)) => *run = 0,
            (_, Some(run)) if *run >= RUN_MAX => {
                return Err(message::NESTED_TOO_DEEPLY.plain());
            }
            (_, Some(run)) => *run += 1,
            // More closing than opening ones: the parser reports it.
            (_, None) => return Ok(()),
        }
    }
    Ok(())
}

/// Words that end a select list.
const LIST_ENDS: [&str; 9] = [
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "OPTION",
];

/// Rewrites `$1.50` for the parser. Returns whether there was any.
fn spell_money(tokens: &mut [(bool, String)]) -> bool {
    let mut found = false;
    for (_, raw) in tokens.iter_mut() {
        if let Some(number) = raw.strip_prefix('$').filter(|n| !n.is_empty()) {
            *raw = format!("CAST ( '{number}' AS money )");
            found = true;
        }
    }
    found
}

/// Rewrites `SELECT @x += y` as `SELECT @x = @x + ( y )`, which the parser knows; `None` if nothing of the kind occurs
/// and no other token was `changed`.
fn compound(tokens: &[(bool, String)], changed: bool) -> Option<String> {
    let operator = |raw: &str| {
        ["+=", "-=", "*=", "/=", "%="]
            .iter()
            .find(|o| **o == raw)
            .map(|o| &o[..1])
    };
    if !changed && !tokens.iter().any(|(_, raw)| operator(raw).is_some()) {
        return None;
    }
    let mut made: Vec<&str> = Vec::new();
    // The present depth of parentheses, and the depth at which an operand began.
    let mut depth = 0_usize;
    let mut begun = Vec::new();
    for (i, (bare, raw)) in tokens.iter().enumerate() {
        let ends_list = *bare && LIST_ENDS.iter().any(|w| raw.eq_ignore_ascii_case(w));
        let is_end = raw == "," || ends_list || raw == ")";
        if is_end && begun.last() == Some(&depth) {
            begun.pop();
            made.push(")");
        }
        match raw.as_str() {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        let before = i.checked_sub(1).map(|i| tokens[i].1.as_str());
        match (operator(raw), before.filter(|b| b.starts_with('@'))) {
            (Some(operator), Some(variable)) => {
                made.extend(["=", variable, operator, "("]);
                begun.push(depth);
            }
            _ => made.push(raw),
        }
    }
    made.extend(begun.iter().map(|_| ")"));
    Some(made.join(" "))
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
    let parsed = session.reader.by_text(QuerySource::Query(query))?;
    let database = session.database.clone();
    session.enter("SELECT", &database);
    let plan = translate::query(session, &parsed, &[])?;
    if !plan.views.is_empty() {
        session.begin_implicitly();
    }
    let engine = engine::Engine::take(session, &plan.views)?;
    let done = run(session, &engine, &plan, out);
    engine.give_back(session, &plan.views);
    done
}

fn run(session: &mut Session, engine: &engine::Engine, plan: &QueryPlan, out: &mut Out) -> Flow {
    if plan.assigns.is_empty() {
        out.sink.columns(&plan.columns)?;
        let rows = engine.run(session, plan, &mut |row| Ok(out.sink.row(&row)?))?;
        session.row_count = rows;
        session.leave();
        return Ok(out.done(Command::Select, Some(rows))?);
    }
    if !plan.steps.is_empty() {
        let (rows, after) = engine.run_stepwise(session, plan)?;
        session.leave();
        for (name, variable) in plan.steps.iter().zip(after) {
            session.set_variable(name, variable.value)?;
        }
        session.row_count = rows?;
        return Ok(());
    }
    let mut last = None;
    let rows = engine.run(session, plan, &mut |row| {
        last = Some(row);
        Ok(())
    })?;
    session.row_count = rows;
    session.leave();
    // Without a row the variables stay unchanged.
    let values = plan.columns.iter().zip(last.into_iter().flatten());
    for (name, (column, value)) in plan.assigns.iter().zip(values) {
        let kind = session.variable(name)?.kind;
        session.set_variable(name, convert_from(&value, column.kind, kind)?)?;
    }
    Ok(())
}

/// The value of an expression, and its type.
pub(crate) fn scalar(session: &Session, expression: &Fragment) -> Result<Variable, Message> {
    let of = |(kind, value)| Variable { kind, value };
    // Most expressions in scripts are one literal or one variable.
    Ok(match crate::syntax::single(&expression.text) {
        Some(Operand::Variable(name)) if name.starts_with("@@") => of(global(session, &name)?),
        Some(Operand::Variable(name)) => session.variable(&name)?.clone(),
        Some(Operand::Text(text)) => {
            let is_national = expression.text.starts_with(['N', 'n']);
            of((text_kind(&text, is_national), Value::Text(text)))
        }
        Some(operand) => of((Type::Int, session.value_of(&operand)?)),
        None => return evaluated(session, QuerySource::Expression(expression)),
    })
}

/// The type of a literal: a character outside Windows-1252 needs two bytes per character, even without the prefix N.
pub(crate) fn text_kind(text: &str, is_national: bool) -> Type {
    let length = text.chars().count().max(1);
    let of = |max: u16| u16::try_from(length).ok().filter(|n| *n <= max);
    match is_national || text.chars().any(|c| narrow(c).is_none()) {
        true => Type::NVarChar(of(LENGTH_MAX / 2)),
        false => Type::VarChar(of(LENGTH_MAX)),
    }
}

/// Whether a condition is true; unknown counts as false.
pub(crate) fn holds(session: &Session, condition: &Fragment) -> Result<bool, Message> {
    Ok(evaluated(session, QuerySource::Condition(condition))?.value == Value::Int(1))
}

fn evaluated(session: &Session, asked: QuerySource) -> Result<Variable, Message> {
    match direct::value(session, asked) {
        Some(found) => Ok(found),
        None => one(session, asked),
    }
}

/// By its form, where that has a meaning; else messages are to show the text as it was written.
fn plan(session: &Session, asked: QuerySource) -> Result<QueryPlan, Message> {
    if let Some((tree, literals)) = session.reader.by_form(asked)
        && let Ok(plan) = translate::query(session, &tree, &literals)
    {
        return Ok(plan);
    }
    translate::query(session, &*session.reader.by_text(asked)?, &[])
}

fn one(session: &Session, asked: QuerySource) -> Result<Variable, Message> {
    let plan = plan(session, asked)?;
    let [column] = plan.columns.as_slice() else {
        return Err(message::SYNTAX.with(&[&","]));
    };
    let engine = engine::Engine::take(session, &plan.views)?;
    let mut first = None;
    let mut more = false;
    let ran = engine.run(session, &plan, &mut |mut row| {
        match first {
            None => first = row.pop(),
            Some(_) => more = true,
        }
        Ok(())
    });
    engine.give_back(session, &plan.views);
    match ran {
        Ok(_) if more => Err(message::SUBQUERY_ROWS.plain()),
        Ok(_) => Ok(Variable {
            kind: column.kind,
            value: first.unwrap_or(Value::Null),
        }),
        Err(stop) => Err(stop.message()),
    }
}

/// The value of a number literal.
pub(crate) fn literal(text: &str) -> Value {
    if let Some(money) = text.strip_prefix('$') {
        let made = convert(&Value::text(money), Type::Money);
        return made.unwrap_or_else(|_| literal(money));
    }
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

/// `@@NAME`. Errors: 137 for an unknown one.
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

/// The text of `@@VERSION`.
pub(crate) fn version() -> String {
    format!(
        "Longshore {} ({}); speaks the backup language of Microsoft SQL Server 2022",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH
    )
}

/// A text without some of its unquoted words.
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
pub(crate) struct QueryPlan {
    pub sql: String,
    pub values: Vec<Value>,
    pub columns: Vec<Column>,
    /// Variables to set, in the columns' order; if empty, the rows go to the client.
    pub assigns: Vec<String>,
    /// The variables of these that are set row by row, because the query also reads them; in lower case, each once.
    pub steps: Vec<String>,
    /// The views that it reads.
    pub views: Vec<&'static View>,
}
