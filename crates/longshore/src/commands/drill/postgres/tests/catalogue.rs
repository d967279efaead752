//! Goal: every setting of every installed major version that could run code, connect out, or write elsewhere is
//! overridden in a drill, or is harmless for a reason given here.
//! Method: the server's own `pg_settings` is searched by category and by word, so a setting of a new version fails the
//! test until somebody has judged it.
//! Not covered: settings that match no category and no word.

use std::collections::BTreeSet;

use super::super::settings::{OVERRULED, PATHS, of_server};
use super::*;

/// Categories of `pg_settings` that are about files, programs and other servers.
const CATEGORIES: [&str; 10] = [
    "File Locations",
    "Archiv",
    "Recovery",
    "Replication",
    "Connection Settings",
    "Where to Log",
    "Preloading",
    "Other Defaults",
    "Error Handling",
    "Worker Processes",
];

/// Words in the name or the description of such a setting.
const WORDS: [&str; 19] = [
    "command",
    "librar",
    "path",
    "director",
    "file",
    "conninfo",
    "program",
    "host",
    "socket",
    "worker",
    "trigger",
    "preload",
    "provider",
    "logging",
    "syslog",
    "subprocess",
    "extension",
    "damaged",
    "corrupt",
];

/// Settings that match those words, and why they may have any value that is possible here: their default, because no
/// file of the cluster is read and the settings of roles and databases are deleted.
const HARMLESS: &[(&str, &[&str])] = &[
    (
        "a number, a format or a name that is only shown",
        &[
            "DateStyle",
            "TimeZone",
            "application_name",
            "backtrace_functions",
            "client_encoding",
            "cluster_name",
            "default_text_search_config",
            "gin_fuzzy_search_limit",
            "lc_messages",
            "lc_monetary",
            "lc_numeric",
            "lc_time",
            "log_connections",
            "log_line_prefix",
            "log_parameter_max_length",
            "log_parameter_max_length_on_error",
            "log_replication_commands",
            "log_temp_files",
            "log_timezone",
            "trace_recovery_messages",
            "track_activities",
            "update_process_title",
        ],
    ),
    (
        "names a file of the installation, by a name that cannot leave its directory",
        &["timezone_abbreviations"],
    ),
    (
        "a distribution's or a late minor version's, so that it cannot be named on the command line; empty or built-in \
         by default",
        &[
            "extension_destdir",
            "output_plugin_libraries",
            "restrict_nonsystem_relation_kind",
        ],
    ),
    (
        "of a session; those that check have their own, and nobody else connects",
        &[
            "createrole_self_grant",
            "default_table_access_method",
            "default_tablespace",
            "exit_on_error",
            "search_path",
        ],
    ),
    (
        "without TLS it is not used",
        &[
            "ssl_ca_file",
            "ssl_cert_file",
            "ssl_ciphers",
            "ssl_crl_dir",
            "ssl_crl_file",
            "ssl_dh_params_file",
            "ssl_ecdh_curve",
            "ssl_groups",
            "ssl_key_file",
            "ssl_tls13_ciphers",
        ],
    ),
    ("bonjour is off", &["bonjour_name"]),
    ("jit is off", &["jit_profiling_support"]),
    (
        "the log goes to the drill's own file, and no collector runs",
        &[
            "event_source",
            "log_file_mode",
            "log_rotation_age",
            "log_rotation_size",
            "log_truncate_on_rotation",
            "syslog_facility",
            "syslog_ident",
            "syslog_sequence_numbers",
            "syslog_split_messages",
        ],
    ),
    (
        "how many, how large or how long: inside the cluster and this machine",
        &[
            "autovacuum_max_workers",
            "autovacuum_work_mem",
            "autovacuum_worker_slots",
            "client_connection_check_interval",
            "geqo_seed",
            "io_workers",
            "max_connections",
            "max_files_per_process",
            "max_parallel_maintenance_workers",
            "max_parallel_workers",
            "max_parallel_workers_per_gather",
            "max_worker_processes",
            "parallel_leader_participation",
            "parallel_setup_cost",
            "parallel_tuple_cost",
            "reserved_connections",
            "superuser_reserved_connections",
            "tcp_keepalives_count",
            "tcp_keepalives_idle",
            "tcp_keepalives_interval",
            "tcp_user_timeout",
            "temp_file_limit",
        ],
    ),
    (
        "how the cluster's own files are read, written and synced",
        &[
            "debug_io_direct",
            "data_sync_retry",
            "file_copy_method",
            "file_extend_method",
            "recovery_init_sync_method",
            "recovery_prefetch",
            "remove_temp_files_after_crash",
            "restart_after_crash",
            "wal_compression",
            "wal_decode_buffer_size",
            "wal_init_zero",
            "wal_recycle",
            "wal_skip_threshold",
            "wal_writer_flush_after",
        ],
    ),
    (
        "nothing is archived, sent, received or summarised",
        &[
            "archive_timeout",
            "idle_replication_slot_timeout",
            "max_slot_wal_keep_size",
            "max_standby_archive_delay",
            "max_standby_streaming_delay",
            "max_wal_senders",
            "track_commit_timestamp",
            "vacuum_defer_cleanup_age",
            "wal_keep_size",
            "wal_receiver_status_interval",
            "wal_receiver_timeout",
            "wal_retrieve_retry_interval",
            "wal_sender_timeout",
            "wal_summary_keep_time",
        ],
    ),
    (
        "there is no target of recovery",
        &["recovery_target_inclusive"],
    ),
    (
        "about checkpoints, vacuuming by hand, and ALTER SYSTEM, which nobody runs",
        &[
            "allow_alter_system",
            "checkpoint_warning",
            "max_wal_size",
            "vacuum_failsafe_age",
            "vacuum_multixact_failsafe_age",
        ],
    ),
];

#[test]
fn every_setting_that_could_run_connect_or_write_elsewhere_is_overruled_or_known_to_be_harmless() {
    let harmless: BTreeSet<&str> = HARMLESS
        .iter()
        .flat_map(|(_, names)| *names)
        .copied()
        .collect();
    let mut seen = BTreeSet::new();
    for installation in installations() {
        let major = installation.major;
        let server = Server::create(&installation, Options::default());
        server.start();
        let rows = server.psql(
            "select name || '|' || vartype || '|' || category || '|' || short_desc from pg_settings \
             where context <> 'internal'",
        );
        let overruled: BTreeSet<String> = of_server(major)
            .map(|setting| setting.split('=').next().unwrap().to_owned())
            .collect();
        let mut all = BTreeSet::new();
        for row in rows.lines() {
            let mut parts = row.split('|');
            let mut next = || parts.next().unwrap();
            let (name, kind, category, text) = (next(), next(), next(), next());
            all.insert(name.to_owned());
            let words = format!("{name} {text}").to_ascii_lowercase();
            let is_asked = kind == "string"
                || CATEGORIES.iter().any(|c| category.contains(c))
                || WORDS.iter().any(|w| words.contains(w));
            if !is_asked {
                continue;
            }
            let is_overruled = overruled.contains(name) || PATHS.contains(&name);
            assert!(
                is_overruled != harmless.contains(name),
                "PostgreSQL {major}: {name} ({category}: {text}) is in neither list, or in both"
            );
        }
        // It would not start with one that it does not know, and says nothing of one whose time is over.
        for name in &overruled {
            assert!(all.contains(name), "PostgreSQL {major} has no {name}");
        }
        seen.extend(all);
    }
    let listed = OVERRULED.iter().map(|(name, ..)| *name).chain(harmless);
    if seen.len() > 380 && std::env::var_os("LONGSHORE_TEST_MAJORS").is_none() {
        let optional = ["extension_destdir", "output_plugin_libraries"];
        for name in listed.filter(|name| !optional.contains(name)) {
            assert!(seen.contains(name), "no major here has {name}");
        }
    }
}
