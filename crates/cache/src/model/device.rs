//! A device at work: requests in, completions out, in virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use rand_distr::{Distribution, LogNormal, Uniform};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::Profile;
use super::stations::Server;

/// Virtual time, in ns since the run began.
pub type Nanos = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Read,
    Write,
}

/// One request. `len` is 1 or more.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub op: Op,
    pub offset: u64,
    pub len: u64,
}

/// What was asked is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// As [`Device::submit`] returned it.
    pub id: u64,
    pub at: Nanos,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A chunk has left its unit and wants the link.
    Chunk { id: u64, len: u64, write: bool },
    /// A unit has written a chunk of buffered data.
    Drained { unit: usize, len: u64 },
    Done { id: u64 },
}

struct Open {
    request: Request,
    /// Chunks that have not left the link.
    chunks: u64,
}

/// A device with a profile. See the module for what it keeps.
pub struct Device {
    profile: Profile,
    random: Xoshiro256PlusPlus,
    jitter: Option<LogNormal<f64>>,
    command: Server,
    units: Vec<Server>,
    read_link: Server,
    write_link: Server,
    buffer: Buffer,
    steps: BinaryHeap<Reverse<(Nanos, u64, Step)>>,
    open: HashMap<u64, Open>,
    /// Numbers steps, so that equal times keep their order.
    order: u64,
    next_id: u64,
    in_flight: u64,
}

/// Written data that is acknowledged and not on flash yet.
#[derive(Default)]
struct Buffer {
    held: u64,
    /// Bytes not yet given to a unit.
    to_drain: VecDeque<u64>,
    busy: Vec<bool>,
    /// Writes that wait for room.
    waiting: VecDeque<u64>,
}

fn nanos(us: f64) -> Nanos {
    (us * 1000.0).round() as Nanos
}

impl Device {
    /// A device at rest. `seed` decides jitter and tail.
    pub fn new(profile: &Profile, seed: u64) -> Device {
        let jitter = LogNormal::new(0.0, profile.jitter).ok();
        Device {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            jitter: jitter.filter(|_| profile.jitter > 0.0),
            command: Server::default(),
            units: vec![Server::default(); profile.units as usize],
            read_link: Server::default(),
            write_link: Server::default(),
            buffer: Buffer {
                busy: vec![false; profile.units as usize],
                ..Buffer::default()
            },
            steps: BinaryHeap::new(),
            open: HashMap::new(),
            order: 0,
            next_id: 0,
            in_flight: 0,
            profile: profile.clone(),
        }
    }

    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Bytes submitted and not completed.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight
    }

    /// Takes a request at `now`, which must not lie before an earlier one, nor before the last [`Device::advance`].
    pub fn submit(&mut self, now: Nanos, request: Request) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.in_flight += request.len;
        let open = Open { request, chunks: 0 };
        self.open.insert(id, open);
        let mut at = now;
        for _ in 0..self.profile.commands(request.len) {
            at = self.command.serve(now, nanos(self.profile.command_us));
            if request.op == Op::Write && self.profile.write_buffer.is_some() {
                continue;
            }
        }
        match (request.op, self.profile.write_buffer) {
            (Op::Write, Some(_)) => {
                self.buffer.waiting.push_back(id);
                self.acknowledge(at);
            }
            _ => self.split(now, id, request),
        }
        id
    }

    /// When something will happen next; `None` at rest.
    pub fn next_step(&self) -> Option<Nanos> {
        self.steps.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Lets time pass to `now` and says what was completed until then, in order.
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
                    if let Some(open) = self.open.remove(&id) {
                        self.in_flight -= open.request.len;
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
}
