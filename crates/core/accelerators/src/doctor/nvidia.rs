//! NVIDIA: device, driver, libraries.
//!
//! Invariants
//! - The first thing that is missing is named, in the order in which things must be installed: device, driver,
//!   libraries.
//! - A machine without a GPU and without the driver has nothing to fix, whatever other devices of NVIDIA it has.
//!
//! Leaves to others: loading the libraries and testing the GPU (`probe.rs`).
//!
//! Source: NVIDIA's driver installation guide (packages of its repositories), Debian's and Ubuntu's own.

use longshore_accel::Trouble;
use longshore_facts as facts;

use super::checkup::{Checkup, Roots};
use crate::probe::Probe;

const ABOUT: &str = "nvidia";
const NVIDIA: u16 = 0x10de;
/// The PCI class of a GPU; its sound and USB functions have other classes.
const DISPLAY: &str = "0x03";

const DRIVER: &str = "apt-get install nvidia-driver (Debian, non-free), ubuntu-drivers install (Ubuntu), or dnf install nvidia-open from \
                      NVIDIA's repository (Fedora, RHEL); then restart, and nvidia-smi shows the GPU";
const NVCOMP: &str = "pip install nvidia-libnvcomp-cu13 if nvidia-smi shows CUDA 13, nvidia-libnvcomp-cu12 if it shows 12. The library \
                      is NVIDIA's, under its licence; name a file elsewhere in LONGSHORE_NVCOMP";

pub fn examine(roots: &Roots, probe: Option<&Probe>) -> Vec<Checkup> {
    let devices = facts::pci_devices(&roots.sys).unwrap_or_default();
    let gpus = devices.iter().filter(|device| {
        let class = device.attribute("class").unwrap_or_default();
        device.vendor == NVIDIA && class.starts_with(DISPLAY)
    });
    let gpus = gpus.count();
    let driver = facts::small_text(&roots.proc.join("driver/nvidia/version"));
    if gpus == 0 && driver.is_err() {
        return vec![Checkup::note(ABOUT, "no NVIDIA GPU; nothing to do")];
    }
    let mut all = vec![match gpus {
        0 => Checkup::note(ABOUT, "the driver is loaded, but sysfs shows no GPU"),
        1 => Checkup::good(ABOUT, "found a GPU"),
        n => Checkup::good(
            ABOUT,
            format!("found {n} GPUs; the first visible one is used"),
        ),
    }];
    match driver {
        // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  ..."
        Ok(text) => {
            let line = text.lines().next().unwrap_or_default();
            let number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
            let version = line.split_whitespace().find(number).unwrap_or("unknown");
            all.push(Checkup::good(ABOUT, format!("driver {version} is loaded")));
        }
        Err(_) => {
            let text = "NVIDIA's driver is not loaded";
            all.push(Checkup::wanting(ABOUT, text, DRIVER));
            return all;
        }
    }
    all.extend(probe.map(library));
    all
}

fn library(probe: &Probe) -> Checkup {
    let fix = match probe.trouble() {
        None => {
            let words = [&probe.hardware, &probe.library_version].map(Option::as_deref);
            let [hardware, library] = words.map(|word| word.unwrap_or("unknown"));
            let text = format!("{hardware} with {library} passes its test");
            return Checkup::good(ABOUT, text);
        }
        Some(Trouble::SwitchedOff) => return Checkup::note(ABOUT, probe.reason.clone()),
        // nvCOMP is searched for first: if it was found, CUDA is the missing library.
        Some(Trouble::LibraryNotFound) if probe.library_version.is_some() => {
            "install the driver's libcuda.so.1: libcuda1 (Debian), libnvidia-compute (Ubuntu), nvidia-driver-cuda-libs (Fedora, \
             RHEL); give a container the GPU's compute capability"
        }
        Some(Trouble::LibraryNotFound | Trouble::VersionNotCompatible) => NVCOMP,
        Some(_) => {
            "nvidia-smi -q, and dmesg | grep -i -e nvrm -e xid; see docs/accelerators.md, NVIDIA GPU"
        }
    };
    let text = format!("the GPU cannot be used: {}", probe.reason);
    Checkup::wanting(ABOUT, text, fix)
}

#[cfg(test)]
mod tests {
    use super::super::CheckResult;
    use super::*;
    use std::fs;
    use std::path::Path;

    fn machine(dir: &Path, files: &[(&str, &str)]) -> Roots {
        for (name, text) in files {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        let [sys, proc, etc] = ["sys", "proc", "etc"].map(|name| dir.join(name));
        Roots { sys, proc, etc }
    }

    const GPU: [(&str, &str); 3] = [
        ("sys/bus/pci/devices/0000:18:00.0/vendor", "0x10de"),
        ("sys/bus/pci/devices/0000:18:00.0/device", "0x2335"),
        ("sys/bus/pci/devices/0000:18:00.0/class", "0x030200"),
    ];
    const DRIVEN: (&str, &str) = (
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23",
    );

    fn probe(trouble: Option<Trouble>, library_version: Option<&str>) -> Probe {
        Probe {
            engine: "nvcomp".into(),
            accelerator: "GPU".into(),
            description: "NVIDIA GPU".into(),
            library: "nvCOMP".into(),
            hardware_detected: true,
            hardware: Some("NVIDIA H200".into()),
            library_version: library_version.map(Into::into),
            driver_version: None,
            calls_max: 4,
            trouble: trouble.map(|t| t.name().into()),
            reason: "because".into(),
        }
    }

    #[test]
    fn a_machine_without_a_gpu_has_nothing_to_mend_though_another_device_of_nvidias_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let sound = [GPU[0], GPU[1], (GPU[2].0, "0x040300")];
        for files in [&[][..], &sound] {
            let all = examine(&machine(dir.path(), files), Some(&probe(None, None)));
            assert_eq!(all.len(), 1);
            assert_eq!(all[0].verdict, CheckResult::Note, "{all:?}");
        }
    }

    #[test]
    fn driver_nvcomp_and_cuda_are_asked_for_in_turn_until_nothing_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let missing = Some(Trouble::LibraryNotFound);
        let fix = |files: &[(&str, &str)], probe: Probe| {
            let all = examine(&machine(dir.path(), files), Some(&probe));
            let mut wanting = all
                .into_iter()
                .filter(|c| c.verdict == CheckResult::Wanting);
            wanting.next().and_then(|c| c.fix)
        };
        let said = fix(&GPU, probe(missing, None)).unwrap();
        assert!(said.contains("ubuntu-drivers install"), "{said}");
        let said = fix(&[DRIVEN], probe(missing, None)).unwrap();
        assert!(said.contains("pip install nvidia-libnvcomp-cu13"), "{said}");
        let said = fix(&[], probe(missing, Some("nvCOMP 5.2.0"))).unwrap();
        assert!(said.contains("libcuda.so.1"), "{said}");
        let said = fix(&[], probe(Some(Trouble::Failed), Some("nvCOMP 5.2.0"))).unwrap();
        assert!(said.contains("nvidia-smi -q"), "{said}");
        assert_eq!(fix(&[], probe(None, Some("nvCOMP 5.2.0"))), None);
        let all = examine(
            &machine(dir.path(), &[]),
            Some(&probe(None, Some("nvCOMP 5.2.0"))),
        );
        assert!(
            all.iter().any(|c| c.text == "driver 580.95.05 is loaded"),
            "{all:?}"
        );
        assert!(
            all.iter()
                .any(|c| c.text.contains("NVIDIA H200 with nvCOMP 5.2.0"))
        );
    }
}
