//! The cache in virtual time: modelled devices, the shipped policies, and clients that load them.
//!
//! Closed loop: each client submits its next request when the last one has ended. Writes go through: the slow side
//! acknowledges, then the fast side gets its copy, and until that is done the slow side alone serves the range.
//!
//! Invariants
//! - The policy is told what a daemon could know, when it could know it.
//! - One seed is one run.

mod content;
mod mix;
mod report;

use std::collections::HashMap;

use crate::model::{Device, Nanos, Op, Profile, Request};
use crate::policy::{Ended, Filter, Load, Serve, Side, View};
use content::Content;
use mix::Client;
pub use mix::{Group, Mix};
use report::Tally;
pub use report::{Latencies, Outcome};

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Scenario<'a> {
    pub fast: &'a Profile,
    pub slow: &'a Profile,
    pub mix: &'a Mix,
    /// Bytes that the clients touch.
    pub region_bytes: u64,
    pub cache_bytes: u64,
    /// Whether the cache is full of the region's first bytes at the start.
    pub warm: bool,
    /// Virtual time that is not counted, and that is.
    pub warm_up: Nanos,
    pub measured: Nanos,
    pub seed: u64,
}

/// A client's request under way.
struct Asked {
    client: usize,
    request: Request,
    begun: Nanos,
    /// Parts that have not ended.
    parts: u32,
    /// What follows when they have.
    then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    Nothing,
    /// Write what was read, or written, into the cache.
    Fill,
}

/// One request on one device.
struct Part {
    op: Op,
    len: u64,
    begun: Nanos,
    before_bytes: u64,
    of: Purpose,
}

enum Purpose {
    Ask(u64),
    /// Content on its way into the cache; dropped if it was written meanwhile.
    Fill {
        offset: u64,
        version: u64,
    },
}

struct Run<'a> {
    devices: [Device; 2],
    loads: [Load; 2],
    parts: [HashMap<u64, Part>; 2],
    asked: HashMap<u64, Asked>,
    next_ask: u64,
    content: Content,
    /// Writes under way or not yet copied, by first line: reads of these go to the slow side.
    versions: HashMap<u64, u64>,
    writes: u64,
    filter: &'a mut dyn Filter,
    tally: Tally,
}

fn index(side: Side) -> usize {
    usize::from(side == Side::Slow)
}

/// Runs the scenario under a filter.
pub fn run(scenario: &Scenario, filter: &mut dyn Filter) -> Outcome {
    let mut run = Run {
        devices: [
            Device::new(scenario.fast, scenario.seed),
            Device::new(scenario.slow, scenario.seed + 1),
        ],
        loads: [Load::default(); 2],
        parts: [HashMap::new(), HashMap::new()],
        asked: HashMap::new(),
        next_ask: 0,
        content: Content::new(scenario.cache_bytes),
        versions: HashMap::new(),
        writes: 0,
        filter,
        tally: Tally::new(scenario.warm_up, u64::from(scenario.fast.command_bytes) / 2),
    };
    if scenario.warm {
        run.content
            .insert(0, scenario.region_bytes.min(scenario.cache_bytes));
    }
    let groups = scenario.mix.groups.iter();
    let each = groups.flat_map(|g| std::iter::repeat_n(*g, g.clients as usize));
    let mut clients: Vec<Client> = each
        .zip(0u64..)
        .map(|(group, n)| {
            Client::new(
                group,
                scenario.region_bytes,
                scenario.seed ^ (n << 20) ^ 0x5eed,
            )
        })
        .collect();
    for (i, client) in clients.iter_mut().enumerate() {
        run.ask(0, i, client.next());
    }
    let end = scenario.warm_up + scenario.measured;
    loop {
        let next = run.devices.iter().filter_map(Device::next_step).min();
        let Some(now) = next.filter(|now| *now < end) else {
            break;
        };
        for side in [Side::Fast, Side::Slow] {
            for done in run.devices[index(side)].advance(now) {
                if let Some(client) = run.ended(side, done.id, done.at) {
                    let request = clients[client].next();
                    run.ask(now, client, request);
                }
            }
        }
    }
    run.tally.outcome(scenario.measured)
}

impl Run<'_> {
    fn view(&self, now: Nanos) -> View {
        let [fast, slow] = self.loads;
        View { now, fast, slow }
    }

    fn ask(&mut self, now: Nanos, client: usize, request: Request) {
        let ask = self.next_ask;
        self.next_ask += 1;
        let mut asked = Asked {
            client,
            request,
            begun: now,
            parts: 1,
            then: Then::Nothing,
        };
        let Request { op, offset, len } = request;
        if op == Op::Write {
            // The copy is void from here on; the next one is the one made of this write.
            asked.then = if self.content.holds(offset, len) {
                Then::Fill
            } else {
                Then::Nothing
            };
            self.content.drop_range(offset, len);
            self.writes += 1;
            self.versions.insert(offset, self.writes);
            self.asked.insert(ask, asked);
            return self.submit(now, Side::Slow, request, Purpose::Ask(ask));
        }
        let hit = self.content.holds(offset, len);
        self.filter.looked_up(now, len, hit);
        self.tally.looked_up(now, hit, len);
        let view = self.view(now);
        let serve = match hit {
            true => self.filter.serve(&view, offset, len),
            false => Serve::On(Side::Slow),
        };
        if !hit && self.filter.admits(&view, len) {
            asked.then = Then::Fill;
        }
        match serve {
            Serve::Cut { fast_bytes } if fast_bytes > 0 && fast_bytes < len => {
                asked.parts = 2;
                self.asked.insert(ask, asked);
                let front = Request {
                    op,
                    offset,
                    len: fast_bytes,
                };
                let back = Request {
                    op,
                    offset: offset + fast_bytes,
                    len: len - fast_bytes,
                };
                self.submit(now, Side::Fast, front, Purpose::Ask(ask));
                self.submit(now, Side::Slow, back, Purpose::Ask(ask));
            }
            Serve::On(side) => {
                self.asked.insert(ask, asked);
                self.submit(now, side, request, Purpose::Ask(ask));
            }
            Serve::Cut { fast_bytes } => {
                let side = if fast_bytes == 0 {
                    Side::Slow
                } else {
                    Side::Fast
                };
                self.asked.insert(ask, asked);
                self.submit(now, side, request, Purpose::Ask(ask));
            }
        }
    }

    fn submit(&mut self, now: Nanos, side: Side, request: Request, of: Purpose) {
        let i = index(side);
        let id = self.devices[i].submit(now, request);
        let part = Part {
            op: request.op,
            len: request.len,
            begun: now,
            before_bytes: self.loads[i].in_flight_bytes,
            of,
        };
        self.loads[i].in_flight_bytes += request.len;
        self.loads[i].in_flight_requests += 1;
        self.parts[i].insert(id, part);
    }

    /// A device has done something; returns the client whose request that ended.
    fn ended(&mut self, side: Side, id: u64, now: Nanos) -> Option<usize> {
        let i = index(side);
        let part = self.parts[i].remove(&id)?;
        self.loads[i].in_flight_bytes -= part.len;
        self.loads[i].in_flight_requests -= 1;
        let took_us = (now - part.begun) as f64 / 1000.0;
        let ask = match part.of {
            Purpose::Fill { offset, version } => {
                if self.versions.get(&offset).copied().unwrap_or(0) == version {
                    self.content.insert(offset, part.len);
                    self.versions.remove(&offset);
                }
                self.tally.filled(now, part.len);
                return None;
            }
            Purpose::Ask(ask) => ask,
        };
        self.filter.ended(&Ended {
            now,
            side,
            op: part.op,
            len: part.len,
            took_us,
            before_bytes: part.before_bytes,
        });
        self.tally.served(now, side, part.len);
        let asked = self.asked.get_mut(&ask)?;
        asked.parts -= 1;
        if asked.parts > 0 {
            return None;
        }
        let asked = self.asked.remove(&ask)?;
        let Request { op, offset, len } = asked.request;
        self.tally
            .ended(now, op, len, (now - asked.begun) as f64 / 1000.0);
        if asked.then == Then::Fill {
            let version = self.versions.get(&offset).copied().unwrap_or(0);
            let fill = Request {
                op: Op::Write,
                offset,
                len,
            };
            self.submit(now, Side::Fast, fill, Purpose::Fill { offset, version });
        }
        Some(asked.client)
    }
}

#[cfg(test)]
mod tests;
