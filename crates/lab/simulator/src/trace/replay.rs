//! A trace as a load.

use super::{Trace, TraceRequest};
use crate::sim::{Arrival, Source};
use longshore_policy::model::Nanos;

/// When the records of a trace are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// At their times, sped up by this factor: an open loop.
    Times(f64),
    /// In their order, with as many in flight as on the host, or this many if the trace does not say: a closed loop.
    Depth(u32),
}

/// Replays a trace once.
pub struct Replay<'a> {
    records: &'a [TraceRequest],
    pace: Pace,
    at: usize,
    under_way: u32,
    now: Nanos,
}

impl<'a> Replay<'a> {
    pub fn new(trace: &'a Trace, pace: Pace) -> Replay<'a> {
        Replay {
            records: &trace.records,
            pace,
            at: 0,
            under_way: 0,
            now: 0,
        }
    }
}

impl Source for Replay<'_> {
    fn due(&self) -> Option<Nanos> {
        let record = self.records.get(self.at)?;
        match self.pace {
            Pace::Times(faster) => Some((record.at as f64 / faster.max(1e-9)) as Nanos),
            Pace::Depth(depth) => {
                let depth = record.depth.map_or(depth, |before| before + 1);
                (self.under_way < depth.max(1)).then_some(self.now)
            }
        }
    }

    fn take(&mut self, now: Nanos) -> Option<Arrival> {
        self.due().filter(|due| *due <= now)?;
        let record = self.records.get(self.at)?;
        self.at += 1;
        self.under_way += 1;
        Some(Arrival {
            client: 0,
            ask: record.ask,
        })
    }

    fn ended(&mut self, _client: usize, now: Nanos) {
        self.now = now;
        self.under_way = self.under_way.saturating_sub(1);
    }
}
