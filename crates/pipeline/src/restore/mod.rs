//! Restore: every stripe is read at once, blocks are decoded and written in any order, names come last.
//!
//! A differential set is restored with all that it needs as if they were one set: [`Merge`](crate::chain::Merge) says which bytes of which
//! set count. Three steps: [`Opened`] finds the sets, [`Prepared`] decides sizes and accelerators, and moves the
//! blocks; [`report`] tells what has been moved.

mod choice;
mod prepared;
mod reading;
mod report;
mod target;
mod writer;

use std::sync::Arc;

use longshore_media::{BackupDevice, MediaSet, SetSummary};

use crate::chain;
use crate::report::RestoreReport;
use crate::request::RestoreRequest;
use crate::{Error, House, Observer};
use prepared::Prepared;

/// The media of a restore, and the set that is wanted.
struct Opened {
    devices: Vec<Arc<dyn BackupDevice>>,
    media: MediaSet,
    bases: Vec<MediaSet>,
    /// 1 for a pipe, which shows its sets only while it is read: there the first one is the default.
    position: u32,
    /// `None` for a pipe.
    summary: Option<SetSummary>,
}

impl Opened {
    fn open(house: &House, request: &RestoreRequest) -> Result<Opened, Error> {
        let devices = house.devices(&request.devices);
        let media = MediaSet::open(&devices)?;
        let bases = chain::open_bases(house, &request.bases)?;
        let recovery = request.cluster.recovery.as_ref();
        let summary = match media.stored_bytes()? {
            Some(_) => {
                let position = choice::position(&media, request.position, recovery)?;
                Some(media.set(position)?)
            }
            None => None,
        };
        let found = summary.as_ref().map(|set| set.header.position);
        Ok(Opened {
            devices,
            media,
            bases,
            position: found.unwrap_or(request.position.max(1)),
            summary,
        })
    }
}

pub fn run(
    house: &House,
    request: &RestoreRequest,
    observer: &dyn Observer,
) -> Result<RestoreReport, Error> {
    request.tuning.check()?;
    request.limits.check()?;
    let opened = Opened::open(house, request)?;
    let mut prepared = Prepared::of(house, request, &opened)?;
    observer.planned(&prepared.plan);
    let _priority = request.limits.lower_io_priority();
    let moved = prepared.move_blocks(observer)?;
    Ok(report::of(prepared, moved, observer))
}
