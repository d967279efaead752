//! The settings of a run, and the pace at which it is watched.

use std::time::Duration;

use longshore_codec::Algorithm;

use super::check::Verify;

/// Which of the two compresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The device; the CPU does the blocks that the device does not do, and all blocks while it is out of service.
    Hardware,
    /// The device is kept exactly full, and the CPU takes the rest.
    Hybrid,
}

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Terms {
    pub algorithm: Algorithm,
    pub mode: Mode,
    pub verify: Verify,
    /// A call is given up before it takes longer than this.
    pub hang_bound: Duration,
    /// Bytes of one buffer.
    pub buffer_bytes: usize,
    /// An accelerator may hold the input or output sides of this many buffers: waiting, at work and in hung calls
    /// together. In hybrid mode it may hold all of them only while it serves alone, otherwise half: the rest is for
    /// the CPUs' blocks that wait behind its own.
    pub allowance_buffers: usize,
    /// CPUs that compute at the same time.
    pub cpus: usize,
    /// Bytes of blocks that can wait for an earlier block of the device; `None`: no block waits for another.
    pub slack_bytes: Option<u64>,
}

/// The usual time between two calls of [`Dispatcher::tick`]. So a block may hold up the writer for at least this long.
pub(super) const LOOK: Duration = Duration::from_millis(100);
