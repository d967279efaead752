//! The times of WAITFOR.

/// A time of day, or how long to wait, in milliseconds: `hh:mm`, `hh:mm:ss` or `hh:mm:ss.mmm`, with `AM` or `PM` after it
/// if wanted. Nothing is 0. The date is left out, or `1900-01-01`. `None`: no such time.
pub(crate) fn parse_time(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text
        .strip_prefix("1900-01-01")
        .map_or(text, |rest| rest.trim_start());
    if text.is_empty() {
        return Some(0);
    }
    let upper = text.to_ascii_uppercase();
    let (clock, half) = match (upper.strip_suffix("AM"), upper.strip_suffix("PM")) {
        (Some(clock), _) => (clock.trim_end(), Some(0)),
        (_, Some(clock)) => (clock.trim_end(), Some(12)),
        _ => (upper.as_str(), None),
    };
    let mut parts = clock.splitn(3, ':');
    let hour = two_digits(parts.next()?, 23)?;
    let minute = two_digits(parts.next()?, 59)?;
    let (second, fraction) = match parts.next() {
        None => (0, 0),
        Some(seconds) => match seconds.split_once(['.', ':']) {
            None => (two_digits(seconds, 59)?, 0),
            Some((whole, fraction)) => {
                let is_point = seconds.as_bytes().get(whole.len()) == Some(&b'.');
                (two_digits(whole, 59)?, milliseconds(fraction, is_point)?)
            }
        },
    };
    let hour = match half {
        None => hour,
        Some(half) if (1..=12).contains(&hour) => hour % 12 + half,
        Some(_) => return None,
    };
    Some(((hour * 60 + minute) * 60 + second) * 1000 + fraction)
}

fn two_digits(text: &str, max: u64) -> Option<u64> {
    let fits = matches!(text.len(), 1 | 2) && text.bytes().all(|b| b.is_ascii_digit());
    let number = fits.then(|| text.parse().ok()).flatten()?;
    (number <= max).then_some(number)
}

/// After a point they are a fraction, after a colon thousandths.
fn milliseconds(text: &str, is_point: bool) -> Option<u64> {
    let fits = (1..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let number: u64 = fits.then(|| text.parse().ok()).flatten()?;
    Some(match (is_point, text.len()) {
        (true, 1) => number * 100,
        (true, 2) => number * 10,
        _ => number,
    })
}

#[cfg(test)]
mod tests {
    use super::parse_time;

    #[test]
    fn times_of_a_wait_are_read_and_others_refused() {
        for (text, expected) in [
            ("", Some(0)),
            ("00:00:00", Some(0)),
            ("02:00", Some(7_200_000)),
            ("0:0:1", Some(1000)),
            ("00:00:00.050", Some(50)),
            ("00:00:00.5", Some(500)),
            ("00:00:00:5", Some(5)),
            ("23:59:59.999", Some(86_399_999)),
            ("10:20 PM", Some((22 * 60 + 20) * 60_000)),
            ("12:00AM", Some(0)),
            ("1900-01-01 00:00:02", Some(2000)),
            ("24:00", None),
            ("25:00:00", None),
            ("-00:00:01", None),
            ("99:00:00:00", None),
            ("00:00:00.0001", None),
            ("2020-01-01 10:00", None),
            ("13:00 PM", None),
            ("not a time", None),
            ("10", None),
            (":", None),
            ("1:2:3:4:5", None),
            ("é:é", None),
        ] {
            assert_eq!(parse_time(text), expected, "{text}");
        }
    }
}
