//! The location of a cluster's WAL archive: a directory or a prefix in a bucket, named directly or found through the
//! database.
//!
//! Invariants
//! - A symbolic link is followed only where the user named the directory itself. Below a target none is: a user who can
//!   write to the target must not decide where WAL goes.
//! - The directory above an archive must exist: it may be the mount point of a file system that is not mounted.
//!
//! Leaves to others: opening the archive (`longshore-wal`).

use std::path::{Path, PathBuf};

use longshore_repository::target::{WAL, bad_name};
use longshore_wal::{Error, WalArchive, is_in_bucket};

use super::{devices, past};
use crate::context::Context;
use crate::options::Archive;
use longshore_terminal::failure::Failure;

/// A directory that must exist, and the one that `wal create` makes below it.
pub struct ArchiveLocation {
    base: PathBuf,
    below: PathBuf,
    /// The user named the directory itself, so a symbolic link there is followed.
    is_named: bool,
}

impl ArchiveLocation {
    pub fn of(archive: &Archive, context: &Context) -> Result<ArchiveLocation, Failure> {
        let location = match (&archive.archive, &archive.database) {
            (Some(path), _) => ArchiveLocation::at(path),
            (None, database) => {
                // The option group admits nothing else.
                let database = database.as_deref().unwrap_or_default();
                ArchiveLocation::of_database(context, database, archive.target.as_deref())?
            }
        };
        let path = location.path();
        past::refuse_present(&path.display().to_string(), is_in_bucket(&path))?;
        Ok(location)
    }

    /// The archive of a configured database: the one it names, else the one at its target, or at `target`.
    pub fn of_database(
        context: &Context,
        database: &str,
        target: Option<&str>,
    ) -> Result<ArchiveLocation, Failure> {
        if let Some(path) = devices::named_archive(context, database, target) {
            return Ok(ArchiveLocation::at(path));
        }
        let own = context.config.target_of(database);
        let Some(target) = target.or(own) else {
            return Err(Failure::usage(
                format!("[database.{database}] names neither a target nor an archive"),
                "give --target, or the archive's directory with --archive",
            ));
        };
        if let Some(what) = bad_name(database) {
            return Err(Failure::usage(
                format!("{database:?} cannot be a directory of a target: {what}"),
                "give the name of a database of the configuration",
            ));
        }
        let target = devices::target(context, target)?;
        let Some(base) = target.first_place() else {
            let (target, database) = (target.name, database.to_owned());
            return Err(longshore_repository::Error::NoArchive { target, database }.into());
        };
        Ok(ArchiveLocation {
            base,
            below: Path::new(database).join(WAL),
            is_named: false,
        })
    }

    fn at(path: &Path) -> ArchiveLocation {
        if is_in_bucket(path) {
            return ArchiveLocation {
                base: path.to_owned(),
                below: PathBuf::new(),
                is_named: true,
            };
        }
        let base = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            // `/`, `..` and the like have no parent that could be missing.
            _ if path.file_name().is_none() => path,
            _ => Path::new("."),
        };
        ArchiveLocation {
            base: base.to_owned(),
            below: path.file_name().map(PathBuf::from).unwrap_or_default(),
            is_named: true,
        }
    }

    pub fn path(&self) -> PathBuf {
        match self.below.as_os_str().is_empty() {
            true => self.base.clone(),
            false => self.base.join(&self.below),
        }
    }

    pub fn existing(&self, context: &Context) -> Result<WalArchive, Error> {
        match self.is_named {
            true => WalArchive::existing(&*context.storage, &self.path()),
            false => WalArchive::existing_below(&*context.storage, &self.base, &self.below),
        }
    }

    /// Also opens an archive that is still empty.
    pub fn open(&self, context: &Context) -> Result<WalArchive, Error> {
        match self.is_named {
            true => WalArchive::open(&*context.storage, &self.path()),
            false => WalArchive::open_below(&*context.storage, &self.base, &self.below),
        }
    }

    pub fn create(&self, context: &Context) -> Result<WalArchive, Error> {
        let (storage, clock) = (&*context.storage, &*context.clock);
        let real = storage.canonical(&self.path()).ok();
        let real = real
            .filter(|_| self.is_named && !is_in_bucket(&self.base))
            .as_deref()
            .map(ArchiveLocation::at);
        let place = real.as_ref().unwrap_or(self);
        WalArchive::create(storage, &place.base, &place.below, clock)
    }
}
