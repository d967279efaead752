//! Who hears what happens while a run goes on.

use crate::plan::Plan;

/// Hears what happens while a run goes on. Called from its threads; must not block for long.
pub trait Observer: Send + Sync {
    /// Everything was decided; bytes will move now.
    fn planned(&self, plan: &Plan);
    /// About ten times a second.
    fn progress(&self, progress: &Progress);
    fn warning(&self, text: &str);
}

/// How far a run is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    pub plain_bytes: u64,
    pub stored_bytes: u64,
    /// What `plain_bytes` will be at the end, where that is known.
    pub expected_bytes: Option<u64>,
    pub entries: u64,
}

/// Hears nothing.
pub struct Silent;

impl Observer for Silent {
    fn planned(&self, _plan: &Plan) {}
    fn progress(&self, _progress: &Progress) {}
    fn warning(&self, _text: &str) {}
}
