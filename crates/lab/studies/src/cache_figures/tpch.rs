//! TPC-H as PostgreSQL reads it: the requests that its disk got, and how long the model of a device takes for them.
//!
//! The recording (`scripts/trace-tpch.py`) has 22 questions at scale 1, each on cold caches, answered by one process. It is text,
//! a line for each question: `Q1 CPU_S`, then its requests in their order, `[W]SECTORS[+OTHERS][*COUNT]` each. `W2048+3*5` is five writes
//! of 1 MiB in a row, of which each came while three others were in flight; without W they are reads.
//!
//! It was made once, on 29 November 2026: PostgreSQL 15.20 on a virtual machine with two CPUs (AMD EPYC, Zen 4) and 23 GiB of
//! memory, while other programs ran. So a CPU time is one value, and no spread of it is known.
//!
//! Invariants
//! - The recording is of a real server; times of devices are modelled, and nothing here chooses them.
//! - A request comes when no more are in flight than were in flight then. Its place is not kept: requests are spread over the device,
//!   so that two of them meet in one part of it by chance alone.
//!
//! Leaves to others: the devices (`longshore-simulator`), and what the figure says (`mod.rs`).

use anyhow::{Context, Result, ensure};
use longshore_policy::model::{Nanos, Op, Profile, Request};
use longshore_simulator::Choice;
use longshore_simulator::sim::{self, Ask, Scenario, WarmUp};
use longshore_simulator::trace::{Pace, Replay, Trace, TraceRequest};

/// The recording.
const RECORDED: &str = include_str!("../../data/tpch.requests");
const SECTOR_BYTES: u64 = 512;
/// Times of devices are not limited: a run ends with its load.
const WITHOUT_END: Nanos = 1 << 60;
const SLOT_BYTES: u64 = 64 << 10;
/// An odd number whose multiples are spread evenly (of splitmix64).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Requests begin at 16 KiB, the larger of the two drives' parts.
const PLACE_BITS: u32 = 14;

/// Requests that came one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    op: Op,
    len_bytes: u64,
    /// In flight when each of them came.
    others: u32,
    count: u64,
}

/// A question, and what its answer took.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Such as `Q13`.
    pub name: String,
    pub cpu_s: f64,
    runs: Vec<Run>,
}

/// The recorded questions, 22 of them.
///
/// Errors: a line that is none of the recording's.
pub fn recorded() -> Result<Vec<Question>> {
    parse(RECORDED)
}

fn parse(text: &str) -> Result<Vec<Question>> {
    let question = |(n, line): (usize, &str)| {
        Question::parse(line).with_context(|| format!("line {} of the recording", n + 1))
    };
    text.lines().enumerate().map(question).collect()
}

impl Run {
    fn parse(word: &str) -> Result<Run> {
        let wrong = || format!("{word:?} is no request");
        let (op, rest) = match word.strip_prefix('W') {
            Some(rest) => (Op::Write, rest),
            None => (Op::Read, word),
        };
        let (rest, count) = rest.split_once('*').unwrap_or((rest, "1"));
        let (sectors, others) = rest.split_once('+').unwrap_or((rest, "0"));
        let sectors: u64 = sectors.parse().with_context(wrong)?;
        let run = Run {
            op,
            len_bytes: sectors.checked_mul(SECTOR_BYTES).with_context(wrong)?,
            others: others.parse().with_context(wrong)?,
            count: count.parse().with_context(wrong)?,
        };
        ensure!(run.len_bytes > 0 && run.count > 0, wrong());
        Ok(run)
    }
}

impl Question {
    fn parse(line: &str) -> Result<Question> {
        let mut words = line.split(' ');
        let name = words.next().filter(|name| name.starts_with('Q'));
        Ok(Question {
            name: name.context("no question")?.to_owned(),
            cpu_s: words.next().context("no CPU time")?.parse()?,
            runs: words.map(Run::parse).collect::<Result<_>>()?,
        })
    }

    /// Only its first requests, with their part of the CPU time.
    pub fn shortened(mut self, most: u64) -> Question {
        let before = self.request_count();
        let mut left = most;
        for run in &mut self.runs {
            run.count = run.count.min(left);
            left -= run.count;
        }
        self.runs.retain(|run| run.count > 0);
        self.cpu_s *= self.request_count() as f64 / before.max(1) as f64;
        self
    }

    pub fn request_count(&self) -> u64 {
        self.runs.iter().map(|run| run.count).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.count * run.len_bytes).sum()
    }

    /// Commands of a device whose largest has so many bytes.
    pub fn commands(&self, most_bytes: u64) -> u64 {
        let of = |run: &Run| run.count * run.len_bytes.div_ceil(most_bytes.max(1));
        self.runs.iter().map(of).sum()
    }

    /// The requests one by one, spread over the device.
    fn trace(&self) -> Trace {
        let mut records = Vec::new();
        let mut number = 0_u64;
        for run in &self.runs {
            for _ in 0..run.count {
                let request = Request {
                    op: run.op,
                    offset: (number.wrapping_mul(SPREAD) >> 30) << PLACE_BITS,
                    len_bytes: run.len_bytes,
                };
                number += 1;
                records.push(TraceRequest {
                    at: 0,
                    ask: Ask::Io(request),
                    depth: Some(run.others),
                });
            }
        }
        Trace {
            records,
            ..Trace::default()
        }
    }

    /// The seconds that the modelled device takes for the requests alone.
    ///
    /// Errors: none but those of a policy's name.
    pub fn io_s(&self, device: &Profile, seed: u64) -> Result<f64> {
        let scenario = Scenario {
            fast: device,
            slow: device,
            slot_bytes: SLOT_BYTES,
            warm_bytes: 0,
            warm_up: WarmUp::For(0),
            measured: WITHOUT_END,
            seed,
        };
        // Without a cache everything is on this one device.
        let choice: Choice = "slow".parse()?;
        let outlook = device.outlook();
        let mut policy = choice.build(outlook, device.outlook(), 1, SLOT_BYTES);
        let trace = self.trace();
        let outcome = sim::run(
            &scenario,
            &mut Replay::new(&trace, Pace::Depth(1)),
            &mut policy,
        );
        Ok(self.bytes() as f64 / 1e6 / outcome.throughput_mb_s.max(1e-9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recording_has_22_questions_and_other_lines_are_refused() {
        let all = recorded().unwrap();
        let names: Vec<String> = (1..=22).map(|n| format!("Q{n}")).collect();
        assert!(all.iter().map(|q| &q.name).eq(&names));
        for question in &all {
            assert!(question.request_count() > 10, "{}", question.name);
            assert!(question.bytes() > 1 << 20, "{}", question.name);
        }
        for wrong in [
            "8",
            "Q1",
            "Q1 x",
            "Q1 1 R8",
            "Q1 1 0",
            "Q1 1 8*0",
            "Q1 1 8+-1",
            "Q1 1 8*2+1",
            "Q1 1 ",
            "Q1 1 99999999999999999999",
            "Q1 1 9999999999999999999",
            "",
        ] {
            assert_eq!(parse(wrong).is_err(), !wrong.is_empty(), "{wrong:?}");
        }
    }

    /// Goal: a replay keeps the number of requests in flight, and commands are counted as a device splits.
    /// Method: one device; sequences whose times follow from its latency.
    #[test]
    fn requests_come_as_they_came_and_are_split_as_devices_split() {
        let device = Profile::named("samsung-970pro").unwrap();
        let io_s = |text: &str| {
            let all = parse(&format!("Q1 1 {text}")).unwrap();
            all[0].io_s(device, 1).unwrap()
        };
        let (alone, together) = (io_s("16*400"), io_s("16+7*400"));
        let ratio = alone / together;
        assert!((6.5..8.5).contains(&ratio), "{ratio}");
        let twice = io_s("16*800") / alone;
        assert!((1.8..2.2).contains(&twice), "{twice}");
        let large = &parse("Q1 1 2048*3 W16*2").unwrap()[0];
        assert_eq!(
            (large.commands(128 << 10), large.commands(2 << 20)),
            (26, 5)
        );
        assert_eq!(
            (large.request_count(), large.bytes()),
            (5, (3 << 20) + (16 << 10))
        );
        let short = large.clone().shortened(4);
        assert_eq!((short.request_count(), short.commands(128 << 10)), (4, 25));
        assert_eq!(
            (short.cpu_s, large.clone().shortened(9)),
            (0.8, large.clone())
        );
    }
}
