//! Functions about names and texts: PARSENAME, CONCAT_WS, SOUNDEX, DATEFROMPARTS.
//!
//! Invariants
//! - Each depends on its arguments alone, and gives NULL for what it cannot read, as in SQL Server.
//!
//! Leaves to others: registering them (`function.rs`), and FORMAT (`formats.rs`).

use crate::convert::convert;
use crate::message::{self, Message};
use crate::value::{Type, Value};
use crate::variables::{Sum, VALUE_MAX, too_much};

type Result<T> = std::result::Result<T, Message>;

/// The memory of a row with one value, without its text.
const ROW_BYTES: usize = 128;

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

fn whole(value: &Value) -> Result<Option<i64>> {
    Ok(match convert(value, Type::BigInt)? {
        Value::Int(n) => Some(n),
        _ => None,
    })
}

/// STRING_SPLIT of what a row has: rows, packed. Arguments: the text, the separator, whether places are wanted.
pub(super) fn split(arguments: &[Value]) -> Result<Value> {
    let between = text(&arguments[1]);
    if between.chars().count() != 1 {
        return Err(message::SEPARATOR.plain());
    }
    if arguments[0].is_null() {
        return Ok(super::packed::rows(Vec::new()));
    }
    let whole = text(&arguments[0]);
    let mut sum = Sum::default();
    let mut rows = Vec::new();
    for (piece, number) in whole.split(&between).zip(1..) {
        sum.add_bytes(piece.len() + ROW_BYTES)?;
        let mut row = vec![Value::text(piece)];
        if arguments[2] == Value::Int(1) {
            row.push(Value::Int(number));
        }
        rows.push(row);
    }
    Ok(super::packed::rows(rows))
}

/// GENERATE_SERIES: whole numbers from one to another. Arguments: the first, the last, the step or NULL.
pub(super) fn series(arguments: &[Value]) -> Result<Value> {
    let (Some(first), Some(last)) = (whole(&arguments[0])?, whole(&arguments[1])?) else {
        return Ok(super::packed::rows(Vec::new()));
    };
    let step = whole(&arguments[2])?.unwrap_or(if first <= last { 1 } else { -1 });
    if step == 0 {
        return Err(message::NOT_HERE.with(&[&"GENERATE_SERIES with the step 0"]));
    }
    let mut sum = Sum::default();
    let mut rows = Vec::new();
    let mut next = Some(first);
    while let Some(number) = next.filter(|n| if step > 0 { *n <= last } else { *n >= last }) {
        sum.add_bytes(ROW_BYTES)?;
        rows.push(vec![Value::Int(number)]);
        next = number.checked_add(step);
    }
    Ok(super::packed::rows(rows))
}

/// `agent_datetime(20270131, 63000)`: the moment of a job's run.
pub(super) fn agent_datetime(arguments: &[Value]) -> Result<Value> {
    let (Some(date), Some(time)) = (whole(&arguments[0])?, whole(&arguments[1])?) else {
        return Ok(Value::Null);
    };
    let text = format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        date / 10_000,
        date / 100 % 100,
        date % 100,
        time / 10_000,
        time / 100 % 100,
        time % 100
    );
    super::cell::stored(convert(&Value::Text(text), Type::DateTime)?)
}

/// A name of an object as rows about objects are looked up by it: in lower case, with its database and its schema.
pub(crate) fn object_key(database: &str, schema: &str, name: &str) -> String {
    let name = name.trim_end_matches(' ');
    format!("{database}\u{1}{schema}\u{1}{name}").to_lowercase()
}

/// The key of a name as a script writes it, in a database; NULL where it is no name.
///
/// Errors: 50002 for a temporary table, which only a name that is known before the query runs can mean.
pub(super) fn object_key_of(values: &[Value]) -> Result<Value> {
    let [Value::Text(name), Value::Text(here)] = values else {
        return Ok(Value::Null);
    };
    let Some(parts) = parts(name) else {
        return Ok(Value::Null);
    };
    let mut all = parts.iter().map(String::as_str);
    let last = all.next().unwrap_or_default();
    let schema = all.next().filter(|s| !s.is_empty()).unwrap_or("dbo");
    let database = all.next().filter(|d| !d.is_empty());
    let is_shared = last.starts_with("##");
    if last.starts_with('#') && !is_shared {
        let what = "the name of a temporary table that a column has";
        return Err(message::NOT_HERE.with(&[&what]));
    }
    if all.next().is_some_and(|server| !server.is_empty()) {
        return Ok(Value::Null);
    }
    let database = match is_shared {
        true => "tempdb",
        false => database.unwrap_or(here),
    };
    Ok(Value::Text(object_key(database, schema, last)))
}

/// The parts of a name, the last one first; `None`: it is none.
pub(crate) fn parts(name: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut rest = name;
    loop {
        let close = match rest.chars().next() {
            Some('[') => Some("]"),
            Some('"') => Some("\""),
            _ => None,
        };
        let Some(close) = close else {
            let end = rest.find('.').unwrap_or(rest.len());
            parts.push(rest[..end].to_owned());
            match rest.get(end + 1..) {
                Some(after) => rest = after,
                None => break,
            }
            continue;
        };
        let mut part = String::new();
        rest = &rest[1..];
        loop {
            let end = rest.find(close)?;
            part += &rest[..end];
            rest = &rest[end + 1..];
            match rest.strip_prefix(close) {
                Some(after) => {
                    part += close;
                    rest = after;
                }
                None => break,
            }
        }
        parts.push(part);
        match rest.strip_prefix('.') {
            Some(after) => rest = after,
            None if rest.is_empty() => break,
            None => return None,
        }
    }
    parts.reverse();
    (parts.len() <= 4).then_some(parts)
}

/// PARSENAME: name, number of the part from the right
pub(super) fn parse_name(arguments: &[Value]) -> Result<Value> {
    let number = whole(&arguments[1])?;
    let number = number.and_then(|n| usize::try_from(n.checked_sub(1)?).ok());
    let found = match (&arguments[0], number) {
        (Value::Null, _) | (_, None) => None,
        (name, Some(i)) => parts(&text(name)).and_then(|parts| parts.get(i).cloned()),
    };
    Ok(found.map_or(Value::Null, |part| Value::text_or_null(&part)))
}

/// SOUNDEX: text
pub(super) fn soundex(arguments: &[Value]) -> Result<Value> {
    match &arguments[0] {
        Value::Null => Ok(Value::Null),
        value => sound(&text(value)).map(Value::Text),
    }
}

/// DIFFERENCE: two texts. How many places of their codes are the same.
pub(super) fn difference(arguments: &[Value]) -> Result<Value> {
    if arguments.iter().any(Value::is_null) {
        return Ok(Value::Null);
    }
    let (left, right) = (sound(&text(&arguments[0]))?, sound(&text(&arguments[1]))?);
    let same = left.bytes().zip(right.bytes()).filter(|(a, b)| a == b);
    Ok(Value::Int(same.count() as i64))
}

/// The code of a name, by the rules since compatibility level 110: letters of one number that are next to each other, or have
/// only H and W between them, count once; a vowel between them separates them.
///
/// Errors: 50002 where SQL Server's documentation has no rule.
fn sound(name: &str) -> Result<String> {
    let refused = |what: &str| Err(message::NOT_HERE.with(&[&format!("SOUNDEX of {what}")]));
    let name = name.trim_end_matches(' ');
    let mut code = String::new();
    let mut last = None;
    let mut is_after_y = false;
    for letter in name.chars().map(|c| c.to_ascii_uppercase()) {
        if code.len() == 4 {
            break;
        }
        let digit = match letter {
            'B' | 'F' | 'P' | 'V' => Some('1'),
            'C' | 'G' | 'J' | 'K' | 'Q' | 'S' | 'X' | 'Z' => Some('2'),
            'D' | 'T' => Some('3'),
            'L' => Some('4'),
            'M' | 'N' => Some('5'),
            'R' => Some('6'),
            'A' | 'E' | 'I' | 'O' | 'U' | 'H' | 'W' | 'Y' => None,
            _ => return refused("a text with other characters than letters"),
        };
        match (letter, digit) {
            _ if code.is_empty() => {
                code.push(letter);
                last = digit;
            }
            ('H' | 'W', _) => {}
            ('Y', _) => is_after_y = true,
            (_, Some(_)) if digit == last && is_after_y => {
                return refused("letters of one number with Y between them");
            }
            (_, Some(_)) if digit == last => {}
            (_, Some(new)) => {
                code.push(new);
                (last, is_after_y) = (digit, false);
            }
            (_, None) => (last, is_after_y) = (None, false),
        }
    }
    match code.is_empty() {
        true => refused("an empty text"),
        false => Ok(format!("{code:0<4}")),
    }
}

/// Two binaries, one after the other. Arguments: both, and the most bytes (NULL: no bound but that of all values).
pub(super) fn joined_binary(arguments: &[Value]) -> Result<Value> {
    let [Value::Binary(left), Value::Binary(right), most] = arguments else {
        return Ok(Value::Null);
    };
    if left.len() + right.len() > VALUE_MAX {
        return Err(too_much());
    }
    let mut both = [left.as_slice(), right].concat();
    if let Some(most) = whole(most)? {
        both.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    }
    Ok(Value::Binary(both))
}

/// CONCAT_WS: what stands between, texts; NULL is left out
pub(super) fn concat_between(arguments: &[Value]) -> Result<Value> {
    let between = text(&arguments[0]);
    let all = arguments[1..].iter().filter(|v| !v.is_null()).map(text);
    Ok(Value::Text(all.collect::<Vec<_>>().join(&between)))
}

/// DATEFROMPARTS: year, month, day
pub(super) fn date_from_parts(arguments: &[Value]) -> Result<Value> {
    let mut numbers = [0; 3];
    for (number, argument) in numbers.iter_mut().zip(arguments) {
        match whole(argument)? {
            Some(n) => *number = n,
            None => return Ok(Value::Null),
        }
    }
    let date = || {
        let [year, month, day] = numbers;
        let (month, day) = (i8::try_from(month).ok()?, i8::try_from(day).ok()?);
        let year = i16::try_from(year)
            .ok()
            .filter(|y| (1..=9999).contains(y))?;
        jiff::civil::Date::new(year, month, day).ok()
    };
    let date = date().ok_or_else(|| message::PARTS_INVALID.with(&[&"date"]))?;
    Ok(Value::Temporal(crate::value::Temporal::Date(date)))
}

/// The next level of a recursion: level, limit (0: none)
pub(super) fn next_level(arguments: &[Value]) -> Result<Value> {
    let level = whole(&arguments[0])?.unwrap_or(0).saturating_add(1);
    let limit = whole(&arguments[1])?.unwrap_or(0);
    match limit > 0 && level > limit {
        true => Err(message::RECURSION_MAX.with(&[&limit])),
        false => Ok(Value::Int(level)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_names_are_found_from_the_right() {
        let part = |name: &str, n: i64| parse_name(&[Value::text(name), Value::Int(n)]).unwrap();
        assert_eq!(part("16.0.4236.2", 4), Value::text("16"));
        assert_eq!(part("[a.b].[c]]d].e", 2), Value::text("c]d"));
        assert_eq!(part("a..b", 2), Value::Null);
        assert_eq!(part("a", 2), Value::Null);
        assert_eq!(part("a.b.c.d.e", 1), Value::Null);
        assert_eq!(part("[a", 1), Value::Null);
    }
}
