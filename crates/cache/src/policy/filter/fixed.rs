//! Filters that learn nothing: one side always, or a fixed share.

use super::{Asked, Filter, Mixer, Sides, keep_what_was_held, plan};
use crate::policy::{Ended, Gauges, ReadPlan, Reason, View, Write, WritePlan};

/// Every hit from the fast side, every miss filled.
pub struct Classic(pub Sides);

impl Filter for Classic {
    fn read(&mut self, _view: &View, asked: &Asked) -> ReadPlan {
        plan(asked, true, true, Reason::Always)
    }

    fn write(&mut self, _view: &View, write: &Write) -> WritePlan {
        keep_what_was_held(write)
    }

    fn ended(&mut self, _ended: &Ended) {}

    fn saved_us(&self, view: &View, asked: &Asked) -> f64 {
        self.0.saved_us(view, asked)
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

/// As if there were no fast side.
pub struct NoCache;

impl Filter for NoCache {
    fn read(&mut self, _view: &View, asked: &Asked) -> ReadPlan {
        plan(asked, false, false, Reason::Always)
    }

    fn write(&mut self, _view: &View, _write: &Write) -> WritePlan {
        WritePlan {
            admit: false,
            reason: Reason::Always,
        }
    }

    fn ended(&mut self, _ended: &Ended) {}

    fn saved_us(&self, _view: &View, _asked: &Asked) -> f64 {
        0.0
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

/// A fixed share of the hits goes to the fast side.
pub struct Split {
    mixer: Mixer,
    sides: Sides,
}

impl Split {
    /// `share`: 0 to 1.
    pub fn new(share: f64, sides: Sides) -> Split {
        let mixer = Mixer::new(share);
        Split { mixer, sides }
    }
}

impl Filter for Split {
    fn read(&mut self, _view: &View, asked: &Asked) -> ReadPlan {
        let fast = asked.held_bytes > 0 && self.mixer.draw();
        plan(asked, fast, true, Reason::Share)
    }

    fn write(&mut self, _view: &View, write: &Write) -> WritePlan {
        keep_what_was_held(write)
    }

    fn ended(&mut self, _ended: &Ended) {}

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
