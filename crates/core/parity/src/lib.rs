//! The Reed-Solomon code of parity stripes: bytes in, bytes out.
//!
//! `docs/format.md`, section "Parity", defines the code. Up to [`DATA_MAX`] data members and up to [`PARITY_MAX`] parity
//! members of equal length; any as many members as there are data members give all others.
//!
//! Invariants
//! - All kernels ([`Kernel`]) compute the same bytes; the processor decides between them at run time.
//! - The first parity member is the exclusive or of the data members.
//! - Every square part of the matrix of coefficients can be inverted (it is a Cauchy matrix with scaled columns), so no
//!   choice of sources fails.
//!
//! Leaves to others: which bytes are members, and which of them are bad (`longshore-media`).

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod field;
mod kernel;
mod matrix;

pub use field::{inverse, product};
pub use kernel::{Kernel, Outputs, combine, combine_with};
pub use matrix::{Recipe, coefficient};

/// The most data members.
pub const DATA_MAX: usize = 64;
/// The most parity members.
pub const PARITY_MAX: usize = 8;
