//! The settings of a drill's server.
//!
//! The server reads no configuration file of the cluster, not even `postgresql.auto.conf`, so every setting that is not
//! listed here has its default. Settings that matter are listed even at their default: they are given on the command
//! line, where no file overrides them.
//!
//! Invariants
//! - With them, nothing in production's configuration runs code, connects out, or writes outside the scratch directory.
//! - A server gets only settings that its major version knows: it refuses to start with an unknown one. A test compares
//!   this list with `pg_settings` of each major version.
//!
//! Leaves to others: paths and the port (`drill/postgres.rs`), and what the database's own code can do to a checking
//! session that this list does not name.

use std::ops::RangeInclusive;

/// A setting, its value, and the major versions that know it: a server refuses to start with an unknown setting.
type SettingOverride = (&'static str, &'static str, RangeInclusive<u32>);

/// The major versions that can be drilled; a later one is treated as the newest.
const ALL: RangeInclusive<u32> = 14..=u32::MAX;

/// No socket of another server is in the drill's directory, so the usual port will do.
pub const PORT: &str = "5432";

/// Paths that the drill fills in: its own configuration files, its directory for sockets, the restored cluster.
#[cfg(test)]
pub const PATHS: [&str; 5] = [
    "config_file",
    "data_directory",
    "hba_file",
    "ident_file",
    "unix_socket_directories",
];

pub const OVERRULED: &[SettingOverride] = &[
    // Commands.
    ("archive_mode", "off", ALL),
    ("archive_command", "", ALL),
    ("archive_cleanup_command", "", ALL),
    ("recovery_end_command", "", ALL),
    // A server in recovery needs a restore_command. This one delivers nothing.
    ("restore_command", "false", ALL),
    ("ssl_passphrase_command", "", ALL),
    ("ssl_passphrase_command_supports_reload", "off", ALL),
    // Libraries.
    ("archive_library", "", 15..=u32::MAX),
    ("dynamic_library_path", "$libdir", ALL),
    ("extension_control_path", "$system", 18..=u32::MAX),
    ("jit", "off", ALL),
    ("jit_provider", "llvmjit", ALL),
    ("local_preload_libraries", "", ALL),
    ("oauth_validator_libraries", "", 18..=u32::MAX),
    ("session_preload_libraries", "", ALL),
    ("shared_preload_libraries", "", ALL),
    ("wal_consistency_checking", "", ALL),
    // The database's own code. VACUUM and ANALYZE call functions of indexes.
    ("autovacuum", "off", ALL),
    ("autovacuum_freeze_max_age", "2000000000", ALL),
    ("autovacuum_multixact_freeze_max_age", "2000000000", ALL),
    ("event_triggers", "off", 17..=u32::MAX),
    ("session_replication_role", "replica", ALL),
    // Incoming connections.
    ("bonjour", "off", ALL),
    ("listen_addresses", "", ALL),
    ("log_hostname", "off", ALL),
    ("port", PORT, ALL),
    ("ssl", "off", ALL),
    ("unix_socket_group", "", ALL),
    ("unix_socket_permissions", "0700", ALL),
    // Outgoing connections. A subscriber's workers would replace the original at its publisher.
    ("hot_standby", "off", ALL),
    ("hot_standby_feedback", "off", ALL),
    ("max_logical_replication_workers", "0", ALL),
    (
        "max_parallel_apply_workers_per_subscription",
        "0",
        16..=u32::MAX,
    ),
    ("max_sync_workers_per_subscription", "0", ALL),
    ("primary_conninfo", "", ALL),
    ("primary_slot_name", "", ALL),
    ("sync_replication_slots", "off", 17..=u32::MAX),
    ("synchronized_standby_slots", "", 17..=u32::MAX),
    ("synchronous_standby_names", "", ALL),
    ("wal_receiver_create_temp_slot", "off", ALL),
    // Files and shared memory outside the cluster.
    ("dynamic_shared_memory_type", "mmap", ALL),
    ("external_pid_file", "", ALL),
    ("krb_server_keyfile", "", ALL),
    ("log_destination", "stderr", ALL),
    ("log_directory", "log", ALL),
    ("log_filename", "drill.log", ALL),
    ("logging_collector", "off", ALL),
    ("promote_trigger_file", "", 14..=15),
    ("shared_memory_type", "mmap", ALL),
    ("stats_temp_directory", "pg_stat_tmp", 14..=14),
    ("temp_tablespaces", "", ALL),
    // The end of recovery, and the errors that recovery tolerates: the result must not depend on the cluster's
    // settings.
    ("ignore_checksum_failure", "off", ALL),
    ("ignore_invalid_pages", "off", ALL),
    ("ignore_system_indexes", "off", ALL),
    ("recovery_min_apply_delay", "0", ALL),
    ("recovery_target", "", ALL),
    ("recovery_target_action", "promote", ALL),
    ("recovery_target_lsn", "", ALL),
    ("recovery_target_name", "", ALL),
    ("recovery_target_time", "", ALL),
    ("recovery_target_timeline", "latest", ALL),
    ("recovery_target_xid", "", ALL),
    ("zero_damaged_pages", "off", ALL),
    // Recovery of a subscriber with more origins than this fails; a slot or an origin costs some hundred bytes.
    ("max_active_replication_origins", "2000", 18..=u32::MAX),
    ("max_replication_slots", "2000", ALL),
    // It runs next to production's server.
    ("huge_pages", "off", ALL),
    ("shared_buffers", "64MB", ALL),
];

/// Settings of a checking session. Roles and databases may have other values, which would end the session, prevent its
/// extension from being created, hide damage, or run their own code. Values given by a client take precedence over
/// those.
const SESSION: &[SettingOverride] = &[
    ("default_table_access_method", "heap", ALL),
    ("default_tablespace", "", ALL),
    ("default_transaction_deferrable", "off", ALL),
    ("default_transaction_read_only", "off", ALL),
    ("dynamic_library_path", "$libdir", ALL),
    ("event_triggers", "off", 17..=u32::MAX),
    ("idle_in_transaction_session_timeout", "0", ALL),
    ("idle_session_timeout", "0", ALL),
    ("ignore_checksum_failure", "off", ALL),
    ("ignore_system_indexes", "off", ALL),
    ("jit", "off", ALL),
    ("local_preload_libraries", "", ALL),
    ("lock_timeout", "0", ALL),
    ("role", "none", ALL),
    ("search_path", "pg_catalog,pg_temp", ALL),
    ("session_preload_libraries", "", ALL),
    ("session_replication_role", "replica", ALL),
    ("statement_timeout", "0", ALL),
    ("synchronous_commit", "local", ALL),
    ("temp_tablespaces", "", ALL),
    ("transaction_timeout", "0", 17..=u32::MAX),
    ("zero_damaged_pages", "off", ALL),
];

/// The settings of a server of this major version, as `name=value`.
pub fn of_server(major: u32) -> impl Iterator<Item = String> {
    known(OVERRULED, major).map(|(name, value)| format!("{name}={value}"))
}

/// The settings of a session, in the form of libpq's `options`.
pub fn of_session(major: u32) -> String {
    let settings = known(SESSION, major).map(|(name, value)| format!("-c {name}={value}"));
    settings.collect::<Vec<_>>().join(" ")
}

fn known(
    list: &'static [SettingOverride],
    major: u32,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let known = list
        .iter()
        .filter(move |(_, _, majors)| majors.contains(&major));
    known.map(|(name, value, _)| (*name, *value))
}
