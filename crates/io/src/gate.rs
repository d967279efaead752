//! How many threads may compute at once, and how much CPU they may use: the ceiling of `--max-cpu`.
//!
//! A [`Gate`] lets as many threads in as it has places. With a ceiling it also keeps an account of
//! CPU time: CPU seconds arrive at the ceiling's rate, every [`Pass`] pays what its thread used by
//! the thread's own CPU clock, and nobody enters while the account is overdrawn. So the ceiling may
//! be a fraction, and waiting for a disk inside a pass costs nothing.
//!
//! A place that changes hands stands empty until its next owner has been woken, and its core with it. So who comes back
//! from a device ([`Gate::enter_from_wait`]) may be inside beside the others, up to half as many again: the next is
//! ready to run when somebody goes off to wait. Who never waits would only crowd the cores' caches and keeps to the
//! places.
//!
//! Invariants
//! - Passes of [`Gate::enter`] begin only while fewer exist than `places`; at most `places` and half as many exist at
//!   once.
//! - Over any span of `t` seconds, passes use at most `ceiling × t` CPU seconds, plus what was saved
//!   up (a tenth of a second's worth) and one pass's work for each that can exist: work is paid after it is
//!   done, for nobody knows its price before. Let a pass be short, one buffer or so.
//!
//! Places are handed over without order: a thread that comes back at once finds its data in the
//! cache. The account is served by sleeping, never by spinning.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;

/// Those who wait for the account look at the ceiling again this often.
const NAP: Duration = Duration::from_millis(100);

/// Unused CPU time is kept for this long.
const SAVED_S: f64 = 0.1;

/// Lets a limited number of threads compute, using a limited amount of CPU.
pub struct Gate {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    places: usize,
    /// Somebody left: for those who may only use the places, and for the others.
    left: Condvar,
    left_beside: Condvar,
}

struct State {
    inside: usize,
    /// CPUs that may be busy on average.
    ceiling: Option<f64>,
    /// CPU seconds that may still be used; below 0, nobody enters.
    account_s: f64,
    seen: Duration,
}

impl Gate {
    /// Lets `places` threads (at least 1) in at once. With a `ceiling`, together they keep at most
    /// so many CPUs busy on average: 0.5 is half of one. A ceiling that is not above 0 is none.
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
            left_beside: Condvar::new(),
        }
    }

    /// How many passes of a gate with so many places can exist at once.
    pub fn inside_max(places: usize) -> usize {
        let places = places.max(1);
        places + places.div_ceil(2)
    }

    /// Enters; waits for a place and for the account to be in credit.
    pub fn enter(&self) -> Pass<'_> {
        self.enter_below(self.places, &self.left)
    }

    /// Enters after waiting for a device, with other waits to come; waits only while all places are taken and half as
    /// many again, and for the account.
    pub fn enter_from_wait(&self) -> Pass<'_> {
        self.enter_below(Self::inside_max(self.places), &self.left_beside)
    }

    fn enter_below(&self, most: usize, left: &Condvar) -> Pass<'_> {
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
        self.pass(&mut state)
    }

    /// Enters if that needs no waiting.
    pub fn try_enter(&self) -> Option<Pass<'_>> {
        let mut state = self.state.lock();
        self.supply(&mut state);
        let overdrawn = state.ceiling.is_some() && state.account_s < 0.0;
        (state.inside < self.places && !overdrawn).then(|| self.pass(&mut state))
    }

    fn pass(&self, state: &mut State) -> Pass<'_> {
        state.inside += 1;
        Pass {
            gate: self,
            cpu_before: self.clock.thread_cpu(),
            stays_here: PhantomData,
        }
    }

    /// Charges CPU time that was used outside a pass, so that it counts towards the ceiling.
    pub fn charge(&self, cpu: Duration) {
        let mut state = self.state.lock();
        self.supply(&mut state);
        if state.ceiling.is_some() {
            state.account_s -= cpu.as_secs_f64();
        }
    }

    /// Changes the ceiling from now on; `None` lifts it and forgives all debts.
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
pub struct Pass<'a> {
    gate: &'a Gate,
    cpu_before: Duration,
    stays_here: PhantomData<*const ()>,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.gate
            .charge(self.gate.clock.thread_cpu().saturating_sub(self.cpu_before));
        let inside = {
            let mut state = self.gate.state.lock();
            state.inside -= 1;
            state.inside
        };
        self.gate.left_beside.notify_one();
        if inside < self.gate.places {
            self.gate.left.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{HostClock, SimClock};
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
                        let _pass = gate.enter();
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
    fn who_will_not_wait_is_let_in_only_while_there_is_a_place_and_credit() {
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
    fn who_comes_from_a_wait_may_be_inside_beside_the_places_and_no_others() {
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
                        let _pass = enter(&gate);
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
            let _pass = gate.enter();
            clock.compute(MS);
        }
        let elapsed = clock.now().as_secs_f64();
        // One second of work at half a CPU; the last pass is not waited for, 50 ms are saved up.
        assert!((1.9..=2.0).contains(&elapsed), "{elapsed} s");
    }

    #[test]
    fn waiting_inside_a_pass_costs_nothing() {
        let clock = Arc::new(SimClock::new(0));
        let gate = Gate::new(clock.clone(), 1, Some(0.1));
        for _ in 0..100 {
            let _pass = gate.enter();
            clock.advance(MS);
        }
        assert_eq!(clock.now(), 100 * MS);
    }

    #[test]
    fn work_charged_from_outside_delays_the_next_pass() {
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
                    let _pass = gate.enter();
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
