//! Relearns backups from their media.

use std::sync::Arc;

use longshore_media::{BackupDevice, MediaSet};
use serde::Serialize;

use crate::record::{BackupRecord, MediaRecord};
use crate::{Catalog, Error};

/// The result of relearning a media set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Rebuilt {
    /// Sets that were not in the catalog.
    pub added: u32,
    /// Sets that were already in the catalog.
    pub known: u32,
    /// Sets without a valid end: they are not backups and get no row.
    pub incomplete: u32,
    /// Recorded sets whose files are not listed because the set's index is damaged.
    pub without_files: u32,
    /// Positions that should hold a set but cannot be read: where, and why.
    pub unreadable: Vec<String>,
}

impl Rebuilt {
    /// Adds the result for another media set.
    pub fn merge(&mut self, other: Rebuilt) {
        self.added += other.added;
        self.known += other.known;
        self.incomplete += other.incomplete;
        self.without_files += other.without_files;
        self.unreadable.extend(other.unreadable);
    }
}

impl Catalog {
    /// Records every complete backup set of the media set on `devices`. Reads headers, trailers and indexes, never the
    /// data.
    ///
    /// Errors: [`Error::Media`] if the devices are not one readable media set. Sets recorded before an error stay
    /// recorded.
    pub fn rebuild(&self, devices: &[Arc<dyn BackupDevice>]) -> Result<Rebuilt, Error> {
        let media = MediaSet::open(devices)?;
        let record = MediaRecord::of(&media, devices);
        let mut done = Rebuilt::default();
        for set in media.sets()? {
            let Some(trailer) = set.trailer else {
                done.incomplete += 1;
                continue;
            };
            let mut backup = BackupRecord::of(record.clone(), set.header, &trailer);
            if let Err(error) = backup.read_thumbprint(&media) {
                tracing::warn!(position = backup.header.position, %error, "set recorded without its certificate");
            }
            match backup.read_files(&media) {
                // The names in an encrypted set are its recipients' alone.
                Ok(()) => {}
                Err(e) if e.is_closed() => {}
                Err(e) => {
                    tracing::warn!(position = backup.header.position, error = %e, "set recorded without its files");
                    done.without_files += 1;
                }
            }
            if self.record_backup(&backup)? {
                done.added += 1;
            } else {
                done.known += 1;
            }
        }
        done.unreadable = media
            .unreadable()?
            .iter()
            .map(ToString::to_string)
            .collect();
        Ok(done)
    }
}
