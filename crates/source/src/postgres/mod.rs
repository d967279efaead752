//! PostgreSQL clusters, while they run.
//!
//! The server is told that a backup begins (`pg_backup_start`), the files are read as they stand, by many threads, and
//! the server is told the end (`pg_backup_stop`). Files read meanwhile are each of another moment; replaying the log from
//! the start's checkpoint to the end makes them one. So the log between the two is part of the backup: it is copied
//! into the set, kept there by a replication slot meanwhile, or proved to be in an archive.
//!
//! Invariants
//! - One session begins and ends the backup; the backup fails when it dies ([`session`]).
//! - `global/pg_control` is read after every data file and before the end, and is the last entry: a server cannot
//!   be started on a part of a restore.
//! - `backup_label` and `tablespace_map` are the server's, byte for byte, and are never written to the live cluster.
//! - What is left out and kept is in [`rules`]; a relation that vanishes, grows or shrinks meanwhile is normal.
//! - Of a relation with an init fork at the backup's end the init fork is stored ([`init_forks`]).
//! - Memory does not grow with the number of relations; there is a path for each database.
//!
//! A tablespace is a link `pg_tblspc/OID` to its location, before all other entries, and its files below that
//! path; an in-place tablespace is a directory.
//! Source: PostgreSQL 18 documentation, "Making a Base Backup Using the Low Level API"; `basebackup.c`.

mod base;
mod branch;
mod changes;
mod close;
mod cluster;
mod content;
mod copies;
mod differs;
mod init_forks;
mod log_files;
mod own_log;
mod pages;
mod remote;
mod rules;
mod session;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use longshore_io::{Clock, Dir, FileKind, HostClock, Stat, Storage};
use longshore_pg::client::Options;
use longshore_pg::{BACKUP_LABEL, Control, Lsn, Relation, SegmentName, TABLESPACE_MAP, Timeline};
use parking_lot::Mutex;

use crate::reading::is_missing;
use crate::volumes::Volumes;
use crate::{
    BaseRefusal, Description, Entry, EntryKind, Error, LogEnd, LogStart, Source, SourceKind,
    SourceOptions, SourceSummary,
};
pub use base::Base;
pub use branch::{Identified, home, identify};
pub use close::{ClosedLog, close_log};
use cluster::{CONTROL_FILE, Cluster, DEFAULT_SPACE, data_directory, read_control};
use differs::{Differing, Now};
use init_forks::InitForks;
use log_files::{LogFiles, WAL_DIR};
pub use own_log::OwnLog;
use pages::Verifier;
use remote::Remote;
use session::{Session, Stopped};
use tree::{Start, Walk, held};

/// Begins a backup: connects, waits for a checkpoint, and looks at the tablespaces.
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
            &*storage, session, clock, found, options,
        )?)),
        // It is another machine's, or another user's.
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
    /// Canonical locations of tablespaces.
    elsewhere: Vec<PathBuf>,
    /// Where databases' directories lie, in the backup.
    spaces: Vec<PathBuf>,
    log_files: LogFiles,
    with_wal: bool,
    start: Lsn,
    /// As they were before the backup began.
    before: copies::Before,
    ending: Mutex<Ending>,
}

/// What follows the files.
#[derive(Default)]
struct Ending {
    log: Option<LogEnd>,
    /// By the server's clock, microseconds since the Unix epoch.
    complete_us: Option<i64>,
    /// What a restore may not have, for the operator.
    lost: Vec<String>,
    /// The next segment to give, and the last.
    segments: Option<(SegmentName, SegmentName)>,
    /// Says that the segment given last is archived: a restored server must not archive it again.
    done: Option<Entry>,
    init_forks: InitForks,
    /// With their marks, last first.
    histories: Vec<Entry>,
    /// Last first.
    last_entries: Vec<Entry>,
}

impl Postgres {
    fn begin(
        storage: &dyn Storage,
        session: Session,
        clock: Arc<dyn Clock>,
        (dir, path, control): (Arc<dyn Dir>, PathBuf, Control),
        options: &SourceOptions,
    ) -> Result<Postgres, Error> {
        let wanted = &options.postgres;
        let (wal_dir, wal_path) = open_link(storage, &path.join(WAL_DIR))?;
        let (databases, start, mut notices) = session.despite_replay(|tries| {
            if tries > 1 {
                session.checkpoint();
            }
            // Before the checkpoint: a database may be copied as soon as it is over.
            let databases = session.databases()?;
            let kept = if wanted.with_wal { session.keep_log() } else { Ok(()) };
            let not_kept = kept.err().map(|e| {
                format!(
                    "the log is not kept for this backup, which fails if the server recycles it meanwhile: {}",
                    crate::error::with_cause(&e)
                )
            });
            let start = session.begin(&wanted.label, wanted.spread_checkpoint)?;
            Ok((databases, start, Vec::from_iter(not_kept)))
        })?;
        let before = {
            // In this order: who has made one by then has it in the list.
            let are_made = session.makes_databases()?;
            let begun = session.databases()?;
            let log_end = session.log_end()?;
            copies::Before {
                databases,
                begun,
                are_made,
                log_end,
            }
        };
        let (now, _) = read_control(&*dir, &path, &*clock)?;
        if now.redo < start {
            return Err(Error::DataDirectory {
                path,
                what: "the checkpoint that the server has just made is not in its control file",
            });
        }
        let mut lineage = branch::observe(&session, (&*dir, &path), &*wal_dir, &now)?;
        let size = control.wal_segment;
        branch::relate(&mut lineage, &*wal_dir, size, &wanted.earlier);
        // Whatever the base is of, what differs from it is found by content. But a base of another branch is one that
        // others may remove, and summaries of this server's WAL say nothing of it.
        let mut base = wanted.base.clone();
        if let Some(base) = &mut base
            && let Some(identity) = &base.identity
        {
            let mut asked = lineage.clone();
            let relation =
                branch::relate(&mut asked, &*wal_dir, size, std::slice::from_ref(identity)).pop();
            let of_this_run = lineage.run.is_some() && identity.lineage.run == lineage.run;
            match relation {
                Some(Relation::Refuted(what)) => {
                    base.server_started_us = None;
                    notices.push(format!(
                        "the base is of another branch of the cluster: {what}; every page is compared with it by content"
                    ));
                }
                Some(Relation::Unknown(what)) if !of_this_run => {
                    base.server_started_us = None;
                    notices.push(format!(
                        "the base is not known to be of this server's branch: {what}; every page is compared with it by \
                         content"
                    ));
                }
                Some(Relation::Unknown(_) | Relation::Proved(_)) | None => {}
            }
        }
        let verifier = (control.data_checksum_version != 0).then(|| Verifier {
            page_bytes: control.page_bytes as usize,
            segment_pages: control.segment_pages,
            start: OnceLock::from(start),
            fail_on_bad_page: wanted.fail_on_bad_page,
            findings: Mutex::default(),
        });
        if verifier.is_none() {
            notices.push("this cluster's pages carry no checksums: none are verified".into());
        }
        let differing = base.as_ref().map(|base| {
            let now = Now {
                wal_dir: &*wal_dir,
                session: &session,
                clock: &*clock,
                control: &now,
                start,
            };
            Differing::begin(base, &now)
        });
        let differing = differing.transpose()?.map(|(differing, notice)| {
            notices.extend(notice);
            differing
        });
        let history = log_files::history(&*wal_dir, now.timeline);
        let base_bytes = differing.as_ref().map_or(0, Differing::memory_bytes);
        let system = control.system;
        let server_started_us = Some(session.about.started_us);
        let cluster_name = session.about.cluster_name.replace('/', "-");
        let cluster = Arc::new(Cluster {
            session,
            clock,
            control,
            verifier,
            differing,
            dir,
            path,
        });
        let mut volumes = Volumes::new(storage, &options.volume_map)?;
        let plan = plan(storage, &cluster, &mut volumes)?;
        let description = Description {
            kind: SourceKind::Postgres,
            database: options.database.clone().unwrap_or(match cluster_name {
                name if name.is_empty() => "postgres".into(),
                name => name,
            }),
            log: Some(LogStart {
                system,
                timeline: now.timeline,
                first: start,
            }),
            history,
            lineage: Some(lineage),
            own_log: Some(OwnLog::files(
                wal_dir.clone(),
                wal_path.clone(),
                control.wal_segment,
            )),
            page_bytes: control.page_bytes,
            expected_bytes: None,
            memory_bytes: MEMORY_BYTES + base_bytes,
            differing: cluster.differing.as_ref().map(Differing::method),
            server_started_us,
            trees: plan.trees().map(Path::to_owned).collect(),
            volumes: volumes.into_vec(),
            notices,
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
            log_files: LogFiles {
                dir: wal_dir,
                path: wal_path,
            },
            with_wal: wanted.with_wal,
            start,
            before,
            ending: Mutex::default(),
        })
    }

    /// The entries that say what the rest is: the map and the label, and at the very end the control file.
    fn last_entries(&self, stopped: Stopped, control: Vec<u8>) -> Result<Vec<Entry>, Error> {
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

/// Small files held while their blocks are made: at most a buffer's worth for each job under way.
const MEMORY_BYTES: u64 = 16 << 20;

/// A directory that may be a link to elsewhere.
fn open_link(storage: &dyn Storage, path: &Path) -> Result<(Arc<dyn Dir>, PathBuf), Error> {
    let io = |source| Error::Io {
        action: "open directory",
        path: path.into(),
        source,
    };
    let real = storage.canonical(path).map_err(io)?;
    Ok((storage.dir(&real).map_err(io)?, real))
}

struct Plan {
    /// One for each volume.
    walks: Vec<Walk>,
    elsewhere: Vec<PathBuf>,
    spaces: Vec<PathBuf>,
}

impl Plan {
    /// Where what is walked lies.
    fn trees(&self) -> impl Iterator<Item = &Path> {
        self.walks
            .iter()
            .flat_map(|walk| &walk.starts)
            .map(|start| start.host_path.as_path())
    }
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
        // A directory is an in-place tablespace, and is walked like any other.
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
        // Other majors may share the location.
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
            // Dropped between the listing and now: that is in the log.
            Err(e) if is_missing(&e) => {}
            Err(e) => return Err(io("open directory", &at.join(version), e)),
        }
        // What is pushed last comes first.
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
        let mut found = vec![control.timeline];
        if cluster.session.about.in_recovery {
            // A standby that follows its primary onto another timeline may end the backup there: the place that it
            // gives, and the one before which nothing is consistent, are then not on the label's.
            let (after, _) = read_control(&*cluster.dir, &cluster.path, &*cluster.clock)?;
            found.push(after.timeline);
            found.extend(control.min_recovery_timeline);
            found.extend(after.min_recovery_timeline);
        }
        if let Some(other) = found.into_iter().find(|found| *found != label.timeline) {
            return Err(Error::TimelineChanged {
                from: label.timeline.number(),
                to: other.number(),
            });
        }
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
        ending.log = Some(LogEnd {
            timeline: label.timeline,
            last: stopped.stop,
            included: self.with_wal,
            is_marked: !cluster.session.about.in_recovery,
        });
        ending.complete_us = Some(cluster.session.clock_us()?);
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
        for place in found.needed {
            let path = self.cluster.directory_of(place);
            if databases.iter().any(|entered| entered.path == path) {
                continue;
            }
            if !self.spaces.iter().any(|space| path.parent() == Some(space)) {
                ending.lost.push(copies::told_of_missing(place));
                continue;
            }
            // They are all alike.
            let base = Path::new(DEFAULT_SPACE);
            let stat = self.cluster.dir.stat(base).map_err(|source| Error::Io {
                action: "look at",
                path: self.cluster.path.join(base),
                source,
            })?;
            let directory = Entry::named(path, EntryKind::Dir, &stat);
            ending.last_entries.push(directory);
        }
        ending.init_forks = InitForks::of(databases);
        Ok(true)
    }

    fn finish(self: Box<Self>) -> Result<SourceSummary, Error> {
        let mut warnings = Vec::new();
        for walk in &self.walks {
            let notes = &walk.lock().notes;
            warnings.extend(notes.attributes.warnings());
            warnings.extend(
                notes
                    .special
                    .warning("sockets, FIFOs or devices were left out"),
            );
            warnings.extend(notes.links.warning(
                "symbolic links were kept as links; what they point to is not in the backup",
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
        let log = ending.log;
        Ok(SourceSummary {
            warnings,
            damaged,
            left_out: None,
            log,
            complete_us: ending.complete_us,
        })
    }
}

impl Postgres {
    /// From the segment with the start to the one with the last byte before `stop`.
    fn segments(&self, timeline: Timeline, stop: Lsn) -> (SegmentName, SegmentName) {
        let size = self.cluster.control.wal_segment;
        let last = Lsn(stop.0.saturating_sub(1)).max(self.start);
        (
            SegmentName::holding(timeline, self.start, size),
            SegmentName::holding(timeline, last, size),
        )
    }
}
