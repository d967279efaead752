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
    BackupRecord, Catalog, EngineRecord, FamilyRecord, FileList, IndexedSet, MediaRecord,
    RestoreKind, RestoreRecord, RestoredFile,
};
use longshore_codec::Algorithm;
use longshore_landing::moved;
use longshore_media::device::DeviceClass;
use longshore_media::{
    BackupDevice, BackupType, IndexSecret, MediaSet, Recipients, Root, SetHeader, SetTrailer,
    Totals,
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
    pub mirrors: &'a [Vec<Arc<dyn BackupDevice>>],
    pub media_set: Uuid,
    pub header: &'a SetHeader,
    pub totals: Totals,
    pub stored_bytes: u64,
    /// The key that opens the index of an encrypted set.
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

/// Records the backup. Returns why its index can be read with an identity alone, if that is so.
pub fn record_backup(
    context: &RunContext,
    finished: &FinishedBackup,
) -> Result<Option<String>, String> {
    let Some(path) = &context.catalog else {
        return Ok(None);
    };
    let devices = finished.devices;
    let can_be_read = matches!(devices[0].class(), DeviceClass::File | DeviceClass::Bucket);
    let mut record = if can_be_read {
        let media = context.media(devices).map_err(warning)?;
        let set = media.set(finished.header.position).map_err(warning)?;
        let trailer = set.trailer.ok_or("the set has no trailer")?;
        let mut record = BackupRecord::of(MediaRecord::of(&media, devices), set.header, &trailer);
        record.read_thumbprint(&media).map_err(warning)?;
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
                mirrors: Vec::new(),
            },
            header: finished.header.clone(),
            totals: finished.totals,
            stored_bytes: finished.stored_bytes,
            files: FileList::default(),
            engines: Vec::new(),
            limit: None,
            thumbprint: request.encrypt_to.as_ref().and_then(Recipients::thumbprint),
        }
    };
    let of_mirror = |mirror: &Vec<Arc<dyn BackupDevice>>| {
        let families = record.media.families.iter();
        let families = mirror.iter().zip(families.map(|family| family.uuid));
        families
            .map(|(d, uuid)| FamilyRecord::new(&**d, uuid))
            .collect()
    };
    record.media.mirrors = finished.mirrors.iter().map(of_mirror).collect();
    record.engines = finished.engines.iter().map(engine).collect();
    record.limit = Some(finished.limit.word().to_owned());
    let catalog = Catalog::open(path).map_err(warning)?;
    catalog.record_backup(&record).map_err(warning)?;
    match can_be_read && !finished.totals.damaged && !finished.header.copy_only {
        true => Ok(keep_index(context, &catalog, finished).err()),
        false => Ok(None),
    }
}

/// Keeps what a later backup needs to differ from this one.
fn keep_index(
    context: &RunContext,
    catalog: &Catalog,
    finished: &FinishedBackup,
) -> Result<(), String> {
    let header = finished.header;
    let chain = [
        header.database.clone(),
        header.origin.clone(),
        place_of(finished),
    ];
    let kept = catalog.keep_index(
        IndexedSet {
            set: header.set,
            chain: &chain.join("\n"),
            is_full: header.backup_type == BackupType::Database,
        },
        finished.index.filter(|_| header.sum_key.is_some()),
        (&*context.storage, &*context.clock),
    );
    kept.map_err(|e| {
        format!("a backup that differs from this one will need an identity: what opens its index is not kept: {e}")
    })
}

/// Where sets lie that can differ from one another: for a target's, the place of its first stripes; else the media.
fn place_of(finished: &FinishedBackup) -> String {
    let name = FamilyRecord::new(&*finished.devices[0], None).device;
    match &finished.request.place {
        // PLACE/DATABASE/LABEL/STRIPE
        Some(_) => name.rsplitn(3, '/').last().unwrap_or_default().to_owned(),
        None => name.rsplit_once('/').map_or("", |(dir, _)| dir).to_owned(),
    }
}

/// Facts that this machine holds of a set that may be exchanged.
pub enum Known {
    /// Nothing, and why.
    Nothing(&'static str),
    /// Its root. Its index can be read from now on.
    Root(Root),
}

/// Facts of the history about an encrypted set that this machine made; the run can read its index then.
///
/// Errors: why the history cannot be read, in words.
pub fn known_set(context: &RunContext, set: Uuid) -> Result<Known, String> {
    let Some(path) = &context.catalog else {
        return Ok(Known::Nothing("this run keeps no history"));
    };
    if context.storage.stat(path).is_err() {
        return Ok(Known::Nothing("there is no history"));
    }
    let read = || Catalog::open(path)?.index_of(set, &*context.storage);
    Ok(match read().map_err(|e| e.to_string())? {
        Some(secret) => {
            context.keyring.know_index(set.into_bytes(), &secret);
            Known::Root(secret.root)
        }
        None => Known::Nothing("the history of this machine has nothing that opens its index"),
    })
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
    let catalog = Catalog::open(path).map_err(warning)?;
    let mut about = MediaRecord::of(media, devices);
    catalog
        .settle(&mut about, &context.storage)
        .map_err(warning)?;
    let mut backup = BackupRecord::of(about, header.clone(), trailer);
    // A pipe was read once.
    if media.stored_bytes().map_err(warning)?.is_some() {
        backup.read_thumbprint(media).map_err(warning)?;
        backup.read_files(media).map_err(warning)?;
    }
    let restored = |path: &Path| RestoredFile {
        path: path.into(),
        destination: request.target.join(moved(&request.moves, path, true)),
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
        user: request
            .note
            .user
            .clone()
            .unwrap_or_else(longshore_facts::user_name),
        kind: match header.backup_type {
            _ if !request.only.is_empty() => RestoreKind::Files,
            BackupType::Database => RestoreKind::Database,
            BackupType::Differential => RestoreKind::Differential,
            BackupType::Log => RestoreKind::Log,
        },
        replace: request.note.replaces.unwrap_or(request.replace),
        recovery: !request.note.no_recovery,
        stop_at_us: request.note.stop_at_us,
        start_us,
        finish_us,
        time_zone: time_zone_quarters(finish_us),
        plain_bytes,
        files,
        backup,
    };
    catalog.record_restore(&record).map(drop).map_err(warning)
}

/// Records a restore that the caller has accepted ([`RestoreNote::unrecorded`]). Errors: why not, in words.
///
/// [`RestoreNote::unrecorded`]: crate::RestoreNote::unrecorded
pub fn record_accepted(
    context: &RunContext,
    request: &RestoreRequest,
    (start_us, plain_bytes): (i64, u64),
) -> Result<(), String> {
    let devices = context.devices(&request.devices);
    let media = context.media(&devices).map_err(warning)?;
    let set = media.set(request.position).map_err(warning)?;
    let trailer = set.trailer.ok_or("the set has no trailer")?;
    let of = (start_us, plain_bytes);
    record_restore(
        context,
        &media,
        &devices,
        &set.header,
        &trailer,
        request,
        of,
    )
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
