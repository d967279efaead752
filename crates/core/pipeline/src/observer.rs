//! Notifications during a run.

use crate::plan::Plan;

/// Is notified during a run. Called from the run's threads; must not block for long.
pub trait Observer: Send + Sync {
    /// All decisions are made; bytes will move now.
    fn planned(&self, plan: &Plan);
    /// Called about ten times a second.
    fn progress(&self, progress: &Progress);
    fn warning(&self, text: &str);
}

/// The progress of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    pub plain_bytes: u64,
    pub stored_bytes: u64,
    /// The value of `plain_bytes` at the end, if known.
    pub expected_bytes: Option<u64>,
    pub entries: u64,
}

/// Ignores all notifications.
pub struct NullObserver;

impl Observer for NullObserver {
    fn planned(&self, _plan: &Plan) {}
    fn progress(&self, _progress: &Progress) {}
    fn warning(&self, _text: &str) {}
}
