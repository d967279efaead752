//! Goal: no interleaving of workers, pullers, watchdog, hedge and finishers loses a block, finishes one twice, hands
//! out a buffer that a device still holds, or leaves a thread waiting for ever.
//! Method: the desk's own source, compiled here with loom's locks, which try every interleaving (up to three
//! preemptions) and find deadlocks. Buffers are numbers.
//! Not covered: time, which is an argument; waits with a timeout never time out here.

mod sync {
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
}

#[path = "../src/dispatch/desk.rs"]
mod desk;
#[path = "../src/dispatch/notice_contract.rs"]
mod notice_contract;

use std::time::Duration;

use desk::{Desk, DeskNotice, NotDone, Parcel, PullResult, ReturnState};
use loom::sync::Arc;
use loom::thread;

/// The kept part: notes that it was returned.
struct Kept(bool);

impl DeskNotice for Kept {
    fn returned(&mut self) {
        self.0 = true;
    }
}

/// Which buffer a job holds.
type Job = u64;
type TestDesk = Desk<Kept, Job, ()>;

/// What a finisher got: the sequence, the buffer if it came back, and why the work is undone.
type Got = (u64, Option<Job>, Option<NotDone<()>>);

#[test]
fn a_part_that_notes_its_return_keeps_the_contract_of_all_kept_parts() {
    notice_contract::keeps_its_contract(Kept(false), |kept| !kept.0);
}

fn put(desk: &TestDesk, sequence: u64) {
    let parcel = Parcel {
        sequence,
        bytes: 1,
        kept: Kept(false),
        job: 100 + sequence,
    };
    desk.put(0, parcel, 1);
}

/// One call; returns whether it came back in time.
fn serve_once(desk: &TestDesk) -> Option<ReturnState> {
    match desk.pull(0, 1..8, Duration::MAX, || 0) {
        PullResult::Batch(generation, jobs) => {
            let jobs = jobs.into_iter().map(|job| (job - 100, job, None)).collect();
            Some(desk.give_back(generation, jobs, ()))
        }
        PullResult::Nothing | PullResult::Ended => None,
    }
}

fn finish_all(desk: &TestDesk) -> Vec<Got> {
    let mut got = Vec::new();
    while let Some(finished) = desk.finish() {
        // Only a block that was hedged while a device has it is not returned.
        assert!(finished.kept.0 || finished.undone == Some(NotDone::Hedged));
        got.push((finished.sequence, finished.job, finished.undone));
    }
    got
}

fn check(test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(test);
}

#[test]
fn a_call_that_returns_while_it_is_given_up_finishes_its_blocks_once() {
    check(|| {
        let desk = Arc::new(TestDesk::new(1));
        put(&desk, 1);
        put(&desk, 2);
        desk.end(vec![u64::MAX]);
        let puller = thread::spawn({
            let desk = desk.clone();
            move || serve_once(&desk)
        });
        let watchdog = thread::spawn({
            let desk = desk.clone();
            move || desk.abandon(|_, _, _| true).len()
        });
        let got = finish_all(&desk);
        let returned = puller.join().unwrap();
        let lost = watchdog.join().unwrap();
        // The first of the two decides for both blocks.
        match lost {
            0 => assert_eq!(got, [(1, Some(101), None), (2, Some(102), None)]),
            _ => {
                let hung = Some(NotDone::Hung);
                assert_eq!(got, [(1, None, hung), (2, None, hung)]);
            }
        }
        assert_eq!(returned == Some(ReturnState::Late), lost == 1);
        assert_eq!((desk.lost_calls(0), desk.lost_jobs(0)), (0, 0));
    });
}

#[test]
fn a_hedged_block_is_finished_once_and_the_devices_buffer_is_not_handed_out() {
    check(|| {
        let desk = Arc::new(TestDesk::new(1));
        put(&desk, 1);
        desk.end(vec![u64::MAX]);
        let puller = thread::spawn({
            let desk = desk.clone();
            move || serve_once(&desk)
        });
        let hedge = thread::spawn({
            let desk = desk.clone();
            move || desk.hedge(1)
        });
        let got = finish_all(&desk);
        let served = puller.join().unwrap();
        let hedged = hedge.join().unwrap();
        match (hedged, served) {
            (false, _) => assert_eq!(got, [(1, Some(101), None)]),
            // Taken from the queue: the buffer is free. Taken from the device: it is not.
            (true, None) => assert_eq!(got, [(1, Some(101), Some(NotDone::Hedged))]),
            (true, Some(_)) => assert_eq!(got, [(1, None, Some(NotDone::Hedged))]),
        }
    });
}

#[test]
fn two_finishers_share_the_blocks_and_both_end() {
    check(|| {
        let desk = Arc::new(TestDesk::new(1));
        put(&desk, 1);
        let finisher = thread::spawn({
            let desk = desk.clone();
            move || finish_all(&desk)
        });
        let puller = thread::spawn({
            let desk = desk.clone();
            move || while serve_once(&desk).is_some() {}
        });
        desk.end(vec![u64::MAX]);
        let mut got = finish_all(&desk);
        got.extend(finisher.join().unwrap());
        puller.join().unwrap();
        assert_eq!(got, [(1, Some(101), None)]);
    });
}

#[test]
fn a_lane_that_goes_out_of_service_or_is_robbed_loses_nothing() {
    check(|| {
        let desk = Arc::new(TestDesk::new(1));
        put(&desk, 1);
        put(&desk, 2);
        // Any waiting parcel may be stolen.
        desk.end(vec![0]);
        let flush = thread::spawn({
            let desk = desk.clone();
            move || desk.flush(0)
        });
        let puller = thread::spawn({
            let desk = desk.clone();
            move || serve_once(&desk)
        });
        let mut got: Vec<_> = finish_all(&desk).into_iter().map(|g| (g.0, g.1)).collect();
        flush.join().unwrap();
        puller.join().unwrap();
        got.sort_unstable();
        assert_eq!(got, [(1, Some(101)), (2, Some(102))]);
    });
}

#[test]
fn a_block_that_is_put_back_is_finished_by_somebody() {
    check(|| {
        let desk = Arc::new(TestDesk::new(1));
        put(&desk, 1);
        serve_once(&desk);
        desk.end(vec![u64::MAX]);
        let other = thread::spawn({
            let desk = desk.clone();
            move || finish_all(&desk)
        });
        if let Some(finished) = desk.try_finish() {
            desk.put_back(finished);
        }
        let mut got = finish_all(&desk);
        got.extend(other.join().unwrap());
        assert_eq!(got, [(1, Some(101), None)]);
    });
}

#[test]
fn a_call_without_blocks_is_given_up_or_comes_back() {
    check(|| {
        let desk = Arc::new(TestDesk::new(1));
        let generation = desk.open(0, 0);
        let watchdog = thread::spawn({
            let desk = desk.clone();
            move || desk.abandon(|_, _, _| true).len()
        });
        let returned = desk.give_back(generation, Vec::new(), ());
        let lost = watchdog.join().unwrap();
        assert_eq!(returned == ReturnState::Late, lost == 1);
        assert_eq!(desk.lost_calls(0), 0);
    });
}

#[test]
fn a_puller_that_rests_wakes_when_nothing_will_come_any_more() {
    check(|| {
        let desk = Arc::new(TestDesk::new(1));
        let puller = thread::spawn({
            let desk = desk.clone();
            move || while desk.rest(0, Duration::MAX) {}
        });
        desk.end(vec![u64::MAX]);
        puller.join().unwrap();
        assert_eq!(desk.queued_bytes(0), 0);
    });
}

#[test]
fn aborting_ends_everybody() {
    check(|| {
        let desk = Arc::new(TestDesk::new(1));
        put(&desk, 1);
        let puller = thread::spawn({
            let desk = desk.clone();
            move || while serve_once(&desk).is_some() {}
        });
        let finisher = thread::spawn({
            let desk = desk.clone();
            move || finish_all(&desk)
        });
        desk.abort();
        puller.join().unwrap();
        assert!(finisher.join().unwrap().len() <= 1);
    });
}
