//! Goal: the filters of a cache at work keep the contract of [`Filter`], and the suite sees whoever does not.
//! Method: filters, and rules for a share, that break one promise each.

mod suite;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_policy::policy::filter::{Filter, Mixer, ReadRequest, SharedFilter, Sides, Steer};
use longshore_policy::policy::{EndedRequest, FilterChoice, Gauges, ReadPlan, Reason, View};
use suite::keeps_its_contract;

#[test]
fn every_filter_of_a_cache_at_work_keeps_the_contract() {
    for choice in [
        FilterChoice::None,
        FilterChoice::Slow,
        FilterChoice::Balance,
        FilterChoice::Aware,
    ] {
        keeps_its_contract(&|sides| choice.build(sides));
    }
}

/// Breaks the contract in one thing.
struct Lying {
    sides: Sides,
    lie: Lie,
    reads: std::cell::Cell<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    None,
    ServesWhatIsNotHeld,
    FillsWhatIsThere,
    SavesLessThanNothing,
    CountsItsGauges,
    SharesMoreThanAll,
}

impl Filter for Lying {
    fn read(&mut self, _view: &View, asked: &ReadRequest) -> ReadPlan {
        self.reads.set(self.reads.get() + 1);
        ReadPlan {
            join_bytes: 0,
            fast_bytes: match self.lie {
                Lie::ServesWhatIsNotHeld => asked.len_bytes,
                _ => asked.held_bytes,
            },
            join: false,
            admit: self.lie == Lie::FillsWhatIsThere || asked.held_bytes < asked.len_bytes,
            reason: Reason::Always,
        }
    }

    fn sides(&self) -> &Sides {
        &self.sides
    }

    fn saved_us(&self, view: &View, asked: &ReadRequest) -> f64 {
        match self.lie {
            Lie::SavesLessThanNothing => -1.0,
            _ => self.sides.saved_us(view, asked),
        }
    }

    fn gauges(&self) -> Gauges {
        if self.lie == Lie::CountsItsGauges {
            self.reads.set(self.reads.get() + 1);
        }
        Gauges {
            saved_us: self.reads.get() as f64,
            share: (self.lie == Lie::SharesMoreThanAll).then_some(1.5),
            ..Gauges::default()
        }
    }
}

/// Goal: the suite sees whoever breaks the contract.
#[test]
fn every_lie_of_a_filter_breaks_the_contract() {
    for lie in [
        Lie::None,
        Lie::ServesWhatIsNotHeld,
        Lie::FillsWhatIsThere,
        Lie::SavesLessThanNothing,
        Lie::CountsItsGauges,
        Lie::SharesMoreThanAll,
    ] {
        let make = |sides| -> Box<dyn Filter> {
            let reads = Default::default();
            Box::new(Lying { sides, lie, reads })
        };
        let checked = std::panic::catch_unwind(AssertUnwindSafe(|| keeps_its_contract(&make)));
        assert_eq!(checked.is_ok(), lie == Lie::None, "{lie:?}");
    }
}

/// A rule for a share that breaks a promise.
struct Swaying(SteerLie);

#[derive(Debug, Clone, Copy, PartialEq)]
enum SteerLie {
    None,
    SharesNoNumber,
    ForgetsWhoseShareItIs,
}

impl Steer for Swaying {
    fn steer(&mut self, ended: &EndedRequest, _sides: &Sides, mixer: &mut Mixer) {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        match self.0 {
            SteerLie::None if ended.took_us > 1000.0 => mixer.set_share(mixer.share() / 2.0),
            SteerLie::None => mixer.set_share(mixer.share() + 0.125),
            SteerLie::SharesNoNumber => mixer.set_share(f64::NAN),
            // Counts the calls of all filters.
            SteerLie::ForgetsWhoseShareItIs => {
                mixer.set_share((CALLS.fetch_add(1, Ordering::Relaxed) % 7) as f64 / 7.0);
            }
        }
    }
}

/// Goal: the suite sees a rule that breaks the contract of the filter that it makes.
#[test]
fn every_lie_of_a_rule_for_a_share_breaks_the_contract() {
    for lie in [
        SteerLie::None,
        SteerLie::SharesNoNumber,
        SteerLie::ForgetsWhoseShareItIs,
    ] {
        let make =
            |sides| -> Box<dyn Filter> { Box::new(SharedFilter::new(0.5, sides, Swaying(lie))) };
        let checked = std::panic::catch_unwind(AssertUnwindSafe(|| keeps_its_contract(&make)));
        assert_eq!(checked.is_ok(), lie == SteerLie::None, "{lie:?}");
    }
}
