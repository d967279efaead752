//! Sweeps: the published study of 37 backups, and the study of buffers.
//!
//! [`stripes`] asks what stripes and algorithms bring: one backup to NUL tells how fast the source can be
//! read, then every algorithm is tried at nine stripe counts. [`buffers`] asks what BUFFERCOUNT and
//! MAXTRANSFERSIZE bring, to NUL.

mod buffers;
mod stripes;

pub use buffers::{BuffersSpec, buffers};
pub(crate) use stripes::Ratios;
pub use stripes::{STRIPES, StripesSpec, stripes};
