//! What a backup of a cluster holds in addition to the files of its data directory: the configuration that is kept
//! elsewhere, and the names of its databases.
//!
//! Both are names at the top of the data directory that no server uses. A reader that does not know them restores them
//! like all other files, and the server ignores them.
//!
//! Invariants
//! - The copy of a configuration file is below [`CONFIG_DIR`], under its whole original path; no two originals have one
//!   copy, and no copy is outside the data directory.
//! - A list that was written and read again is the same, whatever characters its values have; a line that is not
//!   understood gives no list at all.
//! - A path that is read from media is absolute and has neither `.` nor `..`, or is refused.
//!
//! Leaves to others: finding the files (`longshore-source`), and writing them (`longshore-landing`).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// The directory of a set that holds the configuration from outside the data directory.
pub const CONFIG_DIR: &str = "longshore-config";
/// Where the server had that configuration.
pub const CONFIG_FACTS: &str = "longshore-config/settings";
/// The list of databases; a restore reads it and does not write it.
pub const DATABASES: &str = "longshore-databases";
/// The longest list that is read, in bytes: some ten thousand databases with the longest names.
pub const LIST_MAX: usize = 1 << 20;

/// The copies' own directory: the facts next to it can have no file's name.
const FILES: &str = "longshore-config/files";
/// OIDs from this one on were not given by initdb (`FirstNormalObjectId`).
const FIRST_OF_USERS: u32 = 16_384;
/// The databases of every cluster.
pub const OWN: [&str; 3] = ["postgres", "template0", "template1"];

/// The place of an original's copy in a set; `None` for a path that is not absolute and plain.
pub fn copy_of(original: &Path) -> Option<PathBuf> {
    is_plain(original)
        .then(|| Path::new(FILES).join(original.strip_prefix("/").unwrap_or(original)))
}

/// The original of which a name in a set is the copy.
pub fn original_of(copy: &Path) -> Option<PathBuf> {
    let below = copy.strip_prefix(FILES).ok()?;
    let original = Path::new("/").join(below);
    (!below.as_os_str().is_empty() && is_plain(&original)).then_some(original)
}

/// Absolute, without `.`, `..` and characters that no path has.
fn is_plain(path: &Path) -> bool {
    let mut parts = path.components();
    let absolute = parts.next() == Some(Component::RootDir);
    let plain = parts.all(|part| matches!(part, Component::Normal(_)));
    absolute && plain && !path.as_os_str().as_bytes().contains(&0)
}

/// Where a server had its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFacts {
    pub data_directory: PathBuf,
    pub config_file: PathBuf,
    pub hba_file: PathBuf,
    pub ident_file: PathBuf,
}

const SETTINGS: [&str; 4] = ["data_directory", "config_file", "hba_file", "ident_file"];

impl ConfigFacts {
    pub fn format(&self) -> Vec<u8> {
        let values = [
            &self.data_directory,
            &self.config_file,
            &self.hba_file,
            &self.ident_file,
        ];
        let values = values.map(|path| path.as_os_str().as_bytes());
        let pairs = SETTINGS.map(str::as_bytes).into_iter().zip(values);
        format_list(pairs)
    }

    /// `None` if a setting is missing, or its value is no plain absolute path.
    pub fn parse(text: &[u8]) -> Option<ConfigFacts> {
        let list = parse_list(text)?;
        let path = |name: &str| {
            let (_, value) = list.iter().find(|(key, _)| key == name.as_bytes())?;
            let path = PathBuf::from(OsString::from_vec(value.clone()));
            is_plain(&path).then_some(path)
        };
        Some(ConfigFacts {
            data_directory: path(SETTINGS[0])?,
            config_file: path(SETTINGS[1])?,
            hba_file: path(SETTINGS[2])?,
            ident_file: path(SETTINGS[3])?,
        })
    }
}

/// A database of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedDatabase {
    pub oid: u32,
    /// In the encoding of the database; characters that are not UTF-8 are replaced.
    pub name: String,
}

impl NamedDatabase {
    /// Whether every cluster has it: it was made by initdb, or has the name of such a one.
    pub fn is_own(&self) -> bool {
        is_own(self.oid) || OWN.contains(&&*self.name)
    }
}

/// Whether initdb gave this OID.
pub fn is_own(oid: u32) -> bool {
    oid < FIRST_OF_USERS
}

pub fn format_databases(databases: &[NamedDatabase]) -> Vec<u8> {
    let oids: Vec<String> = databases.iter().map(|d| d.oid.to_string()).collect();
    let names = databases.iter().map(|d| d.name.as_bytes());
    format_list(oids.iter().map(String::as_bytes).zip(names))
}

pub fn parse_databases(text: &[u8]) -> Option<Vec<NamedDatabase>> {
    let database = |(oid, name): (Vec<u8>, Vec<u8>)| {
        Some(NamedDatabase {
            oid: std::str::from_utf8(&oid).ok()?.parse().ok()?,
            name: String::from_utf8(name).ok()?,
        })
    };
    parse_list(text)?.into_iter().map(database).collect()
}

/// The database to which a name in a backup belongs: one of its directories in a tablespace, or something below it.
pub fn database_of(path: &Path) -> Option<u32> {
    let mut parts = path.iter().map(OsStrExt::as_bytes);
    match parts.next()? {
        b"base" => oid(parts.next()?),
        b"pg_tblspc" => {
            oid(parts.next()?)?;
            parts.next()?.starts_with(b"PG_").then_some(())?;
            oid(parts.next()?)
        }
        _ => None,
    }
}

fn oid(name: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(name).ok()?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|oid| plain && *oid > 0)
}

/// One line for each pair: a word, a space, and a value in which a backslash comes before line ends and backslashes.
fn format_list<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in pairs {
        text.extend_from_slice(key);
        text.push(b' ');
        for byte in value {
            if matches!(byte, b'\n' | b'\r' | b'\\') {
                text.push(b'\\');
            }
            text.push(*byte);
        }
        text.push(b'\n');
    }
    text
}

type Pair = (Vec<u8>, Vec<u8>);

/// `None` if a line has no word, or the last one does not end.
fn parse_list(text: &[u8]) -> Option<Vec<Pair>> {
    let mut list = Vec::new();
    let mut line = Vec::new();
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => line.push(*bytes.next()?),
            b'\n' => {
                let space = line.iter().position(|b| *b == b' ').filter(|at| *at > 0)?;
                let value = line.split_off(space + 1);
                line.truncate(space);
                list.push((std::mem::take(&mut line), value));
            }
            byte => line.push(*byte),
        }
    }
    line.is_empty().then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_below_its_directory_and_leads_to_its_original() {
        for original in [
            "/etc/postgresql/15/main/pg_hba.conf",
            "/settings",
            "/a b/\u{e9}",
        ] {
            let copy = copy_of(Path::new(original)).unwrap();
            assert!(copy.starts_with(CONFIG_DIR) && copy != Path::new(CONFIG_FACTS));
            assert_eq!(original_of(&copy).unwrap(), Path::new(original));
        }
        for bad in ["etc/x", "/etc/../root/x", "", "../x", "/a\0b"] {
            assert_eq!(copy_of(Path::new(bad)), None, "{bad:?}");
        }
        for bad in [
            "longshore-config/settings",
            "longshore-config/files",
            "longshore-config/files/../../x",
            "base/1",
        ] {
            assert_eq!(original_of(Path::new(bad)), None, "{bad}");
        }
    }

    #[test]
    fn a_list_of_databases_is_read_as_it_was_written() {
        let names = [
            "postgres",
            "a\"b'c",
            "two\nlines\r",
            " blank ",
            "back\\slash",
            "",
        ];
        let database = |(i, name): (usize, &&str)| NamedDatabase {
            oid: i as u32 + 1,
            name: (*name).to_owned(),
        };
        let list: Vec<_> = names.iter().enumerate().map(database).collect();
        assert_eq!(parse_databases(&format_databases(&list)), Some(list));
        for bad in [
            "1",
            "x name\n",
            "1 name",
            "1 name\\",
            " name\n",
            "5000000000 x\n",
        ] {
            assert_eq!(parse_databases(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn facts_with_a_path_that_is_not_plain_are_refused() {
        let facts = |config: &str| ConfigFacts {
            data_directory: "/var/lib/postgresql/15/main".into(),
            config_file: config.into(),
            hba_file: "/etc/a\nb/pg_hba.conf".into(),
            ident_file: "/etc/pg_ident.conf".into(),
        };
        let good = facts("/etc/postgresql.conf");
        assert_eq!(ConfigFacts::parse(&good.format()), Some(good));
        for bad in ["etc/x", "/etc/../x", ""] {
            assert_eq!(ConfigFacts::parse(&facts(bad).format()), None, "{bad}");
        }
        assert_eq!(ConfigFacts::parse(b"config_file /etc/x\n"), None);
    }

    #[test]
    fn files_of_databases_are_told_from_others() {
        for (path, expected) in [
            ("base/16384/1259", Some(16_384)),
            ("base/16384", Some(16_384)),
            ("pg_tblspc/16390/PG_15_202209061/16384/2", Some(16_384)),
            ("pg_tblspc/16390/PG_15_202209061", None),
            ("pg_tblspc/16390/x/16384/2", None),
            ("global/1262", None),
            ("base/pgsql_tmp/5", None),
            ("base/+5/1", None),
        ] {
            assert_eq!(database_of(Path::new(path)), expected, "{path}");
        }
        assert!(is_own(5) && !is_own(16_384));
    }
}
