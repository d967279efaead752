//! Files that a person named on the command line.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Attributes, File, OpenHow, Storage, Via};

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
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let Some(name) = path.file_name() else {
        return Err(Failure::usage(
            format!("{} is not the name of a file", path.display()),
            "name the file to write",
        ));
    };
    let mut part = name.to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = || -> io::Result<()> {
        let dir = storage.create_dir_all(parent)?;
        match dir.remove_file(&part) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = dir.open(&part, OpenHow::CreateNew)?;
        file.write_all_at(text.as_bytes(), 0, Via::Cache)?;
        file.sync()?;
        let mode = Attributes {
            mode: Some(0o644),
            ..Default::default()
        };
        dir.set_attributes(&part, &mode)?;
        dir.rename(&part, Path::new(name))?;
        dir.sync(Path::new(""))
    };
    written().map_err(|error| Failure::unwritten(format!("cannot write {}", path.display()), error))
}
