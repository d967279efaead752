//! Accelerators: found at run time with dlopen, never at build time.
//!
//! Invariants
//! - Every accelerator that this program knows has an entry here, whether or not it is present: the status view has a
//!   row for each. There is one of each in a process.
//! - Listing them is cheap and touches no device; the first [`Engine::self_test`] loads the libraries.
//! - A call into a vendor's library is counted until it returns: while there are any, the process must end by `_exit`
//!   ([`holds_exit`]).
//!
//! Leaves to others: the two vendors' libraries (`qatzip`, `nvcomp`), giving out work (`dispatch`), and ending the
//! process (the programs).

#[cfg(test)]
pub(crate) mod contract;
mod door;
mod messages;
pub mod nvcomp;
pub mod qatzip;
mod under_way;

use std::sync::{Arc, LazyLock};

pub use door::{Accelerator, AcceleratorFacts, Refusal, Trouble};
pub use messages::Message;
pub use under_way::holds_exit;

use crate::Engine;
use nvcomp::{Nvcomp, Options};
use qatzip::{Places, Qatzip};

/// The accelerators that this host may have; their health says which are in service. Every call returns the same ones:
/// a library that found no device does not look again either.
pub fn accelerators() -> Vec<Arc<dyn Engine>> {
    let engine = |known: Arc<dyn Accelerator>| -> Arc<dyn Engine> { known };
    known().into_iter().map(engine).collect()
}

/// Like [`accelerators`], with the methods that only accelerators have.
pub fn known() -> Vec<Arc<dyn Accelerator>> {
    static FOUND: LazyLock<Vec<Arc<dyn Accelerator>>> = LazyLock::new(|| {
        vec![
            Arc::new(Qatzip::new(Places::host())),
            Arc::new(Nvcomp::open(Options::from_environment())),
        ]
    });
    FOUND.clone()
}
