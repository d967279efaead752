//! Goal: a sweep cools until a threshold and shows temperatures where there are sensors, and says so where there are none.
//! Method: the real program, with directories that stand for sysfs.
//! Not covered: real sensors.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

const LAB: &str = env!("CARGO_BIN_EXE_longshore-lab");

fn sweep(dir: &Path, words: &[&str]) -> Output {
    let common = [
        "lab", "sweep", "--quick", "--size", "3M", "--dir", "stripes",
    ];
    let words = common.iter().chain(words).copied();
    let mut command = longshore_kit::program::command(LAB, words);
    let command = command
        .current_dir(dir)
        .env("LONGSHORE_SYSFS", dir.join("sys"));
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// A sensor of the device in the directory `of` below sysfs.
fn sensor(dir: &Path, number: u32, driver: &str, of: &str, millidegrees: &str) {
    let sys = dir.join("sys");
    let (own, device) = (sys.join(format!("class/hwmon/hwmon{number}")), sys.join(of));
    for dir in [&own, &device] {
        fs::create_dir_all(dir).unwrap();
    }
    fs::write(own.join("name"), driver).unwrap();
    fs::write(own.join("temp1_input"), millidegrees).unwrap();
    symlink(device, own.join("device")).unwrap();
}

#[test]
fn temperatures_and_cooling_are_in_the_report_and_the_headline_says_that_the_sensors_are_others() {
    let dir = TempDir::new().unwrap();
    sensor(dir.path(), 0, "coretemp\n", "devices/cpu", "45500\n");
    // Of a drive that nothing is written to.
    sensor(dir.path(), 1, "drivetemp\n", "devices/other", "71500\n");
    let done = sweep(dir.path(), &["--cool", "60", "--rounds", "2"]);
    let told = said(&done);
    assert!(done.status.success(), "{told}");
    assert!(told.contains("CPU peak") && told.contains("45.5"), "{told}");
    assert!(
        !told.contains("Drive peak") && !told.contains("71.5"),
        "{told}"
    );
    let words: Vec<&str> = told.split_whitespace().collect();
    let told = words.join(" ");
    for part in [
        "Not this machine's own libraries or devices: LONGSHORE_SYSFS=",
        "Only 2 rounds, so chance may decide.",
        "the target drives show no sensor",
        "at or below 60 °C: 0 of 20 waited",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn the_drive_that_the_stripes_are_written_to_is_found_by_its_number() {
    let dir = TempDir::new().unwrap();
    let (major, minor) = longshore_facts::mount_of(dir.path()).unwrap().device;
    if major == 0 {
        eprintln!("skipped: no block device is below {}", dir.path().display());
        return;
    }
    sensor(dir.path(), 0, "drivetemp\n", "devices/target", "38500\n");
    sensor(dir.path(), 1, "drivetemp\n", "devices/other", "71500\n");
    let sys = dir.path().join("sys");
    let block = sys.join("devices/target/block/sda");
    fs::create_dir_all(&block).unwrap();
    fs::create_dir_all(sys.join("dev/block")).unwrap();
    symlink(sys.join("devices/target"), block.join("device")).unwrap();
    symlink(&block, sys.join(format!("dev/block/{major}:{minor}"))).unwrap();
    let done = sweep(dir.path(), &[]);
    let told = said(&done);
    assert!(done.status.success(), "{told}");
    assert!(
        told.contains("Drive peak") && told.contains("38.5"),
        "{told}"
    );
    assert!(
        !told.contains("CPU peak") && !told.contains("71.5"),
        "{told}"
    );
}

/// A drive that sleeps, or a broken sensor: it is not taken for one that is cool, nor for one that is not there.
#[test]
fn a_sensor_that_does_not_answer_is_told_and_is_not_missing() {
    let dir = TempDir::new().unwrap();
    sensor(dir.path(), 0, "coretemp\n", "devices/cpu", "asleep\n");
    let done = sweep(dir.path(), &[]);
    let told = said(&done);
    assert!(done.status.success(), "{told}");
    assert!(!told.contains("CPU peak"), "{told}");
    let words: Vec<&str> = told.split_whitespace().collect();
    let words = words.join(" ");
    let not_known = "In 10 of 10 backups a sensor did not answer every reading: a temperature is not known there";
    assert!(words.contains(not_known), "{told}");
    assert!(
        words.contains("the target drives show no sensor here"),
        "{told}"
    );
    // Nothing would ever be known to be cool.
    let refused = sweep(dir.path(), &["--cool", "60"]);
    let told = said(&refused);
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(
        told.contains("--cool needs a temperature, and no sensor"),
        "{told}"
    );
}

#[test]
fn without_a_sensor_cooling_is_refused_and_a_sweep_says_that_there_is_none() {
    let dir = TempDir::new().unwrap();
    let refused = sweep(dir.path(), &["--cool", "60"]);
    let told = said(&refused);
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains("--cool needs a temperature sensor"), "{told}");
    let done = sweep(dir.path(), &[]);
    let told = said(&done);
    assert!(done.status.success(), "{told}");
    assert!(!told.contains("peak"), "{told}");
    let words: Vec<&str> = told.split_whitespace().collect();
    let none = "Neither the CPU nor the target drives show a temperature sensor here.";
    assert!(words.join(" ").contains(none), "{told}");
}
