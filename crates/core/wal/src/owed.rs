//! What the first archive lacks because it was away while a push succeeded: the file is in a second archive, and the server
//! may have removed its own since.
//!
//! The debt is a list of names in `pg_wal/longshore/owed`, one line for each file, with the archive that lacks it. It is
//! written before the push succeeds, and durable.
//!
//! Invariants
//! - A name is on the list before the server is told of success, and leaves it only when the first archive has the file of
//!   the archive that took it: a file of the same name may be another branch's, and one that a failed push left there may not
//!   be durable. So each owed file is pushed, and an equal one that is there is compared and made durable.
//! - A file comes from an archive that has it, as `copy.rs` copies it: another branch's is refused.
//! - While anything is owed, nothing counts as reached after it (`follow.rs`).
//!
//! Leaves to others: when a push may succeed without the first archive (`longshore`, `commands/wal/away.rs`).

use std::collections::BTreeSet;
use std::path::Path;

use longshore_io::{Clock, SmallFile};
use longshore_pg::SegmentName;
use longshore_pg::wal::WalName;

use super::ahead::{AheadLock, PLACE};
use super::copy::{WalCopied, copy_on, has};
use super::{Error, PgWal, StorageForm, WalArchive};

const NOTE: &str = "owed";
/// Of some ten thousand files. A push that finds no room fails, and the server keeps its WAL.
const NOTE_MAX: usize = 4 << 20;
/// The first field of a line with a reason: no file has this name.
const WHY: &str = "why";
/// The same where the archive was there, and refused the file.
const REFUSED: &str = "refused";
/// The longest reason that is noted, in characters.
const WHY_MAX: usize = 300;

/// How much an archive is owed, and up to where.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Owed {
    /// In the order in which they are brought.
    pub names: Vec<WalName>,
    /// Why the last attempt to bring them failed.
    pub why: Option<String>,
    /// In that attempt the archive was there, and refused what it is owed: it has another branch's.
    pub is_refused: bool,
}

/// Why an archive did not get all that it is owed.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unsettled {
    pub error: Error,
    /// The archive itself refuses it.
    pub is_refused: bool,
}

impl From<Error> for Unsettled {
    fn from(error: Error) -> Unsettled {
        Unsettled {
            error,
            is_refused: false,
        }
    }
}

/// An archive that gives or gets what is owed, and how new files are stored there.
#[derive(Debug, Clone, Copy)]
pub struct ToSettle<'a> {
    pub archive: &'a WalArchive,
    pub form: &'a StorageForm,
}

impl Owed {
    /// The first segment that is owed.
    pub fn since(&self) -> Option<SegmentName> {
        self.names.iter().find_map(|name| match name {
            WalName::Segment(name) => Some(*name),
            _ => None,
        })
    }

    fn of(names: BTreeSet<WalName>, (why, is_refused): (Option<String>, bool)) -> Owed {
        let mut names: Vec<WalName> = names.into_iter().collect();
        // Histories come before the segments of their timelines, as in `copy.rs`.
        names.sort_by_key(|name| {
            let is_history = matches!(name, WalName::History(_));
            (!is_history, name.segment(), *name)
        });
        Owed {
            names,
            why,
            is_refused,
        }
    }
}

impl PgWal {
    /// The files that the archive at `location` lacks and of which the server was told that they are archived.
    ///
    /// Errors: `Io`.
    pub fn owed(&self, location: &Path) -> Result<Owed, Error> {
        let path = self.path.join(PLACE).join(NOTE);
        let bytes = self.debts()?.read().map_err(Error::io("read", path))?;
        Ok(read(&bytes.unwrap_or_default(), &key(location)))
    }

    /// Notes why nothing, or not all, came to the archive at `location` that it is owed.
    ///
    /// Errors: `Io`.
    pub fn note_unsettled(
        &self,
        location: &Path,
        unsettled: &Unsettled,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        let why = unsettled.to_string();
        let why = why.chars().filter(|c| !c.is_control()).take(WHY_MAX);
        let word = match unsettled.is_refused {
            true => REFUSED,
            false => WHY,
        };
        let line = reason_line(word, &key(location), &why.collect::<String>());
        self.change_debts(clock, |before| {
            Some(without_reason(before, &key(location)) + &line)
        })
    }

    /// Notes durably that the archive at `location` lacks this file, which another one has.
    ///
    /// Errors: `Io`. The caller reports no success then.
    pub fn owe(&self, location: &Path, name: WalName, clock: &dyn Clock) -> Result<(), Error> {
        let line = format!("{name}\t{}\n", key(location));
        self.change_debts(clock, |before| {
            let is_there = before.split_inclusive('\n').any(|there| there == line);
            (!is_there).then(|| format!("{before}{line}"))
        })
    }

    /// Brings what the archive `home` is owed from `others`, and to each of these what another one has of it. Returns the
    /// number of files that came anywhere.
    ///
    /// Errors: those of [`WalArchive::lacking`] and [`super::copy_wal`]; `Io`. Files that came before stay, and are owed no longer.
    pub fn settle(
        &self,
        _turn: &AheadLock,
        (location, home): (&Path, Option<ToSettle<'_>>),
        others: &[ToSettle<'_>],
        clock: &dyn Clock,
    ) -> Result<u64, Unsettled> {
        let owed = self.owed(location)?;
        if owed.names.is_empty() {
            return Ok(0);
        }
        let (mut files, mut failed, mut paid) = (0, None, BTreeSet::new());
        for (i, from) in others.iter().enumerate() {
            let rest = others.iter().enumerate().filter(|(k, _)| *k != i);
            let rest = rest.map(|(_, to)| (to, false));
            for (to, is_home) in home.iter().map(|home| (home, true)).chain(rest) {
                let mut copied = WalCopied::default();
                let brought = bring(from.archive, (to, is_home), &owed, clock, &mut copied);
                files += copied.files;
                if is_home {
                    paid.extend(copied.held);
                }
                if let Err(error) = brought {
                    let is_refused = is_home && error.is_refusal();
                    // A refusal stops the server, so it stands before all others.
                    let first = failed
                        .take()
                        .filter(|first: &Unsettled| first.is_refused || !is_refused);
                    failed = first.or(Some(Unsettled { error, is_refused }));
                }
            }
        }
        self.forget(location, &paid, clock)?;
        failed.map_or(Ok(files), Err)
    }

    /// Takes from the list what was paid.
    fn forget(
        &self,
        location: &Path,
        paid: &BTreeSet<WalName>,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        if paid.is_empty() {
            return Ok(());
        }
        let at = key(location);
        let paid: BTreeSet<String> = paid.iter().map(|name| format!("{name}\t{at}\n")).collect();
        self.change_debts(clock, |before| {
            let before = without_reason(before, &at);
            let rest = before.split_inclusive('\n');
            Some(rest.filter(|line| !paid.contains(*line)).collect())
        })
    }

    fn debts(&self) -> Result<SmallFile, Error> {
        self.make_place()?;
        let place = self.dir.dir(Path::new(PLACE));
        let place = place.map_err(Error::io("open", self.path.join(PLACE)))?;
        Ok(SmallFile::new(place, NOTE, NOTE_MAX))
    }

    fn change_debts(
        &self,
        clock: &dyn Clock,
        change: impl FnOnce(&str) -> Option<String>,
    ) -> Result<(), Error> {
        let path = self.path.join(PLACE).join(NOTE);
        let changed = self.debts()?.change(clock, 0o600, |before| {
            let before = String::from_utf8_lossy(before.unwrap_or_default());
            Ok::<_, std::io::Error>((change(&before).map(String::into_bytes), ()))
        });
        changed.map_err(Error::io("write", path))
    }
}

/// A location on one line.
fn key(location: &Path) -> String {
    location.to_string_lossy().escape_debug().to_string()
}

/// The line with the reason why an archive did not get what it is owed.
fn reason_line(word: &str, at: &str, why: &str) -> String {
    format!("{word}\t{at}\t{why}\n")
}

fn without_reason(text: &str, at: &str) -> String {
    let starts = [WHY, REFUSED].map(|word| reason_line(word, at, ""));
    let is_reason = |line: &str| {
        starts
            .iter()
            .any(|start| line.starts_with(start.trim_end_matches('\n')))
    };
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !is_reason(line)).collect()
}

/// The debt to one archive. A line that cannot be read is of another version, and stays.
fn read(bytes: &[u8], at: &str) -> Owed {
    let text = String::from_utf8_lossy(bytes);
    let (mut names, mut why) = (BTreeSet::new(), (None, false));
    for line in text.lines() {
        let mut fields = line.splitn(3, '\t');
        match (fields.next(), fields.next(), fields.next()) {
            (Some(word @ (WHY | REFUSED)), Some(of), Some(text)) if of == at => {
                why = (Some(text.to_owned()), word == REFUSED);
            }
            (Some(name), Some(of), None) if of == at => names.extend(name.parse::<WalName>().ok()),
            _ => {}
        }
    }
    Owed::of(names, why)
}

/// Copies what is owed, as far as `from` has it, and `to` lacks it or is the archive that it is owed to.
fn bring(
    from: &WalArchive,
    (ToSettle { archive: to, form }, is_home): (&ToSettle<'_>, bool),
    owed: &Owed,
    clock: &dyn Clock,
    copied: &mut WalCopied,
) -> Result<(), Error> {
    let Some(size) = from.identity().map(|identity| identity.segment_size) else {
        return Ok(());
    };
    let asked = match is_home {
        true => owed.names.clone(),
        false => to.without(&owed.names)?,
    };
    let not_here: BTreeSet<WalName> = from.without(&asked)?.into_iter().collect();
    let wanted: Vec<WalName> = asked
        .into_iter()
        .filter(|n| !not_here.contains(n))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut todo = from.lacking(Some(to), &|timeline, start, _| {
        let name = SegmentName::holding(timeline, start, size);
        wanted.contains(&WalName::Segment(name))
    })?;
    // Those that `to` has are compared before newer ones come. Partial segments and backup marks come last: nothing that is
    // recovered rests on them.
    let others = wanted.into_iter().filter(|name| !todo.names.contains(name));
    let (mut before, others): (Vec<_>, Vec<_>) =
        others.partition(|name| matches!(name, WalName::History(_) | WalName::Segment(_)));
    before.append(&mut todo.names);
    todo.names = before;
    todo.names.extend(others);
    copy_on((from, to), &todo, form, clock, &|| true, copied)?;
    match copied.unreadable.pop() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

impl WalArchive {
    /// Those of `names` that it does not have.
    fn without(&self, names: &[WalName]) -> Result<Vec<WalName>, Error> {
        // One listing for all segments; the others are few.
        let runs = match self.identity() {
            Some(_) => self.runs()?,
            None => Vec::new(),
        };
        let mut lacking = Vec::new();
        for name in names {
            let is_there = match name {
                WalName::Segment(name) => has(&runs, *name),
                _ => self.find(*name)?.is_some(),
            };
            if !is_there {
                lacking.push(*name);
            }
        }
        Ok(lacking)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_archive_has_its_own_list_and_what_is_no_line_is_left_out() {
        let text = "000000010000000000000007\t/near\n00000002.history\t/near\n000000010000000000000005\t/far\n\
                    rubbish\n\t/near\n000000010000000000000006\t/near\nwhy\t/near\tit is away\n";
        let owed = read(text.as_bytes(), "/near");
        let names: Vec<String> = owed.names.iter().map(ToString::to_string).collect();
        let expected = [
            "00000002.history",
            "000000010000000000000006",
            "000000010000000000000007",
        ];
        assert_eq!(names, expected);
        let since = owed.since().map(|name| name.to_string());
        assert_eq!(since.as_deref(), Some(expected[1]));
        assert_eq!(owed.why.as_deref(), Some("it is away"));
        assert_eq!(read(text.as_bytes(), "/else"), Owed::default());
        let less = without_reason(text, "/near");
        assert_eq!(less.lines().count() + 1, text.lines().count());
        assert_eq!(without_reason(text, "/far"), text);
        assert_eq!(key(Path::new("/a\tb\nc")), "/a\\tb\\nc");
    }
}
