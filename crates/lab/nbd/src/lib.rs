//! The block cache as a plugin of nbdkit for measurements: its devices can be emulated.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod emulated;

use std::path::Path;
use std::sync::Arc;

use longshore_io::{Clock, Host, HostClock, Storage};
use longshore_serving::World;

use emulated::{EmulatedHost, Emulation, Late, SlowClock};

/// The host, or devices that answer as late as those of a profile.
#[derive(Default)]
pub struct Backing {
    emulation: Option<Emulation>,
    late: Option<Arc<Late>>,
}

impl World for Backing {
    fn help() -> &'static str {
        "emulate=F/S@N   for measurements: emulate these profiles' latencies, N times slower; - is the host"
    }

    fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        if key == "emulate" {
            self.emulation = Some(Emulation::parse(value)?);
        }
        Ok(key == "emulate")
    }

    fn open(&mut self, cache: Option<&Path>, backend: &Path) -> (Arc<dyn Storage>, Arc<dyn Clock>) {
        let Some(emulation) = &self.emulation else {
            return (Arc::new(Host::new()), Arc::new(HostClock));
        };
        let stretch = emulation.stretch;
        let host = EmulatedHost::new(emulation, cache, backend);
        self.late = Some(host.late());
        (Arc::new(host), Arc::new(SlowClock { stretch }))
    }

    fn ended(&self) {
        if let Some(late) = &self.late {
            late.report();
        }
    }
}

longshore_serving::plugin!(Backing);
