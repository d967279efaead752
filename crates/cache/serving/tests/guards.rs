//! Callbacks of nbdkit whose world panics: each must end with an error or without an answer, since no panic may unwind
//! into C.

use std::path::Path;
use std::sync::Arc;

use longshore_io::{Clock, Storage};
use longshore_serving::{Connection, World};
use nbdkit::Server;

/// A world in which everything is a bug.
#[derive(Default)]
struct Broken;

impl World for Broken {
    fn help() -> &'static str {
        panic!("help")
    }

    fn set(&mut self, key: &str, _value: &str) -> Result<bool, String> {
        match key {
            "broken" => panic!("set"),
            _ => Ok(false),
        }
    }

    fn open(&mut self, _: Option<&Path>, _: &Path) -> (Arc<dyn Storage>, Arc<dyn Clock>) {
        panic!("open")
    }
}

type Plugin = Connection<Broken>;

#[test]
fn a_panic_in_a_callback_is_an_error_and_not_an_unwinding_into_nbdkit() {
    // nbdkit asks for the help first, and more than once.
    for _ in 0..2 {
        assert_eq!(<Plugin as Server>::config_help(), None);
    }
    let refused = <Plugin as Server>::config("broken", "1").unwrap_err();
    assert!(refused.to_string().contains("a bug in this program"));
    // The lock was not poisoned: the next setting is taken.
    let dir = tempfile::tempdir().unwrap();
    let backend = dir.path().join("disk");
    std::fs::write(&backend, [0; 4096]).unwrap();
    <Plugin as Server>::config("backend", backend.to_str().unwrap()).unwrap();
    <Plugin as Server>::config_complete().unwrap();
    let failed = <Plugin as Server>::after_fork().unwrap_err();
    assert!(failed.to_string().contains("a bug in this program"));
}
