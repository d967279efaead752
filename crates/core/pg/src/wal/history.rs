//! `.history` files: the timelines that lead to one timeline, and where each was left.
//!
//! A line is timeline, LSN and reason, separated by tabs; `#` begins a remark. The file of timeline 3 names 1 and 2,
//! never 3 itself; timeline 1 has no file.
//!
//! Two restores of one backup open on timelines with the same number, from the same LSN, for the same reason. A remark
//! ([`restored_from`]) distinguishes them: a server that opens on a new timeline copies the history file of the
//! previous one, including remarks, and appends its own line. That file may belong to timeline 1; PostgreSQL does not
//! read it otherwise.
//!
//! Invariants
//! - In a [`History`] timelines and LSNs only grow, and all are before the timeline that it leads to.
//! - Two texts are the same history if they differ only in remarks of restores that go on from that timeline.
//!
//! Leaves to others: which history a server follows (`longshore-wal`), and the relation of two branches (`lineage.rs`).
//!
//! Source: PostgreSQL 18, `timeline.c`.

use crate::{Lsn, Timeline};

use super::WalName;

/// Longest file that is read, in bytes: some ten thousand promotions.
pub const HISTORY_LEN_MAX: usize = 1 << 20;

/// The point at which a timeline was left for the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkPoint {
    pub timeline: Timeline,
    /// The first LSN that is no longer on this timeline.
    pub end: Lsn,
}

/// The timelines that lead to one timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    timeline: Timeline,
    forks: Vec<ForkPoint>,
}

/// Why bytes are not the history of a timeline.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotHistory {
    #[error("it has more than {HISTORY_LEN_MAX} bytes")]
    TooLong,
    #[error("line {0} is not a timeline, an LSN and a reason")]
    Line(usize),
    #[error("line {0} is not later than the one before")]
    Order(usize),
    #[error("it does not name a timeline")]
    Empty,
}

impl History {
    /// The history of a timeline without ancestors.
    pub fn first(timeline: Timeline) -> History {
        History {
            timeline,
            forks: Vec::new(),
        }
    }

    /// Parses the history file of `timeline`.
    pub fn parse(timeline: Timeline, bytes: &[u8]) -> Result<History, NotHistory> {
        if bytes.len() > HISTORY_LEN_MAX {
            return Err(NotHistory::TooLong);
        }
        let mut forks: Vec<ForkPoint> = Vec::new();
        for (i, line) in bytes.split(|b| *b == b'\n').enumerate() {
            // Reasons may be in any encoding; only the two fields before them matter.
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let fork = fork_of(line).ok_or(NotHistory::Line(i + 1))?;
            let later = forks
                .last()
                .is_none_or(|last| last.timeline < fork.timeline && last.end <= fork.end);
            if !later || fork.timeline >= timeline {
                return Err(NotHistory::Order(i + 1));
            }
            forks.push(fork);
        }
        match forks.is_empty() {
            true => Err(NotHistory::Empty),
            false => Ok(History { timeline, forks }),
        }
    }

    /// The timeline that the history leads to.
    pub fn timeline(&self) -> Timeline {
        self.timeline
    }

    /// The earlier timelines, oldest first.
    pub fn forks(&self) -> &[ForkPoint] {
        &self.forks
    }

    /// The timeline on which the byte at `lsn` was written, seen from this history.
    pub fn timeline_at(&self, lsn: Lsn) -> Timeline {
        let fork = self.forks.iter().find(|f| lsn < f.end);
        fork.map_or(self.timeline, |f| f.timeline)
    }

    /// The LSN at which `timeline` was left; `None` for the last one, and for one that is not in the history.
    pub fn end_of(&self, timeline: Timeline) -> Option<Lsn> {
        let fork = self.forks.iter().find(|f| f.timeline == timeline);
        fork.map(|f| f.end)
    }

    /// Whether this history includes `timeline` up to the byte before `lsn`: whether WAL can bring a backup that ended
    /// there forward to this timeline.
    pub fn passes(&self, timeline: Timeline, lsn: Lsn) -> bool {
        match self.end_of(timeline) {
            Some(end) => lsn <= end,
            None => timeline == self.timeline,
        }
    }
}

/// The start of a restore's remark.
const RESTORED: &str = "# longshore restore ";
/// Between a restore's own name and the set's UUID.
const OF_SET: &str = ".";
/// The text before the name of the history from which the restore goes on.
const GOES_ON: &str = " goes on from ";

/// The line in the history `name` that distinguishes timelines that begin there after this restore from those of
/// another restore. `name` may also be a placeholder in a server's command.
pub fn restored_from(name: impl std::fmt::Display, restore: impl std::fmt::Display) -> String {
    format!("{RESTORED}{restore}{GOES_ON}{name}")
}

/// The name that a restore has in its remarks: its own, which no other restore has, and the UUID of the set that was
/// restored.
pub fn restore_name(restore: impl std::fmt::Display, set: impl std::fmt::Display) -> String {
    format!("{restore}{OF_SET}{set}")
}

/// The UUIDs of the sets from which a server on `timeline` was restored on its way there, by the remarks in the history
/// of that timeline. Each set is an ancestor of the server: the remark was copied when the server opened. A remark that
/// goes on from `timeline` itself counts for nothing here, because no server has opened after that restore yet.
pub fn restored_sets(timeline: Timeline, text: &[u8]) -> Vec<[u8; 16]> {
    let Ok(history) = History::parse(timeline, text) else {
        return Vec::new();
    };
    let is_way = |from: &Timeline| history.end_of(*from).is_some();
    let lines = text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii);
    let named = lines.filter_map(|line| {
        restored(line).filter(is_way)?;
        set_of(line)
    });
    named.collect()
}

/// Whether two texts are histories of the same `timeline`. Remarks of restores that go on from the timeline concern
/// later ones and are ignored: a restored server has them in its file, the archive it was restored from has not.
pub fn is_same_history(timeline: Timeline, one: &[u8], other: &[u8]) -> bool {
    own_lines(timeline, one).eq(own_lines(timeline, other))
}

/// The lines of a history by which [`is_same_history`] compares, each with its line feed.
pub fn history_lines(timeline: Timeline, text: &[u8]) -> Vec<u8> {
    own_lines(timeline, text).fold(Vec::new(), |mut lines, line| {
        lines.extend_from_slice(line);
        lines.push(b'\n');
        lines
    })
}

fn own_lines(timeline: Timeline, text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(move |line| !line.is_empty() && restored(line) != Some(timeline))
}

/// The timeline that a restore goes on from, if the line is such a remark.
pub(crate) fn restored(line: &[u8]) -> Option<Timeline> {
    let line = std::str::from_utf8(line).ok()?.strip_prefix(RESTORED)?;
    match line.split_once(GOES_ON)?.1.parse() {
        Ok(WalName::History(timeline)) => Some(timeline),
        _ => None,
    }
}

/// The set that a remark names. Remarks of earlier versions name none.
fn set_of(line: &[u8]) -> Option<[u8; 16]> {
    let line = std::str::from_utf8(line).ok()?.strip_prefix(RESTORED)?;
    let (_, set) = line.split_once(GOES_ON)?.0.rsplit_once(OF_SET)?;
    let is_usual = set.len() == 36 && set.chars().all(|c| c == '-' || c.is_ascii_hexdigit());
    let digits: String = set.chars().filter(|c| *c != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok();
    number
        .filter(|_| is_usual && digits.len() == 32)
        .map(u128::to_be_bytes)
}

/// The fork that a line names.
pub(crate) fn fork_of(line: &[u8]) -> Option<ForkPoint> {
    let mut fields = line
        .split(u8::is_ascii_whitespace)
        .filter(|f| !f.is_empty())
        .map(|f| std::str::from_utf8(f).ok());
    let number: u32 = fields.next()??.parse().ok()?;
    let end = fields.next()??.parse().ok()?;
    Some(ForkPoint {
        timeline: Timeline::new(number)?,
        end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn timeline(n: u32) -> Timeline {
        Timeline::new(n).unwrap()
    }

    /// As a server writes it after two promotions.
    const SAMPLE: &[u8] =
        b"1\t0/5000110\tno recovery target specified\n\n2\t0/90000A0\tbefore 2026-11-21\n";

    #[test]
    fn a_history_gives_the_timeline_of_every_lsn() {
        let history = History::parse(timeline(3), SAMPLE).unwrap();
        assert_eq!(history.timeline_at(Lsn(0)), timeline(1));
        assert_eq!(history.timeline_at(Lsn(0x500_010f)), timeline(1));
        assert_eq!(history.timeline_at(Lsn(0x500_0110)), timeline(2));
        assert_eq!(history.timeline_at(Lsn(0x900_00a0)), timeline(3));
        assert_eq!(history.end_of(timeline(2)), Some(Lsn(0x900_00a0)));
        assert!(history.passes(timeline(1), Lsn(0x500_0110)));
        assert!(!history.passes(timeline(1), Lsn(0x500_0111)));
        assert!(history.passes(timeline(3), Lsn(u64::MAX)));
        assert!(!history.passes(timeline(4), Lsn(0)));
    }

    #[test]
    fn remarks_and_any_bytes_in_reasons_are_passed_over() {
        let text = b"# a remark\n\t1 0/0A000000\t\xff\xfe reason\nn".as_slice();
        assert_eq!(
            History::parse(timeline(2), text),
            Err(NotHistory::Line(3)),
            "a broken line is not passed over"
        );
        let history = History::parse(timeline(2), &text[..text.len() - 1]).unwrap();
        assert_eq!(history.forks().len(), 1);
    }

    #[test]
    fn a_history_that_does_not_lead_to_the_timeline_is_refused() {
        let parse = |n, text: &str| History::parse(timeline(n), text.as_bytes()).unwrap_err();
        assert_eq!(parse(2, ""), NotHistory::Empty);
        assert_eq!(parse(2, "2\t0/1\tx"), NotHistory::Order(1));
        assert_eq!(parse(3, "2\t0/1\tx\n1\t0/2\tx"), NotHistory::Order(2));
        assert_eq!(parse(3, "1\t0/2\tx\n2\t0/1\tx"), NotHistory::Order(2));
        assert_eq!(parse(3, "0\t0/2\tx"), NotHistory::Line(1));
        assert_eq!(parse(3, "1\n"), NotHistory::Line(1));
        assert_eq!(
            parse(3, &" ".repeat(HISTORY_LEN_MAX + 1)),
            NotHistory::TooLong
        );
    }

    #[test]
    fn remarks_of_restores_distinguish_later_timelines_and_not_earlier_ones() {
        let second = "1\t0/5000110\treason\n".to_owned();
        let restored = |by: u32| {
            let from = WalName::History(timeline(2));
            format!("{second}\n{}\n", restored_from(from, by))
        };
        // As written by a server that was restored this way and then opened.
        let third = |by| restored(by) + "\n2\t0/A000000\treason\n";
        let same = |n, one: &str, other: &str| {
            is_same_history(timeline(n), one.as_bytes(), other.as_bytes())
        };
        assert!(History::parse(timeline(3), third(7).as_bytes()).is_ok());
        assert!(same(3, &third(7), &third(7)));
        assert!(!same(3, &third(7), &third(8)));
        assert!(same(2, &second, &restored(7)));
        assert!(!same(3, &second, &restored(7)));
        assert!(!same(2, &second, "1\t0/5000110\tother\n"));
        assert!(!same(2, &second, &format!("# 1\n{second}")));
        // A missing line end at the end makes no difference.
        assert!(same(2, &second, second.trim_end()));
    }

    #[test]
    fn the_sets_that_a_server_was_restored_from_stand_in_its_history() {
        let (set, other) = ([0xa7; 16], [0x3c; 16]);
        let uuid = |set: [u8; 16]| {
            let hex: String = set.iter().map(|byte| format!("{byte:02x}")).collect();
            let cut = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| hex[part].to_owned());
            cut.join("-")
        };
        let remark = |set, from| {
            let name = WalName::History(timeline(from));
            restored_from(name, restore_name("7b0d9c52", uuid(set)))
        };
        let second = format!("\n{}\n1\t0/5000110\treason\n", remark(set, 1));
        let sets = |n, text: &str| restored_sets(timeline(n), text.as_bytes());
        assert_eq!(sets(2, &second), [set]);
        // A restore that goes on from this very timeline: no server has opened after it.
        let again = format!("{second}\n{}\n", remark(other, 2));
        assert_eq!(sets(2, &again), [set]);
        let third = format!("{again}2\t0/A000000\treason\n");
        assert_eq!(sets(3, &third), [set, other]);
        // A timeline that is not on the way.
        let aside = format!("{}\n2\t0/A000000\treason\n", remark(set, 1));
        assert_eq!(sets(3, &aside), [[0; 16]; 0]);
        // Remarks of earlier versions, of others, and broken ones.
        for name in [
            "7b0d9c52",
            &uuid(set),
            "x.",
            "x.7",
            &format!("x.{}0", uuid(set)),
        ] {
            let text = format!("{}\n1\t0/1\tx\n", restored_from("00000001.history", name));
            assert_eq!(sets(2, &text), [[0; 16]; 0], "{name}");
        }
        assert_eq!(sets(2, "no history"), [[0; 16]; 0]);
    }

    proptest! {
        #[test]
        fn a_history_that_is_written_can_be_read(
            steps in prop::collection::vec((1u32..9, 0u64..1 << 40), 1..20),
        ) {
            let (mut number, mut end) = (0, 0);
            let (mut text, mut forks) = (String::new(), Vec::new());
            for (up, on) in steps {
                (number, end) = (number + up, end + on);
                text += &format!("{number}\t{}\tpromoted\n", Lsn(end));
                forks.push(ForkPoint { timeline: timeline(number), end: Lsn(end) });
            }
            let history = History::parse(timeline(number + 1), text.as_bytes()).unwrap();
            prop_assert_eq!(history.forks(), forks);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _any = History::parse(timeline(9), &bytes);
            let _any = restored_sets(timeline(9), &bytes);
            let line = [RESTORED.as_bytes(), &bytes, GOES_ON.as_bytes()].concat();
            let _any = set_of(&line);
        }
    }
}
