//! The init forks of unlogged relations, read after everything else.
//!
//! When recovery begins, the server empties each relation that has an init fork: it removes the other forks and, at the
//! end of recovery, creates the main fork from the init fork. If the backup holds a main fork whose init fork appears
//! only by replay, the server finds the main fork's name in use and does not start. That happens to an unlogged table
//! created during the backup if its main fork is seen before its init fork exists; an index build may be between the
//! two.
//!
//! Invariants
//! - Init forks are listed after the server has ended the backup: every init fork that replay creates up to there is
//!   included. A younger one belongs to a relation that no transaction of the backup sees.
//! - A directory or fork that vanished meanwhile is skipped: its removal is in the WAL.
//! - Memory: one directory's names as the system reads them.
//!
//! Leaves to others: when to list them, and the main forks of unlogged relations (`tree.rs`).
//!
//! Source: PostgreSQL 18, `src/backend/storage/file/reinit.c` (ResetUnloggedRelations).

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::Dir;
use longshore_pg::Fork;

use super::cluster::Cluster;
use super::rules;
use super::tree::{Database, ListedFile, relation_file};
use crate::reading::is_missing;
use crate::{Entry, Error};

/// The init forks below some directories. Memory: one directory's names as the system reads them.
#[derive(Default)]
pub(super) struct InitForks {
    /// In reverse order.
    databases: Vec<Database>,
    listed: Option<ListedFork>,
}

struct ListedFork {
    dir: Arc<dyn Dir>,
    path: PathBuf,
    host_path: PathBuf,
    names: Box<dyn Iterator<Item = io::Result<OsString>> + Send>,
}

impl InitForks {
    pub(super) fn of(databases: Vec<Database>) -> InitForks {
        InitForks {
            databases,
            listed: None,
        }
    }

    pub(super) fn next(&mut self, cluster: &Arc<Cluster>) -> Result<Option<Entry>, Error> {
        loop {
            let Some(listed) = &mut self.listed else {
                let Some(database) = self.databases.pop() else {
                    return Ok(None);
                };
                self.listed = list(database)?;
                continue;
            };
            match listed.names.next() {
                None => self.listed = None,
                Some(Ok(name)) => {
                    if let Some(entry) = listed.entry(cluster, Path::new(&name))? {
                        return Ok(Some(entry));
                    }
                }
                Some(Err(e)) if is_missing(&e) => self.listed = None,
                Some(Err(source)) => {
                    return Err(Error::Io {
                        action: "list",
                        path: listed.host_path.clone(),
                        source,
                    });
                }
            }
        }
    }
}

/// `None` if the directory no longer exists.
fn list(database: Database) -> Result<Option<ListedFork>, Error> {
    let below = database.path.strip_prefix(&database.start.prefix);
    let below = below.unwrap_or(&database.path);
    let host_path = database.start.host_path.join(below);
    let open = || {
        let dir = database.start.dir.dir(below)?;
        Ok((dir.list()?, dir))
    };
    match open() {
        Ok((names, dir)) => Ok(Some(ListedFork {
            dir,
            path: database.path,
            host_path,
            names,
        })),
        Err(e) if is_missing(&e) => Ok(None),
        Err(source) => Err(Error::Io {
            action: "open directory",
            path: host_path,
            source,
        }),
    }
}

impl ListedFork {
    fn entry(&self, cluster: &Arc<Cluster>, name: &Path) -> Result<Option<Entry>, Error> {
        let Some(file) = rules::relation(name) else {
            return Ok(None);
        };
        if file.is_temporary || file.fork != Fork::Init {
            return Ok(None);
        }
        let place = ListedFile {
            dir: self.dir.clone(),
            name: name.into(),
            path: self.path.join(name),
            host_path: self.host_path.join(name),
        };
        match self.dir.stat(name) {
            Ok(stat) => Ok(Some(relation_file(cluster, place, &file, &stat))),
            Err(e) if is_missing(&e) => Ok(None),
            Err(source) => Err(Error::Io {
                action: "look at",
                path: place.host_path,
                source,
            }),
        }
    }
}
