//! A scripted accelerator: it takes as long as a device would, uses almost no CPU, and fails when its script says so.
//!
//! It answers from payloads that were compressed beforehand ([`ScriptedEngine::learn`]). Other input it compresses
//! itself, which takes CPU.
//!
//! Invariants
//! - The engine simulates time and failure, not a device: numbers measured with it say nothing about hardware.
//! - Concurrent calls share its rate, as calls of one device do.
//!
//! Leaves to others: real engines (`devices`), and checking results (`dispatch`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_codec::{Algorithm, Compressor, Level};
use longshore_io::{Clock, crc32c};
use parking_lot::{Condvar, Mutex};

use crate::{Caps, Engine, EngineState, Fault, Health, Job, Outcome, Software, Task};

/// The behaviour of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Well,
    /// Does nothing, for this reason.
    Refuse(Fault),
    /// Leaves every second job with this fault.
    Half(Fault),
    /// Succeeds after this time.
    Late(Duration),
    /// Does not return before [`ScriptedEngine::release`], then writes into its output buffers and reports success.
    Hang,
    /// A bit within the compressed data is wrong.
    FlipBody,
    /// A bit of the last eight bytes is wrong.
    FlipFooter,
    /// The result ends early.
    Truncate,
    /// Reports a length beyond its room.
    Boast,
    /// The results of the first and the last job are swapped.
    Swap,
    /// A job is missing.
    Lose,
    /// The jobs come back in reverse.
    Reverse,
    /// Outcomes are left pending.
    Leave,
    Panic,
}

impl Act {
    /// All of them, with times and faults that suit a quick test.
    pub const ALL: [Act; 16] = [
        Act::Well,
        Act::Refuse(Fault::Busy),
        Act::Refuse(Fault::Device { code: -2 }),
        Act::Refuse(Fault::Memory),
        Act::Half(Fault::Short),
        Act::Half(Fault::NoRoom),
        Act::Late(Duration::from_millis(3)),
        Act::Hang,
        Act::FlipBody,
        Act::FlipFooter,
        Act::Truncate,
        Act::Boast,
        Act::Swap,
        Act::Lose,
        Act::Reverse,
        Act::Leave,
    ];
}

/// The speed.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Of every call.
    pub latency: Duration,
    /// Input bytes per second, all calls together. 0: as fast as possible.
    pub bytes_per_s: u64,
}

type Script = dyn Fn(u64) -> Act + Send + Sync;
type Key = (u32, usize, Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Compress,
    Decompress,
}

/// See the module's head.
pub struct ScriptedEngine {
    caps: Caps,
    clock: Arc<dyn Clock>,
    pace: Pace,
    script: Box<Script>,
    self_test: Mutex<Box<dyn FnMut() -> EngineState + Send>>,
    calls: AtomicU64,
    busy_until: Mutex<Duration>,
    known: Mutex<HashMap<Key, Arc<[u8]>>>,
    software: Software,
    hung: (Mutex<bool>, Condvar),
}

impl ScriptedEngine {
    /// `script(n)` is the behaviour of call `n`, from 0.
    pub fn new(
        clock: Arc<dyn Clock>,
        algorithm: Algorithm,
        pace: Pace,
        script: impl Fn(u64) -> Act + Send + Sync + 'static,
    ) -> ScriptedEngine {
        let software = Software::new(algorithm, Level::Low).expect("LOW exists everywhere");
        let caps = Caps {
            name: "scripted",
            algorithm,
            accelerator: true,
            decompresses: true,
            input_bytes_max: 4 << 20,
            calls_max: 2,
            batch_bytes: 1 << 20..4 << 20,
            staging_bytes: 0,
        };
        ScriptedEngine {
            caps,
            clock,
            pace,
            script: Box::new(script),
            self_test: Mutex::new(Box::new(|| EngineState::Ready)),
            calls: AtomicU64::new(0),
            busy_until: Mutex::new(Duration::ZERO),
            known: Mutex::default(),
            software,
            hung: (Mutex::new(false), Condvar::new()),
        }
    }

    /// An engine without faults.
    pub fn healthy(clock: Arc<dyn Clock>, algorithm: Algorithm, pace: Pace) -> ScriptedEngine {
        ScriptedEngine::new(clock, algorithm, pace, |_| Act::Well)
    }

    /// Changes the capabilities.
    pub fn with_caps(mut self, change: impl FnOnce(&mut Caps)) -> ScriptedEngine {
        change(&mut self.caps);
        self
    }

    /// Sets the results of its self-tests, one after another.
    pub fn with_self_test(
        self,
        answer: impl FnMut() -> EngineState + Send + 'static,
    ) -> ScriptedEngine {
        *self.self_test.lock() = Box::new(answer);
        self
    }

    /// Compresses these bytes now, so that a call does not have to.
    pub fn learn(&self, plain: &[u8], output: &mut [u8]) {
        let mut compressor =
            Compressor::new(self.caps.algorithm, Level::Low).expect("LOW exists everywhere");
        let len = compressor.compress(plain, output).len;
        let key = (crc32c(plain), plain.len(), Kind::Compress);
        self.known.lock().insert(key, output[..len].into());
    }

    /// Calls made so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Lets hanging calls return, now and later.
    pub fn release(&self) {
        *self.hung.0.lock() = true;
        self.hung.1.notify_all();
    }

    /// Takes as long as a device for that many bytes.
    fn work(&self, bytes: usize) {
        let transfer = match self.pace.bytes_per_s {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(bytes as f64 / rate as f64),
        };
        let until = {
            let mut busy_until = self.busy_until.lock();
            *busy_until = busy_until.max(self.clock.now()) + transfer;
            *busy_until
        };
        let wait = (until + self.pace.latency).saturating_sub(self.clock.now());
        if !wait.is_zero() {
            self.clock.sleep(wait);
        }
    }

    fn answer(&self, job: &mut Job) {
        let kind = match job.task {
            Task::Compress { .. } => Kind::Compress,
            Task::Decompress { .. } => Kind::Decompress,
        };
        let key = (crc32c(job.input()), job.input_range.len(), kind);
        let known = self.known.lock().get(&key).cloned();
        if let Some(result) = known
            && let Some(room) = job.output_mut().get_mut(..result.len())
        {
            room.copy_from_slice(&result);
            job.outcome = Outcome::Done { len: result.len() };
            return;
        }
        self.software.run_one(job);
        if let Outcome::Done { len } = job.outcome {
            self.known.lock().insert(key, job.output()[..len].into());
        }
    }

    fn hang(&self) {
        let mut released = self.hung.0.lock();
        while !*released {
            self.hung.1.wait(&mut released);
        }
    }
}

fn done(job: &Job) -> usize {
    match job.outcome {
        Outcome::Done { len } => len,
        _ => 0,
    }
}

impl Engine for ScriptedEngine {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn health(&self) -> Health {
        Health {
            hardware: Some("a script".into()),
            ..Health::of(EngineState::Ready)
        }
    }

    fn run(&self, mut batch: Vec<Job>) -> Vec<Job> {
        let act = (self.script)(self.calls.fetch_add(1, Ordering::Relaxed));
        if let Act::Refuse(fault) = act {
            for job in &mut batch {
                job.outcome = Outcome::Recompute(fault);
            }
            return batch;
        }
        if act == Act::Panic {
            panic!("as the script says");
        }
        self.work(batch.iter().map(|job| job.input_range.len()).sum());
        if let Act::Late(by) = act {
            self.clock.sleep(by);
        }
        if act == Act::Hang {
            self.hang();
            for job in &mut batch {
                job.output_mut().fill(0xdb);
                let len = job.output_range.len() / 2;
                job.outcome = Outcome::Done { len };
            }
            return batch;
        }
        batch.iter_mut().for_each(|job| self.answer(job));
        for (i, job) in batch.iter_mut().enumerate() {
            let len = done(job);
            let middle = len / 2;
            match act {
                Act::Half(fault) if i % 2 == 0 => job.outcome = Outcome::Recompute(fault),
                Act::FlipBody if len > 0 => job.output_mut()[middle] ^= 4,
                Act::FlipFooter if len > 5 => job.output_mut()[len - 6] ^= 4,
                Act::Truncate => job.outcome = Outcome::Done { len: middle },
                Act::Boast => {
                    let len = job.output_range.len() + 1;
                    job.outcome = Outcome::Done { len };
                }
                Act::Leave => job.outcome = Outcome::Pending,
                _ => {}
            }
        }
        match act {
            Act::Swap => {
                if let [first, .., last] = &mut batch[..] {
                    std::mem::swap(&mut first.output, &mut last.output);
                    std::mem::swap(&mut first.outcome, &mut last.outcome);
                }
            }
            Act::Lose => drop(batch.pop()),
            Act::Reverse => batch.reverse(),
            _ => {}
        }
        batch
    }

    fn self_test(&self) -> Health {
        Health {
            state: (self.self_test.lock())(),
            ..self.health()
        }
    }
}

#[cfg(test)]
mod tests {
    use longshore_io::SimClock;

    use super::*;
    use crate::contract::{compression_jobs, decompression_jobs, engine_contract, gunzip};

    const QAT: Algorithm = Algorithm::QatDeflate;
    const PACE: Pace = Pace {
        latency: Duration::from_millis(1),
        bytes_per_s: 1 << 30,
    };

    #[test]
    fn a_healthy_script_keeps_the_contract_and_takes_its_time() {
        let clock = Arc::new(SimClock::new(0));
        let engine = ScriptedEngine::healthy(clock.clone(), QAT, PACE);
        let lens = [1 << 20, 1 << 20, 70_000, 1];
        assert_eq!(
            engine_contract(&engine, compression_jobs(QAT, &lens), gunzip),
            4
        );
        let expected = 0.001 + (2_167_153.0 / (1 << 30) as f64);
        let took = clock.now().as_secs_f64();
        assert!((took - expected).abs() < 1e-5, "{took} s, not {expected} s");
        assert_eq!(
            engine_contract(&engine, decompression_jobs(QAT, &lens), gunzip),
            4
        );
    }

    #[test]
    fn a_script_that_leaves_work_keeps_the_contract_and_is_counted() {
        let clock = Arc::new(SimClock::new(0));
        let script = |n| match n {
            0 => Act::Refuse(Fault::Busy),
            _ => Act::Half(Fault::Short),
        };
        let engine = ScriptedEngine::new(clock, QAT, PACE, script);
        let jobs = || compression_jobs(QAT, &[100, 200, 300, 400, 500]);
        assert_eq!(engine_contract(&engine, jobs(), gunzip), 0);
        assert_eq!(engine_contract(&engine, jobs(), gunzip), 2);
    }

    #[test]
    fn every_lie_breaks_the_contract() {
        let lies = [
            Act::FlipBody,
            Act::FlipFooter,
            Act::Truncate,
            Act::Boast,
            Act::Swap,
            Act::Lose,
            Act::Reverse,
            Act::Leave,
        ];
        for lie in lies {
            let engine = ScriptedEngine::new(Arc::new(SimClock::new(0)), QAT, PACE, move |_| lie);
            let jobs = compression_jobs(QAT, &[5_000, 6_000]);
            let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                engine_contract(&engine, jobs, gunzip)
            }));
            assert!(broken.is_err(), "{lie:?} passed");
        }
    }
}
