//! `wal create`: a directory becomes an archive.

use std::path::{Path, PathBuf};

use longshore_io::Storage;
use serde::Serialize;

use super::{Context, Place};
use crate::failure::{Exit, Failure};
use crate::options::WalCreate;

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    archive: String,
    /// Whose log it holds; `None`: the first segment that comes decides.
    system: Option<String>,
}

pub fn run(options: &WalCreate, context: &Context) -> Result<Exit, Failure> {
    let place = Place::of(&options.archive, context)?;
    if let Some(data) = data_directory_around(&*context.storage, &place.path()) {
        return Err(Failure::usage(
            format!(
                "{} lies in {}, a PostgreSQL data directory",
                place.path().display(),
                data.display()
            ),
            "choose a directory outside of it, best on another disk: what lies inside is lost with the cluster, and is part of every backup",
        ));
    }
    let archive = place.create(context)?;
    let path = archive.path().display().to_string();
    let system = archive
        .identity()
        .map(|identity| identity.system.to_string());
    context.output.say(&match &system {
        Some(system) => format!("{path} is the WAL archive of system {system}.\n"),
        None => format!("{path} is a WAL archive; its first segment makes it its cluster's.\n"),
    });
    let answer = Answer {
        action: "wal_create",
        archive: path,
        system,
    };
    context.output.json(Exit::Done, answer);
    Ok(Exit::Done)
}

/// The data directory that a path, which need not exist, lies in or is.
fn data_directory_around(storage: &dyn Storage, path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let there = path
        .ancestors()
        .find_map(|above| storage.canonical(above).ok())?;
    let holds = |dir: &Path, name| storage.stat(&dir.join(name)).is_ok();
    there
        .ancestors()
        .find(|dir| holds(dir, "PG_VERSION") && holds(dir, "global/pg_control"))
        .map(Path::to_owned)
}
