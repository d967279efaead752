//! A restored cluster that waits for more: differential sets, log, the word to recover.
//!
//! Its control file has another name, so that no server starts on it, by mistake or by a unit that restarts. The log sets
//! that were restored for it lie in [`LOG_DIR`] inside the data directory, one directory for each, in their order; the
//! server fetches its segments from there while it recovers, and removes them at the end.
//!
//! Invariants
//! - The control file gets its name last, when settings and log are durable.
//! - Every step can be repeated after an interruption.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Attributes, Dir, FileKind, OpenHow, Via};
use longshore_pg::{CONTROL_FILE_LEN, Control, Recovery};

use super::{AUTO_CONF, AUTO_CONF_MAX, ClusterError, GLOBAL, at, file_like, refuse_running};
use crate::cluster::outline::CONTROL;
use crate::{Error, House};

/// The control file's name while the cluster is held back.
pub const CONTROL_HELD: &str = "global/pg_control.longshore-held";
/// Below the data directory: the log that was restored for it.
const LOG_DIR: &str = "longshore_log";
/// What the edited settings are called until they are complete.
const AUTO_CONF_NEW: &str = "postgresql.auto.conf.longshore";

/// A cluster that was restored with [`crate::ClusterOptions::hold`].
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    dir: Arc<dyn Dir>,
    control: Control,
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
        let read = || {
            let file = dir.open(Path::new(CONTROL_HELD), OpenHow::Read)?;
            let mut bytes = vec![0; CONTROL_FILE_LEN];
            let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
            bytes.truncate(len);
            Ok(bytes)
        };
        let bytes: std::io::Result<Vec<u8>> = read();
        let bytes = bytes.map_err(|e| not_held(format!("{CONTROL_HELD}: {e}")))?;
        let control = Control::parse(&bytes).map_err(|e| not_held(e.to_string()))?;
        Ok(Held {
            path: path.to_owned(),
            dir,
            control,
        })
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

    /// Whether log sets were restored for it.
    pub fn has_log(&self) -> bool {
        let stat = self.dir.stat(Path::new(LOG_DIR));
        stat.is_ok_and(|stat| stat.kind == FileKind::Dir)
    }

    /// How a server fetches the restored log, with what it then removes.
    fn with_log(&self, recovery: &Recovery) -> Recovery {
        // Not there is 1; a file that is there and cannot be read must stop the server, not end its recovery.
        let fetch = format!(
            "for f in {LOG_DIR}/*/pg_wal/%f; do test -f \"$f\" || continue; cp \"$f\" \"%p\" && exit 0; exit 200; \
             done; exit 1"
        );
        Recovery {
            restore_command: Some(fetch),
            end_command: Some(format!("rm -rf {LOG_DIR}")),
            ..recovery.clone()
        }
    }

    /// Lets it be started. `recovery` says how far the restored log is replayed; it is not asked where there is none.
    pub fn release(self, recovery: &Recovery) -> Result<(), Error> {
        let global = Path::new(GLOBAL);
        let root = Path::new("");
        if self.has_log() {
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
