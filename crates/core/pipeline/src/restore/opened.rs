//! The media of a restore, opened before anything is decided.

use std::sync::Arc;

use longshore_media::{BackupDevice, MediaSet, SetSummary};

use super::choice;
use crate::chain;
use crate::request::RestoreRequest;
use crate::{Error, RunContext};

/// The media of a restore, and the requested set.
pub struct OpenedMedia {
    pub devices: Vec<Arc<dyn BackupDevice>>,
    pub media: MediaSet,
    pub bases: Vec<MediaSet>,
    /// 1 for a pipe, which shows its sets only while it is read: for a pipe, the first set is the default.
    pub position: u32,
    /// `None` for a pipe.
    pub summary: Option<SetSummary>,
}

impl OpenedMedia {
    pub fn open(context: &RunContext, request: &RestoreRequest) -> Result<OpenedMedia, Error> {
        let devices = context.devices(&request.devices);
        let media = context.media(&devices)?;
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
