//! The durable table of slots: two logs on the cache device, of which the superblock names the live one.
//!
//! A log begins with the whole table and goes on with changes. Commits take whole blocks, so that no block is written
//! twice; several callers share one. A log that is full is written anew into the other half, which goes live when
//! everything in it is durable. A shadow of the table stands in memory, as a replay would give it.
//!
//! Invariants
//! - What [`Journal::commit`] promised is in every table that a replay can give afterwards.
//! - A replay gives the table as of some moment between the last commit and the last append, or nothing at all.
//! - A block of another session, or of another rewrite of this one, is not of the live log.
//! - After a failed write or sync nothing is promised any more: the journal stays broken.
//! - Lock order: whoever holds a directory's lock may append; nobody appends and waits for a commit at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use longshore_io::{File, Via};
use parking_lot::{Condvar, Mutex};

use crate::format::{self, BLOCK_HEAD, Place, Record, SUPER_LEN, Superblock};
use crate::geometry::{Geometry, LINE, Lines};

const BODY: usize = LINE as usize - BLOCK_HEAD;

/// What a slot durably holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    pub block: u64,
    /// None: the slot is empty.
    pub lines: Lines,
}

/// The table of slots as the log gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    geometry: Geometry,
    held: Vec<Held>,
    sums: Vec<u32>,
}

impl Table {
    /// `None` when there is no memory for so many slots.
    pub fn empty(geometry: Geometry) -> Option<Table> {
        let slots = geometry.slots as usize;
        let (mut held, mut sums) = (Vec::new(), Vec::new());
        held.try_reserve_exact(slots).ok()?;
        held.resize(slots, Held::default());
        let lines = slots * geometry.lines_per_slot() as usize;
        sums.try_reserve_exact(lines).ok()?;
        sums.resize(lines, 0);
        Some(Table {
            geometry,
            held,
            sums,
        })
    }

    pub fn held(&self, slot: u32) -> Held {
        self.held[slot as usize]
    }

    /// The sum of each line of a slot; only of those it holds are they of use.
    pub fn sums(&self, slot: u32) -> &[u32] {
        let lines = self.geometry.lines_per_slot() as usize;
        &self.sums[slot as usize * lines..][..lines]
    }

    /// `false`: such a record was never written by us.
    fn apply(&mut self, record: &Record) -> bool {
        let per_slot = self.geometry.lines_per_slot() as usize;
        match record {
            Record::Clear { slot } => match self.held.get_mut(*slot as usize) {
                Some(held) => *held = Held::default(),
                None => return false,
            },
            Record::Set {
                slot,
                block,
                lines,
                sums,
            } => {
                let strange = lines & !self.geometry.all_lines() != 0 || *lines == 0;
                let Some(held) = self.held.get_mut(*slot as usize).filter(|_| !strange) else {
                    return false;
                };
                *held = Held {
                    block: *block,
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

    fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let full = self.held.iter().enumerate().filter(|(_, h)| h.lines != 0);
        full.map(|(slot, held)| {
            let sums = self.sums(slot as u32).iter().enumerate();
            let there = sums.filter(|(line, _)| held.lines >> line & 1 == 1);
            Record::Set {
                slot: slot as u32,
                block: held.block,
                lines: held.lines,
                sums: there.map(|(_, sum)| *sum).collect(),
            }
        })
    }
}

/// The superblock that counts; `None` when neither copy is one.
pub fn read_superblock(file: &dyn File) -> io::Result<Option<Superblock>> {
    let mut newest: Option<Superblock> = None;
    for copy in 0..2 {
        let mut bytes = [0; SUPER_LEN];
        if file.read_full_at(&mut bytes, copy * LINE, Via::Cache)? == SUPER_LEN
            && let Some(found) = Superblock::decode(&bytes)
            && newest.is_none_or(|n| n.sequence < found.sequence)
        {
            newest = Some(found);
        }
    }
    Ok(newest)
}

/// The table that the live log gives. `None` when a record in it cannot be ours, or memory is short.
pub fn replay(file: &dyn File, superblock: &Superblock) -> io::Result<Option<Table>> {
    let geometry = superblock.geometry;
    let Some(mut table) = Table::empty(geometry) else {
        return Ok(None);
    };
    let at = geometry.log_at(superblock.generation % 2);
    let mut block = vec![0; LINE as usize];
    for index in 0..geometry.log_blocks {
        let len = file.read_full_at(&mut block, at + u64::from(index) * LINE, Via::Cache)?;
        let place = Place {
            tie: superblock.tie,
            generation: superblock.generation,
            session: superblock.session,
            index,
        };
        let Some(records) = format::decode_block(&place, &block[..len]) else {
            break;
        };
        if !records.iter().all(|record| table.apply(record)) {
            return Ok(None);
        }
    }
    Ok(Some(table))
}

pub(crate) struct Journal {
    file: Arc<dyn File>,
    state: Mutex<State>,
    ended: Condvar,
    /// Records up to this number are durable.
    committed: AtomicU64,
}

struct State {
    table: Table,
    superblock: Superblock,
    pending: Vec<Record>,
    /// Number of the last record appended.
    appended: u64,
    next_index: u32,
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
        let mut state = State {
            table,
            superblock,
            pending: Vec::new(),
            appended: 0,
            next_index: 0,
            committing: false,
            broken: false,
        };
        state.write_anew(&*file)?;
        Ok(Journal {
            file,
            state: Mutex::new(state),
            ended: Condvar::new(),
            committed: AtomicU64::new(0),
        })
    }

    /// Notes a change and gives its number, from 1; nothing is written yet.
    pub(crate) fn append(&self, record: Record) -> u64 {
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

    /// Returns when everything appended before this call is durable.
    pub(crate) fn commit_all(&self) -> io::Result<()> {
        let appended = self.state.lock().appended;
        self.commit(appended)
    }

    /// Returns when the records up to this number are durable: at once when they are already.
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
            let taken = state.appended;
            let pending = std::mem::take(&mut state.pending);
            let blocks = pack(pending.iter());
            let written = match state.claim(blocks.len()) {
                None => state.write_anew(&*self.file),
                Some(first) => {
                    state.committing = true;
                    let superblock = state.superblock;
                    drop(state);
                    let written = write_blocks(&*self.file, &superblock, first, &blocks)
                        .and_then(|()| self.file.sync());
                    state = self.state.lock();
                    state.committing = false;
                    written
                }
            };
            match written {
                Ok(()) => self.committed.store(taken, SeqCst),
                Err(_) => state.broken = true,
            }
            self.ended.notify_all();
            written?;
        }
        Ok(())
    }

    /// Notes a clean stop: everything appended is durable, and `backend_changed_ns` is what it was left with.
    pub(crate) fn close(&self, backend_changed_ns: i64) -> io::Result<()> {
        self.commit_all()?;
        let mut state = self.state.lock();
        state.superblock.clean = true;
        state.superblock.backend.changed_ns = backend_changed_ns;
        state.save_superblock(&*self.file)
    }
}

impl State {
    /// The first of so many free blocks; `None` when the log is full.
    fn claim(&mut self, blocks: usize) -> Option<u32> {
        let first = self.next_index;
        let end = first.checked_add(u32::try_from(blocks).ok()?)?;
        if end > self.superblock.geometry.log_blocks {
            return None;
        }
        self.next_index = end;
        Some(first)
    }

    /// Writes the table into the other half and switches to it.
    fn write_anew(&mut self, file: &dyn File) -> io::Result<()> {
        let mut next = self.superblock;
        next.generation += 1;
        let records: Vec<Record> = self.table.records().collect();
        let blocks = pack(records.iter());
        write_blocks(file, &next, 0, &blocks)?;
        file.sync()?;
        self.superblock = next;
        self.next_index = blocks.len() as u32;
        self.save_superblock(file)
    }

    fn save_superblock(&mut self, file: &dyn File) -> io::Result<()> {
        self.superblock.sequence += 1;
        let mut block = vec![0; LINE as usize];
        block[..SUPER_LEN].copy_from_slice(&self.superblock.encode());
        let copy = self.superblock.sequence % 2;
        file.write_all_at(&block, copy * LINE, Via::Cache)?;
        file.sync()
    }
}

/// Records in as few blocks as their order allows.
fn pack<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<Vec<u8>> {
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    for record in records {
        match blocks.last_mut() {
            Some(block) if block.len() + record.len() <= BODY => record.encode(block),
            _ => {
                let mut block = Vec::with_capacity(BODY);
                record.encode(&mut block);
                blocks.push(block);
            }
        }
    }
    blocks
}

/// Blocks of a log written at once.
const RUN: usize = 64;

fn write_blocks(
    file: &dyn File,
    superblock: &Superblock,
    first: u32,
    blocks: &[Vec<u8>],
) -> io::Result<()> {
    let geometry = superblock.geometry;
    let at = geometry.log_at(superblock.generation % 2);
    let mut index = first;
    for run in blocks.chunks(RUN) {
        let start = at + u64::from(index) * LINE;
        let mut bytes = vec![0; run.len() * LINE as usize];
        for (records, out) in run.iter().zip(bytes.chunks_mut(LINE as usize)) {
            let place = Place {
                tie: superblock.tie,
                generation: superblock.generation,
                session: superblock.session,
                index,
            };
            format::encode_block(&place, records, out);
            index += 1;
        }
        file.write_all_at(&bytes, start, Via::Cache)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
