//! A push while the database's own archive is away: the copies' archives take the file, so that no target's loss keeps WAL
//! from the others, and the server goes on up to `home_behind`.
//!
//! Invariants
//! - A push succeeds without the database's own archive only where `home_behind` is set, the file is durable in the archive
//!   of a copy with all of its bytes, expires keep it there (`longshore-wal`, `owing.rs`), the debt is noted durably, and it is not above the
//!   limit.
//! - Only an archive that is away is skipped. One that refuses a file has looked at it, and its refusal stands: also of a
//!   file that it is owed, since nothing may come after that.
//! - While anything can still be brought, and the archive has not answered since it failed, the copies come first: no call waits
//!   for a store that is away. Once it answers, new files go there, though older ones are still on their way: otherwise a busy
//!   server would add debts for as long as it is busy.
//! - A push waits for no copy that failed the last time, if another one takes the file.
//! - A list of debts that cannot be read, and debts that nobody brings, are told by each push, so they are in the server's log.
//!
//! Leaves to others: the list of debts (`longshore-wal`), its words (`debt.rs`), and bringing them (`follow.rs`).

use std::path::Path;

use longshore_pg::SegmentSize;
use longshore_pg::wal::WalName;
use longshore_wal::{
    Creditor, Error, Outgoing, Owed, OwedList, Owing, PgWal, PushResult, ToSettle,
};

use super::debt;
use super::follow::{self, Way};
use super::keeping;
use crate::commands::archive::ArchiveLocation;
use crate::context::Context;
use crate::options::WalPush;
use longshore_terminal::failure::Failure;
use longshore_terminal::output::bytes;

/// Why a push to the database's own archive failed.
pub struct Stopped {
    pub failure: Failure,
    /// The archive is away, and has said nothing about the file.
    pub is_away: bool,
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped {
            is_away: error.is_away(),
            failure: error.into(),
        }
    }
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Stopped {
        Stopped {
            failure,
            is_away: false,
        }
    }
}

/// The list of debts, with a warning where it is not known, and of debts that nobody brings.
fn told_list(pg_wal: &PgWal, context: &Context) -> OwedList {
    let output = &context.output;
    match pg_wal.owed_list() {
        Ok(list) => {
            debt::unbrought(&list, context)
                .iter()
                .for_each(|text| output.warn(text));
            list
        }
        Err(error) => {
            output.warn(&debt::unknown_text(&error.to_string()));
            OwedList::default()
        }
    }
}

/// A push of a database of which no copies get WAL at once brings nothing that its archive is owed, and tells of it.
pub fn tell_unbrought(options: &WalPush, context: &Context) {
    if options.archive.target.is_some() {
        return;
    }
    let Ok(pg_wal) = PgWal::open(&*context.storage, follow::pg_wal_of(&options.file)) else {
        // The push itself says why.
        return;
    };
    told_list(&pg_wal, context);
}

/// The archives that can stand in for the database's own one.
pub struct Standing<'a> {
    pg_wal: PgWal,
    name: WalName,
    location: ArchiveLocation,
    /// The debt to the database's own archive.
    owed: Owed,
    way: Way<'a>,
    file: &'a Path,
    copies: &'a [String],
    context: &'a Context,
}

impl<'a> Standing<'a> {
    /// `None`: no copies get WAL at once.
    pub fn of(options: &'a WalPush, context: &'a Context) -> Result<Option<Standing<'a>>, Failure> {
        let Some((database, copies)) = follow::copies(options, context) else {
            return Ok(None);
        };
        let way = Way::of(options, database);
        let pg_wal = way.open(context)?;
        let location = ArchiveLocation::of(&options.archive, context)?;
        // A list that cannot be read is no reason to try the copies first.
        let mut list = told_list(&pg_wal, context);
        let owed = list.of(database);
        if owed.is_elsewhere(&location.path()) {
            // It stays owed to the old place, and each push says so.
            if let Err(error) = debt::move_here(&pg_wal, database, (database, &location), context) {
                context.output.warn(&format!(
                    "WAL is owed to an archive that is at {} now, and its list cannot be changed: {error}",
                    location.path().display()
                ));
            }
            list = pg_wal.owed_list().unwrap_or_default();
        }
        Ok(Some(Standing {
            owed: list.of(database),
            name: follow::name_of(&options.file)?,
            pg_wal,
            location,
            way,
            file: &options.file,
            copies,
            context,
        }))
    }

    /// Pushes to the database's own archive with `own`, or to copies. Returns the copies that have the file.
    pub fn push(
        &self,
        own: impl Fn() -> Result<Vec<String>, Stopped>,
    ) -> Result<Vec<String>, Failure> {
        if let (true, [since, ..]) = (self.owed.is_refused, &self.owed.names[..]) {
            // Its process asks the archive again.
            follow::start(&self.pg_wal, (self.way.database, self.copies), self.context);
            let refused = Error::Refuses {
                target: self.home().to_owned(),
                since: *since,
                why: self.owed.why.clone().unwrap_or_default(),
            };
            return Err(refused.into());
        }
        let waits = self.owed.waiting().next().is_some();
        if waits && !self.owed.is_there {
            let why = self.owed.why.clone();
            // The archive may be back, and the copies away.
            return self.instead(why).or_else(|passed| {
                own().map_err(|stopped| match passed {
                    Some(failure) if stopped.is_away => failure,
                    _ => stopped.failure,
                })
            });
        }
        match own() {
            Err(Stopped {
                failure,
                is_away: true,
            }) => {
                if self.owed.is_there {
                    // It went away once more: the next push does not wait for it.
                    let location = self.location.path();
                    let creditor = Creditor {
                        database: self.way.database,
                        location: &location,
                    };
                    let clock = &*self.context.clock;
                    let _noted = self.pg_wal.note_unsettled(creditor, &failure.text, clock);
                }
                let passed = self.instead(Some(failure.text.clone()));
                passed.map_err(|error| error.unwrap_or(failure))
            }
            other => other.map_err(|stopped| stopped.failure),
        }
    }

    /// Errors: `None` where the copies do not help, and the failure of the database's own archive stands.
    fn instead(&self, why: Option<String>) -> Result<Vec<String>, Option<Failure>> {
        let wal = self.context.config.wal_of(self.way.database);
        let (limit, owed_bytes) = (wal.and_then(|wal| wal.home_behind), self.owed_bytes());
        let mut owing = match limit.is_some_and(|limit| owed_bytes <= limit) {
            true => self.begin_owing(),
            false => None,
        };
        let reached = self.to_copies(owing.as_mut());
        // Also where this push fails: the process gives the copies what waits after this file.
        follow::start(&self.pg_wal, (self.way.database, self.copies), self.context);
        let (Some(limit_bytes), false) = (limit, reached.is_empty()) else {
            return Err(None);
        };
        if owed_bytes > limit_bytes {
            let since = self.owed.waits_since().or(self.name.segment());
            let behind = since.map(|since| Error::Behind {
                target: self.home().to_owned(),
                since,
                lag_bytes: owed_bytes,
                key: "home_behind",
                limit_bytes,
                why,
            });
            return Err(behind.map(Failure::from));
        }
        let owing = owing.ok_or(None)?;
        let noted = self.note_debt(&owing);
        noted.map_err(|error| Some(error.into()))?;
        self.context.output.warn(&format!(
            "{} is in the archive of target {} and not in that of target {}, which lacks {} of WAL until it is back{}",
            self.name,
            reached.join(" and "),
            self.home(),
            bytes(owed_bytes),
            why.map(|why| format!(": {why}")).unwrap_or_default()
        ));
        Ok(reached)
    }

    /// `None`: nothing can be owed now; the server is told why.
    fn begin_owing(&self) -> Option<Owing<'_>> {
        let begun = keeping::begin_owing(&self.pg_wal, self.way.database, self.context);
        let why = match begun {
            Ok(Some(owing)) => return Some(owing),
            Ok(None) => "another process changes records of what is owed".to_owned(),
            Err(error) => error.to_string(),
        };
        self.context.output.warn(&format!(
            "{} cannot be owed to target {} now: {why}",
            self.name,
            self.home()
        ));
        None
    }

    fn outgoing(&self) -> Result<Outgoing, Error> {
        let file = self.file.file_name().unwrap_or_default();
        self.pg_wal.outgoing(self.name, file.as_ref())
    }

    fn note_debt(&self, owing: &Owing<'_>) -> Result<(), Error> {
        let location = self.location.path();
        let creditor = Creditor {
            database: self.way.database,
            location: &location,
        };
        owing.note(creditor, &self.outgoing()?, &*self.context.clock)
    }

    /// Pushes the file to the archive of each copy that can be reached, after it began to keep it there; returns these.
    fn to_copies(&self, mut owing: Option<&mut Owing<'_>>) -> Vec<String> {
        let mut reached = Vec::new();
        // One that failed the last time may take minutes to fail again. It gets the file from the process that brings WAL.
        let failing = self.pg_wal.failing();
        let fails = |target: &&String| {
            let copy = follow::copy_of(self.way.database, target);
            failing.contains(&copy)
        };
        let (failing, well): (Vec<&String>, Vec<&String>) = self.copies.iter().partition(fails);
        let last = well.len();
        for (i, target) in well.into_iter().chain(failing).enumerate() {
            if i >= last && !reached.is_empty() {
                break;
            }
            match self.to_copy(target, owing.as_deref_mut()) {
                Ok(PushResult::Stored { .. } | PushResult::Already) => reached.push(target.clone()),
                Ok(PushResult::LeftAt(fork)) => self.context.output.warn(&format!(
                    "the archive of target {target} keeps another server's {}, which went on where this one left the timeline, at {fork}",
                    self.name
                )),
                Err(failure) => self.context.output.warn(&format!(
                    "the archive of target {target} did not take {}: {}",
                    self.name, failure.text
                )),
            }
        }
        reached
    }

    fn to_copy(&self, target: &str, owing: Option<&mut Owing<'_>>) -> Result<PushResult, Failure> {
        let clock = &*self.context.clock;
        let copy = follow::open_copy(&self.pg_wal, target, &self.way, self.context)?;
        let (archive, form) = (&copy.archive, &copy.form);
        let out = self.outgoing()?;
        let await_expires = |archive: &_| keeping::await_expires_in(archive, self.context);
        Ok(match owing {
            Some(owing) => owing.push(ToSettle { archive, form }, &out, &await_expires, clock)?,
            None => archive.push(&out, form, clock)?,
        })
    }

    /// The bytes of segments that are owed, this file included.
    fn owed_bytes(&self) -> u64 {
        let stat = self.context.storage.stat(self.file);
        let size = stat.ok().and_then(|stat| SegmentSize::new(stat.len));
        let names = self.owed.waiting().filter(|name| **name != self.name);
        let count = names
            .chain([&self.name])
            .filter(|name| name.holds_log())
            .count();
        // Histories and backup marks are small; the length of the segments is not known from them.
        size.map_or(0, |size| size.bytes().saturating_mul(count as u64))
    }

    fn home(&self) -> &str {
        self.context
            .config
            .target_of(self.way.database)
            .unwrap_or(self.way.database)
    }
}
