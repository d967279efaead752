//! Filters that serve an evenly mixed share of the hits from the fast side; they differ in the rule that moves the
//! share.

use super::door::{Filter, ReadRequest, Sides, plan};
use super::mixer::Mixer;
use crate::policy::{EndedRequest, Gauges, ReadPlan, Reason, View};

/// The rule that moves a share. It is checked as a part of its filter: the share stays a number from 0 to 1, and one
/// schedule of finished parts moves it in one way.
pub trait Steer: Send {
    /// Called after a part has finished, as [`Filter::ended`] is. Leaves the share of `mixer`, or sets it.
    fn steer(&mut self, ended: &EndedRequest, sides: &Sides, mixer: &mut Mixer);
}

pub struct SharedFilter<S> {
    mixer: Mixer,
    sides: Sides,
    steer: S,
}

impl<S: Steer> SharedFilter<S> {
    /// `share`: the initial one, 0 to 1.
    pub fn new(share: f64, sides: Sides, steer: S) -> SharedFilter<S> {
        let mixer = Mixer::new(share);
        SharedFilter {
            mixer,
            sides,
            steer,
        }
    }
}

impl<S: Steer> Filter for SharedFilter<S> {
    fn read(&mut self, _view: &View, asked: &ReadRequest) -> ReadPlan {
        let fast = asked.held_bytes > 0 && self.mixer.draw();
        plan(asked, fast, true, Reason::Share)
    }

    fn ended(&mut self, ended: &EndedRequest) {
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
