//! The acceptance grid: the result of each policy for many loads on many pairs, compared with the better of no cache
//! and a classic cache.
//!
//! A cell is a pair, a kind of load, a depth, a resident share, a share of writes, and a loop. The rivals run in every
//! cell; the best fixed split, an oracle that knows the load beforehand, is the best of several. An open loop offers a
//! share of what the better rival reached in the closed one.
//!
//! Part of `aware`'s gain is that readers wait for each other's reads; a study can have all policies do so, or none.
//!
//! Invariants
//! - All policies of a cell and seed see the same requests in a closed loop's order, or at the same times.
//! - A cell's virtual time depends on its devices and load alone, not on a policy.

mod cell;
mod run;
mod verdict;

pub use cell::{Cell, Extent, LoadKind, Loop, cells};
pub use run::{CellRun, Figures, Study, Wrong, measure, measure_all, measure_views};
pub use verdict::{GoalVerdict, against_better, is_core, is_pure, verdicts};
