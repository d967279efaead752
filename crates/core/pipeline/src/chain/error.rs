//! Errors in the chain of a differential set. Sets are named in the form that people know.
//!
//! Each variant says which set is missing or does not fit, because the remedy is to name its stripes with `--base`.
//! Damage within a set is not an error of the chain but of its media.

use std::path::PathBuf;

use uuid::Uuid;

#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    #[error(
        "{child} needs backup set {parent}, which is not on the given media{}",
        known_text(known)
    )]
    Missing {
        child: String,
        parent: Uuid,
        /// The location in the history.
        known: Option<String>,
    },

    #[error("{child} needs backup set {parent}, which cannot be read")]
    Broken {
        child: String,
        parent: Uuid,
        source: Box<longshore_media::Error>,
    },

    #[error("{child} needs {parent}, which is of {what}")]
    Foreign {
        child: String,
        parent: String,
        what: &'static str,
    },

    #[error("the chain of {newest} is a circle: it has {again} twice")]
    Endless { newest: String, again: String },

    #[error("the chain of {newest} has more than {max} sets")]
    TooLong { newest: String, max: usize },

    #[error("{child} needs {} from its parent, {parent}, which has no such file", path.display())]
    NoSuchFile {
        child: String,
        parent: String,
        path: PathBuf,
    },

    #[error("{set} contradicts itself about {}", path.display())]
    Contradiction { set: String, path: PathBuf },

    #[error("a differential set comes from a pipe, which cannot be read twice")]
    Pipe,

    #[error("the chain of {newest} has more pieces than fit into {max_bytes} bytes of memory")]
    Scattered { newest: String, max_bytes: u64 },
}

fn known_text(known: &Option<String>) -> String {
    known.as_ref().map_or_else(String::new, |known| {
        format!("; the history has it: {known}")
    })
}

impl ChainError {
    /// SQL Server's message number for this error.
    pub fn number(&self) -> u32 {
        match self {
            ChainError::Missing { .. }
            | ChainError::Broken { .. }
            | ChainError::Foreign { .. }
            | ChainError::Endless { .. }
            | ChainError::TooLong { .. }
            | ChainError::Scattered { .. }
            | ChainError::Pipe => 3136,
            ChainError::NoSuchFile { .. } | ChainError::Contradiction { .. } => 3189,
        }
    }

    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            ChainError::Missing { .. } => {
                "give all stripes of its media set with --base too; `longshore list` shows which sets media hold"
            }
            ChainError::Broken { source, .. } => source.hint(),
            ChainError::Foreign { .. }
            | ChainError::Endless { .. }
            | ChainError::TooLong { .. } => {
                "these media were not made by a backup; restore an older set"
            }
            ChainError::NoSuchFile { .. } | ChainError::Contradiction { .. } => {
                "the set cannot be restored; restore the one before it"
            }
            ChainError::Scattered { .. } => "restore it in parts, with --only",
            ChainError::Pipe => "save the stream to a file and restore that",
        }
    }
}
