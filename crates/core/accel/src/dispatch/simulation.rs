//! The dispatcher's own decisions (admission, desk, lanes, guard, watchdog, hedge) on a simulated clock, without
//! threads: cores, the device and its calls are events. Only durations are simulated, so a run is exact and
//! repeatable. Every run checks that each block is finished once and written once.
//!
//! Not covered: memory bandwidth that cores and the device share, and slow stripes.
//!
//! Invariants
//! - Each block is finished at most once, and the run ends only when each was finished and written.
//! - Where the order counts, blocks are written in it. A buffer that the device still holds is free only when the call
//!   returns.
//! - A call that is slow and does not hang is never given up: the run panics if the watchdog does that.
//!
//! Leaves to others: threads, real calls and real bytes (`threads.rs`); the engines' own contract (`contract.rs`); the
//! runs with a device that dies, and the comparisons with software (`simulation/death.rs`, `simulation/hybrid.rs`).

mod death;
mod hybrid;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use longshore_codec::{Algorithm, Level};
use longshore_io::{Buffer, Pool, SimClock};

use super::desk::{NotDone, PullResult};
use super::inner::{Inner, ParcelRest};
use super::lane::Lane;
use super::{Admission, AdmitRight, Before, InService, Mode, Terms, Verify};
use crate::{Caps, Engine, EngineState, Fault, Health, Job, Outcome, Task};

const BLOCK: u64 = 1 << 20;

/// A device and a machine. Times in microseconds.
#[derive(Debug, Clone, Copy)]
struct World {
    cores: usize,
    /// To compress a block on one core.
    compress_us: u64,
    /// To read and checksum a block, and to check and seal one that comes back.
    feed_us: u64,
    seal_us: u64,
    /// The device's rate in blocks per second, all calls together.
    device_per_s: f64,
    latency_us: u64,
    calls: usize,
    /// Blocks of a batch.
    batch: u64,
    blocks: u64,
    in_sequence: bool,
    fate: Fate,
    hang_bound_us: u64,
}

/// An event of the device, and its time. Microseconds since the start.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Lives,
    /// Calls and self-tests report failure.
    Fails {
        from_us: u64,
        until_us: u64,
    },
    /// Calls do not return, including those in flight; neither do self-tests.
    Hangs {
        from_us: u64,
        until_us: u64,
    },
}

impl Fate {
    fn fails(self, at_us: u64) -> bool {
        matches!(self, Fate::Fails { from_us, until_us } if (from_us..until_us).contains(&at_us))
    }

    fn hangs(self, at_us: u64) -> bool {
        matches!(self, Fate::Hangs { from_us, until_us } if (from_us..until_us).contains(&at_us))
    }
}

impl World {
    /// A machine with two cores that compresses 300 blocks a second, and a device `speed` times as fast.
    fn with_device(speed: f64, latency_us: u64, calls: usize, batch: u64) -> World {
        let world = World {
            cores: 2,
            compress_us: 6_200,
            feed_us: 350,
            seal_us: 120,
            device_per_s: 0.0,
            latency_us,
            calls,
            batch,
            blocks: 0,
            in_sequence: true,
            fate: Fate::Lives,
            hang_bound_us: 5_000_000,
        };
        world.with_speed(speed)
    }

    /// Runs of ten seconds: measurements of the first tenth must pay off within them.
    fn with_speed(self, speed: f64) -> World {
        let device_per_s = speed * self.software_per_s();
        let fed_per_s = self.cores as f64 * 1e6 / (self.feed_us + self.seal_us) as f64;
        let better_per_s = self.software_per_s().max(device_per_s.min(fed_per_s));
        World {
            device_per_s,
            blocks: (10.0 * better_per_s) as u64,
            ..self
        }
    }

    fn software_per_s(&self) -> f64 {
        self.cores as f64 * 1e6 / (self.compress_us + self.feed_us) as f64
    }

    /// Seconds that the CPUs alone would take.
    fn software_s(&self) -> f64 {
        self.blocks.div_ceil(self.cores as u64) as f64 * (self.compress_us + self.feed_us) as f64
            / 1e6
    }
}

/// An engine of which only the capabilities are used.
struct Shape(Caps);

impl Engine for Shape {
    fn caps(&self) -> &Caps {
        &self.0
    }
    fn health(&self) -> Health {
        Health::of(EngineState::Ready)
    }
    /// Leaves everything to software.
    fn run(&self, mut batch: Vec<Job>) -> Vec<Job> {
        for job in &mut batch {
            job.outcome = Outcome::Recompute(Fault::Busy);
        }
        batch
    }
    fn self_test(&self) -> Health {
        self.health()
    }
}

impl Shape {
    fn of(calls_max: usize, batch: u64) -> Shape {
        Shape(Caps {
            name: "simulated",
            algorithm: Algorithm::QatDeflate,
            accelerator: true,
            decompresses: false,
            input_bytes_max: 4 << 20,
            calls_max,
            batch_bytes: (batch * BLOCK) as usize..(2 * batch * BLOCK) as usize,
            staging_bytes: 0,
        })
    }
}

/// It keeps the contract of all engines, and does nothing.
#[test]
fn an_engine_without_a_device_leaves_all_work_to_software() {
    use crate::contract::{compression_jobs, engine_contract, gunzip};
    let jobs = compression_jobs(Algorithm::QatDeflate, &[1, 5000]);
    assert_eq!(engine_contract(&Shape::of(1, 4), jobs, gunzip), 0);
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A core has read a block.
    Fed(u64),
    /// A core has compressed it.
    Compressed(u64),
    /// A core has done a block that the device did not do.
    Redone(u64),
    /// A core has checked and sealed a block that the device did.
    Sealed(u64),
    /// A call has returned.
    Returned(usize),
    /// Part of a batch has waited for the rest.
    Patience,
    /// The dispatcher's tick.
    Look,
}

struct Call {
    generation: super::desk::Generation,
    jobs: Vec<Job>,
    began_us: u64,
    delivered_before: u64,
    /// The call will never return.
    hangs: bool,
}

struct Simulation {
    world: World,
    clock: Arc<SimClock>,
    accelerator: Arc<InService>,
    inner: Inner<()>,
    memory: Pool,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    cores_free: usize,
    calls: Vec<Option<Call>>,
    device_until_us: f64,
    part_since_us: Option<u64>,
    next: u64,
    buffers_free: u64,
    /// Read, and waiting for room at the device.
    parked: VecDeque<u64>,
    /// Ready, and waiting for the next block to be written.
    ready: BTreeSet<u64>,
    /// In calls; and those of them that were written meanwhile: the device still holds their buffers.
    held: BTreeSet<u64>,
    written_held: BTreeSet<u64>,
    finished: BTreeSet<u64>,
    written: u64,
    ran: Ran,
    by_device: u64,
    ended: bool,
}

/// The duration of a run, and the share of blocks that the device did.
#[derive(Default)]
struct Ran {
    seconds: f64,
    device_share: f64,
    /// When each block was written, in microseconds.
    written_us: Vec<u64>,
    /// When the device went out of service, and came back.
    lost_us: Vec<u64>,
    back_us: Vec<u64>,
    /// The time that each call had taken when it was given up.
    given_up_after_us: Vec<u64>,
}

impl Ran {
    /// Blocks written per second in this period.
    fn rate(&self, from_us: u64, until_us: u64) -> f64 {
        let within = |at: &&u64| (from_us..until_us).contains(*at);
        let blocks = self.written_us.iter().filter(within).count();
        blocks as f64 * 1e6 / (until_us - from_us) as f64
    }
}

fn simulate(world: World, mode: Mode) -> Ran {
    let clock = Arc::new(SimClock::new(0));
    let shape = Shape::of(world.calls, world.batch);
    let accelerator = InService::new(Arc::new(shape));
    // As the pipeline sizes its pools.
    let busy = accelerator.buffers_busy(mode, BLOCK as usize, world.cores) as u64;
    let own = 2 * world.cores as u64 + 3;
    let buffers = match mode {
        Mode::Hardware => own + busy,
        Mode::Hybrid => own + 2 * busy,
    };
    let terms = Terms {
        algorithm: Algorithm::QatDeflate,
        mode,
        verify: Verify::Sample,
        hang_bound: Duration::from_micros(world.hang_bound_us),
        buffer_bytes: BLOCK as usize,
        allowance_buffers: match mode {
            Mode::Hardware => busy as usize,
            Mode::Hybrid => 2 * busy as usize,
        },
        cpus: world.cores,
        slack_bytes: world.in_sequence.then_some((buffers - busy) * BLOCK),
    };
    let inner = Inner::new(slice::from_ref(&accelerator), terms, clock.clone()).expect("it serves");
    Simulation {
        accelerator,
        clock,
        inner,
        memory: Pool::new(2 * buffers as usize + 2, 4096).expect("a few pages"),
        events: BinaryHeap::new(),
        cores_free: world.cores,
        calls: (0..world.calls).map(|_| None).collect(),
        device_until_us: 0.0,
        part_since_us: None,
        next: 0,
        buffers_free: buffers,
        parked: VecDeque::new(),
        ready: BTreeSet::new(),
        held: BTreeSet::new(),
        written_held: BTreeSet::new(),
        finished: BTreeSet::new(),
        written: 0,
        ran: Ran::default(),
        by_device: 0,
        ended: false,
        world,
    }
    .run()
}

impl Simulation {
    fn run(mut self) -> Ran {
        self.after(100_000, Event::Look);
        while self.written < self.world.blocks {
            self.pull();
            self.occupy_cores();
            let Reverse((at_us, event)) = self.events.pop().expect("somebody works");
            let now = Duration::from_micros(at_us);
            let passed = now.saturating_sub(longshore_io::Clock::now(&*self.clock));
            self.clock.advance(passed);
            self.happened(event);
        }
        assert_eq!(self.finished.len() as u64, self.world.blocks);
        Ran {
            seconds: self.now_us() as f64 / 1e6,
            device_share: self.by_device as f64 / self.world.blocks as f64,
            ..self.ran
        }
    }

    fn now_us(&self) -> u64 {
        self.inner.now_us()
    }

    fn lane(&self) -> &Lane {
        &self.inner.lanes[0]
    }

    fn after(&mut self, us: u64, event: Event) {
        self.events.push(Reverse((self.now_us() + us, event)));
    }

    /// Free cores finish blocks first, then offer parked blocks, then read.
    fn occupy_cores(&mut self) {
        while self.cores_free > 0 {
            if let Some(finished) = self.inner.desk.try_finish() {
                self.cores_free -= 1;
                match finished.undone {
                    None => self.after(self.world.seal_us, Event::Sealed(finished.sequence)),
                    Some(_) => {
                        self.after(self.world.compress_us, Event::Redone(finished.sequence));
                    }
                }
                continue;
            }
            if let Some(sequence) = self.parked.pop_front() {
                self.cores_free -= 1;
                if self.decide(sequence) {
                    continue;
                }
                break;
            }
            if self.next < self.world.blocks && self.buffers_free > 0 {
                self.buffers_free -= 1;
                self.cores_free -= 1;
                self.after(self.world.feed_us, Event::Fed(self.next));
                self.next += 1;
                continue;
            }
            break;
        }
        if self.next == self.world.blocks && !self.ended && self.parked.is_empty() {
            // The last block may still be in flight to the desk; then this code runs again.
            let feeding = self.events.iter().any(|e| matches!(e.0.1, Event::Fed(_)));
            if !feeding {
                self.ended = true;
                self.inner.end();
                self.occupy_cores();
            }
        }
    }

    /// Decides on a block that a core has read: to the device, to the core itself, or aside. False: it was put aside.
    fn decide(&mut self, sequence: u64) -> bool {
        let remaining = (self.world.blocks - self.next) * BLOCK;
        match self.inner.admit(BLOCK, Some(remaining)) {
            Admission::Yes(admitted) => {
                self.cores_free += 1;
                self.put(sequence, admitted);
                true
            }
            Admission::No => {
                self.after(self.world.compress_us, Event::Compressed(sequence));
                let did = Duration::from_micros(self.world.compress_us);
                self.inner.software_did(BLOCK, did);
                true
            }
            Admission::Full => {
                self.cores_free += 1;
                self.parked.push_front(sequence);
                false
            }
        }
    }

    fn buffer(&self) -> Buffer {
        self.memory.try_take().expect("two for each block")
    }

    fn put(&self, sequence: u64, admitted: AdmitRight) {
        let input = Arc::new(self.buffer());
        let task = Task::Compress { level: Level::Low };
        let job = Job {
            sequence,
            task,
            input: input.clone(),
            input_range: 0..1,
            output: self.buffer(),
            output_range: 0..1,
            outcome: Outcome::Pending,
        };
        let kept = ParcelRest {
            lane: 0,
            permit: Some(admitted.permit),
            task,
            input,
            input_range: 0..1,
            output_range: 0..1,
            before: Before::Unknown,
            tag: (),
        };
        let parcel = super::Parcel {
            sequence,
            bytes: BLOCK,
            kept,
            job,
        };
        self.inner.desk.put(0, parcel, u64::MAX);
    }

    /// Idle calls take batches, a partial one after a while, as lanes do. A call that finds the lane out of service
    /// tests it.
    fn pull(&mut self) {
        for number in 0..self.calls.len() {
            if self.calls[number].is_some() {
                continue;
            }
            if !self.lane().is_ready() {
                self.inner.desk.flush(0);
                self.probe(number);
                continue;
            }
            let waiting = self.inner.desk.queued_bytes(0);
            if waiting == 0 {
                continue;
            }
            let batch = self.lane().batch();
            let now_us = self.now_us();
            if waiting < batch.start && !self.ended {
                let patience_us = self.lane().patience().as_micros() as u64;
                let Some(since_us) = self.part_since_us else {
                    self.part_since_us = Some(now_us);
                    self.after(patience_us, Event::Patience);
                    continue;
                };
                if now_us < since_us + patience_us {
                    continue;
                }
            }
            self.part_since_us = None;
            let delivered_before = self.lane().delivered_bytes();
            let pulled = self.inner.desk.pull(0, batch, Duration::ZERO, || now_us);
            let PullResult::Batch(generation, jobs) = pulled else {
                continue;
            };
            self.held.extend(jobs.iter().map(|job| job.sequence));
            let transfer_us = jobs.len() as f64 * 1e6 / self.world.device_per_s;
            self.device_until_us = self.device_until_us.max(now_us as f64) + transfer_us;
            let until_us = self.device_until_us as u64 + self.world.latency_us;
            let hangs = match self.world.fate {
                Fate::Hangs {
                    from_us,
                    until_us: end,
                } => until_us >= from_us && now_us < end,
                _ => false,
            };
            self.calls[number] = Some(Call {
                generation,
                jobs,
                began_us: now_us,
                delivered_before,
                hangs,
            });
            if !hangs {
                self.after(until_us.saturating_sub(now_us), Event::Returned(number));
            }
        }
    }

    fn probe(&mut self, number: usize) {
        let (now_us, now) = (self.now_us(), longshore_io::Clock::now(&*self.clock));
        let accelerator = self.accelerator.clone();
        if !accelerator.known().standing.take_probe(now) {
            return;
        }
        if self.world.fate.hangs(now_us) {
            self.calls[number] = Some(Call {
                generation: self.inner.desk.open(0, now_us),
                jobs: Vec::new(),
                began_us: now_us,
                delivered_before: 0,
                hangs: true,
            });
            return;
        }
        let state = match self.world.fate.fails(now_us) {
            true => EngineState::Suspended,
            false => EngineState::Ready,
        };
        let health = Health {
            state,
            ..accelerator.engine().health()
        };
        accelerator.known().standing.probed(now, &health);
        self.note_standing();
    }

    /// Notes when the device goes out of service and comes back.
    fn note_standing(&mut self) {
        let out = self.ran.lost_us.len() > self.ran.back_us.len();
        let (ready, now_us) = (self.lane().is_ready(), self.now_us());
        match (out, ready) {
            (false, false) => self.ran.lost_us.push(now_us),
            (true, true) => self.ran.back_us.push(now_us),
            _ => {}
        }
    }

    /// The watchdog's work, ten times a second.
    fn look(&mut self) {
        let now = longshore_io::Clock::now(&*self.clock);
        for _ in self.inner.give_up(now) {
            let hung = self.calls.iter().enumerate();
            let hung =
                hung.filter_map(|(i, call)| Some((call.as_ref().filter(|c| c.hangs)?.began_us, i)));
            let (began_us, number) = hung
                .min()
                .unwrap_or_else(|| panic!("a call is slow and given up: {:?}", self.world));
            let call = self.calls[number].take().expect("it is there");
            if !call.jobs.is_empty() {
                self.ran.given_up_after_us.push(self.now_us() - began_us);
            }
        }
        self.note_standing();
        self.inner.tick_lanes();
        let blocked = self.world.in_sequence && !self.ready.is_empty();
        self.inner.hedge(now, blocked.then_some(self.written));
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Look => {
                self.look();
                self.after(100_000, Event::Look);
            }
            Event::Patience => {}
            Event::Fed(sequence) => {
                let took = Duration::from_micros(self.world.feed_us);
                self.inner.fed.add(BLOCK, took);
                self.decide(sequence);
            }
            Event::Compressed(sequence) => {
                self.cores_free += 1;
                self.finish(sequence);
            }
            Event::Redone(sequence) => {
                self.cores_free += 1;
                self.inner.progressed(BLOCK as usize);
                self.finish(sequence);
            }
            Event::Sealed(sequence) => {
                self.cores_free += 1;
                self.by_device += 1;
                let took = Duration::from_micros(self.world.seal_us);
                self.inner.fed.add(0, took);
                self.inner.progressed(BLOCK as usize);
                self.finish(sequence);
            }
            Event::Returned(number) => self.returned(number),
        }
    }

    fn returned(&mut self, number: usize) {
        let Some(call) = self.calls[number].take() else {
            return;
        };
        let now_us = self.now_us();
        for job in &call.jobs {
            self.held.remove(&job.sequence);
            self.buffers_free += u64::from(self.written_held.remove(&job.sequence));
        }
        let fault = Fault::Device { code: -2 };
        let failed = self.world.fate.fails(now_us).then_some(fault);
        match failed {
            Some(fault) => self.lane().fault(Duration::from_micros(now_us), fault),
            None => {
                let bytes = call.jobs.len() as u64 * BLOCK;
                let times = (call.began_us, now_us);
                self.lane().learn(bytes, times, call.delivered_before);
                self.inner.set_limit(0);
            }
        }
        self.note_standing();
        let undone = failed.map(NotDone::Fault);
        let jobs = call.jobs.into_iter().map(|job| (job.sequence, job, undone));
        let jobs = jobs.collect();
        self.inner
            .desk
            .give_back(call.generation, jobs, Fault::Down);
    }

    fn finish(&mut self, sequence: u64) {
        assert!(
            self.finished.insert(sequence),
            "block {sequence} is finished twice"
        );
        if !self.world.in_sequence {
            self.write(sequence);
            return;
        }
        self.ready.insert(sequence);
        while self.ready.remove(&self.written) {
            self.write(self.written);
        }
    }

    fn write(&mut self, sequence: u64) {
        self.written += 1;
        self.ran.written_us.push(self.now_us());
        match self.held.contains(&sequence) {
            true => drop(self.written_held.insert(sequence)),
            false => self.buffers_free += 1,
        }
    }
}
