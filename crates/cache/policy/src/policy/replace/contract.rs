//! The text of [`Base`] and [`Residents`] as a test of every base: an owner that uses, admits, evicts, voids and
//! resizes at random, keeps to the protocol, and now and then does not. A [`Single`] is run as the base that it
//! makes, and one that lies as well.
//!
//! Invariants of the suite
//! - After every step the base and the owner agree about which slots are resident.
//! - A base that breaks one promise fails: a lying base for each promise shows it.
//!
//! Leaves to others: whether a base decides as its paper says (`tests.rs`).

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::Slot;
use super::lru::Lru;
use super::queue::Queue;
use super::single::Single;
use super::*;

/// One step of an owner.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A use: a touch, or if the base wants the slot, its admission.
    Use(u64),
    Forget(u64),
    Resize(usize),
    /// Looks at this many victims.
    Look(usize),
    /// Calls with a slot in the wrong state.
    Wrong(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0u64..40).prop_map(Step::Use),
        2 => (0u64..40).prop_map(Step::Forget),
        1 => (1usize..24).prop_map(Step::Resize),
        3 => (0usize..12).prop_map(Step::Look),
        2 => (0u64..40).prop_map(Step::Wrong),
    ]
}

/// A base, and what its owner knows.
struct Owner {
    base: Box<dyn Base>,
    resident: BTreeSet<u64>,
    slots: usize,
}

impl Owner {
    fn check(&self, at: &str) {
        assert_eq!(self.base.len(), self.resident.len(), "{at}");
        for slot in 0..40 {
            let is_resident = self.resident.contains(&slot);
            assert_eq!(self.base.contains(Slot(slot)), is_resident, "{at}: {slot}");
        }
        let mut order: Vec<u64> = self.base.order().iter().map(|slot| slot.0).collect();
        order.sort_unstable();
        assert!(order.iter().eq(&self.resident), "{at}: {order:?}");
    }

    /// The preferred victims; the same if asked again.
    fn victims(&mut self, incoming: Option<Slot>, count: usize, at: &str) -> Vec<Slot> {
        let before = vec![Slot(1000)];
        let mut ask = || {
            let mut out = before.clone();
            self.base.victims(incoming, count, &mut out);
            assert_eq!(out[0], before[0], "{at}: victims are added");
            out.split_off(1)
        };
        let victims = ask();
        assert_eq!(ask(), victims, "{at}: a second call returns the same");
        let different: BTreeSet<u64> = victims.iter().map(|slot| slot.0).collect();
        assert_eq!(different.len(), victims.len(), "{at}: {victims:?}");
        assert!(different.is_subset(&self.resident), "{at}: {victims:?}");
        assert!(victims.len() <= count, "{at}: {victims:?}");
        let is_there = count > 0 && !self.resident.is_empty();
        assert_eq!(!victims.is_empty(), is_there, "{at}: {victims:?}");
        victims
    }

    fn evict_down_to(&mut self, len: usize, incoming: Option<Slot>, at: &str) {
        while self.resident.len() > len {
            let victim = self.victims(incoming, 3, at)[0];
            self.base.evict(victim, incoming);
            self.resident.remove(&victim.0);
        }
    }

    fn step(&mut self, step: Step) {
        let at = format!("{step:?}");
        match step {
            Step::Use(slot) if self.resident.contains(&slot) => self.base.touch(Slot(slot)),
            Step::Use(slot) => {
                let wanted = self.base.wants(Slot(slot));
                self.check(&at);
                if wanted {
                    self.evict_down_to(self.slots - 1, Some(Slot(slot)), &at);
                    self.base.insert(Slot(slot));
                    self.resident.insert(slot);
                }
            }
            Step::Forget(slot) if self.resident.remove(&slot) => self.base.forget(Slot(slot)),
            Step::Resize(slots) => {
                self.base.resize(slots);
                self.slots = slots;
                self.evict_down_to(slots, None, &at);
            }
            Step::Look(count) => drop(self.victims(None, count, &at)),
            Step::Wrong(slot) | Step::Forget(slot) => self.wrong(Slot(slot), &at),
        }
        self.check(&at);
        assert!(self.base.len() <= self.slots, "{at}");
    }

    /// An error of the owner changes nothing.
    fn wrong(&mut self, slot: Slot, at: &str) {
        let before = self.base.order();
        let calls: &[fn(&mut dyn Base, Slot)] = match self.resident.contains(&slot.0) {
            true => &[|base, slot| base.insert(slot)],
            false => &[
                |base, slot| base.touch(slot),
                |base, slot| base.evict(slot, None),
                |base, slot| base.forget(slot),
            ],
        };
        for call in calls {
            call(&mut *self.base, slot);
            assert_eq!(self.base.order(), before, "{at}");
        }
    }
}

/// A base that keeps every promise but one.
struct Lying {
    base: Box<dyn Base>,
    lie: Lie,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    None,
    ForgetsToForget,
    InsertsTwice,
    PrefersWhatIsGone,
    ChangesItsMind,
    CountsOneMore,
}

impl Residents for Lying {
    fn len(&self) -> usize {
        self.base.len() + usize::from(self.lie == Lie::CountsOneMore)
    }

    fn contains(&self, slot: Slot) -> bool {
        self.base.contains(slot)
    }

    fn order(&self) -> Vec<Slot> {
        self.base.order()
    }
}

impl Base for Lying {
    fn touch(&mut self, slot: Slot) {
        self.base.touch(slot);
    }

    fn wants(&mut self, slot: Slot) -> bool {
        self.base.wants(slot)
    }

    fn victims(&mut self, incoming: Option<Slot>, count: usize, out: &mut Vec<Slot>) {
        match self.lie {
            Lie::PrefersWhatIsGone if count > 0 => out.push(Slot(5000)),
            _ => self.base.victims(incoming, count, out),
        }
        if self.lie == Lie::ChangesItsMind
            && let Some(first) = self.base.order().first()
        {
            self.base.forget(*first);
            self.base.insert(*first);
        }
    }

    fn evict(&mut self, slot: Slot, incoming: Option<Slot>) {
        self.base.evict(slot, incoming);
    }

    fn insert(&mut self, slot: Slot) {
        if self.lie == Lie::InsertsTwice && self.base.contains(slot) {
            self.base.forget(slot);
        }
        self.base.insert(slot);
    }

    fn forget(&mut self, slot: Slot) {
        if self.lie != Lie::ForgetsToForget {
            self.base.forget(slot);
        }
    }

    fn resize(&mut self, slots: usize) {
        self.base.resize(slots);
    }
}

/// A list of one queue that keeps every promise of [`Single`] but one.
struct Crooked {
    lru: Lru,
    lie: SingleLie,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum SingleLie {
    None,
    LetsNobodyLeave,
    NamesNobody,
    NamesOneTwice,
    LetsInWhatIsUsed,
}

impl Single for Crooked {
    fn queue(&self) -> &Queue {
        self.lru.queue()
    }

    fn queue_mut(&mut self) -> &mut Queue {
        self.lru.queue_mut()
    }

    fn used(&mut self, slot: Slot) {
        match self.lie {
            SingleLie::LetsInWhatIsUsed => self.queue_mut().push_front(slot),
            _ => self.lru.used(slot),
        }
    }

    fn next_to_go(&mut self, count: usize, out: &mut Vec<Slot>) {
        match self.lie {
            SingleLie::NamesNobody => {}
            SingleLie::NamesOneTwice if count > 1 => {
                self.lru.next_to_go(1, out);
                self.lru.next_to_go(1, out);
            }
            _ => self.lru.next_to_go(count, out),
        }
    }

    fn leave(&mut self, slot: Slot) {
        if self.lie != SingleLie::LetsNobodyLeave {
            self.lru.leave(slot);
        }
    }
}

/// Whether a base keeps its promises to an owner that fills it, looks, errs, voids and uses.
fn keeps_its_contract(base: Box<dyn Base>) -> bool {
    let mut owner = Owner {
        base,
        resident: BTreeSet::new(),
        slots: 4,
    };
    let steps = (0..8).map(Step::Use).chain([
        Step::Look(3),
        Step::Wrong(5),
        Step::Wrong(30),
        Step::Forget(6),
        Step::Use(1),
    ]);
    let run = || {
        owner.check("empty");
        steps.for_each(|step| owner.step(step));
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_ok()
}

/// Goal: the suite sees a list of one queue that breaks a promise.
#[test]
fn every_lie_of_a_single_queue_breaks_the_contract() {
    for lie in [
        SingleLie::None,
        SingleLie::LetsNobodyLeave,
        SingleLie::NamesNobody,
        SingleLie::NamesOneTwice,
        SingleLie::LetsInWhatIsUsed,
    ] {
        let lru = Lru::default();
        let kept = keeps_its_contract(Box::new(Crooked { lru, lie }));
        assert_eq!(kept, lie == SingleLie::None, "{lie:?}");
    }
}

/// Goal: the suite sees whoever breaks the contract.
#[test]
fn every_lie_of_a_base_breaks_the_contract() {
    for lie in [
        Lie::None,
        Lie::ForgetsToForget,
        Lie::InsertsTwice,
        Lie::PrefersWhatIsGone,
        Lie::ChangesItsMind,
        Lie::CountsOneMore,
    ] {
        let base = Box::new(Lying {
            base: BaseKind::Lru.build(4),
            lie,
        });
        assert_eq!(keeps_its_contract(base), lie == Lie::None, "{lie:?}");
    }
}

proptest! {
    #[test]
    fn every_base_keeps_its_promises_to_any_owner(
        slots in 1usize..24,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        for kind in BASES {
            let mut owner = Owner {
                base: kind.build(slots),
                resident: BTreeSet::new(),
                slots,
            };
            owner.check("empty");
            steps.iter().for_each(|step| owner.step(*step));
        }
    }
}
