//! NVIDIA: device, driver, libraries.

use longshore_io::facts;

use super::{Checkup, Roots};
use crate::Probe;

const ABOUT: &str = "nvidia";
const NVIDIA: u16 = 0x10de;

pub fn examine(roots: &Roots, probe: Option<&Probe>) -> Vec<Checkup> {
    let devices = facts::pci_devices(&roots.sys).unwrap_or_default();
    let ours: Vec<_> = devices.iter().filter(|d| d.vendor == NVIDIA).collect();
    if ours.is_empty() {
        return vec![Checkup::note(ABOUT, "no NVIDIA device; nothing to do")];
    }
    let Some(probe) = probe else {
        return Vec::new();
    };
    vec![match probe.trouble() {
        None => {
            let hardware = probe.hardware.clone().unwrap_or_default();
            Checkup::good(ABOUT, format!("{hardware} passes its test"))
        }
        Some(_) => Checkup::wanting(
            ABOUT,
            format!("the GPU does not serve: {}", probe.reason),
            "docs/accelerators.md, NVIDIA GPU",
        ),
    }]
}
