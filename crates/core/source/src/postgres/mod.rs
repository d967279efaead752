//! Backs up running PostgreSQL clusters.
//!
//! The server starts a backup (`pg_backup_start`), many threads read its files, and the server ends the backup
//! (`pg_backup_stop`). Each file is read at a different moment; replaying the WAL from the start's checkpoint to the
//! end makes them consistent. So the WAL between the two is part of the backup: it is copied into the set, with a
//! replication slot to keep it meanwhile, or proved to be in an archive.
//!
//! Invariants
//! - One session begins and ends the backup; if the session dies, the backup fails ([`session`]).
//! - `global/pg_control` is read after every data file and before the end, and is the last entry: a server cannot be
//!   started on an incomplete restore.
//! - `backup_label` and `tablespace_map` are stored byte for byte as the server returned them, and are never written
//!   to the live cluster.
//! - [`rules`] decides what is left out and kept; a relation may vanish, grow or shrink during the backup.
//! - Of a relation that has an init fork at the backup's end, only the init fork is stored ([`init_forks`]).
//! - Memory does not grow with the number of relations; there is a path for each database.
//!
//! Leaves to others: the session (`session.rs`), the walk (`tree.rs`), and what is left out (`rules.rs`).
//!
//! A tablespace is stored as a link `pg_tblspc/OID` to its location, before all other entries, with its files below
//! that path; an in-place tablespace is a directory.
//! Source: PostgreSQL 18 documentation, "Making a Base Backup Using the Low Level API"; `basebackup.c`.

mod base;
mod branch;
mod changes;
mod check;
mod close;
mod cluster;
mod configuration;
mod content;
mod copies;
mod describe;
mod differs;
mod init_forks;
mod layouts;
mod log_files;
mod own_log;
mod pages;
mod remote;
mod rules;
mod server_branch;
mod session;
mod standby;
mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Clock, Dir, FileKind, HostClock, Stat, Storage};
use longshore_pg::client::Options;
use longshore_pg::set_notes::{DATABASES, NamedDatabase, format_databases};
use longshore_pg::{
    BACKUP_LABEL, Control, Lsn, SegmentName, TABLESPACE_MAP, Timeline, cluster_secret,
};
use parking_lot::Mutex;

use crate::reading::is_missing;
use crate::tally::SPECIAL_LEFT_OUT;
use crate::volumes::Volumes;
use crate::{
    BaseRefusal, Description, Entry, EntryKind, Error, LogEnd, LogStart, PostgresOptions, Source,
    SourceKind, SourceOptions, SourceSummary,
};
pub use branch::{home, identify};
pub(crate) use check::check;
pub use close::{ClosedLog, close_log};
use cluster::{
    CONTROL_FILE, Cluster, DEFAULT_SPACE, DataDirectory, data_directory, open_link, read_control,
};
use describe::{MEMORY_BYTES, name_of};
use differs::{BY_SUMMARIES, Now, PageSelection};
use init_forks::InitForks;
use layouts::Layouts;
use log_files::LogFiles;
pub use own_log::OwnLog;
use pages::Verifier;
use remote::Remote;
pub use server_branch::ServerBranch;
use session::{Database, Session, StopResult};
pub use standby::{StandbyDoubt, StandbyState};
use tree::{Start, Walk, held};

/// Begins a backup: connects, waits for a checkpoint, and lists the tablespaces.
pub(crate) fn open(
    storage: Arc<dyn Storage>,
    server: &Options,
    options: &SourceOptions,
) -> Result<Box<dyn Source>, Error> {
    let base = options.postgres.base.is_some();
    if options.postgres.remote && base {
        return Err(Error::Base {
            source: BaseRefusal::Remote,
        });
    }
    if options.postgres.remote {
        return Ok(Box::new(Remote::begin(
            &storage,
            server,
            options,
            Vec::new(),
        )?));
    }
    let clock: Arc<dyn Clock> = Arc::new(HostClock);
    let session = Session::open(&*storage, server, clock.clone())?;
    match data_directory(&*storage, &*clock, &session.about) {
        Ok(found) => Ok(Box::new(Postgres::begin(
            (&*storage, server),
            session,
            clock,
            found,
            options,
        )?)),
        // The directory belongs to another machine or another user.
        Err(reason @ (Error::DataDirectory { .. } | Error::Io { .. })) if !base => {
            drop(session);
            let notice = format!(
                "the server sends its files itself, in one stream: {}",
                crate::error::with_cause(&reason)
            );
            let remote = Remote::begin(&storage, server, options, vec![notice])?;
            Ok(Box::new(remote))
        }
        Err(e) => Err(e),
    }
}

struct Postgres {
    description: Description,
    cluster: Arc<Cluster>,
    walks: Vec<Mutex<Walk>>,
    /// Canonical paths of the tablespaces.
    elsewhere: Vec<PathBuf>,
    /// Parent directories of database directories, in the backup.
    spaces: Vec<PathBuf>,
    log_files: LogFiles,
    with_wal: bool,
    start: Lsn,
    /// Configuration files that are not in the set.
    config_warnings: Vec<String>,
    /// The state before the backup began.
    before: copies::Before,
    ending: Mutex<Tail>,
}

/// The part of the backup that follows the files.
#[derive(Default)]
struct Tail {
    log: Option<LogEnd>,
    /// By the server's clock, in microseconds since the Unix epoch.
    complete_us: Option<i64>,
    /// Data that a restore may lack, for the operator.
    lost: Vec<String>,
    standby: Option<StandbyState>,
    /// Why a standby was not asked how it is.
    not_asked: Option<String>,
    /// The next segment to provide, and the last.
    segments: Option<(SegmentName, SegmentName)>,
    /// The mark of the segment provided last: a restored server must not archive it again.
    done: Option<Entry>,
    init_forks: InitForks,
    /// With their marks, in reverse order.
    histories: Vec<Entry>,
    /// In reverse order.
    last_entries: Vec<Entry>,
}

impl Postgres {
    fn begin(
        (storage, server): (&dyn Storage, &Options),
        session: Session,
        clock: Arc<dyn Clock>,
        found: DataDirectory,
        options: &SourceOptions,
    ) -> Result<Postgres, Error> {
        let wanted = &options.postgres;
        let DataDirectory { dir, path, control } = found;
        let log_files = LogFiles::below(storage, &path)?;
        let config = configuration::look(storage, &session, &path, wanted.configuration);
        let Begun {
            start,
            before,
            mut notices,
        } = Begun::ask(&session, wanted)?;
        let now = control_since(start, &*dir, &path, &*clock)?;
        let (wal_dir, size) = (&*log_files.dir, control.wal_segment);
        let mut lineage = branch::observe(&session, (&*dir, &path), wal_dir, &now)?;
        branch::relate(&mut lineage, wal_dir, size, &wanted.earlier);
        let mut base = wanted.base.clone();
        if let Some(base) = &mut base {
            notices.extend(branch::distrust(base, &lineage, wal_dir, size));
        }
        let verifier = Verifier::of(&control, start, wanted.fail_on_bad_page);
        if verifier.is_none() {
            notices.push("this cluster's pages have no checksums, so none are verified".into());
        }
        let differing = base.map(|base| {
            let now = Now {
                wal_dir,
                session: &session,
                clock: &*clock,
                control: &now,
                start,
            };
            PageSelection::begin(&base, &now)
        });
        let differing = differing.transpose()?.map(|(differing, notice)| {
            notices.extend(notice);
            differing
        });
        let layouts = wanted
            .layouts
            .then(|| Layouts::ask(storage, server, &session, &*clock));
        let cluster = Arc::new(Cluster {
            session,
            clock,
            control,
            verifier,
            differing,
            layouts,
            dir,
            path,
        });
        let mut volumes = Volumes::new(storage, &options.volume_map)?;
        let mut plan = plan(storage, &cluster, &mut volumes)?;
        notices.extend(config.notices);
        plan.add_after_links(config.entries);
        let log = LogStart {
            system: control.system,
            timeline: now.timeline,
            first: start,
        };
        let description = Description {
            lineage: Some(lineage),
            trees: plan.trees().map(Path::to_owned).collect(),
            volumes: volumes.into_vec(),
            notices,
            ..describe(options, &cluster, &log_files, log)
        };
        let description = Description {
            memory_bytes: description.memory_bytes + config.bytes,
            // With summaries nobody knows beforehand how many pages are read.
            about_bytes: (description.differing != Some(BY_SUMMARIES))
                .then(|| plan.relation_bytes()),
            ..description
        };
        tracing::info!(
            server = %cluster.session.address(),
            major = cluster.session.about.major,
            start = %start,
            "the backup has begun"
        );
        Ok(Postgres {
            description,
            cluster,
            walks: plan.walks.into_iter().map(Mutex::new).collect(),
            elsewhere: plan.elsewhere,
            spaces: plan.spaces,
            log_files,
            with_wal: wanted.with_wal,
            start,
            config_warnings: config.warnings,
            before,
            ending: Mutex::default(),
        })
    }

    /// The entries that describe the rest: the tablespace map and the label, and at the very end the control file.
    fn last_entries(&self, stopped: StopResult, control: Vec<u8>) -> Result<Vec<Entry>, Error> {
        let stat = self
            .cluster
            .dir
            .stat(Path::new(CONTROL_FILE))
            .map_err(|source| Error::Io {
                action: "look at",
                path: self.cluster.path.join(CONTROL_FILE),
                source,
            })?;
        let now = Stat {
            mtime_ns: self.cluster.clock.wall_ns(),
            ..stat.clone()
        };
        let mut last = vec![held(CONTROL_FILE.into(), control, &stat)];
        if !stopped.map_text.is_empty() {
            last.push(held(TABLESPACE_MAP.into(), stopped.map_text, &now));
        }
        last.push(held(BACKUP_LABEL.into(), stopped.label_text, &now));
        Ok(last)
    }
}

/// The server's answer when it begins the backup.
struct Begun {
    /// Where replay begins.
    start: Lsn,
    before: copies::Before,
    /// Why the log is not kept, for the operator.
    notices: Vec<String>,
}

impl Begun {
    /// Has the server begin the backup. Blocks for its checkpoint.
    fn ask(session: &Session, wanted: &PostgresOptions) -> Result<Begun, Error> {
        let (databases, start, notices) = session.despite_replay(|tries| {
            if tries > 1 {
                session.checkpoint();
            }
            // Before the checkpoint: a database may be copied as soon as it is over.
            let databases = session.databases()?;
            let kept = if wanted.with_wal { session.keep_log() } else { Ok(()) };
            let not_kept = kept.err().map(|e| {
                format!(
                    "no slot keeps the WAL for this backup, which fails if the server recycles WAL that it needs: {}",
                    crate::error::with_cause(&e)
                )
            });
            let start = session.begin(&wanted.label, wanted.spread_checkpoint)?;
            Ok((databases, start, Vec::from_iter(not_kept)))
        })?;
        // In this order: who has made one by then has it in the list.
        let are_made = session.makes_databases()?;
        let begun = session.databases()?;
        let log_end = session.log_end()?;
        Ok(Begun {
            start,
            before: copies::Before {
                databases,
                begun,
                are_made,
                log_end,
            },
            notices,
        })
    }
}

/// The control file with the checkpoint that began the backup, or a later one.
fn control_since(
    start: Lsn,
    dir: &dyn Dir,
    path: &Path,
    clock: &dyn Clock,
) -> Result<Control, Error> {
    let (now, _) = read_control(dir, path, clock)?;
    if now.redo < start {
        return Err(Error::DataDirectory {
            path: path.into(),
            what: "the control file does not have the checkpoint that the server has just made",
        });
    }
    Ok(now)
}

/// The cluster's own facts about the backup. The caller adds its branch, its volumes and the remarks for the operator.
fn describe(
    options: &SourceOptions,
    cluster: &Cluster,
    log_files: &LogFiles,
    log: LogStart,
) -> Description {
    let about = &cluster.session.about;
    let differing = cluster.differing.as_ref();
    let layouts = cluster.layouts.as_ref();
    let control = read_control(&*cluster.dir, &cluster.path, &*cluster.clock);
    let secret = control
        .ok()
        .and_then(|(_, bytes)| cluster_secret(&bytes).ok());
    let own_log = OwnLog::files(
        log_files.dir.clone(),
        log_files.path.clone(),
        cluster.control.wal_segment,
    );
    Description {
        kind: SourceKind::Postgres,
        database: name_of(options, &about.cluster_name),
        log: Some(log),
        history: log_files::history(&*log_files.dir, log.timeline),
        lineage: None,
        own_log: Some(own_log.with_secret(secret)),
        page_bytes: cluster.control.page_bytes,
        expected_bytes: None,
        about_bytes: None,
        memory_bytes: MEMORY_BYTES
            + differing.map_or(0, PageSelection::memory_bytes)
            + layouts.map_or(0, |_| layouts::MEMORY_BYTES),
        differing: differing.map(PageSelection::method),
        layouts: layouts.map(|layouts| layouts.count),
        server_started_us: Some(about.started_us),
        trees: Vec::new(),
        volumes: Vec::new(),
        notices: Vec::new(),
    }
}

struct Plan {
    /// One for each volume.
    walks: Vec<Walk>,
    elsewhere: Vec<PathBuf>,
    spaces: Vec<PathBuf>,
}

impl Plan {
    /// Adds entries that come after the links of tablespaces and before what the walks find.
    fn add_after_links(&mut self, mut entries: Vec<Entry>) {
        if let Some(first) = self.walks.first_mut() {
            // Entries are popped from the end.
            entries.reverse();
            first.given.splice(0..0, entries);
        }
    }

    /// Bytes of the relations, as far as they can be listed: for progress, so nothing fails here.
    fn relation_bytes(&self) -> u64 {
        let starts = self.walks.iter().flat_map(|walk| &walk.starts);
        let bytes = starts.map(|start| match start.prefix.as_os_str().is_empty() {
            true => {
                let base = start.dir.dir(Path::new(DEFAULT_SPACE)).ok();
                let global = start.dir.dir(Path::new("global")).ok();
                base.map_or(0, |dir| bytes_below(&*dir, true))
                    + global.map_or(0, |dir| bytes_below(&*dir, false))
            }
            false => bytes_below(&*start.dir, true),
        });
        bytes.sum()
    }

    /// The directories that are walked.
    fn trees(&self) -> impl Iterator<Item = &Path> {
        self.walks
            .iter()
            .flat_map(|walk| &walk.starts)
            .map(|start| start.host_path.as_path())
    }
}

/// Bytes of the files in a directory, or of those in the directories in it.
fn bytes_below(dir: &dyn Dir, of_databases: bool) -> u64 {
    let Ok(names) = dir.list() else {
        return 0;
    };
    let bytes = names.flatten().map(|name| {
        let name = Path::new(&name);
        match (dir.stat(name), of_databases) {
            (Ok(stat), false) if stat.kind == FileKind::File => stat.len,
            (Ok(stat), true) if stat.kind == FileKind::Dir => {
                dir.dir(name).map_or(0, |dir| bytes_below(&*dir, false))
            }
            _ => 0,
        }
    });
    bytes.sum()
}

/// Divides the data directory and the tablespaces among volumes. The data directory is on the first.
fn plan(storage: &dyn Storage, cluster: &Cluster, volumes: &mut Volumes) -> Result<Plan, Error> {
    let io = |action, path: &Path, source| Error::Io {
        action,
        path: path.into(),
        source,
    };
    let look = |path: &Path| storage.stat(path).map_err(|e| io("look at", path, e));
    volumes.of(&cluster.path, look(&cluster.path)?.dev);
    let mut walks = vec![Walk::new()];
    let mut elsewhere = Vec::new();
    let mut spaces = vec![PathBuf::from(DEFAULT_SPACE)];
    let links = cluster.path.join("pg_tblspc");
    let dir = cluster
        .dir
        .dir(Path::new("pg_tblspc"))
        .map_err(|e| io("open directory", &links, e))?;
    for name in dir.list().map_err(|e| io("list", &links, e))? {
        let name = PathBuf::from(name.map_err(|e| io("list", &links, e))?);
        let path = Path::new("pg_tblspc").join(&name);
        let link = links.join(&name);
        let stat = dir.stat(&name).map_err(|e| io("look at", &link, e))?;
        // A directory is an in-place tablespace and is walked like any other directory.
        if !rules::is_tablespace(&path) || stat.kind != FileKind::Symlink {
            continue;
        }
        let target = dir
            .read_link(&name)
            .map_err(|e| io("read the link", &link, e))?;
        let (location, at) = open_link(storage, &link)?;
        let prefix = cluster.version_dir();
        let volume = volumes.of(&at, look(&at)?.dev);
        if walks.len() <= volume {
            walks.resize_with(volume + 1, Walk::new);
        }
        let found = Entry::named(path.clone(), EntryKind::Symlink { target }, &stat);
        // The location may also hold directories of other major versions.
        let version = Path::new(&prefix);
        match location.dir(version) {
            Ok(inner) => {
                let stat = location
                    .stat(version)
                    .map_err(|e| io("look at", &at.join(version), e))?;
                let path = path.join(version);
                spaces.push(path.clone());
                walks[volume]
                    .given
                    .push(Entry::named(path.clone(), EntryKind::Dir, &stat));
                walks[volume].starts.push(Start {
                    dir: inner,
                    host_path: at.join(version),
                    prefix: path,
                });
            }
            // Dropped after it was listed: the WAL has the record.
            Err(e) if is_missing(&e) => {}
            Err(e) => return Err(io("open directory", &at.join(version), e)),
        }
        // Entries are popped from the end, so the last one pushed comes first.
        walks[0].given.push(found);
        elsewhere.push(at);
    }
    let stat = look(&links)?;
    walks[0]
        .given
        .push(Entry::named("pg_tblspc".into(), EntryKind::Dir, &stat));
    walks[0].starts.push(Start {
        dir: cluster.dir.clone(),
        host_path: cluster.path.clone(),
        prefix: PathBuf::new(),
    });
    Ok(Plan {
        walks,
        elsewhere,
        spaces,
    })
}

impl Source for Postgres {
    fn description(&self) -> &Description {
        &self.description
    }

    fn next(&self, volume: usize) -> Result<Option<Entry>, Error> {
        self.cluster.session.check()?;
        let Some(walk) = self.walks.get(volume) else {
            return Ok(None);
        };
        let found = walk.lock().next(&self.cluster, &self.elsewhere)?;
        if found.is_some() || volume != 0 {
            return Ok(found);
        }
        let mut ending = self.ending.lock();
        if let Some(init_fork) = ending.init_forks.next(&self.cluster)? {
            return Ok(Some(init_fork));
        }
        if let Some(history) = ending.histories.pop() {
            return Ok(Some(history));
        }
        if let Some(done) = ending.done.take() {
            return Ok(Some(done));
        }
        if let Some((next, last)) = ending.segments {
            let size = self.cluster.control.wal_segment;
            ending.segments = (next < last).then(|| (next.next(size), last));
            let [segment, mark] = self.log_files.segment(&self.cluster, next)?;
            ending.done = Some(mark);
            return Ok(Some(segment));
        }
        Ok(ending.last_entries.pop())
    }

    fn epilogue(&self) -> Result<bool, Error> {
        let mut ending = self.ending.lock();
        if ending.log.is_some() {
            return Ok(false);
        }
        let cluster = &self.cluster;
        let (control, bytes) = read_control(&*cluster.dir, &cluster.path, &*cluster.clock)?;
        let stopped = cluster.session.end()?;
        let label = stopped.label;
        if label.start != self.start || stopped.stop < self.start {
            return Err(Error::ServerSaid {
                what: "its backup label",
                text: String::from_utf8_lossy(&stopped.label_text).into_owned(),
            });
        }
        self.check_timeline(&control, label.timeline)?;
        let log = copies::Log {
            dir: &*self.log_files.dir,
            timeline: label.timeline,
            size: cluster.control.wal_segment,
            major: cluster.session.about.major,
            start: self.start,
            end: stopped.stop,
        };
        let since = copies::Since {
            going: cluster.session.going()?,
            log_end: cluster.session.log_end()?,
            databases: cluster.session.databases()?,
        };
        let names = self.database_names(&since.databases)?;
        ending.log = Some(LogEnd {
            timeline: label.timeline,
            last: stopped.stop,
            included: self.with_wal,
            is_marked: !cluster.session.about.in_recovery,
        });
        ending.complete_us = Some(cluster.session.clock_us()?);
        match cluster.session.standby() {
            Ok(state) => ending.standby = state,
            Err(e) => ending.not_asked = Some(standby::not_asked(&e)),
        }
        if self.with_wal {
            let (first, last) = self.segments(label.timeline, stopped.stop);
            let size = cluster.control.wal_segment;
            self.log_files.prove(last, size, stopped.stop)?;
            ending.segments = Some((first, last));
            ending.histories = self.log_files.histories(label.timeline)?;
        }
        let found = copies::look(&log, &self.before, &since);
        ending.lost = found.lost;
        let databases = self.walks.iter();
        let databases = databases.flat_map(|walk| std::mem::take(&mut walk.lock().databases));
        let databases: Vec<_> = databases.collect();
        ending.last_entries = self.last_entries(stopped, bytes)?;
        ending.last_entries.push(names);
        for place in found.needed {
            let path = self.cluster.directory_of(place);
            if databases.iter().any(|entered| entered.path == path) {
                continue;
            }
            if !self.spaces.iter().any(|space| path.parent() == Some(space)) {
                ending.lost.push(copies::told_of_missing(place));
                continue;
            }
            ending.last_entries.push(self.database_directory(path)?);
        }
        ending.init_forks = InitForks::of(databases);
        Ok(true)
    }

    fn finish(self: Box<Self>) -> Result<SourceSummary, Error> {
        let (mut warnings, mut notes_said) = (self.config_warnings.clone(), Vec::new());
        for walk in &self.walks {
            let notes = &walk.lock().notes;
            notes_said.extend(notes.earlier.warning(
                "names of an earlier restore, which are no part of the cluster, were left out",
            ));
            warnings.extend(notes.attributes.warnings());
            notes_said.extend(notes.attributes.notes());
            notes_said.extend(notes.special.warning(SPECIAL_LEFT_OUT));
            warnings.extend(notes.links.warning(
                "symbolic links were kept as links; their destinations are not in the backup",
            ));
        }
        let mut damaged = false;
        if let Some(verifier) = &self.cluster.verifier {
            let findings = verifier.findings.lock();
            damaged = findings.bad_count > 0;
            warnings.extend(findings.bad.iter().map(|bad| {
                format!(
                    "{}: block {} is damaged: checksum {:#06x}, not {:#06x}",
                    bad.path.display(),
                    bad.block,
                    bad.found,
                    bad.expected
                )
            }));
            let unnamed = findings.bad_count - findings.bad.len() as u64;
            if unnamed > 0 {
                warnings.push(format!("{unnamed} more pages are damaged"));
            }
            warnings.extend(
                findings
                    .odd_lengths
                    .warning("relation files end within a page"),
            );
        }
        let mut ending = self.ending.lock();
        damaged |= !ending.lost.is_empty();
        warnings.append(&mut ending.lost);
        warnings.extend(ending.not_asked.take());
        let log = ending.log;
        Ok(SourceSummary {
            warnings,
            notes: notes_said,
            damaged,
            left_out: None,
            vanished: None,
            log,
            complete_us: ending.complete_us,
            standby: ending.standby.take(),
        })
    }
}

impl Postgres {
    /// Errors: the backup did not end on the timeline that its label names. `control` was read before it ended.
    fn check_timeline(&self, control: &Control, label: Timeline) -> Result<(), Error> {
        let cluster = &self.cluster;
        let mut found = vec![control.timeline];
        if cluster.session.about.in_recovery {
            // A standby that follows its primary onto another timeline may end the backup there. The stop LSN and the
            // minimum recovery LSN are then not on the label's timeline.
            let (after, _) = read_control(&*cluster.dir, &cluster.path, &*cluster.clock)?;
            found.push(after.timeline);
            found.extend(control.min_recovery_timeline);
            found.extend(after.min_recovery_timeline);
        }
        match found.into_iter().find(|found| *found != label) {
            None => Ok(()),
            Some(other) => Err(Error::TimelineChanged {
                from: label.number(),
                to: other.number(),
            }),
        }
    }

    /// The list of databases: those that there are now, and those that were there when the backup began.
    fn database_names(&self, now: &[Database]) -> Result<Entry, Error> {
        let begun = self.before.databases.iter().chain(&self.before.begun);
        let mut names = BTreeMap::new();
        for database in begun.chain(now) {
            names.insert(database.oid, database.name.clone());
        }
        let list: Vec<_> = names
            .into_iter()
            .map(|(oid, name)| NamedDatabase { oid, name })
            .collect();
        let control = Path::new(CONTROL_FILE);
        let stat = self.cluster.dir.stat(control).map_err(|source| Error::Io {
            action: "look at",
            path: self.cluster.path.join(control),
            source,
        })?;
        let stat = Stat {
            mtime_ns: self.cluster.clock.wall_ns(),
            ..stat
        };
        Ok(held(DATABASES.into(), format_databases(&list), &stat))
    }

    /// A database's directory that no walk has seen. All of them have the same attributes.
    fn database_directory(&self, path: PathBuf) -> Result<Entry, Error> {
        let base = Path::new(DEFAULT_SPACE);
        let stat = self.cluster.dir.stat(base).map_err(|source| Error::Io {
            action: "look at",
            path: self.cluster.path.join(base),
            source,
        })?;
        Ok(Entry::named(path, EntryKind::Dir, &stat))
    }

    /// The segments from the one with the start to the one with the last byte before `stop`.
    fn segments(&self, timeline: Timeline, stop: Lsn) -> (SegmentName, SegmentName) {
        let size = self.cluster.control.wal_segment;
        let last = Lsn(stop.0.saturating_sub(1)).max(self.start);
        (
            SegmentName::holding(timeline, self.start, size),
            SegmentName::holding(timeline, last, size),
        )
    }
}
