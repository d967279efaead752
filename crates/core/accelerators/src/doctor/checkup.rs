//! Where an examination reads, and what it returns: the roots of the system's files, and check-ups.

use std::path::PathBuf;

use serde::Serialize;

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
    pub(super) fn good(about: &'static str, text: impl Into<String>) -> Checkup {
        Checkup {
            about,
            verdict: CheckResult::Good,
            text: text.into(),
            fix: None,
        }
    }

    pub(super) fn note(about: &'static str, text: impl Into<String>) -> Checkup {
        Checkup {
            verdict: CheckResult::Note,
            ..Checkup::good(about, text)
        }
    }

    pub(super) fn wanting(
        about: &'static str,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Checkup {
        Checkup {
            verdict: CheckResult::Wanting,
            fix: Some(fix.into()),
            ..Checkup::good(about, text)
        }
    }
}
