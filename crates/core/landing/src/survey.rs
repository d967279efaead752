//! The changes that a restore would make in its target, found without writing anything.
//!
//! Invariants
//! - Nothing is written and no lock is taken, so another program may change the target before the restore runs.
//! - The refusals that need no lock come as they would from the restore itself. Whether a program uses a database is
//!   not asked.
//!
//! Leaves to others: the restore's own checks (`place`, `cluster`), which are made again.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Dir, FileKind, Machine};
use longshore_media::{EntryKind, SetHeader};

use crate::cluster::{self, NameKind, Outline};
use crate::error::{Error, at};
use crate::locked_target::{STAGING, refuse_dead_link, refuse_read};
use crate::mounts::{mounts_below, refuse_mounted};
use crate::options::ClusterOptions;
use crate::path_list::PathList;
use crate::place::{
    LOST_AND_FOUND, ReplacePolicy, check_above, linked_database, refuse_foreign_log, standing,
};
use crate::protected::ProtectedFiles;
use crate::running::refuse_running;
use crate::sides::sides_of;
use crate::tree::is_absent;

/// The changes that a restore would make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Existing names that would be replaced; in a delta, existing files that would be compared and changed in place.
    pub replaced: PathList,
    /// Existing names that would be gone, each with everything below it: a delta removes them, or they go with directories
    /// that are replaced, or are logs of files that are.
    pub removed: PathList,
    /// Files of a cluster that would go with what is replaced, and their bytes.
    pub swept: Swept,
    /// The directories of the tablespaces, by OID.
    pub spaces: Vec<(u32, PathBuf)>,
}

/// Files below the names of a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub files: u64,
    pub bytes: u64,
}

impl Swept {
    /// Errors: a directory that cannot be listed.
    fn below(dir: &dyn Dir, path: &Path, names: &[OsString]) -> Result<Swept, Error> {
        let mut swept = Swept::default();
        let mut stack: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        while let Some(name) = stack.pop() {
            let found = match dir.stat(&name) {
                Err(e) if is_absent(&e) => continue,
                found => found.map_err(at("look at", &path.join(&name)))?,
            };
            if found.kind != FileKind::Dir {
                swept.files += 1;
                swept.bytes += found.len;
                continue;
            }
            let listed = dir.dir(&name).and_then(|below| below.list());
            let cannot = at("list", &path.join(&name));
            for below in listed.map_err(&cannot)? {
                stack.push(name.join(below.map_err(&cannot)?));
            }
        }
        Ok(swept)
    }
}

impl Survey {
    /// Of plain names. Also returns the names below directories that would be replaced, for a comparison with the set's.
    ///
    /// Errors: as the restore's, but for those that need its locks; `TargetExists` for a name that exists if nothing may be
    /// replaced.
    pub fn of_names(
        machine: &Machine,
        (path, replacing): (&Path, ReplacePolicy),
        names: &SurveyedNames,
        kept: &ProtectedFiles,
    ) -> Result<(Survey, Option<StandingNames>), Error> {
        let mut survey = Survey::default();
        let Some(dir) = existing(machine, path)? else {
            return Ok((survey, None));
        };
        let storage = &*machine.storage;
        let replace = replacing != ReplacePolicy::No;
        if replace {
            refuse_read(storage, path)?;
        }
        let mounts = mounts_below(storage, path);
        let mut tops = Vec::new();
        for (place, is_file) in names.outermost() {
            if place.starts_with(STAGING) {
                let path = path.join(place);
                return Err(Error::TargetTaken { path });
            }
            check_above(&*dir, path, place, replace)?;
            kept.check_entered(&*dir, path, place)?;
            kept.check_name(&*dir, path, place)?;
            refuse_mounted(&mounts, path, place, replace)?;
            if is_file {
                let arrives = |base: &Path| names.places.contains_key(base);
                refuse_foreign_log(&*dir, path, place, &arrives)?;
            }
            let sides = sides_of(place).filter(|side| is_file && !names.places.contains_key(side));
            for name in std::iter::once(place.to_path_buf()).chain(sides) {
                let found = match dir.stat(&name) {
                    Err(e) if is_absent(&e) => continue,
                    found => found.map_err(at("look at", &path.join(&name)))?,
                };
                let is_log = matches!(found.kind, FileKind::File | FileKind::Symlink);
                if name != place && !is_log {
                    continue;
                }
                let whole = path.join(&name);
                if !replace {
                    return Err(Error::TargetExists { path: whole });
                }
                kept.check_replaced(&*dir, path, &name)?;
                if is_file
                    && replacing == ReplacePolicy::Unused
                    && found.kind == FileKind::Symlink
                    && let Some(real) = linked_database(storage, &whole)
                {
                    return Err(Error::DatabaseLinked { path: whole, real });
                }
                match name == place {
                    true => survey.replaced.add(whole),
                    false => survey.removed.add(whole),
                }
                if found.kind == FileKind::Dir {
                    tops.push(name);
                }
            }
        }
        let below = StandingNames::below(dir, path, tops)?;
        Ok((survey, Some(below)))
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
            if replace && !options.delta {
                if !options.any_system {
                    cluster::refuse_other(&*machine.storage, path, header.log.system)?;
                }
                let mounts = mounts_below(&*machine.storage, path);
                let other = |mount: &&PathBuf| *mount != Path::new(LOST_AND_FOUND);
                if let Some(mount) = mounts.iter().find(other) {
                    let path = path.join(mount);
                    return Err(Error::Mounted { path });
                }
            }
            match (options.delta, replace) {
                (true, _) => cluster::prove(&**dir, path, header.log.system)?,
                (false, false) if !standing.is_empty() => {
                    return Err(Error::TargetExists { path: path.into() });
                }
                (false, true) => {
                    survey.swept = Swept::below(&**dir, path, &standing)?;
                }
                (false, false) => {}
            }
            if options.delta {
                cluster::refuse_mounts(machine, path, &outline.names, Path::new(""))?;
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
                cluster::refuse_mounts(machine, place, &outline.names, &prefix)?;
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

/// The places in a target that a restore of plain names takes, and whether a file arrives at each.
#[derive(Debug, Clone, Default)]
pub struct SurveyedNames {
    places: BTreeMap<PathBuf, bool>,
}

impl SurveyedNames {
    /// Adds an entry of the set by its name in the target, and the place that it takes.
    pub fn add(&mut self, place: PathBuf, name: &Path, kind: &EntryKind) {
        let is_file = matches!(kind, EntryKind::File | EntryKind::HardLink { .. });
        let arrives = place == name && is_file;
        *self.places.entry(place).or_default() |= arrives;
    }

    /// The places that are not below others.
    fn outermost(&self) -> impl Iterator<Item = (&Path, bool)> {
        let mut last: Option<&Path> = None;
        self.places.iter().filter_map(move |(place, is_file)| {
            if last.is_some_and(|last| place.starts_with(last)) {
                return None;
            }
            last = Some(place);
            Some((place.as_path(), *is_file))
        })
    }
}

/// The names below directories that would be replaced: 9 bytes for each.
pub struct StandingNames {
    dir: Arc<dyn Dir>,
    path: PathBuf,
    tops: Vec<PathBuf>,
    hasher: RandomState,
    /// Sorted; of each whether the set has it, too.
    names: Vec<u64>,
    is_met: Vec<bool>,
}

impl StandingNames {
    fn below(dir: Arc<dyn Dir>, path: &Path, tops: Vec<PathBuf>) -> Result<StandingNames, Error> {
        let mut found = StandingNames {
            dir,
            path: path.to_path_buf(),
            tops,
            hasher: RandomState::new(),
            names: Vec::new(),
            is_met: Vec::new(),
        };
        let mut names = Vec::new();
        found.walk(|name| {
            names.push(found.hasher.hash_one(name));
            true
        })?;
        names.sort_unstable();
        names.dedup();
        found.is_met = vec![false; names.len()];
        found.names = names;
        Ok(found)
    }

    /// Calls `each` for every name below the directories; false: nothing below it is asked for.
    fn walk(&self, mut each: impl FnMut(&Path) -> bool) -> Result<(), Error> {
        let mut stack = self.tops.clone();
        while let Some(below) = stack.pop() {
            let cannot = at("list", &self.path.join(&below));
            let listed = self.dir.dir(&below).and_then(|dir| dir.list());
            for name in listed.map_err(&cannot)? {
                let name = below.join(name.map_err(&cannot)?);
                let is_dir = |stat: longshore_io::Stat| stat.kind == FileKind::Dir;
                if each(&name) && self.dir.stat(&name).is_ok_and(is_dir) {
                    stack.push(name);
                }
            }
        }
        Ok(())
    }

    fn row(&self, name: &Path) -> Option<usize> {
        self.names.binary_search(&self.hasher.hash_one(name)).ok()
    }

    /// Called for each name that the set has in the target.
    pub fn meet(&mut self, name: &Path) {
        for (depth, name) in name.ancestors().enumerate() {
            let Some(row) = self.row(name) else { break };
            let was_met = std::mem::replace(&mut self.is_met[row], true);
            if was_met && depth > 0 {
                break;
            }
        }
    }

    /// The names that were not met, each with everything below it. Errors: a directory that cannot be listed.
    pub fn vanishing(self) -> Result<PathList, Error> {
        let mut gone = PathList::default();
        self.walk(|name| {
            let stays = self.row(name).is_none_or(|row| self.is_met[row]);
            if !stays {
                gone.add(self.path.join(name));
            }
            stays
        })?;
        Ok(gone)
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
