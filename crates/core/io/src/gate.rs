//! Limits how many threads compute at once and how much CPU they use (`--max-cpu`).
//!
//! A [`Gate`] lets as many threads in as it has places. With a ceiling it also keeps an account of CPU seconds: they
//! arrive at the ceiling's rate, every [`Turn`] pays what its thread used (by the thread's CPU clock), and no thread
//! enters while the account is overdrawn. So the ceiling can be a fraction, and waiting for a disk inside a turn costs
//! nothing.
//!
//! When a thread leaves, its place and its core stay empty until the next thread has been woken. To avoid that pause,
//! a thread that returns from a device ([`Gate::enter_from_wait`]) may exceed the limit by half: the next thread is
//! then ready to run when another one starts to wait. Threads that never wait keep to the places, because more of them
//! would only crowd the cores' caches.
//!
//! Invariants
//! - A turn of [`Gate::enter`] begins only while fewer than `places` exist; at most 1.5 × `places` exist at once.
//! - Over any span of `t` seconds, turns use at most `ceiling × t` CPU seconds, plus the saved-up amount (a tenth of
//!   a second's worth), plus one turn's work for each turn that can exist: the cost of work is known only when it is
//!   done. Turns should therefore be short, about one buffer each.
//!
//! Leaves to others: limits of bytes per second (`throttle.rs`), and which work belongs into a turn (the callers).
//!
//! Places are handed over in no order: a thread that comes back at once still has its data in the cache. Threads wait
//! for the account by sleeping, never by spinning.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;

/// Threads that wait for the account read the ceiling again at this interval.
const NAP: Duration = Duration::from_millis(100);

/// Unused CPU time is kept for this many seconds.
const SAVED_S: f64 = 0.1;

/// Lets a limited number of threads compute, using a limited amount of CPU.
pub struct Gate {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    places: usize,
    /// Signalled when a thread leaves: `left` for threads limited to the places, `left_above` for those that may
    /// exceed the limit.
    left: Condvar,
    left_above: Condvar,
}

struct State {
    inside: usize,
    /// CPUs that may be busy on average.
    ceiling: Option<f64>,
    /// CPU seconds left to use; while this is below 0, no thread enters.
    account_s: f64,
    seen: Duration,
}

impl Gate {
    /// Lets `places` threads (at least 1) in at once. With a `ceiling`, they keep at most that many CPUs busy on
    /// average: 0.5 is half a CPU. A ceiling of 0 or less means no ceiling.
    pub fn new(clock: Arc<dyn Clock>, places: usize, ceiling: Option<f64>) -> Self {
        let state = State {
            inside: 0,
            ceiling: ceiling.filter(|cpus| *cpus > 0.0),
            account_s: 0.0,
            seen: clock.now(),
        };
        Self {
            clock,
            state: Mutex::new(state),
            places: places.max(1),
            left: Condvar::new(),
            left_above: Condvar::new(),
        }
    }

    /// The most turns that a gate with `places` places can have at once.
    pub fn inside_max(places: usize) -> usize {
        let places = places.max(1);
        places + places.div_ceil(2)
    }

    /// Enters. Waits for a place and for the account to be in credit.
    pub fn enter(&self) -> Turn<'_> {
        self.enter_below(self.places, &self.left)
    }

    /// Enters after a wait for a device, when more such waits will follow. Waits only while [`Gate::inside_max`]
    /// turns exist, and for the account.
    pub fn enter_from_wait(&self) -> Turn<'_> {
        self.enter_below(Self::inside_max(self.places), &self.left_above)
    }

    fn enter_below(&self, most: usize, left: &Condvar) -> Turn<'_> {
        let mut state = self.state.lock();
        loop {
            self.supply(&mut state);
            if state.inside >= most {
                left.wait(&mut state);
                continue;
            }
            let Some(ceiling) = state.ceiling.filter(|_| state.account_s < 0.0) else {
                break;
            };
            let wait = Duration::try_from_secs_f64(-state.account_s / ceiling).unwrap_or(NAP);
            drop(state);
            self.clock.sleep(wait.clamp(Duration::from_micros(1), NAP));
            state = self.state.lock();
        }
        self.turn(&mut state)
    }

    /// Enters if that is possible without waiting.
    pub fn try_enter(&self) -> Option<Turn<'_>> {
        let mut state = self.state.lock();
        self.supply(&mut state);
        let overdrawn = state.ceiling.is_some() && state.account_s < 0.0;
        (state.inside < self.places && !overdrawn).then(|| self.turn(&mut state))
    }

    fn turn(&self, state: &mut State) -> Turn<'_> {
        state.inside += 1;
        Turn {
            gate: self,
            cpu_before: self.clock.thread_cpu(),
            stays_here: PhantomData,
        }
    }

    /// Charges CPU time used outside a turn to the account.
    pub fn charge(&self, cpu: Duration) {
        let mut state = self.state.lock();
        self.supply(&mut state);
        if state.ceiling.is_some() {
            state.account_s -= cpu.as_secs_f64();
        }
    }

    /// Changes the ceiling from now on; `None` removes it and cancels all debts.
    pub fn set_ceiling(&self, ceiling: Option<f64>) {
        let mut state = self.state.lock();
        self.supply(&mut state);
        state.ceiling = ceiling.filter(|cpus| *cpus > 0.0);
        if state.ceiling.is_none() {
            state.account_s = 0.0;
        }
    }

    fn supply(&self, state: &mut State) {
        let now = self.clock.now();
        let passed_s = now.saturating_sub(state.seen).as_secs_f64();
        state.seen = now;
        if let Some(ceiling) = state.ceiling {
            state.account_s = (state.account_s + ceiling * passed_s).min(ceiling * SAVED_S);
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Gate")
            .field("inside", &state.inside)
            .field("ceiling", &state.ceiling)
            .field("account_s", &state.account_s)
            .finish()
    }
}

/// The right to compute, until dropped. Belongs to the thread that entered, whose CPU clock it reads.
#[derive(Debug)]
pub struct Turn<'a> {
    gate: &'a Gate,
    cpu_before: Duration,
    stays_here: PhantomData<*const ()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.gate
            .charge(self.gate.clock.thread_cpu().saturating_sub(self.cpu_before));
        let inside = {
            let mut state = self.gate.state.lock();
            state.inside -= 1;
            state.inside
        };
        self.gate.left_above.notify_one();
        if inside < self.gate.places {
            self.gate.left.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::HostClock;
    use crate::sim::SimClock;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn never_more_threads_inside_than_places() {
        let gate = Gate::new(Arc::new(HostClock), 3, None);
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _turn = gate.enter();
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=3).contains(&most.into_inner()));
        assert_eq!(gate.state.lock().inside, 0);
    }

    #[test]
    fn a_worker_that_does_not_wait_enters_only_with_a_free_place_and_credit() {
        let clock = Arc::new(SimClock::new(0));
        let gate = Gate::new(clock.clone(), 1, Some(1.0));
        let inside = gate.try_enter();
        assert!(inside.is_some() && gate.try_enter().is_none());
        drop(inside);
        gate.charge(5 * MS);
        assert!(gate.try_enter().is_none());
        clock.advance(5 * MS);
        assert!(gate.try_enter().is_some());
    }

    #[test]
    fn a_worker_that_returns_from_a_wait_may_exceed_the_places_and_no_other() {
        let gate = Gate::new(Arc::new(SimClock::new(0)), 2, None);
        assert_eq!(Gate::inside_max(2), 3);
        let beside = gate.enter_from_wait();
        let _second = gate.enter_from_wait();
        assert!(gate.try_enter().is_none(), "both places are taken");
        let _third = gate.enter_from_wait();
        assert_eq!(gate.state.lock().inside, 3);
        drop(beside);
        assert!(gate.try_enter().is_none(), "both are taken still");
    }

    #[test]
    fn both_kinds_are_woken_and_never_too_many_are_inside() {
        let gate = Gate::new(Arc::new(HostClock), 2, None);
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let enters = [Gate::enter, Gate::enter_from_wait];
        thread::scope(|scope| {
            for enter in enters.iter().cycle().take(8) {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _turn = enter(&gate);
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!((1..=3).contains(&most.into_inner()));
        assert_eq!(gate.state.lock().inside, 0);
    }

    #[test]
    fn half_a_cpu_doubles_the_time_of_one_thread() {
        let clock = Arc::new(SimClock::new(0));
        let gate = Gate::new(clock.clone(), 1, Some(0.5));
        for _ in 0..1000 {
            let _turn = gate.enter();
            clock.compute(MS);
        }
        let elapsed = clock.now().as_secs_f64();
        // One second of work at half a CPU takes 2 s, less the 50 ms that are saved up; the last turn is not waited
        // for.
        assert!((1.9..=2.0).contains(&elapsed), "{elapsed} s");
    }

    #[test]
    fn waiting_inside_a_turn_costs_nothing() {
        let clock = Arc::new(SimClock::new(0));
        let gate = Gate::new(clock.clone(), 1, Some(0.1));
        for _ in 0..100 {
            let _turn = gate.enter();
            clock.advance(MS);
        }
        assert_eq!(clock.now(), 100 * MS);
    }

    #[test]
    fn work_charged_from_outside_delays_the_next_turn() {
        let clock = Arc::new(SimClock::new(0));
        let gate = Gate::new(clock.clone(), 4, Some(2.0));
        gate.charge(Duration::from_secs(3));
        drop(gate.enter());
        let elapsed = clock.now().as_secs_f64();
        assert!((elapsed - 1.5).abs() < 1e-3, "{elapsed} s");
    }

    #[test]
    fn lifting_the_ceiling_forgives_debts_and_lets_everybody_in() {
        let clock = Arc::new(SimClock::new(0));
        let gate = Gate::new(clock.clone(), 1, Some(1e-9));
        gate.charge(Duration::from_secs(3));
        gate.set_ceiling(None);
        drop(gate.enter());
        assert_eq!(clock.now(), Duration::ZERO);
    }

    #[test]
    fn real_threads_that_want_every_core_stay_below_the_ceiling() {
        let clock = Arc::new(HostClock);
        let gate = Gate::new(clock.clone(), 2, Some(0.5));
        let start = clock.now();
        let used: Duration = thread::scope(|scope| {
            let work = || {
                let cpu = HostClock.thread_cpu();
                while clock.now() - start < 400 * MS {
                    let _turn = gate.enter();
                    let until = HostClock.thread_cpu() + 2 * MS;
                    while HostClock.thread_cpu() < until {}
                }
                HostClock.thread_cpu() - cpu
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        let allowed = (clock.now() - start).mul_f64(0.5) + 50 * MS + 2 * 3 * MS + 20 * MS;
        assert!(used <= allowed, "{used:?} of CPU used, {allowed:?} allowed");
        assert!(used >= 20 * MS, "only {used:?} of CPU used");
    }
}
