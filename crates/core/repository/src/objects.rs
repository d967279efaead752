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
    /// Writes the key objects of a backup of a listing, by its index, next to each of its copies in a listing of `to`, in every place that
    /// has not got them whole. Returns how many were missing there, and the names of those that could not be taken along, with the
    /// reason.
    ///
    /// Errors: those of [`Shelf::lease_listed`]; an object cannot be written.
    pub fn copy_objects(
        &self,
        (listing, index): (&Listing, usize),
        (to, there): (&Shelf, &Listing),
    ) -> Result<(u64, Vec<String>), Error> {
        let set = |entry: &BackupEntry| Some(entry.complete()?.header.set);
        let found = set(&listing.sets[index]);
        let copies = there.sets.iter().enumerate();
        let copies: Vec<usize> = copies
            .filter(|(_, entry)| found.is_some() && set(entry) == found)
            .map(|(i, _)| i)
            .collect();
        let (mut copied, mut left) = (0, Vec::new());
        if copies.is_empty() {
            return Ok((copied, left));
        }
        to.check_stopped()?;
        let open = |shelf: &Shelf, devices: &[DeviceSpec]| -> Result<MediaSet, MediaError> {
            let opened: Vec<Arc<dyn BackupDevice>> =
                devices.iter().map(|d| d.open(&shelf.storage)).collect();
            MediaSet::open(&opened)
        };
        let lease = self.lease_listed(listing, index)?;
        let from = open(self, &lease.devices)?;
        let position = from.set(0)?.header.position;
        for copy in copies {
            let lease = to.lease_listed(there, copy)?;
            let into = open(to, &lease.devices)?;
            let (taken, problems) = into.take_objects(&from, position)?;
            copied += taken;
            left.extend(problems);
        }
        left.sort();
        left.dedup();
        Ok((copied, left))
    }
}
