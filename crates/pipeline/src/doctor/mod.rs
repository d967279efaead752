//! What a machine has for backups, what is missing, and the command that helps.
//!
//! Reads `/sys`, `/proc` and `/etc`, below roots that a test may fake, and changes nothing. No device is touched: a QAT
//! device's heartbeat in particular is left alone, because reading it makes the driver act. What only root may read is
//! unknown, not wrong.

mod nvidia;
mod qat;

use std::path::PathBuf;

use longshore_codec::engines;
use longshore_io::facts;
use serde::Serialize;

use crate::Probe;

/// Where the system's files are.
#[derive(Debug, Clone)]
pub struct Roots {
    pub sys: PathBuf,
    pub proc: PathBuf,
    pub etc: PathBuf,
}

impl Roots {
    /// This machine's; sysfs where `LONGSHORE_SYSFS` says.
    pub fn host() -> Roots {
        Roots {
            sys: longshore_codec::accel::qatzip::Places::host().sys,
            proc: "/proc".into(),
            etc: "/etc".into(),
        }
    }
}

/// How it stands with one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Good,
    /// Nothing to do: it is so, or cannot be told.
    Note,
    /// It could be better: `fix` says how.
    Wanting,
}

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checkup {
    /// What it is about: `cpu`, `qat`, `nvidia`.
    pub about: &'static str,
    pub verdict: Verdict,
    /// In plain words.
    pub text: String,
    /// A command, or what to do by hand.
    pub fix: Option<String>,
}

impl Checkup {
    fn good(about: &'static str, text: impl Into<String>) -> Checkup {
        Checkup {
            about,
            verdict: Verdict::Good,
            text: text.into(),
            fix: None,
        }
    }

    fn note(about: &'static str, text: impl Into<String>) -> Checkup {
        Checkup {
            verdict: Verdict::Note,
            ..Checkup::good(about, text)
        }
    }

    fn wanting(about: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Checkup {
        Checkup {
            verdict: Verdict::Wanting,
            fix: Some(fix.into()),
            ..Checkup::good(about, text)
        }
    }
}

/// Looks at everything. `probes` is what the accelerators' own tests found.
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
                format!("ISA-L is not in use, QAT_DEFLATE takes several times the CPU: {why}"),
                "apt-get install libisal2, or dnf install isa-l",
            ),
        });
    }
    all
}
