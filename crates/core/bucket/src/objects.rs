//! Many small objects: what is below a prefix, when each was written by the store's own clock, and what that clock says
//! now.
//!
//! Invariants
//! - No clock of this machine is asked. The time is the `Date` of the answer itself; where the store sends none, it is
//!   the newest of the times of the objects in the answer. It is never later than the store's own.
//! - A store's promises are shown by a probe, not believed.
//!
//! Leaves to others: what the objects mean (leases, marks, stripes: `longshore-repository`, `longshore-wal`), and
//! objects of many parts (`upload.rs`).

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use futures_util::StreamExt;
use http::Method;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, PutPayload};

use crate::own::odd;
use crate::then::Then;
use crate::watched::SEEN;
use crate::{Bucket, Created, Error};

/// The headers that say how long an object is kept: S3's object lock, and Azure's policy of immutability.
const KEPT_UNTIL: [&str; 2] = [
    "x-amz-object-lock-retain-until-date",
    "x-ms-immutability-policy-until-date",
];

/// Leases and marks have some hundred bytes.
const SMALL_MAX: u64 = 1 << 20;

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The name below the prefix that was listed.
    pub name: String,
    pub len_bytes: u64,
    /// The time of its last change by the store's clock, in nanoseconds since the Unix epoch.
    pub modified_ns: i64,
}

/// The objects and folders below a prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Below {
    pub objects: Vec<Listed>,
    /// The first parts of longer names, if only one level was asked for.
    pub folders: Vec<String>,
    /// The store's own time, not later than that of its answer.
    pub now_ns: i64,
}

/// Whether a store keeps two rules that a target relies on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Abilities {
    /// It refuses to create an object that is there.
    pub keeps_first: bool,
    /// Why these credentials may not remove objects.
    pub no_removal: Option<String>,
}

/// The time of the last answer that the present call has seen.
pub(crate) fn answered_ns() -> Option<i64> {
    let seen = |seen: &std::sync::Arc<std::sync::Mutex<crate::watched::Seen>>| {
        let seen = seen.lock();
        seen.map_or_else(|e| e.into_inner().date_ns, |seen| seen.date_ns)
    };
    SEEN.try_with(seen).ok().flatten()
}

impl Bucket {
    /// All objects below `prefix`.
    pub fn below(&self, prefix: &Path, cancel: &AtomicBool) -> Result<Below, Error> {
        let (bucket, at) = (self.clone(), prefix.clone());
        let asked = self.ask("list", prefix, async move {
            if let Some(then) = bucket.then(&at).await? {
                return Ok(Below::then(&at, then));
            }
            let store = bucket.store();
            let mut found = store.list(Some(&at));
            let mut below = Below::default();
            let mut first = None;
            while let Some(object) = found.next().await {
                // The first portion's answer is the oldest.
                first = first.or_else(answered_ns);
                below.objects.push(listed(&at, &object?));
            }
            below.now_ns = below.time(first.or_else(answered_ns));
            Ok(below)
        })?;
        asked.wait(cancel)
    }

    /// The objects and folders directly below `prefix`.
    pub fn level(&self, prefix: &Path, cancel: &AtomicBool) -> Result<Below, Error> {
        let (bucket, at) = (self.clone(), prefix.clone());
        let asked = self.ask("list", prefix, async move {
            if let Some(then) = bucket.then(&at).await? {
                return Ok(Below::then(&at, then).level());
            }
            let found = bucket.store().list_with_delimiter(Some(&at)).await?;
            let mut below = Below {
                objects: found.objects.iter().map(|o| listed(&at, o)).collect(),
                folders: found
                    .common_prefixes
                    .iter()
                    .map(|folder| relative(&at, folder))
                    .collect(),
                now_ns: 0,
            };
            below.now_ns = below.time(answered_ns());
            Ok(below)
        })?;
        asked.wait(cancel)
    }

    /// The time until which the store lets nobody remove an object, as the store writes it; `None` if it does not say one.
    /// Needs S3's permission `s3:GetObjectRetention`.
    pub fn kept_until(&self, key: &Path, cancel: &AtomicBool) -> Result<Option<String>, Error> {
        let (asking, at) = (self.asking(), key.clone());
        let asked = self.ask("look at", key, async move {
            let answer = asking.send(Method::HEAD, &asking.url(at.as_ref())?).await?;
            let told = KEPT_UNTIL.iter().find_map(|name| {
                let value = answer.headers().get(*name)?;
                value.to_str().ok()
            });
            Ok(told.map(str::to_owned))
        })?;
        asked.wait(cancel)
    }

    /// Writes a small object, over one that is there. Returns the store's time of its answer, if it told that.
    pub fn put(&self, key: &Path, bytes: Bytes, cancel: &AtomicBool) -> Result<Option<i64>, Error> {
        self.may_write("write", key)?;
        let (store, at) = (self.store(), key.clone());
        let asked = self.ask("write", key, async move {
            store.put(&at, PutPayload::from_bytes(bytes)).await?;
            Ok(answered_ns())
        })?;
        asked.wait(cancel)
    }

    /// A small object's bytes; `None` if there is none. Errors: also one of more than 1 MiB, which is not read: anyone may have
    /// written it.
    pub fn small(&self, key: &Path, cancel: &AtomicBool) -> Result<Option<Bytes>, Error> {
        let (bucket, at) = (self.clone(), key.clone());
        let asked = self.ask("read", key, async move {
            let found = bucket.get(&at, GetOptions::default()).await?;
            match found.meta.size > SMALL_MAX {
                true => Err(odd("it is larger than any small object of Longshore's")),
                false => found.bytes().await,
            }
        })?;
        match asked.wait(cancel) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes `key` twice and removes it: what the store does is believed, not what it is said to do.
    pub fn probe(&self, key: &Path, cancel: &AtomicBool) -> Result<Abilities, Error> {
        let first = match self.create(key, Bytes::from_static(b"probe\n"), cancel) {
            // Some stores with versions take the mark of a removal for an object.
            Err(Error::Missing { .. }) => {
                self.put(key, Bytes::from_static(b"probe\n"), cancel)?;
                Created::Created
            }
            created => created?,
        };
        let again = self.create(key, Bytes::from_static(b"again\n"), cancel)?;
        let no_removal = match self.remove(key, cancel) {
            Ok(()) => None,
            Err(error) if error.is_forbidden() => Some(error.to_string()),
            Err(error) => return Err(error),
        };
        Ok(Abilities {
            // One that was left by whoever may not remove it shows it, too.
            keeps_first: first == Created::There || again == Created::There,
            no_removal,
        })
    }
}

impl Below {
    /// The objects that were below `prefix`. The time is the present one: by it, the leases of that moment are old.
    fn then(prefix: &Path, then: Vec<Then>) -> Below {
        // A key that cannot be parsed is not one of ours.
        let key = |text: String| Path::parse(&text).unwrap_or_else(|_| Path::from(text));
        let object = |then: Then| Listed {
            name: relative(prefix, &key(then.key)),
            len_bytes: then.len_bytes,
            modified_ns: then.modified_ns,
        };
        let mut below = Below {
            objects: then.into_iter().map(object).collect(),
            ..Below::default()
        };
        below.now_ns = below.time(answered_ns());
        below
    }

    /// One level of this.
    fn level(self) -> Below {
        let (mut objects, mut folders) = (Vec::new(), BTreeSet::new());
        for object in self.objects {
            match object.name.split_once('/') {
                Some((folder, _)) => drop(folders.insert(folder.to_owned())),
                None => objects.push(object),
            }
        }
        Below {
            objects,
            folders: folders.into_iter().collect(),
            now_ns: self.now_ns,
        }
    }

    fn time(&self, answered_ns: Option<i64>) -> i64 {
        let newest = || self.objects.iter().map(|o| o.modified_ns).max();
        answered_ns.or_else(newest).unwrap_or(0)
    }

    /// The objects by the first part of their names; those without a second part are under "".
    pub fn by_folder(&self) -> HashMap<&str, Vec<(&str, &Listed)>> {
        let mut folders: HashMap<&str, Vec<(&str, &Listed)>> = HashMap::new();
        for object in &self.objects {
            let (folder, name) = object.name.split_once('/').unwrap_or(("", &object.name));
            folders.entry(folder).or_default().push((name, object));
        }
        folders
    }
}

impl Error {
    /// The store knows who asks, and does not allow it: by its policy, or because the object is retained.
    pub fn is_forbidden(&self) -> bool {
        match self {
            Error::Refused { status, code, .. } => {
                let is_kept = ["BlobImmutableDueToPolicy", "SnapshotsPresent"];
                matches!(status, 401 | 403 | 405) || is_kept.contains(&code.as_str())
            }
            _ => false,
        }
    }
}

fn listed(prefix: &Path, object: &object_store::ObjectMeta) -> Listed {
    Listed {
        name: relative(prefix, &object.location),
        len_bytes: object.size,
        modified_ns: object
            .last_modified
            .timestamp_nanos_opt()
            .unwrap_or(i64::MAX),
    }
}

fn relative(prefix: &Path, key: &Path) -> String {
    let (prefix, key) = (prefix.as_ref(), key.as_ref());
    let rest = key.strip_prefix(prefix).unwrap_or(key);
    rest.trim_start_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: of a bucket as it was, a key with characters that an address encodes is below its prefix, as it is now.
    #[test]
    fn any_character_of_a_key_stays_as_it_is() {
        for prefix in ["plain", "b\u{fc}ro", "a~b", "a%7Eb", "a#[b]{c}*?|^<"] {
            let then = |name: &str| Then::of(format!("{prefix}/{name}"), 3, 5);
            let below = Below::then(&Path::parse(prefix).unwrap(), vec![then("x/y"), then("z~")]);
            let names: Vec<&str> = below.objects.iter().map(|o| o.name.as_str()).collect();
            assert_eq!(names, ["x/y", "z~"], "{prefix}");
        }
    }
}
