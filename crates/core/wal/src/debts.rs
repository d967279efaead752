//! The list of what databases' own archives lack because they were away while a push succeeded: `pg_wal/longshore/owed`.
//!
//! ```text
//! NAME DATABASE SUM LOCATION      a file that is owed: whose archive, the digest of its content, where that archive was
//! why DATABASE TEXT               why the last attempt to bring it failed
//! refused DATABASE TEXT           the same, where the archive was there and refused a file
//! lost DATABASE NAME…             files that nothing in reach has any longer
//! ```
//!
//! Fields are separated by tabs.
//!
//! Invariants
//! - The list is one cluster's. A debt is to the own archive of a database of the configuration, whatever that archive is
//!   called now: the location is for people. Another database's debts are never touched.
//! - A debt names the content. So a file of its name proves nothing, and the very file is recognized wherever it is.
//! - A line that is not understood stays, and is counted: while there is one, it is not known what is owed.
//! - A change is durable when it returns.
//!
//! Leaves to others: bringing the files (`owed.rs`), and when a push may owe (`longshore`, `commands/wal/away.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use longshore_io::{Clock, SmallFile};
use longshore_pg::SegmentName;
use longshore_pg::wal::WalName;

use super::ahead::PLACE;
use super::archive::Outgoing;
use super::content::ContentSum;
use super::{Error, PgWal};

const NOTE: &str = "owed";
/// Of some ten thousand files. A push that finds no room fails, and the server keeps its WAL.
const NOTE_MAX: usize = 4 << 20;
/// The first field of a line with a reason: no file has such a name.
const WHY: &str = "why";
const REFUSED: &str = "refused";
const LOST: &str = "lost";
/// The longest reason that is noted, in characters.
const WHY_MAX: usize = 300;

/// The database whose own archive is owed, and where that archive is.
#[derive(Debug, Clone, Copy)]
pub struct Creditor<'a> {
    /// Its name in the configuration.
    pub database: &'a str,
    pub location: &'a Path,
}

/// The debt to one database's own archive.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Owed {
    /// In the order in which they are brought.
    pub names: Vec<WalName>,
    /// Of these, the files that neither an archive in reach nor pg_wal has.
    pub lost: BTreeSet<WalName>,
    /// Where the archive was when it began to be owed, as texts.
    pub locations: BTreeSet<String>,
    /// Why the last attempt to bring them failed.
    pub why: Option<String>,
    /// In that attempt the archive was there, and refused what it is owed: it has another branch's.
    pub is_refused: bool,
    pub(super) sums: BTreeMap<WalName, ContentSum>,
}

/// The whole list.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct OwedList {
    debts: BTreeMap<String, Owed>,
    /// The number of lines that this version does not understand: what they say is not known.
    pub unread: usize,
}

/// The list's file below the data directory, for those who ask a server for it, and the most bytes that it has.
pub const OWED_LIST: (&str, usize) = ("pg_wal/longshore/owed", NOTE_MAX);

impl Owed {
    /// The first segment that is owed.
    pub fn since(&self) -> Option<SegmentName> {
        first_segment(self.names.iter())
    }

    /// The files that can still be brought.
    pub fn waiting(&self) -> impl Iterator<Item = &WalName> {
        self.names.iter().filter(|name| !self.lost.contains(name))
    }

    /// The first segment that can still be brought.
    pub fn waits_since(&self) -> Option<SegmentName> {
        first_segment(self.waiting())
    }

    /// Whether some of it was noted while the archive had another location.
    pub fn is_elsewhere(&self, location: &Path) -> bool {
        self.locations.iter().any(|at| *at != place(location))
    }

    fn note(&mut self, note: Note, text: &str) {
        match note {
            Note::Lost => {
                let names = text
                    .split(' ')
                    .filter_map(|name| name.parse::<WalName>().ok());
                self.lost.extend(names);
            }
            _ => {
                self.why = Some(text.to_owned());
                self.is_refused = note == Note::Refused;
            }
        }
    }

    fn in_order(mut self) -> Owed {
        let sums = &self.sums;
        self.names = sums.keys().copied().collect();
        // Histories come before the segments of their timelines, as in `copy.rs`.
        self.names.sort_by_key(|name| {
            let is_history = matches!(name, WalName::History(_));
            (!is_history, name.segment(), *name)
        });
        self.lost.retain(|name| sums.contains_key(name));
        self
    }
}

fn first_segment<'a>(mut names: impl Iterator<Item = &'a WalName>) -> Option<SegmentName> {
    names.find_map(|name| match name {
        WalName::Segment(name) => Some(*name),
        _ => None,
    })
}

impl OwedList {
    pub fn parse(bytes: &[u8]) -> OwedList {
        let mut list = OwedList::default();
        for line in lines(bytes) {
            match line {
                Line::Owed {
                    name,
                    database,
                    sum,
                    location,
                } => {
                    let owed = list.debts.entry(database).or_default();
                    // A second content of one name was not written here.
                    let before = owed.sums.insert(name, sum);
                    list.unread += usize::from(before.is_some_and(|before| !before.is_same(&sum)));
                    owed.locations.insert(location);
                }
                Line::Note {
                    note,
                    database,
                    text,
                } => list.debts.entry(database).or_default().note(note, &text),
                Line::Unread(_) => list.unread += 1,
            }
        }
        let debts = std::mem::take(&mut list.debts).into_iter();
        let debts = debts.map(|(database, owed)| (database, owed.in_order()));
        list.debts = debts.filter(|(_, owed)| !owed.names.is_empty()).collect();
        list
    }

    /// The debt to the own archive of this database.
    pub fn of(&self, database: &str) -> Owed {
        self.debts.get(&key(database)).cloned().unwrap_or_default()
    }

    /// Each debt with the name of its database.
    pub fn debts(&self) -> impl Iterator<Item = (&str, &Owed)> {
        self.debts.iter().map(|(name, owed)| (&**name, owed))
    }
}

impl PgWal {
    /// The list. Without a file nothing is owed.
    ///
    /// Errors: `Io`.
    pub fn owed_list(&self) -> Result<OwedList, Error> {
        let path = self.path.join(PLACE);
        let place = match self.dir.dir(Path::new(PLACE)) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(OwedList::default()),
            place => place.map_err(Error::io("open", &path))?,
        };
        let read = SmallFile::new(place, NOTE, NOTE_MAX).read();
        let bytes = read.map_err(Error::io("read", path.join(NOTE)))?;
        Ok(OwedList::parse(&bytes.unwrap_or_default()))
    }

    /// Notes durably that the archive of this database lacks a file, which another one has.
    ///
    /// Errors: `OtherContent` if another file of this name is on the list; `Io`. The caller reports no success then.
    pub fn owe(
        &self,
        creditor: Creditor<'_>,
        out: &Outgoing,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        let own = Line::Owed {
            name: out.name,
            database: key(creditor.database),
            sum: ContentSum::of(out, self.tag_key().as_deref())?,
            location: place(creditor.location),
        };
        let mut other = false;
        self.change_debts(clock, |lines| {
            let is_there = lines.iter().any(|line| line.is_same_file(&own));
            other = lines.iter().any(|line| line.is_other_content(&own));
            if !is_there && !other {
                lines.push(own);
            }
        })?;
        match other {
            false => Ok(()),
            true => Err(Error::OtherContent {
                name: out.name,
                path: out.path.clone(),
            }),
        }
    }

    /// Makes what the database `of` is owed a debt to this creditor. Returns the names that the list knew by another
    /// database or location, and these locations.
    ///
    /// Errors: `Io`.
    pub fn move_debts(
        &self,
        of: &str,
        creditor: Creditor<'_>,
        clock: &dyn Clock,
    ) -> Result<(BTreeSet<WalName>, BTreeSet<String>), Error> {
        let (from, to, here) = (key(of), key(creditor.database), place(creditor.location));
        let (mut moved, mut locations) = (BTreeSet::new(), BTreeSet::new());
        self.change_debts(clock, |lines| {
            for line in lines.iter_mut() {
                if let Line::Owed {
                    name,
                    database,
                    location,
                    ..
                } = line
                    && *database == from
                    && (*location != here || from != to)
                {
                    moved.insert(*name);
                    locations.insert(std::mem::replace(location, here.clone()));
                    database.clone_from(&to);
                }
            }
            // They are about the archive that was there.
            lines.retain(|line| moved.is_empty() || !line.is_note_of(&from));
            without_twins(lines);
        })?;
        Ok((moved, locations))
    }

    /// Notes why nothing came to the archive of this database. A refusal stands until the archive was asked again.
    ///
    /// Errors: `Io`.
    pub fn note_unsettled(
        &self,
        database: &str,
        why: &str,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        let owed = self.owed_list()?.of(database);
        match owed.is_refused {
            true => Ok(()),
            false => {
                let why = Some((why, false));
                self.note_attempt(database, &BTreeSet::new(), &owed.lost, why, clock)
            }
        }
    }

    /// Takes from the list what was paid, and notes what is lost, and why the rest is owed, with whether it was refused.
    pub(super) fn note_attempt(
        &self,
        database: &str,
        paid: &BTreeSet<WalName>,
        lost: &BTreeSet<WalName>,
        why: Option<(&str, bool)>,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        let own = key(database);
        let note = |note, text: String| Line::Note {
            note,
            database: own.clone(),
            text,
        };
        self.change_debts(clock, |lines| {
            lines.retain(|line| match line {
                Line::Owed { name, database, .. } => *database != own || !paid.contains(name),
                line => !line.is_note_of(&own),
            });
            if let Some((why, is_refused)) = why {
                let kind = if is_refused { Note::Refused } else { Note::Why };
                let why = why.chars().filter(|c| !c.is_control()).take(WHY_MAX);
                lines.push(note(kind, why.collect()));
            }
            if !lost.is_empty() {
                let names: Vec<String> = lost.iter().map(ToString::to_string).collect();
                lines.push(note(Note::Lost, names.join(" ")));
            }
        })
    }

    /// Takes the files that are lost from the list. Returns them.
    ///
    /// Errors: `Io`.
    pub fn give_up(&self, database: &str, clock: &dyn Clock) -> Result<Vec<WalName>, Error> {
        let owed = self.owed_list()?.of(database);
        let why = owed.why.as_deref().filter(|_| owed.waiting().count() > 0);
        let why = why.map(|why| (why, owed.is_refused));
        self.note_attempt(database, &owed.lost, &BTreeSet::new(), why, clock)?;
        Ok(owed.lost.into_iter().collect())
    }

    /// Nothing is written if the change leaves the lines as they are.
    fn change_debts(
        &self,
        clock: &dyn Clock,
        change: impl FnOnce(&mut Vec<Line>),
    ) -> Result<(), Error> {
        let path = self.path.join(PLACE);
        self.make_place()?;
        let place = self.dir.dir(Path::new(PLACE));
        let place = place.map_err(Error::io("open", &path))?;
        let changed = SmallFile::new(place, NOTE, NOTE_MAX).change(clock, 0o600, |before| {
            let before = lines(before.unwrap_or_default());
            let mut after = before.clone();
            change(&mut after);
            let text = || {
                after
                    .iter()
                    .map(|line| format!("{line}\n"))
                    .collect::<String>()
            };
            Ok::<_, std::io::Error>(((after != before).then(|| text().into_bytes()), ()))
        });
        changed.map_err(Error::io("write", path.join(NOTE)))
    }
}

/// The kind of a line that is about an attempt to bring what is owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    Why,
    Refused,
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    Owed {
        name: WalName,
        database: String,
        sum: ContentSum,
        location: String,
    },
    Note {
        note: Note,
        database: String,
        text: String,
    },
    Unread(String),
}

impl Line {
    fn of(text: &str) -> Line {
        let fields: Vec<&str> = text.splitn(4, '\t').collect();
        let note = match fields[0] {
            WHY => Some(Note::Why),
            REFUSED => Some(Note::Refused),
            LOST => Some(Note::Lost),
            _ => None,
        };
        let line = match (&fields[..], note) {
            ([_, database, text], Some(note)) => Some(Line::Note {
                note,
                database: (*database).to_owned(),
                text: (*text).to_owned(),
            }),
            ([name, database, sum, location], None) => match (name.parse(), sum.parse()) {
                (Ok(name), Ok(sum)) => Some(Line::Owed {
                    name,
                    database: (*database).to_owned(),
                    sum,
                    location: (*location).to_owned(),
                }),
                _ => None,
            },
            _ => None,
        };
        line.unwrap_or_else(|| Line::Unread(text.to_owned()))
    }

    /// Whether both owe one file of the same content to one database.
    fn is_same_file(&self, other: &Line) -> bool {
        self.sums(other).is_some_and(|is_same| is_same)
    }

    fn is_other_content(&self, other: &Line) -> bool {
        self.sums(other).is_some_and(|is_same| !is_same)
    }

    /// Whether the contents agree of two lines of one name and database; `None`: they are not of one.
    fn sums(&self, other: &Line) -> Option<bool> {
        let (one, other) = (self.owed()?, other.owed()?);
        (one.0 == other.0 && one.1 == other.1).then(|| one.2.is_same(other.2))
    }

    fn owed(&self) -> Option<(WalName, &str, &ContentSum)> {
        match self {
            Line::Owed {
                name,
                database,
                sum,
                ..
            } => Some((*name, database, sum)),
            Line::Note { .. } | Line::Unread(_) => None,
        }
    }

    fn is_note_of(&self, own: &str) -> bool {
        matches!(self, Line::Note { database, .. } if database == own)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Owed {
                name,
                database,
                sum,
                location,
            } => write!(f, "{name}\t{database}\t{sum}\t{location}"),
            Line::Note {
                note,
                database,
                text,
            } => {
                let word = match note {
                    Note::Why => WHY,
                    Note::Refused => REFUSED,
                    Note::Lost => LOST,
                };
                write!(f, "{word}\t{database}\t{text}")
            }
            Line::Unread(text) => f.write_str(text),
        }
    }
}

fn lines(bytes: &[u8]) -> Vec<Line> {
    String::from_utf8_lossy(bytes)
        .lines()
        .map(Line::of)
        .collect()
}

/// Leaves one of the lines that are about the same file.
fn without_twins(lines: &mut Vec<Line>) {
    let mut seen = BTreeSet::new();
    lines.retain(|line| match line.owed() {
        Some((name, database, sum)) => seen.insert((name, database.to_owned(), sum.to_string())),
        None => true,
    });
}

/// A name of the configuration, which has no control characters, on one line.
fn key(database: &str) -> String {
    database.chars().filter(|c| !c.is_control()).collect()
}

fn place(location: &Path) -> String {
    location.to_string_lossy().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    #[test]
    fn each_database_has_its_own_list_and_what_is_no_line_is_counted() {
        let owed =
            |name: &str, database: &str, at: &str| format!("{name}\t{database}\t{SUM}\t{at}\n");
        let segment = |n: u32| format!("00000001000000000000000{n}");
        let text = owed(&segment(7), "main", "/near")
            + &owed("00000002.history", "main", "/near")
            + &owed(&segment(5), "else", "/near")
            + &owed(&segment(6), "main", "/moved")
            + "why\tmain\tit is away\n"
            + &format!("lost\tmain\t{} {}\n", segment(6), segment(9));
        let list = OwedList::parse(text.as_bytes());
        let main = list.of("main");
        let names: Vec<String> = main.names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["00000002.history", &segment(6), &segment(7)]);
        assert_eq!(main.since().unwrap().to_string(), segment(6));
        assert_eq!(main.waits_since().unwrap().to_string(), segment(7));
        assert_eq!(
            main.lost.len(),
            1,
            "of files that are not owed none is lost"
        );
        assert_eq!(main.why.as_deref(), Some("it is away"));
        assert_eq!(main.locations.len(), 2);
        assert_eq!((list.of("else").names.len(), list.unread), (1, 0));
        assert_eq!(list.of("none"), Owed::default());
        let databases: Vec<&str> = list.debts().map(|(name, _)| name).collect();
        assert_eq!(databases, ["else", "main"]);
        // A torn line, one of an earlier version, and two contents of one name.
        let torn = owed(&segment(8), "main", "/near")[..50].to_owned();
        let earlier = format!("{}\t/near", segment(7));
        let twice = owed(&segment(7), "main", "/near").replace("00", "ff");
        for more in ["", &torn, &earlier, &twice, "refused\tmain", "\t\t\t"] {
            let text = format!("{text}{more}");
            let list = OwedList::parse(text.as_bytes());
            assert_eq!(list.unread, usize::from(!more.is_empty()), "{more}");
            let again: Vec<String> = lines(text.as_bytes()).iter().map(Line::to_string).collect();
            assert_eq!(again.join("\n"), text.trim_end_matches('\n'));
        }
        assert_eq!(place(Path::new("/a\tb\nc")), "/a\\tb\\nc");
    }
}
