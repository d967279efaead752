//! A policy that watches: what it would hold and serve, were it the one that decides. No I/O.
//!
//! It is told of the same requests at the same moments, and sees the same devices. What it cannot see is what its own
//! decisions would have changed: how loaded the devices would be, and how long requests would take. So it answers what
//! would be kept and hit; of where hits go, what it would do next to the policy at work. A fill takes no time here and
//! is never dropped.

use std::collections::HashMap;

use longshore_cache::policy::{
    Choice, Ended, Gauges, Place, Policy, Read, Slot as BlockNumber, View, Write,
};
use serde::Serialize;

use crate::directory::{Found, runs};
use crate::geometry::{LINE, Lines, Piece};
use crate::meter::Counters;

pub(crate) struct Shadow {
    choice: Choice,
    policy: Policy,
    /// The valid lines of each block that would be held.
    held: HashMap<u64, Lines>,
    done: Done,
    /// What the policy at work had done when this began.
    before: Done,
}

/// What a policy did since the shadow began to watch, or would have done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Done {
    pub reads: u64,
    /// Reads of which the cache held everything, in runs of up to 1 MiB.
    pub hits: u64,
    /// Bytes that the cache device served.
    pub fast_bytes: u64,
    /// Bytes written to the cache device.
    pub fill_bytes: u64,
}

/// The shadow beside the policy at work, over the same requests.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    pub policy: String,
    pub would: Done,
    pub did: Done,
    /// Time that the shadow believes it would have saved.
    pub saved_us: f64,
}

impl Done {
    pub(crate) fn of(counters: &Counters) -> Done {
        Done {
            reads: counters.read_runs,
            hits: counters.hits,
            fast_bytes: counters.fast_bytes,
            fill_bytes: counters.fill_bytes,
        }
    }

    fn since(self, before: Done) -> Done {
        Done {
            reads: self.reads - before.reads,
            hits: self.hits - before.hits,
            fast_bytes: self.fast_bytes - before.fast_bytes,
            fill_bytes: self.fill_bytes - before.fill_bytes,
        }
    }
}

impl Shadow {
    /// Begins with these blocks, in the order of the policy at work, and these lines of them.
    pub(crate) fn new(
        choice: Choice,
        mut policy: Policy,
        held: impl Iterator<Item = (u64, Lines)>,
        before: Done,
    ) -> Shadow {
        let held = held
            .filter(|(block, _)| policy.restore(BlockNumber(*block)))
            .collect();
        Shadow {
            choice,
            policy,
            held,
            done: Done::default(),
            before,
        }
    }

    fn lines_of(&self, piece: &Piece) -> Lines {
        self.held.get(&piece.block).copied().unwrap_or(0) & piece.mask()
    }

    /// A client reads; `touched` are the lines around it, `whole` those of them that could be filled. `inside` says how
    /// many of the client's bytes lie in these lines, and `divide` how many of them the cache device serves, of so many
    /// that it should.
    pub(crate) fn read(
        &mut self,
        view: &View,
        (offset, len): (u64, u64),
        touched: impl Iterator<Item = Piece>,
        whole: impl Iterator<Item = Piece>,
        inside: impl Fn(&[Found]) -> u64,
        divide: impl FnOnce(Vec<Found>, u64) -> u64,
    ) {
        let found: Vec<Found> = touched
            .flat_map(|piece| {
                runs(self.lines_of(&piece)).map(move |(first, count)| {
                    Found::imagined(Piece {
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
            len,
            held_bytes,
        };
        let plan = self.policy.read(view, read);
        self.done.reads += 1;
        self.done.hits += u64::from(held_bytes == len);
        self.done.fast_bytes += divide(found, plan.fast_bytes);
        if plan.admit && held_bytes < len {
            self.fill(view, whole);
        }
    }

    /// A client has written; `whole` are the lines that it wrote all of.
    pub(crate) fn write(
        &mut self,
        view: &View,
        (offset, len): (u64, u64),
        touched: impl Iterator<Item = Piece> + Clone,
        whole: impl Iterator<Item = Piece>,
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
            len,
            held_bytes: held_bytes.min(len),
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

    fn fill(&mut self, view: &View, whole: impl Iterator<Item = Piece>) {
        let missing = |piece: Piece| (piece.block, piece.mask() & !self.lines_of(&piece));
        let claims: Vec<(u64, Lines)> = whole.map(missing).filter(|(_, l)| *l != 0).collect();
        for (at, (block, lines)) in claims.iter().enumerate() {
            let bytes = u64::from(lines.count_ones()) * LINE;
            // What this request is about to fill is busy.
            let mut may_go = |victim: BlockNumber| !claims[at..].iter().any(|c| c.0 == victim.0);
            let number = BlockNumber(*block);
            match self.policy.place(view, number, bytes, &mut may_go) {
                Place::Refused => continue,
                Place::Evicting(victim) => {
                    self.held.remove(&victim.0);
                }
                Place::Here => {}
            }
            *self.held.entry(*block).or_insert(0) |= lines;
            self.done.fill_bytes += bytes;
        }
    }

    /// The cache has so many slots now.
    pub(crate) fn resize(&mut self, slots: usize) {
        self.policy.resize(slots);
        while self.policy.resident() > self.policy.slots()
            && let Some(victim) = self.policy.evict(&mut |_| true)
        {
            self.held.remove(&victim.0);
        }
    }

    pub(crate) fn ended(&mut self, ended: &Ended) {
        self.policy.ended(ended);
    }

    pub(crate) fn comparison(&self, now: Done) -> Comparison {
        let Gauges { saved_us, .. } = self.policy.gauges();
        Comparison {
            policy: self.choice.to_string(),
            would: self.done,
            did: now.since(self.before),
            saved_us,
        }
    }
}
