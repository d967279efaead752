//! Texts as dates and times: the spellings that scripts use, and the order of day, month and year.
//!
//! Invariants
//! - A date of three numbers is read in the session's order. A month in words, `20270131` and ISO 8601 with a time are read alike
//!   in all orders, and so is `2027-01-31`, but not as `datetime` and `smalldatetime`.
//! - Where SQL Server's documentation has no meaning for a text in an order, it is no date: none is guessed.
//!
//! Leaves to others: the types, their ranges and the messages (`convert.rs`); which order a session has (`syntax/set.rs`).

use std::borrow::Cow;

use jiff::civil;

use crate::value::{DateTime, Type};

/// The order of day, month and year in dates of three numbers (`SET DATEFORMAT`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DateOrder {
    #[default]
    MonthDayYear,
    DayMonthYear,
    YearMonthDay,
    YearDayMonth,
    MonthYearDay,
    DayYearMonth,
}

impl DateOrder {
    /// All, each with its name.
    const NAMES: [(&str, DateOrder); 6] = [
        ("mdy", DateOrder::MonthDayYear),
        ("dmy", DateOrder::DayMonthYear),
        ("ymd", DateOrder::YearMonthDay),
        ("ydm", DateOrder::YearDayMonth),
        ("myd", DateOrder::MonthYearDay),
        ("dym", DateOrder::DayYearMonth),
    ];

    /// The order of this name, without regard to case; `None`: there is none.
    pub fn named(name: &str) -> Option<DateOrder> {
        let mut all = DateOrder::NAMES.iter();
        let found = all.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, order)| *order)
    }

    /// `mdy`
    pub fn name(self) -> &'static str {
        let mut all = DateOrder::NAMES.iter();
        all.find(|(_, order)| *order == self)
            .map_or("mdy", |(name, _)| name)
    }
}

/// The text of no date.
const NO_DATE: &str = "?";

/// A text as it has to be written for all other functions here, which read the month before the day, if a year is not first. One
/// that is no date in this order becomes a text that is none.
pub fn reordered(text: &str, to: Type, order: DateOrder) -> Cow<'_, str> {
    if order == DateOrder::default() {
        return Cow::Borrowed(text);
    }
    let trimmed = text.trim();
    let end = trimmed.find([' ', 'T', 't']).unwrap_or(trimmed.len());
    let (date, rest) = trimmed.split_at(end);
    let parts: Vec<&str> = date.split(['-', '/', '.']).collect();
    let is_number =
        |part: &&str| (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    let [one, two, three] = parts.as_slice() else {
        return Cow::Borrowed(text);
    };
    if !parts.iter().all(is_number) {
        return Cow::Borrowed(text);
    }
    let is_older = matches!(to, Type::DateTime | Type::SmallDateTime);
    let is_standard = date.matches('-').count() == 2
        && [one.len(), two.len(), three.len()] == [4, 2, 2]
        && (!is_older || rest.starts_with(['T', 't']));
    if is_standard {
        return Cow::Borrowed(text);
    }
    let known = match is_older {
        true => ordered([one, two, three], order),
        false => ordered_strictly([one, two, three], order),
    };
    let written = known.and_then(|[year, month, day]| {
        let year = match year.len() {
            4 => year.parse().ok()?,
            _ => of_century(year.parse().ok()?),
        };
        Some(format!("{year:04}-{month:0>2}-{day:0>2}{rest}"))
    });
    Cow::Owned(written.unwrap_or_else(|| NO_DATE.to_owned()))
}

/// Year, month and day, by an order. `None`: one of them has too many digits for it, or a year too few.
fn ordered(parts: [&str; 3], order: DateOrder) -> Option<[&str; 3]> {
    let is_year = |part: &str| part.len() == 4;
    let day_first = matches!(
        order,
        DateOrder::DayMonthYear | DateOrder::DayYearMonth | DateOrder::YearDayMonth
    );
    // Four digits are the year wherever they stand.
    let at = match parts.iter().position(|part| is_year(part)) {
        Some(at) => at,
        None => place_of_year(order),
    };
    let mut rest = parts.iter().enumerate().filter(|(i, _)| *i != at);
    let (first, second) = (rest.next()?.1, rest.next()?.1);
    let is_short = |part: &str| part.len() <= 2;
    let fits = is_short(first) && is_short(second) && (is_year(parts[at]) || is_short(parts[at]));
    let (month, day) = match day_first {
        true => (second, first),
        false => (first, second),
    };
    fits.then_some([parts[at], month, day])
}

/// The same for the newer types: the year stands where the order says, and the order of year, day and month is none of theirs.
fn ordered_strictly(parts: [&str; 3], order: DateOrder) -> Option<[&str; 3]> {
    if order == DateOrder::YearDayMonth {
        return None;
    }
    let four = parts.iter().position(|part| part.len() == 4);
    let is_there = four.is_none_or(|at| at == place_of_year(order));
    ordered(parts, order).filter(|_| is_there)
}

fn place_of_year(order: DateOrder) -> usize {
    match order {
        DateOrder::YearMonthDay | DateOrder::YearDayMonth => 0,
        DateOrder::MonthYearDay | DateOrder::DayYearMonth => 1,
        DateOrder::MonthDayYear | DateOrder::DayMonthYear => 2,
    }
}

/// A moment, with its offset from UTC in minutes if it has one: in UTC followed by the offset (`…Z+02:00`), as queries
/// store it, or as scripts write it.
pub fn parse_moment(text: &str) -> Option<(DateTime, Option<i16>)> {
    let text = text.trim();
    let Some((before, offset)) = split_offset(text) else {
        let zone = text.ends_with(['Z', 'z']).then_some(0);
        return Some((parse_date_time(text)?, zone));
    };
    let minutes = jiff::SignedDuration::from_mins(offset.into());
    let at = match before.strip_suffix('Z') {
        Some(utc) => parse_date_time(utc)?.checked_add(minutes).ok()?,
        None => parse_date_time(before)?,
    };
    Some((at, Some(offset)))
}

/// The text before `+02:00`, and the offset in minutes.
fn split_offset(text: &str) -> Option<(&str, i16)> {
    let at = text.len().checked_sub(6)?;
    let (before, offset) = (text.get(..at)?, text.get(at..)?);
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let digits = |s: &str| match s.len() == 2 && s.bytes().all(|b| b.is_ascii_digit()) {
        true => s.parse::<i16>().ok(),
        false => None,
    };
    let minutes = digits(hours)? * 60 + digits(minutes)?;
    // A date with dashes has no time after it.
    let has_time = before.contains(':') && minutes <= 14 * 60;
    match (offset.chars().next()?, has_time) {
        ('+', true) => Some((before.trim_end(), minutes)),
        ('-', true) => Some((before.trim_end(), -minutes)),
        _ => None,
    }
}

/// Parses the forms of a moment that scripts use. Zones other than `Z` are refused.
pub fn parse_date_time(text: &str) -> Option<DateTime> {
    let text = text.trim();
    if text.is_empty() {
        return Some(civil::date(1900, 1, 1).at(0, 0, 0, 0));
    }
    let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    // The parsers below accept a zone after the time, and ignore it.
    let time = match text.split_once(['T', 't', ' ']) {
        Some((_, time)) => time,
        None if text.contains(':') => text,
        None => "",
    };
    if time.contains(['+', '-', '[']) {
        return None;
    }
    if let Ok(at) = text.parse::<DateTime>() {
        return Some(at);
    }
    // A time alone is on the first of January 1900.
    let is_time = text.contains(':') || text.ends_with(['M', 'm']);
    if let Some(time) = parse_time(text).filter(|_| is_time) {
        return Some(civil::date(1900, 1, 1).to_datetime(time));
    }
    if let Some((date, time)) = text.split_once([' ', 'T'])
        && let Some((date, time)) = parse_date(date).zip(parse_time(time.trim()))
    {
        return Some(date.to_datetime(time));
    }
    if let Some(date) = parse_date(text).or_else(|| spelled_date(text)) {
        return Some(date.to_datetime(civil::Time::midnight()));
    }
    let (date, time) = before_clock(text)?;
    Some(spelled_date(date)?.to_datetime(parse_time(time)?))
}

fn parse_date(text: &str) -> Option<civil::Date> {
    if text.len() == 8 && text.bytes().all(|b| b.is_ascii_digit()) {
        return civil::Date::strptime("%Y%m%d", text).ok();
    }
    // A year alone, or two digits each of year, month and day.
    if matches!(text.len(), 4 | 6) && text.bytes().all(|b| b.is_ascii_digit()) {
        let part = |from: usize| text.get(from..from + 2)?.parse::<i16>().ok();
        return match text.len() {
            4 => civil::Date::new(text.parse().ok()?, 1, 1).ok(),
            _ => {
                let (month, day) = (part(2)? as i8, part(4)? as i8);
                civil::Date::new(of_century(part(0)?), month, day).ok()
            }
        };
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
        (1 | 2, 1 | 2) => (of_century(c), a, b),
        _ => return None,
    };
    civil::Date::new(year, month.try_into().ok()?, day.try_into().ok()?).ok()
}

/// A year of two digits: up to 49 it is in this century, as `two digit year cutoff` is by default.
fn of_century(year: i16) -> i16 {
    year + if year < 50 { 2000 } else { 1900 }
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// The month of a word, by its whole name or its first three letters.
fn month_of(word: &str) -> Option<i8> {
    let word = word.to_ascii_lowercase();
    let is = |name: &&str| **name == word || (word.len() == 3 && name.starts_with(&word));
    let place = MONTHS.iter().position(is)?;
    i8::try_from(place + 1).ok()
}

/// A date with a month in words: `Jan 31, 2027`, `31 January 27`, `2027 Jan 31`, `Jan 2027 31`. Without a day it is the first.
fn spelled_date(text: &str) -> Option<civil::Date> {
    let mut month = None;
    let mut numbers: Vec<&str> = Vec::new();
    for part in text.split([' ', ',', '\t']).filter(|part| !part.is_empty()) {
        let is_number = part.len() <= 4 && part.bytes().all(|b| b.is_ascii_digit());
        match (is_number, month) {
            (true, _) => numbers.push(part),
            (false, None) => month = Some(month_of(part)?),
            (false, Some(_)) => return None,
        }
    }
    let (year, day) = match numbers.as_slice() {
        [year] if year.len() == 4 => (*year, "1"),
        [year, day] if year.len() == 4 && day.len() <= 2 => (*year, *day),
        [day, year] if day.len() <= 2 && year.len() != 3 => (*year, *day),
        _ => return None,
    };
    let year = match year.len() {
        4 => year.parse().ok()?,
        _ => of_century(year.parse().ok()?),
    };
    civil::Date::new(year, month?, day.parse().ok()?).ok()
}

/// The date and the time of day of a text that has words: the time begins before its first colon, or is an hour with AM or PM.
fn before_clock(text: &str) -> Option<(&str, &str)> {
    let clock = match text.find(':') {
        Some(colon) => &text[..colon],
        None => {
            let upper = text.to_ascii_uppercase();
            let hour = upper.strip_suffix("PM").or(upper.strip_suffix("AM"))?;
            text.get(..hour.trim_end().len())?
        }
    };
    let begin = clock.rfind(' ')?;
    Some((text[..begin].trim_end(), text[begin..].trim_start()))
}

fn parse_time(text: &str) -> Option<civil::Time> {
    let upper = text.to_ascii_uppercase();
    let (clock, afternoon) = match (upper.strip_suffix("PM"), upper.strip_suffix("AM")) {
        (Some(clock), _) => (clock.trim(), Some(true)),
        (_, Some(clock)) => (clock.trim(), Some(false)),
        _ => (upper.as_str(), None),
    };
    // The parser below takes the time of a moment, too, and leaves its date out.
    if !clock
        .bytes()
        .all(|b| b.is_ascii_digit() || b == b':' || b == b'.')
    {
        return None;
    }
    let whole = match (clock.matches(':').count(), clock.rsplit_once(':')) {
        (0, _) if afternoon.is_some() && clock.len() <= 2 => format!("{clock:0>2}:00:00"),
        (1, _) => format!("{clock}:00"),
        // The older types put a colon before the milliseconds.
        (3, Some((before, ms))) => format!("{before}.{ms:0>3}"),
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

/// Whether a text that is no moment has the form of one, and only its numbers are too large.
pub fn is_date_form(text: &str) -> bool {
    let text = text.trim();
    let (date, time) = text.split_once([' ', 'T']).unwrap_or((text, ""));
    let is_number =
        |part: &str| (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = date.split(['-', '/', '.']).collect();
    let is_date = match parts.as_slice() {
        [one] => one.len() == 8 && one.bytes().all(|b| b.is_ascii_digit()),
        parts => parts.len() == 3 && parts.iter().all(|part| is_number(part)),
    };
    let is_time = |time: &str| {
        let parts = time.split([':', '.']);
        time.is_empty()
            || time.contains(':') && parts.clone().count() <= 4 && parts.clone().all(is_number)
    };
    is_date && is_time(time)
}

/// `datetime` and `smalldatetime` accept no offset, since they would lose it; they ignore `Z`.
pub fn without_offset(text: &str) -> Option<DateTime> {
    let (at, offset) = parse_moment(text)?;
    let is_plain = offset.is_none() || text.trim_end().ends_with(['Z', 'z']);
    is_plain.then_some(at)
}

/// Parses a text in one of CONVERT's styles: only the order of day and month depends on the style.
pub fn parse_styled(text: &str, style: i64) -> Option<(DateTime, Option<i16>)> {
    let day_first = matches!(style, 3 | 4 | 5 | 103 | 104 | 105);
    let text = text.trim();
    let (date, rest) = text.split_once(' ').unwrap_or((text, ""));
    let parts: Vec<&str> = date.split(['-', '/', '.']).collect();
    let short = |year: &str| {
        Some(of_century(
            year.parse().ok().filter(|y| (0..100).contains(y))?,
        ))
    };
    match parts.as_slice() {
        [day, month, year] if day_first && year.len() == 4 => {
            parse_moment(format!("{year}-{month:0>2}-{day:0>2} {rest}").trim_end())
        }
        [day, month, year] if day_first && year.len() == 2 && day.len() <= 2 => {
            let year = short(year)?;
            parse_moment(format!("{year}-{month:0>2}-{day:0>2} {rest}").trim_end())
        }
        // With the year first, the day cannot be determined.
        [_, _, _] if day_first => None,
        [year, month, day] if matches!(style, 2 | 11) && year.len() == 2 && day.len() <= 2 => {
            let year = short(year)?;
            parse_moment(format!("{year}-{month:0>2}-{day:0>2} {rest}").trim_end())
        }
        _ => parse_moment(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::date_time_text;

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
        let ms = Some("2024-05-09 13:04:05.123".to_owned());
        assert_eq!(at("2024-05-09 13:04:05:123"), ms);
        assert_eq!(at("20240509 13:04:05:123"), ms);
        for (text, expected) in [
            ("May 2024", "2024-05-01 00:00:00.000"),
            ("2024 May", "2024-05-01 00:00:00.000"),
            ("Apr 15, 96", "1996-04-15 00:00:00.000"),
            ("15 Apr, 1996", "1996-04-15 00:00:00.000"),
            ("1996 APR 15", "1996-04-15 00:00:00.000"),
            ("April 1996 15", "1996-04-15 00:00:00.000"),
            ("Apr 15 1996 4PM", "1996-04-15 16:00:00.000"),
            ("Apr 15 1996 4:05:06 PM", "1996-04-15 16:05:06.000"),
            ("20240509 4 PM", "2024-05-09 16:00:00.000"),
            ("4am", "1900-01-01 04:00:00.000"),
        ] {
            assert_eq!(at(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "May",
            "May 31",
            "May 5 200",
            "tomorrow",
            "2027-13-01",
            "31/12/27",
            "2027-01-31 25:00",
            "2027-01-31T12:30:00+02:00",
            "2027-01-31 12:30:00-0200",
            "2027-01-31T12:30:00[Europe/Berlin]",
            "12:30:00+02:00",
            "2027-01-31T12:30:00+02",
            "2027-01-31 12:30:00-02:00",
            "2027-01-31T12:30:00+02:00[Europe/Berlin]",
            "é",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    /// One text and its six meanings are those of Microsoft's page of `datetime`; the rest is on the pages of SET DATEFORMAT and
    /// of `date`.
    #[test]
    fn three_numbers_are_read_in_the_order_of_the_session() {
        let read = |text: &str, to, order: &str| {
            let order = DateOrder::named(order).unwrap();
            parse_moment(&reordered(text, to, order)).map(|(at, _)| at.date().to_string())
        };
        let some = |text: &str| Some(text.to_owned());
        for (order, expected) in [
            ("mdy", "2008-12-10"),
            ("dmy", "2008-10-12"),
            ("ymd", "2012-10-08"),
            ("ydm", "2012-08-10"),
            ("myd", "2010-12-08"),
            ("dym", "2010-08-12"),
        ] {
            assert_eq!(read("12/10/08", Type::DateTime, order), some(expected));
            let newer = if order == "ydm" { None } else { some(expected) };
            assert_eq!(read("12/10/08", Type::Date, order), newer, "{order}");
            assert_eq!(DateOrder::named(order).unwrap().name(), order);
            // These are the same in every order.
            for text in ["20270203", "2027-02-03T01:02:03", "3 Feb 2027", "270203"] {
                assert_eq!(
                    read(text, Type::DateTime, order),
                    some("2027-02-03"),
                    "{text}"
                );
                assert_eq!(
                    read(text, Type::DateTime2(7), order),
                    some("2027-02-03"),
                    "{text}"
                );
            }
            assert_eq!(read("2027-02-03", Type::Date, order), some("2027-02-03"));
            let at = "2027-02-03 04:05:06.7 +02:00";
            assert_eq!(read(at, Type::DateTimeOffset(7), order), some("2027-02-03"));
        }
        let older = |text, order| read(text, Type::DateTime, order);
        assert_eq!(older("2027-02-03", "dmy"), some("2027-03-02"));
        assert_eq!(older("2027-02-03 10:00", "ymd"), some("2027-02-03"));
        assert_eq!(older("03.2027.02", "dmy"), some("2027-02-03"));
        assert_eq!(older("2027-13-01", "dmy"), some("2027-01-13"));
        assert_eq!(older("2027-13-01", "ymd"), None);
        assert_eq!(older("1/2027/2027", "dmy"), None);
        let newer = |text, order| read(text, Type::Date, order);
        assert_eq!(newer("31.12.2027", "dmy"), some("2027-12-31"));
        assert_eq!(newer("12/31/2027", "dmy"), None);
        assert_eq!(newer("2027/12/31", "ymd"), some("2027-12-31"));
        // Which of the two is the day is not documented.
        assert_eq!(newer("2027/02/03", "dmy"), None);
        assert_eq!(newer("2027/03/02", "ydm"), None);
    }
}
