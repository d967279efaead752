//! The sources of requests.
//!
//! Closed loop: each client has one request in flight and sends the next when it has finished. Open loop: requests
//! arrive at their own times, whether or not earlier ones have finished.
//!
//! Invariants
//! - The same seed gives the same requests, whatever the policy does with them in an open loop.
//! - In a closed loop there are never more requests in flight than clients.
//!
//! Leaves to others: what one client asks (`mix.rs`), and carrying requests out (the simulation).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::mix::{Client, Mix};
use longshore_policy::model::{Nanos, Request};

/// A client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    Io(Request),
    /// Makes earlier writes durable.
    Flush,
    /// A trim, or zeroes. `len` is 1 or more.
    Discard {
        offset: u64,
        len: u64,
    },
}

impl Ask {
    /// Bytes that move.
    pub fn bytes(self) -> u64 {
        match self {
            Ask::Io(request) => request.len_bytes,
            Ask::Flush | Ask::Discard { .. } => 0,
        }
    }
}

/// A request that arrives now.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Passed to [`Source::ended`] when it finishes.
    pub client: usize,
    pub ask: Ask,
}

/// A source of requests, in virtual time. Its driver never goes back in time. The same seed gives the same requests. The
/// tests in `contract.rs` check this text for every source.
pub trait Source {
    /// When the next request arrives, if known; a time in the past means at once. Looking changes nothing. `None` until a
    /// request has ended, and for good if none is in flight.
    fn due(&self) -> Option<Nanos>;

    /// Takes the next request that is due by `now`; `None` if none is.
    fn take(&mut self, now: Nanos) -> Option<Arrival>;

    /// Called once for each request that was taken, when it has finished; in any order.
    fn ended(&mut self, client: usize, now: Nanos);
}

fn clients(mix: &Mix, region_bytes: u64, seed: u64) -> Vec<Client> {
    let groups = mix.groups.iter();
    let each = groups.flat_map(|g| std::iter::repeat_n(*g, g.clients as usize));
    let numbered = each.zip(0u64..);
    numbered
        .map(|(group, n)| Client::new(group, region_bytes, seed ^ (n << 20) ^ 0x5eed))
        .collect()
}

/// A mix in a closed loop.
pub struct ClosedLoop {
    clients: Vec<Client>,
    ready: Vec<usize>,
    now: Nanos,
}

impl ClosedLoop {
    pub fn new(mix: &Mix, region_bytes: u64, seed: u64) -> ClosedLoop {
        let clients = clients(mix, region_bytes, seed);
        ClosedLoop {
            ready: (0..clients.len()).rev().collect(),
            clients,
            now: 0,
        }
    }
}

impl Source for ClosedLoop {
    fn due(&self) -> Option<Nanos> {
        (!self.ready.is_empty()).then_some(self.now)
    }

    fn take(&mut self, now: Nanos) -> Option<Arrival> {
        self.due().filter(|due| *due <= now)?;
        let client = self.ready.pop()?;
        let ask = Ask::Io(self.clients[client].next());
        Some(Arrival { client, ask })
    }

    fn ended(&mut self, client: usize, now: Nanos) {
        self.now = now;
        self.ready.push(client);
    }
}

/// A mix in an open loop: every client asks at exponentially distributed intervals.
pub struct OpenLoop {
    clients: Vec<Client>,
    /// Mean of each client's intervals, in ns.
    interval: Vec<f64>,
    next: BinaryHeap<Reverse<(Nanos, usize)>>,
}

impl OpenLoop {
    /// `bytes_per_us` of all clients together. The clients of a group send equally often; each group has its share of
    /// `shares` (of the bytes, one for each group, summing up to 1).
    pub fn new(
        mix: &Mix,
        shares: &[f64],
        bytes_per_us: f64,
        region_bytes: u64,
        seed: u64,
    ) -> OpenLoop {
        let mut clients = clients(mix, region_bytes, seed);
        let mut interval = Vec::new();
        for (group, share) in mix.groups.iter().zip(shares) {
            let rate = (bytes_per_us * share / f64::from(group.clients)).max(1e-9);
            let ns = group.request_bytes as f64 / rate * 1000.0;
            interval.extend(std::iter::repeat_n(ns, group.clients as usize));
        }
        let first = clients.iter_mut().zip(&interval).enumerate();
        let next = first.map(|(n, (client, mean))| Reverse((client.wait(*mean), n)));
        OpenLoop {
            next: next.collect(),
            clients,
            interval,
        }
    }
}

impl Source for OpenLoop {
    fn due(&self) -> Option<Nanos> {
        self.next.peek().map(|Reverse((at, _))| *at)
    }

    fn take(&mut self, now: Nanos) -> Option<Arrival> {
        let due = self.due().filter(|due| *due <= now)?;
        let Reverse((_, client)) = self.next.pop()?;
        let wait = self.clients[client].wait(self.interval[client]);
        self.next.push(Reverse((due + wait.max(1), client)));
        let ask = Ask::Io(self.clients[client].next());
        Some(Arrival { client, ask })
    }

    fn ended(&mut self, _client: usize, _now: Nanos) {}
}
