//! A report on the machine: its means for backups, those that it lacks, and the command that fixes it.
//!
//! Invariants
//! - Reads `/sys`, `/proc` and `/etc`, below roots that a test may fake, and changes nothing.
//! - No device is accessed: in particular a QAT device's heartbeat is not read, because reading it makes the driver
//!   act.
//! - A file that only root can read is reported as unknown, not as wrong.
//! - Everything that is wanting has a fix: a command, or a step to take by hand.
//!
//! Leaves to others: testing devices (`probe.rs`), the checks themselves (`cpu.rs`, `qat.rs`, `nvidia.rs`), and showing the
//! report.

mod checkup;
mod cpu;
mod nvidia;
mod qat;

use crate::probe::Probe;
pub use checkup::{CheckResult, Checkup, Roots};

/// Runs all checks. `probes` are the results of the accelerators' own tests.
pub fn examine(roots: &Roots, probes: &[Probe]) -> Vec<Checkup> {
    let probe = |engine: &str| probes.iter().find(|p| p.engine == engine);
    let mut all = cpu::examine();
    all.extend(qat::examine(roots, probe("qatzip")));
    all.extend(nvidia::examine(roots, probe("nvcomp")));
    all
}
