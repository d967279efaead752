//! `wal push`: stores one file in the archive, as the server's archive_command.
//!
//! Invariants
//! - Exit code 0 means that the file is in the archive, durably; PostgreSQL removes its own copy then. Where the configuration
//!   lets a push succeed while the archive is away, the file is in a copy's archive (`away.rs`).
//! - No code is above 125, which would end the server's archiver.
//! - The look-ahead never decides: each call makes sure of its own file. Nothing that waits is ever dropped.
//!
//! Leaves to others: the archive (`longshore-wal`).

use std::path::Path;

use longshore_facts as facts;
use longshore_pg::wal::WalName;
use longshore_wal::{AheadLimits, Error, PgWal, PushResult, StorageForm, WalArchive, is_in_bucket};
use serde::Serialize;

use super::ahead::{LookAheadSettings, start_ahead};
use super::away::{Standing, Stopped, tell_unbrought};
use super::follow;
use super::form::{sealed_form, signing_keyring};
use crate::commands::archive::ArchiveLocation;
use crate::context::Context;
use crate::options::WalPush;
use longshore_terminal::failure::{Exit, Failure, run_as};
use longshore_terminal::numbers;
use longshore_terminal::output::bytes;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    name: String,
    /// The file was already there, with the same bytes.
    already: bool,
    stored_bytes: Option<u64>,
    /// The LSN at which this server left the segment's timeline: up to it, the same bytes were already there.
    left_at: Option<String>,
    /// Files that wait in pg_wal, this one included; only counted with --async.
    waiting: Option<usize>,
    /// The targets whose archives have the file while the database's own is away; `None`: that one has it.
    instead: Option<Vec<String>>,
}

pub fn run(options: &WalPush, context: &Context) -> Result<Exit, Failure> {
    if options.only_follow {
        return follow::run(options, context);
    }
    if options.ahead.only_ahead {
        return push(options, context).map_err(|stopped| stopped.failure);
    }
    let reached = match Standing::of(options, context)? {
        None => {
            tell_unbrought(options, context);
            pushed(options, context).map_err(|stopped| stopped.failure)?
        }
        Some(standing) => standing.push(|| pushed(options, context))?,
    };
    if !reached.is_empty() {
        tell_instead(options, &reached, context);
    }
    follow::after_push(options, &reached, context)?;
    Ok(Exit::Done)
}

/// Pushes to the database's own archive; no copy is reached by that.
fn pushed(options: &WalPush, context: &Context) -> Result<Vec<String>, Stopped> {
    push(options, context).map(|_| Vec::new())
}

fn push(options: &WalPush, context: &Context) -> Result<Exit, Stopped> {
    let file = Path::new(options.file.file_name().unwrap_or_default());
    let name = follow::name_of(&options.file)?;
    let pg_wal = PgWal::open(&*context.storage, follow::pg_wal_of(&options.file))?;
    let location = ArchiveLocation::of(&options.archive, context)?;
    refuse_for_others(&location.path(), context)?;
    let database = options.archive.database.as_deref();
    let asked = (options.algorithm, options.level);
    let keys = (&*options.encrypt_to, &options.keys);
    let form = StorageForm {
        verify: options.verify,
        ..sealed_form(asked, &options.archive, keys, context)?
    };
    let sign = (options.sign.as_deref(), &options.keys);
    let keyring = signing_keyring(context, sign, &form)?;
    // Also where new files are not encrypted: those that are there may be.
    let open = || -> Result<WalArchive, Error> {
        let archive = location.open(context)?;
        Ok(archive.with_keyring(&keyring).with_tags(pg_wal.tag_key()))
    };
    let wal = database.and_then(|name| context.config.wal_of(name));
    let working = LookAheadSettings::of(
        &options.ahead,
        wal,
        wal.and_then(|wal| wal.queue_max),
        &location.path(),
    );
    let clock = &*context.clock;
    if options.ahead.only_ahead {
        return Ok(push_ahead(
            &pg_wal,
            &open()?,
            &form,
            working.reach,
            context,
        )?);
    }
    let (storage, place) = (&*context.storage, location.path());
    if working.ahead && pg_wal.was_acknowledged(name, &place, storage, clock)? {
        let len = || storage.stat(&options.file).map_or(0, |stat| stat.len);
        let segment_bytes = matches!(name, WalName::Segment(_)).then(len);
        let segment_bytes = segment_bytes.unwrap_or(0);
        let waiting = work_ahead(&pg_wal, segment_bytes, name, working.reach, context)?;
        tell(name, &PushResult::Already, Some(waiting), context);
        return Ok(Exit::Done);
    }
    let archive = open()?;
    let new = archive.identity().is_none();
    let segment_bytes = archive.identity().map_or(0, |i| i.segment_size.bytes());
    let waiting = match working.ahead {
        false => None,
        true => Some(work_ahead(
            &pg_wal,
            segment_bytes,
            name,
            working.reach,
            context,
        )?),
    };
    let out = pg_wal.outgoing(name, file)?;
    let pushed = match working.ahead {
        true => pg_wal.push(&out, &archive, &form, clock)?,
        false => archive.push(&out, &form, clock)?,
    };
    if new && let Some(identity) = archive.identity() {
        let (path, system) = (archive.path().display(), identity.system);
        context.output.remark(&format!(
            "longshore: a new WAL archive for system {system} begins in {path}\n"
        ));
    }
    tell(name, &pushed, waiting, context);
    Ok(Exit::Done)
}

/// Errors: root pushes into another user's archive. That user, whose server archives there, could not open what root leaves,
/// and would fail from then on.
fn refuse_for_others(archive: &Path, context: &Context) -> Result<(), Failure> {
    if is_in_bucket(archive) || facts::own_ids().0 != 0 {
        return Ok(());
    }
    let owner = context.storage.stat(archive).map_or(0, |stat| stat.uid);
    if owner == 0 {
        return Ok(());
    }
    let name = facts::name_of(owner).unwrap_or_else(|_| format!("#{owner}"));
    let text = format!(
        "{} belongs to {name}, who could not read or replace what root leaves there",
        archive.display()
    );
    let hint = format!(
        "run it as the owner: {} wal push FILE, with the options of archive_command",
        run_as(&name)
    );
    Err(Failure::new(Exit::Media, numbers::TARGET, text, hint))
}

/// Pushes what waits, and what came meanwhile, unless another look-ahead is at work.
fn push_ahead(
    pg_wal: &PgWal,
    archive: &WalArchive,
    form: &StorageForm,
    reach: AheadLimits,
    context: &Context,
) -> Result<Exit, Failure> {
    if let Some(turn) = pg_wal.turn_to_push()? {
        loop {
            let done = pg_wal.push_ahead(&turn, archive, form, reach, &*context.clock)?;
            if done.files == 0 || done.error.is_some() {
                break;
            }
        }
    }
    Ok(Exit::Done)
}

fn tell(name: WalName, pushed: &PushResult, waiting: Option<usize>, context: &Context) {
    let (mut already, mut stored, mut left_at) = (true, None, None);
    match pushed {
        PushResult::Already => {}
        PushResult::Stored {
            stored_bytes,
            unfinished,
        } => {
            (already, stored) = (false, Some(*stored_bytes));
            if *unfinished {
                context.output.warn(&format!(
                    "{name} was pushed before it was full: its last page is left over from its earlier use"
                ));
            }
        }
        PushResult::LeftAt(fork) => {
            left_at = Some(fork.to_string());
            context.output.warn(&format!(
                "{name}: the archive keeps the segment of the server that continued in it. This server left the timeline at {fork}, \
                 and both are the same up to there"
            ));
        }
    }
    context.output.json(
        Exit::Done,
        Answer {
            action: "wal_push",
            name: name.to_string(),
            already,
            stored_bytes: stored,
            left_at,
            waiting,
            instead: None,
        },
    );
}

/// The answer where copies' archives have the file instead of the database's own.
fn tell_instead(options: &WalPush, reached: &[String], context: &Context) {
    let name = options.file.file_name().unwrap_or_default();
    context.output.json(
        Exit::Done,
        Answer {
            action: "wal_push",
            name: name.to_string_lossy().into_owned(),
            already: false,
            stored_bytes: None,
            left_at: None,
            waiting: None,
            instead: Some(reached.to_vec()),
        },
    );
}

/// Starts the look-ahead if there is work for it and none is running; returns the number of files that wait.
/// `segment_bytes`: 0 if it is not known.
fn work_ahead(
    pg_wal: &PgWal,
    segment_bytes: u64,
    own: WalName,
    reach: AheadLimits,
    context: &Context,
) -> Result<usize, Failure> {
    let ready = pg_wal.ready()?;
    let waiting = segment_bytes * ready.iter().filter(|n| n.holds_log()).count() as u64;
    if waiting > reach.bytes_max {
        // Files that are already in the archive count too: the server cannot recycle them before.
        context.output.warn(&format!(
            "{} files with {} of WAL wait in pg_wal, more than --queue-max {}; nothing is dropped, and the server \
             stops if its disk fills up",
            ready.len(),
            bytes(waiting),
            bytes(reach.bytes_max),
        ));
    }
    let has_work = pg_wal.has_work_ahead(segment_bytes, &ready, own, reach);
    // One that cannot start, as where pg_wal is read-only, makes this call no failure.
    if has_work && matches!(pg_wal.turn_to_push(), Ok(Some(_))) {
        start_ahead(context);
    }
    Ok(ready.len())
}
