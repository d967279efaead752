//! Reads a query's text into a tree, by the parser that T-SQL's grammar is known to.
//!
//! Invariants
//! - No text nests deeper than a thread's stack allows: lengths, depths and runs of operators are bounded before and while
//!   the parser reads.
//!
//! What the parser does not know is written out for it: `$1.50`, and `SELECT @x += y`.

use sqlparser::ast::{Query, Statement as Parsed};
use sqlparser::dialect::MsSqlDialect;
use sqlparser::parser::Parser;

use crate::message::{self, Message};

/// The most bytes of one query's text: the tree built from it must not nest deeper than a thread's stack allows.
pub const LEN_MAX: usize = 256 << 10;
const DEPTH_MAX: usize = 50;
/// The most tokens between commas and parentheses.
const RUN_MAX: usize = 2000;

/// Parses a query. Errors: 102 for a token that the parser did not expect.
pub fn parse(text: &str) -> Result<Query, Message> {
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
