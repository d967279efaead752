//! Notifications during a run.

use longshore_media::LeftStripe;

use crate::plan::Plan;

/// Is notified during a run. Called from the run's threads; must not block for long, and cannot fail. The tests in
/// `tests/observer` check both sides of this text.
pub trait Observer: Send + Sync {
    /// All decisions are made; bytes will move now. Called once, before `progress`; not for a run that its request or its
    /// media refuse. A restore's target may still refuse it.
    fn planned(&self, plan: &Plan);
    /// Called about ten times a second, from one thread at a time. Values never decrease.
    fn progress(&self, progress: &Progress);
    /// Something went wrong, or may be wrong with the result, although the run goes on; also in the report. Any thread may
    /// call it, at any time between the start and the end of the run.
    fn warning(&self, text: &str);
    /// Something is worth knowing although nothing is wrong. Reported and called as a warning is.
    fn note(&self, text: &str);
    /// The stripes of a backup to object stores are being completed: what became of each so far. Called before the
    /// first completion, and after each.
    fn completing(&self, _stripes: &[LeftStripe]) {}
}

/// The progress of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    pub plain_bytes: u64,
    /// `plain_bytes`, and what was read and found equal to the base's.
    pub done_bytes: u64,
    pub stored_bytes: u64,
    /// The value of `done_bytes` at the end, if known; of a server roughly.
    pub expected_bytes: Option<u64>,
    pub entries: u64,
}

/// Ignores all notifications.
pub struct NullObserver;

impl Observer for NullObserver {
    fn planned(&self, _plan: &Plan) {}
    fn progress(&self, _progress: &Progress) {}
    fn warning(&self, _text: &str) {}
    fn note(&self, _text: &str) {}
}
