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
mod messages;
pub mod nvcomp;
pub mod qatzip;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

pub use messages::{Message, RUN_TIME, messages};

use crate::{Engine, EngineState};
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

/// An engine that is hardware, with the facts for a status view. The tests in `contract.rs` check this text for every
/// accelerator.
pub trait Accelerator: Engine {
    /// Cheap; never touches the device, and changes nothing. The names are constant. While nothing happens to the device
    /// the facts agree with [`Engine::health`]: there is a refusal unless it is ready, of its state and with its reason.
    fn found(&self) -> AcceleratorFacts;
}

/// The facts found about an accelerator.
#[derive(Debug, Clone)]
pub struct AcceleratorFacts {
    /// SQL Server's short name where it has one: `QAT`.
    pub accelerator: &'static str,
    pub description: &'static str,
    /// The name of its library.
    pub library: &'static str,
    pub hardware_detected: bool,
    /// Why it is not in service; `None` if it is.
    pub refusal: Option<Refusal>,
}

/// Why an accelerator is not in service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub trouble: Trouble,
    /// One sentence that names what to do.
    pub text: String,
}

/// Logs the result of a self-test if it changed: tests that are repeated while a device is absent have nothing new to
/// report.
fn log_test(accelerator: &dyn Accelerator, before: Option<&Refusal>) {
    let found = accelerator.found();
    if found.refusal.as_ref() != before {
        let lines = messages(&found, &accelerator.health());
        lines.iter().for_each(Message::log);
    }
}

impl Refusal {
    pub fn new(trouble: Trouble, text: impl Into<String>) -> Refusal {
        Refusal {
            trouble,
            text: text.into(),
        }
    }
}

/// The kinds of reasons why an accelerator is not in service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Found, but its self-test has not run yet.
    NotTested,
    /// An operator disabled it.
    SwitchedOff,
    HardwareNotFound,
    /// Present, but without a driver, down, or configured for another service.
    HardwareNotServing,
    LibraryNotFound,
    LoadFailed,
    EntryPointMissing,
    VersionNotCompatible,
    InitializationFailed,
    /// The state of the library in this process excludes a device for ever.
    ProcessWithoutDevice,
    SessionFailed,
    SelfTestFailed,
    /// Calls that ended badly hold too much memory.
    MemoryLost,
    /// Driver, library or device is missing: the text says which.
    NotAvailable,
    /// It failed, and will be tried again.
    Failed,
    /// It failed for good.
    FailedForGood,
    /// Its library hung or died during the test.
    NoAnswer,
}

impl Trouble {
    pub const ALL: [Trouble; 17] = [
        Trouble::NotTested,
        Trouble::SwitchedOff,
        Trouble::HardwareNotFound,
        Trouble::HardwareNotServing,
        Trouble::LibraryNotFound,
        Trouble::LoadFailed,
        Trouble::EntryPointMissing,
        Trouble::VersionNotCompatible,
        Trouble::InitializationFailed,
        Trouble::ProcessWithoutDevice,
        Trouble::SessionFailed,
        Trouble::SelfTestFailed,
        Trouble::MemoryLost,
        Trouble::NotAvailable,
        Trouble::Failed,
        Trouble::FailedForGood,
        Trouble::NoAnswer,
    ];

    /// The name for programs: `library_not_found`.
    pub fn name(self) -> &'static str {
        match self {
            Trouble::NotTested => "not_tested",
            Trouble::SwitchedOff => "switched_off",
            Trouble::HardwareNotFound => "hardware_not_found",
            Trouble::HardwareNotServing => "hardware_not_serving",
            Trouble::LibraryNotFound => "library_not_found",
            Trouble::LoadFailed => "load_failed",
            Trouble::EntryPointMissing => "entry_point_missing",
            Trouble::VersionNotCompatible => "version_not_compatible",
            Trouble::InitializationFailed => "initialization_failed",
            Trouble::ProcessWithoutDevice => "process_without_device",
            Trouble::SessionFailed => "session_failed",
            Trouble::SelfTestFailed => "self_test_failed",
            Trouble::MemoryLost => "memory_lost",
            Trouble::NotAvailable => "not_available",
            Trouble::Failed => "failed",
            Trouble::FailedForGood => "failed_for_good",
            Trouble::NoAnswer => "no_answer",
        }
    }

    /// The state of an engine with this trouble.
    pub fn state(self) -> EngineState {
        match self {
            Trouble::NotTested => EngineState::Probing,
            Trouble::HardwareNotFound
            | Trouble::HardwareNotServing
            | Trouble::LibraryNotFound
            | Trouble::LoadFailed
            | Trouble::NotAvailable => EngineState::Absent,
            // A device during its reset looks like this; it is tried again.
            Trouble::InitializationFailed
            | Trouble::SessionFailed
            | Trouble::SelfTestFailed
            | Trouble::Failed => EngineState::Suspended,
            Trouble::SwitchedOff
            | Trouble::EntryPointMissing
            | Trouble::VersionNotCompatible
            | Trouble::ProcessWithoutDevice
            | Trouble::MemoryLost
            | Trouble::FailedForGood
            | Trouble::NoAnswer => EngineState::Off,
        }
    }
}

/// Calls into vendors' libraries that have not returned.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// How many calls into accelerators' libraries have not returned. A process must not end the usual way while there are
/// any: the libraries' destructors wait for their threads and free memory that calls still use. End it with `_exit`
/// after everything else is done.
pub fn under_way() -> usize {
    UNDER_WAY.load(Ordering::SeqCst)
}

static HOLDS_EXIT: AtomicBool = AtomicBool::new(false);

/// Whether the process must end by `_exit` after everything else is done: calls have not returned, or a library was
/// started whose destructor waits for its own threads.
pub fn holds_exit() -> bool {
    under_way() > 0 || HOLDS_EXIT.load(Ordering::SeqCst)
}

/// Counts a call while it lives.
pub(crate) struct UnderWay;

impl UnderWay {
    pub(crate) fn begin() -> UnderWay {
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        UnderWay
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    }
}
