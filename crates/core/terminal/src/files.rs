//! Files that a person named on the command line.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Attributes, Dir, File, OpenHow, Storage, Via};

use crate::failure::Failure;

/// Opens a file that a person named.
pub fn open(storage: &dyn Storage, path: &Path) -> io::Result<Arc<dyn File>> {
    let path = storage.canonical(path)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => storage.dir(parent)?.open(Path::new(name), OpenHow::Read),
        _ => Err(io::ErrorKind::IsADirectory.into()),
    }
}

/// Writes a small file whole or not at all; an existing one is replaced.
pub fn write(path: &Path, text: &str, storage: &dyn Storage) -> Result<(), Failure> {
    let (parent, name) = parts(path)?;
    let mut part = name.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = || -> io::Result<()> {
        let dir = storage.create_dir_all(parent)?;
        match dir.remove_file(&part) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        fill(&*dir, &part, text)?;
        dir.rename(&part, name)?;
        dir.sync(Path::new(""))
    };
    written().map_err(|error| unwritten(path, error))
}

/// Writes a small file that does not exist yet. After a failure it does not exist.
pub fn write_new(path: &Path, text: &str, storage: &dyn Storage) -> Result<(), Failure> {
    let (parent, name) = parts(path)?;
    let written = || -> io::Result<()> {
        let dir = storage.create_dir_all(parent)?;
        fill(&*dir, name, text)?;
        dir.sync(Path::new(""))
    };
    written().map_err(|error| unwritten(path, error))
}

/// The directory and the name in it.
fn parts(path: &Path) -> Result<(&Path, &Path), Failure> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    match path.file_name() {
        Some(name) => Ok((parent, Path::new(name))),
        None => Err(Failure::usage(
            format!("{} is not the name of a file", path.display()),
            "name the file to write",
        )),
    }
}

/// Makes a file with this text, durable but for its name.
fn fill(dir: &dyn Dir, name: &Path, text: &str) -> io::Result<()> {
    let file = dir.open(name, OpenHow::CreateNew)?;
    let mode = Attributes {
        mode: Some(0o644),
        ..Default::default()
    };
    let filled = file
        .write_all_at(text.as_bytes(), 0, Via::Cache)
        .and_then(|()| file.sync())
        .and_then(|()| dir.set_attributes(name, &mode));
    if filled.is_err() {
        // The first failure is told.
        let _ = dir.remove_file(name);
    }
    filled
}

fn unwritten(path: &Path, error: io::Error) -> Failure {
    Failure::unwritten(format!("cannot write {}", path.display()), error)
}
