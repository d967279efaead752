//! The list of what databases' own archives lack because they were away while a push succeeded: `pg_wal/longshore/owed`.
//!
//! ```text
//! NAME DATABASE SUM LOCATION      a file that is owed: whose archive, the digest of its content, where that archive was
//! why DATABASE TEXT               why the last attempt to bring it failed
//! refused DATABASE TEXT           the same, where the archive was there and refused a file
//! uncompared DATABASE TEXT        the same, where a file is encrypted and nothing here tells whether it is the one
//! damaged DATABASE TEXT           the same, where the archive has a file of the name that is damaged or cannot be read
//! lost DATABASE NAME…             files that nothing in reach has any longer
//! kept DATABASE MARK MOMENT LSN LOCATION    a copy's archive keeps WAL for the debt (`kept.rs`)
//! there DATABASE TEXT             the archive answered the last attempt, and has not failed since; the text `passes MOMENT`: what
//!                                 keeps the rest goes by itself, and has kept it in each attempt since then (microseconds)
//! ```
//!
//! Fields are separated by tabs.
//!
//! Invariants
//! - The list is one cluster's. A debt is to the own archive of a database of the configuration, whatever that archive is
//!   called now: the location is for people. Another database's debts are never touched.
//! - A debt names the content. So a file of its name proves nothing, and the very file is recognized wherever it is. It leaves
//!   the list when this content came to the location that the line has: a payment elsewhere is none.
//! - A line about an attempt, or about a record in a copy's archive, goes with the last debt of its database, so that it is never
//!   taken for one of a later debt.
//! - A line that is not understood stays, and is counted: while there is one, it is not known what is owed.
//! - A change is durable when it returns.
//!
//! Leaves to others: bringing the files (`owed.rs`), and when a push may owe (`longshore`, `commands/wal/away.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use longshore_io::{Clock, SmallFile};
use longshore_pg::wal::WalName;
use longshore_pg::{Lsn, SegmentName, SegmentSize};

use super::ahead::{AheadLock, PLACE};
use super::archive::Outgoing;
use super::content::{ContentSum, of_hex};
use super::kept::{DebtMark, Kept, location_text};
use super::{Error, PgWal, WalArchive};

const NOTE: &str = "owed";
/// Of some ten thousand files. A push that finds no room fails, and the server keeps its WAL.
const NOTE_MAX: usize = 4 << 20;
/// The first field of a line with a reason: no file has such a name.
const WHY: &str = "why";
const REFUSED: &str = "refused";
const UNCOMPARED: &str = "uncompared";
const DAMAGED: &str = "damaged";
const LOST: &str = "lost";
const KEPT: &str = "kept";
const THERE: &str = "there";
/// The first word of that line's text where what kept the rest goes by itself.
const PASSES: &str = "passes";
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
    /// Why the last attempt to bring them failed.
    pub why: Option<String>,
    /// In that attempt the archive was there, and refused what it is owed: it has another branch's.
    pub is_refused: bool,
    /// A file is encrypted, and nothing here tells whether it is the one that is owed.
    pub is_uncompared: bool,
    /// The archive has a file of a name that is owed, and that file is damaged, or nobody here can read it.
    pub is_in_the_way: bool,
    /// The archive answered when it was asked last, and has not failed since.
    pub is_there: bool,
    /// The cause that kept the rest then goes by itself, as a copy's store that did not answer: the first attempt of an unbroken
    /// row of such ones, in microseconds since the Unix epoch by the clock of the machine that made it. `None`: it does not.
    pub passes_since_us: Option<i64>,
    pub(super) sums: BTreeMap<WalName, ContentSum>,
    /// The archives of copies that keep it.
    pub(super) kept: Vec<Kept>,
    /// The location of each, as a text.
    places: BTreeMap<WalName, String>,
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

    /// Where the archive was when it began to be owed, as texts.
    pub fn locations(&self) -> BTreeSet<&str> {
        self.places.values().map(String::as_str).collect()
    }

    /// Whether some of it was noted while the archive had another location.
    pub fn is_elsewhere(&self, location: &Path) -> bool {
        let here = location_text(location);
        self.places.values().any(|at| *at != here)
    }

    /// From where on a copy's archive has to keep WAL for what can still be brought, and for `more`; `None`: an expire removes
    /// none of it. One segment more than is owed, by which the two archives are compared, or if that is not there, from the one
    /// that [`WalArchive::keeps_before`] tells.
    pub fn keeps_from(&self, more: Option<WalName>, size: SegmentSize) -> Option<Lsn> {
        let first = self.first_to_keep(more, size)?;
        Some(Lsn(first.start(size).0.saturating_sub(size.bytes())))
    }

    /// The first segment that a copy has to keep.
    pub(super) fn first_to_keep(
        &self,
        more: Option<WalName>,
        size: SegmentSize,
    ) -> Option<SegmentName> {
        let names = self.waiting().copied().chain(more);
        let segments = names.filter_map(|name| name.segment());
        segments.min_by_key(|name| (name.start(size), name.timeline))
    }

    /// Whether the archive at this location has a record of this mark from there on.
    pub fn is_kept(&self, location: &Path, mark: DebtMark, from: Lsn) -> bool {
        let here = location_text(location);
        let mut there = self.kept.iter().filter(|kept| kept.location == here);
        there.any(|kept| kept.mark == mark && kept.from <= from)
    }

    /// The part of it that is owed to the archive at this location.
    pub(super) fn at(mut self, location: &Path) -> Owed {
        let (here, places) = (location_text(location), &self.places);
        self.sums.retain(|name, _| places.get(name) == Some(&here));
        self.in_order()
    }

    /// The kind of the last attempt's failure.
    pub(super) fn failure(&self) -> Note {
        match () {
            () if self.is_refused => Note::Refused,
            () if self.is_uncompared => Note::Uncompared,
            () if self.is_in_the_way => Note::InTheWay,
            () => Note::Why,
        }
    }

    fn note(&mut self, note: Note, text: &str) {
        match note {
            Note::Lost => {
                let names = text
                    .split(' ')
                    .filter_map(|name| name.parse::<WalName>().ok());
                self.lost.extend(names);
            }
            Note::Kept => self.kept.extend(Kept::of(text)),
            Note::There => {
                self.is_there = true;
                self.passes_since_us = passes_since(text);
            }
            Note::Refused | Note::Uncompared | Note::InTheWay | Note::Why => {
                self.why = Some(text.to_owned());
                self.is_refused = note == Note::Refused;
                self.is_uncompared = note == Note::Uncompared;
                self.is_in_the_way = note == Note::InTheWay;
            }
        }
    }

    fn in_order(mut self) -> Owed {
        let sums = &self.sums;
        self.names = sums.keys().copied().collect();
        self.names.sort_by_key(order);
        self.lost.retain(|name| sums.contains_key(name));
        self
    }
}

/// The place of a file in the order in which what is owed is brought: histories come before the segments of their timelines, as
/// in `copy.rs`.
pub(super) fn order(name: &WalName) -> (bool, Option<SegmentName>, WalName) {
    let is_history = matches!(name, WalName::History(_));
    (!is_history, name.segment(), *name)
}

fn first_segment<'a>(mut names: impl Iterator<Item = &'a WalName>) -> Option<SegmentName> {
    names.find_map(|name| match name {
        WalName::Segment(name) => Some(*name),
        _ => None,
    })
}

impl OwedList {
    pub fn parse(bytes: &[u8]) -> OwedList {
        OwedList::of_lines(lines(bytes))
    }

    /// The list in a hexadecimal text. A text that is none is a line that nobody understands, so that it is not known what is
    /// owed.
    pub fn parse_hex(text: &[u8]) -> OwedList {
        match of_hex(text) {
            Some(bytes) => OwedList::parse(&bytes),
            None => OwedList::of_lines([Line::Unread(String::from_utf8_lossy(text).into_owned())]),
        }
    }

    fn of_lines(lines: impl IntoIterator<Item = Line>) -> OwedList {
        let mut list = OwedList::default();
        for line in lines {
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
                    owed.places.insert(name, location);
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

    /// Notes durably that the archive of this database lacks a file, which another one has, and where it is `kept`.
    ///
    /// Errors: `OtherContent` if another file of this name is on the list; `Io`. The caller reports no success then.
    pub fn owe(
        &self,
        creditor: Creditor<'_>,
        (out, kept): (&Outgoing, &[Kept]),
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        let database = key(creditor.database);
        let own = Line::Owed {
            name: out.name,
            database: database.clone(),
            sum: ContentSum::of(out, self.tag_key().as_deref())?,
            location: location_text(creditor.location),
        };
        let mut other = false;
        self.change_debts(clock, |lines| {
            let is_there = lines.iter().any(|line| line.is_same_file(&own));
            other = lines.iter().any(|line| line.is_other_content(&own));
            if other {
                return;
            }
            if !is_there {
                lines.push(own);
            }
            for kept in kept {
                lines.retain(|line| !line.is_kept_at(&database, &kept.location));
                lines.push(Line::Note {
                    note: Note::Kept,
                    database: database.clone(),
                    text: kept.text(),
                });
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
    /// Errors: `OwedTwice` if both are owed another content of one name, and nothing is moved; `Io`.
    pub fn move_debts(
        &self,
        of: &str,
        creditor: Creditor<'_>,
        clock: &dyn Clock,
    ) -> Result<(BTreeSet<WalName>, BTreeSet<String>), Error> {
        let (from, to, here) = (
            key(of),
            key(creditor.database),
            location_text(creditor.location),
        );
        let (mut moved, mut locations) = (BTreeSet::new(), BTreeSet::new());
        let mut twice = None;
        self.change_debts(clock, |lines| {
            if from != to {
                twice = name_of_two_contents(lines, &[&from, &to]);
            }
            if twice.is_some() {
                return;
            }
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
        match twice {
            None => Ok((moved, locations)),
            Some(name) => Err(Error::OwedTwice {
                name,
                path: self.path.join(PLACE).join(NOTE),
            }),
        }
    }

    /// Notes why nothing came to the creditor's archive. A refusal stands until the archive was asked again, and so do a file
    /// that could not be compared and one that is in the way.
    ///
    /// Errors: `Io`.
    pub fn note_unsettled(
        &self,
        creditor: Creditor<'_>,
        why: &str,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        let (own, here) = (key(creditor.database), location_text(creditor.location));
        self.change_debts(clock, |lines| {
            let is = |line: &Line, kinds: &[Note]| line.is_one_of(&own, kinds);
            lines.retain(|line| !is(line, &[Note::There]));
            let stands = lines
                .iter()
                .any(|line| is(line, &[Note::Refused, Note::Uncompared, Note::InTheWay]));
            if stands || !lines.iter().any(|line| line.is_owed_at(&own, &here)) {
                return;
            }
            lines.retain(|line| !is(line, &[Note::Why]));
            lines.push(Line::why(&own, Note::Why, why));
        })
    }

    /// Takes from the list what was paid of the debt `owed`, and notes what is lost, and why the rest is owed.
    ///
    /// A debt that was moved to another archive meanwhile stays as it is: the payment came to the old one.
    pub(super) fn note_attempt(
        &self,
        (creditor, owed): (Creditor<'_>, &Owed),
        paid: &BTreeSet<WalName>,
        lost: &BTreeSet<WalName>,
        (why, there): (Option<(&str, Note)>, There),
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        let (own, here) = (key(creditor.database), location_text(creditor.location));
        let now_us = clock.wall_ns() / 1000;
        let is_paid = |name: &WalName, sum: &ContentSum| {
            let came = owed.sums.get(name).filter(|_| paid.contains(name));
            came.is_some_and(|came| came.is_same(sum))
        };
        self.change_debts(clock, |lines| {
            let is_own = |line: &Line| line.is_owed_at(&own, &here);
            if !lines.iter().any(is_own) {
                return;
            }
            let passed = lines.iter().find_map(|line| line.passes_since(&own));
            lines.retain(|line| match line.owed() {
                Some((name, _, sum)) => !(is_own(line) && is_paid(&name, sum)),
                None => !line.is_note_of(&own),
            });
            let left: BTreeSet<WalName> = lines
                .iter()
                .filter(|line| is_own(line))
                .filter_map(|line| line.owed().map(|(name, ..)| name))
                .collect();
            if let (Some((why, note)), false) = (why, left.is_empty()) {
                lines.push(Line::why(&own, note, why));
            }
            if there != There::Away && !left.is_empty() {
                let text = match there {
                    There::Passes => format!("{PASSES} {}", passed.unwrap_or(now_us).min(now_us)),
                    There::Away | There::Answers => String::new(),
                };
                lines.push(Line::why(&own, Note::There, &text));
            }
            let names: Vec<String> = lost.intersection(&left).map(ToString::to_string).collect();
            if !names.is_empty() {
                lines.push(Line::Note {
                    note: Note::Lost,
                    database: own.clone(),
                    text: names.join(" "),
                });
            }
        })
    }

    /// Takes the files that are lost from the list, but for those whose content one of these archives of copies may have; these
    /// wait again. Returns what was taken.
    ///
    /// Errors: those of [`PgWal::owed_list`], and of the archives; `Io`.
    pub fn give_up(
        &self,
        _turn: &AheadLock,
        database: &str,
        copies: &[&WalArchive],
        clock: &dyn Clock,
    ) -> Result<Vec<WalName>, Error> {
        let owed = self.owed_list()?.of(database);
        let mut gone = BTreeSet::new();
        for name in &owed.lost {
            let may_have = |copy: &&WalArchive| copy.may_have(*name, &owed.sums[name]);
            let mut held = copies.iter().map(may_have);
            if !held.try_fold(false, |any, one| Ok::<_, Error>(any || one?))? {
                gone.insert(*name);
            }
        }
        let own = key(database);
        let mut given_up = BTreeSet::new();
        self.change_debts(clock, |lines| {
            let now = OwedList::of_lines(lines.iter().cloned()).of(database);
            let is_gone = |name: &WalName, sum: &ContentSum| {
                now.lost.contains(name) && gone.contains(name) && owed.sums[name].is_same(sum)
            };
            lines.retain(|line| match line.owed() {
                Some((name, of, sum)) if of == own && is_gone(&name, sum) => {
                    given_up.insert(name);
                    false
                }
                _ => !line.is_one_of(&own, &[Note::Lost]),
            });
        })?;
        Ok(given_up.into_iter().collect())
    }

    /// Forgets which archives keep what is owed, durably, unless something waits or is not understood; returns whether it did.
    ///
    /// Errors: `Io`.
    pub fn forget_kept(&self, database: &str, clock: &dyn Clock) -> Result<bool, Error> {
        let own = key(database);
        let mut is_idle = false;
        self.change_debts(clock, |lines| {
            let list = OwedList::of_lines(lines.iter().cloned());
            is_idle = list.unread == 0 && list.of(database).waiting().next().is_none();
            lines.retain(|line| !(is_idle && line.is_kept(&own)));
        })?;
        Ok(is_idle)
    }

    /// Nothing is written if the change leaves the lines as they are.
    fn change_debts(
        &self,
        clock: &dyn Clock,
        change: impl FnOnce(&mut Vec<Line>),
    ) -> Result<(), Error> {
        let path = self.path.join(PLACE);
        let place = self.durable_place(NOTE)?;
        let list = SmallFile::new(place, NOTE, NOTE_MAX).of_its_directory();
        let changed = list.change(clock, 0o600, |before| {
            let before = lines(before.unwrap_or_default());
            let mut after = before.clone();
            without_idle_notes(&mut after);
            change(&mut after);
            without_idle_notes(&mut after);
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

/// The kind of a line that is no debt; all but one are about the last attempt to bring what is owed. Of several failures the first
/// of these is noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Note {
    Refused,
    Uncompared,
    InTheWay,
    Why,
    Lost,
    /// About no attempt.
    Kept,
    /// The archive answered.
    There,
}

/// The own archive's answer in an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum There {
    Away,
    Answers,
    /// It answers, and what keeps the rest goes by itself.
    Passes,
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
            UNCOMPARED => Some(Note::Uncompared),
            DAMAGED => Some(Note::InTheWay),
            LOST => Some(Note::Lost),
            KEPT => Some(Note::Kept),
            THERE => Some(Note::There),
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

    /// The moment since which what keeps this database's files goes by itself.
    fn passes_since(&self, own: &str) -> Option<i64> {
        match self {
            Line::Note { text, .. } if self.is_one_of(own, &[Note::There]) => passes_since(text),
            _ => None,
        }
    }

    /// A reason, on one line.
    fn why(database: &str, note: Note, why: &str) -> Line {
        let text = why.chars().filter(|c| !c.is_control());
        Line::Note {
            note,
            database: database.to_owned(),
            text: text.take(WHY_MAX).collect(),
        }
    }

    /// Whether it owes a file to this database, at this location.
    fn is_owed_at(&self, own: &str, here: &str) -> bool {
        matches!(self, Line::Owed { database, location, .. } if database == own && location == here)
    }

    /// Whether it is a note about this database, of one of these kinds.
    fn is_one_of(&self, own: &str, kinds: &[Note]) -> bool {
        matches!(self, Line::Note { note, database, .. } if database == own && kinds.contains(note))
    }

    /// Whether it is about an attempt to bring what is owed to this database.
    fn is_note_of(&self, own: &str) -> bool {
        matches!(self, Line::Note { note, database, .. } if database == own && *note != Note::Kept)
    }

    fn is_kept(&self, own: &str) -> bool {
        self.is_one_of(own, &[Note::Kept])
    }

    fn is_kept_at(&self, own: &str, location: &str) -> bool {
        let is_there = |text: &str| Kept::of(text).is_none_or(|kept| kept.location == location);
        matches!(self, Line::Note { text, .. } if self.is_kept(own) && is_there(text))
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
                    Note::Uncompared => UNCOMPARED,
                    Note::InTheWay => DAMAGED,
                    Note::Lost => LOST,
                    Note::Kept => KEPT,
                    Note::There => THERE,
                };
                write!(f, "{word}\t{database}\t{text}")
            }
            Line::Unread(text) => f.write_str(text),
        }
    }
}

fn passes_since(text: &str) -> Option<i64> {
    let moment = text.strip_prefix(PASSES)?.strip_prefix(' ')?;
    moment.parse().ok()
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

/// Leaves out the notes about databases that are owed nothing: a refusal would stand for the next debt.
fn without_idle_notes(lines: &mut Vec<Line>) {
    let of_owed = |line: &Line| line.owed().map(|(_, database, _)| database.to_owned());
    let owed: BTreeSet<String> = lines.iter().filter_map(of_owed).collect();
    lines.retain(|line| match line {
        Line::Note { database, .. } => owed.contains(database),
        Line::Owed { .. } | Line::Unread(_) => true,
    });
}

/// A name of which these databases, taken together, are owed two contents.
fn name_of_two_contents(lines: &[Line], databases: &[&str]) -> Option<WalName> {
    let mut seen: BTreeMap<WalName, &ContentSum> = BTreeMap::new();
    let of_them = lines.iter().filter_map(Line::owed);
    let mut of_them = of_them.filter(|(_, database, _)| databases.contains(database));
    let twice = of_them.find(|(name, _, sum)| !seen.entry(*name).or_insert(sum).is_same(sum));
    twice.map(|(name, ..)| name)
}

/// A name of the configuration, which has no control characters, on one line.
fn key(database: &str) -> String {
    database.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::hex;

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
        assert_eq!(main.locations().len(), 2);
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
        assert_eq!(location_text(Path::new("/a\tb\nc")), "/a\\tb\\nc");
    }

    #[test]
    fn an_answer_that_is_no_list_leaves_it_unknown_and_not_empty() {
        let line = "00000001000000000000000";
        let text = format!("{line}7\tmain\t{SUM}\t/near\n{line}8\n");
        let list = OwedList::parse_hex(hex(text.as_bytes()).as_bytes());
        assert_eq!(list, OwedList::parse(text.as_bytes()));
        assert_eq!((list.of("main").names.len(), list.unread), (1, 1));
        assert_eq!(OwedList::parse_hex(b"").unread, 0);
        for other in ["0", "zz", "00g0", "\\x61", "é"] {
            assert_eq!(OwedList::parse_hex(other.as_bytes()).unread, 1, "{other}");
        }
    }
}
