//! A model of an existing device: measured, fitted, and refused if it does not fit.
//!
//! [`measure`] reads a file or a block device at random places, in several sizes and depths; [`fit`] searches for the
//! parameters whose simulated mean latencies are nearest, on a logarithmic scale; [`write_model`] and [`read_model`]
//! keep them in a file. Reads say nothing about writes, so nothing is claimed about them: in a fitted profile writes
//! take as long as reads.
//!
//! Invariants
//! - A profile comes out of [`fit`] only if nine tenths of the cells are predicted within 15 %. Others are refused,
//!   with the cells, so that a person sees where the device differs from the model.
//! - Nothing is ever written to the measured file or device.

mod file;
mod fit;
mod measure;

pub use file::{BadModel, NoModelAt, model_at, read_model, write_model};
pub use fit::{AcceptedProfile, FitRefusal, Residual, fit};
pub use measure::{MeasureError, MeasurePlan, measure};

/// The measurement of one size and depth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Bytes of a read.
    pub len_bytes: u64,
    /// Reads in flight at a time.
    pub depth: u32,
    /// Mean time of one read, in µs.
    pub mean_us: f64,
    /// The number of finished reads.
    pub count: u64,
}

#[cfg(test)]
mod tests;
