//! `copy_at_once`: after a push, the WAL goes on to the archives of the database's copies.
//!
//! Invariants
//! - A push waits for no copy. It fails only where `copy_behind` is set and a copy is known to lack more than that.
//! - Every push tells how much a copy may lack, and why, so it is in the server's log.
//! - A first archive that is away keeps no WAL from the copies: they get what waits in pg_wal, and the first gets from them
//!   what it is owed once it is back.
//!
//! Leaves to others: which WAL an archive lacks at its end, and copying it (`longshore-wal`); whether a push succeeds while the
//! first archive is away (`away.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_crypt::Keyring;
use longshore_pg::wal::WalName;
use longshore_pg::{SegmentName, SegmentSize};
use longshore_wal::{
    AheadLock, Creditor, Error, Givers, PgWal, Settled, StorageForm, ToSettle, WalArchive,
};

use super::ahead::{LookAheadSettings, start_again};
use super::debt;
use super::form::{form, sealed_form, signing_keyring};
use crate::commands::archive::ArchiveLocation;
use crate::commands::{devices, shelves};
use crate::context::Context;
use crate::keys::lenient_keyring;
use crate::options::{Archive, WalPush};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::bytes;

/// The copies that the pushed WAL goes on to.
pub fn copies<'a>(options: &'a WalPush, context: &'a Context) -> Option<(&'a str, &'a [String])> {
    let database = options.archive.database.as_deref()?;
    // Another target than the database's own is brought up to date by its own means.
    let is_own = options.archive.target.is_none();
    let wal = context.config.wal_of(database)?;
    let copies = context.config.copies_of(database);
    (is_own && wal.copy_at_once).then_some((database, copies))
}

/// Starts to copy what was pushed, and tells how far behind each copy is. `reached`: the copies that the push went to itself.
pub fn after_push(options: &WalPush, reached: &[String], context: &Context) -> Result<(), Failure> {
    let Some((database, copies)) = copies(options, context) else {
        return Ok(());
    };
    let Ok(WalName::Segment(own)) = name_of(options) else {
        return Ok(());
    };
    let pg_wal = open(options, context)?;
    let limit = context
        .config
        .wal_of(database)
        .and_then(|wal| wal.copy_behind);
    let mut failed = None;
    for target in copies.iter().filter(|target| !reached.contains(target)) {
        let told = tell(&pg_wal, own, (database, target, limit), options, context);
        failed = failed.or(told.err());
    }
    start(&pg_wal, (database, copies), context);
    failed.map_or(Ok(()), Err)
}

/// Starts the process that brings the archives together, unless one is at work. A failure to start it only makes later
/// calls start it.
pub fn start(pg_wal: &PgWal, (database, copies): (&str, &[String]), context: &Context) {
    if !copies.is_empty() && matches!(pg_wal.turn_to_follow(database), Ok(Some(_))) {
        start_again(context, "--only-follow");
    }
}

/// By which pg_wal knows the archive of a database's copy: two databases can have copies at one target.
fn copy_of(database: &str, target: &str) -> String {
    format!("{database}\t{target}")
}

fn tell(
    pg_wal: &PgWal,
    own: SegmentName,
    (database, target, limit): (&str, &str, Option<u64>),
    options: &WalPush,
    context: &Context,
) -> Result<(), Failure> {
    // A finished segment is as long as all of its cluster's.
    let stat = context.storage.stat(&options.file).ok();
    let Some(size) = stat.and_then(|stat| SegmentSize::new(stat.len)) else {
        return Ok(());
    };
    let lag = match pg_wal.lag(&copy_of(database, target), own, size, &*context.clock) {
        Ok(lag) => lag,
        // Where pg_wal is full, a push that fails would keep it full.
        Err(error) => {
            context.output.warn(&format!(
                "it is not known how much WAL target {target} may lack: {error}"
            ));
            return Ok(());
        }
    };
    let lag_bytes = lag.bytes(own, size);
    if let Some(limit_bytes) = limit
        && lag_bytes > limit_bytes
    {
        return Err(Error::Behind {
            target: target.to_owned(),
            since: lag.since,
            lag_bytes,
            key: "copy_behind",
            limit_bytes,
            why: lag.why,
        }
        .into());
    }
    if let Some(why) = lag.why {
        let (since, lag) = (lag.since, bytes(lag_bytes));
        context.output.warn(&format!(
            "target {target} may lack {lag} of WAL, from {since} on: {why}"
        ));
    }
    Ok(())
}

/// Copies what each copy lacks at its end, until none lacks anything.
pub fn run(options: &WalPush, context: &Context) -> Result<Exit, Failure> {
    let Some((database, copies)) = copies(options, context) else {
        return Ok(Exit::Done);
    };
    let rounds = Rounds::of(options, (database, copies), context)?;
    let (mut goes_on, mut was_idle) = (true, false);
    while goes_on {
        let Some(turn) = rounds.pg_wal.turn_to_follow(rounds.database)? else {
            break;
        };
        let Some(round) = rounds.go(&turn)? else {
            break;
        };
        // A push that came meanwhile saw the turn taken and started no process.
        drop(turn);
        // Where a whole round brought nothing, another one would not either.
        goes_on = (round.files > 0 || !was_idle) && rounds.has_more(&round)?;
        was_idle = round.files == 0;
    }
    Ok(Exit::Done)
}

/// Brings the database's own archive what it is owed, wherever that is now, and whether or not pushes do that. The list has the
/// reason why the rest stays.
///
/// Errors: a process that brings it now; those of opening the archives, and of the list.
pub fn settle_now(options: &WalPush, context: &Context) -> Result<(), Failure> {
    let database = options.archive.database.as_deref().unwrap_or_default();
    let copies = context.config.copies_of(database);
    let rounds = Rounds::of(options, (database, copies), context)?;
    let Some(turn) = rounds.pg_wal.turn_to_follow(rounds.database)? else {
        return Err(Failure::usage(
            "a process that a push started brings the archives together now",
            "wait until it has ended, and run the command again",
        ));
    };
    if rounds
        .pg_wal
        .owed_list()?
        .of(database)
        .is_elsewhere(&rounds.location)
    {
        debt::move_here(&rounds.pg_wal, database, (database, &rounds.own), context)?;
    }
    let copies = rounds.open_copies()?;
    let home = rounds.own.open(context)?.with_keyring(&rounds.keyring);
    let home = home.with_tags(rounds.pg_wal.tag_key());
    rounds.settle(&turn, Some(&home), &copies)?;
    Ok(())
}

/// The tools of each round of the archives.
struct Rounds<'a> {
    pg_wal: PgWal,
    keyring: Arc<Keyring>,
    own: ArchiveLocation,
    /// Where it is: what is owed at another place is none of this process's.
    location: PathBuf,
    database: &'a str,
    copies: &'a [String],
    options: &'a WalPush,
    context: &'a Context,
}

/// A copy's archive that could be opened, and how files from pg_wal are stored there.
pub struct OpenCopy<'a> {
    pub target: &'a str,
    pub archive: WalArchive,
    pub form: StorageForm,
}

/// The result of one round: the first archive, the copies that got all that it has, and the number of files that came.
struct Round<'a> {
    home: WalArchive,
    reached: Vec<OpenCopy<'a>>,
    files: u64,
}

impl<'a> Rounds<'a> {
    fn of(
        options: &'a WalPush,
        (database, copies): (&'a str, &'a [String]),
        context: &'a Context,
    ) -> Result<Rounds<'a>, Failure> {
        let own = ArchiveLocation::of(&options.archive, context)?;
        Ok(Rounds {
            pg_wal: open(options, context)?,
            // Segments that are refused here are not copied, either.
            keyring: lenient_keyring(context, &options.keys)?,
            location: own.path(),
            own,
            database,
            copies,
            options,
            context,
        })
    }

    fn creditor(&self) -> Creditor<'_> {
        Creditor {
            database: self.database,
            location: &self.location,
        }
    }

    /// The archives of the copies that can be opened; why others cannot is noted.
    fn open_copies(&self) -> Result<Vec<OpenCopy<'a>>, Failure> {
        let mut copies = Vec::new();
        for target in self.copies {
            match open_copy(&self.pg_wal, target, self.options, self.context) {
                Ok(copy) => copies.push(copy),
                Err(failure) => {
                    self.note_failed(target, &failure.text)?;
                }
            }
        }
        Ok(copies)
    }

    /// `None`: the first archive is away, and the copies have what waits for it.
    fn go(&self, turn: &AheadLock) -> Result<Option<Round<'a>>, Failure> {
        let clock = &*self.context.clock;
        let copies = self.open_copies()?;
        let is_owed = self.is_owed();
        if is_owed {
            self.share(turn, &copies)?;
        }
        let home = match self.own.open(self.context) {
            Ok(home) => home.with_keyring(&self.keyring),
            Err(error) if error.is_away() => {
                if !is_owed {
                    self.share(turn, &copies)?;
                }
                if self.is_owed() {
                    let why = error.to_string();
                    self.pg_wal.note_unsettled(self.creditor(), &why, clock)?;
                }
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let home = home.with_tags(self.pg_wal.tag_key());
        let mut files = self.settle(turn, Some(&home), &copies)?.files;
        let mut reached = Vec::new();
        for copy in copies {
            match self.follow(turn, &home, &copy) {
                Ok(came) => {
                    files += came;
                    reached.push(copy);
                }
                Err(error) => {
                    self.note_failed(copy.target, &error.to_string())?;
                }
            }
        }
        Ok(Some(Round {
            home,
            reached,
            files,
        }))
    }

    fn note_failed(&self, target: &str, why: &str) -> Result<(), Error> {
        let copy = copy_of(self.database, target);
        self.pg_wal.note_failed(&copy, why, &*self.context.clock)
    }

    fn follow(
        &self,
        turn: &AheadLock,
        home: &WalArchive,
        copy: &OpenCopy<'_>,
    ) -> Result<u64, Error> {
        let form = form((None, None), Some(self.database), self.context);
        let mut files = 0;
        loop {
            let key = copy_of(self.database, copy.target);
            let to = (&*key, &copy.archive);
            let came =
                self.pg_wal
                    .follow(turn, (self.database, home), to, &form, &*self.context.clock)?;
            files += came;
            if came == 0 {
                return Ok(files);
            }
        }
    }

    /// Gives the copies what waits in pg_wal, and each what another one has of the debt.
    fn share(&self, turn: &AheadLock, copies: &[OpenCopy<'_>]) -> Result<(), Failure> {
        let wal = self.context.config.wal_of(self.database);
        let queue_max = wal.and_then(|wal| wal.queue_max);
        for copy in copies {
            let at = copy.archive.path();
            let working = LookAheadSettings::of(&self.options.ahead, wal, queue_max, at);
            let (archive, form, clock) = (&copy.archive, &copy.form, &*self.context.clock);
            let pushed = self
                .pg_wal
                .push_ahead(turn, archive, form, working.reach, clock);
            let error = pushed.map_or_else(Some, |result| result.error);
            if let Some(error) = error {
                self.note_failed(copy.target, &error.to_string())?;
            }
        }
        self.settle(turn, None, copies).map(drop)
    }

    /// Brings what is owed. A failure keeps nothing else from coming, nor does a list that cannot be read: pushes tell of it.
    fn settle(
        &self,
        turn: &AheadLock,
        home: Option<&WalArchive>,
        copies: &[OpenCopy<'_>],
    ) -> Result<Settled, Failure> {
        let keys = (&*self.options.encrypt_to, &self.options.keys);
        let form = sealed_form((None, None), &self.options.archive, keys, self.context)?;
        let home = home.map(|archive| ToSettle {
            archive,
            form: &form,
        });
        let others: Vec<ToSettle<'_>> = copies
            .iter()
            .map(|copy| ToSettle {
                archive: &copy.archive,
                form: &copy.form,
            })
            .collect();
        let givers = Givers {
            copies: &others,
            are_all: copies.len() == self.copies.len(),
        };
        let own = (self.creditor(), home);
        let settled = self.pg_wal.settle(turn, own, givers, &*self.context.clock);
        Ok(settled.unwrap_or_default())
    }

    /// Whether anything is owed, as far as that is known.
    fn is_owed(&self) -> bool {
        let list = self.pg_wal.owed_list().unwrap_or_default();
        !list.of(self.database).names.is_empty()
    }

    fn has_more(&self, round: &Round<'_>) -> Result<bool, Failure> {
        let list = self.pg_wal.owed_list().unwrap_or_default();
        let is_owed = list.of(self.database).waiting().next().is_some();
        let is_behind = |copy: &OpenCopy<'_>| {
            let key = copy_of(self.database, copy.target);
            let to = (&*key, &copy.archive);
            self.pg_wal.is_behind(&round.home, to).unwrap_or(false)
        };
        Ok(is_owed || round.reached.iter().any(is_behind))
    }
}

/// The name of the WAL file.
pub fn name_of(options: &WalPush) -> Result<WalName, Error> {
    let file = Path::new(options.file.file_name().unwrap_or_default());
    let name = file.to_str().and_then(|f| f.parse().ok());
    name.ok_or_else(|| Error::BadName {
        name: file.to_string_lossy().into_owned(),
    })
}

pub fn open(options: &WalPush, context: &Context) -> Result<PgWal, Failure> {
    let parent = options.file.parent().unwrap_or(Path::new(""));
    Ok(PgWal::open(&*context.storage, parent)?)
}

/// The archive of a copy, ready for files from pg_wal. Only `wal create` and `copy` make one.
pub fn open_copy<'a>(
    pg_wal: &PgWal,
    target: &'a str,
    options: &WalPush,
    context: &Context,
) -> Result<OpenCopy<'a>, Failure> {
    let database = options.archive.database.as_deref().unwrap_or_default();
    let own = devices::target_of(context, None, database)?;
    shelves::refuse_same(&own, &devices::target(context, target)?, context)?;
    let place = Archive {
        archive: None,
        database: Some(database.to_owned()),
        target: Some(target.to_owned()),
    };
    let asked = (options.algorithm, options.level);
    let keys = (&*options.encrypt_to, &options.keys);
    let form = sealed_form(asked, &place, keys, context)?;
    let keyring = signing_keyring(context, (options.sign.as_deref(), &options.keys), &form)?;
    let archive = ArchiveLocation::of(&place, context)?.open(context)?;
    let archive = archive.with_keyring(&keyring).with_tags(pg_wal.tag_key());
    Ok(OpenCopy {
        target,
        archive,
        form,
    })
}
