//! Where the archive of a cluster's log is: named itself, or by its database.

use std::path::{Path, PathBuf};

use longshore_repository::target::{WAL, bad_name};
use longshore_repository::wal::{Error, WalArchive};

use super::{Context, devices};
use crate::failure::Failure;
use crate::options::Archive;

/// What must exist, and what `wal create` makes below it.
pub struct Place {
    base: PathBuf,
    below: PathBuf,
    /// Somebody named the directory itself, so that a link there is what he means.
    is_named: bool,
}

impl Place {
    pub fn of(archive: &Archive, context: &Context) -> Result<Place, Failure> {
        match (&archive.archive, &archive.database) {
            (Some(path), _) => Ok(Place::at(path)),
            (None, database) => {
                // The group of options admits nothing else.
                let database = database.as_deref().unwrap_or_default();
                Place::of_database(context, database, archive.target.as_deref())
            }
        }
    }

    /// The archive of a configured database: the one it names, else the one at its target, or at `target`.
    pub fn of_database(
        context: &Context,
        database: &str,
        target: Option<&str>,
    ) -> Result<Place, Failure> {
        if let Some(path) = devices::named_archive(context, database, target) {
            return Ok(Place::at(path));
        }
        let own = context.config.target_of(database);
        let Some(target) = target.or(own) else {
            return Err(Failure::usage(
                format!("[database.{database}] names neither a target nor an archive"),
                "give --target, or --archive with the directory itself",
            ));
        };
        if let Some(what) = bad_name(database) {
            return Err(Failure::usage(
                format!("{database:?} cannot be a directory of a target: {what}"),
                "give the name of a database of the configuration",
            ));
        }
        let directories = &devices::target(context, target)?.directories;
        let base = directories.first().cloned().unwrap_or_default();
        Ok(Place {
            base,
            below: Path::new(database).join(WAL),
            is_named: false,
        })
    }

    fn at(path: &Path) -> Place {
        let base = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            // `/`, `..` and the like have nothing above them that could be missing.
            _ if path.file_name().is_none() => path,
            _ => Path::new("."),
        };
        Place {
            base: base.to_owned(),
            below: path.file_name().map(PathBuf::from).unwrap_or_default(),
            is_named: true,
        }
    }

    pub fn path(&self) -> PathBuf {
        self.base.join(&self.below)
    }

    pub fn existing(&self, context: &Context) -> Result<WalArchive, Error> {
        match self.is_named {
            true => WalArchive::existing(&*context.storage, &self.path()),
            false => WalArchive::existing_below(&*context.storage, &self.base, &self.below),
        }
    }

    /// Also one that nothing came into yet.
    pub fn open(&self, context: &Context) -> Result<WalArchive, Error> {
        match self.is_named {
            true => WalArchive::open(&*context.storage, &self.path()),
            false => WalArchive::open_below(&*context.storage, &self.base, &self.below),
        }
    }

    pub fn create(&self, context: &Context) -> Result<WalArchive, Error> {
        let (storage, clock) = (&*context.storage, &*context.clock);
        let real = storage.canonical(&self.path()).ok();
        let real = real.filter(|_| self.is_named).as_deref().map(Place::at);
        let place = real.as_ref().unwrap_or(self);
        WalArchive::create(storage, &place.base, &place.below, clock)
    }
}
