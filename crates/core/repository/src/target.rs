//! Targets, and the names below them. `docs/repository.md` defines all of them.
//!
//! Invariants
//! - A target's directory is opened, never created: an unmounted disk's mount point must not be filled.
//! - A name of a database never leads out of the target and never hides; a new one has no control characters.
//! - Names of families are read back exactly as they are written.
//!
//! Leaves to others: the contents of directories and buckets (`place.rs` and the files below `place/`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_bucket::{Address, Error as StoreError};
use longshore_io::{Dir, Storage};
use longshore_wal::{IDENTITY_NAME, REFUSED_NAME, is_need};

use crate::{Error, Label};

/// The most directories of a target: each gets one family.
pub const DIRECTORIES_MAX: usize = longshore_media::header::FAMILIES_MAX as usize;

/// The prefix of a shelf's mark.
pub(crate) const MARK: &str = ".longshore-relies-";

/// The prefix of a record of what was found out about a database's backups.
pub(crate) const STATUS: &str = ".longshore-status-";

/// The file that keeps backups, copies and expires of a database from beginning.
pub(crate) const STOPPED: &str = ".longshore-stopped";

/// The longest text in it that is read, in bytes.
pub(crate) const STOPPED_MAX: usize = 1024;

/// The directory of a database's WAL, next to its backups, in the target's first place.
pub const WAL: &str = "wal";

/// The suffix of a family that is being written, as in the media's file device.
pub(crate) const PENDING: &str = ".longshore-new";

/// The suffix of the reservation of a family that is being written where locks may not reach all programs.
const WRITING: &str = ".longshore-writing";

/// The suffix of a backup whose removal has begun.
pub(crate) const REMOVING: &str = ".removing";

/// How all names begin that a target has besides backups and WAL.
const OWN: &str = ".longshore-";

/// A named list of directories or of buckets' prefixes, 1 to [`DIRECTORIES_MAX`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub name: String,
    pub places: Places,
}

/// The places of a target's stripes: the N-th takes family N.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Places {
    Directories(Vec<PathBuf>),
    /// `s3://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` or `gs://BUCKET/PREFIX`; one may be there several times.
    Buckets(Vec<Address>),
}

impl Places {
    /// The same places at a server of the configuration.
    #[must_use]
    pub fn at_server(self, name: &str) -> Places {
        match self {
            Places::Directories(directories) => Places::Directories(directories),
            Places::Buckets(prefixes) => {
                let at = |prefix: Address| prefix.at_server(name);
                Places::Buckets(prefixes.into_iter().map(at).collect())
            }
        }
    }

    /// The places as texts.
    pub fn texts(&self) -> Vec<String> {
        match self {
            Places::Directories(directories) => directories
                .iter()
                .map(|d| d.display().to_string())
                .collect(),
            Places::Buckets(prefixes) => prefixes.iter().map(Address::to_string).collect(),
        }
    }

    /// The first mistake in the settings of the buckets' servers. No request is made.
    pub fn settings_problem(&self, storage: &dyn Storage) -> Option<StoreError> {
        let Places::Buckets(prefixes) = self else {
            return None;
        };
        let any = prefixes
            .iter()
            .filter_map(|p| Address::of(&format!("{p}/x")));
        any.filter_map(|any| any.origin(storage).err()).next()
    }

    pub fn are_buckets(&self) -> bool {
        matches!(self, Places::Buckets(_))
    }

    /// Prefixes in buckets, as an operator writes them.
    ///
    /// Errors: [`Error::Store`] for one that is no address.
    pub fn buckets(texts: &[String]) -> Result<Places, Error> {
        let address = |text: &String| {
            // The message has what the operator wrote.
            let wrong = |why| StoreError::Address {
                text: text.clone(),
                why,
            };
            let none = || wrong("it does not begin with s3://, az:// or gs://");
            let prefix = match text.trim_end_matches('/') {
                // No bucket is named.
                prefix if prefix.ends_with(':') => &text[..(prefix.len() + 2).min(text.len())],
                prefix => prefix,
            };
            // A prefix may be empty, so a whole bucket is one; an object's name may not.
            let object = Address::of(&format!("{prefix}/x")).ok_or_else(none)?;
            object.parts().map_err(|error| match error {
                StoreError::Address { why, .. } => wrong(why),
                other => other,
            })?;
            Address::of(prefix).ok_or_else(none)
        };
        let addresses = texts.iter().map(address);
        Ok(Places::Buckets(addresses.collect::<Result<_, _>>()?))
    }
}

impl Target {
    /// How many stripes a backup gets.
    pub fn count(&self) -> usize {
        match &self.places {
            Places::Directories(directories) => directories.len(),
            Places::Buckets(prefixes) => prefixes.len(),
        }
    }

    /// The directories, if it has some.
    pub fn directories(&self) -> &[PathBuf] {
        match &self.places {
            Places::Directories(directories) => directories,
            Places::Buckets(_) => &[],
        }
    }

    /// The first place, as a path or as an address: the WAL archive is below it.
    pub fn first_place(&self) -> Option<PathBuf> {
        match &self.places {
            Places::Directories(directories) => directories.first().cloned(),
            Places::Buckets(prefixes) => prefixes.first().map(|p| p.to_string().into()),
        }
    }

    /// The places as texts.
    pub fn texts(&self) -> Vec<String> {
        self.places.texts()
    }
}

/// The names of all databases with files in the directories of a target, sorted.
pub(crate) fn databases(
    target: &str,
    directories: &[PathBuf],
    storage: &dyn Storage,
) -> Result<Vec<String>, Error> {
    let mut names = std::collections::BTreeSet::new();
    for path in directories {
        let dir = directory(target, storage, path)?;
        let cannot = |source| Error::Io {
            action: "list",
            path: path.clone(),
            source,
        };
        for name in dir.list().map_err(cannot)? {
            let name = name.map_err(cannot)?;
            let is_dir = dir.dir(Path::new(&name)).is_ok();
            let name = name.to_str().filter(|n| is_dir && bad_name(n).is_none());
            // Names that a file system or its owner uses for itself begin with a dot.
            names.extend(name.filter(|n| !n.starts_with('.')).map(str::to_owned));
        }
    }
    names.remove("lost+found");
    Ok(names.into_iter().collect())
}

/// Opens a directory of a target, which must exist.
pub(crate) fn directory(
    target: &str,
    storage: &dyn Storage,
    path: &Path,
) -> Result<Arc<dyn Dir>, Error> {
    storage.dir(path).map_err(|source| Error::Unreachable {
        target: target.to_owned(),
        path: path.to_owned(),
        source,
    })
}

/// The file of a family, numbered from 1.
pub fn family_name(number: u16) -> String {
    format!("family-{number}.bak")
}

/// Parses the name of a family's file, finished or being written: its number and whether it is finished.
pub(crate) fn family_of(name: &str) -> Option<(u16, bool)> {
    let (name, done) = match name.strip_suffix(PENDING) {
        Some(name) => (name, false),
        None => (name, true),
    };
    let number: u16 = name
        .strip_prefix("family-")?
        .strip_suffix(".bak")?
        .parse()
        .ok()?;
    (number > 0 && family_name(number) == name).then_some((number, done))
}

/// The kind of object that has this name at a target or in an archive; `None` for others.
///
/// The name alone decides: a store has no cheap way to look around an object, and whose set it is does not matter. Stores
/// on some file systems take upper-case and lower-case letters for the same, so they count as the same here.
pub fn kept_object(address: &Address) -> Option<&'static str> {
    let (_, _, key) = address.parts().ok()?;
    let parts: Vec<&str> = key.as_ref().split('/').collect();
    let is = |test: fn(&str) -> bool| parts.iter().any(|part| test(part));
    let own = |part: &str| {
        let prefix = part.get(..OWN.len());
        prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(OWN))
    };
    if is(Label::is_like) {
        Some("a backup at a target")
    } else if is(own) {
        Some("a mark, a lease or a record of a target")
    } else if is(is_identity) || is_wal(parts.last()?) || is_record(&parts) {
        Some("a WAL archive")
    } else {
        None
    }
}

/// Whether this is an archive's identity, or becomes it.
fn is_identity(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let rest = name.strip_prefix(IDENTITY_NAME);
    rest.is_some_and(|rest| matches!(rest, "" | ".new" | ".claim"))
}

/// Whether this is the name of an archived file, in any form.
fn is_wal(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let stem = name.split('.').next().unwrap_or_default();
    let is_hex = stem.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex && (stem.len() == 24 || (stem.len() == 8 && name[8..].starts_with(".HISTORY")))
}

/// Whether this is what a target has left in an archive about the WAL that it needs: without it, an expire at another
/// target removes that WAL. Or the note of a refused push, which an archive writes over whatever is there.
fn is_record(parts: &[&str]) -> bool {
    let is_note = parts
        .last()
        .is_some_and(|name| name.eq_ignore_ascii_case(REFUSED_NAME));
    is_note || matches!(parts, [.., directory, name] if is_need(directory, name))
}

/// Whether the name reserves a family's file for its writer, or says that an earlier writer may wake.
pub(crate) fn is_reservation(name: &str) -> bool {
    let name = name.strip_suffix(longshore_io::SILENT).unwrap_or(name);
    name.strip_suffix(WRITING).and_then(family_of).is_some()
}

/// The most characters in a database's name.
const NAME_MAX: usize = 128;

/// Why a name cannot be that of a database's directory at a target.
pub fn bad_name(name: &str) -> Option<&'static str> {
    match name {
        "" | "." | ".." => Some("this is not a name for a directory"),
        _ if name.contains(['/', '\0']) => Some("a name with `/` cannot be a directory"),
        _ if name.len() > 255 => Some("the name is too long for a directory"),
        // As the media and SQL Server's names have it.
        _ if name.chars().nth(NAME_MAX).is_some() => Some("a name has at most 128 characters"),
        _ if name.starts_with('.') => Some("names that begin with a dot are reserved"),
        _ => None,
    }
}

/// Why a new database cannot have this name. An existing directory with such a name stays readable: there only
/// [`bad_name`] is checked.
pub fn unfit_name(name: &str) -> Option<&'static str> {
    // Characters that end a line, move a terminal's cursor or reverse its text: in a log or a list such a name looks
    // like something else.
    let turns = |c: char| {
        c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    bad_name(name).or_else(|| {
        name.contains(turns)
            .then_some("a name cannot hold line breaks, escapes or other control characters")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_as_many_characters_as_the_media_take_and_as_a_directory_may() {
        for (name, fits) in [
            ("n".repeat(128), true),
            ("n".repeat(129), false),
            ("ü".repeat(127), true),
            ("ü".repeat(128), false),
            ("😀".repeat(63), true),
            ("😀".repeat(64), false),
        ] {
            assert_eq!(bad_name(&name).is_none(), fits, "{name}");
            assert_eq!(unfit_name(&name).is_none(), fits, "{name}");
        }
    }

    #[test]
    fn a_prefix_that_is_no_address_is_refused_in_the_words_that_were_written() {
        for (text, why) in [
            ("s3://", "3 to 63"),
            ("s3:///x", "3 to 63"),
            ("s3://B_AD/k/", "3 to 63"),
            ("s3://abc//k", "no empty part"),
            ("s3://abc/../k", "no .."),
            ("https://abc/k", "only s3://"),
            ("az://", "3 to 63"),
            ("gs:///x", "3 to 63"),
            ("/directory", "does not begin"),
            ("", "does not begin"),
        ] {
            let error = Places::buckets(&[text.to_owned()]).unwrap_err();
            let said = format!(
                "{error}: {}",
                std::error::Error::source(&error).map_or(String::new(), |e| e.to_string())
            );
            assert!(said.contains(why), "{text}: {said}");
            assert!(
                said.contains(&format!("{text} is not an address")),
                "{said}"
            );
        }
        for text in ["s3://abc", "s3://abc/", "s3://abc/a b", "S3://abc/k//"] {
            assert!(Places::buckets(&[text.to_owned()]).is_ok(), "{text}");
        }
    }

    #[test]
    fn family_names_are_read_back_and_others_are_not() {
        for n in [1, 9, 64] {
            assert_eq!(family_of(&family_name(n)), Some((n, true)));
            let pending = format!("{}{PENDING}", family_name(n));
            assert_eq!(family_of(&pending), Some((n, false)));
            let reservation = format!("{}{WRITING}", family_name(n));
            assert!(is_reservation(&reservation) && family_of(&reservation).is_none());
        }
        for name in [
            "family-0.bak",
            "family-01.bak",
            "family-1",
            "x",
            "family-.bak",
            "family-+1.bak",
        ] {
            assert_eq!(family_of(name), None, "{name}");
        }
    }

    #[test]
    fn names_that_lead_out_or_hide_are_refused() {
        for name in ["", ".", "..", "a/b", "a\0", ".x", "a".repeat(256).as_str()] {
            assert!(bad_name(name).is_some(), "{name}");
        }
        assert_eq!(bad_name("sales"), None);
        for name in [
            "a\nb",
            "a\r",
            "\u{1b}[2J",
            "a\u{7f}",
            "a\u{85}b",
            "x\u{202e}y",
            "a\u{2028}",
        ] {
            assert!(unfit_name(name).is_some(), "{name:?}");
            assert_eq!(bad_name(name), None, "{name:?} stays readable");
        }
        for name in ["sales", "Große Daten", "a'b\"c", "日本"] {
            assert_eq!(unfit_name(name), None, "{name}");
        }
    }
}
