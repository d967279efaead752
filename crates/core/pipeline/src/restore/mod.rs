//! Restore: all stripes are read at the same time, blocks are decoded and written in any order, names come last.
//!
//! A differential set is restored together with all sets it needs, like a single set: [`Merge`](crate::chain::Merge)
//! decides which bytes of which set count. Three steps: [`OpenedMedia`] finds the sets; [`PreparedRestore`](prepared::PreparedRestore) decides sizes and
//! accelerators, and moves the blocks; [`report`] reports the result. A preview ends before the first write.

mod choice;
mod moved_names;
mod prepared;
mod preview;
mod reading;
mod report;
mod target;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::Arc;

use longshore_media::{BackupDevice, MediaSet, SetSummary};

use crate::chain;
use crate::report::RestoreReport;
use crate::request::RestoreRequest;
use crate::{Error, Observer, RunContext};
use prepared::PreparedRestore;
pub use preview::of as preview;

/// The media of a restore, and the requested set.
struct OpenedMedia {
    devices: Vec<Arc<dyn BackupDevice>>,
    media: MediaSet,
    bases: Vec<MediaSet>,
    /// 1 for a pipe, which shows its sets only while it is read: for a pipe, the first set is the default.
    position: u32,
    /// `None` for a pipe.
    summary: Option<SetSummary>,
}

impl OpenedMedia {
    fn open(context: &RunContext, request: &RestoreRequest) -> Result<OpenedMedia, Error> {
        let devices = context.devices(&request.devices);
        let media = MediaSet::open(&devices)?;
        let bases = chain::open_bases(context, &request.bases)?;
        let recovery = request.cluster.recovery.as_ref();
        let summary = match media.stored_bytes()? {
            Some(_) => {
                let position = choice::position(&media, request.position, recovery)?;
                Some(media.set(position)?)
            }
            None => None,
        };
        let found = summary.as_ref().map(|set| set.header.position);
        Ok(OpenedMedia {
            devices,
            media,
            bases,
            position: found.unwrap_or(request.position.max(1)),
            summary,
        })
    }
}

pub fn run(
    context: &RunContext,
    request: &RestoreRequest,
    observer: &dyn Observer,
) -> Result<RestoreReport, Error> {
    request.tuning.check()?;
    request.limits.check()?;
    let opened = OpenedMedia::open(context, request)?;
    let mut prepared = PreparedRestore::of(context, request, &opened)?;
    observer.planned(&prepared.plan);
    let _priority = request.limits.lower_io_priority();
    let moved = prepared.move_blocks(observer)?;
    Ok(report::of(prepared, moved, observer))
}
