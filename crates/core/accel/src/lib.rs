//! Accelerators: engines that compress buffers outside the CPU, and the dispatcher that gives them work.
//!
//! [`Engine`] is the door of everything that takes whole jobs: a vendor's device ([`qatzip`], [`nvcomp`]), or
//! [`Software`] for what a device leaves undone. [`dispatch`] decides who gets which buffer, watches devices and checks
//! what they made. Algorithms, payloads and the libraries of the CPU are the business of `longshore_codec`.
//!
//! Invariants
//! - No accelerator can fail a backup: software does again what a device did wrong or left undone.
//! - No vendor's library is linked. Each is loaded at run time, after a look at who could change its file.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod devices;
pub mod dispatch;
mod engine;
#[cfg(any(test, feature = "contract"))]
pub mod scripted;
mod software;

pub use devices::{
    Accelerator, AcceleratorFacts, Message, Refusal, Trouble, holds_exit, known, nvcomp, qatzip,
};
pub use engine::{Caps, Engine, EngineState, Fault, Health, Job, Outcome, Task};
pub use software::Software;
