//! The small files next to a stripe: key objects, in the stripe's directory or under its prefix.
//!
//! Invariants
//! - A file appears under its name whole and durable, or not at all. The name has a digest of the bytes: a good file is never written
//!   again, and one with other bytes is replaced.
//! - Each writer has an unfinished file of its own, so several may write one object at once.
//! - No link is followed, and no more than [`OBJECT_MAX`] bytes are read.
//! - Names that are neither a key object's nor a mark's are neither read nor changed.
//! - A folder full of other objects hides no object of another folder.
//!
//! Leaves to others: what is in the files, and whether that is believed (`longshore-crypt`).

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longshore_bucket::{Bucket, Bytes, Key};
use longshore_crypt::{FoundObjects, KeyObject, OBJECT_MAX, OBJECTS_MAX, ObjectFinder, ObjectName};
use longshore_io::{Dir, OpenHow, Storage, Via};
use uuid::Uuid;

use crate::Error;

/// The suffix of a file that is being written.
const UNFINISHED: &str = ".longshore-new";
/// The name of a mark is that of its set's objects up to the set, and this suffix.
const MARK: &str = ".shredded";
/// The name of a holder's mark is that of a key object with the mark's bytes, with this in place of its suffix.
const HELD: &str = ".held";
/// The suffix of a key object.
const OBJECT: &str = ".lsk";
/// The most bytes of a mark.
const MARK_MAX: usize = 4096;
/// The most names of one set whose bytes are read: those whose bytes do not fit count for nothing, and anybody can add some.
pub const NAMES_MAX: usize = 256;

/// Whether a name is that of a key object, or of one that is being written.
pub fn is_key_object(name: &str) -> bool {
    let object = match name.strip_suffix(UNFINISHED) {
        None => name,
        Some(rest) => rest.rsplit_once('.').map_or(rest, |(object, _)| object),
    };
    ObjectName::parse(object).is_some()
}

/// The place of the files next to a stripe.
#[derive(Debug, Clone)]
pub enum Folder {
    Directory {
        storage: Arc<dyn Storage>,
        path: PathBuf,
    },
    Prefix {
        bucket: Bucket,
        prefix: Key,
        cancel: Arc<AtomicBool>,
    },
}

impl Folder {
    /// The directory of the file at `path`.
    pub(super) fn of_file(storage: &Arc<dyn Storage>, path: &Path) -> Folder {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        Folder::Directory {
            storage: storage.clone(),
            path: parent.unwrap_or(Path::new(".")).to_owned(),
        }
    }

    /// The prefix of an object, up to its last `/`.
    pub(super) fn of_object((bucket, key): &(Bucket, Key), cancel: &Arc<AtomicBool>) -> Folder {
        let prefix = key.as_ref().rsplit_once('/').map_or("", |(head, _)| head);
        Folder::Prefix {
            bucket: bucket.clone(),
            prefix: Key::parse(prefix).unwrap_or_else(|_| Key::from(prefix)),
            cancel: cancel.clone(),
        }
    }

    /// Its path or address.
    pub fn name(&self) -> String {
        match self {
            Folder::Directory { path, .. } => path.display().to_string(),
            Folder::Prefix { bucket, prefix, .. } => bucket.address(prefix),
        }
    }

    /// Whether both are one place, as far as their names tell.
    pub fn is(&self, other: &Folder) -> bool {
        match (self, other) {
            (Folder::Directory { path, .. }, Folder::Directory { path: theirs, .. }) => {
                path == theirs
            }
            (
                Folder::Prefix { bucket, prefix, .. },
                Folder::Prefix {
                    bucket: theirs,
                    prefix: at,
                    ..
                },
            ) => bucket.identity(prefix) == theirs.identity(at),
            _ => false,
        }
    }

    /// Whether it is the other folder, or lies below it. A directory that is not there yet is known by its name.
    pub fn lies_in(&self, other: &Folder) -> bool {
        match (self, other) {
            (Folder::Directory { storage, path }, Folder::Directory { path: theirs, .. }) => {
                let real =
                    |path: &PathBuf| storage.canonical(path).unwrap_or_else(|_| path.clone());
                real(path).starts_with(real(theirs))
            }
            (
                Folder::Prefix { bucket, prefix, .. },
                Folder::Prefix {
                    bucket: theirs,
                    prefix: at,
                    ..
                },
            ) => {
                let root = Key::default();
                bucket.identity(&root) == theirs.identity(&root) && prefix.prefix_matches(at)
            }
            _ => false,
        }
    }

    fn io(&self, action: &'static str) -> impl Fn(std::io::Error) -> Error + use<> {
        let device = self.name();
        move |source| Error::Folder {
            action,
            folder: device.clone(),
            source,
        }
    }

    /// The names of all key objects of a set here, sorted. Errors: the folder cannot be listed.
    pub fn objects(&self, set: &[u8; 16]) -> Result<Vec<ObjectName>, Error> {
        self.names(|name| ObjectName::parse(name).filter(|name| name.set == *set))
    }

    /// The names here as `parsed` reads them, sorted.
    fn names<T: Ord>(&self, parsed: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, Error> {
        let mut names = Vec::new();
        match self {
            Folder::Directory { storage, path } => {
                let cannot = self.io("list");
                let listed = storage.dir(path).and_then(|dir| dir.list());
                for name in listed.map_err(&cannot)? {
                    names.extend(name.map_err(&cannot)?.to_str().and_then(&parsed));
                }
            }
            Folder::Prefix {
                bucket,
                prefix,
                cancel,
            } => {
                let level = bucket.level(prefix, cancel)?;
                names.extend(level.objects.iter().filter_map(|o| parsed(&o.name)));
            }
        }
        names.sort();
        Ok(names)
    }

    /// The bytes of a key object, at most one more than such one has; `None` if there is none of this name.
    ///
    /// Errors: it cannot be read; it is no regular file.
    pub fn read(&self, name: &ObjectName) -> Result<Option<Vec<u8>>, Error> {
        self.beginning(&name.to_string(), OBJECT_MAX + 1)
    }

    /// At most so many bytes of a file here.
    fn beginning(&self, name: &str, at_most: usize) -> Result<Option<Vec<u8>>, Error> {
        match self {
            Folder::Directory { storage, path } => {
                let read = || {
                    let file = storage.dir(path)?.open(Path::new(name), OpenHow::Read)?;
                    let mut bytes = vec![0; at_most];
                    let len = file.read_full_at(&mut bytes, 0, Via::Cache)?;
                    bytes.truncate(len);
                    Ok(bytes)
                };
                match read() {
                    Err(e) if ErrorKind::NotFound == std::io::Error::kind(&e) => Ok(None),
                    read => read.map(Some).map_err(self.io("read a key object in")),
                }
            }
            Folder::Prefix { bucket, cancel, .. } => {
                let at_most = Some(at_most as u64);
                let read = bucket.beginning(&self.key(name), at_most, cancel)?;
                Ok(read.map(|(_, bytes)| bytes.to_vec()))
            }
        }
    }

    fn key(&self, name: &str) -> Key {
        let prefix = match self {
            Folder::Prefix { prefix, .. } => prefix.as_ref(),
            Folder::Directory { .. } => "",
        };
        let key = match prefix {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        };
        Key::parse(&key).unwrap_or_else(|_| Key::from(key))
    }

    /// Writes a key object, durably, and reads it back. One that is there with these bytes is left as it is; other bytes under its name
    /// are rot, and are replaced.
    ///
    /// Errors: it cannot be written; the directory is another user's, who could not read it; what is read back differs.
    pub fn write(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), Error> {
        self.put(&name.to_string(), bytes, OBJECT_MAX + 1)
    }

    /// Removes a key object, durably. Returns whether it was there. A store that keeps versions, or a lock on them, keeps it all the same.
    ///
    /// Errors: it cannot be removed.
    pub fn remove(&self, name: &ObjectName) -> Result<bool, Error> {
        self.take_away(&name.to_string())
    }

    /// Leaves the mark that somebody destroyed the keys of this set on purpose. `text` is for people, at most [`MARK_MAX`] bytes.
    ///
    /// Errors: those of [`Folder::write`].
    pub fn mark_shredded(&self, set: &[u8; 16], text: &str) -> Result<(), Error> {
        let text: Vec<u8> = text.bytes().take(MARK_MAX).collect();
        self.put(&mark_name(set), &text, MARK_MAX + 1)
    }

    /// The text of that mark; `None`: there is none. Anybody who can write here can have put it there.
    ///
    /// Errors: it cannot be read.
    pub fn shredded(&self, set: &[u8; 16]) -> Result<Option<String>, Error> {
        let read = self.beginning(&mark_name(set), MARK_MAX)?;
        Ok(read.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Removes the mark, with the set that it is of. Errors: it cannot be removed.
    pub fn unmark(&self, set: &[u8; 16]) -> Result<bool, Error> {
        self.take_away(&mark_name(set))
    }

    /// Leaves the mark that somebody has the stripes of this set, so that nobody removes its key objects with other stripes. `holder`: who,
    /// for people and for [`Folder::release`]; at most [`MARK_MAX`] bytes.
    ///
    /// Errors: those of [`Folder::write`].
    pub fn hold(&self, set: &[u8; 16], holder: &str) -> Result<(), Error> {
        let bytes: Vec<u8> = holder.bytes().take(MARK_MAX).collect();
        self.put(&held_name(set, &bytes), &bytes, MARK_MAX + 1)
    }

    /// Removes the mark of this holder. Errors: it cannot be removed.
    pub fn release(&self, set: &[u8; 16], holder: &str) -> Result<bool, Error> {
        let bytes: Vec<u8> = holder.bytes().take(MARK_MAX).collect();
        self.take_away(&held_name(set, &bytes))
    }

    /// Those who have the stripes of this set, by their marks. Anybody who can write here can have put one there.
    ///
    /// Errors: the folder cannot be listed.
    pub fn holders(&self, set: &[u8; 16]) -> Result<Vec<String>, Error> {
        let held = |name: &str| {
            let object = ObjectName::parse(&format!("{}{OBJECT}", name.strip_suffix(HELD)?))?;
            (object.set == *set).then(|| name.to_owned())
        };
        let names = self.names(held)?;
        let text = |name: String| match self.beginning(&name, MARK_MAX) {
            Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Ok(None) | Err(_) => name,
        };
        Ok(names.into_iter().map(text).collect())
    }

    fn take_away(&self, name: &str) -> Result<bool, Error> {
        if self.beginning(name, 1)?.is_none() {
            return Ok(false);
        }
        match self {
            Folder::Directory { storage, path } => {
                let remove = || {
                    let dir = storage.dir(path)?;
                    dir.remove_file(Path::new(name))?;
                    dir.sync(Path::new(""))
                };
                remove().map_err(self.io("remove a key object from"))?;
            }
            Folder::Prefix { bucket, cancel, .. } => bucket.remove(&self.key(name), cancel)?,
        }
        Ok(true)
    }

    fn put(&self, name: &str, bytes: &[u8], at_most: usize) -> Result<(), Error> {
        let found = self.beginning(name, at_most).ok().flatten();
        if found.as_deref() == Some(bytes) {
            return Ok(());
        }
        match self {
            Folder::Directory { storage, path } => {
                let dir = storage.dir(path).map_err(self.io("open"))?;
                self.write_file(&*dir, name, bytes)?;
            }
            Folder::Prefix { bucket, cancel, .. } => {
                let (key, bytes) = (self.key(name), Bytes::copy_from_slice(bytes));
                // Whoever else writes it now: the name has the digest, and it is read back.
                match found {
                    None => drop(bucket.create(&key, bytes, cancel)?),
                    Some(_) => drop(bucket.put(&key, bytes, cancel)?),
                }
            }
        }
        match self.beginning(name, at_most)?.as_deref() == Some(bytes) {
            true => Ok(()),
            false => Err(self.io("read back what was written to")(
                ErrorKind::InvalidData.into(),
            )),
        }
    }

    fn write_file(&self, dir: &dyn Dir, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let cannot = self.io("write a key object to");
        // A killed writer's stays; it goes with the backup's other files.
        let own = Uuid::new_v4().simple();
        let unfinished = PathBuf::from(format!("{name}.{own}{UNFINISHED}"));
        let file = dir.open(&unfinished, OpenHow::CreateNew).map_err(&cannot)?;
        let write = || {
            let (own, around) = (file.stat()?, dir.stat(Path::new(""))?);
            // A file of root's could be neither read nor removed by the owner of the stripes.
            if own.uid != around.uid {
                return Err(std::io::Error::new(
                    ErrorKind::PermissionDenied,
                    "the directory is another user's: run the command as that user",
                ));
            }
            file.write_all_at(bytes, 0, Via::Cache)?;
            file.sync()?;
            dir.rename(&unfinished, Path::new(name))?;
            dir.sync(Path::new(""))
        };
        write().map_err(|error| {
            // If this cannot be removed now, it goes with the backup's other files.
            let _left = dir.remove_file(&unfinished);
            cannot(error)
        })
    }
}

fn mark_name(set: &[u8; 16]) -> String {
    let set: String = set.iter().map(|b| format!("{b:02x}")).collect();
    format!("keys-{set}{MARK}")
}

fn held_name(set: &[u8; 16], bytes: &[u8]) -> String {
    let object = ObjectName::of(set, bytes).to_string();
    format!("{}{HELD}", object.trim_end_matches(OBJECT))
}

/// A key object of a set, without any proof.
#[derive(Debug)]
pub struct SeenObject {
    pub name: ObjectName,
    /// The folders that have it, by their numbers.
    pub folders: Vec<usize>,
    /// Its parts, or the fault, in words.
    pub object: Result<KeyObject, String>,
}

/// A name of a key object, and what is there under it.
pub(crate) struct Named {
    pub name: ObjectName,
    /// The folders that have it, by their numbers.
    pub folders: Vec<usize>,
    /// The bytes of the name, or why there are none.
    pub bytes: Result<Vec<u8>, String>,
}

/// The key objects of a set in these folders, in the order of their names, those of one name once; and whether there are more.
/// Names without their bytes do not count as objects, and each folder has a share of its own: so nobody hides good ones behind others, in
/// this folder or in another.
pub(crate) fn seen(folders: &[Folder], set: &[u8; 16]) -> (Vec<Named>, bool, Option<Error>) {
    let (mut names, mut problem) = (BTreeSet::new(), None);
    let mut listed = Vec::new();
    for folder in folders {
        let objects = folder.objects(set).unwrap_or_else(|error| {
            problem.get_or_insert(error);
            Vec::new()
        });
        names.extend(objects.iter().cloned());
        listed.push(objects);
    }
    let mut all = Vec::new();
    let (mut read, mut good) = (vec![0; folders.len()], vec![0; folders.len()]);
    let count = names.len();
    for name in names {
        let has = |i: &usize| listed[*i].binary_search(&name).is_ok();
        let of: Vec<usize> = (0..listed.len()).filter(has).collect();
        if of
            .iter()
            .all(|i| read[*i] == NAMES_MAX || good[*i] == OBJECTS_MAX)
        {
            continue;
        }
        let bytes = bytes_of(folders, &name, &of);
        for i in &of {
            read[*i] = NAMES_MAX.min(read[*i] + 1);
            good[*i] = OBJECTS_MAX.min(good[*i] + usize::from(bytes.is_ok()));
        }
        all.push(Named {
            name,
            folders: of,
            bytes,
        });
    }
    let more = all.len() < count;
    (all, more, problem)
}

/// The bytes of an object, from the first of its folders where they are those of its name.
fn bytes_of(folders: &[Folder], name: &ObjectName, of: &[usize]) -> Result<Vec<u8>, String> {
    let mut why = "it is not there any longer".to_owned();
    for folder in of.iter().map(|i| &folders[*i]) {
        match folder.read(name) {
            Ok(Some(bytes)) if name.fits(&bytes) => return Ok(bytes),
            Ok(Some(_)) => why = "its bytes are not those of its name".to_owned(),
            Ok(None) => {}
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// Finds key objects in these places, in addition to what is next to stripes.
pub fn finder_in(folders: Vec<Folder>) -> Arc<ObjectFinder> {
    Arc::new(move |set: &[u8; 16]| found(&folders, set))
}

/// Whether each of these places has the object, whole.
pub fn have_all(folders: &[Folder], name: &ObjectName) -> bool {
    let has = |folder: &Folder| {
        let read = folder.read(name);
        read.is_ok_and(|bytes| bytes.is_some_and(|bytes| name.fits(&bytes)))
    };
    folders.iter().all(has)
}

/// The key objects in these places that may open the set.
pub fn found(folders: &[Folder], set: &[u8; 16]) -> FoundObjects {
    let (names, more, problem) = seen(folders, set);
    let mut problem = problem.map(|error| error.to_string());
    let mut objects = Vec::new();
    for Named { name, bytes, .. } in names {
        match bytes {
            Ok(bytes) => objects.push(bytes),
            Err(why) => problem = problem.or(Some(format!("{name}: {why}"))),
        }
    }
    FoundObjects {
        objects,
        more,
        problem,
        places: folders.iter().map(Folder::name).collect(),
    }
}
