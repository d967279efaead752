//! What is held where, and what is under way: the decisions about lines, without any I/O.
//!
//! Each line of a slot may be *valid* (it holds what the backend holds) and *durable* (the log on the device says
//! so). Requests under way stand in *flights*, one for each block. A write takes the lines it touches out of validity
//! before it reaches the backend; what it wrote, and what a read missed, comes in as a *fill*, the only thing that
//! ever writes a slot. A fill owns its lines from before the backend was read or written for it; a write that begins
//! meanwhile *spoils* them, and what is spoiled does not become valid.
//!
//! Invariants
//! - A valid line equals what the backend answers, unless a write of it is under way.
//! - A line is durable only if it is valid, and if its content was durable on both devices when it became so.
//! - A line that leaves durability is cleared in the journal in the same step. Whoever then writes to its block on the
//!   backend, or into its slot, first waits until that is durable: [`Taken::after`] and [`Spot::after`] say for what.
//! - No two writes of one line are under way, nor two fills, nor a fill of a line that is valid or durable.
//! - A slot's `version` changes whenever one of its valid lines ceases to be that: what was read under another
//!   version is worthless.

use std::collections::{HashMap, VecDeque};

use longshore_cache::policy::{Place, Policy, Slot as BlockNumber, View};

use crate::format::Record;
use crate::geometry::{Geometry, LINE, Lines, Piece};
use crate::journal::{Journal, Table};

/// A slot is out of use for this session when its medium gave other bytes than were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Held,
    Retired,
    /// The cache has shrunk.
    Gone,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    state: State,
    block: u64,
    valid: Lines,
    durable: Lines,
    version: u32,
    /// The journal's number of what last took something away from the slot.
    cleared: u64,
}

/// Lines of one block that requests under way are busy with.
#[derive(Debug, Clone, Copy, Default)]
struct Flight {
    writing: Lines,
    filling: Lines,
    spoiled: Lines,
}

/// Lines of a block that the cache could serve.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub slot: u32,
    pub piece: Piece,
    version: u32,
}

impl Found {
    /// These lines of a slot that nobody reads.
    pub(crate) fn imagined(piece: Piece) -> Found {
        Found {
            slot: 0,
            piece,
            version: 0,
        }
    }
}

/// What the bytes read from a slot are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worth {
    Good,
    /// Overwritten or evicted meanwhile.
    Outdated,
    /// Not what was written.
    Damaged,
}

/// Lines of a block that a fill owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    pub block: u64,
    pub lines: Lines,
}

/// What a write took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    /// The backend may be written when the journal is durable up to this record.
    pub after: u64,
    era: u64,
}

/// Where a fill may write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    pub slot: u32,
    /// It may be written when the journal is durable up to this record.
    pub after: u64,
}

/// A slot with lines that a checkpoint may make durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    slot: u32,
    valid: Lines,
    version: u32,
}

/// How much is held.
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
    /// Which blocks are held is the policy's decision.
    policy: Policy,
    /// Slot of each block that is held.
    held: HashMap<u64, u32>,
    slots: Vec<Slot>,
    sums: Vec<u32>,
    /// Slots without a block, the one that was left longest ago first: by then its clearing is durable.
    free: VecDeque<u32>,
    flights: HashMap<u64, Flight>,
    /// Blocks whose clearing may not be durable yet, with its number in the journal.
    leaving: HashMap<u64, u64>,
    /// Slots with valid lines that are not durable.
    volatile: u32,
    /// Slots out of use.
    retired: u32,
    /// How often [`Directory::drop_volatile`] was called.
    era: u64,
}

/// So many are looked through for those that have left.
const LEAVING_MAX: usize = 256;

/// Slots that are kept free, so that several evictions share one commit of the journal.
pub(crate) fn reserve(geometry: Geometry) -> u32 {
    (geometry.slots / 64).clamp(1, 64)
}

impl Directory {
    /// As the log left it; `None` when two slots claim one block, or a line lies beyond the backend's.
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
                block: held.block,
                valid: 0,
                durable: 0,
                version: 0,
                cleared: 0,
            };
            if held.lines != 0 {
                let top = u64::from(Lines::BITS - held.lines.leading_zeros());
                let end = held.block.checked_mul(per_slot)?.checked_add(top)?;
                let twice = directory.held.insert(held.block, number).is_some();
                // The policy has room for all that we ever held at once.
                if twice
                    || end > backend_lines
                    || !directory.policy.restore(BlockNumber(held.block))
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

    /// Another policy takes over what is held.
    pub(crate) fn set_policy(&mut self, mut policy: Policy) {
        for block in self.policy.order() {
            policy.restore(block);
        }
        self.policy = policy;
        self.fit_policy();
    }

    /// The policy counts on no slot that is out of use, nor on those kept back.
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

    /// Changes what a slot holds and keeps count.
    fn change(&mut self, number: u32, change: impl FnOnce(&mut Slot)) {
        let slot = &mut self.slots[number as usize];
        let before = slot.valid != slot.durable;
        change(slot);
        let after = slot.valid != slot.durable;
        self.volatile = self.volatile + u32::from(after) - u32::from(before);
    }

    /// Which of these lines are valid, in order.
    pub(crate) fn look_up(&self, pieces: impl Iterator<Item = Piece>) -> Vec<Found> {
        let mut found = Vec::new();
        for piece in pieces {
            let Some(number) = self.held.get(&piece.block).copied() else {
                continue;
            };
            let slot = self.slots[number as usize];
            found.extend(runs(piece.mask() & slot.valid).map(|(first, count)| Found {
                slot: number,
                piece: Piece {
                    block: piece.block,
                    first,
                    count,
                },
                version: slot.version,
            }));
        }
        found
    }

    /// What bytes read for `found` are worth whose lines have these sums.
    pub(crate) fn judge(&self, found: &Found, sums: &[u32]) -> Worth {
        if !self.is_current(found) {
            return Worth::Outdated;
        }
        let lines = self.geometry.lines_per_slot() as usize;
        let at = found.slot as usize * lines + found.piece.first as usize;
        match self.sums[at..][..found.piece.count as usize] == *sums {
            true => Worth::Good,
            false => Worth::Damaged,
        }
    }

    /// Takes these lines for a write; `None` when another write has some of them, and nothing was changed.
    pub(crate) fn begin_write(
        &mut self,
        pieces: impl Iterator<Item = Piece> + Clone,
        journal: &Journal,
    ) -> Option<Taken> {
        let busy = |piece: Piece| {
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
        Some(Taken { after, era })
    }

    /// Lines of a slot cease to be valid. If any of them is durable the whole slot leaves durability: what is written
    /// once is likely to be written again.
    fn invalidate(&mut self, number: u32, lines: Lines, journal: &Journal) {
        let slot = self.slots[number as usize];
        if slot.durable & lines != 0 {
            let cleared = journal.append(Record::Clear { slot: number });
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

    /// A write has ended. What of `keep` no fill is busy with goes to a fill of the same bytes.
    pub(crate) fn end_write(
        &mut self,
        taken: &Taken,
        pieces: impl Iterator<Item = Piece> + Clone,
        keep: impl Iterator<Item = Piece>,
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

    /// Takes what is missing of these lines for a fill, before the backend is read for it.
    pub(crate) fn begin_fill(&mut self, pieces: impl Iterator<Item = Piece>) -> Vec<Claim> {
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

    /// Forgets a flight that is over, and a slot that holds nothing after it.
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
    /// when the policy refuses, or a write spoiled the claim.
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
            Place::Refused => return None,
            Place::Evicting(victim) => self.release(victim.0, State::Free, journal),
            Place::Here => {}
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

    /// A slot loses its block.
    fn release(&mut self, block: u64, state: State, journal: &Journal) {
        if let Some(number) = self.held.remove(&block) {
            self.invalidate(number, Lines::MAX, journal);
            self.slot(number).state = state;
            if state == State::Free {
                self.free.push_back(number);
            }
        }
    }

    /// A fill has ended; `sums` are those of the lines it wrote into `slot`, `None` when it wrote none.
    pub(crate) fn end_fill(&mut self, claim: &Claim, written: Option<(u32, &[u32])>) {
        let Some(flight) = self.flights.get_mut(&claim.block) else {
            return;
        };
        let sound = claim.lines & !flight.spoiled;
        flight.filling &= !claim.lines;
        flight.spoiled &= !claim.lines;
        // Damage may have retired the slot meanwhile, a failing device all of them.
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

    /// Whether nothing of this ceased to be valid since it was found.
    pub(crate) fn is_current(&self, found: &Found) -> bool {
        let slot = &self.slots[found.slot as usize];
        slot.version == found.version && slot.state == State::Held
    }

    /// Takes a slot out of use whose medium cannot be trusted.
    pub(crate) fn retire(&mut self, found: &Found, journal: &Journal) {
        let slot = self.slots[found.slot as usize];
        if slot.state == State::Held && slot.version == found.version {
            self.policy.dropped(BlockNumber(slot.block));
            self.release(slot.block, State::Retired, journal);
            self.retired += 1;
            self.fit_policy();
        }
    }

    /// Drops lines that do not equal the backend's.
    pub(crate) fn drop_lines(&mut self, found: &Found, journal: &Journal) {
        if self.slots[found.slot as usize].version == found.version {
            self.invalidate(found.slot, found.piece.mask(), journal);
            self.leave(found.piece.block);
        }
    }

    /// Nothing is held any more, and nothing is durable: the caller has seen to that.
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

    /// Drops everything that is not durable: the backend may have lost what was written to it.
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
        // What is being filled now was read or written before, too.
        for flight in self.flights.values_mut() {
            flight.spoiled |= flight.filling;
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// From now on there are fewer slots; what the others held is let go. The caller keeps fills away.
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
                // All are busy: fewer slots are kept back.
                None => break,
            }
        }
        for victim in victims {
            self.release(victim.0, State::Free, journal);
        }
    }

    /// From now on there are more slots, which the journal knows already. `false`: there is no memory for them.
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

    /// Slots that hold more than is durable.
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

    /// Both devices were synced since this was a candidate: what it held then is durable, unless it was written since.
    pub(crate) fn settle(&mut self, candidate: &Candidate, journal: &Journal) {
        let slot = self.slots[candidate.slot as usize];
        if slot.version != candidate.version || slot.state != State::Held || candidate.valid == 0 {
            return;
        }
        let sums = self.sums_of(candidate.slot).iter().enumerate();
        let there = sums.filter(|(line, _)| candidate.valid >> line & 1 == 1);
        journal.append(Record::Set {
            slot: candidate.slot,
            block: slot.block,
            lines: candidate.valid,
            sums: there.map(|(_, sum)| *sum).collect(),
        });
        self.change(candidate.slot, |slot| slot.durable = candidate.valid);
    }

    /// Every block that is held with its valid lines, in the policy's order.
    pub(crate) fn in_order(&self) -> Vec<(u64, Lines)> {
        let lines = |block: BlockNumber| {
            let slot = self.slots[*self.held.get(&block.0)? as usize];
            Some((block.0, slot.valid))
        };
        self.policy.order().into_iter().filter_map(lines).collect()
    }

    /// Every block that is held, with its valid lines.
    pub(crate) fn all(&self) -> Vec<Found> {
        let runs = self.held.iter().flat_map(|(block, number)| {
            let slot = self.slots[*number as usize];
            runs(slot.valid).map(move |(first, count)| Found {
                slot: *number,
                piece: Piece {
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

/// Runs of set bits: where each begins, and how long it is.
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
