//! Parses the texts that name a source: `sqlite:FILE`, `files:PATH...`, a PostgreSQL connection string, or a path
//! whose content decides.
//!
//! Invariants
//! - A prefix always decides; without one, the first bytes of the file do.
//! - A spec that was parsed is not opened, and may name something that does not exist.
//! - The data directory of a running server is never taken for plain files without the prefix.
//!
//! Leaves to others: opening (`door.rs` and the adaptors), and names of configured databases (the program).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longshore_io::{FileKind, Storage, Via};
use longshore_pg::PID_FILE;
use longshore_pg::client::{Options, without_password};

use crate::Error;
use crate::reading::Reading;

/// The first bytes of every SQLite 3 database (SQLite file format, section 1.3).
pub(crate) const SQLITE_MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Which adaptor reads which data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSpec {
    /// A SQLite database file.
    Sqlite(PathBuf),
    /// Directories and plain files, at least one.
    Files(Vec<PathBuf>),
    /// A PostgreSQL server.
    Postgres(Box<Options>),
}

impl SourceSpec {
    /// Parses `sqlite:FILE`, `files:PATH PATH...` (the prefix once or on each), or plain paths. The content decides
    /// about a single plain path: a file with SQLite's magic is a database, and everything else is files, except the
    /// data directory of a running PostgreSQL server. A path that looks like a prefix is written `./sqlite:x`. A
    /// `postgres://` URL, or `key=value` pairs that begin with a libpq key, mean a server; PG variables of the
    /// environment supply what they leave out.
    ///
    /// Errors: [`Error::Spec`] for a text without a valid meaning, [`Error::Server`] for an invalid connection string.
    /// For a single plain path: [`Error::Io`] if it does not exist, [`Error::InUse`] if a backup of it runs in this
    /// process, [`Error::RunningServer`].
    pub fn parse(storage: &dyn Storage, words: &[OsString]) -> Result<Self, Error> {
        let bad = |word: &OsStr, reason| {
            Err(Error::Spec {
                text: word.to_string_lossy().into_owned(),
                reason,
            })
        };
        if let Some(word) = words.iter().find(|word| is_server(word)) {
            return match words {
                [_] => server(word),
                _ => bad(word, "only one server can be backed up at a time"),
            };
        }
        let mut paths = Vec::with_capacity(words.len());
        let mut files = false;
        for word in words {
            let prefixed = PrefixForm::of(word);
            if let (PrefixForm::Neither(_), Some(shown)) = (&prefixed, meant_as_server(word))
                // A file may have any name.
                && storage.stat(Path::new(word)).is_err()
            {
                return bad(OsStr::new(&shown), SERVER_FORM);
            }
            let path = match prefixed {
                PrefixForm::Sqlite(_) if words.len() > 1 => {
                    return bad(word, "only one SQLite database can be backed up at a time");
                }
                PrefixForm::Sqlite(path) if path.is_empty() => {
                    return bad(word, "the path is missing");
                }
                PrefixForm::Sqlite(path) => return Ok(Self::Sqlite(path.into())),
                PrefixForm::Files(path) => {
                    files = true;
                    path
                }
                PrefixForm::Neither(path) => path,
            };
            if path.is_empty() {
                return bad(word, "the path is missing");
            }
            paths.push(PathBuf::from(path));
        }
        match paths.as_slice() {
            [] => bad(OsStr::new(""), "nothing is given"),
            [path] if !files && has_magic(storage, path)? => Ok(Self::Sqlite(path.clone())),
            [path] if !files && has_server(storage, path) => {
                Err(Error::RunningServer { path: path.clone() })
            }
            _ => Ok(Self::Files(paths)),
        }
    }
}

/// The form of a server's connection string, for messages.
const SERVER_FORM: &str = "write a server as postgres://USER@HOST/DATABASE (in a password %2F for / and %3F for ?), a path with such characters as ./PATH";

/// The shown form of a word that is probably meant as a server but is not written as one, such as
/// `postgres:me:secret@host`, without the part that may be a password.
fn meant_as_server(word: &OsStr) -> Option<String> {
    let text = word.to_string_lossy();
    let shown = without_password(&text);
    (shown != text).then_some(shown)
}

fn is_server(word: &OsStr) -> bool {
    word.to_str().is_some_and(Options::is_meant)
}

fn server(word: &OsStr) -> Result<SourceSpec, Error> {
    let user = &longshore_facts::login_name;
    Options::of_environment()
        .and_then(|variable| Options::parse(&word.to_string_lossy(), &variable, user))
        .map(|options| SourceSpec::Postgres(Box::new(options)))
        .map_err(|e| Error::Server {
            action: "find",
            source: Box::new(e),
        })
}

enum PrefixForm<'a> {
    Sqlite(&'a OsStr),
    Files(&'a OsStr),
    Neither(&'a OsStr),
}

impl<'a> PrefixForm<'a> {
    fn of(word: &'a OsStr) -> Self {
        let after = |prefix: &str| word.as_bytes().strip_prefix(prefix.as_bytes());
        if let Some(path) = after("sqlite:") {
            Self::Sqlite(OsStr::from_bytes(path))
        } else if let Some(path) = after("files:") {
            Self::Files(OsStr::from_bytes(path))
        } else {
            Self::Neither(word)
        }
    }
}

/// Whether the path leads to a file with SQLite's magic.
pub(crate) fn has_magic(storage: &dyn Storage, path: &Path) -> Result<bool, Error> {
    let io = |action| {
        move |source| Error::Io {
            action,
            path: path.into(),
            source,
        }
    };
    let canonical = storage.canonical(path).map_err(io("find"))?;
    let stat = storage.stat(&canonical).map_err(io("look at"))?;
    let (FileKind::File, Some(parent), Some(name)) =
        (stat.kind, canonical.parent(), canonical.file_name())
    else {
        return Ok(false);
    };
    let dir = storage.dir(parent).map_err(io("open the directory of"))?;
    let reading = Reading::open(&*dir, Path::new(name), path)?;
    let mut magic = [0; SQLITE_MAGIC.len()];
    let len = reading
        .file()
        .read_full_at(&mut magic, 0, Via::Cache)
        .map_err(|source| Error::Read {
            path: path.into(),
            offset: 0,
            source,
        })?;
    Ok(len == magic.len() && magic == *SQLITE_MAGIC)
}

/// Whether the path is the data directory of a PostgreSQL server that runs or was killed.
pub(crate) fn has_server(storage: &dyn Storage, path: &Path) -> bool {
    storage.dir(path).is_ok_and(|dir| {
        let is_file = |name: &str| {
            dir.stat(Path::new(name))
                .is_ok_and(|stat| stat.kind == FileKind::File)
        };
        is_file("PG_VERSION") && is_file(PID_FILE)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use longshore_io::Host;

    use super::*;

    fn parse(words: &[&OsStr]) -> Result<SourceSpec, Error> {
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        SourceSpec::parse(&Host::new(), &words)
    }

    #[test]
    fn a_prefix_decides_without_looking() {
        let odd = OsStr::from_bytes(b"files:\xff\n");
        let sqlite = OsStr::new("sqlite:/no/such:thing");
        assert_eq!(
            parse(&[sqlite]).unwrap(),
            SourceSpec::Sqlite("/no/such:thing".into())
        );
        assert_eq!(
            parse(&[odd, OsStr::new("b"), OsStr::new("files:c")]).unwrap(),
            SourceSpec::Files(vec![
                OsStr::from_bytes(b"\xff\n").into(),
                "b".into(),
                "c".into()
            ])
        );
    }

    #[test]
    fn a_path_alone_is_what_it_looks_like() {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("no suffix");
        rusqlite::Connection::open(&db)
            .unwrap()
            .execute_batch("CREATE TABLE t (x)")
            .unwrap();
        let plain = dir.path().join("plain.db");
        fs::write(&plain, b"SQLite format 3").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("no suffix", &link).unwrap();
        let files = |path: &Path| SourceSpec::Files(vec![path.into()]);
        assert_eq!(
            parse(&[db.as_os_str()]).unwrap(),
            SourceSpec::Sqlite(db.clone())
        );
        assert_eq!(
            parse(&[link.as_os_str()]).unwrap(),
            SourceSpec::Sqlite(link.clone())
        );
        assert_eq!(parse(&[plain.as_os_str()]).unwrap(), files(&plain));
        assert_eq!(parse(&[dir.path().as_os_str()]).unwrap(), files(dir.path()));
        assert_eq!(
            parse(&[db.as_os_str(), plain.as_os_str()]).unwrap(),
            SourceSpec::Files(vec![db, plain])
        );
        let nowhere = dir.path().join("nowhere");
        assert!(
            matches!(parse(&[nowhere.as_os_str()]), Err(Error::Io { path, .. }) if path == nowhere)
        );
    }

    #[test]
    fn a_server_that_is_written_wrongly_is_refused_without_its_password() {
        for word in [
            "postgres:u:PW@h",
            "postgres:/u:PW@h/d",
            "POSTGRESQL:u:PW@h",
            "postgre://u:PW@h/d",
            "psql:u:PW@h:5432/d",
            "mysql://u:PW@h/d",
            "postgres:u:P@W@h",
        ] {
            let refused = parse(&[OsStr::new(word)]).unwrap_err();
            assert!(
                matches!(&refused, Error::Spec { reason, .. } if *reason == SERVER_FORM),
                "{refused}"
            );
            let told = format!("{refused} {refused:?}");
            assert!(!told.contains("PW") && !told.contains("W@h"), "{told}");
        }
        // A path is shown unchanged: it has no password.
        for path in ["./postgres:u:x@h", "/a:b@c", "a@b", "a:b"] {
            assert!(
                matches!(parse(&[OsStr::new(path)]), Err(Error::Io { .. })),
                "{path}"
            );
        }
    }

    #[test]
    fn an_impossible_source_is_refused_with_its_reason() {
        for (words, reason) in [
            (
                &["sqlite:a", "b"][..],
                "only one SQLite database can be backed up at a time",
            ),
            (
                &["b", "sqlite:a"],
                "only one SQLite database can be backed up at a time",
            ),
            (&["sqlite:"], "the path is missing"),
            (&["files:"], "the path is missing"),
            (&["a", ""], "the path is missing"),
            (
                &["postgres://h/d", "a"],
                "only one server can be backed up at a time",
            ),
            (&[], "nothing is given"),
        ] {
            let words: Vec<_> = words.iter().map(OsStr::new).collect();
            let refused = parse(&words).err().unwrap();
            assert!(
                matches!(&refused, Error::Spec { reason: r, .. } if *r == reason),
                "{refused}"
            );
        }
    }
}
