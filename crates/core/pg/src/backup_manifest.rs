//! `backup_manifest`: the files of a base backup, with lengths and checksums.
//!
//! Version 1 is for majors 13 to 16; version 2, from 17 on, adds the system identifier.
//!
//! Invariants
//! - The text is line by line exactly as the server writes it, except for blanks in its head: PostgreSQL's tools hash
//!   the text.
//! - The head has the same length for every major version, so the files' lines can be written before the version is
//!   known.
//! - The last line is the SHA-256 of everything before it.
//!
//! Leaves to others: which files are listed, their checksums, and writing the file (`longshore-landing`).
//!
//! Source: PostgreSQL 18, `backup_manifest.c`.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use sha2::{Digest, Sha256};

use crate::{Lsn, Timeline};

/// The first major version whose manifests have version 2.
const VERSION_2_SINCE: u32 = 17;

/// One file of the manifest. WAL, links and directories are not listed.
#[derive(Debug, Clone, Copy)]
pub struct ManifestFile<'a> {
    /// Relative to the data directory; tablespaces as `pg_tblspc/OID/...`.
    pub path: &'a Path,
    pub len_bytes: u64,
    /// Nanoseconds since the Unix epoch.
    pub mtime_ns: i64,
    pub crc32c: u32,
}

/// The WAL that the backup needs on one timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalRange {
    pub timeline: Timeline,
    pub start: Lsn,
    pub end: Lsn,
}

/// Bytes of [`head`], the same for every major version.
pub const HEAD_LEN: usize = 112;

/// The first lines. Blanks, which JSON allows, pad them to one length for all major versions, so the files' lines can
/// be written before the major version is known.
pub fn head(major: u32, system: u64) -> String {
    let version = if major >= VERSION_2_SINCE { 2 } else { 1 };
    let mut text = format!("\"PostgreSQL-Backup-Manifest-Version\": {version},\n");
    if version >= 2 {
        text.push_str(&format!("\"System-Identifier\": {system},\n"));
    }
    text.push_str("\"Files\": [");
    let blanks = " ".repeat(HEAD_LEN - 1 - text.len());
    format!("{{{blanks}{text}")
}

/// The line of a file; `is_first` for the first line after the head.
pub fn line(file: &ManifestFile, is_first: bool) -> String {
    let mut text = String::from(if is_first { "\n" } else { ",\n" });
    match file.path.to_str() {
        Some(path) => {
            text.push_str("{ \"Path\": ");
            escape(path, &mut text);
        }
        None => {
            let bytes = file.path.as_os_str().as_bytes();
            text.push_str(&format!("{{ \"Encoded-Path\": \"{}\"", hex(bytes)));
        }
    }
    // The digest is the number's bytes in memory order, lowest first.
    let checksum = hex(&file.crc32c.to_le_bytes());
    text.push_str(&format!(
        ", \"Size\": {}, \"Last-Modified\": \"{}\", \"Checksum-Algorithm\": \"CRC32C\", \"Checksum\": \"{checksum}\" }}",
        file.len_bytes,
        gmt(file.mtime_ns),
    ));
    text
}

/// The text after the files' lines, without the [`last_line`].
pub fn tail(ranges: &[WalRange]) -> String {
    let mut text = String::from("\n],\n\"WAL-Ranges\": [");
    for (i, range) in ranges.iter().enumerate() {
        text.push_str(if i == 0 { "\n" } else { ",\n" });
        text.push_str(&format!(
            "{{ \"Timeline\": {}, \"Start-LSN\": \"{}\", \"End-LSN\": \"{}\" }}",
            range.timeline, range.start, range.end
        ));
    }
    text.push_str("\n],\n");
    text
}

/// SHA-256 over everything before the last line.
#[derive(Debug, Default)]
pub struct ManifestHash(Sha256);

impl ManifestHash {
    pub fn update(&mut self, text: &[u8]) {
        self.0.update(text);
    }

    /// The last line.
    pub fn last_line(self) -> String {
        format!("\"Manifest-Checksum\": \"{}\"}}\n", hex(&self.0.finalize()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A time outside the calendar becomes the epoch: no program computes with it.
fn gmt(ns: i64) -> String {
    Timestamp::from_nanosecond(ns.into())
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .to_zoned(TimeZone::UTC)
        .strftime("%Y-%m-%d %H:%M:%S GMT")
        .to_string()
}

/// Appends the text as a JSON string.
fn escape(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a server of major version 18 wrote it, except for the blanks.
    #[test]
    fn the_text_is_as_a_server_writes_it() {
        let version = ManifestFile {
            path: Path::new("PG_VERSION"),
            len_bytes: 3,
            mtime_ns: 1_795_253_650_000_000_000,
            crc32c: 0xe27b_4e99,
        };
        let odd = ManifestFile {
            path: Path::new(std::ffi::OsStr::from_bytes(b"a\xff")),
            len_bytes: 0,
            mtime_ns: 0,
            crc32c: 0,
        };
        let range = WalRange {
            timeline: Timeline::new(1).unwrap(),
            start: Lsn(0x400_0028),
            end: Lsn(0x400_0120),
        };
        let text = [
            head(18, 7_710_555_712_426_461_127),
            line(&version, true),
            line(&odd, false),
            tail(&[range]),
        ]
        .concat();
        let expected = "{ \"PostgreSQL-Backup-Manifest-Version\": 2,\n\
            \"System-Identifier\": 7710555712426461127,\n\
            \"Files\": [\n\
            { \"Path\": \"PG_VERSION\", \"Size\": 3, \"Last-Modified\": \"2026-11-21 09:34:10 GMT\", \
            \"Checksum-Algorithm\": \"CRC32C\", \"Checksum\": \"994e7be2\" },\n\
            { \"Encoded-Path\": \"61ff\", \"Size\": 0, \"Last-Modified\": \"1970-01-01 00:00:00 GMT\", \
            \"Checksum-Algorithm\": \"CRC32C\", \"Checksum\": \"00000000\" }\n\
            ],\n\
            \"WAL-Ranges\": [\n\
            { \"Timeline\": 1, \"Start-LSN\": \"0/4000028\", \"End-LSN\": \"0/4000120\" }\n\
            ],\n";
        let blanks = text.find('"').unwrap() - 1;
        assert_eq!(text.replacen(&" ".repeat(blanks), " ", 1), expected);
    }

    #[test]
    fn every_head_has_the_same_length() {
        for (major, system) in [(13, 1), (16, u64::MAX), (17, 1), (18, u64::MAX)] {
            assert_eq!(head(major, system).len(), HEAD_LEN);
        }
        assert!(!head(16, 7).contains("System-Identifier"));
    }

    #[test]
    fn the_last_line_is_the_hash_of_nothing_for_nothing() {
        assert_eq!(
            ManifestHash::default().last_line(),
            "\"Manifest-Checksum\": \"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"}\n"
        );
    }

    #[test]
    fn names_are_escaped() {
        let mut out = String::new();
        escape("a\"b\\c\nd\u{e9}", &mut out);
        assert_eq!(out, "\"a\\\"b\\\\c\\u000ad\u{e9}\"");
    }
}
