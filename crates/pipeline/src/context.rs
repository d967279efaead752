//! What every step of a run works with.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_codec::dispatch::InService;
use longshore_io::{Clock, Machine, Storage};
use longshore_media::{BackupDevice, DeviceSpec};

use crate::error::Error;

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
