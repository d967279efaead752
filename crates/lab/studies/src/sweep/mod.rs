//! Sweeps: the published study of 37 backups, and the studies of buffers and layouts.
//!
//! [`stripes`] measures the effect of stripes and algorithms: one backup to NUL shows how fast the source can be read,
//! then every algorithm is tried at nine stripe counts. [`buffers`] measures the effect of BUFFERCOUNT and
//! MAXTRANSFERSIZE, to NUL and to a file. [`layouts`] measures both over devices and volumes.

mod backup;
mod buffers;
mod layouts;
mod ratios;
mod shown;
mod stripes;

pub use backup::StripesSpec;
pub use buffers::{BuffersSpec, buffers};
pub use layouts::{LayoutsSpec, layouts};
pub(crate) use ratios::Ratios;
pub use stripes::{STRIPES, stripes};
