//! Key objects of the backups at a target: which belong to none, and their copies.
//!
//! Invariants
//! - An object is copied only if its bytes are those of its name, and if it says that it is of the very set. Whether it opens that set,
//!   readers find out: no key is here.
//! - An object is copied while both backups are leased, so no expire leaves one without its stripes.
//!
//! Leaves to others: finding and removing objects with their backups (`place.rs`), and their bytes (`longshore-crypt`).

use std::sync::Arc;

use longshore_media::{BackupDevice, DeviceSpec, Error as MediaError, MediaSet, ObjectName};

use crate::Error;
use crate::shelf::{BackupEntry, Listing, Shelf};

impl BackupEntry {
    /// Key objects under its label that are of no set there. Of a backup that is not whole nobody knows.
    pub fn stray_objects(&self) -> Vec<&ObjectName> {
        let Some(complete) = self.complete() else {
            return Vec::new();
        };
        let is_stray = |name: &&ObjectName| {
            name.set != *complete.header.set.as_bytes() || !complete.header.encrypted
        };
        self.objects.iter().filter(is_stray).collect()
    }

    /// The number of key objects that say that they are of it.
    pub fn object_count(&self) -> usize {
        self.objects.len() - self.stray_objects().len()
    }
}

impl Shelf {
    /// Writes the key objects of a backup of a listing, by its index, next to its copy in a listing of `to`. Returns how many were
    /// missing there, and the names of those that could not be taken along, with the reason.
    ///
    /// Errors: those of [`Shelf::lease_listed`]; an object cannot be written.
    pub fn copy_objects(
        &self,
        (listing, index): (&Listing, usize),
        (to, there): (&Shelf, &Listing),
    ) -> Result<(u64, Vec<String>), Error> {
        let found = &listing.sets[index];
        let set = |entry: &BackupEntry| Some(entry.complete()?.header.set);
        let is_copy = |entry: &BackupEntry| set(entry).is_some() && set(entry) == set(found);
        let lacks = |entry: &BackupEntry| {
            let mut objects = found.objects.iter();
            objects.any(|name| !entry.objects.contains(name))
        };
        let copy = there.sets.iter().position(is_copy);
        let Some(copy) = copy.filter(|i| lacks(&there.sets[*i])) else {
            return Ok((0, Vec::new()));
        };
        to.check_stopped()?;
        let (from, into) = (
            self.lease_listed(listing, index)?,
            to.lease_listed(there, copy)?,
        );
        let open = |shelf: &Shelf, devices: &[DeviceSpec]| -> Result<MediaSet, MediaError> {
            let opened: Vec<Arc<dyn BackupDevice>> =
                devices.iter().map(|d| d.open(&shelf.storage)).collect();
            MediaSet::open(&opened)
        };
        let (from, into) = (open(self, &from.devices)?, open(to, &into.devices)?);
        let position = from.set(0)?.header.position;
        let (seen, more) = from.key_objects(position)?;
        let (mut copied, mut left) = (0, Vec::new());
        for one in seen {
            match one.object.map(|object| object.encode()) {
                Ok(Ok(bytes)) => {
                    for folder in into.folders() {
                        folder.write(&one.name, &bytes)?;
                    }
                    copied += u64::from(!there.sets[copy].objects.contains(&one.name));
                }
                Ok(Err(why)) => left.push(format!("{}: {why}", one.name)),
                Err(why) => left.push(format!("{}: {why}", one.name)),
            }
        }
        if more {
            left.push("more key objects than are looked at".to_owned());
        }
        Ok((copied, left))
    }
}
