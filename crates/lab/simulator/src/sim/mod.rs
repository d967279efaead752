//! The cache in virtual time: modelled devices, the shipped policies, and a load.
//!
//! Cached bytes of a read are served as the policy says, the rest by the slow side, all parts at the same time; when
//! all have finished, missed bytes that are admitted are written into the cache. Writes go through: the slow side
//! acknowledges, then the fast side may get its copy, and until that is complete the slow side alone serves the range.
//! A flush goes to the slow side only, which holds everything; trimmed or zeroed bytes are no longer cached. Under a
//! policy that shares reads, a miss waits for another client's read of the same bytes.
//!
//! Invariants
//! - The policy gets the information that a daemon would have, at the same time.
//! - One seed is one run.
//!
//! Leaves to others: loads (`load.rs`, `mix.rs`), figures (`report.rs`), and the models of devices
//! (`longshore-policy`).

mod content;
#[cfg(test)]
pub(crate) mod contract;
mod load;
mod mix;
mod phases;
mod report;
mod steady;

use std::ops::Range;

pub use content::SLOT_BYTES_MAX;
use content::SimulatedContent;
pub use load::{Arrival, Ask, ClosedLoop, OpenLoop, Source};
use longshore_policy::model::{Device, Nanos, Op, Order, Profile, Request};
use longshore_policy::policy::{
    EndedRequest, FillDecision, LINE_BYTES, Load, Policy, Purpose, Read, Side, Slot, View, Write,
};
pub use mix::{Group, Mix};
pub use phases::{Phases, settled};
use report::Tally;
pub use report::{Latencies, Outcome};
use steady::WarmupWatch;

/// The scenario, without the load and the policy.
#[derive(Debug, Clone)]
pub struct Scenario<'a> {
    pub fast: &'a Profile,
    pub slow: &'a Profile,
    /// Whole lines, up to [`SLOT_BYTES_MAX`]; must equal the policy's slot size.
    pub slot_bytes: u64,
    /// At the start the cache holds this many of the backend's first bytes, if the policy has room.
    pub warm_bytes: u64,
    /// Virtual time that is not counted, and time that is.
    pub warm_up: WarmUp,
    pub measured: Nanos,
    pub seed: u64,
}

/// The part of a run that is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarmUp {
    For(Nanos),
    /// Until three windows in a row have the same throughput; windows last `window`, or the policy's
    /// [pace](Policy::pace) if that is longer. After `most` the run is counted nevertheless, and the outcome says so.
    UntilSteady {
        window: Nanos,
        most: Nanos,
    },
}

/// A client's request in flight.
struct PendingRequest {
    client: usize,
    ask: Ask,
    begun: Nanos,
    /// Unfinished parts.
    parts: u32,
    /// Bytes to fill into the cache afterwards.
    fill: Option<Range<u64>>,
}

/// One request on one device.
struct Part {
    op: Op,
    offset: u64,
    len: u64,
    begun: Nanos,
    before: Load,
    of: Of,
    /// Requests that wait for this part's bytes, and for how many of them; no more may join after a write to them.
    joined: Vec<(usize, u64)>,
    written: bool,
}

enum Of {
    Ask(usize),
    /// Not a request for data: no policy is told of it.
    Order(usize),
    /// Content on its way into the cache, with the version of each slot that must still hold then.
    Fill(Vec<(Slot, Range<u64>, u64)>),
}

struct Run<'a> {
    devices: [Device; 2],
    loads: [Load; 2],
    parts: [Slab<Part>; 2],
    asked: Slab<PendingRequest>,
    content: SimulatedContent,
    policy: &'a mut Policy,
    tally: Tally,
    runs: Vec<(bool, Range<u64>)>,
    /// Clients whose requests have just finished.
    answered: Vec<usize>,
    /// `Some` while the run warms up until it is steady.
    settling: Option<WarmupWatch>,
}

/// Numbered entries; a number is reused after its entry is gone.
struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    fn new() -> Slab<T> {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    fn insert(&mut self, item: T) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.places[at] = Some(item);
                at
            }
            None => {
                self.places.push(Some(item));
                self.places.len() - 1
            }
        }
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.places.get_mut(at)?.as_mut()
    }

    fn remove(&mut self, at: usize) -> Option<T> {
        let item = self.places.get_mut(at)?.take()?;
        self.free.push(at);
        Some(item)
    }
}

fn index(side: Side) -> usize {
    usize::from(side == Side::Slow)
}

/// Runs a load under a policy, until the time is over or the load has ended and nothing is in flight.
pub fn run(scenario: &Scenario, source: &mut dyn Source, policy: &mut Policy) -> Outcome {
    let mut run = Run::new(scenario, policy);
    run.warm(scenario);
    let mut steady = true;
    let (mut from, most) = match scenario.warm_up {
        WarmUp::For(time) => (time, Nanos::MAX),
        WarmUp::UntilSteady { most, .. } => (Nanos::MAX, most),
    };
    let mut end = from.saturating_add(scenario.measured);
    let mut now = 0;
    loop {
        while let Some(arrival) = source.take(now) {
            run.ask(now, arrival);
        }
        let steps = run.devices.iter().filter_map(Device::next_step);
        let Some(next) = steps.chain(source.due()).min().filter(|next| *next < end) else {
            break;
        };
        now = next.max(now);
        for side in [Side::Fast, Side::Slow] {
            for done in run.devices[index(side)].advance(now) {
                run.ended(side, done.id as usize, now);
                run.answered
                    .drain(..)
                    .for_each(|client| source.ended(client, now));
            }
        }
        if let Some(settling) = &mut run.settling {
            let is_steady = settling.is_steady(now) && !run.policy.gauges().settling;
            if is_steady || now >= most {
                (steady, from, end) = (is_steady, now, now.saturating_add(scenario.measured));
                run.tally.begin(now);
                run.settling = None;
            }
        }
    }
    // A load that ended before it was steady was not counted at all.
    let steady = steady && run.settling.is_none();
    let from = from.min(now);
    let counted = now.clamp(from, end) - from;
    let whole = run.loads.iter().any(|load| load.in_flight_requests > 0);
    let measured = if whole {
        scenario.measured
    } else {
        counted.max(1)
    };
    Outcome {
        warmed_up: from,
        steady,
        ..run.tally.outcome(measured)
    }
}

/// Reads up to here, and up to the fast device's largest command, are small.
const SMALL_MAX: u64 = 64 << 10;

impl<'a> Run<'a> {
    fn new(scenario: &Scenario, policy: &'a mut Policy) -> Run<'a> {
        let policy_pace = policy.pace();
        Run {
            devices: [
                Device::new(scenario.fast, scenario.seed),
                Device::new(scenario.slow, scenario.seed ^ 1),
            ],
            loads: [Load::default(); 2],
            parts: [Slab::new(), Slab::new()],
            asked: Slab::new(),
            content: SimulatedContent::new(scenario.slot_bytes),
            policy,
            tally: Tally::new(
                match scenario.warm_up {
                    WarmUp::For(time) => time,
                    WarmUp::UntilSteady { .. } => Nanos::MAX,
                },
                u64::from(scenario.fast.command_bytes).min(SMALL_MAX),
            ),
            runs: Vec::new(),
            answered: Vec::new(),
            settling: match scenario.warm_up {
                WarmUp::For(_) => None,
                WarmUp::UntilSteady { window, .. } => {
                    Some(WarmupWatch::new(window.max(policy_pace)))
                }
            },
        }
    }

    /// Content from before a restart, as much as the scenario says and the policy takes.
    fn warm(&mut self, scenario: &Scenario) {
        for slot in (0..scenario.warm_bytes / scenario.slot_bytes).map(Slot) {
            if !self.policy.restore(slot) {
                break;
            }
            self.content.load(slot);
        }
    }

    fn view(&self, now: Nanos) -> View {
        let [fast, slow] = self.loads;
        View { now, fast, slow }
    }

    fn ask(&mut self, now: Nanos, arrival: Arrival) {
        match arrival.ask {
            Ask::Io(request) => match request.op {
                Op::Read => self.read(now, arrival, request),
                Op::Write => self.write(now, arrival, request),
            },
            Ask::Flush => self.order(now, arrival, Order::Flush),
            Ask::Discard { offset, len } => {
                let bytes = offset..offset + len;
                self.content.discard(bytes.clone());
                self.overtake(&bytes);
                self.order(now, arrival, Order::Discard);
            }
        }
    }

    /// Sends the slow side a request that moves no data.
    fn order(&mut self, now: Nanos, arrival: Arrival, order: Order) {
        let ask = self.asked.insert(PendingRequest {
            client: arrival.client,
            ask: arrival.ask,
            begun: now,
            parts: 1,
            fill: None,
        });
        let i = index(Side::Slow);
        let id = self.parts[i].insert(Part {
            op: Op::Write,
            offset: 0,
            len: 0,
            begun: now,
            before: self.loads[i],
            of: Of::Order(ask),
            joined: Vec::new(),
            written: false,
        });
        self.devices[i].order(now, id as u64, order);
    }

    /// Later requests may not wait for a read of this range that is in flight.
    fn overtake(&mut self, bytes: &Range<u64>) {
        for read in self.parts[index(Side::Slow)].iter_mut() {
            read.written |= read.offset < bytes.end && bytes.start < read.offset + read.len;
        }
    }

    fn write(&mut self, now: Nanos, arrival: Arrival, request: Request) {
        let Request {
            offset,
            len_bytes: len,
            ..
        } = request;
        let bytes = offset..offset + len;
        self.content.runs(bytes.clone(), &mut self.runs);
        let held_bytes = held(&self.runs);
        let view = self.view(now);
        let write = Write {
            offset,
            len_bytes: len,
            held_bytes,
        };
        let plan = self.policy.write(&view, write);
        // For an uncached line, only a write of the whole line makes a copy.
        let fill = match held_bytes == len {
            true => outward(&bytes),
            false => inward(&bytes),
        };
        self.content.void(bytes.clone());
        self.overtake(&bytes);
        let ask = self.asked.insert(PendingRequest {
            client: arrival.client,
            ask: arrival.ask,
            begun: now,
            parts: 1,
            fill: plan.admit.then_some(fill).filter(|fill| !fill.is_empty()),
        });
        self.submit(now, Side::Slow, request, Of::Ask(ask));
    }

    fn read(&mut self, now: Nanos, arrival: Arrival, request: Request) {
        let Request {
            op,
            offset,
            len_bytes: len,
        } = request;
        let bytes = outward(&(offset..offset + len));
        let mut runs = std::mem::take(&mut self.runs);
        self.content.runs(bytes.clone(), &mut runs);
        let held_bytes = held(&runs);
        let (offset, len) = (bytes.start, bytes.end - bytes.start);
        let view = self.view(now);
        let read = Read {
            offset,
            len_bytes: len,
            held_bytes,
        };
        let plan = self.policy.read(&view, read);
        self.tally.looked_up(now, held_bytes, len);
        let ask = self.asked.insert(PendingRequest {
            client: arrival.client,
            ask: arrival.ask,
            begun: now,
            parts: 0,
            fill: plan.admit.then_some(bytes),
        });
        join(&mut runs, plan.join_bytes);
        let mut fast_left = plan.fast_bytes;
        let mut slow: Option<Range<u64>> = None;
        let mut parts = Vec::with_capacity(4);
        for (is_held, run) in runs.drain(..) {
            let fast = match is_held {
                true => fast_left.min(run.end - run.start),
                false => 0,
            };
            fast_left -= fast;
            let cut = run.start + fast;
            if fast > 0 {
                parts.extend(slow.take().map(|run| (Side::Slow, run)));
                parts.push((Side::Fast, run.start..cut));
            }
            if cut < run.end {
                let start = slow.map_or(cut, |slow| slow.start);
                slow = Some(start..run.end);
            }
        }
        parts.extend(slow.map(|run| (Side::Slow, run)));
        self.runs = runs;
        if let Some(asked) = self.asked.get_mut(ask) {
            asked.parts = parts.len() as u32;
        }
        let mut reads = false;
        for (side, run) in parts {
            let (offset, len) = (run.start, run.end - run.start);
            if plan.join && side == Side::Slow && self.join(&run, ask) {
                continue;
            }
            reads |= side == Side::Slow;
            self.submit(
                now,
                side,
                Request {
                    op,
                    offset,
                    len_bytes: len,
                },
                Of::Ask(ask),
            );
        }
        // A request that reads nothing from the slow side has nothing new to copy.
        if let Some(asked) = self.asked.get_mut(ask).filter(|_| !reads) {
            asked.fill = None;
        }
    }

    /// Lets a request wait for a part in flight that brings its bytes; false if there is none.
    fn join(&mut self, run: &Range<u64>, ask: usize) -> bool {
        let mut reads = self.parts[index(Side::Slow)].iter_mut();
        let same = reads.find(|part| {
            let brings = part.offset <= run.start && run.end <= part.offset + part.len;
            part.op == Op::Read && brings && !part.written
        });
        match same {
            Some(part) => part.joined.push((ask, run.end - run.start)),
            None => return false,
        }
        true
    }

    fn submit(&mut self, now: Nanos, side: Side, request: Request, of: Of) {
        let i = index(side);
        let part = Part {
            op: request.op,
            offset: request.offset,
            len: request.len_bytes,
            begun: now,
            before: self.loads[i],
            of,
            joined: Vec::new(),
            written: false,
        };
        self.loads[i].in_flight_bytes += request.len_bytes;
        self.loads[i].in_flight_requests += 1;
        self.loads[i].written_bytes += written(request.op, request.len_bytes);
        let id = self.parts[i].insert(part);
        self.devices[i].submit(now, id as u64, request);
    }

    /// Handles a completion of a device.
    fn ended(&mut self, side: Side, id: usize, now: Nanos) {
        let i = index(side);
        let Some(part) = self.parts[i].remove(id) else {
            return;
        };
        if let Of::Order(ask) = part.of {
            return self.served(now, side, ask, 0);
        }
        self.loads[i].in_flight_bytes -= part.len;
        self.loads[i].in_flight_requests -= 1;
        self.loads[i].written_bytes -= written(part.op, part.len);
        let mut ended = EndedRequest {
            now,
            side,
            op: part.op,
            purpose: match part.of {
                Of::Ask(_) | Of::Order(_) => Purpose::Client,
                Of::Fill(_) => Purpose::Fill,
            },
            len_bytes: part.len,
            took_us: (now - part.begun) as f64 / 1000.0,
            before: part.before,
        };
        self.policy.ended(&ended);
        match part.of {
            Of::Fill(pieces) => {
                for (slot, piece, version) in pieces {
                    self.content.fill(slot, &piece, version);
                }
                self.tally.filled(now, part.len);
            }
            Of::Ask(ask) | Of::Order(ask) => self.served(now, side, ask, part.len),
        }
        for (ask, len) in part.joined {
            ended.purpose = Purpose::Joined;
            ended.len_bytes = len;
            self.policy.ended(&ended);
            self.served(now, side, ask, len);
        }
    }

    /// Handles a finished part of a request.
    fn served(&mut self, now: Nanos, side: Side, ask: usize, len: u64) {
        self.tally.served(now, side, len);
        let Some(asked) = self.asked.get_mut(ask) else {
            return;
        };
        asked.parts -= 1;
        if asked.parts > 0 {
            return;
        }
        let Some(asked) = self.asked.remove(ask) else {
            return;
        };
        let took_us = (now - asked.begun) as f64 / 1000.0;
        if let Some(settling) = &mut self.settling {
            settling.ended(asked.ask.bytes());
        }
        match asked.ask {
            Ask::Io(Request {
                op,
                offset,
                len_bytes: len,
            }) => {
                self.tally.ended(now, op, len, took_us);
                if op == Op::Write {
                    self.content.void(offset..offset + len);
                }
            }
            Ask::Flush => self.tally.flushed(now, took_us),
            Ask::Discard { offset, len } => self.content.discard(offset..offset + len),
        }
        if let Some(bytes) = asked.fill {
            self.fill(now, bytes);
        }
        self.answered.push(asked.client);
    }

    /// Writes the uncached bytes of a range into the cache, one request for each run.
    fn fill(&mut self, now: Nanos, bytes: Range<u64>) {
        let view = self.view(now);
        let mut runs = std::mem::take(&mut self.runs);
        self.content.runs(bytes, &mut runs);
        for (_, run) in runs.drain(..).filter(|(held, _)| !held) {
            let mut pieces: Vec<(Slot, Range<u64>, u64)> = Vec::new();
            for (slot, piece) in self.content.pieces(run) {
                let len = piece.end - piece.start;
                match self.policy.place(&view, slot, len, &mut |_| true) {
                    FillDecision::Refused => {
                        self.write_pieces(now, std::mem::take(&mut pieces));
                        continue;
                    }
                    FillDecision::Evicting(victim) => self.content.evict(victim),
                    FillDecision::Here => {}
                }
                self.content.admit(slot);
                pieces.push((slot, piece, self.content.version(slot)));
            }
            self.write_pieces(now, pieces);
        }
        self.runs = runs;
    }

    fn write_pieces(&mut self, now: Nanos, pieces: Vec<(Slot, Range<u64>, u64)>) {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
            return;
        };
        let request = Request {
            op: Op::Write,
            offset: first.1.start,
            len_bytes: last.1.end - first.1.start,
        };
        self.submit(now, Side::Fast, request, Of::Fill(pieces));
    }
}

fn written(op: Op, len: u64) -> u64 {
    match op {
        Op::Read => 0,
        Op::Write => len,
    }
}

fn held(runs: &[(bool, Range<u64>)]) -> u64 {
    let held = runs.iter().filter(|(held, _)| *held);
    held.map(|(_, run)| run.end - run.start).sum()
}

/// Joins runs that are not cached and no further apart than `gap`.
fn join(runs: &mut Vec<(bool, Range<u64>)>, gap: u64) {
    let mut at = 1;
    while at + 1 < runs.len() {
        let (held, run) = &runs[at];
        if *held && run.end - run.start <= gap {
            runs[at - 1].1.end = runs[at + 1].1.end;
            runs.drain(at..at + 2);
        } else {
            at += 1;
        }
    }
}

/// The lines that a range touches.
fn outward(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / LINE_BYTES * LINE_BYTES..bytes.end.div_ceil(LINE_BYTES) * LINE_BYTES
}

/// The lines that a range covers entirely.
fn inward(bytes: &Range<u64>) -> Range<u64> {
    let start = bytes.start.div_ceil(LINE_BYTES) * LINE_BYTES;
    start..(bytes.end / LINE_BYTES * LINE_BYTES).max(start)
}

#[cfg(test)]
mod tests;
