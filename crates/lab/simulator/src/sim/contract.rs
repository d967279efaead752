//! The text of [`Source`] as a test of any source of requests: its driver takes what is due, keeps some of it in
//! flight, and looks too early, too.
//!
//! Invariants of the suite
//! - Looking changes nothing, and nothing is taken before it is due.
//! - A source that breaks one promise fails: a lying source for each promise shows it.
//!
//! Leaves to others: what a source of requests is for (`tests.rs`, `phases.rs` and the tests of traces).

use longshore_policy::model::Nanos;

use super::load::{ClosedLoop, OpenLoop, Source};
use super::mix::Mix;
use super::phases::Phases;
use super::{Arrival, Ask};

/// What a source gave: the times of its arrivals, and what they ask.
pub type Given = Vec<(Nanos, Ask)>;

/// Takes up to `count` requests and checks whatever the trait promises. A request ends after `took`, the latest begun
/// first.
///
/// # Panics
/// If the source breaks a promise.
pub fn keeps_its_contract(source: &mut dyn Source, took: Nanos, count: usize) -> Given {
    let mut given = Given::new();
    let mut in_flight: Vec<(Nanos, Arrival)> = Vec::new();
    let mut now = 0;
    while given.len() < count {
        let due = source.due();
        assert_eq!(due, source.due(), "looking changes nothing");
        // A request in flight ends first, if none is due before.
        let next_end = in_flight.iter().map(|(end, _)| *end).min();
        match (due, next_end) {
            (None, None) => break,
            (Some(due), end) if end.is_none_or(|end| due <= end) => {
                if let Some(early) = due.checked_sub(1).filter(|early| *early >= now) {
                    assert!(source.take(early).is_none(), "{early} is before {due}");
                    assert_eq!(source.due(), Some(due), "nothing was taken");
                }
                now = now.max(due);
                let arrival = source.take(now).expect("a request is due");
                let is_empty = matches!(arrival.ask, Ask::Io(request) if request.len_bytes == 0);
                assert!(!is_empty, "{arrival:?}");
                given.push((now, arrival.ask));
                in_flight.push((now + took, arrival));
            }
            (due, Some(end)) => {
                now = now.max(end);
                if due.is_none() {
                    assert!(source.take(now).is_none(), "nothing is due");
                }
                let latest = in_flight.iter().rposition(|(e, _)| *e == end);
                let (_, arrival) = in_flight.remove(latest.unwrap());
                source.ended(arrival.client, now);
            }
            (Some(_), None) => unreachable!("it was taken"),
        }
    }
    given
}

fn mix(text: &str) -> Mix {
    text.parse().unwrap()
}

/// Goal: the same seed gives the same requests, and no more in flight than there are clients.
#[test]
fn loops_keep_the_contract_of_all_sources_of_requests() {
    let closed = || {
        let mut closed = ClosedLoop::new(&mix("2x4k+1x512k"), 1 << 30, 7);
        keeps_its_contract(&mut closed, 1000, 500)
    };
    let given = closed();
    assert_eq!((given.len(), &given), (500, &closed()));
    // Three clients begin at once, and again when they have ended.
    let at_once = |at| given.iter().filter(|(time, _)| *time == at).count();
    assert_eq!((at_once(0), at_once(1000), at_once(500)), (3, 3, 0));
    let open = || {
        let mut open = OpenLoop::new(&mix("2x4k+1x512k"), &[0.5, 0.5], 100.0, 1 << 30, 7);
        keeps_its_contract(&mut open, 50_000, 500)
    };
    let given = open();
    assert_eq!((given.len(), &given), (500, &open()));
    assert!(given.is_sorted_by_key(|(at, _)| *at));
}

#[test]
fn a_load_that_changes_keeps_the_contract_of_all_sources_of_requests() {
    let mut phases = Phases::new(&mix("2x4k"), &mix("3x8k"), 5000, 100, 1 << 20, 1);
    let given = keeps_its_contract(&mut phases, 300, 200);
    for (at, ask) in &given {
        let bytes = if *at < 5000 { 4096 } else { 8192 };
        assert_eq!(ask.bytes(), bytes, "{at}");
    }
    assert!(given.iter().any(|(at, _)| *at < 5000));
}

/// Keeps the contract but in one thing.
struct Lying(ClosedLoop, Lie, bool);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Lie {
    None,
    DueAndNothingThere,
    ThereAndNotDue,
    TakenByALook,
}

impl Source for Lying {
    fn due(&self) -> Option<Nanos> {
        match self.1 {
            Lie::DueAndNothingThere => Some(self.0.due().unwrap_or(10)),
            _ => self.0.due(),
        }
    }

    fn take(&mut self, now: Nanos) -> Option<Arrival> {
        if self.1 == Lie::TakenByALook {
            return self
                .0
                .take(now)
                .filter(|_| std::mem::replace(&mut self.2, true));
        }
        let taken = self.0.take(now);
        match (taken, self.1) {
            (None, Lie::ThereAndNotDue) => Some(Arrival {
                client: 0,
                ask: Ask::Flush,
            }),
            (taken, _) => taken,
        }
    }

    fn ended(&mut self, client: usize, now: Nanos) {
        self.0.ended(client, now);
    }
}

/// Goal: the suite sees whoever breaks the contract.
#[test]
fn every_lie_of_a_source_of_requests_breaks_the_contract() {
    for lie in [
        Lie::None,
        Lie::DueAndNothingThere,
        Lie::ThereAndNotDue,
        Lie::TakenByALook,
    ] {
        let checked = std::panic::catch_unwind(|| {
            let closed = ClosedLoop::new(&mix("2x4k"), 1 << 30, 7);
            keeps_its_contract(&mut Lying(closed, lie, false), 1000, 50)
        });
        assert_eq!(checked.is_ok(), lie == Lie::None, "{lie:?}");
    }
}
