//! Devices on the PCI buses, as /sys shows them.
//!
//! Invariants
//! - Reads only what every user may read, and touches no device.
//! - A directory that vanishes meanwhile is skipped. A machine without PCI has no devices, which is no error.
//! - A file of the system is read up to a bounded length.
//!
//! Leaves to others: which device is an accelerator (`longshore-accelerators`).

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// One function of a device on a PCI bus, as `/sys/bus/pci/devices` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciDevice {
    /// The address, such as `0000:6b:00.0`.
    pub address: String,
    /// The directory of the function's attributes.
    pub path: PathBuf,
    pub vendor: u16,
    pub device: u16,
    /// The nearest NUMA node; `None` on a machine with only one.
    pub numa_node: Option<u32>,
    /// The bound kernel driver, such as `4xxx` or `vfio-pci`.
    pub driver: Option<String>,
    /// Whether this is a virtual function on the machine that also has the physical one.
    pub virtual_function: bool,
}

impl PciDevice {
    /// The first line of one attribute, such as `qat/state`; `None` if it is missing, empty or not readable.
    pub fn attribute(&self, name: &str) -> Option<String> {
        first_line(&self.path.join(name)).ok().flatten()
    }
}

/// All functions, in the order of their addresses. `sys` is the mount point of sysfs: `/sys`. The list is empty on a
/// machine without PCI.
pub fn pci_devices(sys: &Path) -> io::Result<Vec<PciDevice>> {
    let entries = match fs::read_dir(sys.join("bus/pci/devices")) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut devices = Vec::new();
    for entry in entries {
        // A device that is unplugged during the scan is skipped.
        devices.extend(read(&entry?.path()));
    }
    devices.sort_by(|a, b| a.address.cmp(&b.address));
    Ok(devices)
}

fn read(path: &Path) -> Option<PciDevice> {
    let line = |name: &str| first_line(&path.join(name)).ok().flatten();
    let number = |name: &str| u16::from_str_radix(line(name)?.strip_prefix("0x")?, 16).ok();
    let driver = fs::read_link(path.join("driver")).ok();
    Some(PciDevice {
        address: path.file_name()?.to_str()?.to_owned(),
        path: path.to_owned(),
        vendor: number("vendor")?,
        device: number("device")?,
        numa_node: line("numa_node").and_then(|n| n.parse().ok()),
        driver: driver
            .as_deref()
            .and_then(Path::file_name)
            .and_then(OsStr::to_str)
            .map(str::to_owned),
        virtual_function: path.join("physfn").exists(),
    })
}

/// Whether a directory exists and is not empty.
pub fn has_entries(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
}

/// The text of a small system file, at most its first 64 KiB.
pub fn small_text(path: &Path) -> io::Result<String> {
    const LEN_MAX: u64 = 64 << 10;
    let mut bytes = Vec::new();
    let file = fs::File::open(path)?;
    file.take(LEN_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The first line of a small system file, trimmed; `None` if it is empty.
pub fn first_line(path: &Path) -> io::Result<Option<String>> {
    let text = small_text(path)?;
    let line = text.lines().next().unwrap_or_default().trim();
    Ok((!line.is_empty()).then(|| line.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn functions_are_read_with_their_driver_and_their_place() {
        let sys = tempfile::tempdir().unwrap();
        let put = |address: &str, files: &[(&str, &str)]| {
            let path = sys.path().join("bus/pci/devices").join(address);
            for (name, text) in files {
                fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
                fs::write(path.join(name), text).unwrap();
            }
            path
        };
        let pf = put(
            "0000:6b:00.0",
            &[
                ("vendor", "0x8086\n"),
                ("device", "0x4940\n"),
                ("numa_node", "1\n"),
                ("qat/state", "up\n"),
                ("qat/empty", "\n"),
            ],
        );
        symlink("../../../bus/pci/drivers/4xxx", pf.join("driver")).unwrap();
        let vf = put(
            "0000:6b:00.1",
            &[
                ("vendor", "0x8086"),
                ("device", "0x4941"),
                ("numa_node", "-1"),
            ],
        );
        symlink(&pf, vf.join("physfn")).unwrap();
        put("0000:00:00.0", &[("vendor", "what"), ("device", "0x1")]);

        let found = pci_devices(sys.path()).unwrap();
        let [pf, vf] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(
            (pf.vendor, pf.device, pf.numa_node),
            (0x8086, 0x4940, Some(1))
        );
        assert_eq!(pf.driver.as_deref(), Some("4xxx"));
        assert_eq!(pf.attribute("qat/state").as_deref(), Some("up"));
        assert_eq!(
            (pf.attribute("qat/empty"), pf.attribute("none")),
            (None, None)
        );
        assert_eq!(
            (vf.numa_node, vf.driver.as_deref(), vf.virtual_function),
            (None, None, true)
        );
        assert!(!pf.virtual_function);
    }

    #[test]
    fn a_machine_without_pci_has_no_devices_and_this_one_can_be_read() {
        let sys = tempfile::tempdir().unwrap();
        assert_eq!(pci_devices(sys.path()).unwrap(), []);
        for device in pci_devices(Path::new("/sys")).unwrap() {
            assert!(device.path.is_dir(), "{device:?}");
        }
    }
}
