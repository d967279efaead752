//! Unfinished uploads below any address, of a target or not: a process that is killed leaves them, and a store charges for their
//! parts.
//!
//! Invariants
//! - An upload is protected while a lease next to it is alive, as below a target, and as long as its last part is not old
//!   enough by the store's own clock. Both are asked again right before it is aborted.
//! - A target of several buckets has a backup's lease in the first one alone. So a backup's stripe without any lease next to it
//!   is protected: nobody knows here whether its writer is alive.
//! - Where the store tells no time, every upload is protected.
//! - Nothing is aborted that was not shown before. Every upload is shown, whatever characters its key has.
//!
//! Leaves to others: what `expire` aborts below a target (`place/buckets.rs`); lists and requests (`longshore-bucket`).

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use longshore_bucket::{
    Address, Bucket, Error as StoreError, Key, Scheme, UploadState, has_address,
};
use longshore_io::Storage;

use crate::Error;
use crate::label::Label;
use crate::place::buckets::leases;
use crate::target::family_of;

static NEVER: AtomicBool = AtomicBool::new(false);

/// An upload that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftUpload {
    /// The object that it would make.
    pub address: String,
    pub id: String,
    /// `None`: the store does not tell.
    pub begun_us: Option<i64>,
    pub parts: u64,
    pub bytes: u64,
    /// Seconds since its last part came, or since it was begun; `None`: the store does not tell.
    pub idle_s: Option<i64>,
    /// Why it must not be aborted now.
    pub protected_by: Option<String>,
    key: String,
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
    let found = place.bucket.unfinished_from(&place.beginning, &NEVER)?;
    let mut left = Vec::new();
    let mut folders = HashMap::new();
    for upload in found.uploads {
        // An object of a longer name is another one.
        let is_own = |rest: &str| rest.is_empty() || rest.starts_with('/');
        if !place.beginning.is_empty() && !is_own(&upload.name) {
            continue;
        }
        let key = format!("{}{}", place.beginning, upload.name);
        let state = match has_address(&key) {
            true => place.bucket.upload_state(&key, &upload.id, &NEVER)?,
            // Its parts cannot be asked for.
            false => Some(UploadState {
                last_ns: Some(0),
                ..UploadState::default()
            }),
        };
        // One that has ended meanwhile is none.
        let Some(state) = state else { continue };
        let last_ns = state
            .last_ns
            .map(|last| last.max(upload.begun_ns.unwrap_or(0)));
        let last_ns = last_ns.filter(|last| found.now_ns > 0 && *last > 0);
        let idle = last_ns.map(|last| (found.now_ns - last).max(0) / 1_000_000_000);
        left.push(LeftUpload {
            address: place.bucket.address(&key),
            begun_us: upload.begun_ns.map(|ns| ns / 1000),
            parts: state.parts,
            bytes: state.bytes,
            idle_s: idle,
            protected_by: place.protection(&key, (idle, idle_s), &mut folders)?,
            id: upload.id,
            key,
            last_ns: last_ns.unwrap_or(0),
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
    if is_changed || state.last_ns.is_none_or(|last| last > upload.last_ns) {
        return Ok(Some("it has got a part since it was looked at".to_owned()));
    }
    let ages = (upload.idle_s, idle_s);
    let protection = place.protection(&upload.key, ages, &mut HashMap::new())?;
    if protection.is_none() {
        place.bucket.abort(&upload.key, &upload.id, &NEVER)?;
    }
    Ok(protection)
}

/// The reason why uploads below a folder that was looked at must not be aborted, by folder.
type Folders = HashMap<String, Option<String>>;

/// A bucket, and how the keys below an address begin.
struct Place {
    bucket: Bucket,
    beginning: String,
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
        let beginning = key.as_ref().trim_end_matches('x').trim_end_matches('/');
        Ok(Place {
            bucket,
            beginning: beginning.to_owned(),
        })
    }

    /// Why an upload that has been idle so long must not be aborted now, if it may be at an age.
    fn protection(
        &self,
        key: &str,
        (idle, idle_s): (Option<i64>, i64),
        folders: &mut Folders,
    ) -> Result<Option<String>, Error> {
        if !has_address(key) {
            return Ok(Some(
                "its key has . or .. as a part, which Longshore cannot ask for; `aws s3api abort-multipart-upload` aborts it"
                    .to_owned(),
            ));
        }
        let Some(idle) = idle else {
            return Ok(Some("the store does not tell how old it is".to_owned()));
        };
        if idle < idle_s {
            return Ok(Some(format!(
                "its last part came {} minutes ago",
                idle / 60
            )));
        }
        let Some(folder) = folder_of_backup(key) else {
            return Ok(None);
        };
        if let Some(known) = folders.get(folder.as_ref()) {
            return Ok(known.clone());
        }
        let leases = leases(&self.bucket, &folder, None)?;
        let protection = match leases.live.first() {
            Some(holder) => Some(holder.text()),
            None => (!leases.is_any).then(|| {
                "it is a backup's stripe whose lease is not in this bucket; `longshore expire` of its target aborts it".to_owned()
            }),
        };
        folders.insert(folder.to_string(), protection.clone());
        Ok(protection)
    }
}

/// The folder of a stripe of a backup at a target, which has its writer's lease; `None`: it is another object.
fn folder_of_backup(key: &str) -> Option<Key> {
    let (folder, stripe) = key.rsplit_once('/')?;
    let label = folder.rsplit('/').next()?;
    family_of(stripe)?;
    label.parse::<Label>().ok()?;
    // A target's names have no empty part.
    let parsed = Key::parse(folder).ok()?;
    (parsed.as_ref() == folder).then_some(parsed)
}
