//! The threads that call an engine: each pulls a batch, calls, and gives the jobs back.
//!
//! Invariants
//! - A thread whose call was given up ends when the call returns; the lane has another by then.
//! - A panic of an engine's code ends the engine, not the run.
//!
//! Leaves to others: what a batch holds (`desk.rs`), and what a fault costs the device (`lane.rs`, `standing.rs`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::desk::{Generation, NotDone, PullResult, ReturnState};
use super::inner::Inner;
use super::lane::NAP;
use crate::{Fault, Job, Outcome};

/// Starts a thread that serves a lane until the run ends. Nobody joins the thread: it may hang in a call.
pub(super) fn spawn_puller<T: Send + 'static>(inner: &Arc<Inner<T>>, lane: usize) {
    let own = inner.clone();
    let name = format!("accel-{}", inner.lanes[lane].engine().caps().name);
    let spawned = std::thread::Builder::new()
        .name(name)
        .spawn(move || while serve(&own, lane) {});
    if let Err(error) = spawned {
        let reason = format!("no thread could be started for it: {error}");
        inner.lanes[lane].accelerator.known().standing.off(reason);
    }
}

/// One call, or a pause; false if this thread is no longer needed.
fn serve<T: Send + 'static>(inner: &Inner<T>, number: usize) -> bool {
    let lane = &inner.lanes[number];
    if !lane.is_ready() {
        inner.desk.flush(number);
        let now = inner.clock.now();
        if lane.accelerator.known().standing.take_probe(now) {
            return probe(inner, number);
        }
        return inner.desk.rest(number, NAP);
    }
    let delivered_before = lane.delivered_bytes();
    match inner
        .desk
        .pull(number, lane.batch(), lane.patience(), || inner.now_us())
    {
        PullResult::Ended => false,
        PullResult::Nothing => true,
        PullResult::Batch(generation, jobs) => {
            call(inner, number, generation, jobs, delivered_before)
        }
    }
}

fn probe<T: Send + 'static>(inner: &Inner<T>, number: usize) -> bool {
    let lane = &inner.lanes[number];
    let generation = inner.desk.open(number, inner.now_us());
    let health = catch_unwind(AssertUnwindSafe(|| lane.engine().self_test()));
    let returned = inner.desk.give_back(generation, Vec::new(), Fault::Down);
    if returned == ReturnState::Late {
        return false;
    }
    let mut known = lane.accelerator.known();
    match health {
        Ok(health) => known.standing.probed(inner.clock.now(), &health),
        Err(_) => known.standing.off("its self-test panicked".into()),
    }
    true
}

fn call<T: Send + 'static>(
    inner: &Inner<T>,
    number: usize,
    generation: Generation,
    jobs: Vec<Job>,
    delivered_before: u64,
) -> bool {
    let lane = &inner.lanes[number];
    let began_us = inner.now_us();
    let lent = jobs.len();
    let bytes: u64 = jobs.iter().map(|job| job.input_range.len() as u64).sum();
    let returned = catch_unwind(AssertUnwindSafe(|| lane.engine().run(jobs)));
    let now_us = inner.now_us();
    let now = inner.clock.now();
    let Ok(jobs) = returned else {
        let reason = "its code panicked; its buffers are lost".into();
        lane.accelerator.known().standing.off(reason);
        inner.desk.give_back(generation, Vec::new(), Fault::Down);
        return false;
    };
    let mut faults: Vec<Fault> = Vec::new();
    let jobs: Vec<_> = jobs
        .into_iter()
        .map(|job| {
            let fault = match job.outcome {
                Outcome::Done { .. } => None,
                Outcome::Recompute(fault) => Some(fault),
                // The engine broke its promise.
                Outcome::Pending => Some(Fault::Down),
            };
            faults.extend(fault);
            (job.sequence, job, fault.map(NotDone::Fault))
        })
        .collect();
    if jobs.len() != lent {
        faults.push(Fault::Down);
    }
    // The lane must be marked first: threads that learn of the fault must not find it ready.
    faults.iter().for_each(|fault| lane.fault(now, *fault));
    if faults.is_empty() {
        lane.learn(bytes, (began_us, now_us), delivered_before);
        inner.set_limit(number);
    }
    let returned = inner.desk.give_back(generation, jobs, Fault::Down);
    inner.room.1.notify_all();
    returned == ReturnState::InTime
}
