//! Names in a data directory that the restore itself reads or writes.

use longshore_io::Attributes;

pub const AUTO_CONF: &str = "postgresql.auto.conf";
/// Bytes; the server writes it, a line for each setting that was altered.
pub const AUTO_CONF_MAX: usize = 1 << 20;
pub const MANIFEST: &str = "backup_manifest";
pub const WAL_DIR: &str = "pg_wal";
/// Without this directory nothing starts: it holds the control file.
pub const GLOBAL: &str = "global";
/// What a stored cluster may bring along and a restored one must not have.
pub const SIGNALS: [&str; 2] = ["recovery.signal", "standby.signal"];

/// As PostgreSQL's own files beside directories with these attributes.
pub fn file_like(root: &Attributes) -> Attributes {
    Attributes {
        mode: root.mode.map(|mode| mode & 0o666),
        mtime_ns: None,
        ..*root
    }
}
