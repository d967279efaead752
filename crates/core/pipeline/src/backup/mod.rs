//! Backup: opens source and devices, plans, moves the bytes ([`crate::load`]), seals the set and reports.
//!
//! Three steps: [`PreparedBackup`] makes all decisions that are possible before a byte moves; [`store`] moves the blocks,
//! proves that the WAL exists and seals the set; [`report`] informs the caller, the observer and the history.

mod prepared;
mod refusals;
mod report;
mod store;

use crate::context::RunContext;
use crate::error::Error;
use crate::observer::Observer;
use crate::report::BackupReport;
use crate::request::BackupRequest;
use prepared::PreparedBackup;

pub fn run(
    context: &RunContext,
    request: &BackupRequest,
    observer: &dyn Observer,
) -> Result<BackupReport, Error> {
    request.tuning.check()?;
    request.limits.check()?;
    let prepared = PreparedBackup::of(context, request)?;
    observer.planned(&prepared.plan);
    let _priority = request.limits.lower_io_priority();
    let (decided, sealed) = store::store(prepared, observer)?;
    Ok(report::of(decided, sealed, observer))
}
