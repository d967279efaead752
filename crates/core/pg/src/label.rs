//! `backup_label` and `tablespace_map`: the files that a server needs together with a backup's files.
//!
//! Invariants
//! - A file that lacks a line, or has an invalid one, gives nothing: no field is guessed.
//! - The label is only read. It is stored as the server wrote it.
//! - A map that is written and read again has the same tablespaces, whatever bytes their paths have; locations are
//!   absolute.
//!
//! Leaves to others: writing the files to a restored cluster (`longshore-landing`), and asking the server for them.
//!
//! Source: PostgreSQL 18, `src/backend/access/transam/xlogbackup.c`, `xlog.c` (do_pg_backup_start), `xlogrecovery.c`
//! (read_backup_label, read_tablespace_map).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::{Lsn, Timeline};

/// Name in the data directory.
pub const BACKUP_LABEL: &str = "backup_label";
/// Name in the data directory.
pub const TABLESPACE_MAP: &str = "tablespace_map";

/// The fields read from a `backup_label`. The file itself is stored as the server wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupLabel {
    /// The LSN at which replay begins.
    pub start: Lsn,
    pub checkpoint: Lsn,
    pub timeline: Timeline,
    pub from_standby: bool,
}

impl BackupLabel {
    /// `None` if a line is missing or invalid.
    pub fn parse(text: &[u8]) -> Option<BackupLabel> {
        let value = |key: &str| {
            text.split(|b| *b == b'\n')
                .find_map(|line| line.strip_prefix(key.as_bytes())?.strip_prefix(b": "))
                .and_then(|value| std::str::from_utf8(value).ok())
        };
        let start = value("START WAL LOCATION")?;
        Some(BackupLabel {
            start: start.split(' ').next()?.parse().ok()?,
            checkpoint: value("CHECKPOINT LOCATION")?.parse().ok()?,
            timeline: Timeline::new(value("START TIMELINE")?.parse().ok()?)?,
            from_standby: match value("BACKUP FROM")? {
                "primary" => false,
                "standby" => true,
                _ => return None,
            },
        })
    }
}

/// One tablespace outside the data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tablespace {
    pub oid: u32,
    /// An absolute path.
    pub location: PathBuf,
}

/// Parses a `tablespace_map`: one line for each tablespace, with line ends and backslashes in paths escaped by a
/// backslash. `None` if it is invalid.
pub fn parse_tablespace_map(text: &[u8]) -> Option<Vec<Tablespace>> {
    let mut tablespaces = Vec::new();
    let mut line = Vec::new();
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => line.push(*bytes.next()?),
            b'\n' | b'\r' if line.is_empty() => {}
            b'\n' | b'\r' => tablespaces.push(tablespace(std::mem::take(&mut line))?),
            byte => line.push(*byte),
        }
    }
    line.is_empty().then_some(tablespaces)
}

fn tablespace(line: Vec<u8>) -> Option<Tablespace> {
    let space = line.iter().position(|b| *b == b' ')?;
    let oid = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
    let location = PathBuf::from(OsString::from_vec(line[space + 1..].to_vec()));
    location
        .is_absolute()
        .then_some(Tablespace { oid, location })
}

/// Formats a `tablespace_map`.
pub fn format_tablespace_map(tablespaces: &[Tablespace]) -> Vec<u8> {
    let mut text = Vec::new();
    for Tablespace { oid, location } in tablespaces {
        text.extend_from_slice(format!("{oid} ").as_bytes());
        for byte in path_bytes(location) {
            if matches!(byte, b'\n' | b'\r' | b'\\') {
                text.push(b'\\');
            }
            text.push(*byte);
        }
        text.push(b'\n');
    }
    text
}

fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: &[u8] = b"START WAL LOCATION: 0/70002F0 (file 000000010000000000000007)\n\
        CHECKPOINT LOCATION: 0/714A8C8\nBACKUP METHOD: streamed\nBACKUP FROM: primary\n\
        START TIME: 2026-11-21 09:40:10 UTC\nLABEL: low\xe9\nSTART TIMELINE: 3\n";

    #[test]
    fn a_label_is_read_whatever_the_name_in_it() {
        let label = BackupLabel::parse(LABEL).unwrap();
        assert_eq!(label.start, Lsn(0x700_02f0));
        assert_eq!(label.checkpoint, Lsn(0x714_a8c8));
        assert_eq!(label.timeline.number(), 3);
        assert!(!label.from_standby);
    }

    #[test]
    fn a_label_that_lacks_something_is_none() {
        for key in ["START WAL", "CHECKPOINT", "BACKUP FROM", "START TIMELINE"] {
            let text = String::from_utf8_lossy(LABEL).replace(key, "OTHER");
            assert_eq!(BackupLabel::parse(text.as_bytes()), None, "{key}");
        }
    }

    #[test]
    fn a_map_written_is_the_map_read() {
        let map = vec![
            Tablespace {
                oid: 16_384,
                location: "/a b".into(),
            },
            Tablespace {
                oid: u32::MAX,
                location: OsString::from_vec(b"/x\\\n\r\xff/y".to_vec()).into(),
            },
        ];
        let text = format_tablespace_map(&map);
        assert!(text.starts_with(b"16384 /a b\n4294967295 /x\\\\\\\n\\\r\xff/y\n"));
        assert_eq!(parse_tablespace_map(&text), Some(map));
        for text in [
            &b"16384\n"[..],
            b"x /a\n",
            b"1 relative\n",
            b"1 /a",
            b"1 /a\\",
        ] {
            assert_eq!(parse_tablespace_map(text), None);
        }
    }
}
