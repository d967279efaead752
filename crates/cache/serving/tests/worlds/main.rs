//! The contract of [`World`], kept by the world of the machine; the lab's is checked by the lab.

mod suite;

use longshore_serving::{Here, World};

#[test]
fn the_machine_is_a_world() {
    suite::keeps_its_contract::<Here>(&[]);
    assert_eq!(Here::help(), "");
}

/// Takes every setting for its own.
#[derive(Default)]
struct Greedy(Here);

impl World for Greedy {
    fn set(&mut self, _key: &str, _value: &str) -> Result<bool, String> {
        Ok(true)
    }

    fn open(
        &mut self,
        cache: Option<&std::path::Path>,
        backend: &std::path::Path,
    ) -> (
        std::sync::Arc<dyn longshore_io::Storage>,
        std::sync::Arc<dyn longshore_io::Clock>,
    ) {
        self.0.open(cache, backend)
    }
}

/// Goal: the suite sees a world that hides the plugin's settings.
#[test]
fn a_world_that_takes_every_setting_breaks_the_contract() {
    let checked = std::panic::catch_unwind(|| suite::keeps_its_contract::<Greedy>(&[]));
    assert!(checked.is_err());
}
