//! The files and the clock that a plugin serves with: this machine's, or emulated devices of the lab.

use std::path::Path;
use std::sync::Arc;

use longshore_io::{Clock, Host, HostClock, Storage};

/// The files and the clock of a plugin, and settings of its own that choose them. The tests in `tests/worlds` check this text
/// for every world.
pub trait World: Send {
    /// The text that explains its settings, for nbdkit's help; empty if it has none. Must be a constant.
    fn help() -> &'static str
    where
        Self: Sized,
    {
        ""
    }

    /// Takes a setting. `Ok(false)`: not one of its own; the plugin's own are tried then. An error refuses the value, and
    /// nbdkit does not start. Called before [`World::open`], any number of times.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, String>;

    /// The files and the clock for a cache and a backend. Called once, after the last [`World::set`] and after nbdkit's
    /// fork, so that it may start threads.
    fn open(&mut self, cache: Option<&Path>, backend: &Path) -> (Arc<dyn Storage>, Arc<dyn Clock>);

    /// Called once, after the last request was answered and the cache is closed.
    fn ended(&self) {}
}

/// This machine.
#[derive(Default)]
pub struct Here;

impl World for Here {
    fn set(&mut self, _key: &str, _value: &str) -> Result<bool, String> {
        Ok(false)
    }

    fn open(
        &mut self,
        _cache: Option<&Path>,
        _backend: &Path,
    ) -> (Arc<dyn Storage>, Arc<dyn Clock>) {
        (Arc::new(Host::new()), Arc::new(HostClock))
    }
}
