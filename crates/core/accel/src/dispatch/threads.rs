//! Goal: a call that never returns is given up within its bound, not before; it keeps its buffers; its blocks are done
//! once; and the device is tried again after its back-off.
//! Method: the dispatcher with its threads, an engine that hangs on command, and a clock that only the test moves. The
//! test waits for a thread's actions by counting them, never by time; for inaction it watches for a moment.
//!
//! Invariants
//! - The dispatcher's clock moves only when a test advances it.
//! - Each block that is settled is decompressed and compared with the bytes that were put.
//!
//! Leaves to others: admission, lanes and hedges under load, in simulated time (`simulation.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use longshore_balance::{Budget, InFlight};
use longshore_codec::{Algorithm, Level, payload_bound};
use longshore_io::{Clock, Pool, SimClock};

use super::inner::PROBE_BOUND;
use super::terms::LOOK;
use super::{
    Admission, Before, Dispatcher, Finish, FinishedBlock, Finisher, InService, Mode, Offer,
    ParcelRest, Terms, Verify,
};
use crate::contract::gunzip;
use crate::scripted::{Act, Pace, ScriptedEngine};
use crate::{EngineState, Fault, Task};

/// The rest of a parcel holds the room that its bytes take on a device.
#[test]
fn the_rest_of_a_parcel_keeps_the_contract_of_all_kept_parts() {
    let in_flight = InFlight::default();
    let pool = Pool::new(1, 4096).unwrap();
    let rest = ParcelRest {
        lane: 0,
        permit: in_flight.try_admit(4096, Budget::new(4096)),
        task: Task::Compress { level: Level::Low },
        input: Arc::new(pool.try_take().unwrap()),
        input_range: 0..4096,
        output_range: 0..4096,
        before: Before::Unknown,
        tag: (),
    };
    assert_eq!(in_flight.bytes(), 4096);
    super::notice_contract::keeps_its_contract(rest, |_| in_flight.bytes() > 0);
}

const BLOCK: usize = 64 << 10;
const S: Duration = Duration::from_secs(1);

/// A dispatcher, its one device, and memory for blocks.
struct Desk {
    clock: Arc<SimClock>,
    engine: Arc<ScriptedEngine>,
    device: Arc<InService>,
    dispatcher: Dispatcher<()>,
    memory: Pool,
    buffers: usize,
}

/// One call of one block at a time.
fn desk(hang_bound: Duration, script: impl Fn(u64) -> Act + Send + Sync + 'static) -> Desk {
    desk_with(hang_bound, || EngineState::Ready, script)
}

fn desk_with(
    hang_bound: Duration,
    self_test: impl FnMut() -> EngineState + Send + 'static,
    script: impl Fn(u64) -> Act + Send + Sync + 'static,
) -> Desk {
    const BUFFERS: usize = 64;
    let clock = Arc::new(SimClock::new(0));
    let pace = Pace {
        latency: Duration::ZERO,
        bytes_per_s: 0,
    };
    let engine = ScriptedEngine::new(clock.clone(), Algorithm::QatDeflate, pace, script)
        .with_caps(|caps| {
            caps.calls_max = 1;
            caps.batch_bytes = BLOCK..BLOCK;
        })
        .with_self_test(self_test);
    let engine = Arc::new(engine);
    let device = InService::new(engine.clone());
    let terms = Terms {
        algorithm: Algorithm::QatDeflate,
        mode: Mode::Hardware,
        verify: Verify::Sample,
        hang_bound,
        buffer_bytes: BLOCK,
        allowance_buffers: 10,
        cpus: 1,
        slack_bytes: None,
    };
    let dispatcher =
        Dispatcher::start(std::slice::from_ref(&device), terms, clock.clone()).unwrap();
    let len = payload_bound(Algorithm::QatDeflate, BLOCK);
    Desk {
        clock,
        engine,
        device,
        dispatcher,
        memory: Pool::new(BUFFERS, len).unwrap(),
        buffers: BUFFERS,
    }
}

/// Waits until a thread has done something; about half a minute at most.
fn until(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..30_000 {
        if happened() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("never: {what}");
}

impl Desk {
    fn plain(sequence: u64) -> Vec<u8> {
        (0..BLOCK as u64)
            .map(|i| ((i * (sequence + 3)) >> 7) as u8)
            .collect()
    }

    /// False if the device may not have the block now.
    fn try_put(&self, sequence: u64) -> bool {
        let Admission::Yes(admitted) = self.dispatcher.admit(BLOCK, None) else {
            return false;
        };
        let mut input = self.memory.try_take().unwrap();
        input[..BLOCK].copy_from_slice(&Desk::plain(sequence));
        let output = self.memory.try_take().unwrap();
        self.dispatcher.put(
            admitted,
            Offer {
                sequence,
                task: Task::Compress { level: Level::Low },
                before: Before::of(&input[..BLOCK]),
                input: Arc::new(input),
                input_range: 0..BLOCK,
                output_range: 0..output.len(),
                output,
                tag: (),
            },
        );
        true
    }

    fn put(&self, sequence: u64) {
        assert!(self.try_put(sequence), "block {sequence} is refused");
    }

    fn is_ready(&self) -> bool {
        self.device.state().0 == EngineState::Ready
    }

    /// Finishes a block; its payload must hold the bytes that were put.
    fn settle(&self, finish: Finish<()>) -> FinishedBlock<()> {
        let mut finisher = Finisher::new(Algorithm::QatDeflate, Level::Low).unwrap();
        let fresh = || self.memory.try_take();
        let settled = finisher.settle(&self.dispatcher, finish, fresh).unwrap();
        let len = *settled.result.as_ref().unwrap();
        let plain = gunzip(&settled.output[..len], BLOCK).unwrap();
        assert!(plain == Desk::plain(settled.sequence), "another block");
        settled
    }

    /// Advances the clock by looks of the watchdog until a block is to be finished; returns how long that took.
    fn look_until_given_up(&self) -> (Duration, Finish<()>) {
        let began = self.clock.now();
        for _ in 0..10_000 {
            self.clock.advance(LOOK);
            self.dispatcher.tick(None);
            if let Some(finish) = self.dispatcher.try_next() {
                return (self.clock.now() - began, finish);
            }
        }
        panic!("never given up");
    }
}

#[test]
fn a_hang_is_noticed_within_the_bound_whatever_it_is_and_not_much_before() {
    for bound in [S / 2, S, 5 * S, 61 * S] {
        let desk = desk(bound, |_| Act::Hang);
        desk.put(0);
        until("a call", || desk.engine.calls() == 1);
        let (took, finish) = desk.look_until_given_up();
        assert!(
            took <= bound && took >= bound - 2 * LOOK,
            "{took:?} of {bound:?}"
        );
        let settled = desk.settle(finish);
        assert!(settled.recomputed);
        assert_eq!(desk.device.state().0, EngineState::Suspended);
        assert_eq!(desk.dispatcher.uses()[0].faults["hung"], 1);
        desk.engine.release();
    }
}

#[test]
fn a_slow_call_that_is_within_the_bound_is_not_given_up() {
    // Many quick calls before it do not lower the bound.
    let desk = desk(5 * S, |call| match call {
        20 => Act::Hang,
        _ => Act::Well,
    });
    for sequence in 0..20 {
        desk.put(sequence);
        let finish = desk.dispatcher.next().unwrap();
        assert!(!desk.settle(finish).recomputed);
    }
    desk.put(20);
    until("the call", || desk.engine.calls() == 21);
    let (took, _) = desk.look_until_given_up();
    assert!(took <= 5 * S && took >= 5 * S - 2 * LOOK, "{took:?}");
    desk.engine.release();
}

#[test]
fn the_time_that_this_process_was_stopped_is_not_a_devices() {
    let desk = desk(5 * S, |_| Act::Hang);
    desk.put(0);
    until("a call", || desk.engine.calls() == 1);
    desk.clock.advance(60 * S);
    desk.dispatcher.tick(None);
    assert!(desk.dispatcher.try_next().is_none() && desk.is_ready());
    let (took, _) = desk.look_until_given_up();
    assert!(took <= 5 * S && took >= 5 * S - 2 * LOOK, "{took:?}");
    desk.engine.release();
}

#[test]
fn a_hung_call_keeps_its_buffers_and_its_late_result_is_dropped() {
    let desk = desk(S, |call| if call == 0 { Act::Hang } else { Act::Well });
    desk.put(0);
    until("a call", || desk.engine.calls() == 1);
    let (_, finish) = desk.look_until_given_up();
    let settled = desk.settle(finish);
    // The call's own output, and the input that it reads: both belong to the device until the call returns.
    drop(settled);
    assert_eq!(desk.memory.free(), desk.buffers - 2);
    desk.engine.release();
    until("the buffers", || desk.memory.free() == desk.buffers);
    assert!(desk.dispatcher.try_next().is_none(), "finished twice");
    assert_eq!(desk.dispatcher.uses()[0].blocks, 0);
}

#[test]
fn buffers_of_hung_calls_are_not_reused_and_a_device_that_holds_all_is_off() {
    let desk = desk(S, |_| Act::Hang);
    let may_have = || desk.dispatcher.uses()[0].in_flight_bytes_max;
    // One block at work, one waiting.
    assert_eq!(may_have(), 2 * BLOCK as u64);
    desk.put(0);
    until("a call", || desk.engine.calls() == 1);
    desk.settle(desk.look_until_given_up().1);
    desk.dispatcher.tick(None);
    assert_eq!(may_have(), BLOCK as u64);
    desk.clock.advance(S);
    until("a test", || desk.is_ready());
    desk.put(1);
    until("a call", || desk.engine.calls() == 2);
    desk.settle(desk.look_until_given_up().1);
    desk.dispatcher.tick(None);
    let (state, reason) = desk.device.state();
    assert_eq!((state, may_have()), (EngineState::Off, 0));
    assert!(reason.contains("hold all of its buffers"), "{reason}");
    assert!(!desk.try_put(2));
    desk.engine.release();
}

#[test]
fn a_device_is_tested_again_after_1_2_and_4_seconds_and_serves_when_it_is_well() {
    let tests = Arc::new(AtomicUsize::new(0));
    let count = tests.clone();
    let self_test = move || match count.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => EngineState::Suspended,
        _ => EngineState::Ready,
    };
    let desk = desk_with(5 * S, self_test, |call| match call {
        0 => Act::Refuse(Fault::Device { code: -2 }),
        _ => Act::Well,
    });
    desk.put(0);
    let finish = desk.dispatcher.next().unwrap();
    assert!(desk.settle(finish).recomputed);
    for (n, wait) in [1, 2, 4].into_iter().enumerate() {
        assert!(!desk.is_ready() && !desk.try_put(1), "it is out of service");
        desk.clock.advance(wait * S - LOOK);
        // Its thread has looked by now.
        thread::sleep(Duration::from_millis(100));
        assert_eq!(tests.load(Ordering::SeqCst), n, "before its time");
        desk.clock.advance(LOOK);
        until("a test", || tests.load(Ordering::SeqCst) == n + 1);
        // The next back-off starts when the answer was received.
        until("its answer", || !desk.device.known().standing.is_probing());
    }
    until("its service", || desk.is_ready());
    desk.put(1);
    let finish = desk.dispatcher.next().unwrap();
    assert!(!desk.settle(finish).recomputed);
}

#[test]
fn a_self_test_that_hangs_is_given_up_too_and_its_late_answer_is_not_heard() {
    let (began, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (begin, wait) = (began.clone(), go_on.clone());
    let self_test = move || {
        let n = begin.fetch_add(1, Ordering::SeqCst);
        until("leave to go on", || wait.load(Ordering::SeqCst) > n);
        EngineState::Ready
    };
    let desk = desk_with(S, self_test, |_| Act::Refuse(Fault::Down));
    desk.put(0);
    let finish = desk.dispatcher.next().unwrap();
    desk.settle(finish);
    desk.clock.advance(S);
    until("a test", || began.load(Ordering::SeqCst) == 1);
    desk.dispatcher.tick(None);
    let asked = desk.clock.now();
    let hung = || desk.dispatcher.uses()[0].faults.contains_key("hung");
    while !hung() {
        desk.clock.advance(LOOK);
        desk.dispatcher.tick(None);
    }
    let took = desk.clock.now() - asked;
    assert!(
        took <= PROBE_BOUND && took >= PROBE_BOUND - 2 * LOOK,
        "{took:?}"
    );
    go_on.store(1, Ordering::SeqCst);
    let lost = || desk.dispatcher.inner.desk.lost_calls(0);
    until("its late return", || lost() == 0);
    assert!(!desk.is_ready(), "a late answer was heard");
    // Another thread took its place.
    desk.clock.advance(2 * S);
    until("another test", || began.load(Ordering::SeqCst) == 2);
    go_on.store(2, Ordering::SeqCst);
    until("its service", || desk.is_ready());
}
