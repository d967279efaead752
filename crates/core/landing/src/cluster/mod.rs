//! Restores a PostgreSQL cluster: a data directory, its tablespaces, and the server's recovery settings.
//!
//! Invariants
//! - `global/pg_control` gets its name when everything else is durable under its own name; an old one loses its name
//!   first. Without it no server starts, so neither an incomplete restore nor a mixture of old and new ever starts.
//! - `backup_label` is written exactly as stored: without it a server would begin its replay at the wrong LSN.
//! - A restored server recovers as from an archive, so that it opens on a new timeline. A remark in the history of the
//!   timeline it comes from distinguishes the new timeline from that of another restore.
//! - Nothing is written outside the data directory unless the operator named the place ([`spaces`]).
//! - A data directory in which a server may run is not touched. Neither are tablespaces that are not empty:
//!   `--replace` keeps an old data directory until the new one is complete, and the old one needs its tablespaces.
//!
//! Leaves to others: staging and names in one directory (`place`), the locations of tablespaces (`spaces.rs`), and a
//! delta (`in_place.rs`).
//!
//! Source: PostgreSQL 18 manual, "Recovering Using a Continuous Archive Backup"; `xlogrecovery.c`.

mod checksums;
mod configuration;
mod existing;
mod held_cluster;
mod in_place;
mod made;
mod names;
mod outline;
mod overruled;
mod room;
mod spaces;
mod subscribed;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_io::{Attributes, Machine, Storage, Via};
use longshore_media::{Entry, EntryKind, Extent, SetHeader, SetTrailer};
use longshore_pg::backup_manifest::WalRange;
use longshore_pg::recovery::{NO_ARCHIVING, NO_SUBSCRIPTIONS, READS_AHEAD};
use longshore_pg::set_notes::DATABASES;
use longshore_pg::wal::{WalName, restore_name, restored_from};
use longshore_pg::{Lsn, Recovery, TABLESPACE_MAP, Timeline};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::cluster_error::ClusterError;
use crate::error::{Error, at};
use crate::options::{ClusterOptions, RecoverySettings};
use crate::place::{
    DeltaResult, Destination, FilePiece, LostAttributes, ReplacePolicy, Root, Scope, Target,
};
use crate::running::refuse_running;
use checksums::Checksums;
pub use configuration::{RestoredConfiguration, restored_configuration};
pub use existing::{prove, refuse_other};
pub use held_cluster::{HeldCluster, HeldLock};
use in_place::InPlace;
pub use in_place::{refuse_foreign_space, refuse_mounts};
pub use made::{taken_tablespaces, told as told_of_taken, told_of_unlogged_hints};
pub use names::is_made;
use names::{AUTO_CONF, AUTO_CONF_MAX, GLOBAL, MANIFEST, SIGNALS, WAL_DIR, file_like};
use outline::{CONTROL, Route};
pub use outline::{NameKind, Outline, link};
pub use overruled::{told_of_data_directory, told_of_overruled};
pub use room::check as check_room;
use spaces::Places;
pub use subscribed::{enabled_subscriptions, told_of_subscriptions};

/// The notice about a cluster whose server is kept from reading ahead; `None` if its major version does not read
/// ahead.
pub fn told_of_not_ahead(storage: &dyn Storage, data: &Path) -> Option<String> {
    let dir = storage.dir(data).ok()?;
    let version = subscribed::text(&*dir, Path::new("PG_VERSION"), 64).ok()?;
    let major: u32 = std::str::from_utf8(&version).ok()?.trim().parse().ok()?;
    let text = "the archive's WAL ends at the target, and a server that prefetches would stop before it: \
        postgresql.auto.conf has recovery_prefetch = off, which makes replay slower; after recovery, \
        `ALTER SYSTEM RESET recovery_prefetch` removes it";
    (major >= READS_AHEAD).then(|| text.to_owned())
}

/// A restore of a cluster in progress.
pub struct Cluster {
    // Fields are dropped in this order: the first is undone first when a restore fails.
    spaces: BTreeMap<u32, Box<dyn Root>>,
    data: Box<dyn Root>,
    places: Places,
    /// The tablespaces that the set turned out to have.
    linked: Mutex<BTreeSet<u32>>,
    owner: Option<(u32, u32)>,
    checksums: Checksums,
    recovery: Recovery,
    settings: RecoverySettings,
    no_archiving: bool,
    no_subscriptions: bool,
    hold: Option<Uuid>,
    /// The name of this restore in its remarks.
    restore: String,
    /// As in the set.
    lineage: Vec<u8>,
    range: Option<WalRange>,
    system: u64,
    /// The timeline of the set's WAL; `None` for sets without WAL.
    timeline: Option<Timeline>,
}

impl Cluster {
    /// Makes all checks that are possible beforehand and prepares the data directory at `path` and the tablespaces.
    /// `outline` and `trailer` are `None` if the media are a pipe.
    pub fn open(
        machine: &Machine,
        (path, replace): (&Path, bool),
        options: &ClusterOptions,
        set: (&SetHeader, Option<&SetTrailer>),
        outline: Option<&Outline>,
    ) -> Result<Cluster, Error> {
        let places = match outline {
            Some(outline) => places(machine, path, options, set.0, outline)?,
            None => spaces::of_pipe(&options.spaces, &absolute(machine, path))?,
        };
        let mut owner = None;
        if let Ok(dir) = machine.storage.dir(path) {
            refuse_running(&*dir, path)?;
            // An operator who prepared the directory for the server's user meant that user.
            let stat = dir.stat(Path::new("")).map_err(at("look at", path))?;
            owner = (stat.uid != 0).then_some((stat.uid, stat.gid));
        }
        let (header, trailer) = set;
        let (data, spaces) = match (options.delta, outline) {
            (true, None) => {
                return Err(ClusterError::NeedsIndex {
                    what: "a delta restore",
                }
                .into());
            }
            (true, Some(outline)) => {
                room::check(machine, path, &places, outline, true)?;
                in_place(machine, path, header, &places, outline)?
            }
            (false, _) => {
                if replace && !options.any_system {
                    refuse_other(&*machine.storage, path, header.log.system)?;
                }
                staged(machine, path, replace, &places)?
            }
        };
        if let (Some(outline), false) = (outline, options.delta) {
            room::check_staged((&*data, path), &spaces, &places, outline)?;
        }
        let checksums = Checksums::new(data.add_file(Path::new(MANIFEST))?);
        let restore = restore_name(Uuid::new_v4(), header.set);
        let recovery = options.recovery.clone();
        Ok(Cluster {
            data,
            spaces,
            places,
            linked: Mutex::default(),
            owner,
            checksums,
            recovery: recovery
                .unwrap_or_else(Recovery::of_own_log)
                .named(&restore),
            settings: options.settings,
            no_archiving: options.no_archiving,
            no_subscriptions: options.no_subscriptions,
            hold: options.hold.then_some(header.set),
            restore,
            lineage: header.lineage.clone(),
            range: trailer.and_then(|trailer| wal_range(header, trailer)),
            system: header.log.system,
            timeline: Timeline::new(header.log.timeline),
        })
    }

    /// The destination of an entry, and the entry as it is written there.
    fn route(&self, entry: &Entry) -> Result<Option<(&dyn Root, Entry)>, Error> {
        let mut entry = entry.clone();
        if let Some((uid, gid)) = self.owner {
            (entry.uid, entry.gid) = (uid, gid);
        }
        let route = Route::of(&entry.path);
        if let (Route::Link(oid), EntryKind::Symlink { target }) = (route, &mut entry.kind) {
            let Some(place) = self.places.get(&oid) else {
                let stored = target.clone();
                return Err(ClusterError::TablespaceFromPipe { oid, stored }.into());
            };
            self.linked.lock().insert(oid);
            target.clone_from(place);
            return Ok(Some((&*self.data, entry)));
        }
        let Some((root, path)) = self.route_path(&entry.path)? else {
            return Ok(None);
        };
        entry.path = self.name(path).to_owned();
        Ok(Some((root, entry)))
    }

    /// The destination of a path, and its name there.
    fn route_path<'p>(&self, path: &'p Path) -> Result<Option<(&dyn Root, &'p Path)>, Error> {
        let others = SIGNALS.iter().chain([&held_cluster::SET_HELD, &DATABASES]);
        if others.into_iter().any(|name| path == Path::new(name)) {
            return Ok(None);
        }
        if let Route::Space(oid, rest) = Route::of(path)
            && let Some(space) = self.spaces.get(&oid)
        {
            if !spaces::is_inside(rest) {
                return Err(ClusterError::TablespacePath {
                    oid,
                    path: rest.into(),
                    what: "PostgreSQL does not use such a name in a tablespace",
                }
                .into());
            }
            return Ok(Some((&**space, rest)));
        }
        Ok(Some((&*self.data, path)))
    }

    /// The name that a path gets: a held control file has a different one.
    fn name<'p>(&self, path: &'p Path) -> &'p Path {
        match self.hold.is_some() && path == Path::new(CONTROL) {
            true => Path::new(held_cluster::CONTROL_HELD),
            false => path,
        }
    }

    fn note(&self, entry: &Entry, parts: &[(Extent, &[u8])]) -> Result<(), Error> {
        self.checksums
            .note(entry, parts)
            .map_err(at("write", Path::new(MANIFEST)))
    }

    /// Adds the files that the server needs in addition to the set's.
    fn add_own_files(&self, root: &Attributes) -> Result<(), Error> {
        let manifest = Path::new(MANIFEST);
        let ranges: Vec<_> = self.range.into_iter().collect();
        let made = self.checksums.finish(self.system, &ranges);
        if made.map_err(at("write", manifest))? {
            self.data.set_added(manifest, &file_like(root))?;
        } else {
            self.data.remove_added(manifest)?;
        }
        if let Some(set) = self.hold {
            let mark = Path::new(held_cluster::SET_HELD);
            let file = self.data.add_file(mark)?;
            file.write_all_at(set.to_string().as_bytes(), 0, Via::Cache)
                .map_err(at("write", mark))?;
            self.data.set_added(mark, &file_like(root))?;
        }
        self.request_recovery(root)?;
        let conf = Path::new(AUTO_CONF);
        let file = match self.data.holds(conf) {
            true => self.data.open_added(conf)?,
            false => self.data.add_file(conf)?,
        };
        let edit = || {
            let mut stored = vec![0; AUTO_CONF_MAX];
            let len = file.read_full_at(&mut stored, 0, Via::Cache)?;
            if len == stored.len() {
                return Err(std::io::Error::other(
                    "it is longer than any server would write",
                ));
            }
            let major = self.checksums.major().unwrap_or(0);
            let mut text = match self.settings {
                RecoverySettings::Write => self.recovery.edit(&stored[..len], major),
                RecoverySettings::Keep | RecoverySettings::None => stored[..len].to_vec(),
            };
            if self.no_archiving {
                text.extend_from_slice(NO_ARCHIVING.as_bytes());
            }
            if self.no_subscriptions {
                text.extend_from_slice(NO_SUBSCRIPTIONS.as_bytes());
            }
            file.write_all_at(&text, 0, Via::Cache)?;
            file.set_len(text.len() as u64)
        };
        edit().map_err(at("edit", conf))?;
        self.data.set_added(conf, &file_like(root))?;
        if self.hold.is_some() && !self.lineage.is_empty() {
            let path = Path::new(held_cluster::LINEAGE);
            let file = self.data.add_file(path)?;
            let written = file.write_all_at(&self.lineage, 0, Via::Cache);
            written.map_err(at("write", path))?;
            self.data.set_added(path, &file_like(root))?;
        }
        match self.settings {
            RecoverySettings::Write | RecoverySettings::Keep => self.remark(root),
            // The server stays on its timeline.
            RecoverySettings::None => Ok(()),
        }
    }

    /// The empty file by which the server recovers; without one it replays as after a crash.
    fn request_recovery(&self, root: &Attributes) -> Result<(), Error> {
        let signal = Path::new(self.recovery.signal_file());
        match self.settings {
            RecoverySettings::Write | RecoverySettings::Keep => {
                self.data.add_file(signal)?;
                self.data.set_added(signal, &file_like(root))
            }
            // A delta leaves the one of the existing directory.
            RecoverySettings::None if self.data.holds(signal) => self.data.remove_added(signal),
            RecoverySettings::None => Ok(()),
        }
    }

    /// Writes the remark that distinguishes this restore from others into the history that the server copies when it
    /// opens. The history of timeline 1 is not otherwise used; if a later timeline's is not in the set, the archive
    /// has it.
    fn remark(&self, root: &Attributes) -> Result<(), Error> {
        let Some(timeline) = self.timeline else {
            return Ok(());
        };
        let name = WalName::History(timeline);
        let path = Path::new(WAL_DIR).join(name.to_string());
        let file = match (self.data.holds(&path), timeline.number()) {
            (true, _) => self.data.open_added(&path)?,
            (false, 1) if self.data.holds(Path::new(WAL_DIR)) => self.data.add_file(&path)?,
            (false, _) => return Ok(()),
        };
        let line = format!("\n{}\n", restored_from(name, &self.restore));
        let end = file.stat().map(|stat| stat.len);
        end.and_then(|end| file.write_all_at(line.as_bytes(), end, Via::Cache))
            .map_err(at("write", &path))?;
        self.data.set_added(&path, &file_like(root))
    }
}

impl Destination for Cluster {
    fn put_name(&self, entry: &Entry) -> Result<(), Error> {
        let Some((target, routed)) = self.route(entry)? else {
            return Ok(());
        };
        self.note(entry, &[])?;
        target.put_name(&routed)
    }

    fn put_data(&self, entry: &Entry, parts: &[(Extent, &[u8])]) -> Result<(), Error> {
        let Some((target, mut routed)) = self.route(entry)? else {
            return Ok(());
        };
        if entry.path == Path::new(TABLESPACE_MAP) && entry.len > 0 {
            // A part of it would be written as it is, and link tablespaces where the media say.
            let bytes = match parts {
                [(extent, bytes)] if extent.offset == 0 && bytes.len() as u64 == entry.len => bytes,
                _ => return Err(ClusterError::TablespaceMap.into()),
            };
            let map = spaces::edit_map(bytes, &self.places)?;
            routed.len = map.len() as u64;
            let whole = Extent {
                offset: 0,
                len: map.len() as u32,
            };
            let parts: &[(Extent, &[u8])] = &[(whole, &map)];
            self.note(&routed, parts)?;
            return target.put_data(&routed, parts);
        }
        self.note(entry, parts)?;
        target.put_data(&routed, parts)
    }

    fn put_piece(&self, piece: &FilePiece) -> Result<(), Error> {
        // This file must be edited as a whole.
        if piece.path == Path::new(TABLESPACE_MAP) {
            return Err(ClusterError::TablespaceMap.into());
        }
        let Some((target, path)) = self.route_path(piece.path)? else {
            return Ok(());
        };
        self.checksums.note_version(piece.path, piece.parts);
        let path = self.name(path);
        target.put_piece(&FilePiece { path, ..*piece })
    }

    fn complete(&self, entry: &Entry, crc32c: u32) -> Result<(), Error> {
        let Some((target, routed)) = self.route(entry)? else {
            return Ok(());
        };
        self.checksums
            .add(entry, crc32c)
            .map_err(at("write", Path::new(MANIFEST)))?;
        target.complete(&routed)
    }

    fn lost(&self) -> Vec<Arc<LostAttributes>> {
        let spaces = self.spaces.values().map(|space| space.lost());
        std::iter::once(self.data.lost()).chain(spaces).collect()
    }

    fn finish(mut self: Box<Self>) -> Result<Option<DeltaResult>, Error> {
        if !self.data.holds(self.name(Path::new(CONTROL))) {
            return Err(ClusterError::NoControlFile.into());
        }
        let linked = self.linked.lock();
        if let Some(oid) = self.places.keys().find(|oid| !linked.contains(oid)) {
            let name = oid.to_string();
            return Err(ClusterError::NoSuchTablespace { name }.into());
        }
        drop(linked);
        // The data directory itself is not an entry of the set; all its directories have the same attributes.
        let root = self.data.attributes_of(Path::new(GLOBAL));
        self.add_own_files(&root)?;
        let mut sealed = Vec::new();
        for space in self.spaces.values_mut() {
            sealed.push(space.seal()?);
        }
        let data = self.data.seal()?;
        // From here on the old cluster cannot start, nor the new one before the last rename.
        self.data.displace()?;
        for (space, closed) in self.spaces.values_mut().zip(&sealed) {
            space.set_root(&root)?;
            space.move_in(closed)?;
        }
        self.data.set_root(&root)?;
        self.data.move_in(&data)?;
        self.data.give_up_displaced()?;
        for space in self.spaces.values_mut() {
            space.give_up_displaced()?;
        }
        self.data.stand();
        for space in self.spaces.values_mut() {
            space.stand();
        }
        let mut delta = self.data.delta();
        if let Some(delta) = &mut delta {
            let spaces = self.spaces.values().filter_map(|space| space.delta());
            spaces.for_each(|space| delta.add(space));
        }
        Ok(delta)
    }
}

/// Where the tablespaces of a set go.
pub fn places(
    machine: &Machine,
    path: &Path,
    options: &ClusterOptions,
    header: &SetHeader,
    outline: &Outline,
) -> Result<Places, Error> {
    if !outline.has_control {
        return Err(ClusterError::NoControlFile.into());
    }
    let stored = &outline.spaces;
    let linked = match options.delta {
        true => existing::linked_places(machine, path, header.log.system, stored),
        false => Places::new(),
    };
    let data = absolute(machine, path);
    let places = spaces::decide(stored, &linked, &options.spaces, &data)?;
    // The data directory may not exist yet, so this is asked again when it does.
    check_real(machine, path, &places)?;
    Ok(places)
}

type Roots = (Box<dyn Root>, BTreeMap<u32, Box<dyn Root>>);

/// Everything goes to staging directories first.
fn staged(machine: &Machine, path: &Path, replace: bool, places: &Places) -> Result<Roots, Error> {
    let scope = Scope::Directory { last: GLOBAL };
    let replacing = match replace {
        true => ReplacePolicy::Unused,
        false => ReplacePolicy::No,
    };
    let data: Box<dyn Root> = Box::new(Target::open(machine, path, replacing, scope, &[])?);
    // A link may lead to the data directory, which exists only now.
    check_real(machine, path, places)?;
    let mut spaces = BTreeMap::<u32, Box<dyn Root>>::new();
    for (oid, place) in places {
        spaces.insert(
            *oid,
            Box::new(Target::open(
                machine,
                place,
                ReplacePolicy::No,
                Scope::Space,
                &[],
            )?),
        );
    }
    Ok((data, spaces))
}

/// Existing files are changed, once every directory has been found to be the right one.
fn in_place(
    machine: &Machine,
    path: &Path,
    header: &SetHeader,
    places: &Places,
    outline: &Outline,
) -> Result<Roots, Error> {
    let data = InPlace::open_data(machine, path, header)?;
    check_real(machine, path, places)?;
    let dir = machine.storage.dir(path).map_err(at("open", path))?;
    let mut opened = Vec::new();
    for (oid, place) in places {
        let link = dir.read_link(&outline::link(*oid)).ok();
        let space = InPlace::open_space(machine, *oid, place, link.as_deref(), header)?;
        refuse_mounts(machine, place, &outline.names, &outline::link(*oid))?;
        opened.push((*oid, space));
    }
    refuse_mounts(machine, path, &outline.names, Path::new(""))?;
    data.disable(header.log.system)?;
    let mut spaces = BTreeMap::<u32, Box<dyn Root>>::new();
    for (oid, space) in opened {
        space.clear(&outline.names, &outline::link(oid))?;
        spaces.insert(oid, Box::new(space));
    }
    data.clear(&outline.names, Path::new(""))?;
    Ok((Box::new(data), spaces))
}

/// Refuses tablespaces that overlap the data directory at `path`, or one another, under whichever names.
fn check_real(machine: &Machine, path: &Path, places: &Places) -> Result<(), ClusterError> {
    let id = |path: &Path| {
        let stat = machine
            .storage
            .dir(path)
            .and_then(|dir| dir.stat(Path::new("")));
        stat.ok().map(|stat| (stat.dev, stat.ino))
    };
    spaces::check_real(places, path, |path| absolute(machine, path), id)
}

/// `path` without symbolic links, as far as it exists.
fn absolute(machine: &Machine, path: &Path) -> PathBuf {
    for known in path.ancestors() {
        let base = match known.as_os_str().is_empty() {
            true => machine.storage.canonical(Path::new(".")),
            false => machine.storage.canonical(known),
        };
        if let (Ok(base), Ok(rest)) = (base, path.strip_prefix(known)) {
            return base.join(rest);
        }
    }
    path.to_owned()
}

fn wal_range(header: &SetHeader, trailer: &SetTrailer) -> Option<WalRange> {
    let (start, end) = (header.log.first_lsn, trailer.log.last_lsn);
    (start > 0 && end > start).then_some(WalRange {
        timeline: Timeline::new(header.log.timeline)?,
        start: Lsn(start),
        end: Lsn(end),
    })
}
