//! Goal: each base list is the policy of its paper, and device-valued replacement equals its base if devices do not
//! differ.
//! Method: random schedules compared with naive models written from the papers, on plain vectors.

use proptest::prelude::*;

use super::super::Slot;
use super::contest::Contest;
use super::valued::{Admission, ValuedList};
use super::*;

/// A literal implementation: for each use, returns whether it was a hit, and which slot was evicted.
trait Naive {
    fn use_it(&mut self, slot: u64) -> (bool, Option<u64>);
}

fn position(list: &[u64], slot: u64) -> Option<usize> {
    list.iter().position(|s| *s == slot)
}

/// Takes a slot out of a list.
fn take(list: &mut Vec<u64>, slot: u64) -> bool {
    let at = position(list, slot);
    at.map(|at| list.remove(at)).is_some()
}

/// Lists grow at the end: the first entry is the oldest.
struct NaiveLru(Vec<u64>, usize);

impl Naive for NaiveLru {
    fn use_it(&mut self, slot: u64) -> (bool, Option<u64>) {
        let hit = take(&mut self.0, slot);
        let gone = (!hit && self.0.len() == self.1).then(|| self.0.remove(0));
        self.0.push(slot);
        (hit, gone)
    }
}

/// A circle with a hand, as in the textbook: slots stay in place, the hand moves.
struct NaiveClock {
    circle: Vec<(u64, bool)>,
    hand: usize,
    slots: usize,
}

impl Naive for NaiveClock {
    fn use_it(&mut self, slot: u64) -> (bool, Option<u64>) {
        if let Some(place) = self.circle.iter_mut().find(|(s, _)| *s == slot) {
            place.1 = true;
            return (true, None);
        }
        if self.circle.len() < self.slots {
            self.circle.push((slot, false));
            return (false, None);
        }
        while self.circle[self.hand].1 {
            self.circle[self.hand].1 = false;
            self.hand = (self.hand + 1) % self.slots;
        }
        let gone = self.circle[self.hand].0;
        self.circle[self.hand] = (slot, false);
        self.hand = (self.hand + 1) % self.slots;
        (false, Some(gone))
    }
}

struct NaiveSieve {
    /// Oldest first.
    list: Vec<(u64, bool)>,
    hand: Option<u64>,
    slots: usize,
}

impl Naive for NaiveSieve {
    fn use_it(&mut self, slot: u64) -> (bool, Option<u64>) {
        if let Some(place) = self.list.iter_mut().find(|(s, _)| *s == slot) {
            place.1 = true;
            return (true, None);
        }
        let mut gone = None;
        if self.list.len() == self.slots {
            let at = self
                .hand
                .and_then(|hand| self.list.iter().position(|(s, _)| *s == hand));
            let mut at = at.unwrap_or(0);
            while self.list[at].1 {
                self.list[at].1 = false;
                at = (at + 1) % self.list.len();
            }
            gone = Some(self.list.remove(at).0);
            self.hand = self.list.get(at).map(|(s, _)| *s);
        }
        self.list.push((slot, false));
        (false, gone)
    }
}

struct NaiveTwoQ {
    new: Vec<u64>,
    ghosts: Vec<u64>,
    proven: Vec<u64>,
    slots: usize,
}

impl Naive for NaiveTwoQ {
    fn use_it(&mut self, slot: u64) -> (bool, Option<u64>) {
        if take(&mut self.proven, slot) {
            self.proven.push(slot);
            return (true, None);
        }
        if position(&self.new, slot).is_some() {
            return (true, None);
        }
        let mut gone = None;
        if self.new.len() + self.proven.len() == self.slots {
            if self.new.len() > self.slots / 4 || self.proven.is_empty() {
                let slot = self.new.remove(0);
                self.ghosts.push(slot);
                if self.ghosts.len() > (self.slots / 2).max(1) {
                    self.ghosts.remove(0);
                }
                gone = Some(slot);
            } else {
                gone = Some(self.proven.remove(0));
            }
        }
        match take(&mut self.ghosts, slot) {
            true => self.proven.push(slot),
            false => self.new.push(slot),
        }
        (false, gone)
    }
}

/// Figure 4 of the paper, line by line.
struct NaiveArc {
    t1: Vec<u64>,
    t2: Vec<u64>,
    b1: Vec<u64>,
    b2: Vec<u64>,
    p: f64,
    c: usize,
}

impl NaiveArc {
    fn replace(&mut self, in_b2: bool) -> u64 {
        let long = self.t1.len() as f64 > self.p;
        if !self.t1.is_empty() && (long || (in_b2 && self.t1.len() as f64 == self.p)) {
            let slot = self.t1.remove(0);
            self.b1.push(slot);
            slot
        } else {
            let slot = self.t2.remove(0);
            self.b2.push(slot);
            slot
        }
    }
}

impl Naive for NaiveArc {
    fn use_it(&mut self, slot: u64) -> (bool, Option<u64>) {
        if take(&mut self.t1, slot) || take(&mut self.t2, slot) {
            self.t2.push(slot);
            return (true, None);
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if position(&self.b1, slot).is_some() {
            self.p = (self.p + (b2 / b1).max(1.0)).min(self.c as f64);
            let gone = self.replace(false);
            take(&mut self.b1, slot);
            self.t2.push(slot);
            return (false, Some(gone));
        }
        if position(&self.b2, slot).is_some() {
            self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
            let gone = self.replace(true);
            take(&mut self.b2, slot);
            self.t2.push(slot);
            return (false, Some(gone));
        }
        let mut gone = None;
        let all = self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len();
        if self.t1.len() + self.b1.len() == self.c {
            if self.t1.len() < self.c {
                self.b1.remove(0);
                gone = Some(self.replace(false));
            } else {
                gone = Some(self.t1.remove(0));
            }
        } else if all >= self.c {
            if all == 2 * self.c {
                self.b2.remove(0);
            }
            gone = Some(self.replace(false));
        }
        self.t1.push(slot);
        (false, gone)
    }
}

struct NaiveLarc {
    list: Vec<u64>,
    ghosts: Vec<u64>,
    ghosts_max: f64,
    slots: usize,
}

impl Naive for NaiveLarc {
    fn use_it(&mut self, slot: u64) -> (bool, Option<u64>) {
        let c = self.slots as f64;
        let bounded = |size: f64| size.clamp((0.1 * c).max(1.0), (0.9 * c).max(1.0));
        if take(&mut self.list, slot) {
            self.list.push(slot);
            self.ghosts_max = bounded(self.ghosts_max - c / (c - self.ghosts_max).max(1.0));
            return (true, None);
        }
        self.ghosts_max = bounded(self.ghosts_max + c / self.ghosts_max.max(1.0));
        if !take(&mut self.ghosts, slot) {
            self.ghosts.push(slot);
            while self.ghosts.len() as f64 > self.ghosts_max {
                self.ghosts.remove(0);
            }
            return (false, None);
        }
        let gone = (self.list.len() == self.slots).then(|| self.list.remove(0));
        self.list.push(slot);
        (false, gone)
    }
}

struct NaiveS3Fifo {
    small: Vec<(u64, u8)>,
    main: Vec<(u64, u8)>,
    ghosts: Vec<u64>,
    slots: usize,
}

impl NaiveS3Fifo {
    fn evict(&mut self) -> u64 {
        loop {
            let from_small = self.small.len() >= (self.slots / 10).max(1);
            if !self.small.is_empty() && (from_small || self.main.is_empty()) {
                let (slot, uses) = self.small.remove(0);
                if uses >= 2 {
                    self.main.push((slot, 0));
                    continue;
                }
                self.ghosts.push(slot);
                if self.ghosts.len() > (self.slots - self.slots / 10).max(1) {
                    self.ghosts.remove(0);
                }
                return slot;
            }
            let (slot, uses) = self.main.remove(0);
            if uses == 0 {
                return slot;
            }
            self.main.push((slot, uses - 1));
        }
    }
}

impl Naive for NaiveS3Fifo {
    fn use_it(&mut self, slot: u64) -> (bool, Option<u64>) {
        let mut all = self.small.iter_mut().chain(&mut self.main);
        if let Some(place) = all.find(|(s, _)| *s == slot) {
            place.1 = (place.1 + 1).min(3);
            return (true, None);
        }
        let full = self.small.len() + self.main.len() == self.slots;
        let gone = full.then(|| self.evict());
        match take(&mut self.ghosts, slot) {
            true => self.main.push((slot, 0)),
            false => self.small.push((slot, 0)),
        }
        (false, gone)
    }
}

fn naive(kind: BaseKind, slots: usize) -> Box<dyn Naive> {
    let none = Vec::new;
    match kind {
        BaseKind::Lru => Box::new(NaiveLru(Vec::new(), slots)),
        BaseKind::Clock => Box::new(NaiveClock {
            circle: Vec::new(),
            hand: 0,
            slots,
        }),
        BaseKind::Sieve => Box::new(NaiveSieve {
            list: Vec::new(),
            hand: None,
            slots,
        }),
        BaseKind::TwoQ => Box::new(NaiveTwoQ {
            new: none(),
            ghosts: none(),
            proven: none(),
            slots,
        }),
        BaseKind::Arc => Box::new(NaiveArc {
            t1: none(),
            t2: none(),
            b1: none(),
            b2: none(),
            p: 0.0,
            c: slots,
        }),
        BaseKind::Larc => Box::new(NaiveLarc {
            list: none(),
            ghosts: none(),
            ghosts_max: 0.1 * slots as f64,
            slots,
        }),
        BaseKind::S3Fifo => Box::new(NaiveS3Fifo {
            small: Vec::new(),
            main: Vec::new(),
            ghosts: none(),
            slots,
        }),
    }
}

/// A list at use, with a contest that chooses its admission or without one.
trait Used {
    /// Whether the slot was resident, and which one left for it.
    fn use_one(&mut self, slot: Slot, saved_us: f32) -> (bool, Option<Slot>);
}

impl Used for ValuedList {
    fn use_one(&mut self, slot: Slot, saved_us: f32) -> (bool, Option<Slot>) {
        let hit = self.contains(slot);
        self.touch(slot, saved_us);
        let place = |list: &mut ValuedList| {
            let placed = list.place(slot, saved_us, Admission::ByUses, &mut |_| true);
            placed.unwrap_or(None)
        };
        (hit, (!hit).then(|| place(self)).flatten())
    }
}

impl Used for ValueOrder {
    fn use_one(&mut self, slot: Slot, saved_us: f32) -> (bool, Option<Slot>) {
        let hit = self.contains(slot);
        let fill = Fill::default();
        self.read(slot.0..=slot.0, f64::from(saved_us), 0, fill);
        let place =
            |order: &mut ValueOrder| order.place(slot, saved_us, &mut |_| true).unwrap_or(None);
        (hit, (!hit).then(|| place(self)).flatten())
    }
}

fn use_it(cache: &mut impl Used, slot: Slot, saved_us: f32) -> (bool, Option<u64>) {
    let (hit, gone) = cache.use_one(slot, saved_us);
    (hit, gone.map(|slot| slot.0))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_base_decides_as_its_paper_and_so_does_device_valued_replacement_among_equals(
        slots in 1..40usize,
        worth in prop_oneof![Just(0.0f32), 0.1..1000.0f32],
        uses in proptest::collection::vec((0..70u64, 0..70u64), 1..600),
    ) {
        for kind in BASES.iter().copied() {
            let mut book = naive(kind, slots);
            let mut plain = ValuedList::new(kind.build(slots), slots, false, false);
            let mut valued = ValuedList::new(kind.build(slots), slots, true, false);
            for (step, (a, b)) in uses.iter().enumerate() {
                // Low numbers are used more often.
                let slot = *a.min(b);
                let expected = book.use_it(slot);
                // A list without worth ignores a copy's saving, whatever it is.
                let any = (step * 37 % 101) as f32;
                let is = use_it(&mut plain, Slot(slot), any);
                prop_assert_eq!(is, expected, "{} at step {}", kind.name(), step);
                let is = use_it(&mut valued, Slot(slot), worth);
                prop_assert_eq!(is, expected, "valued {} at step {}", kind.name(), step);
                prop_assert!(plain.len() <= slots);
            }
        }
    }

    /// All calls that an owner may make, in any order: the list and its owner agree on the resident slots.
    #[test]
    fn slots_are_resident_from_placement_until_eviction(
        kind in 0..BASES.len(),
        valued in any::<bool>(),
        frequent in any::<bool>(),
        steps in proptest::collection::vec((0..7u8, 0..60u64, 0..100u16), 1..400),
    ) {
        let mut slots = 20;
        let mut cache = ValueOrder::new(BASES[kind], slots, valued, frequent);
        let mut resident = std::collections::BTreeSet::new();
        for (what, slot, worth) in steps {
            match what {
                0..=3 => {
                    let (hit, gone) = use_it(&mut cache, Slot(slot), f32::from(worth));
                    prop_assert_eq!(hit, resident.contains(&slot));
                    if let Some(gone) = gone {
                        prop_assert!(resident.remove(&gone));
                    }
                    if cache.contains(Slot(slot)) {
                        resident.insert(slot);
                    }
                }
                4 => {
                    cache.forget(Slot(slot));
                    resident.remove(&slot);
                }
                5 => {
                    let pinned = slot;
                    if let Some(gone) = cache.evict(&mut |slot| slot.0 != pinned) {
                        prop_assert!(gone.0 != pinned && resident.remove(&gone.0));
                    } else {
                        // With few slots, all possible victims are among those compared.
                        prop_assert!(resident.iter().all(|s| *s == pinned) || resident.len() > 1);
                    }
                }
                _ => {
                    slots = 1 + slot as usize / 2;
                    cache.resize(slots);
                    while cache.len() > slots {
                        let gone = cache.evict(&mut |_| true).map(|slot| slot.0);
                        prop_assert!(gone.is_some_and(|gone| resident.remove(&gone)));
                    }
                }
            }
            prop_assert!(resident.len() <= slots);
            let mut order: Vec<u64> = cache.order().iter().map(|slot| slot.0).collect();
            order.sort_unstable();
            prop_assert_eq!(order, resident.iter().copied().collect::<Vec<_>>());
        }
    }
}

#[test]
fn slots_that_save_less_are_evicted_first_and_those_that_save_little_are_not_admitted() {
    let mut cache = ValuedList::new(BaseKind::Lru.build(4), 4, true, false);
    for (slot, saved) in [(0, 60.0), (1, 5.0), (2, 60.0), (3, 70.0)] {
        use_it(&mut cache, Slot(slot), saved);
    }
    assert_eq!(
        use_it(&mut cache, Slot(9), 50.0),
        (false, Some(1)),
        "not the oldest"
    );
    assert_eq!(use_it(&mut cache, Slot(8), 1.0), (false, None));
    assert!(!cache.contains(Slot(8)));
    // A slot that keeps others out without being used loses its worth in the end.
    let comes = (0..200).position(|_| {
        use_it(&mut cache, Slot(8), 1.0);
        cache.contains(Slot(8))
    });
    assert!(comes.is_some_and(|tries| tries > 10), "{comes:?}");
}

#[test]
fn a_queue_makes_no_slot_worth_more_than_earlier_ones() {
    let mut cache = ValuedList::new(BaseKind::Lru.build(4), 4, true, true);
    for _ in 0..40 {
        (0..4).for_each(|slot| _ = use_it(&mut cache, Slot(slot), 60.0));
    }
    // The slow side has a queue now: every access would save a hundred times as much, and newcomers are used alike.
    for slot in (10..14).cycle().take(1000) {
        (0..4).for_each(|slot| cache.touch(Slot(slot), 6000.0));
        use_it(&mut cache, Slot(slot), 6000.0);
    }
    assert!((0..4).all(|slot| cache.contains(Slot(slot))));
}

/// All slots are used alike, and there is room for half of them: exchanging them gains nothing.
#[test]
fn content_that_is_used_as_often_as_newcomers_is_not_replaced() {
    let mut cache = ValuedList::new(BaseKind::Lru.build(64), 64, true, true);
    let all = 0..128;
    for round in 0..400 {
        for slot in all.clone() {
            let (_, gone) = use_it(&mut cache, Slot(slot), 60.0);
            assert_eq!(gone, None, "{slot} came in for it in round {round}");
        }
    }
}

#[test]
fn content_from_before_a_restart_is_not_evicted_for_blocks_read_a_few_times() {
    let mut cache = ValuedList::new(BaseKind::Lru.build(8), 8, true, true);
    (0..8).for_each(|slot| assert!(cache.restore(Slot(slot))));
    for slot in (100..108).chain(100..108).chain(100..108) {
        assert_eq!(use_it(&mut cache, Slot(slot), 10.0), (false, None));
    }
    assert!((0..8).all(|slot| cache.contains(Slot(slot))));
}

#[test]
fn a_grown_cache_distinguishes_all_its_slots() {
    let mut cache = ValuedList::new(BaseKind::Lru.build(16), 16, true, true);
    cache.resize(1024);
    let favourite = Slot(5000);
    (0..1024).for_each(|slot| _ = use_it(&mut cache, Slot(slot), 60.0));
    for slot in (0..1024).cycle().take(8 * 1024) {
        use_it(&mut cache, Slot(slot), 60.0);
        if slot % 64 == 0 {
            use_it(&mut cache, favourite, 60.0);
        }
    }
    assert!(cache.contains(favourite));
}

/// The same load as in the next test, on the whole order.
#[test]
fn a_cache_admits_as_its_contest_finds_better() {
    let admits = |delay_ns: u64| {
        let mut cache = ValueOrder::new(BaseKind::Lru, 64, true, true);
        (0..64).for_each(|slot| assert!(cache.restore(Slot(slot))));
        let mut now = 0;
        for slot in (64..512).cycle().take(4000) {
            for _ in 0..4 {
                now += 10;
                cache.read(slot..=slot, 100.0, now, Fill { delay_ns, us: 1.0 });
            }
        }
        // Never used before: only a cache that admits everything takes it.
        cache.place(Slot(1000), 100.0, &mut |_| true).is_ok()
    };
    assert!(admits(5));
    assert!(!admits(1000));
}

/// Readers that follow each other at once: admitting everything would seem to serve all but the first, if copies were
/// available at once.
#[test]
fn a_copy_that_is_not_there_yet_speaks_for_no_admission() {
    let follow = |delay_ns: u64| {
        let mut contest = Contest::new(64, &|slots| BaseKind::Lru.build(slots));
        (0..64).for_each(|slot| contest.restore(Slot(slot)));
        let mut now = 0;
        for slot in (64..512).cycle().take(4000) {
            for _ in 0..4 {
                now += 10;
                contest.observe(slot..=slot, 100.0, now, Fill { delay_ns, us: 1.0 });
            }
        }
        contest.better() == Admission::Everything
    };
    assert!(follow(5), "three of four find it");
    assert!(!follow(1000), "none does");
}
