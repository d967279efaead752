//! Sweeps: the published study of 37 backups, and the study of buffers.
//!
//! [`stripes`] measures the effect of stripes and algorithms: one backup to NUL shows how fast the source can be read,
//! then every algorithm is tried at nine stripe counts. [`buffers`] measures the effect of BUFFERCOUNT and
//! MAXTRANSFERSIZE, to NUL.

mod backup;
mod buffers;
mod ratios;
mod shown;
mod stripes;

pub use backup::StripesSpec;
pub use buffers::{BuffersSpec, buffers};
pub(crate) use ratios::Ratios;
pub use stripes::{STRIPES, stripes};
