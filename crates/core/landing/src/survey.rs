//! The changes that a restore would make in its target, found without writing anything.
//!
//! Invariants
//! - Nothing is written and no lock is taken, so another program may change the target before the restore runs.
//! - The refusals that need no lock come as they would from the restore itself. Whether a program uses a database is
//!   not asked.
//!
//! Leaves to others: the restore's own checks (`place`, `cluster`), which are made again.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, FileKind, Machine};
use longshore_media::SetHeader;

use crate::cluster::{self, NameKind, Outline};
use crate::error::{Error, at};
use crate::locked_target::{STAGING, refuse_dead_link};
use crate::options::ClusterOptions;
use crate::path_list::PathList;
use crate::place::{LOST_AND_FOUND, standing};
use crate::running::refuse_running;

/// The changes that a restore would make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Existing names that would be replaced; in a delta, existing files that would be compared and changed in place.
    pub replaced: PathList,
    /// Existing names that a delta would remove, each with everything below it.
    pub removed: PathList,
    /// The directories of the tablespaces, by OID.
    pub spaces: Vec<(u32, PathBuf)>,
}

impl Survey {
    /// Of plain names: `tops` are the set's names directly in the target, as they would be called there.
    ///
    /// Errors: `TargetExists` for a name that exists if nothing may be replaced.
    pub fn of_names(
        machine: &Machine,
        path: &Path,
        replace: bool,
        tops: &BTreeSet<OsString>,
    ) -> Result<Survey, Error> {
        let mut survey = Survey::default();
        let Some(dir) = existing(machine, path)? else {
            return Ok(survey);
        };
        for top in tops {
            let name = Path::new(top);
            match dir.stat(name) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(at("look at", &path.join(name))(e)),
                Ok(_) if replace => survey.replaced.add(path.join(name)),
                Ok(_) => {
                    let path = path.join(name);
                    return Err(Error::TargetExists { path });
                }
            }
        }
        Ok(survey)
    }

    /// Of a cluster. `outline` has the set's names.
    ///
    /// Errors: as for [`crate::Cluster::open`], but for those that need its locks.
    pub fn of_cluster(
        machine: &Machine,
        (path, replace): (&Path, bool),
        options: &ClusterOptions,
        header: &SetHeader,
        outline: &Outline,
    ) -> Result<Survey, Error> {
        let places = cluster::places(machine, path, options, header, outline)?;
        cluster::check_room(machine, path, &places, outline, options.delta)?;
        let mut survey = Survey {
            spaces: places.iter().map(|(o, p)| (*o, p.clone())).collect(),
            ..Survey::default()
        };
        let data = existing(machine, path)?;
        if let Some(dir) = &data {
            refuse_running(&**dir, path)?;
            let standing = standing(&**dir, path)?;
            match (options.delta, replace) {
                (true, _) => cluster::prove(&**dir, path, header.log.system)?,
                (false, false) if !standing.is_empty() => {
                    return Err(Error::TargetExists { path: path.into() });
                }
                (false, _) => {}
            }
            if options.delta {
                survey.look(&**dir, path, outline, Path::new(""))?;
            } else {
                standing
                    .iter()
                    .for_each(|name| survey.replaced.add(path.join(name)));
            }
        } else if options.delta {
            return Err(at("open", path)(std::io::ErrorKind::NotFound.into()));
        }
        for (oid, place) in &places {
            let Some(dir) = existing(machine, place)? else {
                continue;
            };
            let prefix = cluster::link(*oid);
            if options.delta {
                let link = data.as_ref().and_then(|data| data.read_link(&prefix).ok());
                cluster::refuse_foreign_space(&*dir, *oid, place, link.as_deref())?;
                survey.look(&*dir, place, outline, &prefix)?;
                continue;
            }
            for name in standing(&*dir, place)? {
                if outline.names.kind(&prefix.join(&name)).is_some() {
                    let path = place.join(name);
                    return Err(Error::TargetTaken { path });
                }
            }
        }
        Ok(survey)
    }

    /// Compares a directory with the names that the set has below `prefix`, as a delta does.
    fn look(
        &mut self,
        dir: &dyn Dir,
        path: &Path,
        outline: &Outline,
        prefix: &Path,
    ) -> Result<(), Error> {
        let mut stack = vec![PathBuf::new()];
        while let Some(below) = stack.pop() {
            let listed = dir.dir(&below).and_then(|dir| dir.list()?.collect());
            let names: Vec<OsString> = listed.map_err(at("list", &path.join(&below)))?;
            for name in names {
                let is_top = below.as_os_str().is_empty();
                if is_top && (name == STAGING || name == LOST_AND_FOUND) {
                    continue;
                }
                let name = below.join(name);
                let known = outline.names.kind(&prefix.join(&name));
                let is_dir = || {
                    let found = dir.stat(&name).map_err(at("look at", &path.join(&name)))?;
                    Ok::<bool, Error>(found.kind == FileKind::Dir)
                };
                match known {
                    // A tablespace of another major version may share the directory.
                    None if is_top && !prefix.as_os_str().is_empty() => {}
                    None if cluster::is_made(&prefix.join(&name)) => {}
                    None => self.removed.add(path.join(&name)),
                    Some(NameKind::Dir) if is_dir()? => stack.push(name),
                    Some(_) => self.replaced.add(path.join(&name)),
                }
            }
        }
        Ok(())
    }
}

fn existing(machine: &Machine, path: &Path) -> Result<Option<Arc<dyn Dir>>, Error> {
    match machine.storage.dir(path) {
        Ok(dir) => Ok(Some(dir)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            refuse_dead_link(&*machine.storage, path)?;
            Ok(None)
        }
        Err(e) => Err(at("open", path)(e)),
    }
}
