//! Moments made of their parts, cut to a part, and moved between offsets from UTC.
//!
//! Invariants
//! - Each depends on its arguments alone: zones are those of the time zone database, never this machine's own.
//! - A time that a zone leaves out is moved forward, and of a time that occurs twice the later one counts, as in SQL
//!   Server.
//!
//! Leaves to others: which function of T-SQL becomes which of these (`translate/instant.rs`), names of zones
//! (`zones.rs`), and the calendar (`moment.rs`).

use jiff::civil;
use jiff::tz::TimeZone;

use super::cell::{as_kind, kind};
use super::moment::{self, DatePart};
use super::zones;
use crate::convert::convert;
use crate::message::{self, Message};
use crate::value::{DateTime, SCALE_MAX, Temporal, Type, Value};

type Result<T> = std::result::Result<T, Message>;

/// The largest offset from UTC, in minutes.
const OFFSET_MAX: i64 = 14 * 60;

fn whole(value: &Value) -> Result<Option<i64>> {
    Ok(match convert(value, Type::BigInt)? {
        Value::Int(n) => Some(n),
        _ => None,
    })
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

/// A moment of parts: its type, then year, month, day, hour, minute, second, parts of a second, and the scale that
/// these have; for an offset also its hours and minutes. NULL gives NULL. Errors: 289.
pub(super) fn of_parts(arguments: &[Value]) -> Result<Value> {
    let of = kind(&arguments[0]);
    let mut numbers = Vec::new();
    for argument in &arguments[1..] {
        match whole(argument)? {
            Some(n) => numbers.push(n),
            None => return Ok(Value::Null),
        }
    }
    let name = of.bare_name();
    let made = moment_of(&numbers).and_then(|at| match numbers.get(8..10) {
        Some([hours, minutes]) => {
            let is_one_way = hours.signum() * minutes.signum() >= 0 && minutes.unsigned_abs() < 60;
            let total = hours.checked_mul(60)?.checked_add(*minutes)?;
            let total = i16::try_from(total).ok();
            let total = total.filter(|n| {
                is_one_way && i64::from(*n).unsigned_abs() <= OFFSET_MAX.unsigned_abs()
            })?;
            Some(Temporal::DateTimeOffset(at, total, SCALE_MAX))
        }
        _ => Some(Temporal::DateTime2(at, SCALE_MAX)),
    });
    let invalid = || message::PARTS_INVALID.with(&[&name]);
    convert(&Value::Temporal(made.ok_or_else(invalid)?), of).map_err(|_| invalid())
}

fn moment_of(numbers: &[i64]) -> Option<DateTime> {
    let [year, month, day, hour, minute, second, fraction, scale, ..] = *numbers else {
        return None;
    };
    let small = |n: i64| i8::try_from(n).ok();
    let scale = u32::try_from(scale)
        .ok()
        .filter(|s| *s <= SCALE_MAX.into())?;
    let is_within = (0..10_i64.pow(scale)).contains(&fraction);
    let nanoseconds = is_within.then(|| fraction * 10_i64.pow(9 - scale))?;
    let year = i16::try_from(year)
        .ok()
        .filter(|y| (1..=9999).contains(y))?;
    let date = civil::Date::new(year, small(month)?, small(day)?).ok()?;
    let nanoseconds = i32::try_from(nanoseconds).ok()?;
    let time = civil::Time::new(small(hour)?, small(minute)?, small(second)?, nanoseconds).ok()?;
    Some(date.to_datetime(time))
}

/// DATE_BUCKET: part, width, moment, its type, and the origin of the buckets. Errors: 9834, 9836.
pub(super) fn bucket(arguments: &[Value]) -> Result<Value> {
    let of = kind(&arguments[3]);
    let word = text(&arguments[0]);
    let (Some(width), value) = (whole(&arguments[1])?, as_kind(&arguments[2], of)?) else {
        return Ok(Value::Null);
    };
    if value.is_null() || arguments[4].is_null() {
        return Ok(Value::Null);
    }
    if width <= 0 {
        return Err(message::BUCKET_WIDTH.plain());
    }
    let refused = || message::PART_UNKNOWN.with(&[&word, &"date_bucket", &of]);
    let part = DatePart::of(&word).filter(|part| {
        let is_none = matches!(
            part,
            DatePart::DayOfYear
                | DatePart::WeekDay
                | DatePart::IsoWeek
                | DatePart::Microsecond
                | DatePart::Nanosecond
        );
        !(is_none || part.is_of_time() && of == Type::Date)
    });
    let part = part.ok_or_else(refused)?;
    let wall = |value: &Value| match convert(value, Type::DateTime2(SCALE_MAX))? {
        Value::Temporal(at) => Ok(at.wall()),
        _ => Err(message::NOT_A_DATE.plain()),
    };
    let (at, offset) = match &value {
        Value::Temporal(Temporal::DateTimeOffset(at, minutes, _)) => (*at, Some(*minutes)),
        value => (wall(value)?, None),
    };
    let origin = wall(&arguments[4])?;
    // Borders are counted in parts, from which the origin's place within a part may take one.
    let beyond = || message::DATE_OVERFLOW.with(&[&of]);
    let mut n = moment::difference(part, origin, at);
    if part == DatePart::Week {
        n = moment::difference(DatePart::Day, origin, at).div_euclid(7);
    }
    while moment::add(part, n, origin).is_some_and(|begin| begin > at) {
        n -= 1;
    }
    let begin = moment::add(part, n.div_euclid(width) * width, origin).ok_or_else(beyond)?;
    let begin = match offset {
        Some(minutes) => Temporal::DateTimeOffset(begin, minutes, SCALE_MAX),
        None => Temporal::DateTime2(begin, SCALE_MAX),
    };
    convert(&Value::Temporal(begin), of)
}

/// The first moment of a part: the part, the moment, its type, the day that begins a week (1: Monday).
pub(super) fn truncated(arguments: &[Value]) -> Result<Value> {
    let of = kind(&arguments[2]);
    let word = text(&arguments[0]);
    let value = match as_kind(&arguments[1], of)? {
        Value::Null => return Ok(Value::Null),
        value => value,
    };
    let (at, offset) = match &value {
        Value::DateTime(at) => (*at, None),
        Value::Temporal(Temporal::DateTimeOffset(at, minutes, _)) => (*at, Some(*minutes)),
        Value::Temporal(at) => (at.wall(), None),
        _ => return Err(message::NOT_A_DATE.plain()),
    };
    let refused = || message::PART_UNKNOWN.with(&[&word, &"datetrunc", &of]);
    let part = DatePart::of(&word).ok_or_else(refused)?;
    if part.is_of_time() && of == Type::Date || !part.is_of_time() && matches!(of, Type::Time(_)) {
        return Err(refused());
    }
    let (date, time) = (at.date(), at.time());
    let days_back = |days: i8| date.saturating_sub(jiff::Span::new().days(days));
    let at_part = |minute: i8, second: i8, unit: i32| {
        let nanosecond = match unit {
            0 => 0,
            unit => time.subsec_nanosecond() / unit * unit,
        };
        date.at(time.hour(), minute, second, nanosecond)
    };
    let (minute, second) = (time.minute(), time.second());
    let begin = match part {
        DatePart::Year => date.first_of_year().at(0, 0, 0, 0),
        DatePart::Quarter => {
            let month = (date.month() - 1) / 3 * 3 + 1;
            civil::date(date.year(), month, 1).at(0, 0, 0, 0)
        }
        DatePart::Month => date.first_of_month().at(0, 0, 0, 0),
        DatePart::DayOfYear | DatePart::Day => date.at(0, 0, 0, 0),
        DatePart::Week => {
            let first = whole_day(&arguments[3]);
            let since = (date.weekday().to_monday_one_offset() - first).rem_euclid(7);
            days_back(since).at(0, 0, 0, 0)
        }
        DatePart::IsoWeek => days_back(date.weekday().to_monday_zero_offset()).at(0, 0, 0, 0),
        DatePart::Hour => at_part(0, 0, 0),
        DatePart::Minute => at_part(minute, 0, 0),
        DatePart::Second => at_part(minute, second, 0),
        DatePart::Millisecond => at_part(minute, second, 1_000_000),
        DatePart::Microsecond => at_part(minute, second, 1000),
        DatePart::WeekDay | DatePart::Nanosecond => return Err(refused()),
    };
    let begin = match offset {
        Some(minutes) => Temporal::DateTimeOffset(begin, minutes, SCALE_MAX),
        None => Temporal::DateTime2(begin, SCALE_MAX),
    };
    match of {
        Type::Time(scale) => Ok(Value::Temporal(Temporal::Time(begin.wall().time(), scale))),
        of => convert(&Value::Temporal(begin), of),
    }
}

/// The day that begins a week, 1 to 7; 7, a Sunday, for what is none.
fn whole_day(value: &Value) -> i8 {
    match value {
        Value::Int(day @ 1..=7) => *day as i8,
        _ => 7,
    }
}

/// An offset as a number of minutes or as `+02:00`; `None`: it is none.
fn minutes_of(value: &Value) -> Option<i16> {
    let minutes = match value {
        Value::Int(n) => *n,
        value => {
            let written = text(value);
            let (sign, rest) = match written.chars().next()? {
                '+' => (1, &written[1..]),
                '-' => (-1, &written[1..]),
                _ => return None,
            };
            let (hours, minutes) = rest.trim_end().split_once(':')?;
            let digits = |s: &str| match s.len() == 2 && s.bytes().all(|b| b.is_ascii_digit()) {
                true => s.parse::<i64>().ok(),
                false => None,
            };
            sign * (digits(hours)? * 60 + digits(minutes).filter(|m| *m < 60)?)
        }
    };
    let minutes = (minutes.unsigned_abs() <= OFFSET_MAX.unsigned_abs()).then_some(minutes)?;
    i16::try_from(minutes).ok()
}

/// SWITCHOFFSET and TODATETIMEOFFSET: the moment, its type, the offset, and whether the moment stays the same.
/// Errors: 9812.
pub(super) fn with_offset(arguments: &[Value]) -> Result<Value> {
    if arguments[0].is_null() || arguments[2].is_null() {
        return Ok(Value::Null);
    }
    let switches = arguments[3] == Value::Int(1);
    let name = if switches {
        "switchoffset"
    } else {
        "todatetimeoffset"
    };
    let minutes = minutes_of(&arguments[2]);
    let minutes = minutes.ok_or_else(|| message::OFFSET_INVALID.with(&[&name]))?;
    let value = as_kind(&arguments[0], kind(&arguments[1]))?;
    let scale = Type::DateTimeOffset(SCALE_MAX);
    let Value::Temporal(given) = convert(&value, scale)? else {
        return Ok(Value::Null);
    };
    let at = match switches {
        true => later(given.utc(), minutes),
        false => Some(given.wall()),
    };
    let at = at.ok_or_else(|| message::DATE_OVERFLOW.with(&[&"datetimeoffset"]))?;
    Ok(Value::Temporal(Temporal::DateTimeOffset(
        at, minutes, SCALE_MAX,
    )))
}

fn later(at: DateTime, minutes: i16) -> Option<DateTime> {
    at.checked_add(jiff::SignedDuration::from_mins(minutes.into()))
        .ok()
}

/// AT TIME ZONE: the moment, its type, the zone. Errors: 9820.
pub(super) fn in_zone(arguments: &[Value]) -> Result<Value> {
    if arguments[0].is_null() || arguments[2].is_null() {
        return Ok(Value::Null);
    }
    let name = text(&arguments[2]);
    let zone = zones::iana(&name).ok_or_else(|| message::ZONE_INVALID.with(&[&name]))?;
    let zone = TimeZone::get(zone).map_err(|_| {
        let text = format!("this machine's time zone database has no {zone}: install tzdata");
        message::OWN.with(&[&text])
    })?;
    let value = as_kind(&arguments[0], kind(&arguments[1]))?;
    let beyond = |_| message::DATE_OVERFLOW.with(&[&"datetimeoffset"]);
    let (at, seconds) = match value {
        Value::Temporal(given @ Temporal::DateTimeOffset(..)) => {
            let instant = TimeZone::UTC.to_timestamp(given.utc()).map_err(beyond)?;
            let offset = zone.to_offset(instant);
            (offset.to_datetime(instant), offset.seconds())
        }
        value => {
            let Value::Temporal(given) = convert(&value, Type::DateTime2(SCALE_MAX))? else {
                return Ok(Value::Null);
            };
            let there = zone
                .to_ambiguous_zoned(given.wall())
                .later()
                .map_err(beyond)?;
            (there.datetime(), there.offset().seconds())
        }
    };
    let minutes = i16::try_from(seconds / 60).unwrap_or_default();
    Ok(Value::Temporal(Temporal::DateTimeOffset(
        at, minutes, SCALE_MAX,
    )))
}
