//! Accelerators: found at run time with dlopen, never at build time.

pub mod nvcomp;

use std::sync::{Arc, LazyLock};

use crate::Engine;

/// The accelerators that this host may have. Looks for them at the first call only: a library that found no device
/// does not look again either.
pub fn accelerators() -> Vec<Arc<dyn Engine>> {
    static FOUND: LazyLock<Vec<Arc<dyn Engine>>> = LazyLock::new(discover);
    FOUND.clone()
}

/// One entry for each back end whose library could be loaded, in service or not: its health says which.
fn discover() -> Vec<Arc<dyn Engine>> {
    vec![Arc::new(nvcomp::Nvcomp::open(
        nvcomp::Options::from_environment(),
    ))]
}
