//! T-SQL's functions that SQLite lacks, or has with another meaning, as functions of SQLite.
//!
//! A refusal's message is stored for `sqlite.rs`, since SQLite passes on only a text.
//!
//! Invariants
//! - Each call checks the cancel flag first, and refuses arguments that are too large in total.
//! - The functions of the table depend on their arguments alone, and on what SET lets pass. Only `ts_variable`, `ts_assign`
//!   and `ts_heed`, which notices NULLs, have a state, and SQLite is told so.
//! - REPLICATE refuses a result that is larger than a value may be, before it makes all of it.
//! - A failure is one of SQL Server's messages.
//!
//! Leaves to others: which function of T-SQL becomes which of these (`translate/call.rs`); conversions (`convert.rs`);
//! the calendar (`moment.rs`); patterns (`like.rs`); variances (`variance.rs`); other aggregates, which are SQLite's.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering as Seen};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::ValueRef;

use super::cell::{as_kind, check_whole, converted, kept, kind, plain};
use super::collated::{folded, mapped};
use super::like::like;
use super::moment::{self, DatePart};
use super::plan::UsedFunction;
use super::{collated, formats, instants, json, markup, packed, texts, xml};
use crate::convert::{
    convert, convert_from, convert_styled, narrow, parse_decimal, parse_moment, shortest,
};
use crate::dates::{DateOrder, reordered};
use crate::flow::Variable;
use crate::format::{OF_FORMATMESSAGE, formatted};
use crate::message::{self, Message};
use crate::notices::Notices;
use crate::value::{DateTime, Decimal, SCALE_MAX, Temporal, Type, Value, offset_text};
use crate::variables::{Sum, VALUE_MAX, bytes, too_much};

type Result<T> = std::result::Result<T, Message>;
pub(super) type Run = fn(&[Value]) -> Result<Value>;

/// The longest text that a function makes, in characters.
const TEXT_MAX: usize = 8000;

/// Name, number of arguments (-1: any), implementation. All but the first few return NULL for NULL.
const FUNCTIONS: &[(&str, i32, Run)] = &[
    ("ts_dated", -1, dated),
    ("ts_cast", 3, cast),
    ("ts_try_cast", 3, try_cast),
    ("ts_convert", 4, cast_with_style),
    ("ts_try_convert", 4, try_cast_with_style),
    ("ts_concat", -1, concat),
    ("ts_divide", 2, divide),
    ("ts_divide_exact", 3, divide_exact),
    ("ts_cut", 2, cut),
    ("ts_divide_whole", 2, divide_whole),
    ("ts_modulo", 2, modulo),
    ("ts_like", 4, like_pattern),
    ("ts_dateadd", 4, date_add),
    ("ts_adddays", 3, add_days),
    ("ts_days", 2, days),
    ("ts_datediff", 4, date_difference),
    ("ts_datepart", 2, date_part),
    ("ts_datepart_first", 3, date_part_of_week),
    ("ts_datename", 2, date_name),
    ("ts_eomonth", -1, end_of_month),
    ("ts_joined_binary", 3, texts::joined_binary),
    ("ts_len", 1, len),
    ("ts_datalength", 2, data_length),
    ("ts_upper", 1, upper),
    ("ts_lower", 1, lower),
    ("ts_fit", 2, fit),
    ("ts_left", 2, left),
    ("ts_right", 2, right),
    ("ts_substring", 3, substring),
    ("ts_charindex", -1, collated::char_index),
    ("ts_charindex_exact", -1, collated::char_index_exact),
    ("ts_replicate", 3, replicate),
    ("ts_reverse", 1, reverse),
    ("ts_replace", 3, collated::replace),
    ("ts_replace_exact", 3, collated::replace_exact),
    ("ts_stuff", 4, stuff),
    ("ts_str", -1, number_text),
    ("ts_quotename", -1, quote_name),
    ("ts_char", 1, character),
    ("ts_nchar", 1, national_character),
    ("ts_ascii", 1, ascii),
    ("ts_round", -1, round),
    ("ts_floor", 1, floor),
    ("ts_ceiling", 1, ceiling),
    ("ts_power", 3, power),
    ("ts_sqrt", 1, square_root),
    ("ts_isnumeric", 1, is_numeric),
    ("ts_isdate", 1, is_date),
    ("ts_parsename", 2, texts::parse_name),
    ("ts_object_key", 2, texts::object_key_of),
    ("ts_patindex", 2, collated::pattern_index),
    ("ts_patindex_exact", 2, collated::pattern_index_exact),
    ("ts_concat_ws", -1, texts::concat_between),
    ("ts_translate", 3, collated::translate),
    ("ts_translate_exact", 3, collated::translate_exact),
    ("ts_soundex", 1, texts::soundex),
    ("ts_difference", 2, texts::difference),
    ("ts_datefromparts", 3, texts::date_from_parts),
    ("ts_format", 3, formats::format),
    ("ts_level", 2, texts::next_level),
    ("ts_unicode", 1, unicode),
    ("ts_square", 1, square),
    ("ts_exp", 1, exponential),
    ("ts_log", -1, logarithm),
    ("ts_log10", 1, decimal_logarithm),
    ("ts_string_escape", 2, markup::string_escape),
    ("ts_agent_datetime", 2, texts::agent_datetime),
    ("ts_pack", 1, packed::pack),
    ("ts_unpack", 1, packed::unpack),
    ("ts_split", 3, texts::split),
    ("ts_json_value", -1, json::value),
    ("ts_json_query", -1, json::query),
    ("ts_isjson", 1, json::is_json),
    ("ts_openjson", 3, json::rows),
    ("ts_json_row", -1, markup::json_row),
    ("ts_xml_row", -1, markup::xml_row),
    ("ts_xml_value", 3, xml::value),
    ("ts_xml_query", 2, xml::query),
    ("ts_xml_exist", 2, xml::exist),
    ("ts_xml_nodes", 2, xml::nodes),
    ("ts_json_modify", 4, json::modify),
    ("ts_greatest", -1, collated::greatest),
    ("ts_greatest_cs", -1, collated::greatest_in_case),
    ("ts_greatest_bin", -1, collated::greatest_by_code),
    ("ts_least", -1, collated::least),
    ("ts_least_cs", -1, collated::least_in_case),
    ("ts_least_bin", -1, collated::least_by_code),
    ("ts_formatmessage", -1, format_message),
    ("ts_hashbytes", 3, hash_bytes),
    ("ts_degrees", 1, degrees),
    ("ts_radians", 1, radians),
    ("ts_fromparts", -1, instants::of_parts),
    ("ts_datetrunc", 4, instants::truncated),
    ("ts_date_bucket", 5, instants::bucket),
    ("ts_with_offset", 4, instants::with_offset),
    ("ts_at_time_zone", 3, instants::in_zone),
    ("ts_offset", 1, offset_minutes),
    ("ts_offset_name", 1, offset_name),
    ("ts_rows", 2, row_count),
    ("ts_top", 1, top_count),
    ("ts_percent", 1, top_percent),
    ("ts_series", 3, texts::series),
    ("ts_aggregated", 2, aggregated),
];

/// The code of a function of ours.
pub fn named(name: &str) -> Option<Run> {
    static BY_NAME: LazyLock<HashMap<&str, Run>> =
        LazyLock::new(|| FUNCTIONS.iter().map(|(n, _, run)| (*n, *run)).collect());
    BY_NAME.get(name).copied()
}

/// The present values of variables that a query sets row by row.
pub type StepVariables = Arc<Mutex<Vec<Variable>>>;

/// The longest pattern of LIKE, in bytes, as in SQL Server.
const PATTERN_MAX: usize = 8000;

/// Registers all of them with a connection. Each call checks the cancel flag: during a long call SQLite itself does
/// not.
pub fn register(
    db: &Connection,
    refusal: &Arc<Mutex<Option<Message>>>,
    cancel: &Arc<AtomicBool>,
    steps: &StepVariables,
    notices: &Arc<Notices>,
) -> rusqlite::Result<()> {
    let add = |name: &str, count: i32, flags, run: Box<Step>| {
        let (refusal, cancel) = (refusal.clone(), cancel.clone());
        let notices = notices.clone();
        let flags = FunctionFlags::SQLITE_UTF8 | flags;
        db.create_scalar_function(name, count, flags, move |context| {
            let values = match cancel.load(Seen::Relaxed) {
                true => Err(message::ABORTED.plain()),
                false => arguments(context),
            };
            let value = values.and_then(|values| run(&values)).and_then(kept);
            let value = value.or_else(|message| match notices.lets_pass(&message) {
                true => kept(Value::Null),
                false => Err(message),
            });
            value.map_err(|message| {
                let text = message.text.clone();
                *refusal.lock() = Some(message);
                rusqlite::Error::UserFunctionError(text.into())
            })
        })
    };
    for (name, count, run) in FUNCTIONS {
        let always = FunctionFlags::SQLITE_DETERMINISTIC;
        add(name, *count, always, Box::new(*run))?;
    }
    // These have another value in each row.
    let (read, written) = (steps.clone(), steps.clone());
    let never = FunctionFlags::empty();
    let variable = move |values: &[Value]| Ok(read.lock()[slot(&values[0])].value.clone());
    add("ts_variable", 1, never, Box::new(variable))?;
    let guid = |_: &[Value]| super::cell::stored(Value::Guid(uuid::Uuid::new_v4()));
    add("ts_newid", 0, never, Box::new(guid))?;
    let noticed = notices.clone();
    let heed = move |values: &[Value]| {
        if values[0].is_null() {
            noticed.null_left_out();
        }
        Ok(values[0].clone())
    };
    add("ts_heed", 1, never, Box::new(heed))?;
    let assign = move |values: &[Value]| {
        let from = kind(&values[2]);
        let value = as_kind(&values[1], from)?;
        let mut all = written.lock();
        let i = slot(&values[0]);
        all[i].value = convert_from(&value, from, all[i].kind)?;
        if bytes(&all[i].value) > VALUE_MAX {
            return Err(too_much());
        }
        let mut sum = Sum::default();
        all.iter().try_for_each(|v| sum.add(&v.value))?;
        Ok(Value::Null)
    };
    add("ts_assign", 3, never, Box::new(assign))
}

/// Registers a function that a script has created. It runs again for each row, since it may read what changes.
pub fn register_own(
    db: &Connection,
    refusal: &Arc<Mutex<Option<Message>>>,
    function: &UsedFunction,
) -> rusqlite::Result<()> {
    let (refusal, call) = (refusal.clone(), function.call.clone());
    let flags = FunctionFlags::SQLITE_UTF8;
    db.create_scalar_function(function.name().as_str(), -1, flags, move |context| {
        let values = match call.cancel.load(Seen::Relaxed) {
            true => Err(message::ABORTED.plain()),
            false => arguments(context),
        };
        let value = values.and_then(|values| (call.code)(&call, &values));
        value.and_then(kept).map_err(|message| {
            let text = message.text.clone();
            *refusal.lock() = Some(message);
            rusqlite::Error::UserFunctionError(text.into())
        })
    })
}

type Step = dyn Fn(&[Value]) -> Result<Value> + Send;

/// The number of a variable that a query sets.
fn slot(value: &Value) -> usize {
    match value {
        Value::Int(n) => *n as usize,
        _ => usize::MAX,
    }
}

/// Errors: the arguments are too large in total.
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

/// Rounds a computed value to its type, or refuses it. Arguments: value, its type.
fn fit(arguments: &[Value]) -> Result<Value> {
    as_kind(&arguments[0], kind(&arguments[1]))
}

/// A text as conversions to a type have to read it. Arguments: the text, the type, the order of day, month and year, and the
/// style of CONVERT, most of which have an order of their own.
fn dated(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let style = a.get(3).map_or(Ok(0), whole)?;
        if !matches!(style, 0 | 9 | 100 | 109) {
            return Ok(a[0].clone());
        }
        let order = DateOrder::named(&text(&a[2])).unwrap_or_default();
        let written = text(&a[0]);
        let read = reordered(&written, kind(&a[1]), order).into_owned();
        Ok(Value::Text(read))
    })
}

/// value, its type, the new type
fn cast(arguments: &[Value]) -> Result<Value> {
    converted(&arguments[0], kind(&arguments[1]), kind(&arguments[2]))
}

fn try_cast(arguments: &[Value]) -> Result<Value> {
    Ok(cast(arguments).unwrap_or(Value::Null))
}

/// value, its type, the new type, the style
fn cast_with_style(arguments: &[Value]) -> Result<Value> {
    let (from, to) = (kind(&arguments[1]), kind(&arguments[2]));
    let value = as_kind(&arguments[0], from)?;
    if value.is_null() || arguments[3].is_null() {
        return Ok(Value::Null);
    }
    let style = whole(&arguments[3])?;
    convert_styled(&value, from, to, style)
}

fn try_cast_with_style(arguments: &[Value]) -> Result<Value> {
    Ok(cast_with_style(arguments).unwrap_or(Value::Null))
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

/// A count of characters; `None` if negative.
fn count(value: &Value) -> Result<Option<usize>> {
    let n = whole(value)?;
    Ok((n >= 0).then(|| usize::try_from(n).unwrap_or(usize::MAX)))
}

/// Runs a function for which NULL gives NULL.
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

/// The quotient of two exact numbers without the digits after so many, which T-SQL does not round.
fn divide_exact(arguments: &[Value]) -> Result<Value> {
    match divide(&arguments[..2])? {
        Value::Null => Ok(Value::Null),
        quotient => cut(&[quotient, arguments[2].clone()]),
    }
}

/// A computed number without the digits after so many. Binary floating point has some 15 digits: a number that is nearer to
/// a decimal of so many than it can tell is that decimal.
fn cut(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let digits = whole(&a[1])?.clamp(0, 38) as i32;
        let n = match &a[0] {
            Value::Int(n) => return Ok(Value::Int(*n)),
            value => real(value)?,
        };
        let told = format!("{n:.14e}").parse().unwrap_or(n);
        Ok(Value::Float(cut_number(told, digits)))
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
        _ => {
            let (n, by) = (real(&a[0])?, real(&a[1])?);
            check_whole(n, Type::BigInt)?;
            check_whole(by, Type::BigInt)?;
            match by {
                0.0 => Err(message::DIVIDED_BY_ZERO.plain()),
                by => Ok(Value::Float(n % by)),
            }
        }
    })
}

fn like_pattern(arguments: &[Value]) -> Result<Value> {
    strict(&arguments[..2], |a| {
        let escape = text(&arguments[2]).chars().next();
        let (folds, is_narrow) = match arguments[3] {
            Value::Int(how) => (how & 1 == 1, how & 2 == 2),
            _ => (false, false),
        };
        let pattern = text(&a[1]);
        if pattern.len() > PATTERN_MAX {
            return Err(message::TRUNCATED.plain());
        }
        let whole = text(&a[0]);
        let fits = |text: &str| {
            let fits = like(text, &pattern, escape, folds);
            fits.ok_or_else(|| message::NO_PLAN.plain())
        };
        let short = whole.trim_end_matches(' ');
        let fits = fits(&whole)? || is_narrow && short.len() < whole.len() && fits(short)?;
        Ok(Value::bit(fits))
    })
}

/// The wall time of any kind of moment, with all its digits.
fn moment_of(value: &Value) -> Result<DateTime> {
    match value {
        Value::DateTime(at) => Ok(*at),
        Value::Temporal(at) => Ok(at.wall()),
        Value::Text(text) => match parse_moment(text) {
            Some((at, _)) => Ok(at),
            None => Err(message::NOT_A_DATE.plain()),
        },
        value => match convert(value, Type::DateTime)? {
            Value::DateTime(at) => Ok(at),
            _ => Err(message::NOT_A_DATE.plain()),
        },
    }
}

/// The same in UTC, if it has an offset.
fn utc_of(value: &Value) -> Result<DateTime> {
    match value {
        Value::Text(text) => match parse_moment(text) {
            Some((at, minutes)) => {
                Ok(Temporal::DateTimeOffset(at, minutes.unwrap_or(0), SCALE_MAX).utc())
            }
            None => Err(message::NOT_A_DATE.plain()),
        },
        value => moment_of(value),
    }
}

fn part_of(value: &Value) -> Result<DatePart> {
    let word = text(value);
    DatePart::of(&word).ok_or_else(|| message::OPTION_UNKNOWN.with(&[&word, &"datepart"]))
}

fn date_add(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let of = kind(&a[3]);
        let (part, n) = (part_of(&a[0])?, whole(&a[1])?);
        let overflow = || message::DATE_OVERFLOW.with(&[&of]);
        let add = |at| moment::add(part, n, at).ok_or_else(overflow);
        let not_in = |is_not: bool| match is_not {
            true => Err(message::PART_UNKNOWN.with(&[&text(&a[0]), &"dateadd", &of])),
            false => Ok(()),
        };
        let value = match as_kind(&a[2], of)? {
            Value::Temporal(at) => at,
            value => return Ok(Value::DateTime(add(moment_of(&value)?)?)),
        };
        Ok(match value {
            Temporal::Date(date) => {
                not_in(part.is_of_time())?;
                Value::Temporal(Temporal::Date(add(date.at(0, 0, 0, 0))?.date()))
            }
            Temporal::Time(time, scale) => {
                not_in(!part.is_of_time())?;
                // Wraps around the clock.
                let day = jiff::civil::date(5000, 1, 1).to_datetime(time);
                Value::Temporal(Temporal::Time(add(day)?.time(), scale))
            }
            Temporal::DateTimeOffset(at, minutes, scale) => {
                Value::Temporal(Temporal::DateTimeOffset(add(at)?, minutes, scale))
            }
            other => convert(
                &Value::Temporal(Temporal::DateTime2(add(other.wall())?, SCALE_MAX)),
                of,
            )?,
        })
    })
}

/// The days since 1900 of a moment of this type.
fn days(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        Ok(Value::Float(real(&as_kind(&a[0], kind(&a[1]))?)?))
    })
}

/// Adds days and fractions of a day to a `datetime`: how many, the moment, its type.
fn add_days(arguments: &[Value]) -> Result<Value> {
    const DAY_MS: f64 = 86_400_000.0;
    strict(arguments, |a| {
        let of = kind(&a[2]);
        let (part, n) = match &a[0] {
            Value::Float(days) => (
                DatePart::Millisecond,
                whole(&Value::Float((days * DAY_MS).round()))?,
            ),
            days => (DatePart::Day, whole(days)?),
        };
        let at = moment_of(&as_kind(&a[1], of)?)?;
        let at = moment::add(part, n, at);
        let at = at.ok_or_else(|| message::DATE_OVERFLOW.with(&[&of]))?;
        convert(&Value::DateTime(at), of)
    })
}

/// The part, both moments, and whether the result may be larger than an `int`. Errors: 535.
fn date_difference(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let (from, to) = (utc_of(&a[1])?, utc_of(&a[2])?);
        let difference = moment::difference(part_of(&a[0])?, from, to);
        match a[3] == Value::Int(1) || i32::try_from(difference).is_ok() {
            true => Ok(Value::Int(difference)),
            false => Err(message::DIFFERENCE_OVERFLOW.plain()),
        }
    })
}

fn date_part(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        Ok(Value::Int(moment::part(part_of(&a[0])?, moment_of(&a[1])?)))
    })
}

/// The week, or the day of the week, where weeks begin with another day than Sunday: the third argument, from 1, Monday.
fn date_part_of_week(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let (part, at) = (part_of(&a[0])?, moment_of(&a[1])?);
        let first = match &a[2] {
            Value::Int(first) => *first,
            _ => 7,
        };
        let day = moment::part(DatePart::WeekDay, at);
        let day = (day - 1 - first.rem_euclid(7)).rem_euclid(7) + 1;
        Ok(Value::Int(match part {
            DatePart::WeekDay => day,
            DatePart::Week => (moment::part(DatePart::DayOfYear, at) - day + 6).div_euclid(7) + 1,
            part => moment::part(part, at),
        }))
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

/// DATENAME of the offset. Arguments: the moment.
fn offset_name(arguments: &[Value]) -> Result<Value> {
    match offset_minutes(arguments)? {
        Value::Int(minutes) => {
            let minutes = i16::try_from(minutes).unwrap_or_default();
            Ok(Value::Text(offset_text(minutes)))
        }
        _ => Ok(Value::Null),
    }
}

fn end_of_month(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let at = moment_of(&a[0])?;
        let months = a.get(1).map(whole).transpose()?.unwrap_or(0);
        let at = moment::add(moment::DatePart::Month, months, at)
            .ok_or_else(|| message::DATE_OVERFLOW.with(&[&"date"]))?;
        let last = at.date().last_of_month();
        Ok(Value::Temporal(Temporal::Date(last)))
    })
}

/// Trailing blanks do not count.
fn len(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let text = text(&a[0]);
        Ok(Value::Int(text.trim_end_matches(' ').chars().count() as i64))
    })
}

/// Bytes of the value in SQL Server. Arguments: value, its type.
fn data_length(arguments: &[Value]) -> Result<Value> {
    let kind = kind(&arguments[1]);
    let of_seconds = |scale: u8| 3 + i64::from(scale > 2) + i64::from(scale > 4);
    strict(arguments, |a| {
        Ok(Value::Int(match kind {
            Type::Bit | Type::TinyInt => 1,
            Type::SmallInt => 2,
            Type::Int | Type::SmallMoney | Type::SmallDateTime | Type::SqlVariant => 4,
            Type::BigInt | Type::Money | Type::Float | Type::DateTime => 8,
            Type::Numeric { precision, .. } => match precision {
                0..=9 => 5,
                10..=19 => 9,
                20..=28 => 13,
                _ => 17,
            },
            Type::Date => 3,
            Type::Time(scale) => of_seconds(scale),
            Type::DateTime2(scale) => of_seconds(scale) + 3,
            Type::DateTimeOffset(scale) => of_seconds(scale) + 5,
            Type::UniqueIdentifier => 16,
            Type::Char(_) | Type::VarChar(_) => text(&a[0]).chars().count() as i64,
            Type::NChar(_) | Type::NVarChar(_) => 2 * text(&a[0]).encode_utf16().count() as i64,
            Type::Binary(_) | Type::VarBinary(_) => bytes(&a[0]) as i64,
        }))
    })
}

/// A length that is not negative.
fn length(value: &Value, negative: impl FnOnce() -> Message) -> Result<usize> {
    match whole(value)? {
        n if n < 0 => Err(negative()),
        n => Ok(usize::try_from(n).unwrap_or(usize::MAX)),
    }
}

/// Errors: 537.
fn left(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let length = length(&a[1], || message::LENGTH_INVALID_LEFT.plain())?;
        Ok(Value::Text(text(&a[0]).chars().take(length).collect()))
    })
}

/// Errors: 536.
fn right(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let length = length(&a[1], || message::LENGTH_INVALID.with(&[&"RIGHT"]))?;
        let all: Vec<char> = text(&a[0]).chars().collect();
        let from = all.len().saturating_sub(length);
        Ok(Value::Text(all[from..].iter().collect()))
    })
}

/// Positions begin at 1; positions before the text count as empty. Errors: 537.
fn substring(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let (start, length) = (whole(&a[1])?, whole(&a[2])?);
        if length < 0 {
            return Err(message::LENGTH_INVALID_LEFT.plain());
        }
        let end = start.saturating_add(length).max(1);
        let from = start.max(1);
        let skip = usize::try_from(from - 1).unwrap_or(usize::MAX);
        let take = usize::try_from((end - from).max(0)).unwrap_or(usize::MAX);
        Ok(match &a[0] {
            Value::Binary(bytes) => {
                Value::Binary(bytes.iter().skip(skip).take(take).copied().collect())
            }
            value => Value::Text(text(value).chars().skip(skip).take(take).collect()),
        })
    })
}

fn upper(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        Ok(Value::Text(mapped(&text(&a[0]), char::to_uppercase)))
    })
}

fn lower(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| Ok(Value::Text(folded(&text(&a[0])))))
}

/// Arguments: text, count, maximum number of characters (0: the maximum of a value).
fn replicate(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let one = text(&a[0]);
        let Some(times) = count(&a[1])? else {
            return Ok(Value::Null);
        };
        let all = one.chars().count().saturating_mul(times);
        let Some(most) = count(&a[2])?.filter(|most| *most > 0) else {
            return match one.len().saturating_mul(times) > VALUE_MAX {
                true => Err(too_much()),
                false => Ok(Value::Text(one.repeat(times))),
            };
        };
        let most = most.min(TEXT_MAX);
        Ok(Value::Text(
            one.chars().cycle().take(all.min(most)).collect(),
        ))
    })
}

fn reverse(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        Ok(Value::Text(text(&a[0]).chars().rev().collect()))
    })
}

fn stuff(arguments: &[Value]) -> Result<Value> {
    strict(&arguments[..3], |a| {
        let all: Vec<char> = text(&a[0]).chars().collect();
        let from = whole(&a[1])?.checked_sub(1);
        let from = from.and_then(|n| usize::try_from(n).ok());
        let (Some(from), Some(length)) = (from.filter(|f| *f < all.len()), count(&a[2])?) else {
            return Ok(Value::Null);
        };
        let to = from.saturating_add(length).min(all.len());
        let head: String = all[..from].iter().collect();
        let tail: String = all[to..].iter().collect();
        Ok(Value::Text(head + &text(&arguments[3]) + &tail))
    })
}

/// STR: right-aligned in 10 characters, without a fraction. Digits after the point that do not fit are left out.
fn number_text(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let width = a.get(1).map_or(Ok(Some(10)), count)?;
        let digits = a.get(2).map_or(Ok(Some(0)), count)?;
        let (Some(width), Some(digits)) = (width.map(|w| w.min(TEXT_MAX)), digits) else {
            return Ok(Value::Null);
        };
        let shortest = shortest(real(&a[0])?);
        let in_digits = |scale: u8| {
            let unscaled = parse_decimal(&shortest, scale)??;
            let made = Decimal { unscaled, scale }.to_string();
            (made.len() <= width).then(|| format!("{made:>width$}"))
        };
        let made = (0..=digits.min(16) as u8).rev().find_map(in_digits);
        Ok(Value::Text(made.unwrap_or_else(|| "*".repeat(width))))
    })
}

/// The most characters of a name.
const NAME_MAX: usize = 128;

fn quote_name(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let name = text(&a[0]);
        // A longer one is no name. Of the marks the first one counts.
        if name.encode_utf16().count() > NAME_MAX {
            return Ok(Value::Null);
        }
        let mark = a.get(1).map(text).and_then(|marks| marks.chars().next());
        let (open, close) = match mark {
            None | Some('[' | ']') => ("[", "]"),
            Some('(' | ')') => ("(", ")"),
            Some('<' | '>') => ("<", ">"),
            Some('{' | '}') => ("{", "}"),
            Some('\'') => ("'", "'"),
            Some('"') => ("\"", "\""),
            Some('`') => ("`", "`"),
            Some(_) => return Ok(Value::Null),
        };
        let doubled = name.replace(close, &close.repeat(2));
        Ok(Value::Text(format!("{open}{doubled}{close}")))
    })
}

/// The character of a byte; NULL for other numbers.
fn character(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let byte = u8::try_from(whole(&a[0])?).ok();
        let text = byte.map(|b| convert(&Value::Binary(vec![b]), Type::VarChar(None)));
        text.unwrap_or(Ok(Value::Null))
    })
}

fn national_character(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let code = u32::try_from(whole(&a[0])?).ok().and_then(char::from_u32);
        Ok(code.map_or(Value::Null, Value::text))
    })
}

fn ascii(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let first = text(&a[0]).chars().next();
        let byte = |c| narrow(c).unwrap_or(b'?');
        Ok(first.map_or(Value::Null, |c| Value::Int(byte(c).into())))
    })
}

fn round(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let digits = whole(&a[1])?.clamp(-30, 30) as i32;
        let shift = 10f64.powi(digits.abs());
        let n = real(&a[0])?;
        let cuts = a.get(2).map_or(Ok(0), whole)? != 0;
        let rounded = match digits < 0 {
            _ if cuts => cut_number(n, digits),
            true => (n / shift).round() * shift,
            // By the shortest decimal, so that 1.005 is rounded as it is written.
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

/// A number without the digits after so many, as it is written in decimal.
fn cut_number(n: f64, digits: i32) -> f64 {
    let text = shortest(n);
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let made = match usize::try_from(digits) {
        Ok(digits) => format!("{whole}.{}0", fraction.get(..digits).unwrap_or(fraction)),
        Err(_) => {
            let zeros = digits.unsigned_abs() as usize;
            match whole.len().checked_sub(zeros) {
                Some(kept) => format!("{}{:0<zeros$}", &whole[..kept], ""),
                None => "0".to_owned(),
            }
        }
    };
    made.parse().unwrap_or(0.0)
}

fn floor(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| match &a[0] {
        Value::Int(n) => Ok(Value::Int(*n)),
        value => finite(real(value)?.floor()),
    })
}

fn ceiling(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| match &a[0] {
        Value::Int(n) => Ok(Value::Int(*n)),
        value => finite(real(value)?.ceil()),
    })
}

/// Arguments: base, exponent, the type of both. Errors: 232.
fn power(arguments: &[Value]) -> Result<Value> {
    let kind = kind(&arguments[2]);
    strict(&arguments[..2], |a| {
        let (base, exponent) = (real(&a[0])?, real(&a[1])?);
        let times = exponent as u32;
        let exact = match &a[0] {
            Value::Int(n) if f64::from(times) == exponent => n.checked_pow(times),
            _ => None,
        };
        let made = exact.map_or(base.powf(exponent), |n| n as f64);
        let overflow = |_| message::TYPE_OVERFLOW.with(&[&kind, &format!("{made:.6}")]);
        match exact {
            _ if kind == Type::Float => finite(made),
            Some(n) => convert(&Value::Int(n), kind).map_err(overflow),
            None => convert(&finite(made)?, kind).map_err(overflow),
        }
    })
}

fn square_root(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| match real(&a[0])? {
        n if n < 0.0 => Err(message::FLOATING_POINT.plain()),
        n => finite(n.sqrt()),
    })
}

fn finite(n: f64) -> Result<Value> {
    match n.is_finite() {
        true => Ok(Value::Float(n)),
        false => Err(message::OVERFLOW.with(&[&"float"])),
    }
}

fn unicode(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let first = text(&a[0]).chars().next();
        Ok(first.map_or(Value::Null, |c| Value::Int(u32::from(c).into())))
    })
}

/// Fails for a text of more characters than an aggregate of such texts may have.
fn aggregated(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let most = usize::try_from(whole(&a[1])?).unwrap_or(0);
        match text(&a[0]).chars().nth(most) {
            Some(_) => Err(message::AGGREGATE_LONG.plain()),
            None => Ok(a[0].clone()),
        }
    })
}

/// Errors: 3623 for a number that has no logarithm.
fn positive(value: &Value) -> Result<f64> {
    match real(value)? {
        n if n > 0.0 => Ok(n),
        _ => Err(message::FLOATING_POINT.plain()),
    }
}

fn square(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| {
        let n = real(&a[0])?;
        finite(n * n)
    })
}

fn exponential(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| finite(real(&a[0])?.exp()))
}

fn logarithm(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| match a.get(1) {
        None => finite(positive(&a[0])?.ln()),
        Some(base) => finite(positive(&a[0])?.log(positive(base)?)),
    })
}

fn decimal_logarithm(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| finite(positive(&a[0])?.log10()))
}

fn is_numeric(arguments: &[Value]) -> Result<Value> {
    Ok(Value::bit(match &arguments[0] {
        Value::Int(_) | Value::Float(_) => true,
        Value::Text(text) => is_number_text(text.trim()),
        _ => false,
    }))
}

/// Whether a text is a number of any type: also with a sign of a currency, with commas before the point, or a sign alone.
fn is_number_text(text: &str) -> bool {
    let is_float = |text: &str| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        // The exponent of a float also begins with D.
        let text = text.replacen(['d', 'D'], "e", 1);
        digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && text.parse::<f64>().is_ok_and(f64::is_finite)
    };
    if is_float(text) || matches!(text, "+" | "-" | "." | "$" | "€" | "£" | "¥") {
        return true;
    }
    // One sign, before the currency or after it.
    let signs = ['+', '-'];
    let unsigned = text.strip_prefix(signs);
    let rest = unsigned.unwrap_or(text);
    let amount = match (rest.strip_prefix(['$', '€', '£', '¥']), unsigned) {
        (Some(amount), None) => amount.strip_prefix(signs).unwrap_or(amount),
        (amount, _) => amount.unwrap_or(rest),
    };
    let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let begins = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
    (begins(whole) || whole.is_empty() && begins(fraction))
        && whole.bytes().all(|b| b.is_ascii_digit() || b == b',')
        && digits(fraction)
}

/// ISDATE: a whole number counts as its digits.
fn is_date(arguments: &[Value]) -> Result<Value> {
    Ok(Value::bit(match &arguments[0] {
        Value::Int(n) => convert(&Value::Text(n.to_string()), Type::DateTime).is_ok(),
        Value::Text(text) => {
            !text.trim().is_empty() && convert(&Value::text(text.as_str()), Type::DateTime).is_ok()
        }
        _ => false,
    }))
}

/// The number of rows of FETCH, of which the least is 1, or of OFFSET, of which it is 0. Arguments: number, the least.
fn row_count(arguments: &[Value]) -> Result<Value> {
    if arguments[0].is_null() {
        return Err(message::ROWS_INVALID.plain());
    }
    let (rows, least) = (whole(&arguments[0])?, whole(&arguments[1])?);
    match (rows >= least, least) {
        (true, _) => Ok(Value::Int(rows)),
        (false, 0) => Err(message::OFFSET_NEGATIVE.plain()),
        (false, _) => Err(message::FETCH_NOTHING.plain()),
    }
}

/// The number of rows of TOP.
fn top_count(arguments: &[Value]) -> Result<Value> {
    match &arguments[0] {
        Value::Int(n) if *n < 0 => Err(message::TOP_NEGATIVE.plain()),
        Value::Int(n) => Ok(Value::Int(*n)),
        _ => Err(message::TOP_NOT_WHOLE.plain()),
    }
}

/// The number of TOP … PERCENT.
fn top_percent(arguments: &[Value]) -> Result<Value> {
    let percent = match &arguments[0] {
        Value::Int(n) => *n as f64,
        Value::Float(n) => *n,
        other => match convert(other, Type::Float)? {
            Value::Float(n) => n,
            _ => f64::NAN,
        },
    };
    match (0.0..=100.0).contains(&percent) {
        true => Ok(Value::Float(percent)),
        false => Err(message::PERCENT_RANGE.plain()),
    }
}

/// FORMATMESSAGE: the text, then each argument and its type. Errors: those of RAISERROR.
fn format_message(arguments: &[Value]) -> Result<Value> {
    let mut given = Vec::new();
    for pair in arguments[1..].chunks_exact(2) {
        let kind = kind(&pair[1]);
        let value = as_kind(&pair[0], kind)?;
        given.push(Variable { kind, value });
    }
    match &arguments[0] {
        Value::Null => Ok(Value::Null),
        format => Ok(Value::Text(formatted(
            &text(format),
            &given,
            OF_FORMATMESSAGE,
        )?)),
    }
}

/// HASHBYTES: the algorithm, the value, its type. NULL for an algorithm that does not exist.
fn hash_bytes(arguments: &[Value]) -> Result<Value> {
    let kind = kind(&arguments[2]);
    strict(&arguments[..2], |a| {
        let name = text(&a[0]).to_ascii_uppercase();
        let bytes = match convert_from(&a[1], kind, Type::VarBinary(None))? {
            Value::Binary(bytes) => bytes,
            _ => return Ok(Value::Null),
        };
        match name.as_str() {
            "MD2" | "MD4" => Err(message::NOT_HERE.with(&[&format!("HASHBYTES with {name}")])),
            name => Ok(super::digest::hash_named(name, &bytes).map_or(Value::Null, Value::Binary)),
        }
    })
}

fn degrees(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| finite(real(&a[0])?.to_degrees()))
}

fn radians(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| finite(real(&a[0])?.to_radians()))
}

/// The minutes by which a moment is ahead of UTC.
fn offset_minutes(arguments: &[Value]) -> Result<Value> {
    strict(arguments, |a| match parse_moment(&text(&a[0])) {
        Some((_, minutes)) => Ok(Value::Int(minutes.unwrap_or(0).into())),
        None => Err(message::NOT_A_DATE.plain()),
    })
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
        assert!(collated::replace(&arguments).is_err());
        // A pattern that almost matches everywhere takes no long time.
        let (text, nearly) = ("a".repeat(4 << 20), "a".repeat(2 << 20) + "b");
        assert_eq!(run("ts_replace", &[t(&text), t(&nearly), t("")]), t(&text));
    }

    #[test]
    fn like_takes_patterns_and_steps_up_to_a_bound() {
        let (text, pattern) = ("a".repeat(1 << 20), format!("%{}b", "a".repeat(7000)));
        let of = |pattern: &str| {
            let (text, pattern) = (Value::text(text.as_str()), Value::text(pattern));
            like_pattern(&[text, pattern, Value::Null, Value::Int(1)])
        };
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
                // A refusal is an answer, too.
                let _answer = run(&arguments);
            }
        }
    }
}
