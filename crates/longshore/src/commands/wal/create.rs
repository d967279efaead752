//! `wal create`: turns a directory, or a prefix in a bucket, into an archive.

use std::path::{Path, PathBuf};

use longshore_io::Storage;
use longshore_wal::is_in_bucket;
use serde::Serialize;

use crate::commands::archive::ArchiveLocation;
use crate::context::Context;
use crate::options::WalCreate;
use longshore_terminal::failure::{Exit, Failure};

#[derive(Serialize)]
struct Answer {
    action: &'static str,
    archive: String,
    /// The system identifier of the cluster; `None`: the first segment that arrives decides.
    system: Option<String>,
}

pub fn run(options: &WalCreate, context: &Context) -> Result<Exit, Failure> {
    let place = ArchiveLocation::of(&options.archive, context)?;
    if let Some(data) = data_directory_around(&*context.storage, &place.path()) {
        return Err(Failure::usage(
            format!(
                "{} is in {}, a PostgreSQL data directory",
                place.path().display(),
                data.display()
            ),
            "choose a directory outside of it, best on another disk: an archive inside is lost with the cluster, and is part of every backup",
        ));
    }
    let archive = place.create(context)?;
    let path = archive.path().display().to_string();
    let system = archive
        .identity()
        .map(|identity| identity.system.to_string());
    context.output.say(&match &system {
        Some(system) => format!("{path} is the WAL archive of system {system}.\n"),
        None => format!("{path} is a WAL archive; its first segment assigns it to a cluster.\n"),
    });
    let answer = Answer {
        action: "wal_create",
        archive: path,
        system,
    };
    context.output.json(Exit::Done, answer);
    Ok(Exit::Done)
}

/// The data directory that contains the path or equals it; the path need not exist.
fn data_directory_around(storage: &dyn Storage, path: &Path) -> Option<PathBuf> {
    if is_in_bucket(path) {
        return None;
    }
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
