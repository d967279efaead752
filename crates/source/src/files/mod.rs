//! Plain files and directory trees.
//!
//! Each volume is walked by itself, depth first, when somebody asks for its next entry; nothing runs
//! ahead. Everything is reached through an open directory, so no symbolic link below a root is
//! followed, whatever happens to the tree meanwhile.
//!
//! What is backed up under which path: a single directory gives its contents, relative to itself
//! (its own attributes are not kept); a single file its name; several roots appear each under its
//! own last component, as given. A directory on which another volume begins opens that volume's
//! stream, so its parent may come later, on its own stream.
//!
//! Invariants
//! - Descriptors: two per level of the deepest path being walked, and one or two per file being read.
//! - Memory: a path per level, and up to 32 MiB per volume for files with several names. Beyond
//!   that, such files are backed up once per name.
//! - A file has exactly the length it was listed with. Whether it kept still is told by its content;
//!   directories that vanish and files that are no files are told at the end.
//!
//! Left to others: consistency between files. A database of some other program is only consistent in
//! here when nobody writes it.

mod content;
mod roots;
mod walk;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use longshore_io::Storage;
use parking_lot::Mutex;

use crate::tally::Tally;
use crate::{Description, Entry, Error, Source, SourceKind, SourceOptions, SourceSummary};
use walk::{Notes, Walk};

pub(crate) struct Files {
    description: Description,
    walks: Vec<Mutex<Walk>>,
}

impl Files {
    pub(crate) fn open(
        storage: &dyn Storage,
        paths: &[PathBuf],
        options: &SourceOptions,
    ) -> Result<Self, Error> {
        let plan = roots::plan(storage, paths, &options.volume_map)?;
        let description = Description {
            kind: SourceKind::Files,
            database: options.database.clone().unwrap_or(plan.name),
            log: None,
            history: None,
            lineage: None,
            own_log: None,
            page_bytes: 0,
            expected_bytes: plan.len,
            memory_bytes: 0,
            differing: None,
            server_started_us: None,
            trees: plan.trees,
            volumes: plan.volumes,
            notices: Vec::new(),
        };
        let walks = plan
            .starts
            .into_iter()
            .map(|starts| Mutex::new(Walk::new(starts)))
            .collect();
        Ok(Self { description, walks })
    }
}

impl Source for Files {
    fn description(&self) -> &Description {
        &self.description
    }

    fn next(&self, volume: usize) -> Result<Option<Entry>, Error> {
        match self.walks.get(volume) {
            Some(walk) => walk.lock().next(),
            None => Ok(None),
        }
    }

    fn finish(self: Box<Self>) -> Result<SourceSummary, Error> {
        let (mut all, mut databases) = (Notes::default(), Tally::default());
        for walk in self.walks {
            let walk = walk.into_inner();
            databases.merge(std::mem::take(&mut *walk.databases.lock()));
            let notes = walk.notes;
            all.special.merge(notes.special);
            all.vanished.merge(notes.vanished);
            all.unlinked.merge(notes.unlinked);
            all.logs.merge(notes.logs);
            all.servers.merge(notes.servers);
            all.attributes.merge(notes.attributes);
            all.deep.merge(notes.deep);
            all.long.merge(notes.long);
        }
        let left_out = all.deep.first().or(all.long.first()).map(PathBuf::from);
        let warnings = [
            all.deep.warning(
                "directories lie deeper than 256 levels; what is in them is not in the backup",
            ),
            all.long.warning(
                "names have paths of more than 4095 bytes and are not in the backup",
            ),
            all.special
                .warning("sockets, FIFOs or devices were left out"),
            all.vanished
                .warning("directories vanished before they were read"),
            all.unlinked
                .warning("names of hard-linked files were backed up as files of their own"),
            databases.warning(
                "SQLite databases were copied as plain files, with the logs that lay beside them: each is consistent only \
                 if nobody wrote to it meanwhile; sqlite:FILE backs one up as it is used",
            ),
            all.logs.warning(
                "SQLite logs show databases in use, which are consistent only as sqlite:FILE",
            ),
            all.servers.warning(
                "PostgreSQL servers run there or were killed; of one that runs only postgres://... makes a backup",
            ),
        ];
        Ok(SourceSummary {
            warnings: warnings
                .into_iter()
                .flatten()
                .chain(all.attributes.warnings())
                .collect(),
            damaged: left_out.is_some(),
            left_out,
            ..SourceSummary::default()
        })
    }
}
