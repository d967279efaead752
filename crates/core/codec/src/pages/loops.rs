//! Loops that are compiled for each kernel.
//!
//! Leaves to others: which kernel does it (`kernel.rs`).

/// Some loops. No closure: that would not be inlined into a function with its own target features.
pub(super) trait Loops {
    type Result;

    /// Runs them. To be inlined, with what it calls for each page and each value.
    fn run(self) -> Self::Result;
}
