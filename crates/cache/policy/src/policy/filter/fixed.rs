//! Filters that learn nothing: one side always.

use super::door::{Filter, ReadRequest, Sides, plan};
use crate::policy::{ReadPlan, Reason, View, Write, WritePlan};

/// Every hit from the fast side, every miss filled.
pub struct Classic(pub Sides);

impl Filter for Classic {
    fn read(&mut self, _view: &View, asked: &ReadRequest) -> ReadPlan {
        plan(asked, true, true, Reason::Always)
    }

    fn sides(&self) -> &Sides {
        &self.0
    }
}

/// As if there were no fast side.
pub struct NoCache(pub Sides);

impl Filter for NoCache {
    fn read(&mut self, _view: &View, asked: &ReadRequest) -> ReadPlan {
        plan(asked, false, false, Reason::Always)
    }

    fn write(&mut self, _view: &View, _write: &Write) -> WritePlan {
        WritePlan {
            admit: false,
            reason: Reason::Always,
        }
    }

    fn sides(&self) -> &Sides {
        &self.0
    }

    fn saved_us(&self, _view: &View, _asked: &ReadRequest) -> f64 {
        0.0
    }
}
