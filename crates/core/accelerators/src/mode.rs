//! Words that both a run and an operator use: who compresses, and how it stands with an accelerator.

use longshore_accel::EngineState;

/// The choice of who compresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OffloadMode {
    /// CPUs alone.
    #[default]
    Software,
    /// The accelerator; CPUs do what it leaves undone.
    Hardware,
    /// The accelerator kept full, CPUs besides.
    Hybrid,
    /// Hybrid or hardware, as the objective says, where there is an accelerator.
    Auto,
}

/// How it stands with an accelerator, in one word.
pub fn state_text(state: EngineState) -> &'static str {
    match state {
        EngineState::Absent => "absent",
        EngineState::Probing => "probing",
        EngineState::Ready => "ready",
        EngineState::Suspended => "suspended",
        EngineState::Off => "off",
    }
}
