//! A report on the machine: its means for backups, those that it lacks, and the command that fixes it.
//!
//! Invariants
//! - Reads `/sys`, `/proc` and `/etc`, below roots that a test may fake, and changes nothing.
//! - No device is accessed: in particular a QAT device's heartbeat is not read, because reading it makes the driver
//!   act.
//! - A file that only root can read is reported as unknown, not as wrong.
//! - Everything that is wanting has a fix: a command, or a step to take by hand.
//!
//! Leaves to others: testing devices (`probe.rs`), the vendors' checks (`qat.rs`, `nvidia.rs`), and showing the report.

mod nvidia;
mod qat;

use std::path::PathBuf;

use longshore_codec::engines;
use longshore_facts as facts;
use serde::Serialize;

use crate::probe::Probe;

/// The locations of the system's files.
#[derive(Debug, Clone)]
pub struct Roots {
    pub sys: PathBuf,
    pub proc: PathBuf,
    pub etc: PathBuf,
}

impl Roots {
    /// This machine's; `LONGSHORE_SYSFS` may replace sysfs.
    pub fn host() -> Roots {
        Roots {
            sys: longshore_accel::qatzip::Places::host().sys,
            proc: "/proc".into(),
            etc: "/etc".into(),
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckResult {
    Good,
    /// Nothing to do: a fact, or something that cannot be determined.
    Note,
    /// Not ideal: `fix` says how to improve it.
    Wanting,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checkup {
    /// The subject: `cpu`, `qat`, `nvidia`.
    pub about: &'static str,
    pub verdict: CheckResult,
    /// In plain words.
    pub text: String,
    /// A command, or a step to take by hand.
    pub fix: Option<String>,
}

impl Checkup {
    fn good(about: &'static str, text: impl Into<String>) -> Checkup {
        Checkup {
            about,
            verdict: CheckResult::Good,
            text: text.into(),
            fix: None,
        }
    }

    fn note(about: &'static str, text: impl Into<String>) -> Checkup {
        Checkup {
            verdict: CheckResult::Note,
            ..Checkup::good(about, text)
        }
    }

    fn wanting(about: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Checkup {
        Checkup {
            verdict: CheckResult::Wanting,
            fix: Some(fix.into()),
            ..Checkup::good(about, text)
        }
    }
}

/// Runs all checks. `probes` are the results of the accelerators' own tests.
pub fn examine(roots: &Roots, probes: &[Probe]) -> Vec<Checkup> {
    let probe = |engine: &str| probes.iter().find(|p| p.engine == engine);
    let mut all = processor();
    all.extend(qat::examine(roots, probe("qatzip")));
    all.extend(nvidia::examine(roots, probe("nvcomp")));
    all
}

fn processor() -> Vec<Checkup> {
    const ABOUT: &str = "cpu";
    let model = facts::cpu_model().unwrap_or_else(|| "unknown processor".to_owned());
    let cores = facts::cores();
    let mut all = vec![Checkup::good(
        ABOUT,
        format!("{model}, {cores} processors for this program"),
    )];
    for engine in engines().iter().filter(|e| e.name == "isa-l") {
        all.push(match &engine.absent {
            None => Checkup::good(
                ABOUT,
                format!(
                    "ISA-L {} compresses QAT_DEFLATE with {}",
                    engine.version, engine.instructions
                ),
            ),
            Some(why) => Checkup::wanting(
                ABOUT,
                format!(
                    "ISA-L is not used, so QAT_DEFLATE takes several times the CPU time: {why}"
                ),
                "apt-get install libisal2, or dnf install isa-l",
            ),
        });
    }
    all
}
