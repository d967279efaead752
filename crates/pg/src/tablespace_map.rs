//! `tablespace_map`: where each tablespace of a backup lay.
//!
//! A server that finds the file makes the links in `pg_tblspc` anew from it, so what moves a tablespace has to change
//! the file, too. One line for each: the OID, a space and the absolute path, in which a backslash stands before every
//! line feed, carriage return and backslash. Source: PostgreSQL 18, `xlog.c`, `read_tablespace_map`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// One tablespace: its OID and its directory.
pub type Location = (u32, PathBuf);

/// Reads the file.
///
/// # Errors
/// The line that is none.
pub fn parse(bytes: &[u8]) -> Result<Vec<Location>, String> {
    let mut lines = vec![Vec::new()];
    let mut escaped = false;
    for &byte in bytes {
        let line = lines.last_mut().expect("there is always a line");
        match byte {
            _ if escaped => {
                line.push(byte);
                escaped = false;
            }
            b'\\' => escaped = true,
            b'\n' | b'\r' => lines.push(Vec::new()),
            byte => line.push(byte),
        }
    }
    lines
        .iter()
        .filter(|line| !line.is_empty())
        .map(|line| location(line).ok_or_else(|| String::from_utf8_lossy(line).into_owned()))
        .collect()
}

fn location(line: &[u8]) -> Option<Location> {
    let space = line.iter().position(|&b| b == b' ')?;
    let oid = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
    let path = &line[space + 1..];
    (path.starts_with(b"/") && !path.contains(&0))
        .then(|| (oid, PathBuf::from(OsStr::from_bytes(path))))
}

/// Writes the file.
pub fn print(locations: &[Location]) -> Vec<u8> {
    let mut out = Vec::new();
    for (oid, path) in locations {
        out.extend_from_slice(format!("{oid} ").as_bytes());
        for &byte in path.as_os_str().as_bytes() {
            if matches!(byte, b'\n' | b'\r' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
        out.push(b'\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_read() {
        let locations = vec![
            (16384, PathBuf::from("/srv/a b")),
            (1663, PathBuf::from("/odd\\name\nwith\rbreaks")),
        ];
        let text = print(&locations);
        assert!(text.starts_with(b"16384 /srv/a b\n1663 /odd\\\\name\\\nwith\\\rbreaks\n"));
        assert_eq!(parse(&text), Ok(locations));
        assert_eq!(parse(b""), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for text in [
            "x",
            "16384",
            "16384 relative",
            "-1 /a",
            "99999999999 /a",
            "1 /a\0b",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
