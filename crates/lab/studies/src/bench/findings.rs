//! The measurements of a bench: the rounds fill them in, and the report judges them.

use super::outside::{Ceiling, Peak, Peer};
use super::rounds::Round;
use crate::timing::Timing;

/// All measurements.
pub struct Findings {
    pub cores: usize,
    pub bytes: u64,
    pub files: usize,
    pub peaks: Vec<Peak>,
    pub ceilings: Vec<Ceiling>,
    pub rounds: Vec<Round>,
    /// For each stripe count: MS_XPRESS and QAT_DEFLATE.
    pub against: Vec<(usize, Timing, Timing)>,
    /// Levels of DEFLATE and MS_XPRESS to NUL.
    pub levels: Vec<(String, Timing)>,
    pub peers: Vec<Peer>,
}
