//! The contract of [`Filter`]: the filters of a cache at work keep it, and the suite sees whoever does not.

mod suite;

use std::panic::AssertUnwindSafe;

use longshore_policy::policy::filter::{Filter, ReadRequest, Sides};
use longshore_policy::policy::{FilterChoice, Gauges, ReadPlan, Reason, View};
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
