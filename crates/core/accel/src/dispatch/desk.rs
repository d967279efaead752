//! The desk where parcels change hands: workers put them, pullers lend them to a device, finishers take them.
//!
//! A parcel has two parts: the *kept* part (everything needed to do the work again) and the *job* that goes to the
//! device. While a call is open, the desk holds the kept part. It goes to the finishers as soon as the call returns,
//! the watchdog gives the call up, or a hedge takes the block back; whichever of the three comes later finds it gone.
//!
//! Invariants
//! - Every parcel that was put is finished exactly once, unless the desk is aborted.
//! - A lent job comes back only through its own call. If that call was given up, the job is dropped when the call
//!   returns, if ever: nobody reuses a buffer that a device may still write into.
//! - Finishers get the smallest sequence available.
//! - Finishers end when the last parcel is finished and no more can come.
//!
//! Leaves to others: which blocks are admitted (`mod.rs`), calls of the engine (`lane.rs`), and checking results
//! (`finisher.rs`).
//!
//! There is one lock. The desk is the only core of the dispatcher that threads share, and small enough to be checked
//! in every interleaving (`tests/desk_interleavings.rs`); that is why its locks come from `super::sync`.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard};

/// How the desk informs the kept part. The tests in `notice_contract.rs` check what the part owes, and
/// `tests/desk_interleavings.rs` what the desk does.
pub trait DeskNotice {
    /// The device no longer holds the parcel's bytes, or nobody waits for the device now: the part releases what counts for
    /// the device's memory. Called at most once for each parcel, with the desk locked, so it must neither block nor
    /// call the desk.
    fn returned(&mut self);
}

/// Work for one device's lane.
pub struct Parcel<K, J> {
    /// Unique among the present parcels.
    pub sequence: u64,
    pub bytes: u64,
    pub kept: K,
    pub job: J,
}

/// Why a parcel's work is not done yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDone<F> {
    /// The engine reported a fault, or broke its promise.
    Fault(F),
    /// The call was given up.
    Hung,
    /// The parcel blocked the writer for too long.
    Hedged,
    /// Its lane went out of service before its turn.
    Flushed,
    /// A finisher without other work took it.
    Stolen,
}

/// A parcel on its way to a finisher.
pub struct FinishedParcel<K, J, F> {
    pub sequence: u64,
    pub kept: K,
    /// `None`: a device may still hold it.
    pub job: Option<J>,
    /// `None`: the job is done.
    pub undone: Option<NotDone<F>>,
}

/// Identifies an open call; no two calls have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(u64);

/// The result of [`Desk::pull`].
pub enum PullResult<J> {
    Batch(Generation, Vec<J>),
    /// Nothing for now.
    Nothing,
    /// No more parcels will come.
    Ended,
}

/// Whether the call was still open when it returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnState {
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
    finished: BTreeMap<u64, FinishedParcel<K, J, F>>,
    next_generation: u64,
    ended: bool,
    aborted: bool,
    /// For each lane: idle finishers may steal waiting parcels beyond this many bytes.
    steal_above: Vec<u64>,
}

/// See the module's head.
pub struct Desk<K, J, F> {
    state: Mutex<State<K, J, F>>,
    /// One for each lane.
    to_pull: Vec<Condvar>,
    to_finish: Condvar,
}

impl<K: DeskNotice, J, F: Copy> Desk<K, J, F> {
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
        // A panic elsewhere leaves the state consistent: every change below is made in one step.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Queues a parcel for a lane. `enough_bytes`: a puller is woken when that many bytes wait.
    pub fn put(&self, lane: usize, parcel: Parcel<K, J>, enough_bytes: u64) {
        let mut state = self.state();
        let queue = &mut state.queues[lane];
        queue.bytes += parcel.bytes;
        queue.parcels.push_back(parcel);
        if queue.bytes >= enough_bytes {
            self.to_pull[lane].notify_one();
        }
    }

    /// Opens a call with the next batch: at least `batch.start` bytes, or less after `patience` or at the end; never
    /// more than `batch.end`, except for one job that alone is larger. `now_us` is called when the call opens.
    pub fn pull(
        &self,
        lane: usize,
        batch: Range<u64>,
        patience: Duration,
        now_us: impl Fn() -> u64,
    ) -> PullResult<J> {
        let mut state = self.state();
        let mut waited = false;
        loop {
            let queue = &state.queues[lane];
            let empty = queue.parcels.is_empty();
            if state.aborted || (state.ended && empty) {
                return PullResult::Ended;
            }
            if queue.bytes >= batch.start.max(1) || (!empty && (state.ended || waited)) {
                break;
            }
            if waited {
                return PullResult::Nothing;
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
        PullResult::Batch(generation, jobs)
    }

    /// Pauses a puller whose lane is out of service; false if no more parcels will come.
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

    /// Opens a call without jobs, so that the watchdog sees it too.
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

    /// Takes back the jobs of a call that returned, each with its sequence and its fault, if any. A job that the call
    /// should have returned and did not is undone with `missing`; a job that does not belong to the call is dropped.
    pub fn give_back(
        &self,
        generation: Generation,
        jobs: Vec<(u64, J, Option<NotDone<F>>)>,
        missing: F,
    ) -> ReturnState {
        let mut came: BTreeMap<u64, (J, Option<NotDone<F>>)> =
            jobs.into_iter().map(|(s, j, u)| (s, (j, u))).collect();
        let mut state = self.state();
        let Some(call) = state.calls.remove(&generation) else {
            state.lost.remove(&generation);
            return ReturnState::Late;
        };
        for (sequence, kept) in call.slots {
            let job = came.remove(&sequence);
            let Some(mut kept) = kept else { continue };
            kept.returned();
            let (job, undone) = match job {
                Some((job, undone)) => (Some(job), undone),
                None => (None, Some(NotDone::Fault(missing))),
            };
            let finished = FinishedParcel {
                sequence,
                kept,
                job,
                undone,
            };
            state.finished.insert(sequence, finished);
        }
        self.to_finish.notify_all();
        ReturnState::InTime
    }

    /// Gives up every open call for which `is_overdue(lane, started_us, jobs)`; returns the lanes that lost a call,
    /// one entry for each.
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
                let finished = FinishedParcel {
                    sequence,
                    kept,
                    job: None,
                    undone: Some(NotDone::Hung),
                };
                state.finished.insert(sequence, finished);
            }
        }
        self.to_finish.notify_all();
        lanes
    }

    /// Takes one parcel away from its lane or its device, to be done at once. False if neither has it.
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
        let finished = FinishedParcel {
            sequence,
            kept,
            job,
            undone: Some(NotDone::Hedged),
        };
        state.finished.insert(sequence, finished);
        self.to_finish.notify_all();
        true
    }

    /// Moves the parcels that wait for this lane to the finishers.
    pub fn flush(&self, lane: usize) {
        let mut state = self.state();
        state.queues[lane].bytes = 0;
        let parcels = std::mem::take(&mut state.queues[lane].parcels);
        for mut parcel in parcels {
            parcel.kept.returned();
            let finished = FinishedParcel {
                sequence: parcel.sequence,
                kept: parcel.kept,
                job: Some(parcel.job),
                undone: Some(NotDone::Flushed),
            };
            state.finished.insert(parcel.sequence, finished);
        }
        self.to_finish.notify_all();
    }

    /// The next parcel to be finished; waits for one. `None` if there will be none.
    pub fn finish(&self) -> Option<FinishedParcel<K, J, F>> {
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
                    // The other finishers wait for the same event.
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
    pub fn try_finish(&self) -> Option<FinishedParcel<K, J, F>> {
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

    /// Takes back a parcel that a finisher cannot finish now.
    pub fn put_back(&self, finished: FinishedParcel<K, J, F>) {
        self.state().finished.insert(finished.sequence, finished);
        self.to_finish.notify_one();
    }

    /// Declares that no more parcels will be put. Idle finishers may take a lane's waiting parcels beyond that many
    /// bytes.
    pub fn end(&self, steal_above: Vec<u64>) {
        let mut state = self.state();
        state.ended = true;
        state.steal_above = steal_above;
        self.wake_all();
    }

    /// Ends all threads as soon as possible; the remaining parcels are dropped.
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

/// Takes the last parcel of a long queue: the device goes on from the front.
fn steal<K: DeskNotice, J, F>(state: &mut State<K, J, F>) -> Option<FinishedParcel<K, J, F>> {
    let mut queues = state.queues.iter_mut().zip(&state.steal_above);
    let (queue, _) = queues.find(|(queue, above)| queue.bytes > **above)?;
    let mut parcel = queue.parcels.pop_back()?;
    queue.bytes -= parcel.bytes;
    parcel.kept.returned();
    Some(FinishedParcel {
        sequence: parcel.sequence,
        kept: parcel.kept,
        job: Some(parcel.job),
        undone: Some(NotDone::Stolen),
    })
}
