//! The CPU as an engine: the same code as [`Compressor`] and [`Decompressor`], one buffer at a time.
//!
//! A backup without an accelerator does not use it: its workers compress the bytes that they have just read, while
//! these are in their core's cache. This engine serves callers that already hold a job: work that an accelerator did
//! not do.
//!
//! Invariants
//! - Every compression is done: it cannot fail. A payload that does not decode is `Corrupt`.
//! - A call computes on the caller's thread and waits for no other one.
//! - There are as many codecs as there were calls at the same time.
//!
//! Leaves to others: the algorithms (`longshore-codec`).

use longshore_codec::{Algorithm, Compressor, Decompressor, Error, Level, PLAIN_LEN_MAX};
use parking_lot::Mutex;

use crate::{Caps, Engine, EngineState, Fault, Health, Job, Outcome, Task};

/// Software for one algorithm. Any number of threads may run it at a time; each call computes on its own thread.
pub struct Software {
    caps: Caps,
    level: Level,
    /// Idle codecs: as many as there were concurrent calls.
    idle: Mutex<Vec<Codec>>,
}

struct Codec {
    compressor: Compressor,
    level: Level,
    decompressor: Decompressor,
}

impl Software {
    /// `level`: used for jobs that ask for a level which the algorithm does not have.
    ///
    /// Errors: `LevelOutOfRange`, `LevelNotSupported`.
    pub fn new(algorithm: Algorithm, level: Level) -> Result<Software, Error> {
        let codec = Codec::new(algorithm, level)?;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Ok(Software {
            caps: Caps {
                name: codec.compressor.engine(),
                algorithm,
                accelerator: false,
                decompresses: true,
                input_bytes_max: PLAIN_LEN_MAX,
                calls_max: cores,
                batch_bytes: 1..PLAIN_LEN_MAX,
                staging_bytes: 0,
            },
            level,
            idle: Mutex::new(vec![codec]),
        })
    }

    /// Does one job, whatever its outcome was before.
    pub fn run_one(&self, job: &mut Job) {
        let idle = self.idle.lock().pop();
        // The level was valid when this engine was made.
        let Some(mut codec) = idle.or_else(|| Codec::new(self.caps.algorithm, self.level).ok())
        else {
            job.outcome = Outcome::Recompute(Fault::Down);
            return;
        };
        job.outcome = codec.run(self.caps.algorithm, job);
        self.idle.lock().push(codec);
    }
}

impl Codec {
    fn new(algorithm: Algorithm, level: Level) -> Result<Codec, Error> {
        Ok(Codec {
            compressor: Compressor::new(algorithm, level)?,
            level,
            decompressor: Decompressor::new(),
        })
    }

    fn run(&mut self, algorithm: Algorithm, job: &mut Job) -> Outcome {
        let Job {
            input, input_range, ..
        } = &*job;
        let (input, range) = (input.clone(), input_range.clone());
        let input = &input[range];
        match job.task {
            Task::Compress { level } => {
                if level != self.level
                    && let Ok(compressor) = Compressor::new(algorithm, level)
                {
                    (self.compressor, self.level) = (compressor, level);
                }
                let len = self.compressor.compress(input, job.output_mut()).len;
                Outcome::Done { len }
            }
            Task::Decompress { plain_len } => {
                let Some(plain) = job.output_mut().get_mut(..plain_len) else {
                    return Outcome::Recompute(Fault::NoRoom);
                };
                match self.decompressor.decompress(algorithm, input, plain) {
                    Ok(()) => Outcome::Done { len: plain_len },
                    Err(_) => Outcome::Recompute(Fault::Corrupt),
                }
            }
        }
    }
}

impl Engine for Software {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn health(&self) -> Health {
        Health::of(EngineState::Ready)
    }

    fn run(&self, mut batch: Vec<Job>) -> Vec<Job> {
        batch.iter_mut().for_each(|job| self.run_one(job));
        batch
    }

    /// ISA-L was tested when it was loaded; the others are linked in.
    fn self_test(&self) -> Health {
        self.health()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{compression_jobs, decompression_jobs, engine_contract, stock_decode};

    #[test]
    fn software_does_every_job_of_every_algorithm() {
        for algorithm in Algorithm::ALL {
            let software = Software::new(algorithm, Level::Low).unwrap();
            let decode = |payload: &[u8], len: usize| stock_decode(algorithm, payload, len);
            let jobs = compression_jobs(algorithm, &[1, 70_000, 1 << 20, 300_001]);
            assert_eq!(engine_contract(&software, jobs, decode), 4, "{algorithm}");
            let jobs = decompression_jobs(algorithm, &[1, 70_000, 1 << 20, 300_001]);
            assert_eq!(engine_contract(&software, jobs, decode), 4, "{algorithm}");
        }
    }

    #[test]
    fn a_job_may_ask_for_another_level_than_the_last() {
        let software = Software::new(Algorithm::Zstd, Level::Low).unwrap();
        let mut jobs = compression_jobs(Algorithm::Zstd, &[1 << 20, 1 << 20, 1 << 20]);
        jobs[1].task = Task::Compress {
            level: Level::Number(-7),
        };
        jobs[2].task = Task::Compress {
            level: Level::Number(99),
        };
        let lens: Vec<usize> = software
            .run(jobs)
            .iter()
            .map(|job| match job.outcome {
                Outcome::Done { len } => len,
                ref other => panic!("{other:?}"),
            })
            .collect();
        assert!(lens[1] > lens[0] + lens[0] / 10, "{lens:?}");
        assert!(
            lens[2].abs_diff(lens[1]) < lens[1] / 50,
            "the level that does not exist changes nothing: {lens:?}"
        );
    }

    #[test]
    fn a_payload_that_does_not_decode_is_said_to_be_corrupt() {
        let software = Software::new(Algorithm::QatDeflate, Level::Low).unwrap();
        let mut jobs = decompression_jobs(Algorithm::QatDeflate, &[70_000]);
        jobs[0].input_range.end -= 1;
        let done = software.run(jobs);
        assert_eq!(done[0].outcome, Outcome::Recompute(Fault::Corrupt));
    }
}
