//! The acceptance grid: what each policy makes of many loads on many pairs, against the better of no cache and a
//! classic one.
//!
//! A cell is a pair, a kind of load, a depth, how much is resident, how much is written, and a loop. The rivals run
//! in every cell; the best fixed split, an oracle that knows the load beforehand, is the best of several. An open
//! loop offers a share of what the better rival did in the closed one.
//!
//! Some of `aware`'s gain is that readers wait for each other's reads; a study can have all policies do so, or none.
//!
//! Invariants
//! - All policies of a cell and seed see the same requests in a closed loop's order, or at the same times.
//! - A cell's virtual time depends on its devices and load alone, not on a policy.

mod cell;
mod run;
mod verdict;

pub use cell::{Cell, Extent, Kind, Loop, cells};
pub use run::{Figures, Measured, Study, Wrong, measure, measure_all};
pub use verdict::{Verdict, against_better, is_core, is_pure, verdicts};
