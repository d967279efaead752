//! DEFLATE on an NVIDIA GPU, through nvCOMP.
//!
//! A batch of jobs is cut into chunks of 64 KiB. Whole chunks go to the device and come back as raw deflate data. The
//! CPU does the rest: tails, and chunks that the device failed at or that do not shrink. All of it is framed as
//! gzip-ext members like any other payload of QAT_DEFLATE. Software does every restore: NVIDIA's decompressor must
//! only see valid input, and a backup is not trusted.
//!
//! ```text
//!  driver.rs        libcuda: declarations, errors, memory that frees itself
//!  library.rs       libnvcomp: declarations for 5.x and 6.x, where it is found
//!  queues.rs        the queues of one GPU that batches share
//!  batch_memory.rs  one batch in flight
//!  device.rs        one GPU made ready: its queues, and memory for batches
//!  frame.rs         chunks to members
//!  probe.rs         bare copies, and memory taken away, for a check of the device
//!  trial.rs         the self-test
//! ```
//!
//! Invariants
//! - Nothing touches a device before the self-test; `health` and `caps` never do.
//! - The device writes only into its batches' memory. A job's buffers are written by this process alone.
//! - An error that ends the device's context is final for this process: it is not tried again.
//!
//! Leaves to others: which blocks come here, and checking the results (`dispatch`).

mod batch_memory;
mod device;
mod driver;
mod frame;
mod library;
mod probe;
mod queues;
mod symbols;
mod trial;

#[cfg(test)]
mod tests;

use std::env;
use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use longshore_codec::deflate;
use longshore_codec::{Algorithm, Level, PLAIN_LEN_MAX};
use longshore_facts as facts;
use longshore_io::Buffer;
use parking_lot::Mutex;

pub use probe::{CopyRates, MemoryHold};
pub use queues::Timings;

use super::{Accelerator, AcceleratorFacts, Refusal, UnderWay};
use crate::engine::{Caps, Engine, EngineState, Fault, Health, Job, Outcome, Task};
use batch_memory::{BatchMemory, Made};
use device::{CHUNKS_MIN, Device};
use driver::{Context, CudaError, Driver};
use frame::ChunkResult;
use library::{Effort, Library};
use queues::{CHUNK, Trouble};

/// How the GPU is used. A backup takes [`Options::from_environment`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The driver's library, or `off`; `None` asks the dynamic linker for `libcuda.so.1`.
    pub cuda: Option<OsString>,
    /// nvCOMP's library, or `off`; `None` searches where pip and packages install it.
    pub nvcomp: Option<OsString>,
    /// The most plain bytes of a batch: 8 MiB or more. The device may have memory for less.
    pub batch_bytes: usize,
    /// Batches in flight, 1 or more. The device compresses all that have arrived, while the CPU fills and frames others.
    pub batches: usize,
    /// nvCOMP's algorithm, 0 to 5, instead of the level's own.
    pub algorithm: Option<i32>,
    /// Compressed chunks come back in one run, rather than one by one.
    pub gather: bool,
    /// The device computes a checksum of the bytes that reached it.
    pub checksums: bool,
}

/// Measured on an H100: with two batches in flight, compression takes 1.7 times as long; with eight, 0.85 times as long
/// and twice the memory.
const BATCHES: usize = 4;
/// The most plain bytes of a batch: on an H100, batches of 256 MiB make backups a quarter faster and take four times the
/// memory; with 16 MiB they lose more than a third.
const BATCH_BYTES: usize = 64 << 20;
/// The machine's memory that a hybrid backup takes for each byte of a batch: pinned, and twice in buffers for input and
/// output.
const MEMORY_FOR_EACH: u64 = 5;

/// The length of a batch for a machine with this much memory: all batches take an eighth of it at most, if that fills
/// the smallest ones.
fn batch_bytes_within(memory_bytes: u64) -> usize {
    let share = memory_bytes / 8 / (BATCHES as u64 * MEMORY_FOR_EACH);
    let most = usize::try_from(share).unwrap_or(usize::MAX);
    most.clamp(CHUNKS_MIN * CHUNK, BATCH_BYTES) / CHUNK * CHUNK
}

impl Default for Options {
    fn default() -> Options {
        let memory = facts::memory_bytes().unwrap_or(u64::MAX);
        let memory = facts::memory_allowed().map_or(memory, |allowed| allowed.min(memory));
        Options {
            cuda: None,
            nvcomp: None,
            batch_bytes: batch_bytes_within(memory),
            batches: BATCHES,
            algorithm: None,
            gather: true,
            checksums: true,
        }
    }
}

impl Options {
    /// The defaults with the libraries that `LONGSHORE_CUDA` and `LONGSHORE_NVCOMP` name.
    pub fn from_environment() -> Options {
        Options {
            cuda: env::var_os("LONGSHORE_CUDA"),
            nvcomp: env::var_os("LONGSHORE_NVCOMP"),
            ..Options::default()
        }
    }
}

/// The facts about a tested device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub device: String,
    /// Compute capability, such as 9.0 for Hopper.
    pub capability: (i32, i32),
    pub memory_bytes: usize,
    pub memory_free_bytes: usize,
    /// Version of the CUDA interface that the driver speaks.
    pub cuda_version: String,
    pub nvcomp_version: String,
    /// The most plain bytes of a batch.
    pub batch_bytes: usize,
    /// The most batches in flight.
    pub batches: usize,
    /// Compressed chunks come back in one run.
    pub gathers: bool,
    /// The device checks the bytes that reached it.
    pub checksums: bool,
}

/// The engine `nvcomp`.
pub struct Nvcomp {
    caps: Caps,
    options: Options,
    inner: Mutex<Inner>,
    /// Held during the self-test, which may last for ever.
    testing: Mutex<()>,
}

struct Inner {
    /// `None`: in service.
    refusal: Option<Refusal>,
    /// Both libraries and the context, once a self-test has loaded them.
    library: Option<Arc<Library>>,
    driver: Option<Arc<Driver>>,
    context: Option<Arc<Context>>,
    /// `Some` while in service.
    device: Option<Arc<Device>>,
    /// The most chunks of a batch; lowered when the device's memory did not suffice.
    chunks_max: usize,
    /// Chunks that the CPU did instead of the device.
    chunks_failed: u64,
}

impl Nvcomp {
    /// Loads nothing and touches nothing; the first self-test does.
    pub fn open(options: Options) -> Nvcomp {
        let batch_bytes = options.batch_bytes.max(CHUNKS_MIN * CHUNK) / CHUNK * CHUNK;
        Nvcomp {
            caps: Caps {
                name: "nvcomp",
                algorithm: Algorithm::QatDeflate,
                accelerator: true,
                decompresses: false,
                input_bytes_max: PLAIN_LEN_MAX,
                calls_max: options.batches.max(1),
                batch_bytes: (batch_bytes / 2).max(CHUNKS_MIN * CHUNK)..batch_bytes,
                // Allocated once; a hung call keeps its batch's memory.
                staging_bytes: options.batches.max(1) * batch_memory::host_len(batch_bytes / CHUNK),
            },
            inner: Mutex::new(Inner {
                refusal: Some(at_first_sight(&options)),
                library: None,
                driver: None,
                context: None,
                device: None,
                chunks_max: batch_bytes / CHUNK,
                chunks_failed: 0,
            }),
            options,
            testing: Mutex::new(()),
        }
    }

    /// The device and how it is used; `None` before the self-test has passed.
    pub fn facts(&self) -> Option<Facts> {
        let device = self.device()?;
        let (free, all) = device.queues.context.memory().ok()?;
        Some(Facts {
            device: device.queues.context.device_name.clone(),
            capability: device.queues.context.capability().ok()?,
            memory_bytes: all,
            memory_free_bytes: free,
            cuda_version: device.queues.context.driver_version.clone(),
            nvcomp_version: device.queues.library.version.clone(),
            batch_bytes: device.queues.capacity * CHUNK,
            batches: device.batches_free(),
            gathers: device.queues.gather.is_some(),
            checksums: device.queues.checksums.is_some(),
        })
    }

    /// The device's times since the last self-test.
    pub fn timings(&self) -> Timings {
        self.device()
            .map_or_else(Timings::default, |device| *device.queues.timings.lock())
    }

    /// Chunks that this process's CPU did instead of the device.
    pub fn chunks_failed(&self) -> u64 {
        self.inner.lock().chunks_failed
    }

    /// Measures plain copies of `len_bytes`, `rounds` of them in each direction. Blocks.
    ///
    /// Errors: the engine is not ready, or the driver's error.
    pub fn copy_rates(&self, len_bytes: usize, rounds: u32) -> Result<CopyRates, String> {
        let device = self.device().ok_or_else(|| self.health().reason)?;
        probe::copy_rates(&device, len_bytes, rounds).map_err(|e| e.to_string())
    }

    /// Takes the device's memory, as another program might, until at most `leave_bytes` are free. Blocks.
    ///
    /// Errors: the engine is not ready, or the driver's error.
    pub fn hold_memory(&self, leave_bytes: usize) -> Result<MemoryHold, String> {
        let device = self.device().ok_or_else(|| self.health().reason)?;
        probe::hold(&device, leave_bytes).map_err(|e| e.to_string())
    }

    fn device(&self) -> Option<Arc<Device>> {
        self.inner.lock().device.clone()
    }

    /// Runs jobs that all compress with `level`.
    fn compress(&self, device: &Device, jobs: &mut [&mut Job], level: Level) {
        let level = deflate::number(level);
        let effort = self
            .options
            .algorithm
            .and_then(Effort::number)
            .unwrap_or(Effort::of_level(level));
        let mut rest = jobs;
        while !rest.is_empty() {
            let (slice, after) = rest.split_at_mut(slice_len(rest, device.queues.capacity));
            rest = after;
            let plans: Vec<Plan> = slice.iter().map(|job| Plan::of(job)).collect();
            let chunks: Vec<&[u8]> = plans.iter().flat_map(Plan::chunks).collect();
            let done = device.compress(&chunks, effort, |memory, made| {
                let mut made = made;
                for (job, plan) in slice.iter_mut().zip(&plans) {
                    let (own, others) = made.split_at(plan.whole);
                    made = others;
                    let (outcome, failed) = finish(memory, plan, own, level, job.output_mut());
                    job.outcome = outcome;
                    self.inner.lock().chunks_failed += failed;
                }
            });
            if let Err(trouble) = done {
                let fault = self.suffered(&trouble, device);
                for job in slice.iter_mut() {
                    job.outcome = Outcome::Recompute(fault);
                }
            }
        }
    }

    /// Takes the device out of service after `trouble`; returns the fault for the batch's jobs.
    fn suffered(&self, trouble: &Trouble, device: &Device) -> Fault {
        let fault = match trouble {
            Trouble::Busy => return Fault::Busy,
            _ if trouble.is_size() => Fault::Memory,
            Trouble::Cuda(CudaError { code, .. }) => Fault::Device { code: *code },
            Trouble::Nvcomp(refused) => Fault::Device {
                code: refused.status,
            },
        };
        let mut inner = self.inner.lock();
        if device.queues.context.is_lost() {
            inner.lost(trouble);
        } else if fault == Fault::Memory {
            inner.too_large(device.queues.capacity, trouble);
        } else {
            inner.refuse(super::Trouble::Failed, trouble.to_string());
        }
        fault
    }
}

impl Inner {
    /// Takes the device out of service.
    fn refuse(&mut self, trouble: super::Trouble, text: String) {
        tracing::debug!(?trouble, text, "nvcomp is not in service");
        self.device = None;
        self.refusal = Some(Refusal::new(trouble, text));
    }

    fn lost(&mut self, trouble: &Trouble) {
        let text = format!(
            "this process lost the GPU: {trouble}; see the kernel's log and nvidia-smi -q, then restart the program"
        );
        self.refuse(super::Trouble::FailedForGood, text);
    }

    /// Halves the next batches, unless they would be too small to be useful.
    fn too_large(&mut self, chunks: usize, trouble: &Trouble) {
        if chunks / 2 < CHUNKS_MIN {
            return self.no_memory(trouble);
        }
        self.chunks_max = chunks / 2;
        let text =
            format!("the GPU has too little memory: {trouble}; the next attempt uses half as much");
        self.refuse(super::Trouble::Failed, text);
    }

    fn no_memory(&mut self, trouble: &Trouble) {
        let least = (CHUNKS_MIN * CHUNK) >> 20;
        let text = format!(
            "the GPU has no memory for batches of {least} MiB: {trouble}; free some, then restart the program"
        );
        self.refuse(super::Trouble::FailedForGood, text);
    }

    fn state(&self) -> EngineState {
        self.refusal
            .as_ref()
            .map_or(EngineState::Ready, |refusal| refusal.trouble.state())
    }
}

/// One job's input and its division into chunks.
struct Plan {
    input: Arc<Buffer>,
    range: Range<usize>,
    /// Whole chunks.
    whole: usize,
}

impl Plan {
    fn of(job: &Job) -> Plan {
        Plan {
            input: Arc::clone(&job.input),
            range: job.input_range.clone(),
            whole: job.input_range.len() / CHUNK,
        }
    }

    fn plain(&self) -> &[u8] {
        &self.input[self.range.clone()]
    }

    fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.plain().chunks_exact(CHUNK)
    }
}

/// How many of `jobs`, at least one, together have at most `capacity` whole chunks.
fn slice_len(jobs: &[&mut Job], capacity: usize) -> usize {
    let mut chunks = 0;
    let fitting = jobs.iter().take_while(|job| {
        chunks += job.input_range.len() / CHUNK;
        chunks <= capacity
    });
    fitting.count().max(1)
}

/// Frames a job's payload from the device's results for its whole chunks, and does the rest on this thread. Also
/// returns how many chunks the device failed at. A job that lost more than one chunk in four is left to software as a
/// whole, which uses more than one thread.
fn finish(
    memory: &mut BatchMemory,
    plan: &Plan,
    made: &[Made],
    level: i32,
    out: &mut [u8],
) -> (Outcome, u64) {
    let failures = || {
        made.iter().filter_map(|made| match made {
            Made::Failed(fault) => Some(*fault),
            Made::Deflated { .. } | Made::Incompressible => None,
        })
    };
    let failed = failures().count();
    if let Some(fault) = failures().next()
        && failed * 4 > made.len()
    {
        return (Outcome::Recompute(fault), 0);
    }
    let plain = plan.plain();
    // The chunks that this thread compresses, kept until the job is framed: few, usually none or the tail.
    let mut own: Vec<Option<Vec<u8>>> = Vec::new();
    for (i, chunk) in plain.chunks(CHUNK).enumerate() {
        if matches!(made.get(i), None | Some(Made::Failed(_))) {
            let len = memory.deflate(chunk, level);
            own.push(len.map(|len| memory.deflated[..len].to_vec()));
        }
    }
    let mut own = own.iter();
    let pieces = plain.chunks(CHUNK).enumerate().map(|(i, chunk)| {
        let range = i * CHUNK..i * CHUNK + chunk.len();
        let piece = match made.get(i) {
            Some(Made::Deflated { at, crc32 }) => ChunkResult::Deflated {
                data: &memory.output()[at.clone()],
                crc32: *crc32,
            },
            Some(Made::Incompressible) => ChunkResult::Stored,
            Some(Made::Failed(_)) | None => match own.next().and_then(Option::as_ref) {
                None => ChunkResult::Stored,
                Some(data) => ChunkResult::Deflated {
                    data,
                    crc32: crc_fast::crc32_iso_hdlc(chunk),
                },
            },
        };
        (range, piece)
    });
    let outcome = match frame::frame(plain, pieces, out) {
        Some(len) => Outcome::Done { len },
        None => Outcome::Recompute(Fault::NoRoom),
    };
    (outcome, failed as u64)
}

impl Engine for Nvcomp {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn health(&self) -> Health {
        let inner = self.inner.lock();
        let (library, context) = (inner.library.as_ref(), inner.context.as_ref());
        let reason = inner.refusal.as_ref().map(|refusal| refusal.text.clone());
        Health {
            state: inner.state(),
            reason: reason.unwrap_or_default(),
            hardware: context.map(|context| context.device_name.clone()),
            library_version: library.map(|library| format!("nvCOMP {}", library.version)),
            driver_version: context.map(|context| format!("CUDA {}", context.driver_version)),
        }
    }

    fn run(&self, mut batch: Vec<Job>) -> Vec<Job> {
        let _under_way = UnderWay::begin();
        let device = self.device();
        let mut levels: Vec<(Level, Vec<&mut Job>)> = Vec::new();
        for job in &mut batch {
            job.outcome = Outcome::Recompute(Fault::Down);
            let Task::Compress { level } = job.task else {
                continue;
            };
            match levels.iter_mut().find(|(l, _)| *l == level) {
                Some((_, jobs)) => jobs.push(job),
                None => levels.push((level, vec![job])),
            }
        }
        if let Some(device) = device {
            for (level, jobs) in &mut levels {
                self.compress(&device, jobs, *level);
            }
        }
        batch
    }

    fn self_test(&self) -> Health {
        let before = self.inner.lock().refusal.clone();
        if let Some(_testing) = self.testing.try_lock() {
            let _under_way = UnderWay::begin();
            trial::run(self);
        }
        super::log_test(self, before.as_ref());
        self.health()
    }
}

impl Accelerator for Nvcomp {
    fn found(&self) -> AcceleratorFacts {
        let inner = self.inner.lock();
        AcceleratorFacts {
            accelerator: "GPU",
            description: "NVIDIA GPU",
            library: "nvCOMP",
            hardware_detected: inner.context.is_some() || on_a_bus(),
            refusal: inner.refusal.clone(),
        }
    }
}

/// The state before a library is loaded. A plan counts on an accelerator that may be present.
fn at_first_sight(options: &Options) -> Refusal {
    for (file, variable) in [(&options.cuda, "CUDA"), (&options.nvcomp, "NVCOMP")] {
        if file.as_deref().is_some_and(|name| name == "off") {
            let text = format!("switched off by LONGSHORE_{variable}=off");
            return Refusal::new(super::Trouble::SwitchedOff, text);
        }
    }
    let driver = || longshore_facts::small_text(Path::new("/proc/driver/nvidia/version"));
    if options.cuda.is_none() && options.nvcomp.is_none() && !on_a_bus() && driver().is_err() {
        let text = "no NVIDIA GPU and no driver was found; if they exist, name the driver's library in LONGSHORE_CUDA";
        return Refusal::new(super::Trouble::HardwareNotFound, text);
    }
    Refusal::new(super::Trouble::NotTested, "its self-test has not run")
}

/// Whether sysfs shows a display controller of NVIDIA's. A container may hide a GPU that exists.
fn on_a_bus() -> bool {
    const NVIDIA: u16 = 0x10de;
    const DISPLAY: &str = "0x03";
    let devices = longshore_facts::pci_devices(Path::new("/sys")).unwrap_or_default();
    devices.iter().any(|device| {
        let class = || device.attribute("class").unwrap_or_default();
        device.vendor == NVIDIA && class().starts_with(DISPLAY)
    })
}
