//! Opens the catalog; the part that all calls on it share.
//!
//! Invariants
//! - A call ends within [`BUSY_MAX`] and a little work, whatever other programs do with the file.
//! - A file that is not a catalog is never changed, and one that was deleted, replaced or linked elsewhere since it was
//!   opened is not written.
//!
//! Leaves to others: rows (`write.rs`, `query.rs`) and settings. No backup depends on any of them: the callers warn
//! and go on.

use std::fmt::Debug;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longshore_io::{ConnectionClaims, FileKind, Host, OpenHow, Storage};
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::schema::{self, DatabaseState};
use crate::{Error, HistoryQuery};

/// SQL Server counts every database in pages of this size.
pub(crate) const PAGE_BYTES: u64 = 8192;

/// The longest that one call waits for other users of the catalog. A call that fails with [`Error::Locked`] waited
/// once, so it ends within this time and a little work.
pub const BUSY_MAX: Duration = Duration::from_millis(2500);

/// An open catalog. It has one connection: use it from one thread at a time, and open another catalog for another
/// thread.
#[derive(Debug)]
pub struct Catalog {
    pub(crate) db: Connection,
    path: PathBuf,
    /// Device and inode of the opened file.
    identity: (u64, u64),
    /// Protects the connection's locks from other reads in this process. Ends after the connection.
    _claims: ConnectionClaims,
}

impl Catalog {
    /// Opens the catalog at `path`, creates it with its directories if it is missing, and updates an older schema.
    ///
    /// Errors: every variant except those about media and settings. A database that is not a catalog is not changed
    /// ([`Error::Foreign`]).
    pub fn open(path: &Path) -> Result<Catalog, Error> {
        // Absolute, because SQLite gives `:memory:` and the empty name special meanings.
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
        // Before SQLite opens it: a log found under this name may belong to another name of the file.
        let identity = identity(&path)?;
        let shares_memory = keeps_locks(&path).map_err(|e| cannot("look at", &path, e))?;
        let sql = |e| Error::sql(&path, e);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || -> rusqlite::Result<Connection> {
            #[expect(clippy::disallowed_methods, reason = "its files are in use")]
            let db = Connection::open_with_flags(&path, flags)?;
            // Creates the log's shared-memory file. Errors in the file are reported below.
            db.busy_timeout(Duration::ZERO)?;
            if !shares_memory {
                // SQLite then works without shared memory, even if there is a log.
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
            DatabaseState::Ours { .. } => {}
            DatabaseState::Foreign => return Err(Error::Foreign { path }),
            DatabaseState::Newer { version } => {
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

    /// Opens the catalog to relearn it from media. A damaged catalog is renamed to the name in the second value, and a
    /// new one is created; settings and restores that only the old one knew stay there.
    pub fn open_or_replace(path: &Path) -> Result<(Catalog, Option<PathBuf>), Error> {
        let checked = Catalog::open(path).and_then(|catalog| {
            catalog.check()?;
            Ok(catalog)
        });
        match checked {
            Ok(catalog) => Ok((catalog, None)),
            Err(Error::Corrupt { path, .. }) => {
                let aside = put_aside(&Host::new(), &path)?;
                Ok((Catalog::open(&path)?, Some(aside)))
            }
            Err(e) => Err(e),
        }
    }

    /// The catalog's path, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads everything. Errors: [`Error::Corrupt`] if any of it is damaged.
    pub fn check(&self) -> Result<(), Error> {
        let said: String =
            self.read(|db| db.query_row("PRAGMA integrity_check(1)", [], |r| r.get(0)))?;
        if said != "ok" {
            return Err(self.corrupt(said));
        }
        // SQLite may accept damage in a column's name or a UUID.
        if !self.read(schema::is_intact)? {
            return Err(self.corrupt("its tables are not a catalog's".into()));
        }
        let all = HistoryQuery::default();
        self.history_portions(&all, |_| ControlFlow::Continue(()))?;
        self.restore_portions(&all, |_| ControlFlow::Continue(()))?;
        self.run_portions(&all, |_| ControlFlow::Continue(()))?;
        self.settings()?;
        self.devices()?;
        self.restored_databases()?;
        self.sequences()?;
        self.credentials()?;
        self.objects()?;
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

    /// Runs `change` in one exclusive transaction, and syncs it.
    pub(crate) fn write<T>(
        &self,
        change: impl FnOnce(&Transaction) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        // A deleted file accepts writes without an error, but nobody ever reads them.
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

/// Prepares a new connection: readers and a writer at the same time, every commit synced, the schema up to date. Does
/// not write to a database that is not a catalog. All steps together wait no longer than one call may.
///
/// Readers and a writer work at the same time through shared memory. If not all programs may see it (network file
/// systems, FUSE), the second program would recreate it and the first one would crash; there they wait for each other.
fn prepare(db: &Connection, shares_memory: bool) -> rusqlite::Result<DatabaseState> {
    let until = Instant::now() + BUSY_MAX;
    let wait_at_most_the_rest = || db.busy_timeout(until.saturating_duration_since(Instant::now()));
    wait_at_most_the_rest()?;
    let mut state = schema::state(&db.unchecked_transaction()?)?;
    if let DatabaseState::Ours { version } = state {
        wait_at_most_the_rest()?;
        journal(db, if shares_memory { "wal" } else { "delete" }, until)?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.pragma_update(None, "foreign_keys", true)?;
        // Pages of deleted rows are overwritten: a sealed key must not stay in the file.
        db.pragma_update(None, "secure_delete", true)?;
        if version < schema::VERSION {
            wait_at_most_the_rest()?;
            state = schema::migrate(db)?;
        }
    }
    if !shares_memory {
        // The next access to the file releases the lock of the other mode.
        db.pragma_update(None, "locking_mode", "normal")?;
        db.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
    }
    db.busy_timeout(BUSY_MAX)?;
    Ok(state)
}

fn journal(db: &Connection, wanted: &str, until: Instant) -> rusqlite::Result<()> {
    let mode = || db.pragma_query_value(None, "journal_mode", |r| r.get::<_, String>(0));
    while mode()? != wanted {
        // If the file system does not support the mode, another one remains, which is as safe. SQLite itself does not
        // wait while another connection makes the same switch.
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

/// Creates the empty file that SQLite accepts as a new database, readable by its owner only: SQLite itself creates
/// files that everybody can read, and the history names every database and device. The log gets the same mode.
fn make_empty(storage: &Host, path: &Path) -> Result<(), Error> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let dir = storage
        .create_dir_all(parent)
        .map_err(|e| cannot("create", parent, e))?;
    let name = path.file_name().unwrap_or_default();
    match dir.open(Path::new(name), OpenHow::CreateNew) {
        // Another process has just created it.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(drop).map_err(|e| cannot("create", path, e)),
    }
}

/// Checks the file, and the directory, which holds its log.
fn keeps_locks(storage: &Host, path: &Path) -> io::Result<bool> {
    let path = storage.canonical(path)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let dir = storage.dir(parent)?;
    Ok(dir.keeps_locks(Path::new(name))? && dir.keeps_locks(Path::new(""))?)
}

/// Device and inode. A file with other names is refused: SQLite would write to all of them, and a program that opens
/// another name would miss the log under this one.
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
fn put_aside(storage: &dyn Storage, path: &Path) -> Result<PathBuf, Error> {
    let refused = |e| cannot("put aside", path, e);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(refused(io::ErrorKind::InvalidFilename.into()));
    };
    let dir = storage.dir(parent).map_err(refused)?;
    let beside = |suffix: String| {
        let mut name = name.to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let free = |n: &u32| dir.stat(&beside(format!(".damaged-{n}"))).is_err();
    let n = (1..=999).find(free).unwrap_or(1000);
    // The log first, for good: a new catalog must never meet the old one's.
    for part in ["-wal", "-shm", "-journal", ""] {
        if part.is_empty() {
            dir.sync(Path::new("")).map_err(refused)?;
        }
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
    use longshore_io::{Fault, SimDisk};

    use super::*;

    #[test]
    fn a_full_disk_is_said_to_be_one_and_leaves_the_catalog_sound() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::open(&dir.path().join("catalog.db")).unwrap();
        // SQLite reports its own limit like a full disk.
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

    /// Goal: wherever the power is cut, a new catalog does not meet the log of one that was put aside.
    #[test]
    fn a_power_cut_leaves_no_log_of_a_catalog_that_was_put_aside() {
        let path = Path::new("/state/catalog.db");
        let prepared = |seed| {
            let disk = SimDisk::new(seed);
            for side in ["", "-wal", "-shm"] {
                let name = format!("{}{side}", path.display());
                disk.write_file(name, b"damaged").unwrap();
            }
            disk
        };
        let whole = prepared(0);
        put_aside(&whole, path).unwrap();
        let is_met = |forgotten: Option<&Fault>| {
            (0..=whole.steps()).any(|step| {
                let disk = prepared(step).cut_power_at(step);
                forgotten
                    .into_iter()
                    .for_each(|fault| drop(disk.inject(fault.clone())));
                let told = put_aside(&disk, path).is_ok();
                disk.images(20).iter().any(|image| {
                    let stands = |name: &str| image.read_file(name).is_ok();
                    let is_there = stands("/state/catalog.db");
                    (told && is_there) || (!is_there && stands("/state/catalog.db-wal"))
                })
            })
        };
        assert!(!is_met(None));
        let syncs = whole.forgetting(0);
        assert_eq!(syncs.len(), 2);
        for (_, forgotten) in &syncs {
            assert!(is_met(Some(forgotten)));
        }
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
    fn a_catalog_does_without_shared_memory_that_not_all_users_can_open() {
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
        // No other connection is locked out, as a permanent lock would do.
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
