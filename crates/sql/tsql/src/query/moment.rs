//! Date and time arithmetic: DATEADD, DATEDIFF, DATEPART and related functions.
//!
//! Invariants
//! - Results and errors are SQL Server's: DATEDIFF counts boundaries, months end at their last day, and a date outside
//!   of the type's range is none.
//! - Everything is calculated without a time zone of this machine.
//! - No number panics: counts that do not fit are the largest or the smallest.
//!
//! Leaves to others: the forms of dates in texts (`convert.rs`), the messages, and the present time.

use jiff::Span;
use jiff::civil::Weekday;

use crate::value::DateTime;

/// A part of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatePart {
    Year,
    Quarter,
    Month,
    DayOfYear,
    Day,
    Week,
    IsoWeek,
    WeekDay,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

impl DatePart {
    /// Part of the time of day, not of the date.
    pub fn is_of_time(self) -> bool {
        matches!(
            self,
            DatePart::Hour
                | DatePart::Minute
                | DatePart::Second
                | DatePart::Millisecond
                | DatePart::Microsecond
                | DatePart::Nanosecond
        )
    }

    /// By its name or one of its abbreviations, in any case.
    pub fn of(word: &str) -> Option<DatePart> {
        Some(match word.to_ascii_lowercase().as_str() {
            "year" | "yy" | "yyyy" => DatePart::Year,
            "quarter" | "qq" | "q" => DatePart::Quarter,
            "month" | "mm" | "m" => DatePart::Month,
            "dayofyear" | "dy" | "y" => DatePart::DayOfYear,
            "day" | "dd" | "d" => DatePart::Day,
            "week" | "wk" | "ww" => DatePart::Week,
            "iso_week" | "isowk" | "isoww" => DatePart::IsoWeek,
            "weekday" | "dw" | "w" => DatePart::WeekDay,
            "hour" | "hh" => DatePart::Hour,
            "minute" | "mi" | "n" => DatePart::Minute,
            "second" | "ss" | "s" => DatePart::Second,
            "millisecond" | "ms" => DatePart::Millisecond,
            "microsecond" | "mcs" => DatePart::Microsecond,
            "nanosecond" | "ns" => DatePart::Nanosecond,
            _ => return None,
        })
    }
}

/// `n` parts later; `None` outside the range of dates.
pub fn add(part: DatePart, n: i64, at: DateTime) -> Option<DateTime> {
    let span = Span::new();
    let span = match part {
        DatePart::Year => span.try_years(n),
        DatePart::Quarter => span.try_months(n.checked_mul(3)?),
        DatePart::Month => span.try_months(n),
        DatePart::DayOfYear | DatePart::Day | DatePart::WeekDay => span.try_days(n),
        DatePart::Week | DatePart::IsoWeek => span.try_weeks(n),
        DatePart::Hour => span.try_hours(n),
        DatePart::Minute => span.try_minutes(n),
        DatePart::Second => span.try_seconds(n),
        DatePart::Millisecond => span.try_milliseconds(n),
        DatePart::Microsecond => span.try_microseconds(n),
        DatePart::Nanosecond => span.try_nanoseconds(n),
    };
    at.checked_add(span.ok()?).ok()
}

/// The number of boundaries of this part between two moments.
pub fn difference(part: DatePart, from: DateTime, to: DateTime) -> i64 {
    let days = |at: DateTime| {
        let since = at.date().since(jiff::civil::date(1900, 1, 1));
        since.map_or(0, |s| i64::from(s.get_days()))
    };
    let seconds = |at: DateTime| {
        let time = at.time();
        let of_day = i64::from(time.hour()) * 3600 + i64::from(time.minute()) * 60;
        days(at) * 86_400 + of_day + i64::from(time.second())
    };
    let millis = |at: DateTime| seconds(at) * 1000 + i64::from(at.subsec_nanosecond() / 1_000_000);
    let nanos =
        |at: DateTime| i128::from(seconds(at)) * 1_000_000_000 + i128::from(at.subsec_nanosecond());
    let clamped = |n: i128| i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX });
    let months = |at: DateTime| i64::from(at.year()) * 12 + i64::from(at.month()) - 1;
    match part {
        DatePart::Year => i64::from(to.year()) - i64::from(from.year()),
        DatePart::Quarter => months(to).div_euclid(3) - months(from).div_euclid(3),
        DatePart::Month => months(to) - months(from),
        DatePart::DayOfYear | DatePart::Day | DatePart::WeekDay => days(to) - days(from),
        // The first of January 1900 was a Monday; weeks begin on Sundays.
        DatePart::Week | DatePart::IsoWeek => {
            (days(to) + 1).div_euclid(7) - (days(from) + 1).div_euclid(7)
        }
        DatePart::Hour => seconds(to).div_euclid(3600) - seconds(from).div_euclid(3600),
        DatePart::Minute => seconds(to).div_euclid(60) - seconds(from).div_euclid(60),
        DatePart::Second => seconds(to) - seconds(from),
        DatePart::Millisecond => millis(to) - millis(from),
        DatePart::Microsecond => clamped(nanos(to).div_euclid(1000) - nanos(from).div_euclid(1000)),
        DatePart::Nanosecond => clamped(nanos(to) - nanos(from)),
    }
}

pub fn part(part: DatePart, at: DateTime) -> i64 {
    match part {
        DatePart::Year => at.year().into(),
        DatePart::Quarter => i64::from(at.month() - 1) / 3 + 1,
        DatePart::Month => at.month().into(),
        DatePart::DayOfYear => at.day_of_year().into(),
        DatePart::Day => at.day().into(),
        DatePart::Week => {
            let first = at.date().first_of_year().weekday().to_sunday_zero_offset();
            (i64::from(at.day_of_year()) - 1 + i64::from(first)) / 7 + 1
        }
        DatePart::IsoWeek => at.date().iso_week_date().week().into(),
        DatePart::WeekDay => i64::from(at.weekday().to_sunday_zero_offset()) + 1,
        DatePart::Hour => at.hour().into(),
        DatePart::Minute => at.minute().into(),
        DatePart::Second => at.second().into(),
        DatePart::Millisecond => i64::from(at.subsec_nanosecond()) / 1_000_000,
        DatePart::Microsecond => i64::from(at.subsec_nanosecond()) / 1000,
        DatePart::Nanosecond => at.subsec_nanosecond().into(),
    }
}

/// DATENAME: months and weekdays by name, other parts as numbers.
pub fn name(part_of: DatePart, at: DateTime) -> String {
    match part_of {
        DatePart::Month => at.strftime("%B").to_string(),
        DatePart::WeekDay => match at.weekday() {
            Weekday::Sunday => "Sunday",
            Weekday::Monday => "Monday",
            Weekday::Tuesday => "Tuesday",
            Weekday::Wednesday => "Wednesday",
            Weekday::Thursday => "Thursday",
            Weekday::Friday => "Friday",
            Weekday::Saturday => "Saturday",
        }
        .to_owned(),
        other => part(other, at).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    #[test]
    fn differences_count_borders_not_durations() {
        let before = date(2026, 12, 31).at(23, 59, 59, 990_000_000);
        let after = date(2027, 1, 1).at(0, 0, 0, 0);
        for part in [
            DatePart::Year,
            DatePart::Quarter,
            DatePart::Month,
            DatePart::Day,
            DatePart::Hour,
            DatePart::Minute,
        ] {
            assert_eq!(difference(part, before, after), 1, "{part:?}");
            assert_eq!(difference(part, after, before), -1, "{part:?}");
        }
        assert_eq!(difference(DatePart::Second, before, after), 1);
        assert_eq!(difference(DatePart::Millisecond, before, after), 10);
        let saturday = date(2027, 1, 2).at(0, 0, 0, 0);
        let sunday = date(2027, 1, 3).at(0, 0, 0, 0);
        assert_eq!(difference(DatePart::Week, after, saturday), 0);
        assert_eq!(difference(DatePart::Week, saturday, sunday), 1);
    }

    #[test]
    fn parts_are_added_and_taken() {
        let at = date(2027, 1, 31).at(12, 0, 0, 0);
        assert_eq!(
            add(DatePart::Month, 1, at),
            Some(date(2027, 2, 28).at(12, 0, 0, 0))
        );
        assert_eq!(
            add(DatePart::Day, -31, at),
            Some(date(2026, 12, 31).at(12, 0, 0, 0))
        );
        assert_eq!(add(DatePart::Year, 1 << 40, at), None);
        assert_eq!(part(DatePart::WeekDay, at), 1);
        assert_eq!(name(DatePart::WeekDay, at), "Sunday");
        assert_eq!(part(DatePart::IsoWeek, date(2027, 1, 3).at(0, 0, 0, 0)), 53);
        assert_eq!(part(DatePart::Week, date(2027, 1, 3).at(0, 0, 0, 0)), 2);
    }
}
