//! Backup, restore and verify: request → plan → threads → report.
//!
//! [`run`] is the door: the command line, T-SQL and the lab pass a [`Request`] and get a [`Report`]; [`preview`] says what a
//! restore would do. Planning
//! makes all decisions that are possible beforehand (sizes, threads, memory); the threads then move bytes with few
//! branches; the report says what happened and names the bottleneck.
//!
//! Invariants
//! - Memory for data is allocated once, before the first byte moves, and its bound is in the plan.
//! - A worker takes its buffers first and its next extent afterwards. In the opposite order, late extents could hold
//!   all buffers while the writer waits for an early one.
//! - On any failure, the first error is reported, every thread ends, and the devices are left as found.
//! - A missing or locked catalog never fails a backup: it is a warning.
//!
//! Leaves to others: options and configuration (the programs), and the formats, sources and targets (the rooms below).

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

// The contract suites name this room as others do.
#[cfg(test)]
extern crate self as longshore_pipeline;

mod archived;
mod backup;
mod base;
mod chain;
mod check;
mod choice;
mod context;
mod crew;
mod devices;
mod error;
mod feed;
#[cfg(test)]
#[path = "../tests/common/forge.rs"]
mod forge;
mod gather;
mod handoff;
mod history;
mod load;
mod log;
mod measure;
mod observer;
mod page_sums;
mod parts;
mod plan;
mod published;
mod report;
mod request;
mod restore;
mod room;
mod settings;
mod share;
#[cfg(test)]
#[path = "../../source/tests/contract/suite.rs"]
mod source_suite;
mod tail;
mod unarchived;
mod unload;
mod verify;

pub use archived::WalProof;
pub use chain::ChainError;
pub use check::{check_postgres, check_sqlite};
pub use context::RunContext;
pub use error::{Error, abort_command, left_lines};
pub use history::{origin, record_accepted, time_zone_quarters};
pub use longshore_accel::dispatch::Verify as VerifyEngine;
pub use longshore_accelerators::OffloadMode;
pub use longshore_landing::{
    ClusterError, ClusterOptions, DatabaseChoice, Error as LandingError, RecoverySettings,
    SpaceOptions,
};
pub use longshore_media::{DeviceSpec, Disposition, LeftStripe, Standing};
pub use longshore_pg::{Lsn, Recovery, RecoveryTarget, TargetAction, Timeline, TimelineChoice};
pub use longshore_source::{CheckDepth, ClusterCheck, Error as SourceError, SourceSpec};
pub use measure::{Limit, Sample, Waits};
pub use observer::{NullObserver, Observer, Progress};
pub use plan::Plan;
pub use report::{
    BackupReport, ChangedFile, DifferentialReport, FileTotals, Finding, NeededWal, Report,
    RestorePreview, RestoreReport, Run, VerifiedSet, VerifyReport, degraded, mb_per_s, pages,
    ratio,
};
pub use request::{
    Against, BackupRequest, BaseRequest, Limits, LogPlace, LogRequest, Objective, Offload,
    OnChange, Request, RestoreNote, RestoreRequest, Tuning, VerifyDepth, VerifyRequest,
};
pub use settings::ServerSettings;
pub use share::EngineShare;
pub use tail::check_tail;
pub use unarchived::unarchived;

/// Finds out what a restore would do, up to its first write, and writes nothing.
///
/// Errors: those with which the restore would be refused, but for those that need its locks; `NeedsIndex` for a pipe.
pub fn preview(
    context: &RunContext,
    request: &RestoreRequest,
    observer: &dyn Observer,
) -> Result<RestorePreview, Error> {
    restore::preview(context, request, observer)
}

/// Runs the request and reports the result. Meanwhile other processes can see how far it is.
pub fn run(
    context: &RunContext,
    request: &Request,
    observer: &dyn Observer,
) -> Result<Report, Error> {
    let observer = &published::PublishedRun::new(context, observer);
    match request {
        Request::Backup(r) => backup::run(context, r, observer).map(Report::Backup),
        Request::Restore(r) => restore::run(context, r, observer).map(Report::Restore),
        Request::Verify(r) => verify::run(context, r, observer).map(Report::Verify),
    }
}
