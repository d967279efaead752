//! Times as text: local time, as in msdb's columns, and the same with its offset from UTC.

use rusqlite::Connection;

/// msdb's value for an unknown zone.
const UNKNOWN: i16 = 127;
/// The largest offset that is written, in quarter hours. No zone is farther from UTC than 14 hours; media can say anything.
const OFFSET_MAX: u16 = 24 * 4 - 1;

/// A time as local wall time; `None` if it has no date (before year 0, after 9999). `quarters`: the offset of local time
/// from UTC in quarter hours.
pub(crate) fn local_text(
    db: &Connection,
    utc_us: i64,
    quarters: i16,
) -> rusqlite::Result<Option<String>> {
    let quarters = if quarters == UNKNOWN {
        0
    } else {
        i64::from(quarters)
    };
    let local_ms = utc_us
        .saturating_add(quarters * 15 * 60 * 1_000_000)
        .div_euclid(1000);
    db.prepare_cached("SELECT strftime('%Y-%m-%dT%H:%M:%f', ?1 / 1000.0, 'unixepoch')")?
        .query_row([local_ms], |row| row.get(0))
}

/// The same with its offset, as RFC 3339 writes it: `2026-03-01T22:15:04.120+01:00`. If the zone is not known, the time is
/// UTC and ends with `Z`.
pub(crate) fn zoned_text(
    db: &Connection,
    utc_us: i64,
    quarters: Option<i16>,
) -> rusqlite::Result<Option<String>> {
    let known = quarters.filter(|q| *q != UNKNOWN && q.unsigned_abs() <= OFFSET_MAX);
    let local = local_text(db, utc_us, known.unwrap_or(UNKNOWN))?;
    let offset = known.map_or_else(|| "Z".to_owned(), offset);
    Ok(local.map(|local| local + &offset))
}

fn offset(quarters: i16) -> String {
    let sign = if quarters < 0 { '-' } else { '+' };
    let size = quarters.unsigned_abs();
    format!("{sign}{:02}:{:02}", size / 4, size % 4 * 15)
}

/// The offset of a local time, in seconds since 1970 as if it were UTC, from the same time in UTC; `None` if the two are not
/// whole quarter hours apart.
pub(crate) fn quarters_between(local_s: Option<i64>, utc_us: i64) -> Option<i16> {
    const QUARTER_S: i64 = 15 * 60;
    let ahead_s = local_s?.checked_sub(utc_us.div_euclid(1_000_000))?;
    let quarters = i16::try_from(ahead_s / QUARTER_S).ok()?;
    (ahead_s % QUARTER_S == 0).then_some(quarters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_its_offset_and_one_whose_zone_is_not_known_is_utc() {
        let db = Connection::open_in_memory().unwrap();
        // 2026-01-01 00:01:00.120 UTC.
        let at_us = 1_767_225_660_120_000;
        for (quarters, text) in [
            (Some(0), "2026-01-01T00:01:00.120+00:00"),
            (Some(4), "2026-01-01T01:01:00.120+01:00"),
            (Some(23), "2026-01-01T05:46:00.120+05:45"),
            (Some(-18), "2025-12-31T19:31:00.120-04:30"),
            (Some(127), "2026-01-01T00:01:00.120Z"),
            (Some(i16::MIN), "2026-01-01T00:01:00.120Z"),
            (None, "2026-01-01T00:01:00.120Z"),
        ] {
            let told = zoned_text(&db, at_us, quarters).unwrap();
            assert_eq!(told.as_deref(), Some(text));
        }
        assert_eq!(zoned_text(&db, i64::MAX, Some(4)).unwrap(), None);
    }

    #[test]
    fn the_offset_of_a_local_time_is_found_again_and_none_is_made_up() {
        let utc_us = 1_767_225_660_999_999;
        let local_s = 1_767_225_660;
        assert_eq!(quarters_between(Some(local_s), utc_us), Some(0));
        assert_eq!(quarters_between(Some(local_s + 3600), utc_us), Some(4));
        assert_eq!(quarters_between(Some(local_s - 900), utc_us), Some(-1));
        for odd in [None, Some(local_s + 1), Some(i64::MIN), Some(i64::MAX)] {
            assert_eq!(quarters_between(odd, utc_us), None, "{odd:?}");
        }
    }
}
