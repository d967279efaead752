//! What is cached where, and which requests are in flight: the decisions about lines, without any I/O.
//!
//! Each line of a slot may be *valid* (it equals the backend's) and *durable* (the log on the cache device records it).
//! Requests in flight are kept in *flights*, one for each block. A write invalidates the lines it touches before it
//! reaches the backend. The bytes that it wrote, or that a read missed, enter the cache as a *fill*; only fills write
//! slots. A fill owns its lines from before the backend is read or written for it. A write that begins meanwhile
//! *spoils* them, and a spoiled line does not become valid.
//!
//! Invariants
//! - A valid line equals the backend's, unless a write of it is in flight.
//! - A line is durable only if it is valid, and if its content was durable on both devices when it became durable.
//! - A line that stops being durable is cleared in the journal in the same step. A request that then writes to its
//!   block on the backend, or into its slot, first waits until that clearing is durable: [`WrittenLines::after`] and
//!   [`Spot::after`] name the record.
//! - No two writes of one line are in flight, nor two fills, nor a fill of a line that is valid or durable.
//! - A slot's `version` changes whenever one of its valid lines becomes invalid: bytes read under another version are
//!   worthless.
//!
//! Leaves to others: I/O (`cached`), and the durable table (`journal.rs`).

use std::collections::{HashMap, VecDeque};

use longshore_policy::policy::{FillDecision, Policy, Slot as BlockNumber, View};

use crate::format::JournalRecord;
use crate::geometry::{Geometry, LINE, LineRun, Lines};
use crate::journal::{Journal, Table};

/// A slot is out of use for this session after its medium returned other bytes than were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Held,
    Retired,
    /// Beyond the end of a cache that was shrunk.
    Gone,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    state: State,
    block: u64,
    valid: Lines,
    durable: Lines,
    version: u32,
    /// The journal's number of the last record that cleared lines of the slot.
    cleared: u64,
}

/// The lines of one block on which requests in flight work.
#[derive(Debug, Clone, Copy, Default)]
struct Flight {
    writing: Lines,
    filling: Lines,
    spoiled: Lines,
}

/// Lines of a block that the cache could serve.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServableLines {
    pub slot: u32,
    pub piece: LineRun,
    version: u32,
}

impl ServableLines {
    /// Stands for lines of a slot that are not read.
    pub(crate) fn imagined(piece: LineRun) -> ServableLines {
        ServableLines {
            slot: 0,
            piece,
            version: 0,
        }
    }

    /// Each of the lines by itself.
    pub(crate) fn each_line(self) -> impl Iterator<Item = ServableLines> {
        (0..self.piece.count).map(move |line| ServableLines {
            piece: LineRun {
                first: self.piece.first + line,
                count: 1,
                ..self.piece
            },
            ..self
        })
    }
}

/// Whether bytes read from a slot may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteTrust {
    Good,
    /// Overwritten or evicted meanwhile.
    Outdated,
    /// The bytes differ from those written.
    Damaged,
}

/// Lines of a block that a fill owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    pub block: u64,
    pub lines: Lines,
}

/// The lines that a write took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WrittenLines {
    /// The backend may be written once the journal is durable up to this record.
    pub after: u64,
    era: u64,
}

/// Where a fill may write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    pub slot: u32,
    /// The slot may be written once the journal is durable up to this record.
    pub after: u64,
}

/// A slot with lines that a checkpoint may make durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    slot: u32,
    valid: Lines,
    version: u32,
}

/// How much is cached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub valid_lines: u64,
    pub durable_lines: u64,
    pub held_slots: u64,
    pub free_slots: u64,
    pub retired_slots: u64,
}

pub(crate) struct Directory {
    geometry: Geometry,
    /// The policy decides which blocks are cached.
    policy: Policy,
    /// The slot of each cached block.
    held: HashMap<u64, u32>,
    slots: Vec<Slot>,
    sums: Vec<u32>,
    /// Slots without a block, the one released longest ago first: its clearing is durable by then.
    free: VecDeque<u32>,
    flights: HashMap<u64, Flight>,
    /// Blocks whose clearing may not be durable yet, with the number of its record in the journal.
    leaving: HashMap<u64, u64>,
    /// Slots with valid lines that are not durable.
    volatile: u32,
    /// Slots out of use.
    retired: u32,
    /// How often [`Directory::drop_volatile`] was called.
    era: u64,
}

/// Above this size, entries whose clearing is durable are removed.
const LEAVING_MAX: usize = 256;

/// Slots that are kept free: one in this many, and at most so many.
const RESERVE_SHARE: u32 = 64;
const RESERVE_MAX: u32 = 64;

/// Slots that are kept free, so that several evictions share one commit of the journal.
pub(crate) fn reserve(geometry: Geometry) -> u32 {
    (geometry.slots / RESERVE_SHARE).clamp(1, RESERVE_MAX)
}

impl Directory {
    /// Loads the table from the log; `None` if two slots claim one block, or a line lies beyond the end of the
    /// backend.
    pub(crate) fn load(
        table: &Table,
        geometry: Geometry,
        backend_lines: u64,
        policy: Policy,
    ) -> Option<Directory> {
        let mut directory = Directory {
            geometry,
            policy,
            held: HashMap::new(),
            slots: Vec::with_capacity(geometry.slots as usize),
            sums: Vec::with_capacity(geometry.slots as usize * geometry.lines_per_slot() as usize),
            free: VecDeque::new(),
            flights: HashMap::new(),
            leaving: HashMap::new(),
            volatile: 0,
            retired: 0,
            era: 0,
        };
        let per_slot = u64::from(geometry.lines_per_slot());
        for number in 0..geometry.slots {
            let held = table.held(number);
            directory.sums.extend(table.sums(number));
            let mut slot = Slot {
                state: State::Free,
                block: held.cache_block,
                valid: 0,
                durable: 0,
                version: 0,
                cleared: 0,
            };
            if held.lines != 0 {
                let top = u64::from(Lines::BITS - held.lines.leading_zeros());
                let end = held.cache_block.checked_mul(per_slot)?.checked_add(top)?;
                let twice = directory.held.insert(held.cache_block, number).is_some();
                // The policy has room for everything that was ever cached at once.
                if twice
                    || end > backend_lines
                    || !directory.policy.restore(BlockNumber(held.cache_block))
                {
                    return None;
                }
                slot.state = State::Held;
                (slot.valid, slot.durable) = (held.lines, held.lines);
            } else {
                directory.free.push_back(number);
            }
            directory.slots.push(slot);
        }
        Some(directory)
    }

    pub(crate) fn policy(&mut self) -> &mut Policy {
        &mut self.policy
    }

    /// Another policy takes over the cached blocks.
    pub(crate) fn set_policy(&mut self, mut policy: Policy) {
        for block in self.policy.order() {
            policy.restore(block);
        }
        self.policy = policy;
        self.fit_policy();
    }

    /// The policy counts neither slots out of use nor slots kept in reserve.
    fn fit_policy(&mut self) {
        let unusable = reserve(self.geometry) + self.retired;
        let slots = self.geometry.slots.saturating_sub(unusable).max(1);
        self.policy.resize(slots as usize);
    }

    fn slot(&mut self, number: u32) -> &mut Slot {
        &mut self.slots[number as usize]
    }

    fn sums_of(&mut self, slot: u32) -> &mut [u32] {
        let lines = self.geometry.lines_per_slot() as usize;
        &mut self.sums[slot as usize * lines..][..lines]
    }

    /// Changes a slot's content and updates the counts.
    fn change(&mut self, number: u32, change: impl FnOnce(&mut Slot)) {
        let slot = &mut self.slots[number as usize];
        let before = slot.valid != slot.durable;
        change(slot);
        let after = slot.valid != slot.durable;
        self.volatile = self.volatile + u32::from(after) - u32::from(before);
    }

    /// Which of these lines are valid, in order.
    pub(crate) fn look_up(&self, pieces: impl Iterator<Item = LineRun>) -> Vec<ServableLines> {
        let mut found = Vec::new();
        for piece in pieces {
            let Some(number) = self.held.get(&piece.block).copied() else {
                continue;
            };
            let slot = self.slots[number as usize];
            found.extend(
                runs(piece.mask() & slot.valid).map(|(first, count)| ServableLines {
                    slot: number,
                    piece: LineRun {
                        block: piece.block,
                        first,
                        count,
                    },
                    version: slot.version,
                }),
            );
        }
        found
    }

    /// Whether bytes read for `found` may be used, by the checksums of their lines.
    pub(crate) fn judge(&self, found: &ServableLines, sums: &[u32]) -> ByteTrust {
        if !self.is_current(found) {
            return ByteTrust::Outdated;
        }
        let lines = self.geometry.lines_per_slot() as usize;
        let at = found.slot as usize * lines + found.piece.first as usize;
        match self.sums[at..][..found.piece.count as usize] == *sums {
            true => ByteTrust::Good,
            false => ByteTrust::Damaged,
        }
    }

    /// Takes these lines for a write; `None`, with nothing changed, if another write has some of them.
    pub(crate) fn begin_write(
        &mut self,
        pieces: impl Iterator<Item = LineRun> + Clone,
        journal: &Journal,
    ) -> Option<WrittenLines> {
        let busy = |piece: LineRun| {
            let flight = self.flights.get(&piece.block);
            flight.is_some_and(|f| f.writing & piece.mask() != 0)
        };
        if pieces.clone().any(busy) {
            return None;
        }
        let (mut after, era) = (0, self.era);
        for piece in pieces {
            let flight = self.flights.entry(piece.block).or_default();
            flight.writing |= piece.mask();
            flight.spoiled |= flight.filling & piece.mask();
            if let Some(number) = self.held.get(&piece.block).copied() {
                self.invalidate(number, piece.mask(), journal);
            }
            after = after.max(self.leaving.get(&piece.block).copied().unwrap_or(0));
        }
        Some(WrittenLines { after, era })
    }

    /// Invalidates lines of a slot. If any of them is durable, the whole slot stops being durable: data written once
    /// is likely to be written again.
    fn invalidate(&mut self, number: u32, lines: Lines, journal: &Journal) {
        let slot = self.slots[number as usize];
        if slot.durable & lines != 0 {
            let cleared = journal.append(JournalRecord::Clear { slot: number });
            self.slots[number as usize].cleared = cleared;
            self.leaving.insert(slot.block, cleared);
            if self.leaving.len() > LEAVING_MAX {
                let committed = journal.committed();
                self.leaving.retain(|_, number| *number > committed);
            }
        }
        self.change(number, |slot| {
            if slot.durable & lines != 0 {
                slot.durable = 0;
            }
            if slot.valid & lines != 0 {
                slot.version = slot.version.wrapping_add(1);
            }
            slot.valid &= !lines;
        });
    }

    /// Ends a write. Lines of `keep` that no fill works on go to a fill of the same bytes.
    pub(crate) fn end_write(
        &mut self,
        taken: &WrittenLines,
        pieces: impl Iterator<Item = LineRun> + Clone,
        keep: impl Iterator<Item = LineRun>,
    ) -> Vec<Claim> {
        for piece in pieces.clone() {
            if let Some(flight) = self.flights.get_mut(&piece.block) {
                flight.writing &= !piece.mask();
            }
        }
        let claims = match taken.era == self.era {
            true => self.begin_fill(keep),
            false => Vec::new(),
        };
        pieces.for_each(|piece| self.leave(piece.block));
        claims
    }

    /// Takes the missing ones of these lines for a fill, before the backend is read for it.
    pub(crate) fn begin_fill(&mut self, pieces: impl Iterator<Item = LineRun>) -> Vec<Claim> {
        let mut claims = Vec::new();
        for piece in pieces {
            let block = piece.block;
            let held = self.held.get(&block);
            let valid = held.map_or(0, |number| self.slots[*number as usize].valid);
            let flight = self.flights.entry(block).or_default();
            let lines = piece.mask() & !valid & !flight.writing & !flight.filling;
            flight.filling |= lines;
            flight.spoiled &= !lines;
            if lines != 0 {
                claims.push(Claim { block, lines });
            }
            self.leave(block);
        }
        claims
    }

    /// Forgets a flight that has ended, and releases a slot that then holds nothing.
    fn leave(&mut self, block: u64) {
        let busy = |flight: &Flight| flight.writing | flight.filling != 0;
        if self.flights.get(&block).is_some_and(busy) {
            return;
        }
        self.flights.remove(&block);
        if let Some(number) = self.held.get(&block).copied()
            && self.slots[number as usize].valid == 0
        {
            self.held.remove(&block);
            self.policy.dropped(BlockNumber(block));
            self.slot(number).state = State::Free;
            self.free.push_back(number);
        }
    }

    /// Where a claim may be written: the block's own slot, a free one, or one that the policy empties for it. `None`
    /// if the policy refuses, or a write spoiled the claim.
    pub(crate) fn place(&mut self, claim: &Claim, view: &View, journal: &Journal) -> Option<Spot> {
        let flight = self.flights.get(&claim.block)?;
        if claim.lines & !flight.spoiled == 0 {
            return None;
        }
        if let Some(slot) = self.held.get(&claim.block).copied() {
            let after = self.slots[slot as usize].cleared;
            return Some(Spot { slot, after });
        }
        let (block, bytes) = (
            BlockNumber(claim.block),
            u64::from(claim.lines.count_ones()) * LINE,
        );
        let flights = &self.flights;
        let mut may_go = |block: BlockNumber| !flights.contains_key(&block.0);
        match self.policy.place(view, block, bytes, &mut may_go) {
            FillDecision::Refused => return None,
            FillDecision::Evicting(victim) => self.release(victim.0, State::Free, journal),
            FillDecision::Here => {}
        }
        let Some(number) = self.free.pop_front() else {
            self.policy.dropped(block);
            return None;
        };
        let slot = self.slot(number);
        slot.state = State::Held;
        slot.block = claim.block;
        let after = slot.cleared;
        self.held.insert(claim.block, number);
        Some(Spot {
            slot: number,
            after,
        })
    }

    /// Takes the block from its slot.
    fn release(&mut self, block: u64, state: State, journal: &Journal) {
        if let Some(number) = self.held.remove(&block) {
            self.invalidate(number, Lines::MAX, journal);
            self.slot(number).state = state;
            if state == State::Free {
                self.free.push_back(number);
            }
        }
    }

    /// Ends a fill. `written` is the slot it wrote and the checksums of the lines, `None` if it wrote none.
    pub(crate) fn end_fill(&mut self, claim: &Claim, written: Option<(u32, &[u32])>) {
        let Some(flight) = self.flights.get_mut(&claim.block) else {
            return;
        };
        let sound = claim.lines & !flight.spoiled;
        flight.filling &= !claim.lines;
        flight.spoiled &= !claim.lines;
        // Damage may have retired the slot meanwhile; a failing cache device may have retired all slots.
        if let Some((number, sums)) = written
            && self.held.get(&claim.block) == Some(&number)
        {
            let lines = (0..self.geometry.lines_per_slot()).filter(|l| claim.lines >> l & 1 == 1);
            for (line, sum) in lines.zip(sums) {
                self.sums_of(number)[line as usize] = *sum;
            }
            self.change(number, |slot| slot.valid |= sound);
        }
        self.leave(claim.block);
    }

    /// Whether all of these lines stayed valid since they were found.
    pub(crate) fn is_current(&self, found: &ServableLines) -> bool {
        let slot = &self.slots[found.slot as usize];
        slot.version == found.version && slot.state == State::Held
    }

    /// Takes a slot out of use because its medium cannot be trusted.
    pub(crate) fn retire(&mut self, found: &ServableLines, journal: &Journal) {
        let slot = self.slots[found.slot as usize];
        if slot.state == State::Held && slot.version == found.version {
            self.policy.dropped(BlockNumber(slot.block));
            self.release(slot.block, State::Retired, journal);
            self.retired += 1;
            self.fit_policy();
        }
    }

    /// Drops lines of one slot that differ from the backend's, unless the slot changed since they were found.
    pub(crate) fn drop_lines(&mut self, found: &[ServableLines], journal: &Journal) {
        let Some(first) = found.first() else {
            return;
        };
        if self.slots[first.slot as usize].version == first.version {
            let lines = found.iter().fold(0, |all, run| all | run.piece.mask());
            self.invalidate(first.slot, lines, journal);
            self.leave(first.piece.block);
        }
    }

    /// Drops everything and no longer uses a slot. The caller has already made sure that no start believes the durable
    /// lines.
    pub(crate) fn abandon(&mut self) {
        for block in self.held.drain().map(|(block, _)| block) {
            self.policy.dropped(BlockNumber(block));
        }
        self.free.clear();
        self.volatile = 0;
        for slot in &mut self.slots {
            slot.state = State::Retired;
            slot.version = slot.version.wrapping_add(1);
            (slot.valid, slot.durable) = (0, 0);
        }
    }

    /// Drops everything that is not durable: the backend may have lost writes.
    pub(crate) fn drop_volatile(&mut self) {
        self.era += 1;
        for number in 0..self.geometry.slots {
            self.change(number, |slot| {
                if slot.valid != slot.durable {
                    slot.version = slot.version.wrapping_add(1);
                    slot.valid = slot.durable;
                }
            });
        }
        // Lines being filled were also read or written before.
        for flight in self.flights.values_mut() {
            flight.spoiled |= flight.filling;
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Uses fewer slots from now on, and drops the content of the others. The caller must keep fills away.
    pub(crate) fn shrink(&mut self, geometry: Geometry, journal: &Journal) {
        self.geometry = geometry;
        for number in geometry.slots..self.slots.len() as u32 {
            let slot = self.slots[number as usize];
            match slot.state {
                State::Held => {
                    self.policy.dropped(BlockNumber(slot.block));
                    self.release(slot.block, State::Gone, journal);
                }
                State::Retired => self.retired -= 1,
                State::Free | State::Gone => {}
            }
            self.slot(number).state = State::Gone;
        }
        self.free.retain(|number| *number < geometry.slots);
        self.fit_policy();
        let flights = &self.flights;
        let mut victims = Vec::new();
        while self.policy.resident() > self.policy.slots() {
            let mut may_go = |block: BlockNumber| !flights.contains_key(&block.0);
            match self.policy.evict(&mut may_go) {
                Some(victim) => victims.push(victim),
                // All are busy: fewer slots are kept in reserve.
                None => break,
            }
        }
        for victim in victims {
            self.release(victim.0, State::Free, journal);
        }
    }

    /// Uses more slots from now on; the journal already knows them. `false`: there is no memory for them.
    pub(crate) fn grow(&mut self, geometry: Geometry) -> bool {
        let (slots, lines) = (geometry.slots as usize, geometry.lines_per_slot() as usize);
        let more = slots.saturating_sub(self.slots.len());
        let reserved = self.slots.try_reserve_exact(more).is_ok()
            && self.sums.try_reserve_exact(more * lines).is_ok();
        if !reserved {
            return false;
        }
        let gone = Slot {
            state: State::Gone,
            block: 0,
            valid: 0,
            durable: 0,
            version: 0,
            cleared: 0,
        };
        self.slots.extend(std::iter::repeat_n(gone, more));
        self.sums.extend(std::iter::repeat_n(0, more * lines));
        for number in self.geometry.slots..geometry.slots {
            self.slot(number).state = State::Free;
            self.free.push_back(number);
        }
        self.geometry = geometry;
        self.fit_policy();
        true
    }

    /// Slots with valid lines that are not durable.
    pub(crate) fn volatile_slots(&self) -> u32 {
        self.volatile
    }

    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let slots = self.slots.iter().enumerate();
        let volatile = slots.filter(|(_, slot)| slot.valid != slot.durable);
        volatile
            .map(|(number, slot)| Candidate {
                slot: number as u32,
                valid: slot.valid,
                version: slot.version,
            })
            .collect()
    }

    /// Both devices were synced after this became a candidate: lines that it held then are durable, unless written
    /// since.
    pub(crate) fn settle(&mut self, candidate: &Candidate, journal: &Journal) {
        let slot = self.slots[candidate.slot as usize];
        if slot.version != candidate.version || slot.state != State::Held || candidate.valid == 0 {
            return;
        }
        let sums = self.sums_of(candidate.slot).iter().enumerate();
        let there = sums.filter(|(line, _)| candidate.valid >> line & 1 == 1);
        journal.append(JournalRecord::Set {
            slot: candidate.slot,
            cache_block: slot.block,
            lines: candidate.valid,
            sums: there.map(|(_, sum)| *sum).collect(),
        });
        self.change(candidate.slot, |slot| slot.durable = candidate.valid);
    }

    /// Every cached block with its valid lines, in the policy's order.
    pub(crate) fn in_order(&self) -> Vec<(u64, Lines)> {
        let lines = |block: BlockNumber| {
            let slot = self.slots[*self.held.get(&block.0)? as usize];
            Some((block.0, slot.valid))
        };
        self.policy.order().into_iter().filter_map(lines).collect()
    }

    /// Every cached block, with its valid lines.
    pub(crate) fn all(&self) -> Vec<ServableLines> {
        let runs = self.held.iter().flat_map(|(block, number)| {
            let slot = self.slots[*number as usize];
            runs(slot.valid).map(move |(first, count)| ServableLines {
                slot: *number,
                piece: LineRun {
                    block: *block,
                    first,
                    count,
                },
                version: slot.version,
            })
        });
        runs.collect()
    }

    pub(crate) fn census(&self) -> Census {
        let mut census = Census {
            free_slots: self.free.len() as u64,
            held_slots: self.held.len() as u64,
            ..Census::default()
        };
        for slot in &self.slots {
            census.valid_lines += u64::from(slot.valid.count_ones());
            census.durable_lines += u64::from(slot.durable.count_ones());
            census.retired_slots += u64::from(slot.state == State::Retired);
        }
        census
    }
}

/// Runs of set bits: the start and the length of each.
pub(crate) fn runs(lines: Lines) -> impl Iterator<Item = (u32, u32)> {
    let mut rest = u32::from(lines);
    std::iter::from_fn(move || {
        let first = rest.trailing_zeros();
        if rest == 0 {
            return None;
        }
        let count = (rest >> first).trailing_ones();
        rest &= !((((1u64 << count) - 1) << first) as u32);
        Some((first, count))
    })
}

#[cfg(test)]
mod tests;
