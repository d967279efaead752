//! A push that may add a debt has the archives of copies keep the file there: by records, which every expire reads.
//!
//! Invariants
//! - A copy counts as having a file that is owed only if its archive has a record for it, and no expire is at work there that
//!   may not have seen the record.
//! - The record is written with the first file that is owed; each later push reads in the list that it is there.
//!
//! Leaves to others: the records, and their removal (`longshore-wal`, `kept.rs`, `keeping.rs`), and expires
//! (`longshore-repository`).

use std::time::Duration;

use longshore_pg::wal::WalName;
use longshore_repository::await_expires;
use longshore_wal::{AheadLock, DebtMark, Debtor, Error, Kept, Owed, PgWal, WalArchive};

use crate::context::Context;

/// How long a push waits for an expire, or for another process that changes records; the server asks again.
const PATIENCE: Duration = Duration::from_secs(5);
/// The interval between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A push that may add a debt. While it lives, no other process removes a record.
pub struct Keeping<'a> {
    turn: AheadLock,
    pg_wal: &'a PgWal,
    owed: Owed,
    mark: Option<DebtMark>,
    debtor: Debtor<'a>,
    context: &'a Context,
    /// The records that the list does not have yet.
    pub new: Vec<Kept>,
}

impl<'a> Keeping<'a> {
    /// `None`: another process changes records for longer than a push waits.
    ///
    /// Errors: `Io`.
    pub fn begin(
        pg_wal: &'a PgWal,
        database: &'a str,
        context: &'a Context,
    ) -> Result<Option<Keeping<'a>>, Error> {
        let clock = &*context.clock;
        let until = clock.now() + PATIENCE;
        let turn = loop {
            match pg_wal.turn_to_keep(database)? {
                Some(turn) => break turn,
                None if clock.now() >= until => return Ok(None),
                None => clock.sleep(LOOK_EVERY),
            }
        };
        Ok(Some(Keeping {
            // As it is now that nobody removes a record.
            owed: pg_wal.owed_list()?.of(database),
            mark: pg_wal.debt_mark(database)?,
            turn,
            pg_wal,
            debtor: debtor(pg_wal, database, context),
            context,
            new: Vec::new(),
        }))
    }

    /// Has the archive of a copy keep this file, which is about to come, and all that waits.
    ///
    /// Errors: `BeingExpired`, `NeedUnwritten`, `Io`, `Store`.
    pub fn keep(&mut self, archive: &WalArchive, name: WalName) -> Result<(), Error> {
        let size = archive.identity().map(|identity| identity.segment_size);
        let Some(from) = size.and_then(|size| self.owed.keeps_from(Some(name), size)) else {
            return Ok(());
        };
        let (location, clock) = (archive.path(), &*self.context.clock);
        let is_kept = |mark| self.owed.is_kept(location, mark, from);
        if self.mark.is_some_and(is_kept) {
            return Ok(());
        }
        let database = self.debtor.database;
        let mark = self.pg_wal.make_debt_mark(&self.turn, database, clock)?;
        archive.keep_debt((mark, from), &self.debtor, clock)?;
        await_expires(archive, clock, PATIENCE)?;
        self.new.push(Kept::new(location, mark, from));
        Ok(())
    }
}

/// The words about this pg_wal for who reads the records.
pub fn debtor<'a>(pg_wal: &'a PgWal, database: &'a str, context: &'a Context) -> Debtor<'a> {
    Debtor {
        database,
        target: context.config.target_of(database).unwrap_or(database),
        pg_wal: pg_wal.path(),
    }
}
