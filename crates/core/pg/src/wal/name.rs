//! The names of files that PostgreSQL archives: segments, partial segments, histories, backup marks.
//!
//! Invariants
//! - Exactly the names that PostgreSQL passes to archive_command are read; others are refused, so that no name can lead
//!   out of the archive.
//! - A name that is read is written the same.
//!
//! Leaves to others: the arithmetic of segments (`segment.rs`), and what is in the files.

use std::fmt;
use std::str::FromStr;

use crate::{SegmentName, Timeline};

/// A file that `archive_command` may be called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WalName {
    /// `00000002.history`: the history of that timeline.
    History(Timeline),
    /// A complete segment.
    Segment(SegmentName),
    /// `….partial`: the last segment of a timeline that a promotion ended, or one still being received.
    Partial(SegmentName),
    /// `….00000028.backup`: written at the end of an online backup that began at this byte of the segment.
    Backup(SegmentName, u32),
}

impl WalName {
    /// The segment it is, or belongs to; `None` for a history.
    pub fn segment(self) -> Option<SegmentName> {
        match self {
            WalName::History(_) => None,
            WalName::Segment(name) | WalName::Partial(name) | WalName::Backup(name, _) => {
                Some(name)
            }
        }
    }

    /// Whether its content is a WAL segment, including the header.
    pub fn holds_log(self) -> bool {
        matches!(self, WalName::Segment(_) | WalName::Partial(_))
    }
}

impl fmt::Display for WalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WalName::History(timeline) => write!(f, "{:08X}.history", timeline.number()),
            WalName::Segment(name) => name.fmt(f),
            WalName::Partial(name) => write!(f, "{name}.partial"),
            WalName::Backup(name, offset) => write!(f, "{name}.{offset:08X}.backup"),
        }
    }
}

impl FromStr for WalName {
    type Err = String;

    fn from_str(s: &str) -> Result<WalName, String> {
        let hex8 = |t: &str| {
            let upper = |b: u8| b.is_ascii_digit() || (b'A'..=b'F').contains(&b);
            let shaped = t.len() == 8 && t.bytes().all(upper);
            shaped.then(|| u32::from_str_radix(t, 16).ok()).flatten()
        };
        let (stem, ending) = s.split_once('.').unwrap_or((s, ""));
        let name = match ending {
            "" if stem.len() == s.len() => stem.parse().ok().map(WalName::Segment),
            "history" => hex8(stem).and_then(Timeline::new).map(WalName::History),
            "partial" => stem.parse().ok().map(WalName::Partial),
            _ => ending
                .strip_suffix(".backup")
                .and_then(hex8)
                .and_then(|offset| Some(WalName::Backup(stem.parse().ok()?, offset))),
        };
        name.ok_or_else(|| format!("{s:?} is not the name of a WAL file"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_name_is_read_and_written_alike() {
        for name in [
            "00000002.history",
            "0000000300000016000000B3",
            "0000000300000016000000B3.partial",
            "0000000300000016000000B3.00000028.backup",
        ] {
            assert_eq!(name.parse::<WalName>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "",
            ".",
            ".history",
            "00000000.history",
            "0000000a.history",
            "00000002.history.",
            "0000000300000016000000B3.",
            "0000000300000016000000B3.partial.gz",
            "0000000300000016000000B3.28.backup",
            "0000000300000016000000B3.backup",
            "../00000002.history",
            "RECOVERYXLOG",
        ] {
            assert!(name.parse::<WalName>().is_err(), "{name}");
        }
    }
}
