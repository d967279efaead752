//! Functions whose answers depend on a collation: CHARINDEX, PATINDEX, REPLACE, TRANSLATE, GREATEST and LEAST.
//!
//! Invariants
//! - A function has a name for each way of comparing: with a collation that tells upper case from lower case, and with a
//!   binary one, two texts are equal only if they are the same.
//! - REPLACE refuses a result that is larger than a value may be, before it makes all of it.
//!
//! Leaves to others: which collation counts (`translate/call.rs`), and registering them (`function.rs`).

use std::cmp::Ordering;

use super::collation::Collation;
use super::like::like;
use crate::convert::convert;
use crate::message::{self, Message};
use crate::value::{Type, Value};
use crate::variables::{VALUE_MAX, too_much};

type Result<T> = std::result::Result<T, Message>;

/// Makes texts of what counts as equal.
type Fold = fn(&str) -> String;

/// The most characters that PATINDEX looks at for one answer: some tenths of a second.
const STEPS_MAX: usize = 200_000_000;

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

fn whole(value: &Value) -> Result<i64> {
    match convert(value, Type::BigInt)? {
        Value::Int(n) => Ok(n),
        _ => Ok(0),
    }
}

/// Runs a function for which NULL gives NULL.
fn strict(arguments: &[Value], run: impl FnOnce(&[Value]) -> Result<Value>) -> Result<Value> {
    match arguments.iter().any(Value::is_null) {
        true => Ok(Value::Null),
        false => run(arguments),
    }
}

/// The text in one case, with the number of characters unchanged.
pub(super) fn mapped<I: Iterator<Item = char>>(text: &str, to: impl Fn(char) -> I) -> String {
    let one = |c: char| {
        let mut all = to(c);
        match (all.next(), all.next()) {
            (Some(one), None) => one,
            _ => c,
        }
    };
    text.chars().map(one).collect()
}

/// Folded as SQL Server's default collations compare.
pub(super) fn folded(text: &str) -> String {
    mapped(text, char::to_lowercase)
}

/// CHARINDEX: what is searched, the text, the first place.
pub(super) fn char_index(arguments: &[Value]) -> Result<Value> {
    index_of(arguments, folded)
}

pub(super) fn char_index_exact(arguments: &[Value]) -> Result<Value> {
    index_of(arguments, str::to_owned)
}

fn index_of(arguments: &[Value], fold: Fold) -> Result<Value> {
    strict(arguments, |a| {
        let (what, within) = (fold(&text(&a[0])), fold(&text(&a[1])));
        let skip = match a.get(2) {
            Some(start) => usize::try_from(whole(start)?.saturating_sub(1)).unwrap_or(0),
            None => 0,
        };
        let rest: String = within.chars().skip(skip).collect();
        Ok(Value::Int(match rest.find(&what) {
            Some(at) if !what.is_empty() => (rest[..at].chars().count() + skip + 1) as i64,
            _ => 0,
        }))
    })
}

/// REPLACE: the text, what is replaced, its replacement.
pub(super) fn replace(arguments: &[Value]) -> Result<Value> {
    replaced(arguments, folded)
}

pub(super) fn replace_exact(arguments: &[Value]) -> Result<Value> {
    replaced(arguments, str::to_owned)
}

fn replaced(arguments: &[Value], fold: Fold) -> Result<Value> {
    strict(arguments, |a| {
        let (within, what, with) = (text(&a[0]), text(&a[1]), text(&a[2]));
        if what.is_empty() {
            return Ok(Value::Text(within));
        }
        let mut made = String::new();
        // The rest of the text, and the position up to which its folded form was searched.
        let (mut rest, mut seen) = (within.as_str(), 0);
        let (lower, wanted) = (fold(&within), fold(&what));
        let length = wanted.chars().count();
        for (at, _) in lower.match_indices(&wanted) {
            let (before, found) = split(rest, lower[seen..at].chars().count());
            made += before;
            made += &with;
            rest = split(found, length).1;
            seen = at + wanted.len();
            if made.len() > VALUE_MAX {
                return Err(too_much());
            }
        }
        made += rest;
        match made.len() > VALUE_MAX {
            true => Err(too_much()),
            false => Ok(Value::Text(made)),
        }
    })
}

/// Splits after that many characters.
fn split(text: &str, characters: usize) -> (&str, &str) {
    let at = text.char_indices().nth(characters);
    text.split_at(at.map_or(text.len(), |(at, _)| at))
}

/// PATINDEX: the pattern, the text.
pub(super) fn pattern_index(arguments: &[Value]) -> Result<Value> {
    place_of(arguments, true)
}

pub(super) fn pattern_index_exact(arguments: &[Value]) -> Result<Value> {
    place_of(arguments, false)
}

fn place_of(arguments: &[Value], folds: bool) -> Result<Value> {
    if arguments.iter().any(Value::is_null) {
        return Ok(Value::Null);
    }
    let (pattern, text) = (text(&arguments[0]), text(&arguments[1]));
    let fits = |text: &str, pattern: &str| {
        let fits = like(text, pattern, None, folds);
        fits.ok_or_else(|| message::NO_PLAN.plain())
    };
    let Some(anywhere) = pattern.strip_prefix('%') else {
        return Ok(Value::Int(fits(&text, &pattern)?.into()));
    };
    let mut steps = 0;
    for ((at, _), number) in text.char_indices().zip(1..) {
        steps += text.len() - at;
        if steps > STEPS_MAX {
            return Err(message::NO_PLAN.plain());
        }
        if fits(&text[at..], anywhere)? {
            return Ok(Value::Int(number));
        }
    }
    Ok(Value::Int(0))
}

/// TRANSLATE: the text, characters, their replacements.
pub(super) fn translate(arguments: &[Value]) -> Result<Value> {
    translated(arguments, true)
}

pub(super) fn translate_exact(arguments: &[Value]) -> Result<Value> {
    translated(arguments, false)
}

fn translated(arguments: &[Value], folds: bool) -> Result<Value> {
    if arguments.iter().any(Value::is_null) {
        return Ok(Value::Null);
    }
    let from: Vec<char> = text(&arguments[1]).chars().collect();
    let to: Vec<char> = text(&arguments[2]).chars().collect();
    if from.len() != to.len() {
        return Err(message::TRANSLATE_LENGTHS.plain());
    }
    let one = |c: char| {
        let same = |f: &char| *f == c || folds && f.to_lowercase().eq(c.to_lowercase());
        from.iter().position(same).map_or(c, |i| to[i])
    };
    Ok(Value::Text(text(&arguments[0]).chars().map(one).collect()))
}

/// The order of two values of one type.
fn compared(a: &Value, b: &Value, collation: Collation) -> Ordering {
    let number = |value: &Value| match value {
        Value::Int(n) => Some(*n as f64),
        Value::Float(n) => Some(*n),
        _ => None,
    };
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Binary(a), Value::Binary(b)) => a.cmp(b),
        (a, b) => match (number(a), number(b)) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            _ => collation.compare(&text(a), &text(b)),
        },
    }
}

/// The greatest of values, or the least; NULL where all are.
fn last_of(arguments: &[Value], collation: Collation, is_least: bool) -> Value {
    let known = arguments.iter().filter(|v| !v.is_null());
    let order = |a: &&Value, b: &&Value| compared(a, b, collation);
    let found = match is_least {
        true => known.min_by(order),
        false => known.max_by(order),
    };
    found.cloned().unwrap_or(Value::Null)
}

pub(super) fn greatest(arguments: &[Value]) -> Result<Value> {
    Ok(last_of(arguments, Collation::CaseInsensitive, false))
}

pub(super) fn greatest_in_case(arguments: &[Value]) -> Result<Value> {
    Ok(last_of(arguments, Collation::CaseSensitive, false))
}

pub(super) fn greatest_by_code(arguments: &[Value]) -> Result<Value> {
    Ok(last_of(arguments, Collation::Binary, false))
}

pub(super) fn least(arguments: &[Value]) -> Result<Value> {
    Ok(last_of(arguments, Collation::CaseInsensitive, true))
}

pub(super) fn least_in_case(arguments: &[Value]) -> Result<Value> {
    Ok(last_of(arguments, Collation::CaseSensitive, true))
}

pub(super) fn least_by_code(arguments: &[Value]) -> Result<Value> {
    Ok(last_of(arguments, Collation::Binary, true))
}
