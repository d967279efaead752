//! The cluster in the directory that a restore changes: whose it is, and where its links say that its tablespaces are.
//!
//! Such a link proves nothing: a copied data directory has the links of its origin. It is shown to the operator, who
//! decides.

use std::path::Path;

use longshore_io::{Dir, Machine, OpenHow, Via};
use longshore_pg::{CONTROL_FILE_LEN, Control};

use super::held_cluster::CONTROL_HELD;
use super::outline::{self, CONTROL};
use super::spaces::Places;
use crate::cluster_error::ClusterError;
use crate::error::{Error, at};
use crate::locked_target::STAGING;
use crate::place::{DELTA, standing};

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

/// Refuses to replace what is in the data directory `dir` at `path`, unless it is the cluster `system`, held or not, or an
/// interrupted restore.
///
/// Errors: `NotReplaced`, `Io`.
pub fn refuse_others(dir: &dyn Dir, path: &Path, system: u64) -> Result<(), Error> {
    if standing(dir, path)?.is_empty() || dir.stat(Path::new(STAGING)).is_ok() {
        return Ok(());
    }
    let not_replaced = |what: String| {
        let path = path.to_owned();
        Err(ClusterError::NotReplaced { path, what }.into())
    };
    if read(dir, path, Path::new(VERSION), NOTE_MAX)?.is_none() {
        return not_replaced(format!("it has no {VERSION}, so it is no data directory"));
    }
    let mut controls = [CONTROL, CONTROL_HELD].into_iter();
    let control = controls.find_map(|name| {
        let found = read(dir, path, Path::new(name), CONTROL_FILE_LEN);
        found.transpose()
    });
    let Some(control) = control.transpose()? else {
        return not_replaced(format!("it has no {CONTROL}, so nothing says whose it is"));
    };
    match Control::parse(&control) {
        Ok(control) if control.system == system => Ok(()),
        Ok(control) => not_replaced(format!(
            "it belongs to system {}, the set to {system}",
            control.system
        )),
        Err(e) => not_replaced(e.to_string()),
    }
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
