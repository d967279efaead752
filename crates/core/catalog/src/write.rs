//! Recording: one transaction per backup or restore.
//!
//! Invariants
//! - Recording the same set again changes nothing except the location of its media: sets are known by their
//!   identifiers, not by file names.
//! - A look at a copy does not move the record of the original ([`Catalog::settle`]).
//! - A record that fails leaves the history as it was.
//!
//! Leaves to others: what to record (the pipeline), and whether a failure matters; it never fails a backup.

use std::sync::Arc;

use longshore_io::Storage;
use longshore_media::device::DeviceClass;
use longshore_media::{BackupType, DeviceSpec, MediaSet, SetHeader};
use rusqlite::{OptionalExtension, Row, ToSql, Transaction, params};
use uuid::Uuid;

use crate::catalog::PAGE_BYTES;
use crate::moment::local_text;
use crate::msdb::{flags, fork_guid, recovery_model};
use crate::record::{
    BackupRecord, EngineRecord, FamilyRecord, MediaRecord, RestoreKind, RestoreRecord,
};
use crate::{Catalog, Error, FileList};

/// `key_algorithm` of each encrypted set, and `encryptor_type` of one for a certificate, in msdb's words.
pub const KEY_ALGORITHM: &str = "aes_256";
pub const CERTIFICATE: &str = "CERTIFICATE";

/// SQL Server's numbers of device types.
const DISK: i64 = 2;
const BUCKET: i64 = 9;
/// A disk that a logical device names.
const NAMED_DISK: i64 = 102;

impl Catalog {
    /// Records a finished backup and returns whether it was new. A known set keeps its row; the present location of
    /// its media is recorded in any case.
    pub fn record_backup(&self, backup: &BackupRecord) -> Result<bool, Error> {
        self.write(|tx| Ok(put_backup(tx, backup, Named::Again)?.1))
    }

    /// Keeps the recorded places of the stripes that are still there, for a record of media that were only looked at: they
    /// may be a copy. Places in object stores are not looked at, and stay.
    ///
    /// Errors: the history cannot be read.
    pub fn settle(&self, media: &mut MediaRecord, storage: &Arc<dyn Storage>) -> Result<(), Error> {
        let recorded = self.read(|db| {
            let sql = "SELECT family_sequence_number, physical_device_name, device_type
                       FROM backupmediafamily JOIN backupmediaset USING (media_set_id)
                       WHERE media_uuid = ?1 AND mirror = 0";
            let row = |row: &Row| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            let mut rows = db.prepare_cached(sql)?;
            let rows = rows.query_map([media.uuid.to_string()], row)?;
            rows.collect::<rusqlite::Result<Vec<(i64, Option<String>, i64)>>>()
        })?;
        for (number, device, device_type) in recorded {
            let family = usize::try_from(number - 1).ok();
            let family = family.and_then(|index| media.families.get_mut(index));
            let (Some(family), Some(device)) = (family, device) else {
                continue;
            };
            let is_original = |device: &str| {
                let stripe = DeviceSpec::File(device.into()).open(storage);
                MediaSet::label(&*stripe).is_ok_and(|label| label.media_set == media.uuid)
            };
            let class = match device_type {
                BUCKET => DeviceClass::Bucket,
                DISK | NAMED_DISK if is_original(&device) => DeviceClass::File,
                _ => continue,
            };
            (family.device, family.class) = (device, class);
        }
        Ok(())
    }

    /// Notes the logical devices that named stripes of a media set: paths, and their names.
    ///
    /// Errors: the history cannot be written.
    pub fn name_devices(&self, media_set: Uuid, named: &[(String, String)]) -> Result<(), Error> {
        self.write(|tx| {
            let sql = "UPDATE backupmediafamily SET logical_device_name = ?3, device_type = ?4
                       WHERE physical_device_name = ?2 AND device_type IN (?4, ?5) AND media_set_id =
                           (SELECT media_set_id FROM backupmediaset WHERE media_uuid = ?1)";
            for (path, name) in named {
                let values = params![media_set.to_string(), path, name, NAMED_DISK, DISK];
                tx.execute(sql, values)?;
            }
            Ok(())
        })
    }

    /// Records a finished restore, and its backup if that is unknown. Returns its `restore_history_id`.
    pub fn record_restore(&self, restore: &RestoreRecord) -> Result<i64, Error> {
        self.write(|tx| put_restore(tx, restore))
    }
}

/// The fate of the logical names that a media set's devices have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    /// The devices were written to: the statement that did it names them, if it used names.
    Again,
    /// They were only read.
    AsBefore,
}

/// The row of the set, and whether it was created now.
fn put_backup(
    tx: &Transaction,
    backup: &BackupRecord,
    named: Named,
) -> rusqlite::Result<(i64, bool)> {
    let media = put_media(tx, &backup.media, (backup.header.encrypted, named))?;
    let known = tx
        .prepare_cached("SELECT backup_set_id FROM backupset WHERE backup_set_uuid = ?1")?
        .query_row([backup.header.set.to_string()], |row| row.get(0))
        .optional()?;
    let id = match known {
        Some(id) => id,
        None => put_set(tx, backup, media)?,
    };
    put_engines(tx, id, &backup.engines)?;
    // A restore may have recorded the set without its files.
    let listed: i64 = tx
        .prepare_cached("SELECT count(*) FROM backupfile WHERE backup_set_id = ?1")?
        .query_row([id], |row| row.get(0))?;
    if listed == 0 {
        put_files(tx, id, &backup.header, &backup.files)?;
    }
    Ok((id, known.is_none()))
}

/// Adds nothing if the set already has engines.
fn put_engines(tx: &Transaction, set: i64, engines: &[EngineRecord]) -> rusqlite::Result<()> {
    let mut insert = tx.prepare_cached(
        "INSERT INTO backupengine (backup_set_id, engine_name, is_accelerator, block_count, plain_size,
            recomputed_count, fault_count)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
    )?;
    let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    for engine in engines {
        insert.execute(params![
            set,
            engine.name,
            engine.is_accelerator,
            whole(engine.blocks),
            whole(engine.plain_bytes),
            whole(engine.recomputed),
            whole(engine.fault_count),
        ])?;
    }
    Ok(())
}

fn put_media(
    tx: &Transaction,
    media: &MediaRecord,
    (is_encrypted, named): (bool, Named),
) -> rusqlite::Result<i64> {
    let uuid = media.uuid.to_string();
    tx.prepare_cached(
        "INSERT INTO backupmediaset (media_uuid, media_family_count, name, description, software_name,
            MTF_major_version, mirror_count, is_password_protected, is_compressed, is_encrypted)
         VALUES (?1, ?2, ?3, ?4, ?5, 1, ?8, 0, ?6, ?7)
         ON CONFLICT (media_uuid) DO UPDATE SET is_compressed = excluded.is_compressed,
            is_encrypted = excluded.is_encrypted",
    )?
    .execute(params![
        uuid,
        media.families.len() as i64,
        text(&media.name),
        text(&media.description),
        text(&media.software),
        media.compressed,
        is_encrypted,
        media.mirrors.len() as i64 + 1,
    ])?;
    let id = tx
        .prepare_cached("SELECT media_set_id FROM backupmediaset WHERE media_uuid = ?1")?
        .query_row([uuid], |row| row.get(0))?;
    let all = std::iter::once(&media.families).chain(&media.mirrors);
    for (mirror, families) in (0..).zip(all) {
        for (number, family) in (1..).zip(families) {
            put_family(tx, id, (number, mirror), (family, named))?;
        }
    }
    Ok(id)
}

fn put_family(
    tx: &Transaction,
    media: i64,
    (number, mirror): (i64, i64),
    (family, named): (&FamilyRecord, Named),
) -> rusqlite::Result<()> {
    let device_type = match family.class {
        // SQL Server's NUL is a disk device with that name.
        DeviceClass::File | DeviceClass::Nul => DISK,
        DeviceClass::Pipe => 7,
        DeviceClass::Bucket => BUCKET,
    };
    tx.prepare_cached(
        "INSERT INTO backupmediafamily (media_set_id, family_sequence_number, media_family_id,
            media_count, physical_device_name, device_type, mirror)
         VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6)
         ON CONFLICT DO UPDATE SET
            media_family_id = coalesce(excluded.media_family_id, media_family_id),
            logical_device_name = CASE WHEN ?7 AND physical_device_name = excluded.physical_device_name
                THEN logical_device_name END,
            device_type = CASE WHEN ?7 AND physical_device_name = excluded.physical_device_name
                THEN device_type ELSE excluded.device_type END,
            physical_device_name = excluded.physical_device_name",
    )?
    .execute(params![
        media,
        number,
        family.uuid.map(|u| u.to_string()),
        family.device,
        device_type,
        mirror,
        named == Named::AsBefore,
    ])?;
    Ok(())
}

fn put_set(tx: &Transaction, backup: &BackupRecord, media: i64) -> rusqlite::Result<i64> {
    let BackupRecord { header, totals, .. } = backup;
    let algorithm = Some(header.algorithm.name()).filter(|_| backup.media.compressed);
    // Uncompressed data is stored unchanged; msdb shows one number in both columns.
    let compressed_bytes = match algorithm {
        Some(_) => backup.stored_bytes,
        None => totals.plain_bytes,
    };
    let kind = match header.backup_type {
        BackupType::Database => "D",
        BackupType::Differential => "I",
        BackupType::Log => "L",
    };
    let system = header.log.system;
    let guid = |n: u128| (system > 0).then(|| Uuid::from_u128(n).to_string());
    let fork = |timeline: u32| guid(fork_guid(system, timeline));
    // Sources without WAL have no LSNs.
    let lsn = |n: u64| (n > 0).then(|| count(n));
    let zone = header.time_zone;
    let expires = match header.expires_us {
        Some(us) => local_text(tx, us, zone)?,
        None => None,
    };
    insert(
        tx,
        "backupset",
        &[
            ("backup_set_uuid", &header.set.to_string()),
            ("media_set_id", &media),
            ("first_family_number", &1),
            ("first_media_number", &1),
            ("last_family_number", &(backup.media.families.len() as i64)),
            ("last_media_number", &1),
            ("catalog_family_number", &1),
            ("catalog_media_number", &1),
            ("position", &header.position),
            ("expiration_date", &expires),
            ("name", &text(&header.name)),
            ("description", &text(&header.description)),
            ("user_name", &text(&header.user)),
            ("time_zone", &zone),
            ("backup_start_date", &local_text(tx, header.start_us, zone)?),
            (
                "backup_finish_date",
                &local_text(tx, totals.finish_us, zone)?,
            ),
            ("type", &kind),
            ("first_lsn", &lsn(header.log.first_lsn)),
            ("last_lsn", &lsn(totals.log.last_lsn)),
            ("checkpoint_lsn", &lsn(header.log.first_lsn)),
            (
                "differential_base_guid",
                &header.parent.map(|set| set.to_string()),
            ),
            ("backup_size", &count(totals.plain_bytes)),
            ("database_name", &header.database),
            ("server_name", &text(&header.machine)),
            ("machine_name", &text(&header.machine)),
            ("flags", &flags(header, totals.damaged)),
            ("is_password_protected", &false),
            ("recovery_model", &recovery_model(header)),
            ("first_recovery_fork_guid", &fork(header.log.timeline)),
            ("last_recovery_fork_guid", &fork(totals.log.timeline)),
            ("database_guid", &guid(system.into())),
            ("family_guid", &guid(system.into())),
            ("has_bulk_logged_data", &false),
            ("is_snapshot", &false),
            ("is_readonly", &false),
            ("is_single_user", &false),
            ("has_backup_checksums", &true),
            ("is_damaged", &totals.damaged),
            ("begins_log_chain", &false),
            ("has_incomplete_metadata", &false),
            ("is_force_offline", &false),
            ("is_copy_only", &header.copy_only),
            ("compressed_backup_size", &count(compressed_bytes)),
            ("key_algorithm", &header.encrypted.then_some(KEY_ALGORITHM)),
            (
                "encryptor_thumbprint",
                &backup.thumbprint.map(|bytes| bytes.to_vec()),
            ),
            ("encryptor_type", &backup.thumbprint.map(|_| CERTIFICATE)),
            ("compression_algorithm", &algorithm),
            ("longshore_start_us", &header.start_us),
            ("longshore_finish_us", &totals.finish_us),
            ("longshore_expires_us", &header.expires_us),
            (
                "longshore_level",
                &algorithm.map(|_| header.level.to_string()),
            ),
            ("longshore_origin", &text(&header.origin)),
            ("longshore_limit", &backup.limit),
            ("longshore_file_count", &count(totals.files)),
            (
                "longshore_lineage",
                &Some(&header.lineage).filter(|lineage| !lineage.is_empty()),
            ),
        ],
    )
}

fn put_files(
    tx: &Transaction,
    set: i64,
    header: &SetHeader,
    files: &FileList,
) -> rusqlite::Result<()> {
    let file_type = match header.backup_type {
        BackupType::Log => "L",
        BackupType::Database | BackupType::Differential => "D",
    };
    let page_size = Some(header.page_bytes).filter(|p| *p > 0);
    for (i, (path, file)) in files.iter().enumerate() {
        // `logical_name` is what RESTORE accepts, and scripts expect `physical_name` to be a path: as in the list of files of the
        // media, that of a SQLite database is where it was before the backup.
        let name = path.display().to_string();
        let physical = header.origin.strip_prefix("sqlite:").unwrap_or(&name);
        insert(
            tx,
            "backupfile",
            &[
                ("backup_set_id", &set),
                ("first_family_number", &1),
                ("first_media_number", &1),
                ("page_size", &page_size),
                ("file_number", &(i as i64 + 1)),
                (
                    "backed_up_page_count",
                    &count(
                        file.data_bytes
                            .div_ceil(page_size.map_or(PAGE_BYTES, u64::from)),
                    ),
                ),
                ("file_type", &file_type),
                ("file_size", &count(file.len_bytes)),
                ("logical_name", &name),
                ("physical_name", &physical),
                ("state", &0),
                ("state_desc", &"ONLINE"),
                ("backup_size", &count(file.data_bytes)),
                ("is_readonly", &false),
                ("is_present", &true),
            ],
        )?;
    }
    Ok(())
}

fn put_restore(tx: &Transaction, restore: &RestoreRecord) -> rusqlite::Result<i64> {
    let (set, _) = put_backup(tx, &restore.backup, Named::AsBefore)?;
    let kind = match restore.kind {
        RestoreKind::Database => "D",
        RestoreKind::Files => "F",
        RestoreKind::Differential => "I",
        RestoreKind::Log => "L",
    };
    let stop_at = match restore.stop_at_us {
        Some(us) => local_text(tx, us, restore.time_zone)?,
        None => None,
    };
    let id = insert(
        tx,
        "restorehistory",
        &[
            (
                "restore_date",
                &local_text(tx, restore.finish_us, restore.time_zone)?,
            ),
            ("destination_database_name", &restore.database),
            ("user_name", &text(&restore.user)),
            ("backup_set_id", &set),
            ("restore_type", &kind),
            ("replace", &restore.replace),
            ("recovery", &restore.recovery),
            ("restart", &false),
            ("stop_at", &stop_at),
            (
                "device_count",
                &(restore.backup.media.families.len() as i64),
            ),
            ("stop_before", &false),
            ("longshore_start_us", &restore.start_us),
            ("longshore_finish_us", &restore.finish_us),
            ("longshore_target", &restore.target.display().to_string()),
            ("longshore_size", &count(restore.plain_bytes)),
        ],
    )?;
    if restore.files.len() > FileList::MAX {
        return Ok(id);
    }
    for file in &restore.files {
        tx.prepare_cached(
            "INSERT INTO restorefile (restore_history_id, file_number, destination_phys_name)
             VALUES (?1, (SELECT file_number FROM backupfile WHERE backup_set_id = ?2 AND logical_name = ?3), ?4)",
        )?
        .execute(params![
            id,
            set,
            file.path.display().to_string(),
            file.destination.display().to_string(),
        ])?;
    }
    Ok(id)
}

/// Inserts a row by column name and returns its number.
pub(crate) fn insert(
    tx: &Transaction,
    table: &str,
    row: &[(&str, &dyn ToSql)],
) -> rusqlite::Result<i64> {
    let columns: Vec<_> = row.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let marks = vec!["?"; row.len()];
    let (columns, marks) = (columns.join(", "), marks.join(", "));
    let values: Vec<_> = row.iter().map(|(_, value)| *value).collect();
    tx.prepare_cached(&format!("INSERT INTO {table} ({columns}) VALUES ({marks})"))?
        .insert(&*values)
}

/// An empty text becomes NULL.
pub(crate) fn text(s: &str) -> Option<&str> {
    (!s.is_empty()).then_some(s)
}

/// SQLite's integers end at 2^63; only hostile media have greater numbers.
pub(crate) fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
