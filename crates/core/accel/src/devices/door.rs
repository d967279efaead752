//! An accelerator as the rest of the program sees it: an engine with facts, and the reasons against its use.
//!
//! Invariants
//! - The names of troubles are for programs and never change.
//! - Each trouble has one state: whether the device may come back, and whether it is tried again.
//!
//! Leaves to others: the accelerators (`nvcomp`, `qatzip`), and the words for an operator (`messages.rs`).

use crate::{Engine, EngineState};

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
