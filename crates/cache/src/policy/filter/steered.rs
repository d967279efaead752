//! Filters that steer one share: by latencies as they come, or by a profile made beforehand.

use super::{Asked, Filter, Mixer, Sides, keep_what_was_held, plan};
use crate::model::Op;
use crate::policy::{Ended, Gauges, Purpose, ReadPlan, Reason, Side, View, Write, WritePlan};

/// Moves the share towards the side whose reads took less time. Knows no model, so a wrong one cannot mislead it.
pub struct Balance {
    mixer: Mixer,
    sides: Sides,
    /// Mean latency of reads on each side, fast first; 0: none yet.
    mean_us: [f64; 2],
    seen: u32,
}

impl Balance {
    /// Reads between two steps, and how far a step goes. Some of both sides is always measured.
    const ROUND: u32 = 64;
    const STEP: f64 = 0.02;
    const LEAST: f64 = 0.02;

    pub fn new(sides: Sides) -> Balance {
        Balance {
            mixer: Mixer::new(0.9),
            sides,
            mean_us: [0.0; 2],
            seen: 0,
        }
    }
}

impl Filter for Balance {
    fn read(&mut self, _view: &View, asked: &Asked) -> ReadPlan {
        let fast = asked.held_bytes > 0 && self.mixer.draw();
        plan(asked, fast, true, Reason::Share)
    }

    fn write(&mut self, _view: &View, write: &Write) -> WritePlan {
        keep_what_was_held(write)
    }

    fn ended(&mut self, ended: &Ended) {
        if ended.op != Op::Read || ended.purpose != Purpose::Client {
            return;
        }
        let mean = &mut self.mean_us[usize::from(ended.side == Side::Slow)];
        *mean = match *mean {
            0.0 => ended.took_us,
            mean => mean + (ended.took_us - mean) / 16.0,
        };
        self.seen += 1;
        let [fast, slow] = self.mean_us;
        if self.seen < Balance::ROUND || fast == 0.0 || slow == 0.0 {
            return;
        }
        self.seen = 0;
        let step = match fast < slow {
            true => Balance::STEP,
            false => -Balance::STEP,
        };
        let share = (self.mixer.share() + step).clamp(Balance::LEAST, 1.0 - Balance::LEAST);
        self.mixer.set_share(share);
    }

    fn saved_us(&self, view: &View, asked: &Asked) -> f64 {
        self.sides.saved_us(view, asked)
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            share: Some(self.mixer.share()),
            ..Gauges::default()
        }
    }
}

/// NetCAS's way: the share is that of the bandwidths which a profile of both devices promises, and moves with the
/// slow side's measured bandwidth.
///
/// Source: the published scheme's rule, the share of the fast side's bandwidth in the sum; without its network counters.
pub struct Profiled {
    mixer: Mixer,
    sides: Sides,
    /// The slow side's measured over its expected time, lately.
    slower: f64,
}

impl Profiled {
    pub fn new(sides: Sides) -> Profiled {
        let mut profiled = Profiled {
            mixer: Mixer::new(1.0),
            sides,
            slower: 1.0,
        };
        profiled.steer();
        profiled
    }

    fn steer(&mut self) {
        let (fast, slow) = (self.sides.fast.rate, self.sides.slow.rate / self.slower);
        self.mixer.set_share(fast / (fast + slow));
    }
}

impl Filter for Profiled {
    fn read(&mut self, _view: &View, asked: &Asked) -> ReadPlan {
        let fast = asked.held_bytes > 0 && self.mixer.draw();
        plan(asked, fast, true, Reason::Share)
    }

    fn write(&mut self, _view: &View, write: &Write) -> WritePlan {
        keep_what_was_held(write)
    }

    fn ended(&mut self, ended: &Ended) {
        if ended.side == Side::Slow && ended.op == Op::Read {
            let expected = self.sides.slow.loaded_us(ended.len, ended.before);
            let ratio = (ended.took_us / expected.max(1e-3)).clamp(0.1, 10.0);
            self.slower += (ratio - self.slower) / 64.0;
            self.steer();
        }
    }

    fn saved_us(&self, view: &View, asked: &Asked) -> f64 {
        self.sides.saved_us(view, asked)
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            share: Some(self.mixer.share()),
            ..Gauges::default()
        }
    }
}
