//! The door of everything that compresses: CPU libraries and accelerators.
//!
//! A [`Job`] owns what it touches. A device that hangs therefore keeps its own buffers: nothing it may
//! still write into can be freed or reused, and quarantine needs no list. The plain bytes are shared, so
//! that software can do the job again while a device still holds it.
//!
//! Invariants
//! - An engine hands back every job of a batch, in the same order, none [`Outcome::Pending`].
//! - `Done` means that the output holds what the job asked for, as far as the engine can tell. Whoever
//!   dispatches checks it before it is used.
//! - An engine cannot fail a backup. It can only leave work to software, and software never leaves any: it answers
//!   [`Outcome::Recompute`] only for a payload that does not decode, which is the payload's fault.

use std::ops::Range;
use std::sync::Arc;

use longshore_io::Buffer;

use crate::{Algorithm, Level};

/// What is to be done with a job's input.
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
    /// Whatever the caller needs to know the job again.
    pub sequence: u64,
    pub task: Task,
    /// Shared, so that software can do it again; nobody writes it while the job lives.
    pub input: Arc<Buffer>,
    /// Where in `input` the bytes stand. 1 to [`Caps::input_bytes_max`] of them.
    pub input_range: Range<usize>,
    pub output: Buffer,
    /// Where in `output` the result may go, from the front. Compression: at least [`payload_bound`](crate::payload_bound).
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

/// What became of a job.
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

/// What an engine did wrong, or could not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// All of the device's instances are taken: no fault of it.
    Busy,
    /// The device reported failure, or was reset under the job.
    Device { code: i32 },
    /// The output did not fit.
    NoRoom,
    /// It consumed or produced fewer bytes than it should have.
    Short,
    /// The result is not what it says: a checksum, a length or the framing is wrong.
    Corrupt,
    /// The call had not returned when its time was up.
    Hung,
    /// The device has no memory left.
    Memory,
    /// The engine is not in service.
    Down,
}

/// What an engine can do. Constant for its life.
#[derive(Debug, Clone)]
pub struct Caps {
    /// `isa-l`, `qatzip`, `nvcomp`, …
    pub name: &'static str,
    pub algorithm: Algorithm,
    /// Hardware: is watched, verified and backed by software.
    pub accelerator: bool,
    pub decompresses: bool,
    /// Longest input of a job, in bytes.
    pub input_bytes_max: usize,
    /// Calls that make sense at a time: instances of a device. At least 1.
    pub calls_max: usize,
    /// Bytes that one call should carry to be worth it, and the most it may.
    pub batch_bytes: Range<usize>,
    /// Memory of the host that it allocates itself, at most, what lost calls keep included. What its vendor's library
    /// takes besides is not known.
    pub staging_bytes: usize,
}

/// Where an engine is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// No such device, library or permission.
    Absent,
    /// Found; its self-test has not been passed yet.
    Probing,
    Ready,
    /// After faults; its self-test is run again later.
    Suspended,
    /// Not before the process starts again, or an operator acts.
    Off,
}

/// State, reason and versions, for the status view.
#[derive(Debug, Clone)]
pub struct Health {
    pub state: State,
    /// Why it is in that state, in one sentence that names what to do; empty when ready.
    pub reason: String,
    pub hardware: Option<String>,
    pub library_version: Option<String>,
    pub driver_version: Option<String>,
}

impl Health {
    /// Of what is in this state, without more to say.
    pub fn of(state: State) -> Health {
        Health {
            state,
            reason: String::new(),
            hardware: None,
            library_version: None,
            driver_version: None,
        }
    }
}

/// Something that compresses.
pub trait Engine: Send + Sync {
    fn caps(&self) -> &Caps;

    /// Cheap; never touches the device.
    fn health(&self) -> Health;

    /// Does every job and hands the batch back. Blocks, with an accelerator perhaps for ever: the caller
    /// keeps each input and a deadline. A job handed back is one that no device touches any more.
    fn run(&self, batch: Vec<Job>) -> Vec<Job>;

    /// Tries the whole way once, on data of its own, judged by an independent decoder; afterwards the engine
    /// is `Ready` or says why not. Blocks like `run`.
    fn self_test(&self) -> Health;
}
