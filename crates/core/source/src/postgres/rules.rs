//! Which files of a data directory belong in a backup.
//!
//! Invariants
//! - The verdict depends on the name alone; nothing is opened.
//! - Files that `pg_basebackup` leaves out are left out, and in addition `recovery.signal` and `standby.signal`, as
//!   pgBackRest does: a restore writes its own.
//! - The control file is left out here because it is read last.
//! - What an earlier restore added to the data directory is left out: the backup has its own.
//!
//! Leaves to others: walking and links (`tree.rs`), and which forks of a relation are stored.
//!
//! Source: PostgreSQL 18, `src/backend/backup/basebackup.c` (excludeDirContents, excludeFiles),
//! `src/include/common/relpath.h`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use longshore_pg::set_notes::{CONFIG_DIR, DATABASES};
use longshore_pg::{PID_FILE, RelationFile};

/// The treatment of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleVerdict {
    Keep,
    /// Keep the directory, but empty.
    KeepEmpty,
    Leave,
}

/// Directories whose contents a restored server creates itself, or must not have. They are stored as real directories
/// even if they are links.
const EMPTY_DIRS: &[&str] = &[
    "pg_wal",
    "pg_replslot",
    "pg_dynshmem",
    "pg_notify",
    "pg_serial",
    "pg_snapshots",
    "pg_stat_tmp",
    "pg_subtrans",
];

/// Left out of the data directory itself.
const LEFT_FILES: &[&str] = &[
    PID_FILE,
    "postmaster.opts",
    "postgresql.auto.conf.tmp",
    "current_logfiles.tmp",
    "recovery.signal",
    "standby.signal",
    // From another backup; this one stores its own.
    "backup_label",
    "backup_label.old",
    "backup_label.tmp",
    "tablespace_map",
    "tablespace_map.old",
    "tablespace_map.tmp",
    "backup_manifest",
    "backup_manifest.tmp",
];

/// Directories with the server's data: a symbolic link here would leave that data out.
const DATA_DIRS: &[&str] = &[
    "base",
    "global",
    "pg_commit_ts",
    "pg_logical",
    "pg_multixact",
    "pg_stat",
    "pg_tblspc",
    "pg_twophase",
    "pg_xact",
];

/// Decides about the name at `path`, relative to the data directory.
pub(super) fn judge(path: &Path) -> RuleVerdict {
    let Some(name) = path.file_name().map(OsStr::as_bytes) else {
        return RuleVerdict::Keep;
    };
    // At any depth, for files and directories alike.
    if name.starts_with(b"pgsql_tmp") || name.starts_with(b"pg_internal.init") {
        return RuleVerdict::Leave;
    }
    let is_at_top = path.components().count() == 1;
    if is_at_top && LEFT_FILES.iter().any(|left| left.as_bytes() == name) || is_of_restore(path) {
        return RuleVerdict::Leave;
    }
    if is_at_top && EMPTY_DIRS.iter().any(|dir| dir.as_bytes() == name) {
        return RuleVerdict::KeepEmpty;
    }
    // Read last, after everything else.
    if path == Path::new("global/pg_control") {
        return RuleVerdict::Leave;
    }
    RuleVerdict::Keep
}

/// Whether an earlier restore made the name: a backup has its own.
pub(super) fn is_of_restore(path: &Path) -> bool {
    path.starts_with(CONFIG_DIR) || path == Path::new(DATABASES)
}

/// Whether a symbolic link at `path` would hide data.
pub(super) fn must_be_real(path: &Path) -> bool {
    let mut parts = path.components();
    let Some(Component::Normal(first)) = parts.next() else {
        return false;
    };
    DATA_DIRS.iter().any(|dir| first == *dir)
}

/// OIDs of the tablespaces that every cluster has: pg_default and pg_global.
pub(super) const SPACE_DEFAULT: u32 = 1663;
pub(super) const SPACE_GLOBAL: u32 = 1664;

/// The tablespace and database of a directory of relation files; `global` has database 0. `None` for other
/// directories.
pub(super) fn place(path: &Path) -> Option<(u32, u32)> {
    let parts: Vec<&[u8]> = path.iter().map(OsStr::as_bytes).collect();
    match parts.as_slice() {
        [b"global"] => Some((SPACE_GLOBAL, 0)),
        [b"base", database] => Some((SPACE_DEFAULT, oid(database)?)),
        [b"pg_tblspc", space, version, database] if version.starts_with(b"PG_") => {
            Some((oid(space)?, oid(database)?))
        }
        _ => None,
    }
}

/// The path of a database's directory in a backup; `version` is this major version's directory in tablespaces.
pub(super) fn directory((space, database): (u32, u32), version: &str) -> PathBuf {
    match space {
        SPACE_DEFAULT => format!("base/{database}").into(),
        SPACE_GLOBAL => "global".into(),
        space => format!("pg_tblspc/{space}/{version}/{database}").into(),
    }
}

/// Whether `path` is a directory of relation files: `global`, or a database in a tablespace.
pub(super) fn is_database_dir(path: &Path) -> bool {
    place(path).is_some()
}

/// Whether `path` is a tablespace in `pg_tblspc`.
pub(super) fn is_tablespace(path: &Path) -> bool {
    let parts: Vec<&[u8]> = path.iter().map(OsStr::as_bytes).collect();
    matches!(parts.as_slice(), [b"pg_tblspc", space] if oid(space).is_some())
}

/// Parses the digits with which the server names directories after OIDs.
fn oid(name: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(name).ok()?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

/// Parses a name in a database's directory as a relation file.
pub(super) fn relation(name: &Path) -> Option<RelationFile> {
    name.to_str().and_then(RelationFile::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_pg_basebackup_leaves_out_are_left_out() {
        for path in [
            "postmaster.pid",
            "postmaster.opts",
            "postgresql.auto.conf.tmp",
            "current_logfiles.tmp",
            "backup_label",
            "tablespace_map.old",
            "backup_manifest",
            "recovery.signal",
            "standby.signal",
            "base/pgsql_tmp",
            "base/5/pgsql_tmp.123",
            "global/pg_internal.init",
            "base/5/pg_internal.init.4711",
            "pg_tblspc/16384/PG_15_202209061/pgsql_tmp/pgsql_tmp1.0",
            "global/pg_control",
            "longshore-config",
            "longshore-config/files/etc/postgresql.conf",
            "longshore-databases",
        ] {
            assert_eq!(judge(Path::new(path)), RuleVerdict::Leave, "{path}");
        }
        for path in [
            "PG_VERSION",
            "base/5/PG_VERSION",
            "base/5/pg_filenode.map",
            "global/pg_filenode.map",
            "postgresql.auto.conf",
            "current_logfiles",
            "base/5/postmaster.pid",
            "pg_stat/pgstat.stat",
            "base/5/pg_control",
            "log/backup_label",
            "longshore-config2",
            "base/longshore-databases",
        ] {
            assert_eq!(judge(Path::new(path)), RuleVerdict::Keep, "{path}");
        }
        for path in ["pg_wal", "pg_replslot", "pg_subtrans", "pg_stat_tmp"] {
            assert_eq!(judge(Path::new(path)), RuleVerdict::KeepEmpty, "{path}");
        }
    }

    #[test]
    fn relation_files_are_looked_for_in_databases_only() {
        for path in ["global", "base/5", "pg_tblspc/16384/PG_18_202506291/5"] {
            assert!(is_database_dir(Path::new(path)), "{path}");
            let there = place(Path::new(path)).unwrap();
            assert_eq!(directory(there, "PG_18_202506291"), Path::new(path));
        }
        for path in [
            "base",
            "base/x",
            "base/5/6",
            "pg_xact",
            "pg_tblspc/1/x/5",
            "pg_tblspc/1",
        ] {
            assert!(!is_database_dir(Path::new(path)), "{path}");
        }
        assert!(is_tablespace(Path::new("pg_tblspc/16384")));
        assert!(!is_tablespace(Path::new("pg_tblspc/16384/PG_18_202506291")));
        assert!(must_be_real(Path::new("base/5")));
        assert!(!must_be_real(Path::new("postgresql.conf")));
    }
}
