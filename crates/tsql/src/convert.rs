//! From one type to another, as CAST and assignments do it.

use jiff::civil;
use uuid::Uuid;

use crate::message::{
    CANNOT_CONVERT, Message, NOT_A_DATE, NOT_CONVERTIBLE, OUT_OF_RANGE, OVERFLOW,
};
use crate::value::{DateTime, Decimal, LENGTH_MAX, Type, Value, date_time_text};

/// Digits of a `numeric`, at most.
pub const PRECISION_MAX: u8 = 38;

/// The value in another type. Texts are cut to the type's length, as a CAST does.
pub fn convert(value: &Value, to: Type) -> Result<Value, Message> {
    if value.is_null() {
        return Ok(Value::Null);
    }
    Ok(match to {
        Type::Bit => Value::bit(!is_zero(value)?),
        Type::TinyInt => integer(value, to, 0, 255)?,
        Type::SmallInt => integer(value, to, i16::MIN.into(), i16::MAX.into())?,
        Type::Int => integer(value, to, i32::MIN.into(), i32::MAX.into())?,
        Type::BigInt | Type::SqlVariant => integer(value, to, i64::MIN, i64::MAX)?,
        Type::Numeric { precision, scale } => decimal(value, precision, scale)?,
        Type::Float => Value::Float(float(value, to)?),
        Type::DateTime => Value::DateTime(date_time(value)?),
        Type::Char(n) | Type::NChar(n) => {
            let text = cut(text(value), Some(n));
            Value::Text(format!("{text:width$}", width = usize::from(n)))
        }
        Type::VarChar(n) | Type::NVarChar(n) => Value::Text(cut(text(value), n)),
        Type::VarBinary(n) => binary(value, n)?,
        Type::UniqueIdentifier => guid(value)?,
    })
}

/// The type of a name such as `nvarchar` with its sizes; `None`: there is none.
pub fn type_of(name: &str, sizes: &[Option<u32>]) -> Option<Type> {
    let length = |default: u16, max: u16| match sizes {
        [] => Some(default),
        [Some(n)] => u16::try_from(*n).ok().filter(|n| (1..=max).contains(n)),
        _ => None,
    };
    let long = |default: u16, max: u16| match sizes {
        [None] => Some(None),
        _ => length(default, max).map(Some),
    };
    const NATIONAL_MAX: u16 = LENGTH_MAX / 2;
    let plain = |kind: Type| sizes.is_empty().then_some(kind);
    match name.to_ascii_lowercase().as_str() {
        "bit" => plain(Type::Bit),
        "tinyint" => plain(Type::TinyInt),
        "smallint" => plain(Type::SmallInt),
        "int" | "integer" => plain(Type::Int),
        "bigint" => plain(Type::BigInt),
        "numeric" | "decimal" | "dec" => {
            let (precision, scale) = match sizes {
                [] => (18, 0),
                [Some(p)] => (*p, 0),
                [Some(p), Some(s)] => (*p, *s),
                _ => return None,
            };
            let precision = u8::try_from(precision).ok()?;
            let scale = u8::try_from(scale).ok()?;
            let whole = (1..=PRECISION_MAX).contains(&precision) && scale <= precision;
            whole.then_some(Type::Numeric { precision, scale })
        }
        "money" => plain(Type::numeric(19, 4)),
        "smallmoney" => plain(Type::numeric(10, 4)),
        "float" => matches!(sizes, [] | [Some(1..=53)]).then_some(Type::Float),
        "real" => plain(Type::Float),
        "datetime" | "smalldatetime" | "date" => plain(Type::DateTime),
        "datetime2" | "datetimeoffset" => {
            matches!(sizes, [] | [Some(0..=7)]).then_some(Type::DateTime)
        }
        "char" | "character" => length(1, LENGTH_MAX).map(Type::Char),
        "nchar" => length(1, NATIONAL_MAX).map(Type::NChar),
        "varchar" => long(1, LENGTH_MAX).map(Type::VarChar),
        "nvarchar" => long(1, NATIONAL_MAX).map(Type::NVarChar),
        "sysname" => plain(Type::nvarchar(128)),
        "varbinary" | "binary" => long(1, LENGTH_MAX).map(Type::VarBinary),
        "uniqueidentifier" => plain(Type::UniqueIdentifier),
        "sql_variant" => plain(Type::SqlVariant),
        _ => None,
    }
}

fn cut(text: String, length: Option<u16>) -> String {
    match length.and_then(|n| text.char_indices().nth(n.into())) {
        Some((at, _)) => text[..at].to_owned(),
        None => text,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Float(n) => float_text(*n),
        // Style 0, as a conversion without a style has it.
        Value::DateTime(at) => date_style(at, 0).unwrap_or_else(|| date_time_text(at)),
        Value::Binary(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        value => value.to_string(),
    }
}

/// Six digits, as a conversion without a style has it.
fn float_text(n: f64) -> String {
    let rounded: f64 = format!("{n:.5e}").parse().unwrap_or(n);
    rounded.to_string()
}

/// The name of a value's own type, for messages.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null | Value::Text(_) => "nvarchar",
        Value::Int(_) => "int",
        Value::Decimal(_) => "numeric",
        Value::Float(_) => "float",
        Value::DateTime(_) => "datetime",
        Value::Binary(_) => "varbinary",
        Value::Guid(_) => "uniqueidentifier",
    }
}

fn refused(value: &Value, to: Type) -> Message {
    match value {
        Value::Text(text) => NOT_CONVERTIBLE.with(&[&"nvarchar", text, &to]),
        value => CANNOT_CONVERT.with(&[&kind_of(value), &to]),
    }
}

fn is_zero(value: &Value) -> Result<bool, Message> {
    if let Value::Text(text) = value {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" => return Ok(false),
            "false" => return Ok(true),
            _ => {}
        }
    }
    Ok(float(value, Type::Bit)? == 0.0)
}

fn float(value: &Value, to: Type) -> Result<f64, Message> {
    match value {
        Value::Int(n) => Ok(*n as f64),
        Value::Float(n) => Ok(*n),
        Value::Decimal(n) => n.to_string().parse().map_err(|_| refused(value, to)),
        Value::Text(text) => match text.trim() {
            "" => Ok(0.0),
            text => {
                let number = text.parse::<f64>().ok().filter(|n| n.is_finite());
                number.ok_or_else(|| refused(value, to))
            }
        },
        _ => Err(refused(value, to)),
    }
}

fn integer(value: &Value, to: Type, min: i64, max: i64) -> Result<Value, Message> {
    let number = match value {
        Value::Int(n) => i128::from(*n),
        // Fractions are cut off, not rounded.
        Value::Decimal(n) => n.unscaled / 10i128.pow(n.scale.min(PRECISION_MAX).into()),
        Value::Float(n) if n.abs() < 1e30 => *n as i128,
        Value::Text(text) => match text.trim() {
            "" => 0,
            text => text.parse().map_err(|_| refused(value, to))?,
        },
        Value::Float(_) => return Err(OVERFLOW.with(&[&to])),
        _ => return Err(refused(value, to)),
    };
    match i64::try_from(number) {
        Ok(n) if (min..=max).contains(&n) => Ok(Value::Int(n)),
        _ if matches!(to, Type::TinyInt | Type::SmallInt) => {
            Err(OUT_OF_RANGE.with(&[&to, &number]))
        }
        _ => Err(OVERFLOW.with(&[&to])),
    }
}

fn decimal(value: &Value, precision: u8, scale: u8) -> Result<Value, Message> {
    let to = Type::Numeric { precision, scale };
    let overflow = || OVERFLOW.with(&[&"numeric"]);
    let text = match value {
        Value::Float(n) if n.is_finite() => shortest(*n),
        Value::Int(_) | Value::Decimal(_) => value.to_string(),
        Value::Text(text) => text.trim().to_owned(),
        _ => return Err(refused(value, to)),
    };
    let unscaled = match parse_decimal(&text, scale) {
        Some(n) => n.ok_or_else(overflow)?,
        None => return Err(CANNOT_CONVERT.with(&[&kind_of(value), &"numeric"])),
    };
    let limit = 10i128.checked_pow(precision.into()).ok_or_else(overflow)?;
    match unscaled.unsigned_abs() < limit.unsigned_abs() {
        true => Ok(Value::Decimal(Decimal { unscaled, scale })),
        false => Err(overflow()),
    }
}

/// The shortest digits that stand for the number, without an exponent.
fn shortest(n: f64) -> String {
    // Rust's Display never writes an exponent.
    n.to_string()
}

/// Digits with at most one point, rounded to `scale` digits behind it. `None`: no number. `Some(None)`: too many digits.
pub fn parse_decimal(text: &str, scale: u8) -> Option<Option<i128>> {
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || whole.len() + fraction.len() == 0 {
        return None;
    }
    let scale = usize::from(scale);
    let kept = &fraction[..fraction.len().min(scale)];
    let zeros = scale - kept.len();
    let whole = whole.trim_start_matches('0');
    if whole.len() + scale > usize::from(PRECISION_MAX) + 1 {
        return Some(None);
    }
    let text = format!("{whole}{kept}{:0<zeros$}", "");
    let mut number: i128 = match text.is_empty() {
        true => 0,
        false => match text.parse() {
            Ok(n) => n,
            Err(_) => return Some(None),
        },
    };
    let next = fraction.as_bytes().get(scale);
    if next.is_some_and(|d| *d >= b'5') {
        number = match number.checked_add(1) {
            Some(number) => number,
            None => return Some(None),
        };
    }
    Some(Some(if negative { -number } else { number }))
}

/// Texts that a script may write a moment in. Two digits for a year are refused.
pub fn parse_date_time(text: &str) -> Option<DateTime> {
    let text = text.trim();
    if text.is_empty() {
        return Some(civil::date(1900, 1, 1).at(0, 0, 0, 0));
    }
    let text = text.strip_suffix('Z').unwrap_or(text);
    if let Ok(at) = text.parse::<DateTime>() {
        return Some(at);
    }
    let (date, time) = match text.split_once([' ', 'T']) {
        Some((date, time)) if date.contains(['-', '/', '.']) || date.len() == 8 => {
            (date, time.trim())
        }
        _ => (text, ""),
    };
    let date = parse_date(date).or_else(|| spelled_date(text))?;
    let time = match time {
        "" => civil::Time::midnight(),
        _ if parse_date(text.split(' ').next()?).is_none() => civil::Time::midnight(),
        time => parse_time(time)?,
    };
    Some(date.to_datetime(time))
}

fn parse_date(text: &str) -> Option<civil::Date> {
    if text.len() == 8 && text.bytes().all(|b| b.is_ascii_digit()) {
        return civil::Date::strptime("%Y%m%d", text).ok();
    }
    let parts: Vec<&str> = text.split(['-', '/', '.']).collect();
    let [a, b, c] = parts.as_slice() else {
        return None;
    };
    let number = |s: &&str| s.parse::<i16>().ok();
    let (a_len, c_len) = (a.len(), c.len());
    let (a, b, c) = (number(a)?, number(b)?, number(c)?);
    // Year first, or as in the United States, month first.
    let (year, month, day) = match (a_len, c_len) {
        (4, _) => (a, b, c),
        (_, 4) => (c, a, b),
        _ => return None,
    };
    civil::Date::new(year, month.try_into().ok()?, day.try_into().ok()?).ok()
}

/// `Jan 31, 2027` and `31 January 2027`.
fn spelled_date(text: &str) -> Option<civil::Date> {
    let formats = ["%b %d, %Y", "%b %d %Y", "%B %d, %Y", "%d %b %Y", "%d %B %Y"];
    formats
        .iter()
        .find_map(|format| civil::Date::strptime(format, text).ok())
}

fn parse_time(text: &str) -> Option<civil::Time> {
    let upper = text.to_ascii_uppercase();
    let (clock, afternoon) = match (upper.strip_suffix("PM"), upper.strip_suffix("AM")) {
        (Some(clock), _) => (clock.trim(), Some(true)),
        (_, Some(clock)) => (clock.trim(), Some(false)),
        _ => (upper.as_str(), None),
    };
    let whole = match clock.matches(':').count() {
        1 => format!("{clock}:00"),
        _ => clock.to_owned(),
    };
    let padded = match whole.find(':') {
        Some(1) => format!("0{whole}"),
        _ => whole,
    };
    let time: civil::Time = padded.parse().ok()?;
    let hour = match (afternoon, time.hour()) {
        (None, hour) => hour,
        (Some(_), 0 | 13..) => return None,
        (Some(false), 12) => 0,
        (Some(true), 12) => 12,
        (Some(false), hour) => hour,
        (Some(true), hour) => hour + 12,
    };
    civil::Time::new(hour, time.minute(), time.second(), time.subsec_nanosecond()).ok()
}

fn date_time(value: &Value) -> Result<DateTime, Message> {
    let at = match value {
        Value::DateTime(at) => Some(*at),
        Value::Text(text) => parse_date_time(text),
        // Days since 1900.
        Value::Int(days) => i32::try_from(*days).ok().and_then(|days| {
            let start = civil::date(1900, 1, 1).at(0, 0, 0, 0);
            start
                .checked_add(jiff::Span::new().try_days(days).ok()?)
                .ok()
        }),
        _ => return Err(refused(value, Type::DateTime)),
    };
    at.ok_or_else(|| NOT_A_DATE.plain())
}

fn binary(value: &Value, length: Option<u16>) -> Result<Value, Message> {
    let mut bytes = match value {
        Value::Binary(bytes) => bytes.clone(),
        Value::Text(text) => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        Value::Guid(id) => id.as_bytes().to_vec(),
        Value::Int(n) => n.to_be_bytes().to_vec(),
        _ => return Err(refused(value, Type::VarBinary(length))),
    };
    bytes.truncate(length.map_or(usize::MAX, usize::from));
    Ok(Value::Binary(bytes))
}

fn guid(value: &Value) -> Result<Value, Message> {
    match value {
        Value::Guid(id) => Ok(Value::Guid(*id)),
        Value::Text(text) => match Uuid::try_parse(text.trim()) {
            Ok(id) => Ok(Value::Guid(id)),
            Err(_) => Err(CANNOT_CONVERT.with(&[&"nvarchar", &"uniqueidentifier"])),
        },
        _ => Err(refused(value, Type::UniqueIdentifier)),
    }
}

/// A moment in one of CONVERT's styles; `None`: there is no such style here.
pub fn date_style(at: &DateTime, style: i64) -> Option<String> {
    let ms = at.subsec_nanosecond() / 1_000_000;
    let format = match style {
        0 | 100 => {
            let hour = match at.hour() % 12 {
                0 => 12,
                hour => hour,
            };
            let half = if at.hour() < 12 { "AM" } else { "PM" };
            let day = at.strftime("%b %e %Y");
            return Some(format!("{day} {hour:>2}:{:02}{half}", at.minute()));
        }
        1 => "%m/%d/%y",
        101 => "%m/%d/%Y",
        102 => "%Y.%m.%d",
        103 => "%d/%m/%Y",
        104 => "%d.%m.%Y",
        105 => "%d-%m-%Y",
        106 => "%d %b %Y",
        107 => "%b %d, %Y",
        8 | 108 => "%H:%M:%S",
        10 => "%m-%d-%y",
        110 => "%m-%d-%Y",
        11 => "%y/%m/%d",
        111 => "%Y/%m/%d",
        12 => "%y%m%d",
        112 => "%Y%m%d",
        13 | 113 => return Some(format!("{}:{ms:03}", at.strftime("%d %b %Y %H:%M:%S"))),
        14 | 114 => return Some(format!("{}:{ms:03}", at.strftime("%H:%M:%S"))),
        20 | 120 => "%Y-%m-%d %H:%M:%S",
        21 | 25 | 121 => return Some(date_time_text(at)),
        23 => "%Y-%m-%d",
        126 | 127 => return Some(format!("{}.{ms:03}", at.strftime("%Y-%m-%dT%H:%M:%S"))),
        _ => return None,
    };
    Some(at.strftime(format).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_cut_rounded_and_refused_as_the_types_say() {
        let to = |value: Value, kind| convert(&value, kind);
        assert_eq!(to(Value::Float(2.9), Type::Int), Ok(Value::Int(2)));
        assert_eq!(to(Value::text(" 42 "), Type::Int), Ok(Value::Int(42)));
        assert_eq!(to(Value::Int(300), Type::TinyInt).unwrap_err().number, 220);
        assert_eq!(to(Value::Int(1 << 40), Type::Int).unwrap_err().number, 8115);
        assert_eq!(to(Value::text("x"), Type::Int).unwrap_err().number, 245);
        let two = to(Value::Float(3.05), Type::numeric(5, 1)).unwrap();
        assert_eq!(two.to_string(), "3.1");
        let long = to(Value::Float(1.0 / 3.0), Type::numeric(38, 18)).unwrap();
        assert_eq!(long.to_string(), "0.333333333333333300");
        let over = to(Value::Int(1000), Type::numeric(3, 0)).unwrap_err();
        assert_eq!(over.number, 8115);
    }

    #[test]
    fn decimals_of_any_text_neither_panic_nor_lose_digits() {
        assert_eq!(parse_decimal("-1.25", 1), Some(Some(-13)));
        assert_eq!(parse_decimal("1", 2), Some(Some(100)));
        assert_eq!(parse_decimal(".5", 0), Some(Some(1)));
        assert_eq!(parse_decimal(&"9".repeat(60), 0), Some(None));
        assert_eq!(parse_decimal(&format!("{}.5", i128::MAX), 0), Some(None));
        for text in ["", ".", "-", "1.2.3", "1e5", "é"] {
            assert_eq!(parse_decimal(text, 2), None, "{text}");
        }
    }

    #[test]
    fn moments_are_read_in_the_spellings_of_scripts() {
        let at = |text| parse_date_time(text).map(|at| date_time_text(&at));
        let noon = Some("2027-01-31 12:30:00.000".to_owned());
        for text in [
            "2027-01-31 12:30",
            "2027-01-31T12:30:00",
            "20270131 12:30:00",
            "01/31/2027 12:30 PM",
            "2027-01-31 12:30:00.000",
        ] {
            assert_eq!(at(text), noon, "{text}");
        }
        let day = Some("2027-01-31 00:00:00.000".to_owned());
        for text in ["20270131", "2027-01-31", "Jan 31, 2027", "31 January 2027"] {
            assert_eq!(at(text), day, "{text}");
        }
        for text in [
            "tomorrow",
            "2027-13-01",
            "31/12/27",
            "2027-01-31 25:00",
            "é",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn moments_are_written_in_the_styles_of_convert() {
        let at = civil::date(2026, 3, 1).at(22, 5, 4, 120_000_000);
        let style = |n| date_style(&at, n).unwrap();
        assert_eq!(style(0), "Mar  1 2026 10:05PM");
        assert_eq!(style(112), "20260301");
        assert_eq!(style(120), "2026-03-01 22:05:04");
        assert_eq!(style(114), "22:05:04:120");
        assert_eq!(date_style(&at, 999), None);
    }

    #[test]
    fn type_names_have_their_sizes_and_defaults() {
        let kind = |name, sizes: &[u32]| {
            let sizes: Vec<_> = sizes.iter().map(|n| Some(*n)).collect();
            type_of(name, &sizes)
        };
        assert_eq!(kind("NUMERIC", &[20, 2]), Some(Type::numeric(20, 2)));
        assert_eq!(kind("decimal", &[]), Some(Type::numeric(18, 0)));
        assert_eq!(kind("sysname", &[]), Some(Type::nvarchar(128)));
        assert_eq!(type_of("nvarchar", &[None]), Some(Type::NVarChar(None)));
        assert_eq!(kind("numeric", &[39]), None);
        assert_eq!(kind("int", &[4]), None);
        assert_eq!(kind("table", &[]), None);
    }
}
