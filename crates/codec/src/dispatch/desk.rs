//! The desk where parcels change hands: workers put them, pullers lend them to a device, finishers take them.
//!
//! A parcel is what its owner *keeps* (everything needed to do the work again) and the *job* that goes to the device.
//! While a call is open, the desk holds what was kept. Whoever comes first, the call that returns, the watchdog
//! that gives it up, or the hedge that will not wait for it, moves what was kept to the finishers; the others find
//! it gone.
//!
//! Invariants
//! - Every parcel that was put is finished exactly once, unless the desk is aborted.
//! - A job that was lent comes back only through its own call. If that call was given up, the job is dropped when it
//!   returns, if ever: nobody reuses a buffer that a device may still write into.
//! - Finishers get the smallest sequence there is.
//! - Finishers end when the last parcel is finished and no more can come.
//!
//! One lock. The only core of the dispatcher that threads share, small enough to be checked in every interleaving
//! (`tests/desk_interleavings.rs`); that is why its locks come from `super::sync`.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard};

/// What the desk needs to know of what it keeps.
pub trait Lent {
    /// The device does not hold the parcel's bytes any more, or nobody counts on it.
    fn returned(&mut self);
}

/// Work for one device's lane.
pub struct Parcel<K, J> {
    /// Unique among the parcels there are.
    pub sequence: u64,
    pub bytes: u64,
    pub kept: K,
    pub job: J,
}

/// Why a parcel's work is still to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone<F> {
    /// The engine said so, or broke its promise.
    Fault(F),
    /// The call was given up.
    Hung,
    /// It blocked the writer for too long.
    Hedged,
    /// Its lane went out of service before its turn.
    Flushed,
    /// The others had nothing left to do.
    Stolen,
}

/// A parcel on its way to whoever finishes it.
pub struct Finished<K, J, F> {
    pub sequence: u64,
    pub kept: K,
    /// `None`: a device may still hold it.
    pub job: Option<J>,
    /// `None`: the job is done.
    pub undone: Option<Undone<F>>,
}

/// An open call; no two calls have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(u64);

/// What [`Desk::pull`] found.
pub enum Pulled<J> {
    Batch(Generation, Vec<J>),
    /// Not now.
    Nothing,
    /// Nothing will come any more.
    Ended,
}

/// Whether anybody still waited for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returned {
    InTime,
    Late,
}

struct Call<K> {
    lane: usize,
    started_us: u64,
    slots: Vec<(u64, Option<K>)>,
}

struct Queue<K, J> {
    parcels: VecDeque<Parcel<K, J>>,
    bytes: u64,
}

struct State<K, J, F> {
    queues: Vec<Queue<K, J>>,
    calls: BTreeMap<Generation, Call<K>>,
    /// Calls that were given up: their lane and how many jobs they hold.
    lost: BTreeMap<Generation, (usize, usize)>,
    finished: BTreeMap<u64, Finished<K, J, F>>,
    next_generation: u64,
    ended: bool,
    aborted: bool,
    /// For each lane: finishers without work may take what waits beyond so many bytes.
    steal_above: Vec<u64>,
}

/// See the module's head.
pub struct Desk<K, J, F> {
    state: Mutex<State<K, J, F>>,
    /// One for each lane.
    to_pull: Vec<Condvar>,
    to_finish: Condvar,
}

impl<K: Lent, J, F: Copy> Desk<K, J, F> {
    pub fn new(lanes: usize) -> Desk<K, J, F> {
        let queue = |_| Queue {
            parcels: VecDeque::new(),
            bytes: 0,
        };
        let state = State {
            queues: (0..lanes).map(queue).collect(),
            calls: BTreeMap::new(),
            lost: BTreeMap::new(),
            finished: BTreeMap::new(),
            next_generation: 0,
            ended: false,
            aborted: false,
            steal_above: vec![u64::MAX; lanes],
        };
        Desk {
            state: Mutex::new(state),
            to_pull: (0..lanes).map(|_| Condvar::new()).collect(),
            to_finish: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<K, J, F>> {
        // A panic elsewhere leaves the state as it was: every change below is made in one step.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Queues a parcel for a lane. `enough_bytes`: a puller is woken when so much waits.
    pub fn put(&self, lane: usize, parcel: Parcel<K, J>, enough_bytes: u64) {
        let mut state = self.state();
        let queue = &mut state.queues[lane];
        queue.bytes += parcel.bytes;
        queue.parcels.push_back(parcel);
        if queue.bytes >= enough_bytes {
            self.to_pull[lane].notify_one();
        }
    }

    /// Opens a call with the next batch: at least `batch.start` bytes, or what there is after `patience`, or at the
    /// end; never more than `batch.end` unless one job alone is. `now_us` is asked when the call opens.
    pub fn pull(
        &self,
        lane: usize,
        batch: Range<u64>,
        patience: Duration,
        now_us: impl Fn() -> u64,
    ) -> Pulled<J> {
        let mut state = self.state();
        let mut waited = false;
        loop {
            let queue = &state.queues[lane];
            let empty = queue.parcels.is_empty();
            if state.aborted || (state.ended && empty) {
                return Pulled::Ended;
            }
            if queue.bytes >= batch.start.max(1) || (!empty && (state.ended || waited)) {
                break;
            }
            if waited {
                return Pulled::Nothing;
            }
            let (again, timeout) = self.to_pull[lane]
                .wait_timeout(state, patience)
                .unwrap_or_else(|e| e.into_inner());
            state = again;
            waited = timeout.timed_out();
        }
        let generation = Generation(state.next_generation);
        state.next_generation += 1;
        let queue = &mut state.queues[lane];
        let mut jobs = Vec::new();
        let mut call = Call {
            lane,
            started_us: now_us(),
            slots: Vec::new(),
        };
        let mut bytes = 0;
        while let Some(next) = queue.parcels.front() {
            if bytes > 0 && bytes + next.bytes > batch.end {
                break;
            }
            bytes += next.bytes;
            if let Some(parcel) = queue.parcels.pop_front() {
                call.slots.push((parcel.sequence, Some(parcel.kept)));
                jobs.push(parcel.job);
            }
        }
        queue.bytes -= bytes;
        if !queue.parcels.is_empty() {
            self.to_pull[lane].notify_one();
        }
        state.calls.insert(generation, call);
        Pulled::Batch(generation, jobs)
    }

    /// A pause of a puller whose lane is out of service; false when nothing will come any more.
    pub fn rest(&self, lane: usize, nap: Duration) -> bool {
        let state = self.state();
        let over = |state: &State<K, J, F>| {
            state.aborted || (state.ended && state.queues[lane].parcels.is_empty())
        };
        if over(&state) {
            return false;
        }
        let waited = self.to_pull[lane].wait_timeout(state, nap);
        let (state, _) = waited.unwrap_or_else(|e| e.into_inner());
        !over(&state)
    }

    /// A call that carries no jobs, so that the watchdog sees it too.
    pub fn open(&self, lane: usize, now_us: u64) -> Generation {
        let mut state = self.state();
        let generation = Generation(state.next_generation);
        state.next_generation += 1;
        let call = Call {
            lane,
            started_us: now_us,
            slots: Vec::new(),
        };
        state.calls.insert(generation, call);
        generation
    }

    /// A call has returned with these jobs, each with its sequence and what is left to do. What the call should have
    /// brought and did not is undone with `missing`; what it brought and should not have is dropped.
    pub fn give_back(
        &self,
        generation: Generation,
        jobs: Vec<(u64, J, Option<Undone<F>>)>,
        missing: F,
    ) -> Returned {
        let mut came: BTreeMap<u64, (J, Option<Undone<F>>)> =
            jobs.into_iter().map(|(s, j, u)| (s, (j, u))).collect();
        let mut state = self.state();
        let Some(call) = state.calls.remove(&generation) else {
            state.lost.remove(&generation);
            return Returned::Late;
        };
        for (sequence, kept) in call.slots {
            let job = came.remove(&sequence);
            let Some(mut kept) = kept else { continue };
            kept.returned();
            let (job, undone) = match job {
                Some((job, undone)) => (Some(job), undone),
                None => (None, Some(Undone::Fault(missing))),
            };
            let finished = Finished {
                sequence,
                kept,
                job,
                undone,
            };
            state.finished.insert(sequence, finished);
        }
        self.to_finish.notify_all();
        Returned::InTime
    }

    /// Gives up every open call for which `is_overdue(lane, started_us, jobs)`; says which lanes lost a call, once for
    /// each.
    pub fn abandon(&self, is_overdue: impl Fn(usize, u64, usize) -> bool) -> Vec<usize> {
        let mut state = self.state();
        let overdue: Vec<Generation> = state
            .calls
            .iter()
            .filter(|(_, call)| is_overdue(call.lane, call.started_us, call.slots.len()))
            .map(|(generation, _)| *generation)
            .collect();
        let mut lanes = Vec::new();
        for generation in overdue {
            let Some(call) = state.calls.remove(&generation) else {
                continue;
            };
            lanes.push(call.lane);
            state.lost.insert(generation, (call.lane, call.slots.len()));
            for (sequence, kept) in call.slots {
                let Some(mut kept) = kept else { continue };
                kept.returned();
                let finished = Finished {
                    sequence,
                    kept,
                    job: None,
                    undone: Some(Undone::Hung),
                };
                state.finished.insert(sequence, finished);
            }
        }
        self.to_finish.notify_all();
        lanes
    }

    /// Takes one parcel away from its lane or its device, to be done at once. False when it is with neither.
    pub fn hedge(&self, sequence: u64) -> bool {
        let mut state = self.state();
        let queued = state.queues.iter_mut().find_map(|queue| {
            let at = queue.parcels.iter().position(|p| p.sequence == sequence)?;
            let parcel = queue.parcels.remove(at)?;
            queue.bytes -= parcel.bytes;
            Some((parcel.kept, Some(parcel.job)))
        });
        let lent = || {
            let mut slots = state.calls.values_mut().flat_map(|call| &mut call.slots);
            let (_, kept) = slots.find(|(s, kept)| *s == sequence && kept.is_some())?;
            Some((kept.take()?, None))
        };
        let Some((mut kept, job)) = queued.or_else(lent) else {
            return false;
        };
        if job.is_some() {
            kept.returned();
        }
        let finished = Finished {
            sequence,
            kept,
            job,
            undone: Some(Undone::Hedged),
        };
        state.finished.insert(sequence, finished);
        self.to_finish.notify_all();
        true
    }

    /// What waits for this lane goes to the finishers.
    pub fn flush(&self, lane: usize) {
        let mut state = self.state();
        state.queues[lane].bytes = 0;
        let parcels = std::mem::take(&mut state.queues[lane].parcels);
        for mut parcel in parcels {
            parcel.kept.returned();
            let finished = Finished {
                sequence: parcel.sequence,
                kept: parcel.kept,
                job: Some(parcel.job),
                undone: Some(Undone::Flushed),
            };
            state.finished.insert(parcel.sequence, finished);
        }
        self.to_finish.notify_all();
    }

    /// The next parcel to be finished; waits for one. `None` when there will be none.
    pub fn finish(&self) -> Option<Finished<K, J, F>> {
        let mut state = self.state();
        loop {
            if state.aborted {
                return None;
            }
            if let Some((_, finished)) = state.finished.pop_first() {
                return Some(finished);
            }
            if state.ended {
                if let Some(stolen) = steal(&mut state) {
                    return Some(stolen);
                }
                let queued = state.queues.iter().any(|queue| !queue.parcels.is_empty());
                let mut slots = state.calls.values().flat_map(|call| &call.slots);
                if !queued && !slots.any(|(_, kept)| kept.is_some()) {
                    // The others wait for the same.
                    self.to_finish.notify_all();
                    return None;
                }
            }
            state = self
                .to_finish
                .wait(state)
                .unwrap_or_else(|e| e.into_inner());
        }
    }

    /// A parcel to be finished, if there is one now.
    pub fn try_finish(&self) -> Option<Finished<K, J, F>> {
        let mut state = self.state();
        if state.aborted {
            return None;
        }
        let first = state.finished.pop_first().map(|(_, finished)| finished);
        if first.is_some() || !state.ended {
            return first;
        }
        steal(&mut state)
    }

    /// A finisher cannot finish this one now.
    pub fn put_back(&self, finished: Finished<K, J, F>) {
        self.state().finished.insert(finished.sequence, finished);
        self.to_finish.notify_one();
    }

    /// No more parcels will be put. Finishers without work may take what waits for a lane beyond so many bytes.
    pub fn end(&self, steal_above: Vec<u64>) {
        let mut state = self.state();
        state.ended = true;
        state.steal_above = steal_above;
        self.wake_all();
    }

    /// Everybody ends as soon as possible; what is left is dropped.
    pub fn abort(&self) {
        let mut state = self.state();
        state.aborted = true;
        for queue in &mut state.queues {
            queue.parcels.clear();
            queue.bytes = 0;
        }
        state.finished.clear();
        for call in state.calls.values_mut() {
            call.slots.iter_mut().for_each(|slot| slot.1 = None);
        }
        self.wake_all();
    }

    fn wake_all(&self) {
        self.to_pull.iter().for_each(|pull| pull.notify_all());
        self.to_finish.notify_all();
    }

    /// Jobs of this lane in calls that were given up and have not returned.
    pub fn lost_jobs(&self, lane: usize) -> usize {
        let state = self.state();
        let lost = state.lost.values().filter(|(l, _)| *l == lane);
        lost.map(|(_, jobs)| jobs).sum()
    }

    /// Calls of this lane that were given up and have not returned.
    pub fn lost_calls(&self, lane: usize) -> usize {
        let state = self.state();
        state.lost.values().filter(|(l, _)| *l == lane).count()
    }

    /// Bytes that wait for this lane's device.
    pub fn queued_bytes(&self, lane: usize) -> u64 {
        self.state().queues[lane].bytes
    }
}

/// The last parcel of a queue that is long: the device goes on from the front.
fn steal<K: Lent, J, F>(state: &mut State<K, J, F>) -> Option<Finished<K, J, F>> {
    let mut queues = state.queues.iter_mut().zip(&state.steal_above);
    let (queue, _) = queues.find(|(queue, above)| queue.bytes > **above)?;
    let mut parcel = queue.parcels.pop_back()?;
    queue.bytes -= parcel.bytes;
    parcel.kept.returned();
    Some(Finished {
        sequence: parcel.sequence,
        kept: parcel.kept,
        job: Some(parcel.job),
        undone: Some(Undone::Stolen),
    })
}
