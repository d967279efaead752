//! The archive below a prefix in a bucket.
//!
//! A store has neither locks nor renames. It shows an object when it has all of it, and lets one of several writers
//! create it (`If-None-Match: *`); whether it does is tried when an archive is made, and a store that replaces what is
//! there gets none. An answer may be lost, and a request repeated. So a writer that is told that the name is taken looks
//! at what is there: its own bytes are success, whoever sent them.
//!
//! Invariants
//! - Nothing but the note of a refusal is ever written again.
//! - A store that does not answer is an error, and never a file that is missing.
//!
//! Leaves to others: requests and their repetition (`longshore-bucket`), and what a file's content means (`archive.rs`).

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longshore_bucket::{Bucket, Bytes, Created, Error as StoreError, Head, Key};
use longshore_facts as facts;
use longshore_io::{Clock, FileKind, Stat, crc32c};
use parking_lot::Mutex;
use uuid::Uuid;

use super::door::{
    Draft, Entry, Keep, Often, Place, Published, Stored, UNCLAIMED_NAME, Wanted, read_mark,
};
use crate::Error;
use crate::form::IDENTITY_NAME;
use crate::identity::Mark;

/// Bytes that are read at once from an object's beginning and from its end: most heads and ends, and a segment that is
/// mostly zeros, as a whole.
const LOOK_BYTES: u64 = 64 << 10;

/// How often a creation is tried.
const TRIES: usize = 4;

/// The beginning of a probe's name.
const PROBE: &str = ".longshore-probe-";

static NEVER: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub(crate) struct Prefix {
    pub(super) bucket: Bucket,
    pub(super) key: Key,
}

/// Refuses a store that lets a second writer replace what the first has written.
pub(super) fn check(bucket: &Bucket, key: &Key) -> Result<(), Error> {
    let probe = below(
        key,
        Path::new(&format!("{PROBE}{}", Uuid::new_v4().simple())),
    );
    let mut tries = 0;
    let abilities = loop {
        tries += 1;
        match bucket.probe(&probe, &NEVER) {
            // An answer was lost. The same probe again shows the same.
            Err(StoreError::Silent { .. }) if tries < TRIES => {}
            probed => break probed?,
        }
    };
    match abilities.keeps_first {
        true => Ok(()),
        false => Err(Error::Replaces {
            path: bucket.address(key).into(),
        }),
    }
}

/// The attributes of the archive itself.
pub(crate) fn stat(bucket: &Bucket, key: &Key) -> Stat {
    attributes(FileKind::Dir, bucket, key)
}

/// The attributes of a file of the process's own user. A store knows no owner.
fn attributes(kind: FileKind, bucket: &Bucket, key: &Key) -> Stat {
    let (uid, gid) = facts::own_ids();
    Stat {
        kind,
        len: 0,
        mode: 0o600,
        uid,
        gid,
        mtime_ns: 0,
        ctime_ns: 0,
        dev: sum(&match bucket.is_at_named_server() {
            // Another host may call the server otherwise.
            true => bucket.identity(key),
            false => bucket.address(key),
        }),
        ino: 0,
        links: 1,
    }
}

fn sum(text: &str) -> u64 {
    let (one, other) = text.as_bytes().split_at(text.len() / 2);
    u64::from(crc32c(one)) << 32 | u64::from(crc32c(other))
}

/// The key of a file. All names in an archive are letters that a key may have. The prefix may have any character, and each
/// stays as it is.
fn below(key: &Key, file: &Path) -> Key {
    let name = file.to_string_lossy();
    let text = match (key.as_ref(), name.as_ref()) {
        (_, "") => return key.clone(),
        ("", name) => name.to_owned(),
        (key, name) => format!("{key}/{name}"),
    };
    Key::parse(&text).unwrap_or_else(|_| Key::from(text))
}

impl Prefix {
    fn key(&self, file: &Path) -> Key {
        below(&self.key, file)
    }

    fn path(&self) -> PathBuf {
        self.bucket.address(&self.key).into()
    }

    fn create(&self, key: &Key, bytes: &Bytes) -> Result<Created, Error> {
        create(&self.bucket, key, bytes)
    }
}

/// Creates an object unless there is one. A creation whose answer was lost, or that the store refused because of another
/// one of which nothing is left, is repeated once the store says that nothing is there: it replaces nothing, whenever it
/// arrives.
fn create(bucket: &Bucket, key: &Key, bytes: &Bytes) -> Result<Created, Error> {
    let mut tries = 0;
    loop {
        tries += 1;
        match bucket.create(key, bytes.clone(), &NEVER) {
            Err(StoreError::Missing { .. } | StoreError::Silent { .. }) if tries < TRIES => {}
            done => return Ok(done?),
        }
        if bucket.head(key, &NEVER)?.is_some() {
            return Ok(Created::There);
        }
    }
}

impl Place for Prefix {
    fn list(&self, below: &Path, _lengths: bool) -> Result<Vec<Entry>, Error> {
        let level = self.bucket.level(&self.key(below), &NEVER)?;
        let objects = level.objects.into_iter().map(|object| Entry {
            name: object.name.into(),
            len_bytes: object.len_bytes,
            changed_ns: object.modified_ns,
        });
        let folders = level.folders.into_iter().map(|name| Entry {
            name: name.into(),
            len_bytes: 0,
            changed_ns: 0,
        });
        // An object that a console makes to show a folder has no name below it.
        let named = |entry: &Entry| !entry.name.is_empty();
        Ok(objects.chain(folders).filter(named).collect())
    }

    fn open(&self, file: &Path, wanted: Wanted) -> Result<Option<Arc<dyn Stored>>, Error> {
        let key = self.key(file);
        let at_most = (wanted == Wanted::Parts).then_some(LOOK_BYTES);
        let Some((head, first)) = self.bucket.beginning(&key, at_most, &NEVER)? else {
            return Ok(None);
        };
        Ok(Some(Arc::new(Object {
            bucket: self.bucket.clone(),
            key,
            head,
            first,
            last: Mutex::default(),
        })))
    }

    fn begin(&self, below: &Path, _name: &str) -> Result<Option<Box<dyn Draft>>, Error> {
        Ok(Some(Box::new(Unsent {
            bucket: self.bucket.clone(),
            parent: self.key(below),
            bytes: Vec::new(),
        })))
    }

    fn write(&self, file: &Path, bytes: &[u8], often: Often) -> Result<(), Error> {
        let (key, bytes) = (self.key(file), Bytes::copy_from_slice(bytes));
        match often {
            Often::Once => self.create(&key, &bytes).map(drop),
            Often::Again => Ok(self.bucket.put(&key, bytes, &NEVER).map(drop)?),
        }
    }

    fn mark(&self, mark: Mark, _clock: &dyn Clock, keep: Keep<'_>) -> Result<Option<Mark>, Error> {
        if let Some(found) = keep(read_mark(self, &self.path())?) {
            return Ok(Some(found));
        }
        let name = match mark {
            Mark::Unclaimed => UNCLAIMED_NAME,
            Mark::Of(_) => IDENTITY_NAME,
        };
        self.create(&self.key(Path::new(name)), &mark.encode().into())?;
        // Another writer's, if that was first.
        Ok(read_mark(self, &self.path())?.filter(|found| *found != mark))
    }

    fn remove(&self, file: &Path) -> Result<(), Error> {
        Ok(self.bucket.remove(&self.key(file), &NEVER)?)
    }

    /// Nothing is left to do: an acknowledged object is durable, and a prefix without objects is not there.
    fn settle(&self, _below: &Path, _emptied: bool) -> Result<(), Error> {
        Ok(())
    }
}

/// An object of the archive.
#[derive(Debug)]
struct Object {
    bucket: Bucket,
    key: Key,
    head: Head,
    /// The object's beginning, or all of it.
    first: Bytes,
    /// The end, once it was asked for, and where it begins.
    last: Mutex<Option<(u64, Vec<u8>)>>,
}

impl Object {
    fn read(&self, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let tag = self.head.tag.clone();
        self.bucket
            .read(&self.key, range.start, tag, &mut bytes, &NEVER)?;
        Ok(bytes)
    }

    fn path(&self) -> PathBuf {
        self.bucket.address(&self.key).into()
    }
}

impl Stored for Object {
    fn len(&self) -> Result<u64, Error> {
        Ok(self.head.len_bytes)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        let end = offset.saturating_add(buf.len() as u64);
        if end > self.head.len_bytes {
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(Error::io_at("read", self.path(), offset)(short));
        }
        if end <= self.first.len() as u64 {
            buf.copy_from_slice(&self.first[offset as usize..end as usize]);
            return Ok(());
        }
        let tail = self.head.len_bytes.saturating_sub(LOOK_BYTES);
        if offset < tail {
            buf.copy_from_slice(&self.read(offset..end)?);
            return Ok(());
        }
        let mut last = self.last.lock();
        let (from, bytes) = match &mut *last {
            Some(last) => last,
            none => none.insert((tail, self.read(tail..self.head.len_bytes)?)),
        };
        let at = (offset - *from) as usize;
        buf.copy_from_slice(&bytes[at..at + buf.len()]);
        Ok(())
    }

    fn stat(&self) -> Result<Stat, Error> {
        Ok(Stat {
            len: self.head.len_bytes,
            mtime_ns: self.head.modified_ns,
            ctime_ns: self.head.modified_ns,
            ino: sum(self.head.tag.as_deref().unwrap_or_default()),
            ..attributes(FileKind::File, &self.bucket, &self.key)
        })
    }
}

/// A file that is held in memory until the store gets it in one request.
struct Unsent {
    bucket: Bucket,
    parent: Key,
    bytes: Vec<u8>,
}

impl Draft for Unsent {
    fn write(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        match at == self.bytes.len() as u64 {
            true => {
                self.bytes.extend_from_slice(bytes);
                Ok(())
            }
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn publish(self: Box<Self>, file: &str) -> Result<Published, Error> {
        let key = below(&self.parent, Path::new(file));
        match create(&self.bucket, &key, &self.bytes.into())? {
            Created::Created => Ok(Published::Ours { surely: true }),
            Created::There => Ok(Published::Theirs),
        }
    }
}
