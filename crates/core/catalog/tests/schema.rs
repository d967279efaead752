//! Goal: the tables are those of msdb, as its documentation lists them, and a new catalog is marked as one.
//! Method: the columns that SQLite reports are compared with a list that was copied from the documentation.
//! Not covered: the tables' content.

mod common;

use common::{open, rows, sqlite};

/// A table, then its columns with their declared types in the documented order.
const DOCUMENTED: [(&str, &str); 6] = [
    (
        "backupmediaset",
        "media_set_id int identity, media_uuid uniqueidentifier, media_family_count tinyint, name nvarchar(128), \
         description nvarchar(255), software_name nvarchar(128), software_vendor_id int, MTF_major_version tinyint, \
         mirror_count tinyint, is_password_protected bit, is_compressed bit, is_encrypted bit",
    ),
    (
        "backupmediafamily",
        "media_set_id int, family_sequence_number tinyint, media_family_id uniqueidentifier, media_count int, \
         logical_device_name nvarchar(128), physical_device_name nvarchar(260), device_type tinyint, \
         physical_block_size int, mirror tinyint",
    ),
    (
        "backupset",
        "backup_set_id int identity, backup_set_uuid uniqueidentifier, media_set_id int, first_family_number tinyint, \
         first_media_number smallint, last_family_number tinyint, last_media_number smallint, \
         catalog_family_number tinyint, catalog_media_number smallint, position int, expiration_date datetime, \
         software_vendor_id int, name nvarchar(128), description nvarchar(255), user_name nvarchar(128), \
         software_major_version tinyint, software_minor_version tinyint, software_build_version smallint, \
         time_zone smallint, mtf_minor_version tinyint, first_lsn numeric(25;0), last_lsn numeric(25;0), \
         checkpoint_lsn numeric(25;0), database_backup_lsn numeric(25;0), database_creation_date datetime, \
         backup_start_date datetime, backup_finish_date datetime, type char(1), sort_order smallint, \
         code_page smallint, compatibility_level tinyint, database_version int, backup_size numeric(20;0), \
         database_name nvarchar(128), server_name nvarchar(128), machine_name nvarchar(128), flags int, \
         unicode_locale int, unicode_compare_style int, collation_name nvarchar(128), is_password_protected bit, \
         recovery_model nvarchar(60), has_bulk_logged_data bit, is_snapshot bit, is_readonly bit, \
         is_single_user bit, has_backup_checksums bit, is_damaged bit, begins_log_chain bit, \
         has_incomplete_metadata bit, is_force_offline bit, is_copy_only bit, \
         first_recovery_fork_guid uniqueidentifier, last_recovery_fork_guid uniqueidentifier, \
         fork_point_lsn numeric(25;0), database_guid uniqueidentifier, family_guid uniqueidentifier, \
         differential_base_lsn numeric(25;0), differential_base_guid uniqueidentifier, \
         compressed_backup_size numeric(20;0), key_algorithm nvarchar(32), encryptor_thumbprint varbinary(20), \
         encryptor_type nvarchar(32), last_valid_restore_time datetime, compression_algorithm nvarchar(32)",
    ),
    (
        "backupfile",
        "backup_set_id int, first_family_number tinyint, first_media_number smallint, filegroup_name nvarchar(128), \
         page_size int, file_number numeric(10;0), backed_up_page_count numeric(10;0), file_type char(1), \
         source_file_block_size numeric(10;0), file_size numeric(20;0), logical_name nvarchar(128), \
         physical_drive nvarchar(260), physical_name nvarchar(260), state tinyint, state_desc nvarchar(64), \
         create_lsn numeric(25;0), drop_lsn numeric(25;0), file_guid uniqueidentifier, read_only_lsn numeric(25;0), \
         read_write_lsn numeric(25;0), differential_base_lsn numeric(25;0), differential_base_guid uniqueidentifier, \
         backup_size numeric(20;0), filegroup_guid uniqueidentifier, is_readonly bit, is_present bit",
    ),
    (
        "restorehistory",
        "restore_history_id int identity, restore_date datetime, destination_database_name nvarchar(128), \
         user_name nvarchar(128), backup_set_id int, restore_type char(1), replace bit, recovery bit, restart bit, \
         stop_at datetime, device_count tinyint, stop_at_mark_name nvarchar(128), stop_before bit",
    ),
    (
        "restorefile",
        "restore_history_id int, file_number numeric(10;0), destination_phys_drive nvarchar(260), \
         destination_phys_name nvarchar(260)",
    ),
];

#[test]
fn tables_have_the_documented_columns_in_order_and_then_our_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("catalog.db");
    drop(open(&path));
    let db = sqlite(&path);
    for (table, documented) in DOCUMENTED {
        let documented = documented
            .replace("int identity", "INTEGER")
            .replace(';', ",");
        let sql =
            format!("SELECT name || ' ' || type FROM pragma_table_info('{table}') ORDER BY cid");
        let found = rows(&db, &sql);
        let ours = found.iter().position(|c| c.starts_with("longshore_"));
        let (msdb, extra) = found.split_at(ours.unwrap_or(found.len()));
        // SQLite returns the type names it knows in capitals.
        let msdb = msdb.join(", ").replace(" INT,", " int,");
        assert_eq!(msdb, documented, "{table}");
        assert!(
            extra.iter().all(|c| c.starts_with("longshore_")),
            "{table}: {extra:?}"
        );
    }
}

#[test]
fn a_new_catalog_says_what_it_is_keeps_a_write_ahead_log_and_is_not_changed_by_opening_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/below/catalog.db");
    drop(open(&path));
    let db = sqlite(&path);
    assert_eq!(
        rows(&db, "PRAGMA application_id"),
        [0x4c53_4843.to_string()]
    );
    assert_eq!(rows(&db, "PRAGMA user_version"), ["10"]);
    assert_eq!(rows(&db, "PRAGMA journal_mode"), ["wal"]);
    drop(db);
    let before = std::fs::read(&path).unwrap();
    drop(open(&path));
    assert!(std::fs::read(&path).unwrap() == before);
}
