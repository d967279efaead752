//! Which accelerators a run will use, decided before bytes move, and what they take of its memory.

use std::sync::Arc;
use std::time::Duration;

use longshore_codec::dispatch::{Dispatcher, InService, Mode, Terms};
use longshore_codec::{Algorithm, State};
use longshore_io::Pool;

use crate::context::House;
use crate::error::Error;
use crate::plan::{Sizes, WORKER_SCRATCH_BYTES};
use crate::request::{Objective, Offload, OffloadMode};

/// Blocks below this are not worth a request to a device.
pub const WORTH_BYTES: usize = 64 << 10;
/// How long a finisher waits for a buffer before it looks for the writer's block again.
pub const NAP: Duration = Duration::from_millis(1);
/// Output buffers for the block that the writer waits for: one being written, one being made.
const SPARE: usize = 2;

/// What the dispatcher is told; `None` where CPUs do all.
fn mode(offload: &Offload) -> Option<Mode> {
    match (offload.mode, offload.objective) {
        (OffloadMode::Software, _) => None,
        (OffloadMode::Hardware, _) | (OffloadMode::Auto, Objective::Cpu) => Some(Mode::Hardware),
        (OffloadMode::Hybrid, _) | (OffloadMode::Auto, Objective::Time) => Some(Mode::Hybrid),
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
        let Some(mode) = mode(offload) else {
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
