//! Streaming: the log as it is written, not only when a segment is full.
//!
//! A receiver takes the place of archive_command, or stands beside it: it asks the server for its log through a
//! replication slot, keeps the segment that is being filled in `receiving/NAME.partial`, and pushes it into the archive
//! when it is full. At a promotion it fetches the history and goes on with the next timeline.
//!
//! Invariants
//! - The server is told that a place is flushed only when every byte before it is durable here: in the archive, or in
//!   the synced partial file. So a slot keeps what a crash here could lose.
//! - The archive itself says where to go on: behind its last segment, at the start of the one being filled. Those bytes
//!   are streamed once more; they are the same.
//! - Before anything is streamed the archive's last segment, and what stands in the partial file, are streamed once more
//!   and compared: a server that was set back has another log under the same names, and its place in the log may have
//!   passed the archive's end since. What cannot be compared is not gone on from.
//! - What the archive says of timelines is compared with the server's own histories before anything is streamed: a
//!   restored copy of the cluster may be on another timeline of the same number.
//! - One receiver works for an archive.
//!
//! Source: PostgreSQL 18 documentation, "Streaming Replication Protocol".

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_io::{Clock, Dir, File, OpenHow, Reservation, Storage, Via};
use longshore_pg::client::{self, Connection, Mode, Reply, Rows};
use longshore_pg::wal::{EPOCH_US, History, Records, WalName};
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};

use super::staged::Staged;
use super::waiting::{WAIT_MAX, wait};
use super::{Error, Form, Identity, Outgoing, Pushed, WalArchive};

/// Below the archive: the segment being filled.
const RECEIVING: &str = "receiving";
const LOCK: &str = "lock";
/// In it, where locks may not reach every receiver: the one at work.
const RESERVED: &str = "reserved";
/// The server has no file of this name.
const NO_SUCH_FILE: &str = "58P01";
/// How long the stream may be silent before what came is made durable.
const LULL: Duration = Duration::from_millis(100);

/// What is to be received, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The replication slot, which makes the server keep what was not received.
    pub slot: String,
    /// Make the slot if it is not there.
    pub create_slot: bool,
    pub form: Form,
    /// End when everything before this place is durable.
    pub until: Option<Lsn>,
    /// How often the server is told how far this is.
    pub status_every: Duration,
}

/// How far a receiver is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub timeline: Timeline,
    /// Everything before it is durable here.
    pub flushed: Lsn,
    /// Everything before it was written by the server, as far as it has told.
    pub server: Lsn,
    /// Segments pushed into the archive by this receiver.
    pub segments: u64,
}

/// What a receiver tells whoever watches.
#[derive(Debug)]
pub enum Event<'a> {
    Started(Progress),
    Status(Progress),
    Segment(SegmentName),
    History(Timeline),
    /// The archive has another file of this name already; it is kept.
    Kept(&'a Error),
    /// The archive lacks segments between these two. They are not received any more: the server was told that they were
    /// durable, and may have dropped them.
    Gap {
        after: SegmentName,
        before: SegmentName,
    },
}

/// Why receiving ended before it should.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error(transparent)]
    Archive(#[from] Error),

    #[error(transparent)]
    Server(#[from] client::Error),

    /// Another receiver works for the archive.
    #[error("another receiver works for {}", archive.display())]
    Taken { archive: PathBuf },

    /// The archive's last segment is not on the way to the server's timeline.
    #[error(
        "the archive {} ends on timeline {ours}, which does not lead to the server's timeline {theirs}", archive.display()
    )]
    Elsewhere {
        archive: PathBuf,
        ours: Timeline,
        theirs: Timeline,
    },

    /// The server's log ends before the archive's.
    #[error("the archive {} holds log up to {ours}, the server {address} only up to {theirs}", archive.display())]
    Behind {
        archive: PathBuf,
        address: String,
        ours: Lsn,
        theirs: Lsn,
    },

    /// The server sent what does not follow what it sent before.
    #[error("the server's stream is not understood: {what}")]
    Stream { what: String },
}

impl ReceiveError {
    /// Whether the same may go well a little later: the server is starting, stopping or away.
    pub fn may_pass(&self) -> bool {
        match self {
            ReceiveError::Server(e) => match e {
                client::Error::Connect { .. }
                | client::Error::Lost { .. }
                | client::Error::Timeout { .. } => true,
                // Operator intervention (57P01 to 57P05), and a slot that its last session still holds (55006).
                e => e
                    .sqlstate()
                    .is_some_and(|s| s.starts_with("57P") || s == "55006" || s == "53300"),
            },
            ReceiveError::Archive(_)
            | ReceiveError::Taken { .. }
            | ReceiveError::Elsewhere { .. }
            | ReceiveError::Behind { .. }
            | ReceiveError::Stream { .. } => false,
        }
    }

    /// What the operator can do now.
    pub fn hint(&self) -> &'static str {
        match self {
            ReceiveError::Archive(Error::BranchUnknown { .. }) | ReceiveError::Behind { .. } => {
                "was the server set back, or is it a copy? Then make an archive for it (`longshore wal create --archive NEW`), \
                 name NEW in the receiver's command and in the configuration, drop the slot, start with --create-slot, and make a \
                 full backup that is proved there. A standby that lags: start again when it has caught up"
            }
            ReceiveError::Archive(e) => e.hint(),
            // The file, or the slot's log, is gone.
            ReceiveError::Server(e) if matches!(e.sqlstate(), Some("58P01" | "55000")) => {
                "the server no longer has the log behind the archive's end. Drop the slot; then push the missing segments \
                 from wherever they are, or begin anew with another archive, --create-slot and a full backup"
            }
            ReceiveError::Server(e) => e.hint(),
            ReceiveError::Taken { .. } => "one receiver is enough; end the other first",
            ReceiveError::Elsewhere { .. } => {
                "the server was restored to a place before the archive's end, or is another branch: give it an archive of its own"
            }
            ReceiveError::Stream { .. } => {
                "is this a PostgreSQL server, without a pooler in between?"
            }
        }
    }
}

fn stream(what: impl Into<String>) -> ReceiveError {
    ReceiveError::Stream { what: what.into() }
}

/// Receives until `stop` is set, [`Plan::until`] is reached or something fails; gives how far it came.
pub fn receive(
    storage: &dyn Storage,
    clock: &dyn Clock,
    archive: &WalArchive,
    server: &client::Options,
    plan: &Plan,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<Progress, ReceiveError> {
    let place = Receiving::open(archive)?;
    let mut connection = Connection::open(storage, server, Mode::Replication)?;
    let mut receiver = Receiver::begin(archive, &mut connection, place, plan, clock, watch)?;
    while !receiver.is_done(plan, stop) {
        receiver.timeline(&mut connection, plan, stop, clock, watch)?;
    }
    Ok(receiver.progress())
}

/// The directory of the segment being filled, and the lock on it.
struct Receiving {
    dir: Arc<dyn Dir>,
    path: PathBuf,
    _lock: Arc<dyn File>,
    /// Where locks may not reach every receiver.
    _reserved: Option<Reservation>,
}

impl Receiving {
    fn open(archive: &WalArchive) -> Result<Receiving, ReceiveError> {
        let path = archive.path().join(RECEIVING);
        let io = |action| Error::io(action, path.clone());
        // Whoever made it before may have been killed before its name was durable.
        match archive.dir.create_dir(Path::new(RECEIVING)) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
        .and_then(|()| archive.dir.sync(Path::new("")))
        .map_err(io("create"))?;
        let dir = archive.dir.dir(Path::new(RECEIVING)).map_err(io("open"))?;
        let lock = match dir.open(Path::new(LOCK), OpenHow::CreateNew) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                dir.open(Path::new(LOCK), OpenHow::ReadWrite)
            }
            made => made,
        }
        .map_err(io("lock"))?;
        if !lock.try_lock().map_err(io("lock"))? {
            let archive = archive.path().to_owned();
            return Err(ReceiveError::Taken { archive });
        }
        let keeps_locks = dir.keeps_locks(Path::new(""));
        let reserved = match keeps_locks.map_err(io("look at"))? {
            true => None,
            false => {
                let reserved =
                    Reservation::take(&dir, Path::new(RESERVED)).map_err(io("reserve"))?;
                let taken = || ReceiveError::Taken {
                    archive: archive.path().to_owned(),
                };
                Some(reserved.ok_or_else(taken)?)
            }
        };
        Ok(Receiving {
            dir,
            path,
            _lock: lock,
            _reserved: reserved,
        })
    }

    /// The last segment that was being filled.
    fn last(&self) -> Result<Option<SegmentName>, Error> {
        let io = |e| Error::io("list", &self.path)(e);
        let mut last = None;
        for name in self.dir.list().map_err(io)? {
            let name = name.map_err(io)?;
            if let Some(Ok(WalName::Partial(segment))) = name.to_str().map(str::parse) {
                last = last.max(Some(segment));
            }
        }
        Ok(last)
    }

    /// Opens the segment's file, made as long as the segment and with its space reserved.
    fn fill(&self, name: SegmentName, size: SegmentSize) -> Result<Filling, Error> {
        let file_name = PathBuf::from(WalName::Partial(name).to_string());
        let path = self.path.join(&file_name);
        let file = match self.dir.open(&file_name, OpenHow::CreateNew) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.dir.open_own(&file_name, size.bytes())
            }
            made => made,
        }
        .map_err(Error::io("create", &path))?;
        file.allocate(0..size.bytes())
            .and_then(|()| file.set_len(size.bytes()))
            .and_then(|()| file.sync())
            .and_then(|()| self.dir.sync(Path::new("")))
            .map_err(Error::io("reserve", &path))?;
        Ok(Filling {
            name,
            file_name,
            path,
            file,
        })
    }
}

/// The segment being filled.
struct Filling {
    name: SegmentName,
    file_name: PathBuf,
    path: PathBuf,
    file: Arc<dyn File>,
}

/// Why bytes could not be compared.
enum CompareError {
    Archive(Error),
    Io(io::Error),
}

impl From<Error> for CompareError {
    fn from(error: Error) -> CompareError {
        CompareError::Archive(error)
    }
}

impl From<io::Error> for CompareError {
    fn from(error: io::Error) -> CompareError {
        CompareError::Io(error)
    }
}

/// What an earlier receiver left of the segment being filled, as far as its records go.
struct Begun {
    name: SegmentName,
    file: Arc<dyn File>,
    end: Lsn,
    /// The archive's segment before, where the records lead on from there.
    follows: Option<SegmentName>,
}

impl Begun {
    /// `None`: nothing on the server's way.
    fn look(
        archive: &WalArchive,
        receiving: &Receiving,
        history: &History,
        size: SegmentSize,
    ) -> Result<Option<Begun>, Error> {
        let Some(name) = receiving.last()? else {
            return Ok(None);
        };
        let start = name.start(size);
        let limit = match history.end_of(name.timeline) {
            Some(end) => end,
            None if name.timeline == history.timeline() => Lsn(u64::MAX),
            None => return Ok(None),
        };
        let file_name = WalName::Partial(name).to_string();
        let path = receiving.path.join(&file_name);
        let file = receiving.dir.open(Path::new(&file_name), OpenHow::Read);
        let file = file.map_err(Error::io("open", &path))?;
        let before = start.0.checked_sub(1).map(Lsn).map(|last| {
            let timeline = history.timeline_at(last);
            SegmentName::holding(timeline, last, size)
        });
        let before = before.filter(|before| {
            archive.identity().is_some()
                && matches!(archive.find(WalName::Segment(*before)), Ok(Some(_)))
        });
        let read = |at: Lsn, buf: &mut [u8]| match at.0.checked_sub(start.0) {
            Some(offset) if offset < size.bytes() => file.read_exact_at(buf, offset, Via::Cache),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        let (mut end, mut follows) = (start, None);
        if let Ok(records) = Records::of_segment(read, start) {
            let mut records = records.verifying();
            while let Ok(Some(_)) = records.next(limit, |_, _| false) {
                end = records.place();
            }
        }
        end = end.min(limit).min(name.next(size).start(size));
        if let Some(before) = before
            && end > start
            && archive.leads_to(before, start, read)?
        {
            follows = Some(before);
        }
        Ok(Some(Begun {
            name,
            file: file.clone(),
            end,
            follows,
        }))
    }
}

struct Receiver<'a> {
    archive: &'a WalArchive,
    receiving: Receiving,
    size: SegmentSize,
    timeline: Timeline,
    filling: Option<Filling>,
    /// The next byte to come.
    received: Lsn,
    flushed: Lsn,
    server: Lsn,
    segments: u64,
    told: Duration,
}

impl<'a> Receiver<'a> {
    /// Learns whose server this is, fetches missing histories, makes the slot, and finds where to go on.
    fn begin(
        archive: &'a WalArchive,
        connection: &mut Connection,
        receiving: Receiving,
        plan: &Plan,
        clock: &dyn Clock,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<Receiver<'a>, ReceiveError> {
        let row = connection.query("IDENTIFY_SYSTEM")?;
        let system: u64 = row.value(0, 0)?;
        let theirs = timeline(&row, 0, 1)?;
        let server: Lsn = row.value(0, 2)?;
        let size = segment_size(connection.query("SHOW wal_segment_size")?.text(0, 0)?)?;
        let identity = Identity {
            system,
            segment_size: size,
        };
        archive.check(identity, Path::new(connection.address()))?;
        let slot = quoted(&plan.slot);
        if plan.create_slot {
            let made = connection.query(&format!(
                "CREATE_REPLICATION_SLOT {slot} PHYSICAL RESERVE_WAL"
            ));
            match made {
                // It is there.
                Err(e) if e.sqlstate() == Some("42710") => {}
                made => {
                    made?;
                }
            }
        }
        let mut receiver = Receiver {
            archive,
            receiving,
            size,
            timeline: theirs,
            filling: None,
            received: server,
            flushed: server,
            server,
            segments: 0,
            told: Duration::ZERO,
        };
        let mut history = History::first(theirs);
        if theirs.number() > 1 {
            history = receiver.fetch_history(connection, plan, theirs, clock, watch)?;
            receiver.fetch_earlier(connection, plan, &history, clock, watch)?;
        }
        receiver.find_start(connection, &history, &slot, watch)?;
        receiver.compare(connection, &history, &slot)?;
        watch(Event::Started(receiver.progress()));
        Ok(receiver)
    }

    /// Behind the archive's last segment; where nothing was archived yet, at the slot's place or the server's end.
    fn find_start(
        &mut self,
        connection: &mut Connection,
        history: &History,
        slot: &str,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ReceiveError> {
        let runs = match self.archive.identity() {
            Some(_) => self.archive.runs()?,
            None => Vec::new(),
        };
        if let [.., before, last] = runs.as_slice()
            && before.span.last.timeline == last.span.first.timeline
        {
            let (after, before) = (before.span.last, last.span.first);
            watch(Event::Gap { after, before });
        }
        let stored = runs.last().map(|run| run.span.last.next(self.size));
        let begun = self.receiving.last()?;
        let mut start = match stored.max(begun) {
            Some(next) => {
                self.timeline = next.timeline;
                next.start(self.size)
            }
            None => self.slot_start(connection, slot)?,
        };
        // What is behind the end of a timeline is on the next one.
        while let Some(end) = history.end_of(self.timeline)
            && start >= end
        {
            let after = history.forks().iter().find(|f| f.timeline > self.timeline);
            self.timeline = after.map_or(history.timeline(), |f| f.timeline);
            start = self.segment_start(end);
        }
        if !history.passes(self.timeline, start) {
            return Err(ReceiveError::Elsewhere {
                archive: self.archive.path().to_owned(),
                ours: self.timeline,
                theirs: history.timeline(),
            });
        }
        (self.received, self.flushed) = (start, start);
        Ok(())
    }

    /// Proves that the server's log goes on where the archive ends.
    ///
    /// Errors: the archive's `OtherBranch`, `BranchUnknown`; `Behind`.
    fn compare(
        &mut self,
        connection: &mut Connection,
        history: &History,
        slot: &str,
    ) -> Result<(), ReceiveError> {
        let begun = Begun::look(self.archive, &self.receiving, history, self.size)?;
        let mut is_proved = begun.is_none();
        if let Some(begun) = &begun {
            let range = (begun.name.start(self.size), begun.end);
            let mut offset = 0;
            let same = self.streamed(connection, begun.name, range, &mut |bytes| {
                let mut own = vec![0; bytes.len()];
                begun.file.read_exact_at(&mut own, offset, Via::Cache)?;
                offset += bytes.len() as u64;
                Ok(own == bytes)
            })?;
            match same {
                Some(true) => is_proved = begun.end > range.0,
                Some(false) => return Err(self.other_branch(connection, begun.name)),
                // It drops what it says here below, too.
                None => {}
            }
        }
        let Some((name, end)) = self.newest(history)? else {
            return Ok(());
        };
        let start = name.start(self.size);
        let mut comparison = self.archive.comparison(name, end.0 - start.0)?;
        let same = self.streamed(connection, name, (start, end), &mut |bytes| {
            Ok(comparison.take(bytes)?)
        })?;
        match same {
            Some(true) => Ok(()),
            Some(false) => Err(self.other_branch(connection, name)),
            // What the partial file has follows the archive's last segment, and is the server's.
            None if is_proved && begun.is_some_and(|begun| begun.follows == Some(name)) => Ok(()),
            None if self.slot_told(connection, slot)? == Some(end) => Ok(()),
            None => {
                // What is to come may be gone as well: the server says so itself.
                if end < self.server {
                    let next = Lsn(end.0.saturating_add(1));
                    connection.stream_log(name.timeline, (end, next), &mut |_| false)?;
                }
                Err(Error::BranchUnknown {
                    archive: self.archive.path().to_owned(),
                    name,
                    what: "the server no longer has it, nor has the slot been told of its end",
                }
                .into())
            }
        }
    }

    fn other_branch(&self, connection: &Connection, name: SegmentName) -> ReceiveError {
        let (archive, path) = (self.archive.path().to_owned(), connection.address().into());
        Error::OtherBranch {
            archive,
            name,
            path,
        }
        .into()
    }

    /// The newest segment of the archive on the server's way, and how far it is on it.
    fn newest(&self, history: &History) -> Result<Option<(SegmentName, Lsn)>, Error> {
        if self.archive.identity().is_none() {
            return Ok(None);
        }
        let runs = self.archive.runs()?;
        let newest = runs.iter().rev().find_map(|run| {
            let timeline = run.span.last.timeline;
            let limit = match history.end_of(timeline) {
                Some(end) => end,
                None if timeline == history.timeline() => Lsn(u64::MAX),
                None => return None,
            };
            let last = Lsn(limit.0.checked_sub(1)?);
            let name = SegmentName::holding(timeline, last, self.size).min(run.span.last);
            (name >= run.span.first).then_some((name, limit))
        });
        let Some((name, limit)) = newest else {
            return Ok(None);
        };
        let end = self.archive.written_to(name)?.min(limit);
        Ok((end > name.start(self.size)).then_some((name, end)))
    }

    /// Has `same` judge the server's log of a segment; `None` where the server has it no longer.
    fn streamed(
        &self,
        connection: &mut Connection,
        name: SegmentName,
        (from, to): (Lsn, Lsn),
        same: &mut dyn FnMut(&[u8]) -> Result<bool, CompareError>,
    ) -> Result<Option<bool>, ReceiveError> {
        let there = to.min(self.server);
        let mut judged = Ok(true);
        if from < there {
            let mut sink = |bytes: &[u8]| {
                judged = same(bytes);
                matches!(judged, Ok(true))
            };
            match connection.stream_log(name.timeline, (from, there), &mut sink) {
                Err(e) if e.sqlstate() == Some(NO_SUCH_FILE) => return Ok(None),
                came => drop::<Lsn>(came?),
            }
        }
        let is_same = judged.map_err(|e| match e {
            CompareError::Archive(e) => e,
            CompareError::Io(e) => Error::io("read", &self.receiving.path)(e),
        })?;
        match is_same && there < to {
            false => Ok(Some(is_same)),
            true => Err(ReceiveError::Behind {
                archive: self.archive.path().to_owned(),
                address: connection.address().to_owned(),
                ours: to,
                theirs: self.server,
            }),
        }
    }

    /// The place that the slot was told of: only who received the log up to there tells it. Majors before 15 do not say.
    fn slot_told(
        &self,
        connection: &mut Connection,
        slot: &str,
    ) -> Result<Option<Lsn>, ReceiveError> {
        if connection.major()? < 15 {
            return Ok(None);
        }
        let row = connection.query(&format!("READ_REPLICATION_SLOT {slot}"))?;
        match row.bytes(0, 1) {
            Some(_) => Ok(Some(row.value(0, 1)?)),
            None => Ok(None),
        }
    }

    /// Where the slot holds the log, and on which timeline; majors before 15 do not tell, and slots that were never
    /// used do not hold any.
    fn slot_start(&mut self, connection: &mut Connection, slot: &str) -> Result<Lsn, ReceiveError> {
        if connection.major()? >= 15 {
            let row = connection.query(&format!("READ_REPLICATION_SLOT {slot}"))?;
            if row.bytes(0, 1).is_some() {
                if row.bytes(0, 2).is_some() {
                    self.timeline = timeline(&row, 0, 2)?;
                }
                return Ok(self.segment_start(row.value(0, 1)?));
            }
        }
        Ok(self.segment_start(self.server))
    }

    fn segment_start(&self, lsn: Lsn) -> Lsn {
        Lsn(lsn.0 / self.size.bytes() * self.size.bytes())
    }

    fn progress(&self) -> Progress {
        Progress {
            timeline: self.timeline,
            flushed: self.flushed,
            server: self.server,
            segments: self.segments,
        }
    }

    fn is_done(&self, plan: &Plan, stop: &AtomicBool) -> bool {
        stop.load(Ordering::Relaxed) || plan.until.is_some_and(|until| self.flushed >= until)
    }

    /// Streams one timeline, to its end or until this receiver is done.
    fn timeline(
        &mut self,
        connection: &mut Connection,
        plan: &Plan,
        stop: &AtomicBool,
        clock: &dyn Clock,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ReceiveError> {
        connection.start(&format!(
            "START_REPLICATION SLOT {} PHYSICAL {} TIMELINE {}",
            quoted(&plan.slot),
            self.received,
            self.timeline
        ))?;
        let mut next = None;
        let mut streaming = false;
        loop {
            let reply = match streaming {
                true => connection.reply_within(LULL),
                false => connection.reply(),
            };
            match reply {
                Err(client::Error::Timeout { .. }) if streaming => {
                    self.flush()?;
                    self.tell(connection, plan, clock, false, watch)?;
                }
                Err(e) => return Err(e.into()),
                Ok(Some(Reply::CopyBoth)) => {
                    streaming = true;
                    self.tell(connection, plan, clock, true, watch)?;
                }
                Ok(Some(Reply::Data(bytes))) => {
                    let reply_now = self.take(&bytes, plan, clock, watch)?;
                    if reply_now {
                        self.flush()?;
                    }
                    self.tell(connection, plan, clock, reply_now, watch)?;
                }
                Ok(Some(Reply::CopyDone)) if streaming => {
                    // The timeline has no more; what follows says where the next begins.
                    streaming = false;
                    self.flush()?;
                    self.tell(connection, plan, clock, true, watch)?;
                    connection.put_copy_done()?;
                }
                Ok(Some(Reply::Rows(rows))) if !rows.is_empty() => {
                    next = Some((timeline(&rows, 0, 0)?, rows.value::<Lsn>(0, 1)?));
                }
                Ok(Some(Reply::Rows(_) | Reply::Complete(_) | Reply::CopyDone)) => {}
                Ok(Some(Reply::CopyOut | Reply::CopyIn)) => {
                    return Err(stream("it wants to copy one way"));
                }
                Ok(None) => break,
            }
            let done = plan.until.is_some_and(|until| self.received >= until);
            if streaming && (done || stop.load(Ordering::Relaxed)) {
                self.flush()?;
                self.tell(connection, plan, clock, true, watch)?;
                // The server may be in the middle of a message to a reader that is slow; dropping the session is enough.
                return Ok(());
            }
        }
        let (timeline, begin) =
            next.ok_or_else(|| stream("the timeline ended without a next one"))?;
        self.switch(connection, plan, timeline, begin, clock, watch)
    }

    /// One message of the stream; gives whether the server wants an answer.
    fn take(
        &mut self,
        bytes: &[u8],
        plan: &Plan,
        clock: &dyn Clock,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<bool, ReceiveError> {
        let number = |at: usize| {
            let field = bytes.get(at..).and_then(|b| b.first_chunk::<8>());
            field
                .map(|b| u64::from_be_bytes(*b))
                .ok_or_else(|| stream("a message ends early"))
        };
        match bytes.first() {
            Some(b'w') => {
                let start = Lsn(number(1)?);
                self.server = self.server.max(Lsn(number(9)?));
                let log = bytes
                    .get(25..)
                    .ok_or_else(|| stream("a message ends early"))?;
                if start != self.received {
                    return Err(stream(format!(
                        "{start} came where {} was due",
                        self.received
                    )));
                }
                self.write(log, plan, clock, watch)?;
                Ok(false)
            }
            Some(b'k') => {
                self.server = self.server.max(Lsn(number(1)?));
                Ok(bytes.get(17) == Some(&1))
            }
            _ => Err(stream("a message of another kind")),
        }
    }

    /// Writes log to the segments it belongs to; those that are full go into the archive.
    fn write(
        &mut self,
        mut log: &[u8],
        plan: &Plan,
        clock: &dyn Clock,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ReceiveError> {
        while !log.is_empty() {
            let offset = self.received.0 % self.size.bytes();
            let filling = match self.filling.take() {
                Some(filling) => filling,
                None => {
                    let name = SegmentName::holding(self.timeline, self.received, self.size);
                    self.receiving.fill(name, self.size)?
                }
            };
            let room = (self.size.bytes() - offset) as usize;
            let (now, later) = log.split_at(log.len().min(room));
            filling
                .file
                .write_all_at(now, offset, Via::Cache)
                .map_err(Error::io("write", &filling.path))?;
            let behind = self.received.0.checked_add(now.len() as u64);
            let behind = behind.ok_or_else(|| stream("log behind the last place there can be"))?;
            self.received = Lsn(behind);
            log = later;
            if self.received.0.is_multiple_of(self.size.bytes()) {
                self.archive_full(&filling, plan, clock)?;
                self.flushed = self.received;
                self.segments += 1;
                watch(Event::Segment(filling.name));
            } else {
                self.filling = Some(filling);
            }
        }
        Ok(())
    }

    /// A full segment goes into the archive; then its partial file is not needed any more.
    fn archive_full(&self, filling: &Filling, plan: &Plan, clock: &dyn Clock) -> Result<(), Error> {
        let out = Outgoing {
            name: WalName::Segment(filling.name),
            path: filling.path.clone(),
            file: filling.file.clone(),
            system: None,
            history: None,
            beside: None,
        };
        self.archive.push(&out, &plan.form, clock)?;
        self.remove(filling)
    }

    fn remove(&self, filling: &Filling) -> Result<(), Error> {
        self.receiving
            .dir
            .remove_file(&filling.file_name)
            .map_err(Error::io("remove", &filling.path))
    }

    /// Makes what came durable.
    fn flush(&mut self) -> Result<(), Error> {
        if let Some(filling) = &self.filling
            && self.flushed < self.received
        {
            filling
                .file
                .sync()
                .map_err(Error::io("sync", &filling.path))?;
            self.flushed = self.received;
        }
        Ok(())
    }

    /// Tells the server how far this is, when it is time.
    fn tell(
        &mut self,
        connection: &mut Connection,
        plan: &Plan,
        clock: &dyn Clock,
        now: bool,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ReceiveError> {
        let time = clock.now();
        if !now && time.saturating_sub(self.told) < plan.status_every {
            return Ok(());
        }
        self.flush()?;
        self.told = time;
        let sent_us = clock.wall_ns() / 1000 - EPOCH_US;
        let mut message = vec![b'r'];
        for lsn in [self.received, self.flushed, Lsn(0)] {
            message.extend_from_slice(&lsn.0.to_be_bytes());
        }
        message.extend_from_slice(&sent_us.to_be_bytes());
        message.push(0);
        connection.put_copy_data(&message)?;
        if !now {
            watch(Event::Status(self.progress()));
        }
        Ok(())
    }

    /// Leaves a timeline: its last, unfinished segment is archived as what it is, and the next begins with a copy of it.
    fn switch(
        &mut self,
        connection: &mut Connection,
        plan: &Plan,
        next: Timeline,
        begin: Lsn,
        clock: &dyn Clock,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ReceiveError> {
        if next <= self.timeline {
            return Err(stream(format!(
                "timeline {next} came after {}",
                self.timeline
            )));
        }
        self.fetch_history(connection, plan, next, clock, watch)?;
        if let Some(filling) = self.filling.take() {
            let out = Outgoing {
                name: WalName::Partial(filling.name),
                path: filling.path.clone(),
                file: filling.file.clone(),
                system: None,
                history: None,
                beside: None,
            };
            match self.archive.push(&out, &plan.form, clock) {
                // The server's own archive_command may have stored it, with other bytes behind the end.
                Err(kept @ Error::OtherContent { .. }) => watch(Event::Kept(&kept)),
                pushed => drop::<Pushed>(pushed?),
            }
            self.remove(&filling)?;
        }
        self.timeline = next;
        self.received = self.segment_start(begin);
        self.flushed = self.received;
        Ok(())
    }

    /// Fetches the histories of the timelines before the server's. A server may lack them: it does not need them; what
    /// the archive has of them must lead the same way then.
    fn fetch_earlier(
        &self,
        connection: &mut Connection,
        plan: &Plan,
        history: &History,
        clock: &dyn Clock,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ReceiveError> {
        let forks = history.forks().iter().enumerate();
        for (before, fork) in forks.filter(|(_, fork)| fork.timeline.number() > 1) {
            match self.fetch_history(connection, plan, fork.timeline, clock, watch) {
                Err(ReceiveError::Server(e)) if e.sqlstate() == Some(NO_SUCH_FILE) => {}
                fetched => {
                    fetched?;
                    continue;
                }
            }
            match self.archive.history(fork.timeline) {
                Err(Error::Missing { .. }) => {}
                found => {
                    if found?.forks() != &history.forks()[..before] {
                        return Err(ReceiveError::Elsewhere {
                            archive: self.archive.path().to_owned(),
                            ours: fork.timeline,
                            theirs: history.timeline(),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// The server's history of a timeline; into the archive, which may have no other.
    ///
    /// Errors: the archive's `OtherContent` when it has another.
    fn fetch_history(
        &self,
        connection: &mut Connection,
        plan: &Plan,
        timeline: Timeline,
        clock: &dyn Clock,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<History, ReceiveError> {
        let rows = connection.query(&format!("TIMELINE_HISTORY {timeline}"))?;
        let content = rows.bytes(0, 1).ok_or_else(|| stream("an empty history"))?;
        let name = WalName::History(timeline);
        let path = self.receiving.path.join(name.to_string());
        let io = |e| Error::io("write", &path)(e);
        let staged = Staged::begin(self.receiving.dir.clone(), &name.to_string()).map_err(io)?;
        // One receiver works here: an abandoned file was removed just now, and the second try finds nobody.
        let staged = match staged {
            Some(staged) => Some(staged),
            None => Staged::begin(self.receiving.dir.clone(), &name.to_string()).map_err(io)?,
        };
        let staged = staged.ok_or_else(|| ReceiveError::Taken {
            archive: self.archive.path().to_owned(),
        })?;
        staged
            .file
            .write_all_at(content, 0, Via::Cache)
            .map_err(io)?;
        let out = Outgoing {
            name,
            path: path.clone(),
            file: staged.file.clone(),
            system: None,
            history: None,
            beside: None,
        };
        if let Pushed::Stored { .. } = self.archive.push(&out, &plan.form, clock)? {
            watch(Event::History(timeline));
        }
        Ok(self.archive.history(timeline)?)
    }
}

fn timeline(rows: &Rows, row: usize, column: usize) -> Result<Timeline, ReceiveError> {
    Timeline::new(rows.value(row, column)?).ok_or_else(|| stream("timeline 0"))
}

/// A name in a replication command.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A setting as the server shows it: `16MB`, `1GB`.
fn segment_size(text: &str) -> Result<SegmentSize, ReceiveError> {
    let units = [("MB", 20), ("GB", 30), ("kB", 10), ("B", 0)];
    units
        .iter()
        .find_map(|(unit, shift)| {
            let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
            SegmentSize::new(number.checked_mul(1 << shift)?)
        })
        .ok_or_else(|| stream(format!("wal_segment_size is {text:?}")))
}

impl WalArchive {
    /// Writes the segment that a receiver is still filling to `to` in `dir`, zeros behind what came; `false` when none
    /// is. What it lacks the server has, if it still lives.
    pub fn fetch_partial(
        &self,
        name: SegmentName,
        dir: &Arc<dyn Dir>,
        path: &Path,
        to: &str,
        clock: &dyn Clock,
    ) -> Result<bool, Error> {
        let size = self.identified()?.segment_size;
        let partial = Path::new(RECEIVING).join(WalName::Partial(name).to_string());
        let from = self.path().join(&partial);
        let file = match self.dir.open(&partial, OpenHow::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(Error::io("open", &from))?,
        };
        let target = path.join(to);
        // What a killed one left is removed by the first look.
        let staged = wait(WAIT_MAX, WalName::Segment(name), clock, || {
            Staged::begin(dir.clone(), to).map_err(Error::io("create", &target))
        })?;
        let mut buffer = vec![0; 1 << 20];
        for offset in (0..size.bytes()).step_by(buffer.len()) {
            file.read_exact_at(&mut buffer, offset, Via::Cache)
                .map_err(Error::io("read", &from))?;
            staged
                .file
                .write_all_at(&buffer, offset, Via::Cache)
                .map_err(Error::io("write", &target))?;
        }
        staged
            .publish(Path::new(to))
            .map_err(Error::io("store", target))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use longshore_io::{SimClock, SimDisk};

    use super::*;

    /// Goal: a second receiver on another host, whose locks do not reach the first, is refused.
    #[test]
    fn receivers_whose_locks_do_not_meet_keep_out_of_each_others_archive() {
        let disk = SimDisk::new(1).set_keeps_locks(false);
        disk.write_file("/base/other", b"").unwrap();
        let (base, below) = (Path::new("/base"), Path::new("wal"));
        let archive = WalArchive::create(&disk, base, below, &SimClock::new(0)).unwrap();
        let reserved = Path::new("/base/wal/receiving").join(RESERVED);
        let ours = Receiving::open(&archive).unwrap();
        assert!(disk.read_file(&reserved).is_ok());
        drop(ours);
        assert!(disk.read_file(&reserved).is_err());
        // Another host's, touched just now.
        disk.write_file(&reserved, b"another-boot.1 7 0\n").unwrap();
        let refused = Receiving::open(&archive).err().unwrap();
        assert!(matches!(refused, ReceiveError::Taken { .. }), "{refused}");
    }

    #[test]
    fn settings_and_names_are_read_and_written_as_the_server_does() {
        assert_eq!(segment_size("16MB").unwrap().bytes(), 16 << 20);
        assert_eq!(segment_size("1GB").unwrap().bytes(), 1 << 30);
        assert!(segment_size("16").is_err() && segment_size("3MB").is_err());
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
