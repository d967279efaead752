//! Backup, restore and verify: request → plan → threads → report.
//!
//! [`run`] is the one door: the command line, T-SQL and the lab say what they want in a [`Request`] and get
//! a [`Report`]. Planning decides everything that can be decided beforehand (sizes, threads, memory);
//! the threads then move bytes with few branches; the report says what happened and which limit held.
//!
//! Invariants
//! - Memory for data is allocated once, before the first byte moves, and its bound is in the plan.
//! - A worker takes its buffers first and the next extent after them. The other way round, buffers could
//!   all be held by late extents while the writer waits for an early one.
//! - Whatever fails, the first error is reported, every thread ends, and the devices are left as found.
//! - A lost or locked catalog never fails a backup: it is a warning.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod accelerator;
mod archived;
mod backup;
mod base;
mod chain;
mod crew;
mod devices;
pub mod doctor;
mod error;
mod feed;
mod fetch;
mod gather;
mod handoff;
mod history;
mod load;
mod log;
mod measure;
mod offload;
mod page_sums;
mod plan;
mod report;
mod request;
mod restore;
mod room;
mod settings;
mod share;
mod unload;
mod verify;
mod way;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_codec::dispatch::InService;
use longshore_io::{Clock, Machine, Storage};

pub use accelerator::{
    AcceleratorStatus, Configured, EngineCounters, Probe, Reason, RunningBackup, configure,
    configured, running, status,
};
pub use archived::WalProof;
pub use chain::ChainError;
pub use error::Error;
pub use longshore_codec::dispatch::Verify as VerifyEngine;
pub use longshore_landing::{ClusterError, ClusterOptions, Error as LandingError, SpaceOptions};
use longshore_media::BackupDevice;
pub use longshore_media::{DeviceSpec, Disposition};
pub use longshore_pg::{Lsn, Recovery, RecoveryTarget, TargetAction, Timeline, TimelineChoice};
pub use longshore_source::{Error as SourceError, SourceSpec};
pub use measure::{Limit, Sample, Waits};
pub use offload::{Objective, Offload, OffloadMode};
pub use plan::Plan;
pub use report::{
    BackupReport, ChangedFile, DifferentialReport, FileTotals, Finding, Report, RestoreReport, Run,
    VerifiedSet, VerifyReport, closing_line, mb_per_s, pages, ratio,
};
pub use request::{
    Against, BackupRequest, BaseRequest, Limits, LogPlace, LogRequest, OnChange, Request,
    RestoreNote, RestoreRequest, Tuning, VerifyRequest,
};
pub use settings::ServerSettings;
pub use share::EngineShare;

/// What a run works with. Tests put simulated parts in.
#[derive(Clone)]
pub struct House {
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
    /// Where the history goes; `None` keeps none.
    pub catalog: Option<PathBuf>,
    /// What may be asked to compress beside the CPUs; software serves where there is none.
    pub accelerators: Vec<Arc<InService>>,
    /// Set from outside (Ctrl-C) to end the run early.
    pub cancel: Arc<AtomicBool>,
}

impl House {
    pub(crate) fn check_cancel(&self) -> Result<(), Error> {
        if self.cancel.load(Ordering::Relaxed) {
            Err(Error::Cancelled)
        } else {
            Ok(())
        }
    }

    /// What the rooms below see of it.
    pub fn machine(&self) -> Machine {
        Machine {
            storage: self.storage.clone(),
            clock: self.clock.clone(),
        }
    }

    /// Devices whose waits end with the run's cancellation.
    pub(crate) fn devices(&self, specs: &[DeviceSpec]) -> Vec<Arc<dyn BackupDevice>> {
        let open = |spec: &DeviceSpec| spec.open_until(&self.storage, &self.cancel);
        specs.iter().map(open).collect()
    }

    pub(crate) fn now_us(&self) -> i64 {
        self.clock.wall_ns() / 1000
    }
}

/// Hears what happens while a run goes on. Called from its threads; must not block for long.
pub trait Observer: Send + Sync {
    /// Everything was decided; bytes will move now.
    fn planned(&self, plan: &Plan);
    /// About ten times a second.
    fn progress(&self, progress: &Progress);
    fn warning(&self, text: &str);
}

/// How far a run is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    pub plain_bytes: u64,
    pub stored_bytes: u64,
    /// What `plain_bytes` will be at the end, where that is known.
    pub expected_bytes: Option<u64>,
    pub entries: u64,
}

/// Hears nothing.
pub struct Silent;

impl Observer for Silent {
    fn planned(&self, _plan: &Plan) {}
    fn progress(&self, _progress: &Progress) {}
    fn warning(&self, _text: &str) {}
}

/// Does what is asked and says what happened.
pub fn run(house: &House, request: &Request, observer: &dyn Observer) -> Result<Report, Error> {
    match request {
        Request::Backup(r) => backup::run(house, r, observer).map(Report::Backup),
        Request::Restore(r) => restore::run(house, r, observer).map(Report::Restore),
        Request::Verify(r) => verify::run(house, r, observer).map(Report::Verify),
    }
}
