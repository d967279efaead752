//! Filters that serve a share of the hits from the fast side, evenly mixed; they differ in what moves it.

use super::{Asked, Filter, Mixer, Sides, plan};
use crate::policy::{Ended, Gauges, ReadPlan, Reason, View};

/// What moves a share.
pub trait Steer: Send {
    /// A part has ended.
    fn steer(&mut self, ended: &Ended, sides: &Sides, mixer: &mut Mixer);
}

pub struct Shared<S> {
    mixer: Mixer,
    sides: Sides,
    steer: S,
}

impl<S: Steer> Shared<S> {
    /// `share`: 0 to 1, at first.
    pub fn new(share: f64, sides: Sides, steer: S) -> Shared<S> {
        let mixer = Mixer::new(share);
        Shared {
            mixer,
            sides,
            steer,
        }
    }
}

impl<S: Steer> Filter for Shared<S> {
    fn read(&mut self, _view: &View, asked: &Asked) -> ReadPlan {
        let fast = asked.held_bytes > 0 && self.mixer.draw();
        plan(asked, fast, true, Reason::Share)
    }

    fn ended(&mut self, ended: &Ended) {
        self.steer.steer(ended, &self.sides, &mut self.mixer);
    }

    fn sides(&self) -> &Sides {
        &self.sides
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            share: Some(self.mixer.share()),
            ..Gauges::default()
        }
    }
}
