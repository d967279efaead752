//! Streaming: receives WAL as it is written, not only when a segment is full.
//!
//! A receiver replaces archive_command, or runs in addition to it: it requests the server's WAL through a replication
//! slot, keeps the segment that is being filled in `receiving/NAME.partial`, and pushes it into the archive when it is
//! full. At a promotion it fetches the history and continues with the next timeline.
//!
//! Invariants
//! - An LSN is reported to the server as flushed only when every byte before it is durable here: in the archive, or in
//!   the synced partial file. So the slot keeps what a crash here could lose.
//! - The archive itself decides where to continue: after its last segment, at the start of the one being filled. Those
//!   bytes are streamed again; they are the same.
//! - Before anything new is streamed, the archive's last segment, and the contents of the partial file, are streamed
//!   again and compared: a server that was set back to an older copy of its files has other WAL under the same names,
//!   and its LSN may have passed the archive's end since. If they cannot be compared, the receiver does not continue.
//! - The archive's timelines are compared with the server's own histories before anything is streamed: a restored copy
//!   of the cluster may be on another timeline with the same number.
//! - Only one receiver works on an archive.
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

use super::staged::StagedFile;
use super::waiting::{WAIT_MAX, wait};
use super::{Error, Identity, Outgoing, PushResult, StorageForm, WalArchive};

/// Below the archive: the directory of the segment being filled.
const RECEIVING: &str = "receiving";
const LOCK: &str = "lock";
/// In that directory, where locks may not reach every receiver: the reservation of the active one.
const RESERVED: &str = "reserved";
/// The server has no file of this name.
const NO_SUCH_FILE: &str = "58P01";
/// How long the stream may be silent before received bytes are made durable.
const LULL: Duration = Duration::from_millis(100);

/// What to receive, and how.
#[derive(Debug, Clone)]
pub struct ReceivePlan {
    /// The replication slot, which makes the server keep WAL that was not received.
    pub slot: String,
    /// Create the slot if it does not exist.
    pub create_slot: bool,
    pub form: StorageForm,
    /// End when everything before this LSN is durable.
    pub until: Option<Lsn>,
    /// How often the progress is reported to the server.
    pub status_every: Duration,
}

/// The progress of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub timeline: Timeline,
    /// Everything before this LSN is durable here.
    pub flushed: Lsn,
    /// Everything before this LSN was written by the server, by its last report.
    pub server: Lsn,
    /// Segments pushed into the archive by this receiver.
    pub segments: u64,
}

/// Events for an observer.
#[derive(Debug)]
pub enum Event<'a> {
    Started(Progress),
    Status(Progress),
    Segment(SegmentName),
    History(Timeline),
    /// The archive already has another file with this name; it is kept.
    Kept(&'a Error),
    /// The archive lacks segments between these two. They will not be received: the server was told that they were
    /// durable, and may have removed them.
    Gap {
        after: SegmentName,
        before: SegmentName,
    },
}

/// Why receiving ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error(transparent)]
    Archive(#[from] Error),

    #[error(transparent)]
    Server(#[from] client::Error),

    /// Another receiver works on the archive.
    #[error("another receiver is running for {}", archive.display())]
    Taken { archive: PathBuf },

    /// The archive's last segment is not on the history of the server's timeline.
    #[error(
        "the archive {} ends on timeline {ours}, which does not lead to the server's timeline {theirs}", archive.display()
    )]
    Elsewhere {
        archive: PathBuf,
        ours: Timeline,
        theirs: Timeline,
    },

    /// The server's WAL ends before the archive's.
    #[error("the archive {} holds WAL up to {ours}, the server {address} only up to {theirs}", archive.display())]
    Behind {
        archive: PathBuf,
        address: String,
        ours: Lsn,
        theirs: Lsn,
    },

    /// The server sent bytes that do not follow those it sent before.
    #[error("the server's stream is not understood: {what}")]
    Stream { what: String },
}

impl ReceiveError {
    /// Whether the same may succeed a little later: the server is starting, stopping or unreachable.
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
                "if the server was set back or is a copy, create an archive for it (`longshore wal create --archive NEW`), name NEW \
                 in the receiver's command and in the configuration, drop the slot, start with --create-slot, and make a full backup \
                 with that archive. If it is a standby that lags, restart the receiver when it has caught up"
            }
            ReceiveError::Archive(e) => e.hint(),
            // The file, or the slot's WAL, is gone.
            ReceiveError::Server(e) if matches!(e.sqlstate(), Some("58P01" | "55000")) => {
                "the server no longer has the WAL after the archive's end. Drop the slot; then push the missing segments \
                 if they still exist, or start with a new archive, --create-slot and a full backup"
            }
            ReceiveError::Server(e) => e.hint(),
            ReceiveError::Taken { .. } => "stop the other receiver first; one is enough",
            ReceiveError::Elsewhere { .. } => {
                "the server was restored to an LSN before the archive's end, or is another branch: create a new archive for it (`longshore wal create`)"
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

/// Receives until `stop` is set, [`ReceivePlan::until`] is reached or an error occurs; returns the progress.
pub fn receive(
    storage: &dyn Storage,
    clock: &dyn Clock,
    archive: &WalArchive,
    server: &client::Options,
    plan: &ReceivePlan,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<Progress, ReceiveError> {
    let place = SegmentDirectory::open(archive)?;
    let mut connection = Connection::open(storage, server, Mode::Replication)?;
    let mut receiver = Receiver::begin(archive, &mut connection, place, plan, clock, watch)?;
    while !receiver.is_done(plan, stop) {
        receiver.timeline(&mut connection, plan, stop, clock, watch)?;
    }
    Ok(receiver.progress())
}

/// The directory of the segment being filled, and its lock.
struct SegmentDirectory {
    dir: Arc<dyn Dir>,
    path: PathBuf,
    _lock: Arc<dyn File>,
    /// Used where locks may not reach every receiver.
    _reserved: Option<Reservation>,
}

impl SegmentDirectory {
    fn open(archive: &WalArchive) -> Result<SegmentDirectory, ReceiveError> {
        let path = archive.path().join(RECEIVING);
        let io = |action| Error::io(action, path.clone());
        let Some(own) = archive.directory() else {
            let archive = archive.path().to_owned();
            return Err(Error::NotInBucket { archive }.into());
        };
        // The process that created it may have been killed before its name was durable.
        match own.create_dir(Path::new(RECEIVING)) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
        .and_then(|()| own.sync(Path::new("")))
        .map_err(io("create"))?;
        let dir = own.dir(Path::new(RECEIVING)).map_err(io("open"))?;
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
        Ok(SegmentDirectory {
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

    /// Opens the segment's file, created with the segment's length and with its space reserved.
    fn fill(&self, name: SegmentName, size: SegmentSize) -> Result<OpenSegment, Error> {
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
        Ok(OpenSegment {
            name,
            file_name,
            path,
            file,
        })
    }
}

/// The segment being filled.
struct OpenSegment {
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
    /// The archive's previous segment, if the records continue from it.
    follows: Option<SegmentName>,
}

impl Begun {
    /// `None` if there is nothing on the server's history.
    fn look(
        archive: &WalArchive,
        receiving: &SegmentDirectory,
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
    receiving: SegmentDirectory,
    size: SegmentSize,
    timeline: Timeline,
    filling: Option<OpenSegment>,
    /// The LSN of the next byte.
    received: Lsn,
    flushed: Lsn,
    server: Lsn,
    segments: u64,
    told: Duration,
}

impl<'a> Receiver<'a> {
    /// Identifies the server, fetches missing histories, creates the slot, and finds where to continue.
    fn begin(
        archive: &'a WalArchive,
        connection: &mut Connection,
        receiving: SegmentDirectory,
        plan: &ReceivePlan,
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
                // The slot already exists.
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

    /// The LSN after the archive's last segment; if nothing was archived yet, that of the slot or the server's end.
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
        // WAL after the end of a timeline is on the next one.
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

    /// Proves that the server's WAL continues where the archive ends.
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
                // The checks below cover this case.
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
            // The partial file continues the archive's last segment, and is the server's.
            None if is_proved && begun.is_some_and(|begun| begun.follows == Some(name)) => Ok(()),
            None if self.slot_told(connection, slot)? == Some(end) => Ok(()),
            None => {
                // Later WAL may be gone as well: then the server itself reports that.
                if end < self.server {
                    let next = Lsn(end.0.saturating_add(1));
                    connection.stream_log(name.timeline, (end, next), &mut |_| false)?;
                }
                Err(Error::BranchUnknown {
                    archive: self.archive.path().to_owned(),
                    name,
                    what: "the server no longer has it, and the slot does not know its end",
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

    /// The newest segment of the archive on the server's history, and the LSN up to which it belongs to it.
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

    /// Passes the server's WAL of a segment to `same`; `None` if the server no longer has it.
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

    /// The LSN that was reported to the slot: only a receiver of the WAL up to there reports it. Unknown before
    /// version 15.
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

    /// The LSN from which the slot holds WAL, with its timeline; unknown before version 15. A slot that was never used
    /// holds none.
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

    fn is_done(&self, plan: &ReceivePlan, stop: &AtomicBool) -> bool {
        stop.load(Ordering::Relaxed) || plan.until.is_some_and(|until| self.flushed >= until)
    }

    /// Streams one timeline, to its end or until this receiver is done.
    fn timeline(
        &mut self,
        connection: &mut Connection,
        plan: &ReceivePlan,
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
                    // The timeline has no more WAL; the following rows say where the next one begins.
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
                    return Err(stream("it asks for a one-way copy"));
                }
                Ok(None) => break,
            }
            let done = plan.until.is_some_and(|until| self.received >= until);
            if streaming && (done || stop.load(Ordering::Relaxed)) {
                self.flush()?;
                self.tell(connection, plan, clock, true, watch)?;
                // The server may be in the middle of sending to a slow reader; dropping the session is enough.
                return Ok(());
            }
        }
        let (timeline, begin) =
            next.ok_or_else(|| stream("the timeline ended without a next one"))?;
        self.switch(connection, plan, timeline, begin, clock, watch)
    }

    /// Handles one message of the stream; returns whether the server wants a reply.
    fn take(
        &mut self,
        bytes: &[u8],
        plan: &ReceivePlan,
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
                    return Err(stream(format!("{start} came instead of {}", self.received)));
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

    /// Writes WAL to its segments; full segments go into the archive.
    fn write(
        &mut self,
        mut log: &[u8],
        plan: &ReceivePlan,
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
                .map_err(Error::io_at("write", &filling.path, offset))?;
            let behind = self.received.0.checked_add(now.len() as u64);
            let behind = behind.ok_or_else(|| stream("WAL after the last possible LSN"))?;
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

    /// Archives a full segment; afterwards its partial file is no longer needed.
    fn archive_full(
        &self,
        filling: &OpenSegment,
        plan: &ReceivePlan,
        clock: &dyn Clock,
    ) -> Result<(), Error> {
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

    fn remove(&self, filling: &OpenSegment) -> Result<(), Error> {
        self.receiving
            .dir
            .remove_file(&filling.file_name)
            .map_err(Error::io("remove", &filling.path))
    }

    /// Makes received bytes durable.
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

    /// Reports the progress to the server when it is due.
    fn tell(
        &mut self,
        connection: &mut Connection,
        plan: &ReceivePlan,
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

    /// Leaves a timeline: its last, unfinished segment is archived as such, and the next timeline begins with a copy
    /// of it.
    fn switch(
        &mut self,
        connection: &mut Connection,
        plan: &ReceivePlan,
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
                // The server's own archive_command may have stored it, with other bytes after the end.
                Err(kept @ Error::OtherContent { .. }) => watch(Event::Kept(&kept)),
                pushed => drop::<PushResult>(pushed?),
            }
            self.remove(&filling)?;
        }
        self.timeline = next;
        self.received = self.segment_start(begin);
        self.flushed = self.received;
        Ok(())
    }

    /// Fetches the histories of the timelines before the server's. A server may lack them, because it does not need
    /// them; those in the archive must then lead the same way.
    fn fetch_earlier(
        &self,
        connection: &mut Connection,
        plan: &ReceivePlan,
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

    /// Archives the server's history of a timeline; the archive must not have a different one.
    ///
    /// Errors: the archive's `OtherContent` if it has another.
    fn fetch_history(
        &self,
        connection: &mut Connection,
        plan: &ReceivePlan,
        timeline: Timeline,
        clock: &dyn Clock,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<History, ReceiveError> {
        let rows = connection.query(&format!("TIMELINE_HISTORY {timeline}"))?;
        let content = rows.bytes(0, 1).ok_or_else(|| stream("an empty history"))?;
        let name = WalName::History(timeline);
        let path = self.receiving.path.join(name.to_string());
        let io = |e| Error::io("write", &path)(e);
        let staged =
            StagedFile::begin(self.receiving.dir.clone(), &name.to_string()).map_err(io)?;
        // Only one receiver works here: an abandoned file was removed just now, so the second try succeeds.
        let staged = match staged {
            Some(staged) => Some(staged),
            None => StagedFile::begin(self.receiving.dir.clone(), &name.to_string()).map_err(io)?,
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
        if let PushResult::Stored { .. } = self.archive.push(&out, &plan.form, clock)? {
            watch(Event::History(timeline));
        }
        Ok(self.archive.history(timeline)?)
    }
}

fn timeline(rows: &Rows, row: usize, column: usize) -> Result<Timeline, ReceiveError> {
    Timeline::new(rows.value(row, column)?).ok_or_else(|| stream("timeline 0"))
}

/// A name, quoted for a replication command.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Parses a setting as the server shows it: `16MB`, `1GB`.
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
    /// Writes the segment that a receiver is still filling to `to` in `dir`, with zeros after the received bytes;
    /// `false` if there is none. The server, if it is still alive, has the rest.
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
        let Some(own) = self.directory() else {
            return Ok(false);
        };
        let file = match own.open(&partial, OpenHow::Read) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(Error::io("open", &from))?,
        };
        let target = path.join(to);
        // The first try removes what a killed process left.
        let staged = wait(WAIT_MAX, WalName::Segment(name), clock, || {
            StagedFile::begin(dir.clone(), to).map_err(Error::io("create", &target))
        })?;
        let mut buffer = vec![0; 1 << 20];
        for offset in (0..size.bytes()).step_by(buffer.len()) {
            file.read_exact_at(&mut buffer, offset, Via::Cache)
                .map_err(Error::io_at("read", &from, offset))?;
            staged
                .file
                .write_all_at(&buffer, offset, Via::Cache)
                .map_err(Error::io_at("write", &target, offset))?;
        }
        staged
            .publish(Path::new(to))
            .map_err(Error::io("store", target))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use longshore_io::{Fault, SimClock, SimDisk};

    use super::*;

    /// Goal: a second receiver on another host, whose locks do not reach the first, is refused.
    #[test]
    fn receivers_whose_locks_do_not_meet_keep_out_of_each_others_archive() {
        let disk = SimDisk::new(1).set_keeps_locks(false);
        disk.write_file("/base/other", b"").unwrap();
        let (base, below) = (Path::new("/base"), Path::new("wal"));
        let archive = WalArchive::create(&disk, base, below, &SimClock::new(0)).unwrap();
        let reserved = Path::new("/base/wal/receiving").join(RESERVED);
        let ours = SegmentDirectory::open(&archive).unwrap();
        assert!(disk.read_file(&reserved).is_ok());
        drop(ours);
        assert!(disk.read_file(&reserved).is_err());
        // From another host, touched just now.
        disk.write_file(&reserved, b"another-boot.1 7 0\n").unwrap();
        let refused = SegmentDirectory::open(&archive).err().unwrap();
        assert!(matches!(refused, ReceiveError::Taken { .. }), "{refused}");
    }

    /// Goal: what the server is told is durable: the bytes, and each name on the way to them, whoever made the directory.
    #[test]
    fn flushed_wal_survives_a_power_cut_after_a_receiver_was_killed() {
        let name = SegmentName {
            timeline: Timeline::new(1).unwrap(),
            high: 0,
            low: 7,
        };
        let path = format!("/base/wal/{RECEIVING}/{}", WalName::Partial(name));
        let prepared = |seed| {
            let disk = SimDisk::new(seed);
            disk.write_file("/base/other", b"").unwrap();
            let (base, below) = (Path::new("/base"), Path::new("wal"));
            WalArchive::create(&disk, base, below, &SimClock::new(0)).unwrap();
            disk.settle();
            disk
        };
        let receive = |disk: &SimDisk| -> Result<(), ReceiveError> {
            let archive = WalArchive::open(disk, Path::new("/base/wal"))?;
            let receiving = SegmentDirectory::open(&archive)?;
            let size = SegmentSize::new(1 << 20).unwrap();
            let filling = receiving.fill(name, size)?;
            let written = filling.file.write_all_at(b"log", 0, Via::Cache);
            let synced = written.and_then(|()| filling.file.sync());
            Ok(synced.map_err(Error::io("sync", &filling.path))?)
        };
        let is_lost = |disk: &SimDisk| {
            let images = disk.images(9);
            images.iter().any(|image| match image.read_file(&path) {
                Ok(bytes) => !bytes.starts_with(b"log"),
                Err(_) => true,
            })
        };
        let whole = prepared(0);
        let before = whole.steps();
        receive(&whole).unwrap();
        for step in before..=whole.steps() {
            let disk = prepared(step).inject(Fault::errno(5).from_step(step));
            let _killed = receive(&disk);
            disk.heal();
            receive(&disk).unwrap();
            assert!(!is_lost(&disk), "killed at step {step}");
        }
        for (path, forgotten) in whole.forgetting(before) {
            let disk = prepared(0).inject(forgotten);
            receive(&disk).unwrap();
            assert!(is_lost(&disk), "{}", path.display());
        }
    }

    /// Goal: what the server is told of as flushed survives a power cut: its slot keeps no more than the rest.
    #[test]
    fn wal_reported_as_flushed_survives_a_power_cut() {
        let disk = SimDisk::new(1);
        disk.write_file("/base/other", b"").unwrap();
        let (base, below, clock) = (Path::new("/base"), Path::new("wal"), SimClock::new(0));
        let archive = WalArchive::create(&disk, base, below, &clock).unwrap();
        let size = SegmentSize::new(1 << 20).unwrap();
        let start = Lsn(size.bytes());
        let mut receiver = Receiver {
            archive: &archive,
            receiving: SegmentDirectory::open(&archive).unwrap(),
            size,
            timeline: Timeline::new(1).unwrap(),
            filling: None,
            received: start,
            flushed: start,
            server: start,
            segments: 0,
            told: Duration::ZERO,
        };
        let plan = ReceivePlan {
            slot: String::new(),
            create_slot: false,
            form: StorageForm {
                algorithm: longshore_codec::Algorithm::Lz4,
                level: longshore_codec::Level::Low,
                verify: false,
            },
            until: None,
            status_every: Duration::ZERO,
        };
        let partial = "/base/wal/receiving/000000010000000000000001.partial";
        for (number, part) in (1..).zip([b"one", b"two"]) {
            receiver.write(part, &plan, &clock, &mut |_| {}).unwrap();
            assert!(receiver.flushed < receiver.received);
            receiver.flush().unwrap();
            assert_eq!(receiver.flushed, receiver.received);
            for image in disk.images(8) {
                let found = image.read_file(partial).unwrap();
                let told = &b"onetwo"[..3 * number];
                assert!(found.starts_with(told), "{:?}", &found[..6]);
            }
        }
    }

    #[test]
    fn settings_and_names_are_read_and_written_as_the_server_does() {
        assert_eq!(segment_size("16MB").unwrap().bytes(), 16 << 20);
        assert_eq!(segment_size("1GB").unwrap().bytes(), 1 << 30);
        assert!(segment_size("16").is_err() && segment_size("3MB").is_err());
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}
