//! Tables and columns, and the migration of older catalogs.
//!
//! Two types are spelled differently so that SQLite numbers the rows itself: `int identity` is `INTEGER PRIMARY KEY
//! AUTOINCREMENT`. UUIDs are text.
//!
//! Invariants
//! - Columns have msdb's names, order and declared types.
//! - Columns that msdb lacks come last and begin with `longshore_`.
//!
//! Leaves to others: writing and reading rows (`write.rs`, `query.rs`).

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// `LSHC` in the file header: identifies a catalog before anything is written to it.
pub(crate) const APPLICATION_ID: i32 = 0x4c53_4843;

/// Step *n* leads from schema *n* to *n* + 1. Released steps never change.
const STEPS: &[&str] = &[V1, V2, V3, V4, V5, V6, V7, V8, V9, V10];

/// The schema this version writes; `PRAGMA user_version` holds the one a file has.
pub(crate) const VERSION: i64 = STEPS.len() as i64;

/// Procedures and tables of a T-SQL server (in each of SQL Server's databases `sys.objects` and `sys.sql_modules`), and
/// the rows of the tables. Numbers begin above those of views.
const V10: &str = "
CREATE TABLE longshore_object (
    object_id INTEGER PRIMARY KEY AUTOINCREMENT,
    database_name nvarchar(128) NOT NULL COLLATE NOCASE,
    name nvarchar(128) NOT NULL COLLATE NOCASE,
    type char(2) NOT NULL,
    create_date datetime NOT NULL,
    modify_date datetime NOT NULL,
    definition nvarchar(4000) NOT NULL,
    uses_ansi_nulls bit NOT NULL,
    uses_quoted_identifier bit NOT NULL,
    version bigint NOT NULL,
    last_identity bigint,
    last_row bigint NOT NULL,
    UNIQUE (database_name, name)
);
CREATE TABLE longshore_row (
    object_id int NOT NULL,
    row_id bigint NOT NULL,
    row_values nvarchar(4000) NOT NULL,
    PRIMARY KEY (object_id, row_id)
) WITHOUT ROWID;
INSERT INTO sqlite_sequence (name, seq) VALUES ('longshore_object', 1000000);
";

/// The master key and the certificates of a T-SQL server (in SQL Server's master, `sys.symmetric_keys` and
/// `sys.certificates`).
const V9: &str = "
CREATE TABLE longshore_master_key (
    key_id int NOT NULL UNIQUE DEFAULT 1 CHECK (key_id = 1),
    key_guid uniqueidentifier NOT NULL,
    create_date datetime NOT NULL,
    modify_date datetime NOT NULL,
    by_service varbinary(256),
    by_passwords varbinary(8000) NOT NULL
);
CREATE TABLE longshore_certificate (
    certificate_id INTEGER PRIMARY KEY AUTOINCREMENT,
    name nvarchar(128) NOT NULL UNIQUE COLLATE NOCASE,
    certificate varbinary(8000) NOT NULL,
    pvt_key_encryption_type char(2) NOT NULL,
    private_key varbinary(8000) NOT NULL,
    pvt_key_last_backup_date datetime,
    seal varbinary(8000) NOT NULL
);
INSERT INTO sqlite_sequence (name, seq) VALUES ('longshore_certificate', 255);
";

/// What opens the indexes of encrypted sets, sealed: our own table, without a counterpart in msdb.
const V8: &str = "
CREATE TABLE longshore_index (
    longshore_index_id INTEGER PRIMARY KEY AUTOINCREMENT,
    backup_set_uuid uniqueidentifier NOT NULL UNIQUE,
    chain nvarchar(4096) NOT NULL,
    is_full bit NOT NULL,
    root char(64),
    secret varbinary(8000)
);
CREATE INDEX longshore_index_by_chain ON longshore_index (chain);
";

/// Credentials of a T-SQL server (in SQL Server's master, `sys.credentials`). Numbers begin where SQL Server's do.
const V7: &str = "
CREATE TABLE longshore_credential (
    credential_id INTEGER PRIMARY KEY AUTOINCREMENT,
    name nvarchar(128) NOT NULL UNIQUE COLLATE NOCASE,
    credential_identity nvarchar(4000) NOT NULL,
    create_date datetime NOT NULL,
    modify_date datetime NOT NULL,
    secret varbinary(8000)
);
INSERT INTO sqlite_sequence (name, seq) VALUES ('longshore_credential', 65535);
";

/// Runs of commands, also those that failed or leave nothing on media: our own table, without a counterpart in msdb.
const V6: &str = "
CREATE TABLE longshore_run (
    longshore_run_id INTEGER PRIMARY KEY AUTOINCREMENT,
    task nvarchar(16) NOT NULL,
    database_name nvarchar(128),
    target_name nvarchar(128),
    label nvarchar(128),
    backup_set_uuid uniqueidentifier,
    devices nvarchar(4096),
    start_us bigint NOT NULL,
    finish_us bigint NOT NULL,
    finish_date datetime,
    time_zone smallint NOT NULL,
    outcome nvarchar(16) NOT NULL,
    exit_code tinyint NOT NULL,
    error_number int,
    size numeric(20,0),
    message nvarchar(1000)
);
CREATE INDEX longshore_run_by_time ON longshore_run (finish_us);
CREATE INDEX longshore_run_by_database ON longshore_run (database_name, finish_us);
CREATE INDEX longshore_run_by_finish ON longshore_run (finish_date);
CREATE INDEX longshore_run_by_task ON longshore_run (task);
";

/// The limit that held a backup's run.
const V5: &str = "
ALTER TABLE backupset ADD COLUMN longshore_limit nvarchar(32);
";

/// Indexes for references and for the age of sets. Sets of PostgreSQL get their lineage, as in their headers.
const V4: &str = "
ALTER TABLE backupset ADD COLUMN longshore_lineage varbinary(4096);
CREATE INDEX backupset_by_media ON backupset (media_set_id);
CREATE INDEX backupset_by_finish ON backupset (backup_finish_date);
CREATE INDEX backupset_by_type ON backupset (database_name, type, longshore_finish_us);
CREATE INDEX restorehistory_by_set ON restorehistory (backup_set_id);
CREATE INDEX restorehistory_by_time ON restorehistory (longshore_finish_us);
";

/// State of a T-SQL server between its runs: logical devices (in SQL Server's master), databases restored under new
/// names, and restores that wait for more.
const V3: &str = "
CREATE TABLE backupdevice (
    name nvarchar(128) PRIMARY KEY COLLATE NOCASE,
    physical_name nvarchar(4096) NOT NULL
);
CREATE TABLE restoreddatabase (
    name nvarchar(128) PRIMARY KEY,
    source_kind tinyint NOT NULL,
    physical_name nvarchar(4096) NOT NULL
);
CREATE TABLE restoresequence (
    name nvarchar(128) PRIMARY KEY,
    target nvarchar(4096) NOT NULL,
    is_ready bit NOT NULL,
    log_system nvarchar(20) NOT NULL,
    timeline int NOT NULL,
    consistent_lsn bigint NOT NULL,
    next_lsn bigint NOT NULL,
    reached_us bigint NOT NULL,
    stop_at_us bigint,
    log_count int NOT NULL
);
CREATE TABLE restoresequenceset (
    name nvarchar(128) NOT NULL REFERENCES restoresequence ON DELETE CASCADE,
    step int NOT NULL,
    backup_set_uuid uniqueidentifier NOT NULL,
    PRIMARY KEY (name, step)
);
CREATE TABLE restoresequencedevice (
    name nvarchar(128) NOT NULL REFERENCES restoresequence ON DELETE CASCADE,
    ordinal int NOT NULL,
    physical_name nvarchar(4096) NOT NULL,
    PRIMARY KEY (name, ordinal)
);
";

/// The engines that compressed a set: our own table, without a counterpart in msdb.
const V2: &str = "
CREATE TABLE backupengine (
    backup_set_id int NOT NULL REFERENCES backupset,
    engine_name nvarchar(128) NOT NULL,
    is_accelerator bit,
    block_count bigint,
    plain_size numeric(20,0),
    recomputed_count bigint,
    fault_count bigint,
    PRIMARY KEY (backup_set_id, engine_name)
);
";

const V1: &str = "
CREATE TABLE backupmediaset (
    media_set_id INTEGER PRIMARY KEY AUTOINCREMENT,
    media_uuid uniqueidentifier NOT NULL UNIQUE,
    media_family_count tinyint,
    name nvarchar(128),
    description nvarchar(255),
    software_name nvarchar(128),
    software_vendor_id int,
    MTF_major_version tinyint,
    mirror_count tinyint,
    is_password_protected bit,
    is_compressed bit,
    is_encrypted bit
);
CREATE TABLE backupmediafamily (
    media_set_id int NOT NULL REFERENCES backupmediaset,
    family_sequence_number tinyint NOT NULL,
    media_family_id uniqueidentifier,
    media_count int,
    logical_device_name nvarchar(128),
    physical_device_name nvarchar(260),
    device_type tinyint,
    physical_block_size int,
    mirror tinyint NOT NULL,
    PRIMARY KEY (media_set_id, family_sequence_number, mirror)
);
CREATE TABLE backupset (
    backup_set_id INTEGER PRIMARY KEY AUTOINCREMENT,
    backup_set_uuid uniqueidentifier NOT NULL UNIQUE,
    media_set_id int NOT NULL REFERENCES backupmediaset,
    first_family_number tinyint,
    first_media_number smallint,
    last_family_number tinyint,
    last_media_number smallint,
    catalog_family_number tinyint,
    catalog_media_number smallint,
    position int,
    expiration_date datetime,
    software_vendor_id int,
    name nvarchar(128),
    description nvarchar(255),
    user_name nvarchar(128),
    software_major_version tinyint,
    software_minor_version tinyint,
    software_build_version smallint,
    time_zone smallint,
    mtf_minor_version tinyint,
    first_lsn numeric(25,0),
    last_lsn numeric(25,0),
    checkpoint_lsn numeric(25,0),
    database_backup_lsn numeric(25,0),
    database_creation_date datetime,
    backup_start_date datetime,
    backup_finish_date datetime,
    type char(1),
    sort_order smallint,
    code_page smallint,
    compatibility_level tinyint,
    database_version int,
    backup_size numeric(20,0),
    database_name nvarchar(128),
    server_name nvarchar(128),
    machine_name nvarchar(128),
    flags int,
    unicode_locale int,
    unicode_compare_style int,
    collation_name nvarchar(128),
    is_password_protected bit,
    recovery_model nvarchar(60),
    has_bulk_logged_data bit,
    is_snapshot bit,
    is_readonly bit,
    is_single_user bit,
    has_backup_checksums bit,
    is_damaged bit,
    begins_log_chain bit,
    has_incomplete_metadata bit,
    is_force_offline bit,
    is_copy_only bit,
    first_recovery_fork_guid uniqueidentifier,
    last_recovery_fork_guid uniqueidentifier,
    fork_point_lsn numeric(25,0),
    database_guid uniqueidentifier,
    family_guid uniqueidentifier,
    differential_base_lsn numeric(25,0),
    differential_base_guid uniqueidentifier,
    compressed_backup_size numeric(20,0),
    key_algorithm nvarchar(32),
    encryptor_thumbprint varbinary(20),
    encryptor_type nvarchar(32),
    last_valid_restore_time datetime,
    compression_algorithm nvarchar(32),
    longshore_start_us bigint,
    longshore_finish_us bigint,
    longshore_expires_us bigint,
    longshore_level nvarchar(32),
    longshore_origin nvarchar(4096),
    longshore_file_count bigint
);
CREATE INDEX backupset_by_time ON backupset (longshore_finish_us);
CREATE INDEX backupset_by_database ON backupset (database_name, longshore_finish_us);
CREATE TABLE backupfile (
    backup_set_id int NOT NULL REFERENCES backupset,
    first_family_number tinyint,
    first_media_number smallint,
    filegroup_name nvarchar(128),
    page_size int,
    file_number numeric(10,0) NOT NULL,
    backed_up_page_count numeric(10,0),
    file_type char(1),
    source_file_block_size numeric(10,0),
    file_size numeric(20,0),
    logical_name nvarchar(128),
    physical_drive nvarchar(260),
    physical_name nvarchar(260),
    state tinyint,
    state_desc nvarchar(64),
    create_lsn numeric(25,0),
    drop_lsn numeric(25,0),
    file_guid uniqueidentifier,
    read_only_lsn numeric(25,0),
    read_write_lsn numeric(25,0),
    differential_base_lsn numeric(25,0),
    differential_base_guid uniqueidentifier,
    backup_size numeric(20,0),
    filegroup_guid uniqueidentifier,
    is_readonly bit,
    is_present bit,
    PRIMARY KEY (backup_set_id, file_number)
);
CREATE TABLE restorehistory (
    restore_history_id INTEGER PRIMARY KEY AUTOINCREMENT,
    restore_date datetime,
    destination_database_name nvarchar(128),
    user_name nvarchar(128),
    backup_set_id int NOT NULL REFERENCES backupset,
    restore_type char(1),
    \"replace\" bit,
    recovery bit,
    \"restart\" bit,
    stop_at datetime,
    device_count tinyint,
    stop_at_mark_name nvarchar(128),
    stop_before bit,
    longshore_start_us bigint,
    longshore_finish_us bigint,
    longshore_target nvarchar(4096),
    longshore_size numeric(20,0)
);
CREATE TABLE restorefile (
    restore_history_id int NOT NULL REFERENCES restorehistory,
    file_number numeric(10,0),
    destination_phys_drive nvarchar(260),
    destination_phys_name nvarchar(260)
);
CREATE INDEX restorefile_by_restore ON restorefile (restore_history_id);
CREATE TABLE settings (
    name nvarchar(35) PRIMARY KEY,
    value int NOT NULL,
    value_in_use int NOT NULL
);
";

/// The kind of a database file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DatabaseState {
    /// A catalog of this or an older schema, or an empty file.
    Ours {
        version: i64,
    },
    Newer {
        version: i64,
    },
    Foreign,
}

/// Reads only. Must be called in a transaction: between two queries another process may create the whole catalog.
pub(crate) fn state(db: &Transaction) -> rusqlite::Result<DatabaseState> {
    let pragma = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let version = pragma("user_version")?;
    let tables = || {
        db.query_row("SELECT count(*) FROM sqlite_schema", [], |r| {
            r.get::<_, i64>(0)
        })
    };
    Ok(match pragma("application_id")? {
        id if id == i64::from(APPLICATION_ID) && version > VERSION => {
            DatabaseState::Newer { version }
        }
        id if id == i64::from(APPLICATION_ID) && version > 0 => DatabaseState::Ours { version },
        0 if version == 0 && tables()? == 0 => DatabaseState::Ours { version },
        _ => DatabaseState::Foreign,
    })
}

/// The declarations of the file's tables and indexes, by name.
fn declarations(db: &Connection) -> rusqlite::Result<Vec<(String, Option<String>)>> {
    db.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name, type")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// Whether all tables of this version exist. There may be other tables.
pub(crate) fn is_intact(db: &Connection) -> rusqlite::Result<bool> {
    let fresh = Connection::open_in_memory()?;
    migrate(&fresh)?;
    let found = declarations(db)?;
    Ok(declarations(&fresh)?.iter().all(|d| found.contains(d)))
}

/// Migrates the file to [`VERSION`] in one transaction and returns its previous state. Another process may have done
/// the same, or more, meanwhile.
pub(crate) fn migrate(db: &Connection) -> rusqlite::Result<DatabaseState> {
    let tx = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    let before = state(&tx)?;
    if let DatabaseState::Ours { version } = before {
        for step in STEPS.iter().skip(version as usize) {
            tx.execute_batch(step)?;
        }
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", VERSION)?;
    }
    tx.commit()?;
    Ok(before)
}
