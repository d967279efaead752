//! Opening the catalog, and what every call on it shares.

use std::fmt::Debug;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longshore_io::{ConnectionClaims, FileKind, Host, OpenHow, Storage};
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::schema::{self, State};
use crate::{Error, HistoryQuery};

/// SQL Server counts every database in pages of this size.
pub(crate) const PAGE_BYTES: u64 = 8192;

/// The longest that one call waits for other users of the catalog. A call that fails with
/// [`Error::Locked`] waited once, so it ends within this time and a little work.
pub const BUSY_MAX: Duration = Duration::from_millis(2500);

/// An open catalog. One connection: use it from one thread at a time, open another for another.
#[derive(Debug)]
pub struct Catalog {
    pub(crate) db: Connection,
    path: PathBuf,
    /// Device and inode of the file that was opened.
    identity: (u64, u64),
    /// Whatever else this process reads, it does not drop the connection's locks. Ends after the connection.
    _claims: ConnectionClaims,
}

impl Catalog {
    /// Opens the catalog at `path`, creates it with its directories when it is missing, and brings an
    /// older schema up to date.
    ///
    /// Errors: every variant but those of media and settings. A database that is not a catalog is left
    /// untouched ([`Error::Foreign`]).
    pub fn open(path: &Path) -> Result<Catalog, Error> {
        // Absolute, because SQLite gives `:memory:` and the empty name meanings of their own.
        let path = std::path::absolute(path).map_err(|e| cannot("find", path, e))?;
        let storage = Host::new();
        Self::open_by(path, storage, |path| keeps_locks(&storage, path))
    }

    fn open_by(
        path: PathBuf,
        storage: Host,
        keeps_locks: impl Fn(&Path) -> io::Result<bool>,
    ) -> Result<Catalog, Error> {
        match storage.stat(&path) {
            // SQLite would wait for ever for the other end of a FIFO.
            Ok(stat) if stat.kind != FileKind::File => {
                let source = io::Error::other("it is not a regular file");
                return Err(cannot("use", &path, source));
            }
            Ok(_) => {}
            Err(_) => make_empty(&storage, &path)?,
        }
        // Before SQLite opens it: a log that it finds under this name may be of another one.
        let identity = identity(&path)?;
        let shares_memory = keeps_locks(&path).map_err(|e| cannot("look at", &path, e))?;
        let sql = |e| Error::sql(&path, e);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || -> rusqlite::Result<Connection> {
            #[expect(clippy::disallowed_methods, reason = "its files are claimed")]
            let db = Connection::open_with_flags(&path, flags)?;
            // Makes what carries the log's locks. What is wrong with the file comes again below.
            db.busy_timeout(Duration::ZERO)?;
            if !shares_memory {
                // SQLite then does without the memory, also for a log that is there.
                db.pragma_update(None, "locking_mode", "exclusive")?;
            }
            let _looked = db.query_row("PRAGMA schema_version", [], |_| Ok(()));
            Ok(db)
        };
        let (mut claims, opened) = ConnectionClaims::around(&path, open);
        let db = opened.map_err(|source| Error::Open {
            path: path.clone(),
            source,
        })?;
        let prepared = prepare(&db, shares_memory);
        claims.renew();
        match prepared.map_err(sql)? {
            State::Ours { .. } => {}
            State::Foreign => return Err(Error::Foreign { path }),
            State::Newer { version } => {
                return Err(Error::Newer {
                    path,
                    found: version,
                    known: schema::VERSION,
                });
            }
        }
        Ok(Catalog {
            db,
            path,
            identity,
            _claims: claims,
        })
    }

    /// Opens the catalog for relearning it. A damaged one is put aside, under the second value's
    /// name, and a new one begun; settings and restores that only it knew stay there.
    pub fn open_or_replace(path: &Path) -> Result<(Catalog, Option<PathBuf>), Error> {
        let checked = Catalog::open(path).and_then(|catalog| {
            catalog.check()?;
            Ok(catalog)
        });
        match checked {
            Ok(catalog) => Ok((catalog, None)),
            Err(Error::Corrupt { path, .. }) => {
                let aside = put_aside(&path)?;
                Ok((Catalog::open(&path)?, Some(aside)))
            }
            Err(e) => Err(e),
        }
    }

    /// Where the catalog is, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads everything. Errors: [`Error::Corrupt`] when any of it is damaged.
    pub fn check(&self) -> Result<(), Error> {
        let said: String =
            self.read(|db| db.query_row("PRAGMA integrity_check(1)", [], |r| r.get(0)))?;
        if said != "ok" {
            return Err(self.corrupt(said));
        }
        // What SQLite finds in order may still not be ours: a letter of a column's name, a UUID.
        if !self.read(schema::is_intact)? {
            return Err(self.corrupt("its tables are not those of a catalog".into()));
        }
        let all = HistoryQuery::default();
        self.history_pages(&all, |_| ControlFlow::Continue(()))?;
        self.restore_pages(&all, |_| ControlFlow::Continue(()))?;
        self.settings()?;
        self.devices()?;
        self.restored_databases()?;
        self.sequences()?;
        Ok(())
    }

    fn corrupt(&self, said: String) -> Error {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        Error::Corrupt {
            path: self.path.clone(),
            source: rusqlite::Error::SqliteFailure(code, Some(said)),
        }
    }

    pub(crate) fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        query(&self.db).map_err(|e| Error::sql(&self.path, e))
    }

    /// Runs `change` in one transaction that has the catalog to itself, and syncs it.
    pub(crate) fn write<T>(
        &self,
        change: impl FnOnce(&Transaction) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        // A deleted file takes writes without complaint, and nobody ever reads them.
        if identity(&self.path)? != self.identity {
            return Err(Error::Vanished {
                path: self.path.clone(),
            });
        }
        let run = || {
            let tx = Transaction::new_unchecked(&self.db, TransactionBehavior::Immediate)?;
            let out = change(&tx)?;
            tx.commit()?;
            Ok(out)
        };
        run().map_err(|e| Error::sql(&self.path, e))
    }
}

/// Sets a new connection up: readers and a writer side by side, every commit synced, the schema up to date.
/// Writes nothing to what is not ours. All its steps together wait no longer than one call may.
///
/// Readers and a writer go on side by side by memory that they share. Where not all of them may see it, on a network or
/// FUSE, whoever comes second would make it anew, and the first one would die: there they wait for each other.
fn prepare(db: &Connection, shares_memory: bool) -> rusqlite::Result<State> {
    let until = Instant::now() + BUSY_MAX;
    let wait_at_most_the_rest = || db.busy_timeout(until.saturating_duration_since(Instant::now()));
    wait_at_most_the_rest()?;
    let mut state = schema::state(&db.unchecked_transaction()?)?;
    if let State::Ours { version } = state {
        wait_at_most_the_rest()?;
        journal(db, if shares_memory { "wal" } else { "delete" }, until)?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.pragma_update(None, "foreign_keys", true)?;
        if version < schema::VERSION {
            wait_at_most_the_rest()?;
            state = schema::migrate(db)?;
        }
    }
    if !shares_memory {
        // The next look at the file lets go of what the other mode holds.
        db.pragma_update(None, "locking_mode", "normal")?;
        db.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
    }
    db.busy_timeout(BUSY_MAX)?;
    Ok(state)
}

fn journal(db: &Connection, wanted: &str, until: Instant) -> rusqlite::Result<()> {
    let mode = || db.pragma_query_value(None, "journal_mode", |r| r.get::<_, String>(0));
    while mode()? != wanted {
        // Where the file system cannot do it the mode stays another, which is as safe. SQLite does not
        // wait by itself while another connection makes the same switch.
        match db.pragma_update_and_check(None, "journal_mode", wanted, |_| Ok(())) {
            Err(e)
                if e.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            switched => return switched,
        }
    }
    Ok(())
}

fn cannot(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Path {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Makes the empty file that SQLite takes for a new database, for its owner alone: SQLite itself makes files that
/// everybody reads, and the history names every database and device. Its log gets the same mode.
fn make_empty(storage: &Host, path: &Path) -> Result<(), Error> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let dir = storage
        .create_dir_all(parent)
        .map_err(|e| cannot("create", parent, e))?;
    let name = path.file_name().unwrap_or_default();
    match dir.open(Path::new(name), OpenHow::CreateNew) {
        // Another process has just made it.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop).map_err(|e| cannot("create", path, e)),
    }
}

/// Of the file, and of the directory, where its log is.
fn keeps_locks(storage: &Host, path: &Path) -> io::Result<bool> {
    let path = storage.canonical(path)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let dir = storage.dir(parent)?;
    Ok(dir.keeps_locks(Path::new(name))? && dir.keeps_locks(Path::new(""))?)
}

/// Device and inode. A file with other names is refused: SQLite would write through them, and whoever opens one of them
/// would do without the log that lies under another.
fn identity(path: &Path) -> Result<(u64, u64), Error> {
    match Host::new().stat(path) {
        Ok(stat) if stat.links > 1 => Err(Error::Shared {
            path: path.to_owned(),
        }),
        Ok(stat) => Ok((stat.dev, stat.ino)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Error::Vanished {
            path: path.to_owned(),
        }),
        Err(e) => Err(cannot("look at", path, e)),
    }
}

/// Renames a damaged catalog, with its log, to the first free `NAME.damaged-N`.
fn put_aside(path: &Path) -> Result<PathBuf, Error> {
    let refused = |e| cannot("put aside", path, e);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(refused(io::ErrorKind::InvalidFilename.into()));
    };
    let dir = Host::new().dir(parent).map_err(refused)?;
    let beside = |suffix: String| {
        let mut name = name.to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let free = |n: &u32| dir.stat(&beside(format!(".damaged-{n}"))).is_err();
    let n = (1..=999).find(free).unwrap_or(1000);
    // The log first: a new catalog must never meet the old one's.
    for part in ["-wal", "-shm", "-journal", ""] {
        match dir.rename(&beside(part.into()), &beside(format!(".damaged-{n}{part}"))) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed.map_err(refused)?,
        }
    }
    dir.sync(Path::new("")).map_err(refused)?;
    Ok(parent.join(beside(format!(".damaged-{n}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_said_to_be_one_and_leaves_the_catalog_sound() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&dir.path().join("catalog.db")).unwrap();
        // SQLite answers its own limit as it answers the disk's.
        let pages =
            |db: &Connection| db.pragma_query_value(None, "page_count", |r| r.get::<_, i64>(0));
        let limit = catalog.read(pages).unwrap() + 2;
        catalog
            .db
            .pragma_update(None, "max_page_count", limit)
            .unwrap();
        let long = "x".repeat(100_000);
        let sql = "INSERT INTO settings VALUES (?1, 1, 1)";
        let refused = catalog.write(|tx| tx.execute(sql, [&long])).unwrap_err();
        assert!(matches!(refused, Error::Full { .. }), "{refused}");
        assert_eq!(refused.number(), Some(3009));
        catalog.check().unwrap();
        catalog.write(|tx| tx.execute(sql, ["short"])).unwrap();
    }

    #[test]
    fn commits_are_synced_and_references_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&dir.path().join("catalog.db")).unwrap();
        let pragma = |name| {
            catalog
                .db
                .pragma_query_value(None, name, |r| r.get::<_, i64>(0))
                .unwrap()
        };
        // 2 is FULL.
        assert_eq!((pragma("synchronous"), pragma("foreign_keys")), (2, 1));
        let left = u128::try_from(pragma("busy_timeout")).unwrap();
        assert_eq!(left, BUSY_MAX.as_millis());
    }

    #[test]
    fn where_not_all_may_see_shared_memory_a_catalog_does_without() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalog.db");
        let open = |keeps| Catalog::open_by(path.clone(), Host::new(), |_| Ok(keeps)).unwrap();
        let mode = |catalog: &Catalog| {
            let mode = |db: &Connection| {
                db.pragma_query_value(None, "journal_mode", |r| r.get::<_, String>(0))
            };
            catalog.read(mode).unwrap()
        };
        let has_memory = || dir.path().join("catalog.db-shm").exists();
        let kept = |catalog: &Catalog, n: i64| {
            let count = |db: &Connection| {
                db.query_row("SELECT count(*) FROM settings WHERE value = 7", [], |r| {
                    r.get::<_, i64>(0)
                })
            };
            assert_eq!(catalog.read(count).unwrap(), n);
        };
        let put = |catalog: &Catalog, name: &str| {
            let sql = "INSERT INTO settings VALUES (?1, 7, 7)";
            catalog.write(|tx| tx.execute(sql, [name])).unwrap();
        };
        let there = open(false);
        put(&there, "a");
        // Nobody is locked out, as who keeps a lock for good would do.
        let second = open(false);
        put(&second, "b");
        kept(&there, 2);
        assert_eq!((mode(&there), has_memory()), ("delete".into(), false));
        drop((there, second));

        let here = open(true);
        put(&here, "c");
        assert_eq!((mode(&here), has_memory()), ("wal".into(), true));
        drop(here);

        let there = open(false);
        kept(&there, 3);
        assert_eq!((mode(&there), has_memory()), ("delete".into(), false));
        there.check().unwrap();
    }
}
