//! Parity stripes: how they are made while a set is written, and how lost or damaged stripes are read or repaired with
//! them.
//!
//! Invariants
//! - A byte that was rebuilt is given to a reader only after the checksum of its member in its row agreed.
//! - Parity is over the bytes of stripes, whatever they hold.
//!
//! Leaves to others: the code (`longshore-parity`), which stripes belong together (`set_reader.rs`), and the order in
//! which stripes become durable (`set_writer.rs`).

mod group;
mod image;
mod losses;
mod rebuilt;
mod row;
mod rows;
mod stripe;
mod table;

pub use group::StripeFault;
pub(crate) use group::{Group, Place, own};
pub(crate) use image::{examined, header_of, whole_of, write_known, write_new};
pub(crate) use losses::{Bearing, Losses};
pub(crate) use rebuilt::RebuiltStripe;
pub(crate) use row::CONTAINER;
pub use row::{ROW_BYTES, ROW_BYTES_MIN, RowRecord, Span};
pub use rows::HELD_BLOCKS;
pub(crate) use rows::{Rows, Tap, memory_bytes};
pub(crate) use stripe::ParityStripe;
pub(crate) use table::{RowTable, is_lost_to_medium, is_of_medium, trailer_of};
