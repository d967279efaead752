//! Filters that learn nothing: one side always, or a fixed share.

use super::shared::Steer;
use super::{Asked, Filter, Mixer, Sides, plan};
use crate::policy::{Ended, ReadPlan, Reason, View, Write, WritePlan};

/// Every hit from the fast side, every miss filled.
pub struct Classic(pub Sides);

impl Filter for Classic {
    fn read(&mut self, _view: &View, asked: &Asked) -> ReadPlan {
        plan(asked, true, true, Reason::Always)
    }

    fn sides(&self) -> &Sides {
        &self.0
    }
}

/// As if there were no fast side.
pub struct NoCache(pub Sides);

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

    fn sides(&self) -> &Sides {
        &self.0
    }

    fn saved_us(&self, _view: &View, _asked: &Asked) -> f64 {
        0.0
    }
}

/// A share that stays as it is.
pub struct Never;

impl Steer for Never {
    fn steer(&mut self, _ended: &Ended, _sides: &Sides, _mixer: &mut Mixer) {}
}
