//! What a drill's server is told, so that nothing of production's configuration runs code, connects out, or writes
//! outside the scratch directory.
//!
//! The server reads no configuration file of the cluster, `postgresql.auto.conf` among them, so that each setting has
//! its default unless it stands here. Those that matter stand here all the same, on the command line, where no file
//! overrules them. A test compares this list with each major's own catalogue of settings, `pg_settings`.

use std::ops::RangeInclusive;

/// A setting, its value, and the majors that know it: a server refuses to start with one that it does not know.
type Overruled = (&'static str, &'static str, RangeInclusive<u32>);

/// Majors that are drilled; a later one is taken for the newest.
const ALL: RangeInclusive<u32> = 14..=u32::MAX;

/// Paths that the drill fills in: its own configuration files, its directory for sockets, the restored cluster.
#[cfg(test)]
pub const PATHS: [&str; 5] = [
    "config_file",
    "data_directory",
    "hba_file",
    "ident_file",
    "unix_socket_directories",
];

pub const OVERRULED: &[Overruled] = &[
    // Commands.
    ("archive_mode", "off", ALL),
    ("archive_command", "", ALL),
    ("archive_cleanup_command", "", ALL),
    ("recovery_end_command", "", ALL),
    // A server that recovers must have one. This one gives it nothing.
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
    // Code of the database's own. Vacuuming and analysing call functions of indexes.
    ("autovacuum", "off", ALL),
    ("autovacuum_freeze_max_age", "2000000000", ALL),
    ("autovacuum_multixact_freeze_max_age", "2000000000", ALL),
    ("event_triggers", "off", 17..=u32::MAX),
    ("session_replication_role", "replica", ALL),
    // Who is listened to.
    ("bonjour", "off", ALL),
    ("listen_addresses", "", ALL),
    ("log_hostname", "off", ALL),
    ("port", super::PORT, ALL),
    ("ssl", "off", ALL),
    ("unix_socket_group", "", ALL),
    ("unix_socket_permissions", "0700", ALL),
    // Who is connected to. A subscriber's workers would take the original's place at its publisher.
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
    // Where recovery ends, and what it lets pass: the verdict must not depend on the cluster's settings.
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
    // Recovery of a subscriber with more origins than this would end; a slot or an origin costs some hundred bytes.
    ("max_active_replication_origins", "2000", 18..=u32::MAX),
    ("max_replication_slots", "2000", ALL),
    // It stands beside production's server.
    ("huge_pages", "off", ALL),
    ("shared_buffers", "64MB", ALL),
];

/// Settings of a session that looks at the cluster: roles and databases may have others, which would end the session,
/// keep the extension that it needs from being made, hide damage, or run code of their own. A client's word goes before
/// theirs.
const SESSION: &[Overruled] = &[
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

/// The settings of a server of this major, as `name=value`.
pub fn of_server(major: u32) -> impl Iterator<Item = String> {
    known(OVERRULED, major).map(|(name, value)| format!("{name}={value}"))
}

/// The settings of a session, as libpq's `options` has them.
pub fn of_session(major: u32) -> String {
    let settings = known(SESSION, major).map(|(name, value)| format!("-c {name}={value}"));
    settings.collect::<Vec<_>>().join(" ")
}

fn known(
    list: &'static [Overruled],
    major: u32,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let known = list
        .iter()
        .filter(move |(_, _, majors)| majors.contains(&major));
    known.map(|(name, value, _)| (*name, *value))
}
