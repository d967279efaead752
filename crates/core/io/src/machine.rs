//! The machine as a run sees it.

use std::fmt;
use std::sync::Arc;

use crate::{Clock, Storage};

/// A machine's files and its clock. Tests use simulated ones.
#[derive(Clone)]
pub struct Machine {
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Machine").finish_non_exhaustive()
    }
}
