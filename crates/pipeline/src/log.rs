//! A cluster's log as a source: whole segments from its archive, from where another set ends to now.
//!
//! The server closes the segment it writes to; what it has archived then is everything that was committed before. A set
//! is made only when all of it is there: a log set never has a gap in it, nor before it. It holds the segment before its
//! first one, too, by which a restore tells that it goes on from the set before.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_io::{Stat, Via};
use longshore_pg::client::Options;
use longshore_pg::lineage::Line;
use longshore_pg::wal::{History, WalName};
use longshore_pg::{Lineage, Lsn, SegmentName, Timeline, Witness};
use longshore_repository::wal::{self, Archived, WalArchive};
use longshore_source::{
    Change, ClosedLog, Content, Description, Entry, EntryKind, LogEnd, LogStart, Source,
    SourceKind, SourceSummary, Volume, close_log,
};
use parking_lot::Mutex;

use crate::request::{LogPlace, LogRequest};
use crate::{Error, House};

const WAL_DIR: &str = "pg_wal";
/// How often the archive is looked at while the server still hands over.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Decoded blocks of the segments that are read at a time.
const MEMORY_BYTES: u64 = 16 << 20;

/// The log between two places.
pub struct LogSource {
    description: Description,
    archive: Arc<WalArchive>,
    end: LogEnd,
    /// All that was committed before is in it, and a commit after it. Microseconds since the Unix epoch.
    pub begun_us: i64,
    waiting: Mutex<VecDeque<Waiting>>,
}

enum Waiting {
    Dir,
    File(WalName),
}

/// What the archive has for a request.
struct Found {
    archive: WalArchive,
    history: History,
    from: Lsn,
    /// The chain goes on elsewhere than it was asked to first.
    begins_anew: bool,
    /// Which of the places that were asked for it is; beyond them: the last one.
    chosen: usize,
}

impl LogSource {
    /// Has the server close its segment, and waits until the archive has all up to there.
    ///
    /// Errors: [`Error::LogBroken`] where the log does not go on from any of the places; [`Error::LogMissing`],
    /// [`Error::Archive`], [`Error::Cancelled`], and what the server refuses.
    pub fn open(
        house: &House,
        server: &Options,
        request: &LogRequest,
        database: String,
    ) -> Result<LogSource, Error> {
        // Nothing is asked of the server where nothing could come of it.
        WalArchive::open(&*house.storage, &request.archive)?;
        let here_us = house.now_us();
        let closed = close_log(&*house.storage, server)?;
        let Found {
            archive,
            history,
            from,
            begins_anew,
            chosen: _,
        } = go_on(house, request, &closed)?;
        prove(&archive, &history, (from, closed.end), &closed)?;
        let names = archive.segments(&history, joint(&archive, &history, from)?, closed.end)?;
        let mut notices = Vec::new();
        if begins_anew {
            notices.push(
                "not all log since the last log backup, or since the first full one, is in the archive: the log chain \
                 begins with a later full backup"
                    .to_owned(),
            );
        }
        if request.is_set_back {
            notices.push(
                "the last log backup ends behind a later full one: the server was set back between them. The log chain \
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
            memory_bytes: MEMORY_BYTES,
            differing: None,
            server_started_us: None,
            trees: Vec::new(),
            volumes: vec![Volume {
                path: archive.path().to_owned(),
            }],
            notices,
        };
        // A server looks for the histories before the segments.
        let timelines = history.forks().iter().map(|fork| fork.timeline);
        let timelines = timelines.chain([history.timeline()]);
        let histories = timelines
            .filter(|timeline| timeline.number() > 1)
            .map(WalName::History);
        let files = histories.chain(names.into_iter().map(WalName::Segment));
        let waiting = [Waiting::Dir].into_iter().chain(files.map(Waiting::File));
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

/// Where the files of a log set begin whose log begins at `from`: a segment before, where the archive has it. The set before
/// ends with that one, and of two branches only the content tells which of them goes on from which.
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

/// Where the log goes on from: of the places that were asked for none is taken that the archive has another branch's log
/// at. The history of backups may have learned of the sets of a copy.
fn go_on(house: &House, request: &LogRequest, closed: &ClosedLog) -> Result<Found, Error> {
    let mut request = request.clone();
    loop {
        let found = wait(house, &request, closed)?;
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

/// What is known of the branch: the timeline's history, and how its log ends. The archive's content is compared where it
/// is proved.
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
        (1, _) => Some(Line::first()),
        (_, history) => history
            .as_ref()
            .and_then(|text| Line::parse(closed.timeline, text).ok()),
    };
    Lineage {
        line,
        witness,
        ..Lineage::unrecorded(closed.system, closed.timeline, closed.end)
    }
}

/// Looks at the archive until it has all the log up to where it was closed.
fn wait(house: &House, request: &LogRequest, closed: &ClosedLog) -> Result<Found, Error> {
    let began = house.clock.now();
    loop {
        house.check_cancel()?;
        let is_late = house.clock.now() - began >= request.patience;
        match look(house, request, closed, is_late) {
            Ok(found) => return Ok(found),
            Err(Error::LogMissing { .. } | Error::Archive(wal::Error::Missing { .. }))
                if !is_late => {}
            // The first segment of all is on its way.
            Err(Error::Archive(wal::Error::NothingYet { .. })) if !is_late => {}
            Err(e) => return Err(e),
        }
        house.clock.sleep(LOOK_EVERY);
    }
}

/// Behind what the server's clock may be set while a transaction is committed.
const CLOCK_SLACK_US: i64 = 1_000_000;

/// Proves that the log which the archive has under the server's names is the server's: it leads without a break to the
/// transaction that was committed just now.
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

/// `is_late`: what has not come will not come any more.
fn look(
    house: &House,
    request: &LogRequest,
    closed: &ClosedLog,
    is_late: bool,
) -> Result<Found, Error> {
    let archive = WalArchive::existing(&*house.storage, &request.archive)?;
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
    // What is missing before the last place can be done without; what is missing behind it is waited for.
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
    Ok(Found {
        archive,
        history,
        from,
        begins_anew: i > 0,
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
            Some(Waiting::Dir) => {
                let io = |source| unreadable(self.archive.path(), source);
                let stat = self.archive.stat().map_err(io)?;
                return Ok(Some(entry(WAL_DIR.into(), EntryKind::Dir, &stat, DIR_MODE)));
            }
            Some(Waiting::File(name)) => name,
        };
        let file = self.archive.open_file(found).map_err(|e| self.refused(e))?;
        let path = Path::new(WAL_DIR).join(found.to_string());
        let len = file.plain_len();
        let stat = file.stat().clone();
        // Opened again when it is read: a set may have more of them than a process may have open.
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
            damaged: false,
            left_out: None,
            log: Some(self.end),
            complete_us: None,
        })
    }
}

impl LogSource {
    fn refused(&self, error: wal::Error) -> longshore_source::Error {
        unreadable(self.archive.path(), std::io::Error::other(error))
    }
}

/// As a server makes them.
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// With a mode of its own: the archive's is not that of a data directory.
fn entry(path: PathBuf, kind: EntryKind, stat: &Stat, mode: u32) -> Entry {
    Entry {
        mode,
        ..Entry::named(path, kind, stat)
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> longshore_source::Error {
    longshore_source::Error::Io {
        action: "read the log archive",
        path: path.to_owned(),
        source,
    }
}

/// One file of the log, checked as it is decoded.
struct Segment {
    archive: Arc<WalArchive>,
    name: WalName,
    open: Mutex<Option<Archived>>,
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
