//! A shadow policy: what it would cache and serve if it decided.
//!
//! It sees the same requests at the same moments, and the same devices. It cannot see the effects of its own decisions:
//! how loaded the devices would be, and how long requests would take. So it answers which data would be kept and hit;
//! for the routes of hits, what it would do at this point in place of the active policy.
//!
//! Invariants
//! - It does no I/O, and changes nothing of the cache at work.
//! - A block is held here if and only if the shadow's policy has it.
//! - A fill takes no time here and is never dropped.
//!
//! Leaves to others: telling it of requests (`cached`), and the policies (`longshore-policy`).

use std::collections::HashMap;

use longshore_policy::policy::{
    Choice, EndedRequest, FillDecision, Gauges, Policy, Read, Slot as BlockNumber, View, Write,
};
use serde::Serialize;

use crate::directory::{ServableLines, runs};
use crate::geometry::{LINE, LineRun, Lines};
use crate::meter::Counters;

pub(crate) struct Shadow {
    choice: Choice,
    policy: Policy,
    /// The valid lines of each block that would be cached.
    held: HashMap<u64, Lines>,
    done: ShadowTotals,
    /// The active policy's counters when the shadow began.
    before: ShadowTotals,
}

/// A policy's counters since the shadow began, real or assumed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ShadowTotals {
    pub reads: u64,
    /// Reads that the cache held whole, in runs of up to 1 MiB.
    pub hits: u64,
    /// Bytes that the cache device served.
    pub fast_bytes: u64,
    /// Bytes written to the cache device.
    pub fill_bytes: u64,
}

/// The shadow next to the active policy, over the same requests.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    pub policy: String,
    pub would: ShadowTotals,
    pub did: ShadowTotals,
    /// The time that the shadow estimates it would have saved.
    pub saved_us: f64,
}

impl ShadowTotals {
    pub(crate) fn of(counters: &Counters) -> ShadowTotals {
        ShadowTotals {
            reads: counters.read_runs,
            hits: counters.hits,
            fast_bytes: counters.fast_bytes,
            fill_bytes: counters.fill_bytes,
        }
    }

    fn since(self, before: ShadowTotals) -> ShadowTotals {
        ShadowTotals {
            reads: self.reads - before.reads,
            hits: self.hits - before.hits,
            fast_bytes: self.fast_bytes - before.fast_bytes,
            fill_bytes: self.fill_bytes - before.fill_bytes,
        }
    }
}

impl Shadow {
    /// Begins with these blocks, in the order of the active policy, and these lines of them.
    pub(crate) fn new(
        choice: Choice,
        mut policy: Policy,
        held: impl Iterator<Item = (u64, Lines)>,
        before: ShadowTotals,
    ) -> Shadow {
        let held = held
            .filter(|(block, _)| policy.restore(BlockNumber(*block)))
            .collect();
        Shadow {
            choice,
            policy,
            held,
            done: ShadowTotals::default(),
            before,
        }
    }

    fn lines_of(&self, piece: &LineRun) -> Lines {
        self.held.get(&piece.block).copied().unwrap_or(0) & piece.mask()
    }

    /// A client's read: `touched` are the lines around it, `whole` those of them that could be filled. `inside`
    /// returns how many of the client's bytes lie in given lines, and `divide` how many of them the cache device
    /// serves if it must serve so many.
    pub(crate) fn read(
        &mut self,
        view: &View,
        (offset, len_bytes): (u64, u64),
        touched: impl Iterator<Item = LineRun>,
        whole: impl Iterator<Item = LineRun>,
        inside: impl Fn(&[ServableLines]) -> u64,
        divide: impl FnOnce(Vec<ServableLines>, u64) -> u64,
    ) {
        let found: Vec<ServableLines> = touched
            .flat_map(|piece| {
                runs(self.lines_of(&piece)).map(move |(first, count)| {
                    ServableLines::imagined(LineRun {
                        block: piece.block,
                        first,
                        count,
                    })
                })
            })
            .collect();
        let held_bytes = inside(&found);
        let read = Read {
            offset,
            len_bytes,
            held_bytes,
        };
        let plan = self.policy.read(view, read);
        self.done.reads += 1;
        self.done.hits += u64::from(held_bytes == len_bytes);
        self.done.fast_bytes += divide(found, plan.fast_bytes);
        if plan.admit && held_bytes < len_bytes {
            self.fill(view, whole);
        }
    }

    /// A client's write: `whole` are the lines that it covers entirely.
    pub(crate) fn write(
        &mut self,
        view: &View,
        (offset, len_bytes): (u64, u64),
        touched: impl Iterator<Item = LineRun> + Clone,
        whole: impl Iterator<Item = LineRun>,
    ) {
        let mut held_bytes = 0;
        for piece in touched.clone() {
            held_bytes += u64::from(self.lines_of(&piece).count_ones()) * LINE;
            if let Some(lines) = self.held.get_mut(&piece.block) {
                *lines &= !piece.mask();
            }
        }
        let write = Write {
            offset,
            len_bytes,
            held_bytes: held_bytes.min(len_bytes),
        };
        if self.policy.write(view, write).admit {
            self.fill(view, whole);
        }
        for piece in touched {
            if self.held.get(&piece.block) == Some(&0) {
                self.held.remove(&piece.block);
                self.policy.dropped(BlockNumber(piece.block));
            }
        }
    }

    fn fill(&mut self, view: &View, whole: impl Iterator<Item = LineRun>) {
        let missing = |piece: LineRun| (piece.block, piece.mask() & !self.lines_of(&piece));
        let claims: Vec<(u64, Lines)> = whole.map(missing).filter(|(_, l)| *l != 0).collect();
        for (at, (block, lines)) in claims.iter().enumerate() {
            let bytes = u64::from(lines.count_ones()) * LINE;
            // Blocks that this request is about to fill are busy.
            let mut may_go = |victim: BlockNumber| !claims[at..].iter().any(|c| c.0 == victim.0);
            let number = BlockNumber(*block);
            match self.policy.place(view, number, bytes, &mut may_go) {
                FillDecision::Refused => continue,
                FillDecision::Evicting(victim) => {
                    self.held.remove(&victim.0);
                }
                FillDecision::Here => {}
            }
            *self.held.entry(*block).or_insert(0) |= lines;
            self.done.fill_bytes += bytes;
        }
    }

    /// Sets the number of slots.
    pub(crate) fn resize(&mut self, slots: usize) {
        self.policy.resize(slots);
        while self.policy.resident() > self.policy.slots()
            && let Some(victim) = self.policy.evict(&mut |_| true)
        {
            self.held.remove(&victim.0);
        }
    }

    pub(crate) fn ended(&mut self, ended: &EndedRequest) {
        self.policy.ended(ended);
    }

    pub(crate) fn comparison(&self, now: ShadowTotals) -> Comparison {
        let Gauges { saved_us, .. } = self.policy.gauges();
        Comparison {
            policy: self.choice.to_string(),
            would: self.done,
            did: now.since(self.before),
            saved_us,
        }
    }
}
