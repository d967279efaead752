//! Intel QAT: devices, driver, services, rights, library.
//!
//! Source: qatlib's INSTALL, Linux `sysfs-driver-qat`; paths of the service's settings: Fedora and RHEL
//! `/etc/sysconfig/qat`, Debian and Ubuntu `/etc/default/qat`.
//!
//! Invariants
//! - Nothing is changed: files below the given roots are read, and the probe's result is an argument.
//! - A check-up that wants something names the command or the setting to try next.
//! - A machine without a device gets one note and nothing else.
//!
//! Leaves to others: reading the devices from sysfs (`longshore_accel::qatzip::device`); calling the library
//! (`probe.rs`); the order and the print of all check-ups (`mod.rs`, `longshore doctor`).

use longshore_accel::Trouble;
use longshore_accel::qatzip::device::{Devices, Function, Unusable};
use longshore_facts as facts;

use super::checkup::{Checkup, Roots};
use crate::probe::Probe;

const ABOUT: &str = "qat";
/// Memory that qatlib locks for one virtual function.
const LOCKED_BYTES: u64 = 16 << 20;

pub fn examine(roots: &Roots, probe: Option<&Probe>) -> Vec<Checkup> {
    let devices = match Devices::read(&roots.sys) {
        Ok(devices) => devices,
        Err(e) => return vec![Checkup::note(ABOUT, format!("sysfs cannot be read: {e}"))],
    };
    let Some(summary) = devices.summary() else {
        let text = "no QAT device; nothing to do. If the processor has one, enable QAT in the BIOS, and \
                    for a guest the hypervisor's virtual functions";
        return vec![Checkup::note(ABOUT, text)];
    };
    let mut all = vec![Checkup::good(ABOUT, format!("found {summary}"))];
    all.extend(endpoints(&devices));
    let in_tree = devices.functions.iter().all(|f| f.kind.in_tree);
    if in_tree {
        all.extend(virtual_functions(roots, &devices));
        all.extend(rights(roots, &devices));
    } else {
        let text = "devices before the 4xxx need Intel's own driver package; the kernel's driver and qatlib do not support them";
        all.push(Checkup::note(ABOUT, text));
    }
    all.extend(probe.map(library));
    all
}

fn endpoints(devices: &Devices) -> Vec<Checkup> {
    let mut all = Vec::new();
    match devices.usable() {
        Ok(usable) => {
            let (usable, count) = (usable.len(), devices.endpoints().len());
            let text = format!("{usable} of {count} endpoints are up and compress");
            all.push(match usable < count {
                true => Checkup::wanting(ABOUT, text, SERVICES),
                false => Checkup::good(ABOUT, text),
            });
        }
        Err(why) => {
            let fix = match why {
                Unusable::NoDevice => "enable QAT in the BIOS",
                Unusable::NoDriver(_) => {
                    "modprobe qat_4xxx (or qat_420xx, qat_6xxx), and install linux-firmware"
                }
                Unusable::Down(_) => "systemctl enable --now qat",
                Unusable::NoCompression(_) => SERVICES,
            };
            all.push(Checkup::wanting(ABOUT, why.to_string(), fix));
        }
    }
    for endpoint in devices.endpoints() {
        let (address, path) = (&endpoint.pci.address, endpoint.pci.path.display());
        if endpoint.pci.attribute("qat/auto_reset").as_deref() == Some("off") {
            let text = format!("{address} stays dead after a fatal error");
            let fix = format!("echo on > {path}/qat/auto_reset, as root");
            all.push(Checkup::wanting(ABOUT, text, fix));
        }
        let fatal = endpoint.pci.attribute("qat_ras/errors_fatal");
        if let Some(count) = fatal.filter(|count| count != "0") {
            let text =
                format!("{address} has reported {count} fatal errors since the driver was loaded");
            all.push(Checkup::wanting(ABOUT, text, "dmesg | grep -i qat"));
        }
    }
    all
}

/// By default, half of the endpoints do cryptography only.
const SERVICES: &str = "set ServicesEnabled=dc in /etc/sysconfig/qat (Fedora, RHEL) or /etc/default/qat (Debian, Ubuntu), then \
                        systemctl restart qat";

fn virtual_functions(roots: &Roots, devices: &Devices) -> Vec<Checkup> {
    let given: Vec<&Function> = devices
        .functions
        .iter()
        .filter(|f| f.virtual_function && f.pci.driver.as_deref() == Some("vfio-pci"))
        .collect();
    if !given.is_empty() {
        let text = format!(
            "{} virtual functions are available to programs",
            given.len()
        );
        return vec![Checkup::good(ABOUT, text)];
    }
    let iommu = facts::has_entries(&roots.sys.join("kernel/iommu_groups"));
    let text = "no virtual function is available to programs (bound to vfio-pci)";
    let fix = match iommu {
        true => {
            "systemctl enable --now qat (package qatlib-service); SR-IOV must be on in the BIOS"
        }
        false => {
            "switch VT-d and SR-IOV on in the BIOS, add intel_iommu=on to the kernel's command line, and \
                  systemctl enable --now qat"
        }
    };
    vec![Checkup::wanting(ABOUT, text, fix)]
}

fn rights(roots: &Roots, devices: &Devices) -> Vec<Checkup> {
    let mut all = Vec::new();
    let status = facts::small_text(&roots.proc.join("self/status")).unwrap_or_default();
    let words = |key: &str| -> Vec<u32> {
        let line = status.lines().find_map(|l| l.strip_prefix(key));
        let words = line.unwrap_or_default().split_whitespace();
        words.filter_map(|w| w.parse().ok()).collect()
    };
    if words("Uid:").get(1) == Some(&0) {
        return vec![Checkup::good(
            ABOUT,
            "root may use the devices and lock memory",
        )];
    }
    let group = facts::small_text(&roots.etc.join("group")).unwrap_or_default();
    let number = group.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some("qat")).then(|| fields.nth(1)?.parse::<u32>().ok())?
    });
    all.push(match number {
        None => Checkup::wanting(
            ABOUT,
            "there is no group qat: qatlib's service is not installed",
            "install qatlib-service, then systemctl enable --now qat",
        ),
        Some(number) if words("Groups:").contains(&number) || words("Gid:").contains(&number) => {
            Checkup::good(ABOUT, "this user is in the group qat")
        }
        Some(_) => Checkup::wanting(
            ABOUT,
            "this user is not in the group qat",
            "usermod -aG qat USER as root, then log in again",
        ),
    });
    let limits = facts::small_text(&roots.proc.join("self/limits")).unwrap_or_default();
    let line = limits
        .lines()
        .find_map(|l| l.strip_prefix("Max locked memory"));
    let soft = line.and_then(|l| l.split_whitespace().next());
    let wanted = LOCKED_BYTES * devices.endpoints().len() as u64;
    match soft {
        Some("unlimited") => all.push(Checkup::good(ABOUT, "locked memory has no limit")),
        Some(bytes) if bytes.parse::<u64>().is_ok_and(|bytes| bytes >= wanted) => {
            all.push(Checkup::good(ABOUT, format!("{bytes} bytes of memory may be locked")));
        }
        Some(bytes) => all.push(Checkup::wanting(
            ABOUT,
            format!("only {bytes} bytes of memory may be locked; QAT takes 16 MiB for each endpoint"),
            "echo '@qat - memlock 524288' > /etc/security/limits.d/qat.conf as root and log in again; for a systemd unit \
             LimitMEMLOCK=512M",
        )),
        None => {}
    }
    all
}

fn library(probe: &Probe) -> Checkup {
    let version = probe.library_version.as_deref().unwrap_or("QATzip");
    let fix = match probe.trouble() {
        None => return Checkup::good(ABOUT, format!("{version} passes its test, both ways")),
        Some(Trouble::HardwareNotFound | Trouble::HardwareNotServing | Trouble::NotTested) => {
            return Checkup::note(
                ABOUT,
                "the library is not tested, because no device is available",
            );
        }
        Some(Trouble::LibraryNotFound) => {
            "dnf install qatzip (Fedora, RHEL 9 and later), or apt-get install libqatzip3 (Debian 13, Ubuntu 24.04); Debian \
             12 has no package: build github.com/intel/QATzip"
        }
        Some(Trouble::InitializationFailed | Trouble::SessionFailed | Trouble::NoAnswer) => {
            "systemctl restart qat; see systemctl status qat and dmesg | grep -i qat"
        }
        Some(Trouble::EntryPointMissing | Trouble::VersionNotCompatible | Trouble::LoadFailed) => {
            "install QATzip 1.1 to 1.3 as your system packages it: see docs/accelerators.md, Intel QAT"
        }
        Some(_) => "dmesg | grep -i qat; see docs/accelerators.md, Intel QAT",
    };
    Checkup::wanting(ABOUT, probe.reason.clone(), fix)
}

#[cfg(test)]
mod tests {
    use super::super::CheckResult;
    use super::*;
    use ::qatzip::stage;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    struct Machine {
        dir: tempfile::TempDir,
        roots: Roots,
    }

    impl Machine {
        fn new() -> Machine {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            let (sys, proc, etc) = (at("sys"), at("proc"), at("etc"));
            let machine = Machine {
                roots: Roots { sys, proc, etc },
                dir,
            };
            machine.put(
                "proc/self/status",
                "Uid:\t1000\t1000\t1000\t1000\nGid:\t1000\nGroups:\t4 990\n",
            );
            machine.put(
                "proc/self/limits",
                "Max locked memory         8388608    8388608    bytes\n",
            );
            machine.put("etc/group", "root:x:0:\nqat:x:990:ada\n");
            machine
        }

        fn put(&self, name: &str, text: &str) {
            let path = self.dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn give_virtual_functions(&self) {
            let driver = self.roots.sys.join("bus/pci/drivers/vfio-pci");
            symlink(driver, self.device("0000:6b:00.1").join("driver")).unwrap();
        }

        fn device(&self, address: &str) -> std::path::PathBuf {
            self.roots.sys.join("bus/pci/devices").join(address)
        }

        /// The fixes of all checks that are not ideal.
        fn fixes(&self) -> Vec<String> {
            let all = examine(&self.roots, None);
            let wanting = all
                .into_iter()
                .filter(|c| c.verdict == CheckResult::Wanting);
            wanting.filter_map(|c| c.fix).collect()
        }
    }

    fn has(fixes: &[String], word: &str) -> bool {
        fixes.iter().any(|fix| fix.contains(word))
    }

    #[test]
    fn a_machine_without_qat_has_nothing_to_mend() {
        let machine = Machine::new();
        assert!(machine.fixes().is_empty());
        let all = examine(&machine.roots, None);
        assert!(all[0].text.contains("no QAT device"), "{all:?}");
    }

    #[test]
    fn everything_that_is_missing_is_named_with_its_command_until_nothing_is() {
        let machine = Machine::new();
        let sys = &machine.roots.sys;
        stage::machine(sys).unwrap();
        stage::endpoint(sys, "0000:70:00.0", 0x4940, "up", "sym;asym").unwrap();
        machine.put("etc/group", "root:x:0:\n");
        fs::write(
            machine.device("0000:6b:00.0").join("qat/auto_reset"),
            "off\n",
        )
        .unwrap();
        let fixes = machine.fixes();
        for word in [
            "ServicesEnabled=dc",
            "intel_iommu=on",
            "qatlib-service",
            "memlock",
            "auto_reset",
        ] {
            assert!(has(&fixes, word), "{word}: {fixes:?}");
        }

        fs::write(
            machine.device("0000:70:00.0").join("qat/cfg_services"),
            "dc\n",
        )
        .unwrap();
        fs::write(
            machine.device("0000:6b:00.0").join("qat/auto_reset"),
            "on\n",
        )
        .unwrap();
        machine.put("etc/group", "qat:x:991:\n");
        fs::create_dir_all(sys.join("kernel/iommu_groups/0")).unwrap();
        let fixes = machine.fixes();
        assert!(
            has(&fixes, "usermod -aG qat") && has(&fixes, "SR-IOV"),
            "{fixes:?}"
        );
        assert!(!has(&fixes, "intel_iommu") && !has(&fixes, "ServicesEnabled"));

        machine.put("etc/group", "qat:x:990:\n");
        machine.put(
            "proc/self/limits",
            "Max locked memory         unlimited  unlimited  bytes\n",
        );
        machine.give_virtual_functions();
        assert!(machine.fixes().is_empty());
    }

    #[test]
    fn the_heartbeat_is_never_read() {
        // Opening a FIFO would block for ever.
        let machine = Machine::new();
        stage::machine(&machine.roots.sys).unwrap();
        let debug = machine.roots.sys.join("kernel/debug/qat_4xxx_0000:6b:00.0");
        std::fs::create_dir_all(debug.join("heartbeat")).unwrap();
        let device = machine.device("0000:6b:00.0");
        let names = ["heartbeat", "qat/heartbeat", "heartbeat_status"];
        let places = names.map(|name| device.join(name));
        for path in places.into_iter().chain([debug.join("heartbeat/status")]) {
            let made = std::process::Command::new("mkfifo").arg(&path).status();
            assert!(made.unwrap().success());
        }
        assert!(!machine.fixes().is_empty());
        assert!(Path::new(&machine.device("0000:6b:00.0")).exists());
    }

    #[test]
    fn a_library_that_is_missing_or_fails_is_named_by_what_its_test_said() {
        let mut probe = Probe {
            engine: "qatzip".into(),
            accelerator: "QAT".into(),
            description: String::new(),
            library: "QATzip".into(),
            hardware_detected: true,
            hardware: None,
            library_version: Some("libqatzip.so.3.2.0".into()),
            driver_version: None,
            calls_max: 4,
            trouble: None,
            reason: String::new(),
        };
        assert_eq!(library(&probe).verdict, CheckResult::Good);
        probe.trouble = Some(Trouble::LibraryNotFound.name().into());
        assert!(library(&probe).fix.unwrap().contains("dnf install qatzip"));
        probe.trouble = Some(Trouble::HardwareNotServing.name().into());
        assert_eq!(library(&probe).verdict, CheckResult::Note);
        probe.trouble = Some(Trouble::SelfTestFailed.name().into());
        probe.reason = "it lies".into();
        assert_eq!(library(&probe).text, "it lies");
    }
}
