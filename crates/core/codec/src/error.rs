//! Refusals: a level that an algorithm does not have, and bytes that do not decode.
//!
//! A payload error names the byte in the payload; the caller knows file and block and adds them. An output that is not
//! smaller than its input is no error: the caller stores the input.

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

    /// A number was given to an algorithm that has no levels.
    #[error("{algorithm} has no numbered levels, but level {level} was given")]
    LevelNotSupported { algorithm: Algorithm, level: i32 },
}

impl Error {
    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::LevelOutOfRange { .. } => {
                "give a number within the range, or LOW, MEDIUM or HIGH"
            }
            Error::LevelNotSupported { .. } => "leave the level out",
        }
    }
}

/// A payload is not what its algorithm's container allows, or does not decode to the promised number of bytes. Names
/// the place in the payload; the caller knows the file and the block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("payload is damaged at byte {offset}: {what}")]
pub struct PayloadError {
    /// The byte of the payload at which the damage was noticed; the cause may lie before it.
    pub offset: usize,
    pub what: Cow<'static, str>,
}

impl PayloadError {
    pub fn at(offset: usize, what: impl Into<Cow<'static, str>>) -> PayloadError {
        PayloadError {
            offset,
            what: what.into(),
        }
    }

    /// The same damage, for a payload in which this one starts at byte `start`.
    pub fn shifted(self, start: usize) -> PayloadError {
        PayloadError {
            offset: self.offset + start,
            what: self.what,
        }
    }

    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        "restore from another copy of this stripe, or rebuild it from parity"
    }
}
