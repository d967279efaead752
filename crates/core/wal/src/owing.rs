//! A push that may add a debt has the archives of copies keep the file there: by records, which every expire reads.
//!
//! Invariants
//! - A copy counts as having a file that is owed only if its archive has a record for it, and no expire is at work there that
//!   may not have seen the record.
//! - The record is written with the first file that is owed; each later push reads in the list that it is there.
//! - While such a push goes on, no other process removes a record of this database's debts.
//!
//! Leaves to others: the records, and their removal (`kept.rs`, `keeping.rs`); how long a push waits, and for which expires
//! (`longshore`, `commands/wal/keeping.rs`).

use longshore_io::Clock;
use longshore_pg::wal::WalName;

use super::ahead::AheadLock;
use super::debts::{Creditor, Owed};
use super::kept::{DebtMark, Debtor, Kept};
use super::owed::ToSettle;
use super::{Error, Outgoing, PgWal, PushResult, WalArchive};

/// Waits until no expire is at work in an archive that may not have seen a record which is there now.
pub type AwaitExpires<'a> = dyn Fn(&WalArchive) -> Result<(), Error> + 'a;

/// See the module.
pub struct Owing<'a> {
    turn: AheadLock,
    pg_wal: &'a PgWal,
    owed: Owed,
    mark: Option<DebtMark>,
    debtor: Debtor<'a>,
    /// The records that the list does not have yet.
    new: Vec<Kept>,
}

impl PgWal {
    /// Begins a push that may add a debt; `None`: another process changes records.
    ///
    /// Errors: `Io`.
    pub fn begin_owing<'a>(&'a self, debtor: Debtor<'a>) -> Result<Option<Owing<'a>>, Error> {
        let database = debtor.database;
        let Some(turn) = self.turn_to_keep(database)? else {
            return Ok(None);
        };
        Ok(Some(Owing {
            // As it is now that nobody removes a record.
            owed: self.owed_list()?.of(database),
            mark: self.debt_mark(database)?,
            turn,
            pg_wal: self,
            debtor,
            new: Vec::new(),
        }))
    }
}

impl Owing<'_> {
    /// Pushes the file to the archive of a copy, which keeps it from before that.
    ///
    /// Errors: those of [`WalArchive::push`] and of `await_expires`; `NeedUnwritten`.
    pub fn push(
        &mut self,
        copy: ToSettle<'_>,
        out: &Outgoing,
        await_expires: &AwaitExpires<'_>,
        clock: &dyn Clock,
    ) -> Result<PushResult, Error> {
        let push = || copy.archive.push(out, copy.form, clock);
        // A new archive gets its cluster, and so the size of its segments, with the first file.
        if copy.archive.identity().is_none() {
            push()?;
        }
        self.keep(copy.archive, out.name, await_expires, clock)?;
        push()
    }

    /// Notes durably that the own archive lacks the file, and which copies keep it.
    ///
    /// Errors: those of [`PgWal::owe`].
    pub fn note(
        &self,
        creditor: Creditor<'_>,
        out: &Outgoing,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        self.pg_wal.owe(creditor, (out, &self.new), clock)
    }

    /// Has the archive of a copy keep this file, which is about to come, and all that waits.
    fn keep(
        &mut self,
        archive: &WalArchive,
        name: WalName,
        await_expires: &AwaitExpires<'_>,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        let Some(size) = archive.identity().map(|identity| identity.segment_size) else {
            return Ok(());
        };
        let Some(from) = self.owed.keeps_from(Some(name), size) else {
            return Ok(());
        };
        let location = archive.path();
        let is_kept = |mark| self.owed.is_kept(location, mark, from);
        if self.mark.is_some_and(is_kept) {
            return Ok(());
        }
        // The follower may not have brought the one before.
        let from = match self.owed.first_to_keep(Some(name), size) {
            Some(first) => archive.keeps_before(first, size)?,
            None => from,
        };
        let database = self.debtor.database;
        let mark = self.pg_wal.make_debt_mark(&self.turn, database, clock)?;
        archive.keep_debt((mark, from), &self.debtor, clock)?;
        await_expires(archive)?;
        self.new.push(Kept::new(location, mark, from));
        Ok(())
    }
}
