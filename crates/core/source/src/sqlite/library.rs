//! The calls to SQLite's library, and the only `unsafe` code of this room.
//!
//! One read-only connection.
//!
//! Invariants
//! - The connection takes part in SQLite's locking and never writes: a hot rollback journal is reported instead of
//!   rolled back, and closing makes no checkpoint.
//! - Nothing here but [`Reader::integrity`] reads the schema, so a database whose schema this version cannot parse is
//!   backed up too.
//!
//! Leaves to others: which lock a database needs (`snapshot.rs`), and when it is released (`held.rs`).

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use longshore_io::{Clock, HostClock};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use super::wal::{Checkpoints, INDEX_HEADER_WORDS, IndexHeader};
use crate::{CheckDepth, Error};

/// How many steps of a check pass between two looks at whether it was cancelled; a step may read a page.
const STEPS_A_LOOK: c_int = 16;

/// The longest text of a finding, in characters: names in it are the database's own.
const FINDING_MAX: usize = 1000;

/// The library's name for a connection's only database.
const MAIN: &std::ffi::CStr = c"main";

/// A read-only connection.
pub(super) struct Reader {
    connection: Connection,
    path: PathBuf,
}

/// Whether a read transaction began.
pub(super) enum Begun {
    Yes,
    /// Another program holds a conflicting lock.
    Busy,
}

/// Why a read transaction did not begin.
pub(super) enum Refusal {
    /// This user cannot create or use the files that SQLite needs next to the database.
    NoAccess,
    /// A writer died in a transaction, and its journal has not been rolled back.
    HotJournal,
    Other(Error),
}

impl From<Error> for Refusal {
    fn from(e: Error) -> Self {
        Refusal::Other(e)
    }
}

/// The wal-index as this connection sees it.
pub(super) enum WalIndex {
    Shared(IndexHeader),
    /// A writer was changing it at that moment.
    Changing,
    /// There is no shared index: SQLite reads the log itself, as on read-only media.
    Unkept,
}

impl Reader {
    /// `path` is absolute, so SQLite cannot take it for a URI.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let open = || -> rusqlite::Result<Connection> {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            #[expect(
                clippy::disallowed_methods,
                reason = "its files are in use by the snapshot"
            )]
            let connection = Connection::open_with_flags(path, flags)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            // This code waits itself, with one deadline for all retries.
            connection.busy_timeout(Duration::ZERO)?;
            Ok(connection)
        };
        match open() {
            Ok(connection) => Ok(Self {
                connection,
                path: path.into(),
            }),
            Err(e) => Err(refused(path, "open", e)),
        }
    }

    /// Begins a read transaction. Waits for locks until `deadline` of [`HostClock`].
    pub(super) fn begin(&self, deadline: Deadline) -> Result<(), Refusal> {
        let mut pause = Pause::default();
        loop {
            match self.try_begin()? {
                Begun::Yes => return Ok(()),
                Begun::Busy if deadline.is_ahead() => pause.wait(),
                Begun::Busy => return Err(deadline.busy(&self.path).into()),
            }
        }
    }

    /// Begins a read transaction unless it would have to wait for a lock.
    pub(super) fn try_begin(&self) -> Result<Begun, Refusal> {
        match self.begin_now() {
            Ok(()) => Ok(Begun::Yes),
            Err(e) if is_busy(&e) => Ok(Begun::Busy),
            Err(e) if lacks_access(&e) => Err(Refusal::NoAccess),
            Err(e) if extended_code(&e) == ffi::SQLITE_READONLY_ROLLBACK => {
                Err(Refusal::HotJournal)
            }
            Err(e) => Err(refused(&self.path, "read", e).into()),
        }
    }

    fn begin_now(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch("BEGIN")?;
        // BEGIN alone takes no lock. This reads one field of page 1, and no schema.
        let read = self
            .connection
            .query_row("PRAGMA main.schema_version", [], |_| Ok(()));
        if read.is_err() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        read
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Ends the read transaction.
    pub(super) fn end(&self) -> Result<(), Error> {
        self.connection
            .execute_batch("COMMIT")
            .map_err(|e| refused(&self.path, "end the transaction on", e))
    }

    /// Ends the transaction, if one is open, and the connection.
    pub(super) fn close(self) -> Result<(), Error> {
        let ended = if self.connection.is_autocommit() {
            Ok(())
        } else {
            self.end()
        };
        let Self { connection, path } = self;
        let closed = connection
            .close()
            .map_err(|(_, e)| refused(&path, "close", e));
        ended.and(closed)
    }

    /// The findings of SQLite's own check of the state that the read transaction shows, up to `max` of them; `None`:
    /// `cancel` was set. Nothing that the schema has is run but what indexes and generated columns compute: of a database that
    /// is opened for reading, SQLite does not even read CHECK.
    pub(super) fn integrity(
        &mut self,
        depth: CheckDepth,
        max: u32,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Option<Vec<String>>, Error> {
        let pragma = match depth {
            CheckDepth::Full => "integrity_check",
            CheckDepth::Physical => "quick_check",
        };
        let found = match self.pragma_lines(&format!("PRAGMA main.{pragma}({max})"), cancel) {
            Err(e) => match e.sqlite_error_code() {
                Some(ErrorCode::OperationInterrupted) => return Ok(None),
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => vec![e.to_string()],
                _ => return Err(refused(&self.path, "check", e)),
            },
            Ok(lines) => lines,
        };
        let is_finding = |line: &String| line != "ok" && !line.starts_with("*** in database");
        Ok(Some(found.into_iter().filter(is_finding).collect()))
    }

    /// The lines of a statement's texts, cut to what a finding may have; ends early when `cancel` is set.
    fn pragma_lines(
        &mut self,
        sql: &str,
        cancel: &Arc<AtomicBool>,
    ) -> rusqlite::Result<Vec<String>> {
        let trusted = DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA;
        self.connection.set_db_config(trusted, false)?;
        let flag = cancel.clone();
        let looks = move || flag.load(Ordering::Relaxed);
        self.connection
            .progress_handler(STEPS_A_LOOK, Some(looks))?;
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            let text = String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?);
            let cut = |line: &str| line.chars().take(FINDING_MAX).collect::<String>();
            all.extend(text.lines().map(cut));
        }
        Ok(all)
    }

    /// The page size, 512 to 65,536; valid after a transaction began.
    pub(super) fn page_bytes(&self) -> Result<u32, Error> {
        self.connection
            .query_row("PRAGMA main.page_size", [], |row| row.get(0))
            .map_err(|e| refused(&self.path, "learn the page size of", e))
    }

    /// Whether the file that SQLite opened has lost its name.
    pub(super) fn has_moved(&self) -> bool {
        let mut moved: c_int = 0;
        // SAFETY: SQLITE_FCNTL_HAS_MOVED demands a pointer to an int; `moved` outlives the call.
        let known = unsafe { self.control(ffi::SQLITE_FCNTL_HAS_MOVED, (&raw mut moved).cast()) };
        !known || moved != 0
    }

    /// Whether the transaction that began reads through a write-ahead log.
    pub(super) fn uses_wal(&self) -> bool {
        let mut journal: *mut ffi::sqlite3_file = ptr::null_mut();
        // SAFETY: SQLITE_FCNTL_JOURNAL_POINTER demands a pointer to a `sqlite3_file *`; `journal` outlives the call.
        let known =
            unsafe { self.control(ffi::SQLITE_FCNTL_JOURNAL_POINTER, (&raw mut journal).cast()) };
        // A read-only connection never has a rollback journal open, so an open journal is the log.
        // SAFETY: reading a field demands a live structure: the pointer is not null, and then it is a file of this
        // connection, which is alive.
        known && !journal.is_null() && unsafe { !(*journal).pMethods.is_null() }
    }

    /// Reads the header of the shared memory of a connection whose transaction [uses the log](Self::uses_wal), or did.
    /// Must not be called otherwise: it would create that memory.
    pub(super) fn wal_index(&self) -> Result<WalIndex, Error> {
        let Some(words) = self.index_words()? else {
            return Ok(WalIndex::Unkept);
        };
        let mut copy = [0; INDEX_HEADER_WORDS];
        for part in IndexHeader::READING_ORDER {
            for i in part {
                // SAFETY: `read_volatile` demands an aligned word that is mapped, and so are all words of a region. Other
                // processes write it, hence volatile; comparing the two copies inside detects torn reads.
                copy[i] = unsafe { ptr::read_volatile(words.add(i)) };
            }
            fence(Ordering::SeqCst);
        }
        Ok(IndexHeader::parse(&copy).map_or(WalIndex::Changing, WalIndex::Shared))
    }

    /// The counts of checkpoints in the shared memory; `None` if no program shares it. Demands what [`Self::wal_index`] does.
    pub(super) fn checkpoints(&self) -> Result<Option<Checkpoints>, Error> {
        let words = self.index_words()?;
        fence(Ordering::SeqCst);
        // SAFETY: `read_volatile` demands an aligned word that is mapped, and so are all words of a region. Each of these
        // counts by itself, and a reset in between shows as a change.
        let word = |words: *const u32, i| unsafe { ptr::read_volatile(words.add(i)) };
        Ok(words.map(|words| Checkpoints::of(Checkpoints::WORDS.map(|i| word(words, i)))))
    }

    /// Whether a program makes a checkpoint through the log at this moment. Demands what [`Self::wal_index`] does.
    pub(super) fn is_checkpointed(&self) -> Result<bool, Error> {
        /// The lock of a checkpoint among those of the shared memory (`WAL_CKPT_LOCK` of `wal.c`).
        const CHECKPOINT: c_int = 1;
        let trouble = |code| self.trouble("see the locks of", code);
        let (file, methods) = self.file()?;
        let Some(lock) = methods.xShmLock else {
            return Err(trouble(ffi::SQLITE_INTERNAL));
        };
        let call = |flags| {
            // SAFETY: the method demands an open file with shared memory that no other thread uses, and one lock of it: the
            // file is of this connection, which this thread holds, and its transaction uses the log.
            unsafe { lock(file, CHECKPOINT, 1, flags | ffi::SQLITE_SHM_SHARED) }
        };
        match call(ffi::SQLITE_SHM_LOCK) {
            ffi::SQLITE_OK => match call(ffi::SQLITE_SHM_UNLOCK) {
                ffi::SQLITE_OK => Ok(false),
                code => Err(trouble(code)),
            },
            ffi::SQLITE_BUSY => Ok(true),
            code => Err(trouble(code)),
        }
    }

    /// The first region of the shared memory; `None` if it is this connection's alone. The words stay mapped until the
    /// connection closes.
    fn index_words(&self) -> Result<Option<*const u32>, Error> {
        /// The size in which SQLite maps this file (`WALINDEX_PGSZ` of `wal.c`).
        const REGION_BYTES: c_int = 32 << 10;
        let trouble = |code| self.trouble("see the shared memory of", code);
        let (file, methods) = self.file()?;
        let Some(map) = Some(methods)
            .filter(|m| m.iVersion >= 2)
            .and_then(|m| m.xShmMap)
        else {
            return Err(trouble(ffi::SQLITE_INTERNAL));
        };
        let mut region: *mut c_void = ptr::null_mut();
        // SAFETY: `sqlite3.h` demands an open file of these methods, a region number, its size, and a pointer that outlives
        // the call. The fourth argument 0 keeps SQLite from extending the shared memory.
        let code = unsafe { map(file, 0, REGION_BYTES, 0, &raw mut region) };
        match code {
            ffi::SQLITE_OK | ffi::SQLITE_READONLY if !region.is_null() => {}
            ffi::SQLITE_OK | ffi::SQLITE_READONLY | ffi::SQLITE_READONLY_CANTINIT => {
                return Ok(None);
            }
            code => return Err(trouble(code)),
        }
        Ok(Some(region.cast_const().cast()))
    }

    /// Takes SQLite's SHARED lock without a transaction, which the library refuses while a journal is hot. Until
    /// [`Self::unshare`] or the end of the connection, no program rolls back or writes: both need the EXCLUSIVE lock.
    /// Waits until `deadline`.
    ///
    /// Must never become a RESERVED lock: other programs would take that for a living writer, and read the database
    /// file as it is.
    pub(super) fn share(&self, deadline: Deadline) -> Result<(), Error> {
        let (file, methods) = self.file()?;
        let mut pause = Pause::default();
        loop {
            let code = match methods.xLock {
                // SAFETY: the method demands an open file that no other thread uses, and a level of SQLite's: the file
                // is of this connection, which this thread holds.
                Some(lock) => unsafe { lock(file, ffi::SQLITE_LOCK_SHARED) },
                None => ffi::SQLITE_INTERNAL,
            };
            match code {
                ffi::SQLITE_OK => return Ok(()),
                ffi::SQLITE_BUSY if deadline.is_ahead() => pause.wait(),
                ffi::SQLITE_BUSY => return Err(deadline.busy(&self.path)),
                code => return Err(self.trouble("lock", code)),
            }
        }
    }

    /// Releases the lock.
    pub(super) fn unshare(&self) -> Result<(), Error> {
        let (file, methods) = self.file()?;
        let code = match methods.xUnlock {
            // SAFETY: the method demands an open file that no other thread uses, and a level to which SQLite unlocks:
            // the file is of this connection, which this thread holds, and NONE is one.
            Some(unlock) => unsafe { unlock(file, ffi::SQLITE_LOCK_NONE) },
            None => ffi::SQLITE_INTERNAL,
        };
        match code {
            ffi::SQLITE_OK => Ok(()),
            code => Err(self.trouble("unlock", code)),
        }
    }

    /// Whether a living writer is in a transaction: then its journal is not hot.
    pub(super) fn is_being_written(&self) -> Result<bool, Error> {
        let (file, methods) = self.file()?;
        let mut reserved: c_int = 0;
        let code = match methods.xCheckReservedLock {
            // SAFETY: the method demands an open file that no other thread uses, and room for one int: the file is of
            // this connection, which this thread holds, and `reserved` outlives the call.
            Some(check) => unsafe { check(file, &raw mut reserved) },
            None => ffi::SQLITE_INTERNAL,
        };
        match code {
            ffi::SQLITE_OK => Ok(reserved != 0),
            code => Err(self.trouble("see the locks of", code)),
        }
    }

    /// The database file as opened by the library.
    fn file(&self) -> Result<(*mut ffi::sqlite3_file, &ffi::sqlite3_io_methods), Error> {
        let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
        // SAFETY: SQLITE_FCNTL_FILE_POINTER demands a pointer to a `sqlite3_file *`; `file` outlives the call.
        let known = unsafe { self.control(ffi::SQLITE_FCNTL_FILE_POINTER, (&raw mut file).cast()) };
        if !known || file.is_null() {
            return Err(self.trouble("see the file of", ffi::SQLITE_INTERNAL));
        }
        // SAFETY: `as_ref` demands null or methods that live: those of an open file of this connection live as long as
        // the file.
        match unsafe { (*file).pMethods.as_ref() } {
            Some(methods) => Ok((file, methods)),
            None => Err(self.trouble("see the file of", ffi::SQLITE_INTERNAL)),
        }
    }

    fn trouble(&self, action: &'static str, code: c_int) -> Error {
        let e = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        refused(&self.path, action, e)
    }

    /// Calls `sqlite3_file_control`; returns whether the operation is known and succeeded.
    ///
    /// # Safety
    /// `argument` must point to the data that `operation` reads and writes.
    unsafe fn control(&self, operation: c_int, argument: *mut c_void) -> bool {
        // SAFETY: the call demands an open connection, a C string and an argument that fits the operation: the handle
        // lives as long as the connection, and the caller owes the argument.
        let code = unsafe {
            ffi::sqlite3_file_control(self.connection.handle(), MAIN.as_ptr(), operation, argument)
        };
        code == ffi::SQLITE_OK
    }
}

/// Opens and closes the database like any application: if no other program has it open, SQLite removes its -wal and
/// -shm files.
pub(super) fn visit(path: &Path) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    #[expect(
        clippy::disallowed_methods,
        reason = "its files are in use by the snapshot"
    )]
    let connection = Connection::open_with_flags(path, flags)?;
    connection.query_row("PRAGMA main.schema_version", [], |_| Ok(()))?;
    connection.close().map_err(|(_, e)| e)
}

/// When to give up waiting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    wait: Duration,
    end: Duration,
}

impl Deadline {
    pub(super) fn after(wait: Duration) -> Self {
        Self {
            wait,
            end: HostClock.now().saturating_add(wait),
        }
    }

    pub(super) fn is_ahead(&self) -> bool {
        HostClock.now() < self.end
    }

    pub(super) fn busy(&self, path: &Path) -> Error {
        Error::Busy {
            path: path.into(),
            waited_s: self.wait.as_secs(),
        }
    }
}

/// Waits a little longer each time, up to 20 ms.
#[derive(Default)]
pub(super) struct Pause {
    turns: u32,
}

impl Pause {
    pub(super) fn wait(&mut self) {
        self.turns += 1;
        HostClock.sleep(Duration::from_millis(u64::from(self.turns.min(20))));
    }
}

fn extended_code(e: &rusqlite::Error) -> c_int {
    e.sqlite_error().map_or(0, |e| e.extended_code)
}

fn is_busy(e: &rusqlite::Error) -> bool {
    let code = e.sqlite_error_code();
    matches!(
        code,
        Some(ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed)
    )
}

fn lacks_access(e: &rusqlite::Error) -> bool {
    e.sqlite_error_code() == Some(ErrorCode::CannotOpen)
        || matches!(
            extended_code(e),
            ffi::SQLITE_READONLY_CANTINIT
                | ffi::SQLITE_READONLY_RECOVERY
                | ffi::SQLITE_READONLY_CANTLOCK
                | ffi::SQLITE_READONLY_DIRECTORY
                | ffi::SQLITE_IOERR_SHMOPEN
                | ffi::SQLITE_IOERR_SHMSIZE
        )
}

fn refused(path: &Path, action: &'static str, e: rusqlite::Error) -> Error {
    let path = path.into();
    match e.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Error::NotADatabase { path },
        _ => Error::Sqlite {
            action,
            path,
            source: e,
        },
    }
}
