//! Records runs in the catalog.
//!
//! Invariants
//! - A failure here never fails a run: the backup or restore itself has succeeded. It comes back as a text, for a
//!   warning (3009).
//! - Without a catalog nothing is recorded and nothing is read.
//! - A set on files is recorded as its media say, read back; only for NUL, pipes and buckets the run's own values are
//!   used.
//!
//! Leaves to others: the tables of the history (`longshore-catalog`), and showing the warning.

use std::path::Path;
use std::sync::Arc;

use longshore_catalog::{
    BackupRecord, Catalog, EngineRecord, FamilyRecord, FileList, MediaRecord, RestoreKind,
    RestoreRecord, RestoredFile,
};
use longshore_codec::Algorithm;
use longshore_landing::moved;
use longshore_media::device::DeviceClass;
use longshore_media::{
    BackupDevice, BackupType, IndexSecret, MediaSet, SetHeader, SetTrailer, Totals,
};
use longshore_source::SourceSpec;
use uuid::Uuid;

use crate::RunContext;
use crate::measure::Limit;
use crate::request::{BackupRequest, RestoreRequest};
use crate::share::EngineShare;

/// SQL Server's value for an unknown time zone.
const TIME_ZONE_UNKNOWN: i16 = 127;

/// Offset of local time from UTC at a time, in quarter hours.
pub fn time_zone_quarters(unix_us: i64) -> i16 {
    let Ok(at) = jiff::Timestamp::from_microsecond(unix_us) else {
        return TIME_ZONE_UNKNOWN;
    };
    let seconds = jiff::tz::TimeZone::system().to_offset(at).seconds();
    i16::try_from(seconds / 900).unwrap_or(TIME_ZONE_UNKNOWN)
}

/// The location of a source, for people and to distinguish sources with the same name. Paths are made absolute,
/// because a relative path means nothing without its directory.
pub fn origin(source: &SourceSpec) -> String {
    let shown = |path: &Path| {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        whole.display().to_string()
    };
    match source {
        SourceSpec::Sqlite(path) => format!("sqlite:{}", shown(path)),
        SourceSpec::Files(paths) => {
            let paths: Vec<_> = paths.iter().map(|p| shown(p)).collect();
            format!("files:{}", paths.join(" "))
        }
        SourceSpec::Postgres(server) => server.for_people(),
    }
}

/// A finished backup.
pub struct FinishedBackup<'a> {
    pub request: &'a BackupRequest,
    pub devices: &'a [Arc<dyn BackupDevice>],
    pub media_set: Uuid,
    pub header: &'a SetHeader,
    pub totals: Totals,
    pub stored_bytes: u64,
    /// What opens the index of an encrypted set.
    pub index: Option<&'a IndexSecret>,
    pub engines: &'a [EngineShare],
    pub limit: Limit,
}

fn engine(share: &EngineShare) -> EngineRecord {
    EngineRecord {
        name: share.name.clone(),
        is_accelerator: share.is_accelerator,
        blocks: share.blocks,
        plain_bytes: share.plain_bytes,
        recomputed: share.recomputed,
        fault_count: share.faults_total(),
    }
}

pub fn record_backup(context: &RunContext, finished: &FinishedBackup) -> Result<(), String> {
    let Some(path) = &context.catalog else {
        return Ok(());
    };
    let devices = finished.devices;
    let can_be_read = matches!(devices[0].class(), DeviceClass::File | DeviceClass::Bucket);
    let mut record = if can_be_read {
        let media = context.media(devices).map_err(warning)?;
        let set = media.set(finished.header.position).map_err(warning)?;
        let trailer = set.trailer.ok_or("the set has no trailer")?;
        let mut record = BackupRecord::of(MediaRecord::of(&media, devices), set.header, &trailer);
        record.read_files(&media).map_err(warning)?;
        record
    } else {
        // Sets on NUL or a pipe cannot be read back, so the run's own values are used.
        let request = finished.request;
        BackupRecord {
            media: MediaRecord {
                uuid: finished.media_set,
                name: request.media_name.clone(),
                description: request.media_description.clone(),
                software: concat!("Longshore ", env!("CARGO_PKG_VERSION")).into(),
                compressed: request.algorithm != Algorithm::None,
                families: devices
                    .iter()
                    .map(|d| FamilyRecord::new(&**d, None))
                    .collect(),
            },
            header: finished.header.clone(),
            totals: finished.totals,
            stored_bytes: finished.stored_bytes,
            files: FileList::default(),
            engines: Vec::new(),
            limit: None,
        }
    };
    record.engines = finished.engines.iter().map(engine).collect();
    record.limit = Some(finished.limit.word().to_owned());
    let catalog = Catalog::open(path).map_err(warning)?;
    catalog.record_backup(&record).map_err(warning)?;
    let header = finished.header;
    match finished.index {
        // A later backup may differ from this one.
        Some(index) if can_be_read && header.sum_key.is_some() && !header.copy_only => {
            let tools = (&*context.storage, &*context.clock);
            let kept = catalog.keep_index(header.set, &header.database, index, tools);
            kept.map_err(warning)
        }
        _ => Ok(()),
    }
}

/// Lets the run read the index of an encrypted set that this machine made, without an identity.
///
/// Errors: why the history does not say how, in words.
pub fn know_index(context: &RunContext, set: Uuid) -> Result<(), String> {
    let Some(path) = &context.catalog else {
        return Err("this run keeps no history".to_owned());
    };
    let read = || Catalog::open(path)?.index_of(set, &*context.storage);
    match read().map_err(|e| e.to_string())? {
        Some(secret) => {
            context.keyring.know_index(set.into_bytes(), &secret);
            Ok(())
        }
        None => Err("the history of this machine has nothing that opens its index".to_owned()),
    }
}

pub fn record_restore(
    context: &RunContext,
    media: &MediaSet,
    devices: &[Arc<dyn BackupDevice>],
    header: &SetHeader,
    trailer: &SetTrailer,
    request: &RestoreRequest,
    (start_us, plain_bytes): (i64, u64),
) -> Result<(), String> {
    let Some(path) = &context.catalog else {
        return Ok(());
    };
    let mut backup = BackupRecord::of(MediaRecord::of(media, devices), header.clone(), trailer);
    if media.stored_bytes().map_err(warning)?.is_some() {
        backup.read_files(media).map_err(warning)?;
    }
    let restored = |path: &Path| RestoredFile {
        path: path.into(),
        destination: request.target.join(moved(&request.moves, path)),
    };
    let wanted =
        |p: &Path| request.only.is_empty() || request.only.iter().any(|o| p.starts_with(o));
    let files = backup
        .files
        .iter()
        .filter(|(p, _)| wanted(p))
        .map(|(p, _)| restored(p))
        .collect();
    let finish_us = context.now_us();
    let record = RestoreRecord {
        database: request
            .note
            .database
            .clone()
            .unwrap_or_else(|| header.database.clone()),
        target: request.target.clone(),
        user: longshore_facts::user_name(),
        kind: match header.backup_type {
            _ if !request.only.is_empty() => RestoreKind::Files,
            BackupType::Database => RestoreKind::Database,
            BackupType::Differential => RestoreKind::Differential,
            BackupType::Log => RestoreKind::Log,
        },
        replace: request.replace,
        recovery: !request.note.no_recovery,
        stop_at_us: request.note.stop_at_us,
        start_us,
        finish_us,
        time_zone: time_zone_quarters(finish_us),
        plain_bytes,
        files,
        backup,
    };
    let catalog = Catalog::open(path).map_err(warning)?;
    catalog.record_restore(&record).map(drop).map_err(warning)
}

fn warning(error: impl std::error::Error) -> String {
    let mut text = format!("the history could not be written (3009): {error}");
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Transparent error wrappers repeat the text of their cause.
        if cause_text != said {
            text += &format!(": {cause_text}");
        }
        said = cause_text;
        next = cause.source();
    }
    text
}
