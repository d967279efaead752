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

/// The path of a name on disk: as in SQL Server on Linux, backslashes separate names and drive C: is the root. `None`:
/// another drive.
pub fn path_of(directory: &Path, name: &str) -> Option<PathBuf> {
    let bytes = name.as_bytes();
    if bytes.len() > 1 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':' {
        let below = name[2..].replace('\\', "/");
        let is_root = matches!(bytes[0], b'C' | b'c') && below.starts_with('/');
        return is_root.then(|| below.into());
    }
    let path = match name.contains('/') {
        true => PathBuf::from(name),
        false => PathBuf::from(name.replace('\\', "/")),
    };
    Some(directory.join(path))
}

/// Whether statements of this server may name a path.
pub fn is_reachable(server: &Server, path: &Path) -> bool {
    let Some(directories) = &server.setup.directories else {
        return true;
    };
    let storage = &*server.setup.context.storage;
    let real = real(storage, path);
    let is_below = |directory: &PathBuf| real.starts_with(self::real(storage, directory));
    directories.iter().any(is_below)
}

/// What there is under a name: whether it is a file, a directory, and has a directory above it. Nothing is known about
/// what statements may not name.
pub fn existence(server: &Server, name: &str) -> [bool; 3] {
    let setup = &server.setup;
    let storage = &*setup.context.storage;
    let path = path_of(&setup.backup_directory, name);
    let Some(path) = path.filter(|path| !name.is_empty() && is_reachable(server, path)) else {
        return [false; 3];
    };
    let path = real(storage, &path);
    let kind = |path: &Path| storage.stat(path).ok().map(|stat| stat.kind);
    let own = kind(&path);
    let above = path.parent().and_then(kind);
    let is_dir = |kind| kind == Some(FileKind::Dir);
    [own.is_some() && !is_dir(own), is_dir(own), is_dir(above)]
}

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
