//! The records: plain facts, as on the media, or as known by a run whose media cannot be read back.
//!
//! Invariants
//! - A record has the same content whether it comes from a run or from the media, so that a rebuilt history equals the
//!   first one as far as the media tell. They do not tell which engines worked.
//! - Paths of files are absolute: the history may be read from another working directory.
//! - A set with too many files has no list of them, rather than a part of one.
//!
//! Leaves to others: writing records (`write.rs`), and reading media.

use std::path::PathBuf;
use std::sync::Arc;

use longshore_crypt::Thumbprint;
use longshore_media::device::DeviceClass;
use longshore_media::{BackupDevice, MediaSet, SetHeader, SetTrailer, StripePlace, Totals};
use serde::Serialize;
use uuid::Uuid;

use crate::files::FileList;

/// One family (stripe) of a media set and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyRecord {
    /// `None` if the media cannot be read back (NUL, a pipe).
    pub uuid: Option<Uuid>,
    /// The absolute path of a file; other devices as the user named them.
    pub device: String,
    pub class: DeviceClass,
}

impl FamilyRecord {
    pub fn new(device: &dyn BackupDevice, uuid: Option<Uuid>) -> FamilyRecord {
        let name = device.name();
        let class = device.class();
        // The history may be read from another working directory than that of the backup.
        let absolute = match class {
            DeviceClass::File => std::path::absolute(&name).ok(),
            DeviceClass::Nul | DeviceClass::Pipe | DeviceClass::Bucket => None,
        };
        FamilyRecord {
            uuid,
            device: absolute.map_or(name, |p| p.display().to_string()),
            class,
        }
    }
}

/// A media set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaRecord {
    pub uuid: Uuid,
    pub name: String,
    pub description: String,
    /// Program and version that formatted the media.
    pub software: String,
    pub compressed: bool,
    /// In family order; 1 to 64.
    pub families: Vec<FamilyRecord>,
    /// Further stripes with the same bytes: for each mirror as many, in family order; empty where none is known.
    pub mirrors: Vec<Vec<FamilyRecord>>,
}

impl MediaRecord {
    /// Describes an opened media set. `devices` are the devices from which it was opened, in the same order.
    pub fn of(media: &MediaSet, devices: &[Arc<dyn BackupDevice>]) -> MediaRecord {
        let header = media.header(0);
        let family = |stripe: StripePlace| match stripe.device_index {
            Some(index) => FamilyRecord::new(&*devices[index], stripe.family_uuid),
            // Parity stood for it, and nobody said where it was.
            None => FamilyRecord {
                uuid: stripe.family_uuid,
                device: stripe.name,
                class: devices[0].class(),
            },
        };
        MediaRecord {
            uuid: header.media_set,
            name: header.name.clone(),
            description: header.description.clone(),
            software: header.software.clone(),
            compressed: header.compressed,
            families: media.stripes().into_iter().map(family).collect(),
            mirrors: Vec::new(),
        }
    }
}

/// A complete backup set.
#[derive(Debug, Clone)]
pub struct BackupRecord {
    pub media: MediaRecord,
    pub header: SetHeader,
    pub totals: Totals,
    /// Bytes of the set over all families.
    pub stored_bytes: u64,
    pub files: FileList,
    /// The engines that compressed it; the media do not record them, so a relearned set has none.
    pub engines: Vec<EngineRecord>,
    /// The limit that held, in one word; likewise unknown of a relearned set.
    pub limit: Option<String>,
    /// Of the certificate that an encrypted set is for.
    pub thumbprint: Option<Thumbprint>,
}

/// The part of one engine in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EngineRecord {
    pub name: String,
    pub is_accelerator: bool,
    pub blocks: u64,
    pub plain_bytes: u64,
    /// Blocks that were given to it and then done by software.
    pub recomputed: u64,
    pub fault_count: u64,
}

impl BackupRecord {
    /// The record of a set on media, without its files: their names require reading the set's index, see
    /// [`BackupRecord::read_files`].
    pub fn of(media: MediaRecord, header: SetHeader, trailer: &SetTrailer) -> BackupRecord {
        BackupRecord {
            media,
            header,
            totals: Totals {
                damaged: trailer.damaged,
                log: trailer.log,
                finish_us: trailer.finish_us,
                plain_bytes: trailer.plain_bytes_total,
                entries: trailer.entries_total,
                files: trailer.files_total,
            },
            stored_bytes: trailer.stored_bytes_total,
            files: FileList::default(),
            engines: Vec::new(),
            limit: None,
            thumbprint: None,
        }
    }

    /// Reads from the media for which certificate the set is encrypted.
    pub fn read_thumbprint(&mut self, media: &MediaSet) -> Result<(), longshore_media::Error> {
        self.thumbprint = media.thumbprint(self.header.position)?;
        Ok(())
    }

    /// Reads the names of the set's files from the media's index, unless there are too many to be listed.
    pub fn read_files(&mut self, media: &MediaSet) -> Result<(), longshore_media::Error> {
        if self.totals.files > FileList::MAX as u64 {
            return Ok(());
        }
        let mut files = FileList::default();
        media.items(self.header.position, |item| files.item(&item))?;
        self.files = files;
        Ok(())
    }
}

/// The kind of a restore (`restore_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreKind {
    /// The whole set: `D`.
    Database,
    /// Some of its files: `F`.
    Files,
    /// A whole differential set: `I`.
    Differential,
    /// WAL: `L`.
    Log,
}

/// A file that a restore wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredFile {
    /// Its path in the set.
    pub path: PathBuf,
    /// Its path after the restore.
    pub destination: PathBuf,
}

/// A finished restore. Every record is a separate event: recorded twice, it happened twice.
#[derive(Debug, Clone)]
pub struct RestoreRecord {
    /// The set that was restored; recorded too if it was unknown.
    pub backup: BackupRecord,
    /// The name of the restored database.
    pub database: String,
    /// The directory that received the files.
    pub target: PathBuf,
    pub user: String,
    pub kind: RestoreKind,
    /// Whether it could overwrite existing files.
    pub replace: bool,
    /// Whether the database was usable afterwards.
    pub recovery: bool,
    /// The time at which recovery was to stop, in microseconds since the Unix epoch.
    pub stop_at_us: Option<i64>,
    /// Microseconds since the Unix epoch.
    pub start_us: i64,
    pub finish_us: i64,
    /// Offset of local time from UTC in quarter hours; 127: unknown.
    pub time_zone: i16,
    /// Plain bytes written, holes included.
    pub plain_bytes: u64,
    /// None are recorded if there are more than [`FileList::MAX`].
    pub files: Vec<RestoredFile>,
}

/// Which rows to return. The default is all of them.
#[derive(Debug, Clone, Default)]
pub struct HistoryQuery {
    /// Only this database, by its exact name: the backed-up one, or the restored one.
    pub database: Option<String>,
    /// At most this many, the newest.
    pub limit: Option<u32>,
}
