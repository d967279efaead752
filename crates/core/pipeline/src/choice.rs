//! Which accelerators a run will use, decided before bytes move, and how much of its memory they get.
//!
//! Invariants
//! - Without a usable accelerator, software does everything and nothing fails; a notice says why if an accelerator was
//!   requested.
//! - Memory of accelerators is part of the run's printed bound: buffers, spare buffers, finishers and the devices' own.
//!
//! Leaves to others: giving out blocks (`longshore-accel`), and finding devices (`longshore-accelerators`). The numbers
//! here have rows in docs/decisions/codec.md.

use std::sync::Arc;
use std::time::Duration;

use longshore_accel::EngineState;
use longshore_accel::dispatch::{Dispatcher, InService, Mode, Terms};
use longshore_accelerators::OffloadMode;
use longshore_codec::Algorithm;
use longshore_io::Pool;

use crate::context::RunContext;
use crate::error::Error;
use crate::plan::{Sizes, WORKER_SCRATCH_BYTES};
use crate::request::{Objective, Offload};

/// Smaller blocks are not worth a request to an accelerator.
pub const WORTH_BYTES: usize = 64 << 10;
/// How long a finisher waits for a buffer before it checks again for the writer's block.
pub const NAP: Duration = Duration::from_millis(1);
/// Output buffers for the block that the writer waits for: one being written, one being filled.
const SPARE: usize = 2;

/// The accelerators of a run at work.
pub struct Started<T: Send + 'static> {
    pub dispatcher: Dispatcher<T>,
    /// Buffers for blocks that the accelerators leave undone.
    pub spare: Pool,
}

/// The dispatcher's mode; `None` if CPUs do all the work.
fn mode(offload: &Offload) -> Option<Mode> {
    match (offload.mode, offload.objective) {
        (OffloadMode::Software, _) => None,
        (OffloadMode::Hardware, _) | (OffloadMode::Auto, Objective::Cpu) => Some(Mode::Hardware),
        (OffloadMode::Hybrid, _) | (OffloadMode::Auto, Objective::Time) => Some(Mode::Hybrid),
    }
}

/// The accelerators of a run, chosen before its sizes.
pub struct EngineChoice {
    pub mode: Mode,
    algorithm: Algorithm,
    accelerators: Vec<Arc<InService>>,
    terms: Offload,
    pub notices: Vec<String>,
}

impl EngineChoice {
    /// For a backup. Explains in `notices` why there is no accelerator if one was requested.
    pub fn of(context: &RunContext, offload: &Offload, algorithm: Algorithm) -> EngineChoice {
        EngineChoice::with(context, offload, algorithm, |_| true)
    }

    /// For a restore: accelerators that decompress.
    pub fn that_decompresses(
        context: &RunContext,
        offload: &Offload,
        algorithm: Algorithm,
    ) -> EngineChoice {
        EngineChoice::with(context, offload, algorithm, |a| {
            a.engine().caps().decompresses
        })
    }

    fn with(
        context: &RunContext,
        offload: &Offload,
        algorithm: Algorithm,
        suits: impl Fn(&InService) -> bool,
    ) -> EngineChoice {
        let mut choice = EngineChoice {
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
        let all = &context.accelerators;
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
            } else if caps.algorithm == algorithm && state != EngineState::Ready {
                choice
                    .notices
                    .push(format!("{} is out of service", caps.name));
            }
        }
        // With `Auto`, using software is a normal result.
        if choice.accelerators.is_empty() && offload.mode != OffloadMode::Auto {
            let text =
                format!("no accelerator here supports {algorithm}; software compresses everything");
            choice.notices.push(text);
        }
        choice
    }

    /// Buffers that the accelerators need in addition to those of software: the blocks they hold, and in hybrid mode
    /// as many again for blocks from the CPUs that wait after the accelerators' blocks. That suffices for a device of
    /// half the CPUs' speed.
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

    /// The names of those that do the work, for the plan.
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

    /// Starts the accelerators' threads, with spare buffers of `spare_bytes` for blocks that they leave undone; `None`
    /// if there is nothing to start. `in_sequence`: blocks wait for one another.
    pub fn start<T: Send + 'static>(
        &self,
        context: &RunContext,
        sizes: &Sizes,
        spare_bytes: usize,
        in_sequence: bool,
    ) -> Result<Option<Started<T>>, Error> {
        if self.accelerators.is_empty() || sizes.lent == 0 {
            return Ok(None);
        }
        // Buffers that accelerators hold while CPUs compress too.
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
        let dispatcher = Dispatcher::start(&self.accelerators, terms, context.clock.clone());
        Ok(dispatcher.map(|dispatcher| Started { dispatcher, spare }))
    }

    /// Memory in addition to the pools: spare buffers, a software encoder and room to decode for each finisher thread,
    /// and the accelerators' own memory.
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
