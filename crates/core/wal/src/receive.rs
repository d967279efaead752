//! Streaming: receives WAL as it is written, not only when a segment is full.
//!
//! A receiver replaces archive_command, or runs in addition to it: it requests the server's WAL through a replication
//! slot, keeps the segment that is being filled in its [`Workplace`], and pushes it into the archive when it is full. At
//! a promotion it fetches the history and continues with the next timeline.
//!
//! Invariants
//! - An LSN is reported to the server as flushed only when every byte before it is durable here: in the archive, or in
//!   the synced partial file. So the slot keeps what a crash here could lose. For an archive in a bucket it also keeps
//!   the archive's last segment, since the next receiver has nothing else to compare.
//! - The archive itself decides where to continue: after its last segment, at the start of the one being filled. Those
//!   bytes are streamed again; they are the same.
//!
//! Leaves to others: the segment that is being filled (`receive/workplace.rs`), the proof that the server's WAL
//! continues the archive (`receive/proof.rs`), and the histories of timelines (`receive/histories.rs`).
//!
//! Source: PostgreSQL 18 documentation, "Streaming Replication Protocol".

mod error;
mod histories;
mod proof;
#[cfg(test)]
mod tests;
mod workplace;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_io::{Clock, Storage, Via};
use longshore_pg::client::{self, Connection, Mode, Reply, Rows};
use longshore_pg::wal::{EPOCH_US, History, WalName};
use longshore_pg::{Lsn, SegmentName, SegmentSize, Timeline};

use self::error::stream;
use self::workplace::{OpenSegment, Workplace};
use super::{Error, Identity, Outgoing, PushResult, StorageForm, WalArchive};
pub use error::ReceiveError;

/// How long the stream may be silent before received bytes are made durable.
const LULL: Duration = Duration::from_millis(100);

/// The WAL to receive, and how.
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
    /// Everything before this LSN is durable in the archive or in its directory `receiving`.
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
    /// The archive is empty and the server does not say what the slot holds (before version 15): WAL before this LSN may
    /// be the slot's, and is not received.
    MayLack {
        before: Lsn,
    },
    /// The archive lacks segments between these two. They will not be received: the server was told that they were
    /// durable, and may have removed them.
    Gap {
        after: SegmentName,
        before: SegmentName,
    },
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
    if plan.form.recipients.is_some() && archive.directory().is_some() {
        let path = archive.path().join(workplace::RECEIVING);
        return Err(Error::ClearPart { path }.into());
    }
    if plan.form.recipients.is_some() && !archive.has_identities() {
        let path = archive.path().to_owned();
        return Err(Error::Untagged { path }.into());
    }
    let workplace = Workplace::open(archive)?;
    let mut connection = Connection::open(storage, server, Mode::Replication)?;
    let mut receiver = Receiver::begin(archive, &mut connection, workplace, plan, clock, watch)?;
    while !receiver.is_done(plan, stop) {
        receiver.timeline(&mut connection, plan, stop, clock, watch)?;
    }
    Ok(receiver.progress())
}

struct Receiver<'a> {
    archive: &'a WalArchive,
    workplace: Workplace,
    size: SegmentSize,
    timeline: Timeline,
    filling: Option<OpenSegment>,
    /// The LSN of the next byte.
    received: Lsn,
    flushed: Lsn,
    /// The slot's LSN, where the workplace does not last: the server keeps what comes after it.
    kept_from: Lsn,
    /// Whether the slot is known to hold WAL. One that was never used holds none until an LSN is reported.
    holds: bool,
    server: Lsn,
    segments: u64,
    told: Duration,
}

/// How far the exchange about one timeline has come.
#[derive(Default)]
struct Exchange {
    is_streaming: bool,
    /// The timeline after this one, and where it begins.
    next: Option<(Timeline, Lsn)>,
}

impl<'a> Receiver<'a> {
    /// Identifies the server, fetches missing histories, creates the slot, and finds where to continue.
    fn begin(
        archive: &'a WalArchive,
        connection: &mut Connection,
        workplace: Workplace,
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
        let mut is_new = false;
        if plan.create_slot {
            let made = connection.query(&format!(
                "CREATE_REPLICATION_SLOT {slot} PHYSICAL RESERVE_WAL"
            ));
            match made {
                // The slot already exists.
                Err(e) if e.sqlstate() == Some("42710") => {}
                made => {
                    made?;
                    is_new = true;
                }
            }
        }
        let mut receiver = Receiver {
            archive,
            workplace,
            size,
            timeline: theirs,
            filling: None,
            received: server,
            flushed: server,
            kept_from: server,
            holds: false,
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
        receiver.holds = receiver.slot_told(connection, &slot)?.is_some();
        let is_blind = connection.major()? < 15 && !is_new;
        if is_blind && !receiver.workplace.is_durable() && receiver.newest(&history)?.is_none() {
            watch(Event::MayLack {
                before: receiver.received,
            });
        }
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
        let begun = self.workplace.last()?;
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
        (self.received, self.flushed, self.kept_from) = (start, start, start);
        Ok(())
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
        let mut exchange = Exchange::default();
        loop {
            let reply = match exchange.is_streaming {
                true => connection.reply_within(LULL),
                false => connection.reply(),
            };
            match reply {
                Err(client::Error::Timeout { .. }) if exchange.is_streaming => {
                    self.flush()?;
                    self.tell(connection, plan, clock, false, watch)?;
                }
                Err(e) => return Err(e.into()),
                Ok(Some(reply)) => {
                    self.follow(reply, &mut exchange, connection, plan, clock, watch)?;
                }
                Ok(None) => break,
            }
            if plan.until.is_some_and(|until| self.received >= until) {
                self.flush()?;
            }
            if exchange.is_streaming && self.is_done(plan, stop) {
                self.flush()?;
                self.tell(connection, plan, clock, true, watch)?;
                // The server may be in the middle of sending to a slow reader; dropping the session is enough.
                return Ok(());
            }
        }
        let ended = || stream("the timeline ended without a next one");
        let (timeline, begin) = exchange.next.ok_or_else(ended)?;
        self.switch(connection, plan, timeline, begin, clock, watch)
    }

    /// Handles one reply of the server while a timeline is streamed.
    fn follow(
        &mut self,
        reply: Reply,
        exchange: &mut Exchange,
        connection: &mut Connection,
        plan: &ReceivePlan,
        clock: &dyn Clock,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), ReceiveError> {
        match reply {
            Reply::CopyBoth => {
                exchange.is_streaming = true;
                self.tell(connection, plan, clock, true, watch)
            }
            Reply::Data(bytes) => {
                let reply_now = self.take(&bytes, plan, clock, watch)?;
                if reply_now {
                    self.flush()?;
                }
                self.tell(connection, plan, clock, reply_now, watch)
            }
            Reply::CopyDone if exchange.is_streaming => {
                // The timeline has no more WAL; the following rows say where the next one begins.
                exchange.is_streaming = false;
                self.flush()?;
                self.tell(connection, plan, clock, true, watch)?;
                Ok(connection.put_copy_done()?)
            }
            Reply::Rows(rows) if !rows.is_empty() => {
                exchange.next = Some((timeline(&rows, 0, 0)?, rows.value::<Lsn>(0, 1)?));
                Ok(())
            }
            Reply::Rows(_) | Reply::Complete(_) | Reply::CopyDone => Ok(()),
            Reply::CopyOut | Reply::CopyIn => Err(stream("it asks for a one-way copy")),
        }
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
                    self.workplace.fill(name, self.size)?
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
        self.workplace.forget(filling)
    }

    /// Makes received bytes durable.
    fn flush(&mut self) -> Result<(), Error> {
        if let Some(filling) = &self.filling
            && self.flushed < self.received
            && self.workplace.is_durable()
        {
            filling
                .file
                .sync()
                .map_err(Error::io("sync", &filling.path))?;
            self.flushed = self.received;
        }
        Ok(())
    }

    /// The LSNs to report as flushed, one message after the other.
    ///
    /// A workplace that does not last reports an LSN only to move the slot, and then none: a server that stops waits for
    /// the last report of a flush to reach the end of its WAL, and takes the written LSN if there is none. The slot keeps
    /// the archive's last segment: the next receiver compares it, and has nothing else.
    fn flushes(&mut self) -> Vec<Lsn> {
        if self.workplace.is_durable() {
            return vec![self.flushed];
        }
        let keep = Lsn(self.flushed.0.saturating_sub(self.size.bytes()));
        let moves = keep > self.kept_from;
        if self.holds && !moves {
            return vec![Lsn(0)];
        }
        self.holds = true;
        self.kept_from = self.kept_from.max(keep);
        vec![self.kept_from, Lsn(0)]
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
        for flushed in self.flushes() {
            // A flush that only moves the slot acknowledges nothing: no commit may be released by what is in memory.
            let written = match self.workplace.is_durable() || flushed == Lsn(0) {
                true => self.received,
                false => flushed,
            };
            let mut message = vec![b'r'];
            for lsn in [written, flushed, Lsn(0)] {
                message.extend_from_slice(&lsn.0.to_be_bytes());
            }
            message.extend_from_slice(&sent_us.to_be_bytes());
            message.push(0);
            connection.put_copy_data(&message)?;
        }
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
            self.workplace.forget(&filling)?;
        }
        self.timeline = next;
        self.received = self.segment_start(begin);
        self.flushed = self.received;
        Ok(())
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
