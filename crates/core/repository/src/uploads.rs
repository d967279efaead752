//! Unfinished uploads below any address, of a target or not: a process that is killed leaves them, and a store charges for their
//! parts.
//!
//! Invariants
//! - An upload is protected while a lease next to it is alive, as below a target, and as long as its last part is not old
//!   enough by the store's own clock. Both are asked again right before it is aborted.
//! - A target of several buckets has a backup's lease in the first one alone. So a backup's stripe without any lease next to it
//!   is protected: nobody knows here whether its writer is alive.
//! - Where the store tells no time, every upload is protected.
//! - Nothing is aborted that was not shown before.
//!
//! Leaves to others: what `expire` aborts below a target (`place/buckets.rs`); lists and requests (`longshore-bucket`).

use std::sync::atomic::AtomicBool;

use longshore_bucket::{Address, Bucket, Error as StoreError, Key, Scheme};
use longshore_io::Storage;

use crate::Error;
use crate::label::Label;
use crate::place::buckets::{has_lease, holders};
use crate::target::family_of;

static NEVER: AtomicBool = AtomicBool::new(false);

/// An upload that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftUpload {
    /// The object that it would make.
    pub address: String,
    pub id: String,
    pub begun_us: i64,
    pub parts: u64,
    pub bytes: u64,
    /// Seconds since its last part came, or since it was begun; `None`: the store does not tell.
    pub idle_s: Option<i64>,
    /// Why it must not be aborted now.
    pub protected_by: Option<String>,
    key: Key,
    last_ns: i64,
}

/// The uploads of the object `address`, and of all below it. One whose last part is younger than `idle_s` is protected.
///
/// Errors: `Store`; the address is Azure's, which has no uploads.
pub fn left_uploads(
    address: &Address,
    storage: &dyn Storage,
    idle_s: i64,
) -> Result<Vec<LeftUpload>, Error> {
    let place = Place::of(address, storage)?;
    let parent = Key::from(place.parent.as_str());
    let found = place.bucket.unfinished(&parent, &NEVER)?;
    let mut left = Vec::new();
    for upload in found.uploads {
        let is_own = match place.last.as_str() {
            "" => true,
            last => {
                let rest = upload.name.strip_prefix(last);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        };
        if !is_own {
            continue;
        }
        let key = match place.parent.as_str() {
            "" => Key::from(upload.name.as_str()),
            parent => Key::from(format!("{parent}/{}", upload.name)),
        };
        // One that has ended meanwhile is none.
        let Some(state) = place.bucket.upload_state(&key, &upload.id, &NEVER)? else {
            continue;
        };
        let last_ns = state.last_ns.max(upload.begun_ns);
        let idle = (found.now_ns > 0).then(|| (found.now_ns - last_ns).max(0) / 1_000_000_000);
        left.push(LeftUpload {
            address: place.bucket.address(&key),
            begun_us: upload.begun_ns / 1000,
            parts: state.parts,
            bytes: state.bytes,
            idle_s: idle,
            protected_by: place.protection(&key, idle, idle_s)?,
            id: upload.id,
            key,
            last_ns,
        });
    }
    left.sort_by(|a, b| (&a.address, a.begun_us).cmp(&(&b.address, b.begun_us)));
    Ok(left)
}

/// Aborts an upload that [`left_uploads`] found, if nothing protects it now. Returns what protects it.
///
/// Errors: `Store`.
pub fn abort_left_upload(
    address: &Address,
    storage: &dyn Storage,
    upload: &LeftUpload,
    idle_s: i64,
) -> Result<Option<String>, Error> {
    let place = Place::of(address, storage)?;
    let Some(state) = place.bucket.upload_state(&upload.key, &upload.id, &NEVER)? else {
        return Ok(None);
    };
    // A part came since it was shown, perhaps in place of an equal one.
    let is_changed = (state.parts, state.bytes) != (upload.parts, upload.bytes);
    if is_changed || state.last_ns > upload.last_ns {
        return Ok(Some("it has got a part since it was looked at".to_owned()));
    }
    let protection = place.protection(&upload.key, upload.idle_s, idle_s)?;
    if protection.is_none() {
        place.bucket.abort(&upload.key, &upload.id, &NEVER)?;
    }
    Ok(protection)
}

/// An address, cut before its last name.
struct Place {
    bucket: Bucket,
    parent: String,
    last: String,
}

impl Place {
    fn of(address: &Address, storage: &dyn Storage) -> Result<Place, Error> {
        // A prefix may be empty, an object's name may not.
        let text = address.to_string();
        let below = format!("{}/x", text.trim_end_matches('/'));
        let below = Address::of(&below).ok_or_else(|| StoreError::Address {
            text: text.clone(),
            why: "it begins like no store's address",
        })?;
        let (bucket, key) = below.place(storage)?;
        if bucket.scheme() == Scheme::Azure {
            return Err(StoreError::Address {
                text,
                why: "Azure has no uploads that could be listed or aborted: it drops blocks that belong to no blob after a week",
            }
            .into());
        }
        let prefix = key.as_ref().trim_end_matches('x').trim_end_matches('/');
        let (parent, last) = prefix.rsplit_once('/').unwrap_or(("", prefix));
        Ok(Place {
            bucket,
            parent: parent.to_owned(),
            last: last.to_owned(),
        })
    }

    /// Why an upload must not be aborted now.
    fn protection(
        &self,
        key: &Key,
        idle: Option<i64>,
        idle_s: i64,
    ) -> Result<Option<String>, Error> {
        let Some(idle) = idle else {
            return Ok(Some("the store does not tell how old it is".to_owned()));
        };
        if idle < idle_s {
            return Ok(Some(format!(
                "its last part came {} minutes ago",
                idle / 60
            )));
        }
        let names = key.as_ref().rsplit_once('/');
        let Some((folder, _)) = names.filter(|(folder, stripe)| is_of_backup(folder, stripe))
        else {
            return Ok(None);
        };
        let folder = Key::from(folder);
        let live = holders(&self.bucket, &folder, None)?;
        if let Some(holder) = live.first() {
            return Ok(Some(holder.text()));
        }
        Ok((!has_lease(&self.bucket, &folder)?).then(|| {
            "it is a backup's stripe whose lease is not in this bucket; `longshore expire` of its target aborts it".to_owned()
        }))
    }
}

/// Whether this is a stripe of a backup at a target, which has its writer's lease next to it.
fn is_of_backup(folder: &str, stripe: &str) -> bool {
    let label = folder.rsplit('/').next().unwrap_or_default();
    family_of(stripe).is_some() && label.parse::<Label>().is_ok()
}
