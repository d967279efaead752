//! The switch of names that are replaced one by one: old names make way, new ones arrive, and all of it goes back if the
//! restore ends in between.
//!
//! What is replaced is a *place*: the topmost name of the set, or what was asked for by itself ([`place_of`]). A file goes
//! together with what has the names of its log: no log is ever next to another file than its own.
//!
//! Invariants
//! - A journal of all places is durable before the first of them changes, until the restore is complete: whatever ends the
//!   restore, the next one puts back every old name and takes back every new one.
//! - What was changed since a killed restore is not taken back: the next restore is refused until somebody decided. A rename
//!   changes a file's time by all of its names (hard links), so a later time alone says nothing of a file that has a place, too:
//!   its other marks do.
//! - The file comes before its log when both are set aside, and after it when both get their names.
//! - Directories above a place stay as they are.
//!
//! Leaves to others: directories that are replaced as a whole (`names.rs`), and what a place is (`moves.rs`).

use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use longshore_io::{Dir, FileKind, Stat};

use super::Target;
use super::destination::{LateAttributes, ReplacePolicy, Scope};
use super::group::FileGroup;
use super::journal::{Arrival, read, write};
use super::layout::{GONE, MOVING};
use crate::error::Error;
use crate::locked_target::STAGING;
use crate::path_list::PathList;
use crate::sides::{base_of, sides_of};
use crate::tree::{OPEN_TO_US, is_absent, remove_tree};

fn staged(place: &Path) -> PathBuf {
    Path::new(STAGING).join("new").join(place)
}

fn aside(place: &Path) -> PathBuf {
    Path::new(STAGING).join("old").join(place)
}

fn given_up(place: &Path) -> PathBuf {
    Path::new(STAGING).join(GONE).join(place)
}

fn parent(place: &Path) -> &Path {
    place.parent().unwrap_or(Path::new(""))
}

const CHANGED: &str = "was changed or made since";

impl Target {
    /// `None`: nothing has the name.
    pub(super) fn look(&self, name: &Path) -> Result<Option<Stat>, Error> {
        match self.dir.stat(name) {
            Ok(found) => Ok(Some(found)),
            Err(e) if is_absent(&e) => Ok(None),
            Err(e) => Err(self.at("look at", name)(e)),
        }
    }

    /// The places that the staged names take, without those below others.
    pub(super) fn staged_places(&self) -> Result<Vec<PathBuf>, Error> {
        let new = Path::new(STAGING).join("new");
        let list = self.dir.dir(&new).and_then(|dir| dir.list()?.collect());
        let mut tops: Vec<std::ffi::OsString> = list.map_err(self.at("list", &new))?;
        tops.sort();
        let nested = self.nested.lock();
        let mut places = Vec::with_capacity(tops.len());
        for top in tops {
            let top = Path::new(&top);
            // Paths are in the order of their components: what is below a name comes right after it.
            let from = (Bound::Included(top), Bound::Unbounded);
            let below = nested.range::<Path, _>(from);
            let mut below = below.take_while(|place| place.starts_with(top)).peekable();
            if below.peek().is_none_or(|place| *place == top) {
                places.push(top.to_path_buf());
                continue;
            }
            let mut merged = BTreeSet::new();
            for place in below {
                merged.insert(self.first_missing(place)?);
            }
            for place in merged {
                let is_below = |last: &PathBuf| place.starts_with(last);
                if !places.last().is_some_and(is_below) {
                    places.push(place);
                }
            }
        }
        Ok(places)
    }

    /// The place itself, or the topmost directory above it that the target does not have: that arrives as it was staged.
    fn first_missing(&self, place: &Path) -> Result<PathBuf, Error> {
        let mut above: Vec<&Path> = place.ancestors().skip(1).collect();
        above.reverse();
        for dir in above.into_iter().filter(|dir| !dir.as_os_str().is_empty()) {
            if self.look(dir)?.is_none() {
                return Ok(dir.to_path_buf());
            }
        }
        Ok(place.to_path_buf())
    }

    /// Refuses a place below something that is no directory, or in a directory that no restore writes to.
    pub(super) fn check_above(&self, place: &Path) -> Result<(), Error> {
        let is_replacing = self.replacing != ReplacePolicy::No;
        check_above(&*self.dir, &self.path, place, is_replacing)?;
        if let Some(kept) = &self.kept {
            kept.check_entered(&*self.dir, &self.path, place)?;
        }
        Ok(())
    }

    /// All groups, and everything that arrives with them in its order.
    fn groups(&self) -> Result<(Vec<FileGroup>, Vec<Arrival>), Error> {
        let places = self.staged_places()?;
        let mut is_file = HashMap::with_capacity(places.len());
        let mut arrivals = HashMap::with_capacity(places.len());
        for place in &places {
            let name = staged(place);
            let found = self.dir.stat(&name).map_err(self.at("look at", &name))?;
            is_file.insert(place.clone(), found.kind == FileKind::File);
            arrivals.insert(place, Arrival::of(&*self.dir, &name, place, &found));
        }
        let with_file = |place: &Path| {
            let base = base_of(place.as_os_str()).map(Path::new);
            is_file[place] && base.is_some_and(|base| is_file.get(base) == Some(&true))
        };
        let mut groups = Vec::with_capacity(places.len());
        for main in &places {
            if with_file(main) {
                continue;
            }
            let sides =
                sides_of(main).filter(|side| is_file[main] && is_file.get(side) == Some(&true));
            groups.push(FileGroup {
                main: main.clone(),
                is_file: is_file[main],
                sides: sides.collect(),
            });
        }
        let arriving = groups.iter().flat_map(FileGroup::arriving);
        let arrivals = arriving.filter_map(|place| arrivals.remove(place));
        let arrivals = arrivals.collect();
        Ok((groups, arrivals))
    }

    /// The names that must make way for a group, the file before its logs.
    fn in_the_way(&self, group: &FileGroup) -> Result<Vec<PathBuf>, Error> {
        let mut found = Vec::new();
        if self.look(&group.main)?.is_some() {
            found.push(group.main.clone());
        }
        for side in sides_of(&group.main).filter(|_| group.is_file) {
            let Some(stat) = self.look(&side)? else {
                continue;
            };
            let is_log = matches!(stat.kind, FileKind::File | FileKind::Symlink);
            if is_log || group.sides.contains(&side) {
                found.push(side);
            }
        }
        Ok(found)
    }

    /// The refusals that need to know everything that arrives.
    fn check_groups(&self, groups: &[FileGroup]) -> Result<(), Error> {
        let arrives: BTreeSet<&Path> = groups
            .iter()
            .flat_map(|group| group.arriving().map(PathBuf::as_path))
            .collect();
        let is_replacing = self.replacing != ReplacePolicy::No;
        for group in groups {
            self.check_above(&group.main)?;
            if group.is_file {
                refuse_foreign_log(&*self.dir, &self.path, &group.main, &|base| {
                    arrives.contains(base)
                })?;
            }
            for name in self.in_the_way(group)? {
                if !is_replacing {
                    return Err(self.taken(&name));
                }
                self.refuse_mounts(&name)?;
                if let Some(kept) = &self.kept {
                    kept.check_replaced(&*self.dir, &self.path, &name)?;
                }
            }
            let is_link = |stat: Stat| stat.kind == FileKind::Symlink;
            if group.is_file
                && self.replacing == ReplacePolicy::Unused
                && self.look(&group.main)?.is_some_and(is_link)
            {
                self.refuse_linked(&group.main)?;
            }
        }
        Ok(())
    }

    /// Refuses to displace a directory that a backup reads.
    fn refuse_read_places(&self, groups: &[FileGroup]) -> Result<(), Error> {
        for group in groups
            .iter()
            .filter(|_| self.replacing != ReplacePolicy::No)
        {
            let dir = self.dir.dir(&group.main);
            if dir.and_then(|dir| dir.is_marked_read()).unwrap_or(false) {
                let path = self.path.join(&group.main);
                return Err(Error::TargetRead { path });
            }
        }
        Ok(())
    }

    /// Gives every staged name its place. If that fails, the caller puts everything back.
    pub(super) fn switch_names(&mut self, closed: &LateAttributes) -> Result<(), Error> {
        let (groups, arrivals) = self.groups()?;
        self.check_groups(&groups)?;
        self.refuse_read_places(&groups)?;
        write(&*self.dir, &arrivals).map_err(self.at("write", &Path::new(STAGING).join(MOVING)))?;
        for group in &groups {
            self.make_way(group)?;
            self.arrive(group, closed)?;
        }
        let parents: BTreeSet<&Path> = groups.iter().map(|group| parent(&group.main)).collect();
        for dir in parents {
            self.sync_in(dir)?;
        }
        self.switched = groups;
        Ok(())
    }

    fn make_way(&self, group: &FileGroup) -> Result<(), Error> {
        let standing = self.in_the_way(group)?;
        for name in &standing {
            if self.replacing == ReplacePolicy::No {
                return Err(self.taken(name));
            }
            self.make_parents(&aside(name))?;
            self.dir
                .rename(name, &aside(name))
                .map_err(self.at("displace", name))?;
            // Each is durably away before the next: a log without its database is harmless.
            if standing.len() > 1 {
                self.sync_in(parent(name))?;
            }
        }
        Ok(())
    }

    fn arrive(&self, group: &FileGroup, closed: &LateAttributes) -> Result<(), Error> {
        for side in &group.sides {
            self.dir
                .rename(&staged(side), side)
                .map_err(self.at("complete", side))?;
        }
        if !group.sides.is_empty() {
            self.sync_in(parent(&group.main))?;
        }
        self.dir
            .rename(&staged(&group.main), &group.main)
            .map_err(self.at("complete", &group.main))?;
        match closed.0.get(group.main.as_os_str()) {
            Some(attributes) => self.close(&group.main, attributes),
            None => Ok(()),
        }
    }

    /// Makes directories of our own durably: a name in a directory that a power cut takes away would be gone.
    fn make_parents(&self, name: &Path) -> Result<(), Error> {
        let mut above: Vec<&Path> = name.ancestors().skip(1).collect();
        above.reverse();
        for dir in above.into_iter().skip(3) {
            match self.dir.create_dir(dir) {
                Ok(()) => self.sync_in(parent(dir))?,
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(self.at("create", dir)(e)),
            }
        }
        Ok(())
    }

    pub(super) fn sync_in(&self, dir: &Path) -> Result<(), Error> {
        self.dir.sync(dir).map_err(self.at("sync", dir))
    }

    /// What the set does not have of directories that were replaced, and logs of files that were, after they were given up: a
    /// kill during the walk leaves the restore complete. A directory that this user may not list is left out.
    pub(super) fn removed(&self) -> PathList {
        let mut removed = PathList::default();
        for group in &self.switched {
            let logs =
                sides_of(&group.main).filter(|side| group.is_file && !group.sides.contains(side));
            for log in logs.filter(|log| self.dir.stat(&given_up(log)).is_ok()) {
                removed.add(self.path.join(log));
            }
            let mut stack = vec![group.main.clone()];
            while let Some(below) = stack.pop() {
                let names = self.dir.dir(&given_up(&below)).and_then(|dir| dir.list());
                for name in names.into_iter().flatten().flatten() {
                    let name = below.join(name);
                    match self.dir.stat(&name) {
                        Err(e) if is_absent(&e) => removed.add(self.path.join(&name)),
                        Ok(found) if found.kind == FileKind::Dir => stack.push(name),
                        _ => {}
                    }
                }
            }
        }
        removed
    }

    /// Whether the journal of a switch is there.
    pub(super) fn is_switching(&self) -> Result<bool, Error> {
        Ok(self.look(&Path::new(STAGING).join(MOVING))?.is_some())
    }

    /// Puts back what a switch set aside, and takes back what it gave a place; nothing if the switch was complete.
    /// `carefully`: the restore was another one, and others may have used its names since.
    pub(super) fn put_back_places(&self, carefully: bool) -> Result<(), Error> {
        let staging = Path::new(STAGING);
        let journal = staging.join(MOVING);
        if self.look(&staging.join(GONE))?.is_some() {
            return self.forget(&journal);
        }
        let (arrivals, since_ns) = read(&*self.dir).map_err(self.at("read", &journal))?;
        let known: BTreeSet<&Path> = arrivals.iter().map(|one| one.place.as_path()).collect();
        let mut back = Vec::new();
        for one in &arrivals {
            if self.has_arrived(one, carefully)? {
                back.push(one);
            } else if carefully {
                self.check_sides(one, &known)?;
            }
        }
        for one in back.iter().filter(|_| carefully) {
            self.check_unused(one, (&arrivals, since_ns), &known)?;
        }
        let parents: BTreeSet<&Path> = known.iter().map(|place| parent(place)).collect();
        let sync = || parents.iter().try_for_each(|dir| self.sync_in(dir));
        for one in back.iter().rev() {
            self.take_place_back(one, &known)?;
        }
        sync()?;
        for one in &arrivals {
            self.put_place_back(one, &known)?;
        }
        sync()?;
        // They are of files that stand there no more.
        self.quiet.lock().clear();
        remove_empty(&*self.dir, &staging.join("old"));
        self.forget(&journal)
    }

    /// Moves what was set aside for a name back, its logs first: a database is taken to have its logs.
    fn put_place_back(&self, one: &Arrival, known: &BTreeSet<&Path>) -> Result<(), Error> {
        let back = |name: &Path| match self.look(&aside(name))? {
            Some(_) => self
                .dir
                .rename(&aside(name), name)
                .map_err(self.at("put back", name)),
            None => Ok(()),
        };
        let mut has_logs = false;
        for side in sides_of(&one.place) {
            if !known.contains(side.as_path()) {
                back(&side)?;
            }
            has_logs |= self.look(&side)?.is_some();
        }
        if has_logs {
            self.sync_in(parent(&one.place))?;
        }
        back(&one.place)
    }

    /// Refuses to put a log back where somebody made one since.
    fn check_sides(&self, one: &Arrival, known: &BTreeSet<&Path>) -> Result<(), Error> {
        for side in sides_of(&one.place).filter(|side| !known.contains(side.as_path())) {
            if self.look(&aside(&side))?.is_some() && self.look(&side)?.is_some() {
                return Err(self.killed(&side));
            }
        }
        Ok(())
    }

    fn forget(&self, journal: &Path) -> Result<(), Error> {
        remove_tree(&*self.dir, journal)
            .and_then(|()| self.dir.sync(Path::new(STAGING)))
            .map_err(self.at("remove", journal))
    }

    /// Whether a name has its place. Refuses what others put there.
    fn has_arrived(&self, one: &Arrival, carefully: bool) -> Result<bool, Error> {
        let Some(found) = self.look(&one.place)? else {
            return Ok(false);
        };
        let is_waiting = self.look(&staged(&one.place))?.is_some();
        let was_displaced = self.look(&aside(&one.place))?.is_some();
        match (is_waiting, was_displaced) {
            (true, false) => Ok(false),
            (false, _) if one.is(&*self.dir, &one.place, &found) => Ok(true),
            // It arrived, and somebody has replaced it since.
            (false, false) if !carefully => Ok(false),
            (false, true) if !carefully => Ok(true),
            _ => Err(self.killed(&one.place)),
        }
    }

    fn killed(&self, place: &Path) -> Error {
        Error::KilledRestore {
            path: self.path.join(place),
            what: CHANGED,
        }
    }

    /// Refuses to take back a name that somebody uses, or has written to since it arrived.
    fn check_unused(
        &self,
        one: &Arrival,
        (arrivals, since_ns): (&[Arrival], i64),
        known: &BTreeSet<&Path>,
    ) -> Result<(), Error> {
        let Some(found) = self.look(&one.place)? else {
            return Ok(());
        };
        if found.kind == FileKind::File {
            let is_log = |stat: Stat| stat.kind == FileKind::File && stat.len > 0;
            for side in sides_of(&one.place).filter(|side| !known.contains(side.as_path())) {
                if self.look(&side)?.is_some_and(is_log) {
                    return Err(self.killed(&side));
                }
            }
        }
        if found.kind != FileKind::Dir && !one.is_unchanged(&found) {
            return Err(self.killed(&one.place));
        }
        if self.replacing != ReplacePolicy::Anything {
            self.keep_others_out(&one.place)?;
        }
        let mut stack = match found.kind {
            FileKind::Dir => vec![one.place.clone()],
            _ => Vec::new(),
        };
        while let Some(dir) = stack.pop() {
            let list = self.dir.dir(&dir).and_then(|dir| dir.list());
            for name in list.map_err(self.at("list", &dir))? {
                let name = dir.join(name.map_err(self.at("list", &dir))?);
                let Some(found) = self.look(&name)? else {
                    continue;
                };
                if found.ctime_ns > since_ns && !self.was_renamed(arrivals, &name, &found) {
                    return Err(self.killed(&name));
                }
                if found.kind == FileKind::Dir {
                    stack.push(name);
                }
            }
        }
        Ok(())
    }

    /// Whether the switch itself, or a taking back that was killed, explains that a file was changed after the journal was
    /// written: it has a place by another name, by which it was renamed, and everything but the time is as it arrived.
    fn was_renamed(&self, arrivals: &[Arrival], name: &Path, found: &Stat) -> bool {
        let is_place =
            |other: &Arrival| other.is_unchanged(found) && other.is(&*self.dir, name, found);
        found.kind != FileKind::Dir && arrivals.iter().any(is_place)
    }

    /// Moves a name that has arrived back to where it was staged, and what was made next to it.
    fn take_place_back(&self, one: &Arrival, known: &BTreeSet<&Path>) -> Result<(), Error> {
        let place = &one.place;
        let cannot = self.at("take back", place);
        let found = self.dir.stat(place).map_err(&cannot)?;
        if found.kind == FileKind::Dir {
            self.dir
                .set_attributes(place, &OPEN_TO_US)
                .map_err(&cannot)?;
        }
        self.dir.rename(place, &staged(place)).map_err(&cannot)?;
        if found.kind != FileKind::File {
            return Ok(());
        }
        let mut is_synced = false;
        for side in sides_of(place) {
            let Some(log) = self.look(&side)? else {
                continue;
            };
            // The file first: its logs without it are harmless.
            if !std::mem::replace(&mut is_synced, true) {
                self.sync_in(parent(place))?;
            }
            let is_own = !known.contains(side.as_path())
                && matches!(log.kind, FileKind::File | FileKind::Symlink)
                && self.look(&staged(&side))?.is_none();
            if is_own {
                self.dir
                    .rename(&side, &staged(&side))
                    .map_err(self.at("take back", &side))?;
            }
        }
        Ok(())
    }

    /// After a restore of an earlier version, which left no journal: old names go back where nothing has their places.
    pub(super) fn put_back_unknown(&self) -> Result<(), Error> {
        let old = Path::new(STAGING).join("old");
        let Ok(dir) = self.dir.dir(&old) else {
            return Ok(());
        };
        if self.look(&Path::new(STAGING).join(GONE))?.is_some() {
            return Ok(());
        }
        let list = dir.list();
        let list = list.and_then(|list| list.map(|name| name.map(PathBuf::from)).collect());
        let mut names: Vec<PathBuf> = list.map_err(self.at("list", &old))?;
        if names.is_empty() {
            return Ok(());
        }
        names.sort_by_key(|name| base_of(name.as_os_str()).is_none());
        for name in &names {
            let base = base_of(name.as_os_str()).map(Path::new);
            let beside = base.filter(|base| !names.iter().any(|name| name == base));
            for taken in [Some(name.as_path()), beside].into_iter().flatten() {
                if self.look(taken)?.is_some() {
                    return Err(self.killed(taken));
                }
            }
        }
        let mut is_side = false;
        for name in &names {
            let was_side = std::mem::replace(&mut is_side, base_of(name.as_os_str()).is_some());
            if was_side && !is_side {
                self.sync_names()?;
            }
            self.dir
                .rename(&aside(name), name)
                .map_err(self.at("put back", name))?;
        }
        self.sync_names()
    }

    /// Notes a place that the restore takes.
    pub(super) fn note_place(&self, place: &Path) {
        let top = place.iter().next();
        if top.is_some_and(|top| self.merged.contains(top)) {
            self.nested.lock().insert(place.to_path_buf());
        }
    }

    /// Whether names are switched one by one.
    pub(super) fn switches_names(&self) -> bool {
        matches!(self.scope, Scope::Names { .. })
    }
}

/// Refuses a place below something that is no directory, and if anything is replaced, one in the directory of a server that
/// may run.
pub fn check_above(
    dir: &dyn Dir,
    path: &Path,
    place: &Path,
    is_replacing: bool,
) -> Result<(), Error> {
    let mut above: Vec<&Path> = place.ancestors().skip(1).collect();
    above.reverse();
    for name in above
        .into_iter()
        .filter(|name| !name.as_os_str().is_empty())
    {
        let cannot = |source| Error::Target {
            action: "restore into",
            path: path.join(name),
            source,
        };
        match dir.stat(name) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(cannot(e)),
            Ok(found) if found.kind != FileKind::Dir => {
                return Err(cannot(ErrorKind::NotADirectory.into()));
            }
            Ok(_) if is_replacing => {
                let below = dir.dir(name).map_err(cannot)?;
                crate::running::refuse_running(&*below, &path.join(name))?;
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Refuses a file at `place` that SQLite would take for the log of a database that stands there and does not come from the
/// restore. Errors: [`Error::ForeignLog`].
pub fn refuse_foreign_log(
    dir: &dyn Dir,
    path: &Path,
    place: &Path,
    arrives: &dyn Fn(&Path) -> bool,
) -> Result<(), Error> {
    let Some(base) = base_of(place.as_os_str()).map(Path::new) else {
        return Ok(());
    };
    let stands = dir
        .stat(base)
        .is_ok_and(|found| matches!(found.kind, FileKind::File | FileKind::Symlink));
    match stands && !arrives(base) {
        true => Err(Error::ForeignLog {
            path: path.join(place),
            database: path.join(base),
        }),
        false => Ok(()),
    }
}

/// Removes directories that hold nothing but directories; others stay.
fn remove_empty(dir: &dyn Dir, top: &Path) {
    let (mut stack, mut found) = (vec![top.to_path_buf()], Vec::new());
    while let Some(name) = stack.pop() {
        let names = dir.dir(&name).and_then(|dir| dir.list());
        let below = names.into_iter().flatten().flatten();
        stack.extend(below.map(|below| name.join(below)));
        found.push(name);
    }
    for name in found.iter().rev() {
        let _not_empty = dir.remove_dir(name);
    }
}
