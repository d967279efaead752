//! QAT devices as sysfs describes them. sysfs is read before the library is loaded: a process in which the library once
//! found no device stays without one.
//!
//! Invariants
//! - Nothing here touches a device. In particular the heartbeat file is not read: reading it makes the driver send a
//!   request, and Intel warns that checks by more than one program can take a device out of service.
//! - A driver that does not report state or services is believed to serve: the library decides.
//! - Virtual functions count only where there are no physical ones, as in a guest.
//!
//! Leaves to others: the library's own view of the devices (`library.rs`), and the operator's report
//! (`longshore-accelerators`).
//!
//! Source: Linux, `Documentation/ABI/testing/sysfs-driver-qat`; qatlib and QATzip for the ids.

use std::fmt;
use std::io;
use std::path::Path;

use longshore_facts::{self as facts, PciDevice};

const INTEL: u16 = 0x8086;

/// Instances that one physical function gives to a process, with only the service `dc` (`POLICY=0` of qatlib: one
/// virtual function of 4). A guess that is too high costs nothing: a call that finds no free instance is refused at
/// once.
const INSTANCES: usize = 4;

/// The devices that one kernel driver serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QatKind {
    /// The name of its kernel driver.
    pub name: &'static str,
    physical: u16,
    virtual_: u16,
    /// Served by the kernel's own driver and qatlib; otherwise by Intel's driver package only.
    pub in_tree: bool,
}

const fn kind(name: &'static str, physical: u16, virtual_: u16, in_tree: bool) -> QatKind {
    QatKind {
        name,
        physical,
        virtual_,
        in_tree,
    }
}

const KINDS: [QatKind; 11] = [
    kind("4xxx", 0x4940, 0x4941, true),
    kind("401xx", 0x4942, 0x4943, true),
    kind("402xx", 0x4944, 0x4945, true),
    kind("420xx", 0x4946, 0x4947, true),
    kind("6xxx", 0x4948, 0x4949, true),
    kind("c6xx", 0x37c8, 0x37c9, false),
    kind("dh895xcc", 0x0435, 0x0443, false),
    kind("c3xxx", 0x19e2, 0x19e3, false),
    kind("d15xx", 0x6f54, 0x6f55, false),
    kind("200xx", 0x18ee, 0x18ef, false),
    kind("c4xxx", 0x18a0, 0x18a1, false),
];

/// One function of a QAT device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub pci: PciDevice,
    pub kind: QatKind,
    pub virtual_function: bool,
    /// `up` or `down`; `None` if the driver does not report it.
    pub state: Option<String>,
    /// Such as `dc` or `sym;asym`; `None` if the driver does not report it.
    pub services: Option<String>,
}

impl Function {
    /// Whether it was configured to compress. A function that does not report its services is assumed to be.
    pub fn compresses(&self) -> bool {
        let compression = |s: &str| s.split(';').any(|s| matches!(s.trim(), "dc" | "dcc"));
        self.services.as_deref().is_none_or(compression)
    }

    pub fn is_up(&self) -> bool {
        self.state.as_deref().is_none_or(|s| s == "up")
    }
}

/// All QAT functions of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    pub functions: Vec<Function>,
    /// The kernel module's own version, if it has one.
    pub driver_version: Option<String>,
    /// Of each endpoint's firmware, as far as the driver shows it to this user.
    firmware_versions: Vec<String>,
}

/// Why no device can be used, from sysfs alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    NoDevice,
    /// Devices without a driver.
    NoDriver(Vec<String>),
    Down(Vec<String>),
    /// None is configured to compress; the services that they have instead.
    NoCompression(Vec<String>),
}

impl Devices {
    /// `sys` is where sysfs is mounted.
    pub fn read(sys: &Path) -> io::Result<Devices> {
        let functions = facts::pci_devices(sys)?.into_iter().filter_map(function);
        let version = |module: &str| {
            let path = sys.join("module").join(module).join("version");
            facts::first_line(&path).ok().flatten()
        };
        let mut found = Devices {
            functions: functions.collect(),
            driver_version: version("intel_qat"),
            firmware_versions: Vec::new(),
        };
        let firmware = found.endpoints().into_iter().filter_map(|f| {
            // Shown by Intel's driver package, to root alone; the kernel's own driver shows none.
            let own = format!("kernel/debug/qat_{}_{}", f.kind.name, f.pci.address);
            facts::first_line(&sys.join(own).join("version/fw")).ok()?
        });
        found.firmware_versions = firmware.collect();
        Ok(found)
    }

    /// The versions of the firmware, each once; `None` if the driver shows none.
    pub fn firmware(&self) -> Option<String> {
        let mut versions = self.firmware_versions.clone();
        versions.sort();
        versions.dedup();
        (!versions.is_empty()).then(|| versions.join(", "))
    }

    /// Physical functions, or the virtual ones in a guest that has no physical ones.
    pub fn endpoints(&self) -> Vec<&Function> {
        let of_kind = |virtual_function: bool| -> Vec<&Function> {
            let of_kind = |f: &&Function| f.virtual_function == virtual_function;
            self.functions.iter().filter(of_kind).collect()
        };
        let physical = of_kind(false);
        match physical.is_empty() {
            true => of_kind(true),
            false => physical,
        }
    }

    /// The endpoints that can compress now. Errors: why there are none.
    pub fn usable(&self) -> Result<Vec<&Function>, Unusable> {
        let endpoints = self.endpoints();
        if endpoints.is_empty() {
            return Err(Unusable::NoDevice);
        }
        let address = |f: &&Function| f.pci.address.clone();
        let (driven, without): (Vec<_>, Vec<_>) =
            endpoints.iter().partition(|f| f.pci.driver.is_some());
        if driven.is_empty() {
            return Err(Unusable::NoDriver(
                without.into_iter().map(address).collect(),
            ));
        }
        let (up, down): (Vec<&Function>, Vec<_>) = driven.into_iter().partition(|f| f.is_up());
        if up.is_empty() {
            return Err(Unusable::Down(down.iter().map(address).collect()));
        }
        let services = |f: &&Function| f.services.clone().unwrap_or_default();
        let (usable, others): (Vec<_>, Vec<_>) = up.into_iter().partition(|f| f.compresses());
        if usable.is_empty() {
            return Err(Unusable::NoCompression(
                others.iter().map(services).collect(),
            ));
        }
        Ok(usable)
    }

    /// How many calls the devices can serve at a time: a guess, at least 1.
    pub fn instances(&self) -> usize {
        let usable = self.usable().map_or(0, |functions| functions.len());
        (usable * INSTANCES).max(1)
    }

    /// The deepest level that stays on the device: devices before the 4xxx leave 9 to software.
    pub fn deepest_level(&self) -> u32 {
        let old = self.functions.iter().any(|f| !f.kind.in_tree);
        if old { 8 } else { 9 }
    }

    /// `2 × QAT 4xxx`; `None` without devices.
    pub fn summary(&self) -> Option<String> {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for function in self.endpoints() {
            match counts.iter_mut().find(|c| c.0 == function.kind.name) {
                Some(count) => count.1 += 1,
                None => counts.push((function.kind.name, 1)),
            }
        }
        let texts: Vec<_> = counts
            .iter()
            .map(|(name, count)| format!("{count} × QAT {name}"))
            .collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }
}

fn function(pci: PciDevice) -> Option<Function> {
    if pci.vendor != INTEL {
        return None;
    }
    let ours = |f: &&QatKind| f.physical == pci.device || f.virtual_ == pci.device;
    let kind = *KINDS.iter().find(ours)?;
    Some(Function {
        kind,
        virtual_function: pci.device == kind.virtual_,
        state: pci.attribute("qat/state"),
        services: pci.attribute("qat/cfg_services"),
        pci,
    })
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::NoDevice => f.write_str("this machine shows no QAT device"),
            Unusable::NoDriver(devices) => write!(
                f,
                "no kernel driver has the QAT device {}; load it, for example with `modprobe qat_4xxx`",
                devices.join(", ")
            ),
            Unusable::Down(devices) => write!(
                f,
                "the QAT device {0} is down; start it with `systemctl enable --now qat`",
                devices.join(", ")
            ),
            Unusable::NoCompression(services) => write!(
                f,
                "no QAT device is configured to compress (services: {}); set ServicesEnabled=dc in \
                 /etc/sysconfig/qat and run `systemctl restart qat`",
                services.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qatzip::stage;

    fn devices(make: impl FnOnce(&Path) -> io::Result<()>) -> Devices {
        let sys = tempfile::tempdir().unwrap();
        make(sys.path()).unwrap();
        Devices::read(sys.path()).unwrap()
    }

    #[test]
    fn a_machine_without_qat_is_distinguished_from_one_with_unusable_devices() {
        let none = devices(|sys| stage::put(sys, "0000:00:02.0", 0x1572, &[]));
        assert_eq!(none.usable().unwrap_err(), Unusable::NoDevice);
        assert_eq!((none.summary(), none.instances()), (None, 1));
        let bare = devices(|sys| stage::put(sys, "0000:6b:00.0", 0x4940, &[]));
        assert!(matches!(bare.usable(), Err(Unusable::NoDriver(_))));
        let down = devices(|sys| stage::endpoint(sys, "0000:6b:00.0", 0x4944, "down", "dc"));
        assert_eq!(
            down.usable().unwrap_err(),
            Unusable::Down(vec!["0000:6b:00.0".into()])
        );
        let crypto = devices(|sys| stage::endpoint(sys, "0000:6b:00.0", 0x4940, "up", "sym;asym"));
        let why = crypto.usable().unwrap_err().to_string();
        assert!(
            why.contains("sym;asym") && why.contains("ServicesEnabled=dc"),
            "{why}"
        );
    }

    #[test]
    fn endpoints_that_compress_are_counted_and_virtual_functions_only_in_a_guest() {
        let host = devices(|sys| {
            stage::machine(sys)?;
            stage::endpoint(sys, "0000:70:00.0", 0x4940, "up", "asym;dc")?;
            stage::endpoint(sys, "0000:75:00.0", 0x4940, "up", "sym;asym")
        });
        assert_eq!(host.functions.len(), 4);
        assert_eq!(host.usable().unwrap().len(), 2);
        assert_eq!(host.instances(), 8);
        assert_eq!(host.summary().as_deref(), Some("3 × QAT 4xxx"));
        assert_eq!(host.deepest_level(), 9);
        let guest = devices(|sys| {
            stage::endpoint(sys, "0000:00:05.0", 0x4949, "", "")?;
            std::fs::remove_dir_all(sys.join("bus/pci/devices/0000:00:05.0/qat"))
        });
        assert_eq!(guest.usable().unwrap().len(), 1);
        assert_eq!(guest.summary().as_deref(), Some("1 × QAT 6xxx"));
        let old = devices(|sys| stage::endpoint(sys, "0000:3d:00.0", 0x37c8, "up", "dc"));
        assert_eq!(old.deepest_level(), 8);
    }

    #[test]
    fn the_firmware_of_all_endpoints_is_named_once_where_the_driver_shows_it() {
        let shown = devices(|sys| {
            for (address, version) in [("0000:6b:00.0", "1.0.40"), ("0000:70:00.0", "1.0.40")] {
                stage::endpoint(sys, address, 0x4940, "up", "dc")?;
                let own = sys.join(format!("kernel/debug/qat_4xxx_{address}/version"));
                std::fs::create_dir_all(&own)?;
                std::fs::write(own.join("fw"), format!("{version}\n"))?;
            }
            Ok(())
        });
        assert_eq!(shown.firmware().as_deref(), Some("1.0.40"));
        assert_eq!(devices(stage::machine).firmware(), None);
    }
}
