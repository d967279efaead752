//! Ownership of paths: no statement writes onto a database, the catalog or a PostgreSQL data directory other than the
//! one it names.
//!
//! Invariants
//! - Paths are compared in their real form, with symbolic links followed and `..` resolved for all existing names.
//! - A database that cannot be used still owns its files, and a restore that waits for more owns its directory.
//! - SQLite's files next to a database belong to it, whether or not they exist.
//!
//! Leaves to others: refusing (`restore.rs`, `backup.rs`), and files that a running restore protects
//! (`longshore-landing`).

use std::path::{Component, Path, PathBuf};

use longshore_catalog::service_key_path;
use longshore_io::{FileKind, Storage};
use longshore_pipeline::SourceSpec;

use crate::server::Server;

/// The catalog's owner in messages.
const CATALOG_OWNER: &str = "msdb";

/// The owner, in messages, of the server's own files.
const SERVER_OWNER: &str = "master";

/// Suffixes of SQLite's files next to a database.
const SIDE_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// A path and the database that it belongs to.
pub struct Plot {
    pub path: PathBuf,
    pub owner: String,
}

/// The real form of a path. Names that do not exist yet stay as written.
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

/// A SQLite file and SQLite's files next to it.
pub fn with_side_files(path: &Path) -> impl Iterator<Item = PathBuf> {
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let beside: Vec<_> = SIDE_SUFFIXES.iter().map(|s| beside(s)).collect();
    std::iter::once(path.to_path_buf()).chain(beside)
}

/// The paths of the catalog and of every database except `except`, by its exact name.
pub fn plots(server: &Server, except: Option<&str>) -> Vec<Plot> {
    let context = &server.setup.context;
    let mut plots = Vec::new();
    let mut add = |path: &Path, owner: &str| {
        plots.push(Plot {
            path: real(&*context.storage, path),
            owner: owner.to_owned(),
        });
    };
    for path in &server.setup.reserved {
        add(path, SERVER_OWNER);
    }
    for path in server.log.paths() {
        add(&path, SERVER_OWNER);
    }
    for path in context.catalog.iter().flat_map(|c| with_side_files(c)) {
        add(&path, CATALOG_OWNER);
    }
    if let Some(catalog) = &context.catalog {
        add(&service_key_path(catalog), CATALOG_OWNER);
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
            // It cannot be used, but its files still belong to it.
            Err(unusable) => unusable.place.iter().for_each(|path| add(path, &name)),
        }
    }
    // A restore that waits for more also owns its path, wherever the configuration has the database.
    for sequence in server.kept.sequences() {
        if except != Some(sequence.database.as_str()) {
            plots.push(Plot {
                path: real(&*context.storage, &sequence.target),
                owner: sequence.database,
            });
        }
    }
    plots
}

/// The data directory of a PostgreSQL cluster that contains a path, or is it; of any cluster, or only of those whose
/// server may run.
pub fn cluster(storage: &dyn Storage, real: &Path, running_only: bool) -> Option<PathBuf> {
    let is_file = |path: PathBuf| storage.stat(&path).is_ok_and(|s| s.kind == FileKind::File);
    let is_cluster = |dir: &&Path| {
        let stopped = || is_file(dir.join("PG_VERSION")) && is_file(dir.join("global/pg_control"));
        is_file(dir.join("postmaster.pid")) || (!running_only && stopped())
    };
    real.ancestors().find(is_cluster).map(Path::to_path_buf)
}
