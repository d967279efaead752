//! A device at work: requests in, completions out, in virtual time.
//!
//! Invariants
//! - The same requests at the same times give the same completions; randomness comes from the caller's seed only.
//! - No request is lost, and none completes before it was sent.
//!
//! Leaves to others: the parameters of devices (`profile.rs`), and what to send where (`policy`).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use rand_distr::{Distribution, LogNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::Nanos;
use super::Profile;
use super::stations::{Bucket, Server};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Read,
    Write,
}

impl Op {
    /// The word for a request in texts.
    pub fn noun(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
        }
    }
}

/// One request. `len_bytes` is 1 or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub op: Op,
    pub offset: u64,
    pub len_bytes: u64,
}

/// A request that moves no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Done when all previously acknowledged writes have left the buffer.
    Flush,
    /// Done as soon as it is received: a trim, or zeroes that are not written out.
    Discard,
}

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The id given to [`Device::submit`].
    pub id: u64,
    pub at: Nanos,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A chunk has left its unit and needs the link.
    Chunk {
        id: u64,
        len: u64,
        write: bool,
    },
    /// A unit has written a chunk of buffered data.
    Drained {
        unit: usize,
        len: u64,
    },
    Done {
        id: u64,
    },
}

struct Open {
    /// Bytes of the request; an order has none.
    len: u64,
    /// Chunks that have not left the link.
    chunks: u64,
}

/// A device with a profile. See the module for what it keeps.
pub struct Device {
    profile: Profile,
    random: Xoshiro256PlusPlus,
    jitter: Option<LogNormal<f64>>,
    byte_credit: Option<Bucket>,
    command_credit: Option<Bucket>,
    command: Server,
    units: Vec<Server>,
    read_link: Server,
    write_link: Server,
    buffer: Buffer,
    steps: BinaryHeap<Reverse<(Nanos, u64, Step)>>,
    /// By id.
    open: Vec<Option<Open>>,
    /// Numbers steps, so that equal times keep their order.
    order: u64,
    in_flight: u64,
}

/// Written data that is acknowledged and not yet on flash.
#[derive(Default)]
struct Buffer {
    held: u64,
    /// Bytes of these not yet given to a unit.
    undrained: u64,
    /// Which units are writing buffered data.
    busy: Vec<bool>,
    /// The unit to ask next.
    turn: usize,
    /// Writes that wait for room.
    waiting: VecDeque<u64>,
    /// Bytes that have ever come in, and that have gone out to flash.
    accepted: u64,
    drained: u64,
    /// Flushes, oldest first, and the byte count that must have gone out for each.
    flushes: VecDeque<(u64, u64)>,
}

fn nanos(us: f64) -> Nanos {
    (us * 1000.0).round() as Nanos
}

impl Device {
    /// An idle device. `seed` determines jitter and tail.
    pub fn new(profile: &Profile, seed: u64) -> Device {
        let jitter = LogNormal::new(0.0, profile.jitter).ok();
        Device {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            jitter: jitter.filter(|_| profile.jitter > 0.0),
            byte_credit: profile.byte_credit.map(Bucket::new),
            command_credit: profile.command_credit.map(Bucket::new),
            command: Server::default(),
            units: vec![Server::default(); profile.units as usize],
            read_link: Server::default(),
            write_link: Server::default(),
            buffer: Buffer {
                busy: vec![false; profile.units as usize],
                ..Buffer::default()
            },
            steps: BinaryHeap::new(),
            open: Vec::new(),
            order: 0,
            in_flight: 0,
            profile: profile.clone(),
        }
    }

    /// The same device after a long burst of such requests: no credit is left, and after writes their buffer is full.
    pub fn after_a_burst(mut self, op: Op) -> Device {
        let credits = self.byte_credit.iter_mut().chain(&mut self.command_credit);
        credits.for_each(Bucket::empty);
        if let Some(buffer) = self.profile.write_buffer.filter(|_| op == Op::Write) {
            let bytes = buffer.bytes as u64;
            self.buffer.held = bytes;
            self.buffer.undrained = bytes;
            self.buffer.accepted = bytes;
            self.drain(0);
        }
        self
    }

    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Bytes submitted and not completed.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight
    }

    /// Takes a request at `now`, which must not be before an earlier request, nor before the last [`Device::advance`].
    /// `id` must not be that of another request in flight; it should be small, since the table grows to the largest.
    pub fn submit(&mut self, now: Nanos, id: u64, request: Request) {
        self.in_flight += request.len_bytes;
        self.begin(id, request.len_bytes);
        let buffered = request.op == Op::Write && self.profile.write_buffer.is_some();
        let command_bytes = u64::from(self.profile.command_bytes);
        let end = request.offset + request.len_bytes;
        let mut start = request.offset;
        while start < end {
            let stop = end.min(start + command_bytes);
            // A buffer takes writes at once, so a device has a buffer or limits.
            let granted = match buffered {
                true => now,
                false => self.granted(now, stop - start),
            };
            let at = self.command.serve(granted, nanos(self.profile.command_us));
            if !buffered {
                self.spread(at, id, request.op, start..stop);
            }
            start = stop;
        }
        if buffered {
            self.buffer.waiting.push_back(id);
            self.acknowledge(now);
        }
    }

    /// When the limits let a command of `len` bytes pass.
    fn granted(&mut self, now: Nanos, len: u64) -> Nanos {
        let take = |bucket: &mut Option<Bucket>, cost| {
            let bucket = bucket.as_mut();
            bucket.map_or(now, |bucket| bucket.take(now, cost))
        };
        let bytes = take(&mut self.byte_credit, len as f64);
        bytes.max(take(&mut self.command_credit, 1.0))
    }

    /// Takes an order at `now`; times and `id` as for [`Device::submit`].
    pub fn order(&mut self, now: Nanos, id: u64, order: Order) {
        self.begin(id, 0);
        let known = self.command.serve(now, nanos(self.profile.command_us));
        let buffer = &mut self.buffer;
        if order == Order::Flush && buffer.drained < buffer.accepted {
            buffer.flushes.push_back((buffer.accepted, id));
        } else {
            self.push(known + nanos(self.profile.fixed_us), Step::Done { id });
        }
    }

    fn begin(&mut self, id: u64, len: u64) {
        let at = id as usize;
        if self.open.len() <= at {
            self.open.resize_with(at + 1, || None);
        }
        self.open[at] = Some(Open { len, chunks: 0 });
    }

    /// The time of the next event; `None` if idle.
    pub fn next_step(&self) -> Option<Nanos> {
        self.steps.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Advances time to `now` and returns the requests completed until then, in order.
    pub fn advance(&mut self, now: Nanos) -> Vec<Completion> {
        let mut done = Vec::new();
        while let Some(Reverse((at, _, step))) = self.steps.peek().copied() {
            if at > now {
                break;
            }
            self.steps.pop();
            match step {
                Step::Chunk { id, len, write } => self.transfer(at, id, len, write),
                Step::Drained { unit, len } => self.drained(at, unit, len),
                Step::Done { id } => {
                    if let Some(open) = self.open[id as usize].take() {
                        self.in_flight -= open.len;
                        done.push(Completion { id, at });
                    }
                }
            }
        }
        done
    }

    fn push(&mut self, at: Nanos, step: Step) {
        self.steps.push(Reverse((at, self.order, step)));
        self.order += 1;
    }

    /// Gives the chunks of one command to their units.
    fn spread(&mut self, at: Nanos, id: u64, op: Op, bytes: Range<u64>) {
        let chunk = u64::from(self.profile.chunk_bytes);
        let mut start = bytes.start;
        while start < bytes.end {
            let stop = bytes.end.min((start / chunk + 1) * chunk);
            let unit = (start / chunk % self.units.len() as u64) as usize;
            let partial = stop - start < chunk;
            let service = match op {
                Op::Read => self.unit_time(self.profile.read_us),
                // A chunk that is not written whole must be read first.
                Op::Write if partial => {
                    self.unit_time(self.profile.read_us) + self.unit_time(self.profile.write_us)
                }
                Op::Write => self.unit_time(self.profile.write_us),
            };
            let done = self.units[unit].serve(at, service);
            if let Some(open) = self.open[id as usize].as_mut() {
                open.chunks += 1;
            }
            let write = op == Op::Write;
            self.push(
                done,
                Step::Chunk {
                    id,
                    len: stop - start,
                    write,
                },
            );
            start = stop;
        }
    }

    /// One unit's time for a chunk, with jitter and, rarely, a tail.
    fn unit_time(&mut self, us: f64) -> Nanos {
        let factor = self.jitter.map_or(1.0, |j| j.sample(&mut self.random));
        let tail = self.profile.tail;
        let extra = tail.map_or(0.0, |tail| {
            let hit = self.chance() < tail.chance;
            if hit { tail.extra_us } else { 0.0 }
        });
        nanos(us * factor + extra)
    }

    /// Evenly from 0 to 1.
    fn chance(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A chunk crosses the link; with the last one its request is done.
    fn transfer(&mut self, at: Nanos, id: u64, len: u64, write: bool) {
        let own_link = write && !self.profile.shared_link;
        let rate = if write {
            self.profile.write_link
        } else {
            self.profile.read_link
        };
        let link = if own_link {
            &mut self.write_link
        } else {
            &mut self.read_link
        };
        let moved = link.serve(at, nanos(len as f64 / rate));
        let Some(open) = self.open[id as usize].as_mut() else {
            return;
        };
        open.chunks -= 1;
        if open.chunks == 0 {
            self.push(moved + nanos(self.profile.fixed_us), Step::Done { id });
        }
    }

    /// Acknowledges waiting writes while the buffer has room, oldest first, and lets units drain it.
    fn acknowledge(&mut self, now: Nanos) {
        let Some(buffer) = self.profile.write_buffer else {
            return;
        };
        while let Some(&id) = self.buffer.waiting.front() {
            let len = self.open[id as usize].as_ref().map_or(0, |open| open.len);
            // A write larger than the whole buffer is admitted when the buffer is empty.
            if self.buffer.held > 0 && (self.buffer.held + len) as f64 > buffer.bytes {
                break;
            }
            self.buffer.waiting.pop_front();
            self.buffer.held += len;
            self.buffer.undrained += len;
            self.buffer.accepted += len;
            let moved = self
                .write_link
                .serve(now, nanos(len as f64 / self.profile.write_link));
            self.push(moved + nanos(buffer.ack_us), Step::Done { id });
        }
        self.drain(now);
    }

    /// Gives each idle unit a chunk to write, in turn.
    fn drain(&mut self, now: Nanos) {
        let chunk = u64::from(self.profile.chunk_bytes);
        for _ in 0..self.units.len() {
            if self.buffer.undrained == 0 {
                return;
            }
            let unit = self.buffer.turn;
            self.buffer.turn = (unit + 1) % self.units.len();
            if self.buffer.busy[unit] {
                continue;
            }
            self.buffer.busy[unit] = true;
            let len = chunk.min(self.buffer.undrained);
            self.buffer.undrained -= len;
            let service = self.unit_time(self.profile.write_us);
            let done = self.units[unit].serve(now, service);
            self.push(done, Step::Drained { unit, len });
        }
    }

    fn drained(&mut self, at: Nanos, unit: usize, len: u64) {
        self.buffer.busy[unit] = false;
        self.buffer.held -= len;
        self.buffer.drained += len;
        while let Some(&(wanted, id)) = self.buffer.flushes.front() {
            if self.buffer.drained < wanted {
                break;
            }
            self.buffer.flushes.pop_front();
            self.push(at + nanos(self.profile.fixed_us), Step::Done { id });
        }
        self.acknowledge(at);
    }
}
