//! Speeds: batches through an engine, and the same content through software on this machine.
//!
//! Invariants
//! - Each thread of an engine sends one batch that is not measured before those that are.
//! - A block that the engine leaves to software is counted, not hidden.
//!
//! Leaves to others: the content (`content.rs`), whether results are correct (`trust.rs`), and the tables (`mod.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow};
use longshore_accel::nvcomp::{Nvcomp, Timings};
use longshore_accel::{Engine, Job, Outcome, Task};
use longshore_codec::{Algorithm, Compressor, Level, payload_bound};
use longshore_facts as facts;
use longshore_io::{Buffer, Clock, Pool, side_by_side};

use super::content::SampleContent;

/// The result of one measurement.
#[derive(Debug, Clone, Default)]
pub struct Speed {
    pub wall_s: f64,
    /// Of this process.
    pub cpu_s: f64,
    pub plain_bytes: u64,
    /// The bytes of the results.
    pub payload_bytes: u64,
    /// Blocks that the engine left to software.
    pub left: u64,
    /// By the device's own clock.
    pub device: Timings,
}

impl Speed {
    pub fn gb_per_s(&self) -> f64 {
        self.plain_bytes as f64 / 1e9 / self.wall_s.max(1e-9)
    }

    pub fn cpu_s_per_gb(&self) -> f64 {
        self.cpu_s / (self.plain_bytes.max(1) as f64 / 1e9)
    }

    pub fn ratio(&self) -> f64 {
        self.plain_bytes as f64 / self.payload_bytes.max(1) as f64
    }

    /// The rate that each of the device's stages would reach alone: copies in, compression, copies out. In 10^9 plain
    /// bytes per second.
    pub fn stages_gb_per_s(&self) -> [f64; 3] {
        let rate = |ns: u64| self.device.plain_bytes as f64 / ns.max(1) as f64;
        [
            rate(self.device.input_ns),
            rate(self.device.compute_ns),
            rate(self.device.output_ns),
        ]
    }
}

/// One job of 1 MiB.
pub fn job(sequence: u64, input: &Arc<Buffer>, output: Buffer, level: Level) -> Job {
    let len = input.len();
    Job {
        sequence,
        task: Task::Compress { level },
        input: Arc::clone(input),
        input_range: 0..len,
        output,
        output_range: 0..payload_bound(Algorithm::QatDeflate, len),
        outcome: Outcome::Pending,
    }
}

/// Buffers for the results of `count` jobs.
pub fn outputs(content: &SampleContent, count: usize) -> Result<Pool> {
    let len = content.buffers.first().map_or(1, |buffer| buffer.len());
    Ok(Pool::new(count, payload_bound(Algorithm::QatDeflate, len))?)
}

/// Sends batches of `batch_bytes` from as many threads as the engine accepts calls, for at least `least`, at least one
/// batch for each thread. Each thread first sends one unmeasured batch.
pub fn of_engine(
    clock: &dyn Clock,
    engine: &Arc<Nvcomp>,
    content: &SampleContent,
    batch_bytes: usize,
    least: Duration,
) -> Result<Speed> {
    let calls = engine.caps().calls_max;
    let block = content.buffers.first().map_or(1, |buffer| buffer.len());
    let batch = (batch_bytes / block).max(1);
    let pool = outputs(content, calls * batch)?;
    let payload_bytes = AtomicU64::new(0);
    let plain_bytes = AtomicU64::new(0);
    let left = AtomicU64::new(0);
    let run = |call: usize, least: Duration| -> Result<()> {
        let start = clock.now();
        let mut at = call * batch;
        loop {
            let jobs = (0..batch).map(|n| {
                let input = &content.buffers[(at + n) % content.buffers.len()];
                let output = pool.try_take().ok_or_else(|| anyhow!("too few outputs"))?;
                Ok(job(n as u64, input, output, Level::Low))
            });
            let jobs: Result<Vec<Job>> = jobs.collect();
            for job in engine.run(jobs?) {
                plain_bytes.fetch_add(job.input().len() as u64, Ordering::Relaxed);
                match job.outcome {
                    Outcome::Done { len } => payload_bytes.fetch_add(len as u64, Ordering::Relaxed),
                    Outcome::Pending | Outcome::Recompute(_) => {
                        left.fetch_add(1, Ordering::Relaxed)
                    }
                };
            }
            at += batch;
            if clock.now() - start >= least {
                return Ok(());
            }
        }
    };
    let all = |least: Duration| -> Result<()> {
        let ended = side_by_side(calls, |call| run(call, least))?;
        ended.into_iter().collect()
    };
    all(Duration::ZERO)?;
    for count in [&payload_bytes, &plain_bytes, &left] {
        count.store(0, Ordering::Relaxed);
    }
    let (device, cpu, start) = (engine.timings(), facts::process_usage()?.cpu(), clock.now());
    all(least)?;
    let wall_s = (clock.now() - start).as_secs_f64();
    Ok(Speed {
        wall_s,
        cpu_s: (facts::process_usage()?.cpu() - cpu).as_secs_f64(),
        plain_bytes: plain_bytes.into_inner(),
        payload_bytes: payload_bytes.into_inner(),
        left: left.into_inner(),
        device: since(engine.timings(), device),
    })
}

fn since(now: Timings, then: Timings) -> Timings {
    Timings {
        batches: now.batches - then.batches,
        plain_bytes: now.plain_bytes - then.plain_bytes,
        dense_bytes: now.dense_bytes - then.dense_bytes,
        input_ns: now.input_ns - then.input_ns,
        compute_ns: now.compute_ns - then.compute_ns,
        output_ns: now.output_ns - then.output_ns,
    }
}

/// Software on `threads` cores, one block after another, for `least`.
pub fn of_software(
    clock: &dyn Clock,
    content: &SampleContent,
    level: Level,
    threads: usize,
    least: Duration,
) -> Result<Speed> {
    let (cpu, start) = (facts::process_usage()?.cpu(), clock.now());
    let run = |thread: usize| -> Result<(u64, u64)> {
        let mut compressor = Compressor::new(Algorithm::QatDeflate, level)?;
        let mut out = vec![0; payload_bound(Algorithm::QatDeflate, longshore_codec::PLAIN_LEN_MAX)];
        let (mut plain_bytes, mut payload_bytes) = (0, 0);
        for n in thread.. {
            let plain = &content.buffers[n % content.buffers.len()];
            payload_bytes += compressor.compress(plain, &mut out).len as u64;
            plain_bytes += plain.len() as u64;
            if clock.now() - start >= least {
                break;
            }
        }
        Ok((plain_bytes, payload_bytes))
    };
    let sums = side_by_side(threads, run)?;
    let sums: Vec<_> = sums.into_iter().collect::<Result<_>>()?;
    let sum = |part: fn(&(u64, u64)) -> u64| sums.iter().map(part).sum();
    Ok(Speed {
        wall_s: (clock.now() - start).as_secs_f64(),
        cpu_s: (facts::process_usage()?.cpu() - cpu).as_secs_f64(),
        plain_bytes: sum(|s| s.0),
        payload_bytes: sum(|s| s.1),
        ..Speed::default()
    })
}
