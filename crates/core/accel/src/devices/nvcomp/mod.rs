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
//!  plan.rs          a job to chunks, and back to a payload
//!  options.rs       how the GPU is used
//!  service.rs       whether the engine is in service
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
mod options;
mod plan;
mod probe;
mod queues;
mod service;
mod symbols;
mod trial;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use longshore_codec::deflate;
use longshore_codec::{Algorithm, Level, PLAIN_LEN_MAX};
use parking_lot::Mutex;

pub use options::Options;
pub use probe::{CopyRates, MemoryHold};
pub use queues::Timings;

use super::door::{self, Accelerator, AcceleratorFacts};
use super::messages::log_test;
use super::under_way::UnderWay;
use crate::engine::{Caps, Engine, Fault, Health, Job, Outcome, Task};
use device::Device;
use driver::CudaError;
use library::Effort;
use options::CHUNKS_MIN;
use plan::{Plan, finish, slice_len};
use queues::{CHUNK, Trouble};
use service::{ServiceState, at_first_sight, on_a_bus};

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
    inner: Mutex<ServiceState>,
    /// Held during the self-test, which may last for ever.
    testing: Mutex<()>,
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
            inner: Mutex::new(ServiceState {
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
            inner.refuse(door::Trouble::Failed, trouble.to_string());
        }
        fault
    }
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
            firmware_version: context.and_then(|context| context.firmware_version.clone()),
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
            trial::run(&self.inner, &self.options);
        }
        log_test(self, before.as_ref());
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
