//! Protects a data directory in which a server may run.

use std::path::Path;

use longshore_io::{Dir, OpenHow, Via};
use longshore_pg::PID_FILE;

use crate::cluster_error::ClusterError;
use crate::error::{Error, at};

/// A stale file looks like a live one from another machine or container, so its presence is enough.
pub fn refuse_running(dir: &dyn Dir, path: &Path) -> Result<(), Error> {
    let file = match dir.open(Path::new(PID_FILE), OpenHow::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(at("look at", &path.join(PID_FILE))(e)),
    };
    let mut text = [0; 32];
    let read = file.read_full_at(&mut text, 0, Via::Cache).unwrap_or(0);
    let text = String::from_utf8_lossy(&text[..read]);
    let process = text.lines().next().unwrap_or_default();
    let process: String = process.chars().filter(char::is_ascii_digit).collect();
    Err(ClusterError::Running {
        path: path.to_owned(),
        process,
    }
    .into())
}
