//! Restore: all stripes are read at the same time, blocks are decoded and written in any order, names come last.
//!
//! A differential set is restored together with all sets it needs, like a single set: [`Merge`](crate::chain::Merge)
//! decides which bytes of which set count. Three steps: [`OpenedMedia`] finds the sets; [`PreparedRestore`] decides sizes and
//! accelerators, and moves the blocks; [`report`] reports the result. A preview ends before the first write.

mod choice;
mod databases;
mod further_names;
mod moved_names;
mod opened;
mod prepared;
mod preview;
mod reading;
mod report;
mod target;
#[cfg(test)]
mod tests;
mod wanted;
mod writer;

use crate::report::RestoreReport;
use crate::request::RestoreRequest;
use crate::{Error, Observer, RunContext};
use databases::EmptiedDatabases;
use opened::OpenedMedia;
use prepared::PreparedRestore;
pub use preview::of as preview;

pub fn run(
    context: &RunContext,
    request: &RestoreRequest,
    observer: &dyn Observer,
) -> Result<RestoreReport, Error> {
    request.tuning.check()?;
    request.limits.check()?;
    let opened = OpenedMedia::open(context, request)?;
    let emptied = EmptiedDatabases::of(context, request, &opened)?;
    let mut prepared = PreparedRestore::of(context, request, &opened, emptied.as_ref())?;
    observer.planned(&prepared.plan);
    let _priority = request.limits.lower_io_priority();
    let moved = prepared.move_blocks(observer)?;
    Ok(report::of(prepared, moved, observer))
}
