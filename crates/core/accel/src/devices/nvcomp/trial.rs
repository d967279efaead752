//! The self-test: every operation of a backup, once, judged by decoders that are not NVIDIA's.
//!
//! It compresses one, two and three chunks at a time and a whole mixture of zeros, noise and text, with tails of every
//! awkward length. miniz_oxide and, if present, ISA-L inflate each payload, and the result is compared.
//!
//! Invariants
//! - An engine is in service only after every payload of one configuration was right.
//! - The gather kernel and the device's checksums are optional: if they are at fault, the test passes without them.
//!   Wrong results with neither of them are final.
//! - No lock is held while a library is called: every step may block for ever.
//! - An engine that is off stays off.
//!
//! Leaves to others: a time limit (the callers test in another process, or on a thread that may hang), and what a
//! refusal costs the device (`nvcomp/mod.rs`).

use std::sync::Arc;

use longshore_codec::deflate::{Isal, isal, miniz};
use longshore_codec::gzext::Member;
use longshore_codec::{Algorithm, payload_bound};
use longshore_io::Pool;
use parking_lot::Mutex;

use super::device::Device;
use super::driver::{self, Context, Driver};
use super::library::{Effort, Library};
use super::options::Options;
use super::plan::{Plan, finish};
use super::queues::{CHUNK, Trouble};
use super::service::{ServiceState, at_first_sight};
use crate::devices::door::{self, Refusal};
use crate::{EngineState, Outcome};

/// Brings the engine into service, or sets its refusal to the reason why not.
pub(super) fn run(engine: &Mutex<ServiceState>, options: &Options) {
    let (state, chunks_max) = {
        let mut inner = engine.lock();
        if inner.state() != EngineState::Off {
            inner.device = None;
        }
        (inner.state(), inner.chunks_max)
    };
    if state == EngineState::Off {
        return;
    }
    // Every step from here may block for ever, so no lock is held.
    let (library, context) = match find(engine, options) {
        Ok(found) => found,
        Err(refusal) => {
            // A machine without a GPU lacks its libraries as well: the missing GPU is reported.
            let sight = at_first_sight(options);
            let refusal = match sight.trouble {
                door::Trouble::HardwareNotFound => sight,
                _ => refusal,
            };
            return engine.lock().refuse(refusal.trouble, refusal.text);
        }
    };
    let make = |options: &Options| {
        Device::new(
            Arc::clone(&context),
            Arc::clone(&library),
            options,
            chunks_max,
        )
    };
    let tested = try_all(make, options);
    let mut inner = engine.lock();
    match tested {
        Ok(device) => {
            inner.device = Some(Arc::new(device));
            inner.refusal = None;
        }
        Err(Verdict::Trouble(trouble)) if context.is_lost() => inner.lost(&trouble),
        Err(Verdict::Trouble(trouble)) if trouble.is_size() => inner.no_memory(&trouble),
        Err(Verdict::Trouble(trouble)) => {
            let text = format!("its self-test did not run: {trouble}");
            inner.refuse(door::Trouble::Failed, text);
        }
        Err(Verdict::Wrong(why)) => {
            let text = format!(
                "it failed its self-test: {why}; try another version of nvCOMP or of the driver"
            );
            inner.refuse(door::Trouble::FailedForGood, text);
        }
    }
}

/// Both libraries and the device's context, from an earlier test or loaded now.
fn find(
    engine: &Mutex<ServiceState>,
    options: &Options,
) -> Result<(Arc<Library>, Arc<Context>), Refusal> {
    let (library, driver, context) = {
        let inner = engine.lock();
        (
            inner.library.clone(),
            inner.driver.clone(),
            inner.context.clone(),
        )
    };
    let library = match library {
        Some(library) => library,
        None => Arc::new(Library::load(options.nvcomp.as_deref())?),
    };
    engine.lock().library = Some(Arc::clone(&library));
    let driver = match driver {
        Some(driver) => driver,
        None => Arc::new(Driver::load(options.cuda.as_deref())?),
    };
    engine.lock().driver = Some(Arc::clone(&driver));
    let context = match context {
        Some(context) => context,
        None => Arc::new(driver.first_device().map_err(|e| {
            let trouble = if driver::means_absent(&e) {
                door::Trouble::HardwareNotFound
            } else if e.is_final() {
                door::Trouble::FailedForGood
            } else {
                door::Trouble::InitializationFailed
            };
            Refusal::new(trouble, format!("no GPU can be used: {e}; see nvidia-smi"))
        })?),
    };
    engine.lock().context = Some(Arc::clone(&context));
    Ok((library, context))
}

/// The requested options first, then without each optional part.
fn attempts(options: &Options) -> Vec<Options> {
    let mut all = vec![options.clone()];
    let mut add = |gather, checksums| {
        let less = Options {
            gather: options.gather && gather,
            checksums: options.checksums && checksums,
            ..options.clone()
        };
        if !all.contains(&less) {
            all.push(less);
        }
    };
    add(false, true);
    add(true, false);
    add(false, false);
    all
}

enum Verdict {
    /// The call succeeded, but its result is wrong.
    Wrong(&'static str),
    Trouble(Trouble),
}

impl From<Trouble> for Verdict {
    fn from(trouble: Trouble) -> Verdict {
        Verdict::Trouble(trouble)
    }
}

/// Tries the requested options, then fewer of them if the results were wrong, or nvCOMP refused a call although the
/// device was not in trouble.
fn try_all(
    make: impl Fn(&Options) -> Result<Device, Trouble>,
    options: &Options,
) -> Result<Device, Verdict> {
    let mut tested = Err(Verdict::Wrong("no GPU was tried"));
    for options in attempts(options) {
        tested = try_once(&make, &options);
        match &tested {
            Err(Verdict::Wrong(why)) => {
                tracing::warn!(why, ?options, "nvcomp failed its self-test");
            }
            Err(Verdict::Trouble(Trouble::Nvcomp(refused))) if !refused.batch_too_large() => {
                tracing::warn!(%refused, ?options, "nvcomp's self-test did not run");
            }
            Ok(_) | Err(Verdict::Trouble(_)) => break,
        }
    }
    tested
}

fn try_once(
    make: impl Fn(&Options) -> Result<Device, Trouble>,
    options: &Options,
) -> Result<Device, Verdict> {
    let device = make(options)?;
    let effort = options
        .algorithm
        .and_then(Effort::number)
        .unwrap_or(Effort::FAST);
    let pool = Pool::new(1, 4 * CHUNK).map_err(|_| Verdict::Wrong("no memory for its input"))?;
    for (content, chunks) in contents() {
        for tail in [0, 1, 2, 255, CHUNK - 1] {
            let mut buffer = pool
                .try_take()
                .ok_or(Verdict::Wrong("no memory for its input"))?;
            let len = chunks * CHUNK + tail;
            if len == 0 {
                continue;
            }
            buffer[..len].copy_from_slice(&content[..len]);
            let plan = Plan {
                input: Arc::new(buffer),
                range: 0..len,
                whole: chunks,
            };
            let parts: Vec<&[u8]> = plan.chunks().collect();
            let mut out = vec![0; payload_bound(Algorithm::QatDeflate, len)];
            let (outcome, failed) = device.compress(&parts, effort, |memory, made| {
                finish(memory, &plan, made, 1, &mut out)
            })?;
            let Outcome::Done { len } = outcome else {
                return Err(Verdict::Wrong("it does not complete all chunks"));
            };
            if failed > 0 {
                return Err(Verdict::Wrong("some chunks fail"));
            }
            if !inflates_to(&out[..len], plan.plain()) {
                return Err(Verdict::Wrong(
                    "its compressed output does not inflate to the original",
                ));
            }
        }
    }
    Ok(device)
}

/// Content of at least four chunks, and how many whole chunks of it to take.
fn contents() -> Vec<(Vec<u8>, usize)> {
    const LEN: usize = 4 * CHUNK;
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut noise = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let random: Vec<u8> = (0..LEN / 8).flat_map(|_| noise().to_le_bytes()).collect();
    let mut text = Vec::with_capacity(LEN + 64);
    while text.len() < LEN {
        let number = noise();
        text.extend_from_slice(format!("{number:x} of {} in row;", number % 113).as_bytes());
    }
    let mixed = [
        &text[..CHUNK],
        &random[..CHUNK],
        &[0; CHUNK],
        &text[..CHUNK],
    ]
    .concat();
    let mut all = vec![(vec![0; LEN], 1), (random, 2), (mixed, 3)];
    all.extend((0..=3).map(|chunks| (text.clone(), chunks)));
    all
}

/// Whether every member inflates to its part of `plain` with each decoder.
fn inflates_to(payload: &[u8], plain: &[u8]) -> bool {
    let mut miniz = miniz::Inflater::new();
    let mut isal = Isal::load().ok().map(isal::Inflater::new);
    let (mut at, mut done) = (0, 0);
    while done < plain.len() {
        let Ok(member) = Member::parse(&payload[at..], plain.len() - done) else {
            return false;
        };
        let expected = &plain[done..done + member.plain_len];
        let mut found = vec![0; member.plain_len];
        if !miniz.inflate(member.deflate, &mut found) || found != expected {
            return false;
        }
        if let Some(isal) = &mut isal {
            found.fill(0);
            if !isal.inflate(member.deflate, &mut found) || found != expected {
                return false;
            }
        }
        if crc_fast::crc32_iso_hdlc(expected) != member.crc32 {
            return false;
        }
        at += member.len;
        done += member.plain_len;
    }
    at == payload.len()
}
