//! Failed logins in the log: a line each, until there are many.
//!
//! Anybody may fail to log in, and the log keeps so much. Above [`LINES_MAX`] a minute failures are counted alone, and
//! one line says how many there were, so that an attack does not drive out what it would hide.

use std::time::Duration;

use parking_lot::Mutex;

const LINES_MAX: u32 = 20;
const SPAN: Duration = Duration::from_secs(60);
/// Characters of a name as it is logged, escaped.
const NAME_LEN_MAX: usize = 100;

#[derive(Default)]
pub struct Strikes {
    inner: Mutex<Window>,
}

#[derive(Default)]
struct Window {
    begun: Duration,
    count: u32,
}

impl Strikes {
    /// Counts a failure; whether it has a line of its own.
    pub fn add(&self) -> bool {
        let mut window = self.inner.lock();
        window.count = window.count.saturating_add(1);
        window.count <= LINES_MAX
    }

    /// What to say of failures without a line when their minute is over, or when all ends. To be asked now and then.
    pub fn summary(&self, now: Duration, ends: bool) -> Option<String> {
        let mut window = self.inner.lock();
        if !ends && now.saturating_sub(window.begun) < SPAN {
            return None;
        }
        let more = window.count.saturating_sub(LINES_MAX);
        *window = Window {
            begun: now,
            count: 0,
        };
        (more > 0).then(|| format!("{more} more logins failed within a minute."))
    }
}

/// A name that anybody may have sent: on one line, and short.
pub fn short(name: &str) -> String {
    let mut escaped = name.escape_debug();
    let mut short: String = escaped.by_ref().take(NAME_LEN_MAX).collect();
    if escaped.next().is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_failures_has_few_lines_and_one_that_counts_the_rest() {
        let strikes = Strikes::default();
        let lines = |n: u32| (0..n).filter(|_| strikes.add()).count();
        assert_eq!(lines(1000), 20);
        assert_eq!(strikes.summary(Duration::from_secs(59), false), None);
        let said = strikes.summary(Duration::from_secs(60), false).unwrap();
        assert_eq!(said, "980 more logins failed within a minute.");
        assert_eq!(lines(20), 20);
        assert_eq!(strikes.summary(Duration::from_secs(300), false), None);
        assert_eq!(lines(21), 20);
        let said = strikes.summary(Duration::from_secs(301), true).unwrap();
        assert_eq!(said, "1 more logins failed within a minute.");
    }

    #[test]
    fn names_are_short_however_they_are_escaped() {
        assert_eq!(short("a\nb"), "a\\nb");
        let long = short(&"\u{10ffff}".repeat(128));
        assert_eq!(long.chars().count(), 101);
    }
}
