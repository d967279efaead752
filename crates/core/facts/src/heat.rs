//! Temperatures by the kernel's hwmon sensors. Virtual machines have none.

use std::fs;
use std::path::Path;

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

/// The hottest processor sensor, in degrees Celsius.
pub fn cpu_temperature_c() -> Option<f64> {
    hottest_c(Path::new("/sys/class/hwmon"), &CPU)
}

/// The hottest drive sensor, in degrees Celsius.
pub fn drive_temperature_c() -> Option<f64> {
    hottest_c(Path::new("/sys/class/hwmon"), &DRIVE)
}

fn hottest_c(hwmon: &Path, drivers: &[&str]) -> Option<f64> {
    let sensors = fs::read_dir(hwmon)
        .ok()?
        .flatten()
        .map(|sensor| sensor.path());
    let ours = sensors.filter(|sensor| {
        fs::read_to_string(sensor.join("name")).is_ok_and(|name| drivers.contains(&name.trim()))
    });
    ours.filter_map(|sensor| fs::read_dir(sensor).ok())
        .flat_map(|files| files.flatten())
        .filter(|file| {
            let name = file.file_name();
            let name = name.to_string_lossy();
            name.starts_with("temp") && name.ends_with("_input")
        })
        .filter_map(|file| {
            fs::read_to_string(file.path())
                .ok()?
                .trim()
                .parse::<i64>()
                .ok()
        })
        .max()
        .map(|millidegrees| millidegrees as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_sensor_of_the_right_kind_is_read() {
        let root = tempfile::tempdir().unwrap();
        for (dir, name, files) in [
            (
                "hwmon0",
                "coretemp\n",
                &[
                    ("temp1_input", "51000\n"),
                    ("temp1_crit", "99000\n"),
                    ("temp2_input", "55500\n"),
                ][..],
            ),
            (
                "hwmon1",
                "nvme\n",
                &[("temp1_input", "38850\n"), ("name2", "x")],
            ),
            ("hwmon2", "acpitz\n", &[("temp1_input", "90000\n")]),
            ("hwmon3", "coretemp\n", &[("temp1_input", "no number")]),
        ] {
            fs::create_dir(root.path().join(dir)).unwrap();
            fs::write(root.path().join(dir).join("name"), name).unwrap();
            for (file, text) in files {
                fs::write(root.path().join(dir).join(file), text).unwrap();
            }
        }
        assert_eq!(hottest_c(root.path(), &CPU), Some(55.5));
        assert_eq!(hottest_c(root.path(), &DRIVE), Some(38.85));
        assert_eq!(hottest_c(root.path(), &["zenpower"]), None);
        assert_eq!(hottest_c(&root.path().join("none"), &CPU), None);
    }

    #[test]
    fn a_real_sensor_is_plausible_if_there_is_one() {
        for found in [cpu_temperature_c(), drive_temperature_c()]
            .into_iter()
            .flatten()
        {
            assert!((-60.0..150.0).contains(&found), "{found}");
        }
    }
}
