//! Takes a committed state of a database and holds it while its bytes are read.
//!
//! The state is held by the weakest lock that suffices: a read transaction on a write-ahead log, SQLite's SHARED lock,
//! a copy that shares the file's blocks, or no lock and a check at the end if this user cannot take part in the
//! locking. Nothing is written to the database and no journal is rolled back.
//!
//! Invariants
//! - The bytes of the state never change while a [`Snapshot`] lives; if a program ignored the locks, [`Snapshot::end`]
//!   reports it and the backup fails.
//!
//! Leaves to others: descriptors and their order of closing (`held.rs`), and which page comes from which file
//! (`overlay.rs`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore_io::{Clock, File, HostClock, Stat, Storage, Via};
use rustix::thread::CapabilitySet;

use super::held::{DatabaseFiles, FileMark, LastWrite, LockedDatabase, Look};
use super::journal::{self, JournalState};
use super::library::{Deadline, Pause, Reader, Refusal, WalIndex};
use super::overlay::Overlay;
use super::wal::{self, IndexHeader};
use crate::spec::SQLITE_MAGIC;
use crate::{CheckDepth, Error, SourceOptions};

/// The means that keep the state from changing.
#[derive(Debug)]
pub(super) enum StateLock {
    /// A read transaction on the write-ahead log. Writers continue. A check afterwards shows whether a program wrote that
    /// has another log.
    Log(FileMark),
    /// SQLite's SHARED lock. Commits wait. A check afterwards shows whether all writers respected it.
    SharedLock(LastWrite),
    /// The same lock, while a dead writer's journal waits to be rolled back. All programs wait.
    DeadWriter(LastWrite),
    /// A copy that shares the file's blocks, made under the SHARED lock. No program waits from then on.
    Reflink(Arc<dyn File>),
    /// Nothing to hold: the database was never written.
    Empty,
    /// Nothing: this user cannot take part in the locking. A check afterwards shows whether a program wrote.
    Nothing(Look),
}

/// A committed state, held until [`Snapshot::end`] or drop.
pub(super) struct Snapshot {
    held: LockedDatabase,
    state: State,
    log_len_at_start: u64,
    log_growth_limit: Option<u64>,
    began: Duration,
    ended: AtomicBool,
}

/// The bytes that make up the state.
struct State {
    hold: StateLock,
    /// 0 for a database that was never written.
    page_bytes: u32,
    len: u64,
    overlay: Overlay,
}

/// The findings at the end.
pub(super) struct EndFindings {
    pub(super) log_growth_bytes: u64,
    pub(super) held_for: Duration,
}

impl Snapshot {
    pub(super) fn take(
        storage: &dyn Storage,
        path: &Path,
        options: &SourceOptions,
    ) -> Result<Self, Error> {
        let place = DatabaseFiles::find(storage, path)?;
        // Checked before any of SQLite's files is touched. A program that believes it is alone recreates the log's
        // shared memory, and a program on another machine that has it mapped crashes.
        if !options.trust_locks && !place.keeps_locks()? {
            return Err(Error::LocksNotKept { path: place.path });
        }
        let mut held = LockedDatabase::open(place)?;
        let state = find_state(&mut held, options)?;
        Ok(Self::of(held, state, options))
    }

    fn of(held: LockedDatabase, state: State, options: &SourceOptions) -> Self {
        let mut snapshot = Self {
            held,
            state,
            log_len_at_start: 0,
            log_growth_limit: options.wal_growth_limit_bytes,
            began: HostClock.now(),
            ended: AtomicBool::new(false),
        };
        snapshot.log_len_at_start = snapshot.log_len();
        snapshot
    }

    /// Takes a snapshot as if this user could not take part in the locking.
    #[cfg(test)]
    pub(super) fn take_unlocked(storage: &dyn Storage, path: &Path) -> Result<Self, Error> {
        let mut held = LockedDatabase::open(DatabaseFiles::find(storage, path)?)?;
        let header = Header::read(held.db(), path)?;
        let look = held.look()?;
        let state = unlocked_state(&mut held, &header, look)?;
        Ok(Self::of(held, state, &SourceOptions::default()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.held.place().path
    }

    pub(super) fn log_path(&self) -> &Path {
        &self.held.place().log_path
    }

    /// The database file's attributes when it was opened.
    pub(super) fn stat(&self) -> &Stat {
        self.held.stat()
    }

    pub(super) fn hold(&self) -> &StateLock {
        &self.state.hold
    }

    /// 0 for a database that was never written.
    pub(super) fn page_bytes(&self) -> u32 {
        self.state.page_bytes
    }

    /// Memory for the overlay, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.state.overlay.memory_bytes()
    }

    pub(super) fn len(&self) -> u64 {
        self.state.len
    }

    pub(super) fn db(&self) -> &dyn File {
        match &self.state.hold {
            StateLock::Reflink(copy) => &**copy,
            _ => self.held.db(),
        }
    }

    pub(super) fn overlay(&self) -> &Overlay {
        &self.state.overlay
    }

    /// The file that holds the overlay's pages, and its name.
    pub(super) fn beside(&self) -> Option<(&dyn File, &Path)> {
        let place = self.held.place();
        match (self.held.log(), self.held.journal()) {
            (Some(log), _) => Some((log, &place.log_path)),
            (None, Some(journal)) => Some((journal, &place.journal_path)),
            (None, None) => None,
        }
    }

    /// If this succeeds, bytes read before the call are the snapshot's.
    pub(super) fn check_alive(&self) -> Result<(), Error> {
        match self.ended.load(Ordering::Acquire) {
            true => Err(Error::Ended {
                path: self.path().into(),
            }),
            false => Ok(()),
        }
    }

    /// Errors: [`Error::WalLimit`].
    pub(super) fn check_log_growth(&self) -> Result<(), Error> {
        let Some(limit_bytes) = self.log_growth_limit else {
            return Ok(());
        };
        let grown_bytes = self.log_growth_bytes();
        match grown_bytes > limit_bytes {
            true => Err(Error::WalLimit {
                path: self.log_path().into(),
                grown_bytes,
                limit_bytes,
            }),
            false => Ok(()),
        }
    }

    fn log_growth_bytes(&self) -> u64 {
        self.log_len().saturating_sub(self.log_len_at_start)
    }

    fn log_len(&self) -> u64 {
        let stat = self.held.log().and_then(|log| log.stat().ok());
        stat.map_or(0, |stat| stat.len)
    }

    /// Errors: [`Error::ChangedUnlocked`] if nothing held the state and a program wrote; [`Error::ChangedLocked`] if a
    /// program wrote despite the lock, or through the log of another name of the file. The frames of our log prove by
    /// themselves that they are the snapshot's.
    pub(super) fn check_still(&self) -> Result<(), Error> {
        match &self.state.hold {
            StateLock::Nothing(before) if self.held.look()? != *before => {
                Err(Error::ChangedUnlocked {
                    path: self.path().into(),
                })
            }
            StateLock::SharedLock(before) | StateLock::DeadWriter(before) => {
                check_unwritten(&self.held, *before)
            }
            StateLock::Log(mark) if !self.held.is_explained(mark)? => Err(Error::ChangedLocked {
                path: self.path().into(),
            }),
            _ => Ok(()),
        }
    }

    /// The findings of SQLite's own check of the state, up to `max`; `None`: cancelled. Errors: a state that SQLite itself
    /// cannot read without writing.
    pub(super) fn integrity(
        &self,
        depth: CheckDepth,
        max: u32,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Option<Vec<String>>, Error> {
        let path = || self.path().to_path_buf();
        match self.hold() {
            StateLock::Empty => Ok(Some(Vec::new())),
            StateLock::Log(_) | StateLock::SharedLock(_) => self.held.integrity(depth, max, cancel),
            StateLock::DeadWriter(_) => Err(Error::HotJournal {
                path: path(),
                what: "a check reads the database as every program does",
            }),
            StateLock::Reflink(_) | StateLock::Nothing(_) => Err(Error::Io {
                action: "lock",
                path: path(),
                source: std::io::ErrorKind::PermissionDenied.into(),
            }),
        }
    }

    #[cfg(test)]
    pub(super) fn with_connection<T>(&self, f: impl FnOnce(&rusqlite::Connection) -> T) -> T {
        self.held.with_connection(f)
    }

    /// Ends the transaction. Descriptors stay open until the last content is dropped.
    pub(super) fn end(&self) -> Result<EndFindings, Error> {
        let log_growth_bytes = self.log_growth_bytes();
        self.ended.store(true, Ordering::Release);
        self.held.end_transaction()?;
        let held_for = HostClock.now().saturating_sub(self.began);
        Ok(EndFindings {
            log_growth_bytes,
            held_for,
        })
    }
}

/// Fields of the file's header (SQLite file format, section 1.3).
struct Header {
    magic: bool,
    /// 512 to 65,536; anything else if the file is damaged.
    page_bytes: u32,
    wants_log: bool,
}

impl Header {
    const BYTES: usize = 20;

    fn read(db: &dyn File, path: &Path) -> Result<Self, Error> {
        Ok(Self::parse(&Self::bytes(db, path)?))
    }

    fn bytes(db: &dyn File, path: &Path) -> Result<[u8; Self::BYTES], Error> {
        let mut bytes = [0; Self::BYTES];
        match db.read_full_at(&mut bytes, 0, Via::Cache) {
            Ok(_) => Ok(bytes),
            Err(source) => Err(Error::Read {
                path: path.into(),
                offset: 0,
                source,
            }),
        }
    }

    fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        let page_bytes = match u16::from_be_bytes([bytes[16], bytes[17]]) {
            1 => 65_536,
            n => n.into(),
        };
        Self {
            magic: bytes.starts_with(SQLITE_MAGIC),
            page_bytes,
            wants_log: bytes[18..20] == [2, 2],
        }
    }
}

fn find_state(held: &mut LockedDatabase, options: &SourceOptions) -> Result<State, Error> {
    let look = held.look()?;
    let path = held.place().path.clone();
    let header = Header::read(held.db(), &path)?;
    if held.stat().len == 0 {
        // An empty file is SQLite's empty database. The library is not asked, because it might remove files next to
        // it.
        let overlay = Overlay::empty(0);
        return Ok(State {
            hold: StateLock::Empty,
            page_bytes: 0,
            len: 0,
            overlay,
        });
    }
    if !header.magic && !look.has_journal {
        return Err(Error::NotADatabase { path });
    }
    let uses_log = header.wants_log || look.log.as_ref().is_some_and(|log| log.len > 0);
    let would_make_files = uses_log && (look.log.is_none() || !held.has_shared_memory()?);
    // The owner's programs may be unable to open files that another user creates.
    if would_make_files && !may_make_files_for(held.stat()) {
        return unlocked_state(held, &header, look);
    }
    held.connect()?;
    match locked_state(held, options) {
        Ok(state) => Ok(state),
        Err(Refusal::HotJournal) => Err(Error::Busy {
            path,
            waited_s: options.lock_wait.as_secs(),
        }),
        Err(Refusal::NoAccess) if uses_log => {
            held.disconnect()?;
            unlocked_state(held, &header, look)
        }
        Err(Refusal::NoAccess) => Err(Error::Io {
            action: "open",
            path,
            source: std::io::ErrorKind::PermissionDenied.into(),
        }),
        Err(Refusal::Other(e)) => Err(e),
    }
}

/// The state under SQLite's locking rules.
fn locked_state(held: &mut LockedDatabase, options: &SourceOptions) -> Result<State, Refusal> {
    let deadline = Deadline::after(options.lock_wait);
    let mut pause = Pause::default();
    loop {
        match held.begin(deadline) {
            Ok(()) => break,
            Err(Refusal::HotJournal) => match rolled_back_state(held, deadline)? {
                Some(state) => return Ok(state),
                // Another program rolled it back at that moment.
                None if deadline.is_ahead() => pause.wait(),
                None => return Err(deadline.busy(&held.place().path).into()),
            },
            Err(refusal) => return Err(refusal),
        }
    }
    if !held.is_one_file()? {
        return Err(Error::Replaced {
            path: held.place().path.clone(),
        }
        .into());
    }
    let page_bytes = held.reader()?.page_bytes()?;
    if !held.reader()?.uses_wal() {
        let len = file_len(held)?;
        let before = held.last_write()?;
        let hold = match options.reflink.then(|| held.db().reflink()).flatten() {
            Some(copy) => {
                check_unwritten(held, before)?;
                held.end_transaction()?;
                StateLock::Reflink(copy)
            }
            None => StateLock::SharedLock(before),
        };
        return Ok(State {
            hold,
            page_bytes,
            len,
            overlay: Overlay::empty(page_bytes),
        });
    }
    held.open_log()?;
    held.check_shared_memory()?;
    let path = held.place().path.clone();
    let mark = mark(held.reader()?, &path, deadline)?;
    let file_mark = held.file_mark()?;
    let pages = match mark.pages() {
        // Nothing was committed through this log yet.
        0 => u32::try_from(file_len(held)? / u64::from(page_bytes)).unwrap_or(u32::MAX),
        pages => pages,
    };
    let len = u64::from(pages) * u64::from(page_bytes);
    // If equal, the whole log is in the database already, and may be reset at any moment.
    let frames = mark.backfilled.min(mark.last_frame()) + 1..mark.last_frame() + 1;
    let overlay = scan(held, page_bytes, mark.salts(), frames, pages)?;
    Ok(State {
        hold: StateLock::Log(file_mark),
        page_bytes,
        len,
        overlay,
    })
}

/// The state before a transaction whose writer died: the database file with the journal's originals in place of its
/// own pages. `None` if that journal no longer exists.
///
/// The SHARED lock excludes the EXCLUSIVE one, which rolling back and writing need. If the dead writer changed the
/// database file, it held the EXCLUSIVE lock; so no reader has an older SHARED lock, and a new reader releases its
/// lock when it finds the journal hot. If the dead writer did not change the file, an older reader may begin to write
/// and reuse the journal's file. In that case the database file is the state with and without the originals, and an
/// incomplete record is an error.
fn rolled_back_state(
    held: &mut LockedDatabase,
    deadline: Deadline,
) -> Result<Option<State>, Error> {
    held.reader()?.share(deadline)?;
    let found = match !held.reader()?.is_being_written()? && held.open_journal()? {
        true => read_journal(held)?,
        false => None,
    };
    if found.is_none() {
        held.close_journal();
        held.reader()?.unshare()?;
    }
    Ok(found)
}

/// Must be called under the SHARED lock.
fn read_journal(held: &mut LockedDatabase) -> Result<Option<State>, Error> {
    let path = held.place().path.clone();
    if !held.is_one_file()? {
        return Err(Error::Replaced { path });
    }
    let hot = |what| Error::HotJournal {
        path: path.clone(),
        what,
    };
    if held.look()?.log.is_some_and(|log| log.len > 0) {
        return Err(hot("there is a write-ahead log too"));
    }
    let before = held.last_write()?;
    let header = Header::read(held.db(), &path)?;
    let Some(journal) = held.journal() else {
        return Ok(None);
    };
    let state = |page_bytes, len, overlay| State {
        hold: StateLock::DeadWriter(before),
        page_bytes,
        len,
        overlay,
    };
    match journal::find(journal, &held.place().journal_path, header.page_bytes)? {
        JournalState::Ended => Ok(None),
        JournalState::Several => Err(hot(
            "it spans several databases, and only their super-journal shows whether it was committed",
        )),
        JournalState::Unused if header.magic => {
            let overlay = Overlay::empty(header.page_bytes);
            Ok(Some(state(header.page_bytes, file_len(held)?, overlay)))
        }
        JournalState::Unused => Err(Error::NotADatabase { path }),
        JournalState::Hot(unfinished) => {
            let mut bytes = Header::bytes(held.db(), &path)?;
            let journal_path = &held.place().journal_path;
            let overlay = &unfinished.overlay;
            overlay.apply(journal, journal_path, &mut bytes, 0, Via::Cache)?;
            if unfinished.pages > 0 && !Header::parse(&bytes).magic {
                return Err(Error::NotADatabase { path });
            }
            let len = u64::from(unfinished.pages) * u64::from(unfinished.page_bytes);
            Ok(Some(state(unfinished.page_bytes, len, unfinished.overlay)))
        }
    }
}

/// A read transaction on a log that can be restarted, and the header of the log's index.
trait LogView {
    fn index(&self) -> Result<WalIndex, Error>;
    fn renew(&self, deadline: Deadline) -> Result<(), Refusal>;
}

impl LogView for Reader {
    fn index(&self) -> Result<WalIndex, Error> {
        self.wal_index()
    }

    fn renew(&self, deadline: Deadline) -> Result<(), Refusal> {
        self.end()?;
        self.begin(deadline)
    }
}

/// The commit that the read transaction shows: the index was the same before and after it began.
fn mark(view: &impl LogView, path: &Path, deadline: Deadline) -> Result<IndexHeader, Refusal> {
    let mut pause = Pause::default();
    loop {
        let before = view.index()?;
        view.renew(deadline)?;
        let after = view.index()?;
        match (before, after) {
            (WalIndex::Unkept, _) | (_, WalIndex::Unkept) => return Err(Refusal::NoAccess),
            (WalIndex::Shared(before), WalIndex::Shared(after)) if before.same_commit(&after) => {
                return Ok(after);
            }
            _ if deadline.is_ahead() => pause.wait(),
            _ => return Err(deadline.busy(path).into()),
        }
    }
}

/// The state from the bytes alone, without a lock.
fn unlocked_state(held: &mut LockedDatabase, header: &Header, look: Look) -> Result<State, Error> {
    let path = held.place().path.clone();
    if look.has_journal {
        return Err(Error::HotJournal {
            path,
            what: "this user cannot lock the database",
        });
    }
    let page_bytes = header.page_bytes;
    if !header.magic || !page_bytes.is_power_of_two() || page_bytes < 512 {
        return Err(Error::NotADatabase { path });
    }
    let mut state = State {
        hold: StateLock::Nothing(look),
        page_bytes,
        len: held.stat().len,
        overlay: Overlay::empty(page_bytes),
    };
    if matches!(&state.hold, StateLock::Nothing(look) if look.log.is_none()) {
        return Ok(state);
    }
    held.open_log()?;
    let log_path = held.place().log_path.clone();
    let found = match held.log() {
        Some(log) => wal::recover(log, &log_path)?,
        None => None,
    };
    let Some(found) = found else {
        return Ok(state);
    };
    if found.page_bytes != page_bytes {
        return Err(Error::WalDamaged {
            path: log_path,
            offset: 8,
        });
    }
    state.len = u64::from(found.pages) * u64::from(page_bytes);
    state.overlay = scan(
        held,
        page_bytes,
        found.salts,
        1..found.last_frame + 1,
        found.pages,
    )?;
    Ok(state)
}

fn scan(
    held: &LockedDatabase,
    page_bytes: u32,
    salts: [u32; 2],
    frames: std::ops::Range<u32>,
    pages: u32,
) -> Result<Overlay, Error> {
    match held.log() {
        Some(log) if !frames.is_empty() => wal::scan(
            log,
            &held.place().log_path,
            page_bytes,
            salts,
            frames,
            pages,
        ),
        _ => Ok(Overlay::empty(page_bytes)),
    }
}

/// Called under the lock, and again before it is released.
fn check_unwritten(held: &LockedDatabase, before: LastWrite) -> Result<(), Error> {
    match held.last_write()? == before {
        true => Ok(()),
        false => Err(Error::ChangedLocked {
            path: held.place().path.clone(),
        }),
    }
}

fn file_len(held: &LockedDatabase) -> Result<u64, Error> {
    match held.db().stat() {
        Ok(stat) => Ok(stat.len),
        Err(source) => Err(Error::Io {
            action: "look at",
            path: held.place().path.clone(),
            source,
        }),
    }
}

/// When SQLite runs as root, it gives the files it creates to the database's owner. Without the right to do so, as in a
/// container or a unit that drops it, they would be root's, and the owner's programs could not write any longer.
fn may_make_files_for(stat: &Stat) -> bool {
    let user = rustix::process::geteuid();
    user.as_raw() == stat.uid || user.is_root() && may_give_away()
}

fn may_give_away() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::CHOWN))
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Returns scripted values, in that order.
    struct Script {
        indexes: RefCell<Vec<WalIndex>>,
        renewed: Cell<usize>,
    }

    impl LogView for Script {
        fn index(&self) -> Result<WalIndex, Error> {
            Ok(self.indexes.borrow_mut().remove(0))
        }
        fn renew(&self, _: Deadline) -> Result<(), Refusal> {
            self.renewed.set(self.renewed.get() + 1);
            Ok(())
        }
    }

    fn commit(frame: u32, backfilled: u32) -> WalIndex {
        WalIndex::Shared(IndexHeader::of_commit(frame, backfilled))
    }

    fn marked(indexes: Vec<WalIndex>, wait: Duration) -> (Result<IndexHeader, Refusal>, usize) {
        let view = Script {
            indexes: RefCell::new(indexes),
            renewed: Cell::new(0),
        };
        let mark = mark(&view, Path::new("db"), Deadline::after(wait));
        (mark, view.renewed.get())
    }

    #[test]
    fn a_mark_is_a_commit_seen_on_both_sides_of_the_beginning() {
        let a_while = Duration::from_secs(60);
        let still = vec![commit(7, 0), commit(7, 7)];
        let (mark, renewed) = marked(still, a_while);
        let mark = mark.ok().unwrap();
        assert_eq!((mark.last_frame(), mark.backfilled, renewed), (7, 7, 1));
        let moving = vec![
            commit(7, 0),
            commit(8, 0),
            WalIndex::Changing,
            commit(9, 0),
            commit(9, 3),
            commit(9, 4),
        ];
        let (mark, renewed) = marked(moving, a_while);
        let mark = mark.ok().unwrap();
        assert_eq!((mark.last_frame(), mark.backfilled, renewed), (9, 4, 3));
    }

    #[test]
    fn no_read_mark_is_taken_late_or_from_an_unprotected_log() {
        let (mark, _) = marked(vec![commit(7, 0), commit(8, 0)], Duration::ZERO);
        assert!(matches!(mark, Err(Refusal::Other(Error::Busy { .. }))));
        let (mark, _) = marked(vec![commit(7, 0), WalIndex::Unkept], Duration::ZERO);
        assert!(matches!(mark, Err(Refusal::NoAccess)));
    }
}
