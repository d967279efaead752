//! The text of [`World`] as a test of any world, with the calls of a plugin's life in their order.

use std::path::Path;

use longshore_io::{OpenHow, Via};
use longshore_serving::World;

/// Checks whatever the trait promises: for a world that takes `own` settings, each with its value.
///
/// # Panics
/// If the world breaks a promise.
pub fn keeps_its_contract<W: World + Default>(own: &[(&str, &str)]) {
    let help = W::help();
    assert_eq!(help, W::help(), "a constant");
    assert!(help.lines().all(|line| !line.trim().is_empty()));
    let dir = tempfile::tempdir().unwrap();
    let [cache, backend] = ["cache", "backend"].map(|name| dir.path().join(name));
    std::fs::write(&cache, [1; 8192]).unwrap();
    std::fs::write(&backend, [2; 8192]).unwrap();
    for cache in [None, Some(&*cache)] {
        let mut world = W::default();
        for (key, value) in own {
            // The last value counts.
            assert_eq!(world.set(key, value), Ok(true), "{key}");
            assert_eq!(world.set(key, value), Ok(true), "{key}");
            assert!(help.contains(key), "{key} is not explained");
        }
        for key in ["", "no such setting", "backend", "cache", "size"] {
            assert_eq!(world.set(key, "1"), Ok(false), "{key} is the plugin's own");
        }
        let (storage, clock) = world.open(cache, &backend);
        assert!(clock.wall_ns() > 0);
        for (path, byte) in [(Some(&*backend), 2), (cache, 1)] {
            let Some(path) = path else { continue };
            let file = storage.disk(path).unwrap();
            assert_eq!(file.stat().unwrap().len, 8192);
            let mut found = [0; 4096];
            file.read_exact_at(&mut found, 4096, Via::Cache).unwrap();
            assert_eq!(found, [byte; 4096]);
            file.write_all_at(&[byte; 4096], 0, Via::Cache).unwrap();
            file.sync().unwrap();
        }
        let dir = storage.dir(Path::new(dir.path())).unwrap();
        dir.open(Path::new("backend"), OpenHow::Read).unwrap();
        world.ended();
    }
}
