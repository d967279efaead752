//! The text of [`Clock`] as a test of any clock: the machine's, the simulated one, slow ones, and the doubles of other
//! rooms' tests, which include this file.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use longshore_io::Clock;

const SLEEP: Duration = Duration::from_millis(20);

/// Checks whatever the trait promises.
///
/// # Panics
/// If the clock breaks a promise.
pub fn keeps_its_contract(clock: &dyn Clock) {
    time_goes_on_and_never_back(clock);
    a_sleep_lasts_at_least_as_long_as_it_was_asked_to(clock);
    each_of_several_sleepers_sleeps_its_own_time(clock);
    cpu_time_is_the_calling_threads_own(clock);
    the_date_is_counted_from_the_epoch_in_nanoseconds(clock);
}

fn time_goes_on_and_never_back(clock: &dyn Clock) {
    let start = clock.now();
    let mut last = start;
    for round in 0..1000 {
        if round % 250 == 0 {
            clock.sleep(Duration::from_micros(100));
        }
        let now = clock.now();
        assert!(now >= last, "{now:?} after {last:?}");
        last = now;
    }
    assert!(last > start, "a clock that was slept on has moved");
    // Other threads see the same time.
    let elsewhere = thread::scope(|scope| scope.spawn(|| clock.now()).join().unwrap());
    assert!(elsewhere >= last, "{elsewhere:?} after {last:?}");
}

fn a_sleep_lasts_at_least_as_long_as_it_was_asked_to(clock: &dyn Clock) {
    for how_long in [Duration::ZERO, Duration::from_micros(1), SLEEP] {
        let start = clock.now();
        clock.sleep(how_long);
        let slept = clock.now() - start;
        assert!(slept >= how_long, "{slept:?} of {how_long:?}");
    }
}

fn each_of_several_sleepers_sleeps_its_own_time(clock: &dyn Clock) {
    let begin = Barrier::new(3);
    thread::scope(|scope| {
        for share in 1..=3 {
            let begin = &begin;
            scope.spawn(move || {
                begin.wait();
                a_sleep_lasts(clock, SLEEP * share / 3);
            });
        }
    });
}

fn a_sleep_lasts(clock: &dyn Clock, how_long: Duration) {
    let start = clock.now();
    clock.sleep(how_long);
    let slept = clock.now() - start;
    assert!(slept >= how_long, "{slept:?} of {how_long:?}");
}

fn cpu_time_is_the_calling_threads_own(clock: &dyn Clock) {
    let before = clock.thread_cpu();
    let spend = || {
        let start = Instant::now();
        while start.elapsed() < SLEEP * 2 {
            std::hint::spin_loop();
        }
    };
    let fresh = thread::scope(|scope| {
        scope.spawn(spend).join().unwrap();
        scope.spawn(|| clock.thread_cpu()).join().unwrap()
    });
    clock.sleep(SLEEP);
    let after = clock.thread_cpu();
    assert!(after >= before, "{after:?} after {before:?}");
    assert!(after - before < SLEEP, "neither others' work nor sleep");
    assert!(fresh < SLEEP, "a new thread has done nothing: {fresh:?}");
}

fn the_date_is_counted_from_the_epoch_in_nanoseconds(clock: &dyn Clock) {
    let (start, date) = (clock.now(), clock.wall_ns());
    clock.sleep(SLEEP);
    let (passed, moved) = (clock.now() - start, clock.wall_ns() - date);
    // Nobody sets a clock during this test, but an emulated one may be slower than its date.
    let unit = Duration::from_nanos(moved.unsigned_abs());
    assert!(moved > 0, "{moved} in {passed:?}");
    assert!(unit >= passed / 2, "{unit:?} in {passed:?}");
}
