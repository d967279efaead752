//! Backups below the database's name and a prefix in each of a list of buckets.
//!
//! A store has no locks and no renames. It shows an object when it is complete, and a listing shows every object whose
//! writing was answered before. Four rules replace locks and renames.
//!
//! Invariants
//! - A lease is an object that its holder writes again every minute. Whether it is alive is judged by the store's clock
//!   alone: its own time of the answer less its own time of the object. A holder that finds, by the same clock, that it
//!   was too late once, has lost its lease for good ([`Hold::confirm`]).
//! - A label with a lease and without stripes is being written. The lease of a writer goes when every stripe is there, or
//!   none; otherwise it stays, and says that the set never was a backup. So a set that lacks stripes and has no such
//!   lease was whole once.
//! - A removal first creates `LABEL/.removing` and then looks for leases. A reader first writes its lease and then looks
//!   for `.removing`. So one of the two notices the other. `.removing` goes last.
//! - Nothing but leases and records is ever written again, and nothing but a removal deletes stripes.
//!
//! Leaves to others: writing, renewing and ending leases (`object_lease.rs`); requests and their repetition
//! (`longshore-bucket`); stripes (`longshore-media`); which backups count and which ones go (`shelf.rs`, `expire.rs`,
//! `retention.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use longshore_bucket::{
    Abilities, Address, Below, Bucket, Bytes, Created, Error as StoreError, Key, Listed, Unfinished,
};
use longshore_facts as facts;
use longshore_io::{Storage, is_stale, side_by_side};
use longshore_media::{DeviceSpec, ObjectName, is_key_object};
use uuid::Uuid;

use super::door::{
    Begun, Claims, Found, FoundRecord, Hold, LabelFiles, LeftUploads, Marks, Place, Protection,
    Removal, Remover, ShelfMark, StatusRecords, Stops,
};
use super::object_lease::{self, End, ObjectLease};
use crate::Error;
use crate::label::{BackupKind, Label};
use crate::lease::{self, Holder, Use};
use crate::target::{
    self, MARK, REMOVING, STATUS, STOPPED, STOPPED_MAX, bad_name, family_name, family_of,
};

/// The beginning of a probe's name, by which one that was left is known.
const PROBE: &str = ".longshore-probe-";

/// Labels that are judged, and leases that are read, at once.
const SIDE_BY_SIDE: usize = 48;

#[derive(Debug, Clone)]
pub(crate) struct Buckets {
    pub storage: Arc<dyn Storage>,
    pub target: String,
    /// The N-th takes family N; one may be there several times.
    pub prefixes: Vec<Address>,
    pub database: String,
}

/// Somewhere in a bucket.
#[derive(Debug, Clone)]
struct Spot {
    /// As the operator wrote it, with what was added.
    address: String,
    bucket: Bucket,
    key: Key,
}

static NEVER: AtomicBool = AtomicBool::new(false);

impl Spot {
    fn of(address: &str, storage: &dyn Storage) -> Result<Spot, StoreError> {
        let text = address.trim_end_matches('/');
        // A prefix may be empty, an object's name may not.
        let below = format!("{text}/x");
        let (bucket, below) = address_of(&below)?.place(storage)?;
        let key = below.as_ref().trim_end_matches('x').trim_end_matches('/');
        Ok(Spot {
            address: text.to_owned(),
            bucket,
            key: key_of(key),
        })
    }

    /// In one spelling, with the server: neither a copy in another bucket nor one at another server has it.
    fn identity(&self) -> PathBuf {
        self.bucket.identity(&self.key).into()
    }

    fn is(&self, other: &Spot) -> bool {
        self.bucket.origin(&self.key) == other.bucket.origin(&other.key)
    }

    fn join(&self, name: &str) -> Spot {
        let key = match self.key.as_ref() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        };
        Spot {
            address: format!("{}/{name}", self.address),
            bucket: self.bucket.clone(),
            key: key_of(key),
        }
    }

    fn below(&self) -> Result<Below, StoreError> {
        self.bucket.below(&self.key, &NEVER)
    }

    fn remove(&self) -> Result<(), StoreError> {
        self.bucket.remove(&self.key, &NEVER)
    }

    /// The record here; `None` if there is none.
    fn record(&self, name: &str, len_max: usize) -> Result<Option<FoundRecord>, StoreError> {
        // A byte more tells whether it is too long.
        let asked = len_max as u64 + 1;
        let read = self.bucket.beginning(&self.key, Some(asked), &NEVER)?;
        Ok(read.map(|(head, bytes)| FoundRecord {
            name: name.to_owned(),
            at: self.address.clone(),
            changed_ns: head.modified_ns,
            bytes: (bytes.len() <= len_max).then(|| bytes.to_vec()),
        }))
    }

    /// What a listing alone says of the lease here; `None`: its content is needed.
    fn listed_holder(&self, listed: &Listed, now_ns: i64) -> Option<Heard> {
        let name = self.key.filename().unwrap_or_default();
        if listed.len_bytes == object_lease::DONE.len() as u64 {
            return Some(Heard::Done);
        }
        let is_old = is_stale(listed.modified_ns, now_ns);
        is_old.then(|| Heard::Dead(Holder::read(name, "")))
    }

    /// The state of the holder of the lease here.
    fn holder(&self, listed: &Listed, now_ns: i64) -> Result<Heard, StoreError> {
        if let Some(heard) = self.listed_holder(listed, now_ns) {
            return Ok(heard);
        }
        let name = self.key.filename().unwrap_or_default();
        let Some(bytes) = self.bucket.small(&self.key, &NEVER)? else {
            return Ok(Heard::Ending(Holder::read(name, "")));
        };
        let content = String::from_utf8_lossy(&bytes);
        let holder = Holder::read(name, &content);
        Ok(match ObjectLease::end_of(&content) {
            Some(End::Done) => Heard::Done,
            Some(End::Left) => Heard::Ending(holder),
            None if holder.has_ended() => Heard::EndedHere(holder),
            None => Heard::Live(holder),
        })
    }
}

/// The leases directly below a folder.
pub(crate) struct FolderLeases {
    /// The holders that are alive.
    pub live: Vec<Holder>,
    /// Whether there is any lease, of a holder that lives or of one that has ended.
    pub is_any: bool,
}

/// The live holders of leases directly below `folder`, except of the lease `own`. The holder of that one removes leases that
/// have lost theirs, as far as it may.
pub(crate) fn holders(
    bucket: &Bucket,
    folder: &Key,
    own: Option<&Key>,
) -> Result<Vec<Holder>, StoreError> {
    Ok(leases(bucket, folder, own)?.live)
}

/// [`holders`], and whether there is any lease: one list tells both.
pub(crate) fn leases(
    bucket: &Bucket,
    folder: &Key,
    own: Option<&Key>,
) -> Result<FolderLeases, StoreError> {
    let spot = Spot {
        address: bucket.address(folder),
        bucket: bucket.clone(),
        key: folder.clone(),
    };
    let level = bucket.level(folder, &NEVER)?;
    let (mut live, mut left) = (Vec::new(), Vec::new());
    let is_lease = |object: &&Listed| object.name.starts_with(lease::PREFIX);
    for object in level.objects.iter().filter(is_lease) {
        let lease = spot.join(&object.name);
        if Some(&lease.key) == own {
            continue;
        }
        match lease.holder(object, level.now_ns)? {
            // The store may still do what an ended process sent.
            Heard::Live(holder) | Heard::EndedHere(holder) => live.push(holder),
            Heard::Dead(_) | Heard::Done => left.push(lease),
            Heard::Ending(_) => {}
        }
    }
    if own.is_some() && live.is_empty() {
        // Where one cannot be removed, the others cannot either, and they harm nobody.
        let removed = left.iter().try_for_each(Spot::remove);
        if let Err(error) = removed {
            tracing::debug!(%error, "leases of programs that have ended stay");
        }
    }
    Ok(FolderLeases {
        live,
        is_any: level.objects.iter().any(|object| is_lease(&object)),
    })
}

/// The state of a lease's holder.
enum Heard {
    Live(Holder),
    /// Alive for others, and its process on this machine has ended.
    EndedHere(Holder),
    /// It has ended, and not for longer than a lease lives: a listing that is as old may lack what it did last.
    Ending(Holder),
    Dead(Holder),
    /// It has done what it held the lease for, and could not remove it.
    Done,
}

/// The meaning of a process of this machine that has ended and has a lease that is alive for others.
#[derive(Clone, Copy, PartialEq)]
enum Ended {
    HoldsOn,
    /// Its writers count for nothing: they wrote the very bytes that are written again.
    WritersAreGone,
}

/// A prefix in one spelling, with its server; `None` if that cannot be known.
pub(super) fn identity_of(address: &str, storage: &dyn Storage) -> Option<String> {
    let spot = Spot::of(address, storage).ok()?;
    Some(spot.identity().display().to_string())
}

/// The same in two parts: bucket with key, and server.
pub(super) fn folder_of(address: &str, storage: &dyn Storage) -> Option<(String, String)> {
    let whole = identity_of(address, storage)?;
    let (folder, server) = whole.rsplit_once(" at ")?;
    Some((folder.to_owned(), server.to_owned()))
}

/// A key that every caller has in the form of one already.
fn key_of(text: impl Into<String>) -> Key {
    let text = text.into();
    Key::parse(&text).unwrap_or_else(|_| Key::from(text))
}

fn address_of(text: &str) -> Result<Address, StoreError> {
    Address::of(text).ok_or_else(|| StoreError::Address {
        text: text.to_owned(),
        why: "it begins like no store's address",
    })
}

/// The names of all databases below these addresses.
pub(crate) fn databases(prefixes: &[Address], storage: &dyn Storage) -> Result<Vec<String>, Error> {
    let mut names = BTreeSet::new();
    for prefix in prefixes {
        let spot = Spot::of(&prefix.to_string(), storage)?;
        let level = spot.bucket.level(&spot.key, &NEVER)?;
        names.extend(level.folders.into_iter().filter(|n| bad_name(n).is_none()));
    }
    Ok(names.into_iter().collect())
}

/// A new backup.
#[derive(Debug)]
struct BackupHold {
    place: Buckets,
    label: Label,
    families: usize,
    lease: ObjectLease,
}

impl Hold for BackupHold {
    fn confirm(&self) -> Result<(), Error> {
        self.lease.confirm()
    }
}

impl Drop for BackupHold {
    /// A set that lacks some stripes keeps the lease, which says that it never was a backup.
    fn drop(&mut self) {
        let there = self.place.contents(&self.label);
        let families = there.map(|there| there.iter().filter(|o| o.family.is_some()).count());
        match families {
            Ok(n) if n == 0 || n == self.families => {}
            Ok(_) => self.lease.leave(),
            Err(error) => {
                tracing::warn!(label = %self.label, %error, "it is not known what a backup has left");
                self.lease.leave();
            }
        }
    }
}

/// The database in all buckets, without other expires.
struct Locked<'a> {
    place: &'a Buckets,
    lease: ObjectLease,
    abilities: Abilities,
}

/// An object below a label.
struct Content {
    spot: Spot,
    listed: Listed,
    now_ns: i64,
    family: Option<u16>,
}

impl Content {
    fn is_lease(&self) -> bool {
        self.listed.name.starts_with(lease::PREFIX)
    }

    fn is_removing(&self) -> bool {
        self.listed.name == REMOVING
    }
}

impl Buckets {
    /// The database in each bucket, each once, in order.
    fn homes(&self) -> Result<Vec<Spot>, Error> {
        let mut homes: Vec<Spot> = Vec::new();
        for prefix in &self.prefixes {
            let spot = Spot::of(&prefix.to_string(), &*self.storage)?;
            // One prefix may be written in several ways.
            let is_there = homes.iter().any(|home| home.is(&spot));
            if !is_there {
                homes.push(spot);
            }
        }
        Ok(homes.iter().map(|spot| spot.join(&self.database)).collect())
    }

    fn first_home(&self) -> Result<Spot, Error> {
        let nothing = || Error::Nothing {
            target: self.target.clone(),
            database: self.database.clone(),
        };
        self.homes()?.into_iter().next().ok_or_else(nothing)
    }

    /// The lease that claims a label; `None` if anything else is under it.
    fn claim(&self, label: &Label, families: usize) -> Result<Option<Begun>, Error> {
        let home = self.first_home()?;
        let lease = ObjectLease::take(home.join(label.as_str()).into_place(), Use::Backup)?;
        if self.contents(label)?.len() > 1 {
            return Ok(None);
        }
        let held = BackupHold {
            place: self.clone(),
            label: label.clone(),
            families,
            lease,
        };
        let device = |n| Ok(DeviceSpec::Bucket(address_of(&self.stripe(label, n))?));
        let devices = (1..=families as u16).map(device);
        Ok(Some(Begun {
            label: label.clone(),
            devices: devices.collect::<Result<_, StoreError>>()?,
            hold: Box::new(held),
        }))
    }

    /// Everything below a label, the first bucket's first.
    fn contents(&self, label: &Label) -> Result<Vec<Content>, Error> {
        let mut contents = Vec::new();
        for home in self.homes()? {
            let spot = home.join(label.as_str());
            let below = spot.below()?;
            let content = |object: Listed| Content {
                spot: spot.join(&object.name),
                family: family_of(&object.name).filter(|f| f.1).map(|f| f.0),
                listed: object,
                now_ns: below.now_ns,
            };
            contents.extend(below.objects.into_iter().map(content));
        }
        Ok(contents)
    }

    /// Uploads of backups that have ended. A writer has its lease before its first upload begins, and one that lost it
    /// fails. So an upload that was there before a look that finds no living lease belongs to nobody. It is older than a
    /// lease lives, too, so that no order of answers matters. `last_ns`: a time of the store that is known.
    fn ended_uploads(&self, home: &Spot, last_ns: i64) -> Result<Vec<Unfinished>, Error> {
        let found = home.bucket.unfinished(&home.key, &NEVER)?;
        let mut ended = Vec::new();
        // A backup has an upload for each stripe.
        let mut known: BTreeMap<Label, bool> = BTreeMap::new();
        for upload in found.uploads {
            let begun_ns = upload.begun_ns;
            let label = match begun_ns.is_some_and(|begun| is_stale(begun, found.now_ns)) {
                true => label_of(&upload.name),
                false => None,
            };
            let Some(label) = label else { continue };
            let has_ended = match known.get(&label) {
                Some(known) => *known,
                None => {
                    let there = self.contents(&label)?;
                    let now_ns = last_ns.max(found.now_ns);
                    let holder = self.holder_in(&there, now_ns, Ended::HoldsOn)?;
                    known.insert(label, holder.is_none());
                    holder.is_none()
                }
            };
            if has_ended {
                ended.push(upload);
            }
        }
        Ok(ended)
    }

    /// A live holder among these. `now_ns`: the store's time, of a moment before they were listed.
    fn holder_in(
        &self,
        contents: &[Content],
        now_ns: i64,
        ended: Ended,
    ) -> Result<Option<String>, Error> {
        for content in contents.iter().filter(|c| c.is_lease()) {
            let now_ns = content.now_ns.max(now_ns);
            match content.spot.holder(&content.listed, now_ns)? {
                Heard::EndedHere(holder)
                    if ended == Ended::WritersAreGone && holder.what == Some(Use::Backup) => {}
                Heard::Live(holder) | Heard::EndedHere(holder) => {
                    return Ok(Some(holder.text()));
                }
                Heard::Ending(holder) if holder.what == Some(Use::Backup) => {
                    return Ok(Some(holder.text()));
                }
                Heard::Ending(_) | Heard::Dead(_) | Heard::Done => {}
            }
        }
        Ok(None)
    }
}

/// A lease below a label whose content is needed.
struct UnreadLease {
    label: Label,
    spot: Spot,
    listed: Listed,
    now_ns: i64,
}

/// Adds what is below a database in one bucket. Returns the leases that are to be read.
fn add_below(
    home: &Spot,
    below: &Below,
    found: &mut Found,
) -> Result<Vec<UnreadLease>, StoreError> {
    let mut unread = Vec::new();
    found.now_ns = below.now_ns;
    let mut strays = BTreeSet::new();
    for (folder, mut objects) in below.by_folder() {
        // An object that a console makes to show a folder has no name below it.
        objects.retain(|(name, _)| !name.is_empty());
        let Ok(label) = folder.parse::<Label>() else {
            strays.extend(strays_of(folder, &objects));
            continue;
        };
        let spot = home.join(folder);
        let files = found.labels.entry(label.clone());
        let files = files.or_insert_with(|| LabelFiles {
            any_finished: true,
            writers_ended: true,
            ..LabelFiles::default()
        });
        let is_lease = |(name, _): &(&str, &Listed)| name.starts_with(lease::PREFIX);
        let (leases, others): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_lease);
        strays.extend(add_files(files, &spot, &others)?);
        for (name, listed) in leases {
            let spot = spot.join(name);
            match spot.listed_holder(listed, below.now_ns) {
                Some(heard) => add_lease(files, Ok(heard)),
                None => unread.push(UnreadLease {
                    label: label.clone(),
                    spot,
                    listed: listed.clone(),
                    now_ns: below.now_ns,
                }),
            }
        }
    }
    let address = |name: &String| home.join(name).address;
    found.strays.extend(strays.iter().map(address));
    Ok(unread)
}

/// The unknown names in a folder that is no label's, from the database on.
fn strays_of(folder: &str, objects: &[(&str, &Listed)]) -> Vec<String> {
    let is_own = |name: &str| {
        let mut beginnings = [lease::PREFIX, MARK, PROBE, STATUS, STOPPED].iter();
        beginnings.any(|own| name.starts_with(own))
    };
    match folder {
        target::WAL => Vec::new(),
        "" => {
            let names = objects.iter().map(|(name, _)| *name);
            names.filter(|n| !is_own(n)).map(Into::into).collect()
        }
        folder => vec![folder.to_owned()],
    }
}

/// Adds the objects below a label but the leases; returns the unknown names, from the database on.
fn add_files(
    files: &mut LabelFiles,
    spot: &Spot,
    objects: &[(&str, &Listed)],
) -> Result<Vec<String>, StoreError> {
    let mut strays = Vec::new();
    for (name, object) in objects {
        if *name == REMOVING {
            files.removing = true;
        } else if family_of(name).is_some_and(|family| family.1) {
            let stripe = spot.join(name);
            files
                .stripes
                .push(DeviceSpec::Bucket(address_of(&stripe.address)?));
            files.bytes += object.len_bytes;
            // A copy in another bucket may have the time, as replication keeps it.
            let (at, len, changed_ns) = (stripe.identity(), object.len_bytes, object.modified_ns);
            let change = format!("{} {len} {changed_ns}", at.display());
            files.changes.push(change);
            if let Some((family, _)) = family_of(name) {
                files.stamps.push((family.into(), len, changed_ns));
            }
        } else if is_key_object(name) {
            files.bytes += object.len_bytes;
            files.objects.extend(ObjectName::parse(name));
        } else {
            strays.push(object.name.clone());
        }
    }
    Ok(strays)
}

/// Adds a lease below a label, as far as it says something about the label.
fn add_lease(files: &mut LabelFiles, heard: Result<Heard, StoreError>) {
    files.has_lease = true;
    match heard {
        Err(error) => files.unreadable = Some(error.to_string()),
        Ok(Heard::Live(holder)) => {
            files.writers_ended &= holder.what != Some(Use::Backup);
            files.holders.push(holder);
        }
        Ok(Heard::EndedHere(holder)) => files.holders.push(holder),
        Ok(Heard::Ending(holder)) if holder.what == Some(Use::Backup) => {
            files.any_finished = false;
            files.ending = Some(holder);
        }
        Ok(Heard::Dead(holder)) if holder.what == Some(Use::Backup) => {
            files.any_finished = false;
        }
        Ok(Heard::Ending(_) | Heard::Dead(_) | Heard::Done) => {}
    }
}

impl Claims for Buckets {
    fn begin(&self, kind: BackupKind, begun_us: i64) -> Result<Begun, Error> {
        loop {
            let label = Label::new(begun_us, kind);
            // Somebody else may have the same second and random digits.
            if let Some(begun) = self.claim(&label, self.prefixes.len())? {
                return Ok(begun);
            }
        }
    }

    fn begin_copy(&self, label: &Label, families: u16) -> Result<Begun, Error> {
        let begun = self.claim(label, usize::from(families))?;
        begun.ok_or_else(|| Error::LabelTaken {
            target: self.target.clone(),
            database: self.database.clone(),
            label: label.to_string(),
        })
    }

    fn device(&self, label: &Label, family: u16) -> Result<DeviceSpec, Error> {
        Ok(DeviceSpec::Bucket(address_of(&self.stripe(label, family))?))
    }

    /// An object needs no room.
    fn make_room(&self, _label: &Label, _family: u16) -> Result<(), Error> {
        Ok(())
    }
}

/// The results of `work` for each of these, in order. As many run at once as wait for a store.
fn each<A: Sync, B: Send>(all: &[A], work: impl Fn(&A) -> B + Sync) -> Result<Vec<B>, Error> {
    let next = AtomicUsize::new(0);
    let of_one_thread = |_| {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            match all.get(at) {
                Some(one) => done.push((at, work(one))),
                None => return done,
            }
        }
    };
    let done = match all.len() {
        0 | 1 => vec![of_one_thread(0)],
        len => {
            let done = side_by_side(len.min(SIDE_BY_SIDE), of_one_thread);
            done.map_err(|source| Error::Io {
                action: "ask several things at once of",
                path: PathBuf::from("the store"),
                source,
            })?
        }
    };
    let mut done: Vec<(usize, B)> = done.into_iter().flatten().collect();
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, one)| one).collect())
}

impl Place for Buckets {
    /// Lists the prefixes in their order: a writer's lease is below the first, and goes when all stripes are there. Of a
    /// lease, the list tells all but the holder of one that may be alive.
    fn look(&self) -> Result<Found, Error> {
        let mut found = Found::default();
        let mut unread = Vec::new();
        for home in self.homes()? {
            unread.extend(add_below(&home, &home.below()?, &mut found)?);
        }
        let heard = each(&unread, |lease| {
            lease.spot.holder(&lease.listed, lease.now_ns)
        })?;
        for (lease, heard) in unread.iter().zip(heard) {
            if let Some(files) = found.labels.get_mut(&lease.label) {
                add_lease(files, heard);
            }
        }
        let number = |device: &DeviceSpec| match device {
            DeviceSpec::Bucket(address) => {
                let text = address.to_string();
                let name = text.rsplit('/').next().unwrap_or_default();
                family_of(name).map(|family| family.0)
            }
            _ => None,
        };
        for files in found.labels.values_mut() {
            files.stripes.sort_by_key(number);
        }
        found.strays.sort();
        Ok(found)
    }

    /// An object that is being written has no name.
    fn writer(&self, _stripes: &[DeviceSpec], _now_ns: i64) -> Option<String> {
        None
    }

    fn stripe(&self, label: &Label, family: u16) -> String {
        let mut prefixes = self.prefixes.iter().cycle();
        let prefix = prefixes.nth(usize::from(family) - 1);
        let prefix = prefix.map(Address::to_string).unwrap_or_default();
        let (prefix, database) = (prefix.trim_end_matches('/'), &self.database);
        format!("{prefix}/{database}/{label}/{}", family_name(family))
    }

    fn protect(&self, label: &Label) -> Result<Protection, Error> {
        // A set made when the target had other buckets may not be in the first one.
        let there = self.contents(label)?;
        let Some(first) = there.iter().find(|content| content.family.is_some()) else {
            return Err(Error::NoSuchLabel {
                target: self.target.clone(),
                database: self.database.clone(),
                label: label.to_string(),
            });
        };
        if first.spot.bucket.is_past() {
            return Ok(Protection::Needless);
        }
        match ObjectLease::take(first.spot.clone().parent().into_place(), Use::Read) {
            Ok(lease) => Ok(Protection::Held(Box::new(lease))),
            Err(Error::Store(error)) if error.is_forbidden() => {
                Ok(Protection::Impossible(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    fn left_uploads(&self) -> Result<Option<u64>, Error> {
        let mut count = 0;
        for home in self.homes()? {
            if home.bucket.is_past() {
                return Ok(None);
            }
            match self.ended_uploads(&home, 0) {
                Ok(ended) => count += ended.len() as u64,
                Err(Error::Store(StoreError::Refused { .. })) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(count))
    }

    fn lock(&self) -> Result<Option<Box<dyn Remover + '_>>, Error> {
        let homes = self.homes()?;
        let mut there = Vec::new();
        for home in &homes {
            let level = home.bucket.level(&home.key, &NEVER)?;
            if !level.folders.is_empty() || !level.objects.is_empty() {
                there.push(home);
            }
        }
        let Some(home) = there.first().copied() else {
            return Ok(None);
        };
        let lease = ObjectLease::take(home.clone().into_place(), Use::Expire)?;
        let mut left = Vec::new();
        for home in &homes {
            let level = home.bucket.level(&home.key, &NEVER)?;
            for object in &level.objects {
                let spot = home.join(&object.name);
                if object.name.starts_with(PROBE) {
                    left.push(spot);
                } else if object.name.starts_with(lease::PREFIX) && spot.key != *lease.key() {
                    match spot.holder(object, level.now_ns)? {
                        Heard::Live(holder) | Heard::EndedHere(holder) => {
                            return Err(Error::Busy {
                                path: home.address.clone().into(),
                                holder: holder.text(),
                            });
                        }
                        Heard::Ending(_) | Heard::Dead(_) | Heard::Done => left.push(spot),
                    }
                }
            }
        }
        // A bucket that refuses must be known before another one has lost its stripe.
        let mut abilities = self.probe(home)?;
        for other in &there[1..] {
            let other = self.probe(other)?;
            abilities.no_removal = abilities.no_removal.or(other.no_removal);
        }
        // Probes and leases of programs that have ended.
        for spot in left.iter().filter(|_| abilities.no_removal.is_none()) {
            spot.remove()?;
        }
        Ok(Some(Box::new(Locked {
            place: self,
            lease,
            abilities,
        })))
    }

    fn side_by_side(&self) -> usize {
        SIDE_BY_SIDE
    }
}

impl Spot {
    fn parent(mut self) -> Spot {
        let cut = |text: &str| text.rsplit_once('/').map(|(head, _)| head.to_owned());
        self.address = cut(&self.address).unwrap_or_default();
        self.key = key_of(cut(self.key.as_ref()).unwrap_or_default());
        self
    }

    fn into_place(self) -> (Bucket, Key) {
        (self.bucket, self.key)
    }
}

impl Buckets {
    /// The promises that the first bucket's store keeps, shown by a probe.
    fn probe(&self, home: &Spot) -> Result<Abilities, Error> {
        // One for each host: who may not remove it leaves one, and not one each time.
        let host: String = facts::host_name()
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
            .collect();
        let probe = home.join(&format!("{PROBE}{host}"));
        Ok(probe.bucket.probe(&probe.key, &NEVER)?)
    }

    /// [`Buckets::probe`] of each bucket, with its address.
    pub(crate) fn probe_all(&self) -> Result<Vec<(String, Abilities)>, Error> {
        let probed = |home: &Spot| Ok((home.address.clone(), self.probe(home)?));
        self.homes()?.iter().map(probed).collect()
    }
}

impl Marks for Buckets {
    fn marks(&self) -> Result<Vec<ShelfMark>, Error> {
        let mut marks = BTreeMap::new();
        for home in self.homes()? {
            for object in home.bucket.level(&home.key, &NEVER)?.objects {
                let id = object.name.strip_prefix(MARK);
                if let Some(id) = id.and_then(|id| Uuid::parse_str(id).ok()) {
                    marks.entry(id).or_insert_with(|| ShelfMark {
                        id,
                        changed_ns: object.modified_ns,
                        only_at: Some(home.identity()),
                    });
                }
            }
        }
        Ok(marks.into_values().collect())
    }

    fn new_mark(&self) -> Result<ShelfMark, Error> {
        let id = Uuid::new_v4();
        let spot = self.first_home()?.join(&format!("{MARK}{}", id.simple()));
        spot.bucket
            .put(&spot.key, Bytes::from_static(b"mark\n"), &NEVER)?;
        let made = self.marks()?.into_iter().find(|mark| mark.id == id);
        made.ok_or(Error::Store(StoreError::Missing {
            action: "list",
            at: spot.address,
        }))
    }

    fn home(&self) -> Result<PathBuf, Error> {
        Ok(self.first_home()?.identity())
    }
}

impl StatusRecords for Buckets {
    fn records(&self, names: &[&str], len_max: usize) -> Result<Vec<FoundRecord>, Error> {
        let mut found = Vec::new();
        for home in self.homes()? {
            // Most databases have few of them: one listing is cheaper than a question for each.
            let there: Vec<&&str> = match names.len() {
                0 | 1 => names.iter().collect(),
                _ => {
                    let level = home.bucket.level(&home.key, &NEVER)?;
                    let is = |name: &str| level.objects.iter().any(|object| object.name == name);
                    names.iter().filter(|name| is(name)).collect()
                }
            };
            let read = each(&there, |name| home.join(name).record(name, len_max))?;
            for record in read {
                found.extend(record?);
            }
        }
        Ok(found)
    }

    fn put_record(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let spot = self.first_home()?.join(name);
        let bytes = Bytes::copy_from_slice(bytes);
        spot.bucket.put(&spot.key, bytes, &NEVER)?;
        Ok(())
    }
}

impl Stops for Buckets {
    fn stopped(&self) -> Result<Option<String>, Error> {
        for home in self.homes()? {
            let spot = home.join(STOPPED);
            if let Some(bytes) = spot.bucket.small(&spot.key, &NEVER)? {
                let text = &bytes[..bytes.len().min(STOPPED_MAX)];
                return Ok(Some(String::from_utf8_lossy(text).trim_end().to_owned()));
            }
        }
        Ok(None)
    }

    fn stop(&self, word: &str) -> Result<(), Error> {
        for home in self.homes()? {
            let spot = home.join(STOPPED);
            let text = Bytes::from(format!("{word}\n"));
            spot.bucket.put(&spot.key, text, &NEVER)?;
        }
        Ok(())
    }

    fn resume(&self) -> Result<bool, Error> {
        let mut was_there = false;
        for home in self.homes()? {
            let spot = home.join(STOPPED);
            if spot.bucket.small(&spot.key, &NEVER)?.is_some() {
                spot.remove()?;
                was_there = true;
            }
        }
        Ok(was_there)
    }
}

/// The reason why an object was not removed: with the time until which the store keeps it, where the store tells that.
fn refusal(spot: &Spot, error: &StoreError) -> String {
    match spot.bucket.kept_until(&spot.key, &NEVER) {
        Ok(Some(time)) => format!("the store keeps it until {time}: {error}"),
        // The refusal itself is the better answer.
        Ok(None) | Err(_) => error.to_string(),
    }
}

/// Takes back the mark of a removal that was refused; why the backup stays.
fn taken_back(mark: &Spot, why: String) -> String {
    match mark.remove() {
        Ok(()) => why,
        Err(stuck) => format!(
            "{why}; it counts as a backup again when {} is removed, which failed: {stuck}",
            mark.address
        ),
    }
}

impl Locked<'_> {
    fn remove_unless_held(&self, label: &Label, ended: Ended) -> Result<Removal, Error> {
        if let Some(why) = &self.abilities.no_removal {
            return Ok(Removal::Retained(why.clone()));
        }
        let there = self.place.contents(label)?;
        let Some(first) = there.first() else {
            return Ok(Removal::Done);
        };
        let begun = there.iter().find(|content| content.is_removing());
        let mark = match begun {
            Some(content) => content.spot.clone(),
            None => first.spot.clone().parent().join(REMOVING),
        };
        let text = Bytes::from_static(b"its removal has begun\n");
        let created = match mark.bucket.create(&mark.key, text.clone(), &NEVER) {
            // Some stores with versions take an earlier mark that was removed for an object. This expire alone is here.
            Err(StoreError::Missing { .. }) => {
                mark.bucket.put(&mark.key, text, &NEVER)?;
                Created::Created
            }
            created => created?,
        };
        // One that another expire had begun remains a removal.
        let ours = begun.is_none() && created == Created::Created;
        self.lease.confirm()?;
        let there = self.place.contents(label)?;
        if let Some(holder) = self.place.holder_in(&there, self.lease.last_ns(), ended)? {
            if ours {
                mark.remove()?;
            }
            return Ok(Removal::InUse(holder));
        }
        // Stripes first: as long as all of them are there, the removal can be taken back. Key objects last: stripes that stay need them.
        let stripes = there.iter().filter(|c| c.family.is_some());
        let leases = there.iter().filter(|c| c.is_lease());
        let objects = there.iter().filter(|c| is_key_object(&c.listed.name));
        for (done, content) in stripes.chain(leases).chain(objects).enumerate() {
            match content.spot.remove() {
                Ok(()) => {}
                Err(error) if !error.is_forbidden() => return Err(error.into()),
                Err(error) => {
                    let why = refusal(&content.spot, &error);
                    return Ok(match (done, ours) {
                        (1.., _) => Removal::Partly(why),
                        (0, true) => Removal::Retained(taken_back(&mark, why)),
                        (0, false) => Removal::Retained(why),
                    });
                }
            }
        }
        // Unknown names are left, and with them the mark.
        let is_strange = |c: &Content| {
            let is_known = c.is_lease() || c.is_removing() || is_key_object(&c.listed.name);
            c.family.is_none() && !is_known
        };
        if !there.iter().any(is_strange) {
            for content in there.iter().filter(|c| c.is_removing()) {
                content.spot.remove()?;
            }
        }
        Ok(Removal::Done)
    }
}

impl Remover for Locked<'_> {
    fn look(&self) -> Result<Found, Error> {
        self.place.look()
    }

    fn remove(&self, label: &Label) -> Result<Removal, Error> {
        self.remove_unless_held(label, Ended::HoldsOn)
    }

    fn take_over(&self, label: &Label) -> Result<Removal, Error> {
        self.remove_unless_held(label, Ended::WritersAreGone)
    }

    fn abort_left_uploads(&self) -> Result<LeftUploads, Error> {
        let mut left = LeftUploads::default();
        for home in self.place.homes()? {
            let ended = match self.place.ended_uploads(&home, self.lease.last_ns()) {
                Err(Error::Store(error)) => {
                    left.kept_because = Some(error.to_string());
                    continue;
                }
                ended => ended?,
            };
            for upload in ended {
                self.lease.confirm()?;
                let at = home.join(&upload.name);
                match at.bucket.abort(&at.key, &upload.id, &NEVER) {
                    Ok(()) => left.aborted += 1,
                    Err(error) => left.kept_because = Some(error.to_string()),
                }
            }
        }
        Ok(left)
    }
}

/// The backup of a stripe's name below the database; `None`: it is not one of ours.
fn label_of(name: &str) -> Option<Label> {
    let (label, stripe) = name.split_once('/')?;
    family_of(stripe).filter(|family| family.1)?;
    label.parse().ok()
}
