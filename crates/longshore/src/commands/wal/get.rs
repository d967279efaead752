//! `wal get`: fetches one file from the archive.
//!
//! Invariants
//! - Recovery takes every exit code up to 125 as the end of the WAL, so only a certain "not found" may use such a code;
//!   `main` turns all other failures of this command, usage errors too, into [`Exit::NoAnswer`].
//! - A name that the archive's listing shows is never "not found".
//! - A recovery does not end before a gap, nor before a segment that does not continue the one before it, unless the
//!   user allowed that; a standby tries again.
//! - The look-ahead never decides: each call makes sure of its own file.
//!
//! Leaves to others: the archive, and the checks of a segment (`longshore-wal`).

use std::path::Path;

use longshore_pg::SegmentName;
use longshore_pg::wal::WalName;
use longshore_wal::{Error, PgWal, WalArchive};
use serde::Serialize;

use super::ahead::{LookAheadSettings, start_ahead};
use crate::commands::archive::ArchiveLocation;
use crate::context::Context;
use crate::keys::lenient_keyring;
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
    let location = ArchiveLocation::of(&options.archive, context)?;
    let archive = location.existing(context)?;
    let archive = archive.with_keyring(&lenient_keyring(context, &options.keys)?);
    let archive = archive.with_tags(pg_wal.tag_key());
    pg_wal.check_system(&archive)?;
    let database = options.archive.database.as_deref();
    let wal = database.and_then(|name| context.config.wal_of(name));
    let LookAheadSettings { ahead, reach } = LookAheadSettings::of(
        &options.ahead,
        wal,
        wal.and_then(|wal| wal.prefetch),
        &location.path(),
    );
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
    let fetch = Fetch {
        pg_wal: &pg_wal,
        archive: &archive,
        to,
        options,
        context,
    };
    let found = fetch.file(segment)?;
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

/// One file on its way from the archive to pg_wal.
struct Fetch<'a> {
    pg_wal: &'a PgWal,
    archive: &'a WalArchive,
    /// The name in pg_wal that the server asked for.
    to: &'a str,
    options: &'a WalGet,
    context: &'a Context,
}

impl Fetch<'_> {
    /// Fetches the file and checks it; false if the server is to be told that there is none.
    fn file(&self, segment: Option<SegmentName>) -> Result<bool, Failure> {
        let (pg_wal, archive, to) = (self.pg_wal, self.archive, self.to);
        let (found, later) = self.taken()?;
        let Some(segment) = segment else {
            return Ok(found);
        };
        let found = match found {
            true => self.continues(segment)?,
            false => self.without(segment, later)?,
        };
        if found && !self.options.tablespaces_as_logged {
            pg_wal.check_tablespaces(archive, &*self.context.storage, segment, to)?;
        }
        Ok(found)
    }

    /// Takes the file; false if there certainly is none, with the first later segment. A file that was pushed between
    /// the request for it and the listing is asked for once more.
    fn taken(&self) -> Result<(bool, Option<SegmentName>), Error> {
        let (archive, name) = (self.archive, self.options.name);
        let clock = &*self.context.clock;
        let restore = self.options.restore.as_deref();
        let take = || match self.pg_wal.take(archive, name, self.to, restore, clock) {
            Err(Error::Missing { .. }) => Ok(false),
            done => done.map(|()| true),
        };
        if take()? {
            return Ok((true, None));
        }
        match archive.absent(name) {
            Err(hidden @ Error::Hidden { .. }) => match take()? {
                true => Ok((true, None)),
                false => Err(hidden),
            },
            later => Ok((false, later?)),
        }
    }

    /// Whether the segment continues the one before it.
    fn continues(&self, segment: SegmentName) -> Result<bool, Failure> {
        let archive = self.archive;
        match self.pg_wal.check_link(archive, segment, self.to) {
            Ok(()) => Ok(true),
            // The current segment may end within its first record, and so may one that was switched early.
            Err(_) if archive.is_unfinished(self.options.name).unwrap_or(false) => Ok(true),
            Err(broken) => {
                self.end_here(broken)?;
                Ok(false)
            }
        }
    }

    /// The archive has no such segment: the WAL ends here, or there is a gap before `later`. True if a partial segment was fetched.
    fn without(&self, segment: SegmentName, later: Option<SegmentName>) -> Result<bool, Failure> {
        if let Some(next) = later
            // A backup with its own WAL brought the segment along: the server looks there next.
            && !self.pg_wal.holds(self.archive, segment)
        {
            self.end_here(Error::Gap {
                name: self.options.name,
                next: WalName::Segment(next),
                archive: self.archive.path().to_owned(),
            })?;
            return Ok(false);
        }
        let clock = &*self.context.clock;
        match self.options.partial {
            true => Ok(self
                .pg_wal
                .take_partial(self.archive, segment, self.to, clock)?),
            false => Ok(false),
        }
    }

    /// Ends the recovery with an error, unless it may end before the gap. A standby retries, or asks its primary; files
    /// pushed in parallel arrive out of order.
    fn end_here(&self, why: Error) -> Result<(), Failure> {
        if !self.options.to_gap && !self.pg_wal.is_standby() {
            return Err(why.into());
        }
        self.context.output.warn(&why.to_string());
        Ok(())
    }
}
