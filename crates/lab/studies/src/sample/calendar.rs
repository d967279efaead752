//! Dates and times as text, the way SQLite's own functions read them.
//!
//! Invariants
//! - A sample has no *now*: everything is counted from fixed dates. Days count from 1970-01-01, milliseconds from that
//!   day's midnight.
//! - A text has a fixed width, and is the date that SQLite computes for the same day.
//!
//! Leaves to others: which days a sample uses (`stae`, `tprocc`).

pub const MS_PER_DAY: i64 = 86_400_000;

/// Monday, 3 January 2022: the first trading day of a sample.
const FIRST_TRADING_DAY: i64 = 18_995;

/// The day of trading day `n`; trading days are Monday to Friday, without holidays.
pub fn trading_day(n: i64) -> i64 {
    FIRST_TRADING_DAY + n / 5 * 7 + n % 5
}

/// Appends `day` as `2022-01-03`.
pub fn push_date(out: &mut String, day: i64) {
    let (year, month, day) = civil(day);
    push_digits(out, year, 4);
    out.push('-');
    push_digits(out, month, 2);
    out.push('-');
    push_digits(out, day, 2);
}

/// Replaces `out` by `ms` as `2022-01-03 09:30:00`.
pub fn seconds(out: &mut String, ms: i64) {
    out.clear();
    push_date(out, ms.div_euclid(MS_PER_DAY));
    let second = ms.rem_euclid(MS_PER_DAY) / 1000;
    for (mark, value) in [
        (' ', second / 3600),
        (':', second / 60 % 60),
        (':', second % 60),
    ] {
        out.push(mark);
        push_digits(out, value, 2);
    }
}

/// Replaces `out` by `ms` as `2022-01-03 09:30:00.250`.
pub fn milliseconds(out: &mut String, ms: i64) {
    seconds(out, ms);
    out.push('.');
    push_digits(out, ms.rem_euclid(1000), 3);
}

/// Appends the last `width` decimal digits of `value`.
pub fn push_digits(out: &mut String, value: i64, width: u32) {
    for place in (0..width).rev() {
        out.push(char::from(b'0' + (value / 10_i64.pow(place) % 10) as u8));
    }
}

/// Year, month and day of a day count (Hinnant, "chrono-compatible low-level date algorithms").
fn civil(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day_of_year - (153 * march_month + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_the_ones_sqlite_computes() {
        let sqlite = rusqlite::Connection::open_in_memory().unwrap();
        let mut text = String::new();
        for day in (-1_000..40_000).step_by(13) {
            let ms = day * MS_PER_DAY + (day * 7_919_017).rem_euclid(MS_PER_DAY);
            milliseconds(&mut text, ms);
            let expected: String = sqlite
                .query_row(
                    "SELECT strftime('%Y-%m-%d %H:%M:', ?1, 'unixepoch') || printf('%06.3f', ?2)",
                    (ms.div_euclid(1000), ms.rem_euclid(60_000) as f64 / 1000.0),
                    |row| row.get(0),
                )
                .unwrap();
            assert_eq!(text, expected, "day {day}");
        }
    }

    #[test]
    fn trading_days_skip_week_ends() {
        let mut text = String::new();
        for n in 0..600 {
            text.clear();
            // Day 0 of the count, 1970-01-01, was a Thursday.
            assert!((trading_day(n) + 3) % 7 < 5);
            push_date(&mut text, trading_day(n));
        }
        assert_eq!(trading_day(5) - trading_day(4), 3);
        assert_eq!(text, "2024-04-19");
    }
}
