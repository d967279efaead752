//! Temperatures by the kernel's hwmon sensors: of the processors, and of the drives that hold some files. Virtual
//! machines have none.
//!
//! Invariants
//! - A drive's temperature is its own: sensors of other drives are not read. It is the drive's first sensor, which with
//!   NVMe is the composite that the drive itself reports.
//! - A processor's temperature is that of its hottest sensor.
//! - A sensor that is there and does not answer is counted: a temperature that is not known is neither high nor low.
//! - Reading a sensor of a drive asks the drive: nobody should do that more often than once in a second.
//!
//! Leaves to others: which files matter, and when to read (the studies).
//!
//! Source: Linux, `Documentation/hwmon` (nvme and drivetemp) and `Documentation/admin-guide/sysfs-rules.rst`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::disk::Mount;
use super::drives::{block_device, whole_devices};
use super::pci::first_line;

/// hwmon drivers of processor sensors.
const CPU: [&str; 5] = [
    "coretemp",
    "k10temp",
    "zenpower",
    "cpu_thermal",
    "scpi_sensors",
];

/// hwmon drivers of drive sensors.
const DRIVE: [&str; 2] = ["nvme", "drivetemp"];

/// Degrees Celsius; `None` without a sensor that answers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Temperatures {
    pub cpu_c: Option<f64>,
    /// The hottest of the drives.
    pub drive_c: Option<f64>,
    /// Sensors of the processors that are there and did not answer.
    pub cpu_silent: usize,
    /// The same of the drives.
    pub drive_silent: usize,
}

impl Temperatures {
    /// The higher one of each kind, and of both readings the most sensors that did not answer.
    pub fn peak(self, other: Temperatures) -> Temperatures {
        Temperatures {
            cpu_c: hottest(self.cpu_c.into_iter().chain(other.cpu_c)),
            drive_c: hottest(self.drive_c.into_iter().chain(other.drive_c)),
            cpu_silent: self.cpu_silent.max(other.cpu_silent),
            drive_silent: self.drive_silent.max(other.drive_silent),
        }
    }

    /// Every sensor answered. Of a machine of which this is not so, nobody may say that it is cool.
    pub fn are_known(self) -> bool {
        self.cpu_silent == 0 && self.drive_silent == 0
    }
}

/// The sensors of the processors and of some drives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sensors {
    cpu: Vec<PathBuf>,
    drives: Vec<PathBuf>,
}

impl Sensors {
    /// The sensors of the processors, and of the drives below these file systems. `sys` is the mount point of sysfs:
    /// `/sys`. A drive behind a network or a hypervisor has none.
    pub fn find(sys: &Path, mounts: &[Mount]) -> Sensors {
        let mut drives = BTreeSet::new();
        for mount in mounts {
            let device = block_device(sys, mount);
            let wholes = device
                .map(|device| whole_devices(&device))
                .unwrap_or_default();
            drives.extend(wholes.iter().flat_map(|whole| devices_of(whole)));
        }
        let mut found = Sensors::default();
        for sensor in entries(&sys.join("class/hwmon")) {
            let name = first_line(&sensor.join("name")).ok().flatten();
            let name = name.unwrap_or_default();
            if CPU.contains(&name.as_str()) {
                found.cpu.extend(temperature_files(&sensor));
            } else if DRIVE.contains(&name.as_str()) && is_of(&sensor, &drives) {
                let first = sensor.join("temp1_input");
                found.drives.extend(first.exists().then_some(first));
            }
        }
        found.cpu.sort();
        found.drives.sort();
        found
    }

    pub fn has_cpu(&self) -> bool {
        !self.cpu.is_empty()
    }

    pub fn has_drives(&self) -> bool {
        !self.drives.is_empty()
    }

    /// The temperatures now. A sensor that does not answer, such as one of a drive that sleeps, is counted.
    pub fn read(&self) -> Temperatures {
        let (cpu_c, cpu_silent) = read_all(&self.cpu);
        let (drive_c, drive_silent) = read_all(&self.drives);
        Temperatures {
            cpu_c,
            drive_c,
            cpu_silent,
            drive_silent,
        }
    }
}

/// The hottest of some sensors, and how many of them did not answer.
fn read_all(files: &[PathBuf]) -> (Option<f64>, usize) {
    let answers: Vec<f64> = files.iter().filter_map(|file| celsius(file)).collect();
    let silent = files.len() - answers.len();
    (hottest(answers.into_iter()), silent)
}

fn hottest(all: impl Iterator<Item = f64>) -> Option<f64> {
    all.max_by(f64::total_cmp)
}

/// Sensors count in thousandths of a degree.
fn celsius(file: &Path) -> Option<f64> {
    let text = first_line(file).ok()??;
    Some(text.parse::<i64>().ok()? as f64 / 1000.0)
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(dir).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}

fn temperature_files(sensor: &Path) -> Vec<PathBuf> {
    let is_input = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("temp") && name.ends_with("_input")
    };
    entries(sensor).into_iter().filter(is_input).collect()
}

/// The devices of a drive that may have sensors; `whole` is the drive's block device.
fn devices_of(whole: &Path) -> Vec<PathBuf> {
    let Ok(device) = fs::canonicalize(whole.join("device")) else {
        return Vec::new();
    };
    // A drive with several ways to it belongs to a subsystem, which names the controllers.
    let is_controller = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let number = name.strip_prefix("nvme");
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let controllers = entries(&device).into_iter().filter(is_controller);
    let controllers: Vec<PathBuf> = controllers
        .filter_map(|c| fs::canonicalize(c).ok())
        .collect();
    match controllers.is_empty() {
        true => vec![device],
        false => controllers,
    }
}

/// Whether a sensor belongs to one of the drives: to its device, or with older kernels to the PCI function above.
fn is_of(sensor: &Path, drives: &BTreeSet<PathBuf>) -> bool {
    let Ok(owner) = fs::canonicalize(sensor.join("device")) else {
        return false;
    };
    drives.iter().any(|drive| drive.starts_with(&owner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A sysfs as kernels lay it out: directories of devices, and links to them.
    struct Sys(tempfile::TempDir);

    impl Sys {
        fn new() -> Sys {
            Sys(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn put(&self, name: &str, text: &str) {
            let path = self.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn link(&self, from: &str, to: &str) {
            let from = self.path(from);
            fs::create_dir_all(from.parent().unwrap()).unwrap();
            symlink(self.path(to), from).unwrap();
        }

        /// A sensor of the device in the directory `device`, with its readings.
        fn sensor(&self, number: u32, device: &str, driver: &str, readings: &[i64]) {
            let own = format!("{device}/hwmon{number}");
            self.put(&format!("{own}/name"), &format!("{driver}\n"));
            for (n, reading) in readings.iter().enumerate() {
                self.put(
                    &format!("{own}/temp{}_input", n + 1),
                    &format!("{reading}\n"),
                );
            }
            self.put(&format!("{own}/temp1_crit"), "99000\n");
            self.link(&format!("{own}/device"), device);
            self.link(&format!("class/hwmon/hwmon{number}"), &own);
        }

        /// A drive with one partition, whose number is `8:minor`.
        fn disk(&self, device: &str, name: &str, minor: u32) {
            let block = format!("{device}/block/{name}");
            self.put(&format!("{block}/{name}1/partition"), "1\n");
            self.link(&format!("{block}/device"), device);
            self.link(&format!("dev/block/8:{minor}"), &format!("{block}/{name}1"));
        }

        fn read(&self, devices: &[(u32, u32)]) -> Temperatures {
            let mounts: Vec<Mount> = devices.iter().map(|device| mount(*device, "x")).collect();
            Sensors::find(self.0.path(), &mounts).read()
        }
    }

    fn mount(device: (u32, u32), source: &str) -> Mount {
        Mount {
            point: "/".into(),
            source: source.into(),
            kind: "ext4".into(),
            device,
        }
    }

    fn of(cpu_c: Option<f64>, drive_c: Option<f64>) -> Temperatures {
        Temperatures {
            cpu_c,
            drive_c,
            ..Temperatures::default()
        }
    }

    /// Two processors, two SATA drives and an NVMe drive, of which one at a time is the target.
    #[test]
    fn the_target_drives_sensor_is_read_and_no_others() {
        let sys = Sys::new();
        sys.sensor(
            0,
            "devices/platform/coretemp.0",
            "coretemp",
            &[51_000, 55_500],
        );
        sys.sensor(1, "devices/platform/coretemp.1", "coretemp", &[49_000]);
        sys.sensor(2, "devices/virtual/thermal", "acpitz", &[90_000]);
        for (n, degrees) in [(0, 38_000), (1, 61_000)] {
            let device = format!("devices/ata{n}/target/{n}:0:0:0");
            let name = ["sda", "sdb"][n as usize];
            sys.disk(&device, name, 16 * n + 1);
            sys.sensor(3 + n, &device, "drivetemp", &[degrees]);
        }
        // The second and the third sensor of an NVMe drive are of its parts.
        let controller = "devices/pci0/0000:04:00.0/nvme/nvme0";
        sys.sensor(5, controller, "nvme", &[44_850, 70_000]);
        sys.put(&format!("{controller}/nvme0n1/size"), "1\n");
        sys.link(&format!("{controller}/nvme0n1/device"), controller);
        sys.link("dev/block/259:0", &format!("{controller}/nvme0n1"));
        assert_eq!(sys.read(&[(8, 1)]), of(Some(55.5), Some(38.0)));
        assert_eq!(sys.read(&[(8, 17)]), of(Some(55.5), Some(61.0)));
        assert_eq!(sys.read(&[(259, 0)]), of(Some(55.5), Some(44.85)));
        assert_eq!(sys.read(&[(8, 1), (259, 0)]).drive_c, Some(44.85), "of two");
        assert_eq!(sys.read(&[]), of(Some(55.5), None));
        assert_eq!(sys.read(&[(8, 99)]).drive_c, None, "no such device");
    }

    #[test]
    fn volumes_on_drives_and_drives_with_several_ways_are_followed() {
        let sys = Sys::new();
        for (n, degrees) in [(0, 38_000), (1, 61_000)] {
            let device = format!("devices/ata{n}/target/{n}:0:0:0");
            let name = ["sda", "sdb"][n as usize];
            sys.disk(&device, name, 16 * n + 1);
            sys.sensor(n, &device, "drivetemp", &[degrees]);
            let part = format!("devices/virtual/block/md0/slaves/{name}1");
            sys.link(&part, &format!("{device}/block/{name}/{name}1"));
        }
        // An encrypted volume on the mirror.
        sys.link(
            "devices/virtual/block/dm-0/slaves/md0",
            "devices/virtual/block/md0",
        );
        sys.link("dev/block/253:0", "devices/virtual/block/dm-0");
        assert_eq!(sys.read(&[(253, 0)]).drive_c, Some(61.0));
        let subsystem = "devices/virtual/nvme-subsystem/nvme-subsys0";
        // The sensor of an older kernel belongs to the PCI function.
        let function = "devices/pci0/0000:04:00.0";
        sys.put(&format!("{function}/nvme/nvme3/model"), "fast\n");
        sys.sensor(7, function, "nvme", &[41_000]);
        sys.link(
            &format!("{subsystem}/nvme3"),
            &format!("{function}/nvme/nvme3"),
        );
        sys.put(&format!("{subsystem}/nvme3n1/size"), "1\n");
        sys.link(&format!("{subsystem}/nvme3n1/device"), subsystem);
        sys.link("dev/block/259:5", &format!("{subsystem}/nvme3n1"));
        assert_eq!(sys.read(&[(259, 5)]).drive_c, Some(41.0));
        // A volume that is made of itself ends.
        sys.link(
            "devices/virtual/block/dm-9/slaves/dm-9",
            "devices/virtual/block/dm-9",
        );
        sys.link("dev/block/253:9", "devices/virtual/block/dm-9");
        assert_eq!(sys.read(&[(253, 9)]).drive_c, None);
    }

    #[test]
    fn a_sensor_that_does_not_answer_is_counted_and_a_machine_without_any_has_no_temperature() {
        let sys = Sys::new();
        assert_eq!(sys.read(&[(8, 1)]), of(None, None));
        assert!(sys.read(&[(8, 1)]).are_known());
        sys.sensor(0, "devices/platform/k10temp", "k10temp", &[51_000]);
        sys.put("devices/platform/k10temp/hwmon0/temp2_input", "no number\n");
        let one_silent = Temperatures {
            cpu_silent: 1,
            ..of(Some(51.0), None)
        };
        assert_eq!(sys.read(&[]), one_silent);
        assert!(!one_silent.are_known());
        // The only sensor of a drive, of which nothing is known then: it is not a drive without a sensor.
        sys.disk("devices/ata0", "sda", 1);
        sys.sensor(1, "devices/ata0", "drivetemp", &[38_000]);
        sys.put("devices/ata0/hwmon1/temp1_input", "\n");
        let found = Sensors::find(sys.0.path(), &[mount((8, 1), "x")]);
        assert_eq!(found.read().drive_silent, 1);
        assert_eq!((found.has_drives(), found.read().drive_c), (true, None));
        fs::remove_file(sys.path("devices/ata0/hwmon1/temp1_input")).unwrap();
        assert_eq!(found.read().drive_silent, 1, "it went away");
        let found = Sensors::find(sys.0.path(), &[mount((0, 50), "tmpfs")]);
        assert!(found.has_cpu() && !found.has_drives());
        let peak = of(Some(50.0), None).peak(of(Some(49.0), Some(30.0)));
        assert_eq!(peak, of(Some(50.0), Some(30.0)));
        assert_eq!(peak.peak(one_silent).cpu_silent, 1);
        assert_eq!(one_silent.peak(peak).cpu_silent, 1);
    }

    #[test]
    fn a_real_sensor_is_plausible_if_there_is_one() {
        let here = super::super::mount_of(Path::new(".")).unwrap();
        let found = Sensors::find(Path::new("/sys"), &[here]).read();
        for degrees in [found.cpu_c, found.drive_c].into_iter().flatten() {
            assert!((-60.0..150.0).contains(&degrees), "{degrees}");
        }
    }
}
