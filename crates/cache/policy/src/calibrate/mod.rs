//! A model of an existing device: measured, fitted, and refused if it does not fit.
//!
//! [`measure`] sends requests to random places of a file or a block device, in several sizes and depths; [`course`] finds
//! limits that a burst may exceed; [`fit`] and [`fit_writes`] search for the parameters whose simulated mean latencies are
//! nearest, on a logarithmic scale; [`write_model`] and [`read_model`] keep them in a file. Where writes were not measured
//! nothing is claimed about them: they take as long as reads.
//!
//! Invariants
//! - A profile comes out only if nine tenths of the cells are predicted within 15 %, of reads and of writes. Others are
//!   refused, with the cells, so that a person sees where the device differs from the model.
//! - What is measured is written to only if the caller says so: writes are for a scratch file.

mod cell;
mod course;
mod file;
mod fit;
mod measure;
mod search;
mod writes;

pub use cell::{MeasureError, Probe};
pub use course::{Course, Fall, Kind, Lasting, course, own_limits};
pub use file::{BadModel, NoModelAt, model_at, read_model, write_model};
pub use fit::{AcceptedProfile, FitRefusal, Known, fit};
pub use measure::{MeasurePlan, measure, together};
pub use search::Residual;
pub use writes::{WriteFacts, fit_writes};

use crate::model::Op;

/// The measurement of one size and depth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub op: Op,
    /// Bytes of a request.
    pub len_bytes: u64,
    /// Requests in flight at a time.
    pub depth: u32,
    /// Mean time of one request, in µs.
    pub mean_us: f64,
    /// The number of finished requests.
    pub count: u64,
}

impl Point {
    /// Requests per µs, by Little's law.
    pub fn requests_per_us(&self) -> f64 {
        f64::from(self.depth) / self.mean_us
    }

    /// Bytes per µs.
    pub fn bytes_per_us(&self) -> f64 {
        self.len_bytes as f64 * self.requests_per_us()
    }
}

#[cfg(test)]
mod tests;
