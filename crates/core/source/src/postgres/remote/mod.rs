//! Reads a cluster over the replication protocol, from any machine: `BASE_BACKUP`.
//!
//! The server reads its files and sends them as archives, in one process and one stream. This side splits the archives
//! into entries, which are then compressed by all CPUs and striped like other sources. The server leaves out what does
//! not belong into a backup, verifies page checksums, and sends the WAL at the end if requested.
//!
//! Invariants
//! - The stream is read only under the lock of `next` and `next_data`, in its order. Chunks read wait in their content
//!   for a worker with room for them, so memory is bounded by the jobs in progress.
//! - `global/pg_control` is held back and is the last entry.
//!
//! Leaves to others: the archives' formats (`archive.rs`, `tar.rs`), the WAL in them (`log.rs`), and the replication
//! protocol (`longshore-pg`).

mod archive;
pub(super) mod branch;
mod facts;
mod log;
mod tar;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{FileKind, HostClock, Stat, Storage, Via};
use longshore_pg::client::{self, Connection, Mode, Options};
use longshore_pg::{Control, Earlier, Lineage, Lsn, TABLESPACE_MAP, Tablespace};
use parking_lot::Mutex;

use super::base::RelationSegment;
use super::cluster::{CONTROL_FILE, DEFAULT_SPACE};
use super::describe::{MEMORY_BYTES, name_of};
use super::server_branch::ServerBranch;
use super::standby::{StandbyState, not_asked};
use super::tree::{HELD_MAX, held};
use super::{OwnLog, copies, rules};
use crate::options::PostgresOptions;
use crate::volumes::Volumes;
use crate::{
    Change, Content, Description, Entry, EntryKind, Error, LogEnd, LogStart, Source, SourceKind,
    SourceOptions, SourceSummary,
};
use archive::Archives;
use facts::{ReplicationFacts, history, refused};
use log::PassingLog;
use tar::{Member, MemberKind};

/// Bytes of a large file that are taken at once: one buffer's worth.
const CHUNK: u64 = 1 << 20;
/// Memory for the scan of the WAL: one piece being read, one queued, and one that waits to be queued.
const LOG_MEMORY_BYTES: u64 = 3 * CHUNK;

pub(super) struct Remote {
    description: Description,
    stream: Arc<Mutex<Stream>>,
    with_wal: bool,
    /// Where a standby is asked how it is; `None`: the server is none.
    standby: Option<(Arc<dyn Storage>, Box<Options>)>,
    fail_on_bad_page: bool,
}

struct Stream {
    archives: Archives,
    /// Entries that precede the archives, in reverse order.
    given: Vec<Entry>,
    control: Option<ControlFile>,
    log: Option<LogEnd>,
    /// The scan of the WAL, if the server sends it.
    passing: Option<PassingLog>,
    major: u32,
    /// 0 if unknown.
    page_bytes: u32,
    /// The directories of databases, and their parents.
    databases: BTreeMap<PathBuf, Stat>,
    /// Data that a restore may lack, for the operator.
    lost: Vec<String>,
}

/// The control file.
struct ControlFile {
    entry: Entry,
    catalog_version: u32,
}

impl Remote {
    pub(super) fn begin(
        storage: &Arc<dyn Storage>,
        server: &Options,
        options: &SourceOptions,
        mut notices: Vec<String>,
    ) -> Result<Remote, Error> {
        let wanted = &options.postgres;
        let mut connection = Connection::open(&**storage, server, Mode::Replication)
            .map_err(refused("connect for replication to"))?;
        let about = ReplicationFacts::ask(&mut connection)?;
        if !about.outside.is_empty() {
            notices.push(format!(
                "the server's configuration is outside its data directory and is not in the backup, because the server sends \
                 only that directory: {}",
                about.outside.join(", ")
            ));
        }
        if wanted.with_wal {
            keep_log(&mut connection)?;
        }
        let history = about.timeline.and_then(|t| history(&mut connection, t));
        // Before the server begins another segment for the backup: so its WAL's end tells it from a copy.
        let found = branch::observe(&about, history.as_deref(), storage, server, &wanted.earlier);
        let address = connection.address().to_owned();
        let command = command(about.major, wanted);
        let (archives, begun) = Archives::begin(connection, about.major, &command)?;
        // A standby may have moved to another timeline meanwhile.
        let history = history.filter(|_| about.timeline == Some(begun.timeline));
        let lineage = Lineage {
            line: branch::line(begun.timeline, history.as_deref()),
            in_recovery: about.is_standby,
            witness: branch::witness(&about, (begun.timeline, begun.start), storage, server),
            ..Lineage::unrecorded(about.system, begun.timeline, begun.start)
        };
        let lineage = noted(lineage, found, &wanted.earlier);
        let mut volumes = Volumes::new(&**storage, &[])?;
        volumes.of(&PathBuf::from(address), 0);
        let own_log = |size| OwnLog::sent(storage.clone(), server, size);
        let description = Description {
            kind: SourceKind::Postgres,
            database: name_of(options, &about.cluster_name),
            log: Some(LogStart {
                system: about.system,
                timeline: begun.timeline,
                first: begun.start,
            }),
            lineage: Some(lineage),
            history,
            own_log: about.segment.map(own_log),
            page_bytes: about.page_bytes,
            expected_bytes: None,
            about_bytes: archives.about_bytes,
            memory_bytes: MEMORY_BYTES + LOG_MEMORY_BYTES,
            differing: None,
            // The server reads the files on its own machine.
            layouts: None,
            server_started_us: None,
            trees: Vec::new(),
            volumes: volumes.into_vec(),
            notices,
        };
        let passing = || PassingLog::new(begun.timeline, begun.start);
        Ok(Remote {
            description,
            stream: Arc::new(Mutex::new(Stream {
                given: archives.tablespaces.iter().map(link).collect(),
                archives,
                control: None,
                log: None,
                passing: wanted.with_wal.then(passing),
                major: about.major,
                page_bytes: about.page_bytes,
                databases: BTreeMap::new(),
                lost: Vec::new(),
            })),
            with_wal: wanted.with_wal,
            standby: (about.is_standby).then(|| (storage.clone(), Box::new(server.clone()))),
            fail_on_bad_page: wanted.fail_on_bad_page,
        })
    }
}

/// How a standby is, by a connection for statements.
fn asked(
    (storage, server): &(Arc<dyn Storage>, Box<Options>),
) -> Result<Option<StandbyState>, client::Error> {
    let mut connection = Connection::open(&**storage, server, Mode::Sql)?;
    StandbyState::ask(&mut connection, &HostClock, true)
}

/// Makes a slot that keeps the log until the connection ends.
fn keep_log(connection: &mut Connection) -> Result<(), Error> {
    let now_ns = longshore_io::Clock::wall_ns(&longshore_io::HostClock);
    let slot = format!(
        "CREATE_REPLICATION_SLOT \"longshore_backup_{now_ns:x}\" TEMPORARY PHYSICAL RESERVE_WAL"
    );
    let made = connection.query(&slot);
    made.map(drop)
        .map_err(refused("create a slot that keeps the WAL of"))
}

/// The link that stands for a tablespace.
fn link(space: &Tablespace) -> Entry {
    let target = space.location.clone();
    let path = Path::new("pg_tblspc").join(space.oid.to_string());
    Entry::named(path, EntryKind::Symlink { target }, &NO_STAT)
}

/// Records how earlier backups relate to the server: as was found before the backup began, and not against what its
/// beginning shows.
fn noted(mut lineage: Lineage, found: ServerBranch, earlier: &[Earlier]) -> Lineage {
    for (earlier, relation) in earlier.iter().zip(&found.relations) {
        let now = lineage.comes_from(earlier);
        let relation = if now.is_refuted() { &now } else { relation };
        lineage.note(earlier.set, relation);
    }
    lineage
}

/// For links, whose attributes are not sent.
const NO_STAT: Stat = Stat {
    kind: FileKind::Symlink,
    len: 0,
    mode: 0o777,
    uid: 0,
    gid: 0,
    mtime_ns: 0,
    ctime_ns: 0,
    dev: 0,
    ino: 0,
    links: 1,
};

fn command(major: u32, wanted: &PostgresOptions) -> String {
    let label = wanted.label.replace('\'', "''");
    let (spread, wal) = (wanted.spread_checkpoint, wanted.with_wal);
    match major {
        ..=14 => {
            let fast = if spread { "" } else { " FAST" };
            let wal = if wal { " WAL" } else { "" };
            format!("BASE_BACKUP LABEL '{label}'{fast}{wal} NOWAIT TABLESPACE_MAP PROGRESS")
        }
        _ => {
            let checkpoint = if spread { "spread" } else { "fast" };
            format!(
                "BASE_BACKUP (LABEL '{label}', CHECKPOINT '{checkpoint}', WAL {wal}, WAIT false, \
                 TABLESPACE_MAP true, MANIFEST 'no', PROGRESS true)"
            )
        }
    }
}

impl Stream {
    fn next(&mut self, shared: &Arc<Mutex<Stream>>) -> Result<Option<Entry>, Error> {
        loop {
            if let Some(entry) = self.given.pop() {
                return Ok(Some(entry));
            }
            let Some((space, member)) = self.archives.next()? else {
                return Ok(None);
            };
            let path = match space {
                None => member.path.clone(),
                Some(oid) => Path::new("pg_tblspc")
                    .join(oid.to_string())
                    .join(&member.path),
            };
            if rules::is_of_restore(&path) {
                self.pass_over(&member)?;
                continue;
            }
            let found = self.entry(shared, path, &member)?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Takes the bytes of a member that does not belong into the backup.
    fn pass_over(&mut self, member: &Member) -> Result<(), Error> {
        let MemberKind::File = member.kind else {
            return Ok(());
        };
        let mut left = member.len;
        loop {
            let mut bytes = vec![0; left.min(CHUNK) as usize];
            left -= bytes.len() as u64;
            self.archives.take(&mut bytes, member.len, left == 0)?;
            if left == 0 {
                return Ok(());
            }
        }
    }

    fn entry(
        &mut self,
        shared: &Arc<Mutex<Stream>>,
        path: PathBuf,
        member: &Member,
    ) -> Result<Option<Entry>, Error> {
        let stat = Stat {
            mode: member.mode,
            uid: member.uid,
            gid: member.gid,
            mtime_ns: member.mtime_s.saturating_mul(1_000_000_000),
            ..NO_STAT
        };
        match &member.kind {
            MemberKind::Dir => {
                // A directory that holds database directories, or is one.
                if rules::is_database_dir(&path) || rules::is_database_dir(&path.join("1")) {
                    self.databases.insert(path.clone(), stat.clone());
                }
                return Ok(Some(Entry::named(path, EntryKind::Dir, &stat)));
            }
            // Tablespace links were already provided as the first entries.
            MemberKind::Symlink { .. } if super::rules::is_tablespace(&path) => return Ok(None),
            MemberKind::Symlink { target } => {
                let target = target.clone();
                return Ok(Some(Entry::named(
                    path,
                    EntryKind::Symlink { target },
                    &stat,
                )));
            }
            MemberKind::File => {}
        }
        let pages = Some(self.page_bytes).filter(|page| {
            *page > 0
                && member.len.is_multiple_of(u64::from(*page))
                && RelationSegment::of(&path).is_some()
        });
        if member.len > HELD_MAX {
            let passing = self.passing.as_mut();
            let content = StreamContent {
                stream: shared.clone(),
                len: member.len,
                log_at: passing.and_then(|log| log.place(&path, member.len)),
                chunks: Mutex::default(),
            };
            return Ok(Some(Entry {
                len: member.len,
                page_bytes: pages,
                content: Some(Arc::new(content)),
                ..Entry::named(path, EntryKind::File, &stat)
            }));
        }
        let mut bytes = vec![0; member.len as usize];
        self.archives.take(&mut bytes, member.len, true)?;
        let is_signal = ["recovery.signal", "standby.signal"]
            .iter()
            .any(|name| path == Path::new(name));
        let is_empty_map = path == Path::new(TABLESPACE_MAP) && bytes.is_empty();
        if is_signal || is_empty_map {
            return Ok(None);
        }
        if path == Path::new(CONTROL_FILE) {
            let control = Control::parse(&bytes).map_err(|source| Error::Control {
                path: path.clone(),
                source,
            })?;
            self.control = Some(ControlFile {
                entry: held(path, bytes, &stat),
                catalog_version: control.catalog_version,
            });
            return Ok(None);
        }
        Ok(Some(Entry {
            page_bytes: pages,
            ..held(path, bytes, &stat)
        }))
    }

    /// Evaluates the events in the WAL up to the backup's end: adds directories that replay needs and the server did
    /// not send.
    fn judge(&mut self, end: Lsn, catalog_version: u32) {
        let events = self.passing.as_mut().and_then(|log| log.events(end));
        let Some(events) = events else {
            return;
        };
        let found = copies::look_at(&events);
        self.lost = found.lost;
        let version = format!("PG_{}_{catalog_version}", self.major);
        for (database, space) in found.needed {
            let path = rules::directory((space, database), &version);
            if self.databases.contains_key(&path) {
                continue;
            }
            // All database directories have the same attributes.
            let parent = path.parent().and_then(|parent| self.databases.get(parent));
            match (parent, self.databases.get(Path::new(DEFAULT_SPACE))) {
                (Some(_), Some(like)) => {
                    self.given.push(Entry::named(path, EntryKind::Dir, like));
                }
                _ => self.lost.push(copies::told_of_missing((database, space))),
            }
        }
    }
}

impl Source for Remote {
    fn description(&self) -> &Description {
        &self.description
    }

    fn next(&self, volume: usize) -> Result<Option<Entry>, Error> {
        if volume > 0 {
            return Ok(None);
        }
        self.stream.lock().next(&self.stream)
    }

    fn epilogue(&self) -> Result<bool, Error> {
        let mut stream = self.stream.lock();
        if stream.log.is_some() {
            return Ok(false);
        }
        let (Some(ended), Some(control)) = (stream.archives.ended, stream.control.take()) else {
            return Err(Error::ServerSaid {
                what: "the archives",
                text: "no control file, or no end".into(),
            });
        };
        let start = self.description.log.as_ref().map(|log| log.timeline);
        if start != Some(ended.timeline) {
            return Err(Error::TimelineChanged {
                from: start.map_or(0, |timeline| timeline.number()),
                to: ended.timeline.number(),
            });
        }
        if ended.damaged && self.fail_on_bad_page {
            return Err(Error::BadPages);
        }
        stream.log = Some(LogEnd {
            timeline: ended.timeline,
            last: ended.stop,
            included: self.with_wal,
            is_marked: self.standby.is_none(),
        });
        stream.given.push(control.entry);
        stream.judge(ended.stop, control.catalog_version);
        Ok(true)
    }

    fn finish(self: Box<Self>) -> Result<SourceSummary, Error> {
        let mut stream = self.stream.lock();
        let has_bad_pages = stream.archives.ended.is_some_and(|ended| ended.damaged);
        let warning = "the server found pages with wrong checksums; its log names them";
        let mut warnings = Vec::from_iter(has_bad_pages.then(|| warning.to_owned()));
        warnings.append(&mut stream.lost);
        let own_log = self.description.own_log.as_ref();
        let (standby, unasked) = match self.standby.as_ref().map(asked) {
            None => (None, None),
            Some(Ok(state)) => (state, None),
            Some(Err(e)) => (None, Some(not_asked(&e))),
        };
        let clock = |end: &LogEnd| own_log?.clock_us(end.timeline, end.last);
        Ok(SourceSummary {
            damaged: !warnings.is_empty(),
            warnings,
            // A role for replication alone may be allowed no more.
            notes: Vec::from_iter(unasked),
            left_out: None,
            vanished: None,
            log: stream.log,
            complete_us: stream.log.as_ref().and_then(clock),
            standby,
        })
    }
}

/// A file too long to be held in memory: its chunks are taken from the stream when the feed asks for them.
struct StreamContent {
    stream: Arc<Mutex<Stream>>,
    len: u64,
    /// The LSN at which it begins, for a segment that is scanned.
    log_at: Option<Lsn>,
    /// Chunks that were taken and not yet read, with their offset in the file.
    chunks: Mutex<VecDeque<Chunk>>,
}

struct Chunk {
    start: u64,
    bytes: Vec<u8>,
    /// Bytes that have not been read.
    left: usize,
}

impl Content for StreamContent {
    fn read_at(&self, buf: &mut [u8], offset: u64, _via: Via) -> Result<(), Error> {
        let mut chunks = self.chunks.lock();
        let holds = |chunk: &Chunk| {
            let at = offset.checked_sub(chunk.start).map(|at| at as usize);
            at.is_some_and(|at| at + buf.len() <= chunk.bytes.len())
        };
        let Some(i) = chunks.iter().position(holds) else {
            return Err(Error::Ended {
                path: "the server's archive".into(),
            });
        };
        let chunk = &mut chunks[i];
        let at = (offset - chunk.start) as usize;
        buf.copy_from_slice(&chunk.bytes[at..at + buf.len()]);
        chunk.left = chunk.left.saturating_sub(buf.len());
        if chunk.left == 0 {
            chunks.remove(i);
        }
        Ok(())
    }

    fn is_cached(&self, _range: Range<u64>) -> bool {
        true
    }

    /// Takes the next chunk. The feed asks for ranges in order, and once for each.
    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, Error> {
        let end = self.len.min(offset.saturating_add(CHUNK));
        let mut bytes = vec![0; (end - offset) as usize];
        let mut stream = self.stream.lock();
        stream
            .archives
            .take(&mut bytes, self.len, end == self.len)?;
        if let (Some(at), Some(log)) = (self.log_at, stream.passing.as_mut()) {
            log.take(Lsn(at.0 + offset), &bytes);
        }
        self.chunks.lock().push_back(Chunk {
            start: offset,
            left: bytes.len(),
            bytes,
        });
        Ok(Some(offset..end))
    }

    fn settle(&self) -> Result<Option<Change>, Error> {
        Ok(None)
    }
}
