//! Names in a data directory that the restore itself reads or writes.

use std::path::Path;

use longshore_io::Attributes;

pub const AUTO_CONF: &str = "postgresql.auto.conf";
/// In bytes. The server writes this file, one line for each altered setting.
pub const AUTO_CONF_MAX: usize = 1 << 20;
pub const MANIFEST: &str = "backup_manifest";
pub const WAL_DIR: &str = "pg_wal";
/// Without this directory no server starts: it holds the control file.
pub const GLOBAL: &str = "global";
/// Files that a stored cluster may contain and a restored one must not.
pub const SIGNALS: [&str; 2] = ["recovery.signal", "standby.signal"];

/// Whether a restore makes this file itself, whatever the set has.
pub fn is_made(name: &Path) -> bool {
    let is_history = name.parent() == Some(Path::new(WAL_DIR))
        && name
            .extension()
            .is_some_and(|extension| extension == "history");
    name == Path::new(MANIFEST) || name == Path::new(SIGNALS[0]) || is_history
}

/// Like PostgreSQL's own files in directories with these attributes.
pub fn file_like(root: &Attributes) -> Attributes {
    Attributes {
        mode: root.mode.map(|mode| mode & 0o666),
        mtime_ns: None,
        ..*root
    }
}
