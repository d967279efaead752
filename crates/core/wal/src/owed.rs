//! Brings a database's own archive what it is owed: the file is in a second archive, and the server may have removed its own
//! since.
//!
//! Invariants
//! - A file leaves the list only when the own archive has the content that the server archived, durably: a file of the same
//!   name may be another branch's, and one that a failed push left there may not be durable. So each owed file is pushed, and
//!   an equal one that is there is compared and made durable.
//! - A file comes from an archive that has it, as `copy.rs` copies it, or from pg_wal, where that still has the content.
//!   Another branch's is refused. Where nothing else has it, the own archive's file is compared with the digest. Where nobody
//!   here can compare, nothing comes.
//! - A segment in which this server left its timeline is paid where the own archive has the other server's, as by a push.
//! - A file pays only if it is whole: each of its blocks, and the slots by which an encrypted one is opened.
//! - A file of the own archive that is damaged, or that nobody here can read, is neither replaced nor taken for the one of its
//!   name that is owed. The other files come all the same.
//! - A file is lost only after every copy's archive was looked at, in full, and none has it. There is at least one copy.
//! - The own archive is away only if an operation on it failed, and has refused only what it was asked for itself.
//! - Nothing of this server comes behind another branch's file: those that the own archive has under names that are owed are judged
//!   first, and no other comes if one is refused; nor is a later file pushed, or taken for the server's, after a refusal.
//! - While anything can still be brought, nothing counts as reached after it (`follow.rs`).
//!
//! Leaves to others: the list (`debts.rs`), and when a push may succeed without the own archive (`longshore`,
//! `commands/wal/away.rs`).

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use longshore_io::{Clock, File, Via};
use longshore_pg::SegmentName;
use longshore_pg::wal::WalName;

use super::ahead::AheadLock;
use super::content::ContentSum;
use super::copy::{CopyError, WalCopied, copy_on, has};
use super::debts::{Creditor, Note, Owed, There, order};
use super::memory::MemoryFile;
use super::place::directory_of;
use super::{Error, Outgoing, PgWal, PushResult, StorageForm, WalArchive};

/// The longest segment that a server can have.
const FILE_MAX: u64 = 1 << 30;
/// Bytes of each read.
const PIECE_BYTES: usize = 1 << 20;

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
    files: u64,
    failed: Vec<Failed>,
    paid: BTreeSet<WalName>,
    /// Files that an archive has, and that cannot be taken for the server's.
    unsure: BTreeSet<WalName>,
    /// An archive was not looked at in full.
    is_cut_off: bool,
    /// Each further look at the own archive would wait for it.
    is_home_away: bool,
}

/// A failure, which is over once all these files came from elsewhere.
struct Failed {
    error: Error,
    note: Note,
    names: BTreeSet<WalName>,
}

impl PgWal {
    /// Brings the own archive `home` of the creditor what it is owed there from the copies, and to each of these what another
    /// one has of it. Notes what is still owed, and why, where `home` is there.
    ///
    /// Errors: those of [`PgWal::owed_list`]; `Io` if the list cannot be written.
    pub fn settle(
        &self,
        _turn: &AheadLock,
        (creditor, home): (Creditor<'_>, Option<ToSettle<'_>>),
        givers: Givers<'_>,
        clock: &dyn Clock,
    ) -> Result<Settled, Error> {
        let owed = self
            .owed_list()?
            .of(creditor.database)
            .at(creditor.location);
        if owed.names.is_empty() {
            return Ok(Settled::default());
        }
        let mut attempt = Attempt {
            owed: &owed,
            files: 0,
            failed: Vec::new(),
            paid: BTreeSet::new(),
            unsure: BTreeSet::new(),
            // Without any copy nothing was looked at.
            is_cut_off: !givers.are_all || givers.copies.is_empty(),
            is_home_away: false,
        };
        if let Some(home) = home {
            attempt.pay(self, home, givers.copies, clock);
        }
        for (i, from) in givers.copies.iter().enumerate() {
            let rest = givers.copies.iter().enumerate().filter(|(k, _)| *k != i);
            for (_, to) in rest {
                attempt.bring(from.archive, (to, false), &owed.names, clock);
            }
        }
        if home.is_none() {
            return Ok(attempt.settled());
        }
        let lost = attempt.lost();
        if let Some(first) = lost.first() {
            let (name, count) = (*first, lost.len());
            attempt.fail(Error::Lost { name, count }, Note::Lost, lost.clone());
        }
        // An archive that went away was not asked again.
        let before = owed.why.as_deref();
        let stands = before.filter(|_| owed.failure() != Note::Why && attempt.is_home_away);
        let first = attempt.first_failure();
        let told = first.map(|failed| (failed.error.to_string(), failed.note.min(Note::Why)));
        let why = match stands {
            Some(why) => Some((why, owed.failure())),
            None => told.as_ref().map(|(why, note)| (&**why, *note)),
        };
        let attempted = (why, attempt.there());
        self.note_attempt((creditor, &owed), &attempt.paid, &lost, attempted, clock)?;
        Ok(attempt.settled())
    }
}

impl Attempt<'_> {
    /// Whether a file was not paid yet, and can be now.
    fn is_open(&self, name: &WalName) -> bool {
        !self.is_home_away && !self.paid.contains(name)
    }

    fn fail(&mut self, error: Error, note: Note, names: BTreeSet<WalName>) {
        // None of them is known not to be there, and nothing says that they are the server's.
        let is_there = match &error {
            Error::Unopened { .. } => !error.is_tampering(),
            Error::Io { .. } | Error::Store(_) | Error::TwoContents { .. } => true,
            Error::NotOwed { .. } | Error::Damaged { .. } => false,
            error => error.is_fault_of_file(),
        };
        if is_there {
            self.unsure.extend(&names);
        }
        let note = match error {
            Error::Uncompared { .. } => Note::Uncompared,
            // An identity would tell, unless one has told already that somebody changed the file.
            Error::Unopened { .. } if !error.is_tampering() => Note::Uncompared,
            _ => note,
        };
        self.failed.push(Failed { error, note, names });
    }

    fn fail_at_home(&mut self, error: Error, names: BTreeSet<WalName>) {
        self.is_home_away |= error.is_away();
        self.is_cut_off |= self.is_home_away;
        let note = match () {
            () if error.is_refusal() => Note::Refused,
            () if error.is_fault_of_file() => Note::InTheWay,
            () => Note::Why,
        };
        self.fail(error, note, names);
    }

    /// The failures for which something is still owed.
    fn left(&self) -> impl Iterator<Item = &Failed> {
        let failed = self.failed.iter();
        failed.filter(|failed| !failed.names.is_subset(&self.paid))
    }

    /// The failure that is told. A refusal stops the server, so it stands before all others.
    fn first_failure(&self) -> Option<&Failed> {
        self.left().min_by_key(|failed| failed.note)
    }

    fn there(&self) -> There {
        let mut left = self.left().peekable();
        match () {
            () if self.is_home_away => There::Away,
            () if left.peek().is_some() && left.all(|f| f.error.passes_by_itself()) => {
                There::Passes
            }
            () => There::Answers,
        }
    }

    fn settled(mut self) -> Settled {
        let paid = &self.paid;
        self.failed.retain(|failed| !failed.names.is_subset(paid));
        let first = self.failed.into_iter().min_by_key(|failed| failed.note);
        Settled {
            files: self.files,
            is_refused: first.as_ref().is_some_and(|f| f.note == Note::Refused),
            unsettled: first.map(|failed| failed.error),
        }
    }

    /// Brings the own archive what it is owed: first each file that it has already is shown to be the one, and if none is
    /// another branch's, the others come.
    fn pay(
        &mut self,
        pg_wal: &PgWal,
        home: ToSettle<'_>,
        copies: &[ToSettle<'_>],
        clock: &dyn Clock,
    ) {
        let names = &self.owed.names;
        let lacking = match home.archive.without(names) {
            Ok(lacking) => lacking,
            Err(error) => {
                self.is_cut_off = true;
                return self.fail_at_home(error, names.iter().copied().collect());
            }
        };
        let lacking: BTreeSet<WalName> = lacking.into_iter().collect();
        let (others, there): (Vec<WalName>, Vec<WalName>) =
            names.iter().partition(|name| lacking.contains(name));
        self.pay_some(pg_wal, (home, &there), copies, clock);
        let mut refused = self.failed.iter().filter(|f| f.note == Note::Refused);
        if refused.all(|failed| failed.names.is_subset(&self.paid)) {
            self.pay_some(pg_wal, (home, &others), copies, clock);
        } else {
            // Nobody has looked for them.
            self.unsure.extend(&others);
        }
    }

    /// Brings these files to the own archive: from copies, or from pg_wal, or they prove to be there.
    fn pay_some(
        &mut self,
        pg_wal: &PgWal,
        (home, names): (ToSettle<'_>, &[WalName]),
        copies: &[ToSettle<'_>],
        clock: &dyn Clock,
    ) {
        if names.is_empty() {
            return;
        }
        for from in copies {
            if !self.is_home_away {
                self.bring(from.archive, (&home, true), names, clock);
            }
        }
        for name in names {
            if self.is_behind_refusal(name) {
                self.unsure.insert(*name);
                continue;
            }
            if self.is_open(name) && self.push_own(pg_wal, *name, home, clock) && self.is_open(name)
            {
                self.recognize(*name, home.archive);
            }
        }
    }

    /// Whether the own archive refused a file before this one, which has not come from elsewhere since.
    fn is_behind_refusal(&self, name: &WalName) -> bool {
        let refused = self.failed.iter().filter(|f| f.note == Note::Refused);
        let is_before = |other: &WalName| order(other) < order(name) && !self.paid.contains(other);
        refused.flat_map(|f| &f.names).any(is_before)
    }

    /// Copies these files, which are owed, from a copy's archive.
    fn bring(
        &mut self,
        from: &WalArchive,
        (to, is_home): (&ToSettle<'_>, bool),
        names: &[WalName],
        clock: &dyn Clock,
    ) {
        let mut copied = WalCopied::default();
        let wanted = wanted(from, (to.archive, is_home), names);
        let (wanted, brought) = match wanted {
            Ok(wanted) => {
                let brought = bring(from, to, (&wanted, self.owed), clock, &mut copied);
                (wanted, brought)
            }
            Err(error) => (names.to_vec(), Err(error)),
        };
        let mut left: BTreeSet<WalName> = wanted.into_iter().collect();
        let in_the_way = copied.in_the_way;
        let is_tried = |name: &WalName| {
            copied.held.contains(name) || in_the_way.iter().any(|(n, _)| n == name)
        };
        left.retain(|name| !is_tried(name));
        self.files += copied.files;
        if is_home {
            self.paid.extend(copied.held);
        }
        // A file that a copy has and cannot give is as if it had it not.
        let left_out = copied.left_out.into_iter().zip(copied.unreadable);
        left_out.for_each(|(name, error)| self.fail(error, Note::Why, BTreeSet::from([name])));
        for (name, error) in in_the_way {
            self.unsure.insert(name);
            match is_home {
                true => self.fail_at_home(error, BTreeSet::from([name])),
                false => self.fail(error, Note::Why, BTreeSet::from([name])),
            }
        }
        match brought {
            Ok(()) => {}
            Err(CopyError::There(error)) if is_home => {
                self.is_cut_off = true;
                self.fail_at_home(error, left);
            }
            Err(error) => {
                self.is_cut_off = true;
                self.fail(error.into(), Note::Why, left);
            }
        }
    }

    /// Pushes the server's own file, if pg_wal still has the very content. Returns whether the own archive has said nothing of
    /// the file.
    fn push_own(
        &mut self,
        pg_wal: &PgWal,
        name: WalName,
        home: ToSettle<'_>,
        clock: &dyn Clock,
    ) -> bool {
        let sum = self.owed.sums.get(&name);
        let own = sum.map_or(Ok(None), |sum| own_file(pg_wal, name, sum));
        let pushed = match own {
            Ok(None) => return true,
            Ok(Some(out)) => {
                let pushed = home.archive.push(&out, home.form, clock);
                pushed.and_then(|pushed| match pushed {
                    // Only what is read is known to be whole.
                    PushResult::Already => home.archive.check_whole(name).map(|()| pushed),
                    _ => Ok(pushed),
                })
            }
            Err(error) => {
                self.unsure.insert(name);
                self.fail(error, Note::Why, BTreeSet::from([name]));
                return true;
            }
        };
        match pushed {
            Ok(pushed) => {
                self.files += u64::from(matches!(pushed, PushResult::Stored { .. }));
                self.paid.insert(name);
            }
            Err(error) => {
                self.unsure.insert(name);
                self.fail_at_home(error, BTreeSet::from([name]));
            }
        }
        false
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
                Some(true) => {
                    home.check_whole(name)?;
                    home.place.settle(&directory_of(name), false).map(|()| true)
                }
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
            // A file that nobody is given back is as if it were not there.
            Err(error @ Error::Damaged { .. }) => {
                self.fail(error, Note::Why, BTreeSet::from([name]));
            }
            Err(error) => {
                self.unsure.insert(name);
                self.fail_at_home(error, BTreeSet::from([name]));
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

/// The server's own file, if it has this content. It is read once: the server may write into the file at any time.
fn own_file(pg_wal: &PgWal, name: WalName, sum: &ContentSum) -> Result<Option<Outgoing>, Error> {
    match pg_wal.outgoing(name, Path::new(&name.to_string())) {
        Ok(out) => of_content(out, sum),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn of_content(out: Outgoing, sum: &ContentSum) -> Result<Option<Outgoing>, Error> {
    let stat = out.file.stat();
    let len = stat.map_err(Error::io("look at", &out.path))?.len;
    // No file of a server is longer than its longest segment.
    if len > FILE_MAX {
        return Ok(None);
    }
    let file: Arc<dyn File> = Arc::new(MemoryFile::of(&[]));
    let sized = file.set_len(len);
    sized.map_err(Error::io("read", &out.path))?;
    let mut piece = vec![0; (len as usize).min(PIECE_BYTES)];
    let mut at = 0;
    while at < len {
        let piece = &mut piece[..((len - at) as usize).min(PIECE_BYTES)];
        let read = out.file.read_exact_at(piece, at, Via::Cache);
        read.and_then(|()| file.write_all_at(piece, at, Via::Cache))
            .map_err(Error::io_at("read", &out.path, at))?;
        at += piece.len() as u64;
    }
    let out = Outgoing { file, ..out };
    let is_same = ContentSum::of(&out, None)?.is_same(sum);
    Ok(is_same.then_some(out))
}

/// The files of `names` that `from` has, and that `to` lacks or is owed.
fn wanted(
    from: &WalArchive,
    (to, is_home): (&WalArchive, bool),
    names: &[WalName],
) -> Result<Vec<WalName>, CopyError> {
    if from.identity().is_none() {
        return Ok(Vec::new());
    }
    let mut asked = match is_home {
        true => names.to_vec(),
        false => to.without(names).map_err(CopyError::There)?,
    };
    let not_here = from.without(&asked).map_err(CopyError::Here)?;
    asked.retain(|name| !not_here.contains(name));
    Ok(asked)
}

/// Copies these files, which are owed, from one archive to another.
fn bring(
    from: &WalArchive,
    ToSettle { archive: to, form }: &ToSettle<'_>,
    (wanted, owed): (&[WalName], &Owed),
    clock: &dyn Clock,
    copied: &mut WalCopied,
) -> Result<(), CopyError> {
    let Some(size) = from.identity().map(|identity| identity.segment_size) else {
        return Ok(());
    };
    if wanted.is_empty() {
        return Ok(());
    }
    let is_wanted = |timeline, start, _| {
        let name = SegmentName::holding(timeline, start, size);
        wanted.contains(&WalName::Segment(name))
    };
    let mut todo = from.todo(Some(to), &is_wanted, &owed.sums)?;
    // Those that `to` has are compared before newer ones come. Partial segments and backup marks come last: nothing that is
    // recovered rests on them.
    let others = wanted.iter().filter(|name| !todo.names.contains(name));
    let (mut before, others): (Vec<_>, Vec<_>) = others
        .copied()
        .partition(|name| matches!(name, WalName::History(_) | WalName::Segment(_)));
    before.append(&mut todo.names);
    todo.names = before;
    todo.names.extend(others);
    copy_on((from, to), &todo, form, clock, &|| true, copied)
}

impl WalArchive {
    /// Whether it has the file with this content, or one of which nobody here can tell.
    ///
    /// Errors: those of reading. A file that is damaged, or that somebody changed, is given to nobody.
    pub(super) fn may_have(&self, name: WalName, sum: &ContentSum) -> Result<bool, Error> {
        if self.identity().is_none() {
            return Ok(false);
        }
        let looked = || match self.find(name)? {
            Some(object) => self.is_of_sum(&object, sum),
            None => Ok(Some(false)),
        };
        match looked() {
            Ok(is_same) => Ok(is_same != Some(false)),
            Err(Error::Damaged { .. }) => Ok(false),
            Err(error) if error.is_tampering() => Ok(false),
            Err(error) => Err(error),
        }
    }

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
                // A file that cannot be read is there.
                _ => match self.find(*name) {
                    Err(error) if error.is_fault_of_file() || error.is_refusal() => true,
                    found => found?.is_some(),
                },
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

    /// Goal: what was compared is what is pushed.
    /// Method: the server writes into its file after the look at it.
    #[test]
    fn a_file_that_the_server_reuses_is_pushed_as_it_was_compared() {
        let server: Arc<dyn File> = Arc::new(MemoryFile::of(&[7; 3 << 20]));
        let out = Outgoing {
            name: "000000010000000000000003".parse().unwrap(),
            path: "3".into(),
            file: server.clone(),
            system: None,
            history: None,
            beside: None,
        };
        let sum = ContentSum::of(&out, None).unwrap();
        let own = of_content(out.clone(), &sum).unwrap().unwrap();
        server.write_all_at(&[8; 100], 5000, Via::Cache).unwrap();
        assert!(ContentSum::of(&own, None).unwrap().is_same(&sum));
        assert!(
            of_content(out, &sum).unwrap().is_none(),
            "it is another one now"
        );
    }
}
