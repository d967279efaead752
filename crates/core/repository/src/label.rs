//! Labels: the names of backups at a target.
//!
//! `20270131T020000Z-full-1a2b3c4d`: the start of the backup (UTC), its type, and eight random digits.
//!
//! Invariants
//! - Sorted as text, labels are sorted by time.
//! - Only a text of exactly this form is a label; any other name is a stray.
//! - A label is for people and for sorting; the media say what a set is.
//!
//! Leaves to others: making the label's directory, which fails if another backup has the name (`place.rs`).

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// The type of a backup in its label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackupKind {
    /// The whole database.
    Full,
    /// The differences from a parent set.
    Differential,
}

impl BackupKind {
    pub fn text(self) -> &'static str {
        match self {
            BackupKind::Full => "full",
            BackupKind::Differential => "diff",
        }
    }
}

/// The name of one backup of one database at one target. Ordered by time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(String);

const FORM: &str = "%Y%m%dT%H%M%SZ";
const TIME_LEN: usize = "20270131T020000Z".len();
const ID_LEN: usize = 8;

impl Label {
    /// A new label. Two labels made in the same second almost always differ in their random digits; if not, creating
    /// the second directory fails.
    pub fn new(begun_us: i64, kind: BackupKind) -> Label {
        let time = jiff::Timestamp::from_microsecond(begun_us).unwrap_or_default();
        let id = Uuid::new_v4().simple().to_string();
        Label(format!(
            "{}-{}-{}",
            time.strftime(FORM),
            kind.text(),
            &id[..ID_LEN]
        ))
    }

    pub fn kind(&self) -> BackupKind {
        match &self.0[TIME_LEN + 1..TIME_LEN + 5] {
            "diff" => BackupKind::Differential,
            _ => BackupKind::Full,
        }
    }

    /// The start of the backup, to the second: microseconds since the Unix epoch.
    pub fn begun_us(&self) -> i64 {
        time_of(&self.0).unwrap_or(0)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is a label but for upper-case and lower-case letters.
    pub(crate) fn is_like(text: &str) -> bool {
        let (Some(time), Some(rest)) = (text.get(..TIME_LEN), text.get(TIME_LEN..)) else {
            return false;
        };
        let text = time.to_ascii_uppercase() + &rest.to_ascii_lowercase();
        text.parse::<Label>().is_ok()
    }
}

fn time_of(label: &str) -> Option<i64> {
    let time = jiff::civil::DateTime::strptime(FORM, label.get(..TIME_LEN)?).ok()?;
    let zoned = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(zoned.timestamp().as_microsecond())
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Label, String> {
        let id = |id: &str| {
            id.len() == ID_LEN && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let shaped = || {
            time_of(text)?;
            let rest = text.get(TIME_LEN..)?.strip_prefix('-')?;
            let (kind, rest) = rest.split_once('-')?;
            (matches!(kind, "full" | "diff") && id(rest)).then(|| Label(text.to_owned()))
        };
        shaped().ok_or_else(|| {
            format!(
                "{text:?} is not a backup's label; one looks like 20270131T020000Z-full-1a2b3c4d"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_utc_sort_by_time_and_can_be_read_back() {
        let first = Label::new(0, BackupKind::Full);
        assert!(first.as_str().starts_with("19700101T000000Z-full-"));
        let later = Label::new(1_900_000_000_000_000, BackupKind::Differential);
        assert!(first < later);
        for label in [first, later] {
            assert_eq!(label.as_str().parse(), Ok(label.clone()));
        }
        let label: Label = "20270131T020000Z-diff-1a2b3c4d".parse().unwrap();
        assert_eq!(label.kind(), BackupKind::Differential);
        assert_eq!(label.begun_us(), 1_801_360_800_000_000);
        assert_ne!(
            Label::new(5, BackupKind::Full),
            Label::new(5, BackupKind::Full)
        );
    }

    #[test]
    fn an_invalid_label_is_refused() {
        for text in [
            "",
            "wal",
            "20270131T020000Z",
            "20270131T020000Z-full",
            "20270131T020000Z-full-1a2b3c4",
            "20270131T020000Z-full-1a2b3c4d5",
            "20270131T020000Z-full-1A2B3C4D",
            "20270131T020000Z-half-1a2b3c4d",
            "20271331T020000Z-full-1a2b3c4d",
            "20270131T020000Z-full-1a2b3c4d.removing",
            "2027013\u{e9}T20000Z-full-1a2b3c4d",
        ] {
            assert!(text.parse::<Label>().is_err(), "{text}");
        }
    }
}
