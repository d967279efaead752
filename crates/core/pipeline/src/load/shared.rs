//! The state that all threads of a backup share, and the accelerators at work for them.
//!
//! Invariants
//! - A file that changed while it was read ends the backup or is marked, as it was asked for, whichever thread noticed it.
//! - A block that an accelerator holds has its job and its position with it, so that software can make it all the same.
//!
//! Leaves to others: what the threads do with it (`mod.rs`, `read.rs`, `offload.rs`, `write.rs`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use longshore_accel::dispatch::{Dispatcher, EngineUse, Mode};
use longshore_accelerators::StatusFile;
use longshore_io::{Pool, SumKey};
use longshore_media::FamilyWriter;
use longshore_media::manifest::MarkKind;
use longshore_source::Change;
use parking_lot::Mutex;

use super::block::{BlockForm, BlockPosition, Ready};
use crate::choice::Started;
use crate::crew::Crew;
use crate::feed::Job;
use crate::handoff::Handoff;
use crate::measure::Counters;
use crate::page_sums::PageSums;
use crate::report::mark_text;
use crate::request::{BackupRequest, OnChange};
use crate::{Error, RunContext};

/// The state shared by all threads of one backup.
pub struct LoadShared<'a> {
    pub context: &'a RunContext,
    pub request: &'a BackupRequest,
    pub crew: Crew,
    /// How many threads may compute at a time.
    pub cpus: usize,
    pub inputs: Pool,
    pub outputs: Pool,
    pub counters: Counters,
    pub handoff: Handoff<Ready>,
    /// The stripes with a writer of their own, and how many of them take no more blocks.
    pub stripes: usize,
    pub full: AtomicUsize,
    /// For the NUL device: the families, to which workers write directly.
    pub direct: Vec<Mutex<FamilyWriter>>,
    pub form: BlockForm,
    /// Accelerators in use; `None`: every block is compressed by the worker that read it.
    pub offloading: Option<Offloading>,
    pub marks: Mutex<Vec<(PathBuf, Change)>>,
    /// The key of the page sums; `None`: there are none.
    pub sum_key: Option<SumKey>,
    /// The page sums of the base.
    pub base: Option<Arc<PageSums>>,
}

impl LoadShared<'_> {
    /// Marks files that changed while they were read, or ends the backup, as it was asked for.
    pub(super) fn note_changes(&self, changes: Vec<(PathBuf, Change)>) -> Result<(), Error> {
        match changes.first() {
            Some((path, change)) if self.request.on_change == OnChange::Fail => {
                Err(Error::Changed {
                    path: path.clone(),
                    what: mark_text(mark_kind(*change)),
                })
            }
            _ => {
                self.marks.lock().extend(changes);
                Ok(())
            }
        }
    }
}

/// A run's accelerators at work.
pub struct Offloading {
    pub dispatcher: Dispatcher<PendingBlock>,
    pub(super) spare: Pool,
    /// With one stripe, blocks are written in sequence.
    pub(super) in_sequence: bool,
    /// Counters for queries from other processes.
    pub(super) published: Option<StatusFile>,
}

/// The data that a block still needs when it comes back.
pub struct PendingBlock {
    pub(super) job: Job,
    pub(super) position: BlockPosition,
    pub(super) plain_crc: u32,
}

impl Offloading {
    pub fn new(
        context: &RunContext,
        started: Started<PendingBlock>,
        mode: Mode,
        in_sequence: bool,
    ) -> Offloading {
        Offloading {
            dispatcher: started.dispatcher,
            spare: started.spare,
            in_sequence,
            published: StatusFile::begin(&context.machine(), context.catalog.as_deref(), mode),
        }
    }

    pub fn uses(&self) -> Vec<EngineUse> {
        self.dispatcher.uses()
    }
}

/// The form in which the media keep a change.
pub fn mark_kind(change: Change) -> MarkKind {
    match change {
        Change::Modified => MarkKind::Modified,
        Change::Shrunk => MarkKind::Shrunk,
        Change::Vanished => MarkKind::Vanished,
    }
}
