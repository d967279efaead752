//! Plain files and directory trees.
//!
//! Each volume is walked separately, depth first, when a caller asks for its next entry; nothing runs ahead. Everything
//! is reached through an open directory, so no symbolic link below a root is followed, even if the tree changes.
//!
//! Paths in the backup: a single directory gives its contents, relative to itself (its own attributes are the source's root); a
//! single file gives its name; of several roots, each appears under its own last component, as given. A directory on
//! which another volume begins starts that volume's stream, so its parent may come later, on the parent's own stream.
//!
//! Invariants
//! - Descriptors: two per level of the deepest path being walked, and one or two per file being read.
//! - Memory: a path per level, and up to 32 MiB per volume for files with several names. Beyond that, such files are
//!   backed up once per name.
//! - No tree is backed up while a restore changes it: the roots are marked, restores look for the mark, and a restore's lock
//!   anywhere in the tree ends the backup.
//! - A file has exactly the length it was listed with. Its content reports whether it changed; names that vanish
//!   and special files are reported at the end.
//!
//! Leaves to others: consistency between files. The files of another program's database are consistent only if that
//! program does not write during the backup.

mod content;
mod listing;
mod roots;
mod walk;

pub use roots::{RESTORE_LOCK, RESTORING};

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::Storage;
use longshore_pg::PID_FILE;
use parking_lot::Mutex;

use crate::attributes::Attributes;
use crate::spec::has_server;
use crate::tally::{SPECIAL_LEFT_OUT, Tally};
use crate::{
    Description, Entry, Error, Source, SourceKind, SourceOptions, SourceRoot, SourceSummary,
};
use roots::Root;
use walk::{Notes, Walk};

pub(crate) struct Files {
    storage: Arc<dyn Storage>,
    description: Description,
    /// The roots that are directories.
    trees: Vec<Arc<Root>>,
    root: SourceRoot,
    /// Attributes of the root that cannot be read.
    unread: Attributes,
    /// Data directories of PostgreSQL servers above the roots.
    servers: Tally,
    walks: Vec<Mutex<Walk>>,
}

impl Files {
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        paths: &[PathBuf],
        options: &SourceOptions,
    ) -> Result<Self, Error> {
        let plan = roots::plan(&*storage, paths, &options.volume_map)?;
        let mut unread = Attributes::default();
        let root = plan.root(&mut unread)?;
        let mut servers = Tally::default();
        for tree in &plan.trees {
            let at = tree.host_path(Path::new(""));
            let mut above = at.ancestors().skip(1);
            let Some(data) = above.find(|above| has_server(&*storage, above)) else {
                continue;
            };
            if options.refuse_servers {
                let path = data.to_owned();
                return Err(Error::RunningServer { path });
            }
            servers.add(&data.join(PID_FILE));
        }
        let description = Description {
            kind: SourceKind::Files,
            database: options.database.clone().unwrap_or(plan.name),
            log: None,
            history: None,
            lineage: None,
            own_log: None,
            page_bytes: 0,
            expected_bytes: plan.len,
            about_bytes: None,
            memory_bytes: 0,
            differing: None,
            layouts: None,
            server_started_us: None,
            trees: plan
                .trees
                .iter()
                .map(|root| root.host_path(Path::new("")))
                .collect(),
            volumes: plan.volumes,
            notices: Vec::new(),
        };
        let walks = plan
            .starts
            .into_iter()
            .map(|starts| Mutex::new(Walk::new(starts, options.refuse_servers)))
            .collect();
        Ok(Self {
            storage,
            description,
            trees: plan.trees,
            root,
            unread,
            servers,
            walks,
        })
    }
}

impl Source for Files {
    fn description(&self) -> &Description {
        &self.description
    }

    fn root(&self) -> SourceRoot {
        self.root.clone()
    }

    fn next(&self, volume: usize) -> Result<Option<Entry>, Error> {
        match self.walks.get(volume) {
            Some(walk) => walk.lock().next(),
            None => Ok(None),
        }
    }

    fn finish(self: Box<Self>) -> Result<SourceSummary, Error> {
        for tree in &self.trees {
            tree.check_named(&*self.storage)?;
        }
        let (mut all, mut databases) = (Notes::default(), Tally::default());
        all.servers.merge(self.servers);
        all.attributes.merge(self.unread);
        for walk in self.walks {
            let walk = walk.into_inner();
            databases.merge(std::mem::take(&mut *walk.databases.lock()));
            let notes = walk.notes;
            all.special.merge(notes.special);
            all.restoring.merge(notes.restoring);
            all.mixed.merge(notes.mixed);
            all.is_mixed |= notes.is_mixed;
            all.swapped.merge(notes.swapped);
            all.vanished.merge(notes.vanished);
            all.gone.merge(notes.gone);
            all.restless.merge(notes.restless);
            all.unlinked.merge(notes.unlinked);
            all.logs.merge(notes.logs);
            all.servers.merge(notes.servers);
            all.clusters.merge(notes.clusters);
            all.attributes.merge(notes.attributes);
            all.deep.merge(notes.deep);
            all.long.merge(notes.long);
        }
        let vanished = all.gone.first().or(all.vanished.first()).map(PathBuf::from);
        let left_out = all.deep.first().or(all.long.first()).map(PathBuf::from);
        let warnings = [
            all.deep.warning(
                "directories are deeper than 256 levels; their content is not in the backup",
            ),
            all.long.warning(
                "names have paths of more than 4095 bytes and are not in the backup",
            ),
            all.mixed.warning(
                "directories are as a killed restore left them: old files and new ones, and some are in .longshore-restoring/old alone; repeat \
                 the restore, then the backup",
            ),
            all.vanished
                .warning("directories vanished before they were read"),
            all.gone.warning(
                "names vanished before they were looked at; what was moved to a directory that had been read is not in the backup",
            ),
            all.restless.warning(
                "directories changed at each look, or have more names than can be compared; what was moved there meanwhile may \
                 be missing",
            ),
            all.swapped
                .warning("names changed between a link and a file at each look; they are not in the backup"),
            all.unlinked
                .warning("names of hard-linked files were backed up as separate files"),
            all.logs.warning(
                "SQLite logs show databases in use; only sqlite:FILE makes a consistent backup of them",
            ),
            all.servers.warning(
                "PostgreSQL servers run there or were killed; only postgres://... backs up a running server",
            ),
            all.clusters.warning(
                "links lead from PostgreSQL data directories to their tablespaces or pg_wal: these are in the backup only if they were named, \
                 too, and a restored copy has links to the original's; postgres://... backs up whole clusters",
            ),
        ];
        let notes = [
            all.special.warning(SPECIAL_LEFT_OUT),
            all.restoring.warning(
                "directories of a restore that runs or was killed were left out; a killed restore's old files are in it, and \
                 go back when a restore to the same directory begins",
            ),
            databases.warning(
                "SQLite databases were copied as plain files, with their logs: each is consistent only if no program \
                 wrote to it during the backup; sqlite:FILE backs up a database in use",
            ),
            all.attributes.notes(),
        ];
        Ok(SourceSummary {
            notes: notes.into_iter().flatten().collect(),
            warnings: warnings
                .into_iter()
                .flatten()
                .chain(all.attributes.warnings())
                .collect(),
            damaged: left_out.is_some() || vanished.is_some() || all.is_mixed,
            left_out,
            vanished,
            ..SourceSummary::default()
        })
    }
}
