//! Goal: the world of emulated devices keeps the contracts of all worlds, clocks and file systems.
//! Method: the suites of those rooms, with both devices emulated, with one, and with none; an emulated device on a real
//! file.
//! Not covered: whether the emulated times are those of a real device.

#[path = "../../../core/io/tests/contract/clock.rs"]
mod clock_suite;
#[path = "../../../core/io/tests/contract/suite/mod.rs"]
mod storage_suite;
#[path = "../../../cache/serving/tests/worlds/suite.rs"]
mod world_suite;

use longshore_lab_nbd::Backing;
use longshore_serving::World;

/// Both devices, one of them, and none are emulated.
const SETTINGS: [&str; 3] = [
    "optane-905p/samsung-970pro@1",
    "-/samsung-970pro@2",
    "-/-@3",
];

fn opened(setting: &str, cache: &std::path::Path, backend: &std::path::Path) -> Opened {
    let mut world = Backing::default();
    assert_eq!(world.set("emulate", setting), Ok(true));
    world.open(Some(cache), backend)
}

type Opened = (
    std::sync::Arc<dyn longshore_io::Storage>,
    std::sync::Arc<dyn longshore_io::Clock>,
);

#[test]
fn emulated_devices_are_a_world() {
    world_suite::keeps_its_contract::<Backing>(&[]);
    for setting in SETTINGS {
        world_suite::keeps_its_contract::<Backing>(&[("emulate", setting)]);
    }
    let wrong = Backing::default().set("emulate", "optane-905p");
    assert!(wrong.unwrap_err().contains("FAST/SLOW"));
}

#[test]
fn the_clock_of_emulated_devices_is_a_clock() {
    for setting in SETTINGS {
        let (_, clock) = opened(setting, "cache".as_ref(), "backend".as_ref());
        clock_suite::keeps_its_contract(&*clock);
    }
}

/// Files that are no devices of the cache are the machine's.
#[test]
fn the_files_next_to_emulated_devices_are_files() {
    storage_suite::keeps_its_contract(&|| {
        let (storage, _) = opened(
            SETTINGS[0],
            "/nowhere/cache".as_ref(),
            "/nowhere/disk".as_ref(),
        );
        storage_suite::Place::in_a(tempfile::tempdir().unwrap(), storage)
    });
}

/// Goal: an emulated device is a file like any other, only later.
#[test]
fn an_emulated_device_keeps_the_contract_of_files() {
    let dir = tempfile::tempdir().unwrap();
    for is_cache in [true, false] {
        storage_suite::alone::keeps_its_contract(&|name| {
            let [device, other] = ["device", "other"].map(|of| dir.path().join(name).join(of));
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
            std::fs::write(&device, b"").unwrap();
            let (storage, _) = match is_cache {
                true => opened(SETTINGS[0], &device, &other),
                false => opened(SETTINGS[0], &other, &device),
            };
            storage_suite::alone::Lone {
                file: storage.disk(&device).unwrap(),
                synced: Ok(()),
            }
        });
    }
}

/// A lock of an emulated device is the file's: others are refused it.
#[test]
fn a_lock_of_an_emulated_device_is_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let [cache, backend] = ["cache", "backend"].map(|name| dir.path().join(name));
    std::fs::write(&backend, [0; 4096]).unwrap();
    let (storage, _) = opened(SETTINGS[0], &cache, &backend);
    let disk = storage.disk(&backend).unwrap();
    assert!(disk.try_lock().unwrap());
    let is_other_locked = |storage: &dyn longshore_io::Storage| {
        let other = storage.disk(&backend);
        other.is_ok_and(|other| other.try_lock().unwrap())
    };
    assert!(!is_other_locked(&*storage));
    drop(disk);
    assert!(is_other_locked(&*storage));
}
