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
fn an_emulated_device_keeps_the_promises_about_bytes() {
    use longshore_io::Via;
    let dir = tempfile::tempdir().unwrap();
    let [cache, backend] = ["cache", "backend"].map(|name| dir.path().join(name));
    for path in [&cache, &backend] {
        std::fs::write(path, [0; 1 << 20]).unwrap();
    }
    let (storage, _) = opened(SETTINGS[0], &cache, &backend);
    for path in [&cache, &backend] {
        let disk = storage.disk(path).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let disk = &disk;
                scope.spawn(move || {
                    let at = u64::from(thread) * 100_000 + 1;
                    let bytes = vec![thread + 1; 99_999];
                    disk.write_all_at(&bytes, at, Via::Cache).unwrap();
                    let mut found = vec![0; bytes.len()];
                    disk.read_exact_at(&mut found, at, Via::Cache).unwrap();
                    assert!(found == bytes);
                });
            }
        });
        // Short at the end, and nothing beyond it.
        let mut found = [7; 100];
        assert_eq!(
            disk.read_at(&mut found, (1 << 20) - 10, Via::Cache)
                .unwrap(),
            10
        );
        assert_eq!(disk.read_at(&mut found, 1 << 20, Via::Cache).unwrap(), 0);
        assert!(disk.punch(0..4096).is_ok());
        disk.set_len(2 << 20).unwrap();
        assert_eq!(disk.stat().unwrap().len, 2 << 20);
        disk.sync_with_times().unwrap();
        assert!(disk.try_lock().unwrap());
        assert!(
            !storage
                .disk(path)
                .is_ok_and(|other| other.try_lock().unwrap())
        );
    }
}
