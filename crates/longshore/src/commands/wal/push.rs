//! `wal push`: one file into the archive.

use std::path::Path;

use longshore_pg::wal::WalName;
use longshore_repository::wal::{Error, Form, PgWal, Pushed, Reach, WalArchive};
use serde::Serialize;

use super::{Context, Place, Working, form, start_ahead};
use crate::failure::{Exit, Failure};
use crate::options::WalPush;
use crate::output::bytes;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    name: String,
    /// It was there before, with the same bytes.
    already: bool,
    stored_bytes: Option<u64>,
    /// Where this server left the segment's timeline: up to there it was there before, with the same bytes.
    left_at: Option<String>,
    /// Files that wait in pg_wal, this one included; only counted with --async.
    waiting: Option<usize>,
}

pub fn run(options: &WalPush, context: &Context) -> Result<Exit, Failure> {
    let (parent, file) = (options.file.parent(), options.file.file_name());
    let file = Path::new(file.unwrap_or_default());
    let bad_name = || Error::BadName {
        name: file.to_string_lossy().into_owned(),
    };
    let name: WalName = file
        .to_str()
        .and_then(|f| f.parse().ok())
        .ok_or_else(bad_name)?;
    let pg_wal = PgWal::open(&*context.storage, parent.unwrap_or(Path::new("")))?;
    let archive = Place::of(&options.archive, context)?.open(context)?;
    let database = options.archive.database.as_deref();
    let asked = (options.algorithm, options.level);
    let form = Form {
        verify: options.verify,
        ..form(asked, database, context)
    };
    let wal = database.and_then(|name| context.config.wal_of(name));
    let working = Working::of(&options.ahead, wal, wal.and_then(|wal| wal.queue_max));
    let clock = &*context.clock;
    if options.ahead.only_ahead {
        if let Some(turn) = pg_wal.turn_to_push()? {
            pg_wal.push_ahead(&turn, &archive, &form, working.reach, clock)?;
        }
        return Ok(Exit::Done);
    }
    let new = archive.identity().is_none();
    let waiting = match working.ahead {
        false => None,
        true => Some(work_ahead(&pg_wal, &archive, name, working.reach, context)?),
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
    if let Pushed::Stored {
        unfinished: true, ..
    } = pushed
    {
        context.output.warn(&format!(
            "{name} was handed over before it was full: its last page is left over from its former use"
        ));
    }
    let left_at = match pushed {
        Pushed::LeftAt(fork) => Some(fork.to_string()),
        Pushed::Already | Pushed::Stored { .. } => None,
    };
    if let Some(fork) = &left_at {
        context.output.warn(&format!(
            "{name}: the archive keeps the segment of the server that went on in it. This server left the timeline at {fork}, \
             and up to there both are the same"
        ));
    }
    let (already, stored_bytes) = match pushed {
        Pushed::Already | Pushed::LeftAt(_) => (true, None),
        Pushed::Stored { stored_bytes, .. } => (false, Some(stored_bytes)),
    };
    context.output.json(
        Exit::Done,
        Answer {
            action: "wal_push",
            name: name.to_string(),
            already,
            stored_bytes,
            left_at,
            waiting,
        },
    );
    Ok(Exit::Done)
}

/// Starts the look-ahead if there is work for one and none runs; says how many files wait.
fn work_ahead(
    pg_wal: &PgWal,
    archive: &WalArchive,
    own: WalName,
    reach: Reach,
    context: &Context,
) -> Result<usize, Failure> {
    let ready = pg_wal.ready()?;
    let segment = archive.identity().map_or(0, |i| i.segment_size.bytes());
    let waiting = segment * ready.iter().filter(|n| n.holds_log()).count() as u64;
    if waiting > reach.bytes_max {
        // All that waits counts, also what is in the archive by now: none of it can be recycled before.
        context.output.warn(&format!(
            "{} files with {} of log wait in pg_wal, more than --queue-max {}; nothing is dropped, and the server \
             stops when its disk is full",
            ready.len(),
            bytes(waiting),
            bytes(reach.bytes_max),
        ));
    }
    let has_work = pg_wal.has_work_ahead(archive, &ready, own, reach);
    if has_work && pg_wal.turn_to_push()?.is_some() {
        start_ahead(context);
    }
    Ok(ready.len())
}
