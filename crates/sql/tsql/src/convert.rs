//! Conversions between types, as in CAST, CONVERT and assignments.
//!
//! Invariants
//! - The results, and the message numbers of values that do not fit, are SQL Server's: texts are cut to the type's
//!   length, money is rounded, other numbers are truncated.
//! - A value that has no form in the new type is an error; no conversion invents one.
//!
//! Leaves to others: arithmetic and comparison (`value.rs`), reading dates (`dates.rs`), and which of two types
//! an operator converts to (`query/translate`).

use std::borrow::Cow;

use jiff::civil;
use uuid::Uuid;

use crate::dates::{DateOrder, is_date_form, parse_styled, reordered, without_offset};
pub use crate::dates::{parse_date_time, parse_moment};
use crate::message::{
    CANNOT_CONVERT, DATE_OUT_OF_RANGE, INT_OVERFLOW, Message, NO_ROOM, NOT_A_DATE, NOT_A_GUID,
    NOT_CONVERTIBLE, NOT_HERE, NOT_MONEY, OUT_OF_RANGE, OVERFLOW, SMALL_OVERFLOW, STYLE_NOT_FOR,
    STYLE_UNKNOWN, TYPE_CLASH, TYPE_OVERFLOW,
};
use crate::pairs::can_become;
use crate::value::{
    DateTime, Decimal, LENGTH_MAX, SCALE_MAX, Temporal, Type, Value, date_time_text, fraction_text,
    offset_text,
};

/// The most digits of a `numeric`.
pub const PRECISION_MAX: u8 = 38;
/// Digits of money after the point.
pub const MONEY_SCALE: u8 = 4;

/// Converts a value to another type. Texts are cut to the type's length, as in a CAST.
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
        Type::Money => money(value, to, i64::MIN.into(), i64::MAX.into())?,
        Type::SmallMoney => money(value, to, i32::MIN.into(), i32::MAX.into())?,
        Type::Float => Value::Float(float(value, to)?),
        Type::DateTime => Value::DateTime(date_time(value)?),
        Type::Date
        | Type::Time(_)
        | Type::SmallDateTime
        | Type::DateTime2(_)
        | Type::DateTimeOffset(_) => Value::Temporal(temporal(value, to)?),
        Type::Char(n) | Type::NChar(n) => {
            let text = fitted(value, to, Some(n))?;
            Value::Text(format!("{text:width$}", width = usize::from(n)))
        }
        Type::VarChar(n) | Type::NVarChar(n) => Value::Text(fitted(value, to, n)?),
        Type::Binary(_) | Type::VarBinary(_) => binary(value, to)?,
        Type::UniqueIdentifier => guid(value)?,
    })
}

/// The same for a value of known type, which can matter: how many bytes an integer has, how many a character, and
/// whether a number is money.
pub fn convert_from(value: &Value, from: Type, to: Type) -> Result<Value, Message> {
    match (value, to) {
        (Value::Decimal(n), to) if from.is_money() && to.is_text() => {
            money_as_text(*n, from, to, MONEY_STYLE)
        }
        // Money is rounded; other numbers are truncated.
        (Value::Decimal(_), to) if from.is_money() && to.is_integer() => {
            convert(&decimal(value, PRECISION_MAX, 0)?, to)
        }
        (Value::Int(n), Type::Binary(_) | Type::VarBinary(_)) => {
            let width = match from {
                Type::Bit | Type::TinyInt => 1,
                Type::SmallInt => 2,
                Type::BigInt => 8,
                _ => 4,
            };
            let bytes = n.to_be_bytes();
            Ok(fitted_number(&bytes[bytes.len() - width..], to))
        }
        (Value::Text(text), Type::Binary(_) | Type::VarBinary(_)) if !from.is_national() => {
            Ok(fitted_bytes(text.chars().map(narrow_or_mark).collect(), to))
        }
        _ => convert(value, to).map_err(|refused| {
            let refused = of_type(refused, value, from, to);
            overflow_of(refused, value, from, to)
        }),
    }
}

/// An overflow in the words that SQL Server has for the types.
fn overflow_of(refused: Message, value: &Value, from: Type, to: Type) -> Message {
    if ![OVERFLOW.number, OUT_OF_RANGE.number].contains(&refused.number) {
        return refused;
    }
    let named = |state: u8| {
        let mut named = OVERFLOW.with(&[&to.bare_name()]);
        named.text = named.text.replacen("expression", &from.bare_name(), 1);
        named.state = state;
        named
    };
    let valued = |state: u8, n: f64| {
        let mut valued = TYPE_OVERFLOW.with(&[&to.bare_name(), &six_places(n)]);
        valued.state = state;
        valued
    };
    match (value, to) {
        (Value::Float(_), Type::Numeric { .. }) => named(6),
        (_, Type::Numeric { .. }) => named(8),
        (Value::Decimal(_), Type::VarChar(_) | Type::Char(_)) => named(5),
        (Value::Float(n), Type::VarChar(_) | Type::Char(_) | Type::SmallInt) => valued(2, *n),
        (Value::Float(n), Type::TinyInt) => valued(1, *n),
        (Value::Float(n), Type::Int) => valued(3, *n),
        (Value::Decimal(_), Type::TinyInt | Type::SmallInt) if !from.is_money() => {
            OVERFLOW.with(&[&to])
        }
        (Value::Int(_), Type::TinyInt | Type::SmallInt) if from == Type::BigInt => {
            OVERFLOW.with(&[&to])
        }
        (Value::Int(_), Type::SmallInt) => Message {
            state: 1,
            ..refused
        },
        _ => refused,
    }
}

/// A `float` with six digits after the point, 17 of all its digits.
fn six_places(n: f64) -> String {
    const DIGITS: usize = 17;
    let text = format!("{n:.6}");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.as_str()),
    };
    let whole = digits.find('.').unwrap_or(digits.len());
    if whole <= DIGITS {
        return text;
    }
    let rounded = format!("{:.*e}", DIGITS - 1, n.abs());
    let rounded = rounded.split('e').next().unwrap_or_default();
    let rounded: String = rounded.chars().filter(char::is_ascii_digit).collect();
    format!("{sign}{rounded:0<whole$}.000000")
}

/// A value as conversions to a type read it: a text that is a date in an order of day, month and year.
fn in_order(value: &Value, to: Type, order: DateOrder) -> Cow<'_, Value> {
    match value {
        Value::Text(text) if to.is_moment() && order != DateOrder::default() => {
            Cow::Owned(Value::Text(reordered(text, to, order).into_owned()))
        }
        value => Cow::Borrowed(value),
    }
}

/// The same as [`convert`], for a text that may be a date in an order.
pub fn convert_given(value: &Value, to: Type, order: DateOrder) -> Result<Value, Message> {
    convert(&in_order(value, to, order), to)
}

/// The same as [`convert_from`], for a text that may be a date in an order.
pub fn convert_in(value: &Value, from: Type, to: Type, order: DateOrder) -> Result<Value, Message> {
    convert_from(&in_order(value, to, order), from, to)
}

/// A refusal that names the type of a text as the text's own.
fn of_type(refused: Message, value: &Value, from: Type, to: Type) -> Message {
    let Value::Text(text) = value else {
        return refused;
    };
    let name = match from.is_text() {
        true => from.bare_name(),
        false => return refused,
    };
    if refused.number == NOT_CONVERTIBLE.number {
        NOT_CONVERTIBLE.with(&[&name, text, &to.bare_name()])
    } else if refused.number == CANNOT_CONVERT.number {
        CANNOT_CONVERT.with(&[&name, &to.bare_name()])
    } else if refused.number == DATE_OUT_OF_RANGE.number {
        DATE_OUT_OF_RANGE.with(&[&name, &to.bare_name()])
    } else if [SMALL_OVERFLOW.number, INT_OVERFLOW.number].contains(&refused.number) {
        text_overflow(&name, text, to)
    } else {
        refused
    }
}

/// A text that is a whole number beyond a type.
fn text_overflow(name: &str, text: &str, to: Type) -> Message {
    let (column, state) = match to {
        Type::TinyInt => ("INT1", 1),
        Type::SmallInt => ("INT2", 2),
        Type::Int => return INT_OVERFLOW.with(&[&name, &text]),
        _ => return OVERFLOW.with(&[&to]),
    };
    let mut refused = SMALL_OVERFLOW.with(&[&name, &text, &column]);
    refused.state = state;
    refused
}

/// CONVERT with a style, which selects the text form of a moment, of money or of a binary. Errors: 281, 9809.
pub fn convert_styled(value: &Value, from: Type, to: Type, style: i64) -> Result<Value, Message> {
    match value {
        Value::DateTime(_) | Value::Temporal(_) if to.is_text() => {
            let text = moment_style(value, style);
            let text = text.ok_or_else(|| STYLE_UNKNOWN.with(&[&style, &from.bare_name()]))?;
            convert(&Value::Text(text), to)
        }
        Value::Text(text) if to.is_moment() => {
            let known = styled(civil::DateTime::default(), Type::DateTime, style);
            known.ok_or_else(|| STYLE_NOT_FOR.with(&[&style, &"nvarchar", &to]))?;
            let parsed = parse_styled(text, style).ok_or_else(|| match to {
                Type::DateTime | Type::SmallDateTime if is_date_form(text) => {
                    DATE_OUT_OF_RANGE.with(&[&from.bare_name(), &to])
                }
                _ => NOT_A_DATE.plain(),
            })?;
            let (at, minutes) = parsed;
            let minutes = minutes.unwrap_or(0);
            let moment = Temporal::DateTimeOffset(at, minutes, SCALE_MAX);
            convert(&Value::Temporal(moment), to)
        }
        Value::Binary(bytes) if to.is_text() && matches!(style, 1 | 2) => {
            let digits: String = bytes.iter().map(|b| format!("{b:02X}")).collect();
            let prefix = if style == 1 { "0x" } else { "" };
            convert(&Value::Text(format!("{prefix}{digits}")), to)
        }
        Value::Text(text) if matches!(to, Type::VarBinary(_)) && matches!(style, 1 | 2) => {
            let digits = match style {
                1 => text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")),
                _ => Some(text.as_str()),
            };
            let bytes = digits.and_then(bytes_of);
            let bytes = bytes.ok_or_else(|| CANNOT_CONVERT.with(&[&"varchar", &"varbinary"]))?;
            convert(&Value::Binary(bytes), to)
        }
        Value::Binary(_) if to.is_text() && style != 0 => {
            Err(STYLE_UNKNOWN.with(&[&style, &"varbinary"]))
        }
        Value::Decimal(n) if from.is_money() && to.is_text() => money_as_text(*n, from, to, style),
        Value::Float(n) if to.is_text() => float_as_text(*n, to, style),
        value => convert_from(value, from, to),
    }
}

/// The default style of money.
const MONEY_STYLE: i64 = 0;

/// Styles 0 (two digits after the point), 1 (the same, with commas), 2 and 126 (four digits). Errors: 281; 234 if the
/// text is too long.
fn money_as_text(n: Decimal, from: Type, to: Type, style: i64) -> Result<Value, Message> {
    let scale = match style {
        0 | 1 => 2,
        2 | 126 => MONEY_SCALE,
        _ => return Err(STYLE_UNKNOWN.with(&[&style, &from])),
    };
    let rounded = decimal(&Value::Decimal(n), PRECISION_MAX, scale)?.to_string();
    let text = match style {
        1 => with_commas(&rounded),
        _ => rounded,
    };
    match convert(&Value::text(text.as_str()), to)? {
        Value::Text(made) if made.trim_end() != text => {
            Err(NO_ROOM.with(&[&from, &to.bare_name()]))
        }
        made => Ok(made),
    }
}

/// A comma between every three digits before the point.
fn with_commas(number: &str) -> String {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut made = sign.to_owned();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            made.push(',');
        }
        made.push(digit);
    }
    format!("{made}.{fraction}")
}

/// The bytes of pairs of hexadecimal digits.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pair = |i: usize| u8::from_str_radix(digits.get(i..i + 2)?, 16).ok();
    let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex.then(|| (0..digits.len()).step_by(2).map(pair).collect())?
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
    let scaled = |kind: fn(u8) -> Type| match sizes {
        [] => Some(kind(SCALE_MAX)),
        [Some(n)] => u8::try_from(*n).ok().filter(|n| *n <= SCALE_MAX).map(kind),
        _ => None,
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
        "money" => plain(Type::Money),
        "smallmoney" => plain(Type::SmallMoney),
        "float" => matches!(sizes, [] | [Some(1..=53)]).then_some(Type::Float),
        "real" => plain(Type::Float),
        "datetime" => plain(Type::DateTime),
        "smalldatetime" => plain(Type::SmallDateTime),
        "date" => plain(Type::Date),
        "time" => scaled(Type::Time),
        "datetime2" => scaled(Type::DateTime2),
        "datetimeoffset" => scaled(Type::DateTimeOffset),
        "char" | "character" => length(1, LENGTH_MAX).map(Type::Char),
        "nchar" => length(1, NATIONAL_MAX).map(Type::NChar),
        "varchar" => long(1, LENGTH_MAX).map(Type::VarChar),
        "nvarchar" => long(1, NATIONAL_MAX).map(Type::NVarChar),
        "sysname" => plain(Type::nvarchar(128)),
        // Kept as texts, and not checked.
        "xml" | "ntext" => plain(Type::NVarChar(None)),
        "text" => plain(Type::VarChar(None)),
        "binary" => length(1, LENGTH_MAX).map(Type::Binary),
        "varbinary" => long(1, LENGTH_MAX).map(Type::VarBinary),
        "uniqueidentifier" => plain(Type::UniqueIdentifier),
        "sql_variant" => plain(Type::SqlVariant),
        _ => None,
    }
}

/// The value as a text of this length. Texts and moments are cut. A whole number with too many digits becomes `*` in
/// types of one byte per character. No other number is cut. Errors: 8115.
fn fitted(value: &Value, to: Type, length: Option<u16>) -> Result<String, Message> {
    let text = match value {
        Value::Binary(bytes) => characters(bytes, to),
        value => text(value),
    };
    let is_short = length.is_some_and(|n| text.chars().nth(n.into()).is_some());
    match value {
        Value::Int(n) if is_short && !to.is_national() && i32::try_from(*n).is_ok() => {
            Ok("*".to_owned())
        }
        Value::Int(_) | Value::Decimal(_) | Value::Float(_) if is_short => {
            Err(OVERFLOW.with(&[&to.bare_name()]))
        }
        _ => Ok(cut(text, length)),
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
        // Style 0, the default of a conversion.
        Value::DateTime(at) | Value::Temporal(Temporal::SmallDateTime(at)) => {
            styled(*at, Type::DateTime, 0).unwrap_or_else(|| date_time_text(at))
        }
        value => value.to_string(),
    }
}

/// Windows-1252 from 0x80 to 0x9F; its five free codes are controls. The rest is Latin-1.
const NARROW_HIGH: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}',
    '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// The byte of a character in types of one byte per character; `None`: it has none.
pub fn narrow(c: char) -> Option<u8> {
    match u8::try_from(c) {
        Ok(byte) if !(0x80..0xa0).contains(&byte) => Some(byte),
        _ => {
            let at = NARROW_HIGH.iter().position(|high| *high == c)?;
            u8::try_from(0x80 + at).ok()
        }
    }
}

fn narrow_or_mark(c: char) -> u8 {
    narrow(c).unwrap_or(b'?')
}

/// A binary's bytes as characters of a type.
fn characters(bytes: &[u8], to: Type) -> String {
    if to.is_national() {
        let units = bytes.chunks(2);
        let unit = |pair: &[u8]| u16::from_le_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        let units: Vec<u16> = units.map(unit).collect();
        return String::from_utf16_lossy(&units);
    }
    let wide = |byte: &u8| match byte.checked_sub(0x80).map(usize::from) {
        Some(high) => NARROW_HIGH.get(high).copied().unwrap_or(char::from(*byte)),
        None => char::from(*byte),
    };
    bytes.iter().map(wide).collect()
}

/// The default of a conversion: up to six digits, with an exponent where the number is below 0.0001 or has more digits
/// before the point.
fn float_text(n: f64) -> String {
    const DIGITS: usize = 6;
    let scientific = scientific(n, DIGITS);
    let exponent = scientific
        .split_once('e')
        .and_then(|(_, e)| e.parse::<i32>().ok());
    let Some(exponent) = exponent else {
        return scientific;
    };
    if (-4..DIGITS as i32).contains(&exponent) {
        let rounded: f64 = scientific.parse().unwrap_or(n);
        return rounded.to_string();
    }
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, ""));
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    };
    format!("{digits}e{exponent}")
}

/// So many digits and an exponent of three: `1.5000000e+003`.
fn scientific(n: f64, digits: usize) -> String {
    let text = format!("{n:.*e}", digits.saturating_sub(1));
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>3}")
        }
        None => text,
    }
}

/// CONVERT of a float to a text. Errors: 281; 8115 if the text is too long.
fn float_as_text(n: f64, to: Type, style: i64) -> Result<Value, Message> {
    let text = match style {
        0 => float_text(n),
        1 => scientific(n, 8),
        2 | 126 | 128 | 129 => scientific(n, 16),
        3 => scientific(n, 17),
        _ => return Err(STYLE_UNKNOWN.with(&[&style, &"float"])),
    };
    match convert(&Value::text(text.as_str()), to)? {
        Value::Text(made) if made.trim_end() != text => Err(OVERFLOW.with(&[&to.bare_name()])),
        made => Ok(made),
    }
}

/// The name of a value's own type, for messages.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null | Value::Text(_) => "nvarchar",
        Value::Int(_) => "int",
        Value::Decimal(_) => "numeric",
        Value::Float(_) => "float",
        Value::DateTime(_) => "datetime",
        Value::Temporal(Temporal::Date(_)) => "date",
        Value::Temporal(Temporal::Time(..)) => "time",
        Value::Temporal(Temporal::SmallDateTime(_)) => "smalldatetime",
        Value::Temporal(Temporal::DateTime2(..)) => "datetime2",
        Value::Temporal(Temporal::DateTimeOffset(..)) => "datetimeoffset",
        Value::Binary(_) => "varbinary",
        Value::Guid(_) => "uniqueidentifier",
    }
}

fn refused(value: &Value, to: Type) -> Message {
    let name = to.bare_name();
    let from = match value {
        Value::Text(_) if matches!(to, Type::BigInt | Type::Float | Type::Numeric { .. }) => {
            return CANNOT_CONVERT.with(&[&"nvarchar", &name]);
        }
        Value::Null | Value::Text(_) => {
            return NOT_CONVERTIBLE.with(&[&"nvarchar", value, &name]);
        }
        Value::Int(_) => Type::Int,
        Value::Decimal(n) => Type::numeric(PRECISION_MAX, n.scale),
        Value::Float(_) => Type::Float,
        Value::DateTime(_) => Type::DateTime,
        Value::Temporal(at) => at.kind(),
        Value::Binary(_) => Type::VarBinary(None),
        Value::Guid(_) => Type::UniqueIdentifier,
    };
    match can_become(from, to) {
        true => NOT_HERE.with(&[&format!("a conversion of {} to {name}", kind_of(value))]),
        false => TYPE_CLASH.with(&[&kind_of(value), &name]),
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
        Value::DateTime(at) | Value::Temporal(Temporal::SmallDateTime(at)) => Ok(days(*at)),
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
        // Fractions are truncated, not rounded.
        Value::Decimal(n) => n.unscaled / 10i128.pow(n.scale.min(PRECISION_MAX).into()),
        Value::Float(n) if n.abs() < 1e30 => *n as i128,
        // A moment is rounded to whole days.
        Value::DateTime(at) | Value::Temporal(Temporal::SmallDateTime(at)) => {
            days(*at).round() as i128
        }
        Value::Text(text) => match text.trim() {
            // A sign alone is 0, for whole numbers only.
            "" | "-" | "+" => 0,
            text => text.parse().map_err(|_| refused(value, to))?,
        },
        Value::Float(_) => return Err(OVERFLOW.with(&[&to])),
        // The last bytes are the number.
        Value::Binary(bytes) => {
            let width = match to {
                Type::TinyInt => 1,
                Type::SmallInt => 2,
                Type::Int => 4,
                _ => 8,
            };
            let last = &bytes[bytes.len().saturating_sub(width)..];
            let number = last.iter().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
            let unused = 64 - 8 * width as u32;
            match to {
                Type::TinyInt => number.into(),
                _ => ((number << unused) as i64 >> unused).into(),
            }
        }
        _ => return Err(refused(value, to)),
    };
    match i64::try_from(number) {
        Ok(n) if (min..=max).contains(&n) => Ok(Value::Int(n)),
        _ => Err(match (value, to) {
            (Value::Text(text), _) => text_overflow("nvarchar", text, to),
            (_, Type::TinyInt | Type::SmallInt) => OUT_OF_RANGE.with(&[&to, &number]),
            _ => OVERFLOW.with(&[&to]),
        }),
    }
}

fn decimal(value: &Value, precision: u8, scale: u8) -> Result<Value, Message> {
    let to = Type::Numeric { precision, scale };
    let overflow = || OVERFLOW.with(&[&"numeric"]);
    let text = match value {
        Value::Float(n) if n.is_finite() => shortest(*n),
        Value::DateTime(at) | Value::Temporal(Temporal::SmallDateTime(at)) => shortest(days(*at)),
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

/// Errors: 8115, 235.
fn money(value: &Value, to: Type, min: i128, max: i128) -> Result<Value, Message> {
    let written = match value {
        // In the usual notation: `-$1,234.50`.
        Value::Text(text) => match text.trim() {
            "" => Value::Int(0),
            text => Value::Text(text.replacen('$', "", 1).replace(',', "")),
        },
        value => value.clone(),
    };
    let made = decimal(&written, PRECISION_MAX, MONEY_SCALE).map_err(|m| match value {
        Value::Text(_) if m.number != OVERFLOW.number => NOT_MONEY.plain(),
        _ => m,
    })?;
    match made {
        Value::Decimal(n) if (min..=max).contains(&n.unscaled) => Ok(made),
        _ => Err(OVERFLOW.with(&[&to])),
    }
}

/// The shortest digits that read back as this number, without an exponent.
pub fn shortest(n: f64) -> String {
    // Rust's Display never writes an exponent.
    n.to_string()
}

/// Digits with at most one point, rounded to `scale` digits after it. `None`: not a number. `Some(None)`: too many
/// digits.
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

/// The nearest moment that a `datetime` can be: it counts in 1/300 s, and shows three digits of them. `None`: it is past the last
/// date.
pub fn in_ticks(at: DateTime) -> Option<DateTime> {
    const SECOND: i64 = 1_000_000_000;
    let below = i64::from(at.subsec_nanosecond());
    let ticks = (below * 300 + SECOND / 2) / SECOND;
    let shown = (ticks * 1000 + 150) / 300 * 1_000_000;
    at.checked_add(jiff::SignedDuration::from_nanos(shown - below))
        .ok()
}

fn date_time(value: &Value) -> Result<DateTime, Message> {
    let at = match value {
        Value::DateTime(at) => in_ticks(*at),
        Value::Temporal(at) => {
            let name = kind_of(value);
            let at = in_ticks(at.wall()).filter(|at| at.year() >= FIRST_YEAR);
            return at.ok_or_else(|| DATE_OUT_OF_RANGE.with(&[&name, &"datetime"]));
        }
        Value::Text(text) => match without_offset(text).and_then(in_ticks) {
            Some(at) if at.year() < FIRST_YEAR => {
                return Err(DATE_OUT_OF_RANGE.with(&[&"nvarchar", &"datetime"]));
            }
            at => at,
        },
        Value::Int(_) | Value::Float(_) | Value::Decimal(_) => {
            let at = after_days(float(value, Type::DateTime)?).and_then(in_ticks);
            return at.ok_or_else(|| OVERFLOW.with(&[&"datetime"]));
        }
        _ => return Err(refused(value, Type::DateTime)),
    };
    at.ok_or_else(|| match value {
        Value::Text(text) if is_date_form(text) => {
            DATE_OUT_OF_RANGE.with(&[&"nvarchar", &"datetime"])
        }
        _ => NOT_A_DATE.plain(),
    })
}

/// The first moment that has the number 0.
fn day_zero() -> DateTime {
    civil::date(1900, 1, 1).at(0, 0, 0, 0)
}

const DAY_MS: f64 = 86_400_000.0;

/// A moment as a number: days since 1900.
fn days(at: DateTime) -> f64 {
    at.duration_since(day_zero()).as_millis() as f64 / DAY_MS
}

/// The moment of that number; `None` outside of the years of `datetime`.
fn after_days(days: f64) -> Option<DateTime> {
    let ms = (days * DAY_MS).round();
    let is_near = ms.abs() < DAY_MS * 366.0 * 10_000.0;
    let span = jiff::SignedDuration::from_millis(is_near.then_some(ms as i64)?);
    let at = day_zero().checked_add(span).ok()?;
    Some(at).filter(|at| at.year() >= FIRST_YEAR)
}

/// The first year of `datetime`.
const FIRST_YEAR: i16 = 1753;

/// Rounded to that many digits after the second; `None` if the result is past the last date.
fn rounded(at: DateTime, scale: u8) -> Option<DateTime> {
    let unit = 10_i64.pow(9 - u32::from(scale.min(SCALE_MAX)));
    let below = i64::from(at.subsec_nanosecond()) % unit;
    let up = match below * 2 >= unit {
        true => unit - below,
        false => -below,
    };
    at.checked_add(jiff::SignedDuration::from_nanos(up)).ok()
}

/// The value as a moment of one of the newer types. Errors: 241, 242, and types that are not such moments.
fn temporal(value: &Value, to: Type) -> Result<Temporal, Message> {
    let (at, offset, is_date, is_time) = match value {
        Value::DateTime(at) => (*at, None, false, false),
        Value::Temporal(at) => {
            let offset = match at {
                Temporal::DateTimeOffset(_, minutes, _) => Some(*minutes),
                _ => None,
            };
            let (is_date, is_time) = (
                matches!(at, Temporal::Date(_)),
                matches!(at, Temporal::Time(..)),
            );
            (at.wall(), offset, is_date, is_time)
        }
        Value::Text(text) => {
            let parsed = match to {
                Type::SmallDateTime => without_offset(text).map(|at| (at, None)),
                _ => parse_moment(text),
            };
            let (at, offset) = parsed.ok_or_else(|| match to {
                Type::SmallDateTime if is_date_form(text) => {
                    DATE_OUT_OF_RANGE.with(&[&"nvarchar", &to])
                }
                _ => NOT_A_DATE.plain(),
            })?;
            (at, offset, false, false)
        }
        Value::Int(_) | Value::Float(_) | Value::Decimal(_) if to == Type::SmallDateTime => {
            (date_time(value)?, None, false, false)
        }
        _ => return Err(refused(value, to)),
    };
    let beyond = || DATE_OUT_OF_RANGE.with(&[&kind_of(value), &to]);
    Ok(match to {
        Type::Date if !is_time => Temporal::Date(at.date()),
        Type::Time(scale) if !is_date => {
            // A time rounded past midnight is midnight.
            let day = civil::date(2000, 1, 1).to_datetime(at.time());
            Temporal::Time(rounded(day, scale).ok_or_else(beyond)?.time(), scale)
        }
        Type::SmallDateTime => {
            let half = jiff::SignedDuration::from_secs(30);
            let at = at.checked_add(half).map_err(|_| beyond())?;
            let at = at.date().at(at.hour(), at.minute(), 0, 0);
            let last = civil::date(2079, 6, 6).at(23, 59, 0, 0);
            match at.year() >= 1900 && at <= last {
                true => Temporal::SmallDateTime(at),
                false => return Err(beyond()),
            }
        }
        Type::DateTime2(scale) => {
            Temporal::DateTime2(rounded(at, scale).ok_or_else(beyond)?, scale)
        }
        Type::DateTimeOffset(scale) => {
            let at = rounded(at, scale).ok_or_else(beyond)?;
            Temporal::DateTimeOffset(at, offset.unwrap_or(0), scale)
        }
        _ => return Err(refused(value, to)),
    })
}

fn binary(value: &Value, to: Type) -> Result<Value, Message> {
    let bytes = match value {
        Value::Binary(bytes) => bytes.clone(),
        Value::Text(text) => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        Value::Guid(id) => id.to_bytes_le().to_vec(),
        Value::Int(n) => {
            let kind = match i32::try_from(*n) {
                Ok(_) => Type::Int,
                Err(_) => Type::BigInt,
            };
            return convert_from(value, kind, to);
        }
        _ => return Err(refused(value, to)),
    };
    Ok(fitted_bytes(bytes, to))
}

/// Cut at the end; a type of fixed length is padded with zeros there.
fn fitted_bytes(mut bytes: Vec<u8>, to: Type) -> Value {
    match to {
        Type::Binary(n) => bytes.resize(n.into(), 0),
        Type::VarBinary(Some(n)) => bytes.truncate(n.into()),
        _ => {}
    }
    Value::Binary(bytes)
}

/// A number keeps its last bytes: it is cut at the start, and padded with zeros there.
fn fitted_number(bytes: &[u8], to: Type) -> Value {
    let length = match to {
        Type::Binary(n) => n.into(),
        Type::VarBinary(Some(n)) => bytes.len().min(n.into()),
        _ => bytes.len(),
    };
    let kept = &bytes[bytes.len().saturating_sub(length)..];
    let mut made = vec![0; length - kept.len()];
    made.extend(kept);
    Value::Binary(made)
}

fn guid(value: &Value) -> Result<Value, Message> {
    match value {
        Value::Guid(id) => Ok(Value::Guid(*id)),
        // The first bytes count; what lacks is zero.
        Value::Binary(bytes) => {
            let mut all = [0; 16];
            let given = bytes.len().min(all.len());
            all[..given].copy_from_slice(&bytes[..given]);
            Ok(Value::Guid(Uuid::from_bytes_le(all)))
        }
        Value::Text(text) => match Uuid::try_parse(text.trim()) {
            Ok(id) => Ok(Value::Guid(id)),
            Err(_) => Err(NOT_A_GUID.plain()),
        },
        _ => Err(refused(value, Type::UniqueIdentifier)),
    }
}

/// A moment in one of CONVERT's styles. `None`: the style does not exist here, or shows no part of the type.
pub fn moment_style(value: &Value, style: i64) -> Option<String> {
    match value {
        Value::DateTime(at) => styled(*at, Type::DateTime, style),
        Value::Temporal(at) => {
            let text = styled(at.wall(), at.kind(), style)?;
            Some(match *at {
                Temporal::DateTimeOffset(_, minutes, _) if style == 126 => {
                    text + &offset_text(minutes)
                }
                Temporal::DateTimeOffset(_, _, scale) if style == 127 => {
                    styled(at.utc(), Type::DateTimeOffset(scale), style)? + "Z"
                }
                Temporal::DateTimeOffset(_, minutes, _) if has_time(style) => {
                    format!("{text} {}", offset_text(minutes))
                }
                _ => text,
            })
        }
        _ => None,
    }
}

fn has_time(style: i64) -> bool {
    !matches!(style, 1..=7 | 10..=12 | 101..=107 | 110..=112 | 23)
}

fn styled(at: DateTime, kind: Type, style: i64) -> Option<String> {
    let format = date_format(style)?;
    let date = match kind {
        Type::Time(_) => String::new(),
        _ => at.strftime(format).to_string(),
    };
    let time = match kind {
        Type::Date => String::new(),
        _ => time_text(at, kind, style),
    };
    let between = if matches!(style, 126 | 127) { "T" } else { " " };
    match (date.is_empty(), time.is_empty()) {
        (true, true) => None,
        (true, false) => Some(time.trim_start().to_owned()),
        (false, true) => Some(date),
        (false, false) => Some(format!("{date}{between}{time}")),
    }
}

/// The date's part of a style, empty if the style has a time only. `None`: no such style.
fn date_format(style: i64) -> Option<&'static str> {
    Some(match style {
        0 | 100 | 9 | 109 => "%b %e %Y",
        1 => "%m/%d/%y",
        22 => "%m/%d/%y",
        101 => "%m/%d/%Y",
        2 => "%y.%m.%d",
        102 => "%Y.%m.%d",
        3 => "%d/%m/%y",
        103 => "%d/%m/%Y",
        4 => "%d.%m.%y",
        104 => "%d.%m.%Y",
        5 => "%d-%m-%y",
        105 => "%d-%m-%Y",
        6 => "%d %b %y",
        106 | 13 | 113 => "%d %b %Y",
        7 => "%b %d, %y",
        107 => "%b %d, %Y",
        8 | 108 | 14 | 114 | 24 => "",
        10 => "%m-%d-%y",
        110 => "%m-%d-%Y",
        11 => "%y/%m/%d",
        111 => "%Y/%m/%d",
        12 => "%y%m%d",
        112 => "%Y%m%d",
        20 | 120 | 21 | 25 | 121 | 23 | 126 | 127 => "%Y-%m-%d",
        _ => return None,
    })
}

/// The time's part of a style, empty if the style has a date only.
fn time_text(at: DateTime, kind: Type, style: i64) -> String {
    let hour = match at.hour() % 12 {
        0 => 12,
        hour => hour,
    };
    let half = if at.hour() < 12 { "AM" } else { "PM" };
    let scale = match kind {
        Type::Time(scale) | Type::DateTime2(scale) | Type::DateTimeOffset(scale) => scale,
        Type::SmallDateTime => 0,
        _ => 3,
    };
    let fraction = fraction_text(at.subsec_nanosecond(), scale);
    // The older types put a colon before the milliseconds, always three digits.
    let is_older = matches!(kind, Type::DateTime | Type::SmallDateTime);
    let colon = match is_older {
        true => fraction_text(at.subsec_nanosecond(), 3).replace('.', ":"),
        false => fraction.clone(),
    };
    let clock = at.strftime("%H:%M:%S");
    match style {
        0 | 100 => format!("{hour:>2}:{:02}{half}", at.minute()),
        9 | 109 => format!(
            "{hour:>2}:{:02}:{:02}{colon}{half}",
            at.minute(),
            at.second()
        ),
        22 => format!("{hour:>2}:{:02}:{:02} {half}", at.minute(), at.second()),
        13 | 113 | 14 | 114 => format!("{clock}{colon}"),
        21 | 25 | 121 if is_older => format!("{clock}{}", fraction_text(at.subsec_nanosecond(), 3)),
        21 | 25 | 121 => format!("{clock}{fraction}"),
        // Zero milliseconds are not shown.
        126 | 127 if is_older && at.subsec_nanosecond() == 0 => clock.to_string(),
        126 | 127 => format!("{clock}{fraction}"),
        8 | 108 | 24 | 20 | 120 => clock.to_string(),
        _ => String::new(),
    }
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
        let said = |value: Value, from, to| {
            let refused = convert_from(&value, from, to).unwrap_err();
            (refused.number, refused.state, refused.text)
        };
        let number = Type::numeric(3, 1);
        let (text, small) = (Type::VarChar(Some(9)), Type::SmallInt);
        let (_, state, words) = said(Value::Int(1000), Type::Int, number);
        assert_eq!(state, 8);
        assert_eq!(
            words,
            "Arithmetic overflow error converting int to data type numeric."
        );
        let (_, _, words) = said(Value::text("1000"), text, number);
        assert!(words.contains("converting varchar to data"), "{words}");
        let (number, _, words) = said(Value::text("3000000000"), text, Type::Int);
        assert_eq!(number, 248);
        assert_eq!(
            words,
            "The conversion of the varchar value '3000000000' overflowed an int column."
        );
        let (number, state, words) = said(Value::text("70000"), text, small);
        assert_eq!((number, state), (244, 2));
        assert!(words.contains("overflowed an INT2 column."), "{words}");
        let (number, state, words) = said(Value::Float(1e10), Type::Float, Type::Int);
        assert_eq!((number, state), (232, 3));
        assert!(words.ends_with("value = 10000000000.000000."), "{words}");
        let (_, _, words) = said(Value::Float(1e30), Type::Float, Type::Int);
        let all = "value = 1000000000000000000000000000000.000000.";
        assert!(words.ends_with(all), "{words}");
        assert_eq!(said(Value::Int(1 << 20), Type::BigInt, small).0, 8115);
        assert_eq!(said(Value::text("x"), text, Type::BigInt).0, 8114);
        assert_eq!(said(Value::Int(1), Type::Int, Type::Date).0, 206);
        let id = Value::Binary(vec![1, 2]);
        let id = convert(&id, Type::UniqueIdentifier).unwrap().to_string();
        assert_eq!(id, "00000201-0000-0000-0000-000000000000");
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
    fn moments_are_written_in_the_styles_of_convert() {
        let at = civil::date(2026, 3, 1).at(22, 5, 4, 120_000_000);
        let style = |n| moment_style(&Value::DateTime(at), n).unwrap();
        assert_eq!(style(0), "Mar  1 2026 10:05PM");
        assert_eq!(style(112), "20260301");
        assert_eq!(style(120), "2026-03-01 22:05:04");
        assert_eq!(style(114), "22:05:04:120");
        let of = |kind, n| {
            // That type accepts no offset.
            let text = match kind {
                Type::SmallDateTime => "2026-03-01 22:05:04.123",
                _ => "2026-03-01 22:05:04.1234567 +02:00",
            };
            let value = convert(&Value::text(text), kind).unwrap();
            moment_style(&value, n)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of(Type::Date, 112), some("20260301"));
        assert_eq!(of(Type::Date, 120), some("2026-03-01"));
        assert_eq!(of(Type::Date, 108), None);
        assert_eq!(of(Type::Time(3), 121), some("22:05:04.123"));
        assert_eq!(of(Type::Time(7), 112), None);
        assert_eq!(
            of(Type::DateTime2(7), 126),
            some("2026-03-01T22:05:04.1234567")
        );
        assert_eq!(of(Type::DateTime2(0), 121), some("2026-03-01 22:05:04"));
        assert_eq!(
            of(Type::SmallDateTime, 121),
            some("2026-03-01 22:05:00.000")
        );
        let offset = Type::DateTimeOffset(0);
        assert_eq!(of(offset, 126), some("2026-03-01T22:05:04+02:00"));
        assert_eq!(of(offset, 127), some("2026-03-01T20:05:04Z"));
        assert_eq!(moment_style(&Value::DateTime(at), 999), None);
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
