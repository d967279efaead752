//! Shared by all parts of one backup: the session, the facts about the cluster, its directory.
//!
//! Invariants
//! - A directory is used only if it is the one of the server that answered: same system identifier, a `postmaster.pid`
//!   with the server's start time, and both or neither a standby.
//! - The control file is read again while its checksum is wrong, since a reading during a write is torn; one that stays
//!   wrong is an error.
//! - The facts are read once, so that all parts of the backup agree about them.
//!
//! Leaves to others: the session itself (`session.rs`), and the files (`tree.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_io::{Clock, Dir, OpenHow, Storage, Via};
use longshore_pg::{CONTROL_FILE_LEN, ClusterState, Control, ControlError, PID_FILE};

use super::copies::DatabaseDirectory;
use super::differs::PageSelection;
use super::layouts::Layouts;
use super::pages::Verifier;
use super::rules;
use super::session::{ServerFacts, Session};
use crate::Error;

pub(super) const CONTROL_FILE: &str = "global/pg_control";
/// The directory of the default tablespace.
pub(super) const DEFAULT_SPACE: &str = "base";
/// A read during a write of the control file is torn, for microseconds.
const CONTROL_READINGS_MAX: usize = 50;
const CONTROL_PAUSE: Duration = Duration::from_millis(10);
/// The server's own start time and the one in its pid file may differ a little.
const START_TOLERANCE_S: i64 = 60;
const PID_FILE_MAX: usize = 4096;

pub(super) struct Cluster {
    pub(super) session: Session,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) control: Control,
    /// `None`: pages have no checksums.
    pub(super) verifier: Option<Verifier>,
    /// `None`: everything is stored.
    pub(super) differing: Option<PageSelection>,
    /// `None`: nobody wants to know how rows are laid out.
    pub(super) layouts: Option<Layouts>,
    pub(super) dir: Arc<dyn Dir>,
    /// The data directory's canonical path.
    pub(super) path: PathBuf,
}

impl Cluster {
    /// This major version's directory in a tablespace.
    pub(super) fn version_dir(&self) -> String {
        let major = self.session.about.major;
        format!("PG_{major}_{}", self.control.catalog_version)
    }

    /// The path in the backup of a database's directory in a tablespace.
    pub(super) fn directory_of(&self, (database, space): DatabaseDirectory) -> PathBuf {
        rules::directory((space, database), &self.version_dir())
    }
}

/// A server's files, found by what the server says of itself.
pub(super) struct DataDirectory {
    pub(super) dir: Arc<dyn Dir>,
    /// Canonical.
    pub(super) path: PathBuf,
    /// As it was when the directory was opened.
    pub(super) control: Control,
}

/// Opens the data directory and checks that it belongs to the server of the session.
pub(super) fn data_directory(
    storage: &dyn Storage,
    clock: &dyn Clock,
    about: &ServerFacts,
) -> Result<DataDirectory, Error> {
    let given = Path::new(&about.data_directory);
    let unreadable = |action: &'static str| {
        move |source| Error::Io {
            action,
            path: given.into(),
            source,
        }
    };
    let path = storage
        .canonical(given)
        .map_err(unreadable("find the data directory"))?;
    let dir = storage
        .dir(&path)
        .map_err(unreadable("open the data directory"))?;
    let (control, _) = read_control(&*dir, &path, clock)?;
    let elsewhere = |what| Error::DataDirectory {
        path: path.clone(),
        what,
    };
    if control.system != about.system {
        return Err(elsewhere(
            "it belongs to a cluster with another system identifier",
        ));
    }
    let started_s = pid_file_start(&*dir);
    let about_s = about.started_us.div_euclid(1_000_000);
    if started_s.is_none_or(|s| (s - about_s).abs() > START_TOLERANCE_S) {
        return Err(elsewhere(
            "its postmaster.pid is not that of the server that answered",
        ));
    }
    let recovers = control.state == ClusterState::InArchiveRecovery;
    if recovers != about.in_recovery {
        return Err(elsewhere(
            "only one of the server that answered and this directory is a standby",
        ));
    }
    Ok(DataDirectory { dir, path, control })
}

/// The third line of `postmaster.pid`: the server's start time.
fn pid_file_start(dir: &dyn Dir) -> Option<i64> {
    pid_file(dir)?.lines().nth(2)?.trim().parse().ok()
}

/// The first line of `postmaster.pid`: the server's process number.
pub(super) fn pid_file_process(dir: &dyn Dir) -> Option<u32> {
    pid_file(dir)?.lines().next()?.trim().parse().ok()
}

fn pid_file(dir: &dyn Dir) -> Option<String> {
    let file = dir.open(Path::new(PID_FILE), OpenHow::Read).ok()?;
    let mut text = vec![0; PID_FILE_MAX];
    let len = file.read_full_at(&mut text, 0, Via::Cache).ok()?;
    Some(String::from_utf8_lossy(&text[..len]).into_owned())
}

/// Reads the control file, again while its checksum is wrong.
pub(super) fn read_control(
    dir: &dyn Dir,
    path: &Path,
    clock: &dyn Clock,
) -> Result<(Control, Vec<u8>), Error> {
    let host_path = path.join(CONTROL_FILE);
    let mut reading = 1;
    loop {
        let read = || {
            let file = dir.open(Path::new(CONTROL_FILE), OpenHow::Read)?;
            let mut bytes = vec![0; CONTROL_FILE_LEN];
            let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
            bytes.truncate(len);
            Ok(bytes)
        };
        let bytes: Vec<u8> = read().map_err(|source| Error::Io {
            action: "read",
            path: host_path.clone(),
            source,
        })?;
        match Control::parse(&bytes) {
            Ok(control) => return Ok((control, bytes)),
            Err(ControlError::Checksum { .. } | ControlError::Length { .. })
                if reading < CONTROL_READINGS_MAX =>
            {
                reading += 1;
                clock.sleep(CONTROL_PAUSE);
            }
            Err(source) => {
                return Err(Error::Control {
                    path: host_path,
                    source,
                });
            }
        }
    }
}

/// Opens a directory that may be a symbolic link.
pub(super) fn open_link(
    storage: &dyn Storage,
    path: &Path,
) -> Result<(Arc<dyn Dir>, PathBuf), Error> {
    let io = |source| Error::Io {
        action: "open directory",
        path: path.into(),
        source,
    };
    let real = storage.canonical(path).map_err(io)?;
    Ok((storage.dir(&real).map_err(io)?, real))
}
