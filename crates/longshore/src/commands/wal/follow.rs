//! `copy_at_once`: after a push, the WAL goes on to the archives of the database's copies.
//!
//! Invariants
//! - A push waits for no copy. It fails only where `copy_behind` is set and a copy is known to lack more than that.
//! - Every push tells how much a copy may lack, and why, so it is in the server's log.
//!
//! Leaves to others: which WAL an archive lacks at its end, and copying it (`longshore-wal`).

use std::path::Path;

use longshore_pg::wal::WalName;
use longshore_pg::{SegmentName, SegmentSize};
use longshore_wal::{Error, PgWal, WalArchive};

use super::ahead::start_again;
use super::form::form;
use crate::commands::archive::ArchiveLocation;
use crate::commands::{devices, shelves};
use crate::context::Context;
use crate::keys::lenient_keyring;
use crate::options::WalPush;
use longshore_terminal::failure::{Exit, Failure};
use longshore_terminal::output::bytes;

/// The copies that the pushed WAL goes on to.
fn copies<'a>(options: &'a WalPush, context: &'a Context) -> Option<(&'a str, &'a [String])> {
    let database = options.archive.database.as_deref()?;
    // Another target than the database's own is brought up to date by its own means.
    let is_own = options.archive.target.is_none();
    let wal = context.config.wal_of(database)?;
    let copies = context.config.copies_of(database);
    (is_own && wal.copy_at_once).then_some((database, copies))
}

/// Starts to copy what was pushed, and tells how far behind each copy is.
pub fn after_push(options: &WalPush, context: &Context) -> Result<(), Failure> {
    let Some((database, copies)) = copies(options, context) else {
        return Ok(());
    };
    let name = options.file.file_name().and_then(|name| name.to_str());
    let Some(Ok(WalName::Segment(own))) = name.map(str::parse) else {
        return Ok(());
    };
    let pg_wal = open(options, context)?;
    let limit = context
        .config
        .wal_of(database)
        .and_then(|wal| wal.copy_behind);
    let mut failed = None;
    for target in copies {
        let told = tell(&pg_wal, own, (target, limit), options, context);
        failed = failed.or(told.err());
    }
    // A failure to start it only makes later calls start it.
    if !copies.is_empty() && matches!(pg_wal.turn_to_follow(), Ok(Some(_))) {
        start_again(context, "--only-follow");
    }
    failed.map_or(Ok(()), Err)
}

fn tell(
    pg_wal: &PgWal,
    own: SegmentName,
    (target, limit): (&str, Option<u64>),
    options: &WalPush,
    context: &Context,
) -> Result<(), Failure> {
    // A finished segment is as long as all of its cluster's.
    let stat = context.storage.stat(&options.file).ok();
    let Some(size) = stat.and_then(|stat| SegmentSize::new(stat.len)) else {
        return Ok(());
    };
    let lag = match pg_wal.lag(target, own, size, &*context.clock) {
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
    let pg_wal = open(options, context)?;
    // Segments that are refused here are not copied, either.
    let keyring = lenient_keyring(context, &options.keys)?;
    let from = ArchiveLocation::of(&options.archive, context)?.existing(context)?;
    let from = from.with_keyring(&keyring);
    let (mut goes_on, mut was_idle) = (true, false);
    while goes_on {
        let Some(turn) = pg_wal.turn_to_follow()? else {
            break;
        };
        let (mut reached, mut files) = (Vec::new(), 0);
        for target in copies {
            let result = archive(database, target, context).and_then(|to| {
                let to = to.with_keyring(&keyring);
                let form = form((None, None), Some(database), context);
                loop {
                    let copied =
                        pg_wal.follow(&turn, &from, (target, &to), &form, &*context.clock)?;
                    files += copied;
                    if copied == 0 {
                        return Ok(to);
                    }
                }
            });
            match result {
                Ok(to) => reached.push((target, to)),
                Err(failure) => pg_wal.note_failed(target, &failure.text, &*context.clock)?,
            }
        }
        // A push that came meanwhile saw the turn taken and started no process.
        drop(turn);
        let is_behind = |(target, to): &(&String, WalArchive)| {
            pg_wal.is_behind(&from, (target, to)).unwrap_or(false)
        };
        // Where a whole round brought nothing, another one would not either.
        goes_on = (files > 0 || !was_idle) && reached.iter().any(is_behind);
        was_idle = files == 0;
    }
    Ok(Exit::Done)
}

fn open(options: &WalPush, context: &Context) -> Result<PgWal, Failure> {
    let parent = options.file.parent().unwrap_or(Path::new(""));
    Ok(PgWal::open(&*context.storage, parent)?)
}

/// The archive of a copy. Only `wal create` and `copy` make one.
fn archive(database: &str, target: &str, context: &Context) -> Result<WalArchive, Failure> {
    let own = devices::target_of(context, None, database)?;
    shelves::refuse_same(&own, &devices::target(context, target)?, context)?;
    let location = ArchiveLocation::of_database(context, database, Some(target))?;
    Ok(location.open(context)?)
}
