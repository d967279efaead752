//! HEADERONLY and LABELONLY: the descriptions on the media, in SQL Server's columns.
//!
//! Invariants
//! - Names and types are those that SQL Server 2022 sends.
//! - Values that a source does not have (log sequence numbers of a SQLite database, a collation) are NULL.
//!
//! Leaves to others: reading the media (`longshore-media`), and the statements' options (`options.rs`).

use std::sync::Arc;

use longshore_catalog::{CERTIFICATE, FileList, KEY_ALGORITHM, flags, fork_guid, recovery_model};
use longshore_crypt::Thumbprint;
use longshore_media::{BackupDevice, BackupType, DeviceSpec, MediaHeader, MediaSet, SetSummary};
use uuid::Uuid;

use super::options::Options;
use crate::flow::{Flow, Out};
use crate::message::{self, Message};
use crate::refusal;
use crate::session::Session;
use crate::sink::Command;
use crate::value::{Column, Type, Value};

const LSN: Type = Type::numeric(25, 0);
const NAME: Type = Type::nvarchar(128);

const HEADER: &[(&str, Type)] = &[
    ("BackupName", NAME),
    ("BackupDescription", Type::nvarchar(255)),
    ("BackupType", Type::TinyInt),
    ("ExpirationDate", Type::DateTime),
    ("Compressed", Type::TinyInt),
    ("Position", Type::SmallInt),
    ("DeviceType", Type::TinyInt),
    ("UserName", NAME),
    ("ServerName", NAME),
    ("DatabaseName", NAME),
    ("DatabaseVersion", Type::Int),
    ("DatabaseCreationDate", Type::DateTime),
    ("BackupSize", Type::BigInt),
    ("FirstLSN", LSN),
    ("LastLSN", LSN),
    ("CheckpointLSN", LSN),
    ("DatabaseBackupLSN", LSN),
    ("BackupStartDate", Type::DateTime),
    ("BackupFinishDate", Type::DateTime),
    ("SortOrder", Type::SmallInt),
    ("CodePage", Type::SmallInt),
    ("UnicodeLocaleId", Type::Int),
    ("UnicodeComparisonStyle", Type::Int),
    ("CompatibilityLevel", Type::TinyInt),
    ("SoftwareVendorId", Type::Int),
    ("SoftwareVersionMajor", Type::Int),
    ("SoftwareVersionMinor", Type::Int),
    ("SoftwareVersionBuild", Type::Int),
    ("MachineName", NAME),
    ("Flags", Type::Int),
    ("BindingID", Type::UniqueIdentifier),
    ("RecoveryForkID", Type::UniqueIdentifier),
    ("Collation", NAME),
    ("FamilyGUID", Type::UniqueIdentifier),
    ("HasBulkLoggedData", Type::Bit),
    ("IsSnapshot", Type::Bit),
    ("IsReadOnly", Type::Bit),
    ("IsSingleUser", Type::Bit),
    ("HasBackupChecksums", Type::Bit),
    ("IsDamaged", Type::Bit),
    ("BeginsLogChain", Type::Bit),
    ("HasIncompleteMetaData", Type::Bit),
    ("IsForceOffline", Type::Bit),
    ("IsCopyOnly", Type::Bit),
    ("FirstRecoveryForkID", Type::UniqueIdentifier),
    ("ForkPointLSN", LSN),
    ("RecoveryModel", Type::nvarchar(60)),
    ("DifferentialBaseLSN", LSN),
    ("DifferentialBaseGUID", Type::UniqueIdentifier),
    ("BackupTypeDescription", NAME),
    ("BackupSetGUID", Type::UniqueIdentifier),
    ("CompressedBackupSize", Type::BigInt),
    ("Containment", Type::TinyInt),
    ("KeyAlgorithm", Type::nvarchar(32)),
    ("EncryptorThumbprint", Type::VarBinary(Some(20))),
    ("EncryptorType", Type::nvarchar(32)),
    ("LastValidRestoreTime", Type::DateTime),
    ("TimeZone", Type::SmallInt),
    ("CompressionAlgorithm", Type::nvarchar(32)),
];

const LABEL: &[(&str, Type)] = &[
    ("MediaName", NAME),
    ("MediaSetId", Type::UniqueIdentifier),
    ("FamilyCount", Type::Int),
    ("FamilySequenceNumber", Type::Int),
    ("MediaFamilyId", Type::UniqueIdentifier),
    ("MediaSequenceNumber", Type::Int),
    ("MediaLabelPresent", Type::TinyInt),
    ("MediaDescription", Type::nvarchar(255)),
    ("SoftwareName", NAME),
    ("SoftwareVendorId", Type::Int),
    ("MediaDate", Type::DateTime),
    ("Mirror_Count", Type::Int),
    ("IsCompressed", Type::Bit),
];

/// The name of an incomplete set.
const INCOMPLETE: &str = "*** INCOMPLETE ***";
/// The name of a set whose header is damaged.
const DAMAGED: &str = "*** DAMAGED ***";
const DEVICE_DISK: i64 = 2;
const DEVICE_URL: i64 = 9;
/// SQL Server's mark for an unknown zone.
const ZONE_UNKNOWN: i16 = 127;

pub(super) fn columns(of: &[(&str, Type)]) -> Vec<Column> {
    of.iter()
        .map(|(name, kind)| Column::new(*name, *kind))
        .collect()
}

type OpenedMedia = Vec<Arc<dyn BackupDevice>>;
/// A way of opening a media set.
type Opening = fn(&[Arc<dyn BackupDevice>]) -> Result<MediaSet, longshore_media::Error>;

pub(super) fn open(session: &Session, devices: &[DeviceSpec]) -> OpenedMedia {
    let storage = &session.server.setup.context.storage;
    let open = |device: &DeviceSpec| device.open_until(storage, &session.cancel);
    devices.iter().map(open).collect()
}

/// The media on these devices, which must have the given name, if any. NUL cannot be read.
pub(super) fn media(
    session: &Session,
    devices: &[DeviceSpec],
    options: &Options,
) -> Result<MediaSet, Vec<Message>> {
    media_by(MediaSet::open, session, devices, options)
}

/// The same for those who only describe the media: any of the stripes will do.
pub(super) fn described(
    session: &Session,
    devices: &[DeviceSpec],
    options: &Options,
) -> Result<MediaSet, Vec<Message>> {
    media_by(MediaSet::open_any, session, devices, options)
}

fn media_by(
    way: Opening,
    session: &Session,
    devices: &[DeviceSpec],
    options: &Options,
) -> Result<MediaSet, Vec<Message>> {
    if devices.contains(&DeviceSpec::Nul) {
        let missing = "2(The system cannot find the file specified.)";
        return Err(vec![message::CANNOT_OPEN.with(&[&"NUL", &missing])]);
    }
    let opened = open(session, devices);
    let media = way(&opened).map_err(|e| refusal::media(&e))?;
    let media = media.with_keyring(&session.context().keyring);
    check_name(media.header(0), media.device(0), options)?;
    Ok(media)
}

fn check_name(header: &MediaHeader, device: &str, options: &Options) -> Result<(), Vec<Message>> {
    match &options.media_name {
        Some(name) if *name != header.name => Err(vec![message::MEDIA_NAME.with(&[
            name,
            &header.name,
            &device,
        ])]),
        _ => Ok(()),
    }
}

/// The summary of a set that was just written; `None` if it cannot be read back.
pub(super) fn summary(
    session: &Session,
    devices: &[DeviceSpec],
    position: u32,
) -> Option<SetSummary> {
    let media = MediaSet::open(&open(session, devices)).ok()?;
    media.set(position).ok()
}

/// The media, with the session's keys; `None` where they cannot be read.
pub(super) fn readable(session: &Session, devices: &[DeviceSpec]) -> Option<MediaSet> {
    let media = MediaSet::open(&open(session, devices)).ok()?;
    Some(media.with_keyring(&session.context().keyring))
}

/// The files of a set and their bytes in it; `None` where they cannot be listed.
pub(super) fn files(
    session: &Session,
    devices: &[DeviceSpec],
    position: u32,
) -> Option<Vec<(String, u64)>> {
    let media = readable(session, devices)?;
    let list = file_list(&media, position).ok()?;
    let name = |path: &std::path::Path| path.display().to_string();
    let all: Vec<_> = list.iter().map(|(p, f)| (name(p), f.data_bytes)).collect();
    (!all.is_empty()).then_some(all)
}

fn file_list(media: &MediaSet, position: u32) -> Result<FileList, longshore_media::Error> {
    let mut list = FileList::default();
    media.items(position, |item| list.item(&item))?;
    Ok(list)
}

/// A moment in the local time of the machine that made the backup.
fn moment(unix_us: i64, zone: i16) -> Value {
    let quarters = if zone == ZONE_UNKNOWN { 0 } else { zone };
    let seconds = i32::from(quarters) * 900;
    let offset = jiff::tz::Offset::from_seconds(seconds).unwrap_or(jiff::tz::Offset::UTC);
    // In whole seconds, as msdb has it: a datetime has no milliseconds but 0, 3 and 7.
    match jiff::Timestamp::from_second(unix_us.div_euclid(1_000_000)) {
        Ok(at) => Value::DateTime(offset.to_datetime(at)),
        Err(_) => Value::Null,
    }
}

/// An LSN. A database without WAL has the moment in its place, as in msdb.
fn place(lsn: u64, unix_us: i64) -> Value {
    match lsn {
        0 => Value::decimal(u64::try_from(unix_us).unwrap_or(0)),
        lsn => Value::decimal(lsn),
    }
}

pub(super) fn whole(n: u64) -> Value {
    Value::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

/// Major, minor and build of the program that formatted the media.
fn version(software: &str) -> [Value; 3] {
    let last = software.rsplit(' ').next().unwrap_or_default();
    let mut parts = last.split('.').map(|part| match part.parse() {
        Ok(n) => Value::Int(n),
        Err(_) => Value::Null,
    });
    std::array::from_fn(|_| parts.next().unwrap_or(Value::Null))
}

pub(super) fn header_only(
    session: &Session,
    devices: &[DeviceSpec],
    options: &Options,
    out: &mut Out,
) -> Flow {
    let media = described(session, devices, options)?;
    let sets = media.sets().map_err(|e| refusal::media(&e))?;
    let damaged = media.damaged().map_err(|e| refusal::media(&e))?;
    if let Some(position) = options.position
        && sets.iter().all(|s| s.header.position != position)
        && !damaged.contains(&position)
    {
        media.set(position).map_err(|e| refusal::media(&e))?;
    }
    out.sink.columns(&columns(HEADER))?;
    let wanted = |s: &&SetSummary| options.position.is_none_or(|p| p == s.header.position);
    let device_type = match devices.first() {
        Some(DeviceSpec::Bucket(_)) => DEVICE_URL,
        _ => DEVICE_DISK,
    };
    let readable = sets.iter().filter(wanted).map(|set| {
        // A set that ends in its first records has none.
        let thumbprint = media.thumbprint(set.header.position).ok().flatten();
        let row = header_row(media.header(0), set, (device_type, thumbprint));
        (set.header.position, row)
    });
    let lost = damaged.into_iter();
    let lost = lost.filter(|at| options.position.is_none_or(|p| p == *at));
    let lost = lost.map(|at| (at, damaged_row(media.header(0), at, device_type)));
    let mut rows: Vec<_> = readable.chain(lost).collect();
    rows.sort_by_key(|(position, _)| *position);
    for (_, row) in &rows {
        out.sink.row(row)?;
    }
    out.done(Command::MediaRows, Some(rows.len() as u64))?;
    Ok(out.done(Command::RestoreHeaderOnly, None)?)
}

/// The row of a set of which only the position is known.
fn damaged_row(media: &MediaHeader, position: u32, device_type: i64) -> Vec<Value> {
    let value = |(name, _): &(&str, Type)| match *name {
        "BackupName" => Value::text(DAMAGED),
        "Compressed" => Value::bit(media.compressed),
        "Position" => Value::Int(position.into()),
        "DeviceType" => Value::Int(device_type),
        "IsDamaged" => Value::bit(true),
        _ => Value::Null,
    };
    HEADER.iter().map(value).collect()
}

fn header_row(
    media: &MediaHeader,
    set: &SetSummary,
    (device_type, thumbprint): (i64, Option<Thumbprint>),
) -> Vec<Value> {
    let (header, trailer) = (&set.header, set.trailer.as_ref());
    let (kind, kind_text) = match header.backup_type {
        BackupType::Database => (1, "Database"),
        BackupType::Log => (2, "Transaction Log"),
        BackupType::Differential => (5, "Database Differential"),
    };
    let system = header.log.system;
    let guid = |n: u128| match system {
        0 => Value::Null,
        _ => Value::Guid(Uuid::from_u128(n)),
    };
    // A cluster's timeline corresponds to SQL Server's recovery fork.
    let fork = |timeline: u32| guid(fork_guid(system, timeline));
    let zone = header.time_zone;
    let damaged = trailer.is_some_and(|t| t.damaged);
    let name = match trailer {
        Some(_) => Value::text_or_null(&header.name),
        None => Value::text(INCOMPLETE),
    };
    let plain = trailer.map_or(Value::Null, |t| whole(t.plain_bytes_total));
    let stored = match media.compressed {
        true => trailer.map_or(Value::Null, |t| whole(t.stored_bytes_total)),
        false => plain.clone(),
    };
    let [major, minor, build] = version(&media.software);
    let text = Value::text_or_null;
    let bit = Value::bit;
    vec![
        name,
        text(&header.description),
        Value::Int(kind),
        header.expires_us.map_or(Value::Null, |us| moment(us, zone)),
        bit(media.compressed),
        Value::Int(header.position.into()),
        Value::Int(device_type),
        text(&header.user),
        text(&header.machine),
        text(&header.database),
        Value::Null,
        Value::Null,
        plain,
        place(header.log.first_lsn, header.start_us),
        trailer.map_or(Value::Null, |t| place(t.log.last_lsn, t.finish_us)),
        place(header.log.first_lsn, header.start_us),
        Value::Null,
        moment(header.start_us, zone),
        trailer.map_or(Value::Null, |t| moment(t.finish_us, zone)),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Null,
        major,
        minor,
        build,
        text(&header.machine),
        Value::Int(flags(header, damaged)),
        guid(system.into()),
        trailer.map_or(Value::Null, |t| fork(t.log.timeline)),
        Value::Null,
        guid(system.into()),
        bit(false),
        bit(false),
        bit(false),
        bit(false),
        bit(true),
        bit(damaged),
        bit(false),
        bit(false),
        bit(false),
        bit(header.copy_only),
        fork(header.log.timeline),
        Value::Null,
        recovery_model(header).map_or(Value::Null, Value::text),
        Value::Null,
        header.parent.map_or(Value::Null, Value::Guid),
        Value::text(kind_text),
        Value::Guid(header.set),
        stored,
        Value::Int(0),
        match header.encrypted {
            true => Value::text(KEY_ALGORITHM),
            false => Value::Null,
        },
        thumbprint.map_or(Value::Null, |bytes| Value::Binary(bytes.to_vec())),
        thumbprint.map_or(Value::Null, |_| Value::text(CERTIFICATE)),
        Value::Null,
        Value::Int(zone.into()),
        match media.compressed {
            true => Value::text(header.algorithm.name()),
            false => Value::Null,
        },
    ]
}

/// Reads only the first device, so it works with one stripe of many.
pub(super) fn label_only(
    session: &Session,
    devices: &[DeviceSpec],
    options: &Options,
    out: &mut Out,
) -> Flow {
    let opened = open(session, devices);
    let Some(device) = opened.first() else {
        return Ok(());
    };
    let label = MediaSet::label(&**device).map_err(|e| refusal::media(&e))?;
    check_name(&label, &device.name(), options)?;
    out.sink.columns(&columns(LABEL))?;
    out.sink.row(&[
        Value::text_or_null(&label.name),
        Value::Guid(label.media_set),
        Value::Int(label.family_count.into()),
        Value::Int(label.family.into()),
        Value::Guid(label.family_uuid),
        Value::Int(1),
        Value::Int(1),
        Value::text_or_null(&label.description),
        Value::text_or_null(&label.software),
        Value::Null,
        moment(label.created_us, zone_here(label.created_us)),
        whole(mirror_count(session, label.media_set)),
        Value::bit(label.compressed),
    ])?;
    Ok(out.done(Command::MediaRows, Some(1))?)
}

/// With how many copies of each stripe media were begun, by the history: nothing on the media says it. 1 where the history cannot
/// be read, or does not have them.
pub(super) fn mirror_count(session: &Session, media_set: Uuid) -> u64 {
    if session.server.known_catalog().is_none() {
        return 1;
    }
    let catalog = session.server.catalog().ok();
    let count = catalog.and_then(|catalog| catalog.mirror_count(media_set).ok());
    count.unwrap_or(1)
}

/// Labels have no zone: this machine's is used. In quarter hours.
fn zone_here(unix_us: i64) -> i16 {
    match jiff::Timestamp::from_microsecond(unix_us) {
        Ok(at) => {
            let offset = jiff::tz::TimeZone::system().to_offset(at);
            i16::try_from(offset.seconds() / 900).unwrap_or(ZONE_UNKNOWN)
        }
        Err(_) => ZONE_UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_sets_have_the_columns_that_scripts_insert_into() {
        assert_eq!((HEADER.len(), LABEL.len()), (59, 13));
    }

    #[test]
    fn versions_are_numbers_or_nothing() {
        assert_eq!(version("Longshore 0.1.7")[2], Value::Int(7));
        assert_eq!(version("other"), [Value::Null, Value::Null, Value::Null]);
    }
}
