//! Backup: opens source and devices, plans, lets [`crate::load`] move the bytes, seals the set and reports.
//!
//! Three steps: [`Prepared`] decides everything that can be decided before a byte moves, [`store`] moves the blocks, proves
//! the log and seals the set, [`report`] tells the caller, the observer and the history.

mod prepared;
mod refusals;
mod report;
mod store;

use crate::context::House;
use crate::error::Error;
use crate::observer::Observer;
use crate::report::BackupReport;
use crate::request::BackupRequest;
use prepared::Prepared;

pub fn run(
    house: &House,
    request: &BackupRequest,
    observer: &dyn Observer,
) -> Result<BackupReport, Error> {
    request.tuning.check()?;
    request.limits.check()?;
    let prepared = Prepared::of(house, request)?;
    observer.planned(&prepared.plan);
    let _priority = request.limits.lower_io_priority();
    let (decided, sealed) = store::store(prepared, observer)?;
    Ok(report::of(decided, sealed, observer))
}
