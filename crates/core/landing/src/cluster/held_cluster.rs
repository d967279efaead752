//! A restored cluster that waits for more: differential sets, WAL, the command to recover.
//!
//! Its control file has another name, so that no server starts on it, neither by mistake nor by a service unit that
//! restarts. The log sets restored for it are in [`LOG_DIR`] inside the data directory, one directory for each, in
//! order. During recovery the server fetches its segments from there, and removes them at the end.
//!
//! Each log set must continue the branch of what was restored before it: two restores of one backup have the same
//! timeline and, after equal work, the same LSNs. The first log set is compared with the set's own lineage, which is
//! kept in [`LINEAGE`]. Each later one also contains the last segment of the one before.
//!
//! Invariants
//! - The control file gets its name last, when settings and WAL are durable.
//! - Every step can be repeated after an interruption.
//!
//! Leaves to others: writing the files of a set (`mod.rs`, `in_place.rs`), and whether a server may run in the
//! directory (`running.rs`).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Attributes, Dir, File, FileKind, OpenHow, Storage, Via};
use longshore_pg::client::{Connection, Error as NoConnection, Host, Mode, Options};
use longshore_pg::lineage::LINEAGE_MAX;
use longshore_pg::lineage::WitnessResult;
use longshore_pg::recovery::ARCHIVING_OFF;
use longshore_pg::wal::{
    History, NotRecords, Records, WalName, is_same_history, restore_name, restored_from,
};
use longshore_pg::{
    CONTROL_FILE_LEN, Control, Lineage, Lsn, Recovery, SegmentName, Timeline, Witness,
};
use uuid::Uuid;

use super::made::taken_by;
use super::names::{AUTO_CONF, AUTO_CONF_MAX, GLOBAL, WAL_DIR, file_like};
use super::outline::CONTROL;
use crate::cluster_error::ClusterError;
use crate::error::{Error, at};
use crate::running::refuse_running;
use crate::tree::remove_tree;

/// The control file's name while the cluster is held.
pub const CONTROL_HELD: &str = "global/pg_control.longshore-held";
/// The lineage from the header of the set that was restored last. Removed when the cluster is released.
pub const LINEAGE: &str = "longshore_lineage";
/// Names the set that a cluster was restored from. Exists from when the cluster is held until no restore sequence
/// waits for it.
pub const SET_HELD: &str = "global/longshore_held_set";
/// Below the data directory: the WAL that was restored for it.
const LOG_DIR: &str = "longshore_log";
/// Longest history that is read, in bytes.
const HISTORY_MAX: usize = 1 << 20;
/// Bytes of two segments that are read at a time; segments have at least 1 MiB.
const COMPARED: usize = 256 << 10;
/// The name of the edited settings until they are complete.
const AUTO_CONF_NEW: &str = "postgresql.auto.conf.longshore";

/// A cluster that was restored with [`crate::ClusterOptions::hold`].
#[derive(Debug)]
pub struct HeldCluster {
    path: PathBuf,
    dir: Arc<dyn Dir>,
    control: Control,
}

/// The exclusive right to a step on a held cluster.
#[derive(Debug)]
pub struct HeldLock {
    _file: Arc<dyn File>,
}

impl HeldCluster {
    /// Errors: [`ClusterError::NotHeld`] for any other directory.
    pub fn open(storage: &dyn Storage, path: &Path) -> Result<HeldCluster, Error> {
        let not_held = |what: String| ClusterError::NotHeld {
            path: path.to_owned(),
            what,
        };
        let dir = storage.dir(path).map_err(|e| not_held(e.to_string()))?;
        refuse_running(&*dir, path)?;
        let bytes = read_control(&*dir, CONTROL_HELD)
            .map_err(|e| not_held(format!("{CONTROL_HELD}: {e}")))?;
        let control = Control::parse(&bytes).map_err(|e| not_held(e.to_string()))?;
        Ok(HeldCluster {
            path: path.to_owned(),
            dir,
            control,
        })
    }

    /// Keeps other processes, and other sessions of this one, from the next step until the returned lock is dropped;
    /// `None` if no cluster is held there.
    ///
    /// The lock is on the held control file itself: it leaves nothing behind, and a step that replaces or releases the
    /// cluster removes it too. Errors: [`Error::TargetBusy`] while another process has it.
    pub fn lock(storage: &dyn Storage, path: &Path) -> Result<Option<HeldLock>, Error> {
        let name = Path::new(CONTROL_HELD);
        let missing = |e: &std::io::Error| {
            matches!(
                e.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            )
        };
        let wrong = at("lock", &path.join(name));
        let opened = storage
            .dir(path)
            .and_then(|dir| Ok((dir.open_to_lock(name)?, dir)));
        let (file, dir) = match opened {
            Err(e) if missing(&e) => return Ok(None),
            opened => opened.map_err(&wrong)?,
        };
        let busy = || Error::TargetBusy { path: path.into() };
        if !file.try_lock().map_err(&wrong)? {
            return Err(busy());
        }
        // The previous holder may have put another cluster here, or released this one, before we got the lock.
        let ours = file.stat().map_err(&wrong)?;
        match dir.stat(name) {
            Ok(named) if (named.dev, named.ino) == (ours.dev, ours.ino) => {
                Ok(Some(HeldLock { _file: file }))
            }
            Err(e) if !missing(&e) => Err(wrong(e)),
            _ => Err(busy()),
        }
    }

    /// Whether the cluster was restored from this set of this system. Another program may have restored something else
    /// to the same directory.
    pub fn is_of(&self, system: u64, set: Uuid) -> bool {
        let marked = set_of(&*self.dir);
        self.control.system == system && marked.is_none_or(|marked| marked == set)
    }

    /// The directory to which the log set with this number (from 1) is restored.
    pub fn log_place(&self, number: u32) -> PathBuf {
        self.path.join(LOG_DIR).join(format!("{number:08}"))
    }

    /// Gives a restored log set the owner of the cluster.
    ///
    /// The owner of a directory may exchange the names in it. So a file is given while its directory is not yet the owner's, and a
    /// directory as the one that was opened.
    pub fn adopt_log(&self, number: u32) -> Result<(), Error> {
        let root = Path::new("");
        let stat = self.dir.stat(root).map_err(at("look at", &self.path))?;
        let owner = Attributes {
            owner: Some((stat.uid, stat.gid)),
            ..Attributes::default()
        };
        let is_owners = |dir: &dyn Dir| dir.stat(root).map(|found| found.uid == stat.uid);
        let set = Path::new(LOG_DIR).join(format!("{number:08}"));
        let files = set.join("pg_wal");
        let given = || -> std::io::Result<()> {
            let dir = self.dir.dir(&files)?;
            if !is_owners(&*dir)? {
                for name in dir.list()? {
                    dir.set_attributes(Path::new(&name?), &owner)?;
                }
            }
            for name in [&*files, &set, Path::new(LOG_DIR)] {
                let dir = self.dir.dir(name)?;
                if !is_owners(&*dir)? {
                    dir.set_attributes(root, &owner)?;
                }
            }
            Ok(())
        };
        given().map_err(at("change the owner of", &self.path.join(&set)))
    }

    /// Whether the log set with this number, which ends on the timeline `last`, continues from an LSN on another
    /// timeline: by the timeline histories, and by the WAL itself, which is compared where the two meet.
    pub fn follows(
        &self,
        number: u32,
        (timeline, lsn): (Timeline, Lsn),
        last: Timeline,
    ) -> Result<bool, Error> {
        Ok(self.is_on_way(number, (timeline, lsn), last)?
            && match number {
                1 => self.has_own_log(lsn, last),
                _ => self.is_joined(number, lsn, (timeline, last)),
            })
    }

    /// Reads the WAL in these directories, by the names of the timelines from the first to the last.
    fn log_in<'a>(
        &'a self,
        places: &'a [PathBuf],
        (first, last): (Timeline, Timeline),
    ) -> impl FnMut(Lsn, &mut [u8]) -> std::io::Result<()> + use<'a> {
        let size = self.control.wal_segment;
        move |at, buf| {
            let mut done = 0;
            while done < buf.len() {
                let place = Lsn(at.0 + done as u64);
                let within = place.0 % size.bytes();
                let len = (size.bytes() - within).min((buf.len() - done) as u64) as usize;
                let numbers = (first.number()..=last.number()).filter_map(Timeline::new);
                let names = numbers.map(|timeline| SegmentName::holding(timeline, place, size));
                let file = names
                    .flat_map(|name| places.iter().map(move |dir| dir.join(name.to_string())))
                    .find_map(|path| self.dir.open(&path, OpenHow::Read).ok())
                    .ok_or(std::io::ErrorKind::NotFound)?;
                file.read_exact_at(&mut buf[done..done + len], within, Via::Cache)?;
                done += len;
            }
            Ok(())
        }
    }

    /// The witness of its branch: from the set's lineage, or from the WAL in the set. `None` for sets of earlier
    /// versions without WAL.
    fn witness(&self) -> Option<Witness> {
        let read = || {
            let file = self.dir.open(Path::new(LINEAGE), OpenHow::Read).ok()?;
            let mut bytes = vec![0; LINEAGE_MAX];
            let len = file.read_full_at(&mut bytes, 0, Via::Cache).ok()?;
            Lineage::decode(&bytes[..len])?.witness
        };
        read().or_else(|| {
            let (timeline, size) = (self.control.timeline, self.control.wal_segment);
            let own = [PathBuf::from(WAL_DIR)];
            let read = self.log_in(&own, (timeline, timeline));
            Witness::take(read, timeline, self.control.checkpoint, size).ok()
        })
    }

    /// Whether the first log set contains the WAL that the cluster was restored with. If either lacks it, nothing is
    /// refuted.
    fn has_own_log(&self, reached: Lsn, last: Timeline) -> bool {
        let (timeline, size) = (self.control.timeline, self.control.wal_segment);
        let own = [PathBuf::from(WAL_DIR)];
        let Some(witness) = self.witness() else {
            return true;
        };
        let restored = [self.log_below(1)];
        let mut read = self.log_in(&restored, (timeline, last));
        let found = witness.check(|_, at, buf| read(at, buf));
        match found {
            WitnessResult::Same => true,
            WitnessResult::Other => false,
            // The log set begins after the witness: its first record must name the last record of the WAL before.
            WitnessResult::Gone | WitnessResult::Unreadable(_) => {
                let start = |lsn: u64| Lsn(lsn / size.bytes() * size.bytes());
                let mut one = [0];
                let meeting = start(reached.0.saturating_sub(1));
                let border = match read(meeting, &mut one) {
                    Ok(()) => meeting,
                    Err(_) => start(reached.0),
                };
                self.is_joined_in(
                    &[self.log_below(1), own[0].clone()],
                    border,
                    (timeline, last),
                )
            }
        }
    }

    /// Whether a log set contains the last segment of the previous set and continues it: its first record names the
    /// last one there. If the archive had no segment before the set, only the second condition applies.
    fn is_joined(&self, number: u32, border: Lsn, timelines: (Timeline, Timeline)) -> bool {
        let places = [self.log_below(number - 1), self.log_below(number)];
        self.is_shared(&places, border, timelines) != Some(false)
            && self.is_joined_in(&places, border, timelines)
    }

    /// Whether the segment before the border is the same in both directories; `None` if one lacks it.
    fn is_shared(
        &self,
        places: &[PathBuf; 2],
        border: Lsn,
        (first, last): (Timeline, Timeline),
    ) -> Option<bool> {
        let size = self.control.wal_segment;
        let before = Lsn(border.0.checked_sub(1)?);
        let numbers = (first.number()..=last.number()).filter_map(Timeline::new);
        let mut names = numbers.map(|timeline| SegmentName::holding(timeline, before, size));
        let open = |place: &PathBuf, name: &SegmentName| {
            self.dir.open(&place.join(name.to_string()), OpenHow::Read)
        };
        let (one, other) = names.find_map(|name| {
            let one = open(&places[0], &name).ok()?;
            Some((one, open(&places[1], &name).ok()?))
        })?;
        let (mut a, mut b) = (vec![0; COMPARED], vec![0; COMPARED]);
        for at in (0..size.bytes()).step_by(COMPARED) {
            let read = |file: &dyn File, buf: &mut [u8]| file.read_exact_at(buf, at, Via::Cache);
            // WAL that cannot be read here cannot be used for recovery either.
            let is_read = read(&*one, &mut a)
                .and_then(|()| read(&*other, &mut b))
                .is_ok();
            if !is_read || a != b {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Like [`HeldCluster::is_joined`], for the WAL in these directories.
    fn is_joined_in(
        &self,
        places: &[PathBuf],
        border: Lsn,
        timelines: (Timeline, Timeline),
    ) -> bool {
        let size = self.control.wal_segment;
        let read = self.log_in(places, timelines);
        let before = Lsn(border.0.saturating_sub(1) / size.bytes() * size.bytes());
        let walk = || -> Result<(), NotRecords> {
            let mut records = Records::of_segment(read, before)?;
            // One record after the border is read; a set contains at least a commit.
            while records.place() <= border {
                if records.next(Lsn(u64::MAX), |_, _| false)?.is_none() {
                    break;
                }
            }
            Ok(())
        };
        match walk() {
            Ok(()) | Err(NotRecords::Read { .. }) => true,
            Err(NotRecords::Broken { .. } | NotRecords::Segment { .. }) => false,
        }
    }

    /// The log set's directory, relative to the data directory.
    fn log_below(&self, number: u32) -> PathBuf {
        Path::new(LOG_DIR)
            .join(format!("{number:08}"))
            .join(WAL_DIR)
    }

    /// Whether the log set's history includes the LSN.
    fn is_on_way(
        &self,
        number: u32,
        (timeline, lsn): (Timeline, Lsn),
        last: Timeline,
    ) -> Result<bool, Error> {
        let name = WalName::History(last).to_string();
        let history = self.history_in(&self.log_below(number), &name)?;
        if timeline == last {
            let before = match number {
                1 => PathBuf::from(WAL_DIR),
                _ => self.log_below(number - 1),
            };
            let before = self.history_in(&before, &name)?;
            return Ok(match (before, history) {
                (Some(before), Some(history)) => is_same_history(last, &before, &history),
                _ => true,
            });
        }
        // Timeline 1 has no history and no predecessor.
        let history = history.and_then(|bytes| History::parse(last, &bytes).ok());
        Ok(history.is_some_and(|history| history.passes(timeline, lsn)))
    }

    /// The text of a history in this directory; `None` if there is none.
    fn history_in(&self, place: &Path, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let below = place.join(name);
        let read = || -> std::io::Result<Vec<u8>> {
            let file = self.dir.open(&below, OpenHow::Read)?;
            let mut bytes = vec![0; HISTORY_MAX];
            let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
            bytes.truncate(len);
            Ok(bytes)
        };
        match read() {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            read => Ok(Some(read.map_err(at("read", &self.path.join(&below)))?)),
        }
    }

    /// The system identifier of a cluster at `path`, held or not; `None` if there is none.
    pub fn system_of(storage: &dyn Storage, path: &Path) -> Option<u64> {
        let dir = storage.dir(path).ok()?;
        let names = [CONTROL, CONTROL_HELD];
        let bytes = names
            .iter()
            .find_map(|name| read_control(&*dir, name).ok())?;
        Control::parse(&bytes).ok().map(|control| control.system)
    }

    /// Whether the cluster at `path`, held or not, belongs to this system and may archive, by its
    /// `postgresql.auto.conf`: a cluster that replaces it continues its archive. Copies that were kept from archiving
    /// stay so.
    pub fn may_archive(storage: &dyn Storage, path: &Path, system: u64) -> bool {
        let read = || -> std::io::Result<Vec<u8>> {
            let conf = storage.dir(path)?;
            let conf = conf.open(Path::new(AUTO_CONF), OpenHow::Read)?;
            let mut bytes = vec![0; AUTO_CONF_MAX];
            let len = conf.read_full_at(&mut bytes, 0, Via::Cache)?;
            bytes.truncate(len);
            Ok(bytes)
        };
        let is_off = |line: &[u8]| line.trim_ascii() == ARCHIVING_OFF.as_bytes();
        HeldCluster::system_of(storage, path) == Some(system)
            && read().is_ok_and(|conf| !conf.split(|byte| *byte == b'\n').any(is_off))
    }

    /// Whether the directory at `path` is the one that the server of a set had when the set was made; `lineage` is
    /// from the set's header. A copy of that directory is not, wherever it is, nor is one whose set has no lineage.
    pub fn is_home(storage: &dyn Storage, path: &Path, lineage: &[u8]) -> bool {
        let Some(home) = Lineage::decode(lineage).and_then(|lineage| lineage.home) else {
            return false;
        };
        let real = storage.canonical(path);
        real.is_ok_and(|real| match storage.dir(&real) {
            Ok(dir) => longshore_source::home(&*dir, &real) == Some(home),
            Err(_) => false,
        })
    }

    /// Whether certainly no server listens at these addresses. A server that answers runs in another directory.
    pub fn is_down(storage: &dyn Storage, server: &Options) -> bool {
        let nobody = |host: &Host| {
            let one = Options {
                hosts: vec![host.clone()],
                ..server.clone()
            };
            match Connection::open(storage, &one, Mode::Sql) {
                Err(NoConnection::Connect { source, .. }) => matches!(
                    source.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused
                ),
                _ => false,
            }
        };
        server.hosts.iter().all(nobody)
    }

    /// Whether the cluster at `path` was restored from this set of this system, was held, and was released.
    pub fn is_released(storage: &dyn Storage, path: &Path, system: u64, set: Uuid) -> bool {
        let Ok(dir) = storage.dir(path) else {
            return false;
        };
        let is_held = dir.stat(Path::new(CONTROL_HELD)).is_ok();
        let is_ours =
            set_of(&*dir) == Some(set) && HeldCluster::system_of(storage, path) == Some(system);
        !is_held && is_ours
    }

    /// Removes the mark that identifies it, when [`HeldCluster::is_released`] will no longer be asked.
    pub fn forget(storage: &dyn Storage, path: &Path) -> Result<(), Error> {
        let mark = Path::new(SET_HELD);
        let removed = storage.dir(path).and_then(|dir| dir.remove_file(mark));
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(at("remove", &path.join(mark))(e))
            }
            _ => Ok(()),
        }
    }

    /// Removes what an interrupted or refused step left after the log sets that count.
    fn clear_log(&self, count: u32) -> std::io::Result<()> {
        let place = Path::new(LOG_DIR);
        let dir = match self.dir.dir(place) {
            Ok(dir) => dir,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        let counted = |name: &OsString| {
            let number = name.to_str().and_then(|n| n.parse::<u32>().ok());
            number.is_some_and(|n| (1..=count).contains(&n))
        };
        for name in dir.list()? {
            let name = name?;
            if !counted(&name) {
                remove_tree(&*self.dir, &place.join(name))?;
            }
        }
        Ok(())
    }

    /// The recovery settings with which a server fetches the restored WAL and removes it afterwards.
    fn with_log(&self, recovery: &Recovery) -> Recovery {
        // Exit code 1 means that there is no such file; a file that exists and cannot be read must stop the server,
        // not end its recovery. Histories get the remark of this restore.
        let restore = Uuid::new_v4();
        let remark = match set_of(&*self.dir) {
            Some(set) => restored_from("%f", restore_name(restore, set)),
            None => restored_from("%f", restore),
        };
        let fetch = format!(
            "for f in {LOG_DIR}/*/pg_wal/%f; do test -f \"$f\" || continue; cp \"$f\" \"%p\" || exit 200; \
             case %f in *.history) printf \"\\n{remark}\\n\" >> \"%p\" || exit 200;; esac; exit 0; done; exit 1"
        );
        Recovery {
            restore_command: Some(fetch),
            takes_name: false,
            end_command: Some(format!("rm -rf {LOG_DIR}")),
            ..recovery.clone()
        }
    }

    /// Allows the cluster to be started. `recovery` decides how far the WAL of `log_count` sets is replayed; it is not
    /// used if there are none. Errors: also [`ClusterError::RestoredLogLost`] and [`ClusterError::TablespaceTaken`].
    pub fn release(
        self,
        storage: &dyn Storage,
        recovery: &Recovery,
        log_count: u32,
    ) -> Result<(), Error> {
        let global = Path::new(GLOBAL);
        let root = Path::new("");
        let log = self.path.join(LOG_DIR);
        // A server takes missing WAL for the end of the WAL, and opens.
        for number in 1..=log_count {
            let place = self.log_place(number).join("pg_wal");
            let below = Path::new(LOG_DIR)
                .join(format!("{number:08}"))
                .join("pg_wal");
            match self.dir.stat(&below) {
                Ok(stat) if stat.kind == FileKind::Dir => {}
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(at("look at", &place)(e));
                }
                _ => return Err(ClusterError::RestoredLogLost { path: place }.into()),
            }
        }
        self.clear_log(log_count).map_err(at("clear", &log))?;
        self.check_tablespaces(storage, log_count)?;
        if log_count > 0 {
            let recovery = self.with_log(recovery);
            let stat = self.dir.stat(global).map_err(at("look at", &self.path))?;
            let like = file_like(&Attributes {
                mode: Some(stat.mode),
                owner: Some((stat.uid, stat.gid)),
                mtime_ns: None,
            });
            self.settle(&recovery, &like)
                .map_err(at("edit", &self.path.join(AUTO_CONF)))?;
            self.dir.sync(root).map_err(at("sync", &self.path))?;
        }
        match self.dir.remove_file(Path::new(LINEAGE)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(at("remove", &self.path.join(LINEAGE))(e));
            }
            _ => {}
        }
        let (held, control) = (Path::new(CONTROL_HELD), Path::new(CONTROL));
        self.dir
            .rename(held, control)
            .and_then(|()| self.dir.sync(global))
            .map_err(at("rename", &self.path.join(held)))
    }

    /// Refuses WAL whose replay would write into another server's files.
    fn check_tablespaces(&self, storage: &dyn Storage, log_count: u32) -> Result<(), Error> {
        let below = |number| Path::new(LOG_DIR).join(format!("{number:08}/{WAL_DIR}"));
        // WAL that is fetched takes precedence over WAL that is already there.
        let logs: Vec<PathBuf> = (1..=log_count).map(below).chain([WAL_DIR.into()]).collect();
        let taken = taken_by(storage, &*self.dir, self.control.wal_segment, &logs);
        match taken.map_err(at("read the WAL of", &self.path))?.pop() {
            None => Ok(()),
            Some(made) => Err(ClusterError::TablespaceTaken { made }.into()),
        }
    }

    /// Removes the cluster; the data directory stays, empty. After an interruption the rest is still held, and can be
    /// removed again. Files outside, such as tablespaces, stay.
    pub fn discard(self) -> Result<(), Error> {
        let remove = at("remove what is in", &self.path);
        let empty = || -> std::io::Result<()> {
            let (global, held) = (Path::new(GLOBAL), Path::new(CONTROL_HELD));
            for name in self.dir.list()? {
                let name = PathBuf::from(name?);
                if name != global {
                    remove_tree(&*self.dir, &name)?;
                }
            }
            for name in self.dir.dir(global)?.list()? {
                let name = global.join(name?);
                if name != held {
                    remove_tree(&*self.dir, &name)?;
                }
            }
            // The mark that everything belongs to a restore is removed last.
            self.dir.sync(global)?;
            self.dir.sync(Path::new(""))?;
            remove_tree(&*self.dir, global)?;
            self.dir.sync(Path::new(""))
        };
        empty().map_err(remove)
    }

    /// Writes the settings, and the file that requests recovery.
    fn settle(&self, recovery: &Recovery, like: &Attributes) -> std::io::Result<()> {
        let (conf, new) = (Path::new(AUTO_CONF), Path::new(AUTO_CONF_NEW));
        let mut stored = vec![0; AUTO_CONF_MAX];
        let len = match self.dir.open(conf, OpenHow::Read) {
            Ok(file) => file.read_full_at(&mut stored, 0, Via::Cache)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => 0,
            Err(e) => return Err(e),
        };
        if len == stored.len() {
            return Err(std::io::Error::other(
                "it is longer than any server would write",
            ));
        }
        // The restored WAL was checked when it was restored: reading ahead never meets a refused segment.
        let text = recovery.edit(&stored[..len], 0);
        // A leftover of an interrupted try.
        match self.dir.remove_file(new) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = self.dir.open(new, OpenHow::CreateNew)?;
        file.write_all_at(&text, 0, Via::Cache)?;
        file.sync()?;
        self.dir.set_attributes(new, like)?;
        self.dir.rename(new, conf)?;
        let signal = Path::new(recovery.signal_file());
        match self.dir.open(signal, OpenHow::CreateNew) {
            Ok(file) => file.sync()?,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
        self.dir.set_attributes(signal, like)
    }
}

/// The set in a cluster's mark.
fn set_of(dir: &dyn Dir) -> Option<Uuid> {
    let file = dir.open(Path::new(SET_HELD), OpenHow::Read).ok()?;
    let mut bytes = [0; uuid::fmt::Hyphenated::LENGTH];
    let len = file.read_full_at(&mut bytes, 0, Via::Cache).ok()?;
    Uuid::try_parse_ascii(&bytes[..len]).ok()
}

fn read_control(dir: &dyn Dir, name: &str) -> std::io::Result<Vec<u8>> {
    let file = dir.open(Path::new(name), OpenHow::Read)?;
    let mut bytes = vec![0; CONTROL_FILE_LEN];
    let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
    bytes.truncate(len);
    Ok(bytes)
}
