//! The share of each engine in a run: software, and each accelerator.

use std::collections::BTreeMap;

use longshore_accel::EngineState;
use longshore_accel::dispatch::EngineUse;
use longshore_accelerators::state_text;
use serde::Serialize;

/// One engine's part in a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct EngineShare {
    pub name: String,
    pub is_accelerator: bool,
    /// `ready`, `suspended`, `off`, … at the end of the run.
    pub state: &'static str,
    /// Why it was not ready; empty if it was.
    pub reason: String,
    /// Blocks whose payload it made.
    pub blocks: u64,
    pub plain_bytes: u64,
    /// For an accelerator: blocks that were given to it and then done by software.
    pub recomputed: u64,
    /// Of these: blocks that the writer waited for, and blocks that idle CPUs took over.
    pub hedged: u64,
    pub stolen: u64,
    /// Calls to it, their mean time, and the time that the slowest hundredth exceeded.
    pub calls: u64,
    pub service_us_mean: u64,
    pub service_us_p99: Option<u64>,
    pub rate_bytes_per_s: Option<u64>,
    /// Results that were decoded to check them, and those that were wrong.
    pub verified_count: u64,
    pub verify_failures: u64,
    /// Counted by kind.
    pub faults: BTreeMap<&'static str, u64>,
}

impl EngineShare {
    /// The share of an accelerator.
    pub(crate) fn of(used: &EngineUse) -> EngineShare {
        EngineShare {
            name: used.name.to_owned(),
            is_accelerator: true,
            state: state_text(used.state),
            reason: used.reason.clone(),
            blocks: used.blocks,
            plain_bytes: used.plain_bytes,
            recomputed: used.recomputed,
            hedged: used.hedged,
            stolen: used.stolen,
            calls: used.calls,
            service_us_mean: used.service_us_mean,
            service_us_p99: used.service_us_p99,
            rate_bytes_per_s: used.rate_bytes_per_s.map(|rate| rate as u64),
            verified_count: used.verified,
            verify_failures: used.verify_failures,
            faults: used.faults.clone(),
        }
    }

    /// All engines of a run: software first, then the accelerators.
    pub(crate) fn all(
        software: &str,
        (blocks, plain_bytes): (u64, u64),
        used: &[EngineUse],
    ) -> Vec<EngineShare> {
        let theirs = |of: fn(&EngineUse) -> u64| used.iter().map(of).sum::<u64>();
        let software = EngineShare {
            name: software.to_owned(),
            is_accelerator: false,
            state: state_text(EngineState::Ready),
            reason: String::new(),
            blocks: blocks.saturating_sub(theirs(|u| u.blocks)),
            plain_bytes: plain_bytes.saturating_sub(theirs(|u| u.plain_bytes)),
            recomputed: 0,
            hedged: 0,
            stolen: 0,
            calls: 0,
            service_us_mean: 0,
            service_us_p99: None,
            rate_bytes_per_s: None,
            verified_count: 0,
            verify_failures: 0,
            faults: BTreeMap::new(),
        };
        std::iter::once(software)
            .chain(used.iter().map(EngineShare::of))
            .collect()
    }

    /// Faults of all kinds.
    pub fn faults_total(&self) -> u64 {
        self.faults.values().sum()
    }
}
