//! What can be refused: a level that an algorithm does not have, and bytes that do not decode.

use std::borrow::Cow;

use crate::Algorithm;

/// Why a [`Compressor`](crate::Compressor) cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The number lies outside the algorithm's own scale.
    #[error("{algorithm} has no level {level}; its levels are {lowest} to {highest}")]
    LevelOutOfRange {
        algorithm: Algorithm,
        level: i32,
        lowest: i32,
        highest: i32,
    },

    /// A number was given to an algorithm that has only one way of doing its work.
    #[error("{algorithm} has no numbered levels, {level} was asked for")]
    LevelNotSupported { algorithm: Algorithm, level: i32 },
}

impl Error {
    /// What the operator can do now.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::LevelOutOfRange { .. } => {
                "give a number within the range, or LOW, MEDIUM or HIGH"
            }
            Error::LevelNotSupported { .. } => "leave the level out",
        }
    }
}

/// A payload is not what its algorithm's container allows, or does not decode to the promised
/// number of bytes. Says where; which file and block it was, the caller knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("payload is damaged at byte {offset}: {what}")]
pub struct Damaged {
    /// Byte of the payload at which the trouble was noticed; the cause may lie before it.
    pub offset: usize,
    pub what: Cow<'static, str>,
}

impl Damaged {
    pub(crate) fn at(offset: usize, what: impl Into<Cow<'static, str>>) -> Damaged {
        Damaged {
            offset,
            what: what.into(),
        }
    }

    /// The same trouble, seen from a payload in which this one starts at byte `start`.
    pub(crate) fn shifted(self, start: usize) -> Damaged {
        Damaged {
            offset: self.offset + start,
            what: self.what,
        }
    }

    /// What the operator can do now.
    pub fn hint(&self) -> &'static str {
        "restore from another copy of this stripe, or rebuild it from parity"
    }
}
