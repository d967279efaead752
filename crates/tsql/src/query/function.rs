//! T-SQL's functions that SQLite lacks, or has with another meaning, as functions of SQLite.
//!
//! A refusal's message is put aside for the engine, since SQLite passes on a text alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;

use super::engine::{kept, plain};
use super::like::like;
use super::moment::{self, Part};
use crate::convert::{convert, date_style, parse_date_time, type_of};
use crate::message::{self, Message};
use crate::value::{DateTime, Type, Value};
use crate::variables::{Sum, VALUE_MAX, too_much};

type Result<T> = std::result::Result<T, Message>;
type Run = fn(&[Value]) -> Result<Value>;

/// Longest text that a function makes, in characters.
const TEXT_MAX: usize = 8000;

/// Name, number of arguments (-1: any), meaning. All but the first few give NULL for NULL.
const FUNCTIONS: &[(&str, i32, Run)] = &[
    ("ts_cast", 3, cast),
    ("ts_try_cast", 3, try_cast),
    ("ts_convert", 4, cast_with_style),
    ("ts_concat", -1, concat),
    ("ts_divide", 2, divide),
    ("ts_divide_whole", 2, divide_whole),
    ("ts_modulo", 2, modulo),
    ("ts_like", -1, like_pattern),
    ("ts_dateadd", 3, date_add),
    ("ts_datediff", 3, date_difference),
    ("ts_datepart", 2, date_part),
    ("ts_datename", 2, date_name),
    ("ts_eomonth", 1, end_of_month),
    ("ts_len", 1, len),
    ("ts_datalength", 1, data_length),
    ("ts_left", 2, left),
    ("ts_right", 2, right),
    ("ts_substring", 3, substring),
    ("ts_charindex", -1, char_index),
    ("ts_replicate", 2, replicate),
    ("ts_reverse", 1, reverse),
    ("ts_replace", 3, replace),
    ("ts_stuff", 4, stuff),
    ("ts_str", -1, number_text),
    ("ts_quotename", -1, quote_name),
    ("ts_char", 1, character),
    ("ts_ascii", 1, ascii),
    ("ts_round", 2, round),
    ("ts_floor", 1, floor),
    ("ts_ceiling", 1, ceiling),
    ("ts_power", 2, power),
    ("ts_sqrt", 1, square_root),
    ("ts_isnumeric", 1, is_numeric),
    ("ts_isdate", 1, is_date),
];

/// Longest pattern of LIKE, in bytes, as in SQL Server.
const PATTERN_MAX: usize = 8000;

/// Makes all of them known to a connection. Each call looks at the cancel flag: SQLite does so too seldom where a call
/// takes long.
pub fn register(
    db: &Connection,
    refusal: &Arc<Mutex<Option<Message>>>,
    cancel: &Arc<AtomicBool>,
) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    for (name, count, run) in FUNCTIONS {
        let (refusal, cancel) = (refusal.clone(), cancel.clone());
        db.create_scalar_function(*name, *count, flags, move |context| {
            let values = match cancel.load(Ordering::Relaxed) {
                true => Err(message::ABORTED.plain()),
                false => arguments(context),
            };
            let value = values.and_then(|values| run(&values));
            let value = value.map_err(|message| {
                let text = message.text.clone();
                *refusal.lock() = Some(message);
                rusqlite::Error::UserFunctionError(text.into())
            })?;
            Ok(kept(value))
        })?;
    }
    Ok(())
}

/// Errors: too much of them.
fn arguments(context: &Context) -> Result<Vec<Value>> {
    let mut sum = Sum::default();
    let cells = (0..context.len()).map(|i| context.get_raw(i));
    let one = |cell: ValueRef| {
        match cell {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => sum.add_bytes(bytes.len())?,
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => {}
        }
        Ok(plain(cell))
    };
    cells.map(one).collect()
}

/// A type by the spelling that [`Type`] prints.
fn kind(value: &Value) -> Type {
    let text = value.to_string();
    let (name, sizes) = text.split_once('(').unwrap_or((&text, ""));
    let sizes: Vec<Option<u32>> = sizes
        .trim_end_matches(')')
        .split(',')
        .filter(|s| !s.is_empty())
        .map(|s| s.parse().ok())
        .collect();
    type_of(name, &sizes).unwrap_or(Type::NVarChar(None))
}

/// A cell as the type that it has in T-SQL.
fn as_kind(value: &Value, of: Type) -> Result<Value> {
    match (value, of) {
        (Value::Text(_), Type::DateTime | Type::UniqueIdentifier) => convert(value, of),
        (Value::Int(_) | Value::Float(_), Type::Numeric { .. } | Type::Float) => convert(value, of),
        _ => Ok(value.clone()),
    }
}

/// value, its type, the new type
fn cast(arguments: &[Value]) -> Result<Value> {
    convert(
        &as_kind(&arguments[0], kind(&arguments[1]))?,
        kind(&arguments[2]),
    )
}

fn try_cast(arguments: &[Value]) -> Result<Value> {
    Ok(cast(arguments).unwrap_or(Value::Null))
}

/// value, its type, the new type, the style
fn cast_with_style(arguments: &[Value]) -> Result<Value> {
    let (from, to) = (kind(&arguments[1]), kind(&arguments[2]));
    let value = as_kind(&arguments[0], from)?;
    let (Value::DateTime(at), true) = (&value, to.is_text()) else {
        return convert(&value, to);
    };
    let style = whole(&arguments[3])?;
    let text = date_style(at, style);
    let text = text.ok_or_else(|| message::STYLE_UNKNOWN.with(&[&style, &"datetime"]))?;
    convert(&Value::Text(text), to)
}

fn whole(value: &Value) -> Result<i64> {
    match convert(value, Type::BigInt)? {
        Value::Int(n) => Ok(n),
        _ => Ok(0),
    }
}

fn real(value: &Value) -> Result<f64> {
    match convert(value, Type::Float)? {
        Value::Float(n) => Ok(n),
        _ => Ok(0.0),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

fn any_null(arguments: &[Value]) -> bool {
    arguments.iter().any(Value::is_null)
}

/// Counts in characters; below 0 is 0.
fn count(value: &Value) -> Result<usize> {
    Ok(usize::try_from(whole(value)?.max(0)).unwrap_or(usize::MAX))
}

/// The value of a function of which NULL makes NULL.
fn strict(arguments: &[Value], run: impl FnOnce(&[Value]) -> Result<Value>) -> Result<Value> {
    match any_null(arguments) {
        true => Ok(Value::Null),
        false => run(arguments),
    }
}

fn concat(arguments: &[Value]) -> Result<Value> {
    Ok(Value::Text(arguments.iter().map(text).collect()))
}

fn divide(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| match real(&a[1])? {
        0.0 => Err(message::DIVIDED_BY_ZERO.plain()),
        by => Ok(Value::Float(real(&a[0])? / by)),
    })
}

fn divide_whole(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let (n, by) = (whole(&a[0])?, whole(&a[1])?);
        if by == 0 {
            return Err(message::DIVIDED_BY_ZERO.plain());
        }
        let overflow = || message::OVERFLOW.with(&[&"bigint"]);
        Ok(Value::Int(n.checked_div(by).ok_or_else(overflow)?))
    })
}

fn modulo(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| match (&a[0], &a[1]) {
        (Value::Int(_), Value::Int(0)) => Err(message::DIVIDED_BY_ZERO.plain()),
        (Value::Int(n), Value::Int(by)) => Ok(Value::Int(n.checked_rem(*by).unwrap_or(0))),
        _ => match real(&a[1])? {
            0.0 => Err(message::DIVIDED_BY_ZERO.plain()),
            by => Ok(Value::Float(real(&a[0])? % by)),
        },
    })
}

fn like_pattern(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let escape = a.get(2).and_then(|e| text(e).chars().next());
        let pattern = text(&a[1]);
        if pattern.len() > PATTERN_MAX {
            return Err(message::TRUNCATED.plain());
        }
        let fits = like(&text(&a[0]), &pattern, escape);
        Ok(Value::bit(fits.ok_or_else(|| message::NO_PLAN.plain())?))
    })
}

fn moment_of(value: &Value) -> Result<DateTime> {
    match convert(value, Type::DateTime)? {
        Value::DateTime(at) => Ok(at),
        _ => Err(message::NOT_A_DATE.plain()),
    }
}

fn part_of(value: &Value) -> Result<Part> {
    let word = text(value);
    Part::of(&word).ok_or_else(|| message::OPTION_UNKNOWN.with(&[&word, &"datepart"]))
}

fn date_add(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let later = moment::add(part_of(&a[0])?, whole(&a[1])?, moment_of(&a[2])?);
        let overflow = || message::DATE_OVERFLOW.with(&[&"datetime"]);
        Ok(Value::DateTime(later.ok_or_else(overflow)?))
    })
}

fn date_difference(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let (from, to) = (moment_of(&a[1])?, moment_of(&a[2])?);
        Ok(Value::Int(moment::difference(part_of(&a[0])?, from, to)))
    })
}

fn date_part(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        Ok(Value::Int(moment::part(part_of(&a[0])?, moment_of(&a[1])?)))
    })
}

fn date_name(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        Ok(Value::Text(moment::name(
            part_of(&a[0])?,
            moment_of(&a[1])?,
        )))
    })
}

fn end_of_month(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let last = moment_of(&a[0])?.date().last_of_month();
        Ok(Value::DateTime(last.at(0, 0, 0, 0)))
    })
}

/// Blanks at the end do not count.
fn len(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let text = text(&a[0]);
        Ok(Value::Int(text.trim_end_matches(' ').chars().count() as i64))
    })
}

fn data_length(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        Ok(Value::Int(match &a[0] {
            Value::Binary(bytes) => bytes.len() as i64,
            Value::Int(_) => 4,
            Value::Float(_) => 8,
            value => 2 * text(value).chars().count() as i64,
        }))
    })
}

fn left(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        Ok(Value::Text(
            text(&a[0]).chars().take(count(&a[1])?).collect(),
        ))
    })
}

fn right(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let all: Vec<char> = text(&a[0]).chars().collect();
        let from = all.len().saturating_sub(count(&a[1])?);
        Ok(Value::Text(all[from..].iter().collect()))
    })
}

/// Begins at 1; what lies before the text counts as nothing.
fn substring(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let (start, length) = (whole(&a[1])?, whole(&a[2])?);
        let end = start.saturating_add(length).max(1);
        let from = start.max(1);
        let skip = usize::try_from(from - 1).unwrap_or(usize::MAX);
        let take = usize::try_from((end - from).max(0)).unwrap_or(usize::MAX);
        Ok(Value::Text(
            text(&a[0]).chars().skip(skip).take(take).collect(),
        ))
    })
}

fn char_index(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let (what, within) = (text(&a[0]).to_lowercase(), text(&a[1]).to_lowercase());
        let skip = match a.get(2) {
            Some(start) => count(start)?.saturating_sub(1),
            None => 0,
        };
        let rest: String = within.chars().skip(skip).collect();
        Ok(Value::Int(match rest.find(&what) {
            Some(at) if !what.is_empty() => (rest[..at].chars().count() + skip + 1) as i64,
            _ => 0,
        }))
    })
}

fn replicate(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let one = text(&a[0]);
        let times = count(&a[1])?.min(TEXT_MAX / one.len().max(1));
        Ok(Value::Text(one.repeat(times)))
    })
}

fn reverse(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        Ok(Value::Text(text(&a[0]).chars().rev().collect()))
    })
}

/// In any case, as SQL Server's usual collations compare.
fn replace(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let (within, what, with) = (text(&a[0]), text(&a[1]), text(&a[2]));
        if what.is_empty() {
            return Ok(Value::Text(within));
        }
        let mut made = String::new();
        let mut rest = 0;
        // ASCII letters keep their places in lower case.
        let (folded, wanted) = (within.to_ascii_lowercase(), what.to_ascii_lowercase());
        for (at, _) in folded.match_indices(&wanted) {
            made += &within[rest..at];
            made += &with;
            rest = at + what.len();
            if made.len() > VALUE_MAX {
                return Err(too_much());
            }
        }
        made += &within[rest..];
        match made.len() > VALUE_MAX {
            true => Err(too_much()),
            false => Ok(Value::Text(made)),
        }
    })
}

fn stuff(arguments: &[Value]) -> Result<Value> {
    strict(&arguments[..3], |a| {
        let all: Vec<char> = text(&a[0]).chars().collect();
        let (start, length) = (whole(&a[1])?, count(&a[2])?);
        let from = start.checked_sub(1).and_then(|n| usize::try_from(n).ok());
        let Some(from) = from.filter(|f| *f < all.len()) else {
            return Ok(Value::Null);
        };
        let to = from.saturating_add(length).min(all.len());
        let head: String = all[..from].iter().collect();
        let tail: String = all[to..].iter().collect();
        Ok(Value::Text(head + &text(&arguments[3]) + &tail))
    })
}

/// STR: to the right in 10 characters, without a fraction.
fn number_text(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let width = a.get(1).map_or(Ok(10), count)?.min(TEXT_MAX);
        let digits = a.get(2).map_or(Ok(0), count)?.min(16);
        let made = format!("{:.digits$}", real(&a[0])?);
        Ok(Value::Text(match made.len() > width {
            true => "*".repeat(width),
            false => format!("{made:>width$}"),
        }))
    })
}

fn quote_name(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let name = text(&a[0]);
        Ok(match a.get(1).map(text).as_deref() {
            None | Some("[" | "]") => Value::Text(format!("[{}]", name.replace(']', "]]"))),
            Some("'") => Value::Text(format!("'{}'", name.replace('\'', "''"))),
            Some("\"") => Value::Text(format!("\"{}\"", name.replace('"', "\"\""))),
            Some(_) => Value::Null,
        })
    })
}

fn character(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let code = u32::try_from(whole(&a[0])?).ok().and_then(char::from_u32);
        Ok(code.map_or(Value::Null, Value::text))
    })
}

fn ascii(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let first = text(&a[0]).chars().next();
        Ok(first.map_or(Value::Null, |c| Value::Int(u32::from(c).into())))
    })
}

fn round(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let digits = whole(&a[1])?.clamp(-30, 30) as i32;
        let shift = 10f64.powi(digits.abs());
        let n = real(&a[0])?;
        let rounded = match digits < 0 {
            true => (n / shift).round() * shift,
            // Through the shortest decimal, so that 1.005 is rounded as it is read.
            false => format!("{:.*}", digits as usize, n + n.signum() * n.abs() * 1e-15)
                .parse()
                .unwrap_or(n),
        };
        Ok(match &a[0] {
            Value::Int(n) if digits >= 0 => Value::Int(*n),
            _ => Value::Float(rounded),
        })
    })
}

fn floor(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| finite(real(&a[0])?.floor()))
}

fn ceiling(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| finite(real(&a[0])?.ceil()))
}

fn power(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| finite(real(&a[0])?.powf(real(&a[1])?)))
}

fn square_root(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| finite(real(&a[0])?.sqrt()))
}

fn finite(n: f64) -> Result<Value> {
    match n.is_finite() {
        true => Ok(Value::Float(n)),
        false => Err(message::OVERFLOW.with(&[&"float"])),
    }
}

fn is_numeric(arguments: &[Value]) -> Result<Value> {
    Ok(Value::bit(match &arguments[0] {
        Value::Int(_) | Value::Float(_) => true,
        Value::Text(text) => text.trim().parse::<f64>().is_ok_and(f64::is_finite),
        _ => false,
    }))
}

fn is_date(arguments: &[Value]) -> Result<Value> {
    Ok(Value::bit(match &arguments[0] {
        Value::Text(text) => !text.trim().is_empty() && parse_date_time(text).is_some(),
        _ => false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, arguments: &[Value]) -> Value {
        let found = FUNCTIONS.iter().find(|(n, _, _)| *n == name);
        found.unwrap().2(arguments).unwrap()
    }

    #[test]
    fn texts_are_cut_and_put_together_as_t_sql_does() {
        let t = |s: &str| Value::text(s);
        let n = Value::Int;
        assert_eq!(run("ts_substring", &[t("backup"), n(0), n(3)]), t("ba"));
        assert_eq!(run("ts_substring", &[t("backup"), n(2), n(3)]), t("ack"));
        assert_eq!(run("ts_right", &[t("backup"), n(2)]), t("up"));
        assert_eq!(
            run("ts_stuff", &[t("abcdef"), n(2), n(3), t("x")]),
            t("axef")
        );
        assert_eq!(run("ts_charindex", &[t("UP"), t("backup")]), n(5));
        assert_eq!(run("ts_charindex", &[t("x"), t("backup")]), n(0));
        assert_eq!(run("ts_len", &[t("ab  ")]), n(2));
        assert_eq!(run("ts_replace", &[t("a-B-c"), t("b"), t("é")]), t("a-é-c"));
        assert_eq!(run("ts_quotename", &[t("a]b")]), t("[a]]b]"));
        assert_eq!(
            run("ts_str", &[Value::Float(3.75), n(6), n(1)]),
            t("   3.8")
        );
        assert_eq!(run("ts_concat", &[t("a"), Value::Null, n(1)]), t("a1"));
        assert_eq!(run("ts_left", &[Value::Null, n(1)]), Value::Null);
    }

    #[test]
    fn replace_makes_the_whole_text_or_refuses() {
        let t = |s: &str| Value::text(s);
        let long = "a;".repeat(100_000);
        let made = run("ts_replace", &[t(&long), t(";"), t("é-")]);
        assert_eq!(made, t(&"aé-".repeat(100_000)));
        let word = "x".repeat(1 << 12);
        let arguments = [t(&word), t("X"), t(&word)];
        assert!(replace(&arguments).is_err());
        // What nearly fits everywhere takes no time for that.
        let (text, nearly) = ("a".repeat(4 << 20), "a".repeat(2 << 20) + "b");
        assert_eq!(run("ts_replace", &[t(&text), t(&nearly), t("")]), t(&text));
    }

    #[test]
    fn like_takes_patterns_and_steps_up_to_a_bound() {
        let (text, pattern) = ("a".repeat(1 << 20), format!("%{}b", "a".repeat(7000)));
        let of = |pattern: &str| like_pattern(&[Value::text(text.as_str()), Value::text(pattern)]);
        assert_eq!(of(&pattern).unwrap_err().number, 8623);
        assert_eq!(of(&"a".repeat(8001)).unwrap_err().number, 8152);
        assert_eq!(of("%b%").unwrap(), Value::bit(false));
    }

    #[test]
    fn division_by_zero_is_a_refusal() {
        for name in ["ts_divide", "ts_divide_whole", "ts_modulo"] {
            let found = FUNCTIONS.iter().find(|(n, _, _)| *n == name).unwrap();
            let refused = found.2(&[Value::Int(1), Value::Int(0)]).unwrap_err();
            assert_eq!(refused.number, 8134, "{name}");
        }
        let least = [Value::Int(i64::MIN), Value::Int(-1)];
        assert_eq!(divide_whole(&least).unwrap_err().number, 8115);
    }

    #[test]
    fn no_function_panics_on_any_kind_of_argument() {
        let values = [
            Value::Null,
            Value::Int(i64::MIN),
            Value::Int(i64::MAX),
            Value::Int(0),
            Value::Float(f64::MAX),
            Value::Float(-0.5),
            Value::text(""),
            Value::text("é[%-"),
            Value::text("2027-01-31"),
            Value::text("day"),
            Value::Binary(vec![255]),
        ];
        for (_, count, run) in FUNCTIONS {
            let count = if *count < 0 { 3 } else { *count } as usize;
            for i in 0..values.len() * values.len() {
                let pick =
                    |k: usize| values[(i + k * (i / values.len() + 1)) % values.len()].clone();
                let arguments: Vec<_> = (0..count).map(pick).collect();
                // Refusals are answers too.
                let _answer = run(&arguments);
            }
        }
    }
}
