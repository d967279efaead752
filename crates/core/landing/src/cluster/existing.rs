//! The cluster in the directory that a restore changes or replaces: whose it is, and where its links say that its
//! tablespaces are.
//!
//! Such a link proves nothing: a copied data directory has the links of its origin. It is shown to the operator, who
//! decides.
//!
//! Invariants
//! - Nothing is taken for the set's cluster without its system identifier, or the note of an interrupted restore.
//! - Nothing here changes a file. A cluster in which no server has made anything counts as an empty directory.
//!
//! Leaves to others: whether a server runs there (`running.rs`), backups below the directory (`protected.rs`), and changing anything
//! (`mod.rs`, `in_place.rs`).

use std::ffi::OsString;
use std::path::Path;

use longshore_io::{Dir, Machine, OpenHow, Storage, Via};
use longshore_pg::{CONTROL_FILE_LEN, Control};

use super::held_cluster::CONTROL_HELD;
use super::outline::{self, CONTROL, LINKS};
use super::spaces::Places;
use crate::cluster_error::ClusterError;
use crate::error::{Error, at};
use crate::locked_target::STAGING;
use crate::place::{DELTA, standing};
use crate::tree::is_absent;

/// Longest text of a delta's note, in bytes.
const NOTE_MAX: usize = 32;

/// The file that says the major version of a cluster.
const VERSION: &str = "PG_VERSION";

/// Proves that the data directory `dir` at `path` belongs to the cluster `system`, by its control file, or by the note of
/// an interrupted delta.
///
/// Errors: `Foreign` if it does not, `NothingToChange` if nothing says whose it is.
pub fn prove(dir: &dyn Dir, path: &Path, system: u64) -> Result<(), Error> {
    let foreign = |what: String| ClusterError::Foreign {
        path: path.to_owned(),
        what,
    };
    let note = read(dir, path, &Path::new(STAGING).join(DELTA), NOTE_MAX)?;
    let noted = note.and_then(|note| String::from_utf8(note).ok()?.parse().ok());
    let control = read(dir, path, Path::new(CONTROL), CONTROL_FILE_LEN)?;
    let control = control.map(|bytes| Control::parse(&bytes)).transpose();
    let control = control.map_err(|e| foreign(e.to_string()))?;
    // A note may be old, so it does not outrank the control file.
    let found: Vec<u64> = control.iter().map(|c| c.system).chain(noted).collect();
    if found.is_empty() {
        let path = path.to_owned();
        return Err(ClusterError::NothingToChange { path }.into());
    }
    match found.iter().find(|found| **found != system) {
        None => Ok(()),
        Some(found) => {
            Err(foreign(format!("it belongs to system {found}, the set to {system}")).into())
        }
    }
}

/// The first OID that a server gives away (`FirstNormalObjectId`). Files with lower numbers are `initdb`'s.
const FIRST_GIVEN: u64 = 16_384;

/// Refuses to replace the directory at `path` as a whole, unless it is the cluster `system`, held or not, an interrupted restore, or another
/// cluster in which no server has made anything. What `initdb` made may go: machines that are made again have a new cluster in the directory.
///
/// Errors: [`ClusterError::NoDataDirectory`], [`ClusterError::NotReplaced`], [`ClusterError::Another`], `Io`.
pub fn refuse_other(storage: &dyn Storage, path: &Path, system: u64) -> Result<(), Error> {
    // The restore itself reports what cannot be opened.
    let Ok(dir) = storage.dir(path) else {
        return Ok(());
    };
    let dir = &*dir;
    if standing(dir, path)?.is_empty() || dir.stat(Path::new(STAGING)).is_ok() {
        return Ok(());
    }
    let not_replaced = |what: String| {
        let path = path.to_owned();
        Error::from(ClusterError::NotReplaced { path, what })
    };
    let mut controls = [CONTROL, CONTROL_HELD].into_iter();
    let control = controls.find_map(|name| {
        let found = read(dir, path, Path::new(name), CONTROL_FILE_LEN);
        found.transpose()
    });
    let Some(control) = control.transpose()? else {
        if read(dir, path, Path::new(VERSION), NOTE_MAX)?.is_none() {
            let path = path.to_owned();
            return Err(ClusterError::NoDataDirectory { path }.into());
        }
        return Err(not_replaced(format!(
            "it has no {CONTROL}, so nothing says whose it is"
        )));
    };
    let found = Control::parse(&control)
        .map_err(|e| not_replaced(e.to_string()))?
        .system;
    if found != system && is_used(dir).map_err(at("list", path))? {
        let path = path.to_owned();
        return Err(ClusterError::Another {
            path,
            found,
            system,
        }
        .into());
    }
    Ok(())
}

/// Whether a server has made something in the cluster: a database, a tablespace, or a file of either.
fn is_used(dir: &dyn Dir) -> std::io::Result<bool> {
    let names = |place: &Path| -> std::io::Result<Vec<OsString>> {
        match dir.dir(place).and_then(|below| below.list()) {
            Err(e) if is_absent(&e) => Ok(Vec::new()),
            names => names?.collect(),
        }
    };
    let is_given = |name: &OsString| {
        let name = name.to_string_lossy();
        let digits = name
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(name.len());
        name[..digits]
            .parse()
            .is_ok_and(|oid: u64| oid >= FIRST_GIVEN)
    };
    if !names(Path::new(LINKS))?.is_empty() {
        return Ok(true);
    }
    let base = Path::new("base");
    for database in names(base)? {
        if is_given(&database) || names(&base.join(&database))?.iter().any(is_given) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where the links of the cluster `system` at `path` lead, for the tablespaces of `stored`; none if another cluster is
/// there, or none at all.
pub fn linked_places(machine: &Machine, path: &Path, system: u64, stored: &Places) -> Places {
    let Ok(dir) = machine.storage.dir(path) else {
        return Places::new();
    };
    if prove(&*dir, path, system).is_err() {
        return Places::new();
    }
    let linked = |oid: &u32| Some((*oid, dir.read_link(&outline::link(*oid)).ok()?));
    stored.keys().filter_map(linked).collect()
}

fn read(dir: &dyn Dir, path: &Path, name: &Path, max: usize) -> Result<Option<Vec<u8>>, Error> {
    let file = match dir.open(name, OpenHow::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(at("open", &path.join(name))(e)),
    };
    let mut bytes = vec![0; max];
    let len = file
        .read_full_at(&mut bytes, 0, Via::Cache)
        .map_err(at("read", &path.join(name)))?;
    bytes.truncate(len);
    Ok(Some(bytes))
}
