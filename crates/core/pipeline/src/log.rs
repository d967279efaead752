//! A cluster's WAL as a source: whole segments from its archive, from the end of another set up to now.
//!
//! The server closes its current segment; after that segment is archived, the archive has everything committed before.
//!
//! Invariants
//! - A set is made only if all of that WAL is there: a log set has no gap inside, nor before it.
//! - A log set also stores the segment before its first one, which proves to a restore that it continues the previous
//!   set.
//!
//! Leaves to others: the archive's files (`longshore-wal`), and the WAL that one backup needs (`archived.rs`).

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_io::{Stat, Via};
use longshore_pg::client::Options;
use longshore_pg::lineage::TimelineHistory;
use longshore_pg::wal::{History, WalName};
use longshore_pg::{Lineage, Lsn, SegmentName, Timeline, Witness};
use longshore_source::{
    Change, ClosedLog, Content, Description, Entry, EntryKind, LogEnd, LogStart, Source,
    SourceKind, SourceSummary, Volume, close_log,
};
use longshore_wal::{self as wal, ArchiveReader, WalArchive};
use parking_lot::Mutex;

use crate::request::{LogPlace, LogRequest};
use crate::{Error, RunContext, archived};

const WAL_DIR: &str = "pg_wal";
/// How often the archive is checked while the server still archives.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Memory for decoded blocks of the segments that are read at a time.
const MEMORY_BYTES: u64 = 16 << 20;

/// The WAL between two LSNs.
pub struct LogSource {
    description: Description,
    archive: Arc<WalArchive>,
    end: LogEnd,
    /// The set contains everything committed before this time, and one later commit. Microseconds since the Unix
    /// epoch.
    pub begun_us: i64,
    waiting: Mutex<VecDeque<ArchiveWait>>,
}

enum ArchiveWait {
    Dir,
    File(WalName),
}

/// The archive's WAL for a request.
struct ArchivedLog {
    archive: WalArchive,
    history: History,
    from: Lsn,
    /// Whether the chain continues from an LSN other than the first one requested.
    skips_first: bool,
    /// Index of the chosen LSN among those requested; an index after the end means the last one.
    chosen: usize,
}

impl LogSource {
    /// Makes the server close its segment, and waits until the archive has all WAL up to there.
    ///
    /// Errors: [`Error::LogBroken`] if the WAL does not continue from any of the requested LSNs; [`Error::LogMissing`],
    /// [`Error::Archive`], [`Error::Cancelled`], and errors from the server.
    pub fn open(
        context: &RunContext,
        server: &Options,
        request: &LogRequest,
        database: String,
    ) -> Result<LogSource, Error> {
        // The server is not contacted if the archive cannot be used.
        archived::open(context, &request.archive)?;
        let here_us = context.now_us();
        let closed = close_log(&*context.storage, server)?;
        let ArchivedLog {
            archive,
            history,
            from,
            skips_first,
            chosen: _,
        } = go_on(context, request, &closed)?;
        prove(&archive, &history, (from, closed.end), &closed)?;
        let names = archive.segments(&history, joint(&archive, &history, from)?, closed.end)?;
        let mut notices = Vec::new();
        if skips_first {
            notices.push(
                "the archive does not have all WAL since the last log backup or the first full backup: the log chain \
                 begins with a later full backup"
                    .to_owned(),
            );
        }
        if request.is_set_back {
            notices.push(
                "the last log backup ends after a later full backup: the server was set back between them. The log chain \
                 begins with that full backup"
                    .to_owned(),
            );
        }
        let size = archive.identity().map_or(0, |i| i.segment_size.bytes());
        let description = Description {
            kind: SourceKind::Postgres,
            database,
            log: Some(LogStart {
                system: closed.system,
                timeline: history.timeline_at(from),
                first: from,
            }),
            lineage: Some(lineage(&closed, &archive, &history)),
            history: closed.history,
            own_log: None,
            page_bytes: 0,
            expected_bytes: Some(names.len() as u64 * size),
            about_bytes: None,
            memory_bytes: MEMORY_BYTES,
            differing: None,
            layouts: None,
            server_started_us: None,
            trees: Vec::new(),
            volumes: vec![Volume {
                path: archive.path().to_owned(),
            }],
            notices,
        };
        // A server reads the histories before the segments.
        let timelines = history.forks().iter().map(|fork| fork.timeline);
        let timelines = timelines.chain([history.timeline()]);
        let histories = timelines
            .filter(|timeline| timeline.number() > 1)
            .map(WalName::History);
        let files = histories.chain(names.into_iter().map(WalName::Segment));
        let waiting = [ArchiveWait::Dir]
            .into_iter()
            .chain(files.map(ArchiveWait::File));
        Ok(LogSource {
            description,
            archive: Arc::new(archive),
            end: LogEnd {
                timeline: closed.timeline,
                last: closed.end,
                included: true,
                is_marked: false,
            },
            begun_us: here_us.min(closed.at_us),
            waiting: Mutex::new(waiting.collect()),
        })
    }
}

/// The start of the segments in a log set whose WAL begins at `from`: one segment earlier, if the archive has it. The
/// previous set ends with that segment, and only its content shows which of two branches continues the other.
fn joint(archive: &WalArchive, history: &History, from: Lsn) -> Result<Lsn, Error> {
    let size = archive.identity().map_or(0, |i| i.segment_size.bytes());
    let Some(before) = from.0.checked_sub(size).map(Lsn) else {
        return Ok(from);
    };
    match archive.missing(history, before, from)?.is_empty() {
        true => Ok(before),
        false => Ok(from),
    }
}

/// The LSN from which the WAL continues: a requested LSN is skipped if the archive has another branch's WAL there. The history of
/// backups may contain the sets of a copy.
fn go_on(
    context: &RunContext,
    request: &LogRequest,
    closed: &ClosedLog,
) -> Result<ArchivedLog, Error> {
    let mut request = request.clone();
    loop {
        let found = wait(context, &request, closed)?;
        let Some(place) = request.since.get(found.chosen) else {
            return Ok(found);
        };
        let lineage = Lineage::decode(&place.lineage);
        let witness = lineage
            .as_ref()
            .and_then(|lineage| lineage.witness.as_ref());
        match found.archive.check_witness(witness) {
            Ok(()) => return Ok(found),
            Err(_) => drop(request.since.remove(found.chosen)),
        }
    }
}

/// What is known about the branch: the timeline's history, and the end of its WAL. `prove` compares the archive's
/// content.
fn lineage(closed: &ClosedLog, archive: &WalArchive, history: &History) -> Lineage {
    let last = Lsn(closed.end.0.saturating_sub(1));
    let timeline = history.timeline_at(last);
    let witness = archive.identity().and_then(|identity| {
        let size = identity.segment_size;
        let segment = SegmentName::holding(timeline, last, size).start(size);
        let mut read = archive.wal_reader();
        Witness::of_end(|at, buf| read(timeline, at, buf), timeline, segment, size)
    });
    let line = match (closed.timeline.number(), &closed.history) {
        (1, _) => Some(TimelineHistory::first()),
        (_, history) => history
            .as_ref()
            .and_then(|text| TimelineHistory::parse(closed.timeline, text).ok()),
    };
    Lineage {
        line,
        witness,
        ..Lineage::unrecorded(closed.system, closed.timeline, closed.end)
    }
}

/// Checks the archive until it has all WAL up to the closed segment.
fn wait(
    context: &RunContext,
    request: &LogRequest,
    closed: &ClosedLog,
) -> Result<ArchivedLog, Error> {
    let began = context.clock.now();
    loop {
        context.check_cancel()?;
        let is_late = context.clock.now() - began >= request.patience;
        match look(context, request, closed, is_late) {
            Ok(found) => return Ok(found),
            Err(Error::LogMissing { .. } | Error::Archive(wal::Error::Missing { .. }))
                if !is_late => {}
            // The archive's first segment is still to come.
            Err(Error::Archive(wal::Error::NothingYet { .. })) if !is_late => {}
            Err(e) => return Err(e),
        }
        context.clock.sleep(LOOK_EVERY);
    }
}

/// How far the server's clock may be adjusted while a transaction commits.
const CLOCK_SLACK_US: i64 = 1_000_000;

/// Proves that the archived WAL is the server's: it leads without a gap to the transaction that was committed just
/// now.
fn prove(
    archive: &WalArchive,
    history: &History,
    (from, end): (Lsn, Lsn),
    closed: &ClosedLog,
) -> Result<(), Error> {
    archive.check_links(history, from, end)?;
    let ended = archive.end_of_transaction(history, end, closed.transaction)?;
    let window = closed.at_us - CLOCK_SLACK_US..=closed.by_us + CLOCK_SLACK_US;
    if ended.is_some_and(|ended| window.contains(&ended)) {
        return Ok(());
    }
    let last = archive.segments(history, Lsn(end.0.saturating_sub(1)), end)?;
    let name = last.last().copied();
    Err(Error::Archive(match name {
        Some(name) => wal::Error::OtherBranch {
            archive: archive.path().to_owned(),
            name,
            path: "the server".into(),
        },
        None => wal::Error::NothingYet {
            path: archive.path().to_owned(),
        },
    }))
}

/// `is_late`: segments that have not arrived will never arrive.
fn look(
    context: &RunContext,
    request: &LogRequest,
    closed: &ClosedLog,
    is_late: bool,
) -> Result<ArchivedLog, Error> {
    let archive = archived::existing(context, &request.archive)?;
    let Some(identity) = archive.identity() else {
        return Err(Error::Archive(wal::Error::NothingYet {
            path: request.archive.clone(),
        }));
    };
    if identity.system != closed.system {
        return Err(Error::Archive(wal::Error::OtherCluster {
            path: "the server".into(),
            archive: request.archive.clone(),
            expected: identity.system,
            found: closed.system,
        }));
    }
    let history = archive.history(closed.timeline)?;
    if let Some(theirs) = &closed.history {
        archive.check_history(closed.timeline, theirs, Path::new("the server"))?;
    }
    let size = identity.segment_size.bytes();
    let floor = |lsn: u64| Lsn(lsn / size * size);
    let fits = |place: &&LogPlace| {
        let timeline = Timeline::new(place.timeline);
        let passes = timeline.is_some_and(|t| history.passes(t, Lsn(place.lsn)));
        place.system == closed.system && passes && floor(place.lsn) < closed.end
    };
    let mut places: Vec<(usize, Lsn)> = Vec::new();
    for (i, place) in request.since.iter().enumerate() {
        if fits(&place) {
            places.push((i, floor(place.lsn)));
        }
    }
    let Some((_, last)) = places.last().copied() else {
        return Err(Error::LogBroken {
            timeline: closed.timeline.number(),
            end: closed.end,
        });
    };
    // WAL missing before the last LSN is not needed if the chain continues there; WAL missing after it is waited
    // for.
    let whole = |from: Lsn| -> Result<bool, Error> {
        Ok(from >= last || archive.missing(&history, from, last)?.is_empty())
    };
    let mut chosen = None;
    for (i, from) in &places {
        if !is_late || whole(*from)? {
            chosen = Some((*i, *from));
            break;
        }
    }
    let (i, from) = chosen.unwrap_or((request.since.len(), last));
    let missing = archive.missing(&history, from, closed.end)?;
    if let Some(first) = missing.first() {
        return Err(Error::LogMissing {
            archive: request.archive.clone(),
            segment: first.first.to_string(),
            count: missing.iter().map(|span| span.segments).sum(),
            waited_s: request.patience.as_secs(),
        });
    }
    Ok(ArchivedLog {
        archive,
        history,
        from,
        skips_first: i > 0,
        chosen: i,
    })
}

impl Source for LogSource {
    fn description(&self) -> &Description {
        &self.description
    }

    fn next(&self, volume: usize) -> Result<Option<Entry>, longshore_source::Error> {
        if volume != 0 {
            return Ok(None);
        }
        let next = self.waiting.lock().pop_front();
        let found = match next {
            None => return Ok(None),
            Some(ArchiveWait::Dir) => {
                let io = |source| unreadable(self.archive.path(), source);
                let stat = self.archive.stat().map_err(io)?;
                return Ok(Some(entry(WAL_DIR.into(), EntryKind::Dir, &stat, DIR_MODE)));
            }
            Some(ArchiveWait::File(name)) => name,
        };
        let file = self.archive.open_file(found).map_err(|e| self.refused(e))?;
        let path = Path::new(WAL_DIR).join(found.to_string());
        let len = file.plain_len();
        let stat = file.stat().clone();
        // Opened again when it is read: a set may have more segments than a process may have open.
        drop(file);
        let content = Segment {
            archive: self.archive.clone(),
            name: found,
            open: Mutex::default(),
        };
        Ok(Some(Entry {
            len,
            content: (len > 0).then(|| Arc::new(content) as Arc<dyn Content>),
            ..entry(path, EntryKind::File, &stat, FILE_MODE)
        }))
    }

    fn finish(self: Box<Self>) -> Result<SourceSummary, longshore_source::Error> {
        Ok(SourceSummary {
            warnings: Vec::new(),
            notes: Vec::new(),
            damaged: false,
            left_out: None,
            vanished: None,
            log: Some(self.end),
            complete_us: None,
            standby: None,
        })
    }
}

impl LogSource {
    fn refused(&self, error: wal::Error) -> longshore_source::Error {
        unreadable(self.archive.path(), std::io::Error::other(error))
    }
}

/// The mode that a server uses.
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// With a mode for a data directory; the archive's may be different.
fn entry(path: PathBuf, kind: EntryKind, stat: &Stat, mode: u32) -> Entry {
    Entry {
        mode,
        ..Entry::named(path, kind, stat)
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> longshore_source::Error {
    longshore_source::Error::Io {
        action: "read the WAL archive",
        path: path.to_owned(),
        source,
    }
}

/// One WAL file, checked while it is decoded.
struct Segment {
    archive: Arc<WalArchive>,
    name: WalName,
    open: Mutex<Option<ArchiveReader>>,
}

impl Content for Segment {
    fn read_at(
        &self,
        buf: &mut [u8],
        offset: u64,
        _via: Via,
    ) -> Result<(), longshore_source::Error> {
        let refused = |e| unreadable(self.archive.path(), std::io::Error::other(e));
        let mut open = self.open.lock();
        let file = match &mut *open {
            Some(file) => file,
            none => none.insert(self.archive.open_file(self.name).map_err(refused)?),
        };
        file.read_at(buf, offset).map_err(refused)
    }

    fn is_cached(&self, _range: Range<u64>) -> bool {
        false
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, longshore_source::Error> {
        let refused = |e| unreadable(self.archive.path(), std::io::Error::other(e));
        let mut open = self.open.lock();
        let file = match &mut *open {
            Some(file) => file,
            none => none.insert(self.archive.open_file(self.name).map_err(refused)?),
        };
        let len = file.plain_len();
        Ok((offset < len).then_some(offset..len))
    }

    fn settle(&self) -> Result<Option<Change>, longshore_source::Error> {
        *self.open.lock() = None;
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
