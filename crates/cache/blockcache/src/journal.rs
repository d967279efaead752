//! The durable table of slots: two logs on the cache device; the superblock names the live one.
//!
//! A log begins with the whole table and continues with changes. Commits take whole pages, so that no page is
//! rewritten; several callers share one commit. A full log is rewritten into the other half, which becomes live once
//! everything in it is durable. Memory holds a copy of the table as a replay would produce it.
//!
//! Data that a medium loses or corrupts must not look like the end of the log: an older table would count. So every
//! page is stored twice, far apart, and either copy is enough; the superblock says how many pages there must be at
//! least; and a page names the start of its commit, before which all pages were durable. A gap that contradicts
//! these is damage, and the whole table is discarded. The superblock is stored twice, too, and each copy is durable
//! before more is written.
//!
//! Invariants
//! - A record that [`Journal::commit`] made durable is in every table that a later replay can produce, even if any one
//!   page of 4 KiB was corrupted, or never written although the cache device confirmed it.
//! - A replay produces the table as of some moment between the last commit and the last append, or nothing at all.
//! - No lock is held during I/O: changes are appended while the log is written, also while it is rewritten.
//! - A page of another session, or of another rewrite of this one, is not part of the live log.
//! - A failed write is repeated once in place, with its own sync, then the log is rewritten in the other half, at most
//!   twice. A commit for which all of this fails breaks the journal for good: nothing is promised from then on.
//! - Each attempt to rewrite the log has its own generation, and each superblock a sequence, so that the pages of one
//!   attempt never count as part of the next.
//! - Failed syncs are counted for other callers ([`Journal::lost_syncs`]): the system reports an error to one caller
//!   only, and it may concern slots.
//! - Lock order: a thread that holds a directory's lock may append; no thread appends and waits for a commit at once.
//!
//! Leaves to others: the bytes of pages and records (`format.rs`), and whether a cache is believed (`open.rs`).

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use longshore_io::{File, Via};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

use crate::format::{
    self, BackendContent, JournalRecord, LogPosition, SUPER_LEN, ServedBackend, Superblock,
};
use crate::geometry::{Geometry, LINE, Lines};
use crate::log_size::PAGE_HEAD;

const BODY: usize = LINE as usize - PAGE_HEAD;

/// The durable content of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotRecord {
    pub cache_block: u64,
    /// No bits: the slot is empty.
    pub lines: Lines,
}

/// The table of slots as the log defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    geometry: Geometry,
    held: Vec<SlotRecord>,
    sums: Vec<u32>,
    served: ServedBackend,
}

impl Table {
    /// `None` if there is no memory for so many slots.
    pub fn empty(geometry: Geometry) -> Option<Table> {
        let slots = geometry.slots as usize;
        let (mut held, mut sums) = (Vec::new(), Vec::new());
        held.try_reserve_exact(slots).ok()?;
        held.resize(slots, SlotRecord::default());
        let lines = slots * geometry.lines_per_slot() as usize;
        sums.try_reserve_exact(lines).ok()?;
        sums.resize(lines, 0);
        Some(Table {
            geometry,
            held,
            sums,
            served: ServedBackend::default(),
        })
    }

    /// The durable facts about the backend.
    pub fn served(&self) -> ServedBackend {
        self.served
    }

    /// Sets the facts about the backend when a session begins.
    pub(crate) fn set_served(&mut self, served: ServedBackend) {
        self.served = served;
    }

    /// Adds empty slots, or removes slots. `false`: there is no memory for more.
    fn resize(&mut self, geometry: Geometry) -> bool {
        let (slots, lines) = (geometry.slots as usize, geometry.lines_per_slot() as usize);
        let more = slots.saturating_sub(self.held.len());
        if self.held.try_reserve_exact(more).is_err()
            || self.sums.try_reserve_exact(more * lines).is_err()
        {
            return false;
        }
        self.held.resize(slots, SlotRecord::default());
        self.sums.resize(slots * lines, 0);
        self.geometry = geometry;
        true
    }

    pub fn held(&self, slot: u32) -> SlotRecord {
        self.held[slot as usize]
    }

    /// The checksum of each line of a slot; meaningful only for lines that it holds.
    pub fn sums(&self, slot: u32) -> &[u32] {
        let lines = self.geometry.lines_per_slot() as usize;
        &self.sums[slot as usize * lines..][..lines]
    }

    /// `false`: this program never wrote such a record.
    pub(crate) fn apply(&mut self, record: &JournalRecord) -> bool {
        let per_slot = self.geometry.lines_per_slot() as usize;
        match record {
            JournalRecord::Backend(served) => self.served = *served,
            JournalRecord::Clear { slot } => match self.held.get_mut(*slot as usize) {
                Some(held) => *held = SlotRecord::default(),
                None => return false,
            },
            JournalRecord::Set {
                slot,
                cache_block,
                lines,
                sums,
            } => {
                let strange = lines & !self.geometry.all_lines() != 0 || *lines == 0;
                let Some(held) = self.held.get_mut(*slot as usize).filter(|_| !strange) else {
                    return false;
                };
                *held = SlotRecord {
                    cache_block: *cache_block,
                    lines: *lines,
                };
                let at = *slot as usize * per_slot;
                let there = (0..per_slot).filter(|line| lines >> line & 1 == 1);
                for (line, sum) in there.zip(sums) {
                    self.sums[at + line] = *sum;
                }
            }
        }
        true
    }

    /// The record that produces a slot's present content.
    fn record(&self, slot: u32) -> JournalRecord {
        let held = self.held(slot);
        if held.lines == 0 {
            return JournalRecord::Clear { slot };
        }
        let sums = self.sums(slot).iter().enumerate();
        let there = sums.filter(|(line, _)| held.lines >> line & 1 == 1);
        JournalRecord::Set {
            slot,
            cache_block: held.cache_block,
            lines: held.lines,
            sums: there.map(|(_, sum)| *sum).collect(),
        }
    }
}

/// The result of reading both copies of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblocks {
    /// The one that counts.
    pub newest: Superblock,
    /// Both copies are sound. A power cut leaves them sound: a sector is written whole or not at all.
    pub sound: bool,
}

/// The superblock that counts; `None` if neither copy is valid.
pub fn read_superblock(file: &dyn File) -> io::Result<Option<Superblocks>> {
    let mut found = [None; 2];
    let mut failed = None;
    for (copy, found) in (0..).zip(&mut found) {
        let mut bytes = [0; SUPER_LEN];
        let mut read = || file.read_full_at(&mut bytes, copy * LINE, Via::Cache);
        // A copy that cannot be read is treated as damaged.
        match read().or_else(|_| read()) {
            Ok(len) => *found = Superblock::decode(&bytes[..len]),
            Err(error) => failed = Some(error),
        }
    }
    let sound = found.iter().all(Option::is_some);
    let newest = found.into_iter().flatten().max_by_key(|s| s.sequence);
    match (newest, failed) {
        (None, Some(error)) => Err(error),
        (newest, _) => Ok(newest.map(|newest| Superblocks { newest, sound })),
    }
}

/// The table of the live log. `None` if the log is damaged (a record that this program cannot have written, or fewer
/// pages than there were), or if memory is short.
pub fn replay(file: &dyn File, superblock: &Superblock) -> io::Result<Option<Table>> {
    let geometry = superblock.geometry;
    let Some(mut table) = Table::empty(geometry) else {
        return Ok(None);
    };
    let mut log = LogReader::new(file, superblock);
    let end = match superblock.clean {
        true => superblock.log_pages,
        false => geometry.log_pages,
    };
    let mut at = 0;
    while at < end {
        let Some(page) = (0..2).find_map(|copy| log.page(copy, at)) else {
            break;
        };
        if !page.records.iter().all(|record| table.apply(record)) {
            return Ok(None);
        }
        at += 1;
    }
    if at < superblock.log_pages {
        return Ok(None);
    }
    // An interrupted commit may leave any of its pages, but no later commit began before it was complete.
    for index in at + 1..end {
        let later = |copy| log.page(copy, index).is_some_and(|page| page.began > at);
        if (0..2).any(later) {
            return Ok(None);
        }
    }
    Ok(Some(table))
}

/// Reads both copies of a log, many pages at a time.
struct LogReader<'a> {
    file: &'a dyn File,
    superblock: &'a Superblock,
    /// Of each copy: the index of the first page in memory, and the bytes from there on.
    at_hand: [(u32, Vec<u8>); 2],
}

impl<'a> LogReader<'a> {
    fn new(file: &'a dyn File, superblock: &'a Superblock) -> LogReader<'a> {
        LogReader {
            file,
            superblock,
            at_hand: Default::default(),
        }
    }

    /// A page of one copy of the log; `None` if it is damaged or cannot be read.
    fn page(&mut self, copy: usize, index: u32) -> Option<format::LogPage> {
        let whole = |(first, bytes): &(u32, Vec<u8>)| {
            let at = index.checked_sub(*first)? as usize * LINE as usize;
            (at + LINE as usize <= bytes.len()).then_some(at)
        };
        let at = match whole(&self.at_hand[copy]) {
            Some(at) => at,
            None => {
                let run = (self.superblock.geometry.log_pages - index).min(RUN as u32);
                // A page that cannot be read must not hide its neighbours.
                self.fetch(copy, index, run)
                    .or_else(|_| self.fetch(copy, index, 1))
                    .ok()?;
                whole(&self.at_hand[copy])?
            }
        };
        let place = LogPosition {
            tie: self.superblock.tie,
            generation: self.superblock.generation,
            session: self.superblock.session,
            index,
        };
        format::decode_log_page(&place, &self.at_hand[copy].1[at..])
    }

    fn fetch(&mut self, copy: usize, first: u32, pages: u32) -> io::Result<()> {
        let superblock = self.superblock;
        let at = superblock
            .geometry
            .log_at(superblock.generation, copy as u64);
        let (start, bytes) = &mut self.at_hand[copy];
        *start = first;
        bytes.clear();
        let mut read = vec![0; pages as usize * LINE as usize];
        let len = self
            .file
            .read_full_at(&mut read, at + u64::from(first) * LINE, Via::Cache)?;
        read.truncate(len);
        *bytes = read;
        Ok(())
    }
}

pub(crate) struct Journal {
    file: Arc<dyn File>,
    state: Mutex<State>,
    ended: Condvar,
    /// Records up to this number are durable.
    committed: AtomicU64,
    /// Every sync holds it for reading until its failure is counted.
    syncing: RwLock<()>,
    lost_syncs: AtomicU64,
    stumbles: AtomicU64,
}

struct State {
    table: Table,
    superblock: Superblock,
    pending: Vec<JournalRecord>,
    /// Number of the last record appended.
    appended: u64,
    next_index: u32,
    /// The last generation that was begun, even if it did not become live.
    tried: u64,
    committing: bool,
    broken: bool,
}

impl Journal {
    /// Writes `table` as the log of a new session and makes its superblock the one that counts.
    pub(crate) fn begin(
        file: Arc<dyn File>,
        superblock: Superblock,
        table: Table,
    ) -> io::Result<Journal> {
        let journal = Journal {
            file,
            syncing: RwLock::new(()),
            lost_syncs: AtomicU64::new(0),
            stumbles: AtomicU64::new(0),
            state: Mutex::new(State {
                table,
                tried: superblock.generation,
                superblock,
                pending: Vec::new(),
                appended: 0,
                next_index: 0,
                committing: false,
                broken: false,
            }),
            ended: Condvar::new(),
            committed: AtomicU64::new(0),
        };
        journal.write_anew(&mut journal.state.lock())?;
        Ok(journal)
    }

    /// Makes all earlier writes to the cache device durable; a caller that settles slots with it must compare
    /// [`Journal::lost_syncs`] before and after.
    pub(crate) fn sync_cache_device(&self) -> io::Result<()> {
        let _counted = self.syncing.read();
        self.file.sync().inspect_err(|_| {
            self.lost_syncs.fetch_add(1, SeqCst);
        })
    }

    /// How many syncs of the cache device failed: earlier writes may be lost, although later syncs succeed.
    pub(crate) fn lost_syncs(&self) -> u64 {
        self.lost_syncs.load(SeqCst)
    }

    /// The same, including syncs that were in flight at the call, which it waits for.
    pub(crate) fn lost_syncs_for_sure(&self) -> u64 {
        drop(self.syncing.write());
        self.lost_syncs.load(SeqCst)
    }

    /// How often a write of the log had to be repeated.
    pub(crate) fn stumbles(&self) -> u64 {
        self.stumbles.load(SeqCst)
    }

    fn stumble(&self, what: &'static str, error: &io::Error) {
        self.stumbles.fetch_add(1, SeqCst);
        tracing::warn!(what, %error, "the cache's log could not be written; the write is retried");
    }

    /// Appends a change and returns its number, from 1; nothing is written yet.
    pub(crate) fn append(&self, record: JournalRecord) -> u64 {
        let mut state = self.state.lock();
        debug_assert!(record.len() <= BODY);
        let ours = state.table.apply(&record);
        debug_assert!(ours, "{record:?}");
        state.appended += 1;
        state.pending.push(record);
        state.appended
    }

    /// Records up to this number are durable.
    pub(crate) fn committed(&self) -> u64 {
        self.committed.load(SeqCst)
    }

    /// Returns after everything appended before this call is durable.
    pub(crate) fn commit_all(&self) -> io::Result<()> {
        let appended = self.state.lock().appended;
        self.commit(appended)
    }

    /// Returns after the records up to this number are durable; at once if they already are.
    pub(crate) fn commit(&self, upto: u64) -> io::Result<()> {
        if self.committed() >= upto {
            return Ok(());
        }
        let mut state = self.state.lock();
        while self.committed() < upto {
            if state.broken {
                return Err(io::Error::other("the cache's log is broken"));
            }
            if state.committing {
                self.ended.wait(&mut state);
                continue;
            }
            state.committing = true;
            let written = match self.write_on(&mut state) {
                Ok(Some(taken)) => Ok(taken),
                Ok(None) => self.write_anew(&mut state),
                Err(error) => {
                    self.stumble("after the end, twice; now in the other half", &error);
                    self.write_anew(&mut state)
                }
            };
            self.finish(&mut state, written)?;
        }
        Ok(())
    }

    fn finish(&self, state: &mut State, written: io::Result<u64>) -> io::Result<()> {
        state.committing = false;
        match &written {
            Ok(taken) => self.committed.store(*taken, SeqCst),
            Err(_) => state.broken = true,
        }
        self.ended.notify_all();
        written.map(drop)
    }

    /// Continues in another shape of the same cache. Slots that are cut off hold nothing and appear in no later
    /// record. `OutOfMemory`: nothing was changed; any other error breaks the journal.
    pub(crate) fn resize(&self, geometry: Geometry) -> io::Result<()> {
        let mut state = self.state.lock();
        while state.committing {
            self.ended.wait(&mut state);
        }
        if state.broken {
            return Err(io::Error::other("the cache's log is broken"));
        }
        if !state.table.resize(geometry) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        state.superblock.geometry = geometry;
        state.committing = true;
        let written = self.write_anew(&mut state);
        self.finish(&mut state, written)
    }

    /// Writes the pending records after the present ones, and returns the number of the last one; `None` if the log is
    /// full.
    fn write_on(&self, state: &mut MutexGuard<'_, State>) -> io::Result<Option<u64>> {
        let taken = state.appended;
        let pending = std::mem::take(&mut state.pending);
        let log = LogWriter {
            file: &*self.file,
            superblock: state.superblock,
            began: state.next_index,
            next: state.next_index,
        };
        let next = MutexGuard::unlocked(state, || {
            let mut pages = LogPages::default();
            pending.iter().for_each(|record| pages.push(record));
            if !log.has_room(&pages) {
                return Ok(None);
            }
            // The same bytes at the same place, all of them: a failed sync may have dropped any.
            let write = || {
                let mut log = log;
                log.write(&pages.0)?;
                self.sync_cache_device()?;
                io::Result::Ok(Some(log.next))
            };
            write().or_else(|error| {
                self.stumble("after the existing entries", &error);
                write()
            })
        })?;
        state.next_index = next.unwrap_or(log.next);
        Ok(next.map(|_| taken))
    }

    /// Rewrites the table into the other half and switches to it, at the second attempt if the first one fails;
    /// returns the number of the last record in it.
    fn write_anew(&self, state: &mut MutexGuard<'_, State>) -> io::Result<u64> {
        self.write_once_anew(state).or_else(|error| {
            self.stumble("in the other half", &error);
            self.write_once_anew(state)
        })
    }

    /// The table changes meanwhile. So changed slots are written once more after it; until then nothing of it counts.
    fn write_once_anew(&self, state: &mut MutexGuard<'_, State>) -> io::Result<u64> {
        let mut superblock = state.superblock;
        superblock.generation += 1;
        // Pages of a failed attempt may be there, of a longer table than this one.
        while superblock.generation <= state.tried {
            superblock.generation += 2;
        }
        state.tried = superblock.generation;
        let mut log = LogWriter {
            file: &*self.file,
            superblock,
            began: 0,
            next: 0,
        };
        state.pending.clear();
        let mut pages = LogPages::default();
        let mut slots = 0..superblock.geometry.slots;
        while !slots.is_empty() {
            let filled = slots
                .by_ref()
                .filter(|slot| state.table.held(*slot).lines != 0);
            for slot in filled {
                pages.push(&state.table.record(slot));
                if pages.0.len() > RUN {
                    break;
                }
            }
            // The last page may have room for more.
            let open = pages.0.pop();
            MutexGuard::unlocked(state, || log.write(&pages.0))?;
            pages.0 = open.into_iter().collect();
        }
        let taken = state.appended;
        let pending = std::mem::take(&mut state.pending);
        let changed: BTreeSet<u32> = pending.iter().filter_map(JournalRecord::slot).collect();
        for slot in changed {
            pages.push(&state.table.record(slot));
        }
        pages.push(&JournalRecord::Backend(state.table.served));
        let saved = MutexGuard::unlocked(state, || {
            log.write(&pages.0)?;
            self.sync_cache_device()?;
            superblock.log_pages = log.next;
            self.save_superblock(&mut superblock)
        });
        // If two superblocks had one number, nothing would show which counts.
        state.superblock.sequence = superblock.sequence;
        saved?;
        state.superblock = superblock;
        state.next_index = log.next;
        Ok(taken)
    }

    /// Records a clean stop: everything appended is durable, and the backend had this time of change and this content.
    pub(crate) fn close(&self, backend_changed_ns: i64, content: BackendContent) -> io::Result<()> {
        self.commit_all()?;
        let mut superblock = {
            let state = self.state.lock();
            Superblock {
                log_pages: state.next_index,
                ..state.superblock
            }
        };
        superblock.clean = true;
        superblock.backend.changed_ns = backend_changed_ns;
        superblock.content = content;
        self.save_superblock(&mut superblock)
    }

    /// Makes it the one that counts, in both copies, one after the other.
    fn save_superblock(&self, superblock: &mut Superblock) -> io::Result<()> {
        superblock.sequence += 1;
        let mut bytes = vec![0; LINE as usize];
        bytes[..SUPER_LEN].copy_from_slice(&superblock.encode());
        for copy in 0..2 {
            let save = || {
                self.file.write_all_at(&bytes, copy * LINE, Via::Cache)?;
                self.sync_cache_device()
            };
            save().or_else(|error| {
                self.stumble("its superblock", &error);
                save()
            })?;
        }
        Ok(())
    }
}

/// Records in as few pages as their order allows.
#[derive(Default)]
struct LogPages(Vec<Vec<u8>>);

impl LogPages {
    fn push(&mut self, record: &JournalRecord) {
        match self.0.last_mut() {
            Some(page) if page.len() + record.len() <= BODY => record.encode(page),
            _ => {
                let mut page = Vec::with_capacity(BODY);
                record.encode(&mut page);
                self.0.push(page);
            }
        }
    }
}

/// Pages of a log written or read at once.
const RUN: usize = 64;

/// Where one commit writes.
#[derive(Clone, Copy)]
struct LogWriter<'a> {
    file: &'a dyn File,
    superblock: Superblock,
    began: u32,
    next: u32,
}

impl LogWriter<'_> {
    fn has_room(&self, pages: &LogPages) -> bool {
        let end = u64::from(self.next) + pages.0.len() as u64;
        end <= u64::from(self.superblock.geometry.log_pages)
    }

    /// Writes both copies of these pages. They are not durable yet.
    fn write(&mut self, pages: &[Vec<u8>]) -> io::Result<()> {
        let Superblock {
            geometry,
            generation,
            session,
            tie,
            ..
        } = self.superblock;
        for run in pages.chunks(RUN) {
            let end = self.next + run.len() as u32;
            if end > geometry.log_pages {
                // A table and its changes always fit: the geometry guarantees it.
                return Err(io::Error::other("the cache's log is too short"));
            }
            let mut bytes = vec![0; run.len() * LINE as usize];
            let parts = bytes.chunks_mut(LINE as usize);
            for ((records, out), index) in run.iter().zip(parts).zip(self.next..) {
                let place = LogPosition {
                    tie,
                    generation,
                    session,
                    index,
                };
                format::encode_log_page(&place, self.began, records, out);
            }
            for copy in 0..2 {
                let at = geometry.log_at(generation, copy) + u64::from(self.next) * LINE;
                self.file.write_all_at(&bytes, at, Via::Cache)?;
            }
            self.next = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
