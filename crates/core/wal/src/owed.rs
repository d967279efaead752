//! Brings a database's own archive what it is owed: the file is in a second archive, and the server may have removed its own
//! since.
//!
//! Invariants
//! - A file leaves the list only when the own archive has the content that the server archived, durably: a file of the same
//!   name may be another branch's, and one that a failed push left there may not be durable. So each owed file is pushed, and
//!   an equal one that is there is compared and made durable.
//! - A file comes from an archive that has it, as `copy.rs` copies it, or from pg_wal, where that still has the content.
//!   Another branch's is refused. Where nothing else has it, the own archive's file is compared with the digest.
//! - A file is lost only after every copy's archive was looked at, in full, and none has it.
//! - While anything can still be brought, nothing counts as reached after it (`follow.rs`).
//!
//! Leaves to others: the list (`debts.rs`), and when a push may succeed without the own archive (`longshore`,
//! `commands/wal/away.rs`).

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use longshore_io::Clock;
use longshore_pg::SegmentName;
use longshore_pg::wal::WalName;

use super::ahead::AheadLock;
use super::content::ContentSum;
use super::copy::{WalCopied, copy_on, has};
use super::debts::Owed;
use super::place::directory_of;
use super::{Error, PgWal, PushResult, StorageForm, WalArchive};

/// An archive that gives or gets what is owed, and how new files are stored there.
#[derive(Debug, Clone, Copy)]
pub struct ToSettle<'a> {
    pub archive: &'a WalArchive,
    pub form: &'a StorageForm,
}

/// The archives of a database's copies.
#[derive(Debug, Clone, Copy)]
pub struct Givers<'a> {
    pub copies: &'a [ToSettle<'a>],
    /// Whether these are all of them: otherwise one that is away may have what no other has.
    pub are_all: bool,
}

/// The result of an attempt to bring what is owed.
#[derive(Debug, Default)]
pub struct Settled {
    /// The number of files that came anywhere.
    pub files: u64,
    /// Why something is still owed.
    pub unsettled: Option<Error>,
    /// The own archive itself refuses it.
    pub is_refused: bool,
}

/// An attempt that goes on.
struct Attempt<'a> {
    owed: &'a Owed,
    done: Settled,
    paid: BTreeSet<WalName>,
    /// Files that an archive has, and that cannot be taken for the server's.
    unsure: BTreeSet<WalName>,
    /// An archive was not looked at in full.
    is_cut_off: bool,
    /// Each further look at the own archive would wait for it.
    is_home_away: bool,
}

impl PgWal {
    /// Brings the own archive `home` of a database what it is owed from its copies, and to each of these what another one has
    /// of it. Notes what is still owed, and why, where `home` is there.
    ///
    /// Errors: those of [`PgWal::owed_list`]; `Io` if the list cannot be written.
    pub fn settle(
        &self,
        _turn: &AheadLock,
        (database, home): (&str, Option<ToSettle<'_>>),
        givers: Givers<'_>,
        clock: &dyn Clock,
    ) -> Result<Settled, Error> {
        let owed = self.owed_list()?.of(database);
        let mut attempt = Attempt {
            owed: &owed,
            done: Settled::default(),
            paid: BTreeSet::new(),
            unsure: BTreeSet::new(),
            is_cut_off: !givers.are_all,
            is_home_away: false,
        };
        if owed.names.is_empty() {
            return Ok(attempt.done);
        }
        for (i, from) in givers.copies.iter().enumerate() {
            let rest = givers.copies.iter().enumerate().filter(|(k, _)| *k != i);
            let rest = rest.map(|(_, to)| (to, false));
            for (to, is_home) in home.iter().map(|home| (home, true)).chain(rest) {
                attempt.bring(from.archive, (to, is_home), clock);
            }
        }
        let Some(home) = home else {
            return Ok(attempt.done);
        };
        for name in &owed.names {
            if !attempt.is_open(name) {
                continue;
            }
            attempt.push_own(self, *name, home, clock);
            if attempt.is_open(name) {
                attempt.recognize(*name, home.archive);
            }
        }
        let lost = attempt.lost();
        // An archive that went away was not asked again.
        let stands = owed
            .why
            .as_deref()
            .filter(|_| owed.is_refused && attempt.is_home_away);
        let (paid, mut done) = (attempt.paid, attempt.done);
        if let (None, Some(first)) = (&done.unsettled, lost.first()) {
            done.unsettled = Some(Error::Lost {
                name: *first,
                count: lost.len(),
            });
        }
        let why = done.unsettled.as_ref().map(ToString::to_string);
        let why = match stands {
            Some(why) => Some((why, true)),
            None => why.as_deref().map(|why| (why, done.is_refused)),
        };
        self.note_attempt(database, &paid, &lost, why, clock)?;
        Ok(done)
    }
}

impl Attempt<'_> {
    /// Whether a file was not paid yet, and can be now.
    fn is_open(&self, name: &WalName) -> bool {
        !self.is_home_away && !self.paid.contains(name) && !self.unsure.contains(name)
    }

    /// A refusal stops the server, so it stands before all other errors.
    fn fail(&mut self, error: Error, is_refused: bool) {
        let done = &mut self.done;
        if done.unsettled.is_none() || (is_refused && !done.is_refused) {
            (done.unsettled, done.is_refused) = (Some(error), is_refused);
        }
    }

    fn fail_at_home(&mut self, error: Error) {
        self.is_home_away |= error.is_away();
        self.is_cut_off |= self.is_home_away;
        let is_refused = error.is_refusal();
        self.fail(error, is_refused);
    }

    /// Copies what is owed from a copy's archive.
    fn bring(
        &mut self,
        from: &WalArchive,
        (to, is_home): (&ToSettle<'_>, bool),
        clock: &dyn Clock,
    ) {
        let mut copied = WalCopied::default();
        let brought = bring(from, (to, is_home), self.owed, clock, &mut copied);
        self.done.files += copied.files;
        if is_home {
            self.paid.extend(copied.held);
        }
        // A file that a copy has and cannot give is as if it had it not.
        copied
            .unreadable
            .into_iter()
            .for_each(|error| self.fail(error, false));
        if let Err(error) = brought {
            self.is_cut_off = true;
            match is_home {
                true => self.fail_at_home(error),
                false => self.fail(error, false),
            }
        }
    }

    /// Pushes the server's own file, if pg_wal still has the very content.
    fn push_own(&mut self, pg_wal: &PgWal, name: WalName, home: ToSettle<'_>, clock: &dyn Clock) {
        let pushed = || {
            let out = match pg_wal.outgoing(name, Path::new(&name.to_string())) {
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    return Ok(None);
                }
                out => out?,
            };
            let sum = ContentSum::of(&out, None)?;
            match self.owed.sums.get(&name) {
                Some(owed) if owed.is_same(&sum) => {
                    home.archive.push(&out, home.form, clock).map(Some)
                }
                _ => Ok(None),
            }
        };
        match pushed() {
            Ok(None) => {}
            Ok(Some(pushed)) => {
                self.done.files += u64::from(matches!(pushed, PushResult::Stored { .. }));
                self.paid.insert(name);
            }
            Err(error) => {
                self.unsure.insert(name);
                self.fail_at_home(error);
            }
        }
    }

    /// Compares the own archive's file with the digest of what it is owed.
    fn recognize(&mut self, name: WalName, home: &WalArchive) {
        let sum = self.owed.sums.get(&name);
        let looked = || {
            let Some(object) = home.find(name)? else {
                return Ok(false);
            };
            object.check_signature()?;
            match sum.map_or(Ok(None), |sum| home.is_of_sum(&object, sum))? {
                Some(true) => home.place.settle(&directory_of(name), false).map(|()| true),
                Some(false) => Err(Error::OtherContent {
                    name,
                    path: object.path,
                }),
                None => Err(Error::Uncompared { path: object.path }),
            }
        };
        match looked() {
            Ok(false) => {}
            Ok(true) => {
                self.paid.insert(name);
            }
            // A file that nobody here is given back is as if it were not there.
            Err(error @ (Error::Damaged { .. } | Error::Newer { .. } | Error::Unsigned { .. })) => {
                self.fail(error, false)
            }
            Err(error) => {
                self.unsure.insert(name);
                self.fail_at_home(error);
            }
        }
    }

    /// The files that nothing in reach has.
    fn lost(&self) -> BTreeSet<WalName> {
        let is_left = |name: &&WalName| !self.paid.contains(name);
        let left = self.owed.names.iter().filter(is_left);
        let is_lost = |name: &&WalName| match self.is_cut_off {
            // As the last whole look found.
            true => self.owed.lost.contains(name),
            false => !self.unsure.contains(name),
        };
        left.filter(is_lost).copied().collect()
    }
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
    todo.sums.clone_from(&owed.sums);
    copy_on((from, to), &todo, form, clock, &|| true, copied)
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
