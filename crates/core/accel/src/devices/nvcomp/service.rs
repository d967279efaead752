//! Whether the engine is in service, and what it needs for that: libraries, context, device.
//!
//! Invariants
//! - The device is there exactly while there is no refusal.
//! - A loaded library and a context are kept for the next self-test, also if the device fails.
//!
//! Leaves to others: the self-test (`trial.rs`), and which fault is which trouble (`mod.rs`).

use std::path::Path;
use std::sync::Arc;

use super::device::Device;
use super::driver::{Context, Driver};
use super::library::Library;
use super::options::{CHUNKS_MIN, Options};
use super::queues::{CHUNK, Trouble};
use crate::EngineState;
use crate::devices::door::{self, Refusal};

/// The engine between two calls.
pub(super) struct ServiceState {
    /// `None`: in service.
    pub refusal: Option<Refusal>,
    /// Both libraries and the context, once a self-test has loaded them.
    pub library: Option<Arc<Library>>,
    pub driver: Option<Arc<Driver>>,
    pub context: Option<Arc<Context>>,
    /// `Some` while in service.
    pub device: Option<Arc<Device>>,
    /// The most chunks of a batch; lowered when the device's memory did not suffice.
    pub chunks_max: usize,
    /// Chunks that the CPU did instead of the device.
    pub chunks_failed: u64,
}

impl ServiceState {
    /// Takes the device out of service.
    pub fn refuse(&mut self, trouble: door::Trouble, text: String) {
        tracing::debug!(?trouble, text, "nvcomp is not in service");
        self.device = None;
        self.refusal = Some(Refusal::new(trouble, text));
    }

    pub fn lost(&mut self, trouble: &Trouble) {
        let text = format!(
            "this process lost the GPU: {trouble}; see the kernel's log and nvidia-smi -q, then restart the program"
        );
        self.refuse(door::Trouble::FailedForGood, text);
    }

    /// Halves the next batches, unless they would be too small to be useful.
    pub fn too_large(&mut self, chunks: usize, trouble: &Trouble) {
        if chunks / 2 < CHUNKS_MIN {
            return self.no_memory(trouble);
        }
        self.chunks_max = chunks / 2;
        let text =
            format!("the GPU has too little memory: {trouble}; the next attempt uses half as much");
        self.refuse(door::Trouble::Failed, text);
    }

    pub fn no_memory(&mut self, trouble: &Trouble) {
        let least = (CHUNKS_MIN * CHUNK) >> 20;
        let text = format!(
            "the GPU has no memory for batches of {least} MiB: {trouble}; free some, then restart the program"
        );
        self.refuse(door::Trouble::FailedForGood, text);
    }

    pub fn state(&self) -> EngineState {
        self.refusal
            .as_ref()
            .map_or(EngineState::Ready, |refusal| refusal.trouble.state())
    }
}

/// The state before a library is loaded. A plan counts on an accelerator that may be present.
pub(super) fn at_first_sight(options: &Options) -> Refusal {
    for (file, variable) in [(&options.cuda, "CUDA"), (&options.nvcomp, "NVCOMP")] {
        if file.as_deref().is_some_and(|name| name == "off") {
            let text = format!("switched off by LONGSHORE_{variable}=off");
            return Refusal::new(door::Trouble::SwitchedOff, text);
        }
    }
    let driver = || longshore_facts::small_text(Path::new("/proc/driver/nvidia/version"));
    if options.cuda.is_none() && options.nvcomp.is_none() && !on_a_bus() && driver().is_err() {
        let text = "no NVIDIA GPU and no driver was found; if they exist, name the driver's library in LONGSHORE_CUDA";
        return Refusal::new(door::Trouble::HardwareNotFound, text);
    }
    Refusal::new(door::Trouble::NotTested, "its self-test has not run")
}

/// Whether sysfs shows a display controller of NVIDIA's. A container may hide a GPU that exists.
pub(super) fn on_a_bus() -> bool {
    const NVIDIA: u16 = 0x10de;
    const DISPLAY: &str = "0x03";
    let devices = longshore_facts::pci_devices(Path::new("/sys")).unwrap_or_default();
    devices.iter().any(|device| {
        let class = || device.attribute("class").unwrap_or_default();
        device.vendor == NVIDIA && class().starts_with(DISPLAY)
    })
}
