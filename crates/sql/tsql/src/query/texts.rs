//! Functions about names and formats: PARSENAME, CONCAT_WS, SOUNDEX, FORMAT, DATEFROMPARTS.
//!
//! Invariants
//! - Each depends on its arguments alone, and gives NULL for what it cannot read, as in SQL Server.
//! - A format that is not known here is refused by name.
//!
//! Leaves to others: registering them (`function.rs`).

use crate::convert::convert;
use crate::message::{self, Message};
use crate::value::{DateTime, Type, Value};
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

/// FORMAT: value, its kind (`m` for a moment), format
pub(super) fn format(arguments: &[Value]) -> Result<Value> {
    if arguments[0].is_null() || arguments[2].is_null() {
        return Ok(Value::Null);
    }
    let pattern = text(&arguments[2]);
    let made = match text(&arguments[1]).as_str() {
        "t" => match convert(&arguments[0], Type::Time(7))? {
            Value::Temporal(at) => {
                let Some(made) = time_format(at.wall(), &pattern) else {
                    return Ok(Value::Null);
                };
                Some(made)
            }
            _ => return Ok(Value::Null),
        },
        "m" => {
            let at = match convert(&arguments[0], Type::DateTime2(7))? {
                Value::Temporal(at) => at.wall(),
                _ => return Ok(Value::Null),
            };
            moment_format(at, &pattern)
        }
        _ => match convert(&arguments[0], Type::Float)? {
            Value::Float(n) => number_format(n, &pattern),
            _ => return Ok(Value::Null),
        },
    };
    let made = made.ok_or_else(|| {
        let shown: String = pattern.chars().take(60).collect();
        message::NOT_HERE.with(&[&format!("the format '{shown}'")])
    })?;
    match made.len() > VALUE_MAX {
        true => Err(too_much()),
        false => Ok(Value::Text(made)),
    }
}

/// A format of .NET's for spans of time, which is how FORMAT shows a `time`. `None`: a single character that names no format,
/// or what may not stand without a backslash or quotes; the result is NULL.
fn time_format(at: DateTime, pattern: &str) -> Option<String> {
    let mut chars = pattern.chars();
    let single = chars.next().filter(|_| chars.next().is_none());
    let hundred_nanoseconds = at.subsec_nanosecond() / 100;
    let (pattern, has_fraction) = match single {
        None if pattern.is_empty() => ("hh\\:mm\\:ss", hundred_nanoseconds > 0),
        None => (pattern, false),
        Some('c' | 't' | 'T') => ("hh\\:mm\\:ss", hundred_nanoseconds > 0),
        Some('g') => ("h\\:mm\\:ss", hundred_nanoseconds > 0),
        Some('G') => ("d\\:hh\\:mm\\:ss", true),
        Some(_) => return None,
    };
    let end = match (has_fraction, single) {
        (false, _) => "",
        (true, Some('g')) => "\\.FFFFFFF",
        (true, _) => "\\.fffffff",
    };
    custom_time_format(at, &format!("{pattern}{end}"))
}

/// A format that says each part of the span. A percent sign stands before a single letter.
fn custom_time_format(at: DateTime, pattern: &str) -> Option<String> {
    let mut chars = pattern.chars().peekable();
    let mut out = String::new();
    while let Some(mut c) = chars.next() {
        let mut len = 1;
        if c == '%' {
            c = chars.next().filter(|c| *c != '%')?;
        } else {
            while c.is_ascii_alphabetic() && chars.next_if_eq(&c).is_some() {
                len += 1;
            }
        }
        let padded = |n: i8| match len {
            1 => Some(n.to_string()),
            2 => Some(format!("{n:02}")),
            _ => None,
        };
        let fraction = || format!("{:09}", at.subsec_nanosecond())[..len].to_owned();
        match c {
            '\\' => out.push(chars.next()?),
            '\'' | '"' => loop {
                match chars.next()? {
                    end if end == c => break,
                    '\\' => out.push(chars.next()?),
                    literal => out.push(literal),
                }
            },
            'h' => out += &padded(at.hour())?,
            'm' => out += &padded(at.minute())?,
            's' => out += &padded(at.second())?,
            'f' if len <= 7 => out += &fraction(),
            'F' if len <= 7 => out += fraction().trim_end_matches('0'),
            'd' if len <= 8 => out += &"0".repeat(len),
            _ => return None,
        }
    }
    Some(out)
}

/// A format of .NET's for moments, made of the letters that scripts use; `None`: another letter.
fn moment_format(at: DateTime, pattern: &str) -> Option<String> {
    let pattern = match pattern {
        "d" => "M/d/yyyy",
        "D" => "dddd, MMMM d, yyyy",
        "s" => "yyyy-MM-ddTHH:mm:ss",
        "t" => "h:mm tt",
        "T" => "h:mm:ss tt",
        "g" => "M/d/yyyy h:mm tt",
        "G" => "M/d/yyyy h:mm:ss tt",
        "u" => "yyyy-MM-dd HH:mm:ssZ",
        other => other,
    };
    let mut out = String::new();
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        if c == '\'' || c == '"' {
            let end = rest[1..].find(c)?;
            out += &rest[1..=end];
            rest = &rest[end + 2..];
            continue;
        }
        if c == '\\' {
            let escaped = rest[1..].chars().next()?;
            out.push(escaped);
            rest = &rest[1 + escaped.len_utf8()..];
            continue;
        }
        let len = rest.chars().take_while(|d| *d == c).count();
        let hour12 = (at.hour() + 11) % 12 + 1;
        let part = match (c, len) {
            ('y', 4..) => at.strftime("%Y").to_string(),
            ('y', 2) => at.strftime("%y").to_string(),
            ('M', 4..) => at.strftime("%B").to_string(),
            ('M', 3) => at.strftime("%b").to_string(),
            ('M', 2) => at.strftime("%m").to_string(),
            ('M', _) => at.month().to_string(),
            ('d', 4..) => at.strftime("%A").to_string(),
            ('d', 3) => at.strftime("%a").to_string(),
            ('d', 2) => at.strftime("%d").to_string(),
            ('d', _) => at.day().to_string(),
            ('H', 2..) => at.strftime("%H").to_string(),
            ('H', _) => at.hour().to_string(),
            ('h', 2..) => format!("{hour12:02}"),
            ('h', _) => hour12.to_string(),
            ('m', 2..) => at.strftime("%M").to_string(),
            ('m', _) => at.minute().to_string(),
            ('s', 2..) => at.strftime("%S").to_string(),
            ('s', _) => at.second().to_string(),
            ('f', 1..=7) => format!("{:09}", at.subsec_nanosecond())[..len].to_owned(),
            ('t', 2..) => (if at.hour() < 12 { "AM" } else { "PM" }).to_owned(),
            (c, _) if c.is_alphabetic() && !matches!(c, 'T' | 'Z') => return None,
            (c, len) => std::iter::repeat_n(c, len).collect(),
        };
        out += &part;
        rest = &rest[len * c.len_utf8()..];
    }
    Some(out)
}

/// A number with commas between thousands.
fn with_commas(digits: &str) -> String {
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A format of .NET's for numbers: N, F, D, P with digits, and patterns of `0`, `#`, `,` and `.`.
fn number_format(n: f64, pattern: &str) -> Option<String> {
    let letter = pattern.chars().next()?;
    let standard = letter
        .is_ascii_alphabetic()
        .then(|| pattern.get(1..))
        .flatten();
    if let Some(digits) = standard {
        let digits: Option<usize> = match digits {
            "" => None,
            digits => Some(digits.parse().ok().filter(|n| *n <= 99)?),
        };
        let places = digits.unwrap_or(2);
        return Some(match letter.to_ascii_uppercase() {
            'N' => grouped(n, places, true),
            'F' => grouped(n, places, false),
            'P' => format!("{}%", grouped(n * 100.0, places, true)),
            'D' if n.fract() == 0.0 => {
                let sign = if n < 0.0 { "-" } else { "" };
                format!(
                    "{sign}{:0>width$}",
                    format!("{:.0}", n.abs()),
                    width = digits.unwrap_or(1)
                )
            }
            _ => return None,
        });
    }
    let suffix = pattern.trim_start_matches(['0', '#', ',', '.']);
    if suffix
        .chars()
        .any(|c| c.is_ascii_alphanumeric() || "#,.;'\\%".contains(c))
        && suffix != "%"
    {
        return None;
    }
    let shape = &pattern[..pattern.len() - suffix.len()];
    let (before, after) = shape.split_once('.').unwrap_or((shape, ""));
    let n = if suffix == "%" { n * 100.0 } else { n };
    let least = before.chars().filter(|c| *c == '0').count();
    let (least_after, most) = (after.matches('0').count(), after.len());
    let made = format!("{:.most$}", n.abs());
    let (mut whole, fraction) = match made.split_once('.') {
        Some((whole, fraction)) => (whole.to_owned(), fraction.to_owned()),
        None => (made, String::new()),
    };
    if whole == "0" && least == 0 {
        whole = String::new();
    }
    whole = format!("{whole:0>least$}");
    if before.contains(',') {
        whole = with_commas(&whole);
    }
    let kept = fraction.trim_end_matches('0').len().max(least_after);
    let point = if kept > 0 { "." } else { "" };
    let sign = if n < 0.0 { "-" } else { "" };
    Some(format!("{sign}{whole}{point}{}{suffix}", &fraction[..kept]))
}

fn grouped(n: f64, places: usize, commas: bool) -> String {
    let made = format!("{:.places$}", n.abs());
    let (whole, fraction) = match made.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (made.as_str(), String::new()),
    };
    let sign = if n < 0.0 { "-" } else { "" };
    match commas {
        true => format!("{sign}{}{fraction}", with_commas(whole)),
        false => format!("{sign}{whole}{fraction}"),
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

    #[test]
    fn formats_are_those_of_the_documentation() {
        let at = jiff::civil::date(2026, 3, 1).at(22, 5, 4, 120_000_000);
        let moment = |pattern| moment_format(at, pattern);
        assert_eq!(moment("yyyyMMdd_HHmmss").unwrap(), "20260301_220504");
        assert_eq!(
            moment("MM/dd/yyyy hh:mm tt").unwrap(),
            "03/01/2026 10:05 PM"
        );
        assert_eq!(
            moment("yyyy-MM-dd HH:mm:ss.fff").unwrap(),
            "2026-03-01 22:05:04.120"
        );
        assert_eq!(moment("qq"), None);
        let at = jiff::civil::date(1900, 1, 1).at(7, 35, 10, 500_000_000);
        for (pattern, expected) in [
            ("c", Some("07:35:10.5000000")),
            ("t", Some("07:35:10.5000000")),
            ("T", Some("07:35:10.5000000")),
            ("", Some("07:35:10.5000000")),
            ("g", Some("7:35:10.5")),
            ("G", Some("0:07:35:10.5000000")),
            ("h", None),
            ("f", None),
            ("%", None),
            ("%%", None),
            ("%h", Some("7")),
            ("%hm", Some("735")),
            ("h'h 'm\"m\"", Some("7h 35m")),
            ("'h", None),
            ("hh:mm", None),
            ("hh mm", None),
            (r"ss\.FFF", Some("10.5")),
            (r"ss\.fff", Some("10.500")),
            ("hhh", None),
            ("ffffffff", None),
            ("é", None),
        ] {
            assert_eq!(time_format(at, pattern).as_deref(), expected, "{pattern}");
        }
        let whole = jiff::civil::date(1900, 1, 1).at(7, 35, 0, 0);
        let time = |pattern| time_format(whole, pattern).unwrap();
        assert_eq!(
            (time("c"), time("g")),
            ("07:35:00".into(), "7:35:00".into())
        );
        assert_eq!(time("G"), "0:07:35:00.0000000");
        let number = number_format;
        assert_eq!(number(1_234_567.891, "N2").unwrap(), "1,234,567.89");
        assert_eq!(number(1_234_567.0, "N0").unwrap(), "1,234,567");
        assert_eq!(number(1_234_567.891, "#,##0.00").unwrap(), "1,234,567.89");
        assert_eq!(number(7.0, "D3").unwrap(), "007");
        assert_eq!(number(7.5, "00.##").unwrap(), "07.5");
        assert_eq!(number(-0.25, "P0").unwrap(), "-25%");
        assert_eq!(number(1.0, "x"), None);
    }
}
