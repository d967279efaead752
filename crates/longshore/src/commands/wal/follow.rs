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

use longshore_codec::{Algorithm, Level};
use longshore_crypt::Keyring;
use longshore_pg::wal::WalName;
use longshore_pg::{SegmentName, SegmentSize};
use longshore_wal::{
    AheadLock, Creditor, Error, Givers, PgWal, Settled, StorageForm, ToSettle, WalArchive,
};

use super::ahead::{LookAheadSettings, start_again};
use super::debt;
use super::form::{form, sealed_form, signing_keyring};
use super::keeping;
use crate::commands::archive::ArchiveLocation;
use crate::commands::{devices, shelves};
use crate::context::Context;
use crate::options::{Archive, KeyOptions, LookAheadOptions, WalPush};
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::bytes;

/// A cluster's pg_wal, the database whose archives get its WAL, and how files are stored there.
#[derive(Clone, Copy)]
pub struct Way<'a> {
    pub pg_wal: &'a Path,
    pub database: &'a str,
    pub asked: (Option<Algorithm>, Option<Level>),
    pub encrypt_to: &'a [String],
    pub sign: Option<&'a Path>,
    pub keys: &'a KeyOptions,
}

impl<'a> Way<'a> {
    pub fn of(options: &'a WalPush, database: &'a str) -> Way<'a> {
        Way {
            pg_wal: pg_wal_of(&options.file),
            database,
            asked: (options.algorithm, options.level),
            encrypt_to: &options.encrypt_to,
            sign: options.sign.as_deref(),
            keys: &options.keys,
        }
    }

    pub fn open(&self, context: &Context) -> Result<PgWal, Failure> {
        Ok(PgWal::open(&*context.storage, self.pg_wal)?)
    }

    fn form(&self, place: &Archive, context: &Context) -> Result<StorageForm, Failure> {
        sealed_form(self.asked, place, (self.encrypt_to, self.keys), context)
    }
}

/// The directory of the server's file that is pushed.
pub fn pg_wal_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// The archive of a database at a target; `None`: its own one.
pub fn archive_of(database: &str, target: Option<&str>) -> Archive {
    Archive {
        archive: None,
        database: Some(database.to_owned()),
        target: target.map(str::to_owned),
    }
}

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
    let Ok(WalName::Segment(own)) = name_of(&options.file) else {
        return Ok(());
    };
    let pg_wal = Way::of(options, database).open(context)?;
    let limit = context
        .config
        .wal_of(database)
        .and_then(|wal| wal.copy_behind);
    let mut failed = None;
    for target in copies.iter().filter(|target| !reached.contains(target)) {
        let copy = (database, &**target, limit);
        let told = tell(&pg_wal, (own, &options.file), copy, context);
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
pub fn copy_of(database: &str, target: &str) -> String {
    format!("{database}\t{target}")
}

fn tell(
    pg_wal: &PgWal,
    (own, file): (SegmentName, &Path),
    (database, target, limit): (&str, &str, Option<u64>),
    context: &Context,
) -> Result<(), Failure> {
    // A finished segment is as long as all of its cluster's.
    let stat = context.storage.stat(file).ok();
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
    let rounds = Rounds::of(Way::of(options, database), copies, context)?;
    let (mut goes_on, mut was_idle) = (true, false);
    while goes_on {
        let Some(turn) = rounds.pg_wal.turn_to_follow(database)? else {
            break;
        };
        let Some(round) = rounds.go(&turn, &options.ahead)? else {
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
/// reason why the rest stays. Returns whether the copies keep what they must.
///
/// Errors: a process that brings it now; those of opening the archives, and of the list.
pub fn settle_now(way: Way<'_>, context: &Context) -> Result<Result<(), Error>, Failure> {
    let database = way.database;
    let rounds = Rounds::of(way, context.config.copies_of(database), context)?;
    let turn = rounds.own_turn()?;
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
    Ok(rounds.renew(&copies))
}

/// Gives up what is lost, after a look whether a copy has it again. Has the copies' archives keep no more than what still waits,
/// and returns whether they do.
///
/// Errors: a process that brings WAL now; a copy that cannot be looked at; those of the list.
pub fn give_up_now(
    way: Way<'_>,
    context: &Context,
) -> Result<(Vec<WalName>, Result<(), Error>), Failure> {
    let rounds = Rounds::of(way, context.config.copies_of(way.database), context)?;
    let turn = rounds.own_turn()?;
    let copies = rounds.open_copies()?;
    let is_open = |target: &&String| copies.iter().any(|copy| copy.target == **target);
    if let Some(target) = rounds.copies.iter().find(|target| !is_open(target)) {
        return Err(Failure::usage(
            format!("target {target} cannot be looked at, and may have what is lost elsewhere"),
            "bring it back, or take it from `copies`, and run the command again",
        ));
    }
    let archives: Vec<&WalArchive> = copies.iter().map(|copy| &copy.archive).collect();
    let clock = &*context.clock;
    let given_up = rounds
        .pg_wal
        .give_up(&turn, way.database, &archives, clock)?;
    Ok((given_up, rounds.renew(&copies)))
}

/// Has the copies keep what was taken over from the database `other` by records of this database, and removes those of the other
/// one. Returns whether none can be left.
///
/// Errors: those of opening the archives, and of their records; an expire that goes on.
pub fn pass_records(way: Way<'_>, other: &str, context: &Context) -> Result<bool, Failure> {
    let rounds = Rounds::of(way, context.config.copies_of(way.database), context)?;
    let copies = rounds.open_copies()?;
    rounds.renew(&copies)?;
    for copy in &copies {
        // One that read the records before may have seen the other's alone.
        keeping::await_expires_in(&copy.archive, context)?;
    }
    let archives: Vec<&WalArchive> = copies.iter().map(|copy| &copy.archive).collect();
    let all = (&*archives, copies.len() == rounds.copies.len());
    let names = (other, way.database);
    let released = rounds.pg_wal.release_taken(names, all, &*context.clock)?;
    Ok(released)
}

/// The tools of each round of the archives.
struct Rounds<'a> {
    pg_wal: PgWal,
    keyring: Arc<Keyring>,
    /// In which the own archive stores what comes from pg_wal.
    form: StorageForm,
    own: ArchiveLocation,
    /// Where it is: what is owed at another place is none of this process's.
    location: PathBuf,
    way: Way<'a>,
    copies: &'a [String],
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
    fn of(way: Way<'a>, copies: &'a [String], context: &'a Context) -> Result<Rounds<'a>, Failure> {
        let place = archive_of(way.database, None);
        let own = ArchiveLocation::of(&place, context)?;
        let asked = (None, None);
        let form = Way { asked, ..way }.form(&place, context)?;
        Ok(Rounds {
            pg_wal: way.open(context)?,
            // Segments that are refused here are not copied, either. A file that pg_wal still has is signed as a push signs it.
            keyring: signing_keyring(context, (way.sign, way.keys), &form)?,
            form,
            location: own.path(),
            own,
            way,
            copies,
            context,
        })
    }

    /// The turn of a command that somebody typed.
    fn own_turn(&self) -> Result<AheadLock, Failure> {
        self.pg_wal
            .turn_to_follow(self.way.database)?
            .ok_or_else(|| {
                Failure::usage(
                    "a process that a push started brings the archives together now",
                    "wait until it has ended, and run the command again",
                )
            })
    }

    fn creditor(&self) -> Creditor<'_> {
        Creditor {
            database: self.way.database,
            location: &self.location,
        }
    }

    /// The archives of the copies that can be opened; why others cannot is noted.
    fn open_copies(&self) -> Result<Vec<OpenCopy<'a>>, Failure> {
        let mut copies = Vec::new();
        for target in self.copies {
            match open_copy(&self.pg_wal, target, &self.way, self.context) {
                Ok(copy) => copies.push(copy),
                Err(failure) => {
                    self.note_failed(target, &failure.text)?;
                }
            }
        }
        Ok(copies)
    }

    /// `None`: the first archive is away, and the copies have what waits for it.
    fn go(&self, turn: &AheadLock, ahead: &LookAheadOptions) -> Result<Option<Round<'a>>, Failure> {
        let clock = &*self.context.clock;
        let copies = self.open_copies()?;
        let is_owed = self.is_owed();
        if is_owed {
            // The next process does what fails here.
            let _failed = self.renew(&copies);
            self.share((turn, ahead), &copies)?;
        }
        let home = match self.own.open(self.context) {
            Ok(home) => home.with_keyring(&self.keyring),
            Err(error) if error.is_away() => {
                if !is_owed {
                    self.share((turn, ahead), &copies)?;
                }
                if self.is_owed() {
                    let why = error.to_string();
                    self.pg_wal.note_unsettled(self.creditor(), &why, clock)?;
                }
                return Ok(None);
            }
            Err(error) => {
                if is_owed {
                    let why = error.to_string();
                    self.pg_wal.note_unsettled(self.creditor(), &why, clock)?;
                }
                return Err(error.into());
            }
        };
        let home = home.with_tags(self.pg_wal.tag_key());
        let mut files = self.settle(turn, Some(&home), &copies)?.files;
        let _failed = self.renew(&copies);
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

    /// Has the copies keep what is owed, as long as it is.
    ///
    /// Errors: those of [`PgWal::renew_kept`].
    fn renew(&self, copies: &[OpenCopy<'_>]) -> Result<(), Error> {
        let are_all = copies.len() == self.copies.len();
        let archives: Vec<&WalArchive> = copies.iter().map(|copy| &copy.archive).collect();
        let debtor = keeping::debtor(&self.pg_wal, self.way.database, self.context);
        let clock = &*self.context.clock;
        self.pg_wal.renew_kept(&debtor, (&archives, are_all), clock)
    }

    fn note_failed(&self, target: &str, why: &str) -> Result<(), Error> {
        let copy = copy_of(self.way.database, target);
        self.pg_wal.note_failed(&copy, why, &*self.context.clock)
    }

    fn follow(
        &self,
        turn: &AheadLock,
        home: &WalArchive,
        copy: &OpenCopy<'_>,
    ) -> Result<u64, Error> {
        let form = form((None, None), Some(self.way.database), self.context);
        let mut files = 0;
        loop {
            let key = copy_of(self.way.database, copy.target);
            let to = (&*key, &copy.archive);
            let came = self.pg_wal.follow(
                turn,
                (self.way.database, home),
                to,
                &form,
                &*self.context.clock,
            )?;
            files += came;
            if came == 0 {
                return Ok(files);
            }
        }
    }

    /// Gives the copies what waits in pg_wal, and each what another one has of the debt.
    fn share(
        &self,
        (turn, ahead): (&AheadLock, &LookAheadOptions),
        copies: &[OpenCopy<'_>],
    ) -> Result<(), Failure> {
        let wal = self.context.config.wal_of(self.way.database);
        let queue_max = wal.and_then(|wal| wal.queue_max);
        for copy in copies {
            let at = copy.archive.path();
            let working = LookAheadSettings::of(ahead, wal, queue_max, at);
            let (archive, form, clock) = (&copy.archive, &copy.form, &*self.context.clock);
            let pushed = self
                .pg_wal
                .push_ahead(turn, archive, form, working.reach, clock);
            match pushed.map_or_else(Some, |result| result.error) {
                Some(error) => self.note_failed(copy.target, &error.to_string())?,
                None => {
                    let key = copy_of(self.way.database, copy.target);
                    self.pg_wal.note_well(&key, clock)?;
                }
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
        let form = &self.form;
        let home = home.map(|archive| ToSettle { archive, form });
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
        !list.of(self.way.database).names.is_empty()
    }

    fn has_more(&self, round: &Round<'_>) -> Result<bool, Failure> {
        let list = self.pg_wal.owed_list().unwrap_or_default();
        let is_owed = list.of(self.way.database).waiting().next().is_some();
        let is_behind = |copy: &OpenCopy<'_>| {
            let key = copy_of(self.way.database, copy.target);
            let to = (&*key, &copy.archive);
            self.pg_wal.is_behind(&round.home, to).unwrap_or(false)
        };
        Ok(is_owed || round.reached.iter().any(is_behind))
    }
}

/// The name of the WAL file.
pub fn name_of(file: &Path) -> Result<WalName, Error> {
    let file = Path::new(file.file_name().unwrap_or_default());
    let name = file.to_str().and_then(|f| f.parse().ok());
    name.ok_or_else(|| Error::BadName {
        name: file.to_string_lossy().into_owned(),
    })
}

/// The archive of a copy, ready for files from pg_wal. Only `wal create` and `copy` make one.
pub fn open_copy<'a>(
    pg_wal: &PgWal,
    target: &'a str,
    way: &Way<'_>,
    context: &Context,
) -> Result<OpenCopy<'a>, Failure> {
    let own = devices::target_of(context, None, way.database)?;
    let copy = devices::target(context, target)?;
    shelves::refuse_same(&own, &copy, way.database, context)?;
    let place = archive_of(way.database, Some(target));
    let form = way.form(&place, context)?;
    let keyring = signing_keyring(context, (way.sign, way.keys), &form)?;
    let archive = ArchiveLocation::of(&place, context)?.open(context)?;
    let archive = archive.with_keyring(&keyring).with_tags(pg_wal.tag_key());
    Ok(OpenCopy {
        target,
        archive,
        form,
    })
}
