//! The tools of every study: the output, the storage and the clock.

use std::sync::Arc;

use longshore_io::{Clock, Host, HostClock, Storage};
use longshore_terminal::output::Output;

/// The state that every study works with.
pub struct Context {
    pub output: Output,
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
}

impl Context {
    pub fn new(output: Output) -> Context {
        Context {
            output,
            storage: Arc::new(Host::new()),
            clock: Arc::new(HostClock),
        }
    }
}
