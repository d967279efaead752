//! Are the device's results correct, and what happens if they are not?
//!
//! Invariants
//! - Results are restored by software and compared byte by byte; the engine's word is not enough.
//! - A missing library or too little memory is a state with a reason; the memory that a check takes is released.
//!
//! Leaves to others: speeds (`speed.rs`), and whole backups (`backups.rs`).

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use longshore_accel::nvcomp::{Nvcomp, Options};
use longshore_accel::{Engine, EngineState, Outcome};
use longshore_codec::{Algorithm, Decompressor, Level};

use super::content::SampleContent;
use super::speed::{job, outputs};

/// Lengths that end before, at and after chunks of 64 KiB, and whole buffers.
const LENS: [usize; 10] = [
    1,
    2,
    255,
    65_535,
    65_536,
    65_537,
    131_072,
    196_608,
    300_001,
    1 << 20,
];

/// A device with these options that passed its self-test; or why it is not in service.
pub fn ready(options: Options) -> Result<Arc<Nvcomp>> {
    let engine = Nvcomp::open(options);
    let health = engine.self_test();
    ensure!(health.state == EngineState::Ready, "{}", health.reason);
    Ok(Arc::new(engine))
}

/// Every length of every content, restored by software and compared. Returns how many there were, and which decoder
/// restored them.
pub fn round_trips(engine: &Nvcomp, contents: &[SampleContent]) -> Result<String> {
    let mut restored = 0;
    for content in contents {
        let pool = outputs(content, LENS.len())?;
        let mut jobs = Vec::new();
        for (n, len) in LENS.into_iter().enumerate() {
            let input = &content.buffers[n % content.buffers.len()];
            let Some(output) = pool.try_take() else {
                bail!("too few outputs");
            };
            let mut job = job(n as u64, input, output, Level::Low);
            job.input_range = 0..len.min(input.len());
            jobs.push(job);
        }
        for job in engine.run(jobs) {
            let plain = job.input();
            let at = format!("{} of {} bytes", content.name, plain.len());
            let Outcome::Done { len } = job.outcome else {
                bail!("{at}: {:?}", job.outcome);
            };
            let mut found = vec![0; plain.len()];
            let payload = &job.output()[..len];
            Decompressor::new()
                .decompress(Algorithm::QatDeflate, payload, &mut found)
                .map_err(|damaged| anyhow::anyhow!("{at}: {damaged}"))?;
            ensure!(found == plain, "{at}: restored to something else");
            restored += 1;
        }
    }
    ensure!(
        engine.chunks_failed() == 0,
        "the device failed at {} chunks",
        engine.chunks_failed()
    );
    Ok(format!("{restored} payloads, all restored in software"))
}

/// The behaviour when another program takes the device's memory: smaller batches, or off with a reason, and back in
/// service when memory is available again.
pub fn starved(holder: &Nvcomp, options: &Options) -> Result<String> {
    const LEAVE: usize = 64 << 20;
    let held = holder.hold_memory(LEAVE).map_err(anyhow::Error::msg)?;
    let hungry = Nvcomp::open(options.clone());
    let health = hungry.self_test();
    let seen = match health.state {
        EngineState::Ready => format!(
            "batches of {} MiB",
            hungry.facts().map_or(0, |f| f.batch_bytes >> 20)
        ),
        EngineState::Off | EngineState::Suspended => format!("out of service: {}", health.reason),
        EngineState::Absent | EngineState::Probing => {
            bail!("{:?}: {}", health.state, health.reason)
        }
    };
    let bytes = held.bytes;
    drop((held, hungry));
    ready(options.clone())?;
    Ok(format!(
        "with {} MiB taken: {seen}; afterwards ready again",
        bytes >> 20
    ))
}

/// A missing library is a reason, not an error.
pub fn unloaded(options: &Options) -> Result<String> {
    let absent = Nvcomp::open(Options {
        nvcomp: Some("/nonexistent/libnvcomp.so".into()),
        ..options.clone()
    });
    let health = absent.self_test();
    ensure!(
        health.state == EngineState::Absent,
        "{:?}: {}",
        health.state,
        health.reason
    );
    Ok(health.reason)
}
