//! Whose ground a path is: no statement writes onto a database, the catalog or a PostgreSQL data directory that is not
//! the one it names.
//!
//! Paths are compared as they really are, with symbolic links followed and `..` resolved as far as names exist.

use std::path::{Component, Path, PathBuf};

use longshore_io::{FileKind, Storage};
use longshore_pipeline::SourceSpec;

use crate::server::Server;

/// Whom the catalog belongs to, in messages.
const CATALOG_OWNER: &str = "msdb";

/// The same of what the server itself rests on.
const SERVER_OWNER: &str = "master";

/// What SQLite keeps beside a database.
const SIDE_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// A path and the database that it belongs to.
pub struct Plot {
    pub path: PathBuf,
    pub owner: String,
}

/// Where a path really is. Names that do not exist yet are kept as they are written.
pub fn real(storage: &dyn Storage, path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut real = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                real.pop();
            }
            name => {
                real.push(name);
                real = storage.canonical(&real).unwrap_or(real);
            }
        }
    }
    real
}

/// A SQLite file and what SQLite keeps beside it.
pub fn with_side_files(path: &Path) -> impl Iterator<Item = PathBuf> {
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let beside: Vec<_> = SIDE_SUFFIXES.iter().map(|s| beside(s)).collect();
    std::iter::once(path.to_path_buf()).chain(beside)
}

/// What belongs to the catalog and to every database but `except`, by its exact name.
pub fn plots(server: &Server, except: Option<&str>) -> Vec<Plot> {
    let house = &server.setup.house;
    let mut plots = Vec::new();
    let mut add = |path: &Path, owner: &str| {
        plots.push(Plot {
            path: real(&*house.storage, path),
            owner: owner.to_owned(),
        });
    };
    for path in &server.setup.reserved {
        add(path, SERVER_OWNER);
    }
    for path in server.log.paths() {
        add(&path, SERVER_OWNER);
    }
    for path in house.catalog.iter().flat_map(|c| with_side_files(c)) {
        add(&path, CATALOG_OWNER);
    }
    for name in server.database_names() {
        if except == Some(name.as_str()) {
            continue;
        }
        match server.database(&name) {
            Ok(Some(database)) => match &database.source {
                SourceSpec::Sqlite(file) => {
                    with_side_files(file).for_each(|path| add(&path, &name));
                }
                SourceSpec::Files(roots) => roots.iter().for_each(|path| add(path, &name)),
                SourceSpec::Postgres(_) => {}
            },
            Ok(None) => {}
            // It cannot be used, but its files are its own.
            Err(unusable) => unusable.place.iter().for_each(|path| add(path, &name)),
        }
    }
    // What waits for more log is its own, too, wherever the configuration has the database.
    for sequence in server.sequences() {
        if except != Some(sequence.database.as_str()) {
            plots.push(Plot {
                path: real(&*house.storage, &sequence.target),
                owner: sequence.database,
            });
        }
    }
    plots
}

/// The data directory of a PostgreSQL cluster that a path is in, or is; of all, or of those whose server may run.
pub fn cluster(storage: &dyn Storage, real: &Path, running_only: bool) -> Option<PathBuf> {
    let is_file = |path: PathBuf| storage.stat(&path).is_ok_and(|s| s.kind == FileKind::File);
    let is_cluster = |dir: &&Path| {
        let stopped = || is_file(dir.join("PG_VERSION")) && is_file(dir.join("global/pg_control"));
        is_file(dir.join("postmaster.pid")) || (!running_only && stopped())
    };
    real.ancestors().find(is_cluster).map(Path::to_path_buf)
}
