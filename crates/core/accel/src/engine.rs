//! The trait of everything that compresses: CPU libraries and accelerators.
//!
//! A [`Job`] owns its buffers. So a device that hangs keeps the job's buffers: memory that it may still write into
//! cannot be freed or reused, and no quarantine list is needed. The plain bytes are shared, so that software can do the
//! job again while a device still holds it.
//!
//! Invariants
//! - An engine hands back every job of a batch, in the same order, none [`Outcome::Pending`].
//! - `Done` means that the output is the requested result, as far as the engine can tell. The dispatcher checks it
//!   before it is used.
//! - An engine cannot fail a backup. It can only leave work to software, and software never leaves any: it returns
//!   [`Outcome::Recompute`] only for a payload that does not decode, which is the payload's fault.
//!
//! Leaves to others: deadlines and the choice of an engine (`dispatch`), and whether the promises are kept
//! (`contract.rs`).

use std::ops::Range;
use std::sync::Arc;

use longshore_io::Buffer;

use longshore_codec::{Algorithm, Level};

/// Calls that may never return before a device is no longer used; their buffers stay with them.
pub(crate) const HUNG_MAX: u32 = 8;
/// The number of a server's messages about accelerators at work, as SQL Server numbers them.
pub(crate) const RUN_TIME: u32 = 17438;

/// The work to do on a job's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Plain bytes to one payload: whole members of the algorithm's container.
    Compress { level: Level },
    /// One payload to exactly `plain_len` bytes.
    Decompress { plain_len: usize },
}

/// One buffer's work.
#[derive(Debug)]
pub struct Job {
    /// The caller's number for the job.
    pub sequence: u64,
    pub task: Task,
    /// Shared, so that software can do the job again; nobody writes it while the job lives.
    pub input: Arc<Buffer>,
    /// The range of the job's bytes in `input`: 1 to [`Caps::input_bytes_max`] bytes.
    pub input_range: Range<usize>,
    pub output: Buffer,
    /// The range of `output` for the result, filled from its start. Compression: at least
    /// [`payload_bound`](crate::payload_bound) bytes.
    pub output_range: Range<usize>,
    pub outcome: Outcome,
}

impl Job {
    pub fn input(&self) -> &[u8] {
        &self.input[self.input_range.clone()]
    }

    pub fn output(&self) -> &[u8] {
        &self.output[self.output_range.clone()]
    }

    pub fn output_mut(&mut self) -> &mut [u8] {
        let range = self.output_range.clone();
        &mut self.output[range]
    }
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Pending,
    /// The first `len` bytes of the job's output are the result.
    Done {
        len: usize,
    },
    /// The output is worthless. Software does this job; the backup goes on.
    Recompute(Fault),
}

/// Why an engine did not do a job, or not correctly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// All of the device's instances are taken; the device is not at fault.
    Busy,
    /// The device reported failure, or was reset during the job.
    Device { code: i32 },
    /// The output did not fit.
    NoRoom,
    /// It consumed or produced too few bytes.
    Short,
    /// The result is inconsistent: a checksum, a length or the framing is wrong.
    Corrupt,
    /// The call had not returned when its time was up.
    Hung,
    /// The device has no memory left.
    Memory,
    /// The engine is not in service.
    Down,
}

/// The capabilities of an engine. Constant for its life.
#[derive(Debug, Clone)]
pub struct Caps {
    /// `isa-l`, `qatzip`, `nvcomp`, …
    pub name: &'static str,
    pub algorithm: Algorithm,
    /// Hardware: it is watched, verified and backed by software.
    pub accelerator: bool,
    pub decompresses: bool,
    /// Longest input of a job, in bytes.
    pub input_bytes_max: usize,
    /// Useful concurrent calls: instances of a device. At least 1.
    pub calls_max: usize,
    /// The bytes that make one call worthwhile, and the most that it may carry.
    pub batch_bytes: Range<usize>,
    /// The most host memory that it allocates itself, including the memory that lost calls keep. The use of its
    /// vendor's library is unknown and not included.
    pub staging_bytes: usize,
}

/// The state of an engine, which decides whether a run gives it jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EngineState {
    /// No such device, library or permission.
    Absent,
    /// Found; its self-test has not been passed yet.
    Probing,
    Ready,
    /// Suspended after faults; its self-test runs again later.
    Suspended,
    /// Off until the process starts again or an operator acts.
    Off,
}

/// State, reason and versions, for the status view.
#[derive(Debug, Clone)]
pub struct Health {
    pub state: EngineState,
    /// Why it is in that state, in one sentence that says what to do; empty if ready.
    pub reason: String,
    pub hardware: Option<String>,
    pub library_version: Option<String>,
    pub driver_version: Option<String>,
    /// Of the device; only root may read that of some.
    pub firmware_version: Option<String>,
}

impl Health {
    /// A state without further facts.
    pub fn of(state: EngineState) -> Health {
        Health {
            state,
            reason: String::new(),
            hardware: None,
            library_version: None,
            driver_version: None,
            firmware_version: None,
        }
    }
}

/// A CPU library or a device that compresses. All methods may be called from several threads at a time.
pub trait Engine: Send + Sync {
    /// Its limits and preferences. Constant for the life of the engine; never touches the device.
    fn caps(&self) -> &Caps;

    /// Cheap; never touches the device.
    fn health(&self) -> Health;

    /// Does every job and returns the batch. Blocks, with an accelerator possibly for ever: the caller keeps each
    /// input and a deadline. No device touches a job that was returned.
    fn run(&self, batch: Vec<Job>) -> Vec<Job>;

    /// Runs the whole path once on its own data, judged by an independent decoder; afterwards the engine is `Ready` or
    /// reports why not. Blocks like `run`.
    fn self_test(&self) -> Health;
}
