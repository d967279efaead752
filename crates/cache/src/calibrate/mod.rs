//! A model of a device that is there: measured, fitted, and refused where it does not fit.
//!
//! [`measure`] reads a file or a block device at random places, in several sizes and depths; [`fit`] looks for the
//! parameters whose simulated mean latencies are nearest, on a logarithmic scale; [`write_model`] and [`read_model`] keep
//! them in a file. What cannot be told from reads is not claimed: a fitted profile's writes take what its reads take.
//!
//! Invariants
//! - A profile comes out of [`fit`] only if nine tenths of the cells are predicted within 15 %. Others are refused with
//!   the cells, so that a person sees where the device is not what the model can say.
//! - Nothing is ever written to what is measured.

mod file;
mod fit;
mod measure;

pub use file::{BadModel, read_model, write_model};
pub use fit::{Fitted, Residual, Unfit, fit};
pub use measure::{Plan, Unmeasured, measure};

/// What was measured of one size and depth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Bytes of a read.
    pub len: u64,
    /// Reads under way at a time.
    pub depth: u32,
    /// Of one read, in µs.
    pub mean_us: f64,
    /// How many reads ended.
    pub count: u64,
}

#[cfg(test)]
mod tests;
