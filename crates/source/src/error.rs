//! Why a source cannot be read.

use std::path::PathBuf;

/// Every variant names the file an operator must look at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused. The cause is in `source()` and is not repeated in the text.
    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
}

impl Error {
    /// What the operator can do now, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Io { .. } => "check that the path exists and that this user may read it",
        }
    }
}
