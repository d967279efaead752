//! `wal get`: fetches one file from the archive.
//!
//! Recovery takes every exit code up to 125 as the end of the WAL, so only a certain "not found" may use such a code;
//! `main` turns all other failures of this command, usage errors too, into [`Exit::NoAnswer`].

use std::path::Path;

use longshore_pg::wal::WalName;
use longshore_wal::{Error, PgWal};
use serde::Serialize;

use super::{ArchiveLocation, Context, LookAheadSettings, start_ahead};
use crate::options::WalGet;
use longshore_terminal::failure::{Exit, Failure};

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    name: String,
    found: bool,
}

pub fn run(options: &WalGet, context: &Context) -> Result<Exit, Failure> {
    let name = options.name;
    let (parent, to) = (options.to.parent(), options.to.file_name());
    let Some(to) = to.and_then(|to| to.to_str()) else {
        return Err(Failure::usage(
            format!("{} is not a path for a file", options.to.display()),
            "restore_command needs %f and %p",
        ));
    };
    let pg_wal = PgWal::open(&*context.storage, parent.unwrap_or(Path::new("")))?;
    let archive = ArchiveLocation::of(&options.archive, context)?.existing(context)?;
    pg_wal.check_system(&archive)?;
    let database = options.archive.database.as_deref();
    let wal = database.and_then(|name| context.config.wal_of(name));
    let LookAheadSettings { ahead, reach } =
        LookAheadSettings::of(&options.ahead, wal, wal.and_then(|wal| wal.prefetch));
    let clock = &*context.clock;
    let segment = match name {
        WalName::Segment(segment) => Some(segment),
        WalName::History(_) | WalName::Partial(_) | WalName::Backup(..) => None,
    };
    if options.ahead.only_ahead {
        if let (Some(segment), Some(turn)) = (segment, pg_wal.turn_to_fetch()?) {
            pg_wal.fetch_ahead(&turn, &archive, segment, reach, clock)?;
        }
        return Ok(Exit::Done);
    }
    let mut is_partial = false;
    let mut found = match pg_wal.take(&archive, name, to, options.restore.as_deref(), clock) {
        Ok(()) => true,
        Err(Error::Missing { .. }) => false,
        Err(e) => return Err(e.into()),
    };
    if let (false, Some(segment)) = (found, segment)
        && let Some(next) = archive.later(segment)?
        // A backup with its own WAL brought the segment along: the server looks there next.
        && !pg_wal.holds(&archive, segment)
    {
        let gap = Error::Gap {
            name,
            next: WalName::Segment(next),
            archive: archive.path().to_owned(),
        };
        // A standby retries, or asks its primary; files pushed in parallel arrive out of order.
        if !options.to_gap && !pg_wal.is_standby() {
            return Err(gap.into());
        }
        context.output.warn(&gap.to_string());
    } else if let (false, true, Some(segment)) = (found, options.partial, segment) {
        found = pg_wal.take_partial(&archive, segment, to, clock)?;
        is_partial = found;
    }
    // The current segment may end within its first record, and so may one that was switched early.
    if let (true, false, Some(segment)) = (found, is_partial, segment)
        && let Err(broken) = pg_wal.check_link(&archive, segment, to)
        && !archive.is_unfinished(name).unwrap_or(false)
    {
        // A standby then asks its primary.
        if !options.to_gap && !pg_wal.is_standby() {
            return Err(broken.into());
        }
        context.output.warn(&broken.to_string());
        found = false;
    }
    if let (true, false, Some(segment)) = (found, options.tablespaces_as_logged, segment) {
        pg_wal.check_tablespaces(&archive, &*context.storage, segment, to)?;
    }
    if let (true, true, Some(segment), Some(identity)) = (ahead, found, segment, archive.identity())
        && pg_wal.runs_short(segment, identity.segment_size, reach)
        && pg_wal.turn_to_fetch()?.is_some()
    {
        start_ahead(context);
    }
    let (status, exit) = match found {
        true => ("ok", Exit::Done),
        false => ("missing", Exit::No),
    };
    let answer = Answer {
        action: "wal_get",
        name: name.to_string(),
        found,
    };
    context.output.json_as(status, exit, answer);
    Ok(exit)
}
