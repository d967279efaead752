//! Where a plugin finds its files and its time.

use std::path::Path;
use std::sync::Arc;

use longshore_io::{Clock, Host, HostClock, Storage};

/// The files and the clock of a plugin, and settings of its own that choose them.
pub trait World: Send {
    /// What its settings mean, as nbdkit prints it; empty where it has none.
    fn help() -> &'static str
    where
        Self: Sized,
    {
        ""
    }

    /// Takes a setting. `false`: there is no such setting here.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, String>;

    /// Before serving: the files and the clock, for a cache and a backend.
    fn open(&mut self, cache: Option<&Path>, backend: &Path) -> (Arc<dyn Storage>, Arc<dyn Clock>);

    /// After serving.
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
