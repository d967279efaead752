//! A restored cluster that waits for more: differential sets, log, the word to recover.
//!
//! Its control file has another name, so that no server starts on it, by mistake or by a unit that restarts. The log sets
//! that were restored for it lie in [`LOG_DIR`] inside the data directory, one directory for each, in their order; the
//! server fetches its segments from there while it recovers, and removes them at the end.
//!
//! Invariants
//! - The control file gets its name last, when settings and log are durable.
//! - Every step can be repeated after an interruption.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Attributes, Dir, File, FileKind, OpenHow, Via};
use longshore_pg::recovery::ARCHIVING_OFF;
use longshore_pg::wal::{History, WalName, restored_from};
use longshore_pg::{CONTROL_FILE_LEN, Control, Lsn, Recovery, Timeline};
use uuid::Uuid;

use super::made::taken_by;
use super::{
    AUTO_CONF, AUTO_CONF_MAX, ClusterError, GLOBAL, WAL_DIR, at, file_like, refuse_running,
};
use crate::cluster::outline::CONTROL;
use crate::place::remove_tree;
use crate::{Error, House};

/// The control file's name while the cluster is held back.
pub const CONTROL_HELD: &str = "global/pg_control.longshore-held";
/// Below the data directory: the log that was restored for it.
const LOG_DIR: &str = "longshore_log";
/// Longest history that is read.
const HISTORY_MAX: usize = 1 << 20;
/// What the edited settings are called until they are complete.
const AUTO_CONF_NEW: &str = "postgresql.auto.conf.longshore";

/// A cluster that was restored with [`crate::ClusterOptions::hold`].
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    dir: Arc<dyn Dir>,
    control: Control,
}

/// A step on a held cluster that nobody else takes at the same time.
#[derive(Debug)]
pub struct HeldLock {
    _file: Arc<dyn File>,
}

impl Held {
    /// Errors: [`ClusterError::NotHeld`] for any directory that is none.
    pub fn open(house: &House, path: &Path) -> Result<Held, Error> {
        let not_held = |what: String| ClusterError::NotHeld {
            path: path.to_owned(),
            what,
        };
        let dir = house
            .storage
            .dir(path)
            .map_err(|e| not_held(e.to_string()))?;
        refuse_running(&*dir, path)?;
        let bytes = read_control(&*dir, CONTROL_HELD)
            .map_err(|e| not_held(format!("{CONTROL_HELD}: {e}")))?;
        let control = Control::parse(&bytes).map_err(|e| not_held(e.to_string()))?;
        Ok(Held {
            path: path.to_owned(),
            dir,
            control,
        })
    }

    /// Keeps other processes from the next step, and other sessions of this one, until what is returned is dropped;
    /// `None` where no cluster is held back.
    ///
    /// The lock is the held control file's own: it leaves nothing behind, and what replaces or releases the cluster takes
    /// it along. Errors: [`Error::TargetBusy`] while somebody else has it.
    pub fn lock(house: &House, path: &Path) -> Result<Option<HeldLock>, Error> {
        let name = Path::new(CONTROL_HELD);
        let missing = |e: &std::io::Error| {
            matches!(
                e.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            )
        };
        let wrong = at("lock", &path.join(name));
        let opened = house
            .storage
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
        // Whoever had it may have put another cluster here, or released this one, before we had it.
        let ours = file.stat().map_err(&wrong)?;
        match dir.stat(name) {
            Ok(named) if (named.dev, named.ino) == (ours.dev, ours.ino) => {
                Ok(Some(HeldLock { _file: file }))
            }
            Err(e) if !missing(&e) => Err(wrong(e)),
            _ => Err(busy()),
        }
    }

    /// PostgreSQL's system identifier.
    pub fn system(&self) -> u64 {
        self.control.system
    }

    /// Where the log set with this number, from 1, is to be restored to.
    pub fn log_place(&self, number: u32) -> PathBuf {
        self.path.join(LOG_DIR).join(format!("{number:08}"))
    }

    /// Gives a restored log set the owner of the cluster.
    pub fn adopt_log(&self, number: u32) -> Result<(), Error> {
        let root = Path::new("");
        let stat = self.dir.stat(root).map_err(at("look at", &self.path))?;
        let owner = Attributes {
            owner: Some((stat.uid, stat.gid)),
            ..Attributes::default()
        };
        let set = Path::new(LOG_DIR).join(format!("{number:08}"));
        let files = set.join("pg_wal");
        for name in [Path::new(LOG_DIR), &set, &files] {
            self.give(name, &owner)?;
        }
        let list = at("list", &self.path.join(&files));
        let names = self.dir.dir(&files).and_then(|dir| dir.list());
        for name in names.map_err(&list)? {
            self.give(&files.join(name.map_err(&list)?), &owner)?;
        }
        Ok(())
    }

    fn give(&self, name: &Path, owner: &Attributes) -> Result<(), Error> {
        let stat = self.dir.stat(name);
        let set = stat.and_then(|stat| match owner.owner == Some((stat.uid, stat.gid)) {
            true => Ok(()),
            false => self.dir.set_attributes(name, owner),
        });
        set.map_err(at("change the owner of", &self.path.join(name)))
    }

    /// Whether the log set with this number, which ends on the timeline `last`, comes from a place on another.
    pub fn follows(
        &self,
        number: u32,
        (timeline, lsn): (Timeline, Lsn),
        last: Timeline,
    ) -> Result<bool, Error> {
        if timeline == last {
            return Ok(true);
        }
        let name = WalName::History(last).to_string();
        let path = self.log_place(number).join("pg_wal").join(&name);
        let below = Path::new(LOG_DIR)
            .join(format!("{number:08}"))
            .join("pg_wal")
            .join(&name);
        let read = || {
            let file = self.dir.open(&below, OpenHow::Read)?;
            let mut bytes = vec![0; HISTORY_MAX];
            let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
            bytes.truncate(len);
            Ok(bytes)
        };
        let bytes: std::io::Result<Vec<u8>> = read();
        let bytes = match bytes {
            // The first has none, and comes from no other.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            read => read.map_err(at("read", &path))?,
        };
        Ok(History::parse(last, &bytes).is_ok_and(|history| history.passes(timeline, lsn)))
    }

    /// The system identifier of a cluster at `path`, held back or not; `None` where there is none.
    pub fn system_of(house: &House, path: &Path) -> Option<u64> {
        let dir = house.storage.dir(path).ok()?;
        let names = [CONTROL, CONTROL_HELD];
        let bytes = names
            .iter()
            .find_map(|name| read_control(&*dir, name).ok())?;
        Control::parse(&bytes).ok().map(|control| control.system)
    }

    /// Whether the cluster at `path`, held back or not, is one of this system that `postgresql.auto.conf` does not keep
    /// from archiving: what replaces it goes on in its archive. Every copy that was kept from it stays so.
    pub fn may_archive(house: &House, path: &Path, system: u64) -> bool {
        let read = || -> std::io::Result<Vec<u8>> {
            let conf = house.storage.dir(path)?;
            let conf = conf.open(Path::new(AUTO_CONF), OpenHow::Read)?;
            let mut bytes = vec![0; AUTO_CONF_MAX];
            let len = conf.read_full_at(&mut bytes, 0, Via::Cache)?;
            bytes.truncate(len);
            Ok(bytes)
        };
        let is_off = |line: &[u8]| line.trim_ascii() == ARCHIVING_OFF.as_bytes();
        Held::system_of(house, path) == Some(system)
            && read().is_ok_and(|conf| !conf.split(|byte| *byte == b'\n').any(is_off))
    }

    /// Whether the cluster at `path` is one of this system that was held back and is not any more.
    pub fn is_released(house: &House, path: &Path, system: u64) -> bool {
        let Ok(dir) = house.storage.dir(path) else {
            return false;
        };
        let is_held = dir.stat(Path::new(CONTROL_HELD)).is_ok();
        !is_held && Held::system_of(house, path) == Some(system)
    }

    /// Removes what an interrupted or refused step left behind the log sets that count.
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

    /// How a server fetches the restored log, with what it then removes.
    fn with_log(&self, recovery: &Recovery) -> Recovery {
        // Not there is 1; a file that is there and cannot be read must stop the server, not end its recovery.
        // Histories get the remark of this restore.
        let remark = restored_from("%f", Uuid::new_v4());
        let fetch = format!(
            "for f in {LOG_DIR}/*/pg_wal/%f; do test -f \"$f\" || continue; cp \"$f\" \"%p\" || exit 200; \
             case %f in *.history) printf \"\\n{remark}\\n\" >> \"%p\" || exit 200;; esac; exit 0; done; exit 1"
        );
        Recovery {
            restore_command: Some(fetch),
            end_command: Some(format!("rm -rf {LOG_DIR}")),
            ..recovery.clone()
        }
    }

    /// Lets it be started. `recovery` says how far the log of `log_count` sets is replayed; it is not asked where there
    /// are none. Errors: also [`ClusterError::RestoredLogLost`] and [`ClusterError::TablespaceTaken`].
    pub fn release(self, house: &House, recovery: &Recovery, log_count: u32) -> Result<(), Error> {
        let global = Path::new(GLOBAL);
        let root = Path::new("");
        let log = self.path.join(LOG_DIR);
        // A server takes what is missing for the end of the log, and opens.
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
        self.check_tablespaces(house, log_count)?;
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
        let (held, control) = (Path::new(CONTROL_HELD), Path::new(CONTROL));
        self.dir
            .rename(held, control)
            .and_then(|()| self.dir.sync(global))
            .map_err(at("rename", &self.path.join(held)))
    }

    /// Refuses log whose replay would write into another server's files.
    fn check_tablespaces(&self, house: &House, log_count: u32) -> Result<(), Error> {
        let below = |number| Path::new(LOG_DIR).join(format!("{number:08}/{WAL_DIR}"));
        // What is fetched comes before what is there.
        let logs: Vec<PathBuf> = (1..=log_count).map(below).chain([WAL_DIR.into()]).collect();
        let taken = taken_by(&*house.storage, &*self.dir, self.control.wal_segment, &logs);
        match taken.map_err(at("read the log of", &self.path))?.pop() {
            None => Ok(()),
            Some(made) => Err(ClusterError::TablespaceTaken { made }.into()),
        }
    }

    /// Removes the cluster; the data directory stays, empty. What an interruption leaves is still held back, and can be
    /// removed again. What lies outside, such as tablespaces, stays.
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
            // What says that all of it is a restore's goes last.
            self.dir.sync(global)?;
            self.dir.sync(Path::new(""))?;
            remove_tree(&*self.dir, global)?;
            self.dir.sync(Path::new(""))
        };
        empty().map_err(remove)
    }

    /// Writes the settings, and the file that asks for recovery.
    fn settle(&self, recovery: &Recovery, like: &Attributes) -> std::io::Result<()> {
        let (conf, new) = (Path::new(AUTO_CONF), Path::new(AUTO_CONF_NEW));
        let mut stored = vec![0; AUTO_CONF_MAX];
        let len = match self.dir.open(conf, OpenHow::Read) {
            Ok(file) => file.read_full_at(&mut stored, 0, Via::Cache)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => 0,
            Err(e) => return Err(e),
        };
        if len == stored.len() {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        let text = recovery.edit(&stored[..len]);
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

fn read_control(dir: &dyn Dir, name: &str) -> std::io::Result<Vec<u8>> {
    let file = dir.open(Path::new(name), OpenHow::Read)?;
    let mut bytes = vec![0; CONTROL_FILE_LEN];
    let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
    bytes.truncate(len);
    Ok(bytes)
}
