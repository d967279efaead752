//! The views that queries can name: their documented columns, and the source of their rows.
//!
//! A view's columns, their types and their order are those of SQL Server's documentation; a column without a meaning
//! here is NULL. Rows come from the catalog's table of the same name, or are computed when a query needs them. Nothing
//! here changes anything.
//!
//! Invariants
//! - A row that is made by [`filled`] has a value, or NULL, for each declared column.
//! - `has_index` is true only for columns with which an index of the catalog begins; a test compares it with the catalog.
//!
//! Leaves to others: translating queries (`translate`), and storing history (`longshore-catalog`).

use longshore_accelerators::{AcceleratorStatus, configured, status};
use longshore_catalog::{KeptBy, KeptCertificate};

use super::collation;
use super::objects;
use super::options;
use super::principals;
pub(super) use super::system::database_id;
use super::system::{self, DATABASE_FIRST};
use super::view::Facts;
pub use super::view::{RowOrigin, View};
use crate::convert::parse_moment;
use crate::flow::{FIRST_DATABASE, SYSTEM_DATABASES};
use crate::message::{self, Message};
use crate::server::Server;
use crate::settings::settings;
use crate::value::{DateTime, Value};

/// Columns that an index of the catalog begins with, and that are compared as the catalog keeps them: numbers.
const INDEXED: &[&str] = &["media_set_id", "backup_set_id", "restore_history_id"];

/// Whether the catalog finds a view's rows by a column.
pub(super) fn has_index(view: &View, column: &str) -> bool {
    matches!(view.rows, RowOrigin::Catalog) && INDEXED.contains(&column)
}

macro_rules! msdb {
    ($name:literal, $declared:literal) => {
        View {
            database: Some("msdb"),
            schema: "dbo",
            name: $name,
            declared: $declared,
            rows: RowOrigin::Catalog,
        }
    };
}

macro_rules! sys {
    ($name:literal, $rows:expr, $declared:literal) => {
        View {
            database: None,
            schema: "sys",
            name: $name,
            declared: $declared,
            rows: RowOrigin::Made($rows),
        }
    };
}

macro_rules! nothing_of_msdb {
    ($name:literal, $declared:literal) => {
        View {
            database: Some("msdb"),
            schema: "dbo",
            name: $name,
            declared: $declared,
            rows: RowOrigin::OfDatabase(objects::nothing),
        }
    };
}

macro_rules! of_database {
    ($name:literal, $rows:expr, $declared:literal) => {
        View {
            database: None,
            schema: "sys",
            name: $name,
            declared: $declared,
            rows: RowOrigin::OfDatabase($rows),
        }
    };
}

macro_rules! facts {
    ($name:literal, $rows:expr, $declared:expr) => {
        View {
            database: None,
            schema: "sys",
            name: $name,
            declared: $declared,
            rows: RowOrigin::Facts($rows),
        }
    };
}

macro_rules! schema {
    ($name:literal, $rows:expr, $declared:literal) => {
        View {
            database: None,
            schema: "INFORMATION_SCHEMA",
            name: $name,
            declared: $declared,
            rows: RowOrigin::OfDatabase($rows),
        }
    };
}

macro_rules! older {
    ($database:literal, $name:literal, $rows:expr, $declared:expr) => {
        View {
            database: Some($database),
            schema: "dbo",
            name: $name,
            declared: $declared,
            rows: RowOrigin::Facts($rows),
        }
    };
}

const PROCESSES: &str = "spid smallint, kpid smallint, blocked smallint, waittype binary(2), waittime bigint, \
     lastwaittype nchar(32), waitresource nchar(256), dbid smallint, uid smallint, cpu int, physical_io bigint, \
     memusage int, login_time datetime, last_batch datetime, ecid smallint, open_tran smallint, status nchar(30), \
     sid binary(86), hostname nchar(128), program_name nchar(128), hostprocess nchar(10), cmd nchar(26), \
     nt_domain nchar(128), nt_username nchar(128), net_address nchar(12), net_library nchar(12), \
     loginame nchar(128), context_info binary(128), sql_handle binary(20), stmt_start int, stmt_end int, \
     request_id int";
const ALL_FILES: &str = "fileid smallint, groupid smallint, size int, maxsize int, growth int, status int, perf int, \
     dbid smallint, name nvarchar(128), filename nvarchar(260)";
const FILES: &str = "fileid smallint, groupid smallint, size int, maxsize int, growth int, status int, perf int, \
     name nvarchar(128), filename nvarchar(260)";
const DEVICES: &str = "name nvarchar(128), size int, low int, high int, status smallint, cntrltype smallint, \
     phyname nvarchar(260)";

/// The views of this file.
pub(super) static VIEWS: &[View] = &[
    msdb!(
        "backupmediaset",
        "media_set_id int, media_uuid uniqueidentifier, media_family_count tinyint, name nvarchar(128), \
         description nvarchar(255), software_name nvarchar(128), software_vendor_id int, MTF_major_version tinyint, \
         mirror_count tinyint, is_password_protected bit, is_compressed bit, is_encrypted bit"
    ),
    msdb!(
        "backupmediafamily",
        "media_set_id int, family_sequence_number tinyint, media_family_id uniqueidentifier, media_count int, \
         logical_device_name nvarchar(128), physical_device_name nvarchar(260), device_type tinyint, \
         physical_block_size int, mirror tinyint"
    ),
    msdb!(
        "backupset",
        "backup_set_id int, backup_set_uuid uniqueidentifier, media_set_id int, first_family_number tinyint, \
         first_media_number smallint, last_family_number tinyint, last_media_number smallint, \
         catalog_family_number tinyint, catalog_media_number smallint, position int, expiration_date datetime, \
         software_vendor_id int, name nvarchar(128), description nvarchar(255), user_name nvarchar(128), \
         software_major_version tinyint, software_minor_version tinyint, software_build_version smallint, \
         time_zone smallint, mtf_minor_version tinyint, first_lsn numeric(25,0), last_lsn numeric(25,0), \
         checkpoint_lsn numeric(25,0), database_backup_lsn numeric(25,0), database_creation_date datetime, \
         backup_start_date datetime, backup_finish_date datetime, type char(1), sort_order smallint, \
         code_page smallint, compatibility_level tinyint, database_version int, backup_size numeric(20,0), \
         database_name nvarchar(128), server_name nvarchar(128), machine_name nvarchar(128), flags int, \
         unicode_locale int, unicode_compare_style int, collation_name nvarchar(128), is_password_protected bit, \
         recovery_model nvarchar(60), has_bulk_logged_data bit, is_snapshot bit, is_readonly bit, \
         is_single_user bit, has_backup_checksums bit, is_damaged bit, begins_log_chain bit, \
         has_incomplete_metadata bit, is_force_offline bit, is_copy_only bit, \
         first_recovery_fork_guid uniqueidentifier, last_recovery_fork_guid uniqueidentifier, \
         fork_point_lsn numeric(25,0), database_guid uniqueidentifier, family_guid uniqueidentifier, \
         differential_base_lsn numeric(25,0), differential_base_guid uniqueidentifier, \
         compressed_backup_size numeric(20,0), key_algorithm nvarchar(32), encryptor_thumbprint varbinary(20), \
         encryptor_type nvarchar(32), last_valid_restore_time datetime, compression_algorithm nvarchar(32)"
    ),
    msdb!(
        "backupfile",
        "backup_set_id int, first_family_number tinyint, first_media_number smallint, filegroup_name nvarchar(128), \
         page_size int, file_number numeric(10,0), backed_up_page_count numeric(10,0), file_type char(1), \
         source_file_block_size numeric(10,0), file_size numeric(20,0), logical_name nvarchar(128), \
         physical_drive nvarchar(260), physical_name nvarchar(260), state tinyint, state_desc nvarchar(64), \
         create_lsn numeric(25,0), drop_lsn numeric(25,0), file_guid uniqueidentifier, \
         read_only_lsn numeric(25,0), read_write_lsn numeric(25,0), differential_base_lsn numeric(25,0), \
         differential_base_guid uniqueidentifier, backup_size numeric(20,0), filegroup_guid uniqueidentifier, \
         is_readonly bit, is_present bit"
    ),
    msdb!(
        "restorehistory",
        "restore_history_id int, restore_date datetime, destination_database_name nvarchar(128), \
         user_name nvarchar(128), backup_set_id int, restore_type char(1), replace bit, recovery bit, restart bit, \
         stop_at datetime, device_count tinyint, stop_at_mark_name nvarchar(128), stop_before bit"
    ),
    msdb!(
        "restorefile",
        "restore_history_id int, file_number numeric(10,0), destination_phys_drive nvarchar(260), \
         destination_phys_name nvarchar(260)"
    ),
    sys!(
        "configurations",
        configurations,
        "configuration_id int, name nvarchar(35), value sql_variant, minimum sql_variant, maximum sql_variant, \
         value_in_use sql_variant, description nvarchar(255), is_dynamic bit, is_advanced bit"
    ),
    sys!(
        "dm_server_accelerator_status",
        accelerators,
        "accelerator nvarchar(60), accelerator_desc nvarchar(60), mode_desc nvarchar(60), \
         mode_reason_desc nvarchar(60), accelerator_hardware_detected tinyint, \
         accelerator_library_version nvarchar(60), accelerator_driver_version nvarchar(60)"
    ),
    sys!(
        "databases",
        databases,
        "name nvarchar(128), database_id int, source_database_id int, owner_sid varbinary(85), create_date datetime, \
         compatibility_level tinyint, collation_name nvarchar(128), user_access tinyint, \
         user_access_desc nvarchar(60), is_read_only bit, is_auto_close_on bit, is_auto_shrink_on bit, \
         state tinyint, state_desc nvarchar(60), is_in_standby bit, is_cleanly_shutdown bit, \
         is_supplemental_logging_enabled bit, snapshot_isolation_state tinyint, \
         snapshot_isolation_state_desc nvarchar(60), is_read_committed_snapshot_on bit, recovery_model tinyint, \
         recovery_model_desc nvarchar(60), page_verify_option tinyint, page_verify_option_desc nvarchar(60), \
         is_auto_create_stats_on bit, is_auto_create_stats_incremental_on bit, is_auto_update_stats_on bit, \
         is_auto_update_stats_async_on bit, is_ansi_null_default_on bit, is_ansi_nulls_on bit, is_ansi_padding_on bit, \
         is_ansi_warnings_on bit, is_arithabort_on bit, is_concat_null_yields_null_on bit, \
         is_numeric_roundabort_on bit, is_quoted_identifier_on bit, is_recursive_triggers_on bit, \
         is_cursor_close_on_commit_on bit, is_local_cursor_default bit, is_fulltext_enabled bit, is_trustworthy_on bit, \
         is_db_chaining_on bit, is_parameterization_forced bit, is_master_key_encrypted_by_server bit, \
         is_query_store_on bit, is_published bit, is_subscribed bit, is_merge_published bit, is_distributor bit, \
         is_sync_with_backup bit, service_broker_guid uniqueidentifier, is_broker_enabled bit, \
         log_reuse_wait tinyint, log_reuse_wait_desc nvarchar(60), is_date_correlation_on bit, is_cdc_enabled bit, \
         is_encrypted bit, is_honor_broker_priority_on bit, replica_id uniqueidentifier, \
         group_database_id uniqueidentifier, resource_pool_id int, default_language_lcid smallint, \
         default_language_name nvarchar(128), default_fulltext_language_lcid int, \
         default_fulltext_language_name nvarchar(128), is_nested_triggers_on bit, is_transform_noise_words_on bit, \
         two_digit_year_cutoff smallint, containment tinyint, containment_desc nvarchar(60), \
         target_recovery_time_in_seconds int, delayed_durability int, delayed_durability_desc nvarchar(60), \
         is_memory_optimized_elevate_to_snapshot_on bit, is_federation_member bit, is_remote_data_archive_enabled bit, \
         is_mixed_page_allocation_on bit, is_temporal_history_retention_enabled bit, catalog_collation_type int, \
         catalog_collation_type_desc nvarchar(60), physical_database_name nvarchar(128), \
         is_result_set_caching_on bit, is_accelerated_database_recovery_on bit, is_tempdb_spill_to_remote_store bit, \
         is_stale_page_detection_on bit, is_memory_optimized_enabled bit, is_data_retention_enabled bit, \
         is_ledger_on bit, is_change_feed_enabled bit"
    ),
    facts!(
        "master_files",
        system::master_files,
        "database_id int, file_id int, file_guid uniqueidentifier, type tinyint, type_desc nvarchar(60), \
         data_space_id int, name nvarchar(128), physical_name nvarchar(260), state tinyint, state_desc nvarchar(60), \
         size int, max_size int, growth int, is_media_read_only bit, is_read_only bit, is_sparse bit, \
         is_percent_growth bit, is_name_reserved bit, is_persistent_log_buffer bit, create_lsn numeric(25,0), \
         drop_lsn numeric(25,0), read_only_lsn numeric(25,0), read_write_lsn numeric(25,0), \
         differential_base_lsn numeric(25,0), differential_base_guid uniqueidentifier, \
         differential_base_time datetime, redo_start_lsn numeric(25,0), redo_start_fork_guid uniqueidentifier, \
         redo_target_lsn numeric(25,0), redo_target_fork_guid uniqueidentifier, backup_lsn numeric(25,0), \
         credential_id int"
    ),
    sys!(
        "credentials",
        credentials,
        "credential_id int, name nvarchar(128), credential_identity nvarchar(4000), create_date datetime, \
         modify_date datetime, target_type nvarchar(100), target_id int"
    ),
    sys!(
        "certificates",
        certificates,
        "name nvarchar(128), certificate_id int, principal_id int, pvt_key_encryption_type char(2), \
         pvt_key_encryption_type_desc nvarchar(60), is_active_for_begin_dialog bit, issuer_name nvarchar(442), \
         cert_serial_number nvarchar(64), sid varbinary(85), string_sid nvarchar(128), subject nvarchar(4000), \
         expiry_date datetime, start_date datetime, thumbprint varbinary(32), attested_by nvarchar(260), \
         pvt_key_last_backup_date datetime, key_length int"
    ),
    sys!(
        "symmetric_keys",
        symmetric_keys,
        "name nvarchar(128), principal_id int, symmetric_key_id int, key_length int, key_algorithm char(2), \
         algorithm_desc nvarchar(60), create_date datetime, modify_date datetime, key_guid uniqueidentifier, \
         key_thumbprint varbinary(32), provider_type nvarchar(120), cryptographic_provider_guid uniqueidentifier, \
         cryptographic_provider_algid varbinary(32)"
    ),
    sys!(
        "dm_exec_requests",
        requests,
        "session_id smallint, request_id int, start_time datetime, status nvarchar(30), command nvarchar(32), \
         sql_handle varbinary(64), statement_start_offset int, statement_end_offset int, plan_handle varbinary(64), \
         database_id smallint, user_id int, connection_id uniqueidentifier, blocking_session_id smallint, \
         wait_type nvarchar(60), wait_time int, last_wait_type nvarchar(60), wait_resource nvarchar(256), \
         open_transaction_count int, open_resultset_count int, transaction_id bigint, context_info varbinary(128), \
         percent_complete real, estimated_completion_time bigint, cpu_time int, total_elapsed_time int, \
         scheduler_id int, task_address varbinary(8), reads bigint, writes bigint, logical_reads bigint, \
         text_size int, language nvarchar(128), date_format nvarchar(3), date_first smallint, quoted_identifier bit, \
         arithabort bit, ansi_null_dflt_on bit, ansi_defaults bit, ansi_warnings bit, ansi_padding bit, \
         ansi_nulls bit, concat_null_yields_null bit, transaction_isolation_level smallint, lock_timeout int, \
         deadlock_priority int, row_count bigint, prev_error int, nest_level int, granted_query_memory int, \
         executing_managed_code bit, group_id int, query_hash binary(8), query_plan_hash binary(8), \
         statement_sql_handle varbinary(64), statement_context_id bigint, dop int, parallel_worker_count int, \
         external_script_request_id uniqueidentifier, is_resumable bit, page_resource binary(8), \
         page_server_reads bigint, dist_statement_id uniqueidentifier"
    ),
    sys!(
        "backup_devices",
        backup_devices,
        "name nvarchar(128), type tinyint, type_desc nvarchar(60), physical_name nvarchar(260)"
    ),
    of_database!(
        "objects",
        objects::objects,
        "name nvarchar(128), object_id int, principal_id int, schema_id int, parent_object_id int, type char(2), \
         type_desc nvarchar(60), create_date datetime, modify_date datetime, is_ms_shipped bit, is_published bit, \
         is_schema_published bit"
    ),
    of_database!(
        "procedures",
        objects::procedures,
        "name nvarchar(128), object_id int, principal_id int, schema_id int, parent_object_id int, type char(2), \
         type_desc nvarchar(60), create_date datetime, modify_date datetime, is_ms_shipped bit, is_published bit, \
         is_schema_published bit, is_auto_executed bit, is_execution_replicated bit, \
         is_repl_serializable_only bit, skips_repl_constraints bit"
    ),
    of_database!(
        "tables",
        objects::tables,
        "name nvarchar(128), object_id int, principal_id int, schema_id int, parent_object_id int, type char(2), \
         type_desc nvarchar(60), create_date datetime, modify_date datetime, is_ms_shipped bit, is_published bit, \
         is_schema_published bit, lob_data_space_id int, max_column_id_used int, uses_ansi_nulls bit, \
         temporal_type tinyint, temporal_type_desc nvarchar(60), is_external bit, is_memory_optimized bit"
    ),
    of_database!(
        "sql_modules",
        objects::modules,
        "object_id int, definition nvarchar(4000), uses_ansi_nulls bit, uses_quoted_identifier bit, \
         is_schema_bound bit, uses_database_collation bit, is_recompiled bit, null_on_null_input bit, \
         execute_as_principal_id int, uses_native_compilation bit"
    ),
    of_database!(
        "schemas",
        objects::schemas,
        "name nvarchar(128), schema_id int, principal_id int"
    ),
    facts!(
        "database_files",
        system::files,
        "file_id int, file_guid uniqueidentifier, type tinyint, type_desc nvarchar(60), data_space_id int, \
         name nvarchar(128), physical_name nvarchar(260), state tinyint, state_desc nvarchar(60), size int, \
         max_size int, growth int, is_media_read_only bit, is_read_only bit, is_sparse bit, is_percent_growth bit"
    ),
    of_database!(
        "parameters",
        objects::parameters,
        "object_id int, name nvarchar(128), parameter_id int, system_type_id tinyint, user_type_id int, \
         max_length smallint, precision tinyint, scale tinyint, is_output bit, has_default_value bit"
    ),
    of_database!(
        "triggers",
        objects::nothing,
        "name nvarchar(128), object_id int, parent_class tinyint, parent_id int, type char(2), is_disabled bit"
    ),
    of_database!(
        "views",
        objects::views,
        "name nvarchar(128), object_id int, principal_id int, schema_id int, parent_object_id int, type char(2), \
         type_desc nvarchar(60), create_date datetime, modify_date datetime, is_ms_shipped bit, is_published bit, \
         is_schema_published bit"
    ),
    facts!(
        "database_principals",
        principals::of_database,
        "name nvarchar(128), principal_id int, type char(1), type_desc nvarchar(60), default_schema_name nvarchar(128), \
         create_date datetime, modify_date datetime, owning_principal_id int, sid varbinary(85), is_fixed_role bit, \
         authentication_type int, authentication_type_desc nvarchar(60), default_language_name nvarchar(128), \
         default_language_lcid int, allow_encrypted_value_modifications bit"
    ),
    facts!(
        "filegroups",
        principals::filegroups,
        "name nvarchar(128), data_space_id int, type char(2), type_desc nvarchar(60), is_default bit, is_read_only bit"
    ),
    of_database!(
        "dm_os_host_info",
        objects::host,
        "host_platform nvarchar(256), host_distribution nvarchar(256), host_release nvarchar(256), \
         host_service_pack_level nvarchar(256), host_sku int, os_language_version int"
    ),
    facts!(
        "dm_exec_sessions",
        system::sessions,
        "session_id smallint, login_time datetime, host_name nvarchar(128), program_name nvarchar(128), \
         host_process_id int, client_version int, client_interface_name nvarchar(32), security_id varbinary(85), \
         login_name nvarchar(128), nt_domain nvarchar(128), nt_user_name nvarchar(128), status nvarchar(30), \
         context_info varbinary(128), cpu_time int, memory_usage int, total_scheduled_time int, \
         total_elapsed_time int, endpoint_id int, last_request_start_time datetime, last_request_end_time datetime, \
         reads bigint, writes bigint, logical_reads bigint, is_user_process bit, text_size int, \
         language nvarchar(128), date_format nvarchar(3), date_first smallint, transaction_isolation_level smallint, \
         lock_timeout int, deadlock_priority int, row_count bigint, prev_error int, original_security_id varbinary(85), \
         original_login_name nvarchar(128), last_successful_logon datetime, last_unsuccessful_logon datetime, \
         unsuccessful_logons bigint, group_id int, database_id smallint, authenticating_database_id int, \
         open_transaction_count int, contained_availability_group_id uniqueidentifier"
    ),
    facts!(
        "dm_exec_connections",
        system::connections,
        "session_id int, most_recent_session_id int, connect_time datetime, net_transport nvarchar(40), \
         protocol_type nvarchar(40), protocol_version int, endpoint_id int, encrypt_option nvarchar(40), \
         auth_scheme nvarchar(40), node_affinity smallint, num_reads int, num_writes int, last_read datetime, \
         last_write datetime, net_packet_size int, client_net_address varchar(48), client_tcp_port int, \
         local_net_address varchar(48), local_tcp_port int, connection_id uniqueidentifier, \
         parent_connection_id uniqueidentifier, most_recent_sql_handle varbinary(64)"
    ),
    facts!(
        "dm_os_sys_memory",
        system::memory,
        "total_physical_memory_kb bigint, available_physical_memory_kb bigint, total_page_file_kb bigint, \
         available_page_file_kb bigint, system_cache_kb bigint, kernel_paged_pool_kb bigint, \
         kernel_nonpaged_pool_kb bigint, system_high_memory_signal_state bit, system_low_memory_signal_state bit, \
         system_memory_state_desc nvarchar(256)"
    ),
    facts!(
        "dm_os_sys_info",
        system::machine,
        "cpu_ticks bigint, ms_ticks bigint, cpu_count int, hyperthread_ratio int, physical_memory_kb bigint, \
         virtual_memory_kb bigint, committed_kb bigint, committed_target_kb bigint, scheduler_count int, \
         sqlserver_start_time datetime, virtual_machine_type int, virtual_machine_type_desc nvarchar(60), \
         socket_count int, cores_per_socket int, numa_node_count int"
    ),
    facts!(
        "dm_server_services",
        system::services,
        "servicename nvarchar(256), startup_type int, startup_type_desc nvarchar(256), status int, \
         status_desc nvarchar(256), process_id int, last_startup_time datetimeoffset(7), \
         service_account nvarchar(256), filename nvarchar(256), is_clustered nvarchar(1), \
         cluster_nodename nvarchar(256), instant_file_initialization_enabled nvarchar(1)"
    ),
    facts!(
        "dm_os_performance_counters",
        system::counters,
        "object_name nchar(128), counter_name nchar(128), instance_name nchar(128), cntr_value bigint, cntr_type int"
    ),
    facts!(
        "partitions",
        system::partitions,
        "partition_id bigint, object_id int, index_id int, partition_number int, hobt_id bigint, rows bigint, \
         filestream_filegroup_id smallint, data_compression tinyint, data_compression_desc nvarchar(60)"
    ),
    facts!(
        "allocation_units",
        system::allocation_units,
        "allocation_unit_id bigint, type tinyint, type_desc nvarchar(60), container_id bigint, data_space_id int, \
         total_pages bigint, used_pages bigint, data_pages bigint"
    ),
    facts!(
        "dm_db_partition_stats",
        system::partition_stats,
        "partition_id bigint, object_id int, index_id int, partition_number int, in_row_data_page_count bigint, \
         in_row_used_page_count bigint, in_row_reserved_page_count bigint, lob_used_page_count bigint, \
         lob_reserved_page_count bigint, row_overflow_used_page_count bigint, row_overflow_reserved_page_count bigint, \
         used_page_count bigint, reserved_page_count bigint, row_count bigint"
    ),
    of_database!(
        "dm_tran_locks",
        objects::nothing,
        "resource_type nvarchar(60), resource_subtype nvarchar(60), resource_database_id int, \
         resource_description nvarchar(256), resource_associated_entity_id bigint, request_mode nvarchar(60), \
         request_type nvarchar(60), request_status nvarchar(60), request_session_id int, request_owner_type nvarchar(60)"
    ),
    of_database!(
        "dm_os_wait_stats",
        objects::nothing,
        "wait_type nvarchar(60), waiting_tasks_count bigint, wait_time_ms bigint, max_wait_time_ms bigint, \
         signal_wait_time_ms bigint"
    ),
    of_database!(
        "dm_os_waiting_tasks",
        objects::nothing,
        "session_id smallint, exec_context_id int, wait_duration_ms bigint, wait_type nvarchar(60), \
         blocking_session_id smallint, resource_description nvarchar(3072)"
    ),
    schema!(
        "TABLES",
        objects::schema_tables,
        "TABLE_CATALOG nvarchar(128), TABLE_SCHEMA nvarchar(128), TABLE_NAME nvarchar(128), TABLE_TYPE varchar(10)"
    ),
    schema!(
        "VIEWS",
        objects::schema_views,
        "TABLE_CATALOG nvarchar(128), TABLE_SCHEMA nvarchar(128), TABLE_NAME nvarchar(128), \
         VIEW_DEFINITION nvarchar(4000), CHECK_OPTION varchar(7), IS_UPDATABLE varchar(2)"
    ),
    schema!(
        "ROUTINES",
        objects::schema_routines,
        "SPECIFIC_CATALOG nvarchar(128), SPECIFIC_SCHEMA nvarchar(128), SPECIFIC_NAME nvarchar(128), \
         ROUTINE_CATALOG nvarchar(128), ROUTINE_SCHEMA nvarchar(128), ROUTINE_NAME nvarchar(128), \
         ROUTINE_TYPE nvarchar(20), ROUTINE_DEFINITION nvarchar(4000), CREATED datetime, LAST_ALTERED datetime"
    ),
    of_database!(
        "dm_hadr_database_replica_states",
        objects::nothing,
        "database_id int, group_id uniqueidentifier, replica_id uniqueidentifier, group_database_id uniqueidentifier, \
         is_local bit, is_primary_replica bit, synchronization_state tinyint, synchronization_state_desc nvarchar(60), \
         synchronization_health tinyint, synchronization_health_desc nvarchar(60), database_state tinyint, \
         is_suspended bit"
    ),
    of_database!(
        "dm_hadr_availability_replica_states",
        objects::nothing,
        "replica_id uniqueidentifier, group_id uniqueidentifier, is_local bit, role tinyint, role_desc nvarchar(60), \
         operational_state tinyint, connected_state tinyint, synchronization_health tinyint"
    ),
    of_database!(
        "availability_groups",
        objects::nothing,
        "group_id uniqueidentifier, name nvarchar(128), resource_id nvarchar(40), \
         automated_backup_preference tinyint, automated_backup_preference_desc nvarchar(60), is_distributed bit, \
         is_contained bit"
    ),
    of_database!(
        "availability_replicas",
        objects::nothing,
        "replica_id uniqueidentifier, group_id uniqueidentifier, replica_server_name nvarchar(256), \
         endpoint_url nvarchar(256), availability_mode tinyint, failover_mode tinyint, \
         secondary_role_allow_connections tinyint, secondary_role_allow_connections_desc nvarchar(60)"
    ),
    of_database!(
        "availability_databases_cluster",
        objects::nothing,
        "group_id uniqueidentifier, group_database_id uniqueidentifier, database_name nvarchar(128)"
    ),
    of_database!(
        "dm_hadr_cluster",
        objects::nothing,
        "cluster_name nvarchar(128), quorum_type tinyint, quorum_type_desc nvarchar(60), quorum_state tinyint"
    ),
    of_database!(
        "dm_hadr_physical_seeding_stats",
        objects::nothing,
        "local_physical_seeding_id uniqueidentifier, remote_physical_seeding_id uniqueidentifier, \
         local_database_id int, local_database_name nvarchar(128), internal_state_desc nvarchar(60), \
         start_time_utc datetime, end_time_utc datetime"
    ),
    of_database!(
        "database_mirroring",
        objects::mirroring,
        "database_id int, mirroring_guid uniqueidentifier, mirroring_state tinyint, mirroring_state_desc nvarchar(60), \
         mirroring_role tinyint, mirroring_role_desc nvarchar(60), mirroring_partner_name nvarchar(128), \
         mirroring_partner_instance nvarchar(128)"
    ),
    facts!(
        "database_recovery_status",
        system::recovery_status,
        "database_id int, database_guid uniqueidentifier, family_guid uniqueidentifier, \
         last_log_backup_lsn numeric(25,0), recovery_fork_guid uniqueidentifier, \
         first_recovery_fork_guid uniqueidentifier, fork_point_lsn numeric(25,0)"
    ),
    of_database!(
        "dm_db_file_space_usage",
        objects::nothing,
        "database_id smallint, file_id smallint, filegroup_id smallint, total_page_count bigint, \
         allocated_extent_page_count bigint, unallocated_extent_page_count bigint, modified_extent_page_count bigint"
    ),
    of_database!(
        "dm_database_encryption_keys",
        objects::nothing,
        "database_id int, encryption_state int, create_date datetime, key_algorithm nvarchar(32), key_length int, \
         encryptor_thumbprint varbinary(20), encryptor_type nvarchar(32), percent_complete real"
    ),
    of_database!(
        "asymmetric_keys",
        objects::nothing,
        "name nvarchar(128), principal_id int, asymmetric_key_id int, algorithm_desc nvarchar(60), key_length int, \
         thumbprint varbinary(32)"
    ),
    facts!(
        "server_principals",
        principals::of_server,
        "name nvarchar(128), principal_id int, sid varbinary(85), type char(1), type_desc nvarchar(60), \
         is_disabled bit, create_date datetime, modify_date datetime, default_database_name nvarchar(128)"
    ),
    of_database!(
        "sysobjects",
        objects::sysobjects,
        "name nvarchar(128), id int, xtype char(2), uid smallint, parent_obj int, crdate datetime, type char(2)"
    ),
    View {
        database: None,
        schema: "dbo",
        name: "sysobjects",
        declared: "name nvarchar(128), id int, xtype char(2), uid smallint, parent_obj int, crdate datetime, type char(2)",
        rows: RowOrigin::OfDatabase(objects::sysobjects),
    },
    View {
        database: Some("master"),
        schema: "dbo",
        name: "sysdatabases",
        declared: "name nvarchar(128), dbid smallint, sid varbinary(85), mode smallint, status int, crdate datetime, \
                   cmptlevel tinyint, filename nvarchar(260), version smallint",
        rows: RowOrigin::OfDatabase(sysdatabases),
    },
    of_database!(
        "sysdatabases",
        sysdatabases,
        "name nvarchar(128), dbid smallint, sid varbinary(85), mode smallint, status int, crdate datetime, \
         cmptlevel tinyint, filename nvarchar(260), version smallint"
    ),
    facts!("sysprocesses", system::processes, PROCESSES),
    older!("master", "sysprocesses", system::processes, PROCESSES),
    facts!("sysaltfiles", system::all_files, ALL_FILES),
    older!("master", "sysaltfiles", system::all_files, ALL_FILES),
    facts!("sysdevices", system::devices, DEVICES),
    older!("master", "sysdevices", system::devices, DEVICES),
    facts!("sysfiles", system::own_files, FILES),
    View {
        database: None,
        schema: "dbo",
        name: "sysfiles",
        declared: FILES,
        rows: RowOrigin::Facts(system::own_files),
    },
    nothing_of_msdb!(
        "logmarkhistory",
        "database_name nvarchar(128), mark_name nvarchar(128), description nvarchar(255), user_name nvarchar(128), \
         lsn numeric(25,0), mark_time datetime"
    ),
    nothing_of_msdb!(
        "backupfilegroup",
        "backup_set_id int, name nvarchar(128), filegroup_id int, filegroup_guid uniqueidentifier, type char(2), \
         type_desc nvarchar(60), is_default bit, is_readonly bit, log_filegroup_guid uniqueidentifier"
    ),
    nothing_of_msdb!(
        "restorefilegroup",
        "restore_history_id int, filegroup_name nvarchar(128)"
    ),
    nothing_of_msdb!(
        "suspect_pages",
        "database_id int, file_id int, page_id bigint, event_type int, error_count int, last_update_date datetime"
    ),
    nothing_of_msdb!(
        "sysjobs",
        "job_id uniqueidentifier, originating_server_id int, name nvarchar(128), enabled tinyint, \
         description nvarchar(512), start_step_id int, category_id int, owner_sid varbinary(85), \
         notify_level_eventlog int, notify_level_email int, notify_email_operator_id int, delete_level int, \
         date_created datetime, date_modified datetime, version_number int"
    ),
    nothing_of_msdb!(
        "sysjobhistory",
        "instance_id int, job_id uniqueidentifier, step_id int, step_name nvarchar(128), sql_message_id int, \
         sql_severity int, message nvarchar(4000), run_status int, run_date int, run_time int, run_duration int, \
         operator_id_emailed int, operator_id_netsent int, operator_id_paged int, retries_attempted int, \
         server nvarchar(128)"
    ),
    nothing_of_msdb!(
        "sysjobsteps",
        "job_id uniqueidentifier, step_id int, step_name nvarchar(128), subsystem nvarchar(40), \
         command nvarchar(4000), flags int, on_success_action tinyint, on_success_step_id int, \
         on_fail_action tinyint, on_fail_step_id int, server nvarchar(128), database_name nvarchar(128), \
         database_user_name nvarchar(128), retry_attempts int, retry_interval int, output_file_name nvarchar(200), \
         last_run_outcome int, last_run_duration int, last_run_date int, last_run_time int, step_uid uniqueidentifier"
    ),
    nothing_of_msdb!(
        "sysjobactivity",
        "session_id int, job_id uniqueidentifier, run_requested_date datetime, run_requested_source nvarchar(128), \
         queued_date datetime, start_execution_date datetime, last_executed_step_id int, \
         last_executed_step_date datetime, stop_execution_date datetime, job_history_id int, \
         next_scheduled_run_date datetime"
    ),
    nothing_of_msdb!(
        "sysjobschedules",
        "schedule_id int, job_id uniqueidentifier, next_run_date int, next_run_time int"
    ),
    nothing_of_msdb!(
        "sysschedules",
        "schedule_id int, name nvarchar(128), enabled int, freq_type int, freq_interval int, \
         freq_subday_type int, freq_subday_interval int, active_start_date int, active_start_time int"
    ),
    nothing_of_msdb!(
        "sysjobservers",
        "job_id uniqueidentifier, server_id int, last_run_outcome tinyint, last_outcome_message nvarchar(4000), \
         last_run_date int, last_run_time int, last_run_duration int"
    ),
    nothing_of_msdb!(
        "syscategories",
        "category_id int, category_class int, category_type tinyint, name nvarchar(128)"
    ),
    nothing_of_msdb!(
        "sysoperators",
        "id int, name nvarchar(128), enabled tinyint, email_address nvarchar(100), last_email_date int"
    ),
    nothing_of_msdb!(
        "sysmail_profile",
        "profile_id int, name nvarchar(128), description nvarchar(256), last_mod_datetime datetime"
    ),
    nothing_of_msdb!(
        "sysmaintplan_subplans",
        "subplan_id uniqueidentifier, subplan_name nvarchar(128), plan_id uniqueidentifier, job_id uniqueidentifier"
    ),
    nothing_of_msdb!(
        "sysmaintplan_log",
        "task_detail_id uniqueidentifier, plan_id uniqueidentifier, subplan_id uniqueidentifier, \
         start_time datetime, end_time datetime, succeeded bit"
    ),
    nothing_of_msdb!(
        "sysmaintplan_plans",
        "id uniqueidentifier, name nvarchar(128), create_date datetime, description nvarchar(512), owner nvarchar(128)"
    ),
    nothing_of_msdb!(
        "log_shipping_primary_databases",
        "primary_id uniqueidentifier, primary_database nvarchar(128), backup_directory nvarchar(500), \
         backup_share nvarchar(500), backup_retention_period int, last_backup_file nvarchar(500), \
         last_backup_date datetime"
    ),
    nothing_of_msdb!(
        "log_shipping_secondary_databases",
        "secondary_database nvarchar(128), secondary_id uniqueidentifier, restore_delay int, restore_all bit, \
         restore_mode bit, last_restored_file nvarchar(500), last_restored_date datetime"
    ),
    nothing_of_msdb!(
        "log_shipping_monitor_primary",
        "primary_id uniqueidentifier, primary_server nvarchar(128), primary_database nvarchar(128), \
         backup_threshold int, threshold_alert int, threshold_alert_enabled bit, last_backup_file nvarchar(500), \
         last_backup_date datetime, last_backup_date_utc datetime, history_retention_period int"
    ),
    nothing_of_msdb!(
        "log_shipping_monitor_secondary",
        "secondary_server nvarchar(128), secondary_database nvarchar(128), secondary_id uniqueidentifier, \
         primary_server nvarchar(128), primary_database nvarchar(128), restore_threshold int, threshold_alert int, \
         threshold_alert_enabled bit, last_copied_file nvarchar(500), last_copied_date datetime, \
         last_restored_file nvarchar(500), last_restored_date datetime, last_restored_latency int"
    ),
    nothing_of_msdb!("syssessions", "session_id int, agent_start_date datetime"),
    sys!(
        "messages",
        messages,
        "message_id int, language_id smallint, severity tinyint, is_event_logged bit, text nvarchar(2048)"
    ),
];

/// Numbers and descriptions of settings in `sys.configurations`.
const CONFIGURATIONS: &[(&str, i64, &str)] = &[
    (
        "backup checksum default",
        1584,
        "Enable checksum of backups by default",
    ),
    (
        "backup compression algorithm",
        1593,
        "Configure default backup compression algorithm",
    ),
    (
        "backup compression default",
        1579,
        "Enable compression of backups by default",
    ),
    (
        "hardware offload enabled",
        1592,
        "Enable hardware offloading on the server",
    ),
    ("media retention", 112, "Media retention period in days"),
    ("show advanced options", 518, "show advanced options"),
];

fn configurations(server: &Server) -> Result<Vec<Vec<Value>>, Message> {
    let rows = settings(server)?;
    let row = |(name, id, description): &(&str, i64, &str)| {
        let row = rows.iter().find(|r| r.name == *name)?;
        Some(vec![
            Value::Int(*id),
            Value::text(row.name),
            Value::Int(row.value),
            Value::Int(row.minimum),
            Value::Int(row.maximum),
            Value::Int(row.value_in_use),
            Value::text(*description),
            Value::bit(row.is_dynamic),
            Value::bit(row.is_advanced),
        ])
    };
    let all = CONFIGURATIONS.iter().filter_map(row);
    Ok(all.chain(options::absent()).collect())
}

fn accelerators(server: &Server) -> Result<Vec<Vec<Value>>, Message> {
    let context = &server.setup.context;
    let configured = configured(&*context.storage, context.catalog.as_deref())
        .map_err(|e| message::OWN.with(&[&e]))?;
    let probes = (server.setup.prober)(configured);
    let optional = |text: Option<String>| text.map_or(Value::Null, Value::Text);
    let row = |status: AcceleratorStatus| {
        vec![
            Value::Text(status.accelerator),
            Value::Text(status.accelerator_desc),
            Value::text(status.mode_desc),
            Value::Text(status.mode_reason_desc),
            Value::Int(status.accelerator_hardware_detected.into()),
            optional(status.accelerator_library_version),
            optional(status.accelerator_driver_version),
        ]
    };
    Ok(status(configured, &probes).into_iter().map(row).collect())
}

/// The names of all databases, SQL Server's own first.
pub(crate) fn database_names(server: &Server) -> Vec<String> {
    let own = SYSTEM_DATABASES.iter().map(|name| (*name).to_owned());
    own.chain(server.database_names()).collect()
}

/// Rows of one of these views that have a value for some of its columns and NULL for all others.
fn filled(view: &str, rows: impl Iterator<Item = Facts>) -> Vec<Vec<Value>> {
    let found = VIEWS.iter().find(|v| v.name == view);
    let columns = found.map_or_else(Vec::new, View::columns);
    rows.map(|facts| super::view::filled(&columns, facts))
        .collect()
}

/// Properties of all databases that are as this language is.
const ON: &[&str] = &[
    "is_ansi_null_default_on",
    "is_ansi_nulls_on",
    "is_ansi_padding_on",
    "is_ansi_warnings_on",
    "is_arithabort_on",
    "is_concat_null_yields_null_on",
    "is_quoted_identifier_on",
];

/// Properties that no database has: nothing here does what they tell of.
const OFF: &[&str] = &[
    "is_accelerated_database_recovery_on",
    "is_auto_close_on",
    "is_auto_create_stats_incremental_on",
    "is_auto_create_stats_on",
    "is_auto_shrink_on",
    "is_auto_update_stats_async_on",
    "is_auto_update_stats_on",
    "is_broker_enabled",
    "is_cdc_enabled",
    "is_change_feed_enabled",
    "is_cleanly_shutdown",
    "is_cursor_close_on_commit_on",
    "is_data_retention_enabled",
    "is_date_correlation_on",
    "is_db_chaining_on",
    "is_distributor",
    "is_encrypted",
    "is_federation_member",
    "is_fulltext_enabled",
    "is_honor_broker_priority_on",
    "is_in_standby",
    "is_ledger_on",
    "is_local_cursor_default",
    "is_memory_optimized_elevate_to_snapshot_on",
    "is_memory_optimized_enabled",
    "is_merge_published",
    "is_mixed_page_allocation_on",
    "is_numeric_roundabort_on",
    "is_parameterization_forced",
    "is_published",
    "is_query_store_on",
    "is_read_committed_snapshot_on",
    "is_read_only",
    "is_recursive_triggers_on",
    "is_remote_data_archive_enabled",
    "is_result_set_caching_on",
    "is_stale_page_detection_on",
    "is_subscribed",
    "is_supplemental_logging_enabled",
    "is_sync_with_backup",
    "is_temporal_history_retention_enabled",
    "is_tempdb_spill_to_remote_store",
    "is_trustworthy_on",
];

/// The moment of a database of which nothing is known: no script takes it for new.
pub(crate) const LONG_AGO: DateTime = jiff::civil::datetime(1900, 1, 1, 0, 0, 0, 0);

/// SQL Server's database of temporary tables: its number and name.
const TEMPDB: (i64, &str) = (2, "tempdb");

/// Databases that statements can back up; master, since maintenance solutions run commands from it, if it is there; and tempdb,
/// which tells when the server was started. SQL Server's other own databases are not listed: scripts would back them up.
fn databases(server: &Server) -> Result<Vec<Vec<Value>>, Message> {
    // Only master has a master key here.
    let is_sealed = |id: i64| match server.keys.rows() {
        _ if id != 1 => Value::bit(false),
        Ok(keys) => Value::bit(keys.master.is_some_and(|key| key.by_service.is_some())),
        // An answer that cannot be read keeps nobody from the other columns.
        Err(_) => Value::Null,
    };
    let first = match server.known_catalog() {
        Some(_) => {
            let all = server.catalog()?.first_backups();
            all.map_err(|e| message::OWN.with(&[&e]))?
        }
        None => Vec::new(),
    };
    let row = |(id, name): (i64, String)| {
        // Where nobody tells when it was made, the first backup is the first that is known of it.
        let known = first.iter().find(|(known, _)| *known == name);
        let backed_up = || known.map(|(_, at)| date_of(Some(at.as_str())));
        let created = match id == TEMPDB.0 {
            // A start makes it.
            true => Some(Value::DateTime(server.started)),
            false => system::created(server, &name).map(Value::DateTime),
        };
        let created = created
            .or_else(backed_up)
            .unwrap_or(Value::DateTime(LONG_AGO));
        let restoring = server.kept.sequence(&name).is_some();
        let (state, state_desc) = match server.database(&name) {
            _ if id < DATABASE_FIRST => (0, "ONLINE"),
            _ if restoring => (1, "RESTORING"),
            Ok(Some(_)) => (0, "ONLINE"),
            Ok(None) | Err(_) => (6, "OFFLINE"),
        };
        let (model, model_desc) = match server.is_logged(&name) {
            true => (1, "FULL"),
            false => (3, "SIMPLE"),
        };
        let log_waits = match model {
            1 => (Value::Null, Value::Null),
            _ => (Value::Int(0), Value::text("NOTHING")),
        };
        let mut row = vec![
            ("physical_database_name", Value::text(name.as_str())),
            ("name", Value::Text(name)),
            ("database_id", Value::Int(id)),
            ("create_date", created),
            ("compatibility_level", Value::Int(160)),
            ("user_access", Value::Int(0)),
            ("user_access_desc", Value::text("MULTI_USER")),
            ("owner_sid", Value::Binary(vec![1])),
            ("collation_name", Value::text(collation::SERVER)),
            ("snapshot_isolation_state", Value::Int(0)),
            ("snapshot_isolation_state_desc", Value::text("OFF")),
            ("log_reuse_wait", log_waits.0),
            ("log_reuse_wait_desc", log_waits.1),
            ("target_recovery_time_in_seconds", Value::Int(0)),
            ("delayed_durability", Value::Int(0)),
            ("delayed_durability_desc", Value::text("DISABLED")),
            ("catalog_collation_type", Value::Int(0)),
            (
                "catalog_collation_type_desc",
                Value::text("DATABASE_DEFAULT"),
            ),
            ("state", Value::Int(state)),
            ("state_desc", Value::text(state_desc)),
            ("recovery_model", Value::Int(model)),
            ("recovery_model_desc", Value::text(model_desc)),
            ("page_verify_option", Value::Int(2)),
            ("page_verify_option_desc", Value::text("CHECKSUM")),
            ("containment", Value::Int(0)),
            ("containment_desc", Value::text("NONE")),
            ("is_master_key_encrypted_by_server", is_sealed(id)),
        ];
        row.extend(ON.iter().map(|name| (*name, Value::bit(true))));
        row.extend(OFF.iter().map(|name| (*name, Value::bit(false))));
        row
    };
    let names = server.database_names().into_iter();
    let others = names.enumerate();
    let others = others.map(|(i, name)| (i as i64 + DATABASE_FIRST, name));
    let own = [(1, FIRST_DATABASE), (TEMPDB.0, TEMPDB.1)];
    let own = own.map(|(id, name)| (id, name.to_owned()));
    let all = own.into_iter().chain(others);
    Ok(filled("databases", all.map(row)))
}

/// The same databases in an older form.
fn sysdatabases(server: &Server, _: &str) -> Result<Vec<Vec<Value>>, Message> {
    let row = |row: Vec<Value>| {
        // `name`, `database_id`, `source_database_id`, `owner_sid`, `create_date`.
        let created = row.get(4).cloned().unwrap_or(Value::Null);
        let mut first = row.into_iter();
        let name = first.next().unwrap_or(Value::Null);
        let id = first.next().unwrap_or(Value::Null);
        let (none, level) = (Value::Null, Value::Int(160));
        vec![
            name,
            id,
            none.clone(),
            Value::Int(0),
            Value::Int(0),
            created,
            level,
            none.clone(),
            none,
        ]
    };
    Ok(databases(server)?.into_iter().map(row).collect())
}

fn requests(server: &Server) -> Result<Vec<Vec<Value>>, Message> {
    let now = server.now();
    let activities = server.activities.lock().clone();
    let waits = server.lock_waits();
    let row = |(id, activity): (u32, crate::server::Activity)| {
        let wait = waits.get(&id);
        let kind = wait.map_or(Value::Null, |wait| Value::text(wait.kind));
        let status = if wait.is_some() {
            "suspended"
        } else {
            "running"
        };
        let (blocker, waited) = wait.map_or((0, 0), |wait| (wait.blocker.into(), wait.waited));
        let part = super::moment::DatePart::Millisecond;
        let elapsed = super::moment::difference(part, activity.start, now).max(0);
        let percent = i64::from(activity.percent.unwrap_or(0));
        let left = match percent {
            0 => 0,
            percent => elapsed * (100 - percent) / percent,
        };
        let database = database_id(server, &activity.database);
        let database = database.or_else(|| database_id(server, FIRST_DATABASE));
        vec![
            ("session_id", Value::Int(id.into())),
            ("request_id", Value::Int(0)),
            ("start_time", Value::DateTime(activity.start)),
            ("status", Value::text(status)),
            ("command", Value::text(activity.command)),
            ("sql_handle", Value::Binary(id.to_be_bytes().into())),
            // The text of `dm_exec_sql_text` is that of the statement alone.
            ("statement_start_offset", Value::Int(0)),
            ("statement_end_offset", Value::Int(-1)),
            ("database_id", database.map_or(Value::Null, Value::Int)),
            ("blocking_session_id", Value::Int(blocker)),
            ("wait_type", kind.clone()),
            ("wait_time", Value::Int(waited.min(i64::from(i32::MAX)))),
            ("last_wait_type", kind),
            ("percent_complete", Value::Float(percent as f64)),
            ("estimated_completion_time", Value::Int(left)),
            (
                "total_elapsed_time",
                Value::Int(elapsed.min(i64::from(i32::MAX))),
            ),
        ]
    };
    Ok(filled("dm_exec_requests", activities.into_iter().map(row)))
}

/// Nothing of a secret.
fn credentials(server: &Server) -> Result<Vec<Vec<Value>>, Message> {
    let row = |credential: crate::server::CredentialRow| {
        vec![
            Value::Int(credential.id),
            Value::Text(credential.name),
            Value::Text(credential.identity),
            Value::DateTime(credential.created),
            Value::DateTime(credential.changed),
            Value::Null,
            Value::Int(0),
        ]
    };
    let all = server.kept.credentials();
    Ok(all.into_iter().map(row).collect())
}

/// Nothing of a private key.
fn certificates(server: &Server) -> Result<Vec<Vec<Value>>, Message> {
    let date = |unix_s: i64| {
        let begin = jiff::civil::DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
        match begin.checked_add(jiff::SignedDuration::from_secs(unix_s)) {
            Ok(at) => Value::DateTime(at),
            Err(_) => Value::Null,
        }
    };
    let row = |kept: &KeptCertificate| {
        let certificate = &kept.certificate;
        let (code, words) = match kept.kept_by() {
            KeptBy::Nobody => ("NA", "NO_PRIVATE_KEY"),
            KeptBy::MasterKey => ("MK", "ENCRYPTED_BY_MASTER_KEY"),
            KeptBy::Password => ("PW", "ENCRYPTED_BY_PASSWORD"),
        };
        let serial = certificate.serial.iter().map(|byte| format!("{byte:02x}"));
        let bits = certificate.public().bits() as i64;
        vec![
            ("name", Value::text(&kept.name)),
            ("certificate_id", kept.id.map_or(Value::Null, Value::Int)),
            ("principal_id", Value::Int(1)),
            ("pvt_key_encryption_type", Value::text(code)),
            ("pvt_key_encryption_type_desc", Value::text(words)),
            ("is_active_for_begin_dialog", Value::bit(false)),
            ("issuer_name", Value::text(&certificate.issuer)),
            ("cert_serial_number", Value::Text(serial.collect())),
            ("subject", Value::text(&certificate.subject)),
            ("expiry_date", date(certificate.expiry_s)),
            ("start_date", date(certificate.start_s)),
            (
                "thumbprint",
                Value::Binary(certificate.thumbprint().to_vec()),
            ),
            (
                "pvt_key_last_backup_date",
                date_of(kept.backed_up.as_deref()),
            ),
            ("key_length", Value::Int(bits)),
        ]
    };
    let keys = server.keys.rows()?;
    Ok(filled("certificates", keys.certificates.iter().map(row)))
}

/// A date as the catalog has it.
fn date_of(text: Option<&str>) -> Value {
    let found = text.and_then(parse_moment);
    found.map_or(Value::Null, |(at, _)| Value::DateTime(at))
}

/// The master key, and the service key if it is there. Nothing of a key.
fn symmetric_keys(server: &Server) -> Result<Vec<Vec<Value>>, Message> {
    let row = |name: &str, number: i64, more: Vec<(&'static str, Value)>| {
        let mut values = vec![
            ("name", Value::text(name)),
            ("principal_id", Value::Int(1)),
            ("symmetric_key_id", Value::Int(number)),
            ("key_length", Value::Int(256)),
            ("key_algorithm", Value::text("A3")),
            ("algorithm_desc", Value::text("AES_256")),
        ];
        values.extend(more);
        values
    };
    let mut rows = Vec::new();
    if let Some(master) = server.keys.rows()?.master {
        let guid = uuid::Uuid::try_parse(&master.guid);
        let more = vec![
            ("create_date", date_of(Some(&master.created))),
            ("modify_date", date_of(Some(&master.changed))),
            ("key_guid", guid.map_or(Value::Null, Value::Guid)),
        ];
        rows.push(row("##MS_DatabaseMasterKey##", 101, more));
    }
    if server.keys.has_service_key() {
        rows.push(row("##MS_ServiceMasterKey##", 102, Vec::new()));
    }
    Ok(filled("symmetric_keys", rows.into_iter()))
}

fn backup_devices(server: &Server) -> Result<Vec<Vec<Value>>, Message> {
    let row = |(name, path): (String, std::path::PathBuf)| {
        vec![
            Value::Text(name),
            Value::Int(2),
            Value::text("DISK"),
            Value::text(path.display().to_string()),
        ]
    };
    let devices = server.kept.devices();
    Ok(devices.into_iter().map(row).collect())
}

fn messages(_server: &Server) -> Result<Vec<Vec<Value>>, Message> {
    const US_ENGLISH: i64 = 1033;
    let row = |known: &message::MessageTemplate| {
        vec![
            Value::Int(known.number.into()),
            Value::Int(US_ENGLISH),
            Value::Int(known.severity.into()),
            Value::bit(false),
            Value::text(known.pattern.replace("{}", "%ls")),
        ]
    };
    Ok(message::ALL.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Type;

    #[test]
    fn the_catalog_has_an_index_of_each_column_that_is_said_to_have_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalog.db");
        drop(longshore_catalog::Catalog::open(&path).unwrap());
        let db = rusqlite::Connection::open(&path).unwrap();
        for view in VIEWS
            .iter()
            .filter(|v| matches!(v.rows, RowOrigin::Catalog))
        {
            for column in view.columns().iter().filter(|c| has_index(view, &c.name)) {
                let sql = format!(
                    "EXPLAIN QUERY PLAN SELECT 1 FROM {} WHERE {} = 1",
                    view.name, column.name
                );
                let plan: String = db.query_row(&sql, [], |row| row.get(3)).unwrap();
                assert!(plan.starts_with("SEARCH"), "{view:?}: {plan}");
                assert_eq!(column.kind, Type::Int, "{view:?}");
            }
        }
    }
}
