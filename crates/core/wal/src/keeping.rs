//! Brings the records by which copies' archives keep what is owed in line with the list of debts.
//!
//! Invariants
//! - Records go only after nothing waits to be brought. Where the list cannot be read, they stay.
//! - Records of a database whose debts another one took over go only where this one has its own.
//! - Before the first record goes, the list forgets that it is there, so no push rests on it; the mark goes after the last one.
//! - A copy that was away, a record that was forgotten and a process that was killed are found by the next call: while there is
//!   a mark, there may be records.
//!
//! Leaves to others: the records (`kept.rs`), the list (`debts.rs`), and the record of a push (`owing.rs`).

use longshore_io::Clock;

use super::kept::Debtor;
use super::{Error, PgWal, WalArchive};

impl PgWal {
    /// Writes the records that the debt lacks in these archives of copies, or removes those that it no longer needs. `are_all`:
    /// no copy of the configuration is left out.
    ///
    /// Errors: the first of several; those of the archives, and `Io`. The next call does what is left.
    pub fn renew_kept(
        &self,
        debtor: &Debtor<'_>,
        (copies, are_all): (&[&WalArchive], bool),
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        let mark = self.debt_mark(debtor.database)?;
        let list = self.owed_list()?;
        let owed = list.of(debtor.database);
        if owed.waiting().next().is_none() {
            return match mark {
                Some(_) => self.release_kept(debtor.database, (copies, are_all), clock),
                None => Ok(()),
            };
        }
        let mut failed = None;
        let mut lacking = Vec::new();
        for archive in copies {
            let Some(size) = archive.identity().map(|identity| identity.segment_size) else {
                continue;
            };
            let first = owed.first_to_keep(None, size);
            let (Some(from), Some(first)) = (owed.keeps_from(None, size), first) else {
                continue;
            };
            match mark.map(|mark| archive.keeps_debt(mark, from)) {
                Some(Ok(true)) => {}
                None | Some(Ok(false)) => match archive.keeps_before(first, size) {
                    Ok(from) => lacking.push((archive, from)),
                    Err(error) => failed = failed.or(Some(error)),
                },
                Some(Err(error)) => failed = failed.or(Some(error)),
            }
        }
        // A push that has the turn writes them itself.
        if !lacking.is_empty()
            && let Some(turn) = self.turn_to_keep(debtor.database)?
        {
            let mark = self.make_debt_mark(&turn, debtor.database, clock)?;
            for (archive, from) in lacking {
                let kept = archive.keep_debt((mark, from), debtor, clock);
                failed = failed.or(kept.err());
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Removes the records for the database `from` from these archives of copies, where what that was owed is a debt to the
    /// database `to` now, which has records of its own there. Returns whether none can be left.
    ///
    /// Errors: those of the archives, and `Io`. The caller asks again.
    pub fn release_taken(
        &self,
        (from, to): (&str, &str),
        (copies, are_all): (&[&WalArchive], bool),
        clock: &dyn Clock,
    ) -> Result<bool, Error> {
        let owed = self.owed_list()?.of(to);
        let mark = self.debt_mark(to)?;
        for archive in copies {
            let size = archive.identity().map(|identity| identity.segment_size);
            let Some(since) = size.and_then(|size| owed.keeps_from(None, size)) else {
                continue;
            };
            let is_kept = mark.map_or(Ok(false), |mark| archive.keeps_debt(mark, since))?;
            if !is_kept {
                return Ok(false);
            }
        }
        self.release_kept(from, (copies, are_all), clock)?;
        Ok(self.debt_mark(from)?.is_none())
    }

    fn release_kept(
        &self,
        database: &str,
        (copies, are_all): (&[&WalArchive], bool),
        clock: &dyn Clock,
    ) -> Result<(), Error> {
        let Some(turn) = self.turn_to_keep(database)? else {
            return Ok(());
        };
        // As it is now that nobody makes another one.
        let Some(mark) = self.debt_mark(database)? else {
            return Ok(());
        };
        if !self.forget_kept(database, clock)? {
            return Ok(());
        }
        // Without copies in the configuration nobody has looked for records.
        let is_done = are_all && !copies.is_empty();
        let mut failed = None;
        for archive in copies {
            match archive.release_debt(mark) {
                Ok(None) => {}
                Ok(Some(error)) | Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            None if is_done => self.remove_debt_mark(&turn, database),
            None => Ok(()),
            Some(error) => Err(error),
        }
    }
}
