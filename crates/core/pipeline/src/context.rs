//! The environment shared by every step of a run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_accel::dispatch::InService;
use longshore_io::{Clock, Machine, Storage};
use longshore_media::{BackupDevice, DeviceSpec, Keyring, MediaSet};

use crate::error::Error;

/// The environment of a run. Tests use simulated parts.
#[derive(Clone)]
pub struct RunContext {
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
    /// The catalog that holds the history; `None` keeps no history.
    pub catalog: Option<PathBuf>,
    /// Accelerators that may compress in addition to the CPUs; without any, software does all the work.
    pub accelerators: Vec<Arc<InService>>,
    /// Opens encrypted sets, and says whether others are refused.
    pub keyring: Arc<Keyring>,
    /// Set from outside (Ctrl-C) to end the run early.
    pub cancel: Arc<AtomicBool>,
}

impl RunContext {
    pub(crate) fn check_cancel(&self) -> Result<(), Error> {
        if self.cancel.load(Ordering::Relaxed) {
            Err(Error::Cancelled)
        } else {
            Ok(())
        }
    }

    /// The part of it that the rooms below see.
    pub fn machine(&self) -> Machine {
        Machine {
            storage: self.storage.clone(),
            clock: self.clock.clone(),
        }
    }

    /// Devices whose waits end when the run is cancelled.
    pub(crate) fn devices(&self, specs: &[DeviceSpec]) -> Vec<Arc<dyn BackupDevice>> {
        let open = |spec: &DeviceSpec| spec.open_until(&self.storage, &self.cancel);
        specs.iter().map(open).collect()
    }

    /// The media set on the devices, whose encrypted sets are opened with the run's identities.
    pub(crate) fn media(
        &self,
        devices: &[Arc<dyn BackupDevice>],
    ) -> Result<MediaSet, longshore_media::Error> {
        Ok(MediaSet::open(devices)?.with_keyring(&self.keyring))
    }

    pub(crate) fn now_us(&self) -> i64 {
        self.clock.wall_ns() / 1000
    }
}
