//! Backups with an accelerator: between a worker that has read a block and the writer that wants it, the block may
//! take another way, through `codec`'s dispatcher.
//!
//! A worker that has read a block offers it. If it is taken, the worker goes on reading; *finishers*, threads that
//! compute under the same gate as workers, check the accelerator's result or do the block again in software. If it
//! is refused, the worker compresses it itself, while it lies in its core's cache: the way of a backup that has no
//! accelerator at all, which none of this touches.
//!
//! Invariants
//! - A block is counted and written once, whoever compressed it.
//! - The pools hold what the plan of a software backup gives, and on top of that the accelerators' allowance: what
//!   hung calls keep never comes out of the former.
//! - One block can always be finished: the one that the writer waits for has output buffers of its own (`spare`),
//!   should all others be taken by blocks behind it.

use std::sync::Arc;
use std::time::Duration;

use longshore_codec::dispatch::{
    Admission, Before, Dispatcher, EngineUse, Finish, Finisher, InService, Mode, Offer, Terms,
    Verify,
};
use longshore_codec::{Algorithm, Level, State, Task};
use longshore_io::{Buffer, Pass, Pool, crc32c};

use crate::accelerator::Published;
use crate::feed::Job;
use crate::load::{Place, Shared};
use crate::measure::lap;
use crate::plan::{Sizes, WORKER_SCRATCH_BYTES};
use crate::{Error, House};

/// Blocks below this are not worth a request to a device.
pub const WORTH_BYTES: usize = 64 << 10;
/// How long a finisher waits for a buffer before it looks for the writer's block again.
pub const NAP: Duration = Duration::from_millis(1);
/// Output buffers for the block that the writer waits for: one being written, one being made.
const SPARE: usize = 2;

/// Who should compress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OffloadMode {
    /// CPUs alone.
    #[default]
    Software,
    /// The accelerator; CPUs do what it leaves undone.
    Hardware,
    /// The accelerator kept full, CPUs besides.
    Hybrid,
    /// Hybrid or hardware, as the objective says, where there is an accelerator.
    Auto,
}

/// What `Auto` is to keep small.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Objective {
    /// The time that it takes.
    #[default]
    Time,
    /// The CPU time that it takes from others.
    Cpu,
}

/// How an accelerator is to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offload {
    pub mode: OffloadMode,
    pub objective: Objective,
    pub verify: Verify,
    /// A call is given up before it takes longer.
    pub hang_bound: Duration,
}

impl Default for Offload {
    fn default() -> Offload {
        Offload {
            mode: OffloadMode::default(),
            objective: Objective::default(),
            verify: Verify::default(),
            hang_bound: Duration::from_secs(5),
        }
    }
}

impl Offload {
    fn mode(&self) -> Option<Mode> {
        match (self.mode, self.objective) {
            (OffloadMode::Software, _) => None,
            (OffloadMode::Hardware, _) | (OffloadMode::Auto, Objective::Cpu) => {
                Some(Mode::Hardware)
            }
            (OffloadMode::Hybrid, _) | (OffloadMode::Auto, Objective::Time) => Some(Mode::Hybrid),
        }
    }
}

/// What a run will use, decided before its sizes are.
pub struct Choice {
    pub mode: Mode,
    algorithm: Algorithm,
    accelerators: Vec<Arc<InService>>,
    terms: Offload,
    pub notices: Vec<String>,
}

impl Choice {
    /// For a backup. Says in `notices` why there is no accelerator, if one was asked for.
    pub fn of(house: &House, offload: &Offload, algorithm: Algorithm) -> Choice {
        Choice::with(house, offload, algorithm, |_| true)
    }

    /// For a restore: those that decompress.
    pub fn that_decompresses(house: &House, offload: &Offload, algorithm: Algorithm) -> Choice {
        Choice::with(house, offload, algorithm, |a| {
            a.engine().caps().decompresses
        })
    }

    fn with(
        house: &House,
        offload: &Offload,
        algorithm: Algorithm,
        suits: impl Fn(&InService) -> bool,
    ) -> Choice {
        let mut choice = Choice {
            mode: Mode::Hardware,
            algorithm,
            accelerators: Vec::new(),
            terms: *offload,
            notices: Vec::new(),
        };
        let Some(mode) = offload.mode() else {
            return choice;
        };
        choice.mode = mode;
        let all = &house.accelerators;
        choice.accelerators = all
            .iter()
            .filter(|a| a.serves(algorithm) && suits(a))
            .cloned()
            .collect();
        for other in all.iter().filter(|a| !a.serves(algorithm)) {
            let caps = other.engine().caps();
            let (state, reason) = other.state();
            if caps.algorithm == algorithm && !reason.is_empty() {
                choice.notices.push(format!("{}: {reason}", caps.name));
            } else if caps.algorithm == algorithm && state != State::Ready {
                choice
                    .notices
                    .push(format!("{} is out of service", caps.name));
            }
        }
        // With `Auto`, software is as good an answer as any.
        if choice.accelerators.is_empty() && offload.mode != OffloadMode::Auto {
            let text = format!("no accelerator here serves {algorithm}; software does all of it");
            choice.notices.push(text);
        }
        choice
    }

    /// Buffers that the accelerators want on top of what software needs: what they hold, and in hybrid mode as much
    /// again for blocks of the CPUs that wait behind theirs. That is enough for a device that is half as fast.
    pub fn buffers_wanted(&self, sizes: &Sizes) -> usize {
        let (bytes, cpus) = (sizes.buffer_bytes, sizes.cpus);
        let busy = self
            .accelerators
            .iter()
            .map(|a| a.buffers_busy(self.mode, bytes, cpus));
        match self.mode {
            Mode::Hardware => busy.sum(),
            Mode::Hybrid => 2 * busy.sum::<usize>(),
        }
    }

    /// For the plan: who does the work.
    pub fn engine(&self, software: &str) -> String {
        let names: Vec<_> = self
            .accelerators
            .iter()
            .map(|a| a.engine().caps().name)
            .collect();
        match (names.is_empty(), self.mode) {
            (true, _) => software.to_owned(),
            (false, Mode::Hardware) => names.join(" + "),
            (false, Mode::Hybrid) => format!("{} + {software}", names.join(" + ")),
        }
    }

    /// Starts the accelerators' threads, and makes spare buffers of `spare_bytes` for what they leave undone; `None`
    /// when there is nothing to start. `in_sequence`: blocks wait for one another.
    pub fn start<T: Send + 'static>(
        &self,
        house: &House,
        sizes: &Sizes,
        spare_bytes: usize,
        in_sequence: bool,
    ) -> Result<Option<(Dispatcher<T>, Pool)>, Error> {
        if self.accelerators.is_empty() || sizes.lent == 0 {
            return Ok(None);
        }
        // What accelerators hold while CPUs compress besides.
        let shared = match self.mode {
            Mode::Hardware => sizes.lent,
            Mode::Hybrid => sizes.lent.div_ceil(2),
        };
        let slack_bytes = (sizes.buffer_count - shared) as u64 * sizes.buffer_bytes as u64;
        let terms = Terms {
            algorithm: self.algorithm,
            mode: self.mode,
            verify: self.terms.verify,
            hang_bound: self.terms.hang_bound,
            buffer_bytes: sizes.buffer_bytes,
            allowance_buffers: sizes.lent / self.accelerators.len(),
            cpus: sizes.cpus,
            slack_bytes: in_sequence.then_some(slack_bytes),
        };
        let spare = Pool::new(SPARE, spare_bytes).map_err(|source| Error::Memory {
            bytes: (SPARE * spare_bytes) as u64,
            source,
        })?;
        let dispatcher = Dispatcher::start(&self.accelerators, terms, house.clock.clone());
        Ok(dispatcher.map(|dispatcher| (dispatcher, spare)))
    }

    /// Memory beyond the pools: spare buffers, for each thread that finishes software of its own and room to decode, and
    /// what the accelerators take for themselves.
    pub fn memory_bytes(&self, sizes: &Sizes) -> u64 {
        match self.accelerators.is_empty() {
            true => 0,
            false => {
                let finishers = sizes.cpus + sizes.workers;
                let each = WORKER_SCRATCH_BYTES + sizes.buffer_bytes;
                let staging = self.accelerators.iter();
                let staging: usize = staging.map(|a| a.engine().caps().staging_bytes).sum();
                (SPARE * sizes.output_bytes + finishers * each + staging) as u64
            }
        }
    }
}

/// A run's accelerators at work.
pub struct Offloading {
    pub dispatcher: Dispatcher<Waiting>,
    spare: Pool,
    /// One stripe: blocks are written in sequence.
    in_sequence: bool,
    /// Counters for whoever asks from another process.
    published: Option<Published>,
}

/// What a block still needs when it comes back.
pub struct Waiting {
    job: Job,
    place: Place,
    plain_crc: u32,
}

/// What a worker holds when it has read a block.
pub struct Read {
    pub job: Job,
    pub place: Place,
    pub input: Buffer,
    pub output: Buffer,
    /// What reading it took of a core; nothing when it came from a disk.
    pub took: Duration,
}

impl Offloading {
    pub fn new(
        house: &House,
        (dispatcher, spare): (Dispatcher<Waiting>, Pool),
        mode: Mode,
        in_sequence: bool,
    ) -> Offloading {
        Offloading {
            dispatcher,
            spare,
            in_sequence,
            published: Published::begin(house, mode),
        }
    }

    /// Hands a block to an accelerator, or gives it back to be compressed by the caller. Lets go of the turn while it
    /// waits for room.
    pub fn offer<'a>(
        &self,
        shared: &'a Shared,
        read: Read,
        level: Level,
        turn: &mut Option<Pass<'a>>,
    ) -> Option<Read> {
        let clock = &*shared.house.clock;
        let len = read.job.plain_len;
        if len < WORTH_BYTES {
            return Some(read);
        }
        let remaining = shared.counters.remaining();
        let admitted = loop {
            match self.dispatcher.admit(len, remaining) {
                Admission::Yes(admitted) => break admitted,
                Admission::No => return Some(read),
                Admission::Full if shared.crew.has_failed() => return Some(read),
                Admission::Full => {
                    *turn = None;
                    let at = clock.now();
                    self.dispatcher.wait_for_room();
                    lap(clock, at, &shared.counters.device_wait_us);
                }
            }
        };
        if turn.is_none() {
            *turn = Some(shared.crew.gate.enter());
        }
        let at = clock.now();
        let Read {
            mut job,
            place,
            input,
            output,
            took,
        } = read;
        // Files are not kept open by blocks that wait.
        job.pieces.clear();
        let plain = &input[..len];
        let (before, plain_crc) = (Before::of(plain), crc32c(plain));
        let output_range = place.payload..output.len();
        let offer = Offer {
            sequence: job.sequence,
            task: Task::Compress { level },
            input: Arc::new(input),
            input_range: 0..len,
            output,
            output_range,
            before,
            tag: Waiting {
                job,
                place,
                plain_crc,
            },
        };
        self.dispatcher.put(admitted, offer);
        let ended = lap(clock, at, &shared.counters.compute_us);
        self.dispatcher.fed(len, took + (ended - at));
        None
    }

    /// One finisher: checks what came back and does the rest, until everything is finished.
    pub fn finish_all(&self, shared: &Shared) -> Result<(), Error> {
        let mut finisher = Finisher::new(shared.request.algorithm, shared.request.level)?;
        while let Some(finish) = self.dispatcher.next() {
            let turn = shared.crew.gate.enter();
            if !self.finish(shared, &mut finisher, finish)? {
                drop(turn);
                shared.house.clock.sleep(NAP);
            }
        }
        Ok(())
    }

    /// A worker that has its turn finishes what is there, so that it does not keep finishers from theirs.
    pub fn finish_some(&self, shared: &Shared, finisher: &mut Finisher) -> Result<(), Error> {
        while let Some(finish) = self.dispatcher.try_next() {
            if !self.finish(shared, finisher, finish)? {
                break;
            }
        }
        Ok(())
    }

    /// False when there is no buffer for it now.
    fn finish(
        &self,
        shared: &Shared,
        finisher: &mut Finisher,
        finish: Finish<Waiting>,
    ) -> Result<bool, Error> {
        let clock = &*shared.house.clock;
        let at = clock.now();
        let sequence = finish.sequence();
        let fresh = || self.fresh_output(shared, sequence);
        let Some(settled) = finisher.settle(&self.dispatcher, finish, fresh) else {
            return Ok(false);
        };
        // Compression cannot fail: only payloads can be damaged.
        if let Ok(len) = settled.result {
            let Waiting {
                job,
                place,
                plain_crc,
            } = settled.tag;
            let ready = shared.seal_block(job, place, settled.output, plain_crc, len);
            if !settled.recomputed {
                self.dispatcher.fed(0, clock.now() - at);
            }
            drop(settled.input);
            shared.put(ready)?;
        }
        lap(clock, at, &shared.counters.compute_us);
        Ok(true)
    }

    /// A buffer in place of one that a device still holds. The spare ones are for the block that the writer waits
    /// for: with any other they might wait for it in their turn.
    fn fresh_output(&self, shared: &Shared, sequence: u64) -> Option<Buffer> {
        let is_next = || !self.in_sequence || shared.handoff.next() == sequence;
        shared
            .outputs
            .try_take()
            .or_else(|| is_next().then(|| self.spare.try_take()).flatten())
    }

    /// To be called about ten times a second.
    pub fn tick(&self, shared: &Shared) {
        if shared.crew.has_failed() {
            self.dispatcher.abort();
        }
        let head = self
            .in_sequence
            .then(|| shared.handoff.blocked_at())
            .flatten();
        self.dispatcher.tick(head);
        if let Some(published) = &self.published {
            published.update(|| self.dispatcher.uses());
        }
    }

    pub fn uses(&self) -> Vec<EngineUse> {
        self.dispatcher.uses()
    }
}
